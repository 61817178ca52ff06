//! The tables of `srv6d.toml` in the form in which they are written: names are not resolved, and defaults are not
//! filled in.
//!
//! Values keep their place in the file ([`Spanned`]), so that later findings can refer to it.

use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use ipnet::{IpNet, Ipv6Net};
use serde::{Serialize, Serializer};
use srv6d_addresses::{Mac, TableId};
use toml::Spanned;

use super::balance::Balance;
use super::diagnostic::{Diagnostic, Source};
use super::emulate::{Emulate, Rate};
use super::fpm::Fpm;
use super::glb::{Glb, NodeId};
use super::jobs::Jobs;
use super::probes::Probes;
use super::sources::{Jalapeno, Kernel, Syd};
use super::value::{MetricsAddress, OuterDscp};

/// Value of an optional key.
pub type Optional<T> = Option<Spanned<T>>;

/// A whole configuration file.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Config {
    /// The text from which it was read.
    #[serde(skip)]
    pub source: Source,
    /// `[node]`.
    pub node: Node,
    /// `[workers]`.
    pub workers: Workers,
    /// `[host]`.
    pub host: Host,
    /// `[api]`.
    pub api: Api,
    /// `[[block]]`.
    #[serde(rename = "block")]
    pub blocks: Vec<Spanned<Block>>,
    /// `[[port]]`.
    #[serde(rename = "port")]
    pub ports: Vec<Spanned<Port>>,
    /// `[[balance]]`.
    #[serde(rename = "balance")]
    pub balances: Vec<Spanned<Balance>>,
    /// `[glb]`.
    pub glb: Option<Glb>,
    /// `[probes]`.
    pub probes: Option<Probes>,
    /// `[[sid]]`.
    #[serde(rename = "sid")]
    pub sids: Vec<Spanned<Sid>>,
    /// `[[steer]]`.
    #[serde(rename = "steer")]
    pub steers: Vec<Spanned<Steer>>,
    /// `[[route]]`.
    #[serde(rename = "route")]
    pub routes: Vec<Spanned<Route>>,
    /// `[[neighbor]]`.
    #[serde(rename = "neighbor")]
    pub neighbors: Vec<Spanned<Neighbor>>,
    /// `[fpm]`.
    pub fpm: Option<Fpm>,
    /// `[kernel]`.
    pub kernel: Option<Kernel>,
    /// Findings about other files that the configuration was extended by. A plan reports them with its own.
    #[serde(skip)]
    pub remarks: Vec<Diagnostic>,
    /// `[jalapeno]`.
    pub jalapeno: Option<Jalapeno>,
    /// `[syd]`.
    pub syd: Option<Syd>,
    /// `[jobs]`.
    pub jobs: Option<Jobs>,
}

impl Config {
    /// Returns whether the source of that name is configured.
    pub fn has_source(&self, name: &str) -> bool {
        match name {
            "jalapeno" => self.jalapeno.is_some(),
            "syd" => self.syd.is_some(),
            other => srv6d_offer::is_job(other) && self.jobs.is_some(),
        }
    }
}

