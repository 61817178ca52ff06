//! Merges the locators and SIDs of both files, and checks them against each other.

use std::collections::HashMap;
use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use crate::finding::Findings;
use crate::switch::{self, Action, DscpMode, Locator, Origin, Sid};

/// A locator with the place where it is written.
#[derive(Clone, Debug)]
pub(crate) struct WrittenLocator {
    pub(crate) locator: Locator,
    /// Value of `vrf`. It is not used, but a VRF of this name must exist.
    pub(crate) vrf: Option<String>,
    pub(crate) place: String,
}

/// A SID with the place where it is written.
#[derive(Clone, Debug)]
pub(crate) struct WrittenSid {
    pub(crate) prefix: Ipv6Net,
    pub(crate) written: String,
    pub(crate) locator: String,
    pub(crate) action: Action,
    pub(crate) decap_dscp_mode: Option<DscpMode>,
    pub(crate) vrf: Option<String>,
    pub(crate) interface: Option<String>,
    pub(crate) adjacency: Option<Ipv6Addr>,
    pub(crate) origin: Origin,
    pub(crate) place: String,
}

/// Returns one locator per name, in the order in which they are written.
pub(crate) fn locators(written: Vec<WrittenLocator>, found: &mut Findings) -> Vec<Locator> {
    let mut kept: Vec<WrittenLocator> = Vec::new();
    let mut by_name: HashMap<String, usize> = HashMap::new();
    for new in written {
        let at = *by_name.entry(new.locator.name.clone()).or_insert(kept.len());
        let Some(old) = kept.get_mut(at) else {
            kept.push(new);
            continue;
        };
        let (here, there) = (&old.locator, &new.locator);
        if (here.prefix, here.block_len, here.node_len) != (there.prefix, there.block_len, there.node_len) {
            let what = format!(
                "locator {} is {} with a block of {} bits here, and {} with one of {} in {}: make them the same",
                here.name, here.prefix, here.block_len, there.prefix, there.block_len, new.place
            );
            found.error(&old.place, what);
        } else if here.origin != there.origin {
            old.locator.origin = Origin::Both;
        }
    }
    kept.into_iter().map(|written| written.locator).collect()
}

/// Returns one SID per prefix, in the order in which they are written. SIDs that SONiC's daemons would not program are
/// left out.
pub(crate) fn sids(written: Vec<WrittenSid>, locators: &[Locator], found: &mut Findings) -> Vec<Sid> {
    let mut kept: Vec<WrittenSid> = Vec::new();
    let mut by_prefix: HashMap<Ipv6Net, usize> = HashMap::new();
    let locators: HashMap<&str, &Locator> = locators.iter().map(|locator| (locator.name.as_str(), locator)).collect();
    for new in written {
        if !fits(&new, locators.get(new.locator.as_str()).copied(), found) {
            continue;
        }
        let at = *by_prefix.entry(new.prefix).or_insert(kept.len());
        match kept.get_mut(at) {
            None => kept.push(new),
            Some(old) => join(old, new, found),
        }
    }
    let sids = kept.into_iter().map(|written| {
        let block_len = locators.get(written.locator.as_str()).map_or(32, |locator| locator.block_len);
        Sid {
            prefix: written.prefix,
            written: written.written,
            locator: written.locator,
            block_len,
            action: written.action,
            decap_dscp_mode: written.decap_dscp_mode,
            vrf: written.vrf,
            interface: written.interface,
            adjacency: written.adjacency,
            origin: written.origin,
        }
    });
    sids.collect()
}

/// Checks the position of a SID as bgpcfgd does: it must lie in its locator's block, and a uN in the locator itself.
fn fits(sid: &WrittenSid, locator: Option<&Locator>, found: &mut Findings) -> bool {
    let Some(locator) = locator else {
        let what = format!("waits for the locator {}, which is nowhere: left out", sid.locator);
        found.ignored(&sid.place, what);
        return false;
    };
    let block = locator.block();
    if !block.contains(&sid.prefix) || sid.prefix.prefix_len() <= block.prefix_len() {
        let what = format!("{} lies outside of {block}, the block of locator {}: left out", sid.prefix, locator.name);
        found.ignored(&sid.place, what);
        return false;
    }
    if sid.action == Action::Un && !locator.prefix.contains(&sid.prefix) {
        let what = format!("a uN lies in its locator {}, and {} does not: left out", locator.prefix, sid.prefix);
        found.ignored(&sid.place, what);
        return false;
    }
    let behind = sid.prefix.prefix_len() - block.prefix_len();
    if !block.prefix_len().is_multiple_of(8) || !behind.is_multiple_of(8) {
        let what =
            format!("a shift by whole bytes is all there is, and {} asks for {behind} bits: left out", sid.prefix);
        found.ignored(&sid.place, what);
        return false;
    }
    true
}

/// Merges two entries of the same SID. A value that one of them leaves open is taken from the other; any other
/// difference is a contradiction.
fn join(old: &mut WrittenSid, new: WrittenSid, found: &mut Findings) {
    let default = |vrf: &Option<String>| vrf.as_deref().filter(|vrf| !switch::is_default_vrf(vrf)).map(str::to_owned);
    let differ = |one: &str, other: &str| one != other;
    let contradiction = if old.action != new.action {
        Some(("action", old.action.keyword().to_owned(), new.action.keyword().to_owned()))
    } else if default(&old.vrf) != default(&new.vrf) {
        let shown = |vrf: &Option<String>| default(vrf).unwrap_or_else(|| "default".to_owned());
        Some(("VRF", shown(&old.vrf), shown(&new.vrf)))
    } else if let (Some(one), Some(other)) = (&old.interface, &new.interface)
        && differ(one, other)
    {
        Some(("port", one.clone(), other.clone()))
    } else if let (Some(one), Some(other)) = (old.adjacency, new.adjacency)
        && one != other
    {
        Some(("neighbour", one.to_string(), other.to_string()))
    } else if let (Some(one), Some(other)) = (old.decap_dscp_mode, new.decap_dscp_mode)
        && one != other
    {
        Some(("decap_dscp_mode", one.keyword().to_owned(), other.keyword().to_owned()))
    } else {
        None
    };
    if let Some((what, here, there)) = contradiction {
        let what = format!("{}: {what} {here} here, {there} in {}: make them the same", old.prefix, new.place);
        found.error(&old.place, what);
        return;
    }
    if old.locator != new.locator {
        let what = format!("{} stands under locator {} too: {} counts", old.prefix, new.locator, old.locator);
        found.note(&new.place, what);
    }
    if old.origin != new.origin {
        old.origin = Origin::Both;
    }
    old.decap_dscp_mode = old.decap_dscp_mode.or(new.decap_dscp_mode);
    old.vrf = old.vrf.take().or(new.vrf);
    old.interface = old.interface.take().or(new.interface);
    old.adjacency = old.adjacency.or(new.adjacency);
}
