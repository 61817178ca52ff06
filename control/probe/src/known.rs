//! Nodes and SIDs that somebody knows, a lab or the daemon of this node: with them a hop of a traceroute has a name, and the
//! SIDs that were used up there.
//!
//! Nodes differ in what they quote. A kernel and VPP shift first and look at the hop limit later, so they quote the destination
//! behind their own SID; srv6d quotes a packet as it was received. Whoever knows the SIDs of a node can tell.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use crate::way::Way;

/// A SID of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownSid {
    /// Prefix of the SID.
    pub prefix: Ipv6Net,
    /// Name of its behaviour.
    pub behavior: String,
    /// Whether it uses up one uSID and goes on: uN, uA. Otherwise it is the last one of the packet.
    pub shifts: bool,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownNode {
    /// Name of the node.
    pub name: String,
    /// Addresses that answers may come from.
    pub addresses: Vec<Ipv6Addr>,
    /// SIDs of the node.
    pub sids: Vec<KnownSid>,
}

/// What is known of all nodes.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Nodes.
    pub nodes: Vec<KnownNode>,
}

/// A SID that was used up, or where a packet ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// Digits of the uSID, or the address of the SID.
    pub sid: String,
    /// Behaviour, if it is known.
    pub behavior: Option<String>,
}

impl Known {
    /// Returns the node that has an address. An echo reply may come from a SID.
    pub fn node(&self, address: Ipv6Addr) -> Option<&KnownNode> {
        let by_address = self.nodes.iter().find(|node| node.addresses.contains(&address));
        by_address.or_else(|| {
            let sids = self.nodes.iter().flat_map(|node| node.sids.iter().map(move |sid| (node, sid)));
            let matching = sids.filter(|(_, sid)| sid.prefix.contains(&address));
            matching.max_by_key(|(_, sid)| sid.prefix.prefix_len()).map(|(node, _)| node)
        })
    }

    /// Returns the destination with which a packet arrives at its last node, if a node with the last SID is known.
    pub fn end(&self, way: &Way) -> Option<Ipv6Addr> {
        (0..way.len()).rev().find_map(|used| {
            let destination = way.state(used)?.destination;
            let mut last = self.nodes.iter().filter_map(|node| node.longest(destination));
            last.any(|sid| used + covered(way, used, sid).count() == way.len()).then_some(destination)
        })
    }

    /// Returns the SIDs from `from` on, in front of `to`, with the behaviour that any of the nodes has for them.
    pub fn names(&self, way: &Way, from: usize, to: usize) -> Vec<Used> {
        let mut names = Vec::new();
        while from + names.len() < to
            && let Some(sid) = way.name(from + names.len())
        {
            let at = from + names.len();
            let walked = self.nodes.iter().map(|node| node.walk(way, at)).max_by_key(Vec::len).unwrap_or_default();
            let rest = walked.into_iter().take(to - at);
            names.extend(rest);
            if from + names.len() == at {
                names.push(Used { sid, behavior: None });
            }
        }
        names
    }
}

impl KnownNode {
    /// Returns the SIDs that this node uses up of a packet for which it was quoted that `used` had been used up, and how many
    /// there are then. At least `from` were used up in front of it.
    pub fn uses(&self, way: &Way, from: usize, used: usize) -> (Vec<Used>, usize) {
        let as_received = self.walk(way, used);
        if !as_received.is_empty() {
            let then = used + as_received.len();
            return (as_received, then);
        }
        let shifted = (from..used).map(|arrived| self.walk(way, arrived)).zip(from..);
        let fits = |(walked, arrived): &(Vec<Used>, usize)| !walked.is_empty() && arrived + walked.len() == used;
        (shifted.filter(fits).map(|(walked, _)| walked).next().unwrap_or_default(), used)
    }

    /// Returns the SIDs of this node that come one behind the other from `used` on.
    fn walk(&self, way: &Way, used: usize) -> Vec<Used> {
        let mut walked = Vec::new();
        let mut goes_on = true;
        while goes_on && let Some(state) = way.state(used + walked.len()) {
            let Some(sid) = self.longest(state.destination) else { break };
            goes_on = sid.shifts;
            let behavior = Some(sid.behavior.clone());
            let names = covered(way, used + walked.len(), sid);
            walked.extend(names.map(|sid| Used { sid, behavior: behavior.clone() }));
        }
        walked
    }

    /// Returns the SID that matches an address best.
    fn longest(&self, address: Ipv6Addr) -> Option<&KnownSid> {
        let matching = self.sids.iter().filter(|sid| sid.prefix.contains(&address));
        matching.max_by_key(|sid| sid.prefix.prefix_len())
    }
}

