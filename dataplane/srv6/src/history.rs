//! The groups of the earlier tables, so that a whole build moves as few flows as possible.

use std::collections::HashMap;

use srv6d_fib::{Groups, Spread};

use crate::build::Known;
use crate::index::Index;
use crate::tables::Tables;

/// Earlier groups with several members. A member is named by the slot of its counters, which outlasts the tables.
#[derive(Debug, Default)]
pub(crate) struct History {
    spreads: Vec<Spread>,
    by_member: HashMap<u32, Vec<usize>>,
}

/// Tables that were in force before, and their index if they have one.
#[derive(Clone, Copy, Debug)]
pub struct Before<'b> {
    /// The tables.
    pub tables: &'b Tables,
    /// Their index.
    pub index: Option<&'b Index>,
}

/// The histories of groups of next hops and of groups of paths.
#[derive(Debug, Default)]
pub(crate) struct Histories<'b> {
    before: Option<Before<'b>>,
    hops: History,
    pub(crate) paths: History,
}

impl<'b> Histories<'b> {
    pub(crate) fn of(before: Before<'b>) -> Self {
        let Before { tables, .. } = before;
        Self {
            before: Some(before),
            hops: History::of(&tables.groups, |hop| Some(tables.adjacencies.get(hop as usize)?.slot)),
            paths: History::of(&tables.steers, |path| Some(tables.paths.get(path as usize)?.slot)),
        }
    }

    /// Returns the slots that next hops had before: in the group that had the same key, or else in the group that has
    /// the most of these next hops. `find` looks for the key in the earlier tables.
    pub(crate) fn hops_before(
        &self,
        members: &[(u32, u32)],
        find: impl FnOnce(&Known) -> Option<u32>,
    ) -> Option<Spread> {
        let Before { tables, index } = self.before?;
        let Some(group) = index.and_then(|index| find(index.known())) else { return self.hops.before(members) };
        let slot = |hop: u32| Some(tables.adjacencies.get(hop as usize)?.slot);
        let number = |slot: u32| members.iter().find(|(_, known)| *known == slot).map(|(number, _)| *number);
        Some(tables.groups.spread(group)?.renumbered(|hop| number(slot(hop)?)))
    }
}

impl History {
    fn of(groups: &Groups, slot: impl Fn(u32) -> Option<u32>) -> Self {
        let numbers = (0..).zip(groups.iter()).filter(|(_, members)| members.len() > 1).map(|(number, _)| number);
        let spreads: Vec<Spread> =
            numbers.filter_map(|number| Some(groups.spread(number)?.renumbered(&slot))).collect();
        let mut by_member: HashMap<u32, Vec<usize>> = HashMap::new();
        for (number, spread) in spreads.iter().enumerate() {
            for &member in spread.members() {
                by_member.entry(member).or_default().push(number);
            }
        }
        Self { spreads, by_member }
    }

