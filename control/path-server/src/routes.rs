//! Every route below `/api/v1`.

use axum::extract::{Path, Query as AxumQuery, State};
use axum::http::StatusCode;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use axum::{Json, Router};
use serde_json::{Map, Value, json};

use crate::answers::{self, Asked};
use crate::load::{self, Allocation};
use crate::parameters::{Parameters, Query, Refusal, direction};
use crate::search::{Graph, Walk, Weight};
use crate::server::Shared;
use crate::store::{Document, Store, text};
use crate::{extras, faults, rpo};

type Answer = Result<Json<Value>, Refusal>;

/// HEAD is refused, as there.
fn only_get<H, T>(handler: H) -> MethodRouter<Shared>
where
    H: axum::handler::Handler<T, Shared>,
    T: 'static,
{
    get(handler).head(|| async { StatusCode::METHOD_NOT_ALLOWED })
}

pub fn router(shared: Shared) -> Router {
    let graph = Router::new()
        .route("/", only_get(graph_info))
        .route("/info", only_get(graph_info))
        .route("/topology", only_get(topology))
        .route("/topology/nodes", only_get(topology_nodes))
        .route("/topology/nodes/algo", only_get(topology_nodes))
        .route("/edges", only_get(edges))
        .route("/edges/detail", only_get(edges_detail))
        .route("/edges/{key}", axum::routing::patch(extras::switch_edge))
        .route("/vertices", only_get(vertices))
        .route("/vertices/keys", only_get(vertex_keys))
        .route("/vertices/ids", only_get(vertex_ids))
        .route("/vertices/algo", only_get(vertices_algo))
        .route("/vertices/summary", only_get(vertex_summary))
        .route("/vertices/{collection}/{key}", axum::routing::patch(extras::switch_vertex))
        .route("/shortest_path", only_get(shortest))
        .route("/shortest_path/latency", only_get(latency))
        .route("/shortest_path/utilization", only_get(utilization))
        .route("/shortest_path/load", only_get(allocate).delete(extras::release))
        .route("/shortest_path/load/reset", axum::routing::post(extras::reset))
        .route("/shortest_path/sovereignty", only_get(sovereignty))
        .route("/shortest_path/best-paths", only_get(best_paths))
        .route("/shortest_path/next-best-path", only_get(next_best_path))
        .route("/traverse", only_get(traverse))
        .route("/traverse/simple", only_get(traverse_simple))
        .route("/neighbors", only_get(neighbors))
        .route("/events", get(extras::events));
    let api = Router::new()
        .route("/graphs", only_get(graphs))
        .nest("/graphs/{graph}", graph)
        .route("/instances", only_get(instances))
        .route("/collections", only_get(collections))
        .route("/collections/{collection}", only_get(collection))
        .route("/collections/{collection}/keys", only_get(collection_keys))
        .route("/collections/{collection}/info", only_get(collection_info))
        .route("/vpns", only_get(vpns))
        .route("/rpo", only_get(|| async { Json(rpo::metrics()) }))
        .route("/rpo/{collection}", only_get(collection))
        .route("/rpo/{collection}/select-optimal", only_get(select_optimal))
        .route("/rpo/{collection}/select-from-list", only_get(select_from_list));
    Router::new()
        .nest("/api/v1", api)
        .route("/health", get(|| async { Json(json!({ "status": "healthy" })) }))
        .fallback(|| async { (StatusCode::NOT_FOUND, Json(json!({ "detail": "Not Found" }))) })
        .layer(middleware::from_fn_with_state(shared.clone(), faults::apply))
        .layer(middleware::from_fn(access_log))
        .with_state(shared)
}

async fn access_log(request: axum::extract::Request, next: middleware::Next) -> Response {
    let (method, target) = (request.method().clone(), request.uri().to_string());
    let response = next.run(request).await;
    tracing::info!("{method} {target} {}", response.status().as_u16());
    response
}

/// What every route for paths asks for.
struct PathQuery<'q> {
    source: &'q str,
    destination: &'q str,
    asked: Asked,
    problems: Parameters<'q>,
}

