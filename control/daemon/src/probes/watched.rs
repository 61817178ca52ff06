//! The paths that are probed, and the loops along them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv6Net};
use srv6d_dataplane::Generation;
use srv6d_liveness::{Turn, loop_along};
use srv6d_plan::{Environment, Plan, Probes};
use srv6d_srv6::desired::{Behavior, Desired, DtFamily, Hop, Path, Role, Route, RouteAction, TableId};

/// Largest number of loops.
const MOST_LOOPS: usize = 256;
/// Largest number of paths that are looked at.
const MOST_PATHS: usize = 4096;
/// Bits of a uSID.
const USID_BITS: u8 = 16;

/// The task of the thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) settings: Probes,
    pub(super) prefixes: Arc<Vec<WatchedPrefix>>,
    /// There are more paths than are looked at.
    pub(super) is_cut: bool,
    /// Kernel indexes of the devices by which probes come back.
    pub(super) entrances: BTreeSet<u32>,
}

/// A steered prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WatchedPrefix {
    pub(super) table: TableId,
    pub(super) prefix: IpNet,
    pub(super) paths: Vec<WatchedPath>,
}

/// A path, with its loop or the reason why it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WatchedPath {
    pub(super) name: String,
    pub(super) along: Result<Loop, String>,
}

/// A carrier that comes back to this node, and the next hops of the path. Paths with the same loop share its probes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Loop {
    pub(super) carrier: Ipv6Addr,
    pub(super) hops: Vec<NextHop>,
}

/// A next hop.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NextHop {
    pub(super) device: String,
    pub(super) ifindex: u32,
    pub(super) to: Ipv6Addr,
    /// Outer source of packets that leave there.
    pub(super) source: Ipv6Addr,
}

/// Everything that [`wanted`] follows from. The generation stands for the tables in force.
#[derive(Debug)]
pub(super) struct Basis {
    settings: Probes,
    generation: Generation,
    interface: String,
    left_out: LeftOut,
    devices: Vec<(String, u32)>,
}

/// All paths of the prefixes of which some paths are left out. The tables have only the others.
type LeftOut = BTreeMap<(TableId, IpNet), Vec<Path>>;

impl Basis {
    pub(super) fn of(settings: &Probes, plan: &Plan, generation: Generation, environment: &Environment) -> Self {
        Self {
            settings: settings.clone(),
            generation,
            interface: plan.host.interface.clone(),
            left_out: plan.left_out.clone(),
            devices: devices(environment).map(|(name, ifindex)| (name.to_owned(), ifindex)).collect(),
        }
    }

    /// Returns true if this is what there is now.
    pub(super) fn is(&self, settings: &Probes, plan: &Plan, generation: Generation, environment: &Environment) -> bool {
        self.generation == generation
            && self.settings == *settings
            && self.interface == plan.host.interface
            && self.devices.iter().map(|(name, ifindex)| (name.as_str(), *ifindex)).eq(devices(environment))
            && self.left_out == plan.left_out
    }
}

fn devices(environment: &Environment) -> impl Iterator<Item = (&str, u32)> {
    environment.devices.iter().map(|device| (device.name.as_str(), device.ifindex))
}

/// Returns what is to be probed.
pub(super) fn wanted(settings: &Probes, plan: &Plan, desired: &Desired, environment: &Environment) -> Wanted {
    let (mut watched, mut count, mut is_cut) = (Vec::new(), 0, false);
    for steer in desired.steers.iter().filter(|steer| settings.watch(&steer.prefix)) {
        let paths = plan.left_out.get(&(steer.table, steer.prefix)).unwrap_or(&steer.paths);
        count += paths.len();
        if count > MOST_PATHS {
            is_cut = true;
            break;
        }
        watched.push((steer.table, steer.prefix, paths));
    }
    let paths = watched.iter().flat_map(|(.., paths)| *paths);
    let led = paths.filter(|path| path.via.is_empty()).map(|path| path.segments.first());
    let mut finder = Finder {
        settings,
        desired,
        indexes: devices(environment).collect(),
        routes: routes_to(led, &desired.routes),
        own: BTreeMap::new(),
        loops: HashMap::new(),
        count: 0,
    };
    let mut prefixes = Vec::new();
    for (table, prefix, paths) in watched {
        let paths = paths
            .iter()
            .map(|path| WatchedPath { name: path.name.clone(), along: finder.loop_of(&prefix, path) })
            .collect();
        prefixes.push(WatchedPrefix { table, prefix, paths });
    }
    let fabric = desired.ports.iter().filter(|port| port.role == Role::Fabric);
    let own = fabric.map(|port| port.name.as_str()).chain([plan.host.interface.as_str()]);
    let entrances = own.filter_map(|name| finder.indexes.get(name).copied()).collect();
    Wanted { settings: settings.clone(), prefixes: Arc::new(prefixes), is_cut, entrances }
}

