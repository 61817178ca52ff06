"""Frames of 9000 bytes in transit, or to be encapsulated: 40 bytes more must still fit behind srv6d.

Wants trex_cfg_jumbo.yaml and an MTU of 9100 or more on every link of the bench.
"""

import srv6_packets as srv6


class STLS1(object):
    def get_streams(self, direction=0, port_id=0, tunables=(), **kwargs):
        parser = srv6.arguments(__file__)
        parser.add_argument('--base', choices=['transit', 'encap'], default='transit', help='shape')
        parser.add_argument('--usids', type=int, choices=range(1, 7), default=3, help='uSIDs of the carrier, in transit')
        parser.add_argument('--labels', type=int, default=1, help='outer flow labels, in transit')
        srv6.add_family(parser)
        parser.set_defaults(fsize=9000, carriers=1)
        args = srv6.tunables(parser, tunables, direction, port_id)
        if args.fsize < 1522:
            raise ValueError('--fsize %d: a jumbo frame has more than 1522 bytes' % args.fsize)
        if args.base != 'transit':
            args.labels = 1
        return srv6.streams(args, srv6.SHAPES[args.base][1], name='jumbo_' + args.base)


def register():
    return STLS1()