/// `[node]`: identity, outer header and policy of the whole node.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Node {
    /// Name for display; default: host name.
    pub name: Optional<String>,
    /// Outer source of encapsulations.
    pub source: Optional<Ipv6Addr>,
    /// Outer hop limit, default 64.
    pub hop_limit: Optional<u8>,
    /// Outer DSCP, default `uniform`.
    pub dscp: Optional<OuterDscp>,
    /// RFC 6040 mode, default `normal`.
    pub ecn: Optional<Ecn>,
    /// Whether the `RoCEv2` destination QP is part of the flow key, default false.
    pub hash_qp: Optional<bool>,
    /// Number that the choice of one of several next hops or paths depends on; default: made from the node's name.
    pub hash_seed: Optional<u32>,
    /// Whether the hop limit of packets from the node itself is decremented, default false.
    pub decrement_local: Optional<bool>,
    /// Maximum number of ICMP errors per second and worker, default 100; 0 means none.
    pub icmp_rate: Optional<u32>,
    /// Whether missing routes are answered with Destination Unreachable, default false.
    pub icmp_unreachable: Optional<bool>,
    /// Check of an SRH's Last Entry, default `strict`.
    pub srh_check: Optional<SrhCheck>,
    /// Treatment of packets at the uA that ends their carrier, default `reject`.
    pub ua_last: Optional<UaLast>,
    /// Treatment of bits behind a decapsulating SID's function, default `strict`.
    pub dt_argument: Optional<DtArgument>,
    /// Whether ports of other tables reach the SIDs, too, default false.
    pub vrf_sids: Optional<bool>,
    /// Allowed sources of packets to this node's SIDs; empty means all.
    pub domain_sources: Vec<Spanned<Ipv6Net>>,
    /// Smallest path MTU that a Packet Too Big may report, default 1280.
    pub least_path_mtu: Optional<u32>,
    /// Policy of groups that name none, default `hash`.
    pub balance: Optional<String>,
}

crate::keywords! {
    /// ECN at encapsulation (RFC 6040 section 4.1).
    Ecn {
        /// The outer ECN field is the inner one.
        Normal = "normal",
        /// The outer header is sent Not-ECT.
        Compat = "compat",
    }
}

crate::keywords! {
    /// Check of an SRH's Last Entry.
    SrhCheck {
        /// The Last Entry must fit the length (RFC 8754).
        Strict = "strict",
        /// A Last Entry that does not fit is accepted.
        Lenient = "lenient",
    }
}

crate::keywords! {
    /// Treatment of a packet whose carrier ends at a uA that cannot decapsulate it.
    UaLast {
        /// The packet is answered with Parameter Problem.
        Reject = "reject",
        /// The packet is sent to the adjacency.
        Forward = "forward",
    }
}

crate::keywords! {
    /// Treatment of bits that remain behind the function of a decapsulating SID.
    DtArgument {
        /// The packet is dropped.
        Strict = "strict",
        /// The packet is decapsulated nevertheless.
        Accept = "accept",
    }
}

/// `[workers]`: threads and their memory.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Workers {
    /// Cores with one worker each; empty means one worker that is not pinned.
    pub cores: Vec<Spanned<usize>>,
    /// How workers wait for packets, default `adaptive`.
    pub polling: Optional<Polling>,
    /// Number of packets that drivers receive in one system call of a worker. The default 0 leaves that to interrupts.
    pub busy_budget: Optional<u32>,
    /// UMEM chunks of 4 KiB per worker, default 8192.
    pub frames: Optional<u32>,
    /// Descriptors per ring, a power of two, default 2048.
    pub ring: Optional<u32>,
}

crate::keywords! {
    /// How workers wait for packets.
    Polling {
        /// Workers spin, and then sleep in poll(2).
        Adaptive = "adaptive",
        /// Workers never sleep.
        Busy = "busy",
    }
}

/// `[host]`: srv6d's own veth into the kernel of this node.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Host {
    /// Name of the kernel's end, default `srv6d0`.
    pub interface: Optional<String>,
    /// Whether the kernel gets routes for steered prefixes into it, default true.
    pub steer_local: Optional<bool>,
    /// What encapsulates the traffic of local applications, default `auto`.
    pub engine: Optional<HostEngine>,
}

crate::keywords! {
    /// What encapsulates the traffic of local applications.
    HostEngine {
        /// The tc program where the kernel takes it, a worker elsewhere.
        Auto = "auto",
        /// A worker, in packets that come through the veth.
        Worker = "worker",
        /// A tc program in front of the veth; the worker encapsulates what the program cannot.
        Tc = "tc",
    }
}

/// `[api]`: addresses at which the daemon can be queried.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Api {
    /// Unix socket, default `/run/srv6d/srv6d.sock`.
    pub socket: Optional<PathBuf>,
    /// Address for Prometheus, default `[::1]:9469`.
    pub metrics: Optional<MetricsAddress>,
}

