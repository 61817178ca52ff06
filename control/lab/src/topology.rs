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

use super::emulate::Emulate;
use super::error::LabError;
use super::topology_check;
use srv6d_config::Source;

/// The topology that `srv6d lab up` uses if no file is named.
pub const FABRIC: &str = include_str!("fabric.toml");
/// The topology that `srv6d lab up --routing bgp` uses if no file is named. It has no addresses between leaves and
/// spines, and its carriers name no spine.
pub const FABRIC_BGP: &str = include_str!("fabric_bgp.toml");

/// A checked topology.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Name of the lab. It is part of the names of its namespaces.
    pub name: String,
    /// Locator block. Every SID lies in it.
    pub block: Ipv6Net,
    /// Subnets of hosts inside the block that are no SIDs. Hosts reach each other there without a carrier.
    #[serde(default)]
    pub host_prefixes: Vec<Ipv6Net>,
    /// Largest layer-3 packet in bytes, for every link without an `mtu` of its own.
    #[serde(default = "ethernet_mtu")]
    pub mtu: u32,
    /// Source of the plain routes of leaves and spines.
    #[serde(default)]
    pub routing: Routing,
    /// The way in which srv6d gets routes from the FRR beside it.
    #[serde(default)]
    pub via: Via,
    /// Whether spines tell leaves by heartbeats how busy their links are, and leaves choose among spines by that.
    #[serde(default)]
    pub glb: bool,
    /// True if nodes that steer probe their paths, and leave out those that do not work.
    #[serde(default)]
    pub probes: bool,
    /// The path controller. Without one, hosts keep the paths of their `steer`.
    #[serde(default)]
    pub controller: Option<Controller>,
    /// Nodes.
    #[serde(rename = "node")]
    pub nodes: Vec<Spanned<Node>>,
    /// Links.
    #[serde(rename = "link", default)]
    pub links: Vec<Spanned<Link>>,
}

/// Source of plain routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Routing {
    /// The lab computes plain routes and writes them into every node.
    #[default]
    Static,
    /// FRR's BGP runs in every leaf and spine; srv6d gets its routes by `via`. Hosts have a default route.
    Bgp,
}

/// The way in which srv6d gets the routes of the FRR beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// srv6d follows the kernel, to which zebra gives the routes.
    #[default]
    Kernel,
    /// zebra announces the routes to srv6d over FPM.
    Fpm,
}

/// Settings of the command line that replace those of the topology.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Args)]
pub struct Chosen {
    /// Where plain routes come from: computed, or FRR's BGP, with which a spine can fail; default: the topology's,
    /// which is static
    #[arg(long)]
    #[serde(default)]
    pub routing: Option<Routing>,
    /// How srv6d gets BGP's routes: from the kernel, or from zebra itself; default: the topology's, which is kernel
    #[arg(long)]
    #[serde(default)]
    pub via: Option<Via>,
}

/// `[controller]`: a `srv6d path-server` in a node of its own, which the hosts' srv6d asks for their paths. A host's
/// `steer` is then used only by its kernel, while its srv6d is down.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// A /48 for the links between the controller and the hosts, which are outside of the fabric.
    pub prefix: Ipv6Net,
    /// Criterion by which paths are chosen, as in `[jalapeno] path`.
    #[serde(default = "by_load")]
    pub path: String,
    /// Time between two requests of a host.
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
    /// Name of the node, which must be unique.
    pub name: String,
    /// Place in the fabric. Hosts carry no transit traffic.
    pub role: Role,
    /// The forwarder of the node.
    #[serde(default)]
    pub kind: Forwarder,
    /// Outer source of encapsulations. Default: the node's first IPv6 address.
    #[serde(default)]
    pub source: Option<Ipv6Addr>,
    /// Addresses of the loopback device.
    #[serde(default)]
    pub addresses: Vec<IpNet>,
    /// SIDs of the node.
    #[serde(default)]
    pub sids: Vec<Sid>,
    /// Prefixes that are encapsulated.
    #[serde(default)]
    pub steer: Vec<Steer>,
}

/// Place of a node in the fabric.
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

/// The forwarder of packets in a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Forwarder {
    /// A srv6d of its own forwards.
    #[default]
    Srv6d,
    /// The Linux kernel forwards, with `seg6` and `seg6local`.
    Linux,
}

impl Forwarder {
    /// Returns the name as it is written in the file.
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
    /// Prefix of the SID: locator and function.
    #[serde(rename = "sid")]
    pub prefix: Ipv6Net,
    /// Behaviour of the SID.
    pub behavior: Behavior,
    /// Neighbour of a uA.
    #[serde(default)]
    pub via: Option<IpAddr>,
    /// Port of a uA's neighbour.
    #[serde(default)]
    pub port: Option<String>,
}

/// One steered prefix.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steer {
    /// Prefix of inner destinations.
    pub prefix: IpNet,
    /// Paths over which the flows are hashed.
    pub paths: Vec<SteerPath>,
}

/// One SRv6 path.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SteerPath {
    /// Name of the path, unique in its node.
    pub name: String,
    /// Carriers in the order in which they are visited.
    pub segments: Vec<Ipv6Addr>,
    /// Weight, which decides the path's share of the flows.
    #[serde(default = "one")]
    pub weight: u16,
}

