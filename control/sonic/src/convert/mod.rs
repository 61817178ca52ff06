//! [`Switch`] to the `srv6d.toml` it comes to.
//!
//! Only what that file can say is written: every entry names ports that are written too, no prefix stands twice, and
//! what cannot be, such as a next hop in nobody's subnet, is left out and listed.

mod hops;
mod routes;
mod sids;
mod text;

use std::net::{IpAddr, Ipv6Addr};

use ipnet::Ipv6Net;

use crate::finding::{Finding, Findings};
use crate::model::{MAIN_TABLE, Switch};
use hops::Hops;
use text::Toml;

/// A switch as `srv6d.toml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// The file.
    pub toml: String,
    /// What is not in it, and why.
    pub findings: Vec<Finding>,
}

/// Which uN decapsulate what ends there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Usd {
    /// Every one.
    #[default]
    Always,
    /// As in SONiC: those with a `decap_dscp_mode` in CONFIG_DB.
    Configured,
}

impl Switch {
    /// The `srv6d.toml` that the switch comes to.
    pub fn to_toml(&self, usd: Usd) -> Conversion {
        let mut found = Findings::default();
        let mut toml = Toml::default();
        toml.comment("Written by srv6d out of the files of a SONiC switch.");
        self.node(&mut toml, &mut found);
        self.blocks(&mut toml);
        self.port_tables(&mut toml);
        let hops = Hops::new(self);
        let sids = sids::write(self, usd, &hops, &mut toml, &mut found);
        routes::write(self, &sids, &hops, &mut toml, &mut found);
        self.neighbor_tables(&hops, &mut toml, &mut found);
        // Nothing here is an error: what cannot be is left out.
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
        // A tenant's host sends its carriers to the leaf through the port of its own VRF.
        if self.ports.iter().any(|port| port.vrf.is_some()) || self.vlans.iter().any(|vlan| vlan.vrf.is_some()) {
            toml.switch("vrf_sids", true);
        }
    }

    /// What encapsulations can be sent from.
    fn usable_source(&self) -> Option<Ipv6Addr> {
        self.encapsulation_source.filter(|source| is_global_unicast((*source).into()))
    }

    /// Blocks only say which addresses are carriers. What becomes of unknown SIDs is up to the routes, as in SONiC.
    fn blocks(&self, toml: &mut Toml) {
        let mut written: Vec<Ipv6Net> = Vec::new();
        for locator in &self.locators {
            let block = locator.block();
            // Of another locator's SIDs, one may be all of this block.
            let is_sid = self.sids.iter().any(|sid| sid.prefix.contains(&block));
            if !is_sid && !written.contains(&block) {
                toml.table("[[block]]");
                toml.text("prefix", &block.to_string());
                toml.text("unknown", "route");
                written.push(block);
            }
        }
    }

    /// Routed ports, and those that a routed VLAN is on.
    fn port_tables(&self, toml: &mut Toml) {
        for port in &self.ports {
            let untagged = self.untagged_vlan(&port.name);
            if port.routed || untagged.is_some() {
                let vrf = untagged.map_or(&port.vrf, |vlan| &vlan.vrf);
                toml.table("[[port]]");
                toml.text("name", &port.name);
                // A switch ASIC knows no edge: it processes SIDs whatever port they come in by.
                toml.text("role", "fabric");
                self.table_key(vrf.as_deref(), toml);
            }
        }
        for vlan in self.vlans.iter().filter(|vlan| vlan.routed) {
            for member in vlan.members.iter().filter(|member| member.tagged) {
                toml.table("[[port]]");
                toml.text("name", &format!("{}.{}", member.port, vlan.id));
                toml.number("vlan", u32::from(vlan.id));
                toml.text("role", "fabric");
                self.table_key(vlan.vrf.as_deref(), toml);
            }
        }
    }

    /// A VRF in its own words, unless it is the default one.
    fn table_key(&self, vrf: Option<&str>, toml: &mut Toml) {
        match self.table(vrf) {
            None | Some(MAIN_TABLE) => {}
            Some(table) => toml.number("table", table),
        }
    }

    fn neighbor_tables(&self, hops: &Hops<'_>, toml: &mut Toml, found: &mut Findings) {
        let mut written: Vec<(String, IpAddr)> = Vec::new();
        for neighbor in &self.neighbors {
            let place = format!("config_db.json: NEIGH|{}|{}", neighbor.interface, neighbor.address);
            let ports = hops.ports_of(&neighbor.interface);
            let [port] = ports.as_slice() else {
                found.note(place, "is on no port, or on a VLAN with several: left out");
                continue;
            };
            let key = (port.clone(), neighbor.address);
            if !is_unicast(neighbor.address) || written.contains(&key) {
                found.note(place, "is no unicast address, or stands there twice: left out");
                continue;
            }
            toml.table("[[neighbor]]");
            toml.text("address", &neighbor.address.to_string());
            toml.text("port", port);
            toml.text("mac", &neighbor.mac.to_string());
            written.push(key);
        }
    }
}

/// It can be a next hop.
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