impl<'q> PathQuery<'q> {
    fn new(shared: &Shared, query: &'q Query) -> Self {
        let mut problems = Parameters::new(query);
        let (source, destination) = (problems.required("source"), problems.required("destination"));
        let direction = problems.text("direction").unwrap_or("outbound").to_owned();
        let asked = Asked { direction, algo: problems.integer("algo", 0), edition: shared.edition };
        Self { source, destination, asked, problems }
    }

    fn finish(self) -> Result<(&'q str, &'q str, Asked), Refusal> {
        self.problems.finish()?;
        Ok((self.source, self.destination, self.asked))
    }
}

/// An unknown graph is found out deep inside, and its error is swallowed on the way.
fn open<'s>(store: &'s Store, graph: &str, asked: &Asked) -> Result<Graph<'s>, Refusal> {
    let direction = direction(Some(&asked.direction))?;
    Graph::new(store, graph, direction, asked.algo).ok_or_else(Refusal::swallowed)
}

const NO_PATH: &str = "No path found between specified nodes";

type Extra = fn(&Walk<'_>) -> (&'static str, Value);

fn one_path(shared: &Shared, graph: &str, query: &Query, weight: Weight, extra: Option<Extra>) -> Answer {
    let (source, destination, asked) = PathQuery::new(shared, query).finish()?;
    let inner = shared.read();
    let searched = open(&inner.store, graph, &asked)?.shortest(source, destination, weight);
    let Some(walk) = searched else { return Ok(Json(answers::not_found(NO_PATH))) };
    let extra = extra.map(|extra| extra(&walk));
    Ok(Json(Value::Object(answers::one(&walk, &asked, extra, false))))
}

async fn shortest(
    State(shared): State<Shared>,
    Path(graph): Path<String>,
    AxumQuery(query): AxumQuery<Query>,
) -> Answer {
    one_path(&shared, &graph, &query, Weight::Hops, None)
}

async fn latency(
    State(shared): State<Shared>,
    Path(graph): Path<String>,
    AxumQuery(query): AxumQuery<Query>,
) -> Answer {
    let total: Extra = |walk| ("total_latency", sum(walk, "latency"));
    one_path(&shared, &graph, &query, Weight::Attribute("latency"), Some(total))
}

async fn utilization(
    State(shared): State<Shared>,
    Path(graph): Path<String>,
    AxumQuery(query): AxumQuery<Query>,
) -> Answer {
    let average: Extra = |walk| ("average_utilization", mean(walk, "percent_util_out"));
    one_path(&shared, &graph, &query, Weight::Attribute("percent_util_out"), Some(average))
}

/// Whole numbers stay whole.
fn sum(walk: &Walk<'_>, attribute: &str) -> Value {
    let values = || walk.edges.iter().filter_map(|edge| edge.get(attribute));
    match values().map(Value::as_i64).sum::<Option<i64>>() {
        Some(whole) => json!(whole),
        None => json!(values().filter_map(Value::as_f64).sum::<f64>()),
    }
}

#[allow(clippy::cast_precision_loss, reason = "a path has few edges")]
fn mean(walk: &Walk<'_>, attribute: &str) -> Value {
    let sum: f64 = walk.edges.iter().filter_map(|edge| edge.get(attribute)?.as_f64()).sum();
    json!(if walk.edges.is_empty() { 0.0 } else { sum / walk.edges.len() as f64 })
}

/// The one GET that writes. Here, search and writing are one step: no increment is lost.
async fn allocate(
    State(shared): State<Shared>,
    Path(graph): Path<String>,
    AxumQuery(query): AxumQuery<Query>,
) -> Answer {
    let (source, destination, asked) = PathQuery::new(&shared, &query).finish()?;
    let mut inner = shared.write();
    let searched = open(&inner.store, &graph, &asked)?.shortest(source, destination, Weight::Attribute("load"));
    let Some(walk) = searched else { return Ok(Json(answers::not_found(NO_PATH))) };
    let before = json!(load::average(&walk.edges));
    let mut answer = answers::one(&walk, &asked, Some(("average_load", before)), true);
    let edges: Vec<String> = walk.edges.iter().filter_map(|edge| text(edge, "_key").map(str::to_owned)).collect();
    let data = load::allocate(&mut inner.store, &graph, &edges);
    if data.get("error").is_none() {
        let (source, destination) = (source.to_owned(), destination.to_owned());
        inner.allocations.push(Allocation { graph, source, destination, edges });
    }
    answer.insert("load_data".to_owned(), data);
    Ok(Json(Value::Object(answer)))
}

