//! What the kernel and the network show: the part of a plan that is not written in the configuration.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use srv6d_srv6::carrier::SegmentList;
use srv6d_srv6::model::{Mac, TableId};

/// Devices, addresses, neighbours and routes of the machine (or network namespace). Empty: nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Network devices, those of VLANs and the loopback included.
    pub devices: Vec<Device>,
    /// Resolved entries of the kernel's neighbour tables.
    pub neighbors: Vec<KernelNeighbor>,
    /// srv6d's own veth, once it exists.
    pub host: Option<HostVeth>,
    /// Cores this process may run on; empty: unknown.
    pub cores: Vec<usize>,
    /// Largest outer packet along these segments, where a router on the way has said one.
    pub path_mtus: BTreeMap<SegmentList, u32>,
    /// Routes to somewhere else, of all tables, srv6d's own left out.
    pub routes: Arc<Vec<KernelRoute>>,
    /// Tables of VRF devices, by the kernel index of the device.
    pub vrfs: BTreeMap<u32, TableId>,
    /// Routes that FRR announces over FPM, one for each prefix of a table.
    pub announced: Arc<Vec<KernelRoute>>,
}

/// One route of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRoute {
    /// Table.
    pub table: TableId,
    /// Destinations.
    pub prefix: IpNet,
    /// Among routes of one prefix, the smallest one counts.
    pub metric: u32,
    /// Who made it: `proto` of `ip route`.
    pub protocol: u8,
    /// What it does.
    pub action: KernelAction,
}

/// What a route of the kernel does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelAction {
    /// Sends, plainly or encapsulated, over one of these.
    Via(Vec<KernelHop>),
    /// `encap seg6local`: a SID of this node.
    Sid(KernelSid),
    /// Drops.
    Blackhole,
    /// Drops with Destination Unreachable.
    Unreachable,
    /// Something srv6d does not do.
    Other(String),
}

/// One next hop of a route of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelHop {
    /// Kernel index of the device.
    pub device: u32,
    /// Neighbour; `None`: on-link.
    pub via: Option<IpAddr>,
    /// Share of the flows; 0: its link is down.
    pub weight: u16,
    /// `encap seg6`.
    pub encap: Option<KernelEncap>,
}

/// `encap seg6 mode encap|encap.red`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelEncap {
    /// `encap.red`.
    pub reduced: bool,
    /// In the order they are visited.
    pub segments: Vec<Ipv6Addr>,
    /// `tunsrc` of the route itself.
    pub source: Option<Ipv6Addr>,
}

/// `encap seg6local`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSid {
    /// Behaviour.
    pub action: KernelSidAction,
    /// `nh6`, `nh4`.
    pub via: Option<IpAddr>,
    /// `oif`.
    pub device: Option<u32>,
    /// `next-csid`: block and node function lengths in bits.
    pub csid: Option<(u8, u8)>,
    /// Flavors.
    pub psp: bool,
    /// Flavors.
    pub usp: bool,
    /// Flavors.
    pub usd: bool,
}

/// `action` of `encap seg6local`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelSidAction {
    /// End.
    End,
    /// End.X.
    EndX,
    /// End.DX6.
    EndDx6,
    /// End.DX4.
    EndDx4,
    /// End.DT6.
    EndDt6(TableId),
    /// End.DT4.
    EndDt4(TableId),
    /// End.DT46.
    EndDt46(TableId),
}

/// One network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name.
    pub name: String,
    /// Kernel index.
    pub ifindex: u32,
    /// Ethernet address.
    pub mac: Mac,
    /// Largest layer-3 packet, in bytes.
    pub mtu: u32,
    /// Administratively up, with carrier.
    pub up: bool,
    /// Addresses with their prefix lengths (not masked).
    pub addresses: Vec<IpNet>,
}

/// One resolved neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelNeighbor {
    /// Name of the device.
    pub device: String,
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address.
    pub mac: Mac,
}

/// srv6d's own veth pair: one end belongs to the kernel's stack, frames on the other are srv6d's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostVeth {
    /// Name of the end that srv6d's sockets are bound to.
    pub device: String,
    /// Address of that end.
    pub packet_mac: Mac,
    /// Address of the kernel's end: where local deliveries go.
    pub kernel_mac: Mac,
    /// Largest layer-3 packet, in bytes.
    pub mtu: u32,
    /// Both ends are up.
    pub up: bool,
}

impl Environment {
    /// The device of that name.
    pub fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }
}

/// A link-local address (either family): it means nothing without a port.
pub(super) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}