/// Returns for each address the next hops of its route in the main table. It reads the routes once, however many addresses
/// there are.
fn routes_to(addresses: impl Iterator<Item = Ipv6Addr>, routes: &[Route]) -> BTreeMap<Ipv6Addr, &[Hop]> {
    let mut found: BTreeMap<Ipv6Addr, Option<(u8, &RouteAction)>> = addresses.map(|address| (address, None)).collect();
    if found.is_empty() {
        return BTreeMap::new();
    }
    for route in routes.iter().filter(|route| route.table == TableId::MAIN) {
        let IpNet::V6(prefix) = route.prefix else { continue };
        for (_, best) in found.range_mut(prefix.network()..=prefix.broadcast()) {
            if best.is_none_or(|(length, _)| length <= prefix.prefix_len()) {
                *best = Some((prefix.prefix_len(), &route.action));
            }
        }
    }
    let mut hops = BTreeMap::new();
    for (address, best) in found {
        if let Some((_, RouteAction::Via(of_route))) = best {
            hops.insert(address, of_route.as_slice());
        }
    }
    hops
}

/// What a loop follows from: its carrier, and first segment, next hops and source of the path.
type Key<'a> = (Ipv6Addr, Ipv6Addr, &'a [Hop], Option<Ipv6Addr>);
/// The uSID of this node in a block, and the one with which it decapsulates IPv6 into the main table.
type Own = (u16, Option<u16>);

struct Finder<'a> {
    settings: &'a Probes,
    desired: &'a Desired,
    indexes: BTreeMap<&'a str, u32>,
    /// Next hops of the routes to first segments.
    routes: BTreeMap<Ipv6Addr, &'a [Hop]>,
    /// uSIDs of this node in each block.
    own: BTreeMap<Ipv6Net, Option<Own>>,
    loops: HashMap<Key<'a>, Result<Loop, String>>,
    /// Number of loops.
    count: usize,
}

impl<'a> Finder<'a> {
    /// Returns the loop along a path, or why there is none.
    fn loop_of(&mut self, prefix: &IpNet, path: &'a Path) -> Result<Loop, String> {
        let [carrier] = path.segments.addresses() else {
            return Err("it has several segments, and a loop has one".to_owned());
        };
        let carrier = self.carrier(prefix, *carrier)?;
        let key = (carrier, path.segments.first(), path.via.as_slice(), path.source);
        if let Some(known) = self.loops.get(&key) {
            return known.clone();
        }
        if self.count == MOST_LOOPS {
            return Err(format!("there are more than {MOST_LOOPS} loops; choose paths by `prefixes` of [probes]"));
        }
        let found = self.hops(path).map(|hops| Loop { carrier, hops });
        self.count += usize::from(found.is_ok());
        self.loops.insert(key, found.clone());
        found
    }

    fn carrier(&mut self, prefix: &IpNet, carrier: Ipv6Addr) -> Result<Ipv6Addr, String> {
        let blocks = self.desired.blocks.iter().map(|block| block.prefix);
        let block = blocks.filter(|block| block.contains(&carrier)).max_by_key(Ipv6Net::prefix_len);
        let block = block.ok_or("its carrier is in no [[block]]")?;
        let own = self.own_in(block);
        let decap = self.settings.decap.or(own.and_then(|(_, decap)| decap));
        if decap.is_none() && (own.is_some() || matches!(prefix, IpNet::V4(_))) {
            return Err(
                "probes are IPv6: write as `decap` of [probes] the uSID that decapsulates IPv6 for this node".into()
            );
        }
        let turn = Turn { own: own.map(|(usid, _)| usid), decap };
        loop_along(carrier, block.prefix_len(), turn).map_err(|why| why.to_string())
    }

