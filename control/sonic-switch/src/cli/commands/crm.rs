//! `crm`: shows how much of the dataplane's tables is used.

use srv6d_sonic_cli::tables::{Resource, resources};

use super::node::Node;
use super::tree::{choose, nothing_more};
use srv6d_command::{Failure, output};

/// Number of uSIDs of a 32-bit block. The dataplane has an index of them.
const SIDS: usize = 65_536;

/// Carries out `crm show resources all|srv6-my-sid-entry|srv6-nexthop`.
pub fn crm(node: &Node, arguments: &[String]) -> Result<(), Failure> {
    let (_, rest) = choose("crm", arguments, &["show"])?;
    let (_, rest) = choose("crm show", rest, &["resources"])?;
    let path = "crm show resources";
    let (word, rest) = choose(path, rest, &["all", "srv6-my-sid-entry", "srv6-nexthop"])?;
    nothing_more(path, rest)?;
    let sids = node.sids()?;
    let hops = node.paths()?.len();
    let resource = |name, used: usize| Resource { name, used, available: SIDS.saturating_sub(used) };
    let mut all = vec![resource("srv6_my_sid_entry", sids.len()), resource("srv6_nexthop", hops)];
    all.retain(|resource| word == "all" || resource.name.replace('_', "-") == word);
    output::print(&resources(&all))
}
