"""Checks the UDP checksums of captured packets: the innermost IP header, behind tunnels and routing headers."""

IPV4_IN_IP, UDP, IPV6_IN_IP, ROUTING = 4, 17, 41, 43
ETHERNET, IPV6_HEADER = 14, 40
ROCE = 4791


def is_wrong(frame):
    """Whether this is a packet of the profiles (UDP to port 4791) whose checksum is missing or wrong."""
    found = innermost_udp(frame)
    if found is None:
        return False
    pseudo_header, datagram, may_be_zero = found
    if datagram[2:4] != ROCE.to_bytes(2, 'big'):
        return False
    if datagram[6:8] == b'\0\0':
        return not may_be_zero
    return ones_complement_sum(pseudo_header + datagram) != 0xffff


def innermost_udp(frame):
    """(pseudo header, datagram, whether its checksum may be zero), or None where the frame holds no whole datagram."""
    ethertype, at = frame[12:14], ETHERNET
    protocol = {b'\x86\xdd': IPV6_IN_IP, b'\x08\x00': IPV4_IN_IP}.get(ethertype)
    addresses, may_be_zero = b'', False
    while protocol is not None and protocol != UDP:
        here = frame[at:]
        if protocol == IPV6_IN_IP and len(here) >= IPV6_HEADER:
            protocol, addresses, may_be_zero, length = here[6], here[8:40], False, IPV6_HEADER
        elif protocol == IPV4_IN_IP and len(here) >= 20:
            protocol, addresses, may_be_zero, length = here[9], here[12:20], True, 4 * (here[0] & 15)
        elif protocol == ROUTING and len(here) >= 8:
            protocol, length = here[0], 8 * (here[1] + 1)
        else:
            return None
        at += length
    length = int.from_bytes(frame[at + 4:at + 6], 'big')
    datagram = frame[at:at + length]
    if protocol is None or length < 8 or len(datagram) < length:
        return None
    return addresses + length.to_bytes(4, 'big') + UDP.to_bytes(4, 'big'), datagram, may_be_zero


def ones_complement_sum(data):
    """RFC 1071."""
    data += b'\0' * (len(data) % 2)
    total = sum(int.from_bytes(data[at:at + 2], 'big') for at in range(0, len(data), 2))
    while total > 0xffff:
        total = (total & 0xffff) + (total >> 16)
    return total
