//! Converts one answer into what is steered: paths are checked against the topology, and composed for every prefix
//! of the peer.

use std::net::IpAddr;

use ipnet::IpNet;

use super::Settings;
use super::answer::AnsweredPath;
use crate::compose::{Composed, Options, compose};
use crate::document::{Topology, Vertex};
use crate::failure::Failure;
use crate::sid::Family;
use crate::snapshot::{CarrierPath, Cause, PrefixPaths};

/// The result of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComposedPrefixes {
    /// Paths by prefix; never empty.
    pub prefixes: Vec<PrefixPaths>,
    /// Observations for the user that are not errors.
    pub notes: Vec<String>,
    /// Number of paths whose own text contains another carrier.
    pub mismatches: u64,
    /// Families of the peer's prefixes that are missing in `prefixes`. The last good paths of these families stay.
    pub left_out: Vec<Family>,
}

/// Checks paths, and composes their carriers for every prefix of the peer.
///
/// # Errors
/// If a path runs through something that is not in the topology, if the peer has no prefix, or if no prefix has a
/// carrier that is possible and allowed.
pub fn compose_prefixes(
    found: &[AnsweredPath],
    topology: &Topology,
    settings: &Settings,
    controller: Option<IpAddr>,
) -> Result<ComposedPrefixes, Failure> {
    let destination = found.first().and_then(|path| path.vertices.last());
    let id = destination.map_or("", |vertex| vertex.id.as_str());
    let mut documents: Vec<(Vec<&Vertex>, Option<&str>)> = Vec::new();
    for path in found {
        if let Some(missing) = topology.missing_on(&path.ids()) {
            let what = format!("path to {id}: {missing} is not in the topology");
            return Err(Failure::new(Cause::VanishedNode, what));
        }
        let vertices = path.vertices.iter().filter_map(|vertex| topology.vertices.get(&vertex.id)).collect();
        documents.push((vertices, path.text.as_deref()));
    }
    let Some(document) = topology.vertices.get(id) else {
        return Err(Failure::new(Cause::VanishedNode, format!("path to {id}: it is not in the topology")));
    };
    if document.prefixes.is_empty() {
        let what = format!("{id} has no prefix to steer; its document needs `prefix` and `prefix_len`");
        return Err(Failure::new(Cause::InvalidCarrier, what));
    }
    let mut result = ComposedPrefixes { notes: document.notes.clone(), ..ComposedPrefixes::default() };
    let mut refused = None;
    for family in [Family::V6, Family::V4] {
        if document.prefixes_of(family).next().is_none() {
            continue;
        }
        let prefixes = allowed_prefixes(document, family, settings, controller);
        let composed = prefixes.and_then(|prefixes| {
            let carriers = carriers(&documents, topology, settings, family, &mut result)?;
            Ok(prefix_paths(id, family, prefixes, &carriers))
        });
        match composed {
            Ok(paths) => result.prefixes.extend(paths),
            Err(why) => {
                result.notes.push(why.what.clone());
                result.left_out.push(family);
                refused = Some(why);
            }
        }
    }
    match refused {
        Some(why) if result.prefixes.is_empty() => Err(why),
        _ => Ok(result),
    }
}

/// Returns the paths of each prefix of a family. All prefixes have the same carriers.
fn prefix_paths(id: &str, family: Family, prefixes: Vec<IpNet>, carriers: &[(Composed, u16)]) -> Vec<PrefixPaths> {
    let first = named(id, family, carriers);
    let paths = |number: usize| if number == 0 { first.clone() } else { renamed(&first, number) };
    (0..).zip(prefixes).map(|(number, prefix)| PrefixPaths { prefix, paths: paths(number) }).collect()
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
    result: &mut ComposedPrefixes,
) -> Result<Vec<(Composed, u16)>, Failure> {
    let function = if family == Family::V6 { settings.function_v6 } else { settings.function_v4 };
    let options = Options { algo: settings.algo, family, strict: settings.strict, function };
    let mut distinct: Vec<(Composed, u16)> = Vec::new();
    for (path, text) in documents {
        let composed =
            compose(path, topology, &options).map_err(|why| Failure::new(Cause::InvalidCarrier, why.to_string()))?;
        let refused = |why: String| Failure::new(Cause::NotAllowed, why);
        settings.allowed.segments(&composed.segments).map_err(refused)?;
        // The server's text has one function for all families, so it is compared for IPv6 only.
        if family == Family::V6 && !settings.strict && text.is_some_and(|text| !composed.agrees_with(text)) {
            result.mismatches += 1;
        }
        for note in &composed.notes {
            if !result.notes.contains(note) {
                result.notes.push(note.clone());
            }
        }
        match distinct.iter_mut().find(|(known, _)| known.segments == composed.segments) {
            // Parallel links result in one carrier with the weight of all of them.
            Some((_, weight)) => *weight = weight.saturating_add(1),
            None => distinct.push((composed, 1)),
        }
    }
    Ok(distinct)
}

/// Returns the paths of the first prefix with their names: `hosts/host02`, `hosts/host02-v4`, `hosts/host02#2`. A name
/// stays when the path moves, so that its counters continue.
fn named(id: &str, family: Family, composed: &[(Composed, u16)]) -> Vec<CarrierPath> {
    let family = if family == Family::V4 { "-v4" } else { "" };
    let path = |(number, (composed, weight)): (usize, &(Composed, u16))| CarrierPath {
        name: if number == 0 { format!("{id}{family}") } else { format!("{id}{family}#{}", number + 1) },
        segments: composed.segments.clone(),
        weight: *weight,
        visits: composed.visits.clone(),
    };
    composed.iter().enumerate().map(path).collect()
}

/// Returns the paths of another prefix of the same peer with names of their own, because counters are kept by name.
fn renamed(paths: &[CarrierPath], number: usize) -> Vec<CarrierPath> {
    let renamed = |path: &CarrierPath| CarrierPath { name: format!("{}+{number}", path.name), ..path.clone() };
    paths.iter().map(renamed).collect()
}
