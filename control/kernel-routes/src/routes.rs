//! The present routes of the kernel.
//!
//! A dump gives all routes; after it, each message changes a few. If a message does not contain enough to know what the
//! kernel has now, the result is [`Effect::DumpAgain`], and a new dump is needed. The table says what the kernel (Linux
//! 6.18) reports about each change:
//!
//! | change | what the kernel reports |
//! |---|---|
//! | IPv6 leg added | a new route with all legs |
//! | IPv6 leg deleted | a deletion that names this leg alone |
//! | route replaced | a new route with `NLM_F_REPLACE` |
//! | IPv4 route appended or prepended to one of the same metric | a new route; which of the two is used is not said |
//! | IPv4 route that goes with its link, address or next-hop object | nothing: such an event needs a new dump |
//! | leg that dies or revives with its link, or with the last IPv4 address of its device | nothing: needs a new dump |
//! | next-hop object replaced | the object; the routes only if `net.ipv4.nexthop_compat_mode` is 1 |

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use srv6d_addresses::TableId;

use crate::Message;
use crate::entry::{KernelAction, KernelHop, KernelRoute};
use crate::next_hop::{NextHopMessage, NextHops};
use crate::route::{RouteKey, RouteMessage};
use crate::rule::KernelRule;

/// Result of applying a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The message was applied, or changes nothing.
    Kept,
    /// The message does not contain enough to know the new state, so a new dump is needed.
    DumpAgain,
}

/// The routes, next-hop objects and rules of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    by_prefix: BTreeMap<RouteKey, Vec<Entry>>,
    next_hops: NextHops,
    /// Number of routes that use each next-hop object.
    users: HashMap<u32, usize>,
    rules: Vec<KernelRule>,
}

/// One route of a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    route: KernelRoute,
    tos: u8,
    only_for: Option<&'static str>,
    next_hop: Option<u32>,
}

impl Entry {
    fn new(message: &RouteMessage, next_hops: &NextHops, told: KernelAction) -> Self {
        let action = message.next_hop.and_then(|id| next_hops.action(id)).unwrap_or(told);
        let RouteMessage { key, metric, protocol, tos, only_for, next_hop, .. } = *message;
        let route = KernelRoute { table: key.table, prefix: key.prefix, metric, protocol, action };
        Self { route, tos, only_for, next_hop }
    }

    /// Returns whether the message is for this position: same metric, traffic class and restriction. The kernel has
    /// several routes at one position only if one was appended to another.
    fn is_beside(&self, message: &RouteMessage) -> bool {
        self.route.metric == message.metric && self.tos == message.tos && self.only_for == message.only_for
    }

    /// Returns whether Linux treats the route as one that can have legs. Linux replaces a route only by one of the same
    /// kind; other replacements follow rules of their own.
    fn may_have_legs(&self) -> bool {
        self.next_hop.is_none() && self.legs().iter().any(|leg| leg.via.is_some())
    }

    fn legs(&self) -> &[KernelHop] {
        if let KernelAction::Via(legs) = &self.route.action { legs } else { &[] }
    }
}

impl Routes {
    /// Returns the route that the kernel uses for each prefix: the one with the smallest metric. A route that applies
    /// to some packets only takes precedence, so that the prefix is known to be a special case.
    pub fn used(&self) -> impl Iterator<Item = &KernelRoute> {
        self.by_prefix.values().filter_map(|entries| used(entries))
    }

    /// Like [`used`](Self::used), but for one table only.
    pub fn table(&self, table: TableId) -> impl Iterator<Item = &KernelRoute> {
        let first = RouteKey { table, prefix: IpNet::V4(Ipv4Net::default()) };
        let of_table = self.by_prefix.range(first..).take_while(move |(key, _)| key.table == table);
        of_table.filter_map(|(_, entries)| used(entries))
    }

    /// Returns the route that the kernel uses for one prefix.
    pub fn used_for(&self, key: &RouteKey) -> Option<&KernelRoute> {
        used(self.by_prefix.get(key)?)
    }

    /// Returns the prefixes with a route that lie inside this one, without the prefix itself.
    pub fn inside(&self, key: RouteKey) -> impl Iterator<Item = &RouteKey> {
        let last = key.prefix.broadcast();
        let from_here = self.by_prefix.range(key..).map(|(key, _)| key);
        from_here
            .take_while(move |inner| inner.table == key.table && inner.prefix.addr() <= last)
            .filter(move |inner| inner.prefix != key.prefix && key.prefix.contains(&inner.prefix))
    }

    /// Returns the tables that have a route.
    pub fn tables(&self) -> Vec<TableId> {
        let mut tables = Vec::new();
        let first_of = |table| RouteKey { table, prefix: IpNet::V4(Ipv4Net::default()) };
        let mut next = self.by_prefix.keys().next();
        while let Some(key) = next {
            tables.push(key.table);
            let above = key.table.0.checked_add(1).map(TableId);
            next = above.and_then(|above| self.by_prefix.range(first_of(above)..).next()).map(|(key, _)| key);
        }
        tables
    }

