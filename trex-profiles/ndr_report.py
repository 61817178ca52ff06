"""A search as a document of bench-net, which makes pages and pictures of it: `bench-net render FILE.json`."""

import math

from ndr_latency import curve

# Named at the bottom of a latency curve: 0.9 is 1, 0.99 is 2.
PERCENTILES = ((0.0, 'min'), (0.5, '50 %'), (0.9, '90 %'), (0.99, '99 %'), (0.999, '99.9 %'), (0.9999, '99.99 %'))
NAMES = {'senders': 'sending ports', 'generator_ceiling_pps': 'ceiling of the generator, pps', 'trex': 'TRex server',
         'trex_client': 'TRex client', 'srv6d_here': 'srv6d in PATH here'}
# Of the ceiling: what a trial may fall short of the rate that was asked for.
NEAR = 0.97
STROKES = ('solid', 'dashed', 'dotted', 'mixed')


def document(report):
    """The JSON that `bench-net render` reads."""
    runs = report['runs']
    sections = [one for number, run in enumerate(runs, 1) for one in [
        section(number, run, len(runs), report['stamp'].get('generator_ceiling_pps')), *latency_sections(number, run, len(runs)), trials(number, run, len(runs))]]
    return {'schema': 1, 'title': 'TRex: highest rate through srv6d', 'stamp': stamp(report['stamp']), 'sections': sections}


def stamp(values):
    """What the figures were made with, as pairs of texts."""
    return [[NAMES.get(name, name.replace('_', ' ')), text(value)] for name, value in values.items() if value not in (None, [], '')]


def text(value):
    """`lat_pps=1000, usids=6`, `0, 2`, `3.25`."""
    if isinstance(value, list):
        return ', '.join('='.join(one) if isinstance(one, list) else str(one) for one in value)
    return '%.*f' % (2 if value < 1000 else 0, value) if isinstance(value, float) else str(value)


def section(number, run, runs, ceiling):
    sizes = run['sizes']
    said = ['A rate is a lower bound: the highest one that passed. Sizes are those that srv6d receives, with FCS, and '
            'beside them what left it. L1 counts 20 bytes more for each frame. '
            'A trial in which the generator itself lost packets is void, and counts for nothing.',
            'In the picture a bar goes from the highest rate that passed to the lowest that did not; a hollow triangle '
            'is a lower bound: above it the generator was the limit, lost frames itself, or nothing was tried.']
    if ceiling and any(one['ndr']['pps'] > NEAR * ceiling for one in sizes):
        said.append('NDRs at the ceiling of the generator (%.0f pps) are its own: such a device needs a faster one.' % ceiling)
    said += of_its_own(sizes)
    heading = 'Search' if runs == 1 else 'Search %d of %d' % (number, runs)
    return {'heading': heading, 'text': said, 'table': table(sizes), 'plots': [rates(sizes)]}


def of_its_own(sizes):
    """How packets were told from frames that the device sends of its own."""
    foreign = sum(trial['foreign'] or 0 for one in sizes for name in ('ndr', 'pdr') for trial in one[name]['trials'])
    by_ports = [frame(one) for one in sizes if one['counted_by'] == 'port counters']
    said = ['The device sent %d frames of its own meanwhile; they are not counted.' % foreign] if foreign else []
    if by_ports:
        said.append('Packets of %s bytes were counted by ports: a frame that the device sends of its own hides a lost one there.'
                    % ', '.join(by_ports))
    return said


def latency_sections(number, run, runs):
    """What was timed, where latency packets were sent."""
    rows, without = [], False
    for one in run['sizes']:
        for share in one.get('latency', []):
            for group, times in sorted((share['groups_us'] or {}).items()):
                known = times.get('percentiles') or {}
                without |= not known
                rows.append([str(one['frame']), '%d %%' % share['percent_of_ndr'], '%.0f' % share['rate'], str(group)] + [
                    '-' if value is None else '%g' % value for value in (
                        times['min'], known.get('p50'), known.get('p99'), known.get('p999'), times['max'], times['lost'])])
    if not rows:
        return []
    said = ['Microseconds, of the latency packets alone; lost: of these, over the trial and what was flushed out after it.']
    if without:
        said.append('Without percentiles: the server sent no histogram. It does when it is started with `--hdrh`.')
    columns = ['frame', 'of NDR', 'pps', 'group', 'min', 'p50', 'p99', 'p99.9', 'max', 'lost']
    return [{'heading': headed('Latency', number, runs), 'text': said, 'table': {'columns': columns, 'rows': rows},
             'plots': [plot for plot in map(latencies, run['sizes']) if plot['lines']]}]


