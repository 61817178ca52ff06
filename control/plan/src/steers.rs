//! Plans `[[steer]]`: the paths, and the checks that prevent a policy from encapsulating its own packets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;

use ipnet::IpNet;
use srv6d_srv6::carrier::{CarrierError, MAX_SEGMENTS, SegmentList};
use srv6d_srv6::desired::{Hop, Path, Steer, TableId};
use toml::Spanned;

use super::Context;
use super::environment::is_link_local;
use super::hops::{HopFamily, HopRule};
use super::node::{or, outer_source};
use super::owners::{Owner, Owners};
use srv6d_config::{self as config, Findings, PathKeys, SteerMode};

/// Smallest MTU of an IPv6 link (RFC 8200 section 5), which every inner packet may rely on.
const IPV6_MIN_MTU: u32 = 1280;

const STEER_FIX: &str = "steer a unicast prefix that is routed";
const SOURCE_FIX: &str = "add `source = ...` under [node], or here: a global address of this node";

/// Records the owners of all steered prefixes before any path is resolved, because a path may run into another
/// policy. Returns, for each `[[steer]]`, whether it owns its prefix.
pub(super) fn record_owners(context: &Context<'_>, owners: &mut Owners, found: &mut Findings) -> Vec<bool> {
    let mut owns = Vec::new();
    for written in &context.config.steers {
        let table = written.get_ref();
        refuse_link_scope(&table.prefix, found);
        let key = (or(&table.table, TableId::MAIN), *table.prefix.get_ref());
        owns.push(owners.record(key, Owner::Steer, table.prefix.span(), found));
    }
    owns
}

pub(super) fn refuse_link_scope(prefix: &Spanned<IpNet>, found: &mut Findings) {
    let address = prefix.get_ref().addr();
    if is_link_local(address) || address.is_multicast() {
        let what = format!("{} is never encapsulated: link-local and multicast belong to the link", prefix.get_ref());
        found.error(prefix.span(), "[[steer]] prefix", what, STEER_FIX);
    } else if is_never_routed(prefix.get_ref()) {
        let what =
            format!("{} is never encapsulated: no packet with such a destination is forwarded", prefix.get_ref());
        found.error(prefix.span(), "[[steer]] prefix", what, STEER_FIX);
    }
}

/// Returns whether all addresses of a prefix are loopback or unspecified ones, the limited broadcast, or IPv4 addresses written
/// as IPv6 ones (RFC 6890).
fn is_never_routed(prefix: &IpNet) -> bool {
    match prefix {
        IpNet::V4(v4) => {
            let (address, len) = (v4.network(), v4.prefix_len());
            (address.is_loopback() || address.octets()[0] == 0) && len >= 8 || address.is_broadcast() && len == 32
        }
        IpNet::V6(v6) => {
            let (address, len) = (v6.network(), v6.prefix_len());
            (address.is_loopback() || address.is_unspecified()) && len == 128
                || address.to_ipv4_mapped().is_some() && len >= 96
        }
    }
}

/// Names of paths, which their counters use, each with the entry that gave it.
pub(super) type Names = BTreeMap<String, String>;

pub(super) fn steers(
    context: &Context<'_>,
    owns: &[bool],
    owners: &Owners,
    names: &mut Names,
    found: &mut Findings,
) -> Vec<Steer> {
    let mut steers = Vec::new();
    for (written, owns) in context.config.steers.iter().zip(owns) {
        steers.extend(resolve(context, written, owners, names, false, found).filter(|_| *owns));
    }
    steers
}

/// Resolves the paths of a steered prefix. With `own_table_first`, the first segment is looked up in the table of the
/// prefix before the main table, as the kernel does for packets that a VRF receives. Returns `None` if the prefix is
/// refused, or none of its paths resolves yet. All problems have been reported.
pub(super) fn resolve(
    context: &Context<'_>,
    written: &Spanned<config::Steer>,
    owners: &Owners,
    names: &mut Names,
    own_table_first: bool,
    found: &mut Findings,
) -> Option<Steer> {
    let steer = written.get_ref();
    let source = outer_source(steer.source.as_ref(), "[[steer]] source", context.environment, found);
    let has_source = || context.lookups.ports_have_source(context.config);
    if source.is_none() && context.config.node.source.is_none() && !has_source() {
        let what = format!("{} has no outer source address", steer.prefix.get_ref());
        found.error(written.span(), "[[steer]]", what, SOURCE_FIX);
    }
    let mut paths = Vec::new();
    for path in written_paths(written, found) {
        check_name(&path, names, found);
        let resolve = Resolve { context, owners, steer, own_table_first };
        paths.extend(resolve.path(path, source, found));
    }
    let (table, prefix) = (or(&steer.table, TableId::MAIN), *steer.prefix.get_ref());
    (!paths.is_empty()).then_some(Steer { table, prefix, paths })
}