    /// Returns the used routes of a table whose prefixes contain an address, the shortest prefix first.
    pub fn around(&self, table: TableId, address: IpAddr) -> impl Iterator<Item = &KernelRoute> {
        let host = IpNet::from(address);
        let above = (0..=host.max_prefix_len()).filter_map(move |length| IpNet::new(address, length).ok());
        above.filter_map(move |prefix| self.used_for(&RouteKey { table, prefix: prefix.trunc() }))
    }

    /// Returns a copy with all rules, but only the routes of these prefixes.
    #[must_use]
    pub fn only<'k>(&self, keys: impl IntoIterator<Item = &'k RouteKey>) -> Self {
        let routes = keys.into_iter().filter_map(|key| Some((*key, self.by_prefix.get(key)?.clone())));
        Self { by_prefix: routes.collect(), rules: self.rules.clone(), ..Self::default() }
    }

    /// Returns the rules in the order in which the kernel evaluates them.
    pub fn rules(&self) -> &[KernelRule] {
        &self.rules
    }

    /// Returns the number of prefixes that have a route.
    pub fn len(&self) -> usize {
        self.by_prefix.len()
    }

    /// Returns whether there is no route.
    pub fn is_empty(&self) -> bool {
        self.by_prefix.is_empty()
    }

    /// Applies a notification. Prefixes whose used route changed are added to `changed`.
    pub fn apply(&mut self, message: Message, changed: &mut BTreeSet<RouteKey>) -> Effect {
        match message {
            Message::Route(message) => self.apply_route(&message, changed),
            Message::NextHop(message) => self.apply_next_hop(message, changed),
            Message::Rule(_) => Effect::DumpAgain,
            Message::Done | Message::Refused(_) => Effect::Kept,
        }
    }

    /// Applies a message about one route.
    fn apply_route(&mut self, message: &RouteMessage, changed: &mut BTreeSet<RouteKey>) -> Effect {
        let key = message.key;
        let entries = self.by_prefix.entry(key).or_default();
        let beside: Vec<usize> =
            entries.iter().enumerate().filter(|(_, entry)| entry.is_beside(message)).map(|(at, _)| at).collect();
        let is_v6 = key.prefix.addr().is_ipv6();
        let change = match beside.as_slice() {
            [] => absent(message, &self.next_hops),
            &[at] => match entries.get(at) {
                Some(entry) if message.is_new => renewed(entry, at, message, &self.next_hops),
                Some(_) if message.action.is_none() => Change::None,
                Some(entry) if is_v6 => shortened(entry, at, message),
                _ => Change::Remove(at),
            },
            _ => Change::Unclear,
        };
        let before = used(entries).cloned();
        if change.make(entries, &mut self.users) == Effect::DumpAgain {
            return Effect::DumpAgain;
        }
        if before.as_ref() != used(entries) {
            changed.insert(key);
        }
        if entries.is_empty() {
            self.by_prefix.remove(&key);
        }
        Effect::Kept
    }

    /// Applies a message about a next-hop object to the routes that use it.
    fn apply_next_hop(&mut self, message: NextHopMessage, changed: &mut BTreeSet<RouteKey>) -> Effect {
        let is_deleted = message.is.is_none();
        let meant = self.next_hops.apply(message);
        if !meant.iter().any(|id| self.users.contains_key(id)) {
            return Effect::Kept;
        }
        if is_deleted {
            return Effect::DumpAgain;
        }
        for (key, entries) in &mut self.by_prefix {
            for entry in entries.iter_mut().filter(|entry| entry.next_hop.is_some_and(|id| meant.contains(&id))) {
                if let Some(action) = entry.next_hop.and_then(|id| self.next_hops.action(id))
                    && action != entry.route.action
                {
                    entry.route.action = action;
                    changed.insert(*key);
                }
            }
        }
        Effect::Kept
    }

    /// Adds a message of a dump. Messages must be added in the order of the dump.
    pub fn load(&mut self, message: Message) {
        match message {
            Message::Route(message) => {
                let Some(told) = message.action.clone() else { return };
                let entry = Entry::new(&message, &self.next_hops, told);
                count(&mut self.users, entry.next_hop, 1);
                self.by_prefix.entry(message.key).or_insert_with(|| Vec::with_capacity(1)).push(entry);
            }
            Message::NextHop(message) => self.next_hops.load(message),
            Message::Rule(rule) => self.rules.push(rule),
            Message::Done | Message::Refused(_) => {}
        }
    }

    /// Returns the prefixes whose used route differs in `other`, or `None` if the rules differ, which may affect any
    /// prefix.
    pub fn differences(&self, other: &Self) -> Option<BTreeSet<RouteKey>> {
        if self.rules != other.rules {
            return None;
        }
        let differs = |key: &&RouteKey| self.used_for(key) != other.used_for(key);
        let mut keys: BTreeSet<RouteKey> = self.by_prefix.keys().filter(differs).copied().collect();
        keys.extend(other.by_prefix.keys().filter(|key| !self.by_prefix.contains_key(key)));
        Some(keys)
    }
}

