//! What local applications send to steered prefixes: led into the own veth, in packets that fit.

use std::collections::BTreeMap;

use ipnet::IpNet;
use srv6d_srv6::model::{Amendment, Desired, Path, Role, TableId};
use tracing::error;

use super::Node;
use crate::kernel::{KernelError, Mirror};
use crate::plan::Plan;

/// MTU of the own veth while a port is missing: whatever appears later, a packet for the kernel must fit.
const LARGEST_MTU: u32 = 9500;

impl Node {
    /// Kernel routes that lead local applications' traffic here: the main table's steered prefixes.
    pub(super) async fn steer(&mut self, mirror: &Mirror) {
        let wanted = if self.plan.host.steer_local { steered(&self.plan) } else { BTreeMap::new() };
        let veth = (self.veth.name.as_str(), self.veth.ifindex);
        let synced = self.steering.sync(mirror.handle(), veth, &wanted, &self.environment.routes).await;
        self.note_steering(synced);
    }

    /// The same where only these entries of the main table have changed.
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
            error!("local applications' traffic is not all steered: {why}");
        }
        self.steering_trouble = trouble;
    }
}

/// Steered prefixes of the main table, and the largest packet that fits into each of their paths.
pub(super) fn steered(plan: &Plan) -> BTreeMap<IpNet, u32> {
    let mtu = MtuOf::new(&plan.desired);
    let main = plan.desired.steers.iter().filter(|steer| steer.table == TableId::MAIN);
    main.map(|steer| (steer.prefix, mtu.of_paths(&steer.paths))).collect()
}

/// The largest packets that fit into paths.
struct MtuOf<'d> {
    desired: &'d Desired,
    /// Of all ports to the fabric: a path that names no port may leave by any.
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

/// The kernel drops what is larger than the MTU of the veth it comes through.
pub(super) fn own_mtu(plan: &Plan) -> u32 {
    let all_there = plan.devices.iter().all(|port| port.present);
    let largest = plan.desired.ports.iter().map(|port| port.mtu).max();
    largest.filter(|_| all_there).unwrap_or(LARGEST_MTU).min(LARGEST_MTU)
}
