"""What the srv6_*.py profiles share: the bench they are written for, carriers, packet shapes, sizes and tunables.

The bench has two ends, with srv6d between them::

    port 0  02:00:00:00:aa:00 ---- eth1  srv6d  eth2 ---- 02:00:00:00:aa:01  port 1
            hosts 2001:db8:10::/48                  hosts 2001:db8:20::/48
                  10.10.0.0/16                            10.20.0.0/16
            uSID  --back (000a)     --node (0001)   uSID  --next (0002)

Addresses behind the far end that begin with 2001:db8:f or 10.1 are steered: srv6d encapsulates what goes to them.
dut/srv6d.toml is that srv6d. Direction 1 sends from port 1 to port 0, with the roles exchanged.
"""

import argparse
import ipaddress
import os

from trex_stl_lib.api import *

FCS = 4
ETHERNET_MINIMUM = 60
LATENCY_TAIL = 16
FIRST_PORT = 49152
ROCE = 4791
LARGEST_WEIGHT_PPS = 1000


class Way:
    """Addresses of one direction."""

    def __init__(self, direction, args):
        near, far = (0x10, 0x20) if direction == 0 else (0x20, 0x10)
        self.source6 = '2001:db8:%x::1' % near
        self.routed6 = '2001:db8:%x::1' % far
        self.source4 = '10.%d.0.1' % near_octet(near)
        self.routed4 = '10.%d.0.1' % near_octet(far)
        self.far = far
        self.next = args.next if direction == 0 else args.back
        self.tunnel_source = 'fcbb:bb00:%s::1' % (args.back if direction == 0 else args.next)

    def steered6(self, carriers):
        """A host for whose prefix srv6d has a path of that many carriers."""
        return '2001:db8:f%x%x::1' % (self.far, carriers)

    def steered4(self, carriers):
        """The same for IPv4."""
        return '10.%d.%d.1' % (100 + near_octet(self.far), carriers)


def near_octet(number):
    """0x10 -> 10: what is written the same in both families."""
    return int('%x' % number)


def usid(text):
    """A uSID of 16 bits as four hexadecimal digits."""
    value = int(text, 16)
    if not 0 < value <= 0xffff:
        raise argparse.ArgumentTypeError('a uSID is 1 to ffff, not %s' % text)
    return '%04x' % value


def block(text):
    """A locator block of 32 bits."""
    network = ipaddress.IPv6Network(text)
    if network.prefixlen != 32:
        raise argparse.ArgumentTypeError('a block is a /32, not %s' % text)
    return network


def carrier(block, usids):
    """The address that holds up to six uSIDs behind the block. No text is joined: six leave no '::'."""
    if not 1 <= len(usids) <= 6:
        raise ValueError('a carrier holds 1 to 6 uSIDs, not %d' % len(usids))
    value = int(block.network_address)
    for number, one in enumerate(usids):
        value |= int(one, 16) << (80 - 16 * number)
    return str(ipaddress.IPv6Address(value))


