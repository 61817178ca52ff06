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
import signal
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import ndr_report
from ndr_bench import Bench, Library, Refused, first_packets, say
from ndr_options import parse
from ndr_search import confirm, search
from ndr_stamp import stamp

SHARES = (10, 50, 90)
PREAMBLE_AND_GAP = 20


def mean(frames):
    """Mean length of frames that come as often as their weights say."""
    return sum(frame * weight for frame, weight in frames) / sum(weight for _, weight in frames)


def measure(bench, size, options):
    """Everything about one frame size, as JSON."""
    bench.groups_tell = True
    frames = bench.load(size)
    lengths = sorted({frame for frame, _ in frames})
    used = lengths[0] if len(lengths) == 1 else round(mean(frames), 1)
    say('frame %s' % used + (' (%s is below the smallest frame of this shape)' % size if size and used > size else ''))
    lowest = bench.at_least(options.min / len(bench.senders))
    if lowest > options.max:
        raise Refused('--max %g: with latency packets at least %g' % (options.max, lowest))
    bench.warm_up(lowest)
    longer = first_packets(bench, size)

    def found(allowed, known=()):
        def trial(rate, seconds=options.trial):
            one = bench.trial(rate, seconds)
            say('  %9.0f pps for %d s: %-17s lost %d of %d%s' % (
                rate, seconds, one.verdict(allowed), one.counters.tx - one.counters.rx, one.counters.tx,
                ', and %d frames of the device\'s own' % one.counters.foreign if one.counters.foreign else ''))
            return one
        rough = search(trial, lowest, options.max, allowed, known=known)
        return confirm(rough, lambda rate: trial(rate, options.final), allowed)

    ndr = found(0.0)
    pdr = found(options.pdr / 100, known=ndr.trials)
    say('  NDR %s, PDR %g %% %s' % (ndr.text(), options.pdr, pdr.text()))
    result = {'frame': used, 'asked_frame': size, 'frames': lengths, 'egress_frame': round(used + longer, 1),
              'counted_by': 'flow statistics' if bench.groups_tell else 'port counters',
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
    return {name: getattr(counters, name) for name in ('tx', 'rx', 'rx_errors', 'tx_errors', 'foreign')}


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
        from trex.stl.api import STLClient, STLError, STLFlowStats, STLProfile
        from trex.common.trex_exceptions import TRexTimeoutError
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
    return client, load_profile, Library(STLError, TRexTimeoutError, STLFlowStats)


def last_words(why):
    """What a profile says of a mistake, without the way that it went through the client."""
    lines = [line.strip() for line in str(why).splitlines() if line.strip()]
    return re.sub(r'^ValueError: ', '', lines[-1]) if lines else 'it cannot be loaded'


def ports_of(options):
    """The sending ports and their neighbours."""
    return sorted({port for one in options.senders for port in (one, one ^ 1)})


def take(client, options, library):
    """Makes the ports ours, if nobody else has them and they are up."""
    ports = ports_of(options)
    there = client.get_all_ports()
    missing = sorted(set(ports) - set(there))
    if missing:
        raise Refused('TRex has no port %s: it has %s' % (missing[0], ', '.join(str(port) for port in there)))
    try:
        client.acquire(ports=ports, force=options.force)
    except library.error as why:
        if options.force:
            raise
        raise Refused('%s. --force takes the ports away from whoever has them' % str(why).strip())
    down = [port for port in ports if not client.ports[port].is_up()]
    if down:
        raise Refused('these links of TRex are down: %s' % ', '.join('port %d' % port for port in down))


def on_signals():
    """Makes SIGTERM end the search as Ctrl-C does. Returns a list that has the first of these signals once it has come:
    the client library may swallow the exception."""
    came = []

    def end(number, _):
        if not came:
            came.append(number)
            raise KeyboardInterrupt
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, end)
    return came


def let_go(client, options, library):
    """Stops the streams and gives the ports back. A signal in the middle of a question makes the client library close the
    connection, while the ports are still ours: it is opened again for that."""
    ours = client.get_acquired_ports() if client.is_connected() else ports_of(options)
    try:
        if not client.is_connected():
            client.connect()
            client.acquire(ports=[port for port in ours if port in client.get_all_ports()], force=True)
    except library.error as why:
        say('the ports of TRex may still be owned by this session (%s): `--force` takes them' % str(why).strip())
    client.disconnect()


def main(arguments=None):
    options = parse(arguments, __doc__)
    interrupted = on_signals()
    try:
        client, load_profile, library = connect(options)
    except Refused as why:
        sys.exit('error: %s' % why)
    except KeyboardInterrupt:
        sys.exit(128 + interrupted[0])
    report, ended = {'kind': 'trex-ndr', 'stamp': {}, 'runs': []}, None
    try:
        searches(client, load_profile, library, options, report)
    except (Refused, library.error) as why:
        ended = 'error: %s' % why
    except KeyboardInterrupt:
        interrupted = interrupted or [signal.SIGINT]
    except Exception as why:  # the client's library has assertions about counters
        traceback.print_exc()
        ended = 'error: %s: %s' % (type(why).__name__, why)
    if interrupted:
        ended = 128 + interrupted[0]
    let_go(client, options, library)
    is_worth_something = any(run['sizes'] for run in report['runs'])
    if is_worth_something:
        # What was measured before is worth as much as it was.
        if ended:
            report['stamp']['cut_off'] = 'interrupted' if interrupted else ended
        keep(report, options)
        print(table(report))
    if interrupted:
        say('interrupted: %s' % ('what was measured is kept' if is_worth_something else 'nothing was measured'))
    if ended:
        sys.exit(ended)


def searches(client, load_profile, library, options, report):
    """All that was asked for; the report has each frame size as soon as it is done."""
    take(client, options, library)
    bench = Bench(client, options.senders, options.profile, dict(options.tunable), load_profile, library)
    report['stamp'] = stamp(client, options)
    for number in range(options.repeat):
        say('search %d of %d' % (number + 1, options.repeat))
        sizes = []
        report['runs'].append({'sizes': sizes})
        for size in options.sizes:
            sizes.append(measure(bench, size, options))


if __name__ == '__main__':
    main()
