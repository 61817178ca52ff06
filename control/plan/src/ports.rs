//! Plans `[[port]]` and `[[neighbor]]`: devices of the environment become logical ports.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use srv6d_srv6::desired::{self, Mac, PortId, Role, TableId};
use srv6d_srv6::prefix_map::PrefixMap;

use super::environment::{Device, Environment, KernelNeighbor, is_link_local};
use super::node::{or, outer_source};
use super::rules::Rules;
use super::{Context, PortDevice, not_unicast};
use srv6d_config::{self as config, Checksum, Config, Findings, PortMode, PortOffload, PortRole, Spanned};

/// Layer-3 MTU of a port whose device does not exist. Nothing leaves through the port, and the number is only shown.
const ABSENT_MTU: u32 = 1500;
/// Name of the loopback device, which no device else can have.
const LOOPBACK: &str = "lo";

/// Every logical port, by number.
pub(super) struct Ports<'a> {
    /// The tables of the configuration.
    pub(super) written: Vec<WrittenPort<'a>>,
    /// The ports as the packet path needs them, in the same order, followed by the veth of srv6d.
    pub(super) desired: Vec<desired::Port>,
    /// The veth of srv6d.
    pub(super) host: Option<PortId>,
    /// Prefixes of the ports' addresses.
    pub(super) connected: Vec<Connected>,
    /// Indices into `connected`, by prefix.
    connected_by_prefix: PrefixMap<Vec<usize>>,
    /// Ports by their names.
    by_name: HashMap<&'a str, PortId>,
    /// The untagged port of each device, or else its first port.
    physical: HashMap<&'a str, PortId>,
}

/// Devices of the environment by their names.
struct Devices<'a>(HashMap<&'a str, &'a Device>);

impl<'a> Devices<'a> {
    fn of(environment: &'a Environment) -> Self {
        let mut by_name = HashMap::with_capacity(environment.devices.len());
        for device in &environment.devices {
            by_name.entry(device.name.as_str()).or_insert(device);
        }
        Self(by_name)
    }

    fn get(&self, name: &str) -> Option<&'a Device> {
        self.0.get(name).copied()
    }
}

/// One `[[port]]` and its state in the kernel.
pub(super) struct WrittenPort<'a> {
    pub(super) name: &'a str,
    device_name: &'a str,
    tagged: bool,
    mode: PortMode,
    /// The device that frames leave through.
    pub(super) device: Option<&'a Device>,
    /// The device that holds the addresses and neighbours of the port. For a tagged port it is the kernel's VLAN
    /// device.
    pub(super) layer3: Option<&'a Device>,
}

/// A prefix that is on-link on a port.
#[derive(Clone, Copy)]
pub(super) struct Connected {
    pub(super) prefix: IpNet,
    pub(super) port: PortId,
    pub(super) table: TableId,
}

impl<'a> Ports<'a> {
    pub(super) fn resolve(
        config: &'a Config,
        environment: &'a Environment,
        rules: &Rules,
        found: &mut Findings,
    ) -> Self {
        check_duplicates(&config.ports, found);
        let devices = Devices::of(environment);
        let written: Vec<WrittenPort<'a>> =
            config.ports.iter().map(|port| written_port(port.get_ref(), &devices)).collect();
        let (mut by_name, mut physical) = (HashMap::new(), HashMap::new());
        let numbered = || written.iter().enumerate().filter_map(|(index, port)| Some((port_id(index)?, port)));
        for (id, port) in numbered() {
            by_name.entry(port.name).or_insert(id);
        }
        for (id, port) in numbered().filter(|(_, port)| !port.tagged).chain(numbered()) {
            physical.entry(port.device_name).or_insert(id);
        }
        let (desired, connected, connected_by_prefix) = (Vec::new(), Vec::new(), PrefixMap::default());
        let mut ports = Self { written, desired, host: None, connected, connected_by_prefix, by_name, physical };
        for (index, port) in config.ports.iter().enumerate() {
            let Some(id) = port_id(index) else {
                found.error(port.span(), "[[port]]", "more than 65535 ports", "use fewer ports");
                break;
            };
            let desired = ports.desired(id, port, (environment, rules), found);
            ports.add_connected(id, desired.table);
            ports.desired.push(desired);
        }
        ports.add_host(environment);
        ports
    }

