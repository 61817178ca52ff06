//! Plans `[[block]]` and `[[sid]]`.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::Range;

use ipnet::{IpNet, Ipv6Net};
use srv6d_srv6::desired::{
    Behavior, Block, Csid, DscpMode, DtFamily, Flavors, Hop, LocalSid, Mac, TableId, UnknownSid,
};
use srv6d_srv6::prefix_map::PrefixMap;
use toml::Spanned;

use super::Context;
use super::environment::is_link_local;
use super::hops::{HopFamily, HopRule, Hops};
use super::node::or;
use super::owners::{Owner, Owners};
use srv6d_config::{self as config, Config, Findings, Flavor, InnerDscp, SidBehavior, Unknown};

pub(super) fn blocks(config: &Config, found: &mut Findings) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut first: HashMap<Ipv6Net, Range<usize>> = HashMap::new();
    for written in &config.blocks {
        let table = written.get_ref();
        match first.entry(*table.prefix.get_ref()) {
            Entry::Occupied(earlier) => {
                let what = format!("{} is already a block in {}", earlier.key(), found.line_of(earlier.get()));
                found.error(table.prefix.span(), "[[block]] prefix", what, "keep one of the two");
            }
            Entry::Vacant(place) => drop(place.insert(written.span())),
        }
        let unknown = match or(&table.unknown, Unknown::Drop) {
            Unknown::Drop => Some(UnknownSid::Drop),
            Unknown::Icmp => Some(UnknownSid::Icmp),
            Unknown::Punt => Some(UnknownSid::Punt),
            Unknown::Route => None,
        };
        blocks.push(Block { prefix: *table.prefix.get_ref(), unknown });
    }
    blocks
}

/// Returns the subnets of hosts inside the blocks. A subnet of hosts contains no SID of this node.
pub(super) fn host_prefixes(config: &Config, found: &mut Findings) -> Vec<Ipv6Net> {
    let mut prefixes = Vec::new();
    let sids: PrefixMap<Range<usize>> =
        config.sids.iter().map(|sid| &sid.get_ref().sid).map(|sid| (*sid.get_ref(), sid.span())).collect();
    for block in config.blocks.iter().map(Spanned::get_ref) {
        for written in &block.hosts {
            let (prefix, block) = (*written.get_ref(), block.prefix.get_ref());
            if !block.contains(&prefix) || prefix == *block {
                let what = format!("{prefix} is not inside the block {block}");
                let fix = "write a longer prefix inside of the block, or remove it: other prefixes are open anyway";
                found.error(written.span(), "[[block]] hosts", what, fix);
            }
            if let Some((sid, at)) = sids.around(prefix).chain(sids.inside(prefix)).next() {
                let what = format!("the SID {sid} in {} is not a host's", found.line_of(at));
                let fix =
                    "keep SIDs and subnets of hosts apart: edge and host ports may send to hosts, and not to SIDs";
                found.error(written.span(), "[[block]] hosts", what, fix);
            }
            prefixes.push(prefix);
        }
    }
    prefixes
}

pub(super) fn sids(
    context: &Context<'_>,
    blocks: &[Block],
    owners: &mut Owners,
    found: &mut Findings,
) -> Vec<LocalSid> {
    let mut sids = Vec::new();
    let mut by_prefix = PrefixMap::default();
    for (number, block) in blocks.iter().enumerate() {
        by_prefix.insert_first(block.prefix, number);
    }
    for written in &context.config.sids {
        let sid = written.get_ref();
        let prefix = *sid.sid.get_ref();
        let owns = owners.record((TableId::MAIN, IpNet::V6(prefix)), Owner::Sid, sid.sid.span(), found);
        check_keys(written, found);
        check_block(sid, &by_prefix, found);
        let Some(behavior) = behavior(context, written, found) else { continue };
        if owns {
            sids.push(LocalSid { prefix, behavior, flavors: flavors(sid) });
        }
    }
    sids
}

fn flavors(sid: &config::Sid) -> Flavors {
    let has = |flavor| sid.flavors.iter().any(|written| *written.get_ref() == flavor);
    Flavors { psp: has(Flavor::Psp), usp: has(Flavor::Usp), usd: has(Flavor::Usd) }
}

