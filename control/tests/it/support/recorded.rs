//! The state of a daemon that once ran, as `recorded/TOPIC.json` has it.

use srv6d::api::state::{SourceView, State};
use srv6d::api::{Response, decode};

macro_rules! recorded {
    ($topic:literal, $variant:ident) => {
        match decode::<Response>(include_str!(concat!("../recorded/", $topic, ".json"))) {
            Ok(Response::$variant(value)) => value,
            other => unreachable!("{other:?}"),
        }
    };
}

/// That state, with these sources.
pub fn state(sources: Vec<SourceView>) -> State {
    State {
        counters: *recorded!("counters", Counters),
        sids: recorded!("sids", Sids),
        routes: recorded!("routes", Routes),
        paths: recorded!("paths", Paths),
        neighbors: recorded!("neighbors", Neighbors),
        generation: *recorded!("generation", Generation),
        sources,
    }
}
