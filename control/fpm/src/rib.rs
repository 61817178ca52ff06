//! The table of what was announced: routes and SIDs by prefix. Numbers of next hops are resolved when a route is read.
//!
//! When zebra connects, it announces everything again, in no particular order and without a message that marks the end.
//! So everything from earlier connections stays, marked as stale, until it is announced again, or until nothing stale
//! has been announced again for a certain time.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;

use crate::event::{Event, Hop, LocalSid, NextHop, Route, RouteKey, Seg6Local, Target};
use crate::limits::{Limits, Room, Units};
use crate::objects::Objects;

/// Maximum number of connections whose end times are kept separately.
const ENDED: usize = 256;

/// What a route does, with all next hops resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// Sends packets over one of these next hops.
    Hops(Vec<Hop>),
    /// Processes packets as packets to a SID of this node.
    Sid(Seg6Local),
    /// Drops packets silently.
    Blackhole,
    /// Drops packets and answers with an ICMP error.
    Unreachable,
    /// srv6d cannot do what was announced; the text says why.
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

/// One route in its present state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Prefix and table of the route.
    pub key: RouteKey,
    /// Origin of the route (`rtm_protocol`).
    pub protocol: u8,
    /// Action of the route.
    pub what: Resolved,
}

/// An announcement and the number of the connection it came in.
#[derive(Clone, Debug)]
struct Entry<T> {
    what: T,
    session: u64,
}

#[derive(Clone, Debug)]
struct Known {
    route: Route,
    /// What the route did before, used as long as the number of the new next hop is not known.
    before: Option<Resolved>,
}

impl Units for Known {
    fn units(&self) -> usize {
        self.route.target.units() + self.before.as_ref().map_or(0, Units::units)
    }
}

/// Announcements that were refused because a limit was reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Number of refused announcements.
    pub count: u64,
    /// What the last refused announcement was about, and which limit it reached.
    pub last: Option<String>,
}

/// Everything that was announced.
#[derive(Clone, Debug, Default)]
pub struct Rib {
    routes: BTreeMap<RouteKey, Entry<Known>>,
    sids: BTreeMap<Ipv6Net, Entry<LocalSid>>,
    /// Next-hop objects of the present connection only, because the next connection assigns the numbers anew.
    next_hops: Objects,
    /// Number of the present or last connection; each connection adds 1.
    session: u64,
    connected: bool,
    stale: usize,
    /// When something stale was last announced again, or else when the connection began.
    confirmed: Option<Instant>,
    /// Ended connections whose announcements may still be here, the oldest first, with the times of their ends.
    ended: VecDeque<(u64, Instant)>,
    limits: Limits,
    room: Room,
    refused: Refused,
}

impl Rib {
    /// Sets the limits for later announcements. What is there already stays.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Starts a connection: all earlier announcements become stale.
    pub fn connected(&mut self, now: Instant) {
        self.let_go();
        self.session += 1;
        self.connected = true;
        self.confirmed = Some(now);
        self.stale = self.routes.len() + self.sids.len();
    }

    /// Ends the connection. Everything announced stays.
    pub fn disconnected(&mut self, now: Instant) {
        self.let_go();
        self.connected = false;
        self.ended.push_back((self.session, now));
        if self.ended.len() > ENDED {
            // What is left of the oldest connection ages out together with the next one.
            self.ended.pop_front();
        }
        self.stale = self.routes.len() + self.sids.len();
    }

    /// Replaces numbers of next hops by the next hops they stand for, because the numbers are valid only in their
    /// connection.
    fn let_go(&mut self) {
        let mut left = self.limits.units();
        let mut routes = std::mem::take(&mut self.routes);
        self.room = Room::default();
        routes.retain(|_, entry| {
            // The next hop of this route was never announced, so the route was never in force.
            let Some(resolved) = self.resolved(&entry.what, &mut left) else { return false };
            entry.what.route.target = resolved.into();
            entry.what.before = None;
            self.room.exchange(0, entry.what.units(), self.limits)
        });
        self.routes = routes;
        self.next_hops = Objects::default();
    }

