//! A second SRv6 forwarder, written directly from the RFCs: linear search, owned packets, no templates.
//!
//! Its purpose is to disagree with the fast one where one of them is wrong. Both get the same [`Desired`] state and the
//! same frame, and must come to the same verdict with the same bytes. This forwarder shares nothing with the fast path
//! except its input types, its verdicts, and the hash that becomes the flow label (any well-spread hash would be valid
//! there).
//!
//! ```text
//! frame ─ enter.rs ─► admitted ─ forward.rs ─► look up (lookup.rs) ─┬─ SID (endpoint.rs) ── shifted, taken off: again
//!          packet.rs: owned headers                ▲                 ├─ steer (encap.rs) ─┐
//!                                                  └─────────────────┤                    ├─► leave.rs ─► frame
//!                                      errors and pings: icmp.rs     └─ route ────────────┘
//! ```
//!
//! Where flows are spread over several next hops or paths, any choice is right: [`outcomes`] returns one outcome for
//! each.
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
use srv6d_srv6::desired::Desired;

use crate::choices::Choices;

/// Number of packets and bytes, by counter.
pub type Counts = BTreeMap<Counted, (u64, u64)>;

/// A counter of packets, besides those that the verdict implies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counted {
    /// Counter of a SID: packets that it processed and sent on, with their IP length as received.
    Sid(Ipv6Net),
    /// Counter of a path: packets encapsulated, with their outer length.
    Path(String),
    /// Counter of a next hop, given by name of the port and address: packets sent, with their IP length.
    NextHop(String, IpAddr),
    /// Counter of decapsulated packets with an outer ECN of ECT and an inner one of Not-ECT (RFC 6040 section 4.2).
    EcnUnused,
}

/// Result of forwarding one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Verdict of the frame.
    pub verdict: Verdict,
    /// Bytes that were sent; for a dropped or held frame, the bytes that were received.
    pub frame: Vec<u8>,
    /// Counters that grew; empty if the frame was dropped, held or answered with an error.
    pub counts: Counts,
}

/// Returns every right outcome for a frame that arrives on the device of port `port`: several if flows are spread.
///
/// ICMP errors are not limited in rate, except that a configured rate of 0 suppresses them.
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
