//! Every table of `srv6d.toml`, as it is written: names unresolved, defaults not filled in.
//!
//! Values keep their place in the file ([`Spanned`]), so that what is found later can still point at it.

use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::{IpNet, Ipv6Net};
use serde::{Serialize, Serializer};
use srv6d_srv6::model::{Mac, TableId};
use toml::Spanned;

use super::diagnostic::Source;
use super::fpm::Fpm;
use super::sources::{Jalapeno, Kernel, Sonic, Syd};
use super::value::{MetricsAddress, OuterDscp, words};
use crate::sonic::SwitchFiles;

/// A key that may be left out.
pub type Optional<T> = Option<Spanned<T>>;

/// A whole configuration file.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Config {
    /// The text it was read from.
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
    /// `[sonic]`.
    pub sonic: Option<Sonic>,
    /// What the files of `[sonic]` say, once they have been read.
    #[serde(skip)]
    pub switch: Option<Arc<SwitchFiles>>,
    /// `[jalapeno]`.
    pub jalapeno: Option<Jalapeno>,
    /// `[syd]`.
    pub syd: Option<Syd>,
}

impl Config {
    /// The source of that name is configured.
    pub fn has_source(&self, name: &str) -> bool {
        match name {
            "jalapeno" => self.jalapeno.is_some(),
            "syd" => self.syd.is_some(),
            _ => false,
        }
    }
}

/// `[node]`: identity, outer header and policy of the whole node.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Node {
    /// Shown only; default: host name.
    pub name: Optional<String>,
    /// Outer source of encapsulations.
    pub source: Optional<Ipv6Addr>,
    /// Outer hop limit, default 64.
    pub hop_limit: Optional<u8>,
    /// Outer DSCP, default `uniform`.
    pub dscp: Optional<OuterDscp>,
    /// RFC 6040 mode, default `normal`.
    pub ecn: Optional<Ecn>,
    /// `RoCEv2` destination QP is part of the flow key, default false.
    pub hash_qp: Optional<bool>,
    /// Decrement the hop limit of what the node originates, default false.
    pub decrement_local: Optional<bool>,
    /// ICMP errors per second and worker, default 100; 0: none.
    pub icmp_rate: Optional<u32>,
    /// Answer missing routes with Destination Unreachable, default false.
    pub icmp_unreachable: Optional<bool>,
    /// Default `strict`.
    pub srh_check: Optional<SrhCheck>,
    /// Default `reject`.
    pub ua_last: Optional<UaLast>,
    /// Default `strict`.
    pub dt_argument: Optional<DtArgument>,
    /// Ports of other tables reach the SIDs, too, default false.
    pub vrf_sids: Optional<bool>,
    /// Sources a packet to one of our SIDs may have; empty: all.
    pub domain_sources: Vec<Spanned<Ipv6Net>>,
    /// Default 1280.
    pub least_path_mtu: Optional<u32>,
}

words! {
    /// ECN at encapsulation (RFC 6040 section 4.1).
    Ecn {
        /// The outer ECN field is the inner one.
        Normal = "normal",
        /// The outer header is sent Not-ECT.
        Compat = "compat",
    }
}

words! {
    /// What is asked of an SRH's Last Entry.
    SrhCheck {
        /// RFC 8754: it fits the length.
        Strict = "strict",
        /// A Last Entry that does not fit is accepted.
        Lenient = "lenient",
    }
}

words! {
    /// A uA that ends its carrier on a packet it cannot decapsulate.
    UaLast {
        /// Parameter Problem.
        Reject = "reject",
        /// Sent to the adjacency.
        Forward = "forward",
    }
}

words! {
    /// Bits left behind the function of a decapsulating SID.
    DtArgument {
        /// Dropped.
        Strict = "strict",
        /// Decapsulated all the same.
        Accept = "accept",
    }
}

/// `[workers]`: threads and their memory.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Workers {
    /// One worker per listed core; empty: one, not pinned.
    pub cores: Vec<Spanned<usize>>,
    /// Default `adaptive`.
    pub polling: Optional<Polling>,
    /// Packets that drivers receive in one system call of a worker, default 0: in interrupts.
    pub busy_budget: Optional<u32>,
    /// UMEM chunks of 4 KiB per worker, default 8192.
    pub frames: Optional<u32>,
    /// Descriptors per ring, a power of two, default 2048.
    pub ring: Optional<u32>,
}