/// Returns the names of the uSIDs from `used` on that a SID stands for: one of 64 bits behind a block of 32 stands for two of
/// 16. At least one is returned.
fn covered<'w>(way: &'w Way, used: usize, sid: &KnownSid) -> impl Iterator<Item = String> + use<'w> {
    let block = way.block();
    let bits = sid.prefix.prefix_len().saturating_sub(block.prefix_len());
    let count = if block.contains(&sid.prefix) { usize::from(bits / way.usid_bits()).max(1) } else { 1 };
    (used..used + count).filter_map(|number| way.name(number))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    fn sid(prefix: &str, behavior: &str) -> KnownSid {
        let shifts = matches!(behavior, "uN" | "uA");
        KnownSid { prefix: prefix.parse().unwrap(), behavior: behavior.to_owned(), shifts }
    }

    fn node(sids: Vec<KnownSid>) -> KnownNode {
        KnownNode { name: "leaf".to_owned(), addresses: vec!["2001:db8::1".parse().unwrap()], sids }
    }

    fn way() -> Way {
        let segments = vec!["fcbb:0:1:2:3:fe06::".parse().unwrap()];
        Way::new(segments, "fcbb::/32".parse().unwrap(), 16).unwrap()
    }

    fn names(used: &[Used]) -> Vec<String> {
        used.iter().map(|used| format!("{} {}", used.sid, used.behavior.clone().unwrap_or_default())).collect()
    }

    #[test]
    fn a_node_that_quotes_what_it_received_has_its_sid_in_front() {
        let (used, then) = node(vec![sid("fcbb:0:2::/48", "uN")]).uses(&way(), 1, 1);
        assert_eq!((names(&used), then), (vec!["0002 uN".to_owned()], 2));
    }

    #[test]
    fn a_node_that_shifts_first_has_its_sid_behind() {
        let (used, then) = node(vec![sid("fcbb:0:2::/48", "uN")]).uses(&way(), 1, 2);
        assert_eq!((names(&used), then), (vec!["0002 uN".to_owned()], 2));
        // Two of them, one behind the other.
        let (used, then) = node(vec![sid("fcbb:0:1::/48", "uN"), sid("fcbb:0:2::/48", "uN")]).uses(&way(), 0, 2);
        assert_eq!((names(&used), then), (vec!["0001 uN".to_owned(), "0002 uN".to_owned()], 2));
    }

    #[test]
    fn a_long_sid_stands_for_several() {
        let sids = vec![sid("fcbb:0:3::/48", "uN"), sid("fcbb:0:3:fe06::/64", "uDT6")];
        let (used, then) = node(sids).uses(&way(), 2, 2);
        assert_eq!((names(&used), then), (vec!["0003 uDT6".to_owned(), "fe06 uDT6".to_owned()], 4));
    }

    #[test]
    fn a_node_on_the_way_uses_up_nothing() {
        let (used, then) = node(vec![sid("fcbb:0:9::/48", "uN")]).uses(&way(), 0, 1);
        assert_eq!((names(&used), then), (vec![], 1));
    }

    #[test]
    fn sids_have_a_behavior_if_any_node_has_them() {
        let known = Known { nodes: vec![node(vec![sid("fcbb:0:2::/48", "uN"), sid("fcbb:0:3:fe06::/64", "uDT6")])] };
        assert_eq!(names(&known.names(&way(), 0, 4)), ["0001 ", "0002 uN", "0003 uDT6", "fe06 uDT6"]);
        assert_eq!(names(&known.names(&way(), 1, 3)), ["0002 uN", "0003 uDT6"]);
        assert_eq!(names(&known.names(&way(), 3, 9)), ["fe06 "]);
    }

    #[test]
    fn the_last_node_decides_which_destination_arrives() {
        let end = |sids: Vec<KnownSid>| Known { nodes: vec![node(sids)] }.end(&way()).map(|end| end.to_string());
        let un = || sid("fcbb:0:3::/48", "uN");
        assert_eq!(end(vec![un(), sid("fcbb:0:3:fe06::/64", "uDT6")]).as_deref(), Some("fcbb:0:3:fe06::"));
        assert_eq!(end(vec![un(), sid("fcbb:0:fe06::/48", "uDT6")]).as_deref(), Some("fcbb:0:fe06::"));
        assert_eq!(end(vec![un()]), None);
    }

    #[test]
    fn an_answer_may_come_from_a_sid() {
        let known = Known { nodes: vec![node(vec![sid("fcbb:0:3:fe06::/64", "uDT6")])] };
        for (address, found) in [("2001:db8::1", true), ("fcbb:0:3:fe06::", true), ("fcbb:0:3::", false)] {
            assert_eq!(known.node(address.parse().unwrap()).is_some(), found, "{address}");
        }
    }
}
