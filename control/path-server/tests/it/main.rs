//! The tests of the path server: one program, so that it is linked once.
#![allow(missing_docs, reason = "tests")]
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