/// One path as it is written, with its own or generated name.
struct WrittenPath<'a> {
    name: String,
    weight: u16,
    route: &'a PathKeys,
    span: Range<usize>,
}

fn written_paths<'a>(written: &'a Spanned<config::Steer>, found: &mut Findings) -> Vec<WrittenPath<'a>> {
    let steer = written.get_ref();
    let one = &steer.path;
    let has_keys = !one.nexthops.is_empty() || one.hop.via.is_some() || one.hop.port.is_some();
    if !steer.paths.is_empty() && (!one.segments.is_empty() || has_keys) {
        let fix = "move `segments`, `via`, `port` and `nexthops` into an item of `paths`";
        found.error(written.span(), "[[steer]]", "has both `paths` and keys of a single path", fix);
    }
    if steer.paths.is_empty() {
        let name = steered_name(steer);
        return vec![WrittenPath { name, weight: 1, route: one, span: written.span() }];
    }
    let path = |(path, name): (&'a Spanned<config::SteerPath>, String)| WrittenPath {
        name,
        weight: or(&path.get_ref().weight, 1),
        route: &path.get_ref().path,
        span: path.span(),
    };
    steer.paths.iter().zip(path_names(steer)).map(path).collect()
}

/// Returns the names of the paths of `paths`, their own or generated ones.
pub(super) fn path_names(steer: &config::Steer) -> impl Iterator<Item = String> {
    let prefix = steered_name(steer);
    let names = steer.paths.iter().map(|path| path.get_ref().name.as_ref());
    (1..)
        .zip(names)
        .map(move |(number, name)| name.map_or_else(|| format!("{prefix}#{number}"), |name| name.get_ref().clone()))
}

/// Returns the name of a steered prefix. A prefix may be steered in several tables, and the names of its paths must differ.
pub(super) fn steered_name(steer: &config::Steer) -> String {
    match or(&steer.table, TableId::MAIN) {
        TableId::MAIN => steer.prefix.get_ref().to_string(),
        TableId(table) => format!("{}@{table}", steer.prefix.get_ref()),
    }
}

fn check_name(path: &WrittenPath<'_>, names: &mut Names, found: &mut Findings) {
    let place = if path.span.is_empty() { "a source".to_owned() } else { found.line_of(&path.span) };
    if let Some(earlier) = names.insert(path.name.clone(), place) {
        let what = format!("{:?} is already the name of the path in {earlier}", path.name);
        let fix = "give every path a `name` of its own: its counters use it";
        found.error(path.span.clone(), "[[steer]] paths name", what, fix);
    }
}

/// The inputs for resolving a path.
struct Resolve<'a> {
    context: &'a Context<'a>,
    owners: &'a Owners,
    steer: &'a config::Steer,
    own_table_first: bool,
}