    fn desired(
        &self,
        id: PortId,
        port: &Spanned<config::Port>,
        (environment, rules): (&Environment, &Rules),
        found: &mut Findings,
    ) -> desired::Port {
        let table = port.get_ref();
        let written = self.written.get(usize::from(id.0));
        if written.is_some_and(|written| written.device_name == LOOPBACK) {
            let what =
                format!("{LOOPBACK} is the loopback device: what this machine sends to itself would be lost there");
            found.error(table.name.span(), "[[port]]", what, "name the device that a link is connected to");
        }
        let device = written.and_then(|written| written.device);
        let layer3 = written.and_then(|written| written.layer3);
        if device.is_none() {
            let name = written.map_or("", |written| written.device_name);
            let what = format!("waits for network device {name}");
            found.pending(table.name.span(), "[[port]] device", what, "");
        }
        let chosen = layer3.and_then(|device| rules.port_tables.get(&device.name)).copied();
        let role = role(table, found);
        let addresses = layer3.map(|device| device.addresses.as_slice()).unwrap_or_default();
        desired::Port {
            name: table.vlan.as_ref().map_or_else(
                || device_name(table).to_owned(),
                |vlan| format!("{}.{}", device_name(table), vlan.get_ref()),
            ),
            device: self.physical(id),
            vlan: table.vlan.as_ref().map(|vlan| *vlan.get_ref()),
            mac: layer3.or(device).map(|device| device.mac).unwrap_or_default(),
            mtu: [device, layer3].into_iter().flatten().map(|device| device.mtu).min().unwrap_or(ABSENT_MTU),
            up: device.is_some_and(|device| device.up) && layer3.is_none_or(|device| device.up),
            table: or(&table.table, chosen.unwrap_or(TableId::MAIN)),
            role,
            source: outer_source(table.source.as_ref(), "[[port]] source", environment, found),
            icmp_source_v6: global_v6(addresses).or_else(|| global_v6(node_addresses(environment))),
            icmp_source_v4: global_v4(addresses).or_else(|| global_v4(node_addresses(environment))),
            allowed_sources: table.allowed_sources.iter().map(|prefix| *prefix.get_ref()).collect(),
            allowed_carriers: table.allowed_carriers.iter().map(|prefix| *prefix.get_ref()).collect(),
            fill_checksum: or(&table.checksum, Checksum::Complete) == Checksum::Fill,
        }
    }

    /// Returns the untagged port of the same device, or else the first port of it.
    fn physical(&self, id: PortId) -> u16 {
        let own = self.written.get(usize::from(id.0));
        own.and_then(|own| self.physical.get(own.device_name)).unwrap_or(&id).0
    }

    fn add_connected(&mut self, port: PortId, table: TableId) {
        let Some(device) = self.written.get(usize::from(port.0)).and_then(|written| written.layer3) else { return };
        let prefixes = device.addresses.iter().filter(|net| !is_link_local(net.addr()));
        for net in prefixes.filter(|net| net.prefix_len() < net.max_prefix_len()) {
            let prefix = net.trunc();
            self.connected_by_prefix.get_or_default(prefix).push(self.connected.len());
            self.connected.push(Connected { prefix, port, table });
        }
    }

    /// Returns the connected subnets with the longest prefix around an address.
    pub(super) fn connected_around(&self, address: IpAddr) -> impl Iterator<Item = &Connected> {
        let longest = self.connected_by_prefix.around(address).next();
        longest.into_iter().flat_map(|(_, places)| places).filter_map(|at| self.connected.get(*at))
    }

    /// Returns the connected subnets with this very prefix.
    pub(super) fn connected_at(&self, prefix: IpNet) -> impl Iterator<Item = &Connected> {
        let places = self.connected_by_prefix.get(prefix).into_iter().flatten();
        places.filter_map(|at| self.connected.get(*at))
    }

