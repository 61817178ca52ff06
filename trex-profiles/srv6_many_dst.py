"""Plain IPv6 to many /64 prefixes, 2001:db8:4000::/64, 2001:db8:4000:1::/64, ...: each packet meets a route of its own.

srv6d needs those routes: dut/many --prefixes N prints its configuration.
"""

import random

from trex_stl_lib.api import *

import srv6_packets as srv6

FIRST_WORD = 0x4000 << 16
# A shuffled order is a list in the field engine; counting up needs none.
MOST_SHUFFLED = 16384
MOST = 1 << 24


def variable(args):
    if args.order == 'inc':
        return STLVmFlowVar('prefix', min_value=FIRST_WORD, max_value=FIRST_WORD + args.prefixes - 1, size=4, op='inc')
    words = list(range(FIRST_WORD, FIRST_WORD + args.prefixes))
    random.Random(1).shuffle(words)
    return STLVmFlowVar('prefix', value_list=words, size=4, op='inc')


class STLS1(object):
    def get_streams(self, direction=0, port_id=0, tunables=(), **kwargs):
        parser = srv6.arguments(__file__)
        parser.add_argument('--prefixes', type=int, default=10000, help='how many /64')
        parser.add_argument('--order', choices=['inc', 'random'], default='inc', help='one after the other, or shuffled')
        args = srv6.tunables(parser, tunables, direction, port_id)
        most = MOST if args.order == 'inc' else MOST_SHUFFLED
        if not 1 <= args.prefixes <= most:
            raise ValueError('--prefixes %d: 1 to %d with --order %s' % (args.prefixes, most, args.order))
        if args.csum == 'fix' or args.flows > 1 or args.lat_pps:
            raise ValueError('only the destination is swept here: no --csum fix, --flows, --lat-pps')
        packet = srv6.padded(Ether() / IPv6(src=args.way.source6, dst='2001:db8:4000::1') / srv6.udp(), args.fsize)
        engine = STLScVmRaw([variable(args), STLVmWrFlowVar('prefix', pkt_offset='IPv6.dst', offset_fixup=4)])
        return [STLStream(name='many_dst', mode=STLTXCont(pps=srv6.LARGEST_WEIGHT_PPS),
                          packet=STLPktBuilder(pkt=packet, vm=engine))]


def register():
    return STLS1()
