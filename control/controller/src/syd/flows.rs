//! Conversion of this node's flows into paths: segment lists are checked and packed again.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv6Addr;

use ipnet::IpNet;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::allowed::Allowed;
use crate::bounded::Bounded;
use crate::compose::{Item, fill};
use crate::failure::Failure;
use crate::sid::Block;
use crate::snapshot::{CarrierPath, Cause, PrefixPaths};

/// Maximum number of flows from this node that are read of one workload.
const MAX_FLOWS: usize = 1 << 17;
/// Maximum number of segments of one flow that are read. A list with more segments than a packet can carry is refused
/// later.
const MAX_SEGMENTS: usize = 64;

/// Answer of `GET /paths/{w}/flows`: the flows from one node, by the node to which they lead.
#[derive(Debug, Default)]
pub struct Flows {
    by_peer: BTreeMap<String, Vec<Flow>>,
    kept: usize,
}

#[derive(Debug, Deserialize)]
struct Flow {
    src_node_id: String,
    dst_node_id: String,
    #[serde(default)]
    segment_list: Option<Bounded<String, MAX_SEGMENTS>>,
    #[serde(default)]
    outer_da: Option<String>,
    /// Number of flows that one entry between two leaves stands for.
    #[serde(default, rename = "flow_count")]
    count: Option<u16>,
}

/// Reads the answer or one of its lists, without keeping the flows of other nodes.
struct From<'f> {
    node: &'f str,
    flows: &'f mut Flows,
}

/// Reads the whole answer: an object with two lists of flows, each of which may be missing or `null`.
impl<'de> Visitor<'de> for From<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `flows`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(key) = entries.next_key::<Cow<'de, str>>()? {
            match key.as_ref() {
                // The second list has the flows per pair of leaves, which an agent on a leaf programs.
                "flows" | "leaf_pair_flows" => {
                    entries.next_value_seed(List(From { node: self.node, flows: self.flows }))?;
                }
                _ => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for From<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

/// Reads one of the lists.
struct List<'f>(From<'f>);

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of flows")
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let From { node, flows } = self.0;
        while let Some(flow) = items.next_element::<Flow>()? {
            if flow.src_node_id != node {
                continue;
            }
            if flows.kept == MAX_FLOWS {
                return Err(A::Error::custom(format_args!("{node} has more than {MAX_FLOWS} flows")));
            }
            flows.kept += 1;
            flows.by_peer.entry(flow.dst_node_id.clone()).or_default().push(flow);
        }
        Ok(())
    }
}

/// Result of the flows to one peer.
#[derive(Clone, Debug, PartialEq)]
pub struct Programmed {
    /// Paths by prefix.
    pub prefixes: Vec<PrefixPaths>,
    /// Number of flows whose outer destination is not their first segment.
    pub mismatches: u64,
}

impl Flows {
    /// Parses an answer, and keeps the flows from `node`.
    ///
    /// # Errors
    /// If it has another shape, or too many flows.
    pub fn parse(bytes: &[u8], node: &str) -> serde_json::Result<Self> {
        let mut flows = Self::default();
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        From { node, flows: &mut flows }.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(flows)
    }

    /// Returns the paths to a peer. Every flow to the peer is one of its paths.
    ///
    /// # Errors
    /// If there is no flow to the peer, or if the path of a flow is invalid or not allowed.
    pub fn program(&self, peer: &str, prefixes: &[IpNet], allowed: &Allowed) -> Result<Programmed, Failure> {
        let Some(flows) = self.by_peer.get(peer) else {
            // The answer simply omits a pair that could not be placed.
            return Err(Failure::new(Cause::NotFound, format!("the workload has no flow to {peer}")));
        };
        let invalid = |why: String| Failure::new(Cause::InvalidCarrier, format!("flow to {peer}: {why}"));
        let mut lists: Vec<(Vec<Ipv6Addr>, u16)> = Vec::new();
        let mut mismatches = 0;
        for flow in flows {
            let texts = flow.segment_list.as_ref().map(|list| list.0.as_slice()).unwrap_or_default();
            mismatches += u64::from(flow.outer_da.as_ref().is_some_and(|outer| texts.first() != Some(outer)));
            let (segments, share) = (segments(texts).map_err(invalid)?, flow.count.unwrap_or(1).max(1));
            let refused = |why| Failure::new(Cause::NotAllowed, format!("flow to {peer}: {why}"));
            allowed.segments(&segments).map_err(refused)?;
            match lists.iter_mut().find(|(known, _)| *known == segments) {
                Some((_, weight)) => *weight = weight.saturating_add(share),
                None => lists.push((segments, share)),
            }
        }
        let prefixes = prefixes.iter().enumerate();
        let prefixes =
            prefixes.map(|(number, prefix)| PrefixPaths { prefix: *prefix, paths: named(peer, number, &lists) });
        Ok(Programmed { prefixes: prefixes.collect(), mismatches })
    }
}

