"""Two ports of a TRex server with the device under test between them: loads streams, sends, and counts what arrives."""

import dataclasses
import os
import re
import sys
import time

import ndr_checksum
import ndr_own
from ndr_latency import percentiles
from ndr_search import Counters, Trial

HERE = os.path.dirname(os.path.abspath(__file__))
FCS = 4
DRAIN_SECONDS = 2
# The client waits this long behind the last packet before it says that sending has ended, if packets are timed.
RX_DELAY_SECONDS = 0.1
FLUSH_PPS, FLUSH_SECONDS = 1500, 1
WARM_UP_SECONDS = 2
PREFLIGHT_PPS, PREFLIGHT_SECONDS = 10, 1
# First packets whose UDP checksums are looked at.
CHECKED_PACKETS = 100


class Refused(Exception):
    """Something that the user has to change."""


class GroupsLost(Exception):
    """The device replaces the header that names the flow statistics group."""


class GroupsRefused(Exception):
    """The server takes no flow statistics for a stream."""


def longest_wait(seconds):
    """How long the driver waits for the end of a start of so many seconds. A generator that is asked for too much sends
    all packets in a longer time: behind this it is stopped, and what it had sent by then shows that it is the limit."""
    return 1.25 * seconds + 3


@dataclasses.dataclass(frozen=True)
class Library:
    """Names of TRex's client library: its errors, and flow statistics of a stream."""
    error: type
    timeout: type
    statistics: type