async fn best_paths(
    State(shared): State<Shared>,
    Path(graph): Path<String>,
    AxumQuery(query): AxumQuery<Query>,
) -> Answer {
    let mut asking = PathQuery::new(&shared, &query);
    let limit = usize::try_from(asking.problems.integer("limit", 4)).unwrap_or(0);
    let (source, destination, asked) = asking.finish()?;
    let inner = shared.read();
    let walks = unchecked(&inner.store, &graph, &asked)?.by_hops(source, destination, limit, None);
    if walks.is_empty() {
        return Ok(Json(answers::not_found("No paths found between specified nodes")));
    }
    let paths: Vec<_> = walks.iter().map(|walk| answers::one_of_best(walk, &asked)).collect();
    Ok(Json(json!({
        "found": true, "total_paths_found": paths.len(), "direction": asked.direction, "algo": asked.algo, "paths": paths,
    })))
}

/// Routes that put the direction into the query text: the database finds out, in its own words.
fn unchecked<'s>(store: &'s Store, graph: &str, asked: &Asked) -> Result<Graph<'s>, Refusal> {
    if store.edges(graph).is_none() {
        return Err(Refusal::swallowed());
    }
    open(store, graph, asked).map_err(|_| Refusal::Internal(format!("syntax error near '{}'", asked.direction)))
}

async fn next_best_path(
    State(shared): State<Shared>,
    Path(graph): Path<String>,
    AxumQuery(query): AxumQuery<Query>,
) -> Answer {
    let mut asking = PathQuery::new(&shared, &query);
    let same_limit = usize::try_from(asking.problems.integer("same_hop_limit", 4)).unwrap_or(0);
    let plus_limit = usize::try_from(asking.problems.integer("plus_one_limit", 8)).unwrap_or(0);
    let (source, destination, asked) = asking.finish()?;
    let inner = shared.read();
    let graph = unchecked(&inner.store, &graph, &asked)?;
    // Without a path the hop count is -1, and that becomes a range of depths.
    let depth = || Refusal::Internal("invalid depth range -1..-1".to_owned());
    let shortest = graph.shortest(source, destination, Weight::Hops).ok_or_else(depth)?;
    let base = shortest.hops();
    let same = graph.by_hops(source, destination, same_limit, Some(base));
    let plus = graph.by_hops(source, destination, plus_limit, Some(base + 1));
    let all = |walks: &[Walk<'_>]| walks.iter().map(|walk| answers::alternative(walk, &asked)).collect::<Vec<_>>();
    Ok(Json(json!({
        "found": true,
        "algo": asked.algo,
        "shortest_path": answers::base(&shortest, &asked),
        "same_hopcount_paths": all(&same),
        "plus_one_hopcount_paths": all(&plus),
        "summary": {
            "base_hopcount": base,
            "same_hopcount_alternatives": same.len(),
            "plus_one_hopcount_alternatives": plus.len(),
        },
    })))
}

async fn sovereignty(
    State(shared): State<Shared>,
    Path(graph): Path<String>,
    AxumQuery(query): AxumQuery<Query>,
) -> Answer {
    let mut asking = PathQuery::new(&shared, &query);
    let excluded = asking.problems.required("excluded_countries");
    let (source, destination, asked) = asking.finish()?;
    let excluded: Vec<String> = excluded.split(',').map(|code| code.trim().to_ascii_uppercase()).collect();
    let inner = shared.read();
    let walks = unchecked(&inner.store, &graph, &asked)?.by_hops(source, destination, usize::MAX, None);
    // The text of the codes is searched, not the list.
    let touches = |walk: &Walk<'_>| {
        let codes: String =
            walk.edges.iter().filter_map(|edge| edge.get("country_codes")).map(Value::to_string).collect();
        excluded.iter().any(|code| codes.contains(code.as_str()))
    };
    let Some(walk) = walks.iter().find(|walk| !touches(walk)) else {
        let message = format!("No path found avoiding countries: {}", excluded.join(", "));
        return Ok(Json(answers::not_found(&message)));
    };
    let mut answer = Map::from_iter([("found".to_owned(), json!(true))]);
    answer.extend(answers::one_of_best(walk, &asked));
    answer.insert("direction".to_owned(), json!(asked.direction));
    answer.insert("algo".to_owned(), json!(asked.algo));
    answer.insert("excluded_countries".to_owned(), json!(excluded));
    Ok(Json(Value::Object(answer)))
}

