"""A search as a document of bench-net, which makes pages and pictures of it: `bench-net render FILE.json`."""


def document(report):
    """The JSON that `bench-net render` reads."""
    runs = report['runs']
    sections = [one for number, run in enumerate(runs, 1)
                for one in [section(number, run, len(runs)), *latency_sections(number, run, len(runs))]]
    return {'schema': 1, 'title': 'TRex: highest rate through srv6d', 'stamp': stamp(report['stamp']), 'sections': sections}


def stamp(values):
    """What the figures were made with, as pairs of texts."""
    return [[name.replace('_', ' '), text(value)] for name, value in values.items() if value not in (None, [], '')]


def text(value):
    """`lat_pps=1000, usids=6`, `0, 2`, `3.25`."""
    if isinstance(value, list):
        return ', '.join('='.join(one) if isinstance(one, list) else str(one) for one in value)
    return '%.2f' % value if isinstance(value, float) and value < 1000 else str(value)


def section(number, run, runs):
    sizes = run['sizes']
    return {
        'heading': 'Search' if runs == 1 else 'Search %d of %d' % (number, runs),
        'text': ['A rate is a lower bound: the highest one that passed. Sizes are those that srv6d receives, with FCS, and '
                 'beside them what left it. L1 counts 20 bytes more for each frame. '
                 'A trial in which the generator itself lost packets is void, and counts for nothing.'],
        'table': table(sizes),
        'charts': [rates(sizes)] + latencies(sizes),
    }


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
    heading = 'Latency' if runs == 1 else 'Latency, search %d of %d' % (number, runs)
    return [{'heading': heading, 'text': said, 'table': {'columns': columns, 'rows': rows}}]


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
    def bar(series, found):
        return {'series': series, 'value': found['pps'], 'low': found['pps'], 'high': lowest_failed(found)}
    groups = [{'label': str(one['frame']), 'bars': [bar('NDR', one['ndr']), bar('PDR', one['pdr'])]} for one in sizes]
    return {'title': 'Rate by frame size; the spread ends at the lowest rate that did not pass', 'unit': 'pps', 'groups': groups}


def lowest_failed(found):
    above = [one['requested'] for one in found['trials'] if one['verdict'] != 'pass' and one['requested'] > found['pps']]
    return min(above, default=found['pps'])


def latencies(sizes):
    """One picture for each size that was sent with latency packets."""
    charts = []
    for one in sizes:
        groups = [{'label': '%d %% of NDR' % share['percent_of_ndr'], 'bars': [
            {'series': 'group %s' % group, 'value': times['average'], 'low': times['min'], 'high': times['max']}
            for group, times in sorted((share['groups_us'] or {}).items())]} for share in one.get('latency', [])]
        if groups:
            charts.append({'title': 'Latency, average and range, frames of %s' % one['frame'], 'unit': 'us', 'groups': groups})
    return charts
