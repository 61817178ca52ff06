//! Merge of two configurations.

use std::collections::BTreeSet;

use srv6d_addresses::TableId;
use toml::Spanned;

use super::schema::{Config, Neighbor, Node, Optional, Route, Sid, Steer};

/// Returns `first`, with those entries of `second` that `first` does not have.
pub(super) fn merge(first: Config, second: Config) -> Config {
    Config {
        node: node(first.node, second.node),
        blocks: both(first.blocks, second.blocks, |block| block.prefix.get_ref().trunc()),
        ports: both(first.ports, second.ports, |port| port.name.get_ref().clone()),
        balances: both(first.balances, second.balances, |balance| balance.name.get_ref().clone()),
        sids: both(first.sids, second.sids, |sid: &Sid| sid.sid.get_ref().trunc()),
        steers: both(first.steers, second.steers, |steer: &Steer| {
            (table(&steer.table), steer.prefix.get_ref().trunc())
        }),
        routes: both(first.routes, second.routes, |route: &Route| {
            (table(&route.table), route.prefix.get_ref().trunc())
        }),
        neighbors: both(first.neighbors, second.neighbors, |neighbor: &Neighbor| {
            (neighbor.port.get_ref().clone(), *neighbor.address.get_ref())
        }),
        ..first
    }
}

#[expect(clippy::ref_option, reason = "as it is written in a table")]
fn table(written: &Optional<TableId>) -> TableId {
    written.as_ref().map_or(TableId::MAIN, |table| *table.get_ref())
}

/// Returns the entries of both lists. If two have the same key, only that of `first` remains.
fn both<T, K: Ord>(mut first: Vec<Spanned<T>>, second: Vec<Spanned<T>>, key: impl Fn(&T) -> K) -> Vec<Spanned<T>> {
    let known: BTreeSet<K> = first.iter().map(|entry| key(entry.get_ref())).collect();
    first.extend(second.into_iter().filter(|entry| !known.contains(&key(entry.get_ref()))));
    first
}

fn node(first: Node, second: Node) -> Node {
    Node {
        name: first.name.or(second.name),
        source: first.source.or(second.source),
        hop_limit: first.hop_limit.or(second.hop_limit),
        dscp: first.dscp.or(second.dscp),
        ecn: first.ecn.or(second.ecn),
        hash_qp: first.hash_qp.or(second.hash_qp),
        hash_seed: first.hash_seed.or(second.hash_seed),
        decrement_local: first.decrement_local.or(second.decrement_local),
        icmp_rate: first.icmp_rate.or(second.icmp_rate),
        icmp_unreachable: first.icmp_unreachable.or(second.icmp_unreachable),
        srh_check: first.srh_check.or(second.srh_check),
        ua_last: first.ua_last.or(second.ua_last),
        dt_argument: first.dt_argument.or(second.dt_argument),
        vrf_sids: first.vrf_sids.or(second.vrf_sids),
        balance: first.balance.or(second.balance),
        least_path_mtu: first.least_path_mtu.or(second.least_path_mtu),
        domain_sources: if first.domain_sources.is_empty() { second.domain_sources } else { first.domain_sources },
    }
}
