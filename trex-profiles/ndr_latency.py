"""Percentiles of the latency histogram that a TRex server started with --hdrh sends: an HdrHistogram in its V2 form.

    base64( cookie, length, zlib( cookie, length, offset, digits, lowest, highest, ratio, counts ))
              4       4            4       4       4       4       8       8       8      ZigZag LEB128

A negative count is a run of so many empty slots (HdrHistogram, V2 encoding). Values are microseconds.
"""

import base64
import binascii
import struct
import zlib

SHARES = {'p50': 0.5, 'p99': 0.99, 'p999': 0.999}
COMPRESSED, PLAIN, VERSION_MASK = 0x1c849304, 0x1c849303, 0xffffff0f
HEADER = struct.Struct('>iiiiqqd')


def percentiles(text):
    """Microseconds by the names of SHARES. None: there is no histogram, it is empty, or it has another form."""
    try:
        first, digits, counts = decoded(text)
    except (TypeError, ValueError, binascii.Error, zlib.error, struct.error):
        return None
    total = sum(count for _, count in counts)
    if not total:
        return None
    return {name: value_at(share * total, first, digits, counts) for name, share in SHARES.items()}


def curve(text, furthest):
    """[(share of the packets, microseconds that it took at most)], a step for each slot, up to a share of `furthest`."""
    try:
        first, digits, counts = decoded(text)
    except (TypeError, ValueError, binascii.Error, zlib.error, struct.error):
        return []
    total, passed, points = sum(count for _, count in counts), 0, []
    for _, count in counts:
        time = value_at(passed + 1, first, digits, counts)
        if passed / total > furthest:
            break
        points += [(passed / total, time), (min((passed + count) / total, furthest), time)]
        passed += count
    return points


def decoded(text):
    """(power of two of the lowest value, digits, [(slot, count)] of what is not empty)"""
    raw = base64.b64decode(text)
    cookie, length = struct.unpack_from('>ii', raw)
    if cookie & VERSION_MASK != COMPRESSED & VERSION_MASK:
        raise ValueError('cookie %#x' % cookie)
    plain = zlib.decompress(raw[8:8 + length])
    cookie, length, _, digits, lowest, _, _ = HEADER.unpack_from(plain)
    if cookie & VERSION_MASK != PLAIN & VERSION_MASK or not 1 <= digits <= 5 or lowest < 1:
        raise ValueError('cookie %#x, %d digits, from %d' % (cookie, digits, lowest))
    slot, counts = 0, []
    for number in numbers(plain[HEADER.size:HEADER.size + length]):
        if number > 0:
            counts.append((slot, number))
        slot += -number if number < 0 else 1
    return lowest.bit_length() - 1, digits, counts


def numbers(data):
    """ZigZag LEB128: seven bits a byte, lowest first; the ninth byte of a number has eight."""
    value = shift = 0
    for byte in data:
        is_ninth = shift == 56
        value |= (byte if is_ninth else byte & 0x7f) << shift
        shift += 7
        if is_ninth or byte < 0x80:
            yield value >> 1 ^ -(value & 1)
            value = shift = 0


def value_at(rank, first, digits, counts):
    """The highest value of the slot in which the packet of that rank is."""
    half = (2 * 10 ** digits - 1).bit_length() - 1
    passed = 0
    for slot, count in counts:
        passed += count
        if passed >= rank:
            break
    # The first 2^(half + 1) slots are one unit wide, each 2^half after them twice as wide as those before.
    power = max((slot >> half) - 1, 0)
    within = slot if slot >> half == 0 else (slot & (1 << half) - 1) + (1 << half)
    return ((within + 1) << power + first) - 1
