"""RoCEv2 of an all-reduce job: packets of queue pairs, each with its own sequence numbers.

The field engine has no CRC-32, so the invariant CRC at the end is four zero bytes: a NIC would refuse them, a
forwarder does not look. Packets are ECT(0), DSCP 26, and carry no flow statistics, which would turn that into CE.
"""

import random

from trex_stl_lib.api import *

import srv6_packets as srv6

WRITE_MIDDLE, WRITE_ONLY, ACKNOWLEDGE = 0x07, 0x0a, 0x11
RETH = 16
AETH = 4
ICRC = 4
BTH = 12
# The client and the server took this many; a list of them goes into one field-engine variable.
MOST_FLOWS = 7936


def add(parser):
    parser.add_argument('--ranks', type=int, default=8, help='GPUs of the job')
    parser.add_argument('--qps', type=int, default=4, help='queue pairs of each pair of ranks')
    parser.add_argument('--mtu', type=int, choices=[256, 512, 1024, 2048, 4096], default=1024, help='path MTU of RoCE')
    parser.add_argument('--op', choices=['middle', 'only', 'ack'], default='middle', help='RC operation')
    parser.add_argument('--encap', choices=['none', 'usid'], default='none',
                        help='none: srv6d encapsulates; usid: the sender has, and srv6d shifts')
    parser.add_argument('--tc', type=lambda text: int(text, 0), default=0x6a, help='traffic class')


def flows(pairs, qps):
    """(source rank, destination rank, queue pair, UDP source port) of every flow. Only port and queue pair differ
    between the queue pairs of two ranks."""
    ports = random.Random(1).sample(range(srv6.FIRST_PORT, 0x10000), min(len(pairs) * qps, 0x4000))
    numbered = [(source, destination, qp) for source, destination in pairs for qp in range(qps)]
    if not 1 <= len(numbered) <= MOST_FLOWS:
        raise ValueError('%d flows: 1 to %d' % (len(numbered), MOST_FLOWS))
    return [(source, destination, 0x100 + number, ports[number % len(ports)])
            for number, (source, destination, _) in enumerate(numbered)]


def transport(args):
    """BTH, the header behind it, data and the place of the invariant CRC."""
    operation = {'middle': WRITE_MIDDLE, 'only': WRITE_ONLY, 'ack': ACKNOWLEDGE}[args.op]
    header = bytes([operation, 0]) + b'\xff\xff' + bytes(BTH - 4)
    extended = {'middle': b'', 'only': bytes(12) + args.mtu.to_bytes(4, 'big'), 'ack': b'\x1f' + bytes(AETH - 1)}[args.op]
    data = b'' if args.op == 'ack' else bytes(number & 0xff for number in range(args.mtu))
    return header + extended + data + bytes(ICRC)


def packet(args):
    way = args.way
    destination = way.steered6(1) if args.encap == 'none' else way.routed6
    inner = IPv6(src=way.source6, dst=destination, tc=args.tc) / srv6.udp() / Raw(transport(args))
    if args.encap == 'none':
        return Ether() / inner
    outer = IPv6(src=way.tunnel_source, dst=srv6.carrier(args.block, [args.node, way.next, '00d6']), nh=41, tc=args.tc)
    return Ether() / outer / inner


def engine(args, pairs):
    """Parallel lists step together; when the first has gone round, every queue pair is at its next packet."""
    listed = flows(pairs, args.qps)
    inner = 'IPv6:1' if args.encap == 'usid' else 'IPv6'
    psn = 'psn'
    lists = [
        ('source', 4, [source + 1 for source, _, _, _ in listed], psn),
        ('destination', 4, [destination + 1 for _, destination, _, _ in listed], None),
        ('qp', 4, [qp for _, _, qp, _ in listed], None),
        ('sport', 2, [port for _, _, _, port in listed], None),
    ]
    variables = [STLVmFlowVar(name, value_list=values, size=size, op='inc', next_var=following)
                 for name, size, values, following in lists]
    variables.append(STLVmFlowVar(psn, min_value=0, max_value=0xffffff, size=4, op='inc'))
    writes = [
        STLVmWrFlowVar('source', pkt_offset='%s.src' % inner, offset_fixup=12),
        STLVmWrFlowVar('destination', pkt_offset='%s.dst' % inner, offset_fixup=12),
        STLVmWrFlowVar('sport', pkt_offset='UDP.sport'),
        STLVmWrFlowVar('qp', pkt_offset='Raw.load', offset_fixup=4),
        STLVmWrFlowVar(psn, pkt_offset='Raw.load', offset_fixup=8),
    ]
    if args.encap == 'usid':
        variables.append(STLVmFlowVar('label', value_list=[(args.tc << 20) | (port & 0x3ff) + 1 for _, _, _, port in listed],
                                      size=4, op='inc'))
        writes.append(STLVmWrMaskFlowVar('label', pkt_offset=14, pkt_cast_size=4, mask=0x0fffffff))
    return STLScVmRaw(variables + writes)


def streams(args, pairs, name):
    """One stream that goes through all flows, a packet each, and begins again with the next sequence number."""
    if args.ranks < 2 or args.ranks > 1024:
        raise ValueError('--ranks %d: 2 to 1024' % args.ranks)
    if args.qps < 1:
        raise ValueError('--qps %d: 1 or more' % args.qps)
    if not 0 <= args.tc <= 0xff:
        raise ValueError('--tc %d: 0 to 255' % args.tc)
    if args.lat_pps or args.csum != 'none':
        raise ValueError('no --lat-pps (it would mark packets CE) and no --csum fix: RoCEv2 over IPv6 here sends 0')
    built = packet(args)
    listed = pairs(args.ranks)
    exactly('--fsize', args.fsize, len(built) + srv6.FCS, '--mtu, --op and --encap')
    exactly('--flows', args.flows, len(listed) * args.qps, '--ranks and --qps')
    return [STLStream(name='%s_%s' % (name, args.op), mode=STLTXCont(pps=srv6.LARGEST_WEIGHT_PPS),
                      packet=STLPktBuilder(pkt=built, vm=engine(args, listed)))]


def exactly(name, given, made, by):
    """A tunable that follows from others may be given, as a check."""
    if given not in (0, made):
        raise ValueError('%s %d: %s make it %d' % (name, given, by, made))


def parser_of(file):
    """Sizes follow from the path MTU of RoCE, and flows from ranks and queue pairs."""
    parser = srv6.arguments(file)
    add(parser)
    parser.set_defaults(fsize=0, flows=0)
    return parser
