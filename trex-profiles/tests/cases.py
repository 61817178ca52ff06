"""Every profile with the tunables it is tried with, and what must become of its packets."""

import expect
import render
from srv6_negative import CASES as NEGATIVE

A_FEW = 40


class Case:
    """A profile with tunables. `refused`: a part of the message with which it must be refused."""

    def __init__(self, profile, tunables='', expected=None, refused=None, packets=A_FEW, look=None, prefixes=0):
        self.profile = 'srv6_' + profile
        self.tunables = tunables.split()
        self.refused = refused
        self.packets = packets
        self.prefixes = prefixes
        self._expected = expected
        self._look = look

    def __str__(self):
        return ' '.join([self.profile] + self.tunables)

    def pps(self):
        """What its endless streams add up to, as written: the caller scales it. Latency packets come on top."""
        asked = dict(zip(self.tunables[::2], self.tunables[1::2]))
        return (28 + 16 + 4 if self.profile == 'srv6_imix' else 1000) + int(asked.get('--lat-pps', 0))

    def count(self, stream):
        """How many packets of a stream are rendered: all of a burst, and a few of what goes on for ever."""
        return stream['mode'].get('total_pkts', self.packets)

    def expected(self, stream, frame, port, direction):
        return self._expected(stream, frame, port, direction)

    def look(self, stream, frames):
        if self._look:
            self._look(stream, frames)


def shifted(stream, frame, port, direction):
    return expect.transit(frame, port)


def decapsulated(stream, frame, port, direction):
    return expect.decap(frame, port)


def ended(stream, frame, port, direction):
    return expect.segment_due(frame, port)


def routed(stream, frame, port, direction):
    return expect.routed(frame, port)


def encapsulated(family, carriers):
    def expected(stream, frame, port, direction):
        out = expect.encap(frame, port, expect.path(direction, family, carriers))
        longer = len(out['frame']) // 2 - len(frame)
        assert longer == 40 + (8 + 16 * (carriers - 1) if carriers > 1 else 0), longer
        return out
    return expected


def bad_or_control(stream, frame, port, direction):
    if stream['name'] in NEGATIVE:
        _, counter, answered = NEGATIVE[stream['name']]
        return expect.refused(counter, answered)
    return expect.transit(frame, port)


def wire_size(size):
    """All frames have this size, FCS included."""
    def look(stream, frames):
        assert {len(frame) + 4 for frame in frames} == {size}, {len(frame) + 4 for frame in frames}
    return look


def source_ports(count, at):
    def look(stream, frames):
        seen = {frame[at:at + 2] for frame in frames}
        assert len(seen) == count, len(seen)
    return look


def labels(count):
    def look(stream, frames):
        seen = {int.from_bytes(frame[14:18], 'big') & 0xfffff for frame in frames}
        assert len(seen) == count and max(seen) < 0xfc00, seen
    return look


def right_checksum(stream, frames):
    """The sum over pseudo header and datagram of the innermost IPv6 packet is all ones."""
    for frame in frames:
        ip = frame[54:] if frame[20] == 41 else frame[14:]
        datagram = ip[40:]
        assert datagram[6:8] != b'\0\0'
        pseudo = ip[8:40] + len(datagram).to_bytes(4, 'big') + (17).to_bytes(4, 'big')
        assert render.ones_sum(pseudo + datagram) == 0xffff


def distinct_prefixes(count):
    def look(stream, frames):
        seen = {frame[38:46] for frame in frames}
        assert len(seen) == count, len(seen)
    return look


def imix(weights, sizes):
    """Every stream has its own size and weight, and none begins with another."""
    def look(stream, frames):
        weight = stream['mode']['rate']['value']
        assert weight in weights, weight
        number = weights.index(weight)
        assert len(frames[0]) + 4 == sizes[number] and stream['isg'] == (0.0, 0.1, 0.2)[number], stream['isg']
    return look


def queue_pairs(flows, size, encapsulated):
    """Each flow sends one packet a round, with the sequence number of the round; nothing else tells flows apart."""
    def look(stream, frames):
        transport = 14 + 40 + 8 + (40 if encapsulated else 0)
        assert len(frames) == 2 * flows and {len(frame) + 4 for frame in frames} == {size}, len(frames[0]) + 4
        for round_ in (0, 1):
            part = frames[round_ * flows:(round_ + 1) * flows]
            pairs = {frame[transport + 4:transport + 8] for frame in part}
            assert len(pairs) == flows, len(pairs)
            assert {frame[transport + 8:transport + 12] for frame in part} == {round_.to_bytes(4, 'big')}
            assert all(frame[transport + 4] == 0 for frame in part), 'a queue pair has 24 bits'
        inner = frames[0][54:] if encapsulated else frames[0][14:]
        assert (inner[0] & 0xf) << 4 | inner[1] >> 4 == 0x6a, 'DSCP 26, ECT(0)'
        assert inner[40 + 6:40 + 8] == b'\0\0', 'RoCEv2 over UDP without a checksum'
    return look


