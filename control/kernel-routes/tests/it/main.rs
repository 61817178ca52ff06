//! The tests of the routes kept from netlink: one program, so that it is linked once.
#![allow(missing_docs, reason = "tests")]
#[path = "support/netlink.rs"]
mod netlink;

mod hostile;
mod kept;
mod messages;
mod withdrawn;
