//! Makes the kernel match a switch: ports under their names, addresses, neighbours, routes.
//!
//! ```text
//! eth1 appears ─► renamed Ethernet0 (eth1 stays as a second name) ─► settings, MTU, up ─► addresses ─► routes
//! ```
//!
//! A setting is made once: when the configuration changes, or when a port is a different interface than before. A later
//! change that a user makes by hand (`ip link set eth1 down`, to see a failure) is kept.

mod addresses;
mod links;
mod routes;
mod sysctl;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use rtnetlink::packet_route::link::InfoKind;
use rtnetlink::{Handle, LinkUnspec};
use srv6d_addresses::{Mac, TableId};
use srv6d_xsk::device_features;

use super::wanted::{MANAGEMENT, Wanted, WantedAction, WantedLoopback, WantedPort, WantedSid};
use links::Link;
use srv6d_daemon::Synced;
use srv6d_daemon::kernel::KernelError;

/// The interface of the kernel's SIDs. Labs and FRR expect this name.
const SID_DEVICE: &str = "sr0";

/// An interface keeps its first name this long. Its creator, for example containerlab, goes on to set it up by that
/// name, and during the renaming there is a moment in which neither name works.
const SETTLED: Duration = Duration::from_millis(200);

/// The changes that have been made to the kernel for a switch so far.
#[derive(Debug, Default)]
pub struct SwitchKernel {
    /// Whether the things that an earlier process left behind have been read.
    adopted: bool,
    ports: BTreeMap<u32, WantedPort>,
    loopbacks: BTreeMap<u32, bool>,
    addresses: BTreeSet<(u32, IpNet)>,
    neighbors: BTreeMap<(u32, IpAddr), Option<Mac>>,
    routes: BTreeMap<(TableId, IpNet), Option<routes::Message>>,
    /// VRF devices that srv6d has made, with their indexes.
    vrfs: BTreeMap<String, u32>,
    /// Kinds of interfaces that this kernel does not support.
    missing: BTreeSet<&'static str>,
}

/// One pass over all parts of the kernel's state.
struct Pass<'a> {
    handle: &'a Handle,
    wanted: &'a Wanted,
    links: Vec<Link>,
    renamed: Vec<(u32, String)>,
    trouble: Vec<String>,
}

impl Pass<'_> {
    fn note<T>(&mut self, result: Result<T, KernelError>) -> Option<T> {
        result.map_err(|why| self.trouble.push(why.to_string())).ok()
    }

    fn named(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// Iterates over wires that do not have the name of their port yet, with that name.
    fn unnamed(&self) -> impl Iterator<Item = (&Link, &str)> {
        let ports = self.wanted.ports.iter().filter(|port| self.named(&port.name).is_none());
        ports.filter_map(|port| {
            let wire = port.wire.as_deref().filter(|wire| *wire != MANAGEMENT)?;
            Some((self.named(wire)?, port.name.as_str()))
        })
    }

    fn index(&self, name: &str) -> Option<u32> {
        self.named(name).map(|link| link.index)
    }

    async fn look_again(&mut self) -> Result<(), KernelError> {
        self.links = links::all(self.handle).await?;
        Ok(())
    }
}

