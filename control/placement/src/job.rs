//! Jobs: what is to be placed, as people and programs write it, with names instead of ids and patterns instead of
//! pairs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::constraints::{Constraints, Tenant};
use crate::demand::{Demand, Flow, Pattern};
use crate::fabric::{Fabric, NodeKind};
use crate::table::NodeId;

/// A job: what its hosts send, and what its tenants may use. Every field is optional.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Job {
    /// Traffic pattern within each group (or tenant).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<Pattern>,
    /// Hosts, by name, key or id, in the order of their ranks. Empty: all hosts, ordered by id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Flows in addition to those of the pattern.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<Pair>,
    /// Demand of each flow of the pattern, in the unit of capacities; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demand: Option<u64>,
    /// Tenants; each runs the pattern among its own hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<TenantOf>,
    /// Pairs of tenant names; the two tenants of a pair never share a link.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disjoint: Vec<[String; 2]>,
    /// Number of hops by which a path may be longer than the shortest one between its two ends.
    pub detour: usize,
    /// Seed of permutations and of all other random choices; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// One pair of hosts: `["a", "b"]`, `["a", "b", 4]`, or an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "no pair: write [FROM, TO], [FROM, TO, DEMAND], or `source`, `destination` and `demand`")]
pub enum Pair {
    /// Source and destination.
    Short(String, String),
    /// Source, destination and demand.
    Weighted(String, String, u64),
    /// Object with named fields.
    Full {
        /// Host that sends.
        source: String,
        /// Host that receives.
        destination: String,
        /// Amount of traffic; 1 by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        demand: Option<u64>,
        /// Name of the tenant; needed if both hosts belong to several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tenant: Option<String>,
    },
}

impl std::str::FromStr for Pair {
    type Err = String;

    /// Parses `FROM,TO` or `FROM,TO,DEMAND`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        match parts.as_slice() {
            [from, to] => Ok(Self::Short((*from).to_owned(), (*to).to_owned())),
            [from, to, demand] => {
                let wrong = |_| format!("{demand:?} is no demand; write a whole number");
                let demand = demand.parse().map_err(wrong)?;
                Ok(Self::Weighted((*from).to_owned(), (*to).to_owned(), demand))
            }
            _ => Err(format!("{text:?} is no pair; write FROM,TO or FROM,TO,DEMAND")),
        }
    }
}

/// A tenant of a job, with nodes given by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantOf {
    /// Name of the tenant, as shown to users.
    pub name: String,
    /// Its hosts.
    pub hosts: Vec<String>,
    /// The only switches that it may cross, in each tier that has a switch in this list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spines: Vec<String>,
    /// The only planes that it may cross.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub planes: Vec<String>,
}

/// Limit on flows: an all-to-all pattern of 4096 hosts, which takes some gigabytes and minutes.
const MOST_FLOWS: usize = 1 << 24;

/// Error: a job that does not fit its fabric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The topology has no node of this name.
    #[error("{place}: there is no node {name:?} in the topology; {hint}")]
    UnknownNode {
        /// Where in the job, such as `tenants[0].hosts`.
        place: String,
        /// Name as written.
        name: String,
        /// Names that exist.
        hint: String,
    },
    /// A host is named where a switch belongs, or a switch where a host belongs.
    #[error("{place}: {name} is a {is}; name {wanted}")]
    WrongKind {
        /// Place of the entry in the job.
        place: String,
        /// Name as written.
        name: String,
        /// Kind of the named node.
        is: &'static str,
        /// Kind that belongs there.
        wanted: &'static str,
    },
    /// The topology has no plane of this name.
    #[error("{place}: no switch is of plane {name:?}; {hint}")]
    UnknownPlane {
        /// Place of the entry in the job.
        place: String,
        /// Name as written.
        name: String,
        /// Planes that exist.
        hint: String,
    },
    /// The job has no tenant of this name.
    #[error("{place}: there is no tenant {name:?}; name one of `tenants`")]
    UnknownTenant {
        /// Place of the entry in the job.
        place: String,
        /// Name as written.
        name: String,
    },
    /// The job has more than `MOST_FLOWS` flows.
    #[error("{flows} flows; name fewer `hosts`, or a `pattern` with fewer flows: at most {MOST_FLOWS} are placed")]
    TooMany {
        /// Number of flows.
        flows: usize,
    },
    /// The same name is listed twice.
    #[error("{place}: {name} is there twice; keep one")]
    Twice {
        /// Place of the entry in the job.
        place: String,
        /// Name as written.
        name: String,
    },
}

