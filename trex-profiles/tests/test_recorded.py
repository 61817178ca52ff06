"""The driver, and the stand-in that the rest of its tests talk to, against what real servers answered."""

import os
import re
import sys
import types
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import lbr_trex_client  # noqa: F401 puts the client's folders on the path
import trex.stl.api  # noqa: F401 and those of its libraries

import forms
import ndr
import ndr_latency
import server as stand_in
from ndr_search import FAIL, PASS, VOID
from recorded import Replay, exchanges, load, statistics, unlike
from server import Device, Server
from test_ndr import run

# Asked by the client, and in no server's list of commands that is recorded: they came later.
LATER = {'get_async_events', 'get_tpg_status'}
# Answers that a search needs and no recording has.
NOT_RECORDED = LATER | {
    'get_port_xstats_names', 'get_port_xstats_values', 'publish_now', 'set_port_attr', 'set_rx_feature', 'service', 'capture', 'add_stream',
    'remove_rx_filters', 'get_active_pgids', 'get_pgid_stats', 'get_all_streams', 'ping'}

PARAMS = {'api_sync_v2': {'name': 'STL', 'major': 5, 'minor': 1}}


def asked_again(exchange, **known):
    """The stand-in's answer to a recorded question."""
    server = Server(Device(), **known)
    params = exchange.params or PARAMS.get(exchange.method, {'api_h': 'handle'})
    if 'result' in exchange.reply:
        server.handle = params.get('api_h', 'handle')
        server.owner = dict.fromkeys(server.owner, 'trex' if 'handler' in params else '')
        server.handler = dict.fromkeys(server.handler, params.get('handler'))
        recorded = next(one for one in exchanges() if one.method == 'get_all_streams').result['streams']
        server.streams[1] = {int(number): stream for number, stream in recorded.items()}
    return server.answer({'jsonrpc': '2.0', 'id': 1, 'method': exchange.method, 'params': params})


class StandIn(unittest.TestCase):
    def test_it_answers_as_servers_did_field_by_field(self):
        for exchange in exchanges():
            if 'error' in exchange.reply:
                continue
            answer = asked_again(exchange)
            self.assertIn('result', answer, (exchange.method, answer))
            found = list(unlike(exchange.result, answer['result'], '', exchange.gone))
            self.assertEqual(found, [], '%s of %s' % (exchange.method, exchange.where))

    def test_the_client_makes_of_its_counters_what_it_made_of_theirs(self):
        with Server(Device()) as server:
            options = ndr.parse(['--rpc-port', str(server.rpc_port), '--publisher-port', str(server.publisher_port)])
            client, load_profile, error = ndr.connect(options)
            try:
                ndr.take(client, options, error)
                bench = ndr.Bench(client, [0], 'srv6_usid_transit.py', {'lat_pps': 1000}, load_profile)
                bench.clock = server.clock
                bench.load(256)
                bench.trial(20_000, 1)
                found = client.get_stats()
            finally:
                client.disconnect()
        flood, groups, both = statistics()
        # L1 rates are the client's own calculation.
        own = tuple('%d.%s_bps_L1' % (port, direction) for port in (0, 1) for direction in ('tx', 'rx'))
        self.assertEqual(list(unlike(flood, found, '', own)), [])
        self.assertEqual(list(unlike(both['latency']['global'], found['latency']['global'], '')), [])
        for group in groups['latency'].values():
            self.assertEqual(list(unlike(dict(group, latency=dict(group['latency'], histogram={})), found['latency'][1], '')), [])

    def test_it_refuses_in_the_words_of_servers(self):
        refused = [one for one in exchanges() if 'error' in one.reply]
        self.assertEqual(len(refused), 3)
        for exchange in refused:
            server = Server(Device(), api=(5, 0))
            params = dict(exchange.params)
            if exchange.method == 'stop_traffic':
                server.handle = params['api_h']
            answer = server.answer({'jsonrpc': '2.0', 'id': 1, 'method': exchange.method, 'params': params})
            self.assertEqual(answer.get('error'), exchange.reply['error'])

    def test_the_forms_fit_what_was_recorded(self):
        """Of servers with the interface of today, but for what came later."""
        for exchange in exchanges():
            if exchange.where != 'system.json' and exchange.result is not None and exchange.method in forms.FORMS:
                params = exchange.params or PARAMS.get(exchange.method, {})
                self.assertEqual(forms.misfits(exchange.method, params, exchange.result), [])

    def test_a_difference_is_found(self):
        real = {'speed': 1.0, 'link': {'up': True}, 'ports': [{'index': 0, 'old': 1}], 'tags': []}
        stand_in_ = {'speed': 1, 'link': {}, 'ports': [{'index': '0'}], 'tags': [3]}
        self.assertEqual(list(unlike(real, stand_in_, '', ('ports.old',))), [
            'speed is int, and float on a server', 'link.up is missing', 'ports.index is str, and int on a server'])

    def test_every_recording_says_where_it_is_from(self):
        for name in os.listdir(os.path.join(HERE, 'recorded')):
            recorded = load(name)
            for one in [recorded] + recorded.get('returned', []):
                self.assertTrue(one['source'] and one['server'], name)

    def test_no_recording_is_of_a_server_that_the_client_goes_with(self):
        """The README says so, and has to say otherwise from then on."""
        for name in os.listdir(os.path.join(HERE, 'recorded')):
            with open(os.path.join(HERE, 'recorded', name)) as file:
                for major, minor in re.findall(r'"server": "[^"]*\bv(\d+)\.(\d+)', file.read()):
                    self.assertLess((int(major), int(minor)), (3, 4), name)