impl SwitchKernel {
    /// Makes the kernel match as far as possible, and returns what could not be done. It is cheap if nothing has to be
    /// done.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub async fn sync(&mut self, handle: &Handle, wanted: &Wanted) -> Result<Synced, KernelError> {
        let links = links::all(handle).await?;
        let mut pass = Pass { handle, wanted, links, renamed: Vec::new(), trouble: Vec::new() };
        self.adopt(&mut pass).await;
        self.name_ports(&mut pass).await?;
        self.vrfs(&mut pass).await?;
        self.ports(&mut pass).await?;
        let loopbacks = self.loopbacks(&mut pass).await?;
        self.addresses(&mut pass, &loopbacks).await;
        self.neighbors(&mut pass).await;
        self.routes(&mut pass).await?;
        Ok(Synced { renamed: pass.renamed, trouble: pass.trouble })
    }

    /// Takes over the things that an earlier srv6d added, so that this process keeps or removes them.
    async fn adopt(&mut self, pass: &mut Pass<'_>) {
        if std::mem::replace(&mut self.adopted, true) {
            return;
        }
        let addresses = addresses::own(pass.handle).await;
        self.addresses.extend(pass.note(addresses).unwrap_or_default());
        let neighbors = addresses::own_neighbors(pass.handle).await;
        self.neighbors.extend(pass.note(neighbors).unwrap_or_default().into_iter().map(|place| (place, None)));
        let routes = routes::own(pass.handle).await;
        self.routes.extend(pass.note(routes).unwrap_or_default().into_iter().map(|place| (place, None)));
    }

    /// Gives the existing wires the names of their ports.
    async fn name_ports(&mut self, pass: &mut Pass<'_>) -> Result<(), KernelError> {
        let waiting: Vec<u32> = pass.unnamed().map(|(link, _)| link.index).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(SETTLED).await;
        pass.look_again().await?;
        let settled = pass.unnamed().filter(|(link, _)| waiting.contains(&link.index));
        let settled: Vec<(Link, String)> = settled.map(|(link, name)| (link.clone(), name.to_owned())).collect();
        for (link, name) in settled {
            let result = links::rename(pass.handle, &link, &name).await;
            if pass.note(result).is_some() {
                pass.renamed.push((link.index, name));
            }
        }
        pass.look_again().await
    }

    async fn vrfs(&mut self, pass: &mut Pass<'_>) -> Result<(), KernelError> {
        let mut created = false;
        for (name, table) in &pass.wanted.vrfs {
            if pass.named(name).is_some() || self.missing.contains("vrf") {
                continue;
            }
            let result = links::create_vrf(pass.handle, name, *table).await;
            match pass.note(result) {
                Some(true) => created = true,
                Some(false) => drop(self.missing.insert("vrf")),
                None => {}
            }
        }
        if created {
            pass.look_again().await?;
        }
        let wanted = |name: &str| pass.wanted.vrfs.iter().any(|(vrf, _)| vrf == name);
        let gone: Vec<String> = self.vrfs.keys().filter(|name| !wanted(name)).cloned().collect();
        for name in gone {
            if let Some(index) = self.vrfs.remove(&name) {
                // It is no problem if somebody has deleted it already.
                let _ = pass.handle.link().del(index).execute().await;
            }
        }
        let devices = pass.wanted.vrfs.iter().filter_map(|(name, _)| Some((name.clone(), pass.index(name)?)));
        if created {
            self.vrfs.extend(devices.collect::<Vec<_>>());
        }
        if self.missing.contains("vrf") {
            let only = |(name, table): &(String, TableId)| {
                format!("{name}: this kernel has no VRF devices: only srv6d's own table {} knows it", table.0)
            };
            pass.trouble.extend(pass.wanted.vrfs.iter().map(only).collect::<Vec<_>>());
        }
        Ok(())
    }

    /// Makes the settings, the MTU and the state of every port that is new or whose desired state has changed.
    async fn ports(&mut self, pass: &mut Pass<'_>) -> Result<(), KernelError> {
        let live: BTreeSet<u32> = pass.links.iter().map(|link| link.index).collect();
        self.ports.retain(|index, _| live.contains(index));
        self.addresses.retain(|(index, _)| live.contains(index));
        self.neighbors.retain(|(index, _), _| live.contains(index));
        let mut changed = false;
        for port in &pass.wanted.ports {
            let Some(link) = pass.named(&port.name).cloned() else { continue };
            // Addresses are tracked separately.
            let settings = WantedPort { addresses: Vec::new(), ..port.clone() };
            if self.ports.get(&link.index) == Some(&settings) {
                continue;
            }
            if self.ports.is_empty() {
                let others = pass.named(MANAGEMENT).map(|link| link.name.clone());
                pass.trouble.extend(sysctl::forward_ipv6(others.as_slice()));
            }
            set_up(pass, &link, port).await;
            self.ports.insert(link.index, settings);
            changed = true;
        }
        if changed { pass.look_again().await } else { Ok(()) }
    }

    /// Finds the interface that stands for each loopback: the one of its name, otherwise a new dummy of that name,
    /// otherwise `lo`.
    async fn loopbacks<'a>(&mut self, pass: &mut Pass<'a>) -> Result<Vec<(u32, &'a WantedLoopback)>, KernelError> {
        let mut found = Vec::new();
        for loopback in &pass.wanted.loopbacks {
            if pass.named(&loopback.name).is_none() && self.create_dummy(pass, &loopback.name).await {
                pass.look_again().await?;
            }
            let Some(link) = pass.named(&loopback.name).or_else(|| pass.named("lo")).cloned() else { continue };
            found.push((link.index, loopback));
            // `lo` stays up: the node's own traffic uses it.
            let up = loopback.up || link.name == "lo";
            if self.loopbacks.insert(link.index, up) != Some(up) {
                pass.trouble.extend(sysctl::of_port(&link.name));
                let change = LinkUnspec::new_with_index(link.index);
                let change = if up { change.up() } else { change.down() };
                let result = links::set(pass.handle, change, &format!("set {} up or down", link.name)).await;
                pass.note(result);
            }
        }
        Ok(found)
    }

    async fn create_dummy(&mut self, pass: &mut Pass<'_>, name: &str) -> bool {
        if self.missing.contains("dummy") {
            return false;
        }
        let result = links::create_dummy(pass.handle, name).await;
        let created = pass.note(result);
        if created == Some(false) {
            self.missing.insert("dummy");
        }
        created == Some(true)
    }

    async fn addresses(&mut self, pass: &mut Pass<'_>, loopbacks: &[(u32, &WantedLoopback)]) {
        let of_loopbacks = loopbacks
            .iter()
            .flat_map(|(index, loopback)| loopback.addresses.iter().map(move |address| (*index, *address)));
        let of_ports = pass.wanted.ports.iter().filter_map(|port| Some((pass.index(&port.name)?, port)));
        let of_ports = of_ports.flat_map(|(index, port)| port.addresses.iter().map(move |address| (index, *address)));
        let wanted: BTreeSet<(u32, IpNet)> = of_loopbacks.chain(of_ports).collect();
        // Removals come first, because an address may move from one port to another.
        for (index, address) in self.addresses.difference(&wanted).copied().collect::<Vec<_>>() {
            let result = addresses::remove(pass.handle, index, address).await;
            if pass.note(result).is_some() {
                self.addresses.remove(&(index, address));
            }
        }
        for (index, address) in wanted.difference(&self.addresses).copied().collect::<Vec<_>>() {
            let result = addresses::add(pass.handle, index, address).await;
            if pass.note(result).is_some() {
                self.addresses.insert((index, address));
            }
        }
    }

    async fn neighbors(&mut self, pass: &mut Pass<'_>) {
        let wanted: BTreeMap<(u32, IpAddr), Option<Mac>> = (pass.wanted.neighbors.iter())
            .filter_map(|neighbor| Some(((pass.index(&neighbor.port)?, neighbor.address), Some(neighbor.mac))))
            .collect();
        let gone: Vec<(u32, IpAddr)> =
            self.neighbors.keys().filter(|place| !wanted.contains_key(place)).copied().collect();
        for (index, address) in gone {
            let result = addresses::remove_neighbor(pass.handle, index, address).await;
            if pass.note(result).is_some() {
                self.neighbors.remove(&(index, address));
            }
        }
        for (&(index, address), &mac) in &wanted {
            let Some(address_of) = mac.filter(|_| self.neighbors.get(&(index, address)) != Some(&mac)) else {
                continue;
            };
            let result = addresses::add_neighbor(pass.handle, index, address, address_of).await;
            if pass.note(result).is_some() {
                self.neighbors.insert((index, address), mac);
            }
        }
    }

    async fn routes(&mut self, pass: &mut Pass<'_>) -> Result<(), KernelError> {
        let sid_device = self.sid_device(pass).await?;
        let wanted: BTreeMap<(TableId, IpNet), routes::Message> = (pass.wanted.routes.iter())
            .filter_map(|route| {
                let message = routes::message(route, &pass.links, sid_device)?;
                Some(((route.table, route.prefix), message))
            })
            .collect();
        let gone: Vec<(TableId, IpNet)> =
            self.routes.keys().filter(|place| !wanted.contains_key(place)).copied().collect();
        for (table, prefix) in gone {
            let result = routes::remove(pass.handle, table, prefix).await;
            if pass.note(result).is_some() {
                self.routes.remove(&(table, prefix));
            }
        }
        for ((table, prefix), message) in wanted {
            if self.routes.get(&(table, prefix)).is_some_and(|known| known.as_ref() == Some(&message)) {
                continue;
            }
            let result = routes::add(pass.handle, prefix, message.clone()).await;
            if pass.note(result).is_some() {
                self.routes.insert((table, prefix), Some(message));
            }
        }
        Ok(())
    }

    /// Returns the device for SIDs. A SID needs some interface that is up and is not `lo`. The lab's own interface or a
    /// dummy is preferred, because these stay when a port disappears; otherwise the first port is used.
    async fn sid_device(&mut self, pass: &mut Pass<'_>) -> Result<Option<u32>, KernelError> {
        let on_none = |sid: &WantedSid| matches!(sid, WantedSid::End { .. } | WantedSid::EndDt6 { .. });
        let needed = |action: &WantedAction| matches!(action, WantedAction::Sid(sid) if on_none(sid));
        if !pass.wanted.routes.iter().any(|route| needed(&route.action)) {
            return Ok(None);
        }
        if pass.named(SID_DEVICE).is_none() && self.create_dummy(pass, SID_DEVICE).await {
            pass.look_again().await?;
        }
        let ports = pass.wanted.ports.iter().filter_map(|port| pass.named(&port.name));
        Ok(pass.named(SID_DEVICE).into_iter().chain(ports).find(|link| link.up).map(|link| link.index))
    }
}