words! {
    /// How workers wait for packets.
    Polling {
        /// Spin, then sleep in poll(2).
        Adaptive = "adaptive",
        /// Never sleep.
        Busy = "busy",
    }
}

/// `[host]`: srv6d's own veth into the kernel of this node.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Host {
    /// Name of the kernel's end, default `srv6d0`.
    pub interface: Optional<String>,
    /// Kernel routes for steered prefixes into it, default true.
    pub steer_local: Optional<bool>,
}

/// `[api]`: where the daemon can be asked.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Api {
    /// Unix socket, default `/run/srv6d/srv6d.sock`.
    pub socket: Optional<PathBuf>,
    /// Prometheus, default `[::1]:9469`.
    pub metrics: Optional<MetricsAddress>,
}

/// `[[block]]`: a locator block.
#[derive(Clone, Debug, Serialize)]
pub struct Block {
    /// The block.
    pub prefix: Spanned<Ipv6Net>,
    /// Default `drop`.
    pub unknown: Optional<Unknown>,
    /// Subnets of hosts inside the block, which are no SIDs.
    pub hosts: Vec<Spanned<Ipv6Net>>,
}

words! {
    /// What becomes of a SID of the block that nobody owns.
    Unknown {
        /// Counted drop.
        Drop = "drop",
        /// Counted drop and Destination Unreachable.
        Icmp = "icmp",
        /// To the kernel.
        Punt = "punt",
        /// Where a route that is shorter than the block leads.
        Route = "route",
    }
}

/// `[[port]]`: a network device, or one VLAN of it.
#[derive(Clone, Debug, Serialize)]
pub struct Port {
    /// What other tables call it.
    pub name: Spanned<String>,
    /// Network device, default: the name.
    pub device: Optional<String>,
    /// 802.1Q VID.
    pub vlan: Optional<u16>,
    /// AF_XDP mode, default `auto`.
    pub mode: Optional<PortMode>,
    /// Default `fabric`.
    pub role: Optional<PortRole>,
    /// VRF of what arrives, default `main`.
    #[serde(serialize_with = "optional_table")]
    pub table: Optional<TableId>,
    /// Outer source of what leaves here encapsulated.
    pub source: Optional<Ipv6Addr>,
    /// BCP 38; empty: all.
    pub allowed_sources: Vec<Spanned<IpNet>>,
    /// Carriers that may enter on an `edge` or `host` port; empty: none.
    pub allowed_carriers: Vec<Spanned<Ipv6Net>>,
    /// Default `complete`.
    pub checksum: Optional<Checksum>,
    /// Default `off`.
    pub offload: Optional<PortOffload>,
}

words! {
    /// What the XDP program of a port does by itself.
    PortOffload {
        /// Nothing: workers forward.
        Off = "off",
        /// Plain shifts.
        Xdp = "xdp",
    }
}

words! {
    /// How AF_XDP sockets are bound to a device.
    PortMode {
        /// The best that the driver can do.
        Auto = "auto",
        /// Native, without a copy.
        ZeroCopy = "zero-copy",
        /// Native, with a copy.
        Native = "native",
        /// In the kernel's generic path.
        Generic = "generic",
    }
}

words! {
    /// Who is on the other side of a port.
    PortRole {
        /// A node of the SRv6 domain.
        Fabric = "fabric",
        /// Outside of the domain.
        Edge = "edge",
        /// A tenant's host.
        Host = "host",
    }
}

words! {
    /// TCP and UDP checksums of what arrives on a port.
    Checksum {
        /// The sender wrote them.
        Complete = "complete",
        /// The sender leaves them unfinished: srv6d writes them.
        Fill = "fill",
    }
}