/// Refuses keys that have no meaning for a behaviour.
fn check_keys(written: &Spanned<config::Sid>, found: &mut Findings) {
    use SidBehavior as B;
    let sid = written.get_ref();
    let behavior = *sid.behavior.get_ref();
    let ends = matches!(behavior, B::UN | B::End);
    let adjacent = matches!(behavior, B::UA | B::EndX);
    let cross_connects = matches!(behavior, B::UDX4 | B::UDX6 | B::EndDX4 | B::EndDX6);
    let looks_up = !ends && !adjacent && !cross_connects;
    let usid = behavior.keyword().starts_with('u');
    let mut only_for = |key: &str, span: Option<Range<usize>>, applies: bool, owners: &str| {
        if let Some(span) = span.filter(|_| !applies) {
            let what = format!("has no meaning for {}: it belongs to {owners}", behavior.keyword());
            found.error(span, &format!("[[sid]] {key}"), what, format!("remove `{key}`"));
        }
    };
    let lengths = "uN, uA and the other u behaviours";
    only_for("lblen", sid.lblen.as_ref().map(Spanned::span), usid, lengths);
    only_for("nflen", sid.nflen.as_ref().map(Spanned::span), usid, lengths);
    only_for("flavors", sid.flavors.first().map(Spanned::span), ends || adjacent, "uN, uA, End and End.X");
    only_for("table", sid.table.as_ref().map(Spanned::span), looks_up, "uDT4, uDT6, uDT46 and End.DT*");
    only_for("dscp", sid.dscp.as_ref().map(Spanned::span), looks_up || ends, "uN, End, uDT* and End.DT*");
    let crossing = "uA, uDX*, End.X and End.DX*";
    only_for("via", sid.hop.via.as_ref().map(Spanned::span), adjacent || cross_connects, crossing);
    only_for("port", sid.hop.port.as_ref().map(Spanned::span), adjacent || cross_connects, crossing);
    only_for("nexthops", sid.nexthops.first().map(Spanned::span), adjacent || cross_connects, crossing);
    only_for("backup", sid.backup.first().map(Spanned::span), adjacent, "uA and End.X");
}

/// Checks a SID against the blocks, each with its number in the file.
fn check_block(sid: &config::Sid, blocks: &PrefixMap<usize>, found: &mut Findings) {
    let (prefix, span) = (*sid.sid.get_ref(), sid.sid.span());
    if let Some((block, _)) = blocks.inside(prefix).next() {
        let what = format!("{prefix} is the whole block {block} or more: no room is left for its node");
        found.error(span, "[[sid]] sid", what, "write a longer prefix: block, node and function, e.g. a /48");
        return;
    }
    let Some((block, _)) = blocks.around(prefix).min_by_key(|(_, number)| **number) else {
        let fix = "add a [[block]]: without one nothing guards the SIDs of the block at edge ports";
        found.warning(span, "[[sid]] sid", format!("{prefix} lies outside of every [[block]]"), fix);
        return;
    };
    let (lblen, length) = (or(&sid.lblen, 32), block.prefix_len());
    if sid.behavior.get_ref().keyword().starts_with('u') && lblen != length {
        let what = format!("lblen {lblen} does not fit the block {block}");
        let at = sid.lblen.as_ref().map_or(span, Spanned::span);
        found.warning(at, "[[sid]] lblen", what, format!("write lblen = {length}"));
    }
}

/// Returns `None` if the SID is refused, or no next hop resolves yet. Both have been reported.
fn behavior(context: &Context<'_>, written: &Spanned<config::Sid>, found: &mut Findings) -> Option<Behavior> {
    use SidBehavior as B;
    let sid = written.get_ref();
    let dscp = match or(&sid.dscp, InnerDscp::Pipe) {
        // The inner DSCP stays at decapsulation, so the value is not used.
        InnerDscp::Pipe => DscpMode::Pipe(0),
        InnerDscp::Uniform => DscpMode::Uniform,
    };
    let table = or(&sid.table, TableId::MAIN);
    let csid = csid(sid, found);
    let dt = |family| Some(Behavior::EndDt { family, table, dscp });
    match *sid.behavior.get_ref() {
        B::UN => Some(Behavior::End { csid: Some(csid?), dscp }),
        B::End => Some(Behavior::End { csid: None, dscp }),
        B::UA => end_x(context, written, csid, found),
        B::EndX => end_x(context, written, None, found),
        B::UDT4 | B::EndDT4 => dt(DtFamily::V4),
        B::UDT6 | B::EndDT6 => dt(DtFamily::V6),
        B::UDT46 | B::EndDT46 => dt(DtFamily::V46),
        B::UDX4 | B::EndDX4 => end_dx(context, written, DtFamily::V4, found),
        B::UDX6 | B::EndDX6 => end_dx(context, written, DtFamily::V6, found),
    }
}