    /// Applies an announcement.
    pub fn apply(&mut self, event: Event, now: Instant) {
        match event {
            Event::Route(key, route) => self.route(key, route, now),
            Event::RouteGone(key) => {
                let gone = self.routes.remove(&key);
                self.give_back(gone.as_ref());
                self.no_longer_stale(gone.map(|entry| entry.session), now);
            }
            Event::NextHop(id, next_hop) => self.next_hop(id, next_hop),
            Event::NextHopGone(id) => self.next_hops.remove(id, &mut self.room, self.limits),
            Event::Sid(prefix, sid) => self.sid(prefix, sid, now),
            Event::SidGone(prefix) => {
                let gone = self.sids.remove(&prefix).map(|entry| entry.session);
                self.no_longer_stale(gone, now);
            }
            Event::Ignored(_) => {}
        }
    }

    fn give_back(&mut self, gone: Option<&Entry<Known>>) {
        self.room.exchange(gone.map_or(0, |entry| entry.what.units()), 0, self.limits);
    }

    fn next_hop(&mut self, id: u32, next_hop: NextHop) {
        if let Err(why) = self.next_hops.insert(id, next_hop, &mut self.room, self.limits) {
            self.refuse(why);
        }
    }

    fn sid(&mut self, prefix: Ipv6Net, sid: LocalSid, now: Instant) {
        if self.is_full() && !self.sids.contains_key(&prefix) {
            return self.refuse(format!("the SID {prefix}: {}", self.full()));
        }
        let entry = Entry { what: sid, session: self.session };
        let old = self.sids.insert(prefix, entry).map(|old| old.session);
        self.no_longer_stale(old, now);
    }

    fn route(&mut self, key: RouteKey, route: Route, now: Instant) {
        if self.is_full() && !self.routes.contains_key(&key) {
            return self.refuse(format!("the route to {}: {}", key.prefix, self.full()));
        }
        let before = match self.resolve_alone(&route.target) {
            Some(_) => None,
            None => self.routes.get(&key).and_then(|old| self.in_force(&old.what)),
        };
        let old_units = self.routes.get(&key).map_or(0, |old| old.what.units());
        let mut known = Known { route, before };
        if !self.room.exchange(old_units, known.units(), self.limits) {
            let why = format!("all next hops together are more than the {} kept", self.limits.units());
            self.refuse(format!("the route to {}: {why}", key.prefix));
            known = Known { route: Route { target: Target::Unusable(why), ..known.route }, before: None };
        }
        let old = self.routes.insert(key, Entry { what: known, session: self.session });
        self.no_longer_stale(old.map(|old| old.session), now);
    }

    fn is_full(&self) -> bool {
        self.len() >= self.limits.routes
    }

    fn full(&self) -> String {
        format!("there are {} routes and SIDs, as many as `max_routes` of [fpm] allows", self.len())
    }

    fn refuse(&mut self, why: String) {
        self.refused.count += 1;
        self.refused.last = Some(why);
    }

    /// Returns the announcements that were refused because of [`Limits`].
    pub fn refused(&self) -> &Refused {
        &self.refused
    }

    /// Returns the first `most` unusable next-hop objects of the present connection, with the reasons.
    pub fn unusable_next_hops(&self, most: usize) -> Vec<(u32, String)> {
        self.next_hops.unusable(most, self.limits.units())
    }

    fn no_longer_stale(&mut self, session: Option<u64>, now: Instant) {
        if session.is_some_and(|session| session != self.session) {
            self.stale = self.stale.saturating_sub(1);
            self.confirmed = Some(now);
        }
    }

    /// Returns the time at which [`sweep`](Self::sweep) is due, which is when nothing stale has been announced again for the time
    /// `quiet`. Returns `None` if nothing is stale, or if no peer is connected that could announce it again.
    pub fn sweep_due(&self, quiet: Duration) -> Option<Instant> {
        self.confirmed.filter(|_| self.connected && self.stale > 0).map(|confirmed| confirmed + quiet)
    }

    /// Forgets everything that the present connection has not announced, and returns how many entries that were.
    pub fn sweep(&mut self) -> usize {
        self.ended.clear();
        let swept = self.keep_from(self.session);
        self.stale = 0;
        swept
    }

