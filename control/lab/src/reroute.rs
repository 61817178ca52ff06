//! Moves one steered prefix of a host from one spine to another.

use srv6d_netns as netns;
use std::net::{IpAddr, Ipv6Addr};

use super::error::LabError;
use super::fabric::Lab;
use super::topology::{Behavior, Node, Role, Sid, Steer, SteerPath, Topology};
use super::{kernel, node_config, routing};

/// A path with its carriers before and after the change.
#[derive(Clone, Debug)]
pub struct Reroute {
    path: String,
    segments: Vec<Ipv6Addr>,
    /// First segment before the change.
    pub old: Ipv6Addr,
    /// First segment after the change.
    pub new: Ipv6Addr,
}

impl Reroute {
    /// Replaces the spine's uSID in the carrier by that of the next spine. Returns `None` if `target` is not steered
    /// over one of several spines.
    pub fn plan(topology: &Topology, node: &Node, target: IpAddr) -> Option<Self> {
        let spines: Vec<(&str, u16)> =
            topology.tier(Role::Spine).filter_map(|spine| Some((spine.name.as_str(), usid(spine)?))).collect();
        let steer = node.steer.iter().find(|steer| steer.prefix.contains(&target))?;
        let SteerPath { name, segments, .. } = steer.paths.first()?;
        let old = *segments.first()?;
        let mut groups = old.segments();
        let (place, index) = groups
            .iter()
            .enumerate()
            .skip(2)
            .find_map(|(place, group)| Some((place, spines.iter().position(|(_, usid)| usid == group)?)))?;
        let (from_spine, _) = spines.get(index)?;
        let (_, usid) = spines.get((index + 1) % spines.len()).filter(|(name, _)| name != from_spine)?;
        *groups.get_mut(place)? = *usid;
        let new = groups.into();
        let segments = std::iter::once(new).chain(segments.iter().skip(1).copied()).collect();
        Some(Self { path: name.clone(), segments, old, new })
    }

    /// Returns the node with its new path.
    pub fn applied(&self, node: &Node) -> Node {
        let mut changed = node.clone();
        for path in changed.steer.iter_mut().flat_map(|steer| &mut steer.paths).filter(|path| path.name == self.path) {
            path.segments.clone_from(&self.segments);
        }
        changed
    }

    /// Returns the steered prefix as it is in `node`.
    pub fn steer<'a>(&self, node: &'a Node) -> Option<&'a Steer> {
        node.steer.iter().find(|steer| steer.paths.iter().any(|path| path.name == self.path))
    }

    /// Replaces the route of a node whose kernel encapsulates, in one step. Returns the commands that were run.
    ///
    /// # Errors
    /// The kernel refuses the route.
    pub fn replace_route(&self, lab: &Lab, node: &Node) -> Result<String, LabError> {
        let commands = self.route_commands(lab, node)?;
        netns::ip_batch(&lab.netns(&node.name), &commands)?;
        Ok(commands.iter().map(|command| format!("ip {command}")).collect::<Vec<_>>().join("; "))
    }

    /// Deletes the route of a node whose kernel encapsulates and then adds the new one, as a program does that cannot
    /// replace routes. Both commands are run by one `ip` process, which makes the gap as short as possible.
    ///
    /// # Errors
    /// The kernel refuses the route.
    pub fn delete_and_add_route(&self, lab: &Lab, node: &Node) -> Result<(), LabError> {
        let Some(steer) = self.steer(node) else { return Ok(()) };
        let mut commands = vec![format!("route del {}", kernel::key_of(steer))];
        commands.extend(self.route_commands(lab, node)?);
        Ok(netns::ip_batch(&lab.netns(&node.name), &commands)?)
    }

    fn route_commands(&self, lab: &Lab, node: &Node) -> Result<Vec<String>, LabError> {
        let changed = self.applied(node);
        let plain = routing::routes(&lab.topology, &node.name);
        let command = self
            .steer(&changed)
            .map(|steer| kernel::steer_route(&lab.topology, &changed, &plain, steer))
            .transpose()?;
        Ok(command.into_iter().collect())
    }

    /// Writes the node's `srv6d.toml` and reloads it. Returns the generation in force.
    ///
    /// # Errors
    /// srv6d refused the configuration.
    pub fn reload(&self, lab: &Lab, node: &Node) -> Result<u64, LabError> {
        let text = node_config::srv6d_toml(&lab.topology, &self.applied(node), &lab.run.socket(&node.name));
        lab.reload_with(&node.name, &text)
    }
}

/// Returns the uSID of a node's uN: the 16 bits behind a 32-bit block.
pub fn usid(node: &Node) -> Option<u16> {
    let locator = node.sids.iter().find(|sid| sid.behavior == Behavior::Un)?;
    locator.prefix.addr().segments().get(2).copied()
}

/// Returns the uSID with which a node decapsulates IPv6, behind the one of its uN.
pub fn decap_v6(node: &Node) -> Option<u16> {
    let is_it = |sid: &&Sid| matches!(sid.behavior, Behavior::Udt6 | Behavior::Udt46) && sid.prefix.prefix_len() == 64;
    node.sids.iter().find(is_it)?.prefix.addr().segments().get(3).copied()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::FABRIC;

    #[test]
    fn only_the_spine_of_the_carrier_changes() {
        let topology = Topology::parse(FABRIC, "fabric").unwrap();
        let host = topology.node("host00").unwrap();
        let moved = Reroute::plan(&topology, host, "fcbb:0:800:2::2".parse().unwrap()).unwrap();
        assert_eq!(moved.old.to_string(), "fcbb:0:1004:1001:1006:fe06::");
        assert_eq!(moved.new.to_string(), "fcbb:0:1004:1002:1006:fe06::");
    }
}
