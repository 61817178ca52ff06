//! Tests that reading and converting the files takes time in proportion to their size, for every kind of entry.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write;
use std::time::{Duration, Instant};

use srv6d_sonic::{Usd, read};

/// Makes the two files, with so many entries of a kind.
type Files = fn(usize) -> (String, String);

const SMALL: usize = 3_000;
const TIMES: usize = 4;

/// Makes a text of so many items.
fn items(count: usize, item: impl Fn(usize) -> String) -> String {
    (0..count).fold(String::new(), |mut text, n| {
        text.push_str(&item(n));
        text
    })
}

/// Makes a table of CONFIG_DB with rows of these keys and fields.
fn table(name: &str, count: usize, row: impl Fn(usize) -> (String, String)) -> String {
    let mut rows = String::new();
    for n in 0..count {
        let (key, fields) = row(n);
        write!(rows, "{}\"{key}\": {{{fields}}}", if n == 0 { "" } else { "," }).unwrap();
    }
    format!("\"{name}\": {{{rows}}}")
}

fn config_db(tables: &[String]) -> (String, String) {
    (format!("{{{}}}", tables.join(",")), String::new())
}

fn frr(text: String) -> (String, String) {
    (format!("{{{}}}", one_port()), text)
}

/// One port with a subnet, an encapsulation source and a locator.
fn one_port() -> String {
    r#""INTERFACE": {"Ethernet0": {}, "Ethernet0|fd90::1/64": {}, "Ethernet0|192.0.2.1/24": {}},
       "LOOPBACK_INTERFACE": {"Loopback0": {}, "Loopback0|fd90:9:1::1/128": {}},
       "SRV6_MY_LOCATORS": {"MAIN": {"prefix": "fd90:9:1::"}}"#
        .to_owned()
}

