//! Amendments: a few changes of the state in force, in time that does not depend on the size of the state.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use srv6d_srv6::Rank;
use srv6d_srv6::desired::{Amendment, TableId};
use srv6d_xsk::{ClaimProgram, View, XskError};

use super::{Dataplane, DataplaneError, wiring};
use crate::claims::{locators_of, sources_of};
use crate::left_right::Amended;

impl Dataplane {
    /// Changes some entries of the state in force: every packet sees all of the change or none. It is made in place
    /// if that is possible, and otherwise takes a whole build ([`published`](Self::published) counts both).
    ///
    /// # Errors
    /// Returns [`BuildError`](srv6d_srv6::BuildError) if it cannot be compiled. The old state stays in force.
    pub fn amend(&mut self, amendment: &Amendment) -> Result<Amended, DataplaneError> {
        self.reuse_slots();
        let whole = self.tables.published().whole_for_amendment;
        let (tables, numbers, devices) = (&mut self.tables, &self.numbers, &self.devices);
        let amended = tables.amend(amendment, |desired, slots| wiring(desired, slots, numbers, devices))?;
        if amended.undo.is_empty() {
            return Ok(amended);
        }
        self.generation += 1;
        if self.tables.published().whole_for_amendment > whole {
            self.claim_own_sources()?;
        }
        self.amend_claims(&amended.undo)?;
        if amended.changes_offload {
            self.sync_offload();
        }
        Ok(amended)
    }

    /// Prepares for amendments, so that the first one takes no longer than others. The tables then exist twice.
    pub fn expect_amendments(&mut self) {
        self.tables.expect_amendments();
    }

    /// Returns the kind of the entry in force for a prefix, in each table that has the prefix. Returns nothing before
    /// the first amendment.
    pub fn meanings(&self, prefix: IpNet) -> Vec<(TableId, Rank)> {
        self.tables.index().map(|index| index.meanings(prefix).collect()).unwrap_or_default()
    }

    /// Writes this node's own sources to the XDP program. They depend on SIDs and on subnets behind ports, which change
    /// with whole builds only.
    fn claim_own_sources(&mut self) -> Result<(), XskError> {
        let Some(program) = &self.claim_program else { return Ok(()) };
        self.own_sources.write(program, self.tables.desired())
    }

    fn amend_claims(&mut self, changed: &Amendment) -> Result<(), XskError> {
        if self.tables.index().is_none() {
            return self.claim();
        }
        let Some(program) = &self.claim_program else { return Ok(()) };
        program.add_sid_space(&self.sid_space_of(changed))?;
        self.views.iter().try_for_each(|(tables, view)| self.amend_view(program, tables, view, changed))
    }

    /// Returns what an amendment adds to the SID space. What it removes stays closed until all claims are written
    /// again.
    fn sid_space_of(&self, changed: &Amendment) -> BTreeSet<(Ipv6Addr, u8)> {
        let Some(index) = self.tables.index() else { return BTreeSet::new() };
        let desired = self.tables.desired();
        let steers = changed.steers.iter().filter_map(|at| index.steer(desired, at.table, at.prefix));
        let locators = locators_of(desired, steers.flat_map(|steer| &steer.paths));
        let prefixes = locators.into_iter().chain(changed.sids.iter().map(|change| change.prefix));
        prefixes.map(|prefix| (prefix.network(), prefix.prefix_len())).collect()
    }

    fn amend_view(
        &self,
        program: &ClaimProgram,
        tables: &BTreeSet<TableId>,
        view: View,
        changed: &Amendment,
    ) -> Result<(), XskError> {
        let Some(index) = self.tables.index() else { return Ok(()) };
        let desired = self.tables.desired();
        let routes = changed.routes.iter().map(|change| (change.table, change.prefix));
        let steers = changed.steers.iter().map(|change| (change.table, change.prefix));
        let prefixes = routes.chain(steers).filter(|(table, _)| tables.contains(table)).map(|(_, prefix)| prefix);
        let prefixes = prefixes.chain(changed.sids.iter().map(|change| change.prefix.into()));
        let claims: Vec<(IpAddr, u8, Option<bool>)> =
            prefixes.map(|prefix| (prefix.network(), prefix.prefix_len(), index.claims(tables, prefix))).collect();
        program.amend_claims(view, &claims)?;
        if !tables.contains(&TableId::MAIN) {
            return Ok(());
        }
        let of_change = |at: &srv6d_srv6::desired::SteerChange| index.steer(desired, at.table, at.prefix);
        let paths = changed.steers.iter().filter_map(of_change).flat_map(|steer| &steer.paths);
        let sources: BTreeSet<Ipv6Addr> = sources_of(desired, paths).collect();
        program.add_outer_sources(view, &sources)
    }
}
