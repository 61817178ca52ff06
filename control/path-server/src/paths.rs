//! The route `/graphs/{g}/shortest_path` and the routes below it.

use serde_json::{Map, Value, json};

use crate::answers::{self, NO_PATH, not_found};
use crate::load::{Book, Pair};
use crate::parameters::{Answer, Refusal};
use crate::request::RouteRequest;
use crate::search::{GraphPath, GraphPaths, Weight};
use crate::store::{Document, Store, text};

fn one<'a>(request: &'a RouteRequest<'_>, weight: Weight) -> Result<Option<GraphPath<'a>>, Refusal> {
    let graph = request.graph(request.values.integer("algo"))?;
    Ok(graph.shortest(request.values.text("source"), request.values.text("destination"), weight))
}

pub fn shortest(request: &RouteRequest<'_>) -> Answer {
    let Some(walk) = one(request, Weight::Hops)? else { return Ok(not_found(NO_PATH)) };
    Ok(Value::Object(answers::one(&walk, &request.asked(), None, false)))
}

pub fn latency(request: &RouteRequest<'_>) -> Answer {
    let Some(walk) = one(request, Weight::Attribute("latency"))? else { return Ok(not_found(NO_PATH)) };
    // With an algorithm, edges without the attribute are removed before the sum; without one, they add nothing to it.
    let some = if request.values.integer("algo") == Some(0) {
        !walk.edges.is_empty()
    } else {
        numbers(&walk.edges, "latency").next().is_some()
    };
    let total = if some { sum(&walk.edges, "latency") } else { Value::Null };
    Ok(Value::Object(answers::one(&walk, &request.asked(), Some(("total_latency", total)), false)))
}

pub fn utilization(request: &RouteRequest<'_>) -> Answer {
    let Some(walk) = one(request, Weight::Attribute("percent_util_out"))? else { return Ok(not_found(NO_PATH)) };
    let average = ("average_utilization", average(&walk.edges, "percent_util_out"));
    let mut answer = answers::one(&walk, &request.asked(), Some(average), false);
    // Only in this route the algorithm is the last key.
    if let Some(algo) = answer.shift_remove("algo") {
        answer.insert("algo".to_owned(), algo);
    }
    Ok(Value::Object(answer))
}

fn numbers<'r>(edges: &'r [&Document], attribute: &'r str) -> impl Iterator<Item = &'r Value> {
    edges.iter().filter_map(move |edge| edge.get(attribute).filter(|value| value.is_number()))
}

/// Sums an attribute. The sum of integers is an integer.
pub fn sum(edges: &[&Document], attribute: &str) -> Value {
    let whole = numbers(edges, attribute).try_fold(0i64, |sum, value| sum.checked_add(value.as_i64()?));
    whole.map_or_else(|| json!(numbers(edges, attribute).filter_map(Value::as_f64).sum::<f64>()), Value::from)
}

/// Averages an attribute over the edges that have it; null if no edge has it.
#[allow(clippy::cast_precision_loss, reason = "a path has few edges")]
pub fn average(edges: &[&Document], attribute: &str) -> Value {
    let values: Vec<f64> = numbers(edges, attribute).filter_map(Value::as_f64).collect();
    if values.is_empty() { Value::Null } else { json!(values.iter().sum::<f64>() / values.len() as f64) }
}

/// A path that is found but not yet allocated.
pub struct Allocation {
    answer: Map<String, Value>,
    pair: Pair,
    edges: Vec<String>,
}

/// Finds the path for `/load`, the only GET that writes. Returns `None` if there is no path.
pub fn lightest(request: &RouteRequest<'_>) -> Result<Option<Allocation>, Refusal> {
    let Some(walk) = one(request, Weight::Attribute("load"))? else { return Ok(None) };
    let average = ("average_load", average(&walk.edges, "load"));
    let pair = Pair {
        graph: request.name.to_owned(),
        source: request.values.text("source").to_owned(),
        destination: request.values.text("destination").to_owned(),
    };
    let edges = walk.edges.iter().filter_map(|edge| text(edge, "_id").map(str::to_owned)).collect();
    Ok(Some(Allocation { answer: answers::one(&walk, &request.asked(), Some(average), true), pair, edges }))
}

impl Allocation {
    /// Books the allocation, and returns the answer.
    pub fn write(self, book: &mut Book, store: &mut Store) -> Value {
        let Self { mut answer, pair, edges } = self;
        answer.insert("load_data".to_owned(), book.allocate(store, pair, edges));
        Value::Object(answer)
    }
}

