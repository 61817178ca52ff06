//! Few changes of what is in force, in time that does not depend on how much that is.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use srv6d_srv6::Rank;
use srv6d_srv6::model::{Amendment, TableId};
use srv6d_xsk::XskError;

use super::{Dataplane, DataplaneError, tables_of, wiring};
use crate::claims::sources_of;
use crate::publish::Amended;

impl Dataplane {
    /// Changes some routes and steered prefixes of what is in force: every packet sees all of it or nothing. It is made
    /// in place where that is possible, and takes a whole build where it is not ([`published`](Self::published) counts).
    ///
    /// # Errors
    /// [`BuildError`](srv6d_srv6::BuildError): the old state stays in force.
    pub fn amend(&mut self, amendment: &Amendment) -> Result<Amended, DataplaneError> {
        let (tables, numbers, devices) = (&mut self.tables, &self.numbers, &self.devices);
        let amended = tables.amend(amendment, |desired, slots| wiring(desired, slots, numbers, devices))?;
        if amended.undo.is_empty() {
            return Ok(amended);
        }
        self.generation += 1;
        let names: Vec<String> = self.devices.keys().cloned().collect();
        for name in names {
            self.amend_claims(&name, &amended.undo)?;
        }
        if amended.changes_offload {
            self.sync_offload();
        }
        Ok(amended)
    }

    /// Amendments are to be expected: be ready for the first one, at the price of having the tables twice.
    pub fn expect_amendments(&mut self) {
        self.tables.expect_amendments();
    }

    /// What a prefix means in each table that knows it: of several meanings the one that counts. Nothing is known before
    /// the first amendment.
    pub fn meanings(&self, prefix: IpNet) -> Vec<(TableId, Rank)> {
        self.tables.index().map(|index| index.meanings(prefix).collect()).unwrap_or_default()
    }

    fn amend_claims(&mut self, name: &str, changed: &Amendment) -> Result<(), XskError> {
        let Some(index) = self.tables.index() else { return self.claim(name) };
        let desired = self.tables.desired();
        let Some(device) = self.devices.get_mut(name).filter(|device| !device.claim_all) else { return Ok(()) };
        let tables = tables_of(desired, name);
        let routes = changed.routes.iter().map(|change| (change.table, change.prefix));
        let steers = changed.steers.iter().map(|change| (change.table, change.prefix));
        let prefixes = routes.chain(steers).filter(|(table, _)| tables.contains(table)).map(|(_, prefix)| prefix);
        let prefixes = prefixes.chain(changed.sids.iter().map(|change| change.prefix.into()));
        let claims: Vec<(IpAddr, u8, Option<bool>)> =
            prefixes.map(|prefix| (prefix.network(), prefix.prefix_len(), index.claims(&tables, prefix))).collect();
        device.program.amend_claims(&claims)?;
        if !tables.contains(&TableId::MAIN) {
            return Ok(());
        }
        let of_change = |at: &srv6d_srv6::model::SteerChange| index.steer(desired, at.table, at.prefix);
        let paths = changed.steers.iter().filter_map(of_change).flat_map(|steer| &steer.paths);
        let sources: BTreeSet<Ipv6Addr> = sources_of(desired, paths).collect();
        device.program.add_outer_sources(&sources)
    }
}
