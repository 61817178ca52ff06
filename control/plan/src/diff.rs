//! The difference between two desired states: `sids +3 -1 ~2`.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use ipnet::IpNet;
use srv6d_srv6::carrier::SegmentList;
use srv6d_srv6::desired::{Desired, Port, PortId, TableId};

/// Changes of one kind of entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// New entries.
    pub added: Vec<String>,
    /// Entries that are gone.
    pub removed: Vec<String>,
    /// Entries that are still there and differ.
    pub changed: Vec<String>,
}

impl Change {
    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [('+', self.added.len()), ('-', self.removed.len()), ('~', self.changed.len())];
        let shown: Vec<String> =
            counts.iter().filter(|(_, count)| *count > 0).map(|(sign, count)| format!("{sign}{count}")).collect();
        f.write_str(&shown.join(" "))
    }
}

/// Changes by kind of entry; kinds without a change are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// Kind (`ports`, `sids`, ...) and its changes, in the order of the configuration.
    pub kinds: Vec<(&'static str, Change)>,
}

impl Diff {
    /// Returns true if nothing changes.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Returns one line per entry: `+ sid fcbb:0:1004::/48`.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (kind, change) in &self.kinds {
            let signs = [('+', &change.added), ('-', &change.removed), ('~', &change.changed)];
            for (sign, entries) in signs {
                lines.extend(entries.iter().map(|entry| format!("{sign} {kind}: {entry}")));
            }
        }
        lines
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("no change");
        }
        let shown: Vec<String> = self.kinds.iter().map(|(kind, change)| format!("{kind} {change}")).collect();
        f.write_str(&shown.join(", "))
    }
}

/// Compares two desired states entry by entry. Entries are identified by the name of a port, by a SID, or by table
/// and prefix. The number of a port is part of its entry.
pub fn diff(before: &Desired, after: &Desired) -> Diff {
    if before == after {
        return Diff::default();
    }
    // A field that no kind below compares would change without coming into force.
    let Desired {
        ports: _,
        host: _,
        tunnel: _,
        policy: _,
        blocks: _,
        host_prefixes: _,
        sids: _,
        steers: _,
        routes: _,
        local_addresses: _,
        neighbors: _,
        path_mtus: _,
        offload: _,
        auto_offload: _,
        emulated: _,
        balance: _,
    } = after;
    let same_ports = before.ports.iter().map(|port| &port.name).eq(after.ports.iter().map(|port| &port.name));
    // If the ports keep their numbers, only entries that differ are formatted. Formatting a hundred thousand entries
    // takes longer than everything else.
    let steers = if same_ports {
        differing(&before.steers, &after.steers, |steer| (steer.table, steer.prefix))
    } else {
        change(before, after, |d| d.steers.iter().map(|s| (in_table(s.prefix, s.table.0), with_names(d, s))).collect())
    };
    let routes = if same_ports {
        differing(&before.routes, &after.routes, |route| (route.table, route.prefix))
    } else {
        change(before, after, |d| d.routes.iter().map(|r| (in_table(r.prefix, r.table.0), with_names(d, r))).collect())
    };
    let kinds = [
        ("node", change(before, after, node)),
        ("blocks", change(before, after, |d| d.blocks.iter().map(|b| (b.prefix.to_string(), text(b))).collect())),
        ("hosts", change(before, after, |d| d.host_prefixes.iter().map(|p| (p.to_string(), String::new())).collect())),
        (
            "ports",
            change(before, after, |d| (0..).zip(&d.ports).map(|p| (p.1.name.clone(), port_text(d, p))).collect()),
        ),
        ("sids", change(before, after, |d| d.sids.iter().map(|s| (s.prefix.to_string(), with_names(d, s))).collect())),
        ("steers", steers),
        ("routes", routes),
        (
            "addresses",
            change(before, after, |d| {
                d.local_addresses.iter().map(|(table, ip)| (in_table(ip, table.0), String::new())).collect()
            }),
        ),
        ("neighbors", change(before, after, neighbors)),
        (
            "balance",
            change(before, after, |d| {
                d.balance.of.iter().map(|((table, p), n)| (in_table(p, table.0), text(n))).collect()
            }),
        ),
        (
            "path_mtus",
            change(before, after, |d| d.path_mtus.iter().map(|(path, mtu)| (segments(path), text(mtu))).collect()),
        ),
    ];
    Diff { kinds: kinds.into_iter().filter(|(_, change)| !change.is_empty()).collect() }
}

