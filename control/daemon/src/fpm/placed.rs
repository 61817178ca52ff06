//! Translates announced routes into the terms of this node: VRFs become tables, ports become devices, and routes get
//! the form of kernel routes.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv6Net};
use srv6d_addresses::TableId;
use srv6d_fpm::{Action, Announced, Dialect, Encap, EncapMode, Hop, LocalSid, Resolved, RouteKey, Seg6Local, Vrf};
use srv6d_kernel_routes::seg6::flavors::{DEFAULT_BLOCK_BITS, DEFAULT_NODE_FUNCTION_BITS, NEXT_CSID, PSP, USD, USP};

use super::{InForce, Snapshot};
use srv6d_plan::{
    Environment, FPM, KernelAction, KernelEncap, KernelHop, KernelRoute, KernelSid, KernelSidAction, Plan,
    whole_function,
};

/// `RTPROT_KERNEL`: the protocol that zebra gives every kernel route that it has not made itself.
const KERNEL_PROTOCOL: u8 = 2;

/// A snapshot whose routes have been placed into tables.
#[derive(Clone, Debug, Default)]
pub struct Placed {
    snapshot: Arc<Snapshot>,
    /// The part of the environment by which the routes were placed.
    around: Around,
    routes: Arc<Vec<KernelRoute>>,
    /// Number of routes in VRFs that have no device.
    pub nowhere: usize,
}

/// The part of the environment that decides where a route belongs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Around {
    /// Tables by the kernel index of the VRF device.
    vrfs: BTreeMap<u32, TableId>,
    devices: BTreeMap<String, u32>,
}

impl Around {
    fn of(environment: &Environment) -> Self {
        let devices = environment.devices.iter().map(|device| (device.name.clone(), device.ifindex)).collect();
        Self { vrfs: environment.vrfs.clone(), devices }
    }

    fn table(&self, vrf: Vrf, dialect: Option<Dialect>) -> Option<TableId> {
        match (vrf, dialect) {
            (Vrf::Default, _) => Some(TableId::MAIN),
            (Vrf::Number(index), Some(Dialect::Sonic)) => self.vrfs.get(&index).copied(),
            (Vrf::Number(table), _) => Some(TableId(table)),
        }
    }

    fn vrf(&self, table: TableId, dialect: Option<Dialect>) -> Vrf {
        match dialect {
            Some(Dialect::Sonic) => {
                let device = self.vrfs.iter().find(|(_, known)| **known == table);
                device.map_or(Vrf::Default, |(index, _)| Vrf::Number(*index))
            }
            _ => Vrf::Number(table.0),
        }
    }

    fn table_named(&self, name: &str) -> Result<TableId, String> {
        if name == "default" {
            return Ok(TableId::MAIN);
        }
        let table = self.devices.get(name).and_then(|index| self.vrfs.get(index));
        table.copied().ok_or_else(|| format!("there is no VRF device {name}"))
    }

    fn device_named(&self, name: &str) -> Result<u32, String> {
        self.devices.get(name).copied().ok_or_else(|| format!("there is no device {name}"))
    }
}

impl Placed {
    /// Takes over a new snapshot and places its routes.
    pub fn announced(&mut self, snapshot: Arc<Snapshot>, environment: &Environment) {
        self.snapshot = snapshot;
        self.place(Around::of(environment));
    }

    /// Returns the routes as they are placed in this environment.
    pub fn routes(&mut self, environment: &Environment) -> Arc<Vec<KernelRoute>> {
        let around = Around::of(environment);
        if around != self.around {
            self.place(around);
        }
        self.routes.clone()
    }

    /// Returns the serial number of the snapshot.
    pub fn serial(&self) -> u64 {
        self.snapshot.serial
    }

    fn place(&mut self, around: Around) {
        let dialect = self.snapshot.dialect;
        let mut routes = Vec::with_capacity(self.snapshot.routes.len() + self.snapshot.sids.len());
        routes.extend(self.snapshot.sids.iter().map(|(prefix, sid)| local_sid(*prefix, sid, &around)));
        let (all, sids) = (self.snapshot.routes.len(), routes.len());
        let placed = self.snapshot.routes.iter().filter_map(|announced| {
            let table = around.table(announced.key.vrf, dialect)?;
            Some(route(announced, table))
        });
        routes.extend(placed);
        self.nowhere = all - (routes.len() - sids);
        // The main table may have two names, and a SID's prefix may also be announced as a route.
        let mut seen = HashSet::new();
        routes.retain(|route| seen.insert((route.table, route.prefix)));
        (self.routes, self.around) = (Arc::new(routes), around);
    }

