//! The owners of prefixes. Finds prefixes that are configured twice, and the route to the first hop of a path.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::Range;

use ipnet::IpNet;
use srv6d_srv6::desired::{Hop, TableId};

use srv6d_config::Findings;

/// The owner of a prefix.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Owner {
    /// A SID of this node.
    Sid,
    /// A `[[steer]]`.
    Steer,
    /// A steered prefix of the source with that name.
    Offered(String),
    /// A route with these next hops. Without next hops it does not forward.
    Route(Vec<Hop>),
    /// A route none of whose next hops resolves yet. Shorter prefixes match in its place.
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

    /// Returns true if packets to the prefix are encapsulated.
    pub(super) const fn is_policy(&self) -> bool {
        matches!(self, Self::Steer | Self::Offered(_))
    }
}

/// Longest-prefix match over everything that is configured.
#[derive(Default)]
pub(super) struct Owners {
    entries: HashMap<(TableId, IpNet), (Owner, Range<usize>)>,
    /// Lengths of the main table's prefixes, IPv4 and IPv6. A look-up tries only these lengths.
    lengths: [BTreeSet<u8>; 2],
}

impl Owners {
    /// Records the owner of a prefix. Reports an error if it has one already.
    pub(super) fn record(
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

    /// Records a connected prefix, unless the configuration has an entry for it.
    pub(super) fn record_connected(&mut self, key: (TableId, IpNet), hops: Vec<Hop>) -> bool {
        self.record_followed(key, Owner::Route(hops)).is_ok()
    }

    /// Records a prefix of the kernel. If it has an owner already, returns the name of that kind of owner.
    pub(super) fn record_followed(&mut self, key: (TableId, IpNet), owner: Owner) -> Result<(), &'static str> {
        if let Some(taken) = self.written(key) {
            return Err(taken);
        }
        self.insert(key, (owner, 0..0));
        Ok(())
    }

    /// Returns the name of the kind of owner that a prefix has.
    pub(super) fn written(&self, key: (TableId, IpNet)) -> Option<&'static str> {
        self.entries.get(&key).map(|(owner, at)| match owner {
            Owner::Route(_) if at.is_empty() => "connected prefix",
            Owner::Sid => "[[sid]]",
            Owner::Steer | Owner::Offered(_) => "[[steer]]",
            Owner::Route(_) | Owner::WaitingRoute => "[[route]]",
        })
    }

    /// Returns the longest match in the main table.
    pub(super) fn lookup(&self, address: IpAddr) -> Option<(IpNet, &Owner, Range<usize>)> {
        self.matches(address).find(|(_, owner, _)| **owner != Owner::WaitingRoute)
    }

    /// Returns the next hops of the longest match in a table other than the main one, if that is a route that
    /// forwards.
    pub(super) fn route_in(&self, table: TableId, address: IpAddr) -> Option<&[Hop]> {
        let host = IpNet::from(address);
        let around = (0..=host.max_prefix_len()).rev().filter_map(|length| IpNet::new(address, length).ok());
        let mut matches = around.filter_map(|prefix| self.entries.get(&(table, prefix.trunc())));
        match matches.find(|(owner, _)| *owner != Owner::WaitingRoute) {
            Some((Owner::Route(hops), _)) if !hops.is_empty() => Some(hops),
            _ => None,
        }
    }

    /// Returns all entries of a table that cover a prefix, the longest first.
    pub(super) fn around(&self, table: TableId, prefix: IpNet) -> impl Iterator<Item = (IpNet, &Owner)> {
        let lengths = (0..=prefix.prefix_len()).rev();
        let covering = lengths.filter_map(move |length| Some(IpNet::new(prefix.addr(), length).ok()?.trunc()));
        covering.filter_map(move |covering| Some((covering, &self.entries.get(&(table, covering))?.0)))
    }

    /// Returns true if a waiting route will match the address before the present match does.
    pub(super) fn waits_for_route(&self, address: IpAddr) -> bool {
        self.matches(address).next().is_some_and(|(_, owner, _)| *owner == Owner::WaitingRoute)
    }

    /// Returns all entries that cover an address, the longest prefix first.
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