type Entries = BTreeMap<String, String>;

fn change(before: &Desired, after: &Desired, entries: impl Fn(&Desired) -> Entries) -> Change {
    let (before, after) = (entries(before), entries(after));
    let differs = |(name, value): &(&String, &String)| before.get(*name).is_some_and(|old| old != *value);
    Change {
        added: after.keys().filter(|name| !before.contains_key(*name)).cloned().collect(),
        removed: before.keys().filter(|name| !after.contains_key(*name)).cloned().collect(),
        changed: after.iter().filter(differs).map(|(name, _)| name.clone()).collect(),
    }
}

/// Compares entries whose port numbers have not changed.
fn differing<T: PartialEq>(before: &[T], after: &[T], key: fn(&T) -> (TableId, IpNet)) -> Change {
    let (old, new) = (by_key(before, key), by_key(after, key));
    let named = |keys: Vec<(TableId, IpNet)>| {
        let mut names: Vec<String> = keys.into_iter().map(|(table, prefix)| in_table(prefix, table.0)).collect();
        names.sort();
        names
    };
    let missing = |entries: &HashMap<(TableId, IpNet), &T>, from: &HashMap<(TableId, IpNet), &T>| {
        named(entries.keys().filter(|key| !from.contains_key(key)).copied().collect())
    };
    let changed = new.iter().filter(|(key, entry)| old.get(key).is_some_and(|old| old != *entry));
    Change {
        added: missing(&new, &old),
        removed: missing(&old, &new),
        changed: named(changed.map(|(key, _)| *key).collect()),
    }
}

fn by_key<T>(entries: &[T], key: fn(&T) -> (TableId, IpNet)) -> HashMap<(TableId, IpNet), &T> {
    entries.iter().map(|entry| (key(entry), entry)).collect()
}

fn node(desired: &Desired) -> Entries {
    let host = text(&desired.host.map(|host| host.kernel_mac));
    let (tunnel, policy) = (text(&desired.tunnel), text(&desired.policy));
    let balance = &desired.balance;
    let balance = text(&(
        &balance.settings,
        &balance.weighted,
        balance.default,
        &balance.of_paths,
        &balance.capacities,
        &balance.links,
    ));
    [("tunnel", tunnel), ("policy", policy), ("host", host), ("balance", balance)]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

fn neighbors(desired: &Desired) -> Entries {
    let entry = |(&(port, address), mac): (&(srv6d_srv6::desired::PortId, _), &srv6d_srv6::desired::Mac)| {
        let address: std::net::IpAddr = address;
        (format!("{address} dev {}", port_name(desired, usize::from(port.0))), mac.to_string())
    };
    desired.neighbors.iter().map(entry).collect()
}

fn segments(path: &SegmentList) -> String {
    path.addresses().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn port_name(desired: &Desired, index: usize) -> &str {
    desired.ports.get(index).map_or("?", |port| port.name.as_str())
}

fn port_text(desired: &Desired, (index, port): (u16, &Port)) -> String {
    let id = PortId(index);
    let Desired { offload, auto_offload, emulated, .. } = desired;
    let offload = (offload.contains(&id), auto_offload.contains(&id));
    format!("{index} {port:?} {offload:?} {:?}", emulated.get(&id))
}

pub(super) fn in_table(prefix: impl fmt::Display, table: u32) -> String {
    if table == srv6d_srv6::desired::TableId::MAIN.0 { prefix.to_string() } else { format!("{prefix} table {table}") }
}

fn text(entry: &impl fmt::Debug) -> String {
    format!("{entry:?}")
}

/// Formats an entry with the names of its ports, because a number that means another port after a reload is a change.
fn with_names(desired: &Desired, entry: &impl fmt::Debug) -> String {
    let text = text(entry);
    let mut parts = text.split("PortId(");
    let mut named = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (number, rest) = part.split_once(')').unwrap_or_default();
        named += number.parse().map_or("?", |index| port_name(desired, index));
        named += rest;
    }
    named
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn other_hosts_of_a_block_are_a_change() {
        let with_hosts = Desired { host_prefixes: vec!["fcbb:bbbb:800::/48".parse().unwrap()], ..Desired::default() };
        assert_eq!(diff(&Desired::default(), &with_hosts).to_string(), "hosts +1");
        assert_eq!(diff(&with_hosts, &Desired::default()).lines(), ["- hosts: fcbb:bbbb:800::/48"]);
    }
}
