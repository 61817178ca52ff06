//! The tests of the path server, in one program so that it is linked only once.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed test may panic")]
mod carriers;
mod docs;
mod extras;
mod faults;
mod hostile;
mod loads;
mod metrics;
mod openapi;
mod placement;
mod recorded;
mod routes_graphs;
mod routes_paths;
mod search;
mod square;
mod topology_file;