/// `[[sid]]`: a SID of this node.
#[derive(Clone, Debug, Serialize)]
pub struct Sid {
    /// Locator and function.
    pub sid: Spanned<Ipv6Net>,
    /// What it does.
    pub behavior: Spanned<SidBehavior>,
    /// PSP, USP, USD.
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
    /// One next hop ...
    #[serde(flatten)]
    pub hop: OneHop,
    /// ... or several.
    pub nexthops: Vec<Spanned<NextHop>>,
    /// Used while all of those are down.
    pub backup: Vec<Spanned<NextHop>>,
}

words! {
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

words! {
    /// RFC 8986 section 4.16.
    Flavor {
        /// Penultimate segment pop.
        Psp = "psp",
        /// Ultimate segment pop.
        Usp = "usp",
        /// Ultimate segment decapsulation.
        Usd = "usd",
    }
}

words! {
    /// The inner DSCP at decapsulation (RFC 2983).
    InnerDscp {
        /// Stays as it is.
        Pipe = "pipe",
        /// Becomes the outer one.
        Uniform = "uniform",
    }
}

/// A next hop written as two keys of its owner.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OneHop {
    /// Neighbour.
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
    /// Share of the flows, default 1.
    pub weight: Optional<u16>,
}

/// `[[steer]]`: encapsulate what goes to a prefix.
#[derive(Clone, Debug, Serialize)]
pub struct Steer {
    /// Inner destinations.
    pub prefix: Spanned<IpNet>,
    /// Table of the prefix, default `main`.
    #[serde(serialize_with = "optional_table")]
    pub table: Optional<TableId>,
    /// Default `encap.red`.
    pub mode: Optional<SteerMode>,
    /// Outer source.
    pub source: Optional<Ipv6Addr>,
    /// One path ...
    #[serde(flatten)]
    pub path: SegmentRoute,
    /// ... or several.
    pub paths: Vec<Spanned<SteerPath>>,
}

words! {
    /// How a packet is encapsulated (RFC 8986 sections 5.1 and 5.2).
    SteerMode {
        /// H.Encaps.Red: the first segment is only in the destination address.
        EncapRed = "encap.red",
        /// H.Encaps: the SRH lists every segment.
        Encap = "encap",
    }
}

/// Segments of a path and how to reach the first.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SegmentRoute {
    /// Carriers or SIDs, in the order they are visited.
    pub segments: Vec<Spanned<Ipv6Addr>>,
    /// One explicit next hop ...
    #[serde(flatten)]
    pub hop: OneHop,
    /// ... or several; none: the route to the first segment.
    pub nexthops: Vec<Spanned<NextHop>>,
}

/// One of several paths.
#[derive(Clone, Debug, Serialize)]
pub struct SteerPath {
    /// Name of its counters, default: `<prefix>#<n>`.
    pub name: Optional<String>,
    /// Share of the flows, default 1.
    pub weight: Optional<u16>,
    /// Segments and next hops.
    #[serde(flatten)]
    pub path: SegmentRoute,
}

/// `[[route]]`: a plain route.
#[derive(Clone, Debug, Serialize)]
pub struct Route {
    /// Destinations.
    pub prefix: Spanned<IpNet>,
    /// Default `main`.
    #[serde(serialize_with = "optional_table")]
    pub table: Optional<TableId>,
    /// Default `unicast`.
    #[serde(rename = "type")]
    pub kind: Optional<RouteType>,
    /// One next hop ...
    #[serde(flatten)]
    pub hop: OneHop,
    /// ... or several.
    pub nexthops: Vec<Spanned<NextHop>>,
}

words! {
    /// What becomes of packets to the prefix.
    RouteType {
        /// Forwarded to a next hop.
        Unicast = "unicast",
        /// Dropped in silence.
        Blackhole = "blackhole",
        /// Dropped with Destination Unreachable.
        Unreachable = "unreachable",
        /// Left to the kernel.
        Kernel = "kernel",
    }
}

/// `[[neighbor]]`: a static neighbour, before what the kernel knows.
#[derive(Clone, Debug, Serialize)]
pub struct Neighbor {
    /// Its address.
    pub address: Spanned<IpAddr>,
    /// Name of a port.
    pub port: Spanned<String>,
    /// Its Ethernet address.
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
