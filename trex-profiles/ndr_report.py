"""A search as a document of bench-net, which makes pages and pictures of it: `bench-net render FILE.json`."""


def document(report):
    """The JSON that `bench-net render` reads."""
    sections = [section(number, run, len(report['runs'])) for number, run in enumerate(report['runs'], 1)]
    return {'schema': 1, 'title': 'TRex: highest rate through srv6d', 'stamp': stamp(report['stamp']), 'sections': sections}


def stamp(values):
    """What the figures were made with, as pairs of texts."""
    return [[name.replace('_', ' '), str(value)] for name, value in values.items() if value not in (None, [], '')]


def section(number, run, runs):
    sizes = run['sizes']
    return {
        'heading': 'Search' if runs == 1 else 'Search %d of %d' % (number, runs),
        'text': ['A rate is a lower bound: the highest one that passed. Sizes are those that srv6d receives, with FCS. '
                 'A trial in which the generator itself lost packets is void, and counts for nothing.'],
        'table': table(sizes),
        'charts': [rates(sizes)] + latencies(sizes),
    }


def table(sizes):
    columns = ['frame', 'NDR', 'PDR', 'L2 Mbit/s at NDR', 'trials', 'void']
    rows = [[str(one['frame']), one['ndr']['text'], one['pdr']['text'], '%.1f' % (one['ndr']['l2_bps'] / 1e6),
             str(len(one['ndr']['trials']) + len(one['pdr']['trials'])),
             str(one['ndr']['void_trials'] + one['pdr']['void_trials'])] for one in sizes]
    return {'columns': columns, 'rows': rows}


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