/// Parameters of the traversals.
fn depths(query: &Query, max: i64) -> Result<(std::ops::RangeInclusive<usize>, String, String), Refusal> {
    let mut parameters = Parameters::new(query);
    let source = parameters.required("source").to_owned();
    let (least, most) = (parameters.integer("min_depth", 1), parameters.integer("max_depth", max));
    let way = parameters.text("direction").unwrap_or("outbound").to_owned();
    parameters.finish()?;
    let depth = |number: i64| usize::try_from(number).map_err(|_| Refusal::swallowed());
    Ok((depth(least)?..=depth(most)?, source, way))
}

/// Walks a traversal shows at most.
const TRAVERSED: usize = 1000;

async fn traverse(
    State(shared): State<Shared>,
    Path(graph): Path<String>,
    AxumQuery(query): AxumQuery<Query>,
) -> Answer {
    let (depths, source, way) = depths(&query, 4)?;
    let inner = shared.read();
    let graph = Graph::new(&inner.store, &graph, direction(Some(&way))?, 0).ok_or_else(Refusal::swallowed)?;
    let wanted = query.get("destination");
    let ends_there = |walk: &&Walk<'_>| {
        let last = walk.vertices.last().and_then(|vertex| text(vertex, "_id"));
        wanted.is_none_or(|id| last == Some(id))
    };
    let walks = graph.within(&source, depths, TRAVERSED);
    let path = |walk: &Walk<'_>| json!({ "vertices": walk.vertices, "edges": walk.edges, "hop_count": walk.hops() });
    let paths: Vec<Value> = walks.iter().filter(ends_there).map(path).collect();
    Ok(Json(json!({ "source": source, "direction": way, "path_count": paths.len(), "paths": paths })))
}

async fn traverse_simple(
    State(shared): State<Shared>,
    Path(graph): Path<String>,
    AxumQuery(query): AxumQuery<Query>,
) -> Answer {
    let (depths, source, way) = depths(&query, 5)?;
    let inner = shared.read();
    let graph = Graph::new(&inner.store, &graph, direction(Some(&way))?, 0).ok_or_else(Refusal::swallowed)?;
    let names = |walk: &Walk<'_>| walk.vertices.iter().map(|vertex| json!(crate::srv6::name(vertex))).collect();
    let walks = graph.within(&source, depths, TRAVERSED);
    let paths: Vec<Value> = walks.iter().map(names).collect();
    Ok(Json(json!({ "source": source, "direction": way, "path_count": paths.len(), "paths": paths })))
}

async fn neighbors(
    State(shared): State<Shared>,
    Path(graph): Path<String>,
    AxumQuery(query): AxumQuery<Query>,
) -> Answer {
    let mut parameters = Parameters::new(&query);
    let source = parameters.required("source").to_owned();
    let depth = usize::try_from(parameters.integer("depth", 1)).unwrap_or(1);
    let way = parameters.text("direction").unwrap_or("outbound").to_owned();
    parameters.finish()?;
    let inner = shared.read();
    let graph = Graph::new(&inner.store, &graph, direction(Some(&way))?, 0).ok_or_else(Refusal::swallowed)?;
    let walks = graph.within(&source, 1..=depth, TRAVERSED);
    let ends: Vec<Value> = walks
        .iter()
        .filter_map(|walk| {
            Some(json!({ "neighbor": walk.vertices.last()?, "edge": walk.edges.last()?, "hops": walk.hops() }))
        })
        .collect();
    Ok(Json(
        json!({ "source": source, "direction": way, "depth": depth, "neighbor_count": ends.len(), "neighbors": ends }),
    ))
}

async fn graphs(State(shared): State<Shared>) -> Json<Value> {
    let inner = shared.read();
    let names: Vec<&String> = inner.store.graphs().filter(|name| name.ends_with("_graph")).collect();
    Json(json!({ "graphs": names, "total": names.len() }))
}

