//! Steered prefixes that sources offer: judged by the rules of `[[steer]]`, each by itself. What does not fit is left
//! out and named; neither the file nor another offer is touched by it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use srv6d_srv6::model::{Block, Steer, TableId};

use super::Context;
use super::fib::{Fib, Owner};
use super::steers::{Names, refuse_link_scope, resolve};
use crate::config::{self, Diagnostic, Findings, OneHop, SegmentRoute, Spanned, SteerMode, SteerPath};
use crate::source::{Offer, OfferedPath, OfferedSteer, Outcome, OutcomeState};

/// One offered prefix, as if it stood in a file of its own.
pub(super) struct Entry<'o> {
    source: &'o str,
    steer: &'o OfferedSteer,
    written: Spanned<config::Steer>,
    refused: Option<String>,
}

/// Notes the owners of all offered prefixes before any path is resolved: a path may run into another policy.
pub(super) fn claim<'o>(context: &Context<'_>, offers: &[&'o Offer], fib: &mut Fib) -> Vec<Entry<'o>> {
    let first_hops = first_hops(context, offers, fib);
    let steers = offers.iter().flat_map(|offer| offer.steers.iter().map(|steer| (offer.source.as_str(), steer)));
    let mut entries = Vec::new();
    for (source, steer) in steers {
        // The file's text: what is said about one of its lines stays true.
        let mut found = Findings::new(context.config.source.clone());
        let written = nowhere(written(steer));
        refuse_link_scope(&written.get_ref().prefix, &mut found);
        let key = (TableId(steer.table), steer.prefix);
        let refused = captured(&first_hops, key).or_else(|| {
            fib.claim(key, Owner::Offered(source.to_owned()), 0..0, &mut found);
            found.finish().err().map(|errors| sentence(&errors.0))
        });
        entries.push(Entry { source, steer, written, refused });
    }
    entries
}

/// First segments and next hops of every path, each with the length of the prefix that leads to it without offers.
type FirstHops = BTreeMap<IpAddr, u8>;

fn first_hops(context: &Context<'_>, offers: &[&Offer], fib: &Fib) -> FirstHops {
    let routes = context.config.steers.iter().flat_map(|steer| {
        let steer = steer.get_ref();
        std::iter::once(&steer.path).chain(steer.paths.iter().map(|path| &path.get_ref().path))
    });
    let written = routes.flat_map(|route| {
        let first = route.segments.first().map(|segment| IpAddr::V6(*segment.get_ref()));
        first.into_iter().chain(route.hop.via.as_ref().map(|via| *via.get_ref()))
    });
    let paths = offers.iter().flat_map(|offer| &offer.steers).flat_map(|steer| &steer.paths);
    let offered = paths.filter_map(|path| path.segments.first().copied().map(IpAddr::V6));
    let length = |address: IpAddr| fib.lookup(address).map_or(0, |(prefix, _, _)| prefix.prefix_len());
    written.chain(offered).map(|address| (address, length(address))).collect()
}

/// An offer must not lead the way to a path's first hop into a policy: that would be the end of paths which are right.
fn captured(first_hops: &FirstHops, (table, prefix): (TableId, IpNet)) -> Option<String> {
    let covered = first_hops.range(prefix.network()..=prefix.broadcast());
    let longer = |&(_, &length): &(&IpAddr, &u8)| table == TableId::MAIN && prefix.prefix_len() > length;
    let (first_hop, _) = covered.into_iter().find(longer)?;
    Some(format!("{prefix} covers {first_hop}, the first hop of a path: packets would be encapsulated in a circle"))
}

/// Resolves what was claimed. True: of one of the prefixes something waits or is refused, be it one path of several.
pub(super) fn steers(
    context: &Context<'_>,
    entries: Vec<Entry<'_>>,
    blocks: &[Block],
    fib: &Fib,
    names: &mut Names,
) -> (Vec<Steer>, Vec<Outcome>, bool) {
    let mut steers = Vec::new();
    let mut outcomes = Vec::new();
    let mut waits = false;
    for Entry { source, steer, written, refused } in entries {
        let state = if let Some(why) = refused {
            waits = true;
            OutcomeState::Refused(why)
        } else {
            let mut found = Findings::new(context.config.source.clone());
            let resolved = resolve(context, &written, blocks, fib, names, &mut found);
            let (state, is_whole) = judge(found, resolved.is_some());
            waits |= !is_whole;
            steers.extend(resolved.filter(|_| state == OutcomeState::Programmed));
            state
        };
        let (peer, prefix, table) = (steer.peer.clone(), steer.prefix, TableId(steer.table));
        outcomes.push(Outcome { source: source.to_owned(), peer, prefix, table, state });
    }
    (steers, outcomes, waits)
}

/// A prefix some of whose paths wait is in force by the others; and whether all of them are.
fn judge(found: Findings, resolved: bool) -> (OutcomeState, bool) {
    match found.finish() {
        Err(errors) => (OutcomeState::Refused(sentence(&errors.0)), false),
        Ok((_, pending)) if resolved => (OutcomeState::Programmed, pending.is_empty()),
        Ok((_, pending)) => (OutcomeState::Pending(sentence(&pending)), false),
    }
}

fn sentence(found: &[Diagnostic]) -> String {
    found.iter().map(|found| found.what.clone()).collect::<Vec<_>>().join("; ")
}

fn written(steer: &OfferedSteer) -> config::Steer {
    config::Steer {
        prefix: nowhere(steer.prefix),
        table: Some(nowhere(TableId(steer.table))),
        mode: Some(nowhere(if steer.full_srh { SteerMode::Encap } else { SteerMode::EncapRed })),
        source: steer.source.map(nowhere),
        path: SegmentRoute::default(),
        paths: steer.paths.iter().map(|path| nowhere(written_path(steer, path))).collect(),
    }
}

fn written_path(steer: &OfferedSteer, path: &OfferedPath) -> SteerPath {
    SteerPath {
        name: Some(nowhere(path.name.clone())),
        weight: Some(nowhere(path.weight)),
        path: SegmentRoute {
            segments: path.segments.iter().copied().map(nowhere).collect(),
            hop: OneHop { via: steer.via.map(nowhere), port: steer.port.clone().map(nowhere) },
            nexthops: Vec::new(),
        },
    }
}

/// A value that stands in no file.
fn nowhere<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}
