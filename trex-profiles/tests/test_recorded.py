"""The driver, and the stand-in that the rest of its tests talk to, against what real servers answered."""

import os
import sys
import types
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import lbr_trex_client  # noqa: F401 puts the client's folders on the path
import trex.stl.api  # noqa: F401 and those of its libraries

import forms
import ndr
import ndr_bench
import ndr_latency
import server as stand_in
from ndr_search import FAIL, PASS, VOID
from recorded import OWN, Replay, exchanges, load, statistics, unlike
from server import Device, Server
from test_ndr import run

# Asked by the client, and in no list of commands of servers before v3.04: they came later.
LATER = {'get_async_events', 'get_tpg_status'}
# Asked by a search, and not replayed: what the streams and the session of the replay itself say.
ITS_OWN = {*OWN, 'ping'}
NEWEST = 'v3.08.json'

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
        if exchange.method == 'get_pgid_stats':
            add_groups(server, params['pgids'], (exchange.result['latency'] or {}).keys() - {'g'})
        if exchange.method == 'start_traffic' and exchange.where == NEWEST:
            for added in [one.params for one in newest() if one.method == 'add_stream']:
                server.add_stream(added)
        if exchange.method == 'get_all_streams' and not exchange.result.get('profiles', True):
            server.streams[params['port_id']] = {}
    return server.answer({'jsonrpc': '2.0', 'id': 1, 'method': exchange.method, 'params': params})


def add_groups(server, numbers, sent):
    """Timed groups of the first port; some packets of those that have `sent`."""
    for number in numbers:
        server.groups.add(number, True)
        if str(number) in sent:
            server.time(server.groups.known[number], 1000, 2000, 2000)


def newest():
    return [one for one in exchanges() if one.where == NEWEST]


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
            client, load_profile, library = ndr.connect(options)
            try:
                ndr.take(client, options, library)
                bench = ndr_bench.Bench(client, [0], 'srv6_usid_transit.py', {'lat_pps': 1000}, load_profile, library)
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

    def test_its_events_are_those_of_a_server(self):
        recorded = {event['type']: event for one in newest() if one.method == 'get_async_events' for event in one.result['data']}
        self.assertEqual(sorted(recorded), [0, 4, 5, 6, 10, 14])
        with Server(Device(capacity=150_000)) as server:
            told, event = {}, server.event
            server.event = lambda name, kind, data: (told.setdefault(kind, {'name': name, 'data': data}), event(name, kind, data))
            run(server, '--sizes', '256')
        for kind, one in recorded.items():
            self.assertEqual(list(unlike({'name': one['name'], 'data': one['data']}, told[kind], '')), [], kind)

    def test_it_is_asked_what_a_server_was_asked(self):
        """The same questions with the same parameters, each for the first time in the same order."""
        recorded = {}
        for one in newest():
            recorded.setdefault(one.method, one.params.keys())
        asked = {}
        with Server(Device(capacity=150_000)) as server:
            answer = server.answer
            server.answer = lambda one: (asked.setdefault(one['method'], (one['params'] or {}).keys()), answer(one))[1]
            run(server, '--sizes', '256', '--tunable', 'lat_pps=500')
        # Events are fetched by another thread; the recorded port had streams from before.
        anywhere = {'get_async_events', 'remove_all_streams', 'ping'}
        self.assertEqual([one for one in asked if one not in anywhere], [one for one in recorded if one not in anywhere])
        self.assertEqual({name: set(asked[name]) for name in recorded}, {name: set(keys) for name, keys in recorded.items()})

    def test_a_recording_is_of_a_server_that_the_client_goes_with(self):
        self.assertEqual(load(NEWEST)['server'], 'v3.08')
        self.assertEqual({one.method for one in newest()} - forms.FORMS.keys(), set())


class Driver(unittest.TestCase):
    def test_it_connects_to_what_was_recorded(self):
        with Replay() as server:
            options = ndr.parse(['--rpc-port', str(server.rpc_port), '--publisher-port', str(server.publisher_port)])
            client, _, library = ndr.connect(options)
            try:
                ndr.take(client, options, library)
                stamp = ndr.stamp(client, options)
                self.assertEqual(server.owner, dict.fromkeys(server.owner, client.ctx.username))
                self.assertEqual(client.ports[0].handler, 'ie7e5ZqL')
                self.assertEqual(client.ports[0].get_layer_cfg()['ether']['state'], 'configured')
            finally:
                client.disconnect()
        self.assertEqual((stamp['trex'], stamp['trex_cores'], stamp['trex_core_type']),
                         ('v3.08', 1, 'AMD EPYC'))
        self.assertEqual(server.owner, dict.fromkeys(server.owner, ''), 'the ports are let go')
        self.assertEqual(server.replayed, {
            'api_sync_v2', 'get_version', 'get_system_info', 'get_supported_cmds', 'get_port_status', 'get_port_stats',
            'get_global_stats', 'acquire', 'release', 'publish_now', 'get_port_xstats_names', 'get_tpg_status'})

    def test_ports_that_a_recorded_server_has_not_are_named(self):
        with Replay() as server:
            self.assertIn('no port 2: it has 0, 1', str(run(server, '--sizes', '256', '--ports', '2')[0]))

    def test_it_searches_on_ports_that_have_counted_before(self):
        """Those of the recording have 7 million packets behind them."""
        with Replay(Device(capacity=150_000)) as server:
            status, _, report = run(server, '--sizes', '256')
        self.assertEqual(status, 0)
        found = report['runs'][0]['sizes'][0]['ndr']
        self.assertEqual((found['limited_by'], found['confirmed'], found['void_trials']), ('device', True, 0))
        self.assertTrue(144_000 < found['pps'] <= 150_000, found['pps'])
        self.assertEqual(set(server.methods) - ITS_OWN, server.replayed)

    def test_servers_know_what_it_asks(self):
        known = set(next(one for one in exchanges() if one.method == 'get_supported_cmds' and one.where != NEWEST).result)
        newer = set(next(one for one in newest() if one.method == 'get_supported_cmds').result)
        with Server(Device(capacity=150_000)) as server:
            run(server, '--sizes', '256', '--tunable', 'lat_pps=1000')
        self.assertEqual(set(server.methods) - known, LATER)
        self.assertLessEqual(set(server.methods), newer)

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
        wait_on_traffic=lambda **_: clock.sleep(seconds + ndr_bench.RX_DELAY_SECONDS))
    bench = ndr_bench.Bench(client, [0, 1], 'srv6_usid_transit.py', {}, None, None)
    bench.clock, bench.groups_tell = clock, False
    return bench.trial(rate, seconds)


if __name__ == '__main__':
    unittest.main()