/// Returns named paths: `leaf-02`, `leaf-02#2`, or `leaf-02+1` for a second prefix. A name stays when the path moves,
/// so that its counters continue.
fn named(peer: &str, number: usize, lists: &[(Vec<Ipv6Addr>, u16)]) -> Vec<CarrierPath> {
    let prefix = if number == 0 { String::new() } else { format!("+{number}") };
    let path = |(index, (segments, weight)): (usize, &(Vec<Ipv6Addr>, u16))| {
        let more = if index == 0 { String::new() } else { format!("#{}", index + 1) };
        CarrierPath {
            name: format!("{peer}{prefix}{more}"),
            segments: segments.clone(),
            weight: *weight,
            visits: Vec::new(),
        }
    };
    lists.iter().enumerate().map(path).collect()
}

/// Parses segments, and packs carriers again, because a zero uSID that pads a node would end its carrier. If the
/// segments are not carriers of one block, they stay as they are (SIDs that could not be packed are sent unchanged).
fn segments(texts: &[String]) -> Result<Vec<Ipv6Addr>, String> {
    let parsed: Result<Vec<Ipv6Addr>, String> =
        texts.iter().map(|text| text.parse().map_err(|_| format!("{text:?} is not an address"))).collect();
    let parsed = parsed?;
    let first = parsed.first().ok_or("its path has no SIDs")?;
    let block_of = |address: &Ipv6Addr| match address.segments() {
        [high, low, ..] => Block([high, low]),
    };
    let block = block_of(first);
    if let Some(empty) = parsed.iter().find(|address| matches!(address.segments(), [_, _, 0, 0, 0, 0, 0, 0])) {
        return Err(format!("{empty} has no uSID behind its block"));
    }
    if parsed.iter().any(|address| block_of(address) != block) {
        return Ok(parsed);
    }
    let items: Option<Vec<Vec<Item>>> = parsed.iter().map(items).collect();
    Ok(items.map_or(parsed, |items| fill(block, &items.concat())))
}

/// Splits a container into items. It holds slots of 32 bits (a node and its function, which is zero for a plain uN), or
/// uSIDs of 16 bits. In both cases each two uSIDs stay together, because a function at the head of a carrier would
/// reach no node. Returns `None` for a function without a node, which is not a container.
fn items(container: &Ipv6Addr) -> Option<Vec<Item>> {
    let [_, _, usids @ ..] = container.segments();
    let end = usids.iter().rposition(|usid| *usid != 0).map_or(0, |last| last + 1);
    let slots = usids.get(..end).unwrap_or_default().chunks(2).map(|slot| match slot {
        [0, _] | [] => None,
        [node, 0] | [node] => Some(Item::One(*node)),
        [node, function, ..] => Some(Item::Pair(*node, *function)),
    });
    slots.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    fn repacked(texts: &[&str]) -> Vec<String> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        segments(&texts).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_node_padded_with_zero_does_not_end_the_carrier() {
        assert_eq!(repacked(&["fc00:0:32:0:16:e000:28:0"]), ["fc00:0:32:16:e000:28::"]);
        assert_eq!(repacked(&["fc00:0:1:e002:4:e004:16:0", "fc00:0:28::"]), ["fc00:0:1:e002:4:e004:16:28"]);
        assert_eq!(repacked(&["fc00:0:9:e001:a:e001:3:0"]), ["fc00:0:9:e001:a:e001:3:0"]);
    }

    #[test]
    fn a_node_and_its_function_stay_together() {
        let torn = ["fc00:0:1:e002:4:e004:16:0", "fc00:0:28:e001:29::"];
        assert_eq!(repacked(&torn), ["fc00:0:1:e002:4:e004:16:0", "fc00:0:28:e001:29::"]);
        let full = ["fc00:0:1:2:3:4:5:6", "fc00:0:7:8::"];
        assert_eq!(repacked(&full), full, "uSIDs of 16 bits");
    }

    #[test]
    fn what_cannot_be_packed_stays_and_what_is_nothing_is_refused() {
        assert_eq!(repacked(&["fc00:0:1::", "2001:db8::1"]), ["fc00:0:1::", "2001:db8::1"]);
        assert_eq!(repacked(&["fc00:0:0:1:e000::", "fc00:0:0:2:e000::"]), ["fc00:0:0:1:e000::", "fc00:0:0:2:e000::"]);
        assert!(segments(&[]).is_err());
        assert!(segments(&["fc00::".to_owned()]).is_err());
        assert!(segments(&["fc00:0:1::".to_owned(), "fc00::".to_owned()]).is_err());
        assert!(segments(&["fc00:0:1:::".to_owned()]).is_err());
    }
}
