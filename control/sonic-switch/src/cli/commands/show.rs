//! `show` and `sonic-clear`.

use std::net::IpAddr;

use srv6d_sonic_cli::config_db::indented;
use srv6d_sonic_cli::tables::Neighbor;
use srv6d_sonic_cli::{tables, vtysh as text};

use super::node::Node;
use super::tree::{choose, not_here, nothing_more, wrong};
use super::{frr, portstat, routes, show_interfaces, srv6stat, version};
use srv6d_api::state::Health;
use srv6d_command::{Failure, output};

/// Further commands of SONiC's `show`: their first words, and why there is nothing to show here.
const NOT_HERE: [(&[&str], &str); 11] = [
    (&["lldp"], "no LLDP daemon runs here"),
    (&["queue"], "srv6d has no queues of its own: those of the interface are the kernel's (`tc -s qdisc show`)"),
    (&["priority-group"], "srv6d has no priority groups"),
    (&["buffer_pool"], "srv6d has no buffer pools"),
    (&["pfc"], "srv6d has no priority flow control"),
    (&["vlan"], "srv6d has no VLANs of a bridge"),
    (&["mac"], "srv6d does not bridge: there is no table of MAC addresses"),
    (
        &["processes"],
        "the processes of this node are the kernel's to show (`top`, `ps`); `srv6d show process` shows srv6d",
    ),
    (&["acl"], "srv6d has no ACL tables of SONiC; docs/security.md says what a port may be refused"),
    (&["interfaces", "portchannel"], "srv6d has no PortChannels"),
    (
        &["interfaces", "counters", "rif"],
        "packets are counted by port and by SID: `show interfaces counters`, `show srv6 stats`",
    ),
];

/// Carries out `show ...`.
pub fn show(node: &Node, arguments: &[String]) -> Result<(), Failure> {
    const TOPICS: [&str; 10] =
        ["arp", "interfaces", "ip", "ipv6", "ndp", "platform", "runningconfiguration", "srv6", "version", "vrf"];
    if let Some(refusal) = not_here("show", arguments, &NOT_HERE) {
        return Err(refusal);
    }
    let (word, rest) = choose("show", arguments, &TOPICS)?;
    match word {
        "arp" => neighbors(node, rest, false),
        "ndp" => neighbors(node, rest, true),
        "platform" => {
            let (_, rest) = choose("show platform", rest, &["summary"])?;
            nothing_more("show platform summary", rest)?;
            output::print(&tables::platform(&node.switch()?.device))
        }
        "interfaces" => show_interfaces::interfaces(node, rest),
        "ip" => ip(node, rest, false),
        "ipv6" => ip(node, rest, true),
        "runningconfiguration" => running(node, rest),
        "srv6" => srv6(node, rest),
        "version" => version::version(node, rest),
        _ => {
            nothing_more("show vrf", rest.get(1..).unwrap_or_default())?;
            output::print(&tables::vrfs(&node.switch()?, rest.first().map(String::as_str)))
        }
    }
}

/// Carries out `show arp [ADDRESS]` and `show ndp [ADDRESS]`: prints the neighbours that are resolved, among them those
/// of VLANs, whose ports are called `Ethernet0.100`.
fn neighbors(node: &Node, arguments: &[String], ipv6: bool) -> Result<(), Failure> {
    let path = if ipv6 { "show ndp" } else { "show arp" };
    nothing_more(path, arguments.get(1..).unwrap_or_default())?;
    let asked: Option<IpAddr> = match arguments.first() {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| wrong(path, &format!("{text} is no address")))?),
    };
    let rows = node.neighbors()?.into_iter().filter_map(|row| {
        let address: IpAddr = row.address.parse().ok()?;
        let is_meant = address.is_ipv6() == ipv6 && asked.is_none_or(|asked| asked == address);
        Some(Neighbor { address, mac: row.mac?, port: row.port }).filter(|_| is_meant)
    });
    output::print(&tables::neighbors(rows.collect(), ipv6))
}

/// Carries out `sonic-clear counters|srv6counters`.
pub fn clear(node: &Node, arguments: &[String]) -> Result<(), Failure> {
    let (word, rest) = choose("sonic-clear", arguments, &["counters", "srv6counters"])?;
    nothing_more("sonic-clear", rest)?;
    if word == "counters" { portstat::clear(node) } else { srv6stat::clear(node) }
}

fn ip(node: &Node, arguments: &[String], ipv6: bool) -> Result<(), Failure> {
    let path = if ipv6 { "show ipv6" } else { "show ip" };
    let (word, rest) = choose(path, arguments, &["bgp", "interfaces", "route"])?;
    match word {
        "interfaces" => {
            nothing_more(path, rest)?;
            show_interfaces::addresses(node, ipv6)
        }
        "route" => routes::show(node, ipv6, rest),
        _ => bgp(node, rest, ipv6),
    }
}

/// Carries out `show ip bgp summary`, `show ipv6 bgp summary`, `... neighbors [ADDRESS]`: prints FRR's answer where FRR
/// runs.
fn bgp(node: &Node, arguments: &[String], ipv6: bool) -> Result<(), Failure> {
    let path = if ipv6 { "show ipv6 bgp" } else { "show ip bgp" };
    let (word, rest) = choose(path, arguments, &["neighbors", "summary"])?;
    let Some(vtysh) = frr::vtysh(node) else { return Err(Failure::failed("bgpd is not running")) };
    let family = if ipv6 { "ipv6" } else { "ipv4" };
    let said = frr::ask(&vtysh, &format!("show bgp {family} unicast {word} {}", rest.join(" ")))?;
    output::print(&said)
}

/// Carries out `show runningconfiguration all|bgp|interfaces|ports`.
fn running(node: &Node, arguments: &[String]) -> Result<(), Failure> {
    let path = "show runningconfiguration";
    let (word, rest) = choose(path, arguments, &["all", "bgp", "interfaces", "ports"])?;
    let running = node.running()?;
    nothing_more(path, rest)?;
    let table = |name: &str| running.config_db.table(name).cloned().unwrap_or_default();
    let text = match word {
        "all" => running.config_db.to_text(),
        "bgp" => text::running_config(&running.frr, &running.switch),
        "interfaces" => indented(&table("INTERFACE").into()) + "\n",
        _ => indented(&running.config_db.ports(&running.switch)) + "\n",
    };
    output::print_data(&text)
}

fn srv6(node: &Node, arguments: &[String]) -> Result<(), Failure> {
    let (word, rest) = choose("show srv6", arguments, &["locators", "static-sids", "stats"])?;
    nothing_more(&format!("show srv6 {word}"), rest.get(1..).unwrap_or_default())?;
    let asked = rest.first().map(String::as_str);
    match word {
        "locators" => output::print(&tables::locators(&node.switch()?, asked)),
        "static-sids" => static_sids(node, asked),
        _ => srv6stat::stats(node, asked),
    }
}

/// Prints the static SIDs. A SID counts as offloaded while the dataplane has it and can process packets for it; a uA
/// needs its neighbour for that.
fn static_sids(node: &Node, asked: Option<&str>) -> Result<(), Failure> {
    let switch = node.switch()?;
    let rows = node.sids()?;
    let offloaded = |sid: &srv6d_sonic::Sid| {
        let prefix = sid.prefix.trunc().to_string();
        rows.iter().any(|row| row.sid == prefix && row.state == Health::Up)
    };
    output::print(&tables::static_sids(&switch, asked, offloaded))
}
