//! `srv6_data`: the carrier as Jalapeno writes it, by joining text, and beside it the carriers that can be used.

use serde_json::{Value, json};
use srv6d_controller::compose::{Options, compose};
use srv6d_controller::document::{Topology, Vertex};
use srv6d_controller::sid::Family;

use crate::Edition;
use crate::store::{Document, text};

/// Written where no SID says a block.
const NO_BLOCK: &str = "fc00:0:";

/// `algo` of one entry of `sids`, nested or flat.
pub fn algo_of(sid: &Value) -> Option<i64> {
    let nested = sid.get("srv6_endpoint_behavior");
    nested.and_then(|behavior| behavior.get("algo")).or_else(|| sid.get("algo")).and_then(Value::as_i64)
}

/// The first SID of a vertex with that algorithm. A SID without a behaviour counts for 0, in the newer edition only.
fn sid_of(vertex: &Document, algo: i64, edition: Edition) -> Option<&str> {
    let sids = vertex.get("sids").and_then(Value::as_array)?;
    let wanted = |sid: &&Value| match sid.get("srv6_endpoint_behavior") {
        Some(_) => algo_of(sid) == Some(algo),
        None => edition == Edition::January2026 && algo == 0,
    };
    sids.iter().find(wanted)?.get("srv6_sid")?.as_str()
}

/// `srv6_data` of a walk along these vertices.
pub fn data(vertices: &[&Document], algo: i64, edition: Edition) -> Value {
    let skipped = usize::from(edition == Edition::January2026);
    let sids: Vec<&str> = vertices.iter().skip(skipped).filter_map(|vertex| sid_of(vertex, algo, edition)).collect();
    let block = sids.first().map_or_else(|| NO_BLOCK.to_owned(), |sid| block_text(sid));
    // A SID that spells the block in another way is left out of the carrier.
    let parts = sids.iter().filter_map(|sid| sid.strip_prefix(block.as_str())?.split(':').next());
    let usid = format!("{block}{}::", parts.collect::<Vec<_>>().join(":"));
    let mut data = json!({ "srv6_sid_list": sids, "srv6_usid": usid, "usid_block": block, "algo": algo });
    if let (Some(carriers), Some(data)) = (carriers(vertices, algo), data.as_object_mut()) {
        data.insert("carriers".to_owned(), json!(carriers));
    }
    data
}

/// The first two groups, as text.
fn block_text(sid: &str) -> String {
    let mut groups = sid.split(':');
    format!("{}:{}:", groups.next().unwrap_or_default(), groups.next().unwrap_or_default())
}

/// Proper carriers for IPv6 inside; `None`: none can be made.
fn carriers(vertices: &[&Document], algo: i64) -> Option<Vec<String>> {
    let read = |document: &&Document| Vertex::read(&Value::Object((*document).clone()));
    let vertices: Vec<Vertex> = vertices.iter().map(read).collect::<Option<_>>()?;
    let walk: Vec<&Vertex> = vertices.iter().collect();
    let options = Options { algo: u8::try_from(algo).ok()?, family: Family::V6, strict: false, function: None };
    let composed = compose(&walk, &Topology::default(), &options).ok()?;
    Some(composed.segments.iter().map(ToString::to_string).collect())
}

/// Name of a vertex, for messages.
pub fn name(vertex: &Document) -> &str {
    text(vertex, "name").or_else(|| text(vertex, "_key")).unwrap_or_default()
}
