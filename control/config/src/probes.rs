//! `[probes]`: packets that go along the paths of steered prefixes and come back, so that paths that do not work are left out.

use std::net::Ipv6Addr;

use ipnet::IpNet;
use serde::Serialize;
use toml::Spanned;

use super::balance::ShortTime;
use super::schema::Optional;
use super::table::{Record, Table};

/// `[probes]`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Probes {
    /// Time between two probes of a path, default 100 ms.
    pub interval: Optional<ShortTime>,
    /// Time after which a probe without an answer is judged, default: the interval.
    pub timeout: Optional<ShortTime>,
    /// Number of probes lost in a row after which a path is left out, default 3.
    pub dead_after: Optional<u32>,
    /// Time for which probes of a dead path have to come back before it is used again, default 1 s.
    pub hold: Optional<ShortTime>,
    /// Prefixes whose paths are probed; empty means every steered prefix.
    pub prefixes: Vec<Spanned<IpNet>>,
    /// Address of this node to which probes come back, default: the outer source of `[node]`.
    pub address: Optional<Ipv6Addr>,
    /// uSID with which the last node of a loop decapsulates, default: the one with which the path ends.
    pub decap: Optional<u16>,
    /// UDP port of probes, default 47151.
    pub udp_port: Optional<u16>,
}

impl Record for Probes {
    const HEADER: &'static str = "[probes]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        Some(Self {
            interval: table.optional("interval"),
            timeout: table.optional("timeout"),
            dead_after: table.number("dead_after", 2..=100),
            hold: table.optional("hold"),
            prefixes: table.list("prefixes"),
            address: table.optional("address"),
            decap: table.number("decap", 1..=0xffff),
            udp_port: table.number("udp_port", 1..=65_535),
        })
    }
}
