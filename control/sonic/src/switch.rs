//! A switch as its two files describe it: defaults are filled in, addresses are normalised, and invalid rows are left
//! out.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize, Serializer};
use srv6d_addresses::Mac;

/// A switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Switch {
    /// Device data, from `DEVICE_METADATA|localhost`.
    pub device: Device,
    /// Ports, from `PORT`, in natural order. If the table is missing, there is one for each `ethN` that is present.
    pub ports: Vec<Port>,
    /// Loopback interfaces, from `LOOPBACK_INTERFACE`.
    pub loopbacks: Vec<Loopback>,
    /// VLANs, from `VLAN`, with their members and their interfaces.
    pub vlans: Vec<Vlan>,
    /// VRFs, from `VRF`, and those that only `frr.conf` names.
    pub vrfs: Vec<Vrf>,
    /// Locators, from `SRV6_MY_LOCATORS`, then those of `frr.conf` with other names.
    pub locators: Vec<Locator>,
    /// SIDs, from `SRV6_MY_SIDS` and `static-sids`, each SID once.
    pub sids: Vec<Sid>,
    /// Static routes, from `STATIC_ROUTE` and `ip route`, `ipv6 route`: one per VRF and prefix.
    pub routes: Vec<StaticRoute>,
    /// Permanent neighbours, from `NEIGH`.
    pub neighbors: Vec<Neighbor>,
    /// Outer source of encapsulations: `source-address` of frr.conf, otherwise `SRV6_MY_SOURCE`, otherwise the IPv6
    /// address of `Loopback0`.
    pub encapsulation_source: Option<Ipv6Addr>,
    /// Settings of the SID counters, from `FLEX_COUNTER_TABLE|SRV6`.
    pub sid_counters: SidCounters,
}

/// Identity of the switch, from `DEVICE_METADATA|localhost`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Host name; if CONFIG_DB has none, that of the last `hostname` line of frr.conf.
    pub hostname: Option<String>,
    /// Router MAC: the address of every port without one of its own.
    #[serde(serialize_with = "optional_mac")]
    pub mac: Option<Mac>,
    /// Hardware SKU, which decides the lane map, for example `Force10-S6000`.
    pub hwsku: Option<String>,
    /// Platform, for example `x86_64-kvm_x86_64-r0`.
    pub platform: Option<String>,
    /// Role of the switch, from `type`: `LeafRouter`, `SpineRouter`, `ToRRouter`, ...
    pub role: Option<String>,
    /// AS number, from `bgp_asn`.
    pub asn: Option<u32>,
    /// Who owns FRR's files, from `docker_routing_config_mode`.
    pub routing_mode: RoutingMode,
}

/// Values of `docker_routing_config_mode`. srv6d reads both files in every mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoutingMode {
    /// SONiC generates one file per daemon.
    #[default]
    Separated,
    /// SONiC generates one file.
    Unified,
    /// The user writes one file per daemon.
    Split,
    /// The user writes `frr.conf`.
    SplitUnified,
}

/// A physical port.
#[expect(clippy::struct_excessive_bools, reason = "each stands for a field of its own in CONFIG_DB")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    /// Name, for example `Ethernet0`.
    pub name: String,
    /// Name of the wire in the namespace, for example `eth1`. `None`: the lane map of the SKU has no such port.
    pub wire: Option<String>,
    /// Whether the interface exists, under one of its two names. Always true if the existing interfaces are unknown.
    pub present: bool,
    /// Numbers of the SerDes lanes.
    pub lanes: Vec<u32>,
    /// Speed in Mb/s.
    pub speed: u32,
    /// Alias, for example `fortyGigE0/0`.
    pub alias: Option<String>,
    /// Number on the front panel.
    pub index: Option<u32>,
    /// Largest layer-3 packet, in bytes.
    pub mtu: u32,
    /// Whether it is administratively up, from `admin_status`.
    pub admin_up: bool,
    /// Forward error correction, as written.
    pub fec: Option<String>,
    /// Whether autonegotiation is on.
    pub autoneg: Option<bool>,
    /// Description, as written.
    pub description: Option<String>,
    /// Ethernet address, from `mac_addr` of its `INTERFACE` row.
    #[serde(serialize_with = "optional_mac")]
    pub mac: Option<Mac>,
    /// Whether it has an `INTERFACE` row, which makes it a layer-3 port. Otherwise it forwards nothing by itself.
    pub routed: bool,
    /// Whether it has a link-local address only, from `ipv6_use_link_local_only`.
    pub link_local_only: bool,
    /// Name of the VRF of packets that arrive. `None`: the default one.
    pub vrf: Option<String>,
    /// Addresses with their prefix lengths, not masked.
    pub addresses: Vec<IpNet>,
}

