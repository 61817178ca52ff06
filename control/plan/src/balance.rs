//! Plans `[[balance]]`, and which groups choose by which policy.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::ops::Range;

use ipnet::IpNet;
use srv6d_config::{
    self as config, BalanceMode, BandRule, Findings, HASH, NodeId, Optional, Reorder, ShortTime, Spanned, WeightMetric,
};
use srv6d_srv6::desired::{
    Adaptive, Balance, BalancePolicy, Balancing, BandScale, Emulation, Flows, GroupPolicy, HopsOf, Metric, PolicyMode,
    PortId, Reactive, TableId, Weighted,
};

use super::glb;
use super::node::or;
use super::steers::{path_names, steered_name};
use super::weights;

/// Largest number of policies.
const MOST: usize = 1000;
const DEFAULT_LOW: u16 = 200;
const DEFAULT_HIGH: u16 = 900;
/// Default of `delta` of `reactive`: the best member has to be better by two bands.
const DEFAULT_DELTA: u8 = 2;
const DEFAULT_PROBABILITY: f64 = 0.01;

/// Returns the policies, and which groups choose by which policy.
pub(super) fn plan(config: &config::Config, emulated: &BTreeMap<PortId, Emulation>, found: &mut Findings) -> Balance {
    let settings = Balancing { rates: rates(config, emulated), ..Balancing::default() };
    let mut balance = Balance { settings, capacities: weights::written(config, found), ..Balance::default() };
    let policies = policies(config, &mut balance, found);
    share(config, &mut balance.settings, found);
    warn_about_rates(config, &balance.settings, found);
    let policy_of = |key: &Optional<String>, entry: &str, found: &mut Findings| {
        let name = key.as_ref()?;
        let policy = policies.get(name.get_ref().as_str());
        if policy.is_none() {
            let known: Vec<&str> = policies.keys().copied().collect();
            let what = format!("there is no [[balance]] named {:?}", name.get_ref());
            found.error(name.span(), entry, what, format!("write one of: {}", known.join(", ")));
        }
        policy.copied()
    };
    balance.default = policy_of(&config.node.balance, "[node] balance", found).unwrap_or_default();
    let has_heartbeats = config.glb.as_ref().is_some_and(|glb| glb.role.get_ref().receives());
    for entry in entries(config) {
        let own = policy_of(entry.policy, &format!("{} balance", entry.header), found);
        place(&mut balance, entry, own, has_heartbeats, found);
    }
    balance
}

/// Records how the groups of an entry choose. `own` is the policy that the entry names.
fn place(
    balance: &mut Balance,
    entry: Entry<'_>,
    own: Option<GroupPolicy>,
    has_heartbeats: bool,
    found: &mut Findings,
) {
    let Entry { key, header, via_nodes, paths, .. } = entry;
    let policy = own.unwrap_or(balance.default);
    let seen = glb::with_profile(policy, via_nodes, header, &mut balance.settings, found);
    balance.of.extend(seen.or(own).map(|policy| (key, policy)));
    // The next hops of a path are chosen by the policy of the node.
    let of_hops = if paths.is_empty() { policy } else { balance.default };
    let seen_by_hops = match paths.as_slice() {
        [] => seen,
        _ => glb::with_profile(of_hops, via_nodes, header, &mut balance.settings, found),
    };
    balance.of_paths.extend(paths.iter().filter_map(|path| Some((path.clone(), seen_by_hops?))));
    let is_weighed = [policy, of_hops].into_iter().any(|policy| balance.metric(policy).is_some());
    if is_weighed && has_heartbeats && !via_nodes.is_empty() {
        let groups = paths.into_iter().map(HopsOf::Path).chain([HopsOf::Prefix(key.0, key.1)]);
        let nodes: BTreeSet<Ipv4Addr> = via_nodes.iter().map(|node| node.get_ref().0).collect();
        balance.via_nodes.extend(groups.map(|group| (group, nodes.clone())));
    } else if seen.is_none() && seen_by_hops.is_none() {
        glb::warn_unused(via_nodes, header, found);
    }
}

/// An entry of the file that may name a policy.
struct Entry<'c> {
    key: (TableId, IpNet),
    header: &'static str,
    policy: &'c Optional<String>,
    via_nodes: &'c [Spanned<NodeId>],
    /// Names of the entry's paths.
    paths: Vec<String>,
}

fn entries(config: &config::Config) -> impl Iterator<Item = Entry<'_>> {
    let routes = config.routes.iter().map(Spanned::get_ref).map(|route| Entry {
        key: key_of_route(route),
        header: "[[route]]",
        policy: &route.balance,
        via_nodes: &route.via_nodes,
        paths: Vec::new(),
    });
    let steers = config.steers.iter().map(Spanned::get_ref).map(|steer| Entry {
        key: key_of_steer(steer),
        header: "[[steer]]",
        policy: &steer.balance,
        via_nodes: &steer.via_nodes,
        paths: path_names(steer).chain([steered_name(steer)]).collect(),
    });
    let sids = config.sids.iter().map(Spanned::get_ref).map(|sid| Entry {
        key: key_of_sid(sid),
        header: "[[sid]]",
        policy: &sid.balance,
        via_nodes: &sid.via_nodes,
        paths: Vec::new(),
    });
    routes.chain(steers).chain(sids)
}

