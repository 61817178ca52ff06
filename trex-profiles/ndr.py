#!/usr/bin/env python3
"""Searches the highest rate without loss (NDR) and with a small one (PDR) of what is between two ports of a TRex server.

    ndr.py --profile srv6_usid_transit.py --tunable usids=6 --sizes 128,512,1518 --max 400kpps

Runs beside the server (its RPC has no authentication: keep it in the namespace of TRex). Only software ports are
thought of: what the rings of TRex lose themselves makes a trial void, and a generator that cannot send what it was
asked to is never taken for the device.
"""

import json
import os
import re
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import ndr_report
from ndr_latency import percentiles
from ndr_options import parse
from ndr_search import Counters, Trial, confirm, search
from ndr_stamp import stamp

DRAIN_SECONDS = 2
# The client waits this long behind the last packet before it says that sending has ended, if packets are timed.
RX_DELAY_SECONDS = 0.1
FLUSH_PPS, FLUSH_SECONDS = 1500, 1
WARM_UP_SECONDS = 2
PREFLIGHT_PPS, PREFLIGHT_SECONDS = 10, 1
SHARES = (10, 50, 90)
FCS, PREAMBLE_AND_GAP = 4, 20


class Refused(Exception):
    """Something that the user has to change."""


class Bench:
    """Two ports of a TRex server, and the streams on them."""

    def __init__(self, client, senders, profile, tunables, load_profile):
        self.client = client
        self.senders = senders
        self.receivers = [port ^ 1 for port in senders]
        self.profile = profile
        self.tunables = tunables
        self.load_profile = load_profile
        self.clock = time
        self.latency_pps = int(tunables.get('lat_pps', 0))

    def load(self, size):
        """Puts the streams of a frame size on the ports: of the smallest that fits. Returns [(frame, weight)] of the streams."""
        while True:
            try:
                return self._load(size)
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
            self.client.add_streams(streams, ports=[port])
            # The thin stream that times is no part of a mix: its rate is no weight.
            frames += [(len(stream.get_pkt()) + FCS, stream.to_json()['mode']['rate']['value']) for stream in streams
                       if not stream.has_flow_stats()]
        return frames

    def warm_up(self, rate):
        """What the first packets of all cost (memory of rings touched, caches, neighbours) is no trial's."""
        self._send(rate, WARM_UP_SECONDS)
        self.clock.sleep(DRAIN_SECONDS)

    def preflight(self):
        """A few packets, slowly: wrong MTUs, routes and neighbours show here, and not as a rate of zero. Returns by how
        many bytes a packet has become longer on its way."""
        self.client.clear_stats()
        self._send(self.at_least(PREFLIGHT_PPS), PREFLIGHT_SECONDS)
        self.clock.sleep(DRAIN_SECONDS)
        self._send(self.at_least(FLUSH_PPS), FLUSH_SECONDS)
        self.clock.sleep(DRAIN_SECONDS)
        stats = self.client.get_stats()
        sent = self._total(stats, self.senders, 'opackets')
        arrived = self._total(stats, self.receivers, 'ipackets')
        if sent == 0:
            raise Refused('nothing was sent: are the links of TRex up?')
        if arrived < sent:
            raise Refused('%d of %d packets arrived at a trickle: look at MTU, routes and neighbours of the device '
                          '(`srv6d show counters`)' % (arrived, sent))
        return self._total(stats, self.receivers, 'ibytes') / arrived - self._total(stats, self.senders, 'obytes') / sent

    def trial(self, rate, seconds):
        """One rate. What is still in the receiving ring when sending ends is flushed out by a few packets more."""
        self.client.clear_stats()
        before = self.clock.monotonic()
        self._send(rate, seconds)
        wall = self.clock.monotonic() - before - (RX_DELAY_SECONDS if self.latency_pps else 0)
        self.clock.sleep(DRAIN_SECONDS)
        sent = self.client.get_stats()
        # Packets that wait in the ring meanwhile are timed when they are polled: times before the flush, errors of both
        # (the client counts errors from each start on).
        times = self.latency_times(sent)
        self._send(self.at_least(FLUSH_PPS), FLUSH_SECONDS)
        self.clock.sleep(DRAIN_SECONDS)
        all_ = self.client.get_stats()
        return Trial(rate, Counters(
            tx=self._total(all_, self.senders, 'opackets'), rx=self._total(all_, self.receivers, 'ipackets'),
            rx_errors=self._total(all_, self.receivers, 'ierrors'), tx_errors=self._total(all_, self.senders, 'oerrors'),
            sent=self._total(sent, self.senders, 'opackets'), seconds=wall), with_errors(times, sent, all_))

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
        self.client.wait_on_traffic(
            ports=self.senders, timeout=6 * seconds + 10, rx_delay_ms=int(RX_DELAY_SECONDS * 1000))

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


