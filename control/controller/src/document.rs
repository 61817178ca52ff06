//! Vertices and edges as Jalapeno's database holds them: keys come and go, so every one is optional.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;

use crate::sid::{Family, Sid};

/// A node, a host, or a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Vertex {
    /// `collection/key`.
    pub id: String,
    /// What people call it; the key where no name is given.
    pub name: String,
    /// SIDs of the vertex itself.
    pub sids: Vec<Sid>,
    /// Where traffic for it goes: host bits masked. Empty for a node.
    pub prefixes: Vec<IpNet>,
    /// It forwards: not a host, not a prefix.
    pub is_node: bool,
    /// What was put right while it was read.
    pub notes: Vec<String>,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// Key.
    pub key: String,
    /// Id of the vertex it leaves.
    pub from: String,
    /// Id of the vertex it reaches.
    pub to: String,
    /// Adjacency SIDs (uA) of `from` towards `to`.
    pub sids: Vec<Sid>,
    /// Names of the weights it has.
    pub weights: Vec<&'static str>,
    /// Countries it runs through, ISO 3166-1 alpha-3.
    pub countries: Vec<String>,
}

/// Attributes that a path may be chosen by.
const WEIGHTS: [&str; 3] = ["latency", "percent_util_out", "load"];

/// One answer of `/topology`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// By id.
    pub vertices: BTreeMap<String, Vertex>,
    /// By the ids of both ends; of parallel links all.
    pub edges: BTreeMap<(String, String), Vec<Edge>>,
    /// Changes when something does that may move a path.
    pub digest: u64,
}

/// Host bits of a bare prefix are not known: 64 is what every host subnet of such a fabric has.
const USUAL_V6_LENGTH: u8 = 64;

impl Vertex {
    /// Reads a document; `None`: it has no id.
    pub fn read(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let id = text("_id")?.to_owned();
        let key = id.split_once('/').map_or(id.as_str(), |(_, key)| key);
        let name = text("name").unwrap_or(key).to_owned();
        let sids = value.get("sids").and_then(Value::as_array).map(|sids| Sid::read_all(sids)).unwrap_or_default();
        let mut notes = Vec::new();
        let prefixes = prefixes(value, &mut notes);
        let is_node = prefixes.is_empty() || text("router_id").is_some();
        Some(Self { id, name, sids, prefixes: if is_node { Vec::new() } else { prefixes }, is_node, notes })
    }

    /// The prefixes of one family.
    pub fn prefixes_of(&self, family: Family) -> impl Iterator<Item = IpNet> + '_ {
        let wanted = move |prefix: &&IpNet| matches!(prefix, IpNet::V6(_)) == (family == Family::V6);
        self.prefixes.iter().filter(wanted).copied()
    }
}

/// `prefix` with `prefix_len`, and the same for IPv4 where it is given; an address alone is a prefix of its own.
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
            None => notes.push(format!("{prefix} {text:?} is not a prefix")),
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

impl Edge {
    /// Reads a document; `None`: an end is missing.
    pub fn read(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let sids = value.get("srv6_endx_sid").and_then(Value::as_array);
        Some(Self {
            key: text("_key").unwrap_or_default(),
            from: text("_from")?,
            to: text("_to")?,
            sids: sids.map(|sids| Sid::read_all(sids)).unwrap_or_default(),
            countries: countries(value),
            weights: WEIGHTS.into_iter().filter(|weight| value.get(weight).is_some_and(Value::is_number)).collect(),
        })
    }
}

