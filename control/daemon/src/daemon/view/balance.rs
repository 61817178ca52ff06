//! Rows of `show balance`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use srv6d_api::state::MemberStatus;
use srv6d_balance::combined;
use srv6d_dataplane::ChoiceCounters;
use srv6d_plan::{WeightsFrom, capacity_of_hop, capacity_of_path};
use srv6d_srv6::desired::{
    BalancePolicy, Behavior, BitRate, GroupPolicy, Hop, HopsOf, Metric, PolicyMode, PortId, RouteAction, Steer, TableId,
};
use srv6d_srv6::{MOVES, PortState};

use super::View;

/// A member, as it is shown.
struct Member {
    name: String,
    weight: u16,
    capacity: Option<BitRate>,
    port: Option<PortId>,
    packets: u64,
    choices: ChoiceCounters,
}

/// A group of next hops that does not choose by the plain hash.
struct HopGroup<'d> {
    of: HopsOf,
    policy: GroupPolicy,
    hops: &'d [Hop],
    /// Number of further prefixes with the same next hops and the same policy.
    more: usize,
}

/// Port, neighbour, weight and capacity of a next hop, in an order.
type HopText = (u16, String, u16, Option<BitRate>);

impl View<'_> {
    /// Returns the rows of `show balance`. Groups of one have nothing to choose.
    pub fn balance(&self) -> Vec<MemberStatus> {
        let balance = &self.desired.balance;
        if balance.settings.policies.is_empty() && balance.weighted.is_empty() {
            return Vec::new();
        }
        let mut rows = Vec::new();
        for (name, HopGroup { of, policy, hops, more }) in self.groups_of_hops() {
            let members = hops.iter().map(|hop| self.hop_member(&of, hop, policy)).collect();
            rows.extend(self.rows_of(&name, more, policy, members));
        }
        for steer in self.desired.steers.iter().filter(|steer| steer.paths.len() > 1) {
            let policy = balance.group_policy(steer.table, steer.prefix);
            rows.extend(self.rows_of(&format!("steer {}", steer.prefix), 0, policy, self.path_members(steer, policy)));
        }
        rows
    }

    /// Returns the groups of next hops with a policy, by the first prefix that has them.
    fn groups_of_hops(&self) -> BTreeMap<String, HopGroup<'_>> {
        let routes = self.desired.routes.iter().filter_map(|route| match &route.action {
            RouteAction::Via(hops) => Some((format!("route {}", route.prefix), (route.table, route.prefix), hops)),
            _ => None,
        });
        let sids = self.desired.sids.iter().filter_map(|sid| match &sid.behavior {
            Behavior::EndX { via, .. } | Behavior::EndDx { via, .. } => {
                Some((format!("sid {}", sid.prefix), (TableId::MAIN, sid.prefix.into()), via))
            }
            _ => None,
        });
        let mut names: BTreeMap<(GroupPolicy, Vec<HopText>), String> = BTreeMap::new();
        let mut groups: BTreeMap<String, HopGroup<'_>> = BTreeMap::new();
        for (name, (table, prefix), hops) in routes.chain(sids).filter(|(_, _, hops)| hops.len() > 1) {
            let policy = self.desired.balance.group_policy(table, prefix);
            if policy == GroupPolicy::Hash {
                continue;
            }
            let of = HopsOf::Prefix(table, prefix);
            let metric = self.metric(policy);
            let capacity = |hop: &Hop| capacity_of_hop(self.desired, &of, hop, metric?);
            let text = |hop: &Hop| (hop.port.0, format!("{:?}", hop.via), hop.weight, capacity(hop));
            match names.entry((policy, hops.iter().map(text).collect())) {
                Entry::Vacant(new) => {
                    new.insert(name.clone());
                    groups.insert(name, HopGroup { of, policy, hops, more: 0 });
                }
                Entry::Occupied(known) => {
                    groups.entry(known.get().clone()).and_modify(|group| group.more += 1);
                }
            }
        }
        groups
    }

    /// Returns what counts as the capacity of a link for groups of a policy.
    fn metric(&self, policy: GroupPolicy) -> Option<Metric> {
        self.desired.balance.metric(policy)
    }

    fn hop_member(&self, of: &HopsOf, hop: &Hop, policy: GroupPolicy) -> Member {
        let (port, address) = (self.port_name(hop.port), hop.via.map(|via| via.to_string()).unwrap_or_default());
        let counted = self.counters.next_hops.iter().find(|known| known.port == port && known.address == address);
        Member {
            name: format!("{port} {address}").trim_end().to_owned(),
            weight: hop.weight,
            capacity: self.metric(policy).and_then(|metric| capacity_of_hop(self.desired, of, hop, metric)),
            port: Some(hop.port),
            packets: counted.map_or(0, |counted| counted.packets),
            choices: counted.map(|counted| counted.choices).unwrap_or_default(),
        }
    }

    fn path_members(&self, steer: &Steer, policy: GroupPolicy) -> Vec<Member> {
        let member = |path: &srv6d_srv6::desired::Path| {
            let counted = self.counters.paths.iter().find(|known| known.path == path.name);
            Member {
                name: path.name.clone(),
                weight: path.weight,
                capacity: self.metric(policy).and_then(|metric| capacity_of_path(self.desired, path, metric)),
                port: path.via.first().map(|hop| hop.port),
                packets: counted.map_or(0, |counted| counted.packets),
                choices: counted.map(|counted| counted.choices).unwrap_or_default(),
            }
        };
        steer.paths.iter().map(member).collect()
    }

    fn rows_of(&self, group: &str, more: usize, policy: GroupPolicy, members: Vec<Member>) -> Vec<MemberStatus> {
        let balance = &self.desired.balance;
        let stateful = usize::from(policy.number()).checked_sub(1);
        let name = match policy {
            GroupPolicy::Hash => None,
            GroupPolicy::Weighted(at) => balance.weighted.get(at).map(|weighted| &weighted.name),
            GroupPolicy::Stateful(_) => stateful.and_then(|at| balance.settings.names.get(at)),
        };
        let Some(name) = name else { return Vec::new() };
        let stateful = stateful.and_then(|at| balance.settings.policies.get(at));
        let weights_from = if stateful.is_none() { Some(weights_from(&members)) } else { None };
        let fastest = members.iter().filter_map(|member| self.desired.rate_of(member.port?)).max().unwrap_or_default();
        let far = |member: &Member| self.far_port(stateful?, member.port?);
        let fastest_far = members.iter().filter_map(|member| Some(far(member)?.rate)).max().unwrap_or_default();
        let row = |member: Member| {
            let quality = stateful.and_then(|policy| self.quality(policy, member.port?, fastest));
            let scale = stateful.and_then(|policy| Some(policy.mode.adaptive()?.scale));
            let far_band = far(&member).and_then(|far| Some(far.band(scale?, fastest_far)));
            MemberStatus {
                group: group.to_owned(),
                more,
                policy: name.clone(),
                mode: mode(stateful).to_owned(),
                member: member.name,
                weight: member.weight,
                capacity: member.capacity.filter(|_| stateful.is_none()),
                weights_from: weights_from.map(str::to_owned),
                band: quality.map(|(band, _)| band),
                far_band,
                used_band: quality.map(|(band, _)| combined(band, far_band)),
                score: quality.map(|(_, score)| score),
                packets: member.packets,
                flowlets: member.choices.flowlets,
                moves: MOVES.iter().map(|&reason| reason.to_owned()).zip(member.choices.moves).collect(),
            }
        };
        members.into_iter().map(row).collect()
    }

    /// Returns how busy the ports behind the neighbour on a port are, if the policy looks at them and they are known.
    fn far_port(&self, policy: &BalancePolicy, port: PortId) -> Option<PortState> {
        let (profile, device) = (policy.mode.profile()?, self.desired.ports.get(usize::from(port.0))?.device);
        let mut neighbors = self.desired.balance.settings.numbered_neighbors();
        let (number, _) = neighbors.find(|(_, port)| port.0 == device)?;
        self.far.get(number, profile)
    }

    /// Returns band and score of a member that leaves through a port. It has none if nothing samples the port.
    fn quality(&self, policy: &BalancePolicy, port: PortId, fastest: u64) -> Option<(u8, u16)> {
        let scale = policy.mode.adaptive()?.scale;
        let rate = self.desired.rate_of(port)?;
        let device = self.desired.ports.get(usize::from(port.0))?.device;
        let name = &self.desired.ports.get(usize::from(device))?.name;
        let counted = self.counters.devices.iter().find(|counted| counted.name == *name)?;
        let score = u16::try_from(counted.score).unwrap_or(u16::MAX);
        Some((PortState { score, rate }.band(scale, fastest), score))
    }
}

fn mode(stateful: Option<&BalancePolicy>) -> &'static str {
    match stateful.map(|policy| policy.mode) {
        None => "weighted",
        Some(PolicyMode::Flowlet) => "flowlet",
        Some(PolicyMode::Adaptive(_)) => "adaptive",
        Some(PolicyMode::Global(..)) => "global",
    }
}

/// Returns what the weights of a group of a weighted policy are made of.
fn weights_from(members: &[Member]) -> &'static str {
    let weights: Vec<u16> = members.iter().map(|member| member.weight).collect();
    let capacities: Vec<Option<BitRate>> = members.iter().map(|member| member.capacity).collect();
    match WeightsFrom::of(&weights, &capacities) {
        WeightsFrom::Capacities => "capacities",
        WeightsFrom::Route => "route",
        WeightsFrom::Nothing => "nothing",
    }
}
