//! What zebra says, typed.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use srv6d_kernel_routes::rtnetlink::message::{
    DEL_NEIGHBOUR, DEL_NEXT_HOP, DEL_ROUTE, NEW_NEIGHBOUR, NEW_NEXT_HOP, NEW_ROUTE,
};

use crate::{nexthop, route, sid};

/// SONiC's own.
const NEW_SID: u16 = 1000;
const DEL_SID: u16 = 1001;
const SONIC: std::ops::RangeInclusive<u16> = 1000..=4999;
const EVPN: std::ops::RangeInclusive<u16> = 140..=148;

/// One netlink message, its header taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// `nlmsg_type`.
    pub kind: u16,
    /// What follows the header.
    pub body: &'a [u8],
}

/// A message that is whole and makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

/// The two ways to speak FPM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `dplane_fpm_nl`: table numbers are the kernel's.
    Stock,
    /// `dplane_fpm_sonic`: table numbers are kernel indices of VRF devices.
    Sonic,
}

/// A message and what it gives away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// What it says.
    pub event: Event,
    /// [`Dialect::Sonic`] where only that dialect says it so; stock has nothing that SONiC could not say.
    pub dialect: Option<Dialect>,
    /// Attributes that nobody knows.
    pub unknown_attributes: u32,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// From now on the prefix has this route, whatever it had.
    Route(RouteKey, Route),
    /// The prefix has no route.
    RouteGone(RouteKey),
    /// A next hop, or a group of them, under a number. It may come after those that refer to it.
    NextHop(u32, NextHop),
    /// The number means nothing any more.
    NextHopGone(u32),
    /// A SID of this node, in a message of its own.
    Sid(Ipv6Net, LocalSid),
    /// No SID of this node any more.
    SidGone(Ipv6Net),
    /// Nothing that matters here.
    Ignored(Ignored),
}

/// Kinds of messages that are counted, and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ignored {
    /// MPLS labels.
    Mpls,
    /// Neighbours and MAC addresses.
    Neighbour,
    /// The node's own addresses, broadcast and multicast.
    Local,
    /// A route for some sources or traffic classes only.
    Selective,
    /// SONiC: BGP PIC contexts.
    PicContext,
    /// SONiC: routes of a PIC context.
    VpnRoute,
    /// SONiC: a list of SIDs, which no route refers to.
    SidList,
    /// SONiC: EVPN.
    Evpn(u16),
    /// Any other type.
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

/// The routing table of a route, as the dialect has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vrf {
    /// Table 0: SONiC's word for the default VRF.
    Default,
    /// Stock: a table of the kernel, 254 the main one. SONiC: kernel index of the VRF device.
    Number(u32),
}

/// A prefix of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteKey {
    /// Its table.
    pub vrf: Vrf,
    /// Destinations, masked.
    pub prefix: IpNet,
}

/// What becomes of a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// `rtm_protocol`: who made it. 186: BGP, 196: static.
    pub protocol: u8,
    /// What it does.
    pub target: Target,
}

/// What a route does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Sends over one of these.
    Hops(Vec<Hop>),
    /// As the next hop of that number.
    Object(u32),
    /// A SID of this node, as the kernel has them.
    Sid(Seg6Local),
    /// Drops.
    Blackhole,
    /// Drops and answers.
    Unreachable,
    /// Something that cannot be done from what was said.
    Unusable(String),
}

/// A next hop object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// A single one.
    Hop(Hop),
    /// A SID of this node.
    Sid(Seg6Local),
    /// Drops.
    Blackhole,
    /// Numbers of others with their weights.
    Group(Vec<(u32, u16)>),
    /// Something that cannot be done from what was said.
    Unusable(String),
}

/// One way out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// Kernel index of the device.
    pub device: Option<u32>,
    /// Neighbour.
    pub via: Option<IpAddr>,
    /// Share of the flows, from 1.
    pub weight: u16,
    /// Encapsulated on the way.
    pub encap: Option<Encap>,
}

/// SRv6 encapsulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encap {
    /// How.
    pub mode: EncapMode,
    /// In the order they are visited.
    pub segments: Vec<Ipv6Addr>,
    /// Outer source, where the message has one.
    pub source: Option<Ipv6Addr>,
}

/// How packets are encapsulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncapMode {
    /// `SEG6_IPTUN_MODE_*` of the kernel: 1 H.Encaps, 3 H.Encaps.Red.
    Kernel(u32),
    /// SONiC: it does not say. SONiC's own forwarding takes the reduced form.
    Sonic,
}

/// `encap seg6local`, as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seg6Local {
    /// `SEG6_LOCAL_ACTION_*`.
    pub action: u32,
    /// Table of the inner look-up.
    pub table: Option<u32>,
    /// `nh4`, `nh6`.
    pub via: Option<IpAddr>,
    /// `oif`.
    pub device: Option<u32>,
    /// Bits `1 << SEG6_LOCAL_FLV_OP_*`.
    pub flavors: u32,
    /// Locator block length in bits.
    pub block: Option<u8>,
    /// Bits that a shift consumes.
    pub node_function: Option<u8>,
    /// The first kind of attribute that changes what it does, and that nobody reads here.
    pub more: Vec<u16>,
}

/// A SID in SONiC's own form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalSid {
    /// Behaviour.
    pub action: Option<Action>,
    /// Locator block length in bits.
    pub block: u8,
    /// Bits that a shift consumes: node and function.
    pub node_function: u8,
    /// Name of the VRF of the inner look-up.
    pub vrf: Option<String>,
    /// Neighbour.
    pub via: Option<IpAddr>,
    /// Name of the device to it.
    pub port: Option<String>,
}

/// Behaviours of SONiC's local SIDs that can be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// End; true: uN.
    End(bool),
    /// End.X; true: uA.
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
    /// Its number.
    Other(u32),
}

/// What a message says.
///
/// # Errors
/// It is whole, but makes no sense: the next one may.
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
