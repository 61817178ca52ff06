//! Report of a comparison in names and numbers, for programs.

use serde::ser::{SerializeMap, SerializeStruct};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use srv6d_controller::compose::{Options, compose};
use srv6d_controller::document::{Topology, Vertex};
use srv6d_controller::sid::Family;

use crate::comparison::{ChosenPaths, Comparison};
use crate::constraints::Constraints;
use crate::demand::Demand;
use crate::fabric::{Fabric, NodeKind};
use crate::ratio::Ratio;
use crate::table::LinkId;

/// Everything that is reported about a job on a fabric.
#[derive(Debug)]
pub struct Report<'r> {
    /// Fabric that the flows are placed on.
    pub fabric: &'r Fabric,
    /// Flows that are placed.
    pub demand: &'r Demand,
    /// Constraints of the placement.
    pub constraints: &'r Constraints,
    /// Results of the three ways of choosing paths.
    pub comparison: &'r Comparison,
    /// Topology with the SIDs of the nodes, if known.
    pub sids: Option<&'r Topology>,
    /// Maximum number of flows that are listed.
    pub most_flows: usize,
}

/// Path of one flow, with the carriers that pin it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// Switches, from the source to the destination.
    pub via: Vec<String>,
    /// Carriers (or SIDs of several segments), in the order they are visited.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub carriers: Vec<std::net::Ipv6Addr>,
    /// Why there is no carrier, if SIDs are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_carrier: Option<String>,
}

/// Reads the SIDs of a topology document: Jalapeno's `/topology`, or one with `nodes`, `hosts` and `edges`.
pub fn sids(document: &Value) -> Option<Topology> {
    let mut vertices = match document.get("vertices") {
        Some(Value::Object(vertices)) => vertices.clone(),
        _ => Map::new(),
    };
    for (list, collection) in [("nodes", "fabric_node"), ("hosts", "hosts")] {
        for vertex in document.get(list).and_then(Value::as_array).into_iter().flatten() {
            let mut vertex = vertex.clone();
            let key = vertex.get("_key").and_then(Value::as_str)?;
            let id =
                vertex.get("_id").and_then(Value::as_str).map_or_else(|| format!("{collection}/{key}"), str::to_owned);
            vertex.as_object_mut()?.insert("_id".to_owned(), json!(id));
            vertices.insert(id, vertex);
        }
    }
    let edges = document.get("edges")?;
    Topology::read(&json!({ "vertices": vertices, "edges": edges })).ok()
}

impl Report<'_> {
    /// Returns the path of a flow. Carriers pin switches, not links: between parallel links the fabric chooses.
    pub fn hop(&self, outcome: &ChosenPaths, flow: usize, with_carriers: bool) -> Hop {
        let links = outcome.paths.links(self.fabric, self.demand, flow);
        let node = |link: &LinkId| self.fabric.node(self.fabric.link(*link).to);
        let switches = links.iter().map(node).filter(|node| node.kind == NodeKind::Switch);
        let mut hop = Hop { via: switches.map(|node| node.name.clone()).collect(), ..Hop::default() };
        let Some(sids) = self.sids.filter(|_| with_carriers) else { return hop };
        let ends = links.first().map(|link| &self.fabric.node(self.fabric.link(*link).from).id);
        let ids = ends.into_iter().chain(links.iter().map(|link| &node(link).id));
        let Some(walk) = ids.map(|id| sids.vertices.get(id)).collect::<Option<Vec<&Vertex>>>() else { return hop };
        let to_v4 =
            walk.last().is_some_and(|last| last.prefixes_of(Family::V6).next().is_none() && !last.prefixes.is_empty());
        let family = if to_v4 { Family::V4 } else { Family::V6 };
        match compose(&walk, sids, &Options { algo: 0, family, strict: false, function: None }) {
            Ok(composed) => hop.carriers = composed.segments,
            Err(why) => hop.no_carrier = Some(why.to_string()),
        }
        hop
    }

    /// Returns the name of a link, such as `leaf00 -> spine01`.
    pub fn link_name(&self, link: LinkId) -> String {
        let ends = self.fabric.link(link);
        format!("{} -> {}", self.fabric.node(ends.from).name, self.fabric.node(ends.to).name)
    }

    /// Returns the load per capacity of a link.
    pub fn ratio(&self, outcome: &ChosenPaths, link: LinkId) -> Ratio {
        Ratio { load: outcome.loads[link], capacity: self.fabric.link(link).capacity.max(1) }
    }

    /// Returns the mean load per capacity of the links whose load depends on the paths.
    #[allow(clippy::cast_precision_loss, reason = "no fabric has 2^53 links")]
    pub fn mean(&self, outcome: &ChosenPaths) -> f64 {
        let links = &self.comparison.links;
        let sum: f64 = links.iter().map(|link| self.ratio(outcome, *link).value()).sum();
        sum / links.len().max(1) as f64
    }

    /// Returns the name of the busiest link; of several equal ones, the first by name.
    pub fn busiest_link(&self, outcome: &ChosenPaths) -> Option<String> {
        let busy = self.comparison.links.iter().filter(|link| self.ratio(outcome, **link) == outcome.busiest);
        busy.map(|link| self.link_name(*link)).min().filter(|_| outcome.busiest > Ratio::ZERO)
    }

    /// Returns the ratio of the busiest link that is the only link of a host.
    pub fn busiest_host_link(&self) -> Ratio {
        let judged = self.fabric.judged();
        let links = self.fabric.links().map(|(id, _)| id).filter(|id| !judged[*id]);
        links.map(|link| self.ratio(&self.comparison.placed, link)).max().unwrap_or(Ratio::ZERO)
    }

    fn summary(&self, outcome: &ChosenPaths) -> Value {
        let bound = self.comparison.bound.value();
        let busiest = outcome.busiest.value();
        json!({
            "busiest": number(busiest),
            "over_bound": if bound > 0.0 { number(busiest / bound) } else { json!(1) },
            "mean": number(self.mean(outcome)),
            "busiest_link": self.busiest_link(outcome),
        })
    }
}

