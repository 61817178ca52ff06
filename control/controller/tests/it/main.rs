//! The tests of the controller clients: one program, so that it is linked once.
#![allow(missing_docs, reason = "tests")]
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
