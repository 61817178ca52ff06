//! Values that several parts of the planning need. Each is computed once.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::Ipv6Net;
use srv6d_addresses::Mac;

use super::environment::Environment;
use srv6d_config::{Config, Spanned};

/// Values of a configuration and its environment. Each is computed when it is first needed.
#[derive(Default)]
pub(super) struct Lookups {
    carrier_blocks: OnceCell<HashSet<Ipv6Net>>,
    ports_have_source: OnceCell<bool>,
    /// Neighbours that the kernel has resolved, by device.
    resolved: OnceCell<Stations>,
    /// Neighbours of the configuration, by port.
    written: OnceCell<Stations>,
}

type Stations = HashMap<String, Vec<(IpAddr, Mac)>>;

impl Lookups {
    /// Returns the blocks of 32 bits around some of these segments, which must be carriers therefore.
    pub(super) fn carrier_blocks(&self, config: &Config, segments: &[Ipv6Addr]) -> Vec<Ipv6Net> {
        let all = self.carrier_blocks.get_or_init(|| {
            let blocks = config.blocks.iter().map(|block| *block.get_ref().prefix.get_ref());
            blocks.filter(|block| block.prefix_len() == 32).collect()
        });
        let around = segments.iter().filter_map(|segment| Some(Ipv6Net::new(*segment, 32).ok()?.trunc()));
        around.filter(|block| all.contains(block)).collect()
    }

    /// Returns true if some port has an outer source address of its own.
    pub(super) fn ports_have_source(&self, config: &Config) -> bool {
        *self.ports_have_source.get_or_init(|| config.ports.iter().any(|port| port.get_ref().source.is_some()))
    }

    /// Returns the neighbours that the kernel has resolved on a device.
    pub(super) fn resolved_on(&self, environment: &Environment, device: &str) -> &[(IpAddr, Mac)] {
        let all = self.resolved.get_or_init(|| {
            let known = environment.neighbors.iter();
            grouped(known.map(|neighbor| (neighbor.device.as_str(), neighbor.address, neighbor.mac)))
        });
        all.get(device).map_or(&[], Vec::as_slice)
    }

    /// Returns the neighbours that the configuration has on a port.
    pub(super) fn written_on(&self, config: &Config, port: &str) -> &[(IpAddr, Mac)] {
        let all = self.written.get_or_init(|| {
            let written = config.neighbors.iter().map(Spanned::get_ref);
            grouped(written.map(|neighbor| {
                (neighbor.port.get_ref().as_str(), *neighbor.address.get_ref(), *neighbor.mac.get_ref())
            }))
        });
        all.get(port).map_or(&[], Vec::as_slice)
    }
}

fn grouped<'a>(stations: impl Iterator<Item = (&'a str, IpAddr, Mac)>) -> Stations {
    let mut grouped = Stations::new();
    for (place, address, mac) in stations {
        grouped.entry(place.to_owned()).or_default().push((address, mac));
    }
    grouped
}
