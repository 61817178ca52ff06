//! Commands of a SONiC switch (`vtysh`, `config`, `sonic-db-cli`, `sonic-cfggen`), and the files they change.

use srv6d_sonic::Switch;
use srv6d_sonic_cli::config_db::{self, AddressChange, ConfigDb};
use srv6d_sonic_cli::vtysh::{self, Lines, Prompt};
use srv6d_sonic_cli::{app_db, cfggen, commands, routes, tables};

use super::{most_text, parts};

/// Fuzz target: commands of a SONiC switch. Input: `config_db.json`, a zero byte, `frr.conf`, a zero byte, and lines
/// that an operator types. An empty part is replaced by that of a small switch.
///
/// # Panics
/// If an answer is longer than the input can explain.
pub fn sonic_words(data: &[u8]) {
    let said = parts(data, [CONFIG_DB, FRR, LINES]).map(String::from_utf8);
    let [Ok(config_db), Ok(frr), Ok(lines)] = said else { return };
    let switch = srv6d_sonic::read(Some(&config_db), Some(&frr), None, false).map(|reading| reading.switch);
    let switch = switch.unwrap_or_default();
    let most = most_text(data, 64);
    let bounded = |text: &str| assert!(text.len() <= most, "{} bytes of {}", text.len(), data.len());
    shell(&frr, &switch, &lines, &bounded);
    if let Ok(db) = ConfigDb::parse(&config_db) {
        database(db, &switch, &lines, &bounded);
    }
    show(&switch, &lines, &bounded);
    if let Ok(routes) = routes::from_json(&lines) {
        bounded(&routes::sonic_table(&routes));
        bounded(&routes::frr_table(&routes, true, "default"));
        for route in &routes {
            bounded(&routes::entry(route));
        }
        bounded(&routes::to_json(&routes, "default").to_string());
    }
}

/// Runs the lines through `vtysh`: one by one, all at once, and at a prompt.
fn shell(frr: &str, switch: &Switch, lines: &str, bounded: &impl Fn(&str)) {
    let mut prompt = Prompt::default();
    for line in lines.lines() {
        let _ = vtysh::command(line).map_err(|why| bounded(&why.to_string()));
        let _ = commands::resolve(line, &["interface", "interfaces", "ip", "ipv6"])
            .map_err(|why| bounded(&why.to_string()));
        bounded(&prompt.text("leaf"));
        prompt.take(Some(line));
    }
    let read = Lines::read(lines.lines());
    bounded(&vtysh::append(frr, &read.taken));
    bounded(&vtysh::running_config(frr, switch));
}

/// Runs `config`, `sonic-cfggen` and `sonic-db-cli` on the configuration database.
fn database(mut db: ConfigDb, switch: &Switch, lines: &str, bounded: &impl Fn(&str)) {
    let document = db.value();
    for line in lines.lines() {
        let mut two = line.splitn(2, ' ');
        let (first, second) = (two.next().unwrap_or_default(), two.next().unwrap_or_default());
        bounded(&cfggen::value(&document, line));
        config_db::matches(first, second);
        let changes = [
            config_db::set_admin(&mut db, switch, first, true),
            config_db::change_address(&mut db, switch, first, second, AddressChange::Add),
            config_db::change_address(&mut db, switch, first, second, AddressChange::Remove),
            config_db::add_vrf(&mut db, first),
            config_db::bind_vrf(&mut db, switch, first, second),
            config_db::unbind_vrf(&mut db, switch, first),
            config_db::delete_vrf(&mut db, second),
            config_db::set_hostname(&mut db, first),
            config_db::set_srv6_interval(&mut db, first),
        ];
        changes.into_iter().filter_map(Result::err).for_each(|why| bounded(&why.to_string()));
    }
    bounded(&db.to_text());
    let again = ConfigDb::parse(&db.to_text()).expect("it was written just now");
    assert_eq!(again, db, "written and read again");
}

/// Runs the commands that show the switch.
fn show(switch: &Switch, lines: &str, bounded: &impl Fn(&str)) {
    let asked = lines.lines().next();
    bounded(&vtysh::locators(switch));
    bounded(&tables::locators(switch, asked));
    bounded(&tables::static_sids(switch, asked, |_| true));
    bounded(&tables::vrfs(switch, asked));
    for (key, fields) in app_db::rows(switch) {
        bounded(&key);
        for (_, value) in fields {
            bounded(&value);
        }
    }
}

const CONFIG_DB: &str = r#"{"PORT": {"Ethernet0": {"lanes": "25,26,27,28", "mtu": "9100"}, "Ethernet4": {"lanes": "29,30"}},
"INTERFACE": {"Ethernet0": {"vrf_name": "Vrf1"}, "Ethernet4|10.0.0.1/31": {}}, "VRF": {"Vrf1": {}}}"#;
const FRR: &str = "vrf Vrf1\n ip route 10.0.0.0/8 Null0\nexit-vrf\nsegment-routing\n srv6\n  locators\n   locator MAIN\n    \
                   prefix fcbb:0:1004::/48\n";
const LINES: &str = "show version\n";

/// Returns lines that operators and lab scripts type, for the usual switch.
pub fn seeds() -> Vec<Vec<u8>> {
    let lines = [
        "show version\nsh run\nconf t\nend",
        "do do show ipv6 route vrf Vrf1",
        "configure terminal\nip route 10.1.0.0/16 Null0\nvrf Vrf1\nipv6 route 3fff::/32 blackhole\nexit\nexit\nend",
        "no ip route 10.0.0.0/8 Null0\nip route 10.0.0.0/8 Null0",
        "Ethernet0 10.0.0.3/31\nEthernet4 10.0.0.1/31",
        "Ethernet0 Vrf1\nVrf2 Vrf2\nLoopback0 fc00::1/128",
        "*|loc?|*1::/48 SRV6_MY_SIDS|loc1|fcbb:bbbb:1::/48",
        "DEVICE_METADATA['localhost'][\"asn\"]\nPORT.Ethernet0.mtu",
        "segment-routing\nsrv6\nstatic-sids\nsid fcbb:bbbb:1::/48 locator MAIN behavior uN\nend",
        "router bgp 65001\nneighbor x remote-as 1\nroute-map A permit 10\nip prefix-list B",
        r#"{"10.0.0.0/8": [{"prefix": "10.0.0.0/8", "protocol": "bgp", "selected": true, "distance": 20, "metric": 0,
"uptime": "00:00:08", "nexthops": [{"ip": "10.0.0.1", "interfaceName": "Ethernet0", "active": true, "fib": true}]}]}"#,
    ];
    let mut seeds: Vec<Vec<u8>> = lines.iter().map(|lines| [b"\0\0", lines.as_bytes()].concat()).collect();
    for mut files in crate::sonic::seeds().into_iter().take(24) {
        files.extend(b"\0show version\nEthernet0 10.0.0.3/31");
        seeds.push(files);
    }
    seeds
}
