//! Requests to the kernel to resolve neighbours.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Instant;

use srv6d_srv6::desired::PortId;
use srv6d_srv6::tables::AdjacencyState;
use tracing::debug;

use super::Node;
use crate::daemon::resolution::Admission;
use crate::daemon::view::device_of;
use crate::kernel::{self, Mirror};
use srv6d_config::{SidBehavior, Spanned};
use srv6d_plan::KernelNeighbor;

/// Next hops of routes, SIDs and paths of a generation. They are asked for before all others.
#[derive(Default)]
pub(super) struct NextHopsInForce {
    generation: u64,
    all: HashSet<(PortId, IpAddr)>,
}

impl Node {
    /// Asks for the neighbours of uAs that name none. Such a uA uses the only neighbour on its port, which may never
    /// have sent a packet.
    pub(super) fn look_for_neighbors(&self) {
        for sid in self.inputs.config().sids.iter().map(Spanned::get_ref) {
            let is_open = matches!(sid.behavior.get_ref(), SidBehavior::UA | SidBehavior::EndX)
                && sid.hop.via.is_none()
                && sid.nexthops.is_empty();
            let port = sid.hop.port.as_ref().filter(|_| is_open);
            let Some(device) = port.and_then(|port| self.environment.device(port.get_ref())) else { continue };
            let is_there = |known: &KernelNeighbor| known.device == device.name && known.address.is_ipv6();
            let is_written = port.is_some_and(|port| self.static_neighbors(port.get_ref()).any(IpAddr::is_ipv6));
            if device.up && !is_written && !self.environment.neighbors.iter().any(is_there) {
                let asked = kernel::ask_all_nodes(device.ifindex);
                asked.unwrap_or_else(|why| debug!("{}: cannot ask for its neighbours: {why}", device.name));
            }
        }
    }

    pub(super) fn ask_for_unresolved(&mut self, mirror: &Mirror) {
        for (port, address, state) in self.dataplane.next_hops() {
            if state == AdjacencyState::Unresolved {
                self.ask((port, address), true, mirror);
            }
        }
    }

    /// Asks for the neighbours that packets wait for.
    pub(super) fn ask_for_wanted(&mut self, mirror: &mut Mirror) {
        let wanted = self.dataplane.wanted_neighbors();
        if wanted.is_empty() {
            return;
        }
        self.note_settled(mirror);
        self.ask_for_postponed(mirror);
        let generation = self.dataplane.generation().0;
        if self.next_hops.generation != generation {
            let all = self.dataplane.next_hops().into_iter().map(|(port, address, _)| (port, address)).collect();
            self.next_hops = NextHopsInForce { generation, all };
        }
        for neighbor in wanted {
            self.ask(neighbor, self.next_hops.all.contains(&neighbor), mirror);
        }
    }

    /// Asks for the neighbours that had no place, as far as there is one now.
    pub(in crate::daemon) fn ask_for_postponed(&mut self, mirror: &Mirror) {
        while let Some(((ifindex, address), admission)) = self.resolutions.next_postponed(Instant::now()) {
            if let Admission::InPlaceOf((other, unanswered)) = admission {
                mirror.give_up(other, unanswered);
            }
            mirror.resolve(ifindex, address);
        }
    }

    /// Records the neighbours that the kernel has resolved or given up, so that they may be asked for again.
    pub(super) fn note_settled(&mut self, mirror: &mut Mirror) {
        mirror.note_all();
        for (neighbor, has_resolved) in mirror.settled_neighbors() {
            self.resolutions.settled(neighbor, has_resolved);
        }
    }

    /// Returns the addresses of the `[[neighbor]]` entries of a port.
    fn static_neighbors(&self, port: &str) -> impl Iterator<Item = &IpAddr> {
        let entries = self.inputs.config().neighbors.iter().map(Spanned::get_ref);
        entries.filter(move |entry| entry.port.get_ref() == port).map(|entry| entry.address.get_ref())
    }

    /// Returns true if the configuration has the neighbour. The kernel is never asked for it.
    fn is_static(&self, port: PortId, address: IpAddr) -> bool {
        let port = self.inputs.config().ports.get(usize::from(port.0)).map(|port| port.get_ref().name.get_ref());
        port.is_some_and(|port| self.static_neighbors(port).any(|known| *known == address))
    }

    /// Asks the kernel to resolve a neighbour. The answer is a change of its neighbour table.
    fn ask(&mut self, (port, address): (PortId, IpAddr), is_next_hop: bool, mirror: &Mirror) {
        if self.is_static(port, address) {
            return;
        }
        let Some(ifindex) = self.layer3_ifindex(port) else { return };
        match self.resolutions.admit((ifindex, address), is_next_hop, Instant::now()) {
            Admission::Wait => return,
            Admission::Ask => {}
            Admission::InPlaceOf((other, unanswered)) => mirror.give_up(other, unanswered),
        }
        mirror.resolve(ifindex, address);
    }

    /// Makes the kernel check a neighbour that packets go to, as its own packets would.
    pub(super) fn keep_fresh(&self, port: PortId, address: IpAddr, mirror: &Mirror) {
        if !self.is_static(port, address)
            && let Some(ifindex) = self.layer3_ifindex(port)
        {
            mirror.resolve(ifindex, address);
        }
    }

    /// Returns the kernel's device that has the neighbours of a port. For a tagged port it is its VLAN device, if
    /// there is one.
    fn layer3_ifindex(&self, port: PortId) -> Option<u32> {
        let desired = self.dataplane.desired();
        let port = desired.ports.get(usize::from(port.0))?;
        let device = self.environment.device(&port.name);
        let device = device.or_else(|| self.environment.device(device_of(desired, port)))?;
        Some(device.ifindex)
    }
}