    fn own_in(&mut self, block: Ipv6Net) -> Option<Own> {
        let desired = self.desired;
        *self.own.entry(block).or_insert_with(|| own(desired, block))
    }

    fn hops(&self, path: &Path) -> Result<Vec<NextHop>, String> {
        let first = path.segments.first();
        let route = || self.routes.get(&first).copied().unwrap_or_default();
        let hops = if path.via.is_empty() { route() } else { path.via.as_slice() };
        let found: Vec<NextHop> = hops.iter().filter_map(|hop| self.next_hop(path, hop, first)).collect();
        if found.is_empty() {
            return Err("it has no next hop on an untagged port that is up".to_owned());
        }
        Ok(found)
    }

    fn next_hop(&self, path: &Path, hop: &Hop, first: Ipv6Addr) -> Option<NextHop> {
        let port = self.desired.ports.get(usize::from(hop.port.0)).filter(|port| port.up && port.vlan.is_none())?;
        let IpAddr::V6(to) = hop.via.unwrap_or(IpAddr::V6(first)) else { return None };
        let source = path.source.or(port.source).or(self.desired.tunnel.source)?;
        Some(NextHop { device: port.name.clone(), ifindex: *self.indexes.get(port.name.as_str())?, to, source })
    }
}

/// Returns the uSID of this node in a block, and the one with which it decapsulates IPv6 into the main table.
fn own(desired: &Desired, block: Ipv6Net) -> Option<Own> {
    let place = usize::from(block.prefix_len() / USID_BITS);
    let sids = || desired.sids.iter().filter(|sid| block.contains(&sid.prefix));
    let usid_at = |prefix: &Ipv6Net, place: usize| prefix.network().segments().get(place).copied();
    let node = sids().find(|sid| {
        let is_node = matches!(sid.behavior, Behavior::End { csid: Some(_), .. });
        is_node && sid.prefix.prefix_len() == block.prefix_len() + USID_BITS
    })?;
    let decapsulates = |behavior: &Behavior| match behavior {
        Behavior::EndDt { family: DtFamily::V6 | DtFamily::V46, table, .. } => *table == TableId::MAIN,
        _ => false,
    };
    let function = sids().find(|sid| {
        let is_behind = node.prefix.contains(&sid.prefix);
        decapsulates(&sid.behavior) && is_behind && sid.prefix.prefix_len() == block.prefix_len() + 2 * USID_BITS
    });
    Some((usid_at(&node.prefix, place)?, function.and_then(|sid| usid_at(&sid.prefix, place + 1))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]
    use srv6d_plan::{Device, plan};
    use srv6d_srv6::desired::{Mac, PortId};

    use super::*;

    const HOST: &str = r#"
[node]
source = "fcbb:0:800::2"
[[block]]
prefix = "fcbb::/32"
hosts = ["fcbb:0:800::/48"]
[probes]
prefixes = ["fcbb:0:800::/48", "10.200.0.0/16"]
[[port]]
name = "eth1"
role = "fabric"
[[port]]
name = "eth2"
role = "edge"
[[port]]
name = "eth1.5"
device = "eth1"
vlan = 5
role = "fabric"
[[route]]
prefix = "fcbb::/32"
via = "fe80::1"
port = "eth1"
"#;

    fn environment() -> Environment {
        let device = |ifindex, name: &str| Device {
            name: name.to_owned(),
            ifindex,
            mac: Mac([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            up: true,
            addresses: vec!["fcbb:0:800::2/64".parse().unwrap()],
        };
        Environment {
            devices: vec![device(2, "eth1"), device(3, "eth2"), device(4, "srv6d0")],
            ..Environment::default()
        }
    }

    /// Returns what is to be probed with a configuration.
    fn wanted_of(text: &str) -> Wanted {
        let environment = environment();
        let plan = plan(&srv6d_config::parse(text, "srv6d.toml").unwrap(), &environment).unwrap();
        wanted(plan.probes.as_ref().unwrap(), &plan, &plan.desired, &environment)
    }

    /// Returns the carrier of the only path, or why it has no loop.
    fn carrier_of(text: &str) -> Result<String, String> {
        let wanted = wanted_of(text);
        let paths: Vec<&WatchedPath> = wanted.prefixes.iter().flat_map(|prefix| &prefix.paths).collect();
        let [path] = paths.as_slice() else { return Err(format!("{} paths", paths.len())) };
        path.along.clone().map(|along| along.carrier.to_string())
    }

    fn steer(prefix: &str, keys: &str) -> String {
        format!("{HOST}[[steer]]\nprefix = \"{prefix}\"\n{keys}\n")
    }

    #[test]
    fn a_path_has_a_loop_or_a_reason() {
        const SEGMENTS: &str = "segments = [\"fcbb:0:1400:1001:1401:fe06::\"]";
        let whole = "fcbb:0:1400:1001:1401:1001:1400:fe06";
        let v6 = |keys: &str| carrier_of(&steer("fcbb:0:800:1::/64", keys));
        assert_eq!(v6(SEGMENTS).unwrap(), whole);
        assert_eq!(carrier_of(&steer("2001:db8::/48", SEGMENTS)).unwrap_err(), "0 paths", "it is not in `prefixes`");
        let v4 = steer("10.200.1.0/24", SEGMENTS);
        assert!(carrier_of(&v4).unwrap_err().contains("write as `decap` of [probes]"));
        assert_eq!(carrier_of(&v4.replace("[probes]", "[probes]\ndecap = 0xfe06")).unwrap(), whole);
        let two = v6("segments = [\"fcbb:0:1400::\", \"fcbb:0:1401:fe06::\"]");
        assert!(two.unwrap_err().contains("several segments"));
        assert!(
            v6("segments = [\"2001:db8::1\"]\nvia = \"fe80::1\"\nport = \"eth1\"")
                .unwrap_err()
                .contains("no [[block]]")
        );
        let tagged = v6(&format!("{SEGMENTS}\nvia = \"fe80::1\"\nport = \"eth1.5\""));
        assert!(tagged.unwrap_err().contains("untagged port"));
        let leaf = "[[sid]]\nsid = \"fcbb:0:1400::/48\"\nbehavior = \"uN\"\n[[sid]]\nsid = \"fcbb:0:1400:fe46::/64\"\n\
                    behavior = \"uDT46\"\n";
        let of_leaf = steer("10.200.1.0/24", "segments = [\"fcbb:0:1001:1401:fe04::\"]") + leaf;
        assert_eq!(carrier_of(&of_leaf).unwrap(), "fcbb:0:1001:1401:1001:1400:fe46:0", "it ends with its own SIDs");
    }

    #[test]
    fn a_probe_takes_the_next_hop_and_the_source_of_the_path() {
        let keys = "source = \"fcbb:0:800::3\"\nsegments = [\"fcbb:0:1400:1401:fe06::\"]\n\
                    nexthops = [{ via = \"fe80::7\", port = \"eth2\" }, { via = \"fe80::8\", port = \"eth1\" }]";
        let wanted = wanted_of(&steer("fcbb:0:800:1::/64", keys).replace("\"edge\"", "\"fabric\""));
        let along = wanted.prefixes.first().unwrap().paths.first().unwrap().along.clone().unwrap();
        let hops: Vec<_> =
            along.hops.iter().map(|hop| (hop.device.as_str(), hop.ifindex, hop.to.to_string())).collect();
        assert_eq!(hops, [("eth2", 3, "fe80::7".to_owned()), ("eth1", 2, "fe80::8".to_owned())]);
        assert!(along.hops.iter().all(|hop| hop.source.to_string() == "fcbb:0:800::3"));
    }

    #[test]
    fn probes_come_back_by_fabric_ports_and_from_own_sids_only() {
        let wanted = wanted_of(&steer("fcbb:0:800:1::/64", "segments = [\"fcbb:0:1400:1401:fe06::\"]"));
        assert_eq!(wanted.entrances, BTreeSet::from([2, 4]), "eth2 is an edge port");
    }

    #[test]
    fn the_bound_comes_before_the_look_up_of_next_hops() {
        let path = |n: u32| {
            let port = if n < 256 { "eth1" } else { "eth9" };
            let segment = format!("fcbb:0:1400:{:x}:1401:fe06::", 0x2000 + n);
            format!("{{ name = \"p{n}\", segments = [\"{segment}\"], via = \"fe80::1\", port = \"{port}\" }}")
        };
        let paths: Vec<String> = (0..257).map(path).collect();
        let text = HOST.replace("[[route]]", "[[port]]\nname = \"eth9\"\nrole = \"fabric\"\n[[route]]");
        let text = format!("{text}[[steer]]\nprefix = \"fcbb:0:800:1::/64\"\npaths = [{}]\n", paths.join(", "));
        let environment = &mut environment();
        environment.devices.push(Device {
            name: "eth9".into(),
            ifindex: 9,
            up: false,
            ..environment.devices[0].clone()
        });
        let plan = plan(&srv6d_config::parse(&text, "srv6d.toml").unwrap(), environment).unwrap();
        let wanted = wanted(plan.probes.as_ref().unwrap(), &plan, &plan.desired, environment);
        let last = wanted.prefixes[0].paths.last().unwrap();
        assert!(last.along.as_ref().is_err_and(|why| why.contains("more than 256 loops")), "{:?}", last.along);
    }

    #[test]
    fn the_next_hops_are_those_of_the_longest_route_in_main() {
        let hop = |port| Hop { port: PortId(port), via: None, weight: 1 };
        let route = |prefix: &str, table, action| Route { table, prefix: prefix.parse().unwrap(), action };
        let to = |port| RouteAction::Via(vec![hop(port)]);
        let routes = [
            route("fcbb:0:1400::/48", TableId::MAIN, to(2)),
            route("::/0", TableId::MAIN, to(0)),
            route("fcbb::/32", TableId::MAIN, to(1)),
            route("fcbb:0:1400::/64", TableId(7), to(3)),
            route("fcbb:0:1401::/48", TableId::MAIN, RouteAction::Blackhole),
            route("10.0.0.0/8", TableId::MAIN, to(4)),
        ];
        let at = ["fcbb:0:1400::1", "fcbb:0:1401::1", "fcbb:0:1402::1", "2001:db8::1"].map(|at| at.parse().unwrap());
        let found = routes_to(at.into_iter(), &routes);
        let ports = at.map(|at| found.get(&at).map(|hops| hops[0].port.0));
        assert_eq!(ports, [Some(2), None, Some(1), Some(0)]);
    }

    #[test]
    fn what_is_probed_is_found_again_when_its_basis_has_changed() {
        let text = steer("fcbb:0:800:1::/64", "segments = [\"fcbb:0:1400:1401:fe06::\"]");
        let environment = environment();
        let plan = plan(&srv6d_config::parse(&text, "srv6d.toml").unwrap(), &environment).unwrap();
        let settings = plan.probes.clone().unwrap();
        let basis = Basis::of(&settings, &plan, Generation(3), &environment);
        assert!(basis.is(&settings, &plan, Generation(3), &environment));
        assert!(!basis.is(&settings, &plan, Generation(4), &environment));
        assert!(!basis.is(&Probes { decap: Some(1), ..settings.clone() }, &plan, Generation(3), &environment));
        let mut other = environment.clone();
        other.devices[0].ifindex = 12;
        assert!(!basis.is(&settings, &plan, Generation(3), &other), "a device was made again");
        let mut left_out = plan.clone();
        let all = left_out.desired.steers[0].clone();
        left_out.left_out.insert((all.table, all.prefix), all.paths);
        assert!(!basis.is(&settings, &left_out, Generation(3), &environment), "the tables do not have all paths");
    }

    #[test]
    fn the_number_of_loops_is_bounded() {
        let path = |n: u32| format!("{{ name = \"p{n}\", segments = [\"fcbb:0:1400:{:x}:1401:fe06::\"] }}", 0x2000 + n);
        let paths: Vec<String> = (0..300).map(path).collect();
        let wanted = wanted_of(&steer("fcbb:0:800:1::/64", &format!("paths = [{}]", paths.join(", "))));
        let paths = || wanted.prefixes.iter().flat_map(|prefix| &prefix.paths);
        assert_eq!(paths().filter(|path| path.along.is_ok()).count(), MOST_LOOPS);
        assert!(paths().filter_map(|path| path.along.as_ref().err()).all(|why| why.contains("`prefixes` of [probes]")));
    }
}