impl Job {
    /// Resolves the names of the job and returns its flows and constraints on that fabric.
    ///
    /// # Errors
    /// [`JobError`]: the job does not fit the fabric.
    pub fn resolve(&self, fabric: &Fabric) -> Result<(Demand, Constraints), JobError> {
        let seed = self.seed.unwrap_or(1);
        let mut tenants = Vec::new();
        for (number, tenant) in self.tenants.iter().enumerate() {
            if self.tenants.iter().take(number).any(|other| other.name == tenant.name) {
                return Err(JobError::Twice { place: format!("tenants[{number}]"), name: tenant.name.clone() });
            }
            tenants.push(tenant.resolve(fabric, number)?);
        }
        let mut disjoint = Vec::new();
        for (number, names) in self.disjoint.iter().enumerate() {
            let [one, other] = names.each_ref().map(|name| self.tenant(&format!("disjoint[{number}]"), name));
            disjoint.push((one?, other?));
        }
        // A job with pairs and without a pattern consists of those pairs only.
        let default = if self.pairs.is_empty() { Pattern::AllToAll } else { Pattern::List };
        let groups = self.groups(fabric, &tenants)?;
        let pattern = self.pattern.unwrap_or(default);
        let of_group = |(hosts, _): &Group| pattern.flows(hosts.len());
        let flows = groups.iter().map(of_group).fold(self.pairs.len(), usize::saturating_add);
        if flows > MOST_FLOWS {
            return Err(JobError::TooMany { flows });
        }
        let mut demand = Demand::default();
        for (group, tenant) in &groups {
            let flows = Demand::of_pattern(pattern, std::slice::from_ref(group), self.demand.unwrap_or(1), seed).flows;
            demand.flows.extend(flows.into_iter().map(|flow| Flow { tenant: *tenant, ..flow }));
        }
        for (number, pair) in self.pairs.iter().enumerate() {
            demand.flows.push(self.flow(fabric, &format!("pairs[{number}]"), pair)?);
        }
        Ok((demand, Constraints { tenants, disjoint, detour: self.detour, seed }))
    }

    /// Returns the sets of hosts that run the pattern among themselves: those of each tenant, or of each group (rail)
    /// of the topology.
    fn groups(&self, fabric: &Fabric, tenants: &[Tenant]) -> Result<Vec<Group>, JobError> {
        let listed = hosts(fabric, "hosts", &self.hosts)?;
        let chosen = |host: &NodeId| listed.is_empty() || listed.contains(host);
        if !tenants.is_empty() {
            let of = |tenant: &Tenant| tenant.hosts.iter().copied().filter(chosen).collect::<Vec<_>>();
            return Ok(tenants.iter().enumerate().map(|(number, tenant)| (of(tenant), Some(number))).collect());
        }
        let all = if listed.is_empty() { by_id(fabric) } else { listed };
        let mut groups: BTreeMap<Option<&String>, Vec<NodeId>> = BTreeMap::new();
        for host in all {
            groups.entry(fabric.node(host).group.as_ref()).or_default().push(host);
        }
        Ok(groups.into_values().map(|hosts| (hosts, None)).collect())
    }

    fn tenant(&self, place: &str, name: &str) -> Result<usize, JobError> {
        let unknown = || JobError::UnknownTenant { place: place.to_owned(), name: name.to_owned() };
        self.tenants.iter().position(|tenant| tenant.name == name).ok_or_else(unknown)
    }

    fn flow(&self, fabric: &Fabric, place: &str, pair: &Pair) -> Result<Flow, JobError> {
        let (source, destination, demand, tenant) = match pair {
            Pair::Short(source, destination) => (source, destination, None, None),
            Pair::Weighted(source, destination, demand) => (source, destination, Some(*demand), None),
            Pair::Full { source, destination, demand, tenant } => (source, destination, *demand, tenant.as_ref()),
        };
        let tenant = tenant.map(|name| self.tenant(place, name)).transpose()?;
        let [source, destination] = [source, destination].map(|name| host(fabric, place, name));
        Ok(Flow { source: source?, destination: destination?, demand: demand.or(self.demand).unwrap_or(1), tenant })
    }
}

/// Orders hosts by id, so that ranks do not depend on the order of a document.
fn by_id(fabric: &Fabric) -> Vec<NodeId> {
    let mut hosts: Vec<NodeId> = fabric.hosts().collect();
    hosts.sort_by(|one, other| fabric.node(*one).id.cmp(&fabric.node(*other).id));
    hosts
}

/// Hosts that run a pattern among themselves, and the index of their tenant.
type Group = (Vec<NodeId>, Option<usize>);

impl TenantOf {
    fn resolve(&self, fabric: &Fabric, number: usize) -> Result<Tenant, JobError> {
        let place = |key: &str| format!("tenants[{number}].{key}");
        let spines = self.spines.iter().map(|name| switch(fabric, &place("spines"), name)).collect::<Result<_, _>>()?;
        for name in &self.planes {
            if !fabric.nodes().any(|(_, node)| node.plane.as_ref() == Some(name)) {
                let mut planes: Vec<&str> = fabric.nodes().filter_map(|(_, node)| node.plane.as_deref()).collect();
                planes.sort_unstable();
                planes.dedup();
                return Err(JobError::UnknownPlane {
                    place: place("planes"),
                    name: name.clone(),
                    hint: if planes.is_empty() {
                        "give the switches of the topology a `plane`".to_owned()
                    } else {
                        format!("there are {}", planes.join(", "))
                    },
                });
            }
        }
        let hosts = hosts(fabric, &place("hosts"), &self.hosts)?;
        Ok(Tenant { name: self.name.clone(), hosts, spines, planes: self.planes.clone() })
    }
}

