//! Constraints that a placement must respect, and the errors that say why no placement can be made.

use crate::fabric::Fabric;
use crate::table::{NodeId, PerNode};

/// A tenant: hosts that belong together, and the switches that their flows may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenant {
    /// Name of the tenant, as shown to users.
    pub name: String,
    /// Its hosts.
    pub hosts: Vec<NodeId>,
    /// Switches that its flows may cross, in each tier that has a switch in this list. Empty: no restriction.
    pub spines: Vec<NodeId>,
    /// Planes that its flows may cross; applies to switches that belong to a plane. Empty: no restriction.
    pub planes: Vec<String>,
}

/// Constraints that a placement must respect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraints {
    /// Tenants; a flow belongs to the tenant of its hosts.
    pub tenants: Vec<Tenant>,
    /// Pairs of tenants (by index) that never share a link.
    pub disjoint: Vec<(usize, usize)>,
    /// Number of hops by which a path may be longer than the shortest one between its two ends.
    pub detour: usize,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Default for Constraints {
    fn default() -> Self {
        Self { tenants: Vec::new(), disjoint: Vec::new(), detour: 0, seed: 1 }
    }
}

/// Limit on the sum of all demands: every whole number up to it can be represented as a double.
pub(crate) const MOST_DEMAND: u64 = 1 << 53;
/// Limit on the detour: each additional hop multiplies the number of possible paths.
const MOST_DETOUR: usize = 8;

/// Why a placement cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// The demand has no flows.
    #[error("no flows to place; name at least two hosts, or list pairs")]
    NoFlows,
    /// A host is to send to itself.
    #[error("{host} is to send to itself; leave that pair out")]
    ToItself {
        /// Name of the host.
        host: String,
    },
    /// A flow has a demand of 0.
    #[error("{source_host} is to send 0 to {destination}; give the pair a demand of at least 1")]
    NoDemand {
        /// Name of the sending host.
        source_host: String,
        /// Name of the receiving host.
        destination: String,
    },
    /// A host has no working link in both directions.
    #[error("{host} has no working link in both directions; connect it, or leave it out")]
    Detached {
        /// Name of the host.
        host: String,
    },
    /// The source or destination is a switch.
    #[error("{0} forwards; flows begin and end at hosts")]
    NotAHost(String),
    /// The hosts of a flow belong to different tenants.
    #[error(
        "{source_host} ({of_source}) is to send to {destination} ({of_destination}): flows stay within a tenant; leave that pair out, or put both hosts into one tenant"
    )]
    CrossesTenants {
        /// Name of the sending host.
        source_host: String,
        /// Tenant of the sending host.
        of_source: String,
        /// Name of the receiving host.
        destination: String,
        /// Tenant of the receiving host.
        of_destination: String,
    },
    /// The hosts of a flow have several tenants in common.
    #[error("{source_host} and {destination} are both of {tenants}; name the tenant of that pair")]
    Ambiguous {
        /// Name of the sending host.
        source_host: String,
        /// Name of the receiving host.
        destination: String,
        /// Names of the tenants they have in common.
        tenants: String,
    },
    /// There is no working path that the flow may use.
    #[error("no working path from {from} to {to}{}; {fix}", of_tenant(.tenant.as_ref()))]
    NoPath {
        /// Name of a switch or host.
        from: String,
        /// Name of a switch or host.
        to: String,
        /// Name of the tenant, for a flow of one.
        tenant: Option<String>,
        /// Advice: what to change.
        fix: &'static str,
    },
    /// Two tenants that must not share a link can only be placed with a shared link.
    #[error("{one} and {other} are to be disjoint, but both need the link {link}: {why}; {fix}")]
    Shared {
        /// Name of one tenant.
        one: String,
        /// Name of the other tenant.
        other: String,
        /// Name of the link, such as `leaf00 -> spine01`.
        link: String,
        /// Why no other link can be used.
        why: String,
        /// Advice: what to change.
        fix: String,
    },
    /// The search for a division of the switches between disjoint tenants found none.
    #[error(
        "{one} and {other} are to be disjoint, but no division of {contested} between them was found that leaves both a path for every pair; give them different hosts or leaves, widen their spines or planes, or let them share"
    )]
    Inseparable {
        /// Name of one tenant.
        one: String,
        /// Name of the other tenant.
        other: String,
        /// Names of the switches that both tenants need, such as `spine00, spine01`.
        contested: String,
    },
    /// The sum of the demands exceeds what the sums of loads can hold exactly.
    #[error("all demands together are more than {MOST_DEMAND}; give demands and capacities in a larger unit")]
    TooMuch,
    /// The permitted detour is larger than `MOST_DETOUR`.
    #[error("a detour of {0} hops is more than {MOST_DETOUR}; ask for less")]
    Detour(usize),
    /// A tenant is listed as disjoint with itself, or does not exist.
    #[error("disjoint tenants: {0}")]
    Disjoint(String),
}

fn of_tenant(tenant: Option<&String>) -> String {
    tenant.map_or_else(String::new, |name| format!(" for {name}"))
}

impl Constraints {
    /// Checks that the detour is within its limit, that indices belong to tenants, and that no tenant is disjoint with
    /// itself.
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

    /// Returns the tenants of every host.
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

    /// Returns the tenant of a flow between these hosts.
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
