"""ndr.py from end to end: TRex's own client library talks to a stand-in for the server."""

import contextlib
import getpass
import hashlib
import io
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import lbr_trex_client  # noqa: F401 puts the client's folders on the path
import trex.stl.api  # noqa: F401 and those of its libraries

import ndr
import ndr_bench
import ndr_options
import ndr_report
import ndr_stamp
import server as stand_in
import validate
from server import Device, Server

# The client really waits that long after each trial.
ndr_bench.RX_DELAY_SECONDS = stand_in.CLIENTS_RX_DELAY = 0.001


def run(server, *arguments):
    """(exit status or message, standard output, report)"""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as out, \
            contextlib.redirect_stderr(io.StringIO()):
        report = os.path.join(folder, 'report.json')
        real, ndr_bench.time = ndr_bench.time, server.clock
        try:
            ndr.main(['--rpc-port', str(server.rpc_port), '--publisher-port', str(server.publisher_port), '--json', report,
                      '--min', '1kpps', '--max', '400kpps', '--final', '20', *arguments])
            status = 0
        except SystemExit as end:
            status = end.code
        finally:
            ndr_bench.time = real
        found = json.load(open(report)) if os.path.exists(report) else None
        return status, out.getvalue(), found


@contextlib.contextmanager
def loading_512(raises):
    """Ends a search there."""
    real = ndr.Bench._load

    def load(bench, size):
        if size == 512:
            raise raises
        return real(bench, size)
    ndr.Bench._load = load
    try:
        yield
    finally:
        ndr.Bench._load = real


@contextlib.contextmanager
def srv6d_in_path(version):
    """One that says this of itself. Gives the beginning of its checksum."""
    text, path = '#!/bin/sh\necho %s\n' % version, os.environ['PATH']
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, 'srv6d')
        with open(program, 'w') as file:
            file.write(text)
        os.chmod(program, 0o755)
        os.environ['PATH'] = folder + os.pathsep + path
        try:
            yield hashlib.sha256(text.encode()).hexdigest()[:12]
        finally:
            os.environ['PATH'] = path


@contextlib.contextmanager
def impatient():
    """The client waits by the real clock for what takes no time here, or never ends."""
    real, ndr_bench.longest_wait = ndr_bench.longest_wait, lambda seconds: 0.05
    try:
        yield
    finally:
        ndr_bench.longest_wait = real


def refuse(params):
    raise ValueError('no room')


def report_for_pages(path):
    """What `bench-net render` gets of a search with latency packets."""
    with Server(Device(capacity=150_000)) as server:
        status, _, _ = run(server, '--sizes', '256,512', '--tunable', 'lat_pps=1000', '--report', path)
    sys.exit(status)


