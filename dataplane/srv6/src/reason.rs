//! The reasons why a packet is dropped.

/// Declares the reasons: variant, name and explanation of each, in the order of their indexes.
macro_rules! reasons {
    ($($(#[doc = $doc:literal])* $reason:ident($name:literal, $explanation:literal),)*) => {
        /// A drop reason: one named, counted way out of the packet path.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[doc = $doc])* $reason,)*
        }

        impl DropReason {
            /// Every reason, in the order of its index.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$reason),*];

            /// Returns the name that counters and metrics use.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$reason => $name,)*
                }
            }

            /// Returns one line for people: what happened, and what to check.
            pub const fn explanation(self) -> &'static str {
                match self {
                    $(Self::$reason => $explanation,)*
                }
            }
        }
    };
}

reasons! {
    /// A header is cut short or has a bad version or length, or its length field exceeds the bytes that arrived.
    Malformed("malformed", "a header is cut short, or its length or version is wrong"),
    /// The packet is neither IPv4 nor IPv6, and comes from the kernel's own port.
    EtherType("ether_type", "neither IPv4 nor IPv6"),
    /// No logical port has this VID.
    Vlan("vlan", "no port is configured for the VLAN tag"),
    /// A unicast frame is addressed to another station.
    NotOurMac("not_our_mac", "unicast frame to another station's MAC address"),
    /// A unicast packet arrived in a multicast or broadcast frame.
    L2Multicast("l2_multicast", "unicast packet inside a multicast or broadcast frame"),
    /// The source address is multicast, unspecified or loopback, or this node's own on an edge or host port.
    BadSource(
        "bad_source",
        "source address is multicast, unspecified or loopback, or this node's own on an edge or host port"
    ),
    /// An IPv4 header has a source route, which says where the packet goes on to (RFC 791 section 3.1).
    SourceRoute("source_route", "IPv4 option with a source route: its sender chooses the way of the packet"),
    /// A packet from outside the domain is addressed to the SID block (RFC 8754 section 5.1).
    AclEdge("acl_edge", "addressed to the SID block on a port outside of the domain"),
    /// A source outside the domain sends to one of our SIDs (RFC 8754 section 5.1).
    AclSid("acl_sid", "addressed to a local SID by a source outside of domain_sources"),
    /// A host used a carrier that it may not use.
    AclPath("acl_path", "carrier outside of the port's allowed_carriers"),
    /// A host with this source address does not belong behind the port (BCP 38).
    AclSource("acl_source", "source outside of the port's allowed_sources"),
    /// The destination is in the block, but is no known SID.
    UnknownSid("unknown_sid", "inside a locator block, but no SID or route matches"),
    /// No route leads to the destination.
    NoRoute("no_route", "no route to the destination"),
    /// The route is a blackhole route.
    Blackhole("blackhole", "the route is a blackhole"),
    /// The route is an unreachable route.
    Unreachable("unreachable", "the route is unreachable"),
    /// The hop limit or the TTL is exhausted.
    HopLimit("hop_limit", "hop limit or TTL exhausted"),
    /// Segments Left or Last Entry of the SRH is out of range (RFC 8754, RFC 8986).
    SrhInvalid("srh_invalid", "Segments Left or Last Entry does not fit the SRH"),
    /// The SID does not accept what follows the headers (RFC 8986 section 4.1.1).
    UpperLayer("upper_layer", "the SID does not accept this upper-layer header"),
    /// An unknown option demands that the packet is discarded (RFC 8200 section 4.2).
    OptionDiscard("option_discard", "an IPv6 option asks to discard"),
    /// An unknown option demands that the packet is discarded and reported (RFC 8200 section 4.2).
    OptionUnknown("option_unknown", "an IPv6 option asks to discard and report"),
    /// The packet is larger than the MTU of the port that it leaves through.
    PacketTooBig("packet_too_big", "larger than the MTU of the egress, with what encapsulation adds"),
    /// The packet is larger than the MTU of the port that it came from: segmentation offload is on at the sender.
    Oversize("oversize", "larger than the port's MTU: turn off gso, gro and tso at the sender"),
    /// Congestion was marked on a packet whose transport does not support ECN (RFC 6040 section 4.2).
    Ecn("ecn", "outer header says CE, inner header is Not-ECT"),
    /// Bits are set behind the SID of a decapsulating behaviour.
    DtArgument("dt_argument", "bits left behind a decapsulating SID"),
    /// A fragment of the outer packet would have to be reassembled first.
    FragOuter("frag_outer", "fragment of an encapsulated packet"),
    /// The next hop did not resolve in time, or too many packets wait for it.
    NoNeigh("no_neigh", "the next hop's MAC address did not resolve"),
    /// All next hops of the SID or route are down.
    AdjDown("adj_down", "every adjacency of the SID or route is down"),
    /// This node has already encapsulated the packet.
    EncapLoop("encap_loop", "already encapsulated by this node"),
    /// The packet is encapsulated deeper than is supported.
    Nesting("nesting", "encapsulated too deep"),
    /// The packet visits more SIDs of this node than are supported.
    Rounds("rounds", "too many SIDs of this node in one packet"),
    /// The packet is for the kernel, but there is no port to the kernel.
    NoHostPort("no_host_port", "for the kernel, but srv6d has no interface into it"),
    /// The transmit ring stayed full, or the port is gone.
    TxFull("tx_full", "the transmit ring stayed full, or the port is gone"),
    /// The queue of the emulated port that the packet leaves through is full.
    QueueFull("queue_full", "the queue of an emulated port had no room"),
    /// An emulated port had to mark the packet, whose transport does not support ECN.
    Wred("wred", "an emulated port marks congestion, and the packet is Not-ECT"),
    /// The packet got lost on an emulated wire.
    WireLoss("wire_loss", "lost on the wire of an emulated port, as configured"),
    /// The emulated port that the packet waited in went down.
    PortDown("port_down", "waited in an emulated port that went down or was closed, or was sent to one that is down"),
    /// The buffer has no room for the headers to be written.
    NoRoom("no_room", "no room in the buffer for the headers to write"),
}

impl DropReason {
    /// Returns the index into counter arrays.
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lists_every_reason_at_its_index() {
        for (index, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
        }
        assert_eq!(DropReason::NoRoom.index() + 1, DropReason::ALL.len());
    }
}