class Driver(unittest.TestCase):
    def test_it_connects_to_what_was_recorded(self):
        with Replay() as server:
            options = ndr.parse(['--rpc-port', str(server.rpc_port), '--publisher-port', str(server.publisher_port)])
            client, _, error = ndr.connect(options)
            try:
                ndr.take(client, options, error)
                stamp = ndr.stamp(client, options)
                self.assertEqual(server.owner, dict.fromkeys(server.owner, client.ctx.username))
                self.assertEqual(client.ports[0].handler, 'UKoNP1hY')
                self.assertEqual(client.ports[0].get_layer_cfg()['ether']['state'], 'unconfigured')
            finally:
                client.disconnect()
        self.assertEqual((stamp['trex'], stamp['trex_cores'], stamp['trex_core_type']),
                         ('v0.0', 1, 'Intel(R) Xeon(R) CPU E5-2667 v3 @ 3.20GHz'))
        self.assertEqual(server.owner, dict.fromkeys(server.owner, ''), 'the ports are let go')
        self.assertEqual(server.replayed, {
            'api_sync_v2', 'get_version', 'get_system_info', 'get_supported_cmds', 'get_port_status', 'get_port_stats',
            'get_global_stats', 'acquire', 'release'})

    def test_ports_that_a_recorded_server_has_not_are_named(self):
        with Replay() as server:
            self.assertIn('no port 2: it has 0, 1', str(run(server, '--sizes', '256', '--ports', '2')[0]))

    def test_it_searches_on_ports_that_have_counted_before(self):
        """Those of the recording have 480 million packets behind them, and ten and fifteen errors."""
        with Replay(Device(capacity=150_000)) as server:
            status, _, report = run(server, '--sizes', '256')
        self.assertEqual(status, 0)
        found = report['runs'][0]['sizes'][0]['ndr']
        self.assertEqual((found['limited_by'], found['confirmed'], found['void_trials']), ('device', True, 0))
        self.assertTrue(144_000 < found['pps'] <= 150_000, found['pps'])
        self.assertEqual(set(server.methods) - NOT_RECORDED, server.replayed)

    def test_servers_know_what_it_asks(self):
        known = set(next(one for one in exchanges() if one.method == 'get_supported_cmds').result)
        with Server(Device(capacity=150_000)) as server:
            run(server, '--sizes', '256', '--tunable', 'lat_pps=1000')
        self.assertEqual(set(server.methods) - known, LATER)

    def test_recorded_counters_have_verdicts(self):
        """A minute of 64-byte frames between two ports at v3.00; some seconds with latency groups."""
        flood, groups, both = statistics()
        self.assertEqual(trial(flood, 29_791_440, 59.94).verdict(0.0), PASS)
        slow = trial(both, 465_750, 3.73)
        self.assertEqual((slow.verdict(0.0), slow.counters.tx, slow.counters.rx), (PASS, 1_735_919, 1_735_919))
        self.assertEqual((slow.latency[1]['min'], slow.latency[1]['average'], slow.latency[1]['max']), (20, 63.375, 123))
        self.assertEqual([slow.latency[2][name] for name in ('lost', 'out_of_order', 'duplicated')], [0, 0, 0])
        self.assertEqual(trial(dict(flood, **groups), 29_791_440, 59.94).latency[256]['lost'], 2 * 73_460)
        lossy = {**both, 1: dict(both[1], ipackets=both[1]['ipackets'] - 1)}
        self.assertEqual(trial(lossy, 465_750, 3.73).verdict(0.0), FAIL)
        self.assertEqual(trial({**both, 1: dict(both[1], ierrors=1)}, 465_750, 3.73).verdict(0.0), VOID)

    def test_recorded_histograms_agree_with_the_plain_ones_beside_them(self):
        for times in (group['latency'] for group in statistics()[1]['latency'].values()):
            first, digits, counts = ndr_latency.decoded(times['hdrh'])
            buckets = {}
            for rank in range(1, sum(count for _, count in counts) + 1):
                bucket = ndr_latency.value_at(rank, first, digits, counts) // 100_000 * 100_000
                buckets[bucket] = buckets.get(bucket, 0) + 1
            self.assertEqual(buckets, times['histogram'])
        # One packet, and an average that starts from zero and goes half of the way: it took 108,320 us.
        alone = statistics()[1]['latency'][257]['latency']
        self.assertAlmostEqual(ndr_latency.percentiles(alone['hdrh'])['p50'], 2 * alone['average'], delta=64)


def trial(stats, rate, seconds):
    """A trial of the driver with a client that returns what was recorded."""
    clock = stand_in.Clock()
    client = types.SimpleNamespace(
        clear_stats=lambda: None, get_stats=lambda: stats, start=lambda **_: None,
        wait_on_traffic=lambda **_: clock.sleep(seconds + ndr.RX_DELAY_SECONDS))
    bench = ndr.Bench(client, [0, 1], 'srv6_usid_transit.py', {}, None)
    bench.clock = clock
    return bench.trial(rate, seconds)


if __name__ == '__main__':
    unittest.main()