/// A loopback interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loopback {
    /// Name, for example `Loopback0`.
    pub name: String,
    /// Whether it is administratively up, from `admin_status`. The default is up.
    pub admin_up: bool,
    /// Name of its VRF. `None`: the default one.
    pub vrf: Option<String>,
    /// Addresses with their prefix lengths.
    pub addresses: Vec<IpNet>,
}

/// A VLAN, with the router's interface in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Vlan {
    /// Name, for example `Vlan1000`.
    pub name: String,
    /// VLAN ID, 1 to 4094.
    pub id: u16,
    /// Member ports.
    pub members: Vec<VlanMember>,
    /// Name of the VRF of `VLAN_INTERFACE`. `None`: the default one.
    pub vrf: Option<String>,
    /// Whether it has a `VLAN_INTERFACE` row.
    pub routed: bool,
    /// Addresses of `VLAN_INTERFACE`.
    pub addresses: Vec<IpNet>,
}

/// One port in a VLAN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VlanMember {
    /// Name of the port.
    pub port: String,
    /// Whether its frames carry an 802.1Q tag.
    pub tagged: bool,
}

/// A VRF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Vrf {
    /// Name, for example `Vrf-green`.
    pub name: String,
    /// Kernel table: 1001 for the first VRF of the file, then 1002 and so on.
    pub table: u32,
    /// Whether `VRF` of CONFIG_DB has a row for it. If not, only frr.conf or an interface names it.
    pub in_config_db: bool,
}

/// The file that an entry comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// `config_db.json`.
    ConfigDb,
    /// `frr.conf`.
    Frr,
    /// The entry is in both files.
    Both,
}

impl Origin {
    /// Whether CONFIG_DB has a row for the entry, so that SONiC's own `show` commands list it.
    pub const fn in_config_db(self) -> bool {
        matches!(self, Self::ConfigDb | Self::Both)
    }
}

/// A locator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Locator {
    /// Name, for example `MAIN`.
    pub name: String,
    /// Text of `prefix` as it is written; `show srv6 locators` prints this text.
    pub written: String,
    /// Prefix; its length is that of block and node together.
    pub prefix: Ipv6Net,
    /// Length of the block in bits.
    pub block_len: u8,
    /// Length of the node in bits.
    pub node_len: u8,
    /// Length of the function in bits.
    pub func_len: u8,
    /// Length of the argument in bits.
    pub arg_len: u8,
    /// The file in which it is written.
    pub origin: Origin,
}

impl Locator {
    /// Returns the block that the locator is taken from.
    pub fn block(&self) -> Ipv6Net {
        Ipv6Net::new(self.prefix.addr(), self.block_len).unwrap_or(self.prefix).trunc()
    }
}

/// The behaviour of a SID.
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
    /// All actions with their keywords, which are the same in both files.
    pub const KEYWORDS: [(&'static str, Self); 5] =
        [("uN", Self::Un), ("uA", Self::Ua), ("uDT4", Self::Udt4), ("uDT6", Self::Udt6), ("uDT46", Self::Udt46)];

    /// Returns the action's keyword, for example `uN`.
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Un => "uN",
            Self::Ua => "uA",
            Self::Udt4 => "uDT4",
            Self::Udt6 => "uDT6",
            Self::Udt46 => "uDT46",
        }
    }

    /// Whether the action decapsulates and looks up in a VRF.
    pub const fn is_decap(self) -> bool {
        matches!(self, Self::Udt4 | Self::Udt6 | Self::Udt46)
    }
}

/// Handling of the DSCP at decapsulation, from `decap_dscp_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DscpMode {
    /// The inner DSCP is kept.
    Pipe,
    /// The outer DSCP replaces the inner one.
    Uniform,
}

impl DscpMode {
    /// Returns the mode's keyword, for example `pipe`.
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Pipe => "pipe",
            Self::Uniform => "uniform",
        }
    }
}

/// A SID of this switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sid {
    /// Prefix of the SID: locator and function.
    pub prefix: Ipv6Net,
    /// The prefix as it is written; `show srv6 static-sids` prints this text.
    pub written: String,
    /// Name of its locator, whether or not that exists.
    pub locator: String,
    /// Length of the locator's block in bits; 32 if the locator does not exist. A shift consumes bits behind the block.
    pub block_len: u8,
    /// Behaviour of the SID.
    pub action: Action,
    /// Value of `decap_dscp_mode`. A uN of SONiC decapsulates only if it is set.
    pub decap_dscp_mode: Option<DscpMode>,
    /// Name of the VRF from `decap_vrf` or `vrf`, as written; it may be `default`.
    pub vrf: Option<String>,
    /// Port of a uA.
    pub interface: Option<String>,
    /// Neighbour of a uA. `None`: the one that is found on the port.
    pub adjacency: Option<Ipv6Addr>,
    /// The file in which it is written.
    pub origin: Origin,
}

