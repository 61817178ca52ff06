//! Finds the input that made an entry of the tables: a line of the configuration, a controller, FRR, the kernel.

use std::net::IpAddr;
use std::ops::Range;

use ipnet::IpNet;
use srv6d_offer::OutcomeState;
use srv6d_plan::{FPM, RouteKey};
use srv6d_srv6::Rank;
use srv6d_srv6::desired::TableId;

use super::{Entry, Node};

impl Node {
    /// Returns the input that made an entry.
    pub(super) fn origin(&self, table: TableId, entry: Entry) -> String {
        let config = self.inputs.config();
        let written = |span: &Range<usize>| format!("configuration, {}", config.source.line_of(span));
        let is_main_or = |key: Option<TableId>| key.unwrap_or(TableId::MAIN) == table;
        match entry.rank {
            Rank::LocalAddress => self.address_of(entry.prefix.addr()),
            Rank::Neighbor => "neighbour on a connected link".to_owned(),
            Rank::Block => {
                let is_it = |block: &&toml::Spanned<srv6d_config::Block>| {
                    IpNet::V6(*block.get_ref().prefix.get_ref()) == entry.prefix
                };
                config.blocks.iter().find(is_it).map_or_else(String::new, |block| written(&block.span()))
            }
            Rank::Sid => {
                let mut sids = config.sids.iter();
                let sid = sids.find(|sid| IpNet::V6(*sid.get_ref().sid.get_ref()) == entry.prefix);
                sid.map_or_else(|| self.learned(table, entry.prefix), |sid| written(&sid.span()))
            }
            Rank::Steer => {
                let steer = config.steers.iter().find(|steer| {
                    let steer = steer.get_ref();
                    *steer.prefix.get_ref() == entry.prefix
                        && is_main_or(steer.table.as_ref().map(|table| *table.get_ref()))
                });
                steer.map_or_else(|| self.learned(table, entry.prefix), |steer| written(&steer.span()))
            }
            Rank::Route => {
                let route = config.routes.iter().find(|route| {
                    let route = route.get_ref();
                    *route.prefix.get_ref() == entry.prefix
                        && is_main_or(route.table.as_ref().map(|table| *table.get_ref()))
                });
                route.map_or_else(|| self.learned(table, entry.prefix), |route| written(&route.span()))
            }
        }
    }

    fn address_of(&self, address: IpAddr) -> String {
        let has = |device: &&srv6d_plan::Device| device.addresses.iter().any(|known| known.addr() == address);
        let device = self.environment.devices.iter().find(has);
        device.map_or_else(|| "address of this node".to_owned(), |device| format!("address of {}", device.name))
    }

    /// Returns where an entry comes from that is not in the configuration: a controller, FRR, the kernel, an address of
    /// a port.
    fn learned(&self, table: TableId, prefix: IpNet) -> String {
        if let Some(left) = self.plan.unfollowed.iter().find(|left| left.prefix == prefix && left.table == table) {
            return format!("route of {}, left to the kernel: {}", source_name(left.source), left.why);
        }
        let is_in_force = |state: &OutcomeState| matches!(state, OutcomeState::Programmed | OutcomeState::Kept(_));
        let offered = self
            .plan
            .offered
            .iter()
            .find(|outcome| outcome.prefix == prefix && outcome.table == table && is_in_force(&outcome.state));
        if let Some(offered) = offered {
            return format!("{}, peer {}", source_name(&offered.source), offered.peer);
        }
        let is_it = |route: &&srv6d_plan::KernelRoute| route.prefix == prefix && route.table == table;
        if self.inputs.config().fpm.is_some() && self.environment.announced.iter().any(|route| is_it(&route)) {
            return source_name(FPM).to_owned();
        }
        let followed = self.inputs.config().kernel.is_some();
        if let Some(route) = self.environment.routes.used_for(&RouteKey { table, prefix }).filter(|_| followed) {
            return format!("route of the kernel, protocol {}", protocol(route.protocol));
        }
        let is_on = |device: &&srv6d_plan::Device| device.addresses.iter().any(|address| address.trunc() == prefix);
        let device = self.environment.devices.iter().find(is_on);
        device.map_or_else(String::new, |device| format!("connected, {}", device.name))
    }
}

fn source_name(source: &str) -> &str {
    match source {
        FPM => "FRR, over FPM",
        "kernel" => "the kernel",
        other => other,
    }
}

/// Returns the name of a route's protocol, as in the `rt_protos` of iproute2.
fn protocol(number: u8) -> String {
    let name = match number {
        2 => "kernel",
        3 => "boot",
        4 => "static",
        9 => "ra",
        11 => "zebra",
        12 => "bird",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        192 => "eigrp",
        196 => "static (FRR)",
        _ => return number.to_string(),
    };
    name.to_owned()
}
