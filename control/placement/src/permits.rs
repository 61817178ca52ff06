//! Permits: which switches and links the flows of a tenant may use.

use crate::commodity::Problem;
use crate::fabric::NodeKind;
use crate::table::{LinkId, NodeId, PerLink, PerNode};

/// Whether each switch may be crossed, and whether each link may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Permit {
    nodes: PerNode<bool>,
    links: PerLink<bool>,
}

impl Permit {
    /// Returns whether a path may use the link and then cross the node behind it. The node is not crossed if it is the
    /// exit.
    pub(crate) fn allows(&self, link: LinkId, behind: NodeId, exit: NodeId) -> bool {
        self.links[link] && (behind == exit || self.nodes[behind])
    }

    pub(crate) fn crosses(&self, node: NodeId) -> bool {
        self.nodes[node]
    }

    pub(crate) fn uses(&self, link: LinkId) -> bool {
        self.links[link]
    }

    pub(crate) fn forbid_node(&mut self, node: NodeId) {
        self.nodes[node] = false;
    }

    pub(crate) fn forbid_link(&mut self, link: LinkId) {
        self.links[link] = false;
    }
}

/// One permit per tenant, and one for flows that belong to no tenant.
#[derive(Clone, Debug)]
pub(crate) struct Permits {
    everyone: Permit,
    tenants: Vec<Permit>,
}

impl Permits {
    pub(crate) fn new(problem: &Problem) -> Self {
        let fabric = problem.fabric;
        let mut nodes = PerNode::new(fabric.node_count(), false);
        for (id, node) in fabric.nodes() {
            nodes[id] = node.kind == NodeKind::Switch && node.up;
        }
        let mut links = PerLink::new(fabric.link_count(), false);
        for (id, _) in fabric.links() {
            links[id] = fabric.works(id);
        }
        let everyone = Permit { nodes, links };
        let tiers = fabric.tiers();
        let tenants = problem.constraints.tenants.iter().map(|tenant| {
            let mut permit = everyone.clone();
            let named: Vec<_> = tenant.spines.iter().filter_map(|spine| tiers[*spine]).collect();
            for (id, node) in fabric.nodes() {
                let of_named_tier = tiers[id].is_some_and(|tier| named.contains(&tier));
                let other_plane = node.plane.as_ref().is_some_and(|plane| !tenant.planes.contains(plane));
                let not_listed = of_named_tier && !tenant.spines.contains(&id);
                if not_listed || (other_plane && !tenant.planes.is_empty()) {
                    permit.forbid_node(id);
                }
            }
            permit
        });
        let tenants = tenants.collect();
        Self { everyone, tenants }
    }

    pub(crate) fn of(&self, tenant: Option<usize>) -> &Permit {
        tenant.and_then(|tenant| self.tenants.get(tenant)).unwrap_or(&self.everyone)
    }

    pub(crate) fn of_mut(&mut self, tenant: usize) -> Option<&mut Permit> {
        self.tenants.get_mut(tenant)
    }
}
