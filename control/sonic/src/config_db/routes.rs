//! Reads `STATIC_ROUTE`. The n-th elements of its comma-separated lists make the n-th next hop.

use std::net::IpAddr;

use super::row::{Db, Row};
use crate::finding::{Findings, Quirk};
use crate::routes::Leg;
use crate::switch::{self, Origin, RouteHop, Target};
use crate::value;

pub(super) fn routes(db: &Db, found: &mut Findings) -> Vec<Leg> {
    db.rows("STATIC_ROUTE", found).iter().flat_map(|row| legs(row, found)).collect()
}

fn legs(row: &Row<'_>, found: &mut Findings) -> Vec<Leg> {
    let parts = row.parts();
    let (vrf, written) = match parts.as_slice() {
        [prefix] => (None, *prefix),
        [vrf, prefix] => (Some(*vrf), *prefix),
        _ => (None, ""),
    };
    let Some(prefix) = value::prefix(written) else {
        found.ignored(row.place(""), format!("{written:?} is no prefix: left out"));
        return Vec::new();
    };
    if value::is_long_form(written) {
        found.count(row.table(), Quirk::LongForm);
    }
    let vrf = vrf.filter(|vrf| !switch::is_default_vrf(vrf)).map(str::to_owned);
    let lists = Lists::read(row, found);
    let legs = (0..lists.length()).map(|n| Leg {
        vrf: vrf.clone(),
        prefix,
        target: lists.target(n, row, found),
        distance: lists.distance(n),
        origin: Origin::ConfigDb,
        place: row.place(""),
    });
    legs.collect()
}

/// The lists of one row, split into their elements.
struct Lists<'a> {
    nexthop: Vec<&'a str>,
    ifname: Vec<&'a str>,
    vrf: Vec<&'a str>,
    blackhole: Vec<&'a str>,
    distance: Vec<&'a str>,
}

impl<'a> Lists<'a> {
    fn read(row: &'a Row<'_>, found: &mut Findings) -> Self {
        let list = |field| row.text(field).map_or_else(Vec::new, |text| text.split(',').map(str::trim).collect());
        let lists = Self {
            nexthop: list("nexthop"),
            ifname: list("ifname"),
            vrf: list("nexthop-vrf"),
            blackhole: list("blackhole"),
            distance: list("distance"),
        };
        let all = [&lists.nexthop, &lists.ifname, &lists.vrf, &lists.blackhole, &lists.distance];
        if all.iter().any(|list| !list.is_empty() && list.len() != lists.length()) {
            found.tolerated(row.place(""), "has lists of different lengths: what is missing counts as not written");
        }
        if lists.length() == 0 {
            found.ignored(row.place(""), "has neither nexthop nor ifname nor blackhole: left out");
        }
        lists
    }

    fn length(&self) -> usize {
        self.nexthop.len().max(self.ifname.len()).max(self.blackhole.len())
    }

    fn distance(&self, n: usize) -> u8 {
        // 0 means that the distance is not set; then it is that of a static route.
        self.distance.get(n).and_then(|text| text.parse().ok()).filter(|distance| *distance != 0).unwrap_or(1)
    }

    fn target(&self, n: usize, row: &Row<'_>, found: &mut Findings) -> Target {
        let written = |list: &[&'a str]| list.get(n).copied().filter(|text| !text.is_empty());
        if written(&self.blackhole).and_then(value::truth) == Some(true) {
            return Target::Blackhole;
        }
        let via = written(&self.nexthop).and_then(|text| {
            let address = value::address(text);
            if address.is_none() {
                found.ignored(row.place("nexthop"), format!("{text:?} is no address: the next hop is left out"));
            }
            address.filter(|address: &IpAddr| !address.is_unspecified())
        });
        let vrf = written(&self.vrf).filter(|vrf| !switch::is_default_vrf(vrf)).map(str::to_owned);
        let interface = written(&self.ifname).map(str::to_owned);
        if via.is_none() && interface.is_none() {
            return Target::Hops(Vec::new());
        }
        Target::Hops(vec![RouteHop { via, interface, vrf, encap: None }])
    }
}
