"""Three sizes of one shape, 28 : 16 : 4, started one after another so that they do not run in lock-step.

trex: frames 64/594/1518, csit6: 78/570/1518, srv6: 122/570/1518, each with FCS. A size that is below the smallest
frame of the shape becomes that smallest frame.
"""

import srv6_packets as srv6

MIXES = {'trex': (64, 594, 1518), 'csit6': (78, 570, 1518), 'srv6': (122, 570, 1518)}
WEIGHTS = (28, 16, 4)
STARTS = (0.0, 0.1, 0.2)


def sizes(args, shape):
    least = srv6.smallest(shape(args), latency=False)
    return [(max(size, least), weight, start) for size, weight, start in zip(MIXES[args.mix], WEIGHTS, STARTS)]


class STLS1(object):
    def get_streams(self, direction=0, port_id=0, tunables=(), **kwargs):
        parser = srv6.arguments(__file__)
        parser.add_argument('--base', choices=['transit', 'encap', 'decap'], default='transit', help='shape')
        parser.add_argument('--mix', choices=sorted(MIXES), default='srv6', help='sizes')
        parser.add_argument('--usids', type=int, choices=range(1, 7), default=3, help='uSIDs of the carrier, in transit')
        parser.add_argument('--labels', type=int, default=1, help='outer flow labels, in transit')
        srv6.add_family(parser)
        parser.set_defaults(carriers=1, func=None)
        args = srv6.tunables(parser, tunables, direction, port_id)
        if args.base != 'transit':
            args.labels = 1
        shape = srv6.SHAPES[args.base][1]
        return srv6.streams(args, shape, sizes(args, shape), name='imix_' + args.base)


def register():
    return STLS1()
