//! Formats routes as text.

use std::fmt::Write;

use ipnet::IpNet;

use super::{Drops, Hop, Route, State};

const SONIC_CODES: &str = "\
Codes: K - kernel route, C - connected, S - static, R - RIP,
       O - OSPF, I - IS-IS, B - BGP, E - EIGRP, N - NHRP,
       T - Table, v - VNC, V - VNC-Direct, A - Babel, D - SHARP,
       F - PBR, f - OpenFabric,
       > - selected route, * - FIB route, q - queued route, r - rejected route

";

const FRR_CODES_IPV4: &str = "Codes: K - kernel route, C - connected, L - local, S - static,
       R - RIP, O - OSPF, I - IS-IS, B - BGP, E - EIGRP, N - NHRP,
";

const FRR_CODES_IPV6: &str = "Codes: K - kernel route, C - connected, L - local, S - static,
       R - RIPng, O - OSPFv3, I - IS-IS, B - BGP, N - NHRP,
";

const FRR_CODES_OF_BOTH: &str = "       T - Table, v - VNC, V - VNC-Direct, A - Babel, F - PBR,
       f - OpenFabric, t - Table-Direct,
       > - selected route, * - FIB route, q - queued, r - rejected, b - backup
       t - trapped, o - offload failure

";

/// Formats SONiC's list: it has no blank behind the status letters, is sorted by address, and does not mention SRv6.
pub fn sonic_table(routes: &[Route]) -> String {
    let mut text = SONIC_CODES.to_owned();
    for route in sorted(routes) {
        for (index, hop) in route.hops.iter().enumerate() {
            let written = match (hop.drops, hop.via, &hop.interface) {
                (Some(Drops::Blackhole), ..) => " (blackhole)".to_owned(),
                (Some(Drops::Unreachable), ..) => " (ICMP unreachable)".to_owned(),
                (None, Some(via), Some(interface)) => format!(" via {via}, {interface}"),
                (None, Some(via), None) => format!(" via {via}"),
                (None, None, interface) => {
                    format!(" is directly connected, {}", interface.as_deref().unwrap_or("unknown"))
                }
            };
            let inactive = if hop.active { "" } else { " inactive" };
            let comma = if hop.drops.is_some() { "" } else { "," };
            let _ = writeln!(text, "{}{written}{inactive}{comma} {}", head(route, hop, index, ""), route.uptime);
        }
    }
    text
}

/// Formats the list of FRR 10.x, as `vtysh -c 'show ipv6 route'` prints it.
pub fn frr_table(routes: &[Route], ipv6: bool, vrf: &str) -> String {
    let (codes, family) = if ipv6 { (FRR_CODES_IPV6, "IPv6") } else { (FRR_CODES_IPV4, "IPv4") };
    let mut text = format!("{codes}{FRR_CODES_OF_BOTH}{family} unicast VRF {vrf}:\n");
    for route in sorted(routes) {
        for (index, hop) in route.hops.iter().enumerate() {
            let written = match (hop.drops, hop.via, &hop.interface) {
                (Some(Drops::Blackhole), ..) => " unreachable (blackhole)".to_owned(),
                (Some(Drops::Unreachable), ..) => " unreachable (ICMP unreachable)".to_owned(),
                (None, Some(via), Some(interface)) => format!(" via {via}, {interface}"),
                (None, Some(via), None) => format!(" via {via}"),
                (None, None, interface) => {
                    format!(" is directly connected, {}", interface.as_deref().unwrap_or("unknown"))
                }
            };
            let inactive = if hop.active { "" } else { " inactive" };
            let srv6 = hop.srv6.as_ref().map(|srv6| format!(", {srv6}")).unwrap_or_default();
            let _ = writeln!(
                text,
                "{}{written}{inactive}{srv6}, weight {}, {}",
                head(route, hop, index, " "),
                hop.weight.max(1),
                route.uptime
            );
        }
    }
    text
}

/// Formats the details of one route, as `show ipv6 route PREFIX` does, followed by an empty line.
pub fn entry(route: &Route) -> String {
    let best = if route.selected { ", best" } else { "" };
    let mut text = format!(
        "Routing entry for {}\n  Known via \"{}\", distance {}, metric {}{best}\n  Last update {} ago\n",
        route.prefix, route.protocol, route.distance, route.metric, route.uptime
    );
    for hop in &route.hops {
        let star = if hop.fib { '*' } else { ' ' };
        let written = match (hop.drops, hop.via, &hop.interface) {
            (Some(Drops::Blackhole), ..) => "unreachable (blackhole)".to_owned(),
            (Some(Drops::Unreachable), ..) => "unreachable (ICMP unreachable)".to_owned(),
            (None, Some(via), Some(interface)) => format!("{via}, via {interface}"),
            (None, Some(via), None) => via.to_string(),
            (None, None, interface) => format!("directly connected, {}", interface.as_deref().unwrap_or("unknown")),
        };
        let inactive = if hop.active { "" } else { " inactive" };
        let _ = writeln!(text, "  {star} {written}{inactive}");
    }
    text.push('\n');
    text
}

