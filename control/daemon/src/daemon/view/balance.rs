//! Rows of `show balance`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use srv6d_api::state::BalanceRow;
use srv6d_dataplane::ChoiceCounters;
use srv6d_srv6::MOVES;
use srv6d_srv6::model::{Adaptive, BalancePolicy, Behavior, Hop, Mode, PortId, RouteAction, Steer, TableId};

use super::View;

/// A member, as it is shown.
struct Member {
    name: String,
    weight: u16,
    port: Option<PortId>,
    packets: u64,
    choices: ChoiceCounters,
}

/// Port, neighbour and weight of a next hop, in an order.
type HopText = (u16, String, u16);

impl View<'_> {
    /// Returns the rows of `show balance`. Groups of one have nothing to choose.
    pub fn balance(&self) -> Vec<BalanceRow> {
        if self.desired.balance.settings.policies.is_empty() {
            return Vec::new();
        }
        let mut rows = Vec::new();
        for (name, (policy, hops, more)) in self.groups_of_hops() {
            let members = hops.iter().map(|hop| self.hop_member(hop)).collect();
            rows.extend(self.rows_of(&name, more, policy, members));
        }
        for steer in self.desired.steers.iter().filter(|steer| steer.paths.len() > 1) {
            let policy = self.desired.balance.policy_of(steer.table, steer.prefix);
            rows.extend(self.rows_of(&format!("steer {}", steer.prefix), 0, policy, self.path_members(steer)));
        }
        rows
    }

    /// Returns the groups of next hops with a policy: the first prefix, policy, next hops, and the number of further prefixes
    /// with the same ones.
    fn groups_of_hops(&self) -> BTreeMap<String, (u16, &[Hop], usize)> {
        let balance = &self.desired.balance;
        let routes = self.desired.routes.iter().filter_map(|route| match &route.action {
            RouteAction::Via(hops) => {
                Some((format!("route {}", route.prefix), balance.policy_of(route.table, route.prefix), hops))
            }
            _ => None,
        });
        let sids = self.desired.sids.iter().filter_map(|sid| match &sid.behavior {
            Behavior::EndX { via, .. } | Behavior::EndDx { via, .. } => {
                Some((format!("sid {}", sid.prefix), balance.policy_of(TableId::MAIN, sid.prefix.into()), via))
            }
            _ => None,
        });
        let mut names: BTreeMap<(u16, Vec<HopText>), String> = BTreeMap::new();
        let mut groups: BTreeMap<String, (u16, &[Hop], usize)> = BTreeMap::new();
        for (name, policy, hops) in routes.chain(sids).filter(|(_, policy, hops)| *policy != 0 && hops.len() > 1) {
            let text = |hop: &Hop| (hop.port.0, format!("{:?}", hop.via), hop.weight);
            match names.entry((policy, hops.iter().map(text).collect())) {
                Entry::Vacant(new) => {
                    new.insert(name.clone());
                    groups.insert(name, (policy, hops, 0));
                }
                Entry::Occupied(known) => {
                    groups.entry(known.get().clone()).and_modify(|(_, _, more)| *more += 1);
                }
            }
        }
        groups
    }

    fn hop_member(&self, hop: &Hop) -> Member {
        let (port, address) = (self.port_name(hop.port), hop.via.map(|via| via.to_string()).unwrap_or_default());
        let counted = self.counters.next_hops.iter().find(|known| known.port == port && known.address == address);
        Member {
            name: format!("{port} {address}").trim_end().to_owned(),
            weight: hop.weight,
            port: Some(hop.port),
            packets: counted.map_or(0, |counted| counted.packets),
            choices: counted.map(|counted| counted.choices).unwrap_or_default(),
        }
    }

    fn path_members(&self, steer: &Steer) -> Vec<Member> {
        let member = |path: &srv6d_srv6::model::Path| {
            let counted = self.counters.paths.iter().find(|known| known.path == path.name);
            Member {
                name: path.name.clone(),
                weight: path.weight,
                port: path.via.first().map(|hop| hop.port),
                packets: counted.map_or(0, |counted| counted.packets),
                choices: counted.map(|counted| counted.choices).unwrap_or_default(),
            }
        };
        steer.paths.iter().map(member).collect()
    }

    fn rows_of(&self, group: &str, more: usize, number: u16, members: Vec<Member>) -> Vec<BalanceRow> {
        let settings = &self.desired.balance.settings;
        let Some(at) = usize::from(number).checked_sub(1) else { return Vec::new() };
        let (Some(policy), Some(name)) = (settings.policies.get(at), settings.names.get(at)) else { return Vec::new() };
        let fastest = members.iter().filter_map(|member| self.rate(member.port?)).max().unwrap_or_default();
        let row = |member: Member| {
            let quality = member.port.and_then(|port| self.quality(policy, port, fastest));
            BalanceRow {
                group: group.to_owned(),
                more,
                policy: name.clone(),
                mode: if matches!(policy.mode, Mode::Flowlet) { "flowlet" } else { "adaptive" }.to_owned(),
                member: member.name,
                weight: member.weight,
                band: quality.map(|(band, _)| band),
                score: quality.map(|(_, score)| score),
                packets: member.packets,
                flowlets: member.choices.flowlets,
                moves: MOVES.iter().map(|&reason| reason.to_owned()).zip(member.choices.moves).collect(),
            }
        };
        members.into_iter().map(row).collect()
    }

    /// Returns band and score of a member that leaves through a port. It has none if nothing samples the port.
    fn quality(&self, policy: &BalancePolicy, port: PortId, fastest: u64) -> Option<(u8, u16)> {
        const ALL: u64 = 1000;
        let Mode::Adaptive(Adaptive { scale, .. }) = policy.mode else { return None };
        let rate = self.rate(port)?;
        let device = self.desired.ports.get(usize::from(port.0))?.device;
        let name = &self.desired.ports.get(usize::from(device))?.name;
        let counted = self.counters.devices.iter().find(|counted| counted.name == *name)?;
        let score = u16::try_from(counted.score).unwrap_or(u16::MAX);
        let capacity = (rate * ALL).checked_div(fastest).unwrap_or(ALL);
        Some((scale.band(score, u16::try_from(capacity).unwrap_or(u16::MAX)), score))
    }

    /// Returns bits per second of a port, as far as they are known.
    fn rate(&self, port: PortId) -> Option<u64> {
        let device = PortId(self.desired.ports.get(usize::from(port.0))?.device);
        let emulated = self.desired.emulated.get(&device).map(|emulation| emulation.rate);
        emulated.or_else(|| self.desired.balance.settings.rates.get(&device).copied())
    }
}
