//! The tables `[kernel]`, `[jalapeno]` and `[syd]` in the form in which they are written: the kernel's routes and path
//! controllers.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Serialize, Serializer};
use srv6d_addresses::TableId;
use srv6d_controller::jalapeno::is_id;
use toml::Spanned;

use super::schema::{Optional, SteerMode, optional_table};
use super::table::{Record, Table};
use super::value::{Refusal, Value, unfit};

/// `[kernel]`: follows the kernel's routes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kernel {
    /// Tables to follow; empty means `main`.
    #[serde(serialize_with = "tables")]
    pub tables: Vec<Spanned<TableId>>,
    /// Whether routes with `mode encap` are sent as `encap.red`, default false.
    pub reduce: Optional<bool>,
    /// Time for which a removed route with `encap seg6` is held, unless something else takes its prefix; default 20 ms.
    pub hold_time: Optional<HoldTime>,
}

/// A short time, which may be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldTime(pub Duration);

impl Value for HoldTime {
    fn expected() -> String {
        "a time up to a minute, e.g. \"20ms\", or \"0s\"".into()
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        let time = humantime::parse_duration(text).ok().filter(|time| *time <= Duration::from_mins(1));
        time.map(Self).ok_or_else(|| unfit::<Self>(&format!("{text:?}")))
    }
}

impl Serialize for HoldTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(self.0))
    }
}

/// `[jalapeno]`: paths from Cisco's Jalapeno, or from `srv6d path-server`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Jalapeno {
    /// URL of its API.
    pub endpoint: Spanned<Endpoint>,
    /// Name of the graph, default `fabric_graph`.
    pub graph: Optional<String>,
    /// Id of this node's vertex.
    pub source: Spanned<Vertex>,
    /// Ids of the peers' vertices.
    pub peers: Vec<Spanned<Vertex>>,
    /// File that lists the hosts of a job, instead of `peers`.
    pub job: Optional<PathBuf>,
    /// Criterion by which the controller selects a path, default `shortest`.
    pub path: Optional<Criterion>,
    /// Number of paths per peer, for criteria that select several.
    pub limit: Optional<u16>,
    /// Countries that a path must not touch.
    pub excluded_countries: Vec<Spanned<String>>,
    /// Flexible algorithm (RFC 9350), default 0.
    pub algo: Optional<u8>,
    /// Whether every link is pinned by its uA, default false.
    pub strict: Optional<bool>,
    /// Function of the last node for IPv6 inside, if no SID provides one.
    pub function_v6: Optional<Function>,
    /// Function of the last node for IPv4 inside, if no SID provides one.
    pub function_v4: Optional<Function>,
    /// Prefixes that contain the prefixes of all peers.
    pub allowed_prefixes: Vec<Spanned<IpNet>>,
    /// Steering of the peers' prefixes.
    #[serde(flatten)]
    pub steering: Steering,
    /// Settings of the requests to the controller.
    #[serde(flatten)]
    pub asking: RequestSettings,
    /// File that keeps the allocations of `path = "load"`.
    pub state: Optional<PathBuf>,
}

/// `[syd]`: paths from syd, Jalapeno's successor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Syd {
    /// URL of its API.
    pub endpoint: Spanned<Endpoint>,
    /// Id of the topology.
    pub topology: Spanned<String>,
    /// Id of the workload; the default is derived from the node's name.
    pub workload: Optional<String>,
    /// Id of this node.
    pub node: Spanned<String>,
    /// The other endpoints, and the prefixes behind each.
    pub peers: Vec<Spanned<SydPeer>>,
    /// Objects that the paths of the workload do not share, default `none`.
    pub disjointness: Optional<Disjointness>,
    /// Whether other workloads may use the same links, default `exclusive`.
    pub sharing: Optional<Sharing>,
    /// Id of the tenant.
    pub tenant: Optional<String>,
    /// Policy of the topology.
    pub policy: Optional<String>,
    /// Flexible algorithm.
    pub algo: Optional<u8>,
    /// Lease of the allocation, during which it is renewed three times.
    pub lease: Optional<Duration>,
    /// Steering of the peers' prefixes.
    #[serde(flatten)]
    pub steering: Steering,
    /// Settings of the requests to the controller.
    #[serde(flatten)]
    pub asking: RequestSettings,
}

/// One endpoint of a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SydPeer {
    /// Id of the endpoint's node.
    pub node: Spanned<String>,
    /// Prefixes behind the node.
    pub prefixes: Vec<Spanned<IpNet>>,
}

