//! The topology file: nodes, links, addresses and SIDs of one lab.
//!
//! ```toml
//! name = "fabric"
//! block = "fcbb::/32"
//!
//! [[node]]
//! name = "leaf00"
//! role = "leaf"
//! sids = [{ sid = "fcbb:0:1004::/48", behavior = "uN" }]
//!
//! [[link]]
//! ends = [
//!     { node = "leaf00", port = "eth1", addresses = ["2001:db8:0:1::1/64"] },
//!     { node = "spine01", port = "eth1", addresses = ["2001:db8:0:1::2/64"] },
//! ]
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clap::{Args, ValueEnum};
use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};
pub use srv6d_sonic::Action as Behavior;
use toml::Spanned;

use super::error::LabError;
use super::topology_check;
use crate::config::Source;

/// The lab that `srv6d lab up` builds when no file is named.
pub const FABRIC: &str = include_str!("fabric.toml");
/// The same fabric with `--routing bgp`: no addresses between leaves and spines, and carriers that name no spine.
pub const FABRIC_BGP: &str = include_str!("fabric_bgp.toml");

/// A checked topology.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Name of the lab; part of the names of its namespaces.
    pub name: String,
    /// Locator block; every SID lies in it.
    pub block: Ipv6Net,
    /// Subnets of hosts inside the block, which are no SIDs: hosts reach each other there without a carrier.
    #[serde(default)]
    pub host_prefixes: Vec<Ipv6Net>,
    /// Largest layer-3 packet of every link that does not say otherwise, in bytes.
    #[serde(default = "ethernet_mtu")]
    pub mtu: u32,
    /// Where leaves and spines have their plain routes from.
    #[serde(default)]
    pub routing: Routing,
    /// How srv6d has routes from the FRR beside it.
    #[serde(default)]
    pub via: Via,
    /// A path controller; without one, hosts keep the paths of their `steer`.
    #[serde(default)]
    pub controller: Option<Controller>,
    /// Nodes.
    #[serde(rename = "node")]
    pub nodes: Vec<Spanned<Node>>,
    /// Links.
    #[serde(rename = "link", default)]
    pub links: Vec<Spanned<Link>>,
}

/// Where plain routes come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Routing {
    /// The lab computes them and writes them into every node.
    #[default]
    Static,
    /// FRR's BGP in every leaf and spine, whose routes srv6d has by `via`; hosts have a default route.
    Bgp,
}

/// How srv6d has the routes of the FRR beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// It follows the kernel that zebra gives them to.
    #[default]
    Kernel,
    /// zebra announces them over FPM.
    Fpm,
}

/// What a command line says instead of the topology.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Args)]
pub struct Chosen {
    /// Where plain routes come from: computed, or FRR's BGP, which can lose a spine; default: the topology's, which is static
    #[arg(long)]
    #[serde(default)]
    pub routing: Option<Routing>,
    /// How srv6d has BGP's routes: from the kernel, or from zebra itself; default: the topology's, which is kernel
    #[arg(long)]
    #[serde(default)]
    pub via: Option<Via>,
}

/// `[controller]`: a `srv6d path-server` in a node of its own, which the hosts' srv6d asks for their paths. What a
/// host's `steer` says is then left to its kernel, for the time when its srv6d is down.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// /48 of the links between the controller and the hosts, which lie beside the fabric.
    pub prefix: Ipv6Net,
    /// What paths are chosen by, as in `[jalapeno] path`.
    #[serde(default = "by_load")]
    pub path: String,
    /// Time between two looks of a host.
    #[serde(default = "one_second")]
    pub interval: String,
}

fn by_load() -> String {
    "load".to_owned()
}

fn one_second() -> String {
    "1s".to_owned()
}

const fn ethernet_mtu() -> u32 {
    1500
}

/// `[[node]]`: one network namespace.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Name, unique.
    pub name: String,
    /// Place in the fabric; hosts carry no transit traffic.
    pub role: Role,
    /// Who forwards.
    #[serde(default)]
    pub kind: Kind,
    /// Outer source of encapsulations; default: the node's first IPv6 address.
    #[serde(default)]
    pub source: Option<Ipv6Addr>,
    /// Addresses of the loopback device.
    #[serde(default)]
    pub addresses: Vec<IpNet>,
    /// SIDs.
    #[serde(default)]
    pub sids: Vec<Sid>,
    /// Prefixes that are encapsulated.
    #[serde(default)]
    pub steer: Vec<Steer>,
}

/// Place in the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Connects leaves.
    Spine,
    /// Connects hosts.
    Leaf,
    /// Runs applications.
    Host,
}

/// Who forwards packets in a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A srv6d of its own.
    #[default]
    Srv6d,
    /// The Linux kernel, `seg6` and `seg6local`.
    Linux,
}

impl Kind {
    /// As it is written in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Srv6d => "srv6d",
            Self::Linux => "linux",
        }
    }
}

/// One SID of a node.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sid {
    /// Locator and function.
    #[serde(rename = "sid")]
    pub prefix: Ipv6Net,
    /// What it does.
    pub behavior: Behavior,
    /// uA: the neighbour that gets the packet ...
    #[serde(default)]
    pub via: Option<IpAddr>,
    /// ... and the port it leaves by.
    #[serde(default)]
    pub port: Option<String>,
}

/// One steered prefix.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steer {
    /// Inner destinations.
    pub prefix: IpNet,
    /// Flows are hashed over these.
    pub paths: Vec<SteerPath>,
}