    /// Returns which routes came into force.
    pub fn in_force(&self, plan: &Plan) -> InForce {
        let dialect = self.snapshot.dialect;
        let ours = plan.unfollowed.iter().filter(|route| route.source == FPM);
        let key = |route: &srv6d_plan::Unfollowed| RouteKey {
            vrf: self.around.vrf(route.table, dialect),
            prefix: route.prefix,
        };
        let nowhere = self.snapshot.routes.iter().map(|announced| announced.key);
        let nowhere = nowhere.filter(|key| self.nowhere > 0 && self.around.table(key.vrf, dialect).is_none());
        InForce { serial: self.snapshot.serial, without: ours.map(key).chain(nowhere).collect() }
    }
}

fn route(announced: &Announced, table: TableId) -> KernelRoute {
    let prefix = announced.key.prefix;
    let action = match &announced.what {
        what if announced.protocol == KERNEL_PROTOCOL && is_srv6(what) => {
            let why = "zebra found it in the kernel and may not announce all of it: follow the kernel with [kernel]";
            KernelAction::Other(why.to_owned())
        }
        Resolved::Hops(hops) => {
            hops.iter().map(hop).collect::<Result<_, _>>().map_or_else(KernelAction::Other, KernelAction::Via)
        }
        Resolved::Sid(sid) => seg6_local(prefix, sid).map_or_else(KernelAction::Other, KernelAction::Sid),
        Resolved::Blackhole => KernelAction::Blackhole,
        Resolved::Unreachable => KernelAction::Unreachable,
        Resolved::Unusable(why) => KernelAction::Other(why.clone()),
    };
    KernelRoute { table, prefix, metric: 0, protocol: announced.protocol, action }
}

/// Whether a route uses SRv6. zebra 8.4 does not send the flavors of a SID that it found in the kernel, and of several
/// segments it sends only one.
fn is_srv6(what: &Resolved) -> bool {
    match what {
        Resolved::Sid(_) => true,
        Resolved::Hops(hops) => hops.iter().any(|hop| hop.encap.is_some()),
        _ => false,
    }
}

fn hop(hop: &Hop) -> Result<KernelHop, String> {
    let encap = hop.encap.as_ref().map(encap).transpose()?;
    let device = match (hop.device, &encap) {
        (Some(device), _) => device,
        // No device is needed: the next hop is found by the first segment.
        (None, Some(_)) => 0,
        (None, None) => return Err("it names no device".to_owned()),
    };
    Ok(KernelHop { device, via: hop.via, weight: hop.weight, encap })
}

fn encap(encap: &Encap) -> Result<KernelEncap, String> {
    let reduced = match encap.mode {
        EncapMode::Kernel(1) => false,
        EncapMode::Kernel(3) | EncapMode::Sonic => true,
        EncapMode::Kernel(0) => return Err("seg6 mode inline".to_owned()),
        EncapMode::Kernel(other) => return Err(format!("seg6 mode {other}, a layer-2 or unknown one")),
    };
    Ok(KernelEncap { reduced, segments: encap.segments.clone(), source: encap.source })
}

/// Converts a SID in the kernel's form (`linux/seg6_local.h`).
fn seg6_local(prefix: IpNet, sid: &Seg6Local) -> Result<KernelSid, String> {
    let table = TableId(sid.table.unwrap_or(TableId::MAIN.0));
    let action = KernelSidAction::numbered(sid.action, table)?;
    if let Some(kind) = sid.more.first() {
        return Err(format!("seg6local with attribute {kind}"));
    }
    let unknown = sid.flavors & !(PSP | USP | USD | NEXT_CSID);
    if unknown != 0 {
        return Err(format!("flavors {unknown:#x}"));
    }
    let has = |bit| sid.flavors & bit != 0;
    let csid = has(NEXT_CSID).then(|| lengths(prefix, action, sid));
    Ok(KernelSid { action, via: sid.via, device: sid.device, csid, psp: has(PSP), usp: has(USP), usd: has(USD) })
}

fn lengths(prefix: IpNet, action: KernelSidAction, sid: &Seg6Local) -> (u8, u8) {
    let block = sid.block.unwrap_or(DEFAULT_BLOCK_BITS);
    let shift = sid.node_function.unwrap_or(DEFAULT_NODE_FUNCTION_BITS);
    whole_function(prefix, action, (block, shift))
}

