//! Nodes of FRR's command line, and the lines that each of them knows.

use super::keyword::one_of;
use super::{Line, Written, route, srv6};
use crate::finding::Findings;
use crate::switch;

/// The context in which a line is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VtyNode {
    /// The top node.
    Config,
    /// `vrf NAME`. `None`: another name of the default VRF.
    Vrf(Option<String>),
    /// `segment-routing`.
    SegmentRouting,
    /// `srv6` below `segment-routing`.
    Srv6,
    /// `locators`.
    Locators,
    /// `locator NAME`.
    Locator(String),
    /// `static-sids`.
    StaticSids,
    /// `encapsulation`.
    Encapsulation,
    /// `router bgp ...` and the like.
    Router,
    /// `segment-routing srv6` below such a router.
    RouterSrv6,
    /// A node whose lines are all ignored: `interface`, `route-map`, `formats`, ...
    Other,
}

/// Whether and how a node knows a line.
enum Known {
    No,
    /// The line has been handled.
    Line,
    /// The line opens a node.
    Opens(VtyNode),
}

/// Reads a line in the innermost node that knows it, and makes that node the current one.
pub(super) fn take(nodes: &mut Vec<VtyNode>, line: &Line<'_>, written: &mut Written, found: &mut Findings) {
    if leave(nodes, line) {
        return;
    }
    for depth in (0..nodes.len()).rev() {
        let Some(node) = nodes.get(depth).cloned() else { continue };
        match read(&node, line, written, found) {
            Known::No => {}
            Known::Line => return nodes.truncate(depth + 1),
            Known::Opens(inner) => {
                nodes.truncate(depth + 1);
                return nodes.push(inner);
            }
        }
    }
    // A line that none of these nodes knows belongs to the top node. In a VRF that decides to which VRF the next routes
    // belong.
    if matches!(nodes.last(), Some(VtyNode::Vrf(_))) {
        nodes.truncate(1);
    }
}

/// Handles `exit` and similar lines. At the top there is nothing to leave.
fn leave(nodes: &mut Vec<VtyNode>, line: &Line<'_>) -> bool {
    let depth = match line.words.as_slice() {
        ["exit" | "quit" | "exit-address-family"] => nodes.len().saturating_sub(1),
        ["exit-vrf"] => nodes.iter().position(|node| matches!(node, VtyNode::Vrf(_))).unwrap_or(nodes.len()),
        ["end"] => 1,
        _ => return false,
    };
    nodes.truncate(depth.max(1));
    true
}

fn read(node: &VtyNode, line: &Line<'_>, written: &mut Written, found: &mut Findings) -> Known {
    match node {
        VtyNode::Config => config(line, written, found),
        VtyNode::Vrf(name) => vrf(name.as_deref(), line, written, found),
        VtyNode::SegmentRouting => match one_of(line.first(), &["srv6", "traffic-eng"]) {
            Some("srv6") => Known::Opens(VtyNode::Srv6),
            Some(_) => Known::Opens(VtyNode::Other),
            None => Known::No,
        },
        VtyNode::Srv6 => match one_of(line.first(), &["encapsulation", "formats", "locators", "static-sids"]) {
            Some("encapsulation") => Known::Opens(VtyNode::Encapsulation),
            Some("locators") => Known::Opens(VtyNode::Locators),
            Some("static-sids") => Known::Opens(VtyNode::StaticSids),
            Some(_) => Known::Opens(VtyNode::Other),
            None => Known::No,
        },
        VtyNode::Locators => match (one_of(line.first(), &["locator"]), line.words.get(1)) {
            (Some(_), Some(name)) => {
                srv6::locator(name, line, written);
                Known::Opens(VtyNode::Locator((*name).to_owned()))
            }
            _ => Known::No,
        },
        VtyNode::Locator(name) => done(srv6::locator_line(name, line, written, found)),
        VtyNode::StaticSids => done(srv6::sid_line(line, written, found)),
        VtyNode::Encapsulation => done(srv6::source_line(line, written, found)),
        VtyNode::Router => router(line, found),
        VtyNode::RouterSrv6 => done(matches!(line.first(), "locator" | "encap-behavior")),
        VtyNode::Other => Known::No,
    }
}

const fn done(known: bool) -> Known {
    if known { Known::Line } else { Known::No }
}

fn config(line: &Line<'_>, written: &mut Written, found: &mut Findings) -> Known {
    match line.words.as_slice() {
        ["hostname", name] => {
            written.hostname = Some((*name).to_owned()).filter(|_| !line.no);
            Known::Line
        }
        ["ip" | "ipv6", "route", ..] => {
            route::read(None, line, written, found);
            Known::Line
        }
        ["vrf", name] if line.no => done(!name.is_empty()),
        ["vrf", name] => {
            let name = Some((*name).to_owned()).filter(|name| !switch::is_default_vrf(name));
            Known::Opens(VtyNode::Vrf(name))
        }
        ["router", ..] if !line.no => Known::Opens(VtyNode::Router),
        ["interface" | "route-map" | "line" | "bfd" | "pbr-map" | "mpls", ..] if !line.no => {
            Known::Opens(VtyNode::Other)
        }
        // Two letters could also stand for `service`.
        [word] if word.len() > 2 && one_of(word, &["segment-routing"]).is_some() => {
            if line.no {
                written.locators.clear();
                written.sids.clear();
                written.encapsulation_source = None;
                return Known::Line;
            }
            Known::Opens(VtyNode::SegmentRouting)
        }
        _ => Known::No,
    }
}

/// Further words that FRR knows in a VRF. A line with one of them does not leave the VRF.
const VRF_WORDS: [&str; 11] =
    ["nht", "protocol", "router-id", "import-table", "mroute", "multicast", "pim", "igmp", "mld", "msdp", "ssmpingd"];

fn vrf(name: Option<&str>, line: &Line<'_>, written: &mut Written, found: &mut Findings) -> Known {
    match line.words.as_slice() {
        ["ip" | "ipv6", "route", ..] => {
            route::read(name, line, written, found);
            Known::Line
        }
        ["ip" | "ipv6", word, ..] => done(VRF_WORDS.contains(word)),
        ["vni" | "netns" | "router-id", ..] => Known::Line,
        _ => Known::No,
    }
}

/// Words of the top node that a router node does not have.
const TOP_WORDS: [&str; 10] =
    ["router", "interface", "route-map", "line", "bfd", "vrf", "segment-routing", "ip", "ipv6", "hostname"];

/// Handles a line of a router. Such lines are left to FRR; those that make SIDs cause a finding, because these SIDs
/// exist only while FRR runs.
fn router(line: &Line<'_>, found: &mut Findings) -> Known {
    match line.words.as_slice() {
        ["segment-routing", "srv6"] if !line.no => Known::Opens(VtyNode::RouterSrv6),
        // Lines of an address family are read like those of the router around it.
        ["address-family", ..] => Known::Opens(VtyNode::Router),
        ["sid", .., "auto"] | ["sid", "export" | "vpn", ..] if !line.no => {
            found.note(
                line.place(),
                "BGP makes this SID once it runs: it comes from the kernel or by FPM, not from here",
            );
            Known::Line
        }
        // Every other line here belongs to the router.
        [word, ..] if TOP_WORDS.contains(word) => Known::No,
        _ => Known::Line,
    }
}