/// Returns the lengths of a NEXT-CSID shift. iproute2 refuses the same lengths with the same messages.
fn csid(sid: &config::Sid, found: &mut Findings) -> Option<Csid> {
    if !sid.behavior.get_ref().keyword().starts_with('u') {
        return None;
    }
    let prefix_len = sid.sid.get_ref().prefix_len();
    let lblen = or(&sid.lblen, 32);
    let nflen = or(&sid.nflen, prefix_len.saturating_sub(lblen));
    let span = sid.nflen.as_ref().or(sid.lblen.as_ref()).map_or_else(|| sid.sid.span(), Spanned::span);
    let fits = |bits: u8| bits != 0 && bits.is_multiple_of(8);
    if !fits(lblen) || !fits(nflen) || u16::from(lblen) + u16::from(nflen) > 128 {
        let what = format!("Invalid Locator Block/Node Function lengths: lblen {lblen}, nflen {nflen}");
        let fix = "write multiples of 8 with a sum of at most 128, e.g. lblen = 32, nflen = 16 for a /48 SID";
        found.error(span, "[[sid]] lblen/nflen", what, fix);
        return None;
    }
    if lblen + nflen != prefix_len {
        let what = format!("lblen {lblen} + nflen {nflen} is not the prefix length {prefix_len}");
        let fix = format!("write nflen = {}", prefix_len.saturating_sub(lblen));
        found.warning(span, "[[sid]] lblen/nflen", what, fix);
    }
    Some(Csid { lblen, nflen })
}

fn end_x(
    context: &Context<'_>,
    written: &Spanned<config::Sid>,
    csid: Option<Csid>,
    found: &mut Findings,
) -> Option<Behavior> {
    let rule = HopRule { family: HopFamily::V6, on_link: false };
    let sid = written.get_ref();
    let via = match (&sid.hop.via, &sid.hop.port) {
        (None, Some(port)) if sid.nexthops.is_empty() => only_neighbor(context, port, found).into_iter().collect(),
        _ => adjacency(context, written, rule, found).resolved,
    };
    let backup = context.ports.list("[[sid]] backup", &sid.backup, rule, found);
    (!via.is_empty()).then_some(Behavior::EndX { csid, via, backup })
}

/// Returns the neighbour on a port for a SID that names no address: the only station there, by its link-local address
/// if that is known. Returns `None` if there is none yet, or more than one, which has been reported.
fn only_neighbor(context: &Context<'_>, name: &Spanned<String>, found: &mut Findings) -> Option<Hop> {
    let port = context.ports.named(name, "[[sid]] port", found)?;
    let device = context.ports.written.get(usize::from(port.0)).and_then(|written| written.layer3);
    let of_kernel = device.map_or(&[][..], |device| context.lookups.resolved_on(context.environment, &device.name));
    let written = context.lookups.written_on(context.config, name.get_ref());
    let stations: BTreeMap<IpAddr, Mac> =
        of_kernel.iter().chain(written).filter(|(address, _)| address.is_ipv6()).copied().collect();
    let macs: BTreeSet<Mac> = stations.values().copied().collect();
    if macs.len() != 1 {
        let what = match macs.len() {
            0 => format!("waits for a neighbour on {}", name.get_ref()),
            several => format!("waits: {several} neighbours are on {}", name.get_ref()),
        };
        found.pending(name.span(), "[[sid]] port", what, "add `via = ...`: the address of the neighbour that is meant");
        return None;
    }
    let link_local = stations.keys().find(|address| is_link_local(**address));
    link_local.or_else(|| stations.keys().next()).map(|&via| Hop { port, via: Some(via), weight: 1 })
}

fn end_dx(
    context: &Context<'_>,
    written: &Spanned<config::Sid>,
    family: DtFamily,
    found: &mut Findings,
) -> Option<Behavior> {
    let hop_family = if family == DtFamily::V4 { HopFamily::V4 } else { HopFamily::V6 };
    let via = adjacency(context, written, HopRule { family: hop_family, on_link: true }, found);
    (!via.resolved.is_empty()).then_some(Behavior::EndDx { family, via: via.resolved })
}

fn adjacency(context: &Context<'_>, written: &Spanned<config::Sid>, rule: HopRule, found: &mut Findings) -> Hops {
    let sid = written.get_ref();
    let hops = context.ports.hops(("[[sid]]", written.span()), &sid.hop, &sid.nexthops, rule, found);
    if !hops.written {
        let what = format!("{} needs a next hop", sid.behavior.get_ref().keyword());
        let fix = "add `via = \"fe80::2\"` and `port = \"eth1\"`, or `nexthops = [...]`";
        found.error(sid.behavior.span(), "[[sid]]", what, fix);
    }
    hops
}
