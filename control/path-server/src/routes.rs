//! The table of Jalapeno's routes: their paths, parameters and handlers.

use crate::parameters::{Answer, Parameter, boolean, integer, required, text};
use crate::request::RouteRequest;
use crate::{collections, graphs, paths, rpo, traversal};

/// The way in which a route is answered.
#[derive(Clone, Copy, Debug)]
pub enum Answers {
    /// The handler reads documents.
    Reading(fn(&RouteRequest<'_>) -> Answer),
    /// The handler reads documents, and every host sends the request every few seconds. The answer is cached until a
    /// document changes.
    Polled(fn(&RouteRequest<'_>) -> Answer),
    /// The request allocates a path: `/shortest_path/load`, the only GET that writes.
    Allocating,
}

/// One route below `/api/v1`.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub path: &'static str,
    pub summary: &'static str,
    pub parameters: &'static [Parameter],
    pub answers: Answers,
}

const fn reading(
    path: &'static str,
    parameters: &'static [Parameter],
    answer: fn(&RouteRequest<'_>) -> Answer,
    summary: &'static str,
) -> Route {
    Route { path, summary, parameters, answers: Answers::Reading(answer) }
}

const SOURCE: Parameter = required("source");
const DESTINATION: Parameter = required("destination");
const OUTBOUND: Parameter = text("direction", Some("outbound"));
const ALGO: Parameter = integer("algo", Some(0));
const ALL_FIELDS: Parameter = boolean("include_all_fields", Some(true));
const FILTER_GRAPHS: Parameter = boolean("filter_graphs", None);
const LIMIT: Parameter = integer("limit", None);
const LIMIT_100: Parameter = integer("limit", Some(100));

const ONE_PATH: &[Parameter] = &[SOURCE, DESTINATION, OUTBOUND, ALGO];
const BEST_PATHS: &[Parameter] = &[SOURCE, DESTINATION, integer("limit", Some(4)), OUTBOUND, ALGO];
const NEXT_BEST_PATH: &[Parameter] =
    &[SOURCE, DESTINATION, integer("same_hop_limit", Some(4)), integer("plus_one_limit", Some(8)), OUTBOUND, ALGO];
const SOVEREIGNTY: &[Parameter] = &[SOURCE, DESTINATION, required("excluded_countries"), OUTBOUND, ALGO];
const TRAVERSE: &[Parameter] =
    &[SOURCE, text("destination", None), integer("min_depth", Some(1)), integer("max_depth", Some(4)), OUTBOUND];
const TRAVERSE_SIMPLE: &[Parameter] = &[
    SOURCE,
    text("destination", None),
    integer("min_depth", Some(1)),
    integer("max_depth", Some(5)),
    text("direction", Some("any")),
];
const NEIGHBORS: &[Parameter] = &[SOURCE, OUTBOUND, integer("depth", Some(1))];
const COLLECTION: &[Parameter] = &[LIMIT, integer("skip", None), text("filter_key", None)];
const SELECT_OPTIMAL: &[Parameter] =
    &[SOURCE, required("metric"), text("value", None), required("graphs"), OUTBOUND, integer("algo", None)];
const SELECT_FROM_LIST: &[Parameter] = &[
    SOURCE,
    required("destinations"),
    required("metric"),
    text("value", None),
    required("graphs"),
    OUTBOUND,
    integer("algo", None),
];
const BY_PE: &[Parameter] = &[required("pe_router"), LIMIT_100];
const BY_RT: &[Parameter] = &[required("route_target"), LIMIT_100];
const BY_PE_RT: &[Parameter] = &[required("pe_router"), required("route_target"), LIMIT_100];
const VPN_SEARCH: &[Parameter] = &[
    text("prefix", None),
    boolean("prefix_exact", Some(false)),
    text("route_target", None),
    text("vpn_rd", None),
    LIMIT_100,
];

/// All routes of the API.
pub const ROUTES: &[Route] = &[
    reading("/instances", &[], collections::instances, "Names of the graphs"),
    reading("/graphs", &[FILTER_GRAPHS], graphs::graphs, "Graphs whose name ends in _graph"),
    reading("/graphs/{graph}", &[], graphs::graph, "One graph"),
    reading("/graphs/{graph}/info", &[], graphs::info, "One graph, and the collections it touches"),
    Route {
        path: "/graphs/{graph}/topology",
        summary: "Edges, and the vertices they touch",
        parameters: &[ALL_FIELDS],
        answers: Answers::Polled(graphs::topology),
    },
    reading("/graphs/{graph}/topology/nodes", &[ALL_FIELDS], graphs::topology_nodes, "The same between nodes only"),
    reading(
        "/graphs/{graph}/topology/nodes/algo",
        &[ALGO, ALL_FIELDS],
        graphs::topology_nodes_algo,
        "The same between nodes with a SID of the algorithm",
    ),
    reading("/graphs/{graph}/edges", &[], graphs::edges, "Both ends of every edge"),
    reading("/graphs/{graph}/edges/detail", &[LIMIT], graphs::edges_detail, "Metrics and loads of every edge"),
    reading("/graphs/{graph}/vertices", &[], graphs::vertices, "Every vertex of the collections that edges touch"),
    reading("/graphs/{graph}/vertices/keys", &[], graphs::vertex_keys, "Keys of the vertices that edges touch"),
    reading("/graphs/{graph}/vertices/ids", &[], graphs::vertex_ids, "Ids of the vertices that edges touch"),
    reading("/graphs/{graph}/vertices/algo", &[ALGO], graphs::vertices_algo, "Vertices with a SID of the algorithm"),
    reading(
        "/graphs/{graph}/vertices/summary",
        &[LIMIT_100, text("vertex_collection", None)],
        graphs::vertex_summary,
        "What vertices are called, and their SIDs",
    ),
    reading("/graphs/{graph}/shortest_path", ONE_PATH, paths::shortest, "The path of fewest hops"),
    reading("/graphs/{graph}/shortest_path/latency", ONE_PATH, paths::latency, "The path of least latency"),
    reading(
        "/graphs/{graph}/shortest_path/utilization",
        ONE_PATH,
        paths::utilization,
        "The path of least percent_util_out",
    ),
    Route {
        path: "/graphs/{graph}/shortest_path/load",
        summary: "The path of least load, which is allocated: 10 is added to the load of its edges",
        parameters: ONE_PATH,
        answers: Answers::Allocating,
    },
    reading(
        "/graphs/{graph}/shortest_path/sovereignty",
        SOVEREIGNTY,
        paths::sovereignty,
        "The path of fewest hops that avoids countries",
    ),
    reading("/graphs/{graph}/shortest_path/best-paths", BEST_PATHS, paths::best_paths, "The first paths by hops"),
    reading(
        "/graphs/{graph}/shortest_path/next-best-path",
        NEXT_BEST_PATH,
        paths::next_best_path,
        "All paths of fewest hops, and those one hop longer",
    ),
    reading("/graphs/{graph}/traverse", TRAVERSE, traversal::traverse, "Every walk from a vertex, in detail"),
    reading("/graphs/{graph}/traverse/simple", TRAVERSE_SIMPLE, traversal::traverse_simple, "Every walk from a vertex"),
    reading("/graphs/{graph}/neighbors", NEIGHBORS, traversal::neighbors, "What a vertex is next to"),
    reading("/collections", &[FILTER_GRAPHS], collections::collections, "Collections of vertices and of edges"),
    reading("/collections/{collection}", COLLECTION, collections::collection, "Documents of one"),
    reading("/collections/{collection}/keys", &[], collections::collection_keys, "Keys of its documents"),
    reading("/collections/{collection}/info", &[], collections::collection_info, "What there is to know of one"),
    reading("/vpns", &[], collections::vpns, "Collections of VPN prefixes: none without BGP"),
    reading("/vpns/{collection}", &[], collections::vpn, "One of them"),
    reading("/vpns/{collection}/summary", &[], collections::vpn_detail, "Counts of one"),
    reading("/vpns/{collection}/pe-routers", &[], collections::vpn_detail, "Its next hops"),
    reading("/vpns/{collection}/route-targets", &[], collections::vpn_detail, "Its route targets"),
    reading("/vpns/{collection}/prefixes/by-pe", BY_PE, collections::vpn_detail, "Its prefixes by next hop"),
    reading("/vpns/{collection}/prefixes/by-rt", BY_RT, collections::vpn_detail, "Its prefixes by route target"),
    reading("/vpns/{collection}/prefixes/by-pe-rt", BY_PE_RT, collections::vpn_detail, "Its prefixes by both"),
    reading("/vpns/{collection}/prefixes/search", VPN_SEARCH, collections::vpn_detail, "Its prefixes by anything"),
    reading("/rpo", &[], rpo::metrics, "Metrics that endpoints are chosen by"),
    reading("/rpo/{collection}", &[LIMIT], rpo::collection, "Endpoints of a collection"),
    reading(
        "/rpo/{collection}/select-optimal",
        SELECT_OPTIMAL,
        rpo::select_optimal,
        "The endpoint with the best value of a metric, and the shortest path to it",
    ),
    reading(
        "/rpo/{collection}/select-from-list",
        SELECT_FROM_LIST,
        rpo::select_from_list,
        "The same among some endpoints",
    ),
];
