//! Who may send what here, before anything is looked up; and what an inner packet may not come from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use srv6d_wire::{ipv6, protocol};

use super::{Layer, Out, Walk, ip};
use crate::model::Role;
use crate::reason::DropReason;
use crate::tables::Target;

impl Walk<'_, '_, '_> {
    /// What the port lets in.
    pub(super) fn admit(&self) -> Result<(), Out> {
        if self.progress.layer.end - self.progress.layer.at > self.port.mtu {
            return Err(Out::Drop(DropReason::Oversize));
        }
        if self.progress.layer.is_v6 {
            self.admit_v6()?;
        } else {
            self.admit_v4()?;
        }
        let allowed = &self.port.allowed_sources;
        if !allowed.is_empty() && !allowed.iter().any(|prefix| prefix.contains(&self.progress.layer.source_ip())) {
            return Err(Out::Drop(DropReason::AclSource));
        }
        Ok(())
    }

    fn admit_v6(&self) -> Result<(), Out> {
        let Layer { source, destination, .. } = self.progress.layer;
        let is_local = ipv6::is_link_local(destination) || ipv6::is_link_local(source);
        if ipv6::is_multicast(destination) || is_local || self.is_neighbor_discovery() {
            return Err(self.kernel_or_drop());
        }
        if ipv6::is_multicast(source) || is_inside_a_node_v6(source) {
            return Err(Out::Drop(DropReason::BadSource));
        }
        if is_inside_a_node_v6(destination) {
            return Err(Out::Drop(DropReason::NoRoute));
        }
        let reason = match self.port.role {
            Role::Fabric | Role::Kernel => return Ok(()),
            Role::Edge => DropReason::AclEdge,
            Role::Host => DropReason::AclPath,
        };
        let carrier = Ipv6Addr::from_bits(destination);
        let allowed = self.port.allowed_carriers.iter().any(|prefix| prefix.contains(&carrier));
        if allowed || !self.is_sid_space(destination) { Ok(()) } else { Err(Out::Drop(reason)) }
    }

    fn admit_v4(&self) -> Result<(), Out> {
        let IpAddr::V4(source) = self.progress.layer.source_ip() else { return Ok(()) };
        let IpAddr::V4(destination) = ip(false, self.progress.layer.destination) else { return Ok(()) };
        let is_local = destination.is_link_local() || source.is_link_local();
        if destination.is_multicast() || destination.is_broadcast() || is_local {
            return Err(self.kernel_or_drop());
        }
        if source.is_multicast() || source.is_broadcast() || is_inside_a_node_v4(source) {
            return Err(Out::Drop(DropReason::BadSource));
        }
        if is_inside_a_node_v4(destination) {
            return Err(Out::Drop(DropReason::NoRoute));
        }
        Ok(())
    }

    /// The kernel's own multicast comes through the own veth too: it must not go back.
    fn kernel_or_drop(&self) -> Out {
        if self.port.role == Role::Kernel { Out::Drop(DropReason::NoRoute) } else { Out::Kernel }
    }

    /// Router and neighbour discovery, and redirects (RFC 4861): ICMPv6 types 133 to 137, from the link itself.
    fn is_neighbor_discovery(&self) -> bool {
        self.progress.layer.protocol == protocol::ICMPV6
            && self.progress.layer.hop_limit == 255
            && self.byte(self.progress.layer.at + ipv6::LEN).is_some_and(|kind| (133..=137).contains(&kind))
    }

    /// In a block, and neither an address of this node nor a subnet behind one of its ports.
    fn is_sid_space(&self, destination: u128) -> bool {
        self.tables.in_block(destination)
            && !matches!(
                self.tables.lookup(self.progress.layer.vrf, true, destination),
                Some(Target::Local | Target::Kernel | Target::OnLink(_) | Target::Neighbor(_))
            )
    }

    pub(super) fn accept_source(&self) -> Result<(), Out> {
        let domain = &self.tables.policy.domain_sources;
        let source = Ipv6Addr::from_bits(self.progress.layer.source);
        if domain.is_empty() || domain.iter().any(|prefix| prefix.contains(&source)) {
            return Ok(());
        }
        Err(Out::Drop(DropReason::AclSid))
    }

    /// An inner packet may come from where any other may (RFC 4291 section 2, RFC 1812 section 5.3.7).
    pub(super) fn check_inner_source(&self) -> Result<(), Out> {
        let (is_nobody, is_link_local) = match self.progress.layer.source_ip() {
            IpAddr::V6(source) => {
                (source.is_multicast() || is_inside_a_node_v6(source.to_bits()), source.is_unicast_link_local())
            }
            IpAddr::V4(source) => {
                let is_for_many = source.is_multicast() || source.is_broadcast();
                (is_for_many || is_inside_a_node_v4(source), source.is_link_local())
            }
        };
        match (is_nobody, is_link_local) {
            (true, _) => Err(Out::Drop(DropReason::BadSource)),
            (_, true) => Err(Out::Drop(DropReason::NoRoute)),
            _ => Ok(()),
        }
    }
}

/// Unspecified and loopback (RFC 4291 sections 2.5.2 and 2.5.3).
pub(super) fn is_inside_a_node_v6(address: u128) -> bool {
    address <= 1
}

/// Networks 0 and 127 (RFC 1812 section 5.3.7).
pub(super) fn is_inside_a_node_v4(address: Ipv4Addr) -> bool {
    matches!(address.octets(), [0 | 127, ..])
}
