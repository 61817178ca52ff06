"""Several carriers in a reduced SRH: the next one comes to the destination, or the first is still shifted."""

import srv6_packets as srv6


class STLS1(object):
    def get_streams(self, direction=0, port_id=0, tunables=(), **kwargs):
        parser = srv6.arguments(__file__)
        srv6.add_srh(parser)
        args = srv6.tunables(parser, tunables, direction, port_id)
        return srv6.streams(args, srv6.srh, name='srh_reduced')


def register():
    return STLS1()
