"""Stands in for a TRex server: its RPC and publisher over ZMQ, as far as the client needs them for ndr.py, in front of
a generator and a device with known properties. No packet is sent.

What it answers has the fields and types that TRex's RPC specification and the command handlers of its server name
(`forms.py`, which every answer and every question is held against), and those of the answers that are recorded
(`test_recorded.py`); it refuses what servers refuse, in their words: no API handle, a port that is not acquired, another
version. Its clock is its own: a trial of a minute takes no time.
"""

import base64
import itertools
import json
import threading
import zlib

import forms
import ndr_bench
import ndr_checksum
from groups import Groups

MAGIC = 0xABE85CEA  # in front of a compressed message
PORTS = (0, 1)
PORT_STARTED, PORT_FINISHED_TX, PORT_ACQUIRED, PORT_RELEASED, PROFILE_STARTED, PROFILE_FINISHED_TX = 0, 4, 5, 6, 10, 14
HARDWARE_CHECKSUM = 'fix_checksum_hw'
CLIENTS_RX_DELAY = 0.1
SLOW = 10_000
API = (5, 1)
GLOBAL_RATES = (
    'm_active_flows', 'm_bw_per_core', 'm_cpu_util', 'm_cpu_util_raw', 'm_open_flows', 'm_platform_factor', 'm_rx_bps',
    'm_rx_core_pps', 'm_rx_cpu_util', 'm_rx_drop_bps', 'm_rx_pps', 'm_socket_util', 'm_tx_bps', 'm_tx_cps',
    'm_tx_expected_bps', 'm_tx_expected_cps', 'm_tx_expected_pps', 'm_tx_pps')
GLOBAL_COUNTS = ('m_active_sockets', *('m_total_' + name for name in (
    'alloc_error', 'clients', 'nat_active', 'nat_learn_error', 'nat_no_fid', 'nat_open', 'nat_syn_wait', 'nat_time_out',
    'nat_time_out_wait_ack', 'queue_drop', 'queue_full', 'rx_bytes', 'rx_pkts', 'servers', 'tx_bytes', 'tx_pkts')))


class Clock:
    """Time of the bench, in place of the `time` module."""

    def __init__(self):
        self.now = self.idle_since = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.idle_since = self.now

    def send(self, seconds):
        """Ports that are started one after another send side by side, until somebody waits."""
        self.now = max(self.now, self.idle_since + seconds)


class Refused(Exception):
    """An error as the server reports it."""

    def __init__(self, code, message, why=None):
        super().__init__(message)
        self.error = dict({'code': code, 'message': message}, **({'specific_err': why} if why else {}))


def not_now(why):
    return Refused(-32000, 'Failed To Execute Method', why)


def not_so(why):
    # The servers' own spelling.
    return Refused(-32602, 'Bad paramters for method', why)


class Device:
    """Forwards `capacity` packets a second, each `longer` than it came, and loses a share beside. A packet takes 20
    microseconds, and 1500 where more come than it forwards; `lost_timed` packets of each latency group are lost in a trial.
    `chatter`: frames of its own that it sends beside each start of a stream; `labels`: packets leave with the flow label
    that they came with."""

    def __init__(self, capacity=1e9, lose=0.0, largest=1 << 20, longer=0, lost_timed=0, chatter=0, labels=True):
        self.capacity, self.lose, self.largest, self.longer = capacity, lose, largest, longer
        self.lost_timed, self.chatter, self.labels = lost_timed, chatter, labels

    def microseconds(self, rate):
        return 20 if rate <= self.capacity else 1500

    def forward(self, count, rate, size):
        if size > self.largest:
            return 0
        return int(count * min(1.0, self.capacity / rate) * (1 - self.lose))


