//! A switch as its two files describe it, defaults filled in, addresses normalised, rows that cannot be left out.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize, Serializer};
use srv6d_srv6::model::Mac;

/// One switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Switch {
    /// `DEVICE_METADATA|localhost`.
    pub device: Device,
    /// `PORT`, in natural order; where the table is missing, one per `ethN` that is present.
    pub ports: Vec<Port>,
    /// `LOOPBACK_INTERFACE`.
    pub loopbacks: Vec<Loopback>,
    /// `VLAN` with its members and its interface.
    pub vlans: Vec<Vlan>,
    /// `VRF`, and those that only `frr.conf` names.
    pub vrfs: Vec<Vrf>,
    /// `SRV6_MY_LOCATORS`, then those of `frr.conf` with other names.
    pub locators: Vec<Locator>,
    /// `SRV6_MY_SIDS` and `static-sids`, each SID once.
    pub sids: Vec<Sid>,
    /// `STATIC_ROUTE` and `ip route`, `ipv6 route`: one per VRF and prefix.
    pub routes: Vec<StaticRoute>,
    /// `NEIGH`.
    pub neighbors: Vec<Neighbor>,
    /// Outer source of encapsulations: `source-address` of frr.conf, `SRV6_MY_SOURCE`, else the IPv6 address of
    /// `Loopback0`.
    pub encapsulation_source: Option<Ipv6Addr>,
    /// `FLEX_COUNTER_TABLE|SRV6`.
    pub sid_counters: SidCounters,
}

/// `DEVICE_METADATA|localhost`: who the switch is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Host name; the last `hostname` of frr.conf where CONFIG_DB has none.
    pub hostname: Option<String>,
    /// Router MAC: that of every port without one of its own.
    #[serde(serialize_with = "optional_mac")]
    pub mac: Option<Mac>,
    /// Hardware SKU, which decides the lane map: `Force10-S6000`.
    pub hwsku: Option<String>,
    /// Platform: `x86_64-kvm_x86_64-r0`.
    pub platform: Option<String>,
    /// `type`: `LeafRouter`, `SpineRouter`, `ToRRouter`, ...
    pub role: Option<String>,
    /// `bgp_asn`.
    pub asn: Option<u32>,
    /// `docker_routing_config_mode`: who owns FRR's files.
    pub routing_mode: RoutingMode,
}

/// `docker_routing_config_mode`. srv6d reads both files in every mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoutingMode {
    /// One generated file per daemon.
    #[default]
    Separated,
    /// One generated file.
    Unified,
    /// The user's files, one per daemon.
    Split,
    /// The user's `frr.conf`.
    SplitUnified,
}

/// A physical port.
#[expect(clippy::struct_excessive_bools, reason = "each stands for a field of its own in CONFIG_DB")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    /// `Ethernet0`.
    pub name: String,
    /// The wire in the namespace: `eth1`. `None`: the lane map of the SKU has no such port.
    pub wire: Option<String>,
    /// The interface exists, under one of its two names. Always true when nothing is known about interfaces.
    pub present: bool,
    /// SerDes lanes.
    pub lanes: Vec<u32>,
    /// Mb/s.
    pub speed: u32,
    /// `fortyGigE0/0`.
    pub alias: Option<String>,
    /// Front panel number.
    pub index: Option<u32>,
    /// Largest layer-3 packet, in bytes.
    pub mtu: u32,
    /// `admin_status`.
    pub admin_up: bool,
    /// Forward error correction, as written.
    pub fec: Option<String>,
    /// Autonegotiation.
    pub autoneg: Option<bool>,
    /// `description`.
    pub description: Option<String>,
    /// `mac_addr` of its `INTERFACE` row.
    #[serde(serialize_with = "optional_mac")]
    pub mac: Option<Mac>,
    /// It has an `INTERFACE` row: layer 3. Otherwise it forwards nothing by itself.
    pub routed: bool,
    /// `ipv6_use_link_local_only`: a link-local address and no other.
    pub link_local_only: bool,
    /// Name of the VRF of what arrives; `None`: default.
    pub vrf: Option<String>,
    /// Addresses with their prefix lengths, not masked.
    pub addresses: Vec<IpNet>,
}

