//! Steered prefixes that sources offer: judged by the rules of `[[steer]]`, each by itself. What does not fit is left
//! out and named; neither the file nor another offer is touched by it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use srv6d_srv6::model::{Block, Steer, TableId};

use super::Context;
use super::fib::{Fib, Owner};
use super::followed::is_followed;
use super::steers::{Names, refuse_link_scope, resolve};
use crate::config::{self, Accepted, Diagnostic, Findings, OneHop, SegmentRoute, Spanned, SteerMode, SteerPath};
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
    let steers = offers.iter().flat_map(|offer| &offer.steers);
    let paths = steers.flat_map(|steer| steer.paths.iter().chain(&steer.last_good));
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
            let resolving = Resolving { context, blocks, fib, source };
            let (resolved, state, is_whole) = resolving.offered(steer, written, names);
            waits |= !is_whole;
            steers.extend(resolved);
            state
        };
        let (peer, prefix, table) = (steer.peer.clone(), steer.prefix, TableId(steer.table));
        outcomes.push(Outcome { source: source.to_owned(), peer, prefix, table, state });
    }
    (steers, outcomes, waits)
}

/// Where the paths of one source are resolved.
struct Resolving<'a> {
    context: &'a Context<'a>,
    blocks: &'a [Block],
    fib: &'a Fib,
    source: &'a str,
}

impl Resolving<'_> {
    /// What comes into force: the paths that are offered, or those that were in force before where none of these can be.
    /// True: all that is offered is in force.
    fn offered(
        &self,
        steer: &OfferedSteer,
        written: Spanned<config::Steer>,
        names: &mut Names,
    ) -> (Option<Steer>, OutcomeState, bool) {
        let (resolved, state, is_whole) = self.resolve(&written, names);
        if resolved.is_some() || steer.last_good.is_empty() {
            return (resolved, state, is_whole);
        }
        let (OutcomeState::Pending(why) | OutcomeState::Refused(why)) = state else { return (None, state, is_whole) };
        let paths = steer.last_good.iter().map(|path| nowhere(written_path(steer, path))).collect();
        let before = nowhere(config::Steer { paths, ..written.into_inner() });
        match self.resolve(&before, names) {
            (Some(resolved), ..) => (Some(resolved), OutcomeState::Kept(why), false),
            (None, ..) => (None, OutcomeState::Pending(why), false),
        }
    }

    fn resolve(&self, written: &Spanned<config::Steer>, names: &mut Names) -> (Option<Steer>, OutcomeState, bool) {
        let mut found = Findings::new(self.context.config.source.clone());
        let own = |path: &Spanned<SteerPath>| path.get_ref().name.as_ref().map(|name| name.get_ref().clone());
        let new: Vec<String> = written.get_ref().paths.iter().filter_map(own).collect();
        let new: Vec<String> = new.into_iter().filter(|name| !names.contains_key(name)).collect();
        let resolved =
            resolve(self.context, written, self.blocks, self.fib, names, is_followed(self.source), &mut found);
        let resolved = resolved.filter(|steer| self.refuse_default_route(steer, &mut found).is_some());
        let (state, is_whole) = judge(found, resolved.is_some());
        let resolved = resolved.filter(|_| state == OutcomeState::Programmed);
        if resolved.is_none() {
            // Names of paths that are not in force are free for others.
            for name in &new {
                names.remove(name);
            }
        }
        (resolved, state, is_whole)
    }

    /// Where no block says which carriers are the fabric's, a controller's carrier needs more than a default route: that
    /// one leads anywhere.
    fn refuse_default_route(&self, steer: &Steer, found: &mut Findings) -> Option<()> {
        if !self.blocks.is_empty() || !SOURCES_OUTSIDE.contains(&self.source) {
            return Some(());
        }
        for path in steer.paths.iter().filter(|path| path.via.is_empty()) {
            let first = path.segments.first();
            let route = self.fib.lookup(IpAddr::V6(first));
            if route.is_some_and(|(prefix, ..)| prefix.prefix_len() == 0) {
                let what =
                    format!("only the default route leads to the first segment {first}, and there is no [[block]]");
                found.error(0..0, self.source, what, "add the [[block]] of the fabric");
                return None;
            }
        }
        Some(())
    }
}

/// Sources that are other machines: what the kernel and FRR say is this node's own.
const SOURCES_OUTSIDE: [&str; 2] = ["jalapeno", "syd"];

/// A prefix some of whose paths wait is in force by the others; and whether all of them are.
fn judge(found: Findings, resolved: bool) -> (OutcomeState, bool) {
    match found.finish() {
        Err(errors) => (OutcomeState::Refused(sentence(&errors.0)), false),
        Ok(Accepted { pending, .. }) if resolved => (OutcomeState::Programmed, pending.is_empty()),
        Ok(Accepted { pending, .. }) => (OutcomeState::Pending(sentence(&pending)), false),
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

#[cfg(test)]
mod tests;