    fn add_host(&mut self, environment: &Environment) {
        let Some(veth) = &environment.host else { return };
        let Some(id) = port_id(self.desired.len()) else { return };
        self.host = Some(id);
        self.desired.push(desired::Port {
            up: veth.up,
            role: Role::Kernel,
            icmp_source_v6: global_v6(node_addresses(environment)),
            icmp_source_v4: global_v4(node_addresses(environment)),
            ..desired::Port::fabric(veth.device.as_str(), id.0, veth.packet_mac, veth.mtu)
        });
    }

    /// Returns the port of that name. An unknown name is an error that suggests the nearest one.
    pub(super) fn named(&self, name: &Spanned<String>, entry: &str, found: &mut Findings) -> Option<PortId> {
        let id = self.by_name.get(name.get_ref().as_str()).copied();
        if id.is_none() {
            let names: Vec<&str> = self.written.iter().map(|port| port.name).collect();
            let fix = match config::nearest(name.get_ref(), names.iter().copied()) {
                Some(near) => format!("did you mean {near:?}? ports: {}", names.join(", ")),
                None if names.is_empty() => format!("add [[port]] name = {:?}", name.get_ref()),
                None => format!("use one of {}, or add [[port]] name = {:?}", names.join(", "), name.get_ref()),
            };
            found.error(name.span(), entry, format!("no [[port]] is named {:?}", name.get_ref()), fix);
        }
        id
    }

    /// Returns true if every port exists and is up.
    pub(super) fn all_up(&self) -> bool {
        self.written.iter().all(|port| port.device.is_some_and(|device| device.up))
    }

    /// Returns true if every port exists, is up, and has a global address: then an unresolved entry is a mistake.
    pub(super) fn settled(&self) -> bool {
        self.written.iter().all(|port| {
            port.device.is_some_and(|device| device.up)
                && port.layer3.is_some_and(|device| device.addresses.iter().any(|net| !is_link_local(net.addr())))
        })
    }

