#!/usr/bin/env python3
"""Checks every profile with TRex's own client library, without a server.

Each profile is loaded for both directions and ports with each of its tunable sets, goes through JSON and back, is
checked for what the client accepts and the server refuses, and its packets are rendered and looked at. With
--export DIR they are also written there with what srv6d must make of each: the test trex_profiles of srv6d reads them.

With TREX_SERVER=HOST[:RPC-PORT:PUBLISHER-PORT] every stream is also given to that server, which may refuse it; nothing is
sent.

Runs in a process of its own, because the client brings a patched scapy along.
"""

import argparse
import base64
import contextlib
import io
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PROFILES = os.path.dirname(HERE)
sys.path.insert(0, HERE)
sys.path.insert(0, PROFILES)

try:
    import lbr_trex_client  # noqa: F401 puts the client's folders on the path
    from trex.stl.api import UDP, CTRexVmInsFixHwCs, Ether, STLClient, STLError, STLProfile
except ImportError as missing:
    sys.exit('TRex\'s client library cannot be used (%s): Python 3.10 or 3.11, pip install lbr-trex-client==3.4.0' % missing)

import cases
import render

SERVER_SMALLEST, SERVER_LARGEST, WIRE_SMALLEST = 14, 9238, 60
LATENCY_TAIL, MOST_LATENCY_GROUPS = 16, 128
FIRST_STAMPED_LABEL = 0xfc00


def load(case, direction, port_id):
    """The streams as JSON, or the message of a refusal."""
    path = os.path.join(PROFILES, case.profile + '.py')
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            profile = STLProfile.load_py(path, direction=direction, port_id=port_id, tunables=case.tunables)
        except Exception as why:
            return None, str(why)
    if profile is None:
        return None, said.getvalue() or 'the client returned nothing'
    streams = profile.to_json()
    again = STLProfile.from_json(streams).to_json()
    if again != streams:
        raise AssertionError('%s: not the same after JSON and back' % case)
    return streams, None


def check_stream(stream):
    """What the server refuses, or the wire spoils."""
    packet = base64.b64decode(stream['packet']['binary'])
    name = stream['name']
    require(SERVER_SMALLEST <= len(packet) <= SERVER_LARGEST, '%s: %d bytes' % (name, len(packet)))
    require(len(packet) >= WIRE_SMALLEST, '%s: %d bytes would be padded on the wire' % (name, len(packet)))
    instructions = stream['vm'].get('instructions', [])
    sizes = {one['name']: one['size'] for one in instructions if one['type'] == 'flow_var'}
    for instruction in instructions:
        if 'pkt_offset' in instruction:
            size = instruction.get('pkt_cast_size') or sizes[instruction['name']]
            require(instruction['pkt_offset'] + size <= len(packet), '%s writes behind its end' % name)
        if instruction['type'] == 'fix_checksum_hw':
            check_checksum(name, Ether(packet), instruction)
    label = int.from_bytes(packet[15:18], 'big') & 0xfffff
    if packet[12:14] == b'\x86\xdd' and packet[14] >> 4 == 6:
        require(label & 0xffff < FIRST_STAMPED_LABEL, '%s: TRex alters the flow label %#x' % (name, label))
    if stream['flow_stats']['enabled']:
        require(stream['flow_stats']['rule_type'] == 'latency', '%s: plain flow statistics do not survive srv6d' % name)
        payload = Ether(packet)[UDP].payload
        require(len(payload) >= LATENCY_TAIL, '%s: the latency tail needs %d bytes and there are %d' % (name, LATENCY_TAIL, len(payload)))


def check_checksum(name, packet, instruction):
    """TRex documents: the offset of the IP header that the datagram is in, and of the datagram from there; IPv4 or IPv6, UDP,
    behind whatever tunnel."""
    layer, innermost = packet, None
    while layer.name != 'UDP':
        innermost = layer if layer.name in ('IP', 'IPv6') else innermost
        layer = layer.payload
    at, udp_at = len(packet) - len(innermost), len(packet) - len(layer)
    asked = (instruction['l2_len'], instruction['l3_len'], instruction['l4_type'])
    require(asked == (at, udp_at - at, CTRexVmInsFixHwCs.L4_TYPE_UDP), '%s: a checksum at %s' % (name, asked))


