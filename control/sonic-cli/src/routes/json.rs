//! FRR's JSON of routes: it is read where FRR runs, and written where it does not.

use serde_json::{Map, Value, json};

use super::{Drops, Hop, Route, State};

/// Reads routes from the JSON of `show ip route json`. Routes of protocol `local` are left out: SONiC's printer does
/// not know it.
///
/// # Errors
/// The text is not a JSON object; FRR's own errors (`% ...`) are not one either.
pub fn from_json(text: &str) -> Result<Vec<Route>, serde_json::Error> {
    let table: Map<String, Value> = serde_json::from_str(text)?;
    let entries = table.iter().flat_map(|(prefix, entries)| {
        entries.as_array().into_iter().flatten().filter_map(move |entry| route(prefix, entry))
    });
    Ok(entries.filter(|route| route.protocol != "local").collect())
}

fn route(prefix: &str, entry: &Value) -> Option<Route> {
    let flag = |name: &str| entry.get(name).and_then(Value::as_bool).unwrap_or(false);
    let number = |name: &str| entry.get(name).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let state = if flag("failed") {
        State::Rejected
    } else if flag("queued") {
        State::Queued
    } else if flag("installed") {
        State::Installed
    } else {
        State::None
    };
    let hops = entry.get("nexthops").and_then(Value::as_array).into_iter().flatten().map(hop).collect();
    Some(Route {
        prefix: prefix.parse().ok()?,
        protocol: text("protocol"),
        distance: number("distance"),
        metric: number("metric"),
        selected: flag("selected"),
        state,
        uptime: text("uptime"),
        hops,
    })
}

fn hop(hop: &Value) -> Hop {
    let flag = |name: &str| hop.get(name).and_then(Value::as_bool).unwrap_or(false);
    let text = |name: &str| hop.get(name).and_then(Value::as_str);
    let drops = flag("unreachable") || flag("blackhole") || flag("reject");
    Hop {
        via: text("ip").and_then(|via| via.parse().ok()),
        interface: text("interfaceName").map(str::to_owned),
        drops: drops.then(|| if flag("reject") { Drops::Unreachable } else { Drops::Blackhole }),
        active: flag("active"),
        fib: flag("fib"),
        srv6: None,
        weight: hop.get("weight").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()).unwrap_or(1),
    }
}

/// Writes routes as FRR's JSON, with the keys that scripts read.
pub fn to_json(routes: &[Route], vrf: &str) -> Value {
    let mut table = Map::new();
    for route in routes {
        let entry = entry(route, vrf);
        let list = table.entry(route.prefix.to_string()).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(entries) = list {
            entries.push(entry);
        }
    }
    Value::Object(table)
}

fn entry(route: &Route, vrf: &str) -> Value {
    let mut entry = json!({
        "prefix": route.prefix.to_string(),
        "prefixLen": route.prefix.prefix_len(),
        "protocol": route.protocol,
        "vrfName": vrf,
        "distance": route.distance,
        "metric": route.metric,
        "uptime": route.uptime,
        "nexthops": route.hops.iter().map(nexthop).collect::<Vec<_>>(),
    });
    let state = match route.state {
        State::None => None,
        State::Installed => Some("installed"),
        State::Queued => Some("queued"),
        State::Rejected => Some("failed"),
    };
    let flags = state.into_iter().chain(route.selected.then_some("selected"));
    if let Value::Object(entry) = &mut entry {
        entry.extend(flags.map(|flag| (flag.to_owned(), Value::Bool(true))));
    }
    entry
}

fn nexthop(hop: &Hop) -> Value {
    let mut written = Map::new();
    let mut flag = |name: &str, on: bool| {
        if on {
            written.insert(name.to_owned(), Value::Bool(true));
        }
    };
    flag("fib", hop.fib);
    flag("active", hop.active);
    flag("directlyConnected", hop.via.is_none() && hop.drops.is_none());
    flag("unreachable", hop.drops.is_some());
    flag("blackhole", hop.drops == Some(Drops::Blackhole));
    flag("reject", hop.drops == Some(Drops::Unreachable));
    if let Some(via) = hop.via {
        written.insert("ip".to_owned(), Value::String(via.to_string()));
        written.insert("afi".to_owned(), Value::from(if via.is_ipv4() { "ipv4" } else { "ipv6" }));
    }
    if let Some(interface) = &hop.interface {
        written.insert("interfaceName".to_owned(), Value::String(interface.clone()));
    }
    written.insert("weight".to_owned(), Value::from(hop.weight.max(1)));
    Value::Object(written)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::routes::sonic_table;

    const OF_FRR: &str = r#"{
        "fcbb:bbbb::/32": [{"prefix": "fcbb:bbbb::/32", "protocol": "static", "distance": 1, "metric": 0,
            "selected": true, "installed": true, "uptime": "00:01:00",
            "nexthops": [{"fib": true, "unreachable": true, "blackhole": true, "active": true, "weight": 1}]}],
        "3fff::/64": [{"protocol": "bgp", "distance": 20, "metric": 0, "selected": true, "queued": true,
            "uptime": "00:00:01", "nexthops": [{"ip": "fe80::1", "interfaceName": "Ethernet0", "active": true}]}],
        "3fff:1::1/128": [{"protocol": "local", "selected": true, "uptime": "00:00:01", "nexthops": []}]
    }"#;

    #[test]
    fn routes_of_frr_are_printed_as_sonic_does() {
        let routes = from_json(OF_FRR).unwrap();
        let text = sonic_table(&routes);
        let lines: Vec<&str> = text.lines().skip(6).collect();
        assert_eq!(
            lines,
            ["B>q3fff::/64 [20/0] via fe80::1, Ethernet0, 00:00:01", "S>*fcbb:bbbb::/32 [1/0] (blackhole) 00:01:00",]
        );
    }

    #[test]
    fn what_is_written_reads_the_same() {
        let routes = from_json(OF_FRR).unwrap();
        let mut again = from_json(&to_json(&routes, "default").to_string()).unwrap();
        again.sort_by_key(|route| route.prefix);
        let mut sorted = routes;
        sorted.sort_by_key(|route| route.prefix);
        assert_eq!(again, sorted);
        assert!(from_json("% Unknown command").is_err());
    }
}
