//! `show ip route` and `show ipv6 route`: SONiC's own text, FRR's text, and FRR's JSON, which SONiC reads.

mod json;
mod text;

pub use json::{from_json, to_json};
pub use text::{entry, frr_table, sonic_table};

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

/// A route with what zebra knows about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination prefix.
    pub prefix: IpNet,
    /// Protocol that made the route: `static`, `connected`, `kernel`, `bgp`, ...
    pub protocol: String,
    /// Administrative distance.
    pub distance: u32,
    /// Metric of the route; of routes with the same distance the lowest is used.
    pub metric: u32,
    /// Whether it is the best route of its prefix.
    pub selected: bool,
    /// Progress of the route towards the forwarding tables.
    pub state: State,
    /// Time since its last change, as FRR writes it.
    pub uptime: String,
    /// Next hops.
    pub hops: Vec<Hop>,
}

/// Progress of a route towards the tables that forward packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// The route is in no table.
    #[default]
    None,
    /// The route is in force.
    Installed,
    /// The route is waiting to be installed.
    Queued,
    /// The route was refused.
    Rejected,
}

/// A next hop of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// Address of the neighbour.
    pub via: Option<IpAddr>,
    /// Name of the interface; if there is a neighbour, the interface on which it is.
    pub interface: Option<String>,
    /// How packets are dropped, if they are.
    pub drops: Option<Drops>,
    /// Whether the next hop can be used.
    pub active: bool,
    /// Whether the next hop is in use.
    pub fib: bool,
    /// FRR's text about SRv6: `seg6local uN`, `seg6 fcbb:bbbb:2::`.
    pub srv6: Option<String>,
    /// Share of the flows.
    pub weight: u32,
}

/// The way in which a route drops packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drops {
    /// The route drops packets silently.
    Blackhole,
    /// The route drops packets and answers with an ICMP Destination Unreachable.
    Unreachable,
}

impl Route {
    /// Returns the letter that stands for the protocol.
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

/// Formats a duration as FRR does: `00:00:08`, `1d02h03m`, `2w3d04h`.
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

/// Returns the routes of the given prefix, or of the longest prefix that contains the given address. `None`: the text
/// is neither a prefix nor an address.
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