fn hosts(fabric: &Fabric, place: &str, names: &[String]) -> Result<Vec<NodeId>, JobError> {
    let mut found = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for name in names {
        let host = host(fabric, place, name)?;
        if !seen.insert(host) {
            return Err(JobError::Twice { place: place.to_owned(), name: name.clone() });
        }
        found.push(host);
    }
    Ok(found)
}

fn host(fabric: &Fabric, place: &str, name: &str) -> Result<NodeId, JobError> {
    of_kind(fabric, place, name, NodeKind::Host)
}

fn switch(fabric: &Fabric, place: &str, name: &str) -> Result<NodeId, JobError> {
    of_kind(fabric, place, name, NodeKind::Switch)
}

fn of_kind(fabric: &Fabric, place: &str, name: &str, kind: NodeKind) -> Result<NodeId, JobError> {
    let found = fabric.find(name).ok_or_else(|| {
        let of_kind = fabric.nodes().filter(|(_, node)| node.kind == kind).map(|(_, node)| node.name.as_str());
        let some: Vec<&str> = of_kind.take(3).collect();
        let hint = format!("names are like {}", some.join(", "));
        JobError::UnknownNode { place: place.to_owned(), name: name.to_owned(), hint }
    })?;
    let (is, wanted) = match kind {
        NodeKind::Host => ("switch", "a host"),
        NodeKind::Switch => ("host", "a switch"),
    };
    let wrong = || JobError::WrongKind { place: place.to_owned(), name: name.to_owned(), is, wanted };
    if fabric.node(found).kind == kind { Ok(found) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::Clos;

    fn job(text: &str) -> Job {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn pairs_are_a_list_unless_a_pattern_is_named() {
        let fabric = Clos::two_tier(2, 2, 2).build();
        let pairs = r#"["host0000", "host0002"], ["hosts/host0001", "host0003", 4]"#;
        let (demand, _) = job(&format!(r#"{{"pairs": [{pairs}]}}"#)).resolve(&fabric).unwrap();
        assert_eq!(demand.flows.iter().map(|flow| flow.demand).collect::<Vec<_>>(), [1, 4]);
        let (demand, _) =
            job(&format!(r#"{{"pattern": "ring", "demand": 2, "pairs": [{pairs}]}}"#)).resolve(&fabric).unwrap();
        assert_eq!(demand.flows.iter().map(|flow| flow.demand).collect::<Vec<_>>(), [2, 2, 2, 2, 2, 4]);
    }

    #[test]
    fn tenants_and_rails_keep_to_themselves() {
        let rails = Clos { rails: 2, ..Clos::two_tier(2, 2, 2) }.build();
        assert_eq!(Job::default().resolve(&rails).unwrap().0.flows.len(), 2 * 4 * 3);
        let fabric = Clos::two_tier(2, 2, 2).build();
        let text = r#"{"tenants": [{"name": "a", "hosts": ["host0000", "host0002"]},
                                   {"name": "b", "hosts": ["host0001", "host0003"], "spines": ["spine001"]}],
                       "disjoint": [["a", "b"]]}"#;
        let (demand, constraints) = job(text).resolve(&fabric).unwrap();
        assert_eq!(
            demand.flows.iter().map(|flow| flow.tenant).collect::<Vec<_>>(),
            [Some(0), Some(0), Some(1), Some(1)]
        );
        assert_eq!(constraints.disjoint, [(0, 1)]);
    }

    #[test]
    fn errors_name_the_place_and_the_fix() {
        let fabric = Clos::two_tier(2, 2, 2).build();
        let cases = [
            (r#"{"hosts": ["host9"]}"#, "hosts: there is no node \"host9\" in the topology; names are like host0000"),
            (r#"{"pairs": [["host0000", "leaf000"]]}"#, "pairs[0]: leaf000 is a switch; name a host"),
            (r#"{"disjoint": [["a", "b"]]}"#, "disjoint[0]: there is no tenant \"a\"; name one of `tenants`"),
            (r#"{"hosts": ["host0000", "host0000"]}"#, "hosts: host0000 is there twice; keep one"),
            (
                r#"{"tenants": [{"name": "a", "hosts": [], "planes": ["x"]}]}"#,
                "tenants[0].planes: no switch is of plane \"x\"; give the switches of the topology a `plane`",
            ),
        ];
        for (text, expected) in cases {
            let error = job(text).resolve(&fabric).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
