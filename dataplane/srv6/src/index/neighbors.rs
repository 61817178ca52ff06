//! Changes of neighbours: updates their next hops, the groups and paths that contain these, and the host routes to
//! neighbours on a link.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::{Changed, Index, MOST_PATHS, OpLog, RebuildReason};
use crate::build::{BuildError, Rank, key};
use crate::desired::{Behavior, Desired, Hop, NeighborChange, PortId, TableId};
use crate::lpm::Key;
use crate::tables::{Adjacency, Tables, Target};
use crate::tally::Slots;

/// Returns the ports that cross-connects lead onto. Every neighbour there can be the target.
pub(super) fn cross_connects(desired: &Desired) -> BTreeSet<PortId> {
    let port = |behavior: &Behavior| match behavior {
        Behavior::EndDx { via, .. } => match via.as_slice() {
            [Hop { via: None, port, .. }, ..] => Some(*port),
            _ => None,
        },
        _ => None,
    };
    desired.sids.iter().filter_map(|sid| port(&sid.behavior)).collect()
}

fn renewed_entry(tables: &Tables, at: u32) -> Option<(u32, Adjacency)> {
    Some((at, tables.adjacencies.get(at as usize)?.clone()))
}

impl Tables {
    /// Sets the next-hop group of one neighbour for cross-connects (End.DX) onto its link. `None` means that the
    /// neighbour is not resolved.
    pub(super) fn cross_connect(&mut self, neighbor: (PortId, IpAddr), group: Option<u32>) {
        match group {
            Some(group) => drop(self.cross_connected.insert(neighbor, group)),
            None => drop(self.cross_connected.remove(&neighbor)),
        }
    }
}

impl Index {
    /// Applies changes of neighbours to the desired state, next hops, groups and prefixes. Returns the groups whose
    /// next hops have changed, for [`follow_groups`](Self::follow_groups).
    pub(super) fn change_neighbors(
        &mut self,
        desired: &mut Desired,
        slots: &mut Slots,
        tables: &mut Tables,
        neighbors: &[NeighborChange],
        changed: &mut Changed,
    ) -> Result<Vec<u32>, BuildError> {
        let mut renewed = BTreeSet::new();
        for &change in neighbors {
            let Some(undo) = desired.change_neighbor(change) else { continue };
            changed.undo.neighbors.push(undo);
            if undo.mac.is_some() != change.mac.is_some() {
                self.note_neighbor(desired, change.address);
                self.lead_to_neighbor(desired, slots, tables, change, changed)?;
            }
            renewed.extend(self.known.adjacencies.get(&(change.port, change.address)));
        }
        let groups = self.build(desired, slots, tables, |build| build.renew(&renewed))?;
        changed.op_log.renewed = renewed.iter().filter_map(|at| renewed_entry(tables, *at)).collect();
        Ok(groups)
    }

    /// Records next hops that were idle, and that a route, a SID or a path needs again.
    pub(super) fn follow_woken(&mut self, tables: &Tables, op_log: &mut OpLog) {
        let woken = std::mem::take(&mut self.known.woken);
        op_log.renewed.extend(woken.into_iter().filter_map(|at| renewed_entry(tables, at)));
    }

    fn note_neighbor(&mut self, desired: &Desired, address: IpAddr) {
        if desired.neighbors.keys().any(|&(_, known)| known == address) {
            self.neighbors.insert(address);
        } else {
            self.neighbors.remove(&address);
        }
    }

    /// Updates the host routes to a neighbour on a link, as [`Tables::build`] makes them, and the cross-connects onto
    /// the link.
    fn lead_to_neighbor(
        &mut self,
        desired: &Desired,
        slots: &mut Slots,
        tables: &mut Tables,
        NeighborChange { port, address, mac }: NeighborChange,
        changed: &mut Changed,
    ) -> Result<(), BuildError> {
        let host = IpNet::from(address);
        let is_around = |&&(_, prefix, on): &&(TableId, IpNet, PortId)| on == port && prefix.contains(&address);
        let links = self.on_link.iter().filter(is_around);
        let links: Vec<TableId> = links
            .filter(|(table, link, _)| !self.leads_elsewhere(*table, *link, host))
            .map(|&(table, ..)| table)
            .collect();
        let is_cross_connected = self.cross_connects.contains(&port);
        if links.is_empty() && !is_cross_connected {
            return Ok(());
        }
        let group = match mac {
            Some(_) => Some(self.build(desired, slots, tables, |build| build.neighbor_group(port, address))?),
            None => None,
        };
        for table in links {
            self.set(table, host, Rank::Neighbor, group.map(|group| (Target::Neighbor(group), 0)));
            changed.op_log.prefixes.extend(self.at(table, host));
        }
        if is_cross_connected {
            tables.cross_connect((port, address), group);
            changed.op_log.cross_connected.push(((port, address), group));
        }
        Ok(())
    }

    /// Returns true if a longer prefix than that of the link covers the host, so that the host is not reached over the
    /// link.
    fn leads_elsewhere(&self, table: TableId, link: IpNet, host: IpNet) -> bool {
        let Some(family) = self.family(table, link) else { return false };
        let Key { bits, len } = key(host);
        let longer = link.prefix_len() + 1..=len;
        let mut meanings = longer.filter_map(|len| family.get(Key::new(bits, len)));
        meanings.any(|meaning| meaning.rank != Rank::Neighbor as u8)
    }

    /// Updates the groups whose next hops have changed, and the paths and steered prefixes that leave by them.
    pub(super) fn follow_groups(tables: &Tables, groups: &[u32], op_log: &mut OpLog) -> Result<(), RebuildReason> {
        if groups.is_empty() {
            return Ok(());
        }
        let entry = |&at: &u32| Some((at, tables.groups.spread(at)?));
        op_log.regrouped.extend(groups.iter().filter_map(entry));
        let groups: BTreeSet<u32> = groups.iter().copied().collect();
        let leaves = |group: Option<u32>| group.is_some_and(|group| groups.contains(&group));
        let paths = (0..).zip(&tables.paths).filter(|(_, path)| leaves(path.group));
        let paths: Vec<_> = paths.map(|(at, path)| (at, path.clone())).take(MOST_PATHS + 1).collect();
        if paths.len() > MOST_PATHS {
            return Err(RebuildReason::NoRoom);
        }
        let is_of = |steer: &[u32]| steer.iter().any(|at| paths.binary_search_by_key(at, |(path, _)| *path).is_ok());
        let steers = (0..).zip(tables.steers.iter()).filter(|(_, steer)| !paths.is_empty() && is_of(steer));
        op_log.steers.extend(steers.filter_map(|(at, _)| Some((at, tables.steers.spread(at)?))));
        op_log.paths.extend(paths);
        Ok(())
    }
}
