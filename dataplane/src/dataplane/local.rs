//! Encapsulation of what applications of this node send, in the tc program at the egress of the own veth's other end.
//!
//! The program has the tables of the XDP program. What it does not encapsulate goes through the veth to the workers.

use std::collections::BTreeMap;

use srv6d_fib::{COUNTED_PATHS, Forwarding, GroupRow, HopRow, PathKind, PathRow, TWO_SEGMENTS};
use srv6d_srv6::desired::TableId;
use srv6d_xsk::xdp_offload::XdpOffload;

use super::{Dataplane, device_name};

/// Why the worker encapsulates what applications send by a path.
pub type WhyWorker = &'static str;

/// Why the worker encapsulates for next hops that the program cannot send to.
const NOT_READY: WhyWorker = "not all of its next hops are resolved, up, and on untagged ports";

/// Why `auto` is the worker for what leaves through some veths.
const UNFINISHED: WhyWorker = "it leaves through a veth that leaves checksums unfinished, which a srv6d at its other end forwards as they are \
                               (`ethtool -K PORT tx off`, or engine = \"tc\" under [host] if no srv6d is there)";

/// Puts the program at the egress of the own veth's other end. Returns whether it is there. If the kernel has refused it
/// (`refused`), it is not tried again. That is worth a warning unless srv6d has chosen the program (`is_chosen`).
pub(super) fn put_on(
    (program, refused, is_chosen): (&mut XdpOffload, &mut Option<String>, bool),
    number: u16,
    kernel_end: &str,
) -> bool {
    if refused.is_none()
        && let Err(why) = program.put_on_local(number, kernel_end)
    {
        let what = "workers encapsulate what applications of this node send";
        if is_chosen {
            tracing::info!("{why}: {what}");
        } else {
            tracing::warn!("{why}: {what}");
        }
        *refused = Some(why.to_string());
    }
    refused.is_none()
}

impl Dataplane {
    /// Returns, for each path of the main table, why the worker encapsulates what applications of this node send by it.
    /// `None`: the tc program encapsulates it. The map is empty if the tc program is not asked for.
    pub fn local_paths(&self) -> BTreeMap<String, Option<WhyWorker>> {
        let snapshot = self.tables.current();
        let asked = self.asked_for_offload();
        let Some(own_veth) = self.devices.iter().find(|(name, device)| device.claim_all && asked.contains(*name))
        else {
            return BTreeMap::new();
        };
        let is_on = self.in_front.is_on(own_veth.0);
        let offload = snapshot.tables.offload();
        let by_slot: BTreeMap<u32, &PathRow> =
            offload.forwarding.paths.values().map(|path| (path.slot, path)).collect();
        let ports = &self.tables.desired().ports;
        let why_workers_send = |port: u16| {
            let port = ports.get(usize::from(port))?;
            if port.vlan.is_some() {
                return Some(NOT_READY);
            }
            let name = device_name(port);
            let unfinished = || self.in_front.unfinished.contains(name).then_some(UNFINISHED);
            self.why_workers_send(name).or_else(unfinished)
        };
        let why_worker = |name: &String| {
            let slot = self.tables.slots().paths.find(name).and_then(|slot| u32::try_from(slot).ok());
            match slot.and_then(|slot| by_slot.get(&slot)) {
                _ if !is_on => Some("the tc program is not in force (show ports says why)"),
                _ if offload.too_many => Some("there are too many prefixes for the program"),
                Some(path) => why_not(&offload.forwarding, path, why_workers_send),
                None => Some("it has no next hop, or its next hops have different sources"),
            }
        };
        let steers = self.tables.desired().steers.iter().filter(|steer| steer.table == TableId::MAIN);
        steers.flat_map(|steer| &steer.paths).map(|path| (path.name.clone(), why_worker(&path.name))).collect()
    }
}

/// Returns why the program does not encapsulate, or not everything, by a path that it knows.
fn why_not(
    rows: &Forwarding,
    path: &PathRow,
    why_workers_send: impl Fn(u16) -> Option<WhyWorker>,
) -> Option<WhyWorker> {
    let members = rows.groups.get(&path.group).map(|group| members(rows, *group)).unwrap_or_default();
    let hops: Vec<&HopRow> = members.iter().filter_map(|hop| rows.hops.get(hop.as_ref()?)).collect();
    match path.kind {
        PathKind::Slow | PathKind::ByFlow => Some("it has no next hop, or its next hops have different sources"),
        _ if path.srh_units > TWO_SEGMENTS => Some("its SRH has more than two segments"),
        _ if path.slot >= COUNTED_PATHS => Some("the program has no counter left for it"),
        _ if hops.is_empty() || hops.len() < members.len() => Some(NOT_READY),
        _ => hops.iter().find_map(|hop| why_workers_send(hop.port)),
    }
}

/// Returns the indexes of the next hops of a group; `None` for one that is not in the list of members.
fn members(rows: &Forwarding, group: GroupRow) -> Vec<Option<u32>> {
    match group.count {
        1 => vec![Some(group.at)],
        count => {
            (group.at..group.at.saturating_add(count)).map(|place| rows.group_members.get(&place).copied()).collect()
        }
    }
}
