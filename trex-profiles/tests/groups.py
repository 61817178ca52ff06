"""The groups of a server, plain ones and those that are timed. It counts from the moment the streams of a group are added to
the moment they are removed: starting and stopping them sets nothing back. What has not happened is not in its answer."""

import base64
import struct
import zlib

DIGITS, WIDEST, HIGHEST = 3, 2047, 3_600_000_000


class Group:
    """Packets since its stream was added."""

    def __init__(self, version, is_timed):
        self.version, self.is_timed = version, is_timed
        self.received = 0
        self.started = False
        self.port = 0
        self.sent = 0
        self.dropped = 0
        self.times = {}

    def arrived(self, count, microseconds):
        """All but one in a hundred take as long; that one takes 70 longer."""
        slow = count // 100
        for time, many in ((microseconds, count - slow), (microseconds + 70, slow)):
            if many:
                self.times[time] = self.times.get(time, 0) + many

    def latency(self, hdrh):
        total = sum(self.times.values())
        times = {'average': sum(time * count for time, count in self.times.items()) / total if total else 0.0, 'jit': 3,
                 'total_max': max(self.times, default=0), 'total_min': min(self.times, default=0),
                 # Of the last half second, in which nothing came.
                 'last_max': 0}
        buckets = {}
        for time, count in self.times.items():
            name = str(bucket(time))
            buckets[name] = buckets.get(name, 0) + count
        if buckets:
            times['histogram'] = buckets
        if hdrh:
            times['hdrh'] = histogram(self.times)
        return times


class Groups:
    """All of them, as `get_active_pgids` and `get_pgid_stats` show them."""

    def __init__(self, hdrh):
        self.hdrh = hdrh
        self.versions = 0
        self.known = {}

    def add(self, number, is_timed):
        self.versions += 1
        self.known.setdefault(number, Group(self.versions, is_timed))

    def remove(self, number):
        self.known.pop(number, None)

    def active(self):
        numbers = {is_timed: sorted(number for number, one in self.known.items() if one.is_timed == is_timed)
                   for is_timed in (True, False)}
        return {'ids': {'latency': numbers[True], 'flow_stats': numbers[False]}}

    def statistics(self, numbers, ports):
        found = {number: self.known[number] for number in numbers if number in self.known}
        latency = {str(number): self.one(group) for number, group in found.items() if group.started and group.is_timed}
        flows = {str(number): self.flow(group, ports) for number, group in found.items()}
        versions = {str(number): group.version for number, group in found.items()}
        return {'ver_id': versions or None, 'flow_stats': flows or None, 'latency': dict(latency, g=None)}

    def one(self, group):
        return dict({'lat': group.latency(self.hdrh)}, **({'er': {'drp': group.dropped}} if group.dropped else {}))

    @staticmethod
    def flow(group, ports):
        """Sent by its port, received by the other one. Bytes are not counted."""
        counts = {str(port): 0 for port in ports}
        rates = {str(port): 0.0 for port in ports}
        sender = group.port
        return {'tp': dict(counts, **{str(sender): group.sent}), 'rp': dict(counts, **{str(sender ^ 1): group.received}),
                'tb': counts, 'rb': counts, 'tps': rates, 'rps': rates, 'tbs': rates, 'rbs': rates}


def bucket(time):
    """Of the plain histogram: its first digit, from ten microseconds up."""
    width = 10
    while time >= 10 * width:
        width *= 10
    return time // width * width


def histogram(times):
    """An HdrHistogram, V2, of times that its first slots take: a unit wide each."""
    numbers, at = [], 0
    for time in sorted(times):
        if time > WIDEST:
            raise ValueError('%d us' % time)
        numbers += ([at - time] if time > at else []) + [times[time]]
        at = time + 1
    counts = b''.join(zigzag(number) for number in numbers)
    plain = struct.pack('>iiiiqqd', 0x1c849313, len(counts), 0, DIGITS, 1, HIGHEST, 1.0) + counts
    packed = zlib.compress(plain)
    return base64.b64encode(struct.pack('>ii', 0x1c849314, len(packed)) + packed).decode()


def zigzag(number):
    """ZigZag LEB128."""
    value, out = number << 1 if number >= 0 else (-number << 1) - 1, bytearray()
    while value >= 0x80:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))