async fn instances(State(shared): State<Shared>) -> Json<Value> {
    let inner = shared.read();
    let names: Vec<&String> = inner.store.graphs().collect();
    Json(json!({ "instances": names, "total": names.len() }))
}

/// The one route for graphs that keeps real codes.
async fn graph_info(State(shared): State<Shared>, Path(graph): Path<String>) -> Answer {
    let inner = shared.read();
    let Some(edges) = inner.store.edges(&graph) else {
        let known = inner.store.documents(&graph).is_some();
        return Err(if known {
            Refusal::Status(StatusCode::BAD_REQUEST, format!("Collection {graph} is not a graph"))
        } else {
            Refusal::Status(StatusCode::NOT_FOUND, format!("Graph collection {graph} not found"))
        });
    };
    let vertices = inner.store.vertices(&graph).unwrap_or_default();
    Ok(Json(json!({ "name": graph, "type": "graph", "edge_count": edges.len(), "vertex_count": vertices.len() })))
}

/// With `include_all_fields=false`, what is left of an edge and of a vertex.
const EDGE_FIELDS: [&str; 4] = ["_id", "_key", "_from", "_to"];
const VERTEX_FIELDS: [&str; 3] = ["_id", "_key", "name"];

fn some_fields(document: &Document, fields: &[&str]) -> Value {
    let some = fields.iter().filter_map(|key| Some(((*key).to_owned(), document.get(*key)?.clone())));
    Value::Object(some.collect())
}

async fn topology(
    State(shared): State<Shared>,
    Path(graph): Path<String>,
    AxumQuery(query): AxumQuery<Query>,
) -> Answer {
    topology_of(&shared, &graph, &query, |_| true)
}

/// Edges whose ids merely contain "node".
async fn topology_nodes(
    State(shared): State<Shared>,
    Path(graph): Path<String>,
    AxumQuery(query): AxumQuery<Query>,
) -> Answer {
    let is_node = |id: Option<&str>| id.is_some_and(|id| id.contains("node"));
    topology_of(&shared, &graph, &query, |edge| is_node(text(edge, "_from")) && is_node(text(edge, "_to")))
}

fn topology_of(shared: &Shared, graph: &str, query: &Query, wanted: impl Fn(&Document) -> bool) -> Answer {
    let mut parameters = Parameters::new(query);
    let whole = parameters.boolean("include_all_fields", true);
    parameters.integer("algo", 0);
    parameters.finish()?;
    let inner = shared.read();
    let edges = inner.store.edges(graph).ok_or_else(Refusal::swallowed)?;
    let edges: Vec<&Document> = edges.into_iter().filter(|edge| wanted(edge)).collect();
    let touched = |id: &str| edges.iter().any(|edge| [text(edge, "_from"), text(edge, "_to")].contains(&Some(id)));
    let shown =
        |document: &Document, fields: &[&str]| if whole { json!(document) } else { some_fields(document, fields) };
    let all = inner.store.vertices(graph).unwrap_or_default();
    let vertices: Map<String, Value> = all
        .into_iter()
        .filter_map(|vertex| Some((text(vertex, "_id")?, vertex)))
        .filter(|(id, _)| touched(id))
        .map(|(id, vertex)| (id.to_owned(), shown(vertex, &VERTEX_FIELDS)))
        .collect();
    let total = vertices.len();
    Ok(Json(json!({
        "edges": edges.iter().map(|edge| shown(edge, &EDGE_FIELDS)).collect::<Vec<_>>(),
        "vertices": vertices,
        "total_edges": edges.len(),
        "total_vertices": total,
        "include_all_fields": whole,
    })))
}

async fn edges(State(shared): State<Shared>, Path(graph): Path<String>) -> Answer {
    let inner = shared.read();
    let edges = inner.store.edges(&graph).ok_or_else(Refusal::swallowed)?;
    let ends: Vec<Value> =
        edges.iter().map(|edge| json!({ "_from": edge.get("_from"), "_to": edge.get("_to") })).collect();
    Ok(Json(json!({ "collection": graph, "edge_count": ends.len(), "edges": ends })))
}