/// `[[block]]`: a locator block.
#[derive(Clone, Debug, Serialize)]
pub struct Block {
    /// Prefix of the block.
    pub prefix: Spanned<Ipv6Net>,
    /// Treatment of unknown SIDs, default `drop`.
    pub unknown: Optional<Unknown>,
    /// Subnets of hosts inside the block, whose addresses are not SIDs.
    pub hosts: Vec<Spanned<Ipv6Net>>,
}

crate::keywords! {
    /// Treatment of packets to an unknown SID of the block.
    Unknown {
        /// Packets are dropped and counted.
        Drop = "drop",
        /// Packets are dropped and counted, and answered with Destination Unreachable.
        Icmp = "icmp",
        /// Packets are passed to the kernel.
        Punt = "punt",
        /// Packets follow a route whose prefix is shorter than the block.
        Route = "route",
    }
}

/// `[[port]]`: a network device, or one VLAN of it.
#[derive(Clone, Debug, Serialize)]
pub struct Port {
    /// Name by which other tables refer to the port.
    pub name: Spanned<String>,
    /// Network device; default: the port's name.
    pub device: Optional<String>,
    /// 802.1Q VID.
    pub vlan: Optional<u16>,
    /// AF_XDP mode, default `auto`.
    pub mode: Optional<PortMode>,
    /// What is on the other side of the port, default `fabric`.
    pub role: Optional<PortRole>,
    /// VRF of packets that arrive, default `main`.
    #[serde(serialize_with = "optional_table")]
    pub table: Optional<TableId>,
    /// Outer source of encapsulated packets that leave through the port.
    pub source: Optional<Ipv6Addr>,
    /// Source prefixes that are accepted on the port (BCP 38); empty means all.
    pub allowed_sources: Vec<Spanned<IpNet>>,
    /// Carriers that packets from an `edge` or `host` port may have; empty means none.
    pub allowed_carriers: Vec<Spanned<Ipv6Net>>,
    /// Checksums of packets that arrive, default `complete`.
    pub checksum: Optional<Checksum>,
    /// Offload to an XDP program, default `auto`.
    pub offload: Optional<PortOffload>,
    /// Settings of the emulated link that the port is made; default: the port is not emulated.
    pub emulate: Option<Emulate>,
    /// Bits per second of the link, by which its load is judged and weights are made.
    pub speed: Optional<Rate>,
    /// The node at the other end of the link, which exchanges heartbeats with this one.
    pub neighbor_id: Optional<NodeId>,
}

crate::keywords! {
    /// Work that the XDP program of a port does without a worker.
    PortOffload {
        /// The program forwards nothing, and workers forward all packets.
        Off = "off",
        /// The program forwards plain packets.
        Xdp = "xdp",
        /// The program forwards plain packets on a port where workers receive copies of packets.
        Auto = "auto",
    }
}

crate::keywords! {
    /// How AF_XDP sockets are bound to a device.
    PortMode {
        /// The best mode that the driver supports.
        Auto = "auto",
        /// Native XDP without a copy.
        ZeroCopy = "zero-copy",
        /// Native XDP with a copy.
        Native = "native",
        /// The kernel's generic XDP.
        Generic = "generic",
    }
}

crate::keywords! {
    /// What is on the other side of a port.
    PortRole {
        /// A node of the SRv6 domain.
        Fabric = "fabric",
        /// A node outside of the domain.
        Edge = "edge",
        /// A tenant's host.
        Host = "host",
    }
}

crate::keywords! {
    /// TCP and UDP checksums of packets that arrive on a port.
    Checksum {
        /// The sender has written them.
        Complete = "complete",
        /// The sender leaves them unfinished, and srv6d completes them.
        Fill = "fill",
    }
}

