"""Carriers that end in srv6d's uDT4, uDT6 or uDT46: the inner packet is forwarded by table."""

import srv6_packets as srv6


class STLS1(object):
    def get_streams(self, direction=0, port_id=0, tunables=(), **kwargs):
        parser = srv6.arguments(__file__)
        srv6.add_decap(parser)
        args = srv6.tunables(parser, tunables, direction, port_id)
        return srv6.streams(args, srv6.decap, name='udt_decap')


def register():
    return STLS1()