class Ndr(unittest.TestCase):
    def test_the_devices_capacity_is_found(self):
        with Server(Device(capacity=150_000), stuck=700) as server:
            status, text, report = run(server, '--sizes', '256,512')
        self.assertEqual(status, 0)
        self.assertEqual(server.misfits, [])
        sizes = report['runs'][0]['sizes']
        self.assertEqual([one['frame'] for one in sizes], [256, 512])
        for one in sizes:
            self.assertEqual((one['ndr']['limited_by'], one['ndr']['confirmed']), ('device', True))
            self.assertTrue(144_000 < one['ndr']['pps'] <= 150_000, one['ndr']['pps'])
        self.assertIn('| 256 |', text)
        self.assertEqual((report['stamp']['trex'], report['stamp']['receive_ring']), ('stand-in', '16384 frames'))

    def test_the_report_says_what_it_was_made_with(self):
        with Server(Device(capacity=150_000)) as server, srv6d_in_path('srv6d 1.2.3') as checksum:
            _, _, report = run(server, '--sizes', '256', '--dut', 'srv6d, core 2')
        stamped = dict(ndr_report.document(report)['stamp'])
        for words in ("ndr.py --rpc-port %d" % server.rpc_port, "--sizes 256 --dut 'srv6d, core 2'"):
            self.assertIn(words, stamped['command'])
        with open('/proc/cpuinfo') as file:
            models = [line.split(':')[1].strip() for line in file if line.startswith('model name')]
        self.assertTrue(stamped['machine'].endswith(models[0] if models else platform.machine()), stamped)
        self.assertEqual((stamped['TRex server'], stamped['trex built']), ('stand-in', 'Jan  1 2025'))
        self.assertRegex(stamped['TRex client'], '^lbr-trex-client [0-9.]+$')
        self.assertEqual((stamped['device'], stamped['srv6d in PATH here']), ('srv6d, core 2', 'srv6d 1.2.3, build ' + checksum))

    def test_machines_say_what_they_are(self):
        said = {'model name\t: Xeon\nflags\t\t: fpu hypervisor\n\nmodel name\t: Xeon\n': '^virtual machine with .* cores?, Xeon$',
                'processor\t: 0\nFeatures\t: fp\n': '^machine with .* cores?, %s$' % platform.machine()}
        for text, words in said.items():
            with tempfile.NamedTemporaryFile('w') as file:
                file.write(text)
                file.flush()
                self.assertRegex(ndr_stamp.machine(file.name), words)

    def test_a_generator_at_its_limit_is_called_that(self):
        with Server(Device(), ceiling=100_000) as server:
            _, text, report = run(server, '--sizes', '256')
        found = report['runs'][0]['sizes'][0]['ndr']
        self.assertEqual(found['limited_by'], 'generator')
        self.assertTrue(97_000 < found['pps'] <= 100_000, 'what it was asked for beyond its ceiling was never sent')
        self.assertIn('generator-limited', text)

    def test_a_device_at_the_ceiling_of_the_generator_is_called_that(self):
        for ceiling, is_said in (('150kpps', True), ('300kpps', False)):
            with Server(Device(capacity=150_000)) as server:
                _, _, report = run(server, '--sizes', '256', '--ceiling', ceiling)
            self.assertEqual('needs a faster one' in json.dumps(ndr_report.document(report)), is_said)

    def test_what_the_rings_lose_is_void(self):
        with Server(Device(), ring=50_000) as server:
            _, _, report = run(server, '--sizes', '256')
        found = report['runs'][0]['sizes'][0]['ndr']
        self.assertEqual(found['limited_by'], 'void')
        self.assertGreater(found['void_trials'], 0)

    def test_one_in_a_thousand_lost_is_found(self):
        with Server(Device(lose=0.001)) as server:
            status, _, _ = run(server, '--sizes', '256')
            self.assertIn('arrived at a trickle', str(status)) if status else None
        with Server(Device(lose=0.001, capacity=1e9)) as server:
            server.device.forward = lambda count, rate, size: count if rate < 2000 else int(count * 0.999)
            _, _, report = run(server, '--sizes', '256')
        one = report['runs'][0]['sizes'][0]
        self.assertLess(one['ndr']['pps'], 2001)
        self.assertEqual(one['pdr']['limited_by'], 'maximum')

    def test_sizes_below_the_smallest_frame_become_it(self):
        with Server(Device(capacity=150_000)) as server:
            _, _, report = run(server, '--sizes', '64')
        one = report['runs'][0]['sizes'][0]
        self.assertEqual((one['asked_frame'], one['frame']), (64, 106))

    def test_the_smallest_frame_has_room_for_what_times_it(self):
        with Server(Device(capacity=150_000)) as server:
            _, text, report = run(server, '--sizes', '64', '--tunable', 'lat_pps=1000')
        self.assertEqual(report['runs'][0]['sizes'][0]['frame'], 122)
        self.assertIn('| 122 (smallest; 64 asked) |', text)

    def test_latency_is_read_at_three_shares_of_the_rate(self):
        with Server(Device(capacity=150_000)) as server:
            _, _, report = run(server, '--sizes', '256', '--tunable', 'lat_pps=1000')
        self.assertEqual(server.misfits, [])
        shares = report['runs'][0]['sizes'][0]['latency']
        self.assertEqual([one['percent_of_ndr'] for one in shares], [10, 50, 90])
        for share in shares:
            group = share['groups_us']['1']
            self.assertAlmostEqual(group['average'], 20.7)
            self.assertEqual(group['percentiles'], {'p50': 20, 'p99': 20, 'p999': 90})
            self.assertEqual((group['min'], group['max']), (20, 90), 'nothing of the trials before, that were too fast')

    def test_packets_lost_in_a_trial_and_seen_as_lost_behind_it_are_summed(self):
        with Server(Device(capacity=150_000, lost_timed=2)) as server:
            _, _, report = run(server, '--sizes', '256', '--tunable', 'lat_pps=1000')
        for share in report['runs'][0]['sizes'][0]['latency']:
            self.assertEqual(share['groups_us']['1']['lost'], 3)

    def test_a_server_without_histograms_is_called_that(self):
        with Server(Device(capacity=150_000), hdrh=False) as server:
            _, _, report = run(server, '--sizes', '256', '--tunable', 'lat_pps=1000')
        self.assertIsNone(report['runs'][0]['sizes'][0]['latency'][0]['groups_us']['1']['percentiles'])
        self.assertIn('--hdrh', json.dumps(ndr_report.document(report)))

    def test_what_leaves_is_beside_what_came(self):
        with Server(Device(capacity=150_000, longer=40)) as server:
            _, text, report = run(server, '--sizes', '256', '--profile', 'srv6_encap_in.py')
        self.assertEqual(report['runs'][0]['sizes'][0]['egress_frame'], 296)
        self.assertIn('| 256 | 296 |', text)

    def test_a_mix_has_its_weighted_mean(self):
        with Server(Device(capacity=150_000)) as server:
            _, text, report = run(server, '--profile', 'srv6_imix.py', '--sizes', 'profile')
        one = report['runs'][0]['sizes'][0]
        self.assertEqual(one['frame'], round((28 * 122 + 16 * 570 + 4 * 1518) / 48, 1))
        self.assertAlmostEqual(one['ndr']['l2_bps'], one['ndr']['pps'] * 8 * (28 * 122 + 16 * 570 + 4 * 1518) / 48, delta=1)
        self.assertIn('| 387.7 (122, 570, 1518) |', text)
        with Server(Device(capacity=150_000)) as server:
            _, text, _ = run(server, '--profile', 'srv6_imix.py', '--sizes', 'profile', '--tunable', 'lat_pps=1000')
        self.assertIn('| 387.7 (122, 570, 1518) |', text)

    def test_what_was_measured_before_a_mistake_is_kept(self):
        with Server(Device(capacity=150_000, largest=400)) as server:
            status, text, report = run(server, '--sizes', '256,512')
        self.assertIn('look at MTU', status)
        self.assertEqual([one['frame'] for one in report['runs'][0]['sizes']], [256])
        self.assertIn('look at MTU', report['stamp']['cut_off'])
        self.assertIn('| 256 |', text)

    def test_what_was_measured_before_ctrl_c_is_kept(self):
        with Server(Device(capacity=150_000)) as server, loading_512(KeyboardInterrupt()):
            status, _, report = run(server, '--sizes', '256,512')
            nothing = run(server, '--sizes', '512')
        self.assertEqual((nothing[0], nothing[2]), (130, None))
        self.assertEqual(server.owner, dict.fromkeys(server.owner, ''), 'the ports are let go')
        self.assertEqual((status, report['stamp']['cut_off']), (130, 'interrupted'))
        self.assertEqual(len(report['runs'][0]['sizes']), 1)

    def test_what_was_measured_before_the_client_fails_is_kept(self):
        with Server(Device(capacity=150_000)) as server, loading_512(AssertionError('negative')):
            status, _, report = run(server, '--sizes', '256,512')
        self.assertEqual((status, report['stamp']['cut_off']), ('error: AssertionError: negative',) * 2)
        self.assertEqual(len(report['runs'][0]['sizes']), 1)

    def test_a_report_that_cannot_be_written_is_found_before(self):
        with Server(Device()) as server:
            self.assertEqual(run(server, '--report', '/no/such/folder/report.json')[0], 2)
            self.assertEqual(server.started, [])

    def test_a_frame_that_never_arrives_is_found_at_a_trickle(self):
        with Server(Device(largest=400)) as server:
            status, _, _ = run(server, '--sizes', '512')
        self.assertIn('look at MTU', str(status))

    def test_both_directions_are_summed(self):
        with Server(Device(capacity=80_000)) as server:
            _, _, report = run(server, '--sizes', '256', '--bidir')
        found = report['runs'][0]['sizes'][0]['ndr']
        self.assertTrue(150_000 < found['pps'] <= 160_000, found['pps'])

    def test_every_profile_can_be_sent(self):
        profiles = [name for name in os.listdir(os.path.dirname(HERE)) if name.startswith('srv6_') and name.endswith('.py')]
        for profile in set(profiles) - {'srv6_packets.py', 'srv6_roce.py', 'srv6_negative.py'}:
            with Server(Device(capacity=150_000)) as server:
                status, _, report = run(server, '--profile', profile, '--sizes', 'profile')
            self.assertEqual((profile, status), (profile, 0))
            self.assertEqual(report['runs'][0]['sizes'][0]['ndr']['limited_by'], 'device')

    def test_the_profiles_are_given_to_a_server_that_is_named(self):
        with Server(Device()) as server:
            where = '127.0.0.1:%d:%d' % (server.rpc_port, server.publisher_port)
            self.assertEqual(validate.offer_to(where), [])
            self.assertGreater(server.methods.count('add_stream'), 100)
            server.add_stream = refuse
            self.assertIn('no room', validate.offer_to(where)[0])

    def test_mistakes_are_named(self):
        mistakes = {
            '--max 0': '250kpps', '--max fast': '250kpps', '--max 1.2.3k': '250kpps', '--min 2k --max 1k': 'above the highest',
            '--sizes 64,,': '128,512', '--sizes big': '128,512', '--sizes 0': '64 to 9238', '--sizes 9239': '64 to 9238',
            '--ports x': 'write 0,2', '--ports 0,1': '--bidir', '--pdr 200': 'less than 100', '--pdr few': 'less than 100',
            '--trial 0': 'from 1 up', '--final -1': 'from 1 up', '--repeat 0': 'from 1 up',
            '--tunable usids': 'NAME=VALUE', '--tunable =3': 'NAME=VALUE', '--tunable fsize=128': '--sizes',
            '--tunable lat_pps=many': 'packets a second', '--report /no/such/folder/report.json': 'No such file',
            '--profile no_such.py': 'srv6_usid_transit.py', '--profile ../README.md': 'srv6_usid_transit.py'}
        for arguments, words in mistakes.items():
            with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit) as end:
                ndr_options.parse(arguments.split())
            self.assertEqual(end.exception.code, 2)
            self.assertIn(words, said.getvalue(), arguments)

    def test_mistakes_that_a_profile_finds_are_named(self):
        with Server(Device()) as server:
            self.assertIn('refused', str(run(server, '--tunable', 'speed=3', '--sizes', '256')[0]))
            self.assertEqual(run(server, '--tunable', 'flows=100000', '--sizes', '256')[0],
                             'error: srv6_usid_transit.py: --flows 100000: 0 to 16384')
            self.assertIn('latency packets at least 2e+06', str(run(server, '--tunable', 'lat_pps=1000000', '--sizes', '256')[0]))
            self.assertEqual(server.started, [])

    def test_what_was_offered_is_what_left_in_the_time_of_sending(self):
        for tunable in ([], ['--tunable', 'lat_pps=1000']):
            with Server(Device(capacity=150_000)) as server:
                _, _, report = run(server, '--sizes', '256', *tunable)
            for one in report['runs'][0]['sizes'][0]['ndr']['trials']:
                self.assertAlmostEqual(one['offered'] / one['requested'], 1.0, places=4)

    def test_a_conversation_that_has_another_form_than_the_servers_is_found(self):
        with Server(Device(capacity=150_000)) as server:
            whole = server.get_port_stats
            server.get_port_stats = lambda params: {name: value for name, value in whole(params).items() if name != 'oerrors'}
            server.ping = lambda params: {'ts': 'now'}
            server.answer({'id': 1, 'method': 'get_port_stats', 'params': {'api_h': 'handle', 'port_id': 0}})
            server.answer({'id': 1, 'method': 'ping', 'params': {}})
            server.answer({'id': 1, 'method': 'publish_now', 'params': {'api_h': 'handle', 'key': 1}})
        self.assertIn('get_port_stats: answered with no result.oerrors', server.misfits)
        self.assertTrue(any(one.startswith('ping: answered with result.ts') for one in server.misfits), server.misfits)
        self.assertIn('publish_now: asked with no params.baseline', server.misfits)

    def test_a_server_of_another_version_is_called_that(self):
        with Server(Device(), api=(4, 6)) as server:
            said = str(run(server, '--sizes', '256')[0])
        self.assertIn('another version', said)
        self.assertNotIn('no TRex server', said)

    def test_ports_that_are_down_are_named(self):
        with Server(Device(), link=False) as server:
            said = str(run(server, '--sizes', '256')[0])
        self.assertIn('down: port 0, port 1', said)

    def test_frames_of_the_devices_own_hide_no_loss(self):
        with Server(Device(capacity=150_000, chatter=3)) as server:
            status, _, report = run(server, '--sizes', '256')
        found = report['runs'][0]['sizes'][0]
        self.assertEqual((status, found['counted_by'], server.misfits), (0, 'flow statistics', []))
        self.assertEqual((found['ndr']['limited_by'], found['ndr']['confirmed'], found['ndr']['void_trials']), ('device', True, 0))
        # Two starts a trial, of which each brings three.
        self.assertEqual({one['foreign'] for one in found['ndr']['trials']}, {6})
        self.assertIn('frames of its own', json.dumps(ndr_report.document(report)))
        with Server(Device(lose=1e-5, chatter=3)) as server:
            server.device.forward = lambda count, rate, size: count - (3 if rate > 2000 else 0)
            _, _, report = run(server, '--sizes', '256')
        self.assertLess(report['runs'][0]['sizes'][0]['ndr']['pps'], 2001, 'three lost, and three others arrived')

    def test_a_device_that_replaces_the_label_is_counted_by_ports(self):
        with Server(Device(capacity=150_000, longer=40, labels=False)) as server:
            status, _, report = run(server, '--sizes', '256', '--profile', 'srv6_encap_in.py')
        found = report['runs'][0]['sizes'][0]
        self.assertEqual((status, found['counted_by'], found['ndr']['limited_by']), (0, 'port counters', 'device'))
        self.assertEqual({one['foreign'] for one in found['ndr']['trials']}, {None})

    def test_a_server_that_refuses_flow_statistics_counts_by_ports(self):
        with Server(Device(capacity=150_000), plain_groups=False) as server:
            status, _, report = run(server, '--sizes', '256')
        self.assertEqual((status, report['runs'][0]['sizes'][0]['counted_by']), (0, 'port counters'))

    def test_packets_with_ecn_get_no_flow_statistics(self):
        with Server(Device(capacity=150_000)) as server:
            _, _, report = run(server, '--sizes', 'profile', '--profile', 'srv6_roce_ring.py')
            self.assertEqual(server.groups.versions, 0, 'ECT would arrive as CE')
        self.assertEqual(report['runs'][0]['sizes'][0]['counted_by'], 'port counters')

    def test_a_generator_that_stretches_time_is_stopped(self):
        with Server(Device(), ceiling=100_000, stretches=True) as server, impatient():
            status, _, report = run(server, '--sizes', '256', '--max', '4mpps', '--trial', '1', '--final', '2')
        found = report['runs'][0]['sizes'][0]['ndr']
        self.assertEqual((status, found['limited_by'], found['confirmed'], server.misfits), (0, 'generator', True, []))
        self.assertTrue(97_000 < found['pps'] <= 100_000, found)
        self.assertIn('stop_traffic', server.methods)

    def test_checksums_of_the_first_packets_are_looked_at(self):
        for profile in ('srv6_usid_transit.py', 'srv6_encap_in.py', 'srv6_srh_reduced.py'):
            for tunables, spoils, words in (('csum=fix', False, None), ('csum=fix', True, 'wrong UDP checksum'), ('csum=none', True, None)):
                with Server(Device(capacity=150_000), spoils=spoils) as server:
                    status, _, _ = run(server, '--sizes', '256', '--profile', profile, '--tunable', tunables, '--max', '2kpps')
                self.assertEqual(server.misfits, [])
                self.assertIn(words, status) if words else self.assertEqual(status, 0)
                self.assertFalse(server.captures, 'none is left behind')

    def test_sigterm_lets_the_ports_go_as_ctrl_c(self):
        for one in (signal.SIGTERM, signal.SIGINT):
            with Server(Device(capacity=150_000)) as server:
                driver = subprocess.Popen(
                    [sys.executable, ndr.__file__, '--rpc-port', str(server.rpc_port), '--publisher-port', str(server.publisher_port),
                     '--sizes', '256'], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                for line in driver.stderr:
                    if 'frame 256' in line:
                        break
                driver.send_signal(one)
                _, said = driver.communicate(timeout=60)
                self.assertEqual(server.owner, dict.fromkeys(server.owner, ''), 'the ports are let go')
            self.assertEqual(driver.returncode, 128 + one)
            self.assertIn('interrupted: nothing was measured', said)

    def test_a_signal_in_the_middle_of_a_question_lets_the_ports_go(self):
        """The client library closes its connection then."""
        def interrupted(self, size):
            # The client's event thread uses the same socket, and libzmq aborts where two threads do.
            with self.client.conn.rpc.lock:
                self.client.conn.rpc.disconnect()
            raise KeyboardInterrupt
        real, ndr_bench.Bench._load = ndr_bench.Bench._load, interrupted
        try:
            with Server(Device()) as server:
                run(server, '--sizes', '256')
                self.assertEqual(server.owner, dict.fromkeys(server.owner, ''))
        finally:
            ndr_bench.Bench._load = real

    def test_ports_of_another_session_of_the_same_user_are_left_to_it(self):
        with Server(Device(capacity=150_000), owner=getpass.getuser()) as server:
            said = str(run(server, '--sizes', '256')[0])
            self.assertIn('another session of', said)
            self.assertIn('--force', said)

    def test_ports_of_somebody_else_are_left_to_him(self):
        with Server(Device(capacity=150_000), owner='somebody') as server:
            said = str(run(server, '--sizes', '256')[0])
            self.assertIn('somebody', said)
            self.assertIn('--force', said)
            self.assertEqual(server.owner[0], 'somebody')
            self.assertEqual(run(server, '--sizes', '256', '--force')[0], 0)

    def test_what_the_server_refuses_is_said(self):
        with Server(Device()) as server:
            refused = lambda method, **params: server.answer(
                {'id': 1, 'jsonrpc': '2.0', 'method': method, 'params': params})['error']
            self.assertEqual(refused('no_such')['code'], -32601)
            self.assertIn('API', refused('get_system_info')['specific_err'])
            self.assertEqual(refused('start_traffic', api_h='handle', port_id=0)['code'], -32602)
            self.assertIn('acquire', refused('start_traffic', api_h='handle', port_id=0, handler='mine')['specific_err'])

    def test_a_server_that_is_not_there(self):
        with Server(Device()) as server:
            pass
        said = str(run(server, '--sizes', '256')[0])
        self.assertIn('no TRex server at', said)
        self.assertIn('ip netns exec', said)


if __name__ == '__main__':
    if sys.argv[1:2] == ['--report']:
        report_for_pages(sys.argv[2])
    unittest.main()