def trials(number, run, runs):
    """Every trial, with what it says."""
    rows = [['%s, %s' % (one['frame'], name.upper()), '%.0f' % trial['requested'], '%.0f' % trial['offered'], str(trial['tx']),
             str(trial['tx'] - trial['rx']), str(trial['rx_errors'] + trial['tx_errors']), trial['verdict']]
            for one in run['sizes'] for name in ('ndr', 'pdr') for trial in one[name]['trials']]
    return {'heading': headed('Trials', number, runs),
            'text': ['Packets; errors are those that the generator counted at its own ports. Those of the NDR count for the PDR, too.'],
            'table': {'columns': ['frame, search', 'asked for, pps', 'offered, pps', 'sent', 'lost', 'errors', 'verdict'],
                      'rows': rows}}


def headed(what, number, runs):
    return what if runs == 1 else '%s, search %d of %d' % (what, number, runs)


def table(sizes):
    columns = ['frame', 'leaves as', 'NDR', 'PDR', 'L2 Mbit/s at NDR', 'L1 Mbit/s at NDR', 'trials', 'void']
    rows = [[frame(one), '%g' % one['egress_frame'], one['ndr']['text'], one['pdr']['text'],
             '%.1f' % (one['ndr']['l2_bps'] / 1e6), '%.1f' % (one['ndr']['l1_bps'] / 1e6),
             str(len(one['ndr']['trials']) + len(one['pdr']['trials'])),
             str(one['ndr']['void_trials'] + one['pdr']['void_trials'])] for one in sizes]
    return {'columns': columns, 'rows': rows}


def frame(one):
    """Its length, those of a mix, and what was asked for where that is below the smallest."""
    if len(one['frames']) > 1:
        return '%g (%s)' % (one['frame'], ', '.join(str(length) for length in one['frames']))
    asked = one['asked_frame']
    return str(one['frame']) if asked in (None, one['frame']) else '%d (smallest; %d asked)' % (one['frame'], asked)


def rates(sizes):
    """NDR and PDR over the frame size."""
    def line(name, key, colour):
        points = [dict(x=at, **point(one[key])) for at, one in enumerate(sizes) if one[key]['pps'] > 0]
        return {'name': name, 'colour': colour, 'stroke': STROKES[colour], 'points': points}
    lines = [line('NDR: none lost', 'ndr', 0)] + [
        line('PDR: %g %% lost' % percent, 'pdr', 1) for percent in {one['pdr']['percent'] for one in sizes}]
    ticks = [{'at': at, 'label': '%g' % one['frame']} for at, one in enumerate(sizes)]
    if len(sizes) == 1:  # in the middle
        ticks += [{'at': at, 'label': ''} for at in (-1, 1)]
    return {'title': 'Rate by frame size', 'unit': 'kpps', 'along': 'frame that srv6d receives, bytes with FCS',
            'ticks': ticks, 'lines': lines}


def point(found):
    rate = found['pps'] / 1e3
    return {'y': rate, 'low': rate, 'high': lowest_failed(found) / 1e3,
            'mark': 'measured' if found['limited_by'] == 'device' else 'at-least'}


def lowest_failed(found):
    above = [one['requested'] for one in found['trials'] if one['verdict'] != 'pass' and one['requested'] > found['pps']]
    return min(above, default=found['pps'])


def latencies(one):
    """Which share of the packets took no longer than what, for each load of a frame size."""
    furthest, lines = PERCENTILES[-1][0], []
    for number, share in enumerate(one.get('latency', [])):
        for group, times in sorted((share['groups_us'] or {}).items()):
            points = [{'x': nines(at), 'y': time, 'low': time, 'high': time, 'mark': 'none'}
                      for at, time in curve(times['hdrh'], furthest)]
            if points:
                lines.append({'name': '%d %% of NDR, group %s' % (share['percent_of_ndr'], group), 'colour': number,
                              'stroke': STROKES[len(lines) % len(STROKES)], 'points': points})
    return {'title': 'Latency, frames of %s bytes' % one['frame'], 'unit': 'us', 'log': True, 'lines': lines,
            'along': 'share of the packets that took no longer',
            'ticks': [{'at': nines(at), 'label': label} for at, label in PERCENTILES]}


def nines(share):
    return -math.log10(1 - share)
