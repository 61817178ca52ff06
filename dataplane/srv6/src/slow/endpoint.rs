//! The behaviours of this node's SIDs (RFC 8986, RFC 9800): shift, next segment, decapsulate.

use srv6d_wire::protocol;
use srv6d_wire::srh::{self};

use super::headers::{Cursor, ROUTING_TYPE, Stop, removed};
use super::{Egress, Layer, MAX_NESTING, Out, SlowPath, SrhEdit, ip, tell};
use crate::desired::{Csid, DscpMode, DtFamily};
use crate::icmp::Notice;
use crate::reason::DropReason;
use crate::tables::{Action, MAIN, Sid, VrfIndex};
use crate::trail::Event;

impl<'t> SlowPath<'t, '_, '_> {
    /// Processes a local SID. Returns the way out, or `None` if the new destination has to be looked up.
    pub(super) fn endpoint(&mut self, index: u32) -> Result<Option<Egress<'t>>, Out> {
        let sid = self.tables.sids.get(index as usize).ok_or(Out::Drop(DropReason::UnknownSid))?;
        self.accept_source()?;
        // SIDs belong to the main table, whatever table the look-up was in.
        self.progress.layer.vrf = MAIN;
        *self.progress.hits.get_mut(self.progress.hit_count).ok_or(Out::Drop(DropReason::Rounds))? = sid.slot;
        self.progress.hit_count += 1;
        if let Action::End { csid: Some(csid), .. } | Action::EndX { csid: Some(csid), .. } = sid.action
            && self.shift(csid)?
        {
            return match sid.action {
                Action::EndX { group, .. } => self.leave(group).map(Some),
                _ => Ok(None),
            };
        }
        match sid.action {
            Action::End { dscp, .. } => self.end(sid, None, dscp),
            Action::EndX { group, .. } => self.end(sid, Some(group), DscpMode::Pipe(0)),
            Action::EndDt { family, vrf, dscp } => {
                self.check_leftover(sid)?;
                let (next_header, at) = self.upper_of_last_segment(sid)?;
                self.check_inner(family, next_header, at, sid)?;
                self.decapsulate(next_header, at, vrf, dscp)?;
                Ok(None)
            }
            Action::EndDx { family, way } => {
                self.check_leftover(sid)?;
                let (next_header, at) = self.upper_of_last_segment(sid)?;
                self.check_inner(family, next_header, at, sid)?;
                self.decapsulate(next_header, at, MAIN, DscpMode::Pipe(0))?;
                self.spend_hop()?;
                self.cross_connect(way).map(Some)
            }
        }
    }

    /// Shifts the carrier (RFC 9800 section 4.1.1, N01 to N08). Returns false if the argument, which is all bits
    /// behind locator and function, is zero.
    #[inline]
    pub(super) fn shift(&mut self, csid: Csid) -> Result<bool, Out> {
        let (lblen, nflen) = (u32::from(csid.lblen), u32::from(csid.nflen));
        let argument = self.progress.layer.destination.checked_shl(lblen + nflen).unwrap_or(0);
        if argument == 0 {
            return Ok(false);
        }
        let has_options = matches!(self.progress.layer.protocol, protocol::HOP_BY_HOP | protocol::DEST_OPTIONS);
        if has_options || self.progress.layer.srh != SrhEdit::None {
            self.options_in_front()?;
        }
        self.decrement_hop_limit()?;
        let block = u128::MAX.checked_shl(128 - lblen).unwrap_or(0);
        self.progress.layer.destination = self.progress.layer.destination & block | argument >> lblen;
        self.note(|| Event::Shifted);
        self.check_next_destination().map(|()| true)
    }

    /// Processes End and End.X when the argument is used up (RFC 8986 sections 4.1 and 4.2). `adjacency` is set for
    /// End.X.
    pub(super) fn end(
        &mut self,
        sid: &'t Sid,
        adjacency: Option<u32>,
        dscp: DscpMode,
    ) -> Result<Option<Egress<'t>>, Out> {
        let mut cursor = self.first_header();
        loop {
            match self.next_stop(cursor)? {
                Stop::Routing(at, routing) => {
                    if self.segments_left(at, routing) > 0 {
                        self.next_segment(at, routing, sid.flavors.psp)?;
                        return adjacency.map(|group| self.leave(group)).transpose();
                    }
                    if sid.flavors.usp && routing.routing_type() == srh::TYPE {
                        self.edit_srh(removed(at, routing))?;
                    }
                    cursor = Cursor { next_header: routing.next_header(), at: at.at + routing.len(), named_at: at.at };
                }
                Stop::Upper(next_header, at) => return self.end_upper(sid, adjacency, dscp, next_header, at),
                Stop::Fragment(protocol) => return Err(self.refuse_fragment(sid, protocol)),
            }
        }
    }

    /// Handles the upper-layer header at a SID (RFC 8986 sections 4.1.1 and 4.16.3).
    fn end_upper(
        &mut self,
        sid: &Sid,
        adjacency: Option<u32>,
        dscp: DscpMode,
        next_header: u8,
        at: usize,
    ) -> Result<Option<Egress<'t>>, Out> {
        if matches!(next_header, protocol::IPV6 | protocol::IPV4) && sid.flavors.usd {
            self.decapsulate(next_header, at, MAIN, dscp)?;
            return match adjacency {
                None => Ok(None),
                Some(group) => {
                    self.spend_hop()?;
                    self.leave(group).map(Some)
                }
            };
        }
        if let (Some(group), true) = (adjacency, self.tables.policy.ua_last_forward && !self.is_own_address(sid)) {
            self.decrement_hop_limit()?;
            if let Action::EndX { csid: Some(csid), .. } = sid.action {
                let block = u128::MAX.checked_shl(128 - u32::from(csid.lblen)).unwrap_or(0);
                self.progress.layer.destination &= block;
            }
            return self.leave(group).map(Some);
        }
        Err(self.refuse_upper(sid, next_header, at))
    }

    /// Returns the way out for an upper layer that a SID does not forward: the kernel, an echo reply, or a refusal.
    fn refuse_upper(&self, sid: &Sid, next_header: u8, at: usize) -> Out {
        if self.is_own_address(sid) {
            return Out::Kernel;
        }
        if next_header == protocol::ICMPV6 && self.byte(at) == Some(128) {
            return Out::Echo(at);
        }
        tell(DropReason::UpperLayer, Notice::ParameterProblem { code: 4, pointer: self.pointer(at) })
    }

    /// Returns the bits of the destination behind the SID.
    fn leftover(&self, sid: &Sid) -> u128 {
        self.progress.layer.destination.checked_shl(u32::from(sid.len)).unwrap_or(0)
    }

    /// Returns true if the bits behind the SID are zero, and the SID is an address of this node.
    pub(super) fn is_own_address(&self, sid: &Sid) -> bool {
        sid.is_local_address && self.leftover(sid) == 0
    }

    /// Refuses a fragment that would have to be reassembled first. A fragment to an address of the node goes to the
    /// kernel, which reassembles it.
    fn refuse_fragment(&self, sid: &Sid, protocol: u8) -> Out {
        let is_carried = matches!(protocol, protocol::IPV6 | protocol::IPV4);
        if self.is_own_address(sid) && !is_carried { Out::Kernel } else { Out::Drop(DropReason::FragOuter) }
    }

    fn check_leftover(&self, sid: &Sid) -> Result<(), Out> {
        if self.leftover(sid) == 0 || self.tables.policy.dt_argument_accept {
            return Ok(());
        }
        Err(Out::Drop(DropReason::DtArgument))
    }

    fn check_inner(&self, family: DtFamily, next_header: u8, at: usize, sid: &Sid) -> Result<(), Out> {
        match (family, next_header) {
            (DtFamily::V6 | DtFamily::V46, protocol::IPV6) | (DtFamily::V4 | DtFamily::V46, protocol::IPV4) => Ok(()),
            _ => Err(self.refuse_upper(sid, next_header, at)),
        }
    }

    /// Returns the upper layer at the last segment. A remaining segment is a Parameter Problem (RFC 8986 sections 4.4
    /// to 4.8).
    fn upper_of_last_segment(&self, sid: &Sid) -> Result<(u8, usize), Out> {
        let mut cursor = self.first_header();
        loop {
            match self.next_stop(cursor)? {
                Stop::Routing(at, routing) => {
                    if self.segments_left(at, routing) > 0 {
                        // RFC 8200 section 4.4: of an unknown routing header, the type is the problem, not the
                        // segments left.
                        let is_srh = routing.routing_type() == srh::TYPE;
                        return Err(self.bad_srh(at.at + if is_srh { srh::SEGMENTS_LEFT } else { ROUTING_TYPE }));
                    }
                    cursor = Cursor { next_header: routing.next_header(), at: at.at + routing.len(), named_at: at.at };
                }
                Stop::Upper(next_header, at) => return Ok((next_header, at)),
                Stop::Fragment(protocol) => return Err(self.refuse_fragment(sid, protocol)),
            }
        }
    }

    /// Removes the outer headers and continues with the inner packet at `at`.
    pub(super) fn decapsulate(&mut self, next_header: u8, at: usize, vrf: VrfIndex, dscp: DscpMode) -> Result<(), Out> {
        if self.progress.nesting == MAX_NESTING {
            return Err(Out::Drop(DropReason::Nesting));
        }
        self.progress.nesting += 1;
        let outer = self.progress.layer.traffic_class;
        let inner = Layer::parse(self.frame, at, self.progress.layer.end, next_header == protocol::IPV6, vrf)?;
        let ecn = decapsulated_ecn(inner.traffic_class & 3, outer & 3).ok_or(Out::Drop(DropReason::Ecn))?;
        self.progress.ecn_unused |= inner.traffic_class & 3 == NOT_ECT && outer & 3 != NOT_ECT;
        let inner_dscp = if dscp == DscpMode::Uniform { outer } else { inner.traffic_class } & !3;
        self.progress.layer = Layer { traffic_class: inner_dscp | ecn, ..inner };
        self.note(|| {
            let [source, destination] = [inner.source, inner.destination].map(|address| ip(inner.is_v6, address));
            Event::Decapsulated { vrf, source, destination }
        });
        self.check_inner_source()?;
        self.check_next_destination()?;
        self.admit_inner()
    }
}

const NOT_ECT: u8 = 0;
const ECT_1: u8 = 1;
const ECT_0: u8 = 2;
const CE: u8 = 3;

/// Returns the ECN field of a decapsulated packet (RFC 6040 section 4.2, figure 4). `None` means drop.
const fn decapsulated_ecn(inner: u8, outer: u8) -> Option<u8> {
    match (inner, outer) {
        (NOT_ECT, CE) => None,
        (NOT_ECT, _) => Some(NOT_ECT),
        (CE, _) | (ECT_0 | ECT_1, CE) => Some(CE),
        (ECT_1, _) | (ECT_0, ECT_1) => Some(ECT_1),
        (_, _) => Some(ECT_0),
    }
}
