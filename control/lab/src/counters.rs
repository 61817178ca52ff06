//! Packet counters of the SIDs and paths of the lab's nodes, for both kinds of forwarders.

use srv6d_netns as netns;
use std::collections::BTreeMap;

use srv6d_api::{Request, Response, Topic};

use super::error::LabError;
use super::fabric::Lab;
use super::topology::{Forwarder, Node};

/// Packets by SID.
pub type SidPackets = BTreeMap<String, u64>;

/// A path of a host with its packet counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPackets {
    /// Prefix of inner destinations.
    pub prefix: String,
    /// Name of the path.
    pub name: String,
    /// Carriers of the path.
    pub segments: Vec<String>,
    /// Number of packets encapsulated.
    pub packets: u64,
}

/// Returns the number of packets that each SID of a node has processed.
pub fn sids(lab: &Lab, node: &Node) -> Result<SidPackets, LabError> {
    match node.kind {
        Forwarder::Srv6d => match lab.ask(&node.name, &Request::Show { topic: Topic::Sids })? {
            Response::Sids(rows) => Ok(rows.into_iter().map(|row| (row.sid, row.packets)).collect()),
            other => Err(unexpected(node, &other)),
        },
        Forwarder::Linux => {
            let netns = lab.netns(&node.name);
            netns::run(netns::tool("ip").args(["-n", &netns, "-6", "-s", "route", "show"]))
                .map(|text| kernel_sids(&text))
                .map_err(LabError::from)
        }
    }
}

/// Returns the number of packets that went into each path of a node. The kernel has no such counters.
pub fn paths(lab: &Lab, node: &Node) -> Result<Vec<PathPackets>, LabError> {
    if node.kind == Forwarder::Linux {
        return Ok(Vec::new());
    }
    match lab.ask(&node.name, &Request::Show { topic: Topic::Paths })? {
        Response::Paths(rows) => Ok(rows
            .into_iter()
            .map(|row| PathPackets { prefix: row.prefix, name: row.path, segments: row.segments, packets: row.packets })
            .collect()),
        other => Err(unexpected(node, &other)),
    }
}

fn unexpected(node: &Node, response: &Response) -> LabError {
    LabError::Failed(format!("srv6d of {} answered something else: {response:?}", node.name))
}

/// Parses lines such as `PREFIX encap seg6local action End packets 7 bytes 1008 errors 0 dev eth1 ...`.
fn kernel_sids(text: &str) -> SidPackets {
    let mut sids = SidPackets::new();
    for line in text.lines().filter(|line| line.contains("seg6local")) {
        let mut words = line.split_whitespace();
        let Some(prefix) = words.next() else { continue };
        words.by_ref().find(|word| *word == "packets");
        let packets = words.next().and_then(|number| number.parse().ok()).unwrap_or_default();
        sids.insert(prefix.to_owned(), packets);
    }
    sids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_counters_are_read_by_name() {
        let text = "fcbb:0:800::/64 via 2001:db8::1 dev eth1 metric 4096 pref medium\n\
            fcbb:0:1000::/48  encap seg6local action End flavors next-csid lblen 32 nflen 16 packets 7 bytes 1008 errors 0 dev eth1 metric 1024 pref medium\n";
        assert_eq!(kernel_sids(text), SidPackets::from([("fcbb:0:1000::/48".to_owned(), 7)]));
    }
}
