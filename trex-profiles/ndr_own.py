"""Tells the packets that TRex sent itself from frames that the device under test sends of its own (neighbour
solicitations, router advertisements, LLDP): the counter of a port holds both, and one hides a lost packet of the other.

A stream gets a flow statistics group of TRex. The server writes the group into the outermost flow label (IPv4: the
identification), and counts by it what arrives. A device that replaces the outermost header takes the group away: then
only the counters of the ports are left, and the driver says so.
"""

import dataclasses
from typing import Optional

# Above the numbers of latency groups; one for each sending port.
FIRST_GROUP = 1000
ETHERTYPE_AT, IPV4, IPV6 = 12, b'\x08\x00', b'\x86\xdd'


@dataclasses.dataclass(frozen=True)
class Arrived:
    """What one start of the streams sent and received, in packets. `own` is None where groups do not tell."""
    sent: int
    frames: int
    own: Optional[int]

    @property
    def received(self):
        return self.frames if self.own is None else self.own

    @property
    def foreign(self):
        """Frames that the device sent of its own; None where nobody can tell."""
        return None if self.own is None else max(0, self.frames - self.own)


def give_group(streams, port, statistics):
    """Gives these streams the group of their port."""
    for stream in streams:
        stream.fields['flow_stats'] = statistics(pg_id=FIRST_GROUP + port).to_json()


def carries_ecn(packet):
    """Whether the two ECN bits of the outermost IP header are in use (TRex sets the lower one beside a group, so that ECT(0)
    would say CE), or there is no such header."""
    ethertype, header = packet[ETHERTYPE_AT:ETHERTYPE_AT + 2], packet[ETHERTYPE_AT + 2:ETHERTYPE_AT + 4]
    if len(header) < 2 or ethertype not in (IPV4, IPV6):
        return True
    return bool((header[1] >> 4 if ethertype == IPV6 else header[1]) & 0b11)


def received_in_groups(stats, ports):
    """Packets of all groups, latency groups included, that arrived at these ports."""
    groups = [group for number, group in stats.get('flow_stats', {}).items() if isinstance(number, int)]
    return sum(group['rx_pkts'].get(port, 0) for group in groups for port in ports)