/// The fix for texts that serde refuses.
const FIX: &str = "see docs/lab.md for every key, and `srv6d lab topology` for a whole file";

const fn one() -> u16 {
    1
}

/// `[[link]]`: a veth pair.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The two ends of the link.
    pub ends: [End; 2],
    /// Largest layer-3 packet in bytes. Default: the lab's.
    #[serde(default)]
    pub mtu: Option<u32>,
    /// `emulate` of the port at either end. Default: the veth has no rate.
    #[serde(default)]
    pub emulate: Option<Emulate>,
}

/// One end of a link.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Name of the node.
    pub node: String,
    /// Name of the device in the node.
    pub port: String,
    /// Addresses of the device.
    #[serde(default)]
    pub addresses: Vec<IpNet>,
    /// Role of the port in srv6d. Default: `fabric`.
    #[serde(default)]
    pub role: PortRole,
    /// Carriers that may enter through an `edge` or `host` port.
    #[serde(default)]
    pub allowed_carriers: Vec<Ipv6Net>,
}

/// Values of `[[port]] role` in `srv6d.toml`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortRole {
    /// A node of the SRv6 domain is at the other end.
    #[default]
    Fabric,
    /// A node outside of the domain is at the other end.
    Edge,
    /// A tenant's host is at the other end.
    Host,
}

impl PortRole {
    /// Returns the name as it is written in the file.
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
    /// Largest layer-3 packet in bytes.
    pub mtu: u32,
    /// What the topology says about `emulate` of the port.
    pub emulate: Option<&'a Emulate>,
}

impl Topology {
    /// Reads and checks a topology. `filename` is used only in messages.
    ///
    /// # Errors
    /// The text is not TOML that fits the schema, or has a mistake such as a link to a node that does not exist.
    pub fn parse(text: &str, filename: &str) -> Result<Self, LabError> {
        Self::parse_with(text, filename, Chosen::default())
    }

    /// Like [`Self::parse`], but settings in `chosen` replace those of the file.
    ///
    /// # Errors
    /// The errors are those of [`Self::parse`].
    pub fn parse_with(text: &str, filename: &str, chosen: Chosen) -> Result<Self, LabError> {
        let refused = |error| LabError::Invalid(Source::new(filename, text).refused_toml(&error, FIX).to_string());
        let mut topology: Self = toml::from_str(text).map_err(refused)?;
        topology.routing = chosen.routing.unwrap_or(topology.routing);
        topology.via = chosen.via.unwrap_or(topology.via);
        topology_check::check(&topology, text, filename)?;
        Ok(topology)
    }

    /// Returns the nodes in the order of the file.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().map(Spanned::get_ref)
    }

    /// Returns the nodes of one tier.
    pub fn tier(&self, role: Role) -> impl Iterator<Item = &Node> {
        self.nodes().filter(move |node| node.role == role)
    }

    /// Returns the node with this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes().find(|node| node.name == name)
    }

    /// Whether a node runs a BGP router of its own.
    pub fn speaks_bgp(&self, node: &Node) -> bool {
        self.routing == Routing::Bgp && node.role != Role::Host
    }

    /// Whether a node's zebra announces its routes to the srv6d beside it.
    pub fn speaks_fpm(&self, node: &Node) -> bool {
        self.speaks_bgp(node) && self.via == Via::Fpm && node.kind == Forwarder::Srv6d
    }

    /// Returns the nodes that run a BGP router.
    pub fn routers(&self) -> impl Iterator<Item = &Node> {
        self.nodes().filter(|node| self.speaks_bgp(node))
    }

    /// Whether a link is between two routers. Their addresses on it are optional.
    pub fn is_unnumbered(&self, link: &Link) -> bool {
        link.ends.iter().all(|end| self.node(&end.node).is_some_and(|node| self.speaks_bgp(node)))
    }

    /// Returns the links in the order of the file.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().map(Spanned::get_ref)
    }

    /// Returns the ports of a node in the order of the file.
    pub fn ports(&self, node: &str) -> Vec<NodePort<'_>> {
        let all = self.links().flat_map(|link| self.port_pair(link));
        all.filter(|port| port.own.node == node).collect()
    }

    /// Returns the two ports of a link.
    pub fn port_pair<'t>(&self, link: &'t Link) -> [NodePort<'t>; 2] {
        let [own, peer] = &link.ends;
        let first = NodePort { own, peer, mtu: link.mtu.unwrap_or(self.mtu), emulate: link.emulate.as_ref() };
        [first, first.back()]
    }

    /// Returns the outer source of the node's encapsulations.
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
    /// Returns the port at the other end of the link.
    #[must_use]
    pub const fn back(&self) -> Self {
        Self { own: self.peer, peer: self.own, ..*self }
    }

    /// Returns the address of the other end in an IPv6 prefix that both ends share.
    pub fn neighbor_v6(&self) -> Option<Ipv6Addr> {
        self.neighbors().find_map(|address| match address {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        })
    }

    /// Returns the address of the other end in an IPv4 prefix that both ends share.
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
