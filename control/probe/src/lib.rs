//! Ping and traceroute along SRv6 carriers.
//!
//! A router on the way shifts the carrier, so the packet that an ICMP error quotes has another destination than the one
//! that was sent. Answers are therefore recognized by a random number in the probe's payload, and the quoted destination says
//! how many SIDs were used up.
//!
//! ```text
//! way       the destinations that a carrier goes through, one for each SID that is used up
//! probe     bytes of a probe        answer    bytes of an ICMPv6 message -> which probe, which node, which destination
//! known     nodes and SIDs that somebody knows: what a node has used up
//! network   the two raw sockets     ping, trace    rounds of probes over any network
//! ```

#![forbid(unsafe_code)]

mod answer;
mod known;
mod network;
mod ping;
mod probe;
mod trace;
mod way;

pub use answer::{Answer, Kind};
pub use known::{Known, KnownNode, KnownSid, Used};
pub use network::{Network, NetworkError, RawNetwork, Received, source_towards};
pub use ping::{Echo, Ping, Statistics, ping};
pub use probe::{MAX_PAYLOAD, Payload, Probe, TOKEN};
pub use trace::{Hop, Ran, SILENT_HOPS, Trace, trace};
pub use way::{State, Way, WayError};
