//! The ways out: next hops, cross-connects, encapsulation.

use std::net::Ipv6Addr;

use srv6d_fib::BY_HASH;
use srv6d_wire::{ipv4, ipv6, protocol};

use super::{Egress, Out, SlowPath, hop_limit, ip, tell};
use crate::desired::{PortId, Role};
use crate::flow::{self, FlowHash};
use crate::icmp::Notice;
use crate::reason::DropReason;
use crate::tables::{Adjacency, CrossConnect, PathEntry, Tables};
use crate::trail::Event;

impl<'t> SlowPath<'t, '_, '_> {
    /// Decrements the hop limit. Fails if it allows no more hop.
    pub(super) fn decrement_hop_limit(&mut self) -> Result<(), Out> {
        if self.progress.layer.hop_limit <= 1 {
            return Err(hop_limit());
        }
        self.progress.layer.hop_limit -= 1;
        self.progress.layer.hop_spent = true;
        Ok(())
    }

    /// Decrements the hop limit, unless that has been done for this packet: forwarding does it once for the whole way.
    pub(super) fn spend_hop(&mut self) -> Result<(), Out> {
        if self.progress.layer.hop_spent { Ok(()) } else { self.decrement_hop_limit() }
    }

    pub(super) fn route(&mut self, group: u32) -> Result<Egress<'t>, Out> {
        self.spend_hop()?;
        self.leave(group)
    }

    /// Returns the way out for a destination that is an unresolved neighbour.
    pub(super) fn unresolved(&self, port: PortId) -> Out {
        if self.tables.port(port).is_some_and(|port| port.up) {
            Out::Hold(port, ip(self.progress.layer.is_v6, self.progress.layer.destination))
        } else {
            Out::Drop(DropReason::AdjDown)
        }
    }

    /// Sends a packet by End.DX4 or End.DX6 (RFC 8986 sections 4.4 and 4.5).
    pub(super) fn cross_connect(&mut self, way: CrossConnect) -> Result<Egress<'t>, Out> {
        match way {
            CrossConnect::Group(group) => self.leave(group),
            CrossConnect::OnLink(port) => {
                let neighbor = ip(self.progress.layer.is_v6, self.progress.layer.destination);
                let group = self.tables.cross_connected.get(&(port, neighbor));
                match group {
                    Some(&group) => self.leave(group),
                    None => Err(self.unresolved(port)),
                }
            }
        }
    }

    /// Sends a packet to a member of a group, if it fits the MTU.
    pub(super) fn leave(&mut self, group: u32) -> Result<Egress<'t>, Out> {
        let adjacency = self.next_hop(group, Self::transit_flow)?;
        self.note(|| Event::Size { length: self.progress.layer.len(), mtu: adjacency.mtu });
        if self.progress.layer.len() > adjacency.mtu {
            return Err(self.too_big(adjacency.mtu));
        }
        Ok(Egress::Routed(adjacency))
    }

    /// Returns the next hop of a group that the flow uses, if packets can be sent to it.
    fn next_hop(&mut self, group: u32, flow: impl Fn(&Self) -> FlowHash) -> Result<&'t Adjacency, Out> {
        let tables = self.tables;
        if tables.groups.policy(group) == BY_HASH {
            self.note(|| Event::Group { group, flow: flow(self), by_policy: None });
            return ready_member(tables, group, || flow(self));
        }
        let flow = flow(self);
        let chosen = self.balancer.hop(tables, group, flow, self.now);
        let (adjacency, chosen) = chosen.ok_or(Out::Drop(DropReason::AdjDown))?;
        self.note(|| Event::Group { group, flow, by_policy: Some(adjacency.slot) });
        let [_, of_hop] = &mut self.progress.chosen;
        *of_hop = Some(chosen);
        sendable(adjacency)
    }

    /// Returns the path of a steered prefix that the flow uses.
    fn path(&mut self, steer: u32, flow: FlowHash) -> Option<&'t PathEntry> {
        let tables = self.tables;
        if tables.steers.policy(steer) == BY_HASH {
            self.note(|| Event::Path { steer, flow, by_policy: None });
            return tables.path(steer, flow);
        }
        let (path, chosen) = self.balancer.path(tables, steer, flow, self.now)?;
        self.note(|| Event::Path { steer, flow, by_policy: Some(path.slot) });
        let [of_path, _] = &mut self.progress.chosen;
        *of_path = Some(chosen);
        Some(path)
    }

    fn transit_flow(&self) -> FlowHash {
        let bytes = self.rest(self.progress.layer.at).unwrap_or_default();
        if self.progress.layer.is_v6 {
            ipv6::Header::parse(bytes).map(|header| flow::transit(bytes, header, self.progress.layer.destination))
        } else {
            ipv4::Header::parse(bytes).map(|header| flow::v4(bytes, header, self.tables.tunnel.hash_qp))
        }
        .unwrap_or_default()
    }

    fn inner_flow(&self) -> FlowHash {
        let bytes = self.rest(self.progress.layer.at).unwrap_or_default();
        let with_qp = self.tables.tunnel.hash_qp;
        if self.progress.layer.is_v6 {
            ipv6::Header::parse(bytes).map(|header| flow::inner_v6(bytes, header, with_qp))
        } else {
            ipv4::Header::parse(bytes).map(|header| flow::v4(bytes, header, with_qp))
        }
        .unwrap_or_default()
    }

    fn too_big(&self, mtu: usize) -> Out {
        let can_fragment = !self.progress.layer.is_v6
            && self
                .frame
                .get(self.progress.layer.at..)
                .and_then(ipv4::Header::parse)
                .is_some_and(|header| !header.dont_fragment());
        if can_fragment {
            return Out::Drop(DropReason::PacketTooBig);
        }
        let mtu = if self.progress.layer.is_v6 { mtu.max(ipv6::MIN_MTU) } else { mtu };
        tell(DropReason::PacketTooBig, Notice::TooBig { mtu: u32::try_from(mtu).unwrap_or(u32::MAX) })
    }

    /// Encapsulates a packet (H.Encaps.Red, RFC 8986 section 5.2).
    pub(super) fn encapsulate(&mut self, steer: u32) -> Result<Egress<'t>, Out> {
        self.spend_hop()?;
        let flow = self.inner_flow();
        let path = self.path(steer, flow).ok_or(Out::Drop(DropReason::NoRoute))?;
        let group = path.group.ok_or(Out::Drop(DropReason::NoRoute))?;
        let adjacency = self.next_hop(group, |_| flow)?;
        if self.port.role != Role::Kernel && self.is_encapsulated_by(path.source(adjacency)) {
            return Err(Out::Drop(DropReason::EncapLoop));
        }
        let mtu = adjacency.mtu.min(path.mtu_for(self.progress.layer.is_v6));
        self.note(|| Event::Size { length: self.progress.layer.len() + path.header_len, mtu });
        if self.progress.layer.len() + path.header_len > mtu {
            return Err(self.too_big(mtu.saturating_sub(path.header_len)));
        }
        Ok(Egress::Encapsulated(path, adjacency, flow))
    }

    /// Returns true if the packet already has an outer header of this node (RFC 2473 section 4.1.3). Packets of
    /// applications of this node may have one.
    fn is_encapsulated_by(&self, source: Ipv6Addr) -> bool {
        self.progress.layer.is_v6
            && matches!(self.progress.layer.protocol, protocol::IPV6 | protocol::IPV4 | protocol::ROUTING)
            && source.to_bits() == self.progress.layer.source
    }
}

/// Returns the member of a group that a flow uses by its hash, if packets can be sent to it.
pub(crate) fn ready_member(tables: &Tables, group: u32, flow: impl FnOnce() -> FlowHash) -> Result<&Adjacency, Out> {
    sendable(tables.member(group, flow).ok_or(Out::Drop(DropReason::AdjDown))?)
}

fn sendable(adjacency: &Adjacency) -> Result<&Adjacency, Out> {
    use crate::tables::AdjacencyState::{Down, Ready, Unresolved};
    match adjacency.state {
        Ready => Ok(adjacency),
        Unresolved => Err(Out::Hold(adjacency.port, adjacency.neighbor)),
        Down => Err(Out::Drop(DropReason::AdjDown)),
    }
}