/// A static route: all next hops of one prefix in one VRF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StaticRoute {
    /// Name of its VRF. `None`: the default one.
    pub vrf: Option<String>,
    /// Destination prefix.
    pub prefix: IpNet,
    /// Target of the packets.
    pub target: Target,
    /// Administrative distance of the next hops.
    pub distance: u8,
    /// The file in which it is written.
    pub origin: Origin,
}

/// The target of a static route.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Packets are dropped silently.
    Blackhole,
    /// Packets are dropped and answered with Destination Unreachable (`reject`).
    Reject,
    /// Packets go to one of these next hops. Each flow keeps to one of them.
    Hops(Vec<RouteHop>),
}

/// One next hop of a static route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct RouteHop {
    /// Address of the neighbour. `None`: the destinations themselves are neighbours.
    pub via: Option<IpAddr>,
    /// Port, VLAN or loopback by which packets leave. `None`: the one with the neighbour's subnet.
    pub interface: Option<String>,
    /// VRF of the next hop, from `nexthop-vrf`.
    pub vrf: Option<String>,
    /// Encapsulation of the packets.
    pub encap: Option<Encap>,
}

/// An encapsulation: `segments A/B/C encap-behavior ... encap-source ...`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Encap {
    /// Segments in the order in which they are visited.
    pub segments: Vec<Ipv6Addr>,
    /// Whether the behaviour is `H_Encaps_Red`. FRR's default is `H_Encaps`.
    pub reduced: bool,
    /// Outer source, from `encap-source`.
    pub source: Option<Ipv6Addr>,
}

/// A permanent neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Neighbor {
    /// Port or VLAN of the neighbour.
    pub interface: String,
    /// The neighbour's address.
    pub address: IpAddr,
    /// The neighbour's Ethernet address.
    #[serde(serialize_with = "mac")]
    pub mac: Mac,
}

/// Settings of the SID counters, from `FLEX_COUNTER_TABLE|SRV6`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SidCounters {
    /// Whether there is such a row.
    pub written: bool,
    /// Whether the counters are enabled, from `FLEX_COUNTER_STATUS`.
    pub enabled: bool,
    /// Interval from `POLL_INTERVAL`, in milliseconds. `None`: it was never set, and 10000 applies.
    pub interval: Option<u32>,
}

impl Switch {
    /// Returns the port with this name, or the port whose wire has it.
    pub fn port(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| port.name == name || port.wire.as_deref() == Some(name))
    }

    /// Returns the routed VLAN of which a port is an untagged member.
    pub fn untagged_vlan(&self, port: &str) -> Option<&Vlan> {
        let is_member = |vlan: &&Vlan| vlan.members.iter().any(|member| member.port == port && !member.tagged);
        self.vlans.iter().filter(|vlan| vlan.routed).find(is_member)
    }

    /// Returns the table of a VRF: 254 for `None`, `default` and `vrfdefault`. Returns `None` for an unknown VRF. Many
    /// VRFs are looked up in [`Switch::tables`].
    pub fn table(&self, vrf: Option<&str>) -> Option<u32> {
        self.tables().of(vrf)
    }

    /// Returns the tables of all VRFs.
    pub fn tables(&self) -> Tables<'_> {
        Tables(self.vrfs.iter().map(|vrf| (vrf.name.as_str(), vrf.table)).collect())
    }
}

/// The tables of all VRFs of a switch, by name.
#[derive(Clone, Debug)]
pub struct Tables<'a>(HashMap<&'a str, u32>);

impl Tables<'_> {
    /// Returns the table of a VRF, as [`Switch::table`] does.
    pub fn of(&self, vrf: Option<&str>) -> Option<u32> {
        match vrf {
            None => Some(MAIN_TABLE),
            Some(name) if is_default_vrf(name) => Some(MAIN_TABLE),
            Some(name) => self.0.get(name).copied(),
        }
    }
}

/// Number of the kernel's table `main`.
pub const MAIN_TABLE: u32 = 254;

/// Whether this is a name of the default VRF. Labs create a device `vrfdefault`, because the kernel needs one.
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
