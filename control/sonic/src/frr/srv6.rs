//! Reads lines of the `segment-routing` tree.

use ipnet::Ipv6Net;

use super::keyword::one_of;
use super::{Line, Written};
use crate::finding::Findings;
use crate::srv6::{WrittenLocator, WrittenSid};
use crate::switch::{Action, Locator, Origin};
use crate::value;

/// Reads `locator NAME`. The prefix follows in the lines below.
pub(super) fn locator(name: &str, line: &Line<'_>, written: &mut Written) {
    if line.no {
        written.locators.remove(name);
    }
}

/// Reads a line of `locator NAME`.
pub(super) fn locator_line(name: &str, line: &Line<'_>, written: &mut Written, found: &mut Findings) -> bool {
    match one_of(line.first(), &["prefix", "behavior", "format"]) {
        Some("prefix") => {
            if let Some(locator) = prefix_line(name, line, found) {
                let new = WrittenLocator { locator, vrf: None, place: line.place() };
                written.locators.put(name.to_owned(), new);
            }
            true
        }
        Some("format") => {
            if line.words.get(1) == Some(&"uncompressed-f4024")
                && let Some(known) = written.locators.get_mut(name)
            {
                (known.locator.block_len, known.locator.node_len) = (40, 24);
            }
            true
        }
        other => other.is_some(),
    }
}

/// Reads `prefix P [block-len N] [node-len N] [func-bits N]`. Without lengths, the node is the last uSID of the prefix.
fn prefix_line(name: &str, line: &Line<'_>, found: &mut Findings) -> Option<Locator> {
    let written = *line.words.get(1)?;
    let Some(prefix) = value::prefix6(written).filter(|_| written.contains('/')) else {
        found.ignored(line.place(), format!("{written:?} is no IPv6 prefix with a length: left out"));
        return None;
    };
    let length = |word: &str| -> Option<u8> {
        let at = line.words.iter().position(|known| *known == word)?;
        line.words.get(at + 1)?.parse().ok().filter(|bits| *bits <= 128)
    };
    let total = prefix.prefix_len();
    let block_len = length("block-len").or_else(|| Some(total.saturating_sub(length("node-len")?)));
    let block_len = block_len.unwrap_or(total.saturating_sub(16)).min(total);
    let node_len = length("node-len").unwrap_or(total - block_len);
    if block_len == 0 || u32::from(block_len) + u32::from(node_len) != u32::from(total) {
        let what = format!(
            "block-len {block_len} and node-len {node_len} do not make the {total} bits of the prefix: left out"
        );
        found.ignored(line.place(), what);
        return None;
    }
    Some(Locator {
        name: name.to_owned(),
        written: prefix.addr().to_string(),
        prefix,
        block_len,
        node_len,
        func_len: length("func-bits").unwrap_or(16),
        arg_len: 0,
        origin: Origin::Frr,
    })
}

/// Reads `sid P locator NAME behavior B [interface IF [nexthop A]] [vrf V]`.
pub(super) fn sid_line(line: &Line<'_>, written: &mut Written, found: &mut Findings) -> bool {
    if one_of(line.first(), &["sid"]).is_none() {
        return false;
    }
    let text = line.words.get(1).copied().unwrap_or_default();
    let Some(prefix) = value::prefix6(text).filter(|_| text.contains('/')) else {
        found.ignored(line.place(), format!("{text:?} is no IPv6 prefix with a length: left out"));
        return true;
    };
    // A later line replaces an earlier one for the same SID.
    written.sids.remove(&prefix);
    if !line.no
        && let Some(new) = sid(prefix, line, found)
    {
        written.sids.put(prefix, new);
    }
    true
}

fn sid(prefix: Ipv6Net, line: &Line<'_>, found: &mut Findings) -> Option<WrittenSid> {
    const KEYWORDS: [&str; 5] = ["locator", "behavior", "interface", "nexthop", "vrf"];
    let mut values: [Option<&str>; 5] = [None; 5];
    let mut words = line.words.iter().skip(2);
    while let Some(word) = words.next() {
        let keyword = one_of(word, &KEYWORDS);
        let slot = KEYWORDS.iter().zip(&mut values).find(|(known, _)| Some(**known) == keyword);
        let (Some((_, slot)), Some(value)) = (slot, words.next()) else {
            found.ignored(line.place(), format!("{word:?} is not known in a SID, or nothing is behind it: left out"));
            return None;
        };
        *slot = Some(*value);
    }
    let [locator, behavior, interface, nexthop, vrf] = values;
    let mut refuse = |what: &str| found.ignored(line.place(), format!("{what}: left out"));
    let words = Action::KEYWORDS.map(|(word, _)| word);
    let word = behavior.and_then(|behavior| one_of(behavior, &words));
    let Some((_, action)) = Action::KEYWORDS.into_iter().find(|(known, _)| Some(*known) == word) else {
        refuse(&format!("behavior {:?} is not known; known: {}", behavior.unwrap_or_default(), words.join(", ")));
        return None;
    };
    let adjacency = nexthop.map(value::address6);
    if adjacency == Some(None) {
        refuse(&format!("{:?} is no IPv6 address", nexthop.unwrap_or_default()));
        return None;
    }
    if action == Action::Ua && interface.is_none() {
        refuse("a uA needs `interface`");
        return None;
    }
    if action.is_decap() && vrf.is_none() {
        found.tolerated(
            line.place(),
            format!("{} without `vrf`, which FRR asks for: the default VRF", action.keyword()),
        );
    }
    Some(WrittenSid {
        prefix,
        written: prefix.to_string(),
        locator: locator.unwrap_or_default().to_owned(),
        action,
        decap_dscp_mode: None,
        vrf: vrf.filter(|_| action.is_decap()).map(str::to_owned),
        interface: interface.filter(|_| action == Action::Ua).map(str::to_owned),
        adjacency: adjacency.flatten().filter(|_| action == Action::Ua),
        origin: Origin::Frr,
        place: line.place(),
    })
}

/// Reads `source-address A`.
pub(super) fn source_line(line: &Line<'_>, written: &mut Written, found: &mut Findings) -> bool {
    if one_of(line.first(), &["source-address"]).is_none() {
        return false;
    }
    let text = line.words.get(1).copied().unwrap_or_default();
    match value::address6(text) {
        _ if line.no => written.encapsulation_source = None,
        Some(source) => written.encapsulation_source = Some((source, line.place())),
        None => found.ignored(line.place(), format!("{text:?} is no IPv6 address: left out")),
    }
    true
}
