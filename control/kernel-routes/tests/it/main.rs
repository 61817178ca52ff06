//! The integration tests of the kernel's routes, in one program so that it is linked once.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed test may panic")]
#[path = "support/netlink.rs"]
mod netlink;

mod hostile;
mod kept;
mod messages;
mod withdrawn;