/// A loopback interface: `Loopback0`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loopback {
    /// Name.
    pub name: String,
    /// `admin_status`; up unless written otherwise.
    pub admin_up: bool,
    /// Name of its VRF; `None`: default.
    pub vrf: Option<String>,
    /// Addresses with their prefix lengths.
    pub addresses: Vec<IpNet>,
}

/// A VLAN with the router's interface in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Vlan {
    /// `Vlan1000`.
    pub name: String,
    /// VID, 1 to 4094.
    pub id: u16,
    /// Member ports.
    pub members: Vec<VlanMember>,
    /// Name of the VRF of `VLAN_INTERFACE`; `None`: default.
    pub vrf: Option<String>,
    /// It has a `VLAN_INTERFACE` row.
    pub routed: bool,
    /// Addresses of `VLAN_INTERFACE`.
    pub addresses: Vec<IpNet>,
}

/// One port in a VLAN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VlanMember {
    /// Name of the port.
    pub port: String,
    /// Frames carry an 802.1Q tag.
    pub tagged: bool,
}

/// A VRF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Vrf {
    /// `Vrf-green`.
    pub name: String,
    /// Kernel table: 1001 for the first VRF of the file, then 1002 and so on.
    pub table: u32,
    /// `VRF` of CONFIG_DB has a row. False: only frr.conf or an interface names it.
    pub in_config_db: bool,
}

/// Which of the two files says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// `config_db.json`.
    ConfigDb,
    /// `frr.conf`.
    Frr,
    /// The same from both.
    Both,
}

impl Origin {
    /// CONFIG_DB has a row for it: SONiC's own `show` commands list it.
    pub const fn in_config_db(self) -> bool {
        matches!(self, Self::ConfigDb | Self::Both)
    }
}

/// A locator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Locator {
    /// `MAIN`.
    pub name: String,
    /// `prefix` as it is written: `show srv6 locators` prints that.
    pub written: String,
    /// Address / (block + node).
    pub prefix: Ipv6Net,
    /// Bits of the block.
    pub block_len: u8,
    /// Bits of the node.
    pub node_len: u8,
    /// Bits of the function.
    pub func_len: u8,
    /// Bits of the argument.
    pub arg_len: u8,
    /// Where it is written.
    pub origin: Origin,
}

impl Locator {
    /// The block that the locator is taken from.
    pub fn block(&self) -> Ipv6Net {
        Ipv6Net::new(self.prefix.addr(), self.block_len).unwrap_or(self.prefix).trunc()
    }
}

/// What a SID does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// End with NEXT-CSID.
    #[serde(rename = "uN")]
    Un,
    /// End.X with NEXT-CSID.
    #[serde(rename = "uA")]
    Ua,
    /// End.DT4.
    #[serde(rename = "uDT4")]
    Udt4,
    /// End.DT6.
    #[serde(rename = "uDT6")]
    Udt6,
    /// End.DT46.
    #[serde(rename = "uDT46")]
    Udt46,
}

impl Action {
    /// Every action with the word for it, the same in both files.
    pub const WORDS: [(&'static str, Self); 5] =
        [("uN", Self::Un), ("uA", Self::Ua), ("uDT4", Self::Udt4), ("uDT6", Self::Udt6), ("uDT46", Self::Udt46)];

    /// The word for it: `uN`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Un => "uN",
            Self::Ua => "uA",
            Self::Udt4 => "uDT4",
            Self::Udt6 => "uDT6",
            Self::Udt46 => "uDT46",
        }
    }

    /// It decapsulates and looks up in a VRF.
    pub const fn is_decap(self) -> bool {
        matches!(self, Self::Udt4 | Self::Udt6 | Self::Udt46)
    }
}

/// `decap_dscp_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DscpMode {
    /// The inner DSCP stays.
    Pipe,
    /// The outer one replaces it.
    Uniform,
}

impl DscpMode {
    /// The word for it: `pipe`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pipe => "pipe",
            Self::Uniform => "uniform",
        }
    }
}

