//! Admission: checks that a packet may be sent here, before any look-up, and checks of inner packets.

use std::net::{IpAddr, Ipv6Addr};

use srv6d_wire::srh::{self, Routing};
use srv6d_wire::{ipv4, ipv6, protocol};

use super::{Layer, Out, SlowPath, ip};
use crate::desired::Role;
use crate::reason::DropReason;
use crate::tables::Target;

impl SlowPath<'_, '_, '_> {
    /// Checks whether the port accepts the packet.
    pub(super) fn admit(&self) -> Result<(), Out> {
        if self.progress.layer.end - self.progress.layer.at > self.port.mtu {
            return Err(Out::Drop(DropReason::Oversize));
        }
        if self.is_of_this_link() {
            self.admit_to_this_link()?;
        }
        self.admit_addresses()?;
        self.admit_to_sids()?;
        self.admit_source()?;
        self.admit_source_route()
    }

    /// Returns true for link-local traffic, which no router forwards: packets from or to addresses of this link, and
    /// neighbour discovery.
    fn is_of_this_link(&self) -> bool {
        self.is_from_this_link() || self.is_to_this_link() || self.is_neighbor_discovery()
    }

    fn is_from_this_link(&self) -> bool {
        match self.progress.layer.source_ip() {
            IpAddr::V6(source) => source.is_unicast_link_local(),
            IpAddr::V4(source) => source.is_link_local(),
        }
    }

    fn is_to_this_link(&self) -> bool {
        match self.destination_ip() {
            IpAddr::V6(destination) => destination.is_multicast() || destination.is_unicast_link_local(),
            IpAddr::V4(destination) => {
                destination.is_multicast() || destination.is_broadcast() || destination.is_link_local()
            }
        }
    }

    /// Decides about link-local traffic, which is for the kernel. From outside the domain only packets to addresses of
    /// this node are accepted, because the kernel might forward others by a SID of its own. Neighbour discovery to
    /// other nodes continues as any other packet.
    fn admit_to_this_link(&self) -> Result<(), Out> {
        if !self.port.role.is_outside() {
            return Err(self.kernel_or_drop());
        }
        if self.is_to_this_link() || self.is_own(self.destination_ip()) {
            self.admit_source()?;
            self.admit_source_route()?;
            self.admit_segments()?;
            return Err(Out::Kernel);
        }
        if self.is_from_this_link() { Err(Out::Drop(DropReason::BadSource)) } else { Ok(()) }
    }

    /// Refuses sources and destinations that no node has, or that are valid only inside a node.
    fn admit_addresses(&self) -> Result<(), Out> {
        if is_nobody(self.progress.layer.source_ip()) {
            return Err(Out::Drop(DropReason::BadSource));
        }
        if is_nowhere(self.destination_ip()) {
            return Err(Out::Drop(DropReason::NoRoute));
        }
        Ok(())
    }

    /// Checks that the port may send to SIDs, as destinations or as further segments (RFC 8754 section 5.1).
    fn admit_to_sids(&self) -> Result<(), Out> {
        if !self.progress.layer.is_v6 || !self.port.role.is_outside() {
            return Ok(());
        }
        if self.may_be_sent_to(self.progress.layer.destination) {
            self.admit_segments()
        } else {
            Err(Out::Drop(self.refusal()))
        }
    }

    /// Checks the source (RFC 2827, BCP 38). No packet from outside the domain may have a source that only nodes
    /// inside have. Link-local sources belong to neighbour discovery, and the unspecified one to a host without an
    /// address.
    fn admit_source(&self) -> Result<(), Out> {
        let Layer { vrf, is_v6, source, .. } = self.progress.layer;
        if self.port.role.is_outside() && self.tables.own_sources.contains(vrf, is_v6, source) {
            return Err(Out::Drop(DropReason::BadSource));
        }
        let (allowed, source) = (&self.port.allowed_sources, self.progress.layer.source_ip());
        let has_no_address = source.is_unspecified() && self.is_to_this_link();
        let is_allowed = allowed.is_empty() || allowed.iter().any(|prefix| prefix.contains(&source));
        if is_allowed || has_no_address || self.is_from_this_link() {
            Ok(())
        } else {
            Err(Out::Drop(DropReason::AclSource))
        }
    }

    /// Refuses IPv4 source routes (RFC 7126 sections 4.3 and 4.4). The kernel decides about what it has sent, and about
    /// what it forwards itself.
    fn admit_source_route(&self) -> Result<(), Out> {
        let Layer { vrf, is_v6, destination, .. } = self.progress.layer;
        let is_kernels = || match self.port.role {
            Role::Kernel => true,
            Role::Edge | Role::Host => false,
            Role::Fabric => {
                matches!(self.tables.look_up(vrf, is_v6, destination), Some(Target::Local | Target::Kernel))
            }
        };
        if self.has_source_route() && !is_kernels() { Err(Out::Drop(DropReason::SourceRoute)) } else { Ok(()) }
    }

    fn has_source_route(&self) -> bool {
        !self.progress.layer.is_v6 && self.rest(self.progress.layer.at).is_ok_and(ipv4::has_source_route)
    }

    /// Checks every further segment, because each is a destination, too. Routing headers of other types than 4 are
    /// refused if they have segments left, and so are fragments that hide which headers follow (RFC 7112).
    fn admit_segments(&self) -> Result<(), Out> {
        if !self.progress.layer.is_v6 {
            return Ok(());
        }
        let mut next_header = self.progress.layer.protocol;
        let mut at = self.progress.layer.at + ipv6::LEN;
        loop {
            match next_header {
                protocol::HOP_BY_HOP | protocol::DEST_OPTIONS | protocol::AUTHENTICATION => {}
                protocol::ROUTING => self.admit_routing_header(at)?,
                protocol::FRAGMENT => return self.admit_fragment(at),
                _ => return Ok(()),
            }
            let bytes = self.rest(at)?;
            let &[next, units] = bytes.first_chunk().ok_or(Out::Drop(DropReason::Malformed))?;
            let len = match next_header {
                // The length unit is that of RFC 4302 section 2.2.
                protocol::AUTHENTICATION => 8 + usize::from(units) * 4,
                _ => 8 + usize::from(units) * 8,
            };
            if len > bytes.len() {
                return Err(Out::Drop(DropReason::Malformed));
            }
            next_header = next;
            at += len;
        }
    }

    fn admit_routing_header(&self, at: usize) -> Result<(), Out> {
        let routing = Routing::parse(self.rest(at)?).ok_or(Out::Drop(DropReason::Malformed))?;
        let left = routing.segments_left();
        if left == 0 {
            return Ok(());
        }
        let listed = left.max(routing.last_entry().saturating_add(1));
        let is_allowed = |index: u8| routing.segment(index).is_some_and(|segment| self.may_be_sent_to(segment));
        if routing.routing_type() == srh::TYPE && (0..listed).all(is_allowed) {
            Ok(())
        } else {
            Err(Out::Drop(self.refusal()))
        }
    }

    fn admit_fragment(&self, at: usize) -> Result<(), Out> {
        match self.byte(at) {
            Some(
                protocol::HOP_BY_HOP
                | protocol::DEST_OPTIONS
                | protocol::ROUTING
                | protocol::FRAGMENT
                | protocol::AUTHENTICATION,
            ) => Err(Out::Drop(self.refusal())),
            Some(_) => Ok(()),
            None => Err(Out::Drop(DropReason::Malformed)),
        }
    }

    fn refusal(&self) -> DropReason {
        if self.port.role == Role::Host { DropReason::AclPath } else { DropReason::AclEdge }
    }

    fn may_be_sent_to(&self, destination: u128) -> bool {
        let address = Ipv6Addr::from_bits(destination);
        self.port.allowed_carriers.iter().any(|prefix| prefix.contains(&address)) || !self.is_sid_space(destination)
    }

    /// Returns the kernel as the way out. A multicast packet of the kernel itself, which comes by the own veth, is
    /// dropped.
    fn kernel_or_drop(&self) -> Out {
        if self.port.role == Role::Kernel { Out::Drop(DropReason::NoRoute) } else { Out::Kernel }
    }

    /// Returns true for router and neighbour discovery and redirects (RFC 4861): ICMPv6 types 133 to 137, from the
    /// link itself.
    fn is_neighbor_discovery(&self) -> bool {
        self.progress.layer.is_v6
            && self.progress.layer.protocol == protocol::ICMPV6
            && self.progress.layer.hop_limit == 255
            && self.byte(self.progress.layer.at + ipv6::LEN).is_some_and(|kind| (133..=137).contains(&kind))
    }

    /// Returns true for a SID of this node, and for an address in the SID space that is neither an address of this
    /// node nor in a subnet behind one of its ports.
    fn is_sid_space(&self, destination: u128) -> bool {
        match self.tables.look_up(self.progress.layer.vrf, true, destination) {
            Some(Target::Sid(_)) => true,
            Some(Target::Local | Target::OnLink(_) | Target::Neighbor(_)) => false,
            _ => self.tables.sid_space.contains(destination),
        }
    }

    /// Returns true for an address of this node, in the table of the port.
    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        match self.tables.look_up(self.progress.layer.vrf, address.is_ipv6(), crate::build::bits(address)) {
            Some(Target::Local) => true,
            Some(Target::Sid(index)) => {
                self.tables.sids.get(index as usize).is_some_and(|sid| self.is_own_address(sid))
            }
            _ => false,
        }
    }

    fn destination_ip(&self) -> IpAddr {
        ip(self.progress.layer.is_v6, self.progress.layer.destination)
    }

    pub(super) fn accept_source(&self) -> Result<(), Out> {
        let domain = &self.tables.policy.domain_sources;
        let source = Ipv6Addr::from_bits(self.progress.layer.source);
        if domain.is_empty() || domain.iter().any(|prefix| prefix.contains(&source)) {
            return Ok(());
        }
        Err(Out::Drop(DropReason::AclSid))
    }

    /// Checks an inner packet from outside the domain, which was addressed to a SID that the sender may use. The rules
    /// are the same as for a packet without encapsulation.
    pub(super) fn admit_inner(&self) -> Result<(), Out> {
        if !self.port.role.is_outside() {
            return Ok(());
        }
        self.admit_to_sids()?;
        self.admit_source()
    }

    /// Checks an inner packet: its source (RFC 4291 section 2, RFC 1812 section 5.3.7), and that it has no source route.
    pub(super) fn check_inner_source(&self) -> Result<(), Out> {
        if is_nobody(self.progress.layer.source_ip()) {
            return Err(Out::Drop(DropReason::BadSource));
        }
        if self.is_from_this_link() {
            return Err(Out::Drop(DropReason::NoRoute));
        }
        if self.has_source_route() { Err(Out::Drop(DropReason::SourceRoute)) } else { Ok(()) }
    }
}

/// Returns true for addresses that no packet comes from: multicast, broadcast and reserved ones (RFC 1112 section 4),
/// and those of [`is_nowhere`].
fn is_nobody(address: IpAddr) -> bool {
    let is_for_many = match address {
        IpAddr::V6(address) => address.is_multicast(),
        IpAddr::V4(address) => address.octets()[0] >= 224,
    };
    is_for_many || is_nowhere(address)
}

/// Returns true for addresses that are valid only inside of a node: unspecified, loopback and IPv4-mapped ones (RFC
/// 4291 sections 2.5.2, 2.5.3 and 2.5.5.2), and networks 0 and 127 (RFC 1812 section 5.3.7).
pub(super) fn is_nowhere(address: IpAddr) -> bool {
    match address {
        IpAddr::V6(address) => address.to_bits() <= 1 || address.to_ipv4_mapped().is_some(),
        IpAddr::V4(address) => matches!(address.octets(), [0 | 127, ..]),
    }
}
