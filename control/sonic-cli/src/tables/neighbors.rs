//! Formats `show arp` and `show ndp`.

use std::net::IpAddr;

use super::NOT_AVAILABLE;
use crate::{Align, Table};

/// A neighbour whose Ethernet address is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbor {
    /// Address of the neighbour.
    pub address: IpAddr,
    /// Its Ethernet address.
    pub mac: String,
    /// Port by which it is reached: `Ethernet0`, or `Ethernet0.100` with the VLAN of its frames.
    pub port: String,
}

/// Formats `show arp`, or `show ndp` if `ipv6`. The state of an entry is not known here.
pub fn neighbors(mut neighbors: Vec<Neighbor>, ipv6: bool) -> String {
    let headings = ["Address", "MacAddress", "Iface", "Vlan", "Status"];
    let shown = if ipv6 { 5 } else { 4 };
    let mut table = Table::new(headings.get(..shown).unwrap_or_default(), Align::Auto);
    neighbors.sort_by(|a, b| (a.address, &a.port).cmp(&(b.address, &b.port)));
    for neighbor in &neighbors {
        let (port, vlan) = neighbor.port.split_once('.').unwrap_or((&neighbor.port, "-"));
        let cells = [&neighbor.address.to_string(), &neighbor.mac, port, vlan, NOT_AVAILABLE].map(str::to_owned);
        table.row(cells.into_iter().take(shown));
    }
    format!("{}Total number of entries {}\n", table.render(), neighbors.len())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn neighbor(address: &str, port: &str) -> Neighbor {
        Neighbor { address: address.parse().unwrap(), mac: "02:00:00:00:00:01".to_owned(), port: port.to_owned() }
    }

    #[test]
    fn neighbours_stand_in_the_order_of_their_addresses() {
        let expected = "\
Address    MacAddress         Iface      Vlan
---------  -----------------  ---------  ------
192.0.2.2  02:00:00:00:00:01  Ethernet4  100
192.0.2.9  02:00:00:00:00:01  Ethernet0  -
Total number of entries 2
";
        let both = vec![neighbor("192.0.2.9", "Ethernet0"), neighbor("192.0.2.2", "Ethernet4.100")];
        assert_eq!(neighbors(both, false), expected);
        let expected = "\
Address    MacAddress         Iface      Vlan    Status
---------  -----------------  ---------  ------  --------
fe80::2    02:00:00:00:00:01  Ethernet0  -       N/A
Total number of entries 1
";
        assert_eq!(neighbors(vec![neighbor("fe80::2", "Ethernet0")], true), expected);
    }
}
