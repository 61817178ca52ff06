//! Plans the steered prefixes that sources offer, by the rules of `[[steer]]`, each by itself. An offer that does not
//! fit is left out and listed. It affects neither the file nor other offers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use ipnet::{IpNet, Ipv6Net};
use srv6d_srv6::LOCATOR_BITS;
use srv6d_srv6::desired::{Block, Steer, TableId};

use super::Context;
use super::environment::is_link_local;
use super::followed::is_followed;
use super::owners::{Owner, Owners};
use super::steers::{Names, refuse_link_scope, resolve};
use srv6d_config::{self as config, Accepted, Diagnostic, Findings, OneHop, PathKeys, Spanned, SteerMode, SteerPath};
use srv6d_offer::{Offer, OfferOutcome, OfferedPath, OfferedSteer, OutcomeState};

/// One offered prefix, as if it were the only entry of a file.
pub(super) struct Entry<'o> {
    source: &'o str,
    steer: &'o OfferedSteer,
    written: Spanned<config::Steer>,
    refused: Option<String>,
    /// The reason why it stays in force although it is no longer offered.
    kept: Option<String>,
}

/// Records the owners of all offered prefixes before any path is resolved, because a path may run into another
/// policy.
pub(super) fn record_owners<'o>(
    context: &Context<'_>,
    offers: &[&'o Offer],
    reserved: &Reserved<'_>,
    owners: &mut Owners,
) -> Vec<Entry<'o>> {
    let first_hops = FirstHops::of(context, offers, owners);
    let mut entry_of = |source: &'o str, steer: &'o OfferedSteer| {
        // Findings need the text of the file, to quote lines of it.
        let mut found = Findings::new(context.config.source.clone());
        let written = nowhere(written(steer));
        refuse_link_scope(&written.get_ref().prefix, &mut found);
        let key = (TableId(steer.table), steer.prefix);
        let refused = reserved
            .refuses(source, key, owners)
            .or_else(|| first_hops.captured(key, steer.is_in_force))
            .or_else(|| {
                owners.record(key, Owner::Offered(source.to_owned()), 0..0, &mut found);
                found.finish().err().map(|errors| sentence(&errors.0))
            });
        Entry { source, steer, written, refused, kept: None }
    };
    let steers = offers.iter().flat_map(|offer| offer.steers.iter().map(|steer| (offer.source.as_str(), steer)));
    let mut numbered: Vec<(usize, (&'o str, &'o OfferedSteer))> = steers.enumerate().collect();
    numbered.sort_by_key(|(_, (source, steer))| turn(source, steer));
    let by_number = numbered.into_iter().map(|(number, (source, steer))| (number, entry_of(source, steer)));
    let by_number: BTreeMap<usize, Entry<'o>> = by_number.collect();
    let mut entries: Vec<Entry<'o>> = by_number.into_values().collect();
    // A peer whose new prefix cannot be in force keeps the one that is.
    let family = |steer: &OfferedSteer| matches!(steer.prefix, IpNet::V6(_));
    let mut refused: HashMap<(&str, &str, bool), String> = HashMap::new();
    for Entry { source, steer, refused: why, .. } in &entries {
        if let Some(why) = why {
            refused.entry((source, &steer.peer, family(steer))).or_insert_with(|| why.clone());
        }
    }
    let gone = offers.iter().flat_map(|offer| offer.gone.iter().map(|steer| (offer.source.as_str(), steer)));
    let kept = gone.filter_map(|(source, steer)| {
        let why = refused.get(&(source, steer.peer.as_str(), family(steer)))?;
        let entry = entry_of(source, steer);
        entry.refused.is_none().then(|| Entry { kept: Some(why.clone()), ..entry })
    });
    let kept: Vec<Entry<'o>> = kept.collect();
    entries.extend(kept);
    entries
}

/// Returns the order in which offers of the same prefix are planned; the first one gets it. The one in force comes
/// first, so that no controller or job takes a prefix from another one or from another peer. Then come those of syd,
/// whose prefixes are in the configuration.
fn turn(source: &str, steer: &OfferedSteer) -> u8 {
    match source {
        _ if is_outside(source) && steer.is_in_force => 0,
        "syd" => 1,
        _ => 2,
    }
}

/// The prefixes of this node, which no source may steer.
pub(super) struct Reserved<'a> {
    /// Addresses of the node, in each table.
    addresses: BTreeSet<(TableId, IpAddr)>,
    blocks: &'a [Block],
    hosts: &'a [Ipv6Net],
    /// Whether the operator has configured which prefixes the controller steers.
    is_allowed: bool,
}

