//! A second SRv6 forwarder, written from the RFCs and as plainly as they are: linear search, owned packets, no templates.
//!
//! It exists to disagree with the fast one. Both get the same [`Desired`] state and the same frame, and must come to the
//! same verdict with the same bytes. It takes nothing from the fast path but its input types, its verdicts and, because
//! any well-spread hash would do, the hash that becomes the flow label.
//!
//! ```text
//! frame ─ enter.rs ─► admitted ─ forward.rs ─► look up (lookup.rs) ─┬─ SID (endpoint.rs) ── shifted, taken off: again
//!          packet.rs: owned headers                ▲                 ├─ steer (encap.rs) ─┐
//!                                                  └─────────────────┤                    ├─► leave.rs ─► frame
//!                                      errors and pings: icmp.rs     └─ route ────────────┘
//! ```
//!
//! Where flows are spread over several ways, any way is right: [`outcomes`] returns one outcome for each.
#![forbid(unsafe_code)]

mod choices;
mod encap;
mod endpoint;
mod enter;
mod forward;
mod icmp;
mod leave;
mod lookup;
mod options;
mod packet;
mod scope;

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::Ipv6Net;
use srv6d_srv6::Verdict;
use srv6d_srv6::model::Desired;

use crate::choices::Choices;

/// Packets and bytes by what counted them.
pub type Counts = BTreeMap<Counted, (u64, u64)>;

/// What counts packets, besides the verdict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counted {
    /// A SID: packets that went on, with their IP length as received.
    Sid(Ipv6Net),
    /// A path: packets encapsulated, with their outer length.
    Path(String),
    /// A next hop, by the name of the port: packets sent, with their IP length.
    NextHop(String, IpAddr),
    /// Decapsulated packets with an outer ECN of ECT and an inner one of Not-ECT (RFC 6040 section 4.2).
    EcnUnused,
}

/// What became of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Where it ended.
    pub verdict: Verdict,
    /// The bytes that were sent; as received when it was dropped or held.
    pub frame: Vec<u8>,
    /// Empty when it was dropped, held or answered with an error.
    pub counts: Counts,
}

/// Every right outcome for a frame that arrives on the device of port `port`: several where flows are spread.
///
/// There is no rate limit on ICMP errors, except that a rate of 0 is silence.
pub fn outcomes(desired: &Desired, port: u16, frame: &[u8]) -> Vec<Outcome> {
    let mut all = Vec::new();
    let mut choices = Choices::default();
    loop {
        let outcome = forward::receive(desired, &mut choices, port, frame);
        if !all.contains(&outcome) {
            all.push(outcome);
        }
        match choices.next() {
            Some(next) => choices = next,
            None => return all,
        }
    }
}
