//! What was announced: routes and SIDs by prefix, with next hops found by number as late as possible.
//!
//! zebra says everything again when it connects, in no particular order and without a word at the end. So what an
//! earlier connection said stays, marked as stale, until it is said again, or until nothing was for a while.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;

use crate::event::{Event, Hop, LocalSid, NextHop, Route, RouteKey, Seg6Local, Target};

/// A group may hold groups, but not without end.
const DEPTH: u8 = 4;

/// What a route does, all next hops found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// Sends over one of these.
    Hops(Vec<Hop>),
    /// A SID of this node.
    Sid(Seg6Local),
    /// Drops.
    Blackhole,
    /// Drops and answers.
    Unreachable,
    /// Something that cannot be done from what was said.
    Unusable(String),
}

impl From<Resolved> for Target {
    fn from(resolved: Resolved) -> Self {
        match resolved {
            Resolved::Hops(hops) => Self::Hops(hops),
            Resolved::Sid(sid) => Self::Sid(sid),
            Resolved::Blackhole => Self::Blackhole,
            Resolved::Unreachable => Self::Unreachable,
            Resolved::Unusable(why) => Self::Unusable(why),
        }
    }
}

/// One route as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Which prefix of which table.
    pub key: RouteKey,
    /// Who made it.
    pub protocol: u8,
    /// What it does.
    pub what: Resolved,
}

/// Something that was announced, and in which connection.
#[derive(Clone, Debug)]
struct Entry<T> {
    what: T,
    session: u64,
}

#[derive(Clone, Debug)]
struct Known {
    route: Route,
    /// What the prefix had before, while the number of its next hop means nothing yet.
    before: Option<Resolved>,
}

/// Everything that was announced.
#[derive(Clone, Debug, Default)]
pub struct Rib {
    routes: BTreeMap<RouteKey, Entry<Known>>,
    sids: BTreeMap<Ipv6Net, Entry<LocalSid>>,
    /// Of this connection only: the next one gives the numbers anew.
    next_hops: HashMap<u32, NextHop>,
    /// Number of the connection, counted up at each one.
    session: u64,
    connected: bool,
    stale: usize,
    /// When something stale was last announced again, or when the connection began.
    confirmed: Option<Instant>,
}

impl Rib {
    /// A connection begins: all that is known has to be said again.
    pub fn connected(&mut self, now: Instant) {
        self.let_go();
        self.session += 1;
        self.connected = true;
        self.confirmed = Some(now);
        self.stale = self.routes.len() + self.sids.len();
    }

    /// The connection is over. Everything stays as it is.
    pub fn disconnected(&mut self) {
        self.let_go();
        self.connected = false;
        self.stale = self.routes.len() + self.sids.len();
    }

    /// Numbers of next hops die with their connection: routes keep what they stood for.
    fn let_go(&mut self) {
        let routes = std::mem::take(&mut self.routes);
        for (key, mut entry) in routes {
            // A route whose next hop never came was never in force.
            let Some(resolved) = self.resolved(&entry.what) else { continue };
            entry.what = Known { route: Route { target: resolved.into(), ..entry.what.route }, before: None };
            self.routes.insert(key, entry);
        }
        self.next_hops.clear();
    }

    /// Takes what was said.
    pub fn apply(&mut self, event: Event, now: Instant) {
        match event {
            Event::Route(key, route) => self.route(key, route, now),
            Event::RouteGone(key) => {
                let gone = self.routes.remove(&key).map(|entry| entry.session);
                self.no_longer_stale(gone, now);
            }
            Event::NextHop(id, next_hop) => drop(self.next_hops.insert(id, next_hop)),
            Event::NextHopGone(id) => drop(self.next_hops.remove(&id)),
            Event::Sid(prefix, sid) => {
                let entry = Entry { what: sid, session: self.session };
                let old = self.sids.insert(prefix, entry).map(|old| old.session);
                self.no_longer_stale(old, now);
            }
            Event::SidGone(prefix) => {
                let gone = self.sids.remove(&prefix).map(|entry| entry.session);
                self.no_longer_stale(gone, now);
            }
            Event::Ignored(_) => {}
        }
    }

    fn route(&mut self, key: RouteKey, route: Route, now: Instant) {
        let before = match self.resolve(&route.target, DEPTH) {
            Some(_) => None,
            None => self.routes.get(&key).and_then(|old| self.resolved(&old.what)),
        };
        let entry = Entry { what: Known { route, before }, session: self.session };
        let old = self.routes.insert(key, entry).map(|old| old.session);
        self.no_longer_stale(old, now);
    }

