"""Carriers on their way through srv6d: shifted to the next uSID, hop limit one less."""

import srv6_packets as srv6


class STLS1(object):
    def get_streams(self, direction=0, port_id=0, tunables=(), **kwargs):
        parser = srv6.arguments(__file__)
        srv6.add_transit(parser)
        args = srv6.tunables(parser, tunables, direction, port_id)
        return srv6.streams(args, srv6.transit, name='usid_transit')


def register():
    return STLS1()
