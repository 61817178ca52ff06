//! Vertices and edges in the form of Jalapeno's database. Any key may be missing, so each one is optional.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::bounded::{self, Bounded};
use crate::sid::{Family, Sid};
use srv6d_text::{MAX_NAME, shown_up_to};

/// A node, a host, or a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Vertex {
    /// Id in the form `collection/key`.
    pub id: String,
    /// Display name; the key if the document has no name.
    pub name: String,
    /// SIDs of the vertex itself.
    pub sids: Vec<Sid>,
    /// Destinations behind the vertex, with host bits masked. Empty for a node.
    pub prefixes: Vec<IpNet>,
    /// Whether it is a node that forwards, and not a host or a prefix.
    pub is_node: bool,
    /// Problems of the document that were corrected when it was read.
    pub notes: Vec<String>,
}

/// One direction of a link. A topology has many, so ids are shared with the other edges of the vertex.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// Id of the vertex at which the edge begins.
    pub from: Arc<str>,
    /// Id of the vertex at which the edge ends.
    pub to: Arc<str>,
    /// Key of the document.
    pub key: Box<str>,
    /// Adjacency SIDs (uA) of `from` towards `to`.
    pub sids: Vec<Sid>,
    /// Names of those `WEIGHTS` that the edge has.
    pub weights: Vec<&'static str>,
    /// Countries that the link runs through, in ISO 3166-1 alpha-3.
    pub countries: Vec<String>,
}

/// Attributes of edges by which a path may be chosen.
const WEIGHTS: [&str; 3] = ["latency", "percent_util_out", "load"];

/// One answer of `/topology`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// Vertices by id.
    pub vertices: BTreeMap<String, Vertex>,
    /// Edges in the order of the ids of both ends, with all parallel links of a pair.
    pub edges: Vec<Edge>,
    /// Hash that changes when something changes that may move a path.
    pub digest: u64,
}

/// Maximum length of an id in bytes. It is bounded because ids of booked paths are kept for every peer and written to a
/// file.
const MAX_ID: usize = 256;

/// Prefix length of a bare IPv6 prefix, whose host bits are not known. Every host subnet of such a fabric is a /64.
const USUAL_V6_LENGTH: u8 = 64;

impl Vertex {
    /// Reads a document. Returns `None` if it has no id, or an id longer than `MAX_ID`.
    pub fn read(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let id = text("_id").filter(|id| id.len() <= MAX_ID)?.to_owned();
        let key = id.split_once('/').map_or(id.as_str(), |(_, key)| key);
        let name = shown_up_to(text("name").unwrap_or(key), MAX_NAME);
        let sids = value.get("sids").and_then(Value::as_array).map(|sids| Sid::read_all(sids)).unwrap_or_default();
        let mut notes = Vec::new();
        let prefixes = prefixes(value, &mut notes);
        let is_node = prefixes.is_empty() || text("router_id").is_some();
        Some(Self { id, name, sids, prefixes: if is_node { Vec::new() } else { prefixes }, is_node, notes })
    }

    /// Returns the prefixes of one family.
    pub fn prefixes_of(&self, family: Family) -> impl Iterator<Item = IpNet> + '_ {
        let wanted = move |prefix: &&IpNet| matches!(prefix, IpNet::V6(_)) == (family == Family::V6);
        self.prefixes.iter().filter(wanted).copied()
    }
}

/// Reads `prefix` with `prefix_len`, and `ipv4_prefix` with `ipv4_prefix_len` if present. Without an IPv4 prefix, an
/// IPv4 address becomes a prefix with only that address.
fn prefixes(value: &Value, notes: &mut Vec<String>) -> Vec<IpNet> {
    let mut prefixes: Vec<IpNet> = Vec::new();
    for (prefix, length) in [("prefix", "prefix_len"), ("ipv4_prefix", "ipv4_prefix_len")] {
        let Some(text) = value.get(prefix).and_then(Value::as_str) else { continue };
        let length = value.get(length).and_then(Value::as_u64);
        match read_prefix(text, length) {
            Some(net) => {
                if net.trunc() != net {
                    notes.push(format!("{prefix} {net} has host bits: {} is used", net.trunc()));
                }
                prefixes.push(net.trunc());
            }
            None => notes.push(format!("{prefix} {:?} is not a prefix", shown_up_to(text, MAX_NAME))),
        }
    }
    let v4 = value.get("ipv4_address").and_then(Value::as_str).and_then(|text| text.parse::<IpAddr>().ok());
    if let Some(address) = v4.filter(|_| !prefixes.iter().any(|net| matches!(net, IpNet::V4(_)))) {
        prefixes.push(IpNet::from(address));
    }
    prefixes
}