def require(true, what):
    if not true:
        raise AssertionError(what)


def groups(streams):
    return [stream['flow_stats']['stream_id'] for stream in streams if stream['flow_stats']['enabled']]


def check_groups(case, per_port):
    """A latency group belongs to one stream of one port."""
    ids = [group for streams in per_port for group in groups(streams)]
    require(len(ids) == len(set(ids)), '%s: a latency group twice' % case)
    require(all(group < MOST_LATENCY_GROUPS for group in ids), '%s: latency groups end at 127' % case)


def validate(case):
    """Every direction and port. Returns what is exported."""
    exported = []
    for direction in (0, 1):
        per_port = []
        for port_id in (0, 1):
            streams, why = load(case, direction, port_id)
            if case.refused:
                require(why and case.refused in why, '%s: refused with %r, not with %r' % (case, why, case.refused))
                continue
            require(streams, '%s: %s' % (case, why))
            for stream in streams:
                check_stream(stream)
            endless = [stream['mode']['rate']['value'] for stream in streams if stream['mode']['type'] == 'continuous']
            require(sum(endless) == case.pps(), '%s: %s pps and not %d' % (case, endless, case.pps()))
            per_port.append(streams)
        if not case.refused:
            check_groups(case, per_port)
            exported += [export(case, direction, stream) for stream in per_port[0]]
    return exported


def export(case, direction, stream):
    """The frames of a stream and what must become of each."""
    port = 'eth1' if direction == 0 else 'eth2'
    frames = []
    for packet in render.packets(stream, case.count(stream)):
        frame = packet[:0] + ends(direction) + packet[12:]
        frames.append(frame)
    case.look(stream, frames)
    return {
        'name': '%s direction %d, stream %s' % (case, direction, stream['name']),
        'prefixes': case.prefixes, 'direction': direction, 'port': port,
        'frames': [dict(case.expected(stream, frame, port, direction), **{'in': frame.hex()}) for frame in frames],
    }


def ends(direction):
    """The Ethernet addresses that TRex writes at start, from trex_cfg_*.yaml."""
    return bytes.fromhex('02000000dd%02x02000000aa%02x' % (direction, direction))


def offer_to(server):
    """Gives every accepted case to a real server. Returns what it refused."""
    host, rpc_port, publisher_port = server.split(':') if ':' in server else (server, 4501, 4500)
    client = STLClient(server=host, sync_port=int(rpc_port), async_port=int(publisher_port), verbose_level='error')
    refused = []
    client.connect()
    try:
        client.acquire(force=True)
        for case in (case for case in cases.ALL if not case.refused):
            for port in (0, 1):
                path = os.path.join(PROFILES, case.profile + '.py')
                profile = STLProfile.load_py(path, direction=port, port_id=port, tunables=case.tunables)
                try:
                    client.reset(ports=[port])
                    client.add_streams(profile.get_streams(), ports=[port])
                except STLError as why:
                    refused.append('%s, port %d: the server refused it: %s' % (case, port, why))
        client.reset()
    finally:
        client.disconnect()
    return refused


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--export', metavar='DIR', help='write the packets and what srv6d must make of them')
    args = parser.parse_args()
    failed, packets = 0, 0
    untested = {name[:-3] for name in os.listdir(PROFILES) if name.startswith('srv6_') and name.endswith('.py')}
    untested -= {'srv6_packets', 'srv6_roce'} | {case.profile for case in cases.ALL}
    if untested:
        sys.exit('no case for %s: add one to tests/cases.py' % ', '.join(sorted(untested)))
    for number, case in enumerate(cases.ALL):
        try:
            exported = validate(case)
        except AssertionError as why:
            print('FAILED  %s' % why)
            failed += 1
            continue
        print('ok      %s' % case)
        packets += sum(len(stream['frames']) for stream in exported)
        if args.export and exported:
            with open(os.path.join(args.export, '%03d.json' % number), 'w') as file:
                json.dump(exported, file)
    if os.environ.get('TREX_SERVER'):
        refused = offer_to(os.environ['TREX_SERVER'])
        print('\n'.join(refused + ['TRex at %s has taken the streams of all other cases' % os.environ['TREX_SERVER']]))
        failed += len(refused)
    print('%d cases, %d failed, %d packets rendered' % (len(cases.ALL), failed, packets))
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
