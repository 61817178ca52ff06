//! Commodities: sets of flows that are alike (same leaf to same leaf, same tenant and same demand). It makes no
//! difference to the links which of them takes which path, so placement counts them instead of handling each one.

use std::collections::HashMap;

use crate::constraints::{Constraints, MOST_DEMAND, PlaceError};
use crate::demand::{Demand, Flow};
use crate::fabric::{Attachment, Fabric, NodeKind};
use crate::table::{LinkId, NodeId, PerLink, PerNode};

/// A set of flows that are alike.
#[derive(Clone, Debug)]
pub(crate) struct Commodity {
    /// First node of the flows at which paths differ: a leaf, or a host with several links.
    pub entry: NodeId,
    /// Last node of the flows at which paths differ: a leaf, or a host with several links.
    pub exit: NodeId,
    pub tenant: Option<usize>,
    /// Demand of each flow.
    pub demand: u64,
    /// Positions of the flows in [`Demand::flows`].
    pub flows: Vec<u32>,
}

impl Commodity {
    pub(crate) const fn count(&self) -> u64 {
        self.flows.len() as u64
    }

    /// Returns the demand of all flows together.
    pub(crate) const fn volume(&self) -> u64 {
        self.count() * self.demand
    }
}

/// Links from entry to exit.
pub type Route = Vec<LinkId>;

/// Routes of a commodity, each with the number of flows that take it.
pub(crate) type Spread = Vec<(Route, u64)>;

/// A demand on a fabric under constraints, with the flows gathered into commodities.
pub(crate) struct Problem<'p> {
    pub fabric: &'p Fabric,
    pub constraints: &'p Constraints,
    pub demand: &'p Demand,
    /// Attachment of every host; [`Attachment::None`] for switches.
    pub doors: PerNode<Attachment>,
    /// Links whose load depends on the choice of paths ([`Fabric::judged`]).
    pub judged: PerLink<bool>,
    /// Load of other jobs on each link, which stays where it is.
    pub carried: PerLink<u64>,
    pub commodities: Vec<Commodity>,
}

impl<'p> Problem<'p> {
    pub(crate) fn new(
        fabric: &'p Fabric,
        demand: &'p Demand,
        constraints: &'p Constraints,
    ) -> Result<Self, PlaceError> {
        Self::beside(fabric, demand, constraints, PerLink::new(fabric.link_count(), 0))
    }

    pub(crate) fn beside(
        fabric: &'p Fabric,
        demand: &'p Demand,
        constraints: &'p Constraints,
        carried: PerLink<u64>,
    ) -> Result<Self, PlaceError> {
        constraints.check()?;
        let mut doors = PerNode::new(fabric.node_count(), Attachment::None);
        for host in fabric.hosts() {
            doors[host] = fabric.attachment(host);
        }
        let judged = fabric.judged();
        let commodities = gather(fabric, demand, constraints, &doors)?;
        Ok(Self { fabric, constraints, demand, doors, judged, carried, commodities })
    }

    /// Returns the only uplink of the source and the only downlink of the destination, where the hosts have just one.
    pub(crate) fn ends(&self, flow: &Flow) -> (Option<LinkId>, Option<LinkId>) {
        let first = if let Attachment::Leaf { up, .. } = self.doors[flow.source] { Some(up) } else { None };
        let last = if let Attachment::Leaf { down, .. } = self.doors[flow.destination] { Some(down) } else { None };
        (first, last)
    }
}

fn gather(
    fabric: &Fabric,
    demand: &Demand,
    constraints: &Constraints,
    doors: &PerNode<Attachment>,
) -> Result<Vec<Commodity>, PlaceError> {
    if demand.flows.is_empty() {
        return Err(PlaceError::NoFlows);
    }
    let total = demand.flows.iter().try_fold(0_u64, |sum, flow| sum.checked_add(flow.demand));
    if total.is_none_or(|total| total > MOST_DEMAND) {
        return Err(PlaceError::TooMuch);
    }
    let tenants = constraints.tenants_of_hosts(fabric);
    let mut commodities: Vec<Commodity> = Vec::new();
    let mut known: HashMap<(NodeId, NodeId, Option<usize>, u64), usize> = HashMap::new();
    for (position, flow) in (0_u32..).zip(&demand.flows) {
        check(fabric, flow)?;
        let (entry, exit) = (entrance(fabric, doors, flow.source)?, entrance(fabric, doors, flow.destination)?);
        let tenant = match flow.tenant {
            None if constraints.tenants.is_empty() => None,
            None => constraints.tenant_of(fabric, &tenants, flow.source, flow.destination)?,
            named => named,
        };
        let fresh = commodities.len();
        let index = *known.entry((entry, exit, tenant, flow.demand)).or_insert(fresh);
        if index == fresh {
            commodities.push(Commodity { entry, exit, tenant, demand: flow.demand, flows: Vec::new() });
        }
        if let Some(commodity) = commodities.get_mut(index) {
            commodity.flows.push(position);
        }
    }
    Ok(commodities)
}

fn check(fabric: &Fabric, flow: &Flow) -> Result<(), PlaceError> {
    let name = |node: NodeId| fabric.node(node).name.clone();
    for host in [flow.source, flow.destination] {
        if fabric.node(host).kind != NodeKind::Host {
            return Err(PlaceError::NotAHost(name(host)));
        }
    }
    if flow.source == flow.destination {
        return Err(PlaceError::ToItself { host: name(flow.source) });
    }
    if flow.demand == 0 {
        return Err(PlaceError::NoDemand { source_host: name(flow.source), destination: name(flow.destination) });
    }
    Ok(())
}

fn entrance(fabric: &Fabric, doors: &PerNode<Attachment>, host: NodeId) -> Result<NodeId, PlaceError> {
    match doors[host] {
        Attachment::Leaf { leaf, .. } => Ok(leaf),
        Attachment::Host(host) => Ok(host),
        Attachment::None => Err(PlaceError::Detached { host: fabric.node(host).name.clone() }),
    }
}