impl Resolve<'_> {
    /// Returns `None` if the path is refused, or its first hop does not resolve yet. Both have been reported.
    fn path(&self, written: WrittenPath<'_>, source: Option<Ipv6Addr>, found: &mut Findings) -> Option<Path> {
        let WrittenPath { name, weight, route, span } = written;
        let segments = self.segments(route, &span, found);
        let rule = HopRule { family: HopFamily::V6, on_link: true };
        let hops = self.context.ports.hops(("[[steer]]", span.clone()), &route.hop, &route.nexthops, rule, found);
        let segments = segments?;
        let first_span = route.segments.first().map_or(span, Spanned::span);
        let mut via = hops.resolved;
        let egress = if hops.written {
            self.refuse_own_sid(&segments, &first_span, found)?;
            via.clone()
        } else if let Some(own) = self.own_route(&segments) {
            self.refuse_own_sid(&segments, &first_span, found)?;
            via = own.to_vec();
            via.clone()
        } else {
            self.first_hop(&segments, &first_span, found)?
        };
        if egress.is_empty() && hops.written {
            return None;
        }
        let full_srh = or(&self.steer.mode, SteerMode::EncapRed) == SteerMode::Encap;
        self.check_mtu(&egress, header_cost(segments.addresses().len(), full_srh), &first_span, found);
        if source.is_none() {
            self.check_port_sources(&egress, &first_span, found);
        }
        Some(Path { name, segments, full_srh, weight, source, via })
    }

    fn segments(&self, route: &PathKeys, span: &Range<usize>, found: &mut Findings) -> Option<SegmentList> {
        let addresses: Vec<Ipv6Addr> = route.segments.iter().map(|segment| *segment.get_ref()).collect();
        let blocks = self.context.lookups.carrier_blocks(self.context.config, &addresses);
        let refusal = match SegmentList::new(addresses, &blocks) {
            Ok(list) => return Some(list),
            Err(refusal) => refusal,
        };
        let (culprit, fix) = match &refusal {
            CarrierError::Empty(carrier) => {
                (Some(*carrier), "add the uSIDs behind the block, e.g. \"fcbb:0:1004:fe06::\"".into())
            }
            CarrierError::ZeroInside { carrier, .. } => {
                (Some(*carrier), "leave the 0 out, or begin another segment behind it".into())
            }
            CarrierError::NotUnicast(segment) => (Some(*segment), "write a SID or a carrier".into()),
            CarrierError::NoSegments => (None, "add `segments = [\"fcbb:0:1004:fe06::\"]`".into()),
            CarrierError::TooManySegments(_) => (
                route.segments.get(MAX_SEGMENTS).map(|segment| *segment.get_ref()),
                format!("use at most {MAX_SEGMENTS} segments: pack up to six uSIDs into each carrier"),
            ),
            _ => (None, "write SIDs or carriers of the block".to_owned()),
        };
        let at = route.segments.iter().find(|segment| Some(*segment.get_ref()) == culprit);
        let span = at.or(route.segments.first()).map_or_else(|| span.clone(), Spanned::span);
        found.error(span, "[[steer]] segments", refusal.to_string(), fix);
        None
    }

    /// Refuses a path whose first segment is a SID of this node: a tunnel whose exit is its own entry (RFC 2473
    /// section 4.1.2).
    fn refuse_own_sid(&self, segments: &SegmentList, span: &Range<usize>, found: &mut Findings) -> Option<()> {
        let first = segments.first();
        if let Some((sid, Owner::Sid, at)) = self.owners.lookup(IpAddr::V6(first)) {
            let place = if at.is_empty() { "a route of the kernel".to_owned() } else { found.line_of(&at) };
            let what = format!(
                "the list starts with {first}, which is this node's own SID {sid} ({place}): packets would come back at once"
            );
            found.error(span.clone(), "[[steer]] segments", what, "begin with the next node's SID");
            return None;
        }
        Some(())
    }

    /// Returns the next hops of the route to the first segment in the steered prefix's own table, if that is looked
    /// up first.
    fn own_route(&self, segments: &SegmentList) -> Option<&[Hop]> {
        let table = or(&self.steer.table, TableId::MAIN);
        let is_asked = self.own_table_first && table != TableId::MAIN;
        self.owners.route_in(table, IpAddr::V6(segments.first())).filter(|_| is_asked)
    }

    /// Returns the next hops of the route to the first segment. The outer packet follows that route without another
    /// look-up, so a policy loops only if the longest match of its own first hop is a policy.
    fn first_hop(&self, segments: &SegmentList, span: &Range<usize>, found: &mut Findings) -> Option<Vec<Hop>> {
        self.refuse_own_sid(segments, span, found)?;
        let first = segments.first();
        match self.owners.lookup(IpAddr::V6(first)) {
            Some((prefix, Owner::Route(hops), _)) => {
                if hops.is_empty() {
                    let what = format!("the route {prefix} to the first segment {first} does not forward");
                    found.warning(span.clone(), "[[steer]]", what, "give the path `via` and `port`");
                }
                self.refuse_steered_next_hops(hops, span, found)?;
                Some(hops.clone())
            }
            Some((prefix, _, _)) => {
                self.self_loop(prefix, IpAddr::V6(first), "first segment", span, found);
                None
            }
            None => {
                let fix = format!(
                    "add [[route]] prefix = \"{}\" with `via`, or give the path `via` and `port`",
                    usid_prefix(first)
                );
                found.pending(
                    span.clone(),
                    "[[steer]]",
                    format!("waits for a route to the first segment {first}"),
                    fix,
                );
                None
            }
        }
    }

    /// Refuses a next hop that is itself steered: a packet that is sent to it from elsewhere would circle.
    fn refuse_steered_next_hops(&self, hops: &[Hop], span: &Range<usize>, found: &mut Findings) -> Option<()> {
        for hop in hops {
            let Some(via) = hop.via.filter(|&via| !is_link_local(via)) else { continue };
            let port = self.context.ports.written.get(usize::from(hop.port.0));
            // Without the device, the connected prefix that would match is not known.
            let known = port.is_some_and(|port| port.layer3.is_some());
            if let (true, Some((prefix, owner, _))) = (known, self.owners.lookup(via))
                && owner.is_policy()
            {
                self.self_loop(prefix, via, "next hop", span, found);
                return None;
            }
        }
        Some(())
    }

    /// Reports a path into its own policy. While a port is down its routes are missing, and a policy for all
    /// destinations covers them: that is only pending.
    fn self_loop(&self, prefix: IpNet, first_hop: IpAddr, kind: &str, span: &Range<usize>, found: &mut Findings) {
        let environment_known = !self.context.environment.devices.is_empty();
        let port_down = environment_known && !self.context.ports.all_up();
        if port_down || self.owners.waits_for_route(first_hop) {
            let what = format!("waits for a route to the path's own {kind} {first_hop}");
            found.pending(span.clone(), "[[steer]]", what, "");
            return;
        }
        let what = format!(
            "the steered prefix {prefix} covers the path's own {kind} {first_hop}: packets would be encapsulated in a circle"
        );
        let fix = "give the path `via` and `port`, or add a [[route]] that is longer than the steered prefix";
        found.error(span.clone(), "[[steer]] prefix", what, fix);
    }

    /// Checks that each port a path leaves through has a source, if only ports have one.
    fn check_port_sources(&self, egress: &[Hop], span: &Range<usize>, found: &mut Findings) {
        let config = self.context.config;
        let said_already = config.node.source.is_some() || !self.context.lookups.ports_have_source(config);
        if said_already {
            return;
        }
        for hop in egress {
            let port = config.ports.get(usize::from(hop.port.0)).map(Spanned::get_ref);
            if let Some(port) = port.filter(|port| port.source.is_none()) {
                let what =
                    format!("the path leaves through {}, which has no outer source address", port.name.get_ref());
                found.error(span.clone(), "[[steer]] source", what, SOURCE_FIX);
            }
        }
    }

    /// Checks that every inner packet of 1280 bytes fits behind the outer header, because the outer packet is never
    /// fragmented.
    fn check_mtu(&self, egress: &[Hop], cost: u32, span: &Range<usize>, found: &mut Findings) {
        let ports: BTreeSet<_> = egress.iter().map(|hop| hop.port).collect();
        for id in ports {
            let Some(port) = self.context.ports.written.get(usize::from(id.0)) else { continue };
            let Some(device) = port.device.filter(|device| device.mtu < IPV6_MIN_MTU + cost) else { continue };
            let needed = IPV6_MIN_MTU + cost;
            let what = format!(
                "port {} has MTU {}, but an inner packet of 1280 bytes with {cost} bytes of outer header needs {needed}",
                port.name, device.mtu
            );
            found.error(span.clone(), "[[steer]]", what, format!("ip link set {} mtu {needed}", device.name));
        }
    }
}

/// Number of bytes that encapsulation adds (RFC 8754 section 2): the IPv6 header, and an SRH unless the only segment
/// is left out of it.
fn header_cost(segments: usize, full_srh: bool) -> u32 {
    let listed = u32::try_from(segments).unwrap_or(u32::MAX / 32).saturating_sub(u32::from(!full_srh));
    if listed == 0 { 40 } else { 40 + 8 + 16 * listed }
}

/// Returns the prefix of the first uSID of a carrier (F3216).
fn usid_prefix(carrier: std::net::Ipv6Addr) -> IpNet {
    let whole = IpNet::from(IpAddr::V6(carrier));
    IpNet::new(IpAddr::V6(carrier), 48).map_or(whole, |prefix| prefix.trunc())
}