fn read_prefix(text: &str, length: Option<u64>) -> Option<IpNet> {
    if let Ok(net) = text.parse::<IpNet>() {
        return Some(net);
    }
    let address: IpAddr = text.parse().ok()?;
    let usual = if address.is_ipv6() { USUAL_V6_LENGTH } else { 32 };
    let length = length.map_or(Some(usual), |length| u8::try_from(length).ok())?;
    IpNet::new(address, length).ok()
}

/// Ids of the vertices that edges name, each of them once.
#[derive(Default)]
struct Ids(HashSet<Arc<str>>);

impl Ids {
    fn share(&mut self, id: &str) -> Arc<str> {
        if let Some(known) = self.0.get(id) {
            return Arc::clone(known);
        }
        let id = Arc::from(id);
        self.0.insert(Arc::clone(&id));
        id
    }
}

impl Edge {
    /// Reads a document. Returns `None` if an end is missing, or if the id of an end is longer than `MAX_ID`.
    fn read(value: &Value, ids: &mut Ids) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).filter(|text| text.len() <= MAX_ID);
        let (from, to) = (text("_from")?, text("_to")?);
        let sids = value.get("srv6_endx_sid").and_then(Value::as_array);
        Some(Self {
            from: ids.share(from),
            to: ids.share(to),
            key: text("_key").unwrap_or_default().into(),
            sids: sids.map(|sids| Sid::read_all(sids)).unwrap_or_default(),
            countries: countries(value),
            weights: WEIGHTS.into_iter().filter(|weight| value.get(weight).is_some_and(Value::is_number)).collect(),
        })
    }
}

/// Maximum number of countries that are read of one link.
const MAX_COUNTRIES: usize = 64;

/// Reads `country_codes`, which is a list of codes or a single code.
fn countries(edge: &Value) -> Vec<String> {
    let codes = edge.get("country_codes");
    let several = codes.and_then(Value::as_array).into_iter().flatten();
    codes.into_iter().chain(several).filter_map(Value::as_str).take(MAX_COUNTRIES).map(str::to_owned).collect()
}

/// Maximum number of vertices and edges of one topology. A larger topology is refused as a whole, because the part that
/// would be left out could contain the path.
const MAX_VERTICES: usize = 1 << 17;
const MAX_EDGES: usize = 1 << 18;

/// The answer of `/topology`. Its documents are parsed one by one, and none of them is kept.
#[derive(Deserialize)]
struct TopologyAnswer<'a> {
    #[serde(borrow)]
    edges: Bounded<&'a RawValue, MAX_EDGES>,
    #[serde(borrow)]
    vertices: Vertices<'a>,
}

/// Documents of an object whose keys are ids. The keys are ignored, because each document contains its id.
struct Vertices<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Vertices<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(VertexMap).map(Self)
    }
}

struct VertexMap;

impl<'de> Visitor<'de> for VertexMap {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX_VERTICES} vertices by id")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut documents = Vec::new();
        while let Some((IgnoredAny, document)) = entries.next_entry()? {
            if documents.len() == MAX_VERTICES {
                return Err(A::Error::custom(format_args!("there are more than {MAX_VERTICES} vertices")));
            }
            documents.push(document);
        }
        Ok(documents)
    }
}

impl Topology {
    /// Reads an answer of `/graphs/{g}/topology` that is parsed as JSON already.
    ///
    /// # Errors
    /// If it has another shape, or if [`Self::parse`] refuses it.
    pub fn read(value: &Value) -> Result<Self, serde_json::Error> {
        Self::parse(value.to_string().as_bytes(), &[])
    }

    /// Parses an answer of `/topology`. The digest also covers the values of the `watched` keys of edges. The memory
    /// used is proportional to what is kept: a document that is no vertex or edge costs nothing beyond its bytes.
    ///
    /// # Errors
    /// If it has another shape, or is larger than `MAX_VERTICES` and `MAX_EDGES` allow.
    pub fn parse(bytes: &[u8], watched: &[&str]) -> Result<Self, serde_json::Error> {
        let answer: TopologyAnswer<'_> = serde_json::from_slice(bytes)?;
        let mut vertices = BTreeMap::new();
        for raw in answer.vertices.0 {
            if let Some(vertex) = Vertex::read(&bounded::document::<serde_json::Error>(raw)?) {
                vertices.insert(vertex.id.clone(), vertex);
            }
        }
        let (mut edges, mut ids) = (Vec::with_capacity(answer.edges.0.len()), Ids::default());
        let mut watch = Vec::new();
        for raw in answer.edges.0 {
            let document = bounded::document::<serde_json::Error>(raw)?;
            watch.extend(watched_values(&document, watched));
            edges.extend(Edge::read(&document, &mut ids));
        }
        edges.sort_unstable();
        edges.shrink_to_fit();
        watch.sort_unstable();
        let digest = digest(&vertices, &edges, &watch);
        Ok(Self { vertices, edges, digest })
    }