/// Returns the part of a line in front of a next hop: letters, prefix and distance for the first next hop, blanks of
/// the same width for the others.
fn head(route: &Route, hop: &Hop, index: usize, gap: &str) -> String {
    let status = match (route.state, hop.fib) {
        (State::Queued, _) => 'q',
        (State::Rejected, _) => 'r',
        (State::Installed, true) => '*',
        _ => ' ',
    };
    let distance = if matches!(route.protocol.as_str(), "connected" | "local") {
        String::new()
    } else {
        format!(" [{}/{}]", route.distance, route.metric)
    };
    let of_first = format!("{}{distance}", route.prefix);
    if index > 0 {
        return format!("  {status}{gap}{}", " ".repeat(of_first.len()));
    }
    format!("{}{}{status}{gap}{of_first}", route.letter(), if route.selected { '>' } else { ' ' })
}

fn sorted(routes: &[Route]) -> Vec<&Route> {
    let mut sorted: Vec<&Route> = routes.iter().collect();
    sorted.sort_by_key(|route| (address(&route.prefix), !route.selected));
    sorted
}

fn address(prefix: &IpNet) -> (std::net::IpAddr, u8) {
    (prefix.addr(), prefix.prefix_len())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn hop(via: Option<&str>, interface: &str) -> Hop {
        Hop {
            via: via.map(|via| via.parse().unwrap()),
            interface: Some(interface.to_owned()),
            active: true,
            fib: true,
            weight: 1,
            ..Hop::default()
        }
    }

    fn route(prefix: &str, protocol: &str, state: State, hops: Vec<Hop>) -> Route {
        let distance = u32::from(protocol != "connected");
        Route {
            prefix: prefix.parse().unwrap(),
            protocol: protocol.to_owned(),
            distance,
            metric: 0,
            selected: true,
            state,
            uptime: "00:00:08".to_owned(),
            hops,
        }
    }

    fn table() -> Vec<Route> {
        let blackhole = Hop { drops: Some(Drops::Blackhole), interface: None, ..hop(None, "") };
        vec![
            route(
                "fcbb:bbbb:5::/48",
                "static",
                State::Installed,
                vec![hop(Some("2001:db8:1::2"), "Ethernet4"), hop(Some("2001:db8:1::3"), "Ethernet4")],
            ),
            route("fcbb:bbbb::/32", "static", State::Installed, vec![blackhole]),
            route("2001:db8:1::/64", "connected", State::Installed, vec![hop(None, "Ethernet4")]),
            route(
                "fcbb:bbbb:1:d4::/64",
                "static",
                State::Rejected,
                vec![Hop { srv6: Some("seg6local uDT4 table 254".to_owned()), ..hop(None, "sr0") }],
            ),
        ]
    }

    #[test]
    fn sonic_writes_no_blank_behind_the_letters_and_nothing_of_srv6() {
        let text = sonic_table(&table());
        let (codes, routes) = text.split_once("\n\n").unwrap();
        assert!(codes.ends_with("> - selected route, * - FIB route, q - queued route, r - rejected route"));
        let expected = "\
C>*2001:db8:1::/64 is directly connected, Ethernet4, 00:00:08
S>*fcbb:bbbb::/32 [1/0] (blackhole) 00:00:08
S>rfcbb:bbbb:1:d4::/64 [1/0] is directly connected, sr0, 00:00:08
S>*fcbb:bbbb:5::/48 [1/0] via 2001:db8:1::2, Ethernet4, 00:00:08
  *                       via 2001:db8:1::3, Ethernet4, 00:00:08
";
        assert_eq!(routes, expected);
    }

    #[test]
    fn frr_says_what_a_sid_does() {
        let text = frr_table(&table(), true, "default");
        let (_, routes) = text.split_once("\n\n").unwrap();
        let expected = "\
IPv6 unicast VRF default:
C>* 2001:db8:1::/64 is directly connected, Ethernet4, weight 1, 00:00:08
S>* fcbb:bbbb::/32 [1/0] unreachable (blackhole), weight 1, 00:00:08
S>r fcbb:bbbb:1:d4::/64 [1/0] is directly connected, sr0, seg6local uDT4 table 254, weight 1, 00:00:08
S>* fcbb:bbbb:5::/48 [1/0] via 2001:db8:1::2, Ethernet4, weight 1, 00:00:08
  *                        via 2001:db8:1::3, Ethernet4, weight 1, 00:00:08
";
        assert_eq!(routes, expected);
    }

    #[test]
    fn one_route_is_told_at_length() {
        let routes = table();
        let found = super::super::find(&routes, "fcbb:bbbb:5::/48").unwrap();
        let expected = "\
Routing entry for fcbb:bbbb:5::/48
  Known via \"static\", distance 1, metric 0, best
  Last update 00:00:08 ago
  * 2001:db8:1::2, via Ethernet4
  * 2001:db8:1::3, via Ethernet4

";
        assert_eq!(found.iter().map(|route| entry(route)).collect::<String>(), expected);
        let longest = super::super::find(&routes, "fcbb:bbbb:1:d4::9").unwrap();
        assert_eq!(longest.first().unwrap().prefix.to_string(), "fcbb:bbbb:1:d4::/64");
        assert_eq!(super::super::find(&routes, "3fff::1"), Some(Vec::new()));
        assert_eq!(super::super::find(&routes, "leaf"), None);
    }
}
