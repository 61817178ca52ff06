//! Extension headers: finding them, checking them, and changing the SRH.

use std::net::IpAddr;

use srv6d_wire::srh::{self, Routing};
use srv6d_wire::{ipv6, protocol};

use super::admit::is_nowhere;
use super::{Out, SlowPath, SrhEdit, hop_limit, ip, tell};
use crate::icmp::Notice;
use crate::reason::DropReason;
use crate::trail::Event;

/// Offset of Routing Type in any routing header.
pub(super) const ROUTING_TYPE: usize = 2;
const PAD1: u8 = 0;
const PADN: u8 = 1;

/// A position in a chain of IPv6 headers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    pub(super) next_header: u8,
    pub(super) at: usize,
    /// Offset of the byte that names `next_header`.
    pub(super) named_at: usize,
}

/// The header at which a walk over extension headers stops.
pub(super) enum Stop<'f> {
    Routing(Cursor, Routing<'f>),
    Upper(u8, usize),
    /// A fragment of the payload, with its protocol.
    Fragment(u8),
}

impl<'f> SlowPath<'_, 'f, '_> {
    pub(super) fn segments_left(&self, cursor: Cursor, routing: Routing<'_>) -> u8 {
        match self.progress.layer.srh {
            SrhEdit::SegmentsLeft { at, value } if at == cursor.at => value,
            _ => routing.segments_left(),
        }
    }

    /// Advances to the next segment (RFC 8986 section 4.1, S05 to S15).
    pub(super) fn next_segment(&mut self, cursor: Cursor, routing: Routing<'_>, psp: bool) -> Result<(), Out> {
        if routing.routing_type() != srh::TYPE {
            return Err(self.bad_srh(cursor.at + ROUTING_TYPE));
        }
        if self.progress.layer.hop_limit <= 1 {
            return Err(hop_limit());
        }
        let left = self.segments_left(cursor, routing);
        let entries = routing.ext_len() / 2;
        let fits = if self.tables.policy.srh_lenient {
            left <= entries
        } else {
            routing.last_entry() < entries && left <= routing.last_entry() + 1
        };
        let segment = if fits { routing.segment(left - 1) } else { None };
        let Some(segment) = segment else {
            return Err(self.bad_srh(cursor.at + srh::SEGMENTS_LEFT));
        };
        self.decrement_hop_limit()?;
        self.progress.layer.destination = segment;
        self.note(|| Event::NextSegment);
        self.edit_srh(if psp && left == 1 {
            removed(cursor, routing)
        } else {
            SrhEdit::SegmentsLeft { at: cursor.at, value: left - 1 }
        })?;
        self.check_next_destination()
    }

    /// Handles a packet to an address of the node that is no SID, which ends the list of an SRH (RFC 8754 section
    /// 4.3.2). The kernel judges everything else, including errors in front of the SRH.
    pub(super) fn for_this_node(&self) -> Out {
        if !self.progress.layer.is_v6 {
            return Out::Kernel;
        }
        let mut cursor = self.first_header();
        while let Ok(Stop::Routing(at, routing)) = self.next_stop(cursor) {
            if self.segments_left(at, routing) > 0 {
                let is_srh = routing.routing_type() == srh::TYPE;
                return if is_srh { self.bad_srh(at.at + ROUTING_TYPE) } else { Out::Kernel };
            }
            cursor = Cursor { next_header: routing.next_header(), at: at.at + routing.len(), named_at: at.at };
        }
        Out::Kernel
    }

    /// Records a change of the SRH. A packet may have only one SRH that is changed, because RFC 8200 section 4.1 has
    /// no second one.
    pub(super) fn edit_srh(&mut self, edit: SrhEdit) -> Result<(), Out> {
        match (self.progress.layer.srh, edit) {
            (SrhEdit::None, _) => {}
            (
                SrhEdit::SegmentsLeft { at: known, .. } | SrhEdit::Remove { at: known, .. },
                SrhEdit::SegmentsLeft { at, .. } | SrhEdit::Remove { at, .. },
            ) if known == at => {}
            _ => return Err(Out::Drop(DropReason::SrhInvalid)),
        }
        self.progress.layer.srh = edit;
        Ok(())
    }

    pub(super) fn bad_srh(&self, at: usize) -> Out {
        tell(DropReason::SrhInvalid, Notice::ParameterProblem { code: 0, pointer: self.pointer(at) })
    }

    pub(super) fn pointer(&self, at: usize) -> u32 {
        u32::try_from(at - self.progress.layer.at).unwrap_or(u32::MAX)
    }

    /// Refuses a new destination, from a carrier, a segment list or an inner packet, that is never forwarded to.
    pub(super) fn check_next_destination(&self) -> Result<(), Out> {
        let destination = ip(self.progress.layer.is_v6, self.progress.layer.destination);
        let is_for_many_or_near = match destination {
            IpAddr::V6(address) => address.is_multicast() || address.is_unicast_link_local(),
            IpAddr::V4(address) => address.is_multicast() || address.is_broadcast() || address.is_link_local(),
        };
        let is_routable = !is_for_many_or_near && !is_nowhere(destination);
        if is_routable { Ok(()) } else { Err(Out::Drop(DropReason::NoRoute)) }
    }