/// `[[sid]]`: a SID of this node.
#[derive(Clone, Debug, Serialize)]
pub struct Sid {
    /// Prefix of locator and function.
    pub sid: Spanned<Ipv6Net>,
    /// Behaviour of the SID.
    pub behavior: Spanned<SidBehavior>,
    /// Flavors of the behaviour: PSP, USP, USD.
    pub flavors: Vec<Spanned<Flavor>>,
    /// Locator block length, default 32.
    pub lblen: Optional<u8>,
    /// Locator node and function length, default: prefix length - lblen.
    pub nflen: Optional<u8>,
    /// Table of the inner lookup, default `main`.
    #[serde(serialize_with = "optional_table")]
    pub table: Optional<TableId>,
    /// DSCP at decapsulation, default `pipe`.
    pub dscp: Optional<InnerDscp>,
    /// The only next hop, unless `nexthops` has several.
    #[serde(flatten)]
    pub hop: OneHop,
    /// Next hops, instead of `hop`.
    pub nexthops: Vec<Spanned<NextHop>>,
    /// Next hops that are used while all others are down.
    pub backup: Vec<Spanned<NextHop>>,
    /// Policy by which one of several next hops is chosen, default that of `[node]`.
    pub balance: Optional<String>,
    /// The nodes behind the next hops, whose links from there a policy of mode "global" looks at.
    pub via_nodes: Vec<Spanned<NodeId>>,
}

crate::keywords! {
    /// Endpoint behaviours (RFC 8986; names beginning with u: RFC 9800 NEXT-CSID).
    SidBehavior {
        /// End with NEXT-CSID.
        UN = "uN",
        /// End.X with NEXT-CSID.
        UA = "uA",
        /// End.DT4 reached by a uSID.
        UDT4 = "uDT4",
        /// End.DT6 reached by a uSID.
        UDT6 = "uDT6",
        /// End.DT46 reached by a uSID.
        UDT46 = "uDT46",
        /// End.DX4 reached by a uSID.
        UDX4 = "uDX4",
        /// End.DX6 reached by a uSID.
        UDX6 = "uDX6",
        /// End.
        End = "End",
        /// End.X.
        EndX = "End.X",
        /// End.DT4.
        EndDT4 = "End.DT4",
        /// End.DT6.
        EndDT6 = "End.DT6",
        /// End.DT46.
        EndDT46 = "End.DT46",
        /// End.DX4.
        EndDX4 = "End.DX4",
        /// End.DX6.
        EndDX6 = "End.DX6",
    }
}

crate::keywords! {
    /// Flavors of End behaviours (RFC 8986 section 4.16).
    Flavor {
        /// Penultimate segment pop.
        Psp = "psp",
        /// Ultimate segment pop.
        Usp = "usp",
        /// Ultimate segment decapsulation.
        Usd = "usd",
    }
}

crate::keywords! {
    /// Inner DSCP after decapsulation (RFC 2983).
    InnerDscp {
        /// The inner DSCP stays as it is.
        Pipe = "pipe",
        /// The outer DSCP is copied to it.
        Uniform = "uniform",
    }
}

/// A next hop that is written as two keys of its table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OneHop {
    /// Address of the neighbour.
    pub via: Optional<IpAddr>,
    /// Name of a port.
    pub port: Optional<String>,
}

/// One of several next hops.
#[derive(Clone, Debug, Serialize)]
pub struct NextHop {
    /// Neighbour and port.
    #[serde(flatten)]
    pub hop: OneHop,
    /// Relative share of the flows, default 1.
    pub weight: Optional<u16>,
    /// Bits per second of the narrowest link behind the next hop.
    pub capacity: Optional<Rate>,
}

/// `[[steer]]`: encapsulates packets to a prefix.
#[derive(Clone, Debug, Serialize)]
pub struct Steer {
    /// Prefix of inner destination addresses.
    pub prefix: Spanned<IpNet>,
    /// Table of the prefix, default `main`.
    #[serde(serialize_with = "optional_table")]
    pub table: Optional<TableId>,
    /// Kind of encapsulation, default `encap.red`.
    pub mode: Optional<SteerMode>,
    /// Outer source address.
    pub source: Optional<Ipv6Addr>,
    /// The only path, unless `paths` has several.
    #[serde(flatten)]
    pub path: PathKeys,
    /// Paths, instead of `path`.
    pub paths: Vec<Spanned<SteerPath>>,
    /// Policy by which one of several paths is chosen, default that of `[node]`.
    pub balance: Optional<String>,
    /// The nodes behind the next hops, whose links from there a policy of mode "global" looks at.
    pub via_nodes: Vec<Spanned<NodeId>>,
}

