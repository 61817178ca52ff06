//! Who owns a prefix: finds prefixes that are configured twice, and answers where the first hop of a path lies.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::Range;

use ipnet::IpNet;
use srv6d_srv6::model::{Hop, TableId};

use crate::config::Findings;

/// What a prefix stands for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Owner {
    /// A SID of this node.
    Sid,
    /// A `[[steer]]`.
    Steer,
    /// A steered prefix of the source of that name.
    Offered(String),
    /// A route with these next hops (none: it does not forward).
    Route(Vec<Hop>),
    /// A route none of whose next hops resolves yet: shorter prefixes match in its place.
    WaitingRoute,
}

impl Owner {
    fn header(&self) -> &str {
        match self {
            Self::Sid => "[[sid]]",
            Self::Steer => "[[steer]]",
            Self::Offered(source) => source,
            Self::Route(_) | Self::WaitingRoute => "[[route]]",
        }
    }

    /// It encapsulates.
    pub(super) const fn is_policy(&self) -> bool {
        matches!(self, Self::Steer | Self::Offered(_))
    }
}

/// Longest-prefix match over everything that is configured.
#[derive(Default)]
pub(super) struct Fib {
    entries: HashMap<(TableId, IpNet), (Owner, Range<usize>)>,
    /// Lengths of the main table's prefixes, IPv4 and IPv6: a look-up tries these and no others.
    lengths: [BTreeSet<u8>; 2],
}

impl Fib {
    /// Notes the owner of a prefix; an error if it has one already.
    pub(super) fn claim(
        &mut self,
        (table, prefix): (TableId, IpNet),
        owner: Owner,
        span: Range<usize>,
        found: &mut Findings,
    ) -> bool {
        if let Some((first, at)) = self.entries.get(&(table, prefix)) {
            let what = match first {
                Owner::Offered(source) => format!("{prefix} is already steered by {source}"),
                Owner::Route(_) if at.is_empty() => format!("{prefix} is connected to this node"),
                _ => format!("{prefix} is already a {} in {}", first.header(), found.line_of(at)),
            };
            let fix = "keep one of the two: one prefix of a table has one meaning";
            found.error(span, owner.header(), what, fix);
            return false;
        }
        self.insert((table, prefix), (owner, span));
        true
    }

    fn insert(&mut self, (table, prefix): (TableId, IpNet), entry: (Owner, Range<usize>)) {
        if table == TableId::MAIN {
            let [v4, v6] = &mut self.lengths;
            if prefix.addr().is_ipv4() { v4 } else { v6 }.insert(prefix.prefix_len());
        }
        self.entries.insert((table, prefix), entry);
    }

    /// Notes a connected prefix, unless the configuration says something else about it.
    pub(super) fn claim_connected(&mut self, key: (TableId, IpNet), hops: Vec<Hop>) -> bool {
        self.claim_followed(key, Owner::Route(hops)).is_ok()
    }

    /// Notes a prefix of the kernel, unless it has an owner already: what that is called.
    pub(super) fn claim_followed(&mut self, key: (TableId, IpNet), owner: Owner) -> Result<(), &'static str> {
        if let Some(taken) = self.written(key) {
            return Err(taken);
        }
        self.insert(key, (owner, 0..0));
        Ok(())
    }

    /// What the owner of a prefix is called.
    pub(super) fn written(&self, key: (TableId, IpNet)) -> Option<&'static str> {
        self.entries.get(&key).map(|(owner, at)| match owner {
            Owner::Route(_) if at.is_empty() => "connected prefix",
            Owner::Sid => "[[sid]]",
            Owner::Steer | Owner::Offered(_) => "[[steer]]",
            Owner::Route(_) | Owner::WaitingRoute => "[[route]]",
        })
    }

    /// Longest match in the main table.
    pub(super) fn lookup(&self, address: IpAddr) -> Option<(IpNet, &Owner, Range<usize>)> {
        self.matches(address).find(|(_, owner, _)| **owner != Owner::WaitingRoute)
    }

    /// Next hops of the longest match in a table other than the main one, where that is a route that forwards.
    pub(super) fn route_in(&self, table: TableId, address: IpAddr) -> Option<&[Hop]> {
        let host = IpNet::from(address);
        let around = (0..=host.max_prefix_len()).rev().filter_map(|length| IpNet::new(address, length).ok());
        let mut matches = around.filter_map(|prefix| self.entries.get(&(table, prefix.trunc())));
        match matches.find(|(owner, _)| *owner != Owner::WaitingRoute) {
            Some((Owner::Route(hops), _)) if !hops.is_empty() => Some(hops),
            _ => None,
        }
    }

    /// A route will match the address once its next hops resolve, before what matches it now.
    pub(super) fn waits_for_route(&self, address: IpAddr) -> bool {
        self.matches(address).next().is_some_and(|(_, owner, _)| *owner == Owner::WaitingRoute)
    }

    /// Everything that covers an address, longest prefix first.
    fn matches(&self, address: IpAddr) -> impl Iterator<Item = (IpNet, &Owner, Range<usize>)> {
        let [v4, v6] = &self.lengths;
        let lengths = if address.is_ipv4() { v4 } else { v6 };
        lengths.iter().rev().filter_map(move |&length| {
            let prefix = IpNet::new(address, length).ok()?.trunc();
            let (owner, span) = self.entries.get(&(TableId::MAIN, prefix))?;
            Some((prefix, owner, span.clone()))
        })
    }
}