pub(super) fn key_of_route(route: &config::Route) -> (TableId, IpNet) {
    (or(&route.table, TableId::MAIN), route.prefix.get_ref().trunc())
}

pub(super) fn key_of_steer(steer: &config::Steer) -> (TableId, IpNet) {
    (or(&steer.table, TableId::MAIN), steer.prefix.get_ref().trunc())
}

pub(super) fn key_of_sid(sid: &config::Sid) -> (TableId, IpNet) {
    (TableId::MAIN, sid.sid.get_ref().trunc().into())
}

/// Adds the policies, and returns them by their names.
fn policies<'c>(
    config: &'c config::Config,
    balance: &mut Balance,
    found: &mut Findings,
) -> BTreeMap<&'c str, GroupPolicy> {
    let mut policies = BTreeMap::from([(HASH, GroupPolicy::Hash)]);
    for table in config.balances.iter().take(MOST).map(Spanned::get_ref) {
        let name = table.name.get_ref().as_str();
        let policy = match mode(table, found) {
            None => {
                balance.weighted.push(Weighted { name: name.to_owned(), metric: metric(table) });
                GroupPolicy::Weighted(balance.weighted.len() - 1)
            }
            Some(mode) => {
                let gap = table.gap.as_ref().map_or(BalancePolicy::GAP, nanoseconds);
                balance.settings.policies.push(BalancePolicy { gap, mode });
                balance.settings.names.push(name.to_owned());
                GroupPolicy::Stateful(u16::try_from(balance.settings.policies.len()).unwrap_or(u16::MAX))
            }
        };
        if policies.insert(name, policy).is_some() {
            let what = if name == HASH { "is the name of the plain hash" } else { "is the name of another one" };
            found.error(table.name.span(), "[[balance]] name", format!("{name:?} {what}"), "write another name");
        }
    }
    if let Some(beyond) = config.balances.get(MOST) {
        found.error(beyond.span(), "[[balance]]", format!("there are more than {MOST}"), "remove some of them");
    }
    policies
}

/// Returns the mode of a policy, or `None` if the policy looks at no state.
fn mode(table: &config::Balance, found: &mut Findings) -> Option<PolicyMode> {
    match table.mode.get_ref() {
        BalanceMode::Flowlet => {
            refuse(keys_of_adaptive(table), table, found);
            refuse(key_of_weighted(table), table, found);
            Some(PolicyMode::Flowlet)
        }
        BalanceMode::Adaptive => {
            refuse(key_of_weighted(table), table, found);
            Some(PolicyMode::Adaptive(Adaptive { scale: scale(table, found), reactive: reactive(table, found) }))
        }
        BalanceMode::Global => {
            refuse(key_of_weighted(table), table, found);
            Some(PolicyMode::Global(Adaptive { scale: scale(table, found), reactive: reactive(table, found) }, None))
        }
        BalanceMode::Weighted => {
            refuse(keys_of_adaptive(table), table, found);
            refuse(keys_of_flows(table), table, found);
            None
        }
    }
}