    /// Builds a topology from one path: its vertices, and the links between them.
    pub fn of_path(vertices: &[Vertex]) -> Self {
        let mut ids = Ids::default();
        let link = |pair: &[Vertex]| match pair {
            [from, to] => Some(Edge {
                from: ids.share(&from.id),
                to: ids.share(&to.id),
                key: Box::default(),
                sids: Vec::new(),
                weights: Vec::new(),
                countries: Vec::new(),
            }),
            _ => None,
        };
        let mut edges: Vec<Edge> = vertices.windows(2).filter_map(link).collect();
        edges.sort_unstable();
        Self { vertices: vertices.iter().map(|vertex| (vertex.id.clone(), vertex.clone())).collect(), edges, digest: 0 }
    }

    /// Returns the edges that begin at a vertex.
    fn edges_from(&self, from: &str) -> &[Edge] {
        let start = self.edges.partition_point(|edge| *edge.from < *from);
        let edges = self.edges.get(start..).unwrap_or_default();
        edges.get(..edges.partition_point(|edge| *edge.from == *from)).unwrap_or_default()
    }

    /// Returns the parallel edges from one vertex to the next.
    pub fn edges_between(&self, from: &str, to: &str) -> &[Edge] {
        let edges = self.edges_from(from);
        let start = edges.partition_point(|edge| *edge.to < *to);
        let edges = edges.get(start..).unwrap_or_default();
        edges.get(..edges.partition_point(|edge| *edge.to == *to)).unwrap_or_default()
    }

    /// Returns the adjacency SIDs from one vertex to the next.
    pub fn adjacency_sids(&self, from: &str, to: &str) -> Vec<Sid> {
        self.edges_between(from, to).iter().flat_map(|edge| edge.sids.iter().cloned()).collect()
    }

    /// Returns whether any edge has that weight.
    pub fn has_weight(&self, weight: &str) -> bool {
        self.edges.iter().any(|edge| edge.weights.contains(&weight))
    }

    /// Returns whether any edge runs through that country.
    pub fn has_country(&self, code: &str) -> bool {
        self.edges.iter().any(|edge| edge.countries.iter().any(|known| known == code))
    }

    /// Returns the first vertex or link on the path along these ids that the topology does not have.
    pub fn missing_on(&self, path: &[String]) -> Option<String> {
        let vertex = path.iter().find(|id| !self.vertices.contains_key(*id)).cloned();
        let edge = || {
            let gap = path.windows(2).find(|pair| match pair {
                [from, to] => self.edges_between(from, to).is_empty(),
                _ => false,
            })?;
            Some(gap.join(" -> "))
        };
        vertex.or_else(edge)
    }

    /// Returns the smallest number of links from one vertex to each vertex that can be reached from it.
    pub fn hops_from(&self, from: &str) -> BTreeMap<String, usize> {
        let mut hops = BTreeMap::from([(from.to_owned(), 0)]);
        let mut queue = VecDeque::from([(from, 0)]);
        while let Some((here, reached)) = queue.pop_front() {
            for Edge { to, .. } in self.edges_from(here) {
                if !hops.contains_key(&**to) {
                    hops.insert(to.to_string(), reached + 1);
                    queue.push_back((to, reached + 1));
                }
            }
        }
        hops
    }
}

/// Returns the key of an edge, and a hash of its values of the watched keys.
fn watched_values(edge: &Value, watched: &[&str]) -> Option<(String, u64)> {
    let key = edge.get("_key").filter(|_| !watched.is_empty())?.as_str()?.to_owned();
    let mut hasher = DefaultHasher::new();
    for name in watched {
        edge.get(name).map(ToString::to_string).hash(&mut hasher);
    }
    Some((key, hasher.finish()))
}

/// Hashes the parsed topology and not the documents. The order of the documents differs between two equal answers, and
/// their counters, loads, revisions and times change without moving a path.
fn digest(vertices: &BTreeMap<String, Vertex>, edges: &[Edge], watched: &[(String, u64)]) -> u64 {
    let mut hasher = DefaultHasher::new();
    vertices.hash(&mut hasher);
    for Edge { key, from, to, sids, .. } in edges {
        (key, from, to, sids).hash(&mut hasher);
    }
    watched.hash(&mut hasher);
    hasher.finish()
}
