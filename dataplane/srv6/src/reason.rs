//! Why a packet was not forwarded.

/// One named, counted way out of the packet path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// A header is cut short, has a bad version or length, or says more bytes than arrived.
    Malformed,
    /// Neither IPv4 nor IPv6, from the kernel's own port.
    EtherType,
    /// No logical port has this VID.
    Vlan,
    /// Unicast frame to another station.
    NotOurMac,
    /// Unicast packet in a multicast or broadcast frame.
    L2Multicast,
    /// Source address is multicast, unspecified or loopback.
    BadSource,
    /// Addressed to the SID block from outside the domain (RFC 8754 section 5.1).
    AclEdge,
    /// Addressed to one of our SIDs by a source outside the domain (RFC 8754 section 5.1).
    AclSid,
    /// A host used a carrier it was not given.
    AclPath,
    /// A source that does not belong behind the port (BCP 38).
    AclSource,
    /// In the block, but nobody's SID.
    UnknownSid,
    /// No route.
    NoRoute,
    /// The route says blackhole.
    Blackhole,
    /// The route says unreachable.
    Unreachable,
    /// Hop limit or TTL exhausted.
    HopLimit,
    /// Segments Left or Last Entry that does not fit (RFC 8754, RFC 8986).
    SrhInvalid,
    /// A SID that does not accept what follows the headers (RFC 8986 section 4.1.1).
    UpperLayer,
    /// An option says: discard (RFC 8200 section 4.2).
    OptionDiscard,
    /// An option says: discard and report (RFC 8200 section 4.2).
    OptionUnknown,
    /// Larger than the MTU of the way out.
    PacketTooBig,
    /// Larger than the MTU of the port it came from: segmentation offload is on at the sender.
    Oversize,
    /// Congestion was marked on a packet that cannot say so (RFC 6040 section 4.2).
    Ecn,
    /// Bits left behind a decapsulating function.
    DtArgument,
    /// A fragment of the outer packet would have to be reassembled first.
    FragOuter,
    /// The next hop did not resolve in time, or too many packets wait for it.
    NoNeigh,
    /// Every adjacency of the SID or route is down.
    AdjDown,
    /// Already encapsulated by us.
    EncapLoop,
    /// Encapsulated deeper than is supported.
    Nesting,
    /// More SIDs of this node in one packet than are supported.
    Rounds,
    /// For the kernel, but there is no port into it.
    NoHostPort,
    /// The transmit ring stayed full, or the port is gone.
    TxFull,
    /// No room in the buffer for the headers to be written.
    NoRoom,
}

impl DropReason {
    /// Every reason, in the order of its index.
    pub const ALL: [Self; 32] = [
        Self::Malformed,
        Self::EtherType,
        Self::Vlan,
        Self::NotOurMac,
        Self::L2Multicast,
        Self::BadSource,
        Self::AclEdge,
        Self::AclSid,
        Self::AclPath,
        Self::AclSource,
        Self::UnknownSid,
        Self::NoRoute,
        Self::Blackhole,
        Self::Unreachable,
        Self::HopLimit,
        Self::SrhInvalid,
        Self::UpperLayer,
        Self::OptionDiscard,
        Self::OptionUnknown,
        Self::PacketTooBig,
        Self::Oversize,
        Self::Ecn,
        Self::DtArgument,
        Self::FragOuter,
        Self::NoNeigh,
        Self::AdjDown,
        Self::EncapLoop,
        Self::Nesting,
        Self::Rounds,
        Self::NoHostPort,
        Self::TxFull,
        Self::NoRoom,
    ];

    /// The name counters and metrics carry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::EtherType => "ether_type",
            Self::Vlan => "vlan",
            Self::NotOurMac => "not_our_mac",
            Self::L2Multicast => "l2_multicast",
            Self::BadSource => "bad_source",
            Self::AclEdge => "acl_edge",
            Self::AclSid => "acl_sid",
            Self::AclPath => "acl_path",
            Self::AclSource => "acl_source",
            Self::UnknownSid => "unknown_sid",
            Self::NoRoute => "no_route",
            Self::Blackhole => "blackhole",
            Self::Unreachable => "unreachable",
            Self::HopLimit => "hop_limit",
            Self::SrhInvalid => "srh_invalid",
            Self::UpperLayer => "upper_layer",
            Self::OptionDiscard => "option_discard",
            Self::OptionUnknown => "option_unknown",
            Self::PacketTooBig => "packet_too_big",
            Self::Oversize => "oversize",
            Self::Ecn => "ecn",
            Self::DtArgument => "dt_argument",
            Self::FragOuter => "frag_outer",
            Self::NoNeigh => "no_neigh",
            Self::AdjDown => "adj_down",
            Self::EncapLoop => "encap_loop",
            Self::Nesting => "nesting",
            Self::Rounds => "rounds",
            Self::NoHostPort => "no_host_port",
            Self::TxFull => "tx_full",
            Self::NoRoom => "no_room",
        }
    }

    /// One line for people: what happened, and what to look at.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Malformed => "a header is cut short, or its length or version is wrong",
            Self::EtherType => "neither IPv4 nor IPv6",
            Self::Vlan => "no port is configured for the VLAN tag",
            Self::NotOurMac => "unicast frame to another station's MAC address",
            Self::L2Multicast => "unicast packet inside a multicast or broadcast frame",
            Self::BadSource => "source address is multicast, unspecified or loopback",
            Self::AclEdge => "addressed to the SID block on a port outside of the domain",
            Self::AclSid => "addressed to a local SID by a source outside of domain_sources",
            Self::AclPath => "carrier outside of the port's allowed_carriers",
            Self::AclSource => "source outside of the port's allowed_sources",
            Self::UnknownSid => "inside a locator block, but no SID or route matches",
            Self::NoRoute => "no route to the destination",
            Self::Blackhole => "the route is a blackhole",
            Self::Unreachable => "the route is unreachable",
            Self::HopLimit => "hop limit or TTL exhausted",
            Self::SrhInvalid => "Segments Left or Last Entry does not fit the SRH",
            Self::UpperLayer => "the SID does not accept this upper-layer header",
            Self::OptionDiscard => "an IPv6 option asks to discard",
            Self::OptionUnknown => "an IPv6 option asks to discard and report",
            Self::PacketTooBig => "larger than the MTU of the egress, with what encapsulation adds",
            Self::Oversize => "larger than the port's MTU: turn off gso, gro and tso at the sender",
            Self::Ecn => "outer header says CE, inner header is Not-ECT",
            Self::DtArgument => "bits left behind a decapsulating SID",
            Self::FragOuter => "fragment of an encapsulated packet",
            Self::NoNeigh => "the next hop's MAC address did not resolve",
            Self::AdjDown => "every adjacency of the SID or route is down",
            Self::EncapLoop => "already encapsulated by this node",
            Self::Nesting => "encapsulated too deep",
            Self::Rounds => "too many SIDs of this node in one packet",
            Self::NoHostPort => "for the kernel, but srv6d has no interface into it",
            Self::TxFull => "the transmit ring stayed full, or the port is gone",
            Self::NoRoom => "no room in the buffer for the headers to write",
        }
    }

    /// Index into counter arrays.
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