    pub(super) fn devices(&self) -> Vec<PortDevice> {
        let mut known = HashSet::new();
        let first = self.written.iter().filter(|port| known.insert(port.device_name));
        let device = |port: &WrittenPort<'_>| {
            let device = port.device_name.to_owned();
            PortDevice { device, mode: port.mode, present: port.device.is_some() }
        };
        first.map(device).collect()
    }

    /// Returns the global addresses of the node: those of a port in its table, all others in main.
    pub(super) fn local_addresses(&self, environment: &Environment, rules: &Rules) -> Vec<(TableId, IpAddr)> {
        let mut addresses: Vec<(TableId, IpAddr)> = Vec::new();
        let mut owners: HashMap<&str, &desired::Port> = HashMap::new();
        for (port, desired) in self.written.iter().zip(&self.desired) {
            if let Some(device) = port.layer3 {
                owners.entry(device.name.as_str()).or_insert(desired);
            }
        }
        for device in &environment.devices {
            let table = owners.get(device.name.as_str()).map_or(TableId::MAIN, |port| port.table);
            let shown = device.addresses.iter().flat_map(|net| [Some(net.addr()), subnet_broadcast(net)]).flatten();
            let global = shown.filter(|&ip| !is_link_local(ip) && !ip.is_loopback());
            // A packet is looked up in the table `local`, which has all addresses, before any rule.
            let tables = || rules.port_tables.values().chain([&table]).copied();
            addresses.extend(global.flat_map(|ip| tables().map(move |table| (table, ip))));
        }
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

/// Returns the IPv4 broadcast address of a subnet (RFC 922), which every station of the subnet accepts. Links of two
/// addresses have none (RFC 3021).
fn subnet_broadcast(net: &IpNet) -> Option<IpAddr> {
    match net {
        IpNet::V4(net) if net.prefix_len() < 31 => Some(IpAddr::V4(net.broadcast())),
        _ => None,
    }
}

/// Reads the rules, for ports whose table is not written.
pub(super) fn rules(config: &Config, environment: &Environment) -> Rules {
    let free = config.ports.iter().map(Spanned::get_ref).filter(|port| port.table.is_none());
    let known = Devices::of(environment);
    let devices = free.filter_map(|port| Some(written_port(port, &known).layer3?.name.as_str()));
    Rules::read(config.kernel.as_ref(), environment, devices)
}

pub(super) fn port_id(index: usize) -> Option<PortId> {
    u16::try_from(index).ok().map(PortId)
}

/// Returns the name of the network device: `device`, or else the name (without the VLAN, for one such as `eth1.100`).
fn device_name(port: &config::Port) -> &str {
    let name = port.name.get_ref();
    match (&port.device, &port.vlan) {
        (Some(device), _) => device.get_ref(),
        (None, Some(vlan)) => name.strip_suffix(&format!(".{}", vlan.get_ref())).unwrap_or(name),
        (None, None) => name,
    }
}

fn written_port<'a>(port: &'a config::Port, devices: &Devices<'a>) -> WrittenPort<'a> {
    let (name, device_name) = (port.name.get_ref().as_str(), device_name(port));
    let device = devices.get(device_name);
    let layer3 = match &port.vlan {
        None => device,
        Some(vlan) => devices
            .get(&format!("{device_name}.{}", vlan.get_ref()))
            .or_else(|| devices.get(name).filter(|_| name != device_name)),
    };
    let mode = or(&port.mode, PortMode::Auto);
    WrittenPort { name, device_name, tagged: port.vlan.is_some(), mode, device, layer3 }
}

/// Checks that no two ports share a name or a VLAN of a device, and that each device has one mode.
fn check_duplicates(ports: &[Spanned<config::Port>], found: &mut Findings) {
    let (mut names, mut places, mut modes) = (HashMap::new(), HashMap::new(), HashMap::new());
    for port in ports {
        let table = port.get_ref();
        let device = device_name(table);
        if let Some(earlier) = first(&mut names, table.name.get_ref(), port) {
            let line = found.line_of(&earlier.span());
            let what = format!("{:?} is already the name of the port in {line}", table.name.get_ref());
            found.error(table.name.span(), "[[port]] name", what, "give every port a name of its own");
        }
        let number = table.vlan.as_ref().map(|vlan| *vlan.get_ref());
        if let Some(earlier) = first(&mut places, (device, number), port) {
            let (line, vlan) = (found.line_of(&earlier.span()), number.map(|vlan| format!(" VLAN {vlan}")));
            let what = format!("{device}{} is already the port in {line}", vlan.unwrap_or_default());
            found.error(port.span(), "[[port]]", what, "remove one of the two, or give one of them its own `vlan`");
        }
        if let Some(earlier) = first(&mut modes, device, port) {
            let (mode, first) = (or(&table.mode, PortMode::Auto), or(&earlier.get_ref().mode, PortMode::Auto));
            if mode != first {
                let line = found.line_of(&earlier.span());
                let span = table.mode.as_ref().map_or_else(|| port.span(), Spanned::span);
                let what = format!(
                    "{:?}, but {line} wants {:?} for the same device {device}",
                    mode.keyword(),
                    first.keyword()
                );
                found.error(span, "[[port]] mode", what, "write the same mode for every port of a device");
            }
        }
    }
}

/// Returns the earlier port with this key. If there is none, records this port.
fn first<'p, K: Hash + Eq>(
    known: &mut HashMap<K, &'p Spanned<config::Port>>,
    key: K,
    port: &'p Spanned<config::Port>,
) -> Option<&'p Spanned<config::Port>> {
    match known.entry(key) {
        Entry::Occupied(earlier) => Some(earlier.get()),
        Entry::Vacant(place) => {
            place.insert(port);
            None
        }
    }
}

