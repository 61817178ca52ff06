"""Packets that srv6d must refuse, --count of each, beside a good control stream.

None of a bad case may arrive at the far port, all of the control stream must, and srv6d's counter of the case must be
--count (`srv6d show counters`). Where an ICMPv6 error is due it comes back on the sending port, and only so many a
second: expect some, never a number.
"""

from trex_stl_lib.api import *

import srv6_packets as srv6


def hop_limit(value):
    def case(args):
        packet = srv6.transit(args)
        packet[IPv6].hlim = value
        return packet
    return case


def payload_length(args):
    packet = srv6.transit(args)
    packet[IPv6].plen = 4000
    return packet


def version(args):
    packet = srv6.transit(args)
    packet[IPv6].version = 4
    return packet


def unknown_usid(args):
    packet = srv6.transit(args)
    packet[IPv6].dst = srv6.carrier(args.block, [args.node, 'eeee', args.way.next])
    return packet


def segments_left(args):
    packet = srv6.srh(with_srh(args))
    packet[IPv6ExtHdrSegmentRouting].segleft = 5
    return packet


def srh_length(args):
    """The SRH says that it goes on for 2 kB, far behind the end of the packet."""
    packet = srv6.srh(with_srh(args))
    packet[IPv6ExtHdrSegmentRouting].len = 255
    return packet


def routing_type(args):
    """Type 0 (RFC 5095: no node processes it), with segments left."""
    packet = srv6.srh(with_srh(args))
    packet[IPv6ExtHdrSegmentRouting].type = 0
    return packet


def upper_layer(number):
    """The inner packet of a uDT6 is announced as something else."""
    def case(args):
        args.func, args.family = 'd6', 6
        packet = srv6.decap(args)
        packet[IPv6].nh = number
        return packet
    return case


def with_srh(args):
    args.carriers, args.at_end, args.family = 2, 1, 6
    return args


# What srv6d counts each case as, and whether it answers.
CASES = {
    'hop-limit-1': (hop_limit(1), 'hop_limit', True),
    'hop-limit-0': (hop_limit(0), 'hop_limit', True),
    'segments-left': (segments_left, 'srh_invalid', True),
    'srh-length': (srh_length, 'malformed', False),
    'routing-type': (routing_type, 'srh_invalid', True),
    'payload-length': (payload_length, 'malformed', False),
    'version': (version, 'malformed', False),
    'unknown-usid': (unknown_usid, 'unknown_sid', False),
    'upper-layer-17': (upper_layer(17), 'upper_layer', True),
    'upper-layer-59': (upper_layer(59), 'upper_layer', True),
}


class STLS1(object):
    def get_streams(self, direction=0, port_id=0, tunables=(), **kwargs):
        parser = srv6.arguments(__file__)
        parser.add_argument('--case', choices=['all'] + sorted(CASES), default='all', help='which one')
        parser.add_argument('--count', type=int, default=100, help='packets of each bad case')
        parser.set_defaults(usids=3, labels=1)
        args = srv6.tunables(parser, tunables, direction, port_id)
        if args.count < 1:
            raise ValueError('--count %d: 1 or more' % args.count)
        chosen = sorted(CASES) if args.case == 'all' else [args.case]
        bad = [self.burst(args, name) for name in chosen]
        return bad + srv6.streams(args, srv6.transit, name='control')

    def burst(self, args, name):
        packet = srv6.padded(CASES[name][0](args), args.fsize)
        return STLStream(name=name, mode=STLTXSingleBurst(total_pkts=args.count, pps=srv6.LARGEST_WEIGHT_PPS),
                         packet=STLPktBuilder(pkt=packet))


def register():
    return STLS1()
