"""What ndr.py can be told. Mistakes are found here, before anything is sent."""

import argparse
import os
import re
import shlex
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
RFC2544 = '64,128,256,512,1024,1280,1518'
# With FCS: Ethernet's smallest, and the largest that the profiles make.
SMALLEST, LARGEST = 64, 9238
# What profiles have in common: no profiles themselves.
SHARED = ('srv6_packets.py', 'srv6_roce.py')


def can_be_written(path):
    """Found before hours of measuring, and nothing stays behind."""
    was_there = os.path.exists(path)
    try:
        open(path, 'a').close()
    except OSError as why:
        raise argparse.ArgumentTypeError(str(why))
    if not was_there:
        os.remove(path)
    return path


def rate(text):
    """'250kpps' -> 250000.0"""
    found = re.fullmatch(r'([0-9]+(?:[.][0-9]+)?)([kKmM]?)(pps)?', text)
    if not found or not float(found.group(1)):
        raise argparse.ArgumentTypeError('write a rate as 250kpps, not %s' % text)
    return float(found.group(1)) * {'': 1, 'k': 1e3, 'm': 1e6}[found.group(2).lower()]


def tunable(text):
    name, equals, value = text.partition('=')
    if not equals or not re.fullmatch('[a-z][a-z_-]*', name):
        raise argparse.ArgumentTypeError('write a tunable as NAME=VALUE, not %s' % text)
    name = name.replace('-', '_')
    if name == 'fsize':
        raise argparse.ArgumentTypeError('fsize: give frame sizes with --sizes')
    if name == 'lat_pps' and not value.isdigit():
        raise argparse.ArgumentTypeError('lat_pps: packets a second, not %s' % value)
    return [name, value]


def sizes(text):
    """'128,512' -> [128, 512]; 'profile' -> [None]"""
    if text == 'profile':
        return [None]
    found = numbers(text, '128,512')
    for size in found:
        if not SMALLEST <= size <= LARGEST:
            raise argparse.ArgumentTypeError('%d: a frame has %d to %d bytes' % (size, SMALLEST, LARGEST))
    return found


def ports(text):
    return sorted(set(numbers(text, '0,2')))


def numbers(text, example):
    if not re.fullmatch('[0-9]+(,[0-9]+)*', text):
        raise argparse.ArgumentTypeError('write %s, not %s' % (example, text))
    return [int(one) for one in text.split(',')]


def at_least_one(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError('a whole number from 1 up, not %s' % text)
    return int(text)


def percent(text):
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 100:
        raise argparse.ArgumentTypeError('from 0 to less than 100, not %s' % text)
    return value


def profile(text):
    if not text.endswith('.py') or not os.path.isfile(os.path.join(HERE, text)):
        there = sorted(name for name in os.listdir(HERE) if name.startswith('srv6_') and name.endswith('.py'))
        raise argparse.ArgumentTypeError('no profile %s beside ndr.py: there are %s' % (text, ', '.join(
            name for name in there if name not in SHARED)))
    return text


def parser_of(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add('--server', default='127.0.0.1', help='TRex server (%(default)s)')
    add('--rpc-port', type=int, default=4501, help='its RPC (%(default)s)')
    add('--publisher-port', type=int, default=4500, help='its publisher (%(default)s)')
    add('--ports', type=ports, default='0', metavar='N,...', help='sending ports, the neighbours receive (%(default)s)')
    add('--force', action='store_true', help='take the ports, even if somebody else has them')
    add('--bidir', action='store_true', help='both ports of each pair send')
    add('--profile', type=profile, default='srv6_usid_transit.py', metavar='FILE', help='a profile beside this file (%(default)s)')
    add('--tunable', type=tunable, action='append', default=[], metavar='NAME=VALUE', help='of the profile: usids=6; again for more')
    add('--sizes', type=sizes, default=RFC2544, metavar='N,...', help='frames with FCS, or "profile" for the profile\'s own (%(default)s)')
    add('--min', type=rate, default='1kpps', metavar='RATE', help='lowest rate (%(default)s)')
    add('--max', type=rate, default='1000kpps', metavar='RATE', help='highest rate (%(default)s)')
    add('--pdr', type=percent, default='0.5', metavar='PERCENT', help='loss of PDR (%(default)s)')
    add('--trial', type=at_least_one, default='10', metavar='SECONDS', help='of a trial (%(default)s)')
    add('--final', type=at_least_one, default='60', metavar='SECONDS', help='of the trial that confirms (%(default)s; RFC 2544: 60)')
    add('--repeat', type=at_least_one, default='1', metavar='TIMES', help='the whole search so many times (%(default)s)')
    add('--ceiling', type=rate, metavar='RATE', help='what this generator reaches with its ports looped, for the report')
    add('--config', default='trex_cfg_veth.yaml', metavar='FILE', help='its configuration, for the report (%(default)s)')
    add('--dut', metavar='TEXT', help='for the report: what is between the ports, its version, and on which cores')
    add('--json', metavar='FILE', type=can_be_written, help='write every trial')
    add('--report', metavar='FILE', type=can_be_written, help='write the report that `bench-net render FILE` makes pages of')
    return parser


def parse(arguments, description=None):
    parser = parser_of(description)
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    options.command = shlex.join(['ndr.py', *given])
    options.senders = sorted({port for one in options.ports for port in ((one, one ^ 1) if options.bidir else (one,))})
    if len({port // 2 for port in options.senders}) < len(options.senders) and not options.bidir:
        parser.error('--ports %s: both ports of a pair send only with --bidir' % ','.join(map(str, options.ports)))
    if options.min > options.max:
        parser.error('--min %g --max %g: the lowest is above the highest' % (options.min, options.max))
    return options
