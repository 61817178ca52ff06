//! Claims: which frames of each port come to the workers.
//!
//! Ports that look packets up in the same tables have the same claims, a view, which the XDP program's maps hold once.

use std::collections::{BTreeMap, BTreeSet};

use srv6d_srv6::model::{Port, TableId};
use srv6d_xsk::{ClaimProgram, Rules, View, XskError};

use super::{Dataplane, device_name, tables_of};
use crate::claims::{claims, sid_space};

/// Of a port that nothing looks up for: it has no claims.
const EMPTY: View = View(0);

/// Views in use, by the tables that their ports look packets up in.
#[derive(Debug, Default)]
pub(super) struct Views(BTreeMap<BTreeSet<TableId>, View>);

impl Views {
    /// The view of these tables, with a number that no other view has if it is new.
    fn of(&mut self, tables: &BTreeSet<TableId>) -> View {
        if tables.is_empty() {
            return EMPTY;
        }
        let used: BTreeSet<View> = self.0.values().copied().collect();
        let free = || (1..=u32::MAX).map(View).find(|view| !used.contains(view)).unwrap_or_default();
        *self.0.entry(tables.clone()).or_insert_with(free)
    }

    /// Views with the tables they are of.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&BTreeSet<TableId>, View)> {
        self.0.iter().map(|(tables, &view)| (tables, view))
    }

    /// Takes out those that are of none of these tables.
    fn take_unused(&mut self, used: &BTreeSet<BTreeSet<TableId>>) -> Vec<View> {
        self.0.extract_if(.., |tables, _| !used.contains(tables)).map(|(_, view)| view).collect()
    }
}

impl Dataplane {
    /// Brings the claims of all ports in line with the state in force.
    pub(super) fn claim(&mut self) -> Result<(), XskError> {
        let Some(program) = self.claim_program.clone() else { return Ok(()) };
        let of_devices: BTreeMap<String, BTreeSet<TableId>> = (self.devices.iter())
            .filter(|(_, device)| !device.claim_all)
            .map(|(name, _)| (name.clone(), tables_of(self.tables.desired(), name)))
            .collect();
        let used: BTreeSet<BTreeSet<TableId>> = of_devices.values().cloned().collect();
        program.set_sid_space(&sid_space(self.tables.desired()))?;
        for tables in used.iter().filter(|tables| !tables.is_empty()) {
            self.write_view(&program, tables)?;
        }
        for (name, tables) in &of_devices {
            self.claim_port(name, tables)?;
        }
        // No port uses these any more.
        self.views.take_unused(&used).into_iter().try_for_each(|view| program.drop_view(view))
    }

    fn write_view(&mut self, program: &ClaimProgram, tables: &BTreeSet<TableId>) -> Result<(), XskError> {
        let claims = claims(self.tables.desired(), tables);
        let view = self.views.of(tables);
        program.set_outer_sources(view, &claims.outer_sources)?;
        program.set_claims(view, &claims.v6, &claims.v4)
    }

    /// What is the port's own: its address, its VLANs, and which claims count there.
    fn claim_port(&mut self, name: &str, tables: &BTreeSet<TableId>) -> Result<(), XskError> {
        let desired = self.tables.desired();
        let is_of_device = |of: u16| desired.ports.get(usize::from(of)).is_some_and(|port| device_name(port) == name);
        let ports = || desired.ports.iter().filter(|port| is_of_device(port.device));
        let vlans: Vec<u16> = ports().filter_map(|port| port.vlan).collect();
        let rules: Vec<(u16, Rules)> = ports().map(|port| (port.vlan.unwrap_or(0), rules(port))).collect();
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
}

fn rules(port: &Port) -> Rules {
    let sources = port.allowed_sources.iter().map(|prefix| (prefix.network(), prefix.prefix_len()));
    Rules { guards_sids: port.role.is_outside(), allowed_sources: sources.collect() }
}
