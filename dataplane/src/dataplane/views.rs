//! Claims: the frames of each port that the workers receive.
//!
//! Ports that look packets up in the same tables have the same claims. These form a view, which the XDP program's
//! maps hold once.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;

use srv6d_srv6::desired::{Desired, Port, TableId};
use srv6d_srv6::own_sources;
use srv6d_xsk::{ClaimProgram, Rules, View, XskError};

use super::{Dataplane, device_name, tables_of};
use crate::claims::{claims, sid_space};

/// The view of a port that looks up in no table. It has no claims.
const EMPTY: View = View(0);

/// Numbers of the sets of this node's own sources in the XDP program, by the table of the edge and host ports they
/// are for.
#[derive(Debug, Default)]
pub(super) struct OwnSourceSets(BTreeMap<TableId, NonZeroU16>);

impl OwnSourceSets {
    /// Writes the sets of all tables with edge or host ports. Sets of other tables stay, because ports may still use them.
    pub(super) fn write(&mut self, program: &ClaimProgram, desired: &Desired) -> Result<(), XskError> {
        let used: BTreeSet<NonZeroU16> = self.0.values().copied().collect();
        let mut free = (1..=u16::MAX).filter_map(NonZeroU16::new).filter(|number| !used.contains(number));
        for (table, prefixes) in own_sources(desired, &outside_tables(desired)) {
            // There are more set numbers than tables, so one is always free.
            let Some(number) = self.0.get(&table).copied().or_else(|| free.next()) else { continue };
            self.0.insert(table, number);
            program.set_own_sources(number, &prefixes)?;
        }
        Ok(())
    }

    /// Removes the sets that no port uses any more.
    fn drop_unused(&mut self, program: &ClaimProgram, desired: &Desired) -> Result<(), XskError> {
        let used = outside_tables(desired);
        let unused = self.0.extract_if(.., |table, _| !used.contains(table));
        unused.map(|(_, number)| number).try_for_each(|number| program.set_own_sources(number, &[]))
    }

    fn of(&self, port: &Port) -> u16 {
        let number = self.0.get(&port.table).filter(|_| port.role.is_outside());
        number.map_or(0, |number| number.get())
    }
}

fn outside_tables(desired: &Desired) -> BTreeSet<TableId> {
    desired.ports.iter().filter(|port| port.role.is_outside()).map(|port| port.table).collect()
}

/// Views in use, by the tables that their ports look packets up in.
#[derive(Debug, Default)]
pub(super) struct Views(BTreeMap<BTreeSet<TableId>, View>);

impl Views {
    /// Returns the view of these tables. A new view gets a number that no other view has.
    fn of(&mut self, tables: &BTreeSet<TableId>) -> View {
        if tables.is_empty() {
            return EMPTY;
        }
        let used: BTreeSet<View> = self.0.values().copied().collect();
        let free = || (1..=u32::MAX).map(View).find(|view| !used.contains(view)).unwrap_or_default();
        *self.0.entry(tables.clone()).or_insert_with(free)
    }

    /// Returns the views with their tables.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&BTreeSet<TableId>, View)> {
        self.0.iter().map(|(tables, &view)| (tables, view))
    }

    /// Removes the views whose sets of tables are not in `used`, and returns them.
    fn take_unused(&mut self, used: &BTreeSet<BTreeSet<TableId>>) -> Vec<View> {
        self.0.extract_if(.., |tables, _| !used.contains(tables)).map(|(_, view)| view).collect()
    }
}

impl Dataplane {
    /// Updates the claims of all ports to the state in force.
    pub(super) fn claim(&mut self) -> Result<(), XskError> {
        let Some(program) = self.claim_program.clone() else { return Ok(()) };
        let of_devices: BTreeMap<String, BTreeSet<TableId>> = (self.devices.iter())
            .filter(|(_, device)| !device.claim_all)
            .map(|(name, _)| (name.clone(), tables_of(self.tables.desired(), name)))
            .collect();
        let used: BTreeSet<BTreeSet<TableId>> = of_devices.values().cloned().collect();
        program.set_sid_space(&sid_space(self.tables.desired()))?;
        self.own_sources.write(&program, self.tables.desired())?;
        for tables in used.iter().filter(|tables| !tables.is_empty()) {
            self.write_view(&program, tables)?;
        }
        for (name, tables) in &of_devices {
            self.claim_port(name, tables)?;
        }
        // These sets of own sources belong to no port any more.
        self.own_sources.drop_unused(&program, self.tables.desired())?;
        self.views.take_unused(&used).into_iter().try_for_each(|view| program.drop_view(view))
    }

    fn write_view(&mut self, program: &ClaimProgram, tables: &BTreeSet<TableId>) -> Result<(), XskError> {
        let claims = claims(self.tables.desired(), tables);
        let view = self.views.of(tables);
        program.set_outer_sources(view, &claims.outer_sources)?;
        program.set_claims(view, &claims.v6, &claims.v4)
    }

    /// Writes the rules of one port: its address, its VLANs, and its view.
    fn claim_port(&mut self, name: &str, tables: &BTreeSet<TableId>) -> Result<(), XskError> {
        let desired = self.tables.desired();
        let is_of_device = |of: u16| desired.ports.get(usize::from(of)).is_some_and(|port| device_name(port) == name);
        let ports = || desired.ports.iter().filter(|port| is_of_device(port.device));
        let vlans: Vec<u16> = ports().filter_map(|port| port.vlan).collect();
        let rules: Vec<(u16, Rules)> = ports().map(|port| (port.vlan.unwrap_or(0), self.rules(port))).collect();
        let (untagged, mac) = (ports().any(|port| port.vlan.is_none()), ports().next().map(|port| port.mac.0));
        let view = self.views.of(tables);
        let Some(device) = self.devices.get_mut(name) else { return Ok(()) };
        if let Some(mac) = mac {
            device.program.set_mac(mac)?;
        }
        for (vid, rules) in &rules {
            device.program.set_rules(*vid, rules)?;
        }
        if device.vlans != vlans {
            device.program.set_vlans(&vlans)?;
            device.vlans = vlans;
        }
        device.program.set_untagged(untagged)?;
        device.program.set_view(view)
    }

    fn rules(&self, port: &Port) -> Rules {
        let sources = port.allowed_sources.iter().map(|prefix| (prefix.network(), prefix.prefix_len()));
        Rules {
            guards_sids: port.role.is_outside(),
            own_sources: self.own_sources.of(port),
            allowed_sources: sources.collect(),
        }
    }
}
