//! Decides the role of ports that have none in the file: edge, unless a port faces a router of the SRv6 domain.
//!
//! RFC 8754 section 5.1 closes the domain at its edge: no packet from outside may be addressed to a SID. A port
//! without any configuration is outside. Routes tell which ports are inside: a gateway to which packets for SIDs are
//! sent is a node of the domain.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv6Addr;

use ipnet::{IpNet, Ipv6Net};
use srv6d_srv6::desired::{Behavior, Desired, Hop, PortId, Role, RouteAction, TableId};
use srv6d_srv6::prefix_map::PrefixMap;

use srv6d_config::{Config, Findings};

/// The reason for the role of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleReason {
    /// The configuration has a `role` for the port.
    Written,
    /// The port is the veth of srv6d, which has a fixed role.
    OwnVeth,
    /// An entry leads to SIDs through a gateway behind the port.
    FacesRouter {
        /// Name of the entry.
        by: String,
        /// Whether the entry is a learned route, which may come and go, and not one of the file.
        is_learned: bool,
    },
    /// No entry leads there now, but a learned route did at some time since the daemon was started.
    FacedRouter,
    /// Nothing shows that a router of the domain is there.
    FacesNone,
}

impl RoleReason {
    /// Returns true if the port keeps the role when the route goes.
    pub fn is_kept(&self) -> bool {
        matches!(self, Self::FacesRouter { is_learned: true, .. } | Self::FacedRouter)
    }
}

impl fmt::Display for RoleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Written => Ok(()), // the file already has it
            Self::OwnVeth => f.write_str("srv6d's own veth"),
            Self::FacesRouter { by, .. } => {
                write!(f, "no role is configured, and {by} leads to SIDs through a gateway there")
            }
            Self::FacedRouter => {
                f.write_str("no role is configured, and a learned route led to SIDs through a gateway there")
            }
            Self::FacesNone => {
                f.write_str("no role is configured, and no route leads to SIDs through a gateway there: closed")
            }
        }
    }
}

/// Gives every port without a written role the one that the routes imply. `faced` are ports that a learned route has
/// left by earlier.
pub(super) fn decide(config: &Config, faced: &BTreeSet<String>, desired: &mut Desired) -> Vec<RoleReason> {
    let mut facing = facing(config, desired);
    let mut reasons = Vec::with_capacity(desired.ports.len());
    for (index, port) in desired.ports.iter_mut().enumerate() {
        let reason = match (config.ports.get(index), facing.get_mut(index).and_then(Option::take)) {
            (None, _) => RoleReason::OwnVeth,
            (Some(written), _) if written.get_ref().role.is_some() => RoleReason::Written,
            (_, Some(reason)) => reason,
            _ if faced.contains(&port.name) => RoleReason::FacedRouter,
            _ => RoleReason::FacesNone,
        };
        if matches!(reason, RoleReason::FacesRouter { .. } | RoleReason::FacedRouter) {
            port.role = Role::Fabric;
        }
        reasons.push(reason);
    }
    reasons
}

/// Returns, for each port, the entry that leads to SIDs through a gateway behind it. An entry of the file takes
/// precedence over a learned one.
fn facing(config: &Config, desired: &Desired) -> Vec<Option<RoleReason>> {
    let mut facing: Vec<Option<RoleReason>> = vec![None; desired.ports.len()];
    let mut note = |hops: &[Hop], is_learned: bool, by: &dyn Fn() -> String| {
        for PortId(port) in hops.iter().filter(|hop| hop.via.is_some()).map(|hop| hop.port) {
            let Some(known) = facing.get_mut(usize::from(port)) else { continue };
            if known.is_none() || !is_learned && known.as_ref().is_some_and(RoleReason::is_kept) {
                *known = Some(RoleReason::FacesRouter { by: by(), is_learned });
            }
        }
    };
    let domain = DomainPrefixes::of(desired);
    let segments: BTreeSet<Ipv6Addr> =
        desired.steers.iter().flat_map(|steer| &steer.paths).map(|path| path.segments.first()).collect();
    let written: BTreeSet<IpNet> = config.routes.iter().map(|route| *route.get_ref().prefix.get_ref()).collect();
    for route in desired.routes.iter().filter(|route| route.table == TableId::MAIN) {
        if let (RouteAction::Via(hops), IpNet::V6(prefix)) = (&route.action, route.prefix)
            && domain.is_led_to(&segments, prefix)
        {
            note(hops, !written.contains(&route.prefix), &|| format!("the route to {prefix}"));
        }
    }
    let written: BTreeSet<IpNet> = config.steers.iter().map(|steer| *steer.get_ref().prefix.get_ref()).collect();
    for steer in &desired.steers {
        for path in &steer.paths {
            note(&path.via, !written.contains(&steer.prefix), &|| format!("the path {}", path.name));
        }
    }
    let written: BTreeSet<Ipv6Net> = config.sids.iter().map(|sid| *sid.get_ref().sid.get_ref()).collect();
    for sid in &desired.sids {
        if let Behavior::EndX { via, .. } = &sid.behavior {
            note(via, !written.contains(&sid.prefix), &|| format!("the SID {}", sid.prefix));
        }
    }
    facing
}

/// The blocks, and the subnets of hosts inside of them.
struct DomainPrefixes {
    blocks: PrefixMap<()>,
    hosts: PrefixMap<()>,
}

impl DomainPrefixes {
    fn of(desired: &Desired) -> Self {
        Self {
            blocks: desired.blocks.iter().map(|block| (block.prefix, ())).collect(),
            hosts: desired.host_prefixes.iter().map(|hosts| (*hosts, ())).collect(),
        }
    }

    /// Returns true if a prefix covers a block, lies in one without being a host's, or contains the first segment of
    /// a path. A default route covers everything.
    fn is_led_to(&self, segments: &BTreeSet<Ipv6Addr>, prefix: Ipv6Net) -> bool {
        let is_of_hosts = self.hosts.around(prefix).next().is_some();
        let meets_block = || self.blocks.around(prefix).chain(self.blocks.inside(prefix)).next().is_some();
        let holds_segment = || segments.range(prefix.network()..=prefix.broadcast()).next().is_some();
        !is_of_hosts && (prefix.prefix_len() == 0 || meets_block() || holds_segment())
    }
}

/// Warns about ports that are edge ports only because nothing is configured for them, on a node with SIDs. That is
/// perhaps not what was meant.
pub(super) fn report(config: &Config, desired: &Desired, roles: &[RoleReason], found: &mut Findings) {
    if desired.sids.is_empty() && desired.blocks.is_empty() {
        return;
    }
    let ports = config.ports.iter().zip(roles).filter(|(_, reason)| **reason == RoleReason::FacesNone);
    for (port, _) in ports {
        let port = port.get_ref();
        let name = port.name.get_ref();
        let what = format!("{name} is an edge: no role is written, and no route leads to SIDs through a gateway there");
        let fix = "write role = \"edge\" or \"host\" if that is right, role = \"fabric\" if a node of the SRv6 domain is there";
        found.warning(port.name.span(), "[[port]] role", what, fix);
    }
}
