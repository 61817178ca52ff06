//! Routes, next-hop objects and rules of the kernel: read from rtnetlink messages, and kept as further messages change
//! them. No sockets: whoever has one hands over bytes.
//!
//! ```text
//! bytes ─► Messages ─► Message::{Route, NextHop, Rule} ─► Routes::apply ─► Effect: nothing | these prefixes | dump again
//! ```

#![forbid(unsafe_code)]

mod attribute;
mod encap;
mod message;
mod model;
mod next_hop;
mod route;
mod routes;
pub mod rtnetlink;
mod rule;
pub mod seg6;
mod withdrawn;

pub use message::{MULTICAST_GROUPS, Messages, dump_requests};
pub use model::{KernelAction, KernelEncap, KernelHop, KernelRoute, KernelSid, KernelSidAction};
pub use next_hop::{NextHopMessage, NextHops};
pub use route::{RouteKey, RouteMessage};
pub use routes::{Effect, Routes};
pub use rule::{KernelRule, RuleAction};
pub use withdrawn::Withdrawn;

/// What a message of rtnetlink says, as far as it is about routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// `RTM_NEWROUTE`, `RTM_DELROUTE`.
    Route(RouteMessage),
    /// `RTM_NEWNEXTHOP`, `RTM_DELNEXTHOP`.
    NextHop(NextHopMessage),
    /// `RTM_NEWRULE`, `RTM_DELRULE`: which one does not matter, rules are few and read anew.
    Rule(KernelRule),
    /// `NLMSG_DONE`: the end of a dump.
    Done,
    /// `NLMSG_ERROR` with the error number, positive; 0: done as asked.
    Refused(i32),
}

impl Message {
    /// Returns true if, after this event, a table may have fewer entries than before.
    ///
    /// A dump of IPv6 routes that is resumed after a change counts entries from the root of the tree (`fib6_dump_table`):
    /// with one less in front, it leaves out one that is there, and no `NLM_F_DUMP_INTR` tells.
    pub const fn may_remove(&self) -> bool {
        match self {
            Self::Route(route) => !route.is_new || route.replaces,
            Self::NextHop(next_hop) => next_hop.is.is_none(),
            Self::Rule(_) => true,
            Self::Done | Self::Refused(_) => false,
        }
    }
}
