//! `show ip route` and `show ipv6 route`: SONiC's own text, FRR's, and FRR's JSON, which SONiC asks for.

mod json;
mod text;

pub use json::{from_json, to_json};
pub use text::{entry, frr_table, sonic_table};

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

/// A route as zebra knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destinations.
    pub prefix: IpNet,
    /// Who made it: `static`, `connected`, `kernel`, `bgp`, ...
    pub protocol: String,
    /// Administrative distance.
    pub distance: u32,
    /// Metric.
    pub metric: u32,
    /// The best of its prefix.
    pub selected: bool,
    /// How far it has got.
    pub state: State,
    /// Since it changed last, as FRR writes it.
    pub uptime: String,
    /// Where packets go.
    pub hops: Vec<Hop>,
}

/// How far a route has got on its way into the tables that forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nowhere.
    #[default]
    None,
    /// In force.
    Installed,
    /// On its way.
    Queued,
    /// Refused.
    Rejected,
}

/// One next hop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// Neighbour.
    pub via: Option<IpAddr>,
    /// Interface; with a neighbour, the one it is on.
    pub interface: Option<String>,
    /// Drops instead.
    pub drops: Option<Drops>,
    /// It can be used.
    pub active: bool,
    /// It is used.
    pub fib: bool,
    /// What FRR says about SRv6 behind it: `seg6local uN`, `seg6 fcbb:bbbb:2::`.
    pub srv6: Option<String>,
    /// Share of the flows.
    pub weight: u32,
}

/// How a route drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drops {
    /// In silence.
    Blackhole,
    /// With Destination Unreachable.
    Unreachable,
}

impl Route {
    /// The letter that stands for the protocol.
    pub fn letter(&self) -> char {
        match self.protocol.as_str() {
            "connected" => 'C',
            "local" => 'L',
            "static" => 'S',
            "rip" | "ripng" => 'R',
            "ospf" | "ospf6" => 'O',
            "isis" => 'I',
            "bgp" => 'B',
            "eigrp" => 'E',
            "nhrp" => 'N',
            "table" => 'T',
            "vnc" => 'v',
            "vnc-direct" => 'V',
            "babel" => 'A',
            "sharp" => 'D',
            "pbr" => 'F',
            "openfabric" => 'f',
            _ => 'K',
        }
    }
}

/// `00:00:08`, `1d02h03m`, `2w3d04h`: how FRR writes how long something lasts.
pub fn uptime(since: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    const WEEK: u64 = 7 * DAY;
    let seconds = since.as_secs();
    let (hours, minutes) = (seconds % DAY / HOUR, seconds % HOUR / MINUTE);
    if seconds < DAY {
        format!("{hours:02}:{minutes:02}:{:02}", seconds % MINUTE)
    } else if seconds < WEEK {
        format!("{}d{hours:02}h{minutes:02}m", seconds / DAY)
    } else {
        format!("{:02}w{}d{hours:02}h", seconds / WEEK, seconds % WEEK / DAY)
    }
}

/// The route of that prefix, or of the longest one that holds that address. `None`: neither is one.
pub fn find<'a>(routes: &'a [Route], asked: &str) -> Option<Vec<&'a Route>> {
    let prefix = if let Ok(prefix) = asked.parse::<IpNet>() {
        prefix.trunc()
    } else {
        let address: IpAddr = asked.parse().ok()?;
        let holds = routes.iter().map(|route| route.prefix).filter(|prefix| prefix.contains(&address));
        let Some(longest) = holds.max_by_key(IpNet::prefix_len) else { return Some(Vec::new()) };
        longest
    };
    Some(routes.iter().filter(|route| route.prefix == prefix).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_get_coarser_as_they_get_longer() {
        let written = [8, 11 * 3600 + 61, 86_400 + 3600, 15 * 86_400].map(|s| uptime(Duration::from_secs(s)));
        assert_eq!(written, ["00:00:08", "11:01:01", "1d01h00m", "02w1d00h"]);
    }
}
