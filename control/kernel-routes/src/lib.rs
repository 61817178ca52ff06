//! Routes, next-hop objects and rules of the kernel: read from rtnetlink messages, and updated by later messages. This
//! crate opens no socket; the caller passes in the bytes it received.
//!
//! ```text
//! bytes ─► Messages ─► Message::{Route, NextHop, Rule} ─► Routes::apply ─► changed prefixes, and Effect: kept | dump again
//! ```

#![forbid(unsafe_code)]

mod attribute;
mod encap;
mod entry;
mod message;
mod next_hop;
mod route;
mod routes;
pub mod rtnetlink;
mod rule;
pub mod seg6;
mod withdrawn;

pub use entry::{KernelAction, KernelEncap, KernelHop, KernelRoute, KernelSid, KernelSidAction};
pub use message::{MULTICAST_GROUPS, Messages, dump_requests};
pub use next_hop::{NextHopMessage, NextHops};
pub use route::{RouteKey, RouteMessage};
pub use routes::{Effect, Routes};
pub use rule::{KernelRule, RuleAction};
pub use withdrawn::Withdrawn;

/// A message of rtnetlink that is about routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A route was added, replaced or deleted (`RTM_NEWROUTE`, `RTM_DELROUTE`).
    Route(RouteMessage),
    /// A next-hop object was added, replaced or deleted (`RTM_NEWNEXTHOP`, `RTM_DELNEXTHOP`).
    NextHop(NextHopMessage),
    /// `RTM_NEWRULE`, `RTM_DELRULE`. There are few rules, so any such message causes a new dump; whether the rule is
    /// new does not matter.
    Rule(KernelRule),
    /// End of a dump (`NLMSG_DONE`).
    Done,
    /// Answer to a request (`NLMSG_ERROR`) with a positive error number; 0 means success.
    Refused(i32),
}

impl Message {
    /// Returns true if, after this event, a table may have fewer entries than before.
    ///
    /// An IPv6 route dump that the kernel resumes after a change finds its place by counting entries from the root of
    /// the tree (`fib6_dump_table`). If an entry in front of that place has been removed, the dump leaves out an
    /// existing route, and no `NLM_F_DUMP_INTR` reports it.
    pub const fn may_remove(&self) -> bool {
        match self {
            Self::Route(route) => !route.is_new || route.replaces,
            Self::NextHop(next_hop) => next_hop.is.is_none(),
            Self::Rule(_) => true,
            Self::Done | Self::Refused(_) => false,
        }
    }
}