class Server:
    """`ceiling`: packets a second that the generator can send. `stuck`: frames of a fast stream that stay in the
    receiving ring until more come. `ring`: arrivals a second that the ring can take. `link`: of both ports. `owner`: who
    has the ports already. `api`: version of its interface. `hdrh`: started with --hdrh. `stretches`: above its ceiling it
    goes on until it is stopped. `spoils`: writes wrong checksums. `plain_groups`: knows flow statistics."""

    def __init__(self, device, ceiling=1e9, ring=1e9, stuck=0, link=True, owner='', api=API, hdrh=True, stretches=False,
                 spoils=False, plain_groups=True):
        self.stretches, self.spoils, self.plain_groups = stretches, spoils, plain_groups
        self.sending, self.captures = {}, {}
        self.device, self.ceiling, self.ring, self.stuck_most = device, ceiling, ring, stuck
        self.link, self.api = link, api
        self.groups = Groups(hdrh)
        self.handle = 'handle'
        self.owner = {port: owner for port in PORTS}
        self.handler = {port: 'handler of somebody else' for port in PORTS}
        self.session = dict.fromkeys(PORTS)
        self.misfits = []
        self.clock = Clock()
        self.started = []
        self.events, self.sequence = [], itertools.count(1)
        self.counters = {port: dict.fromkeys(('opackets', 'ipackets', 'obytes', 'ibytes', 'ierrors', 'oerrors'), 0)
                         for port in PORTS}
        self.streams = {port: {} for port in PORTS}
        self.stuck = {port: 0 for port in PORTS}
        self.methods = []

    def __enter__(self):
        import zmq
        self.context = zmq.Context()
        self.rpc, self.publisher = self.context.socket(zmq.REP), self.context.socket(zmq.PUB)
        self.rpc_port = self.rpc.bind_to_random_port('tcp://127.0.0.1')
        self.publisher_port = self.publisher.bind_to_random_port('tcp://127.0.0.1')
        self.rpc.setsockopt(zmq.RCVTIMEO, 20)
        self.nothing_yet = zmq.Again
        self.running = True
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.running = False
        self.thread.join()
        self.rpc.close(0)
        self.publisher.close(0)
        self.context.term()

    def serve(self):
        while self.running:
            try:
                message = self.rpc.recv()
            except self.nothing_yet:
                self.publisher.send(b'{}')
                continue
            text, compressed = plain(message)
            asked = json.loads(text)
            answer = [self.answer(one) for one in asked] if isinstance(asked, list) else self.answer(asked)
            text = json.dumps(answer).encode()
            self.rpc.send(packed(text) if compressed else text)
            self.publisher.send(b'{}')

    def answer(self, asked):
        method, params = asked['method'], asked['params']
        self.methods.append(method)
        reply = {'jsonrpc': '2.0', 'id': asked['id']}
        try:
            if method not in forms.FORMS:
                raise Refused(-32601, 'Method %s not registered' % method)
            self.verify(method, params or {})
            result = getattr(self, method)(params)
        except ValueError as why:
            return dict(reply, error=not_now(str(why)).error)
        except Refused as why:
            return dict(reply, error=why.error)
        self.misfits += forms.misfits(method, params or {}, result)
        return dict(reply, result=result)

    def verify(self, method, params):
        """What the server looks at before any command: the handle of the interface, and who has the port."""
        if method not in forms.WITHOUT_API and params.get('api_h') != self.handle:
            raise not_now("API verification failed - API handler provided mismatch for class: 'common'")
        if method in forms.OWNED:
            if 'handler' not in params:
                raise not_so("field 'handler' is missing")
            port = params['port_id']
            if not self.owner[port]:
                raise not_now('please acquire the port before modifying port state')
            if params['handler'] != self.handler[port]:
                raise not_now('port is not owned by you or your current executing session')

    # What the client asks when it connects.

    def api_sync_v2(self, params):
        asked = (params['major'], params['minor'])
        if asked[0] != self.api[0] or asked[1] > self.api[1]:
            why = ('RPC version mismatch: a newer client version is required' if asked[0] < self.api[0] else
                   'Version mismatch: your client version is too new to be supported by the server')
            raise not_now("%s\n(API type 'STL': - server: '%d.%d', client: '%d.%d')" % (why, *self.api, *asked))
        return {'api_h': self.handle}

    def get_version(self, params):
        return {'version': 'stand-in', 'build_date': 'Jan  1 2025', 'build_time': '', 'built_by': '', 'mode': 'STL'}

    def get_system_info(self, params):
        port = {'driver': 'net_af_packet', 'description': 'stand-in', 'numa': -1, 'pci_addr': 'N/A', 'hw_mac': '02:00:00:00:aa:00',
                'is_fc_supported': False, 'is_ieee1588_supported': False, 'is_led_supported': False, 'is_link_supported': False,
                'is_virtual': True, 'supp_speeds': [], 'is_prom_supported': True, 'is_vxlan_supported': False, 'cores': [0],
                'stack': 'legacy', 'rx': {'counters': 1023, 'caps': ['flow_stats', 'latency', 'rx_bytes', 'tpg']}}
        return {'core_type': 'stand-in', 'dp_core_count': 1, 'dp_core_count_per_port': 1, 'hostname': '', 'uptime': '',
                'is_multiqueue_mode': False, 'advanced_per_stream_stats': True, 'port_count': len(PORTS), 'ports': [dict(port, index=index) for index in PORTS]}

    def get_supported_cmds(self, params):
        return sorted(forms.FORMS) + ['get_profile_list']

    def get_port_xstats_names(self, params):
        return {'xstats_names': []}

    def get_port_xstats_values(self, params):
        return {'xstats_values': []}

    def get_port_status(self, params):
        port = params['port_id']
        state = 'STREAMS' if self.streams[port] else 'IDLE'
        return {'state': state, 'state_profile': {'_': state}, 'owner': self.owner[port], 'max_stream_id': 0, 'service': False,
                'service_filtered': False, 'profile_count': 1,
                'attr': {'speed': 10.0, 'rx_filter_mode': 'hw', 'link': {'up': self.link}, 'promiscuous': {'enabled': False},
                         'multicast': {'enabled': False}, 'fc': {'mode': 0}, 'vxlan_fs': [], 'vlan': {'tags': []},
                         'layer_cfg': {'ether': {'state': 'configured', 'src': '02:00:00:00:aa:00', 'dst': '02:00:00:00:dd:00'},
                                       'ipv4': {'state': 'none'}, 'ipv6': {'enabled': False}}},
                'rx_info': {name: {'is_active': name == 'stack'} for name in (
                    'capture_port', 'capwap_proxy', 'grat_arp', 'latency', 'queue', 'stack')}}

    def publish_now(self, params):
        self.event('trex-barrier', params['key'], {})
        return {}

    def get_async_events(self, params):
        events, self.events = self.events, []
        return {'data': events}

    def ping(self, params):
        return {'ts': self.clock.now}

    # Ports and streams.

    def acquire(self, params):
        port, session = params['port_id'], params.get('session_id')
        if self.owner[port] and not params['force']:
            same = self.owner[port] == params['user'] and self.session[port] != session
            raise not_now('port is already %s \'%s\'' % ('owned by another session of' if same else 'taken by', self.owner[port]))
        self.owner[port], self.handler[port], self.session[port] = params['user'], 'handler of %d' % port, session
        self.event('trex-event', PORT_ACQUIRED, dict(self.who(port), force=params['force']))
        return self.handler[port]

    def release(self, params):
        port = params['port_id']
        self.event('trex-event', PORT_RELEASED, self.who(port))
        self.owner[port] = ''
        return {}

    def who(self, port):
        return {'port_id': port, 'who': self.owner[port], 'session_id': self.session[port] or 0}

    def get_tpg_status(self, params):
        return {'enabled': False,
                'data': {'acquired_ports': [], 'num_tags': 0, 'num_tpgids': 0, 'rx_ports': [], 'username': '-'}}

    def capture(self, params):
        """Of the packets that a stream sends while a capture is on, as they would arrive."""
        command = params['command']
        if command == 'status':
            return []
        if command == 'start':
            number = len(self.captures) + 1
            self.captures[number] = (params['limit'], params['rx'], [])
            return {'capture_id': number, 'start_ts': self.clock.now}
        number = params['capture_id']
        packets = self.captures[number][2]
        if command == 'stop':
            return {'pkt_count': len(packets)}
        if command == 'fetch':
            fetched = [{'binary': base64.b64encode(packet).decode(), 'origin': 'RX', 'ts': 0.0, 'index': at, 'port': 1}
                       for at, packet in enumerate(packets)]
            packets.clear()
            return {'pkts': fetched, 'pending': 0, 'start_ts': 0.0}
        del self.captures[number]
        return {}

    def get_all_streams(self, params):
        streams = {str(number): stream for number, stream in self.streams[params['port_id']].items()}
        if params.get('profile_id') != '*':
            return {'streams': streams}
        return {'profiles': {'_': streams} if streams else {}}

    def remove_all_streams(self, params):
        for group in self.grouped(params['port_id']):
            self.groups.remove(group)
        self.streams[params['port_id']] = {}
        return {}

    def remove_rx_filters(self, params):
        return {}

    def stop_traffic(self, params):
        """Ends a start that would take longer: what the generator could send until then has been sent."""
        port = params['port_id']
        if port in self.sending:
            rate, seconds, size = self.sending.pop(port)
            self.send(port, rate, seconds, size, longest=ndr_bench.longest_wait(seconds))
            self.finished(port, params.get('profile_id', '_'))
        return {}

    def set_port_attr(self, params):
        return {}

    def set_rx_feature(self, params):
        return {}

    def service(self, params):
        return {}

    def add_stream(self, params):
        port, statistics = params['port_id'], params['stream']['flow_stats']
        is_timed = statistics.get('rule_type') == 'latency'
        if statistics['enabled'] and not is_timed and not self.plain_groups:
            raise not_now('flow statistics are not supported for this stream')
        self.streams[port][params['stream_id']] = params['stream']
        if statistics['enabled']:
            self.groups.add(statistics['stream_id'], is_timed)
            self.groups.known[statistics['stream_id']].port = port
        return {}

    def grouped(self, port, rule=None):
        """The groups of its streams, with their packets a second."""
        return {one['flow_stats']['stream_id']: one['mode']['rate']['value'] for one in self.streams[port].values()
                if one['flow_stats']['enabled'] and rule in (None, one['flow_stats'].get('rule_type'))}

    def timed(self, port):
        return self.grouped(port, 'latency')

    # Sending.

    def start_traffic(self, params):
        port, seconds = params['port_id'], max(0, params['duration'])
        streams = list(self.streams[port].values())
        if not streams:
            raise ValueError('no streams on port %d' % port)
        rate = float(params['mul']['value'])
        least = sum(self.timed(port).values())
        if rate < least:
            raise ValueError('the latency streams enforce a minimum rate of %d' % least)
        self.started.append((port, rate, seconds))
        for kind, data in ((PROFILE_STARTED, {'profile_id': '_'}), (PORT_STARTED, {})):
            self.event('trex-event', kind, dict(data, port_id=port))
        size = len(streams[0]['packet']['binary']) * 3 // 4
        self.captured(port, streams)
        if self.stretches and rate > self.ceiling:
            self.sending[port] = (rate, seconds, size)
        else:
            self.send(port, rate, seconds, size)
            self.finished(port, params.get('profile_id', '_'))
        whole = sum(one['mode']['rate']['value'] for one in streams)
        return {'multiplier': rate / whole, 'ts': float(self.clock.now)}

    def finished(self, port, profile):
        self.event('trex-event', PROFILE_FINISHED_TX, {'port_id': port, 'profile_id': profile})
        self.event('trex-event', PORT_FINISHED_TX, {'port_id': port})

    def captured(self, port, streams):
        for limit, ports, packets in self.captures.values():
            if port ^ 1 in ports:
                fixed = [base64.b64decode(one['packet']['binary']) for one in streams]
                packets += [checked(packet, one['vm']['instructions'], self.spoils) for packet, one in zip(fixed, streams)]
                del packets[limit:]

    def send(self, port, rate, seconds, size, longest=None):
        """A generator that is asked for more than its ceiling sends all, in a longer time: `longest` at most."""
        real = min(rate, self.ceiling)
        count = int(min(rate * seconds, real * longest) if longest else rate * seconds)
        took = longest or count / real
        if not self.link:
            return self.clock.send(seconds)
        arrived = self.device.forward(count, real, size) + self.stuck[port ^ 1]
        overflow = min(arrived, max(0, int((real - self.ring) * seconds)))
        self.stuck[port ^ 1] = min(self.stuck_most, arrived - overflow) if rate > SLOW else 0
        self.counters[port]['opackets'] += count
        self.counters[port]['obytes'] += count * size
        self.counters[port ^ 1]['ierrors'] += overflow
        taken = arrived - overflow - self.stuck[port ^ 1]
        self.counters[port ^ 1]['ipackets'] += taken + self.device.chatter
        self.counters[port ^ 1]['ibytes'] += taken * (size + self.device.longer)
        for group, each in self.timed(port).items():
            # The thin stream arrives as the others do.
            self.time(self.groups.known[group], int(each * seconds), rate, real)
            self.groups.known[group].received += min(taken, int(each * seconds))
            taken -= min(taken, int(each * seconds))
            count -= int(each * seconds)
        for group in self.grouped(port, 'stats'):
            self.groups.known[group].sent += count
            self.groups.known[group].received += taken if self.device.labels else 0
        self.clock.send(took + (CLIENTS_RX_DELAY if self.grouped(port) else 0))

    def time(self, group, count, rate, real):
        """The last packet of a fast stream is seen as lost once later ones come out of the ring."""
        fast = rate > SLOW
        group.dropped += self.device.lost_timed if fast else int(group.started and not group.slow)
        group.started, group.slow = True, not fast
        group.sent += count
        group.arrived(count, self.device.microseconds(real))

    def event(self, name, kind, data):
        self.events.append({'name': name, 'type': kind, 'data': data, 'seq': next(self.sequence)})

    # Statistics.

    def get_port_stats(self, params):
        rates = dict.fromkeys(('m_total_tx_bps', 'm_total_tx_pps', 'm_total_rx_bps', 'm_total_rx_pps', 'm_cpu_util'), 0.0)
        return dict(rates, **self.counters[params['port_id']])

    def get_global_stats(self, params):
        return dict(dict.fromkeys(GLOBAL_RATES, 0.0), **dict.fromkeys(GLOBAL_COUNTS, 0))

    def get_active_pgids(self, params):
        return self.groups.active()

    def get_pgid_stats(self, params):
        return self.groups.statistics(params['pgids'], PORTS)


def checked(packet, instructions, spoils):
    """The packet with the UDP checksum that its field engine asks for, or another one."""
    if not any(one['type'] == HARDWARE_CHECKSUM for one in instructions):
        return packet
    pseudo_header, datagram, _ = ndr_checksum.innermost_udp(packet)
    whole = ndr_checksum.ones_complement_sum(pseudo_header + datagram[:6] + b'\0\0' + datagram[8:])
    at = packet.rindex(datagram) + 6
    return packet[:at] + (0x1234 if spoils else ~whole & 0xffff).to_bytes(2, 'big') + packet[at + 2:]


def plain(message):
    if int.from_bytes(message[:4], 'big') == MAGIC:
        return zlib.decompress(message[8:]), True
    return message, False


def packed(message):
    return MAGIC.to_bytes(4, 'big') + len(message).to_bytes(4, 'big') + zlib.compress(message)