impl<'a> Reserved<'a> {
    pub(super) fn of(context: &Context<'_>, blocks: &'a [Block], hosts: &'a [Ipv6Net]) -> Self {
        let addresses = context.ports.local_addresses(context.environment, &context.rules);
        let jalapeno = context.config.jalapeno.as_ref();
        let is_allowed = jalapeno.is_some_and(|table| !table.allowed_prefixes.is_empty());
        Self { addresses: addresses.into_iter().collect(), blocks, hosts, is_allowed }
    }

    /// Returns the reason why Jalapeno may not steer a prefix that no list contains. The controller chooses the
    /// prefixes of Jalapeno. Those of other sources are in the configuration or are this node's own.
    fn refuses(&self, source: &str, (table, prefix): (TableId, IpNet), owners: &Owners) -> Option<String> {
        if source != "jalapeno" || self.is_allowed {
            return None;
        }
        let (why, fix) = self.owner(table, prefix, owners)?;
        Some(format!(
            "{prefix} is not steered: {why}; {fix}list it in `allowed_prefixes` if the controller may decide on it"
        ))
    }

    fn owner(&self, table: TableId, prefix: IpNet, owners: &Owners) -> Option<(String, &'static str)> {
        let around = owners.around(table, prefix);
        let mut owners = around.filter_map(|(network, owner)| match owner {
            Owner::Sid => Some(format!("it lies in {network}, a SID of this node")),
            Owner::Route(hops) if hops.first().is_some_and(|hop| hop.via.is_none()) => {
                Some(format!("it lies in {network}, which is connected to this node"))
            }
            _ => None,
        });
        let own = || {
            let (_, address) = self.addresses.range((table, prefix.network())..=(table, prefix.broadcast())).next()?;
            Some(format!("{address}, an address of this node, lies in it"))
        };
        if let Some(why) = owners.next().or_else(own) {
            return Some((why, ""));
        }
        let IpNet::V6(prefix) = prefix else { return None };
        let Block { prefix: block, .. } = self.blocks.iter().find(|block| block.prefix.contains(&prefix))?;
        let mut hosts = self.hosts.iter().filter(|hosts| block.contains(*hosts)).peekable();
        let why = if hosts.peek().is_some() {
            format!("it lies in the [[block]] {block} and not in its `hosts`")
        } else {
            format!("it lies in the [[block]] {block}, which has no `hosts`, and is no longer than a locator")
        };
        // If the hosts' part of a block is not configured, a prefix longer than a locator may be of hosts.
        let is_of_hosts = match hosts.peek() {
            Some(_) => hosts.any(|hosts| hosts.contains(&prefix)),
            None => prefix.prefix_len() > LOCATOR_BITS,
        };
        (!is_of_hosts).then_some((why, "add it to `hosts` if hosts are there, or "))
    }
}

/// First segments of paths and the next hops that lead to them, each with the length of the prefix that leads there
/// without offers.
#[derive(Default)]
struct FirstHops {
    /// First hops of paths that are in the file, or in force.
    firm: BTreeMap<IpAddr, u8>,
    /// First hops of new paths.
    new: BTreeMap<IpAddr, u8>,
}

impl FirstHops {
    fn of(context: &Context<'_>, offers: &[&Offer], owners: &Owners) -> Self {
        let mut hops = Self::default();
        let length = |address: IpAddr| owners.lookup(address).map_or(0, |(prefix, _, _)| prefix.prefix_len());
        let add = |to: &mut BTreeMap<IpAddr, u8>, first: IpAddr| {
            if let Some((_, Owner::Route(hops), _)) = owners.lookup(first) {
                let near = hops.iter().filter_map(|hop| hop.via).filter(|via| !is_link_local(*via));
                to.extend(near.map(|via| (via, length(via))));
            }
            to.insert(first, length(first));
        };
        for steer in context.config.steers.iter().map(Spanned::get_ref) {
            let routes = std::iter::once(&steer.path).chain(steer.paths.iter().map(|path| &path.get_ref().path));
            for route in routes {
                let first = route.segments.first().map(|segment| IpAddr::V6(*segment.get_ref()));
                let via = route.hop.via.as_ref().map(|via| *via.get_ref());
                first.into_iter().chain(via).for_each(|address| add(&mut hops.firm, address));
            }
        }
        let first = |path: &OfferedPath| path.segments.first().copied().map(IpAddr::V6);
        for steer in offers.iter().flat_map(|offer| &offer.steers) {
            let are_in_force = steer.is_in_force && steer.last_good.is_empty();
            let of_paths = if are_in_force { &mut hops.firm } else { &mut hops.new };
            steer.paths.iter().filter_map(first).for_each(|first| add(of_paths, first));
            steer.last_good.iter().filter_map(first).for_each(|first| add(&mut hops.firm, first));
        }
        hops
    }