def mean(frames):
    """Mean length of frames that come as often as their weights say."""
    return sum(frame * weight for frame, weight in frames) / sum(weight for _, weight in frames)


def measure(bench, size, options):
    """Everything about one frame size, as JSON."""
    frames = bench.load(size)
    lengths = sorted({frame for frame, _ in frames})
    used = lengths[0] if len(lengths) == 1 else round(mean(frames), 1)
    say('frame %s' % used + (' (%s is below the smallest frame of this shape)' % size if size and used > size else ''))
    lowest = bench.at_least(options.min / len(bench.senders))
    if lowest > options.max:
        raise Refused('--max %g: with latency packets at least %g' % (options.max, lowest))
    bench.warm_up(lowest)
    longer = bench.preflight()

    def found(allowed, known=()):
        def trial(rate, seconds=options.trial):
            one = bench.trial(rate, seconds)
            say('  %9.0f pps for %d s: %-17s lost %d of %d' % (
                rate, seconds, one.verdict(allowed), one.counters.tx - one.counters.rx, one.counters.tx))
            return one
        rough = search(trial, lowest, options.max, allowed, known=known)
        return confirm(rough, lambda rate: trial(rate, options.final), allowed)

    ndr = found(0.0)
    pdr = found(options.pdr / 100, known=ndr.trials)
    say('  NDR %s, PDR %g %% %s' % (ndr.text(), options.pdr, pdr.text()))
    result = {'frame': used, 'asked_frame': size, 'frames': lengths, 'egress_frame': round(used + longer, 1),
              'ndr': as_json(ndr, 0.0, frames), 'pdr': dict(as_json(pdr, options.pdr / 100, frames), percent=options.pdr)}
    if bench.latency_pps and ndr.rate > 0:
        result['latency'] = [{'percent_of_ndr': share, **latency_at(bench, size, ndr.rate * share / 100, options)} for share in SHARES]
    return result


def latency_at(bench, size, rate, options):
    # The server counts times from when a stream is added, over all its starts: those of the search are no part of it.
    bench.load(size)
    one = bench.trial(max(rate, bench.at_least(1)), options.trial)
    return {'rate': one.requested, 'verdict': one.verdict(0.0), 'groups_us': one.latency}


def as_json(found, allowed, frames):
    average = mean(frames)
    return {
        'pps': found.rate, 'text': found.text(), 'limited_by': found.above, 'confirmed': found.confirmed, 'void_trials': found.voids,
        'l2_bps': found.rate * average * 8, 'l1_bps': found.rate * (average + PREAMBLE_AND_GAP) * 8,
        'trials': [{'requested': one.requested, 'offered': one.offered, 'loss': one.loss, 'verdict': one.verdict(allowed),
                    **vars_of(one.counters)} for one in found.trials]}


def vars_of(counters):
    return {name: getattr(counters, name) for name in ('tx', 'rx', 'rx_errors', 'tx_errors')}


def table(report):
    """The report as Markdown."""
    lines = []
    for run in report['runs']:
        found = ndr_report.table(run['sizes'])
        lines += ['| %s |' % ' | '.join(row) for row in [found['columns'], ['---'] * len(found['columns']), *found['rows']]]
    return '\n'.join(lines)


def keep(report, options):
    """Writes what was asked for. Groups have numbers, which JSON knows as texts only."""
    report = json.loads(json.dumps(report))
    for path, content in ((options.json, report), (options.report, ndr_report.document(report))):
        if path:
            with open(path, 'w') as file:
                json.dump(content, file, indent=2)


