//! Typed form of the messages that zebra sends.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use srv6d_kernel_routes::rtnetlink::message::{
    DEL_NEIGHBOUR, DEL_NEXT_HOP, DEL_ROUTE, NEW_NEIGHBOUR, NEW_NEXT_HOP, NEW_ROUTE,
};

use crate::{nexthop, route, sid};

/// Message types of SONiC and of EVPN.
const NEW_SID: u16 = 1000;
const DEL_SID: u16 = 1001;
const SONIC: std::ops::RangeInclusive<u16> = 1000..=4999;
const EVPN: std::ops::RangeInclusive<u16> = 140..=148;

/// One netlink message without its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Message type (`nlmsg_type`).
    pub kind: u16,
    /// Bytes behind the header.
    pub body: &'a [u8],
}

/// Error: a message that is complete but has invalid contents.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

/// The two dialects of FPM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `dplane_fpm_nl`: table numbers are those of the kernel.
    Stock,
    /// `dplane_fpm_sonic`: table numbers are kernel indices of VRF devices.
    Sonic,
}

/// A decoded message, and what it reveals about the dialect of its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Contents of the message.
    pub event: Event,
    /// [`Dialect::Sonic`] if only that dialect has such a message. There is no message that only the stock dialect has.
    pub dialect: Option<Dialect>,
    /// Number of attributes whose type is unknown.
    pub unknown_attributes: u32,
}

/// Contents of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The prefix has this route from now on; it replaces any earlier route.
    Route(RouteKey, Route),
    /// The prefix has no route any more.
    RouteGone(RouteKey),
    /// The number stands for this next hop or group from now on. The message may come after routes and groups that
    /// refer to the number.
    NextHop(u32, NextHop),
    /// The number has no meaning any more.
    NextHopGone(u32),
    /// A SID of this node that has a message of its own.
    Sid(Ipv6Net, LocalSid),
    /// The SID is no SID of this node any more.
    SidGone(Ipv6Net),
    /// A message without use for srv6d.
    Ignored(Ignored),
}

/// Kinds of messages that are only counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ignored {
    /// Routes with MPLS labels.
    Mpls,
    /// Neighbours and MAC addresses.
    Neighbour,
    /// Routes to the node's own addresses, and broadcast, anycast and multicast routes.
    Local,
    /// A route that applies to some sources or traffic classes only.
    Selective,
    /// SONiC: BGP PIC contexts.
    PicContext,
    /// SONiC: routes that refer to a PIC context.
    VpnRoute,
    /// SONiC: lists of SIDs. No route refers to them.
    SidList,
    /// SONiC: EVPN, with the message type.
    Evpn(u16),
    /// Any other message type.
    Type(u16),
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mpls => f.write_str("MPLS routes"),
            Self::Neighbour => f.write_str("neighbours"),
            Self::Local => f.write_str("local routes"),
            Self::Selective => f.write_str("routes by source or traffic class"),
            Self::PicContext => f.write_str("PIC contexts"),
            Self::VpnRoute => f.write_str("VPN routes"),
            Self::SidList => f.write_str("SID lists"),
            Self::Evpn(kind) => write!(f, "EVPN ({kind})"),
            Self::Type(kind) => write!(f, "type {kind}"),
        }
    }
}

/// Routing table of a route, as each dialect writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vrf {
    /// Table 0, by which SONiC means the default VRF.
    Default,
    /// Stock dialect: a table number of the kernel, where 254 is the main table. SONiC: kernel index of the VRF device.
    Number(u32),
}

/// A prefix in a table; identifies a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteKey {
    /// Table of the route.
    pub vrf: Vrf,
    /// Prefix of the destinations, without host bits.
    pub prefix: IpNet,
}

/// Route of a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Origin of the route (`rtm_protocol`), for example 186 for BGP and 196 for static routes.
    pub protocol: u8,
    /// Target of packets that match the route.
    pub target: Target,
}

/// What a route does with packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Sends them over one of these next hops.
    Hops(Vec<Hop>),
    /// Uses the next-hop object of this number.
    Object(u32),
    /// Processes them as packets to a SID of this node, given in the form of the kernel.
    Sid(Seg6Local),
    /// Drops them silently.
    Blackhole,
    /// Drops them and answers with an ICMP error.
    Unreachable,
    /// srv6d cannot do what the message asks for; the text says why.
    Unusable(String),
}

