//! The far ends of a node's cables, where frames are sent to the node and received from it.
//!
//! ```text
//! outside                             node
//!   raw socket ── p1 ═══════════ p1 ──┐
//!   raw socket ── p2 ═══════════ p2 ──┤ a kernel, or srv6d
//! ```

use std::collections::BTreeMap;

use smoltcp::phy::{Device as _, Medium, RawSocket, RxToken as _, TxToken as _};
use smoltcp::time::Instant as Clock;
use srv6d_pack::{Case, Event, Neighbor, Port};

use crate::tagged::Tagged;
use srv6d_netns::{self as netns, Netns};

/// MTU of the far ends. It exceeds every packet of the pack, because the node itself has to detect packets that are too
/// long.
const OUTSIDE_MTU: u32 = 9600;

/// Makes the ports of a case. Each is a virtual cable between the two namespaces, whose far end sends nothing by
/// itself.
///
/// # Errors
/// If a device could not be made.
pub fn connect(case: &Case, node: &Netns, outside: &Netns) -> Result<(), String> {
    netns::sysctl(outside, &[("ipv6/conf/all/disable_ipv6", "1"), ("ipv6/conf/default/disable_ipv6", "1")])?;
    let devices: Vec<&Port> = devices(case).collect();
    netns::ip_batch(node, &devices.iter().map(|port| cable(port, outside)).collect::<Vec<_>>())?;
    let far = devices.iter().map(|port| format!("link set {} mtu {OUTSIDE_MTU} up", port.name));
    netns::ip_batch(outside, &far.collect::<Vec<_>>())?;
    let mut near = vec!["link set lo up".to_owned()];
    near.extend(case.setup.addresses.iter().map(|address| format!("addr add {address} dev lo")));
    for port in devices {
        near.push(format!("link set {} mtu {} addrgenmode none up", port.name, port.mtu));
        near.extend(port.addresses.iter().map(|address| format!("addr add {address} dev {} nodad", port.name)));
    }
    let is_device = |port: &str| case.setup.port(port).is_some_and(|port| port.vlan.is_none());
    near.extend(case.setup.neighbors.iter().filter(|entry| is_device(&entry.port)).map(neighbor));
    Ok(netns::ip_batch(node, &near)?)
}

/// Makes the far end of a cable take what an XDP program redirects into the near one.
///
/// # Errors
/// If the kernel refuses.
pub fn take_redirected(device: &str) -> Result<(), String> {
    srv6d_xsk::device_features::set_receive_offload(device, true).map_err(|why| why.to_string())
}

/// Returns the ports that are network devices: neither VLANs of other devices nor srv6d's own veth.
pub fn devices(case: &Case) -> impl Iterator<Item = &Port> {
    case.setup.ports.iter().filter(|port| !port.kernel && port.vlan.is_none())
}

/// Formats an Ethernet address, such as `02:00:00:00:01:01`.
pub fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

/// Parses an Ethernet address; the inverse of [`mac`].
///
/// # Errors
/// If the text is not an Ethernet address.
pub fn parse_mac(text: &str) -> Result<[u8; 6], String> {
    let bytes: Option<Vec<u8>> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| format!("{text:?} is not an Ethernet address"))
}

fn cable(port: &Port, outside: &str) -> String {
    let (name, near, far) = (&port.name, mac(port.mac), mac(port.peer));
    format!("link add {name} address {near} type veth peer name {name} netns {outside} address {far}")
}

/// Returns the `ip` arguments for an entry of the neighbour table.
pub fn neighbor(entry: &Neighbor) -> String {
    let Neighbor { port, address, mac: resolved } = entry;
    match resolved {
        Some(resolved) => format!("neigh replace {address} dev {port} lladdr {} nud permanent", mac(*resolved)),
        None => format!("neigh del {address} dev {port}"),
    }
}

/// Returns the `ip` arguments that make an event happen at the node.
pub fn event(event: &Event) -> String {
    match event {
        Event::Neighbor(entry) => neighbor(entry),
        Event::Link { port, up } => format!("link set {port} {}", if *up { "up" } else { "down" }),
    }
}

/// A raw socket on each far end. It belongs to the thread that has entered their namespace.
pub struct Wires {
    sockets: BTreeMap<String, RawSocket>,
    tagged: BTreeMap<String, Tagged>,
}

impl Wires {
    /// Opens a raw socket on each of these devices.
    ///
    /// # Errors
    /// If a device does not exist, or if raw sockets are not allowed.
    pub fn open<'p>(ports: impl Iterator<Item = &'p str>) -> Result<Self, String> {
        let open = |port: &str| {
            let socket =
                RawSocket::new(port, Medium::Ethernet).map_err(|why| format!("raw socket on {port}: {why}"))?;
            Ok((port.to_owned(), socket))
        };
        let mut wires = Self { sockets: ports.map(open).collect::<Result<_, String>>()?, tagged: BTreeMap::new() };
        // A packet socket receives from every device until it is bound to one, so earlier frames are discarded.
        wires.receive();
        Ok(wires)
    }

    /// Also opens sockets that show VLAN tags, on the devices of a case that have VLANs.
    ///
    /// # Errors
    /// If AF_XDP does not work on this machine.
    pub fn with_tags(mut self, case: &Case) -> Result<Self, String> {
        let mut vids = BTreeMap::<&String, Vec<u16>>::new();
        for (device, vid) in case.setup.ports.iter().filter_map(|port| port.vlan.as_ref()) {
            vids.entry(device).or_default().push(*vid);
        }
        for (device, vids) in vids {
            self.tagged.insert(device.clone(), Tagged::open(device, vids)?);
        }
        Ok(self)
    }

    /// Sends a frame towards the node.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn send(&mut self, port: &str, frame: &[u8]) -> Result<(), String> {
        let socket = self.sockets.get_mut(port).ok_or_else(|| format!("no port {port}"))?;
        let token = socket.transmit(Clock::ZERO).ok_or_else(|| format!("{port} does not send"))?;
        token.consume(frame.len(), |buffer| buffer.copy_from_slice(frame));
        Ok(())
    }

    /// Returns the frames that came out of the node, except those that its kernel sends unasked: neighbour discovery,
    /// MLD, ARP.
    pub fn receive(&mut self) -> Vec<(String, Vec<u8>)> {
        let mut frames = self.receive_all();
        frames.retain(|(_, frame)| !is_chatter(frame));
        frames
    }

    /// Returns all frames that came out of the node.
    pub fn receive_all(&mut self) -> Vec<(String, Vec<u8>)> {
        let mut frames = Vec::new();
        for (port, socket) in &mut self.sockets {
            while let Some((token, _)) = socket.receive(Clock::ZERO) {
                frames.push((port.clone(), token.consume(<[u8]>::to_vec)));
            }
        }
        for (port, tagged) in &mut self.tagged {
            frames.extend(tagged.receive().into_iter().map(|frame| (port.clone(), frame)));
        }
        frames
    }
}

/// Returns whether the frame is neighbour discovery or MLD to a link-local group (`ff02::/16`), or ARP.
pub fn is_chatter(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([0x08, 0x06]) => true,
        Some([0x86, 0xdd]) => frame.get(38..40) == Some(&[0xff, 0x02]),
        _ => false,
    }
}