/// Returns a JSON number; whole numbers are written without a decimal point.
#[allow(clippy::cast_possible_truncation, reason = "it is a whole number below 2^53")]
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 { json!(value as i64) } else { json!(value) }
}

impl Serialize for Report<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Comparison { bound, placed, ecmp, load, ecmp_seed, .. } = self.comparison;
        let hosts = self.fabric.hosts().count();
        let mut report = serializer.serialize_struct("Report", 12)?;
        report.serialize_field("hosts", &hosts)?;
        report.serialize_field("switches", &(self.fabric.node_count() - hosts))?;
        report.serialize_field("flow_count", &self.demand.flows.len())?;
        report.serialize_field("seed", &self.constraints.seed)?;
        report.serialize_field("ecmp_seed", ecmp_seed)?;
        report.serialize_field("bound", &number(bound.value()))?;
        report.serialize_field("busiest_host_link", &number(self.busiest_host_link().value()))?;
        report.serialize_field("placed", &self.summary(placed))?;
        report.serialize_field("ecmp", &self.summary(ecmp))?;
        report.serialize_field("load", &self.summary(load))?;
        report.serialize_field("links", &Links(self))?;
        report.serialize_field("flows", &Flows(self))?;
        report.end()
    }
}

struct Links<'r>(&'r Report<'r>);

impl Serialize for Links<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Report { fabric, comparison, .. } = self.0;
        serializer.collect_seq(comparison.links.iter().map(|id| {
            let link = fabric.link(*id);
            json!({
                "key": link.key,
                "from": fabric.node(link.from).id,
                "to": fabric.node(link.to).id,
                "capacity": link.capacity,
                "placed": comparison.placed.loads[*id],
                "ecmp": comparison.ecmp.loads[*id],
                "load": comparison.load.loads[*id],
            })
        }))
    }
}

/// Flows of a report. They are serialised one by one, because there may be a million.
struct Flows<'r>(&'r Report<'r>);

impl Serialize for Flows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let count = self.0.demand.flows.len().min(self.0.most_flows);
        serializer.collect_seq((0..count).map(|flow| FlowOf { report: self.0, flow }))
    }
}

struct FlowOf<'r> {
    report: &'r Report<'r>,
    flow: usize,
}

impl Serialize for FlowOf<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Report { fabric, demand, constraints, comparison, .. } = self.report;
        let mut map = serializer.serialize_map(None)?;
        if let Some(flow) = demand.flows.get(self.flow) {
            map.serialize_entry("source", &fabric.node(flow.source).id)?;
            map.serialize_entry("destination", &fabric.node(flow.destination).id)?;
            map.serialize_entry("demand", &flow.demand)?;
            if let Some(tenant) = flow.tenant.and_then(|tenant| constraints.tenants.get(tenant)) {
                map.serialize_entry("tenant", &tenant.name)?;
            }
        }
        map.serialize_entry("placed", &self.report.hop(&comparison.placed, self.flow, true))?;
        map.serialize_entry("ecmp", &self.report.hop(&comparison.ecmp, self.flow, false))?;
        map.serialize_entry("load", &self.report.hop(&comparison.load, self.flow, true))?;
        map.end()
    }
}