def connect(options):
    try:
        import lbr_trex_client  # noqa: F401 puts the client's folders on the path
    except ImportError:
        pass  # beside a TRex release, trex_stl_lib is on the path already
    try:
        from trex.stl.api import STLClient, STLError, STLProfile
    except ImportError as why:
        raise Refused('TRex\'s client library is missing (%s): pip install lbr-trex-client==3.4.0, Python 3.10 or 3.11' % why)
    client = STLClient(server=options.server, sync_port=options.rpc_port, async_port=options.publisher_port, verbose_level='error')

    def load_profile(path, port, tunables):
        try:
            profile = STLProfile.load_py(path, direction=port % 2, port_id=port, tunables=tunables)
        except STLError as why:
            raise ValueError(last_words(why))
        if profile is None:
            raise Refused('%s refused %s' % (os.path.basename(path), ' '.join(tunables)))
        return profile.get_streams()
    try:
        client.connect()
    except STLError as why:
        where = '%s:%d' % (options.server, options.rpc_port)
        # The server is there, and refuses the version of the interface that the client asks for.
        if 'ersion' in str(why):
            raise Refused('the TRex server at %s is of another version than this client, which goes with v3.04 and later: %s'
                          % (where, why))
        raise Refused('no TRex server at %s. Start it as trex-profiles/README.md says, and run this beside it, in its namespace '
                      '(`ip netns exec trex ...`), or name it with --server (%s)' % (where, str(why).strip(' *\n')))
    return client, load_profile, STLError


def last_words(why):
    """What a profile says of a mistake, without the way that it went through the client."""
    lines = [line.strip() for line in str(why).splitlines() if line.strip()]
    return re.sub(r'^ValueError: ', '', lines[-1]) if lines else 'it cannot be loaded'


def take(client, options, error):
    """Makes the ports ours, if nobody else has them and they are up."""
    ports = sorted({port for one in options.senders for port in (one, one ^ 1)})
    there = client.get_all_ports()
    missing = sorted(set(ports) - set(there))
    if missing:
        raise Refused('TRex has no port %s: it has %s' % (missing[0], ', '.join(str(port) for port in there)))
    try:
        client.acquire(ports=ports, force=options.force)
    except error as why:
        if options.force:
            raise
        raise Refused('%s. --force takes the ports away from whoever has them' % str(why).strip())
    down = [port for port in ports if not client.ports[port].is_up()]
    if down:
        raise Refused('these links of TRex are down: %s' % ', '.join('port %d' % port for port in down))


def main(arguments=None):
    options = parse(arguments, __doc__)
    try:
        client, load_profile, error = connect(options)
    except Refused as why:
        sys.exit('error: %s' % why)
    except KeyboardInterrupt:
        sys.exit(130)
    report, ended = {'kind': 'trex-ndr', 'stamp': {}, 'runs': []}, None
    try:
        searches(client, load_profile, error, options, report)
    except (Refused, error) as why:
        ended = 'error: %s' % why
    except KeyboardInterrupt:
        client.stop()
        ended = 130
    except Exception as why:  # the client's library has assertions about counters
        traceback.print_exc()
        ended = 'error: %s: %s' % (type(why).__name__, why)
    finally:
        client.disconnect()
    is_worth_something = any(run['sizes'] for run in report['runs'])
    if is_worth_something:
        # What was measured before is worth as much as it was.
        if ended:
            report['stamp']['cut_off'] = 'interrupted' if ended == 130 else ended
        keep(report, options)
        print(table(report))
    if ended == 130:
        say('interrupted: %s' % ('what was measured is kept' if is_worth_something else 'nothing was measured'))
    if ended:
        sys.exit(ended)


def searches(client, load_profile, error, options, report):
    """All that was asked for; the report has each frame size as soon as it is done."""
    take(client, options, error)
    bench = Bench(client, options.senders, options.profile, dict(options.tunable), load_profile)
    report['stamp'] = stamp(client, options)
    for number in range(options.repeat):
        say('search %d of %d' % (number + 1, options.repeat))
        sizes = []
        report['runs'].append({'sizes': sizes})
        for size in options.sizes:
            sizes.append(measure(bench, size, options))


def say(text):
    """What it is at, beside the results."""
    print(text, file=sys.stderr, flush=True)


if __name__ == '__main__':
    main()
