//! Captures of several interfaces, as pcapng.
//!
//! ```text
//! streams of daemons, of tcpdump ─► read ─► packets ─► Sorter ─► Filter ─► Stream, or a ring of files of them
//! ```

#![forbid(unsafe_code)]

mod collect;
mod filter;
mod read;
mod ring;
mod sorter;
mod stream;

use std::time::Duration;

pub use collect::{Collector, Output, Wanted};
pub use filter::{Filter, FilterError};
pub use read::{ReadError, nth, read};
pub use ring::Ring;
pub use sorter::Sorter;
pub use stream::Stream;

/// Length of the longest packet that is written whole. It is the limit of tcpdump, too.
const SNAPLEN: u32 = 262_144;
/// Largest number of interfaces of a stream.
const MOST_INTERFACES: usize = 1024;

/// A packet of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// Name of the interface.
    pub interface: String,
    /// Time since 1970-01-01 UTC.
    pub time: Duration,
    /// Whether it was sent; otherwise it was received. `None`: nobody says.
    pub sent: Option<bool>,
    /// Its first bytes, from the Ethernet header on.
    pub bytes: Vec<u8>,
    /// Length of the whole packet in bytes.
    pub length: usize,
    /// What is to be said about it.
    pub comment: Option<String>,
}
