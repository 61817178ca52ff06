//! What a placement must respect, and why one cannot be made.

use crate::fabric::Fabric;
use crate::table::{NodeId, PerNode};

/// Hosts that belong together, and where their flows may run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenant {
    /// What people call it.
    pub name: String,
    /// Its hosts.
    pub hosts: Vec<NodeId>,
    /// Of the tiers that are named here, its flows cross only these switches. Empty: any.
    pub spines: Vec<NodeId>,
    /// Of the switches that belong to a plane, its flows cross only those of these planes. Empty: any.
    pub planes: Vec<String>,
}

/// What a placement must respect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraints {
    /// Tenants; a flow belongs to the one of its hosts.
    pub tenants: Vec<Tenant>,
    /// Tenants, by index, that never share a link.
    pub disjoint: Vec<(usize, usize)>,
    /// Hops a path may be longer than the shortest of its pair.
    pub detour: usize,
    /// Of everything that is drawn by lot.
    pub seed: u64,
}

impl Default for Constraints {
    fn default() -> Self {
        Self { tenants: Vec::new(), disjoint: Vec::new(), detour: 0, seed: 1 }
    }
}

/// Up to there every whole number is a double.
pub(crate) const MOST_DEMAND: u64 = 1 << 53;
/// Every hop more multiplies the ways.
const MOST_DETOUR: usize = 8;

/// Why a placement cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// Nothing to do.
    #[error("no flows to place; name at least two hosts, or list pairs")]
    NoFlows,
    /// A host to itself.
    #[error("{host} is to send to itself; leave that pair out")]
    ToItself {
        /// Name.
        host: String,
    },
    /// A flow of nothing.
    #[error("{source_host} is to send 0 to {destination}; give the pair a demand of at least 1")]
    NoDemand {
        /// Name.
        source_host: String,
        /// Name.
        destination: String,
    },
    /// A host that no link reaches.
    #[error("{host} has no working link in both directions; connect it, or leave it out")]
    Detached {
        /// Name.
        host: String,
    },
    /// A switch as source or destination.
    #[error("{0} forwards; flows begin and end at hosts")]
    NotAHost(String),
    /// The hosts of a flow belong to different tenants.
    #[error(
        "{source_host} ({of_source}) is to send to {destination} ({of_destination}): flows stay within a tenant; leave that pair out, or put both hosts into one tenant"
    )]
    CrossesTenants {
        /// Name.
        source_host: String,
        /// Its tenant.
        of_source: String,
        /// Name.
        destination: String,
        /// Its tenant.
        of_destination: String,
    },
    /// The hosts of a flow belong to the same several tenants.
    #[error("{source_host} and {destination} are both of {tenants}; name the tenant of that pair")]
    Ambiguous {
        /// Name.
        source_host: String,
        /// Name.
        destination: String,
        /// Names.
        tenants: String,
    },
    /// No way at all.
    #[error("no working path from {from} to {to}{}; {fix}", of_tenant(.tenant.as_ref()))]
    NoPath {
        /// Name of a switch or host.
        from: String,
        /// Name of a switch or host.
        to: String,
        /// Whose flows.
        tenant: Option<String>,
        /// What to change.
        fix: &'static str,
    },
    /// Two tenants that must not share a link have to.
    #[error("{one} and {other} are to be disjoint, but both need the link {link}: {why}; {fix}")]
    Shared {
        /// Tenant.
        one: String,
        /// Tenant.
        other: String,
        /// `leaf00 -> spine01`.
        link: String,
        /// Why there is no other.
        why: String,
        /// What to change.
        fix: String,
    },
    /// A division of the switches between disjoint tenants was searched for and not found.
    #[error(
        "{one} and {other} are to be disjoint, but no division of {contested} between them was found that leaves both a path for every pair; give them different hosts or leaves, widen their spines or planes, or let them share"
    )]
    Inseparable {
        /// Tenant.
        one: String,
        /// Tenant.
        other: String,
        /// `spine00, spine01`.
        contested: String,
    },
    /// More than sums of loads can hold exactly.
    #[error("all demands together are more than {MOST_DEMAND}; give demands and capacities in a larger unit")]
    TooMuch,
    /// Longer ways than anyone wants.
    #[error("a detour of {0} hops is more than {MOST_DETOUR}; ask for less")]
    Detour(usize),
    /// A tenant that is disjoint with itself, or does not exist.
    #[error("disjoint tenants: {0}")]
    Disjoint(String),
}

fn of_tenant(tenant: Option<&String>) -> String {
    tenant.map_or_else(String::new, |name| format!(" for {name}"))
}

impl Constraints {
    /// The detour is small, indices are tenants, and no tenant is to be disjoint with itself.
    pub(crate) fn check(&self) -> Result<(), PlaceError> {
        if self.detour > MOST_DETOUR {
            return Err(PlaceError::Detour(self.detour));
        }
        for (one, other) in &self.disjoint {
            match (self.tenants.get(*one), self.tenants.get(*other)) {
                (Some(tenant), Some(_)) if one == other => {
                    let text = format!("{} is named twice; name two different ones", tenant.name);
                    return Err(PlaceError::Disjoint(text));
                }
                (Some(_), Some(_)) => {}
                _ => return Err(PlaceError::Disjoint("one that does not exist".to_owned())),
            }
        }
        Ok(())
    }

    pub(crate) fn are_disjoint(&self, one: Option<usize>, other: Option<usize>) -> bool {
        let (Some(one), Some(other)) = (one, other) else { return false };
        self.disjoint.iter().any(|pair| *pair == (one, other) || *pair == (other, one))
    }

    pub(crate) fn tenant_name(&self, tenant: Option<usize>) -> Option<String> {
        Some(self.tenants.get(tenant?)?.name.clone())
    }

    /// Tenants of every host.
    pub(crate) fn tenants_of_hosts(&self, fabric: &Fabric) -> PerNode<Vec<usize>> {
        let mut of = PerNode::new(fabric.node_count(), Vec::new());
        for (index, tenant) in self.tenants.iter().enumerate() {
            for host in &tenant.hosts {
                if of[*host].last() != Some(&index) {
                    of[*host].push(index);
                }
            }
        }
        of
    }

    /// The tenant of a flow between these hosts.
    pub(crate) fn tenant_of(
        &self,
        fabric: &Fabric,
        tenants: &PerNode<Vec<usize>>,
        source: NodeId,
        destination: NodeId,
    ) -> Result<Option<usize>, PlaceError> {
        let of = |host: NodeId| tenants[host].iter().copied();
        let both: Vec<usize> = of(source).filter(|tenant| of(destination).any(|other| other == *tenant)).collect();
        let name = |host: NodeId| fabric.node(host).name.clone();
        let names = |tenants: &mut dyn Iterator<Item = usize>| {
            let names: Vec<String> = tenants.filter_map(|tenant| self.tenant_name(Some(tenant))).collect();
            if names.is_empty() { "no tenant".to_owned() } else { names.join(", ") }
        };
        match both.as_slice() {
            [] if of(source).next().is_none() && of(destination).next().is_none() => Ok(None),
            [] => Err(PlaceError::CrossesTenants {
                source_host: name(source),
                of_source: names(&mut of(source)),
                destination: name(destination),
                of_destination: names(&mut of(destination)),
            }),
            [one] => Ok(Some(*one)),
            several => Err(PlaceError::Ambiguous {
                source_host: name(source),
                destination: name(destination),
                tenants: names(&mut several.iter().copied()),
            }),
        }
    }
}
