//! Bounds of what is kept, so that no stream of announcements costs more than a known amount of memory and time.

use crate::event::{Hop, NextHop, Target};
use crate::rib::Resolved;

/// Next-hop objects that one route may lead through: groups and their members, each counted every time it is reached.
pub const OBJECTS_PER_ROUTE: usize = 1024;
/// Units per route that all next hops together may take.
const UNITS_PER_ROUTE: usize = 4;
/// Units that are there in any case, for few routes with many next hops.
const LEAST_UNITS: usize = 64 * OBJECTS_PER_ROUTE;

/// How much one peer may announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Routes and SIDs together; next-hop objects beside them.
    pub routes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { routes: 1_000_000 }
    }
}

impl Limits {
    /// Units that may be kept, and units that all routes together may resolve to. A unit is a next hop, a member of a
    /// group or a segment: about 100 bytes.
    pub(crate) fn units(self) -> usize {
        self.routes.saturating_mul(UNITS_PER_ROUTE).max(LEAST_UNITS)
    }
}

/// What an announcement takes, in units.
pub(crate) trait Units {
    fn units(&self) -> usize;
}

impl Units for Hop {
    fn units(&self) -> usize {
        1 + self.encap.as_ref().map_or(0, |encap| encap.segments.len())
    }
}

impl Units for Vec<Hop> {
    fn units(&self) -> usize {
        self.iter().map(Hop::units).sum()
    }
}

impl Units for Target {
    fn units(&self) -> usize {
        if let Self::Hops(hops) = self { hops.units() } else { 0 }
    }
}

impl Units for Resolved {
    fn units(&self) -> usize {
        if let Self::Hops(hops) = self { hops.units() } else { 0 }
    }
}

impl Units for NextHop {
    fn units(&self) -> usize {
        match self {
            Self::Hop(hop) => hop.units(),
            Self::Group(members) => members.len(),
            Self::Sid(_) | Self::Blackhole | Self::Unusable(_) => 0,
        }
    }
}

/// Units that are taken, of so many.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    taken: usize,
}

impl Room {
    /// Gives back `old` and takes `new`. False, and nothing is taken: there is no room for it.
    pub(crate) fn exchange(&mut self, old: usize, new: usize, limits: Limits) -> bool {
        self.taken = self.taken.saturating_sub(old);
        let fits = new <= limits.units().saturating_sub(self.taken);
        if fits {
            self.taken += new;
        }
        fits
    }
}
