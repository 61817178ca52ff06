//! `[glb]`: heartbeats, by which nodes tell their neighbours how busy their ports are.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use serde::{Serialize, Serializer};
use toml::Spanned;

use super::balance::ShortTime;
use super::schema::Optional;
use super::table::{Record, Table};
use super::value::{Refusal, Value, unfit};

/// `[glb]`.
#[derive(Clone, Debug, Serialize)]
pub struct Glb {
    /// The role of the node.
    pub role: Spanned<GlbRole>,
    /// The node's BGP identifier.
    pub node_id: Spanned<NodeId>,
    /// Multicast group of heartbeats, default `ff02::114`.
    pub group: Optional<LinkGroup>,
    /// UDP port of heartbeats, default 47149.
    pub udp_port: Optional<u16>,
    /// Longest time between two heartbeats, default 20 ms.
    pub period: Optional<ShortTime>,
    /// Shortest time between two heartbeats, which is also the interval of looking at the ports, default 1 ms.
    pub min_gap: Optional<ShortTime>,
    /// File with the secret that heartbeats are signed with; default: they are not signed.
    pub key: Optional<PathBuf>,
    /// Number of the key, which is sent, default 1.
    pub key_id: Optional<u32>,
}

crate::keywords! {
    /// The role of a node in the exchange of heartbeats.
    GlbRole {
        /// It sends heartbeats.
        HelperOnly = "helper-only",
        /// It receives heartbeats, and chooses by them.
        LoadBalancerOnly = "load-balancer-only",
        /// It sends heartbeats, and receives them and chooses by them.
        Both = "both",
    }
}

impl GlbRole {
    /// Returns true if the node sends heartbeats.
    pub const fn sends(self) -> bool {
        matches!(self, Self::HelperOnly | Self::Both)
    }

    /// Returns true if the node receives heartbeats.
    pub const fn receives(self) -> bool {
        matches!(self, Self::LoadBalancerOnly | Self::Both)
    }
}

impl Record for Glb {
    const HEADER: &'static str = "[glb]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        let role = table.required("role");
        let node_id = table.required("node_id");
        let group = table.optional("group");
        let udp_port = table.number("udp_port", 1..=65_535);
        let period = table.optional("period");
        let min_gap = table.optional("min_gap");
        let key = table.optional("key");
        let key_id = table.number("key_id", 0..=u32::MAX.into());
        Some(Self { role: role?, node_id: node_id?, group, udp_port, period, min_gap, key, key_id })
    }
}

/// BGP identifier of a node, which is written as an IPv4 address (RFC 6286). It is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub Ipv4Addr);

impl Value for NodeId {
    fn expected() -> String {
        "the BGP identifier of a node as an IPv4 address, e.g. \"10.0.0.1\"".into()
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        let id = text.parse().ok().filter(|id: &Ipv4Addr| !id.is_unspecified());
        id.map(Self).ok_or_else(|| unfit::<Self>(&format!("{text:?}")))
    }
}

impl Serialize for NodeId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// An IPv6 multicast group that no router forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkGroup(pub Ipv6Addr);

impl Value for LinkGroup {
    fn expected() -> String {
        "an IPv6 multicast group of one link, e.g. \"ff02::114\"".into()
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        let is_of_a_link = |group: &Ipv6Addr| group.is_multicast() && group.segments()[0] & 0xf == 2;
        let group = text.parse().ok().filter(is_of_a_link);
        group.map(Self).ok_or_else(|| unfit::<Self>(&format!("{text:?}")))
    }
}

impl Serialize for LinkGroup {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}
