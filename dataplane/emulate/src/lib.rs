//! An emulated port: a link with a rate, a queue in front of it, ECN marks, a delay and losses.
//!
//! ```text
//! offer ─► refused: port_down, queue_full, wred ─► onto the link, at the rate ─► lost: wire_loss ─► delay ─► release
//! ```
//!
//! It has no clock and does no I/O: the caller hands in the time and the random numbers, so a worker and a simulator
//! count the same packets alike. All arithmetic is in integers. The remainder of a division is carried to the next
//! packet, so a million packets take exactly as long as their bytes do at the rate.
#![forbid(unsafe_code)]

mod draws;
mod emulation;
mod port;

pub use draws::Draws;
pub use emulation::{Chance, Ecn, Emulation, LEAST_RATE, MOST_DELAY, MOST_OVERHEAD, MOST_PACKETS, MOST_RATE, NonEct};
pub use port::{Counts, EmulatedLink, Offered, Refusal, Released, Time};
