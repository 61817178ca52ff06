//! Leads the traffic of local applications to steered prefixes into the own veth, in packets that fit.

use std::collections::BTreeMap;

use ipnet::IpNet;
use srv6d_srv6::desired::{Amendment, Desired, Path, Role, TableId};
use tracing::error;

use super::Node;
use crate::kernel::{KernelError, Mirror};
use srv6d_config::HostEngine;
use srv6d_plan::Plan;

/// MTU of the own veth while a port is missing. A packet for the kernel must fit, whatever device appears later.
const LARGEST_MTU: u32 = 9500;

impl Node {
    /// Sets the kernel routes for the main table's steered prefixes, which lead local applications' traffic into the
    /// veth.
    pub(super) async fn steer(&mut self, mirror: &Mirror) {
        let wanted = if self.plan.host.steer_local { steered(&self.plan) } else { BTreeMap::new() };
        let veth = (self.veth.name.as_str(), self.veth.ifindex);
        self.steering.tell_mtu(self.plan.host.engine != HostEngine::Worker);
        let synced = self.steering.sync(mirror.handle(), veth, &wanted, &self.environment.routes).await;
        self.note_steering(synced);
    }

    /// Updates the kernel routes that [`steer`](Self::steer) has set, when only some entries of the main table have
    /// changed.
    pub(super) async fn steer_amended(&mut self, changes: &Amendment, mirror: &Mirror) {
        if !self.plan.host.steer_local {
            return;
        }
        let mtu = MtuOf::new(&self.plan.desired);
        let of_main = changes.steers.iter().filter(|steer| steer.table == TableId::MAIN);
        let steered =
            of_main.map(|steer| (steer.prefix, (!steer.paths.is_empty()).then(|| mtu.of_paths(&steer.paths))));
        let steered: BTreeMap<IpNet, Option<u32>> = steered.collect();
        let others = changes.routes.iter().filter(|route| route.table == TableId::MAIN).map(|route| route.prefix);
        let veth = (self.veth.name.as_str(), self.veth.ifindex);
        let routes = &self.environment.routes;
        let amended = self.steering.amend(mirror.handle(), veth, &steered, others, routes).await;
        self.note_steering(amended);
    }

    fn note_steering(&mut self, done: Result<(), KernelError>) {
        let trouble = done.err().map(|why| why.to_string());
        if let Some(why) = trouble.as_ref().filter(|_| trouble != self.steering_trouble) {
            error!("not all traffic of local applications is steered: {why}");
        }
        self.steering_trouble = trouble;
    }
}

/// Returns the steered prefixes of the main table, with the largest packet that fits into each of their paths.
pub(super) fn steered(plan: &Plan) -> BTreeMap<IpNet, u32> {
    let mtu = MtuOf::new(&plan.desired);
    let main = plan.desired.steers.iter().filter(|steer| steer.table == TableId::MAIN);
    main.map(|steer| (steer.prefix, mtu.of_paths(&steer.paths))).collect()
}

/// Computes the largest packets that fit into paths.
struct MtuOf<'d> {
    desired: &'d Desired,
    /// Smallest MTU of all ports to the fabric, because a path that names no port may leave by any of them.
    fabric: Option<u32>,
}

impl<'d> MtuOf<'d> {
    fn new(desired: &'d Desired) -> Self {
        let fabric = desired.ports.iter().filter(|port| port.role != Role::Kernel).map(|port| port.mtu);
        Self { desired, fabric: fabric.min() }
    }

    fn of_paths(&self, paths: &[Path]) -> u32 {
        paths.iter().map(|path| self.of_path(path)).min().unwrap_or(LARGEST_MTU)
    }

    fn of_path(&self, path: &Path) -> u32 {
        let hops = path.via.iter().filter_map(|hop| self.desired.ports.get(usize::from(hop.port.0)));
        let port = hops.map(|port| port.mtu).min().or(self.fabric).unwrap_or(LARGEST_MTU);
        let learned = self.desired.path_mtus.get(&path.segments).copied().unwrap_or(u32::MAX);
        port.min(learned).saturating_sub(path.overhead())
    }
}

/// Returns the MTU of the own veth. The kernel drops packets that are larger than the MTU of the veth they come
/// through.
pub(super) fn own_mtu(plan: &Plan) -> u32 {
    let all_there = plan.devices.iter().all(|port| port.present);
    let largest = plan.desired.ports.iter().map(|port| port.mtu).max();
    largest.filter(|_| all_there).unwrap_or(LARGEST_MTU).min(LARGEST_MTU)
}