class Bench:
    """Two ports of a TRex server, and the streams on them. `library`: what connect() found in TRex's client library."""

    def __init__(self, client, senders, profile, tunables, load_profile, library):
        self.client = client
        self.library = library
        self.senders = senders
        self.receivers = [port ^ 1 for port in senders]
        self.profile = profile
        self.tunables = tunables
        self.load_profile = load_profile
        self.clock = time
        self.latency_pps = int(tunables.get('lat_pps', 0))
        # Own packets are told from others by groups, until the first packets show that the device takes these away.
        self.groups_tell = True

    def load(self, size):
        """Puts the streams of a frame size on the ports: of the smallest that fits. Returns [(frame, weight)] of the streams."""
        while True:
            try:
                return self._load(size)
            except GroupsRefused:
                self.groups_tell = False
            except ValueError as why:
                least = re.search(r'this packet needs (\d+)', str(why))
                # A stream may need more than the one that said so first.
                if not least or int(least.group(1)) <= (size or 0):
                    raise Refused('%s: %s' % (self.profile, why))
                size = int(least.group(1))

    def _load(self, size):
        self.client.reset(ports=sorted(set(self.senders + self.receivers)))
        frames = []
        for port in self.senders:
            tunables = dict(self.tunables, **({'fsize': size} if size else {}))
            flat = [part for key, value in tunables.items() for part in ('--' + key.replace('_', '-'), str(value))]
            streams = self.load_profile(os.path.join(HERE, self.profile), port, flat)
            # The thin stream that times is no part of a mix: its rate is no weight.
            bulk = [stream for stream in streams if not stream.has_flow_stats()]
            frames += [(len(stream.get_pkt()) + FCS, stream.to_json()['mode']['rate']['value']) for stream in bulk]
            self.groups_tell = self.groups_tell and not any(ndr_own.carries_ecn(stream.get_pkt()) for stream in bulk)
            if self.groups_tell:
                ndr_own.give_group(bulk, port, self.library.statistics)
            self._add(streams, port)
        return frames

    def _add(self, streams, port):
        try:
            self.client.add_streams(streams, ports=[port])
        except self.library.error:
            if not self.groups_tell:
                raise
            raise GroupsRefused

    def warm_up(self, rate):
        """What the first packets of all cost (memory of rings touched, caches, neighbours) is no trial's."""
        self._send(rate, WARM_UP_SECONDS)
        self.clock.sleep(DRAIN_SECONDS)

    def preflight(self):
        """A few packets, slowly: wrong MTUs, routes and neighbours show here, and not as a rate of zero. Returns by how
        many bytes a packet has become longer on its way."""
        sent, flushed, _ = self._run(self.at_least(PREFLIGHT_PPS), PREFLIGHT_SECONDS)
        seen = self._arrived(sent, flushed)
        if seen.sent == 0:
            raise Refused('nothing was sent: are the links of TRex up?')
        if seen.frames < seen.sent or seen.sent / 2 < seen.received < seen.sent:
            raise Refused('%d of %d packets arrived at a trickle: look at MTU, routes and neighbours of the device '
                          '(`srv6d show counters`)' % (seen.received, seen.sent))
        if seen.received < seen.sent:
            raise GroupsLost
        self._tell_of_foreign(seen)
        return (self._total(flushed, self.receivers, 'ibytes') / seen.frames
                - self._total(flushed, self.senders, 'obytes') / seen.sent)

    def _tell_of_foreign(self, seen):
        if seen.foreign:
            say('  the device sends frames of its own (%d beside %d packets): they are not counted' % (seen.foreign, seen.sent))
        elif seen.own is None and seen.frames > seen.sent:
            say('  the device sends frames of its own (%d more arrived than were sent). With this profile nobody can tell '
                'them from packets: each hides a lost one. Give the device static neighbours, and switch off what it '
                'announces' % (seen.frames - seen.sent))

    def check_checksums(self):
        """Looks at the UDP checksums of the first packets where the profile has the server write them: not every build of
        TRex computes them right."""
        if self.tunables.get('csum') != 'fix':
            return
        self.client.set_service_mode(ports=self.receivers, enabled=True)
        try:
            capture = self.client.start_capture(rx_ports=self.receivers, limit=CHECKED_PACKETS)
            self._run(self.at_least(PREFLIGHT_PPS), PREFLIGHT_SECONDS)
            packets = []
            self.client.stop_capture(capture['id'], packets)
        finally:
            self.client.set_service_mode(ports=self.receivers, enabled=False)
        if not packets:
            raise Refused('csum=fix: the server captured none of the first packets, so nobody knows their checksums')
        wrong = sum(ndr_checksum.is_wrong(bytes(one['binary'])) for one in packets)
        if wrong:
            raise Refused('csum=fix: %d of the first %d packets arrived with a wrong UDP checksum. srv6d leaves that field as '
                          'it is: this build of TRex computes it wrongly. Take an official release, or csum=none'
                          % (wrong, len(packets)))

    def trial(self, rate, seconds):
        """One rate. What is still in the receiving ring when sending ends is flushed out by a few packets more."""
        sent, flushed, wall = self._run(rate, seconds)
        # Packets that wait in the ring meanwhile are timed when they are polled: times before the flush, errors of both
        # (the client counts errors from each start on).
        times = self.latency_times(sent)
        seen = self._arrived(sent, flushed)
        return Trial(rate, Counters(
            tx=seen.sent, rx=seen.received,
            rx_errors=self._total(flushed, self.receivers, 'ierrors'), tx_errors=self._total(flushed, self.senders, 'oerrors'),
            sent=self._total(sent, self.senders, 'opackets'), seconds=wall, foreign=seen.foreign),
            with_errors(times, sent, flushed))

    def _run(self, rate, seconds):
        """Sends, and then some more so that the receiving ring is empty. Returns the statistics before and behind these,
        and how long the first ones took."""
        self.client.clear_stats()
        before = self.clock.monotonic()
        self._send(rate, seconds)
        wall = self.clock.monotonic() - before - (RX_DELAY_SECONDS if self.latency_pps or self.groups_tell else 0)
        self.clock.sleep(DRAIN_SECONDS)
        sent = self.client.get_stats()
        self._send(self.at_least(FLUSH_PPS), FLUSH_SECONDS)
        self.clock.sleep(DRAIN_SECONDS)
        return sent, self.client.get_stats(), wall

    def _arrived(self, sent, flushed):
        # Counters of ports go on over the flush; the client sets groups back at each start.
        own = sum(ndr_own.received_in_groups(stats, self.receivers) for stats in (sent, flushed)) if self.groups_tell else None
        return ndr_own.Arrived(
            self._total(flushed, self.senders, 'opackets'), self._total(flushed, self.receivers, 'ipackets'), own)

    @staticmethod
    def latency_times(stats):
        """Microseconds of every latency group."""
        groups = {}
        for group, found in stats.get('latency', {}).items():
            if isinstance(group, int) and 'latency' in found:
                times = found['latency']
                groups[group] = {
                    'min': times.get('total_min'), 'average': times.get('average'), 'max': times.get('total_max'),
                    'jitter': times.get('jitter'), 'hdrh': times.get('hdrh') or None,
                    'percentiles': percentiles(times.get('hdrh'))}
        return groups

    def _send(self, rate, seconds):
        per_port = rate / len(self.senders)
        self.client.start(ports=self.senders, mult='%dpps' % per_port, duration=seconds, force=True)
        delay = int(RX_DELAY_SECONDS * 1000)
        try:
            self.client.wait_on_traffic(ports=self.senders, timeout=longest_wait(seconds), rx_delay_ms=delay)
        except self.library.timeout:
            self.client.stop(ports=self.senders, rx_delay_ms=delay)

    def at_least(self, rate):
        # The latency streams keep their rate, and a total below theirs is refused.
        return max(rate, 2 * self.latency_pps) * len(self.senders)

    @staticmethod
    def _total(stats, ports, counter):
        return sum(stats[port][counter] for port in ports)


def with_errors(groups, *all_stats):
    """Latency groups with what their sequence numbers say, in the trial and in the flush behind it."""
    for group, times in groups.items():
        errors = [stats.get('latency', {}).get(group, {}).get('err_cntrs', {}) for stats in all_stats]
        for name, counter in (('lost', 'dropped'), ('out_of_order', 'out_of_order'), ('duplicated', 'dup')):
            times[name] = sum(one.get(counter, 0) for one in errors)
    return groups or None


def first_packets(bench, size):
    """Sends a few packets before all trials. Returns by how many bytes a packet becomes longer."""
    try:
        longer = bench.preflight()
    except GroupsLost:
        say('  the device replaces the header that flow statistics are counted by: packets are counted by ports')
        bench.groups_tell = False
        bench.load(size)
        longer = bench.preflight()
    bench.check_checksums()
    return longer


def say(text):
    """What it is at, beside the results."""
    print(text, file=sys.stderr, flush=True)