/// A key, and where it is written.
type Written = (&'static str, Option<Range<usize>>);

/// Returns the keys that only modes "adaptive" and "global" have.
fn keys_of_adaptive(table: &config::Balance) -> [Written; 6] {
    [
        ("band", table.band.as_ref().map(Spanned::span)),
        ("low", table.low.as_ref().map(Spanned::span)),
        ("high", table.high.as_ref().map(Spanned::span)),
        ("rate_weight", table.rate_weight.as_ref().map(Spanned::span)),
        ("sample", table.sample.as_ref().map(Spanned::span)),
        ("reactive", table.reactive.as_ref().map(|_| table.mode.span())),
    ]
}

/// Returns the keys of all modes that remember flows.
fn keys_of_flows(table: &config::Balance) -> [Written; 3] {
    [
        ("gap", table.gap.as_ref().map(Spanned::span)),
        ("flows", table.flows.as_ref().map(Spanned::span)),
        ("reorder", table.reorder.as_ref().map(Spanned::span)),
    ]
}

/// Returns the key that only mode "weighted" has.
fn key_of_weighted(table: &config::Balance) -> [Written; 1] {
    [("metric", table.metric.as_ref().map(Spanned::span))]
}

/// Returns what counts as the capacity of a link.
fn metric(table: &config::Balance) -> Metric {
    match or(&table.metric, WeightMetric::Capacity) {
        WeightMetric::Capacity => Metric::Capacity,
        WeightMetric::Available => Metric::Available,
    }
}

fn refuse(keys: impl IntoIterator<Item = Written>, table: &config::Balance, found: &mut Findings) {
    for (key, span) in keys {
        if let Some(span) = span {
            let what = format!("mode {:?} does not use `{key}`", table.mode.get_ref().keyword());
            found.error(
                span,
                "[[balance]]",
                what,
                format!(
                    "remove `{key}`, or write mode = \"{}\"",
                    if key == "metric" { "weighted" } else { "adaptive" }
                ),
            );
        }
    }
}

fn scale(table: &config::Balance, found: &mut Findings) -> BandScale {
    let (low, high) = (or(&table.low, DEFAULT_LOW), or(&table.high, DEFAULT_HIGH));
    match or(&table.band, BandRule::Available) {
        BandRule::Relative if low < high => BandScale::Relative { low, high },
        BandRule::Relative => {
            let what = format!("`low` = {low} is not below `high` = {high}");
            found.error(table.mode.span(), "[[balance]]", what, "write low = 200 and high = 900");
            BandScale::Relative { low: DEFAULT_LOW, high: DEFAULT_HIGH }
        }
        BandRule::Available => {
            for key in [&table.low, &table.high].into_iter().flatten() {
                let fix = "remove it, or write band = \"relative\"";
                found.error(key.span(), "[[balance]]", "band \"available\" has no `low` and `high`", fix);
            }
            BandScale::Available
        }
    }
}

/// Returns the settings of moves within a flowlet. They reorder packets, so the configuration has to accept that by
/// `reorder`.
fn reactive(table: &config::Balance, found: &mut Findings) -> Option<Reactive> {
    let reactive = table.reactive.as_ref()?;
    if or(&table.reorder, Reorder::Refuse) == Reorder::Refuse {
        found.error(
            table.mode.span(),
            "[[balance]] reactive",
            "moves a flow while packets of it are under way, so they arrive out of order: TCP slows down, and RoCE \
             reliable connections go back and send again",
            "write reorder = \"accept\" if the traffic bears it, or remove `reactive`",
        );
    }
    let probability = reactive.probability.as_ref().map_or(DEFAULT_PROBABILITY, |share| share.get_ref().0);
    Some(Reactive { delta: or(&reactive.delta, DEFAULT_DELTA), chance: parts(probability) })
}

/// Returns a probability in parts of 2³².
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value lies between 0 and 2^32 - 1")]
fn parts(probability: f64) -> u32 {
    (probability.clamp(0.0, 1.0) * f64::from(u32::MAX)).round() as u32
}

/// Sets the values that all policies share. One policy may give such a value, or several that agree.
fn share(config: &config::Config, settings: &mut Balancing, found: &mut Findings) {
    let balances = || config.balances.iter().map(Spanned::get_ref);
    let sample = agreed(balances().filter_map(|table| table.sample.as_ref()), "sample", found);
    let weight = agreed(balances().filter_map(|table| table.rate_weight.as_ref()), "rate_weight", found);
    let flows = agreed(balances().filter_map(|table| table.flows.as_ref()), "flows", found);
    settings.sample = sample.map_or(settings.sample, nanoseconds);
    settings.rate_weight = weight.map_or(settings.rate_weight, |weight| *weight.get_ref());
    settings.flows = flows.map_or(settings.flows, |flows| Flows::of(*flows.get_ref()).room());
}

fn agreed<'c, T: PartialEq + 'c>(
    values: impl Iterator<Item = &'c Spanned<T>>,
    key: &str,
    found: &mut Findings,
) -> Option<&'c Spanned<T>> {
    let mut values = values;
    let first = values.next()?;
    if let Some(other) = values.find(|other| other.get_ref() != first.get_ref()) {
        let what = format!("`{key}` is another one than in an entry above, and all policies share it");
        found.error(other.span(), "[[balance]]", what, format!("write the same `{key}`, or write it once"));
    }
    Some(first)
}

/// Returns the rates of ports whose configuration gives one. Emulated ports have theirs elsewhere.
fn rates(config: &config::Config, emulated: &BTreeMap<PortId, Emulation>) -> BTreeMap<PortId, u64> {
    let ports = (0..).map(PortId).zip(&config.ports);
    let written = ports.filter_map(|(port, written)| Some((port, written.get_ref().speed.as_ref()?.get_ref().0)));
    written.filter(|(port, _)| !emulated.contains_key(port)).collect()
}

/// Warns about ports whose load cannot be known.
fn warn_about_rates(config: &config::Config, settings: &Balancing, found: &mut Findings) {
    if !settings.needs_samples() {
        return;
    }
    for port in config.ports.iter().map(Spanned::get_ref) {
        if port.speed.is_none() && port.emulate.is_none() && port.vlan.is_none() {
            let what = format!("{} has no rate, so it counts as idle", port.name.get_ref());
            let fix = "add `speed = \"100Gbit\"` with the speed of its link, or `emulate`";
            found.warning(port.name.span(), "[[port]]", what, fix);
        }
    }
}

fn nanoseconds(time: &Spanned<ShortTime>) -> u64 {
    u64::try_from(time.get_ref().0.as_nanos()).unwrap_or(u64::MAX)
}
