//! The recorded state of a real daemon from the files `recorded/TOPIC.json`.

use srv6d_api::jobs::JobCounts;
use srv6d_api::state::{EmulatedStatus, SourceView, State};
use srv6d_api::{Response, decode};

macro_rules! recorded {
    ($topic:literal, $variant:ident) => {
        match decode::<Response>(include_str!(concat!("../recorded/", $topic, ".json"))) {
            Ok(Response::$variant(value)) => value,
            other => unreachable!("{other:?}"),
        }
    };
}

/// Returns the recorded state with these sources.
pub fn state(sources: Vec<SourceView>) -> State {
    State {
        counters: *recorded!("counters", Counters),
        workers: recorded!("workers", Workers),
        sids: recorded!("sids", Sids),
        paths: recorded!("paths", Paths),
        neighbors: recorded!("neighbors", Neighbors),
        generation: *recorded!("generation", Generation),
        sources,
        glb: Some(*recorded!("glb", Glb)),
        probes: Some(*recorded!("probes", Probes)),
        jobs: vec![JobCounts { id: "llm".to_owned(), ranks: 2, in_force: 13, waiting: 1, refused: 0, is_stale: true }],
    }
}

/// Returns the recorded row of an emulated port.
pub fn emulated() -> EmulatedStatus {
    let ports = recorded!("ports", Ports);
    ports.into_iter().find_map(|port| port.emulated).unwrap_or_else(|| unreachable!("no port is emulated"))
}
