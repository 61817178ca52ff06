//! Converts a [`Switch`] to an `srv6d.toml`.
//!
//! The file contains only what srv6d accepts: every entry names ports that the file has, too, and no prefix occurs
//! twice. What cannot be written, such as a next hop outside of all subnets, is left out and listed.

mod hops;
mod routes;
mod sids;
mod text;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::Ipv6Net;
use srv6d_addresses::prefix_map::PrefixMap;

use crate::finding::{Finding, Findings};
use crate::switch::Switch;
use hops::Hops;
use text::Toml;

/// A switch, converted to `srv6d.toml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// Text of the file.
    pub toml: String,
    /// Findings about entries that are not in the file, with the reason.
    pub findings: Vec<Finding>,
}

/// The choice of the uN that decapsulate packets which end there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Usd {
    /// Every uN does.
    #[default]
    Always,
    /// Only a uN with a `decap_dscp_mode` in CONFIG_DB decapsulates, as in SONiC.
    Configured,
}

impl Switch {
    /// Converts the switch to an `srv6d.toml`.
    pub fn to_toml(&self, usd: Usd) -> Conversion {
        let mut found = Findings::default();
        let mut toml = Toml::default();
        toml.comment("Written by srv6d out of the files of a SONiC switch.");
        self.node(&mut toml, &mut found);
        self.blocks(&mut toml);
        let hops = Hops::new(self);
        self.port_tables(&hops, &mut toml);
        let sids = sids::write(self, usd, &hops, &mut toml, &mut found);
        routes::write(self, &sids, &hops, &mut toml, &mut found);
        self.neighbor_tables(&hops, &mut toml, &mut found);
        // There are no errors here: what cannot be written is left out.
        let findings = found.finish(false).unwrap_or_else(|findings| findings);
        Conversion { toml: toml.finish(), findings }
    }

    fn node(&self, toml: &mut Toml, found: &mut Findings) {
        toml.table("[node]");
        if let Some(name) = &self.device.hostname {
            toml.text("name", name);
        }
        match (self.encapsulation_source, self.usable_source()) {
            (_, Some(source)) => toml.text("source", &source.to_string()),
            (Some(source), None) => {
                found.ignored(
                    "source-address",
                    format!("{source} cannot be the source of a packet that is routed: left out"),
                );
            }
            (None, None) => {}
        }
        // A tenant's host sends its carriers to the leaf through a port of its own VRF.
        if self.ports.iter().any(|port| port.vrf.is_some()) || self.vlans.iter().any(|vlan| vlan.vrf.is_some()) {
            toml.switch("vrf_sids", true);
        }
    }

    /// Returns the encapsulation source if packets can be sent from it.
    fn usable_source(&self) -> Option<Ipv6Addr> {
        self.encapsulation_source.filter(|source| is_global_unicast((*source).into()))
    }

    /// Writes the blocks. They only say which addresses are carriers; unknown SIDs are handled by the routes, as in
    /// SONiC.
    fn blocks(&self, toml: &mut Toml) {
        let mut written: HashSet<Ipv6Net> = HashSet::new();
        let sids: PrefixMap<()> = self.sids.iter().map(|sid| (sid.prefix, ())).collect();
        for locator in &self.locators {
            let block = locator.block();
            // A SID of another locator may cover all of this block.
            let is_sid = sids.around(block).next().is_some();
            if !is_sid && written.insert(block) {
                toml.table("[[block]]");
                toml.text("prefix", &block.to_string());
                toml.text("unknown", "route");
            }
        }
    }

    /// Writes the routed ports and the ports that carry a routed VLAN.
    fn port_tables(&self, hops: &Hops<'_>, toml: &mut Toml) {
        for port in &self.ports {
            let untagged = hops.untagged_vlan(&port.name);
            if port.routed || untagged.is_some() {
                let vrf = untagged.map_or(&port.vrf, |vlan| &vlan.vrf);
                toml.table("[[port]]");
                toml.text("name", &port.name);
                // A switch ASIC has no edge role: it processes SIDs on whatever port they arrive.
                toml.text("role", "fabric");
                hops.table_key(vrf.as_deref(), toml);
            }
        }
        for vlan in self.vlans.iter().filter(|vlan| vlan.routed) {
            for member in vlan.members.iter().filter(|member| member.tagged) {
                toml.table("[[port]]");
                toml.text("name", &format!("{}.{}", member.port, vlan.id));
                toml.number("vlan", u32::from(vlan.id));
                toml.text("role", "fabric");
                hops.table_key(vlan.vrf.as_deref(), toml);
            }
        }
    }

    fn neighbor_tables(&self, hops: &Hops<'_>, toml: &mut Toml, found: &mut Findings) {
        let mut written: HashSet<(&str, IpAddr)> = HashSet::new();
        for neighbor in &self.neighbors {
            let place = format!("config_db.json: NEIGH|{}|{}", neighbor.interface, neighbor.address);
            let ports = hops.ports_of(&neighbor.interface);
            let [port] = ports else {
                found.note(place, "is on no port, or on a VLAN with several: left out");
                continue;
            };
            if !is_unicast(neighbor.address) || !written.insert((port, neighbor.address)) {
                found.note(place, "is no unicast address, or stands there twice: left out");
                continue;
            }
            toml.table("[[neighbor]]");
            toml.text("address", &neighbor.address.to_string());
            toml.text("port", port);
            toml.text("mac", &neighbor.mac.to_string());
        }
    }
}

/// Whether an address can be that of a next hop.
fn is_unicast(address: IpAddr) -> bool {
    let broadcast = address == IpAddr::V4(std::net::Ipv4Addr::BROADCAST);
    !(address.is_multicast() || address.is_unspecified() || address.is_loopback() || broadcast)
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn is_global_unicast(address: IpAddr) -> bool {
    is_unicast(address) && !is_link_local(address)
}
