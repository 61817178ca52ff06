//! Metrics for Prometheus at `/metrics`.
//!
//! Labels are routes of the table, statuses, graphs and kinds of faults. So the number of their values is limited by
//! the topology and does not depend on requests.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::load::Book;
use crate::store::Store;

/// Content type for Prometheus 2 and later.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Label of requests that match no route.
const NO_ROUTE: &str = "none";

/// Buckets in seconds, from a cached answer to a search that reaches its limit.
const BUCKETS: [f64; 8] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.1, 1.0, 10.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    method: String,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRoute {
    route: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfGraph {
    graph: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFault {
    fault: &'static str,
}

/// Counters of requests, and gauges that are set when the metrics are read.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    seconds: Family<OfRoute, Histogram, fn() -> Histogram>,
    faults: Family<OfFault, Counter>,
    reads: Counter,
    vertices: Family<OfGraph, Gauge>,
    edges: Family<OfGraph, Gauge>,
    allocations: Family<OfGraph, Gauge>,
    down: Gauge,
    revision: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("srv6d_path_server"),
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            faults: Family::default(),
            reads: Counter::default(),
            vertices: Family::default(),
            edges: Family::default(),
            allocations: Family::default(),
            down: Gauge::default(),
            revision: Gauge::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("requests", "Requests answered", self.requests.clone());
        let name = "request_duration";
        registry.register_with_unit(name, "From a request to its answer", Unit::Seconds, self.seconds.clone());
        registry.register("faults", "Requests that failed on purpose", self.faults.clone());
        registry.register("topology_reads", "Topologies taken while running", self.reads.clone());
        registry.register("topology_revision", "Changes of the topology", self.revision.clone());
        registry.register("vertices", "Vertices that edges of the graph touch", self.vertices.clone());
        registry.register("edges", "Edges that are up", self.edges.clone());
        registry.register("down", "Vertices and edges switched off", self.down.clone());
        registry.register("allocations", "Paths of /shortest_path/load in force", self.allocations.clone());
    }

    /// Counts a request that was answered.
    pub fn answered(&self, method: &Method, route: Option<&str>, status: StatusCode, took: Duration) {
        let known = [Method::GET, Method::HEAD, Method::POST, Method::PATCH, Method::DELETE, Method::OPTIONS];
        let method = if known.contains(method) { method.as_str() } else { "other" }.to_owned();
        let route = route.unwrap_or(NO_ROUTE).to_owned();
        self.seconds.get_or_create(&OfRoute { route: route.clone() }).observe(took.as_secs_f64());
        self.requests.get_or_create(&Answered { method, route, status: status.as_u16() }).inc();
    }

    /// Counts an injected fault.
    pub fn fault(&self, fault: &'static str) {
        self.faults.get_or_create(&OfFault { fault }).inc();
    }

    /// Counts a topology that was read while running.
    pub fn topology_read(&self) {
        self.reads.inc();
    }

    /// Returns all metrics as text.
    pub fn exposition(&self, store: &Store, book: &Book) -> String {
        self.vertices.clear();
        self.edges.clear();
        self.allocations.clear();
        let gauge = |family: &Family<OfGraph, Gauge>, graph: &str, count: usize| {
            let label = OfGraph { graph: graph.to_owned() };
            family.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
        };
        let allocations = book.allocations();
        for graph in store.graphs() {
            gauge(&self.vertices, graph, store.vertices(graph).map_or(0, |vertices| vertices.len()));
            gauge(&self.edges, graph, store.edges(graph).map_or(0, |edges| edges.len()));
            gauge(&self.allocations, graph, allocations.get(graph.as_str()).copied().unwrap_or(0));
        }
        self.down.set(i64::try_from(store.down().count()).unwrap_or(i64::MAX));
        self.revision.set(i64::try_from(store.revision()).unwrap_or(i64::MAX));
        let mut exposition = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut exposition, &self.registry);
        exposition
    }
}