fn warn_if_cut(graph_paths: &GraphPaths<'_>, request: &RouteRequest<'_>) {
    if graph_paths.is_cut {
        let (source, destination) = (request.values.text("source"), request.values.text("destination"));
        tracing::warn!("{source} to {destination}: too many partial paths, the answer is not complete");
    }
}

/// Adds `"truncated": true` to an answer whose lists are not complete.
pub fn say_if_cut(mut answer: Value, is_cut: bool) -> Value {
    if let Some(answer) = answer.as_object_mut().filter(|_| is_cut) {
        answer.insert("truncated".to_owned(), json!(true));
    }
    answer
}

pub fn best_paths(request: &RouteRequest<'_>) -> Answer {
    let limit = request.values.count("limit")?;
    let graph = request.unchecked_graph(request.values.integer("algo"))?;
    let graph_paths = graph.by_hops(request.values.text("source"), request.values.text("destination"), limit);
    warn_if_cut(&graph_paths, request);
    if graph_paths.found.is_empty() {
        return Ok(not_found("No paths found between specified nodes"));
    }
    let asked = request.asked();
    let paths: Vec<_> = graph_paths.found.iter().map(|walk| answers::one_of_best(walk, &asked)).collect();
    let answer = json!({
        "found": true, "total_paths_found": paths.len(), "direction": asked.direction, "algo": asked.algo, "paths": paths,
    });
    Ok(say_if_cut(answer, graph_paths.is_cut))
}

/// Answers `next-best-path`. In this route the algorithm selects SIDs and not paths.
pub fn next_best_path(request: &RouteRequest<'_>) -> Answer {
    let (source, destination) = (request.values.text("source"), request.values.text("destination"));
    let limits = (request.values.count("same_hop_limit")?, request.values.count("plus_one_limit")?);
    let graph = request.unchecked_graph(Some(0))?;
    // Without a path Jalapeno has a hop count of -1 and uses it as a range of depths.
    let depth = || Refusal::Internal("the database refuses the depth range -1..-1".to_owned());
    let shortest = graph.shortest(source, destination, Weight::Hops).ok_or_else(depth)?;
    let base = shortest.hops();
    let asked = request.asked();
    let alternatives = |limit, hops| -> (Vec<Value>, bool) {
        let graph_paths = graph.of_hops(source, destination, limit, hops);
        warn_if_cut(&graph_paths, request);
        (graph_paths.found.iter().map(|walk| answers::alternative(walk, &asked)).collect(), graph_paths.is_cut)
    };
    let ((same, same_cut), (plus_one, plus_one_cut)) = (alternatives(limits.0, base), alternatives(limits.1, base + 1));
    let answer = json!({
        "found": true,
        "algo": asked.algo,
        "shortest_path": answers::base(&shortest, &asked),
        "same_hopcount_paths": same,
        "plus_one_hopcount_paths": plus_one,
        "summary": {
            "base_hopcount": base,
            "same_hopcount_alternatives": same.len(),
            "plus_one_hopcount_alternatives": plus_one.len(),
        },
    });
    Ok(say_if_cut(answer, same_cut || plus_one_cut))
}

/// Answers `sovereignty`. It excludes edges whose country codes, as text, contain an excluded code. Jalapeno excludes
/// paths in the same way; the result is equal.
pub fn sovereignty(request: &RouteRequest<'_>) -> Answer {
    let written = request.values.text("excluded_countries");
    let excluded: Vec<String> = written.split(',').map(|code| code.trim().to_uppercase()).collect();
    let touches = |edge: &Document| {
        let codes = edge.get("country_codes").map(Value::to_string).unwrap_or_default();
        excluded.iter().any(|code| codes.contains(code.as_str()))
    };
    let graph = request.unchecked_graph(request.values.integer("algo"))?.without(touches);
    let walk = graph.shortest(request.values.text("source"), request.values.text("destination"), Weight::Hops);
    let Some(walk) = walk else {
        return Ok(not_found(&format!("{NO_PATH} avoiding countries: {written}")));
    };
    let asked = request.asked();
    let mut answer = Map::from_iter([("found".to_owned(), json!(true))]);
    answer.extend(answers::without_edges(&walk));
    answer.insert("direction".to_owned(), json!(asked.direction));
    answer.insert("countries_traversed".to_owned(), answers::countries(&walk));
    answer.insert("excluded_countries".to_owned(), json!(excluded));
    answer.insert("algo".to_owned(), json!(asked.algo));
    answer.insert("srv6_data".to_owned(), crate::srv6::data(&walk.vertices, asked.algo, asked.edition));
    Ok(Value::Object(answer))
}