/// Keys for steered prefixes that apply to all peers of a controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Steering {
    /// Kind of encapsulation, default `encap.red`.
    pub mode: Optional<SteerMode>,
    /// Table of the prefixes, default `main`.
    #[serde(serialize_with = "optional_table")]
    pub table: Optional<TableId>,
    /// Explicit next hop; by default, packets follow the route to the first segment.
    pub via: Optional<IpAddr>,
    /// Port of the explicit next hop.
    pub port: Optional<String>,
}

/// Settings of the requests to a controller: trusted certificates, interval, timeouts and limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RequestSettings {
    /// CA certificates for `https`, default those of the system.
    pub ca_file: Optional<PathBuf>,
    /// Time between two rounds, default 5 s.
    #[serde(serialize_with = "optional_duration")]
    pub interval: Optional<Duration>,
    /// Maximum time for one answer, default 3 s.
    #[serde(serialize_with = "optional_duration")]
    pub timeout: Optional<Duration>,
    /// Maximum number of simultaneous requests, default 8.
    pub concurrency: Optional<u16>,
    /// Maximum size in MiB of the answers that are held at a time, default 32.
    pub max_answer: Optional<u16>,
}

crate::keywords! {
    /// Criterion by which Jalapeno selects a path.
    Criterion {
        /// Fewest hops.
        Shortest = "shortest",
        /// Least latency.
        Latency = "latency",
        /// Lowest utilisation of links.
        Utilization = "utilization",
        /// Lowest load by earlier allocations; a request allocates.
        Load = "load",
        /// Fewest hops without links in the excluded countries.
        Sovereignty = "sovereignty",
        /// Several short paths.
        BestPaths = "best-paths",
        /// All paths with the fewest hops.
        NextBestPath = "next-best-path",
        /// Paths that are placed together with those of all peers.
        Placed = "placed",
    }
}

crate::keywords! {
    /// Objects that the paths of a workload must not share.
    Disjointness {
        /// Paths may share everything.
        None = "none",
        /// Paths do not share a link.
        Link = "link",
        /// Paths do not share a node.
        Node = "node",
        /// Paths do not share a shared-risk link group.
        Srlg = "srlg",
    }
}

crate::keywords! {
    /// Whether other workloads may use the same paths.
    Sharing {
        /// Other workloads may not use them.
        Exclusive = "exclusive",
        /// Other workloads may use them.
        Shared = "shared",
    }
}

/// Base URL of an API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Endpoint(pub String);

impl Endpoint {
    /// Returns whether the API uses TLS.
    pub fn is_https(&self) -> bool {
        self.0.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"))
    }
}

impl Value for Endpoint {
    fn expected() -> String {
        "a URL, e.g. \"http://[2001:db8::5]:30800\"".into()
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        let refusal = |why: &str| Refusal {
            what: format!("{text:?} is not the URL of an API: {why}"),
            fix: format!("write {}", Self::expected()),
        };
        let url = reqwest::Url::parse(text).map_err(|why| refusal(&why.to_string()))?;
        match (url.scheme(), url.host(), url.query()) {
            ("http" | "https", Some(_), None) => Ok(Self(text.trim_end_matches('/').to_owned())),
            ("http" | "https", Some(_), Some(_)) => Err(refusal("it has a query")),
            _ => Err(refusal("it does not begin with http:// or https:// and a host")),
        }
    }
}

/// Id of a vertex in Jalapeno's graph: `collection/key`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Vertex(pub String);

impl fmt::Display for Vertex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Value for Vertex {
    fn expected() -> String {
        "collection/key, e.g. \"hosts/host00\"".into()
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        if is_id(text) {
            return Ok(Self(text.to_owned()));
        }
        let what = format!("{text:?} is not the id of a vertex");
        Err(Refusal { what, fix: format!("write {}", Self::expected()) })
    }
}

/// The uSID of the last node's function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function(pub u16);

impl Value for Function {
    fn expected() -> String {
        "a uSID in hexadecimal, e.g. \"fe06\"".into()
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        match u16::from_str_radix(text.trim_start_matches("0x"), 16) {
            Ok(usid @ 1..) => Ok(Self(usid)),
            _ => Err(Refusal { what: format!("{text:?} is not a uSID"), fix: format!("write {}", Self::expected()) }),
        }
    }
}

