//! Next-hop objects: `ip nexthop`. A route may name such an object instead of listing next hops.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::attribute::{Attributes, address, byte_at, u16_at, u32_at};
use crate::encap::{self, Encap};
use crate::entry::{KernelAction, KernelHop};
use crate::rtnetlink::next_hop::{BLACKHOLE, ENCAP, ENCAP_TYPE, FDB, GATEWAY, GROUP, ID, OIF};

/// Length of `struct nhmsg` in bytes.
const HEAD: usize = 8;
/// Length of `struct nexthop_grp` in bytes: number, weight minus one (its upper byte since Linux 6.12), reserved.
const MEMBER: usize = 8;

/// A change of a next-hop object: it was added, replaced or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHopMessage {
    pub(crate) id: u32,
    /// New contents of the object; `None`: it was deleted.
    pub(crate) is: Option<NextHop>,
}

/// Contents of a next-hop object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextHop {
    Blackhole,
    /// Numbers of other objects with their weights.
    Group(Vec<(u32, u16)>),
    Single {
        device: u32,
        via: Option<IpAddr>,
        encap: Result<Option<Encap>, String>,
    },
    Unfollowed(String),
}

pub(crate) fn read(body: &[u8], is_new: bool) -> Option<NextHopMessage> {
    let attributes = Attributes(body.get(HEAD..)?);
    let find = |wanted| attributes.clone().find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    let number = |wanted| find(wanted).and_then(|value| u32_at(value, 0));
    let id = number(ID)?;
    if !is_new {
        return Some(NextHopMessage { id, is: None });
    }
    let is = if find(BLACKHOLE).is_some() {
        NextHop::Blackhole
    } else if find(FDB).is_some() {
        NextHop::Unfollowed("its next-hop object is for a bridge".to_owned())
    } else if let Some(group) = find(GROUP) {
        NextHop::Group(group.chunks_exact(MEMBER).filter_map(member).collect())
    } else if let Some(device) = number(OIF) {
        let kind = find(ENCAP_TYPE).and_then(|value| u16_at(value, 0)).unwrap_or_default();
        let encap = encap::encap(kind, find(ENCAP).unwrap_or_default());
        NextHop::Single { device, via: find(GATEWAY).and_then(address), encap }
    } else {
        NextHop::Unfollowed("its next-hop object names no device".to_owned())
    };
    Some(NextHopMessage { id, is: Some(is) })
}

fn member(bytes: &[u8]) -> Option<(u32, u16)> {
    let weight = u16::from_le_bytes([byte_at(bytes, 4)?, byte_at(bytes, 5)?]);
    Some((u32_at(bytes, 0)?, weight.saturating_add(1)))
}

/// Maximum number of next hops of a group. Linux allows thousands and stores them once for all routes.
const MOST_LEGS: usize = 1024;

/// All next-hop objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NextHops(HashMap<u32, NextHop>);

impl NextHops {
    /// Adds an object of a dump, in which each object occurs once.
    pub(crate) fn load(&mut self, message: NextHopMessage) {
        if let Some(is) = message.is {
            self.0.insert(message.id, is);
        }
    }

    /// Applies a change. Returns the objects whose meaning changed: this one and the groups that contain it. Empty: no
    /// change.
    pub(crate) fn apply(&mut self, message: NextHopMessage) -> Vec<u32> {
        let NextHopMessage { id, is } = message;
        if self.0.get(&id) == is.as_ref() {
            return Vec::new();
        }
        match is {
            Some(is) => drop(self.0.insert(id, is)),
            None => drop(self.0.remove(&id)),
        }
        let has_it = |next_hop: &NextHop| matches!(next_hop, NextHop::Group(members) if members.iter().any(|(member, _)| *member == id));
        let groups = self.0.iter().filter(|(_, next_hop)| has_it(next_hop)).map(|(&group, _)| group);
        std::iter::once(id).chain(groups).collect()
    }

    /// Returns what a route that uses this object does, or `None` if there is no such object.
    pub fn action(&self, id: u32) -> Option<KernelAction> {
        Some(match self.0.get(&id)? {
            NextHop::Blackhole => KernelAction::Blackhole,
            NextHop::Unfollowed(why) => KernelAction::Other(why.clone()),
            NextHop::Single { device, via, encap } => single(*device, *via, encap.clone(), 1),
            NextHop::Group(members) => match members.as_slice() {
                // A blackhole may be in a group only as its single member.
                [(only, _)] if !matches!(self.0.get(only), Some(NextHop::Group(_))) => self.action(*only)?,
                // Here, unlike in Linux, each route that uses the group has its own copy of the next hops.
                members if members.len() > MOST_LEGS => KernelAction::Other(format!(
                    "a group of {} next hops: at most {MOST_LEGS} are taken",
                    members.len()
                )),
                members => members
                    .iter()
                    .map(|&(member, weight)| self.leg(member, weight))
                    .collect::<Result<_, _>>()
                    .map_or_else(KernelAction::Other, KernelAction::Via),
            },
        })
    }

    fn leg(&self, member: u32, weight: u16) -> Result<KernelHop, String> {
        let Some(NextHop::Single { device, via, encap }) = self.0.get(&member) else {
            return Err(format!("next-hop object {member} is no leg of a group"));
        };
        match single(*device, *via, encap.clone(), weight) {
            KernelAction::Via(hops) => hops.into_iter().next().ok_or_else(String::new),
            KernelAction::Other(why) => Err(why),
            _ => Err(format!("next-hop object {member} in a group is a SID")),
        }
    }
}

/// Returns the action of a single next hop with its encapsulation.
pub(crate) fn single(
    device: u32,
    via: Option<IpAddr>,
    encap: Result<Option<Encap>, String>,
    weight: u16,
) -> KernelAction {
    match encap {
        Ok(None) => KernelAction::Via(vec![KernelHop { device, via, weight, encap: None }]),
        Ok(Some(Encap::Seg6(encap))) => KernelAction::Via(vec![KernelHop { device, via, weight, encap: Some(encap) }]),
        Ok(Some(Encap::Seg6Local(sid))) => KernelAction::Sid(sid),
        Err(why) => KernelAction::Other(why),
    }
}