/// A SID of this switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sid {
    /// Locator and function.
    pub prefix: Ipv6Net,
    /// The prefix as it is written: `show srv6 static-sids` prints that.
    pub written: String,
    /// Name of its locator, whether that exists or not.
    pub locator: String,
    /// Bits of the locator's block; 32 where the locator does not exist. A shift consumes what is behind them.
    pub block_len: u8,
    /// What it does.
    pub action: Action,
    /// `decap_dscp_mode`. On uN, SONiC decapsulates only with it.
    pub decap_dscp_mode: Option<DscpMode>,
    /// `decap_vrf`, `vrf`: as written, `default` included.
    pub vrf: Option<String>,
    /// Port of a uA.
    pub interface: Option<String>,
    /// Neighbour of a uA; `None`: the one on that port.
    pub adjacency: Option<Ipv6Addr>,
    /// Where it is written.
    pub origin: Origin,
}

/// A static route: every next hop of one prefix in one VRF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StaticRoute {
    /// Name of its VRF; `None`: default.
    pub vrf: Option<String>,
    /// Destinations.
    pub prefix: IpNet,
    /// Where packets go.
    pub target: Target,
    /// Administrative distance of those.
    pub distance: u8,
    /// Where it is written.
    pub origin: Origin,
}

/// What a static route does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Drops in silence.
    Blackhole,
    /// Drops with Destination Unreachable (`reject`).
    Reject,
    /// One of these, each flow its own.
    Hops(Vec<RouteHop>),
}

/// One next hop of a static route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RouteHop {
    /// Neighbour; `None`: the destinations themselves are neighbours.
    pub via: Option<IpAddr>,
    /// Port, VLAN or loopback it leaves by; `None`: the one with the neighbour's subnet.
    pub interface: Option<String>,
    /// `nexthop-vrf`.
    pub vrf: Option<String>,
    /// What is put around packets.
    pub encap: Option<Encap>,
}

/// `segments A/B/C encap-behavior ... encap-source ...`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Encap {
    /// In the order they are visited.
    pub segments: Vec<Ipv6Addr>,
    /// `H_Encaps_Red`. FRR's default is `H_Encaps`.
    pub reduced: bool,
    /// `encap-source`.
    pub source: Option<Ipv6Addr>,
}

/// A permanent neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Neighbor {
    /// Port or VLAN it is on.
    pub interface: String,
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address.
    #[serde(serialize_with = "mac")]
    pub mac: Mac,
}

/// `FLEX_COUNTER_TABLE|SRV6`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SidCounters {
    /// There is a row.
    pub written: bool,
    /// `FLEX_COUNTER_STATUS`.
    pub enabled: bool,
    /// `POLL_INTERVAL` in milliseconds; `None`: never set, 10000 holds.
    pub interval: Option<u32>,
}

impl Switch {
    /// The port of that name, which may be that of its wire.
    pub fn port(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| port.name == name || port.wire.as_deref() == Some(name))
    }

    /// The routed VLAN that a port is an untagged member of.
    pub fn untagged_vlan(&self, port: &str) -> Option<&Vlan> {
        let is_member = |vlan: &&Vlan| vlan.members.iter().any(|member| member.port == port && !member.tagged);
        self.vlans.iter().filter(|vlan| vlan.routed).find(is_member)
    }

    /// Table of a VRF: 254 for `None`, `default` and `vrfdefault`; `None` for one that nobody names.
    pub fn table(&self, vrf: Option<&str>) -> Option<u32> {
        match vrf {
            None => Some(MAIN_TABLE),
            Some(name) if is_default_vrf(name) => Some(MAIN_TABLE),
            Some(name) => self.vrfs.iter().find(|vrf| vrf.name == name).map(|vrf| vrf.table),
        }
    }
}

/// The kernel's table `main`.
pub const MAIN_TABLE: u32 = 254;

/// Names of the default VRF. Labs make a device `vrfdefault` for the kernel's sake.
pub fn is_default_vrf(name: &str) -> bool {
    matches!(name, "default" | "vrfdefault")
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn mac<S: Serializer>(mac: &Mac, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(mac)
}

#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn optional_mac<S: Serializer>(written: &Option<Mac>, serializer: S) -> Result<S::Ok, S::Error> {
    match written {
        Some(address) => mac(address, serializer),
        None => serializer.serialize_none(),
    }
}
