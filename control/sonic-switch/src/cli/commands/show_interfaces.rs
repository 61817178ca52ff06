//! `show interfaces ...`, `show ip interfaces`, `show ipv6 interfaces`.

use std::net::IpAddr;

use ipnet::IpNet;
use srv6d_sonic::{Loopback, Port, Switch, is_default_vrf};
use srv6d_sonic_cli::tables::{self, Addresses, InterfaceStatus};

use super::node::Node;
use super::portstat::{interface, is_admin_up, is_up, oper_up, portstat};
use super::tree::{choose, nothing_more, wrong};
use srv6d_command::{Failure, output};
use srv6d_daemon as daemon;
use srv6d_plan::Environment;

/// Interfaces that are no ports of the switch and that SONiC lists, too.
const OTHERS: [&str; 2] = ["eth0", "lo"];

/// Carries out `show interfaces counters|description|status`.
pub fn interfaces(node: &Node, arguments: &[String]) -> Result<(), Failure> {
    let path = "show interfaces";
    let (word, rest) = choose(path, arguments, &["counters", "description", "status"])?;
    if word == "counters" {
        return portstat(node, rest);
    }
    nothing_more(path, rest.get(1..).unwrap_or_default())?;
    let switch = node.switch()?;
    let asked = rest.first().map(String::as_str);
    let wanted = |port: &&Port| asked.is_none_or(|names| names.split(',').any(|name| name == port.name));
    let statuses: Vec<InterfaceStatus<'_>> =
        switch.ports.iter().filter(wanted).map(|port| InterfaceStatus { port, oper_up: oper_up(port) }).collect();
    if let Some(asked) = asked.filter(|_| statuses.is_empty()) {
        return Err(wrong(path, &format!("Interface {asked} does not exist")));
    }
    output::print(&match word {
        "status" => tables::port_statuses(&switch, &statuses),
        _ => tables::descriptions(&statuses),
    })
}

/// Carries out `show ip interfaces` and `show ipv6 interfaces`: prints the kernel's addresses.
pub fn addresses(node: &Node, ipv6: bool) -> Result<(), Failure> {
    let switch = node.switch()?;
    let kernel = daemon::environment()?;
    let ports = switch.ports.iter().map(|port| of_port(&kernel, port, ipv6));
    let loopbacks = switch.loopbacks.iter().map(|loopback| of_loopback(loopback, ipv6));
    let others = OTHERS.iter().map(|name| of_other(&kernel, &switch, name, ipv6));
    let mut all: Vec<Addresses> = ports.chain(loopbacks).chain(others).collect();
    all.retain(|interface| !interface.addresses.is_empty());
    output::print(&tables::addresses(&all, ipv6))
}

fn vrf(name: Option<&String>) -> String {
    name.filter(|name| !is_default_vrf(name)).cloned().unwrap_or_default()
}

fn of_family(address: &IpNet, ipv6: bool) -> bool {
    address.addr().is_ipv6() == ipv6
}

/// Formats an address. A link-local address has no meaning without its interface, so that is added.
fn written(address: &IpNet, interface: &str) -> String {
    match address.addr() {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => format!("{v6}%{interface}/{}", address.prefix_len()),
        _ => address.to_string(),
    }
}

/// Returns the kernel's addresses of an interface, global ones first.
fn of_kernel(kernel: &Environment, interface: &str, shown: &str, ipv6: bool) -> Vec<String> {
    let device = kernel.device(interface);
    let mut addresses: Vec<&IpNet> =
        device.iter().flat_map(|device| &device.addresses).filter(|address| of_family(address, ipv6)).collect();
    addresses.sort_by_key(|address| matches!(address.addr(), IpAddr::V6(v6) if v6.is_unicast_link_local()));
    addresses.into_iter().map(|address| written(address, shown)).collect()
}

fn of_port(kernel: &Environment, port: &Port, ipv6: bool) -> Addresses {
    let addresses = interface(port).map(|interface| of_kernel(kernel, interface, &port.name, ipv6));
    Addresses {
        name: port.name.clone(),
        vrf: vrf(port.vrf.as_ref()),
        addresses: addresses.unwrap_or_default(),
        admin_up: port.admin_up,
        oper_up: oper_up(port),
    }
}

/// Returns the addresses of a loopback. They come from the configuration: if the kernel has no dummy interfaces, they
/// are on `lo`.
fn of_loopback(loopback: &Loopback, ipv6: bool) -> Addresses {
    let addresses = loopback.addresses.iter().filter(|address| of_family(address, ipv6));
    Addresses {
        name: loopback.name.clone(),
        vrf: vrf(loopback.vrf.as_ref()),
        addresses: addresses.map(ToString::to_string).collect(),
        admin_up: loopback.admin_up,
        oper_up: loopback.admin_up,
    }
}

fn of_other(kernel: &Environment, switch: &Switch, name: &str, ipv6: bool) -> Addresses {
    let mut addresses = of_kernel(kernel, name, name, ipv6);
    let of_loopbacks: Vec<String> =
        switch.loopbacks.iter().flat_map(|loopback| &loopback.addresses).map(ToString::to_string).collect();
    addresses.retain(|address| !of_loopbacks.contains(address));
    Addresses {
        name: name.to_owned(),
        vrf: String::new(),
        addresses,
        admin_up: is_admin_up(name),
        oper_up: is_up(name),
    }
}
