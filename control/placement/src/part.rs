//! Parts: independent groups of commodities that share no link with others, such as rails or disjoint tenants.

use std::collections::BTreeMap;

use crate::commodity_paths::CommodityPaths;
use crate::table::{Id, LinkId, PerLink};

/// Commodities that compete for links, and the links that any of them may use.
pub(crate) struct Part {
    /// Positions of the commodities in the problem.
    pub commodities: Vec<usize>,
    pub links: Vec<LinkId>,
}

impl Part {
    /// Returns the greatest common divisor of all demands.
    pub(crate) fn step(&self, paths: &CommodityPaths) -> u64 {
        let demands = self.commodities.iter().map(|commodity| paths.commodity(*commodity).demand);
        demands.fold(0, common_divisor).max(1)
    }
}

const fn common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// Divides the commodities into parts. Commodities whose entry is their exit use no link and belong to no part.
pub(crate) fn divide(paths: &CommodityPaths) -> Vec<Part> {
    let fabric = paths.problem.fabric;
    let mut parents = PerLink::new(fabric.link_count(), LinkId::at(0));
    let mut used = PerLink::new(fabric.link_count(), false);
    for (link, _) in fabric.links() {
        parents[link] = link;
    }
    let mut first_links = Vec::new();
    for commodity in 0..paths.problem.commodities.len() {
        let links = paths.links(commodity);
        for link in &links {
            used[*link] = true;
            if let Some(first) = links.first() {
                let (one, other) = (root(&mut parents, *first), root(&mut parents, *link));
                parents[other] = one;
            }
        }
        first_links.push(links.first().copied());
    }
    let mut parts: BTreeMap<usize, Part> = BTreeMap::new();
    for (commodity, first) in first_links.into_iter().enumerate() {
        if let Some(first) = first {
            let root = root(&mut parents, first).position();
            let part = parts.entry(root).or_insert_with(|| Part { commodities: Vec::new(), links: Vec::new() });
            part.commodities.push(commodity);
        }
    }
    for (link, _) in fabric.links().filter(|(link, _)| used[*link]) {
        if let Some(part) = parts.get_mut(&root(&mut parents, link).position()) {
            part.links.push(link);
        }
    }
    parts.into_values().collect()
}

fn root(parents: &mut PerLink<LinkId>, mut link: LinkId) -> LinkId {
    while parents[link] != link {
        let above = parents[parents[link]];
        parents[link] = above;
        link = above;
    }
    link
}