    pub(super) fn first_header(&self) -> Cursor {
        Cursor {
            next_header: self.progress.layer.protocol,
            at: self.progress.layer.at + ipv6::LEN,
            named_at: self.progress.layer.at + ipv6::NEXT_HEADER,
        }
    }

    /// Returns the bytes of the packet from `at` to its own end, or to the end of the first buffer.
    pub(super) fn rest(&self, at: usize) -> Result<&'f [u8], Out> {
        let end = self.progress.layer.end.min(self.frame.len());
        self.frame.get(at..end).ok_or(Out::Drop(DropReason::Malformed))
    }

    /// Returns a byte of the packet.
    pub(super) fn byte(&self, at: usize) -> Option<u8> {
        self.rest(at).ok()?.first().copied()
    }

    /// Processes options up to the next routing or upper-layer header (RFC 8200 section 4).
    pub(super) fn next_stop(&self, mut cursor: Cursor) -> Result<Stop<'f>, Out> {
        loop {
            let bytes = self.rest(cursor.at)?;
            let len = match cursor.next_header {
                protocol::DEST_OPTIONS => self.options(cursor.at)?,
                protocol::HOP_BY_HOP if self.is_first(cursor) => self.options(cursor.at)?,
                protocol::ROUTING => {
                    let routing = Routing::parse(bytes).ok_or(Out::Drop(DropReason::Malformed))?;
                    match self.progress.layer.srh {
                        SrhEdit::Remove { at, len, .. } if at == cursor.at => len,
                        _ => return Ok(Stop::Routing(cursor, routing)),
                    }
                }
                protocol::FRAGMENT => {
                    let [next, _, offset, flags, ..] =
                        *bytes.first_chunk::<8>().ok_or(Out::Drop(DropReason::Malformed))?;
                    if u16::from_be_bytes([offset, flags]) & 0xfff9 != 0 {
                        return Ok(Stop::Fragment(next));
                    }
                    8
                }
                upper => return Ok(Stop::Upper(upper, cursor.at)),
            };
            let next_header = bytes.first().copied().ok_or(Out::Drop(DropReason::Malformed))?;
            cursor = Cursor { next_header, at: cursor.at + len, named_at: cursor.at };
        }
    }

    /// Processes the options of a packet whose carrier is shifted. A shift reads nothing else behind the fixed header.
    pub(super) fn options_in_front(&self) -> Result<(), Out> {
        let mut cursor = self.first_header();
        loop {
            let len = match (cursor.next_header, self.progress.layer.srh) {
                (protocol::DEST_OPTIONS, _) => self.options(cursor.at)?,
                (protocol::HOP_BY_HOP, _) if self.is_first(cursor) => self.options(cursor.at)?,
                (protocol::ROUTING, SrhEdit::Remove { at, len, .. }) if at == cursor.at => len,
                _ => return Ok(()),
            };
            let next_header = self.rest(cursor.at)?.first().copied().ok_or(Out::Drop(DropReason::Malformed))?;
            cursor = Cursor { next_header, at: cursor.at + len, named_at: cursor.at };
        }
    }

    /// Returns true directly behind the received IPv6 header, the only place of hop-by-hop options (RFC 8200 section
    /// 4.1).
    fn is_first(&self, cursor: Cursor) -> bool {
        cursor.at == self.progress.layer.at + ipv6::LEN
    }

    /// Processes the options header at `at`. Returns its length if no option forbids to continue (RFC 8200 section
    /// 4.2).
    pub(super) fn options(&self, at: usize) -> Result<usize, Out> {
        let bytes = self.rest(at)?;
        let len = bytes.get(1).map(|&units| 8 + usize::from(units) * 8).ok_or(Out::Drop(DropReason::Malformed))?;
        let options = bytes.get(2..len).ok_or(Out::Drop(DropReason::Malformed))?;
        let mut offset = 0;
        while let Some(&kind) = options.get(offset) {
            if kind == PAD1 {
                offset += 1;
                continue;
            }
            let data = options.get(offset + 1).copied().ok_or(Out::Drop(DropReason::Malformed))?;
            let next = offset + 2 + usize::from(data);
            if next > options.len() {
                return Err(Out::Drop(DropReason::Malformed));
            }
            if kind != PADN {
                self.unknown_option(kind, at + 2 + offset)?;
            }
            offset = next;
        }
        Ok(len)
    }

    fn unknown_option(&self, kind: u8, at: usize) -> Result<(), Out> {
        let report = tell(DropReason::OptionUnknown, Notice::ParameterProblem { code: 2, pointer: self.pointer(at) });
        match kind >> 6 {
            0 => Ok(()),
            1 => Err(Out::Drop(DropReason::OptionDiscard)),
            2 => Err(report),
            _ if ipv6::is_multicast(self.progress.layer.destination) => Err(Out::Drop(DropReason::OptionUnknown)),
            _ => Err(report),
        }
    }
}

/// Returns the change that removes the SRH.
pub(super) fn removed(cursor: Cursor, routing: Routing<'_>) -> SrhEdit {
    SrhEdit::Remove { at: cursor.at, len: routing.len(), named_at: cursor.named_at, next_header: routing.next_header() }
}