/// It reads other names for delay and bandwidth than the lab's documents have.
const METRICS: [&str; 6] =
    ["unidir_link_delay", "unidir_bw_utilization", "max_link_bw_kbps", "percent_util_out", "percent_util_in", "load"];

async fn edges_detail(
    State(shared): State<Shared>,
    Path(graph): Path<String>,
    AxumQuery(query): AxumQuery<Query>,
) -> Answer {
    let mut parameters = Parameters::new(&query);
    let limit = parameters.integer("limit", 0);
    parameters.finish()?;
    let inner = shared.read();
    let edges = inner.store.edges(&graph).ok_or_else(Refusal::swallowed)?;
    let wanted = usize::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    let detail = |edge: &&Document| {
        json!({
            "_key": edge.get("_key"), "_from": edge.get("_from"), "_to": edge.get("_to"),
            "sids": edge.get("sids").cloned().unwrap_or_else(|| json!([])),
            "metrics": some_fields(edge, &METRICS),
            "timestamps": some_fields(edge, &["first_seen_at", "last_seen_at"]),
        })
    };
    let shown: Vec<Value> = edges.iter().take(wanted).map(detail).collect();
    Ok(Json(json!({
        "collection": graph, "edge_count": edges.len(), "returned_edges": shown.len(), "edges": shown,
    })))
}

/// Documents of the vertices of a graph.
fn vertex_documents(store: &Store, graph: &str) -> Result<Vec<Value>, Refusal> {
    let vertices = store.vertices(graph).ok_or_else(Refusal::swallowed)?;
    Ok(vertices.into_iter().map(|vertex| json!(vertex)).collect())
}

async fn vertices(State(shared): State<Shared>, Path(graph): Path<String>) -> Answer {
    let inner = shared.read();
    let vertices = vertex_documents(&inner.store, &graph)?;
    Ok(Json(json!({ "collection": graph, "vertex_count": vertices.len(), "vertices": vertices })))
}

async fn vertex_keys(State(shared): State<Shared>, Path(graph): Path<String>) -> Answer {
    attribute_of_vertices(&shared, &graph, "_key", "vertex_keys")
}

async fn vertex_ids(State(shared): State<Shared>, Path(graph): Path<String>) -> Answer {
    attribute_of_vertices(&shared, &graph, "_id", "vertex_ids")
}

fn attribute_of_vertices(shared: &Shared, graph: &str, attribute: &str, key: &str) -> Answer {
    let inner = shared.read();
    let vertices = inner.store.vertices(graph).ok_or_else(Refusal::swallowed)?;
    let values: Vec<&str> = vertices.iter().filter_map(|vertex| text(vertex, attribute)).collect();
    Ok(Json(json!({ "collection": graph, "vertex_count": values.len(), key: values })))
}

/// SIDs of one algorithm, flat.
async fn vertices_algo(
    State(shared): State<Shared>,
    Path(graph): Path<String>,
    AxumQuery(query): AxumQuery<Query>,
) -> Answer {
    let mut parameters = Parameters::new(&query);
    let algo = parameters.integer("algo", 0);
    parameters.finish()?;
    let inner = shared.read();
    let vertices = inner.store.vertices(&graph).ok_or_else(Refusal::swallowed)?;
    let flat = |sid: &Value| {
        let behavior = sid.get("srv6_endpoint_behavior");
        let code = behavior.and_then(|behavior| behavior.get("endpoint_behavior"));
        json!({ "srv6_sid": sid.get("srv6_sid"), "endpoint_behavior": code, "algo": crate::srv6::algo_of(sid) })
    };
    let sids_of = |vertex: &Document| {
        let sids = vertex.get("sids").and_then(Value::as_array);
        sids.into_iter().flatten().filter(|sid| crate::srv6::algo_of(sid) == Some(algo)).map(flat).collect::<Vec<_>>()
    };
    let row = |vertex: &&Document| {
        let sids = sids_of(vertex);
        (!sids.is_empty()).then(|| json!({ "_id": vertex.get("_id"), "name": vertex.get("name"), "sids": sids }))
    };
    let rows: Vec<Value> = vertices.iter().filter_map(row).collect();
    Ok(Json(json!({ "collection": graph, "algo": algo, "vertex_count": rows.len(), "vertices": rows })))
}

