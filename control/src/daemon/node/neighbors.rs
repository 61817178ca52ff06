//! Whom the kernel is asked to find.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use srv6d_srv6::model::PortId;
use srv6d_srv6::tables::AdjacencyState;
use tracing::debug;

use super::Node;
use crate::config::{SidBehavior, Spanned};
use crate::daemon::view::device_of;
use crate::kernel::{self, Mirror};
use crate::plan::KernelNeighbor;

/// How often one neighbour is asked for, however many packets wait for it.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(1);

impl Node {
    /// A uA that names no neighbour means the one on its port, and that one may never have said a word.
    pub(super) fn look_for_neighbors(&self) {
        for sid in self.inputs.config.sids.iter().map(Spanned::get_ref) {
            let is_open = matches!(sid.behavior.get_ref(), SidBehavior::UA | SidBehavior::EndX)
                && sid.hop.via.is_none()
                && sid.nexthops.is_empty();
            let port = sid.hop.port.as_ref().filter(|_| is_open);
            let Some(device) = port.and_then(|port| self.environment.device(port.get_ref())) else { continue };
            let is_there = |known: &KernelNeighbor| known.device == device.name && known.address.is_ipv6();
            if device.up && !self.environment.neighbors.iter().any(is_there) {
                let asked = kernel::ask_all_nodes(device.ifindex);
                asked.unwrap_or_else(|why| debug!("{}: cannot ask who is there: {why}", device.name));
            }
        }
    }

    pub(super) async fn ask_for_unresolved(&mut self, mirror: &Mirror) {
        for (port, address, state) in self.dataplane.next_hops() {
            if state == AdjacencyState::Unresolved {
                self.ask(port, address, mirror).await;
            }
        }
    }

    /// The kernel resolves or probes; the answer comes back as a change of its neighbour table.
    pub(super) async fn ask(&mut self, port: PortId, address: IpAddr, mirror: &Mirror) {
        let Some(ifindex) = self.layer3_ifindex(port) else { return };
        let moment = Instant::now();
        let recently = |then: &Instant| moment.duration_since(*then) < ASK_AGAIN;
        if self.asked.get(&(ifindex, address)).is_some_and(recently) {
            return;
        }
        self.asked.insert((ifindex, address), moment);
        if let Err(why) = mirror.resolve(ifindex, address).await {
            debug!("{why}");
        }
    }

    /// The kernel's device that holds the neighbours of a port: for a tagged port its VLAN device, if there is one.
    fn layer3_ifindex(&self, port: PortId) -> Option<u32> {
        let desired = self.dataplane.desired();
        let port = desired.ports.get(usize::from(port.0))?;
        let device = self.environment.device(&port.name);
        let device = device.or_else(|| self.environment.device(device_of(desired, port)))?;
        Some(device.ifindex)
    }
}