    /// Returns the reason why an offer is refused that would lead a path's first hop into a policy: paths that are
    /// right would stop to work. If the prefix is in force and the path is new, the path is refused instead.
    fn captured(&self, (table, prefix): (TableId, IpNet), is_in_force: bool) -> Option<String> {
        let covers = |hops: &BTreeMap<IpAddr, u8>| -> Option<IpAddr> {
            let mut covered = hops.range(prefix.network()..=prefix.broadcast());
            covered.find(|&(_, &length)| prefix.prefix_len() > length).map(|(hop, _)| *hop)
        };
        if table != TableId::MAIN {
            return None;
        }
        let first_hop = covers(&self.firm).or_else(|| covers(&self.new).filter(|_| !is_in_force))?;
        Some(format!("{prefix} covers {first_hop}, the first hop of a path: packets would be encapsulated in a circle"))
    }
}

/// Resolves the offered prefixes. Also returns true if a prefix, or one of its paths, is pending or refused.
pub(super) fn steers(
    context: &Context<'_>,
    entries: Vec<Entry<'_>>,
    blocks: &[Block],
    owners: &Owners,
    names: &mut Names,
) -> (Vec<Steer>, Vec<OfferOutcome>, bool) {
    let mut steers = Vec::new();
    let mut outcomes = Vec::new();
    let mut waits = false;
    for Entry { source, steer, written, refused, kept } in entries {
        let state = if let Some(why) = refused {
            waits = true;
            OutcomeState::Refused(why)
        } else {
            let resolving = Resolving { context, blocks, owners, source };
            let (resolved, state, is_whole) = resolving.offered(steer, written, names);
            waits |= !is_whole || kept.is_some();
            let is_in_force = resolved.is_some();
            steers.extend(resolved);
            match kept {
                Some(why) if is_in_force => OutcomeState::Kept(why),
                Some(_) => continue,
                None => state,
            }
        };
        let (peer, prefix, table) = (steer.peer.clone(), steer.prefix, TableId(steer.table));
        outcomes.push(OfferOutcome { source: source.to_owned(), peer, prefix, table, state });
    }
    (steers, outcomes, waits)
}

/// The inputs for resolving the paths of one source.
struct Resolving<'a> {
    context: &'a Context<'a>,
    blocks: &'a [Block],
    owners: &'a Owners,
    source: &'a str,
}

impl Resolving<'_> {
    /// Resolves the offered paths, or those that were in force before if none of the offered ones can be. Also
    /// returns true if everything that is offered is in force.
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
        let resolved = resolve(self.context, written, self.owners, names, is_followed(self.source), &mut found);
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

    /// Refuses a controller's carrier that only a default route leads to, if no block says which carriers are the
    /// fabric's. A default route leads anywhere.
    fn refuse_default_route(&self, steer: &Steer, found: &mut Findings) -> Option<()> {
        if !self.blocks.is_empty() || !is_outside(self.source) {
            return Some(());
        }
        for path in steer.paths.iter().filter(|path| path.via.is_empty()) {
            let first = path.segments.first();
            let route = self.owners.lookup(IpAddr::V6(first));
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

/// Returns whether a source decides elsewhere: a controller, or the placement of a job. Routes of the kernel and of FRR
/// are this node's own.
fn is_outside(source: &str) -> bool {
    matches!(source, "jalapeno" | "syd") || srv6d_offer::is_job(source)
}

/// Returns the state of an offer, and whether all of its paths are in force. A prefix with some pending paths is in
/// force by the others.
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
        path: PathKeys::default(),
        balance: None,
        via_nodes: Vec::new(),
        paths: steer.paths.iter().map(|path| nowhere(written_path(steer, path))).collect(),
    }
}

fn written_path(steer: &OfferedSteer, path: &OfferedPath) -> SteerPath {
    SteerPath {
        name: Some(nowhere(path.name.clone())),
        weight: Some(nowhere(path.weight)),
        capacity: None,
        path: PathKeys {
            segments: path.segments.iter().copied().map(nowhere).collect(),
            hop: OneHop { via: steer.via.map(nowhere), port: steer.port.clone().map(nowhere) },
            nexthops: Vec::new(),
        },
    }
}

/// Returns a value that is in no file.
fn nowhere<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

#[cfg(test)]
mod tests;