/// A next-hop object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// A single next hop.
    Hop(Hop),
    /// A SID of this node.
    Sid(Seg6Local),
    /// Drops packets.
    Blackhole,
    /// A group: numbers of other objects with their weights.
    Group(Vec<(u32, u16)>),
    /// srv6d cannot do what the message asks for; the text says why.
    Unusable(String),
}

/// One next hop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// Kernel index of the device.
    pub device: Option<u32>,
    /// Address of the neighbour.
    pub via: Option<IpAddr>,
    /// Weight: share of the flows, from 1.
    pub weight: u16,
    /// SRv6 encapsulation that packets get.
    pub encap: Option<Encap>,
}

/// SRv6 encapsulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encap {
    /// Mode of encapsulation.
    pub mode: EncapMode,
    /// Segments in the order they are visited.
    pub segments: Vec<Ipv6Addr>,
    /// Source address of the outer header, if the message has one.
    pub source: Option<Ipv6Addr>,
}

/// Mode of SRv6 encapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncapMode {
    /// `SEG6_IPTUN_MODE_*` of the kernel: 1 is H.Encaps, 3 is H.Encaps.Red.
    Kernel(u32),
    /// SONiC: the message has no mode. SONiC's own forwarding uses the reduced form.
    Sonic,
}

/// Attributes of `encap seg6local` in the form of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seg6Local {
    /// Behaviour (`SEG6_LOCAL_ACTION_*`).
    pub action: u32,
    /// Table in which the inner destination is looked up.
    pub table: Option<u32>,
    /// Neighbour (`nh4` or `nh6`).
    pub via: Option<IpAddr>,
    /// Kernel index of the device (`oif`).
    pub device: Option<u32>,
    /// Flavors, as bits `1 << SEG6_LOCAL_FLV_OP_*`.
    pub flavors: u32,
    /// Locator block length in bits.
    pub block: Option<u8>,
    /// Number of bits that a shift consumes.
    pub node_function: Option<u8>,
    /// Type of the first attribute that changes the behaviour and is not supported here. It has at most one element,
    /// which is enough to refuse the SID.
    pub more: Vec<u16>,
}

/// A SID in the form of SONiC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalSid {
    /// Behaviour of the SID.
    pub action: Option<Action>,
    /// Locator block length in bits.
    pub block: u8,
    /// Number of bits that a shift consumes: node and function.
    pub node_function: u8,
    /// Name of the VRF in which the inner destination is looked up.
    pub vrf: Option<String>,
    /// Address of the neighbour.
    pub via: Option<IpAddr>,
    /// Name of the device to the neighbour.
    pub port: Option<String>,
}

/// Behaviours of SONiC's local SIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// End if false, uN if true.
    End(bool),
    /// End.X if false, uA if true.
    EndX(bool),
    /// End.DT4, uDT4.
    EndDt4,
    /// End.DT6, uDT6.
    EndDt6,
    /// End.DT46, uDT46.
    EndDt46,
    /// End.DX4, uDX4.
    EndDx4,
    /// End.DX6, uDX6.
    EndDx6,
    /// An unsupported behaviour, with its number.
    Other(u32),
}

/// Decodes one message.
///
/// # Errors
/// [`Malformed`]: the message is complete but its contents are invalid. Later messages can still be read.
pub fn decode(message: Message<'_>) -> Result<Decoded, Malformed> {
    let ignored = |kind| Ok(Decoded { event: Event::Ignored(kind), dialect: None, unknown_attributes: 0 });
    let decoded = match message.kind {
        NEW_ROUTE => route::announced(message.body),
        DEL_ROUTE => route::withdrawn(message.body),
        NEW_NEXT_HOP => nexthop::announced(message.body),
        DEL_NEXT_HOP => nexthop::withdrawn(message.body),
        NEW_SID => sid::announced(message.body),
        DEL_SID => sid::withdrawn(message.body),
        NEW_NEIGHBOUR | DEL_NEIGHBOUR => ignored(Ignored::Neighbour),
        2000 | 2001 => ignored(Ignored::PicContext),
        3000 | 3001 => ignored(Ignored::VpnRoute),
        4000 | 4001 => ignored(Ignored::SidList),
        kind if EVPN.contains(&kind) => ignored(Ignored::Evpn(kind)),
        kind => ignored(Ignored::Type(kind)),
    }?;
    let dialect = decoded.dialect.or_else(|| SONIC.contains(&message.kind).then_some(Dialect::Sonic));
    Ok(Decoded { dialect, ..decoded })
}