def arguments(file):
    """A parser with the tunables that all profiles have."""
    parser = argparse.ArgumentParser(
        prog=os.path.basename(file), formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument('--fsize', type=int, default=256, help='frame that srv6d receives, in bytes, with FCS')
    parser.add_argument('--flows', type=int, default=1, help='UDP source ports, one after the other')
    parser.add_argument('--lat-pps', type=int, default=0, help='latency packets a second, in a stream of their own')
    parser.add_argument('--pg-id', type=int, default=1, help='latency group of port 0; port 1 has the next one')
    parser.add_argument('--csum', choices=['none', 'fix'], default='none',
                        help='UDP checksum: 0, or right for every packet')
    parser.add_argument('--block', type=block, default='fcbb:bb00::/32', help='locator block')
    parser.add_argument('--node', type=usid, default='0001', help='uSID of srv6d')
    parser.add_argument('--next', type=usid, default='0002', help='uSID behind port 1')
    parser.add_argument('--back', type=usid, default='000a', help='uSID behind port 0')
    return parser


def tunables(parser, values, direction, port_id):
    """Parsed tunables, with the way of this direction. Refuses what no stream can be made of."""
    args = parser.parse_args(list(values))
    args.direction, args.port_id = direction, port_id
    args.way = Way(direction, args)
    if not 0 <= args.flows <= 0x10000 - FIRST_PORT:
        raise ValueError('--flows %d: 0 to %d' % (args.flows, 0x10000 - FIRST_PORT))
    if args.lat_pps < 0:
        raise ValueError('--lat-pps %d: 0 or more' % args.lat_pps)
    if not 0 <= args.pg_id <= 126:
        raise ValueError('--pg-id %d: 0 to 126, and one more for port 1' % args.pg_id)
    return args


# Shapes: the layers of a packet, without its payload.

def add_transit(parser):
    parser.add_argument('--usids', type=int, choices=range(1, 7), default=3,
                        help='uSIDs of the carrier; 1: the last one, decapsulated here')
    parser.add_argument('--labels', type=int, default=1, help='flow labels of the outer header, one after the other')


def transit(args):
    """A carrier that is on its way: block:node:next:..., IPv6 and UDP inside."""
    way = args.way
    usids = [args.node, way.next] + ['%04x' % (0x100 + number) for number in range(4)]
    outer = IPv6(src=way.tunnel_source, dst=carrier(args.block, usids[:args.usids]), nh=41)
    return Ether() / outer / inner6(args)


def add_family(parser):
    parser.add_argument('--family', type=int, choices=[4, 6], default=6, help='IP version of the inner packet')


def add_encap(parser):
    add_family(parser)
    parser.add_argument('--carriers', type=int, choices=[1, 2, 3], default=1,
                        help='segments of the path that srv6d has for the destination')


def encap(args):
    """A plain packet for a prefix that srv6d steers."""
    way = args.way
    if args.family == 4:
        return Ether() / IP(src=way.source4, dst=way.steered4(args.carriers)) / udp()
    return Ether() / IPv6(src=way.source6, dst=way.steered6(args.carriers)) / udp()


def add_decap(parser):
    add_family(parser)
    parser.add_argument('--func', choices=['d4', 'd6', 'd46'], default=None,
                        help='uDT4, uDT6 or uDT46 of srv6d [default: the one of the family]')


def decap(args):
    """A carrier whose last uSID is srv6d's own uDT4, uDT6 or uDT46."""
    function = args.func or 'd%d' % args.family
    if str(args.family) not in function:
        raise ValueError('--func %s does not take IPv%d' % (function, args.family))
    way = args.way
    functions = {'d4': '00d4', 'd6': '00d6', 'd46': '0d46'}
    outer = IPv6(src=way.tunnel_source, dst=carrier(args.block, [args.node, functions[function]]),
                 nh=4 if args.family == 4 else 41)
    return Ether() / outer / (inner4(args) if args.family == 4 else inner6(args))


def add_srh(parser):
    add_family(parser)
    parser.add_argument('--carriers', type=int, choices=[2, 3, 4], default=2,
                        help='segments: the first in the destination, the others in the SRH')
    parser.add_argument('--at-end', type=int, choices=[0, 1], default=1,
                        help='1: the first carrier ends at srv6d, and the next segment is due; 0: it is on its way')


def srh(args):
    """Several carriers in the reduced form: the first only in the destination, the others in the SRH, last one first."""
    way = args.way
    first = [args.node] if args.at_end else [args.node, way.next]
    others = [carrier(args.block, [way.next, '%04x' % (0x200 + number)]) for number in range(args.carriers - 1)]
    header = IPv6ExtHdrSegmentRouting(
        addresses=list(reversed(others)), segleft=len(others), lastentry=len(others) - 1,
        nh=4 if args.family == 4 else 41)
    outer = IPv6(src=way.tunnel_source, dst=carrier(args.block, first), nh=43)
    return Ether() / outer / header / (inner4(args) if args.family == 4 else inner6(args))


def udp():
    return UDP(sport=FIRST_PORT, dport=ROCE, chksum=0)


def inner6(args):
    return IPv6(src=args.way.source6, dst=args.way.routed6) / udp()


def inner4(args):
    return IP(src=args.way.source4, dst=args.way.routed4) / udp()


SHAPES = {
    'transit': (add_transit, transit),
    'encap': (add_encap, encap),
    'decap': (add_decap, decap),
    'srh': (add_srh, srh),
}


# Streams.

def smallest(packet, latency):
    """The smallest frame with FCS that holds these layers, and a latency tail."""
    return max(len(packet) + (LATENCY_TAIL if latency else 0), ETHERNET_MINIMUM) + FCS


def padded(packet, fsize, latency=False):
    """The packet filled up to a frame size. The bytes have a pattern, so that a shifted payload shows."""
    least = smallest(packet, latency)
    if fsize < least:
        raise ValueError('--fsize %d: this packet needs %d' % (fsize, least))
    if fsize > 9216 + 18 + FCS:
        raise ValueError('--fsize %d: at most %d' % (fsize, 9216 + 18 + FCS))
    missing = fsize - FCS - len(packet)
    return packet / Raw(bytes(number & 0xff for number in range(missing)))


def flow_engine(args, packet):
    """Sweeps source ports and outer flow labels, and keeps the checksum right where it is asked for."""
    commands = []
    if args.flows > 1:
        commands += [STLVmFlowVar('sport', min_value=FIRST_PORT, max_value=FIRST_PORT + args.flows - 1, size=2, op='inc'),
                     STLVmWrFlowVar('sport', pkt_offset='UDP.sport')]
    if getattr(args, 'labels', 1) > 1:
        commands += label_sweep(args.labels)
    if args.csum == 'fix':
        commands.append(checksum(packet))
    return STLScVmRaw(commands) if commands else None


def label_sweep(count):
    """Flow labels 1 to count. TRex masks labels of 0xfc00 and more, hence the limit."""
    if not 1 <= count < 0xfc00:
        raise ValueError('--labels %d: 1 to %d' % (count, 0xfbff))
    return [STLVmFlowVar('label', min_value=1, max_value=count, size=4, op='inc'),
            STLVmWrMaskFlowVar('label', pkt_offset=14, pkt_cast_size=4, mask=0x0fffffff)]


def checksum(packet):
    l3 = 'IP' if IP in packet else 'IPv6:1' if packet[IPv6].payload.haslayer(IPv6) else 'IPv6'
    return STLVmFixChecksumHw(l3_offset=l3, l4_offset='UDP', l4_type=CTRexVmInsFixHwCs.L4_TYPE_UDP)


def streams(args, shape, sizes=None, name='srv6'):
    """One stream for each (size, weight, start in microseconds), and a thin one for latency if it is asked for."""
    made = []
    for size, weight, start in sizes or [(args.fsize, LARGEST_WEIGHT_PPS, 0.0)]:
        packet = padded(shape(args), size)
        made.append(STLStream(
            name='%s_%d' % (name, size), isg=start, mode=STLTXCont(pps=weight),
            packet=STLPktBuilder(pkt=packet, vm=flow_engine(args, packet))))
    if args.lat_pps:
        made.append(latency_stream(args, shape, name))
    return made


def latency_stream(args, shape, name):
    packet = padded(shape(args), args.fsize, latency=True)
    return STLStream(
        name='%s_latency' % name, mode=STLTXCont(pps=args.lat_pps),
        packet=STLPktBuilder(pkt=packet, vm=flow_engine(args, packet)),
        flow_stats=STLFlowLatencyStats(pg_id=args.pg_id + args.port_id))
