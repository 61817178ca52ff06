//! Checks what makes a NIC fast or slow besides its driver: its place in the machine, its queues, its interrupts.

use std::collections::BTreeSet;

use srv6d_xsk::probe::{Coalescing, Interface};

use super::{Finding, Plans, cpu_list, text};

/// A receive interrupt that is put off for longer than this is a large part of a packet's way through a fabric.
const LONG_MICROSECONDS: u32 = 100;

/// The place of a NIC in the machine.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// NUMA node of its PCI slot. `None`: the machine has one node, or this is no NIC.
    pub node: Option<u32>,
    /// Cores of that node.
    pub near: BTreeSet<usize>,
}

impl Place {
    /// Reads the place of an interface.
    pub fn read(ifname: &str) -> Self {
        // The kernel writes -1 where there is one node only.
        let node = text(&format!("/sys/class/net/{ifname}/device/numa_node")).and_then(|node| node.parse().ok());
        let cores = |node: u32| text(&format!("/sys/devices/system/node/node{node}/cpulist"));
        let near = node.and_then(cores).map(|list| cpu_list(&list).into_iter().collect());
        Self { node, near: near.unwrap_or_default() }
    }
}

pub fn judge(interface: &Interface, place: &Place, plans: &Plans) -> Vec<Finding> {
    let findings = [memory_node(interface, place, plans), rings(interface, plans), interrupts(interface, plans)];
    findings.into_iter().flatten().collect()
}

/// Checks whether workers are on the NIC's own NUMA node: otherwise every packet crosses the link between the nodes.
fn memory_node(interface: &Interface, Place { node, near }: &Place, plans: &Plans) -> Option<Finding> {
    let (ifname, node) = (&interface.ifname, (*node)?);
    let far: Vec<String> = plans.cores.iter().filter(|core| !near.contains(core)).map(usize::to_string).collect();
    let check = "NUMA node";
    if plans.cores.is_empty() {
        return Some(Finding::ok(ifname, check, format!("{node}; no worker is pinned to a core")));
    }
    if far.is_empty() {
        return Some(Finding::ok(ifname, check, format!("{node}, and the pinned workers are on its cores")));
    }
    let cores = near.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    Some(Finding::warn(
        ifname,
        check,
        format!("{node}, and the worker on core {} is on another one: every packet crosses the two", far.join(", ")),
        format!("choose [workers] cores among those of the node: {cores}"),
    ))
}

/// Checks that the packet memory has more frames than the hardware queues can keep. With zero-copy the receive queue of
/// the NIC is filled with frames of that memory, and what waits in its transmit queue is there, too.
fn rings(interface: &Interface, plans: &Plans) -> Option<Finding> {
    let (ifname, rings) = (&interface.ifname, interface.rings?);
    let check = "rings";
    let found = format!("{} descriptors to receive, {} to transmit", rings.receive, rings.transmit);
    let kept = u64::from(rings.receive) + u64::from(rings.transmit);
    let frames = plans.frames;
    if interface.zero_copy != Some(true) || frames == 0 || 2 * kept <= frames {
        return Some(Finding::ok(ifname, check, found));
    }
    Some(Finding::warn(
        ifname,
        check,
        format!("{found}: in zero-copy mode they can keep more than half of a worker's {frames} frames"),
        format!("[workers] frames = {}, or `ethtool -G {ifname} rx 1024 tx 1024`", (4 * kept).next_power_of_two()),
    ))
}

/// Checks how long receive interrupts are put off. Workers that poll the driver do not wait for them.
fn interrupts(interface: &Interface, plans: &Plans) -> Option<Finding> {
    let (ifname, check) = (&interface.ifname, "coalescing");
    match interface.coalescing? {
        Coalescing { is_adaptive: true, .. } => {
            Some(Finding::ok(ifname, check, "adaptive: receive interrupts wait longer under load"))
        }
        Coalescing { microseconds, .. } if microseconds > LONG_MICROSECONDS && !plans.polls_drivers => {
            let found = format!("a receive interrupt waits up to {microseconds} microseconds");
            Some(Finding::warn(ifname, check, found, format!("`ethtool -C {ifname} rx-usecs 8`, or adaptive-rx on")))
        }
        Coalescing { microseconds, .. } => {
            Some(Finding::ok(ifname, check, format!("a receive interrupt waits up to {microseconds} microseconds")))
        }
    }
}

#[cfg(test)]
mod tests {
    use srv6d_xsk::probe::Rings;

    use super::super::Severity;
    use super::super::tests::a_nic;
    use super::*;

    fn healthy() -> (Interface, Place, Plans) {
        let place = Place { node: Some(1), near: [2, 3].into() };
        (a_nic(), place, Plans { cores: vec![2], frames: 8192, ..Plans::default() })
    }

    fn not_ok((interface, place, plans): &(Interface, Place, Plans)) -> Vec<&'static str> {
        let findings = judge(interface, place, plans);
        assert!(findings.iter().all(|finding| (finding.verdict == Severity::Ok) == finding.fix.is_none()));
        findings.iter().filter(|finding| finding.verdict != Severity::Ok).map(|finding| finding.check).collect()
    }

    #[test]
    fn a_nic_that_is_set_up_well_has_nothing_to_fix() {
        assert_eq!(judge(&healthy().0, &healthy().1, &healthy().2).len(), 3);
        assert_eq!(not_ok(&healthy()), Vec::<&str>::new());
    }

    #[test]
    fn each_trouble_is_named_and_none_where_it_does_not_matter() {
        type Change = fn(&mut (Interface, Place, Plans));
        let cases: [(Change, &[&str]); 7] = [
            (|(_, _, plans)| plans.cores.push(5), &["NUMA node"]),
            (|(_, place, _)| *place = Place::default(), &[]),
            (|(nic, ..)| nic.rings = Some(Rings { receive: 4096, transmit: 4096 }), &["rings"]),
            (
                |(nic, ..)| {
                    nic.rings = Some(Rings { receive: 4096, transmit: 4096 });
                    nic.zero_copy = Some(false);
                },
                &[],
            ),
            (|(nic, ..)| nic.coalescing = Some(Coalescing { is_adaptive: false, microseconds: 250 }), &["coalescing"]),
            (|(nic, ..)| nic.coalescing = Some(Coalescing { is_adaptive: true, microseconds: 250 }), &[]),
            (
                |(nic, _, plans)| {
                    nic.coalescing = Some(Coalescing { is_adaptive: false, microseconds: 250 });
                    plans.polls_drivers = true;
                },
                &[],
            ),
        ];
        for (number, (change, expected)) in cases.into_iter().enumerate() {
            let mut facts = healthy();
            change(&mut facts);
            assert_eq!(not_ok(&facts), expected, "case {number}");
        }
    }

    #[test]
    fn the_fix_of_the_rings_ends_the_warning() {
        let mut facts = healthy();
        facts.0.rings = Some(Rings { receive: 4096, transmit: 4096 });
        facts.2.frames = 32768;
        assert_eq!(not_ok(&facts), Vec::<&str>::new(), "[workers] frames = 32768 is the fix");
    }
}
