//! The tests of the controller clients, in one program so that it is linked only once.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed test may panic")]
mod answers;
mod compose;
mod documents;
mod garbage;
mod hostile;
mod jalapeno;
mod outages;
mod serial_api;
mod support;
mod syd;
mod thousand_peers;
mod tls;
mod walk;
