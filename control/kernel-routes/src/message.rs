//! Splits datagrams of rtnetlink into messages, and makes the requests for dumps.
//!
//! ```text
//!  0        4      6       8          12     16
//! ┌────────┬──────┬───────┬──────────┬──────┬────────────────────┬─────┐
//! │ length │ type │ flags │ sequence │ port │ head, attributes   │ pad │ next message ...
//! └────────┴──────┴───────┴──────────┴──────┴────────────────────┴─────┘
//! ```

use crate::Message;
use crate::attribute::{INET, INET6, u16_at, u32_at};
use crate::next_hop;
use crate::route;
use crate::rtnetlink::message::{
    DEL_NEXT_HOP, DEL_ROUTE, DEL_RULE, GET_NEXT_HOP, GET_ROUTE, GET_RULE, NEW_NEXT_HOP, NEW_ROUTE, NEW_RULE,
};
use crate::rule;

const HEAD: usize = 16;
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// `NLM_F_DUMP_INTR`: what is dumped has changed during the dump.
const DUMP_INTERRUPTED: u16 = 0x10;
const REQUEST: u16 = 0x1;
const DUMP: u16 = 0x300;

/// Multicast groups to subscribe to, as `nl_groups`: `RTNLGRP_IPV4_ROUTE`, `_IPV4_RULE`, `_IPV6_ROUTE`, `_IPV6_RULE`,
/// `_NEXTHOP`.
pub const MULTICAST_GROUPS: u32 = 1 << 6 | 1 << 7 | 1 << 10 | 1 << 18 | 1 << 31;

/// Iterates over the messages of one datagram that are about routes and skips all others.
pub struct Messages<'a> {
    rest: &'a [u8],
    /// Sequence number that messages must have, if set.
    sequence: Option<u32>,
    /// Whether a message reported that the dump is not consistent because of a change during the dump.
    pub interrupted: bool,
}

impl<'a> Messages<'a> {
    /// Reads a datagram of notifications.
    pub const fn new(datagram: &'a [u8]) -> Self {
        Self { rest: datagram, sequence: None, interrupted: false }
    }

    /// Reads the answers to the request with this sequence number. Answers to earlier requests are skipped, for example
    /// those to a request that was abandoned.
    pub const fn answers(datagram: &'a [u8], sequence: u32) -> Self {
        Self { rest: datagram, sequence: Some(sequence), interrupted: false }
    }
}

impl Iterator for Messages<'_> {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        loop {
            let length = usize::try_from(u32_at(self.rest, 0)?).ok()?;
            let (kind, flags) = (u16_at(self.rest, 4)?, u16_at(self.rest, 6)?);
            let sequence = u32_at(self.rest, 8)?;
            let body = self.rest.get(HEAD..length)?;
            self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            if self.sequence.is_some_and(|wanted| wanted != sequence) {
                continue;
            }
            self.interrupted |= flags & DUMP_INTERRUPTED != 0;
            let message = match kind {
                NEW_ROUTE | DEL_ROUTE => route::read(body, kind == NEW_ROUTE, flags).map(Message::Route),
                NEW_NEXT_HOP | DEL_NEXT_HOP => next_hop::read(body, kind == NEW_NEXT_HOP).map(Message::NextHop),
                NEW_RULE | DEL_RULE => rule::read(body).map(Message::Rule),
                DONE => Some(Message::Done),
                ERROR => u32_at(body, 0).map(|error| Message::Refused(error.cast_signed().saturating_neg())),
                _ => None,
            };
            if message.is_some() {
                return message;
            }
        }
    }
}

/// Makes the requests for dumps, to be sent in this order because routes refer to next-hop objects, and one at a time.
/// The answers have the same sequence number.
pub fn dump_requests(sequence: u32) -> [Vec<u8>; 5] {
    [
        dump_request(GET_NEXT_HOP, 0, 8, sequence),
        dump_request(GET_RULE, INET, 12, sequence),
        dump_request(GET_RULE, INET6, 12, sequence),
        dump_request(GET_ROUTE, INET, 12, sequence),
        dump_request(GET_ROUTE, INET6, 12, sequence),
    ]
}

/// Makes a request for a dump. The family is the first byte of the head of every message type.
fn dump_request(kind: u16, family: u8, head: usize, sequence: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + head);
    bytes.extend(u32::try_from(HEAD + head).unwrap_or_default().to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((REQUEST | DUMP).to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.push(family);
    bytes.resize(HEAD + head, 0);
    bytes
}