    /// Returns the earlier group that has the most of these members, as a spread over their present numbers. Each
    /// member is given by its present number and the slot of its counters.
    pub(crate) fn before(&self, members: &[(u32, u32)]) -> Option<Spread> {
        let mut shared: HashMap<usize, usize> = HashMap::new();
        for (_, slot) in members {
            for &number in self.by_member.get(slot).into_iter().flatten() {
                *shared.entry(number).or_default() += 1;
            }
        }
        // Between two groups that have equally many of these members, the smaller group is chosen.
        let size = |number: usize| self.spreads.get(number).map_or(0, |spread| spread.members().len());
        let rank = |&(number, shared): &(usize, usize)| (shared, std::cmp::Reverse((size(number), number)));
        let (best, _) = shared.into_iter().max_by_key(rank)?;
        let number = |slot: u32| members.iter().find(|(_, known)| *known == slot).map(|(number, _)| *number);
        Some(self.spreads.get(best)?.renumbered(number))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test may panic")]
mod tests {
    use std::net::IpAddr;

    use ipnet::IpNet;
    use srv6d_fib::SLOTS;

    use super::*;
    use crate::carrier::SegmentList;
    use crate::desired::{
        Amendment, Desired, Hop, Mac, NeighborChange, Path, Port, PortId, Route, RouteAction, RouteChange, Steer,
        SteerChange, TableId, Tunnel,
    };
    use crate::tables::{MAIN, Target};
    use crate::tally::Slots;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn neighbor(port: u16) -> (PortId, IpAddr) {
        (PortId(port), address(&format!("2001:db8:{port}::2")))
    }

    fn hops(ports: &[u16]) -> Vec<Hop> {
        let hop = |&port: &u16| Hop { port: PortId(port), via: Some(neighbor(port).1), weight: 1 };
        ports.iter().map(hop).collect()
    }

    fn paths(numbers: &[u16]) -> Vec<Path> {
        let path = |&number: &u16| Path {
            name: format!("path-{number}"),
            segments: SegmentList::new(vec![format!("fcbb:0:{number}::").parse().unwrap()], &[]).unwrap(),
            full_srh: false,
            weight: 1,
            source: None,
            via: hops(&[0]),
        };
        numbers.iter().map(path).collect()
    }

    /// A node with four ports. Routes and steered prefixes take all four next hops and paths.
    fn desired() -> Desired {
        let route =
            |prefix| Route { table: TableId::MAIN, prefix: net(prefix), action: RouteAction::Via(hops(&[0, 1, 2, 3])) };
        Desired {
            ports: (0..4).map(|port| Port::fabric("p", port, Mac([2, 0, 0, 0, 0, 1]), 1500)).collect(),
            neighbors: (0..4).map(|port| (neighbor(port), Mac([2, 0, 0, 0, 1, 1]))).collect(),
            tunnel: Tunnel { source: "2001:db8::1".parse().ok(), ..Tunnel::default() },
            routes: vec![route("2001:db8:a::/48"), route("::/0")],
            steers: vec![Steer { table: TableId::MAIN, prefix: net("2001:db8:b::/48"), paths: paths(&[1, 2, 3, 4]) }],
            ..Desired::default()
        }
    }

    /// Tables in force with their index.
    struct Node {
        desired: Desired,
        slots: Slots,
        tables: Tables,
        index: Option<Index>,
    }

    impl Node {
        fn new() -> Self {
            let (desired, mut slots) = (desired(), Slots::default());
            let (tables, parts) = Tables::build_with_parts(&desired, &mut slots, None).unwrap();
            let index = Index::new(&desired, &tables, parts);
            Self { desired, slots, tables, index }
        }

        fn rebuild(&mut self, change: impl FnOnce(&mut Desired)) {
            change(&mut self.desired);
            let before = Before { tables: &self.tables, index: self.index.as_ref() };
            let (tables, parts) = Tables::build_with_parts(&self.desired, &mut self.slots, Some(before)).unwrap();
            (self.index, self.tables) = (Index::new(&self.desired, &tables, parts), tables);
        }

        fn amend(&mut self, amendment: &Amendment) {
            let index = self.index.as_mut().unwrap();
            index.apply(&mut self.desired, &mut self.slots, &mut self.tables, amendment).unwrap();
        }

        /// Returns, for each slot of a destination's group, the counter of its next hop or path.
        fn choices(&self, destination: &str) -> Vec<u32> {
            let IpAddr::V6(destination) = address(destination) else { unreachable!() };
            let slots = 0..SLOTS;
            match self.tables.look_up_v6(MAIN, destination.to_bits()).map(Target::decode).unwrap() {
                Target::Route(group) => {
                    let member = |slot| self.tables.groups.member(group, || slot).unwrap();
                    slots.map(|slot| self.tables.adjacencies[member(slot) as usize].slot).collect()
                }
                Target::Steer(steer) => {
                    let member = |slot| self.tables.steers.member(steer, || slot).unwrap();
                    slots.map(|slot| self.tables.paths[member(slot) as usize].slot).collect()
                }
                other => unreachable!("{other:?}"),
            }
        }
    }

    const DESTINATIONS: [&str; 3] = ["2001:db8:a::1", "2001:db8:c::1", "2001:db8:b::1"];

    /// Returns how many slots of each destination lead elsewhere after a change.
    fn moved(node: &mut Node, change: impl FnOnce(&mut Node)) -> [usize; 3] {
        let before = DESTINATIONS.map(|destination| node.choices(destination));
        change(node);
        let after = DESTINATIONS.map(|destination| node.choices(destination));
        [0, 1, 2].map(|of| before[of].iter().zip(&after[of]).filter(|(before, after)| before != after).count())
    }

    const QUARTER: usize = SLOTS / 4;

    #[test]
    fn a_whole_build_moves_the_flows_of_a_port_that_went_down_or_came_up() {
        for port in 0..4 {
            let mut node = Node::new();
            let down = |up| move |node: &mut Node| node.rebuild(|desired| desired.ports[port].up = up);
            assert_eq!(moved(&mut node, down(false)), [QUARTER, QUARTER, 0]);
            assert_eq!(moved(&mut node, |node| node.rebuild(|_| ())), [0; 3]);
            assert_eq!(moved(&mut node, down(true)), [QUARTER, QUARTER, 0]);
        }
    }

    #[test]
    fn a_whole_build_moves_the_flows_of_a_next_hop_or_path_that_is_no_longer_listed() {
        for gone in 0..4 {
            let mut node = Node::new();
            let change = |desired: &mut Desired| {
                for route in &mut desired.routes {
                    let RouteAction::Via(hops) = &mut route.action else { continue };
                    hops.remove(gone);
                }
                desired.steers[0].paths.remove(gone);
            };
            assert_eq!(moved(&mut node, |node| node.rebuild(change)), [QUARTER; 3]);
        }
    }

    #[test]
    fn a_whole_build_moves_the_flows_that_other_weights_move() {
        // One of four carries half as much as before.
        let change = |desired: &mut Desired| {
            for route in &mut desired.routes {
                let RouteAction::Via(hops) = &mut route.action else { continue };
                hops[1..].iter_mut().for_each(|hop| hop.weight = 2);
            }
            desired.steers[0].paths[1..].iter_mut().for_each(|path| path.weight = 2);
        };
        assert_eq!(moved(&mut Node::new(), |node| node.rebuild(change)), [110; 3]);
    }

    #[test]
    fn an_amendment_moves_the_flows_that_must() {
        let mut node = Node::new();
        let lost = |port, mac| NeighborChange { port: neighbor(port).0, address: neighbor(port).1, mac };
        let neighbor_lost = Amendment { neighbors: vec![lost(1, None)], ..Amendment::default() };
        assert_eq!(moved(&mut node, |node| node.amend(&neighbor_lost)), [QUARTER, QUARTER, 0]);
        let found = Amendment { neighbors: vec![lost(1, Some(Mac([2, 0, 0, 0, 1, 1])))], ..Amendment::default() };
        assert_eq!(moved(&mut node, |node| node.amend(&found)), [QUARTER, QUARTER, 0]);
        let route = |prefix, ports: &[u16]| RouteChange {
            table: TableId::MAIN,
            prefix: net(prefix),
            action: Some(RouteAction::Via(hops(ports))),
        };
        let steer = |numbers: &[u16]| SteerChange {
            table: TableId::MAIN,
            prefix: net("2001:db8:b::/48"),
            paths: paths(numbers),
        };
        for (ports, numbers) in [(&[0, 2, 3][..], &[1, 2, 4][..]), (&[0, 1, 2, 3], &[4, 3, 2, 1])] {
            let amendment = Amendment {
                routes: vec![route("2001:db8:a::/48", ports), route("::/0", ports)],
                steers: vec![steer(numbers)],
                ..Amendment::default()
            };
            assert_eq!(moved(&mut node, |node| node.amend(&amendment)), [QUARTER; 3], "{ports:?} {numbers:?}");
            assert_eq!(moved(&mut node, |node| node.rebuild(|_| ())), [0; 3]);
        }
    }
}