/// One SRv6 path.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SteerPath {
    /// Name, unique in its node.
    pub name: String,
    /// Carriers in the order they are visited.
    pub segments: Vec<Ipv6Addr>,
    /// Share of the flows.
    #[serde(default = "one")]
    pub weight: u16,
}

/// Of what serde refuses.
const FIX: &str = "see docs/lab.md for every key, and `srv6d lab topology` for a whole file";

const fn one() -> u16 {
    1
}

/// `[[link]]`: a veth pair.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its two ends.
    pub ends: [End; 2],
    /// Largest layer-3 packet; default: the lab's.
    #[serde(default)]
    pub mtu: Option<u32>,
}

/// One end of a link.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Node.
    pub node: String,
    /// Name of the device in the node.
    pub port: String,
    /// Addresses of the device.
    #[serde(default)]
    pub addresses: Vec<IpNet>,
    /// Who is at the other end, for srv6d; default `fabric`.
    #[serde(default)]
    pub role: PortRole,
    /// Carriers that may enter on an `edge` or `host` port.
    #[serde(default)]
    pub allowed_carriers: Vec<Ipv6Net>,
}

/// `[[port]] role` of `srv6d.toml`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortRole {
    /// A node of the SRv6 domain.
    #[default]
    Fabric,
    /// Outside of the domain.
    Edge,
    /// A tenant's host.
    Host,
}

impl PortRole {
    /// As it is written in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fabric => "fabric",
            Self::Edge => "edge",
            Self::Host => "host",
        }
    }
}

/// One port of a node, seen from the node.
#[derive(Clone, Copy, Debug)]
pub struct NodePort<'a> {
    /// The node's own end.
    pub own: &'a End,
    /// The other end.
    pub peer: &'a End,
    /// Largest layer-3 packet, bytes.
    pub mtu: u32,
}

impl Topology {
    /// Reads and checks a topology. `filename` is only shown.
    ///
    /// # Errors
    /// TOML that does not fit the schema, or a mistake such as a link to a node that does not exist.
    pub fn parse(text: &str, filename: &str) -> Result<Self, LabError> {
        Self::parse_with(text, filename, Chosen::default())
    }

    /// The same, with what is chosen instead of what the file says.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_with(text: &str, filename: &str, chosen: Chosen) -> Result<Self, LabError> {
        let refused = |error| LabError::Invalid(Source::new(filename, text).refused_toml(&error, FIX).to_string());
        let mut topology: Self = toml::from_str(text).map_err(refused)?;
        topology.routing = chosen.routing.unwrap_or(topology.routing);
        topology.via = chosen.via.unwrap_or(topology.via);
        topology_check::check(&topology, text, filename)?;
        Ok(topology)
    }

    /// Nodes in the order of the file.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().map(Spanned::get_ref)
    }

    /// Nodes of one tier.
    pub fn tier(&self, role: Role) -> impl Iterator<Item = &Node> {
        self.nodes().filter(move |node| node.role == role)
    }

    /// The node of that name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes().find(|node| node.name == name)
    }

    /// Whether a node runs a BGP router of its own.
    pub fn speaks_bgp(&self, node: &Node) -> bool {
        self.routing == Routing::Bgp && node.role != Role::Host
    }

    /// Whether a node's zebra announces its routes to the srv6d beside it.
    pub fn speaks_fpm(&self, node: &Node) -> bool {
        self.speaks_bgp(node) && self.via == Via::Fpm && node.kind == Kind::Srv6d
    }

    /// Nodes that run a BGP router.
    pub fn routers(&self) -> impl Iterator<Item = &Node> {
        self.nodes().filter(|node| self.speaks_bgp(node))
    }

    /// The link between two routers: their addresses on it are optional.
    pub fn is_unnumbered(&self, link: &Link) -> bool {
        link.ends.iter().all(|end| self.node(&end.node).is_some_and(|node| self.speaks_bgp(node)))
    }

    /// Links in the order of the file.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().map(Spanned::get_ref)
    }

    /// Ports of a node in the order of the file.
    pub fn ports(&self, node: &str) -> Vec<NodePort<'_>> {
        let mut ports = Vec::new();
        for link in self.links() {
            let [a, b] = &link.ends;
            let mtu = link.mtu.unwrap_or(self.mtu);
            for (own, peer) in [(a, b), (b, a)] {
                if own.node == node {
                    ports.push(NodePort { own, peer, mtu });
                }
            }
        }
        ports
    }

    /// Outer source of what the node encapsulates.
    pub fn source(&self, node: &Node) -> Option<Ipv6Addr> {
        let ports = self.ports(&node.name);
        let mut addresses = node.addresses.iter().chain(ports.iter().flat_map(|port| &port.own.addresses));
        node.source.or_else(|| {
            addresses.find_map(|address| match address.addr() {
                IpAddr::V6(address) => Some(address),
                IpAddr::V4(_) => None,
            })
        })
    }
}

impl NodePort<'_> {
    /// Address of the other end, in an IPv6 prefix that both ends share.
    pub fn neighbor_v6(&self) -> Option<Ipv6Addr> {
        self.neighbors().find_map(|address| match address {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        })
    }

    /// The same for IPv4.
    pub fn neighbor_v4(&self) -> Option<Ipv4Addr> {
        self.neighbors().find_map(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
    }

    fn neighbors(&self) -> impl Iterator<Item = IpAddr> {
        let shared = |address: &&IpNet| self.own.addresses.iter().any(|own| own.trunc() == address.trunc());
        self.peer.addresses.iter().filter(shared).map(IpNet::addr)
    }
}
