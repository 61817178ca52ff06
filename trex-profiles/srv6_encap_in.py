"""Plain packets that srv6d encapsulates (H.Encaps.Red): 40 bytes more for one carrier, 8 + 16 (k - 1) more for k."""

import srv6_packets as srv6


class STLS1(object):
    def get_streams(self, direction=0, port_id=0, tunables=(), **kwargs):
        parser = srv6.arguments(__file__)
        srv6.add_encap(parser)
        args = srv6.tunables(parser, tunables, direction, port_id)
        return srv6.streams(args, srv6.encap, name='encap_in')


def register():
    return STLS1()
