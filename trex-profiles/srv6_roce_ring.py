"""All-reduce as a ring: rank i sends to rank i + 1. Few flows, each an elephant, told apart by their queue pairs.

The frame size follows from --mtu, --op and --encap, the number of flows from --ranks and --qps. The invariant CRC is
four zero bytes (see srv6_roce.py).
"""

import srv6_packets as srv6
import srv6_roce as roce


def pairs(ranks):
    return [(rank, (rank + 1) % ranks) for rank in range(ranks)]


class STLS1(object):
    def get_streams(self, direction=0, port_id=0, tunables=(), **kwargs):
        args = srv6.tunables(roce.parser_of(__file__), tunables, direction, port_id)
        return roce.streams(args, pairs, 'ring')


def register():
    return STLS1()
