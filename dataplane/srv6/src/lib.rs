//! SRv6 forwarding: SIDs, carriers, tables, and what becomes of a packet.
//!
//! No sockets, no clock, no configuration text: bytes and a table snapshot in, a verdict out.
#![forbid(unsafe_code)]

pub mod carrier;
pub mod model;