impl Serialize for Function {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:x}", self.0))
    }
}

impl Value for Duration {
    fn expected() -> String {
        "a time, e.g. \"5s\" or \"500ms\"".into()
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        match humantime::parse_duration(text) {
            Ok(time) if time >= Self::from_millis(10) && time <= Self::from_hours(24) => Ok(time),
            Ok(_) => Err(Refusal {
                what: format!("{text:?} is out of range"),
                fix: "write a time from \"10ms\" to \"24h\"".to_owned(),
            }),
            Err(why) => Err(Refusal {
                what: format!("{text:?} is not a time: {why}"),
                fix: format!("write {}", Self::expected()),
            }),
        }
    }
}

#[expect(clippy::ref_option, reason = "the signature serde asks for")]
pub(super) fn optional_duration<S: Serializer>(time: &Optional<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.collect_str(&humantime::format_duration(*time.get_ref())),
        None => serializer.serialize_none(),
    }
}

impl Kernel {
    /// Returns the time for which a withdrawn route with `encap seg6` is held.
    pub fn hold_time(&self) -> Duration {
        self.hold_time.as_ref().map_or(Duration::from_millis(20), |time| time.get_ref().0)
    }

    /// Returns whether the routes of that table are followed.
    pub fn follows(&self, table: TableId) -> bool {
        let mut tables = self.tables.iter().map(|table| *table.get_ref());
        if self.tables.is_empty() { table == TableId::MAIN } else { tables.any(|wanted| wanted == table) }
    }
}

fn tables<S: Serializer>(tables: &[Spanned<TableId>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(tables.iter().map(|table| table.get_ref().0))
}

impl Record for Kernel {
    const HEADER: &'static str = "[kernel]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        Some(Self {
            tables: table.list("tables"),
            reduce: table.optional("reduce"),
            hold_time: table.optional("hold_time"),
        })
    }
}

impl Record for Jalapeno {
    const HEADER: &'static str = "[jalapeno]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        let endpoint = table.required("endpoint");
        let graph = table.optional("graph");
        let source = table.required("source");
        let peers = table.list("peers");
        let job = table.optional("job");
        let path = table.optional("path");
        let limit = table.number("limit", 1..=64);
        let excluded_countries = table.list("excluded_countries");
        let algo = table.number("algo", 0..=255);
        let strict = table.optional("strict");
        let function_v6 = table.optional("function_v6");
        let function_v4 = table.optional("function_v4");
        let allowed_prefixes = table.list("allowed_prefixes");
        let steering = steering(table);
        let asking = asking(table);
        let state = table.optional("state");
        Some(Self {
            endpoint: endpoint?,
            graph,
            source: source?,
            peers,
            job,
            path,
            limit,
            excluded_countries,
            algo,
            strict,
            function_v6,
            function_v4,
            allowed_prefixes,
            steering,
            asking,
            state,
        })
    }
}

impl Record for Syd {
    const HEADER: &'static str = "[syd]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        let endpoint = table.required("endpoint");
        let topology = table.required("topology");
        let workload = table.optional("workload");
        let node = table.required("node");
        let peers = table.records("peers");
        let disjointness = table.optional("disjointness");
        let sharing = table.optional("sharing");
        let tenant = table.optional("tenant");
        let policy = table.optional("policy");
        let algo = table.number("algo", 0..=255);
        let lease = table.optional("lease");
        let steering = steering(table);
        let asking = asking(table);
        Some(Self {
            endpoint: endpoint?,
            topology: topology?,
            workload,
            node: node?,
            peers,
            disjointness,
            sharing,
            tenant,
            policy,
            algo,
            lease,
            steering,
            asking,
        })
    }
}

impl Record for SydPeer {
    const HEADER: &'static str = "peers";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        let node = table.required("node");
        let prefixes = table.list("prefixes");
        Some(Self { node: node?, prefixes })
    }
}

fn steering(table: &mut Table<'_, '_>) -> Steering {
    Steering {
        mode: table.optional("mode"),
        table: table.optional("table"),
        via: table.optional("via"),
        port: table.optional("port"),
    }
}

fn asking(table: &mut Table<'_, '_>) -> RequestSettings {
    RequestSettings {
        ca_file: table.optional("ca_file"),
        interval: table.optional("interval"),
        timeout: table.optional("timeout"),
        concurrency: table.number("concurrency", 1..=256),
        max_answer: table.number("max_answer", 1..=1024),
    }
}
