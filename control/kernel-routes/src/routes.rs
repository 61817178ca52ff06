//! The routes as they are now.
//!
//! A dump says them all; after it each message changes a few. Where a message does not say enough to know what the
//! kernel has now, the answer is [`Effect::DumpAgain`], and a dump says it. What the kernel tells, and what it does not
//! (Linux 6.18):
//!
//! | change | told |
//! |---|---|
//! | IPv6 leg added | a new route with all legs |
//! | IPv6 leg deleted | a deletion that names this leg alone |
//! | route replaced | a new route with `NLM_F_REPLACE` |
//! | IPv4 route appended or prepended to one of the same metric | a new route; which of the two counts is not said |
//! | IPv4 route that goes with its link, its address or its next-hop object | nothing: whoever hears of these asks anew |
//! | leg that dies or lives again with its link, or with the last IPv4 address of its device | nothing: the same |
//! | next-hop object replaced | the object; the routes only with `net.ipv4.nexthop_compat_mode` = 1 |

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use srv6d_srv6::model::TableId;

use crate::Message;
use crate::model::{KernelAction, KernelHop, KernelRoute};
use crate::next_hop::{NextHopMessage, NextHops};
use crate::route::{RouteKey, RouteMessage};
use crate::rule::KernelRule;

/// What a message came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is taken into account.
    Kept,
    /// It does not say enough.
    DumpAgain,
}

/// Routes, next-hop objects and rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    by_prefix: BTreeMap<RouteKey, Vec<Entry>>,
    next_hops: NextHops,
    /// Routes that name an object.
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

    /// The kernel holds two such routes side by side only where one was appended to the other.
    fn is_beside(&self, message: &RouteMessage) -> bool {
        self.route.metric == message.metric && self.tos == message.tos && self.only_for == message.only_for
    }

    /// Linux replaces such a route by such a route; between them and others it has ways of its own.
    fn may_have_legs(&self) -> bool {
        self.next_hop.is_none() && self.legs().iter().any(|leg| leg.via.is_some())
    }

    fn legs(&self) -> &[KernelHop] {
        if let KernelAction::Via(legs) = &self.route.action { legs } else { &[] }
    }
}

impl Routes {
    /// The route of each prefix that the kernel uses: the one with the smallest metric. One that counts for some
    /// packets only speaks for its prefix.
    pub fn used(&self) -> impl Iterator<Item = &KernelRoute> {
        self.by_prefix.values().filter_map(|entries| used(entries))
    }

    /// The same of one table.
    pub fn table(&self, table: TableId) -> impl Iterator<Item = &KernelRoute> {
        let first = RouteKey { table, prefix: IpNet::V4(Ipv4Net::default()) };
        let of_table = self.by_prefix.range(first..).take_while(move |(key, _)| key.table == table);
        of_table.filter_map(|(_, entries)| used(entries))
    }

    /// The route that is used for one prefix.
    pub fn used_for(&self, key: &RouteKey) -> Option<&KernelRoute> {
        used(self.by_prefix.get(key)?)
    }

    /// Prefixes that have a route and lie inside of this one, itself left out.
    pub fn inside(&self, key: RouteKey) -> impl Iterator<Item = &RouteKey> {
        let last = key.prefix.broadcast();
        let from_here = self.by_prefix.range(key..).map(|(key, _)| key);
        from_here
            .take_while(move |inner| inner.table == key.table && inner.prefix.addr() <= last)
            .filter(move |inner| inner.prefix != key.prefix && key.prefix.contains(&inner.prefix))
    }

    /// Tables that have a route.
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

    /// Routes of a table that an address lies in the prefixes of, shortest prefix first.
    pub fn around(&self, table: TableId, address: IpAddr) -> impl Iterator<Item = &KernelRoute> {
        let host = IpNet::from(address);
        let above = (0..=host.max_prefix_len()).filter_map(move |length| IpNet::new(address, length).ok());
        above.filter_map(move |prefix| self.used_for(&RouteKey { table, prefix: prefix.trunc() }))
    }

    /// The same rules, and of the routes those of some prefixes.
    #[must_use]
    pub fn only<'k>(&self, keys: impl IntoIterator<Item = &'k RouteKey>) -> Self {
        let routes = keys.into_iter().filter_map(|key| Some((*key, self.by_prefix.get(key)?.clone())));
        Self { by_prefix: routes.collect(), rules: self.rules.clone(), ..Self::default() }
    }

    /// Rules, in the order they are asked.
    pub fn rules(&self) -> &[KernelRule] {
        &self.rules
    }

    /// Prefixes that have a route.
    pub fn len(&self) -> usize {
        self.by_prefix.len()
    }

    /// No route at all.
    pub fn is_empty(&self) -> bool {
        self.by_prefix.is_empty()
    }

    /// A message that came by itself. Prefixes whose routes it changed go to `changed`.
    pub fn apply(&mut self, message: Message, changed: &mut BTreeSet<RouteKey>) -> Effect {
        match message {
            Message::Route(message) => self.route(&message, changed),
            Message::NextHop(message) => self.next_hop(message, changed),
            Message::Rule(_) => Effect::DumpAgain,
            Message::Done | Message::Refused(_) => Effect::Kept,
        }
    }

    fn route(&mut self, message: &RouteMessage, changed: &mut BTreeSet<RouteKey>) -> Effect {
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
        match change {
            Change::None => {}
            Change::Unclear => return Effect::DumpAgain,
            Change::Add(entry) => {
                count(&mut self.users, entry.next_hop, 1);
                entries.push(entry);
            }
            Change::Set(at, entry) => {
                count(&mut self.users, entry.next_hop, 1);
                if let Some(place) = entries.get_mut(at) {
                    let old = std::mem::replace(place, entry);
                    count(&mut self.users, old.next_hop, -1);
                }
            }
            Change::Remove(at) => {
                let old = entries.remove(at);
                count(&mut self.users, old.next_hop, -1);
            }
        }
        if before.as_ref() != used(entries) {
            changed.insert(key);
        }
        if entries.is_empty() {
            self.by_prefix.remove(&key);
        }
        Effect::Kept
    }

    fn next_hop(&mut self, message: NextHopMessage, changed: &mut BTreeSet<RouteKey>) -> Effect {
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

    /// A message of a dump, in its order.
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

    /// Prefixes that have another route in `other`; `None`: the rules differ, so any may be meant otherwise.
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

/// As a dump without next-hop objects and rules says them.
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

/// What a message does to the routes of its prefix.
enum Change {
    None,
    Add(Entry),
    Set(usize, Entry),
    Remove(usize),
    Unclear,
}

/// There is no such route yet.
fn absent(message: &RouteMessage, next_hops: &NextHops) -> Change {
    match &message.action {
        Some(told) if message.is_new => Change::Add(Entry::new(message, next_hops, told.clone())),
        // Deleted, or not for somewhere else: it is not known, and need not be.
        _ => Change::None,
    }
}

/// A new route where one with the same metric is.
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

/// A deletion of IPv6: of the whole route, or of some legs.
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
        // Alone it is a route without legs, which has no weight.
        only.weight = 1;
    }
    if left.is_empty() {
        return Change::Remove(at);
    }
    let mut shorter = entry.clone();
    shorter.route.action = KernelAction::Via(left);
    Change::Set(at, shorter)
}