async fn vertex_summary(
    State(shared): State<Shared>,
    Path(graph): Path<String>,
    AxumQuery(query): AxumQuery<Query>,
) -> Answer {
    let mut parameters = Parameters::new(&query);
    let limit = usize::try_from(parameters.integer("limit", 100)).unwrap_or(0);
    let collection = parameters.text("vertex_collection");
    parameters.finish()?;
    let inner = shared.read();
    let vertices = inner.store.vertices(&graph).ok_or_else(Refusal::swallowed)?;
    let wanted = |vertex: &&&Document| {
        let own = text(vertex, "_id").and_then(|id| id.split_once('/')).map(|(own, _)| own);
        collection.is_none() || own == collection
    };
    let rows: Vec<Value> =
        vertices.iter().filter(wanted).take(limit).map(|vertex| some_fields(vertex, &VERTEX_FIELDS)).collect();
    Ok(Json(json!({ "collection": graph, "total_vertices": vertices.len(), "vertices": rows })))
}

async fn collections(State(shared): State<Shared>, AxumQuery(query): AxumQuery<Query>) -> Answer {
    let mut parameters = Parameters::new(&query);
    let only_graphs = parameters.text("filter_graphs").is_some() && parameters.boolean("filter_graphs", false);
    parameters.finish()?;
    let inner = shared.read();
    let entry = |name: &String, kind: &str| json!({ "name": name, "type": kind, "count": inner.store.documents(name).map_or(0, Vec::len) });
    let mut entries: Vec<Value> = inner.store.graphs().map(|name| entry(name, "edge")).collect();
    if !only_graphs {
        entries.extend(inner.store.collections().map(|name| entry(name, "document")));
    }
    Ok(Json(json!({ "collections": entries, "total": entries.len() })))
}

async fn collection(
    State(shared): State<Shared>,
    Path(collection): Path<String>,
    AxumQuery(query): AxumQuery<Query>,
) -> Answer {
    let mut parameters = Parameters::new(&query);
    let limit = parameters.integer("limit", 0);
    let filter = parameters.text("filter_key");
    parameters.finish()?;
    if query.contains_key("skip") {
        return Err(Refusal::Internal("syntax error near 'SKIP'".to_owned()));
    }
    let inner = shared.read();
    let documents = inner.store.documents(&collection).ok_or_else(Refusal::swallowed)?;
    let limit = usize::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    let wanted = |document: &&Document| filter.is_none() || text(document, "_key") == filter;
    let data: Vec<&Document> = documents.iter().filter(wanted).take(limit).collect();
    Ok(Json(json!({ "collection": collection, "type": "collection", "count": data.len(), "data": data })))
}

async fn collection_keys(State(shared): State<Shared>, Path(collection): Path<String>) -> Answer {
    let inner = shared.read();
    let documents = inner.store.documents(&collection).ok_or_else(Refusal::swallowed)?;
    let keys: Vec<&str> = documents.iter().filter_map(|document| text(document, "_key")).collect();
    Ok(Json(json!({ "collection": collection, "key_count": keys.len(), "keys": keys })))
}

async fn collection_info(State(shared): State<Shared>, Path(collection): Path<String>) -> Answer {
    let inner = shared.read();
    let documents = inner.store.documents(&collection).ok_or_else(Refusal::swallowed)?;
    let kind = if inner.store.edges(&collection).is_some() { "edge" } else { "document" };
    Ok(Json(json!({ "name": collection, "type": kind, "count": documents.len() })))
}

/// There is no BGP behind this server, so there are no VPNs.
async fn vpns() -> Response {
    Json(json!({ "collections": [], "total": 0 })).into_response()
}

async fn select_optimal(
    State(shared): State<Shared>,
    Path(collection): Path<String>,
    AxumQuery(query): AxumQuery<Query>,
) -> Answer {
    rpo::select(&shared, &collection, &query, false).map(Json)
}

async fn select_from_list(
    State(shared): State<Shared>,
    Path(collection): Path<String>,
    AxumQuery(query): AxumQuery<Query>,
) -> Answer {
    rpo::select(&shared, &collection, &query, true).map(Json)
}
