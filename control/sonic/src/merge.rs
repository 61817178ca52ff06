//! Merges both files into one switch.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr};

use crate::config_db::{self, next_table};
use crate::finding::Findings;
use crate::srv6::{WrittenLocator, WrittenSid};
use crate::switch::{Switch, Target, Vrf, is_default_vrf};
use crate::{frr, routes, srv6};

pub(crate) fn merge(db: config_db::Written, frr: frr::Written, found: &mut Findings) -> Switch {
    let mut switch = db.switch;
    if switch.device.hostname.is_none() {
        switch.device.hostname = frr.hostname;
    }
    switch.encapsulation_source = source(&switch, db.encapsulation_source, frr.encapsulation_source, found);
    let locators: Vec<WrittenLocator> = db.locators.into_iter().chain(frr.locators.into_values()).collect();
    check_locator_vrfs(&locators, &switch.vrfs, found);
    switch.locators = srv6::locators(locators, found);
    check_interfaces(&db.sids, &switch, found);
    let sids = db.sids.into_iter().chain(frr.sids.into_values()).collect();
    switch.sids = srv6::sids(sids, &switch.locators, found);
    let legs = db.legs.into_iter().chain(frr.legs.into_legs()).collect();
    switch.routes = routes::group(legs, found);
    name_vrfs(&mut switch, found);
    switch
}

/// Adds ports if there is no CONFIG_DB that lists them: the interfaces that exist or, if they are unknown, those that
/// frr.conf names.
pub(crate) fn ports_without_config_db(switch: &mut Switch, present: Option<&[String]>) {
    let of_sids = switch.sids.iter().filter_map(|sid| sid.interface.as_deref());
    let of_routes = switch.routes.iter().filter_map(|route| match &route.target {
        Target::Hops(hops) => Some(hops.iter().filter_map(|hop| hop.interface.as_deref())),
        _ => None,
    });
    let named: Vec<String> = of_sids.chain(of_routes.flatten()).map(str::to_owned).collect();
    switch.ports = config_db::ports_by_name(present.unwrap_or(&named));
    switch.ports.iter_mut().for_each(|port| port.routed = true);
}

/// Returns the source of encapsulations. frr.conf has precedence: FRR encapsulates with its own setting.
fn source(
    switch: &Switch,
    db: Option<(Ipv6Addr, String)>,
    frr: Option<(Ipv6Addr, String)>,
    found: &mut Findings,
) -> Option<Ipv6Addr> {
    if let (Some((written, place)), Some((used, there))) = (&db, &frr)
        && written != used
    {
        found.tolerated(
            place,
            format!("{written} here and {used} in {there} as source of encapsulations: {used} is used"),
        );
    }
    let loopback = || {
        let loopback = switch.loopbacks.iter().find(|loopback| loopback.name == "Loopback0")?;
        loopback.addresses.iter().find_map(|address| match address.addr() {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        })
    };
    frr.or(db).map(|(source, _)| source).or_else(loopback)
}

/// Checks the interfaces of SIDs. CONFIG_DB requires that the port of a uA is in its own table; frr.conf may name any
/// interface.
fn check_interfaces(sids: &[WrittenSid], switch: &Switch, found: &mut Findings) {
    let ports: HashSet<&String> = switch.ports.iter().map(|port| &port.name).collect();
    for sid in sids {
        if let Some(name) = sid.interface.as_ref().filter(|name| !ports.contains(name)) {
            found.tolerated(format!("{} interface", sid.place), format!("{name} is no port of this switch"));
        }
    }
}

fn check_locator_vrfs(locators: &[WrittenLocator], vrfs: &[Vrf], found: &mut Findings) {
    let known: HashSet<&String> = vrfs.iter().map(|vrf| &vrf.name).collect();
    for written in locators {
        if let Some(name) = written.vrf.as_ref().filter(|name| !is_default_vrf(name))
            && !known.contains(name)
        {
            found.tolerated(format!("{} vrf", written.place), format!("{name} is no VRF; nothing asks for it"));
        }
    }
}

/// Adds VRFs that are named but not configured. SONiC waits for them; here they exist at once.
fn name_vrfs(switch: &mut Switch, found: &mut Findings) {
    let Switch { ports, loopbacks, vlans, sids, routes, vrfs, .. } = switch;
    let of_interfaces = (ports.iter().map(|port| (&port.vrf, &port.name)))
        .chain(loopbacks.iter().map(|loopback| (&loopback.vrf, &loopback.name)))
        .chain(vlans.iter().map(|vlan| (&vlan.vrf, &vlan.name)))
        .filter_map(|(vrf, name)| Some((vrf.as_ref()?, format!("interface {name}"))));
    let of_sids = sids.iter().filter_map(|sid| Some((sid.vrf.as_ref()?, format!("SID {}", sid.prefix))));
    let of_routes = routes.iter().filter_map(|route| Some((route.vrf.as_ref()?, format!("route {}", route.prefix))));
    let hops = routes.iter().filter_map(|route| match &route.target {
        Target::Hops(hops) => {
            Some(hops.iter().filter_map(|hop| Some((hop.vrf.as_ref()?, format!("route {}", route.prefix)))))
        }
        _ => None,
    });
    let mut known: HashSet<String> = vrfs.iter().map(|vrf| vrf.name.clone()).collect();
    for (name, user) in of_interfaces.chain(of_sids).chain(of_routes).chain(hops.flatten()) {
        if is_default_vrf(name) || !known.insert(name.clone()) {
            continue;
        }
        let table = next_table(vrfs);
        found.tolerated(
            "config_db.json: VRF",
            format!("{name} is missing, and {user} is in it: taken, as table {table}"),
        );
        vrfs.push(Vrf { name: name.clone(), table, in_config_db: false });
    }
}
