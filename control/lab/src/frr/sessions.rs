//! Reads the BGP sessions of a node from its bgpd.

use srv6d_netns as netns;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::{directory, programs};
use crate::error::LabError;
use crate::fabric::Lab;

/// The session with one neighbour of a router.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Port of the neighbour.
    pub port: String,
    /// Name of the neighbour, once it has told it.
    pub peer: Option<String>,
    /// AS number of the neighbour; 0 before it has told it.
    pub remote_as: u32,
    /// State: `Established`, or another one of RFC 4271 section 8.2.2.
    pub state: String,
    /// Number of IPv6 prefixes received.
    pub ipv6_prefixes: u64,
    /// Number of IPv4 prefixes received.
    pub ipv4_prefixes: u64,
}

impl Session {
    /// Whether routes can be exchanged.
    pub fn is_established(&self) -> bool {
        self.state == "Established"
    }
}

/// The fields of `show bgp summary json` that are used.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Summary {
    ipv4_unicast: Family,
    ipv6_unicast: Family,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Family {
    peers: BTreeMap<String, Peer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Peer {
    hostname: Option<String>,
    remote_as: u32,
    state: String,
    pfx_rcd: u64,
}

/// Returns the sessions of a node, by port.
///
/// # Errors
/// The node's bgpd does not answer.
pub fn sessions(lab: &Lab, node: &str) -> Result<Vec<Session>, LabError> {
    let shell = programs(lab, node).join("vtysh");
    // vtysh would wait for ever for a bgpd that is stopped.
    let mut asked = netns::tool("timeout");
    asked.arg("5").arg(shell).args(["-d", "bgpd", "-c", "show bgp summary json"]);
    let text = netns::run(&mut asked)?;
    read(&text).map_err(|why| {
        let place = directory(lab, node);
        LabError::Failed(format!("bgpd of {node} in {} said something else than its sessions: {why}", place.display()))
    })
}

fn read(text: &str) -> Result<Vec<Session>, serde_json::Error> {
    let summary: Summary = serde_json::from_str(text)?;
    let mut sessions: BTreeMap<String, Session> = BTreeMap::new();
    for (is_ipv6, family) in [(false, summary.ipv4_unicast), (true, summary.ipv6_unicast)] {
        for (port, peer) in family.peers {
            let session = sessions.entry(port.clone()).or_default();
            (session.port, session.remote_as, session.state) = (port, peer.remote_as, peer.state);
            session.peer = peer.hostname;
            let prefixes = if is_ipv6 { &mut session.ipv6_prefixes } else { &mut session.ipv4_prefixes };
            *prefixes = peer.pfx_rcd;
        }
    }
    Ok(sessions.into_values().collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    #[test]
    fn both_families_are_one_session() {
        let text = r#"{
            "ipv4Unicast": { "routerId": "10.255.4.1", "peers": {
                "eth1": { "hostname": "spine00", "remoteAs": 4200000004, "state": "Established", "pfxRcd": 6 },
                "eth2": { "remoteAs": 0, "state": "Idle" } } },
            "ipv6Unicast": { "peers": {
                "eth1": { "hostname": "spine00", "remoteAs": 4200000004, "state": "Established", "pfxRcd": 9 } } }
        }"#;
        let sessions = read(text).unwrap();
        let spine = Session {
            port: "eth1".to_owned(),
            peer: Some("spine00".to_owned()),
            remote_as: 4_200_000_004,
            state: "Established".to_owned(),
            ipv6_prefixes: 9,
            ipv4_prefixes: 6,
        };
        assert_eq!(sessions.first(), Some(&spine));
        assert!(!sessions.last().unwrap().is_established());
    }

    #[test]
    fn a_router_without_neighbours_has_none() {
        assert_eq!(read("{}").unwrap(), []);
    }
}