ALL = [
    Case('usid_transit', '', shifted, look=wire_size(256)),
    *(Case('usid_transit', '--usids %d' % count, shifted) for count in range(1, 7)),
    Case('usid_transit', '--fsize 106', shifted, look=wire_size(106)),
    Case('usid_transit', '--fsize 122 --lat-pps 1000', shifted, look=wire_size(122)),
    Case('usid_transit', '--fsize 9000', shifted, packets=2),
    Case('usid_transit', '--flows 16', shifted, look=source_ports(16, 94)),
    Case('usid_transit', '--labels 32', shifted, look=labels(32)),
    Case('usid_transit', '--flows 8 --csum fix', shifted, look=right_checksum),
    Case('usid_transit', '--fsize 105', refused='needs 106'),
    Case('usid_transit', '--fsize 121 --lat-pps 1000', refused='needs 122'),
    Case('usid_transit', '--fsize 9300', refused='at most'),
    Case('usid_transit', '--usids 7', refused='invalid choice'),
    Case('usid_transit', '--labels 64512', refused='--labels'),
    Case('usid_transit', '--flows 100000', refused='--flows'),
    Case('usid_transit', '--node 10000', refused='uSID'),
    Case('usid_transit', '--node 0', refused='uSID'),
    Case('usid_transit', '--block fcbb::/48', refused='/32'),
    Case('usid_transit', '--pg-id 127', refused='--pg-id'),
    Case('usid_transit', '--lat-pps -1', refused='--lat-pps'),
    Case('usid_transit', '--speed 3', refused='unrecognized'),
    *(Case('encap_in', '--family %d --carriers %d' % (family, carriers), encapsulated(family, carriers))
      for family in (4, 6) for carriers in (1, 2, 3)),
    Case('encap_in', '--fsize 82 --lat-pps 1000', encapsulated(6, 1), look=wire_size(82)),
    Case('encap_in', '--family 4 --fsize 64 --lat-pps 1000', encapsulated(4, 1), look=wire_size(64)),
    Case('encap_in', '--flows 16', encapsulated(6, 1), look=source_ports(16, 54)),
    Case('encap_in', '--csum fix --flows 3', encapsulated(6, 1), look=right_checksum),
    Case('encap_in', '--fsize 65', refused='needs 66'),
    Case('encap_in', '--carriers 4', refused='invalid choice'),
    *(Case('udt_decap', '--family %d' % family, decapsulated) for family in (4, 6)),
    *(Case('udt_decap', '--family %d --func d46' % family, decapsulated) for family in (4, 6)),
    Case('udt_decap', '--family 4 --fsize 104 --lat-pps 10', decapsulated, look=wire_size(104)),
    Case('udt_decap', '--family 4 --func d6', refused='does not take'),
    *(Case('srh_reduced', '--carriers %d' % carriers, ended) for carriers in (2, 3, 4)),
    Case('srh_reduced', '--family 4', ended),
    *(Case('srh_reduced', '--at-end 0 --carriers %d' % carriers, shifted) for carriers in (2, 3, 4)),
    Case('imix', '', shifted, look=imix((28, 16, 4), (122, 570, 1518))),
    Case('imix', '--mix csit6', shifted, look=imix((28, 16, 4), (106, 570, 1518))),
    Case('imix', '--mix csit6 --base encap', encapsulated(6, 1), look=imix((28, 16, 4), (78, 570, 1518))),
    Case('imix', '--mix trex --base encap --family 4', encapsulated(4, 1), look=imix((28, 16, 4), (64, 594, 1518))),
    Case('imix', '--base decap', decapsulated),
    Case('imix', '--mix other', refused='invalid choice'),
    Case('jumbo', '', shifted, packets=2, look=wire_size(9000)),
    Case('jumbo', '--base encap', encapsulated(6, 1), packets=2),
    Case('jumbo', '--fsize 1500', refused='jumbo'),
    Case('roce_ring', '', encapsulated(6, 1), packets=64, look=queue_pairs(32, 1106, False)),
    Case('roce_ring', '--encap usid', shifted, packets=64, look=queue_pairs(32, 1146, True)),
    Case('roce_ring', '--op only', encapsulated(6, 1), packets=64, look=queue_pairs(32, 1122, False)),
    Case('roce_ring', '--op ack', encapsulated(6, 1), packets=64, look=queue_pairs(32, 86, False)),
    Case('roce_ring', '--mtu 4096', encapsulated(6, 1), packets=64, look=queue_pairs(32, 4178, False)),
    Case('roce_ring', '--ranks 1', refused='--ranks'),
    Case('roce_ring', '--qps 0', refused='--qps'),
    Case('roce_ring', '--fsize 256', refused='make it 1106'),
    Case('roce_ring', '--lat-pps 10', refused='CE'),
    Case('roce_a2a', '', encapsulated(6, 1), packets=448, look=queue_pairs(224, 1106, False)),
    Case('roce_a2a', '--ranks 32 --qps 8 --mtu 256', encapsulated(6, 1), packets=15872, look=queue_pairs(7936, 338, False)),
    Case('roce_a2a', '--encap usid', shifted, packets=448, look=queue_pairs(224, 1146, True)),
    Case('roce_a2a', '--ranks 64 --qps 8', refused='flows'),
    Case('many_dst', '--fsize 80', routed, packets=10000, prefixes=10000, look=distinct_prefixes(10000)),
    Case('many_dst', '--prefixes 500 --order random', routed, packets=500, prefixes=500, look=distinct_prefixes(500)),
    Case('many_dst', '--prefixes 20000 --order random', refused='--prefixes'),
    Case('many_dst', '--lat-pps 10', refused='swept'),
    Case('negative', '', bad_or_control),
    *(Case('negative', '--case %s --count 7' % name, bad_or_control) for name in sorted(NEGATIVE)),
    Case('negative', '--count 0', refused='--count'),
]