/// Makes a table as a dump without next-hop objects and rules would.
impl FromIterator<KernelRoute> for Routes {
    fn from_iter<T: IntoIterator<Item = KernelRoute>>(routes: T) -> Self {
        let mut by_prefix: BTreeMap<RouteKey, Vec<Entry>> = BTreeMap::new();
        for route in routes {
            let key = RouteKey { table: route.table, prefix: route.prefix };
            by_prefix.entry(key).or_default().push(Entry { route, tos: 0, only_for: None, next_hop: None });
        }
        Self { by_prefix, ..Self::default() }
    }
}

fn used(entries: &[Entry]) -> Option<&KernelRoute> {
    entries.iter().min_by_key(|entry| (entry.only_for.is_none(), entry.route.metric)).map(|entry| &entry.route)
}

fn count(users: &mut HashMap<u32, usize>, next_hop: Option<u32>, by: isize) {
    let Some(id) = next_hop else { return };
    let count = users.entry(id).or_default();
    *count = count.saturating_add_signed(by);
    if *count == 0 {
        users.remove(&id);
    }
}

/// Change that a message makes to the routes of its prefix.
enum Change {
    None,
    Add(Entry),
    Set(usize, Entry),
    Remove(usize),
    Unclear,
}

impl Change {
    /// Changes the routes of a prefix, and the numbers of routes that use next-hop objects.
    fn make(self, entries: &mut Vec<Entry>, users: &mut HashMap<u32, usize>) -> Effect {
        match self {
            Self::None => {}
            Self::Unclear => return Effect::DumpAgain,
            Self::Add(entry) => {
                count(users, entry.next_hop, 1);
                entries.push(entry);
            }
            Self::Set(at, entry) => {
                count(users, entry.next_hop, 1);
                if let Some(place) = entries.get_mut(at) {
                    let old = std::mem::replace(place, entry);
                    count(users, old.next_hop, -1);
                }
            }
            Self::Remove(at) => {
                let old = entries.remove(at);
                count(users, old.next_hop, -1);
            }
        }
        Effect::Kept
    }
}

/// Returns the change if no route with this position is known.
fn absent(message: &RouteMessage, next_hops: &NextHops) -> Change {
    match &message.action {
        Some(told) if message.is_new => Change::Add(Entry::new(message, next_hops, told.clone())),
        // This is a deletion of an unknown route, or a route for the node itself, which is not tracked.
        _ => Change::None,
    }
}

/// Returns the change that a new route makes if there is one with the same metric.
fn renewed(entry: &Entry, at: usize, message: &RouteMessage, next_hops: &NextHops) -> Change {
    let Some(told) = &message.action else {
        return if message.replaces { Change::Remove(at) } else { Change::None };
    };
    let new = Entry::new(message, next_hops, told.clone());
    let is_v4 = message.key.prefix.addr().is_ipv4();
    let grows = || {
        let legs = new.legs();
        let has = |leg: &KernelHop| legs.iter().any(|other| other.is_leg(leg));
        !is_v4 && !entry.legs().is_empty() && legs.len() > entry.legs().len() && entry.legs().iter().all(has)
    };
    if new == *entry {
        Change::None
    } else if message.replaces && (is_v4 || new.may_have_legs() == entry.may_have_legs()) || grows() {
        Change::Set(at, new)
    } else {
        Change::Unclear
    }
}

/// Returns the change that a deletion of IPv6 makes: of the whole route, or of some legs.
fn shortened(entry: &Entry, at: usize, message: &RouteMessage) -> Change {
    if entry.next_hop.is_some() || message.next_hop.is_some() {
        return if entry.next_hop == message.next_hop { Change::Remove(at) } else { Change::Unclear };
    }
    let (Some(KernelAction::Via(gone)), KernelAction::Via(legs)) = (&message.action, &entry.route.action) else {
        let is_same = message.action.as_ref() == Some(&entry.route.action);
        return if is_same { Change::Remove(at) } else { Change::Unclear };
    };
    if !gone.iter().all(|leg| legs.iter().any(|known| known.is_leg(leg))) {
        return Change::Unclear;
    }
    let mut left: Vec<KernelHop> =
        legs.iter().filter(|leg| !gone.iter().any(|gone| gone.is_leg(leg))).cloned().collect();
    if let [only] = left.as_mut_slice() {
        // A single remaining leg is a route without legs, which has no weight.
        only.weight = 1;
    }
    if left.is_empty() {
        return Change::Remove(at);
    }
    let mut shorter = entry.clone();
    shorter.route.action = KernelAction::Via(left);
    Change::Set(at, shorter)
}
