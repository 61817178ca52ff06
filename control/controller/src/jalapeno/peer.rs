//! One answer to what is programmed: checked against the topology, composed for every prefix of the peer.

use std::net::IpAddr;

use ipnet::IpNet;

use super::Settings;
use super::answer::Walk;
use crate::compose::{Composed, Options, compose};
use crate::document::{Topology, Vertex};
use crate::failure::Failure;
use crate::sid::Family;
use crate::snapshot::{CarrierPath, Cause, PrefixPaths};

/// What an answer became.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Programmed {
    /// By prefix; never empty.
    pub prefixes: Vec<PrefixPaths>,
    /// What deserves a look.
    pub notes: Vec<String>,
    /// Paths whose own text says another carrier.
    pub mismatches: u64,
    /// Families that the peer has a prefix of, and nothing in `prefixes`: what was good for them stays.
    pub left_out: Vec<Family>,
}

/// Checks and composes.
///
/// # Errors
/// A path through something that is not in the topology, no prefix, or no carrier for any prefix, or none that is allowed.
pub fn program(
    walks: &[Walk],
    topology: &Topology,
    settings: &Settings,
    controller: Option<IpAddr>,
) -> Result<Programmed, Failure> {
    let destination = walks.first().and_then(|walk| walk.vertices.last());
    let id = destination.map_or("", |vertex| vertex.id.as_str());
    let mut documents: Vec<(Vec<&Vertex>, Option<&str>)> = Vec::new();
    for walk in walks {
        if let Some(missing) = topology.missing_on(&walk.ids()) {
            let what = format!("path to {id}: {missing} is not in the topology");
            return Err(Failure::new(Cause::VanishedNode, what));
        }
        let vertices = walk.vertices.iter().filter_map(|vertex| topology.vertices.get(&vertex.id)).collect();
        documents.push((vertices, walk.text.as_deref()));
    }
    let Some(document) = topology.vertices.get(id) else {
        return Err(Failure::new(Cause::VanishedNode, format!("path to {id}: it is not in the topology")));
    };
    if document.prefixes.is_empty() {
        let what = format!("{id} has no prefix to steer; its document needs `prefix` and `prefix_len`");
        return Err(Failure::new(Cause::InvalidCarrier, what));
    }
    let mut programmed = Programmed { notes: document.notes.clone(), ..Programmed::default() };
    let mut refused = None;
    for family in [Family::V6, Family::V4] {
        if document.prefixes_of(family).next().is_none() {
            continue;
        }
        let prefixes = allowed_prefixes(document, family, settings, controller);
        let carried = prefixes
            .and_then(|prefixes| Ok((prefixes, carriers(&documents, topology, settings, family, &mut programmed)?)));
        match carried {
            Ok((prefixes, composed)) => {
                let paths = named(id, family, &composed);
                programmed.prefixes.extend(prefixes.into_iter().enumerate().map(|(number, prefix)| PrefixPaths {
                    prefix,
                    paths: if number == 0 { paths.clone() } else { renamed(&paths, number) },
                }));
            }
            Err(why) => {
                programmed.notes.push(why.what.clone());
                programmed.left_out.push(family);
                refused = Some(why);
            }
        }
    }
    match refused {
        Some(why) if programmed.prefixes.is_empty() => Err(why),
        _ => Ok(programmed),
    }
}

fn allowed_prefixes(
    document: &Vertex,
    family: Family,
    settings: &Settings,
    controller: Option<IpAddr>,
) -> Result<Vec<IpNet>, Failure> {
    let refused = |why: String| Failure::new(Cause::NotAllowed, format!("path to {}: {why}", document.id));
    let check = |prefix: IpNet| settings.allowed.prefix(prefix, controller).map(|()| prefix).map_err(refused);
    document.prefixes_of(family).map(check).collect()
}

fn carriers(
    documents: &[(Vec<&Vertex>, Option<&str>)],
    topology: &Topology,
    settings: &Settings,
    family: Family,
    programmed: &mut Programmed,
) -> Result<Vec<(Composed, u16)>, Failure> {
    let function = if family == Family::V6 { settings.function_v6 } else { settings.function_v4 };
    let options = Options { algo: settings.algo, family, strict: settings.strict, function };
    let mut distinct: Vec<(Composed, u16)> = Vec::new();
    for (walk, text) in documents {
        let composed =
            compose(walk, topology, &options).map_err(|why| Failure::new(Cause::InvalidCarrier, why.to_string()))?;
        let refused = |why: String| Failure::new(Cause::NotAllowed, why);
        settings.allowed.segments(&composed.segments).map_err(refused)?;
        // The text has one function for all families: only IPv6 can be compared.
        if family == Family::V6 && !settings.strict && text.is_some_and(|text| !composed.agrees_with(text)) {
            programmed.mismatches += 1;
        }
        for note in &composed.notes {
            if !programmed.notes.contains(note) {
                programmed.notes.push(note.clone());
            }
        }
        match distinct.iter_mut().find(|(known, _)| known.segments == composed.segments) {
            // Parallel links: one carrier, with the share of both.
            Some((_, weight)) => *weight = weight.saturating_add(1),
            None => distinct.push((composed, 1)),
        }
    }
    Ok(distinct)
}

/// `hosts/host02`, `hosts/host02-v4`, `hosts/host02#2`: stays while the path moves, so that its counters go on.
fn named(id: &str, family: Family, composed: &[(Composed, u16)]) -> Vec<CarrierPath> {
    let family = if family == Family::V4 { "-v4" } else { "" };
    let path = |(number, (composed, weight)): (usize, &(Composed, u16))| CarrierPath {
        name: if number == 0 { format!("{id}{family}") } else { format!("{id}{family}#{}", number + 1) },
        segments: composed.segments.clone(),
        weight: *weight,
        via: composed.via.clone(),
    };
    composed.iter().enumerate().map(path).collect()
}

/// Counters are by name: another prefix of the same peer has names of its own.
fn renamed(paths: &[CarrierPath], number: usize) -> Vec<CarrierPath> {
    let renamed = |path: &CarrierPath| CarrierPath { name: format!("{}+{number}", path.name), ..path.clone() };
    paths.iter().map(renamed).collect()
}
