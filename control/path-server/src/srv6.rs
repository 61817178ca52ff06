//! The object `srv6_data`: the carrier text that Jalapeno makes by joining texts, and in addition the carriers that can
//! be used.

use serde_json::{Value, json};
use srv6d_controller::compose::{Options, compose};
use srv6d_controller::document::{Topology, Vertex};
use srv6d_controller::sid::Family;

use crate::Edition;
use crate::store::Document;

/// Block text if no SID has one.
const NO_BLOCK: &str = "fc00:0:";

/// Returns the `algo` of one entry of `sids`.
pub fn algo_of(sid: &Value) -> Option<i64> {
    sid.get("srv6_endpoint_behavior")?.get("algo")?.as_i64()
}

/// Returns the first SID of a vertex with that algorithm. In the newer edition, a vertex without one has its first SID
/// without a behaviour.
fn sid_of(vertex: &Document, algo: Option<i64>, edition: Edition) -> Option<&str> {
    let sids = vertex.get("sids").and_then(Value::as_array)?;
    let of_algo = || sids.iter().find(|sid| algo.is_some() && algo_of(sid) == algo);
    let bare = || sids.iter().find(|sid| sid.get("srv6_endpoint_behavior").is_none());
    let sid = of_algo().or_else(|| if edition == Edition::January2026 { bare() } else { None });
    sid?.get("srv6_sid")?.as_str()
}

/// Returns `srv6_data` of a path over these vertices.
pub fn data(vertices: &[&Document], algo: Option<i64>, edition: Edition) -> Value {
    let skipped = usize::from(edition == Edition::January2026);
    let sids: Vec<&str> = vertices.iter().skip(skipped).filter_map(|vertex| sid_of(vertex, algo, edition)).collect();
    let block = block_text(sids.first().copied().unwrap_or_default());
    // A SID that writes the block in another way is missing in the carrier text.
    let parts = sids.iter().filter_map(|sid| sid.split(block.as_str()).nth(1)?.split(':').next());
    let usid = format!("{block}{}::", parts.collect::<Vec<_>>().join(":"));
    let mut data = json!({ "srv6_sid_list": sids, "srv6_usid": usid, "usid_block": block, "algo": algo });
    if let (Some(carriers), Some(data)) = (carriers(vertices, algo), data.as_object_mut()) {
        data.insert("carriers".to_owned(), json!(carriers));
    }
    data
}

/// Returns the first two groups of a SID as text.
fn block_text(sid: &str) -> String {
    let mut groups = sid.split(':');
    match (groups.next(), groups.next(), groups.next()) {
        (Some(first), Some(second), Some(_)) => format!("{first}:{second}:"),
        _ => NO_BLOCK.to_owned(),
    }
}

/// Returns the usable carriers for IPv6 inside, or `None` if none can be composed.
fn carriers(vertices: &[&Document], algo: Option<i64>) -> Option<Vec<String>> {
    let read = |document: &&Document| Vertex::read(&Value::Object((*document).clone()));
    let vertices: Vec<Vertex> = vertices.iter().map(read).collect::<Option<_>>()?;
    let walk: Vec<&Vertex> = vertices.iter().collect();
    let options = Options { algo: u8::try_from(algo?).ok()?, family: Family::V6, strict: false, function: None };
    let composed = compose(&walk, &Topology::default(), &options).ok()?;
    Some(composed.segments.iter().map(ToString::to_string).collect())
}