    fn no_longer_stale(&mut self, session: Option<u64>, now: Instant) {
        if session.is_some_and(|session| session != self.session) {
            self.stale = self.stale.saturating_sub(1);
            self.confirmed = Some(now);
        }
    }

    /// When [`sweep`](Self::sweep) is due: nothing stale was announced again for `quiet`. `None`: nothing is stale, or
    /// nobody is connected who could announce it.
    pub fn sweep_due(&self, quiet: Duration) -> Option<Instant> {
        self.confirmed.filter(|_| self.connected && self.stale > 0).map(|confirmed| confirmed + quiet)
    }

    /// Forgets what the present connection has not announced; how many that were.
    pub fn sweep(&mut self) -> usize {
        let (session, before) = (self.session, self.len());
        self.routes.retain(|_, entry| entry.session == session);
        self.sids.retain(|_, entry| entry.session == session);
        self.stale = 0;
        before - self.len()
    }

    /// Routes and SIDs together.
    pub fn len(&self) -> usize {
        self.routes.len() + self.sids.len()
    }

    /// Nothing was announced, or all of it was withdrawn.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// SIDs alone.
    pub fn sid_count(&self) -> usize {
        self.sids.len()
    }

    /// Routes and SIDs that the present connection has not announced.
    pub fn stale(&self) -> usize {
        self.stale
    }

    /// Next-hop objects of the present connection.
    pub fn next_hops(&self) -> usize {
        self.next_hops.len()
    }

    /// Routes that wait for the object that their number stands for.
    pub fn waiting(&self) -> usize {
        self.routes.values().filter(|entry| self.resolve(&entry.what.route.target, DEPTH).is_none()).count()
    }

    /// Routes whose next hops are known, in the order of their keys.
    pub fn routes(&self) -> impl Iterator<Item = Announced> {
        self.routes.iter().filter_map(|(key, entry)| {
            let what = self.resolved(&entry.what)?;
            Some(Announced { key: *key, protocol: entry.what.route.protocol, what })
        })
    }

    /// SIDs that came in messages of their own, in the order of their prefixes.
    pub fn sids(&self) -> impl Iterator<Item = (Ipv6Net, &LocalSid)> {
        self.sids.iter().map(|(prefix, entry)| (*prefix, &entry.what))
    }

    /// Who made the route of a prefix; `None`: there is none, or its next hop is not known.
    pub fn protocol(&self, key: &RouteKey) -> Option<u8> {
        let known = &self.routes.get(key)?.what;
        self.resolve(&known.route.target, DEPTH).map(|_| known.route.protocol)
    }

    fn resolved(&self, known: &Known) -> Option<Resolved> {
        self.resolve(&known.route.target, DEPTH).or_else(|| known.before.clone())
    }

    fn resolve(&self, target: &Target, depth: u8) -> Option<Resolved> {
        Some(match target {
            Target::Hops(hops) => Resolved::Hops(hops.clone()),
            Target::Sid(sid) => Resolved::Sid(sid.clone()),
            Target::Blackhole => Resolved::Blackhole,
            Target::Unreachable => Resolved::Unreachable,
            Target::Unusable(why) => Resolved::Unusable(why.clone()),
            Target::Object(id) => self.object(*id, depth)?,
        })
    }

    fn object(&self, id: u32, depth: u8) -> Option<Resolved> {
        Some(match self.next_hops.get(&id)? {
            NextHop::Hop(hop) => Resolved::Hops(vec![hop.clone()]),
            NextHop::Sid(sid) => Resolved::Sid(sid.clone()),
            NextHop::Blackhole => Resolved::Blackhole,
            NextHop::Unusable(why) => Resolved::Unusable(why.clone()),
            NextHop::Group(_) if depth == 0 => Resolved::Unusable("a group of next hops in a circle".to_owned()),
            NextHop::Group(members) => self.group(members, depth - 1)?,
        })
    }

    /// All of its members; a single one may be anything.
    fn group(&self, members: &[(u32, u16)], depth: u8) -> Option<Resolved> {
        if let [(only, _)] = members {
            return self.object(*only, depth);
        }
        let mut all = Vec::new();
        for (id, weight) in members {
            match self.object(*id, depth)? {
                Resolved::Hops(hops) => {
                    all.extend(hops.into_iter().map(|hop| Hop { weight: hop.weight.saturating_mul(*weight), ..hop }));
                }
                Resolved::Unusable(why) => return Some(Resolved::Unusable(why)),
                _ => return Some(Resolved::Unusable("a next hop among several that sends nowhere".to_owned())),
            }
        }
        Some(Resolved::Hops(all))
    }
}
