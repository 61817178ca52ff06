//! `show glb`.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use srv6d_api::state::{GlbLinkRow, GlbPeerRow, GlbPortRow, GlbView};
use srv6d_balance::{BandScale, PortState, Sampler};
use srv6d_heartbeat::{Freshness, Peer, Reject, Role};

use super::beats::Beats;
use super::port::Port;

const MEGABIT: u64 = 1_000_000;

impl Beats {
    /// Returns the state for display.
    pub(super) fn view(&self) -> GlbView {
        GlbView {
            role: self.role.keyword().to_owned(),
            node: Ipv4Addr::from_bits(self.node).to_string(),
            trouble: None,
            sent: self.sent,
            received: self.peers.received(),
            rejected: Reject::ALL
                .iter()
                .map(|&reject| (reject.word().to_owned(), self.peers.rejected().of(reject)))
                .collect(),
            ports: self.ports.iter().map(port).collect(),
            peers: self.peer_rows(),
            links: self.links(),
        }
    }

    /// Returns the nodes that are expected, whether or not they are heard. A node that only sends expects none.
    fn peer_rows(&self) -> Vec<GlbPeerRow> {
        let expected = self.ports.iter().filter(|_| self.role.receives());
        let expected = expected.filter_map(|port| Some((port.wanted.neighbor?.0, port.wanted.name.clone())));
        let mut ports: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for (node, port) in expected {
            ports.entry(node).or_default().push(port);
        }
        ports.into_iter().map(|(node, ports)| self.peer(node, &ports)).collect()
    }

    fn peer(&self, node: u32, ports: &[String]) -> GlbPeerRow {
        let peer = self.peers.all().get(&node);
        let state = match peer.map(|peer| peer.freshness(self.now)) {
            None => "unheard",
            Some(Freshness::Fresh) => "fresh",
            Some(Freshness::Unknown) => "unknown",
            Some(Freshness::Suspect) => "suspect",
        };
        let role = peer.map(|peer| if peer.last.role == Role::Both { "both" } else { "helper-only" });
        GlbPeerRow {
            node: Ipv4Addr::from_bits(node).to_string(),
            port: ports.join(", "),
            state: state.to_owned(),
            role: role.map(str::to_owned),
            age_us: peer.map(|peer| peer.age(self.now) / 1000),
            period_ms: peer.map(|peer| peer.last.period.into()),
            received: peer.map_or(0, |peer| peer.received),
            missed: peer.map_or(0, |peer| peer.missed),
            restarts: peer.map_or(0, |peer| peer.restarts),
        }
    }

    /// Returns the links behind the peers. A band compares the links to one node.
    fn links(&self) -> Vec<GlbLinkRow> {
        let known = |peer: &Peer| peer.freshness(self.now) == Freshness::Fresh;
        let entries =
            || self.peers.all().values().flat_map(|peer| peer.last.entries.iter().map(move |entry| (peer, entry)));
        let mut fastest: BTreeMap<u32, u64> = BTreeMap::new();
        for (_, entry) in entries() {
            let rate = fastest.entry(entry.neighbor).or_default();
            *rate = (*rate).max(u64::from(entry.capacity) * MEGABIT);
        }
        let row = |(peer, entry): (&Peer, &srv6d_heartbeat::Entry)| {
            let state = self.judge.state_of(peer, entry);
            let fastest = fastest.get(&entry.neighbor).copied().unwrap_or_default();
            GlbLinkRow {
                node: Ipv4Addr::from_bits(peer.last.node).to_string(),
                neighbor: Ipv4Addr::from_bits(entry.neighbor).to_string(),
                up: entry.is_up,
                load_permille: (entry.load / 10).into(),
                queue_permille: (entry.queue / 10).into(),
                capacity: u64::from(entry.capacity) * MEGABIT,
                looked_at: self.judge.profiles.iter().any(|nodes| nodes.contains(&entry.neighbor)),
                band: (entry.is_valid && known(peer)).then(|| band(state, fastest)),
            }
        };
        entries().map(row).collect()
    }
}

fn band(state: PortState, fastest: u64) -> u8 {
    state.band(BandScale::Available, fastest)
}

fn port(port: &Port) -> GlbPortRow {
    let sampled = |value: fn(&Sampler) -> u16| port.sampler.as_ref().map(value);
    GlbPortRow {
        port: port.wanted.name.clone(),
        neighbor: port.wanted.neighbor.map(|(node, _)| Ipv4Addr::from_bits(node).to_string()),
        load_permille: sampled(Sampler::load),
        queue_permille: sampled(Sampler::queue).filter(|_| port.wanted.full_queue > 0),
        capacity: port.wanted.rate,
        trouble: port.trouble.clone(),
    }
}