fn local_sid(prefix: Ipv6Net, sid: &LocalSid, around: &Around) -> KernelRoute {
    let action = sonic_sid(sid, around).map_or_else(KernelAction::Other, KernelAction::Sid);
    KernelRoute { table: TableId::MAIN, prefix: IpNet::V6(prefix), metric: 0, protocol: 0, action }
}

/// Converts a SID in SONiC's form. SONiC programs End, End.X and uA with PSP and USD, and everything else without
/// flavors.
fn sonic_sid(sid: &LocalSid, around: &Around) -> Result<KernelSid, String> {
    let table = || sid.vrf.as_deref().map_or(Ok(TableId::MAIN), |name| around.table_named(name));
    let micro = (sid.block, sid.node_function);
    let (action, csid, flavored) = match sid.action {
        Some(Action::End(true)) => (KernelSidAction::End, Some(micro), false),
        Some(Action::End(false)) => (KernelSidAction::End, None, true),
        Some(Action::EndX(is_micro)) => (KernelSidAction::EndX, is_micro.then_some(micro), true),
        Some(Action::EndDt4) => (KernelSidAction::EndDt4(table()?), None, false),
        Some(Action::EndDt6) => (KernelSidAction::EndDt6(table()?), None, false),
        Some(Action::EndDt46) => (KernelSidAction::EndDt46(table()?), None, false),
        Some(Action::EndDx4) => (KernelSidAction::EndDx4, None, false),
        Some(Action::EndDx6) => (KernelSidAction::EndDx6, None, false),
        Some(Action::Other(number)) => return Err(format!("SRv6 action {number}")),
        None => return Err("a SID without an action".to_owned()),
    };
    let device = sid.port.as_deref().map(|name| around.device_named(name)).transpose()?;
    let via: Option<IpAddr> = sid.via;
    Ok(KernelSid { action, via, device, csid, psp: flavored, usp: false, usd: flavored })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;
    use srv6d_addresses::Mac;
    use srv6d_plan::Device;

    fn environment() -> Environment {
        let device = |name: &str, ifindex| Device {
            name: name.to_owned(),
            ifindex,
            mac: Mac::default(),
            mtu: 1500,
            up: true,
            addresses: Vec::new(),
        };
        Environment {
            devices: vec![device("eth2", 3), device("Vrf1", 17)],
            vrfs: BTreeMap::from([(17, TableId(1001))]),
            ..Environment::default()
        }
    }

    fn placed(dialect: Dialect, routes: Vec<Announced>, sids: Vec<(Ipv6Net, LocalSid)>) -> Placed {
        let mut placed = Placed::default();
        placed.announced(Arc::new(Snapshot { serial: 1, dialect: Some(dialect), routes, sids }), &environment());
        placed
    }

    fn announced(vrf: Vrf, prefix: &str, what: Resolved) -> Announced {
        Announced { key: RouteKey { vrf, prefix: prefix.parse().unwrap() }, protocol: 196, what }
    }

    fn of_sid(prefix: &str, sid: Seg6Local) -> KernelAction {
        let placed = placed(Dialect::Stock, vec![announced(Vrf::Number(254), prefix, Resolved::Sid(sid))], Vec::new());
        placed.routes.first().unwrap().action.clone()
    }

    #[test]
    fn a_number_is_a_table_to_stock_frr_and_a_device_to_sonic() {
        let of = |number| announced(Vrf::Number(number), "2001:db8::/32", Resolved::Blackhole);
        let tables = |dialect, routes| {
            let placed = placed(dialect, routes, Vec::new());
            (placed.routes.iter().map(|route| route.table.0).collect::<Vec<_>>(), placed.nowhere)
        };
        assert_eq!(tables(Dialect::Stock, vec![of(17), of(254)]), (vec![17, 254], 0));
        assert_eq!(tables(Dialect::Sonic, vec![of(17), of(18)]), (vec![1001], 1));
        let default = announced(Vrf::Default, "2001:db8::/32", Resolved::Blackhole);
        assert_eq!(tables(Dialect::Sonic, vec![default]), (vec![254], 0));
    }

    #[test]
    fn a_vrf_device_that_appears_brings_its_routes() {
        let of = announced(Vrf::Number(18), "2001:db8::/32", Resolved::Blackhole);
        let mut placed = placed(Dialect::Sonic, vec![of], Vec::new());
        assert_eq!(placed.routes(&environment()).len(), 0);
        let mut environment = environment();
        environment.vrfs.insert(18, TableId(1002));
        assert_eq!(placed.routes(&environment).first().unwrap().table, TableId(1002));
        assert_eq!(placed.nowhere, 0);
    }

    #[test]
    fn sonics_sids_have_the_flavors_that_sonic_gives_them() {
        let of = |sid: LocalSid| {
            let placed = placed(Dialect::Sonic, Vec::new(), vec![("fcbb:bbbb:1::/48".parse().unwrap(), sid)]);
            placed.routes.first().unwrap().action.clone()
        };
        let micro = |action| LocalSid { action: Some(action), block: 32, node_function: 16, ..LocalSid::default() };
        let KernelAction::Sid(un) = of(micro(Action::End(true))) else { unreachable!() };
        assert_eq!((un.action, un.csid, un.psp, un.usd), (KernelSidAction::End, Some((32, 16)), false, false));
        let ua = LocalSid { port: Some("eth2".to_owned()), ..micro(Action::EndX(true)) };
        let KernelAction::Sid(ua) = of(ua) else { unreachable!() };
        assert_eq!((ua.device, ua.csid, ua.psp, ua.usd), (Some(3), Some((32, 16)), true, true));
        let in_vrf = |name: &str| LocalSid { vrf: Some(name.to_owned()), ..micro(Action::EndDt46) };
        let KernelAction::Sid(dt) = of(in_vrf("Vrf1")) else { unreachable!() };
        assert_eq!((dt.action, dt.csid), (KernelSidAction::EndDt46(TableId(1001)), None));
        assert_eq!(of(in_vrf("Vrf2")), KernelAction::Other("there is no VRF device Vrf2".to_owned()));
        assert_eq!(of(micro(Action::Other(10))), KernelAction::Other("SRv6 action 10".to_owned()));
    }

    #[test]
    fn a_ua_reached_by_node_and_function_consumes_both() {
        let ua = Seg6Local {
            action: 2,
            flavors: NEXT_CSID,
            block: Some(32),
            node_function: Some(16),
            ..Seg6Local::default()
        };
        let csid = |prefix: &str, sid: &Seg6Local| match of_sid(prefix, sid.clone()) {
            KernelAction::Sid(sid) => sid.csid,
            _ => None,
        };
        assert_eq!(csid("fcbb:bbbb:1:fe24::/64", &ua), Some((32, 32)), "as FRR 10.4 sends it");
        assert_eq!(csid("fcbb:bbbb:fe24::/48", &ua), Some((32, 16)));
        let right = Seg6Local { node_function: Some(32), ..ua };
        assert_eq!(csid("fcbb:bbbb:1:fe24::/64", &right), Some((32, 32)));
        let un = Seg6Local { action: 1, flavors: NEXT_CSID, ..Seg6Local::default() };
        assert_eq!(csid("fcbb:bbbb:1::/128", &un), Some((32, 16)), "what the kernel takes when it is not told");
    }

    #[test]
    fn what_nobody_can_do_is_named() {
        let other = |sid| match of_sid("fcbb:bbbb:1::/48", sid) {
            KernelAction::Other(why) => why,
            _ => String::new(),
        };
        assert_eq!(other(Seg6Local { action: 9, ..Seg6Local::default() }), "seg6local action End.B6");
        assert_eq!(other(Seg6Local { action: 1, more: vec![8], ..Seg6Local::default() }), "seg6local with attribute 8");
        assert_eq!(other(Seg6Local { action: 1, flavors: 0x40, ..Seg6Local::default() }), "flavors 0x40");
    }

    #[test]
    fn srv6_that_zebra_found_in_the_kernel_is_left_there() {
        let found = |what| {
            let mut route = announced(Vrf::Number(254), "2001:db8::/32", what);
            route.protocol = KERNEL_PROTOCOL;
            placed(Dialect::Stock, vec![route], Vec::new()).routes.first().unwrap().action.clone()
        };
        assert!(matches!(
            found(Resolved::Sid(Seg6Local { action: 1, ..Seg6Local::default() })),
            KernelAction::Other(_)
        ));
        assert_eq!(found(Resolved::Blackhole), KernelAction::Blackhole);
    }

    #[test]
    fn a_sid_goes_before_a_route_of_its_prefix() {
        let sid = LocalSid { action: Some(Action::End(true)), block: 32, node_function: 16, ..LocalSid::default() };
        let route = announced(Vrf::Default, "fcbb:bbbb:1::/48", Resolved::Blackhole);
        let placed = placed(Dialect::Sonic, vec![route], vec![("fcbb:bbbb:1::/48".parse().unwrap(), sid)]);
        assert_eq!(placed.routes.len(), 1);
        assert!(matches!(placed.routes.first().unwrap().action, KernelAction::Sid(_)));
        assert_eq!(placed.nowhere, 0);
    }
}
