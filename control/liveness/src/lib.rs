//! Path probes: packets that go along a path of a steered prefix and come back to this node, so that nobody else has to
//! answer them.
//!
//! ```text
//! carrier of a path ──► loop_along ──► carrier that comes back
//! Watch::due ──► Probe::packet ──► next hop of the path ──► ... ──► this node ──► Seal::open ──► Watch::answered
//!                                              Watch::tick: probes without an answer ──► State of each loop ──► usable
//! ```
//!
//! The payload is that of a STAMP Session-Sender in authenticated mode (RFC 8762 section 4.2.2). Nothing here has a clock or
//! does I/O: times are handed in, in nanoseconds.
#![forbid(unsafe_code)]

mod carrier;
mod packet;
mod reject;
mod round_trips;
mod stamp;
mod watch;

#[cfg(test)]
mod tests;

pub use carrier::{NoLoop, Turn, loop_along};
pub use packet::Probe;
pub use reject::{Refused, Reject};
pub use round_trips::RoundTrips;
pub use stamp::{LENGTH, Message, Seal};
pub use watch::{Lane, LaneId, Settings, State, Watch};
