//! Next-hop objects, and how their numbers are resolved.
//!
//! Groups may contain groups, so a few kilobytes can stand for billions of next hops. Therefore a look-up is bounded in
//! the number of objects it visits, not only in depth.

use std::collections::HashMap;

use crate::event::{Hop, NextHop, Target};
use crate::limits::{Limits, OBJECTS_PER_ROUTE, Room, Units};
use crate::rib::Resolved;

/// Maximum depth of groups within groups.
const DEPTH: u8 = 4;

/// Reason given for a route for which no units are left.
const ALL_TOGETHER: &str = "all routes together have more next hops than are kept: raise `max_routes` of [fpm]";

/// The next-hop objects of one connection, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects(HashMap<u32, NextHop>);

/// Why a group cannot be resolved to a list of next hops.
enum Missing {
    /// One of its members has not been announced yet.
    Unknown,
    /// The group can never be resolved; the text says why.
    Unusable(String),
}

/// A look-up in progress, with the number of objects that it may still visit.
struct Visit<'a> {
    objects: &'a Objects,
    left: usize,
}

impl Objects {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn remove(&mut self, id: u32, room: &mut Room, limits: Limits) {
        if let Some(old) = self.0.remove(&id) {
            room.exchange(old.units(), 0, limits);
        }
    }

    /// Inserts an object, replacing any earlier one of this number.
    ///
    /// # Errors
    /// A limit is reached. Then the number stands for an unusable object or, if there are too many objects, for none.
    pub(crate) fn insert(&mut self, id: u32, object: NextHop, room: &mut Room, limits: Limits) -> Result<(), String> {
        if self.0.len() >= limits.routes && !self.0.contains_key(&id) {
            return Err(format!("next-hop object {id}: there are {} already, as many as may be kept", self.0.len()));
        }
        let old = self.0.get(&id).map_or(0, Units::units);
        if room.exchange(old, object.units(), limits) {
            self.0.insert(id, object);
            return Ok(());
        }
        let why = format!("next-hop object {id}: all next hops together are more than the {} kept", limits.units());
        self.0.insert(id, NextHop::Unusable(why.clone()));
        Err(why)
    }

    /// Resolves a target. The units it occupies are subtracted from `left`, the units left for all routes together.
    /// Returns `None` if the target leads to a number that has not been announced.
    pub(crate) fn resolve(&self, target: &Target, left: &mut usize) -> Option<Resolved> {
        if *left == 0 {
            return Some(Resolved::Unusable(ALL_TOGETHER.to_owned()));
        }
        let mut visit = Visit { objects: self, left: OBJECTS_PER_ROUTE };
        let resolved = match target {
            Target::Hops(hops) if hops.len() > OBJECTS_PER_ROUTE => Resolved::Unusable(too_many()),
            Target::Hops(hops) => Resolved::Hops(hops.clone()),
            Target::Sid(sid) => Resolved::Sid(sid.clone()),
            Target::Blackhole => Resolved::Blackhole,
            Target::Unreachable => Resolved::Unreachable,
            Target::Unusable(why) => Resolved::Unusable(why.clone()),
            Target::Object(id) => visit.object(*id)?,
        };
        let units = resolved.units().max(OBJECTS_PER_ROUTE - visit.left);
        let fits = units <= *left;
        *left = left.saturating_sub(units);
        Some(if fits { resolved } else { Resolved::Unusable(ALL_TOGETHER.to_owned()) })
    }

    /// Returns the unusable objects with the reasons, ordered by number; at most `most` of them.
    pub(crate) fn unusable(&self, most: usize, mut left: usize) -> Vec<(u32, String)> {
        let mut groups: Vec<u32> =
            self.0.iter().filter(|(_, object)| is_refusable(object)).map(|(id, _)| *id).collect();
        groups.sort_unstable();
        let why = |id| match self.resolve(&Target::Object(id), &mut left) {
            Some(Resolved::Unusable(why)) => Some((id, why)),
            _ => None,
        };
        groups.into_iter().filter_map(why).take(most).collect()
    }
}

fn is_refusable(object: &NextHop) -> bool {
    matches!(object, NextHop::Group(_) | NextHop::Unusable(_))
}

impl Visit<'_> {
    /// Resolves an object. A single object may be of any kind, and a group of one is the same as its member.
    fn object(&mut self, id: u32) -> Option<Resolved> {
        let mut next = id;
        for depth in (0..=DEPTH).rev() {
            self.left = match self.left.checked_sub(1) {
                Some(left) => left,
                None => return Some(Resolved::Unusable(too_many())),
            };
            match self.objects.0.get(&next)? {
                NextHop::Hop(hop) => return Some(Resolved::Hops(vec![hop.clone()])),
                NextHop::Sid(sid) => return Some(Resolved::Sid(sid.clone())),
                NextHop::Blackhole => return Some(Resolved::Blackhole),
                NextHop::Unusable(why) => return Some(Resolved::Unusable(why.clone())),
                NextHop::Group(members) => match members.as_slice() {
                    [] => return Some(Resolved::Unusable("a group without next hops".to_owned())),
                    [(only, _)] => next = *only,
                    several => return self.group(several, depth),
                },
            }
        }
        Some(Resolved::Unusable(circle()))
    }

    fn group(&mut self, members: &[(u32, u16)], depth: u8) -> Option<Resolved> {
        let mut hops = Vec::new();
        match self.members(members, 1, depth, &mut hops) {
            Ok(()) if hops.is_empty() => Some(Resolved::Unusable("a group without next hops".to_owned())),
            Ok(()) => Some(Resolved::Hops(hops)),
            Err(Missing::Unknown) => None,
            Err(Missing::Unusable(why)) => Some(Resolved::Unusable(why)),
        }
    }

    /// Appends the next hops of these members, with their weights multiplied by `share`.
    fn members(&mut self, members: &[(u32, u16)], share: u16, depth: u8, hops: &mut Vec<Hop>) -> Result<(), Missing> {
        let unusable = |why: &str| Missing::Unusable(why.to_owned());
        for &(id, weight) in members {
            self.left = self.left.checked_sub(1).ok_or_else(|| Missing::Unusable(too_many()))?;
            let weight = share.saturating_mul(weight);
            match self.objects.0.get(&id).ok_or(Missing::Unknown)? {
                NextHop::Hop(hop) => hops.push(Hop { weight: hop.weight.saturating_mul(weight), ..hop.clone() }),
                NextHop::Group(_) if depth == 0 => return Err(Missing::Unusable(circle())),
                NextHop::Group(members) => self.members(members, weight, depth - 1, hops)?,
                NextHop::Unusable(why) => return Err(unusable(why)),
                NextHop::Sid(_) | NextHop::Blackhole => {
                    return Err(unusable("a next hop among several that sends nowhere"));
                }
            }
        }
        Ok(())
    }
}

fn circle() -> String {
    "a group of next hops in a circle".to_owned()
}

fn too_many() -> String {
    format!("a group that leads through more than {OBJECTS_PER_ROUTE} next hops and groups")
}
