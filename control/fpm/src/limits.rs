//! Limits on what is kept, so that every stream of announcements costs a bounded amount of memory and time.

use crate::event::{Hop, NextHop, Target};
use crate::rib::Resolved;

/// Maximum number of next-hop objects that one route may lead through: groups and their members, each counted every
/// time it is reached.
pub const OBJECTS_PER_ROUTE: usize = 1024;
/// Units per route that all next hops together may occupy.
const UNITS_PER_ROUTE: usize = 4;
/// Smallest limit on the units of all next hops, so that a few routes may have many next hops.
const LEAST_UNITS: usize = 64 * OBJECTS_PER_ROUTE;

/// Limits on what one peer may announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of routes and SIDs together. The same limit applies separately to next-hop objects.
    pub routes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { routes: 1_000_000 }
    }
}

impl Limits {
    /// Returns the limit in units, which applies once to what is kept and once to what all routes together resolve to.
    /// A unit is a next hop, a member of a group or a segment: about 100 bytes.
    pub(crate) fn units(self) -> usize {
        self.routes.saturating_mul(UNITS_PER_ROUTE).max(LEAST_UNITS)
    }
}

/// Number of units that an announcement occupies.
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

/// Number of units that are occupied.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    taken: usize,
}

impl Room {
    /// Frees `old` units and occupies `new` ones. Returns false if `new` units are not available; then none are
    /// occupied.
    pub(crate) fn exchange(&mut self, old: usize, new: usize, limits: Limits) -> bool {
        self.taken = self.taken.saturating_sub(old);
        let fits = new <= limits.units().saturating_sub(self.taken);
        if fits {
            self.taken += new;
        }
        fits
    }
}