fn ports(count: usize) -> String {
    table("PORT", count, |n| (format!("Ethernet{}", 4 * n), r#""lanes":"1,2,3,4","speed":"40000""#.to_owned()))
}

/// Makes a row for each of so many ports, and one with an address behind it.
fn interfaces(count: usize, of_vrf: bool) -> String {
    table("INTERFACE", 2 * count, |n| {
        let (port, vrf) = (4 * (n / 2), n / 2);
        let vrf = if of_vrf { format!(r#""vrf_name":"Vrf{vrf}""#) } else { String::new() };
        if n % 2 == 0 {
            (format!("Ethernet{port}"), vrf)
        } else {
            (format!("Ethernet{port}|{}", subnet(n / 2)), String::new())
        }
    })
}

/// Returns an address of the nth subnet.
fn subnet(n: usize) -> String {
    format!("fd91:{:x}:{:x}::1/64", n >> 16, n & 0xffff)
}

/// Returns the address of a neighbour in the nth subnet.
fn neighbor(n: usize) -> String {
    format!("fd91:{:x}:{:x}::2", n >> 16, n & 0xffff)
}

/// Returns the nth prefix of 64 bits.
fn prefix(n: usize) -> String {
    format!("fd92:{:x}:{:x}::/64", n >> 16, n & 0xffff)
}

const KINDS: [(&str, Files); 22] = [
    ("PORT", |n| config_db(&[ports(n)])),
    ("INTERFACE", |n| config_db(&[ports(n), interfaces(n, false)])),
    ("addresses of one INTERFACE", |n| {
        let row = |n| {
            if n == 0 {
                ("Ethernet0".into(), String::new())
            } else {
                (format!("Ethernet0|{}", subnet(n)), String::new())
            }
        };
        config_db(&[table("INTERFACE", n, row)])
    }),
    ("INTERFACE without PORT", |n| config_db(&[interfaces(n, false)])),
    ("VRF, and an INTERFACE in each", |n| {
        config_db(&[table("VRF", n, |n| (format!("Vrf{n}"), String::new())), ports(n), interfaces(n, true)])
    }),
    ("VRF that only interfaces name", |n| config_db(&[ports(n), interfaces(n, true)])),
    ("LOOPBACK_INTERFACE", |n| {
        config_db(&[
            table("LOOPBACK_INTERFACE", n, |n| (format!("Loopback{n}"), String::new())),
            table("INTERFACE", n, |n| (format!("Loopback{n}|{}", subnet(n)), String::new())),
        ])
    }),
    ("VLAN_MEMBER", |n| {
        let vlans = n / 10;
        config_db(&[
            ports(n),
            table("VLAN", vlans, |n| (format!("Vlan{}", n + 1), String::new())),
            table("VLAN_INTERFACE", vlans, |n| (format!("Vlan{}", n + 1), String::new())),
            table("VLAN_MEMBER", n, |n| {
                (format!("Vlan{}|Ethernet{}", n / 10 + 1, 4 * n), r#""tagging_mode":"untagged""#.to_owned())
            }),
        ])
    }),
    ("NEIGH", |n| {
        let row = |n: usize| {
            let key = format!("Ethernet0|fd90::{:x}:{:x}", n >> 16, n & 0xffff);
            (key, r#""neigh":"02:00:00:00:00:01""#.to_owned())
        };
        config_db(&[one_port(), table("NEIGH", n, row)])
    }),
    ("STATIC_ROUTE", |n| {
        config_db(&[
            ports(n),
            interfaces(n, false),
            table("STATIC_ROUTE", n, |n| (format!("default|{}", prefix(n)), format!(r#""nexthop":"{}""#, neighbor(n)))),
        ])
    }),
    ("STATIC_ROUTE by ifname", |n| {
        config_db(&[
            ports(n),
            interfaces(n, false),
            table("STATIC_ROUTE", n, |n| (prefix(n), format!(r#""ifname":"Ethernet{}""#, 4 * n))),
        ])
    }),
    ("next hops of one STATIC_ROUTE", |n| {
        let hops = items(n, |n| format!(",fd90::{:x}:{:x}", n >> 16, n & 0xffff));
        config_db(&[one_port(), format!(r#""STATIC_ROUTE": {{"fd92::/16": {{"nexthop": "fd90::2{hops}"}}}}"#)])
    }),
    ("SRV6_MY_LOCATORS", |n| {
        config_db(&[table("SRV6_MY_LOCATORS", n, |n| (format!("L{n}"), format!(r#""prefix":"{}""#, &neighbor(n))))])
    }),
    ("SRV6_MY_SIDS", |n| {
        let locators = table("SRV6_MY_LOCATORS", n, |n| {
            (format!("L{n}"), format!(r#""prefix":"fd91:{:x}::","block_len":"16""#, n & 0xffff))
        });
        let sids = table("SRV6_MY_SIDS", n, |n| {
            (format!("L{n}|fd91:{:x}:7::/48", n & 0xffff), r#""action":"uDT46""#.to_owned())
        });
        config_db(&[locators, sids])
    }),
    ("ip route", |n| frr(items(n, |n| format!("ipv6 route {} fd90::2\n", prefix(n))))),
    ("routes that follow routes", |n| {
        frr(items(n, |n| format!("ipv6 route {} fd92:{:x}:{:x}::2\n", prefix(n), (n / 2) >> 16, (n / 2) & 0xffff)))
    }),
    ("next hops of one route", |n| {
        frr(items(n, |n| format!("ipv6 route fd92::/16 fd90::{:x}:{:x}\n", n >> 16, n & 0xffff)))
    }),
    ("routes of VRFs", |n| {
        frr(items(n, |n| format!("vrf Vrf{n}\n ipv6 route {} fd90::2 nexthop-vrf default\n", prefix(n))))
    }),
    ("routes with segments", |n| {
        let routes = items(n, |n| format!("ipv6 route fd93:{:x}::/32 fd90::2\n", n & 0xffff));
        let locators = items(n, |n| format!("locator L{n}\nprefix fd93:{:x}:1::/48\n", n & 0xffff));
        let steers = items(n, |n| format!("ipv6 route {} Ethernet0 segments fd93:{:x}:2::\n", prefix(n), n & 0xffff));
        frr(format!("{routes}segment-routing\nsrv6\nlocators\n{locators}{steers}"))
    }),
    ("routes that are taken back", |n| {
        let routes = items(n, |n| format!("ipv6 route fd92::/16 fd90::{:x}:{:x}\n", n >> 16, n & 0xffff));
        frr(format!("{routes}{}", routes.replace("ipv6", "no ipv6")))
    }),
    ("locator", |n| {
        let line = |n: usize| format!("locator L{n}\nprefix fd93:{:x}:{:x}::/48\n", n >> 16, n & 0xffff);
        frr(format!("segment-routing\nsrv6\nlocators\n{}", items(n, line)))
    }),
    ("sid", |n| {
        let line = |n: usize| format!("sid fd90:9:{n:x}::/48 locator MAIN behavior uDT46 vrf default\n");
        let names = items(n, |n| format!("sid fd90:9:1:{n:x}::/64 locator MAIN behavior uA interface Ethernet0\n"));
        frr(format!("segment-routing\nsrv6\nstatic-sids\n{}{names}", items(n, line)))
    }),
];

fn time((config_db, frr): &(String, String)) -> Duration {
    let start = Instant::now();
    let reading = read(Some(config_db), Some(frr), None, false).unwrap();
    let conversion = reading.switch.to_toml(Usd::default());
    let needed = start.elapsed();
    assert!(!conversion.toml.is_empty());
    needed
}

#[test]
fn every_kind_of_entry_takes_time_in_proportion_to_its_number() {
    for (kind, files) in KINDS {
        let (small, large) = (files(SMALL), files(TIMES * SMALL));
        // A disturbance only makes a run longer. So the longest of the short runs is compared with the shortest of the
        // long ones.
        let short = (0..2).map(|_| time(&small)).max().unwrap();
        let is_in_proportion = |long: Duration| long < short * 2 * u32::try_from(TIMES).unwrap();
        let fastest = (0..3).map(|_| time(&large)).find(|&long| is_in_proportion(long));
        assert!(
            fastest.is_some(),
            "{kind}: {SMALL} entries take {short:?}, {TIMES} times as many more than 8 times that"
        );
    }
}