/// Returns the role that is written, or else `Edge`.
fn role(port: &config::Port, found: &mut Findings) -> Role {
    let role = or(&port.role, PortRole::Edge);
    if let (PortRole::Fabric, Some(carrier)) = (role, port.allowed_carriers.first()) {
        let what = "a fabric port accepts every carrier: this list has no effect";
        let fix = "write role = \"host\" or \"edge\", or remove the list";
        found.warning(carrier.span(), "[[port]] allowed_carriers", what, fix);
    }
    match role {
        PortRole::Fabric => Role::Fabric,
        PortRole::Edge => Role::Edge,
        PortRole::Host => Role::Host,
    }
}

/// Returns addresses of the whole node: those of the loopback, or else those of another device.
fn node_addresses(environment: &Environment) -> &[IpNet] {
    let global = |device: &&Device| device.addresses.iter().any(|net| speaks_for_node(net.addr()));
    let loopback = environment.device("lo").filter(global);
    loopback.or_else(|| environment.devices.iter().find(global)).map_or(&[], |device| device.addresses.as_slice())
}

fn speaks_for_node(address: IpAddr) -> bool {
    !is_link_local(address) && !address.is_loopback()
}

fn global_v6(addresses: &[IpNet]) -> Option<Ipv6Addr> {
    addresses.iter().map(IpNet::addr).filter(|&ip| speaks_for_node(ip)).find_map(|address| match address {
        IpAddr::V6(v6) => Some(v6),
        IpAddr::V4(_) => None,
    })
}

fn global_v4(addresses: &[IpNet]) -> Option<Ipv4Addr> {
    addresses.iter().map(IpNet::addr).filter(|&ip| speaks_for_node(ip)).find_map(|address| match address {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(_) => None,
    })
}

/// Returns the ports whose XDP program may forward by itself.
pub(super) fn offload(config: &Config) -> BTreeSet<PortId> {
    with_offload(config, |offload| offload != PortOffload::Off)
}

/// Returns the ports with offload that leave the choice to srv6d (`auto`).
pub(super) fn auto_offload(config: &Config) -> BTreeSet<PortId> {
    with_offload(config, |offload| offload == PortOffload::Auto)
}

fn with_offload(config: &Config, is_wanted: impl Fn(PortOffload) -> bool) -> BTreeSet<PortId> {
    let ports = config.ports.iter().enumerate();
    let wanted = ports.filter(|(_, port)| is_wanted(or(&port.get_ref().offload, PortOffload::Auto)));
    wanted.filter_map(|(index, _)| port_id(index)).collect()
}

/// Returns the neighbours that the kernel has resolved, and the static entries, which take precedence.
pub(super) fn neighbors(context: &Context<'_>, found: &mut Findings) -> BTreeMap<(PortId, IpAddr), Mac> {
    let mut neighbors = BTreeMap::new();
    let mut resolved: HashMap<&str, Vec<&KernelNeighbor>> = HashMap::new();
    for neighbor in &context.environment.neighbors {
        resolved.entry(neighbor.device.as_str()).or_default().push(neighbor);
    }
    for (index, port) in context.ports.written.iter().enumerate() {
        let (Some(id), Some(device)) = (port_id(index), port.layer3) else { continue };
        let of_device = resolved.get(device.name.as_str()).into_iter().flatten();
        neighbors.extend(of_device.map(|neighbor| ((id, neighbor.address), neighbor.mac)));
    }
    let mut first = BTreeMap::new();
    for neighbor in &context.config.neighbors {
        let table = neighbor.get_ref();
        let address = *table.address.get_ref();
        if let Some(kind) = not_unicast(address) {
            let what = format!("{address} is {kind}, and cannot be a neighbour");
            found.error(table.address.span(), "[[neighbor]] address", what, "write the address of one neighbour");
        }
        let Some(port) = context.ports.named(&table.port, "[[neighbor]] port", found) else { continue };
        if let Some(earlier) = first.insert((port, address), neighbor.span()) {
            let what = format!("{address} on {} is already in {}", table.port.get_ref(), found.line_of(&earlier));
            found.error(neighbor.span(), "[[neighbor]]", what, "keep one of the two");
        }
        neighbors.insert((port, address), *table.mac.get_ref());
    }
    neighbors
}