    /// Returns the time at which [`age_out`](Self::age_out) is due. While no peer is connected, that is `time` after the end of the
    /// oldest connection whose announcements are still here.
    pub fn age_due(&self, time: Duration) -> Option<Instant> {
        let oldest = self.ended.front().filter(|_| !self.connected && self.stale > 0);
        oldest.map(|(_, ended)| *ended + time)
    }

    /// Forgets what connections announced that ended at least `time` ago, unless a peer is connected. Returns how many
    /// entries that were.
    pub fn age_out(&mut self, now: Instant, time: Duration) -> usize {
        let mut last = None;
        while self.age_due(time).is_some_and(|due| due <= now) {
            last = self.ended.pop_front();
        }
        let Some((session, _)) = last else { return 0 };
        let gone = self.keep_from(session + 1);
        self.stale = self.len();
        gone
    }

    /// Forgets what connections with a number below `session` announced, and returns how many entries that were.
    fn keep_from(&mut self, session: u64) -> usize {
        let (before, limits, room) = (self.len(), self.limits, &mut self.room);
        self.routes.retain(|_, entry| {
            let stays = entry.session >= session;
            if !stays {
                room.exchange(entry.what.units(), 0, limits);
            }
            stays
        });
        self.sids.retain(|_, entry| entry.session >= session);
        before - self.len()
    }

    /// Returns the number of routes and SIDs together.
    pub fn len(&self) -> usize {
        self.routes.len() + self.sids.len()
    }

    /// Returns whether there are neither routes nor SIDs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of SIDs that came in messages of their own.
    pub fn sid_count(&self) -> usize {
        self.sids.len()
    }

    /// Returns the number of routes and SIDs that the present connection has not announced.
    pub fn stale(&self) -> usize {
        self.stale
    }

    /// Returns the number of next-hop objects of the present connection.
    pub fn next_hops(&self) -> usize {
        self.next_hops.len()
    }

    /// Returns the number of routes whose next-hop object has not been announced yet.
    pub fn waiting(&self) -> usize {
        let mut left = self.limits.units();
        let waits = |entry: &&Entry<Known>| self.resolve(&entry.what.route.target, &mut left).is_none();
        self.routes.values().filter(waits).count()
    }

    /// Returns the routes whose next hops are known, ordered by key. Routes beyond what all routes together may resolve
    /// to are unusable.
    pub fn routes(&self) -> impl Iterator<Item = Announced> {
        let mut left = self.limits.units();
        self.routes.iter().filter_map(move |(key, entry)| {
            let what = self.resolved(&entry.what, &mut left)?;
            Some(Announced { key: *key, protocol: entry.what.route.protocol, what })
        })
    }

    /// Returns the SIDs that came in messages of their own, ordered by prefix.
    pub fn sids(&self) -> impl Iterator<Item = (Ipv6Net, &LocalSid)> {
        self.sids.iter().map(|(prefix, entry)| (*prefix, &entry.what))
    }

    /// Returns whether the prefix has a route, even if its next hop is not known.
    pub fn has_route(&self, key: &RouteKey) -> bool {
        self.routes.contains_key(key)
    }

    /// Returns the origin of the route of a prefix, or `None` if there is no route or its next hop is not known.
    pub fn protocol(&self, key: &RouteKey) -> Option<u8> {
        let known = &self.routes.get(key)?.what;
        self.resolve_alone(&known.route.target).map(|_| known.route.protocol)
    }

    fn in_force(&self, known: &Known) -> Option<Resolved> {
        self.resolve_alone(&known.route.target).or_else(|| known.before.clone())
    }

    fn resolved(&self, known: &Known, left: &mut usize) -> Option<Resolved> {
        self.resolve(&known.route.target, left).or_else(|| known.before.clone())
    }

    /// Resolves a target without regard to the units that other routes occupy.
    fn resolve_alone(&self, target: &Target) -> Option<Resolved> {
        let mut left = usize::MAX;
        self.resolve(target, &mut left)
    }

    fn resolve(&self, target: &Target, left: &mut usize) -> Option<Resolved> {
        self.next_hops.resolve(target, left)
    }
}
