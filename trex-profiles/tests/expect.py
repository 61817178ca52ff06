"""What must leave a node configured by dut/srv6d.toml, worked out from the RFCs and from what a profile is for.

Frames are bytes, MAC addresses are not looked at. A result is {"port", "frame"}, with "hash" where the outer flow label
is the node's own choice, or {"counter"} where nothing may leave at the far port.
"""

import ipaddress

from render import ones_sum

NODE_SOURCE = ipaddress.IPv6Address('fcbb:bb00:1::1').packed
ETHERNET, IPV6, OUTER_HOP_LIMIT = 14, 40, 64
FAR = {'eth1': 'eth2', 'eth2': 'eth1'}


def transit(frame, port):
    """RFC 9800 4.1.1: the next uSID moves to the front, the hop limit goes down. The last one is decapsulated (USD)."""
    destination = frame[ETHERNET + 24:ETHERNET + 40]
    if not any(destination[6:]):
        return decap(frame, port)
    out = bytearray(frame)
    out[ETHERNET + 24:ETHERNET + 40] = destination[:4] + destination[6:] + bytes(2)
    out[ETHERNET + 7] -= 1
    return {'port': FAR[port], 'frame': bytes(out).hex()}


def encap(frame, port, segments):
    """RFC 8986 5.2: one header for one segment; the others in an SRH, last one first, without the first."""
    inner = one_hop_less(frame[ETHERNET:])
    version = inner[0] >> 4
    traffic_class = (inner[0] & 0xf) << 4 | inner[1] >> 4 if version == 6 else inner[1]
    upper = 41 if version == 6 else 4
    srh = b''
    if len(segments) > 1:
        rest = segments[1:]
        srh = bytes([upper, 2 * len(rest), 4, len(rest), len(rest) - 1, 0, 0, 0]) + b''.join(reversed(rest))
    outer = (0x60000000 | traffic_class << 20).to_bytes(4, 'big') + (len(srh) + len(inner)).to_bytes(2, 'big')
    outer += bytes([43 if srh else upper, OUTER_HOP_LIMIT]) + NODE_SOURCE + segments[0]
    out = frame[:12] + b'\x86\xdd' + outer + srh + inner
    return {'port': FAR[port], 'frame': out.hex(), 'hash': True}


def decap(frame, port):
    """RFC 8986 4.4 to 4.8 and 4.16.3: the outer header goes, the inner packet takes a hop."""
    packet = frame[ETHERNET:]
    ether_type = b'\x08\x00' if packet[6] == 4 else b'\x86\xdd'
    out = frame[:12] + ether_type + one_hop_less(packet[IPV6:])
    return {'port': FAR[port], 'frame': out.ljust(60, b'\0').hex()}


def segment_due(frame, port):
    """RFC 8986 4.1 without PSP: the next segment becomes the destination, the SRH stays."""
    out = bytearray(frame)
    srh = ETHERNET + IPV6
    left = out[srh + 3] - 1
    out[srh + 3] = left
    segment = srh + 8 + 16 * left
    out[ETHERNET + 24:ETHERNET + 40] = out[segment:segment + 16]
    out[ETHERNET + 7] -= 1
    return {'port': FAR[port], 'frame': bytes(out).hex()}


def routed(frame, port):
    """RFC 8200: a hop less, nothing else."""
    return {'port': FAR[port], 'frame': (frame[:ETHERNET] + one_hop_less(frame[ETHERNET:])).hex()}


def refused(counter, answered):
    """Nothing at the far port. An error comes back where the ration allows it."""
    return {'counter': counter, 'answered': answered}


def one_hop_less(packet):
    out = bytearray(packet)
    if out[0] >> 4 == 6:
        out[7] -= 1
        return bytes(out)
    out[8] -= 1
    out[10:12] = bytes(2)
    out[10:12] = (~ones_sum(out[:4 * (out[0] & 0xf)]) & 0xffff).to_bytes(2, 'big')
    return bytes(out)


def path(direction, family, carriers):
    """Segments of dut/srv6d.toml for a prefix with that many carriers."""
    behind = 'fcbb:bb00:%s' % ('2' if direction == 0 else 'a')
    texts = ['%s:%x::' % (behind, 0x100 + number) for number in range(carriers - 1)] + ['%s:d%d::' % (behind, family)]
    return [ipaddress.IPv6Address(text).packed for text in texts]