/// A list, or one.
fn countries(edge: &Value) -> Vec<String> {
    let codes = edge.get("country_codes");
    let several = codes.and_then(Value::as_array).into_iter().flatten();
    codes.into_iter().chain(several).filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The answer, before its documents are read.
#[derive(Deserialize)]
struct Answer {
    edges: Vec<Value>,
    vertices: BTreeMap<String, Value>,
}

impl Topology {
    /// Reads an answer of `/graphs/{g}/topology`.
    ///
    /// # Errors
    /// It is none.
    pub fn read(value: Value) -> Result<Self, serde_json::Error> {
        Self::read_watching(value, &[])
    }

    /// Reads an answer whose digest also changes with these keys of edges.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_watching(value: Value, watched: &[&str]) -> Result<Self, serde_json::Error> {
        let answer = Answer::deserialize(value)?;
        let vertices = answer.vertices.values().filter_map(Vertex::read);
        let vertices: BTreeMap<String, Vertex> = vertices.map(|vertex| (vertex.id.clone(), vertex)).collect();
        let mut edges: BTreeMap<(String, String), Vec<Edge>> = BTreeMap::new();
        for edge in answer.edges.iter().filter_map(Edge::read) {
            edges.entry((edge.from.clone(), edge.to.clone())).or_default().push(edge);
        }
        for parallel in edges.values_mut() {
            parallel.sort_unstable();
        }
        let digest = digest(&vertices, &edges, &answer.edges, watched);
        Ok(Self { vertices, edges, digest })
    }

    /// Adjacency SIDs from one vertex to the next.
    pub fn adjacency_sids(&self, from: &str, to: &str) -> Vec<Sid> {
        let edges = self.edges.get(&(from.to_owned(), to.to_owned())).into_iter().flatten();
        edges.flat_map(|edge| edge.sids.iter().cloned()).collect()
    }

    /// Some link between nodes has that weight.
    pub fn has_weight(&self, weight: &str) -> bool {
        self.edges.values().flatten().any(|edge| edge.weights.contains(&weight))
    }

    /// Some link runs through that country.
    pub fn has_country(&self, code: &str) -> bool {
        self.edges.values().flatten().any(|edge| edge.countries.iter().any(|known| known == code))
    }

    /// The first thing that keeps a walk along these ids from being one.
    pub fn missing_on(&self, walk: &[String]) -> Option<String> {
        let vertex = walk.iter().find(|id| !self.vertices.contains_key(*id)).cloned();
        let edge = || {
            let gap = walk.windows(2).find(|pair| match pair {
                [from, to] => !self.edges.contains_key(&(from.clone(), to.clone())),
                _ => false,
            })?;
            Some(gap.join(" -> "))
        };
        vertex.or_else(edge)
    }

    /// Fewest links from one vertex to every other that can be reached.
    pub fn hops_from(&self, from: &str) -> BTreeMap<String, usize> {
        let mut hops = BTreeMap::from([(from.to_owned(), 0)]);
        let mut queue = VecDeque::from([(from, 0)]);
        while let Some((here, reached)) = queue.pop_front() {
            let start = (here.to_owned(), String::new());
            for (_, next) in self.edges.range(start..).map(|(ends, _)| ends).take_while(|(end, _)| end == here) {
                if !hops.contains_key(next) {
                    hops.insert(next.clone(), reached + 1);
                    queue.push_back((next, reached + 1));
                }
            }
        }
        hops
    }
}

/// Of what was read, not of the documents: their order differs between two equal answers, and counters, loads,
/// revisions and times in them change without moving a path.
fn digest(
    vertices: &BTreeMap<String, Vertex>,
    edges: &BTreeMap<(String, String), Vec<Edge>>,
    documents: &[Value],
    watched: &[&str],
) -> u64 {
    let of_edge = |edge: &Value| {
        let values = watched.iter().filter_map(|key| Some(format!("{key}={}", edge.get(key)?)));
        Some((edge.get("_key")?.as_str()?.to_owned(), values.collect::<Vec<_>>()))
    };
    let mut values: Vec<(String, Vec<String>)> = Vec::new();
    if !watched.is_empty() {
        values.extend(documents.iter().filter_map(of_edge));
        values.sort_unstable();
    }
    let mut hasher = DefaultHasher::new();
    vertices.hash(&mut hasher);
    for Edge { key, from, to, sids, .. } in edges.values().flatten() {
        (key, from, to, sids).hash(&mut hasher);
    }
    values.hash(&mut hasher);
    hasher.finish()
}