async fn set_up(pass: &mut Pass<'_>, link: &Link, port: &WantedPort) {
    pass.trouble.extend(sysctl::of_port(&link.name));
    if let Some(wire) = port.wire.as_deref().filter(|wire| !link.is_called(wire)) {
        let result = links::add_altname(pass.handle, link.index, wire).await;
        pass.note(result);
    }
    // Otherwise a veth's peer leaves checksums unfinished, and a reader of an AF_XDP socket cannot see that.
    if link.kind == Some(InfoKind::Veth)
        && let Err(why) = device_features::set_tx_checksum_off(&link.name)
            .and_then(|()| device_features::set_tag_insertion_off(&link.name))
    {
        pass.trouble.push(format!("{}: cannot turn transmit offloads off: {why}", link.name));
    }
    let what = |change: String| format!("set {change} of {}", port.name);
    if let Some(mac) = port.mac.filter(|mac| link.mac != Some(*mac)) {
        let change = LinkUnspec::new_with_index(link.index).address(mac.0.to_vec());
        let result = links::set(pass.handle, change, &what(format!("the MAC address {mac}"))).await;
        pass.note(result);
    }
    if link.mtu != port.mtu {
        let change = LinkUnspec::new_with_index(link.index).mtu(port.mtu);
        let result = links::set(pass.handle, change, &what(format!("the MTU {}", port.mtu))).await;
        pass.note(result);
    }
    let vrf = port.vrf.as_deref().and_then(|vrf| pass.index(vrf));
    if link.controller != vrf && (vrf.is_some() || link.controller.is_some_and(|index| is_vrf(pass, index))) {
        let change = LinkUnspec::new_with_index(link.index).controller(vrf.unwrap_or_default());
        let result = links::set(pass.handle, change, &what("the VRF".to_owned())).await;
        pass.note(result);
    }
    let change = LinkUnspec::new_with_index(link.index);
    let change = if port.up { change.up() } else { change.down() };
    let result = links::set(pass.handle, change, &what("the state".to_owned())).await;
    pass.note(result);
}

fn is_vrf(pass: &Pass<'_>, index: u32) -> bool {
    pass.links.iter().any(|link| link.index == index && link.kind == Some(InfoKind::Vrf))
}