crate::keywords! {
    /// How a packet is encapsulated (RFC 8986 sections 5.1 and 5.2).
    SteerMode {
        /// H.Encaps.Red: the first segment is only in the destination address.
        EncapRed = "encap.red",
        /// H.Encaps: the SRH lists every segment.
        Encap = "encap",
    }
}

/// Segments of a path, and the next hops to the first one.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PathKeys {
    /// Carriers or SIDs, in the order in which they are visited.
    pub segments: Vec<Spanned<Ipv6Addr>>,
    /// The only explicit next hop, unless `nexthops` has several.
    #[serde(flatten)]
    pub hop: OneHop,
    /// Explicit next hops, instead of `hop`. Without any, packets follow the route to the first segment.
    pub nexthops: Vec<Spanned<NextHop>>,
}

/// One of several paths.
#[derive(Clone, Debug, Serialize)]
pub struct SteerPath {
    /// Name of the path's counters, default: `<prefix>#<n>`.
    pub name: Optional<String>,
    /// Relative share of the flows, default 1.
    pub weight: Optional<u16>,
    /// Bits per second of the path's narrowest link.
    pub capacity: Optional<Rate>,
    /// Segments and next hops.
    #[serde(flatten)]
    pub path: PathKeys,
}

/// `[[route]]`: a route without encapsulation.
#[derive(Clone, Debug, Serialize)]
pub struct Route {
    /// Prefix of destination addresses.
    pub prefix: Spanned<IpNet>,
    /// Table of the prefix, default `main`.
    #[serde(serialize_with = "optional_table")]
    pub table: Optional<TableId>,
    /// Treatment of packets, default `unicast`.
    #[serde(rename = "type")]
    pub kind: Optional<RouteType>,
    /// The only next hop, unless `nexthops` has several.
    #[serde(flatten)]
    pub hop: OneHop,
    /// Next hops, instead of `hop`.
    pub nexthops: Vec<Spanned<NextHop>>,
    /// Policy by which one of several next hops is chosen, default that of `[node]`.
    pub balance: Optional<String>,
    /// The nodes behind the next hops, whose links from there a policy of mode "global" looks at.
    pub via_nodes: Vec<Spanned<NodeId>>,
}

crate::keywords! {
    /// Treatment of packets to the prefix of a route.
    RouteType {
        /// Packets are forwarded to a next hop.
        Unicast = "unicast",
        /// Packets are dropped silently.
        Blackhole = "blackhole",
        /// Packets are dropped and answered with Destination Unreachable.
        Unreachable = "unreachable",
        /// Packets are passed to the kernel.
        Kernel = "kernel",
    }
}

/// `[[neighbor]]`: a static neighbour, which has precedence over the kernel's entry.
#[derive(Clone, Debug, Serialize)]
pub struct Neighbor {
    /// Address of the neighbour.
    pub address: Spanned<IpAddr>,
    /// Name of the port.
    pub port: Spanned<String>,
    /// Ethernet address of the neighbour.
    #[serde(serialize_with = "mac")]
    pub mac: Spanned<Mac>,
}

#[expect(clippy::ref_option, reason = "the signature serde asks for")]
pub(super) fn optional_table<S: Serializer>(table: &Optional<TableId>, serializer: S) -> Result<S::Ok, S::Error> {
    match table {
        Some(table) => serializer.serialize_some(&table.get_ref().0),
        None => serializer.serialize_none(),
    }
}

fn mac<S: Serializer>(mac: &Spanned<Mac>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(mac.get_ref())
}
