//! Explains what the tables in force do with a packet, and which input made each entry that it meets.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipnet::IpNet;
use srv6d_api::Response;
use srv6d_api::explain::{
    ExplainView, ExplainedChoice, ExplainedStep, ExplainedVerdict, HopChoice, LastDrop, LongestMatch, MAX_FRAME,
    PathChoice,
};
use srv6d_api::state::Health;
use srv6d_dataplane::drops::Dropped;
use srv6d_dataplane::explain::Explained;
use srv6d_srv6::desired::{Behavior, Desired, Hop, LocalSid, Port, PortId, Role, RouteAction, TableId, UnknownSid};
use srv6d_srv6::tables::AdjacencyState;
use srv6d_srv6::trail::{MatchKind, NextHop, Selection, TrailStep};
use srv6d_srv6::{DropReason, Rank, SLOTS, Verdict};

use super::node::Node;
use super::view::{self, device_of};

mod origin;

impl Node {
    /// Returns what the tables in force do with a frame that is given as hexadecimal digits.
    pub fn explain(&self, port: &str, frame: &str) -> Response {
        let (id, port) = match self.port_named(port) {
            Ok(found) => found,
            Err(why) => return Response::failed(why),
        };
        let before = match bytes_of(frame) {
            Ok(bytes) => bytes,
            Err(why) => return Response::failed(why),
        };
        let explained = self.dataplane.explain(PortId(port.device), &before);
        let verdict = if is_left_to_kernel(port, &explained) { left_on(port) } else { self.verdict(explained.verdict) };
        Response::Explained(Box::new(ExplainView {
            generation: self.dataplane.generation().0,
            port: port.name.clone(),
            fast_path: explained.is_plain,
            in_front: self.in_front(id, &explained),
            steps: explained.steps.iter().map(|step| self.step(step)).collect(),
            verdict,
            kernel_route: None,
            before: hex(&before),
            after: hex(&explained.bytes),
        }))
    }

    /// Returns the entry that matches an address best.
    pub fn longest_match(&self, address: IpAddr, table: TableId) -> Response {
        let found = self.dataplane.longest_match(table, address);
        Response::Matched(Box::new(self.match_row(table, address, found)))
    }

    /// Returns why packets to an address cannot leave now. `None`: a port is up, and the neighbour behind it is known.
    pub(super) fn obstacle(&self, address: IpAddr) -> Option<String> {
        let desired = self.dataplane.desired();
        let Some(found) = self.dataplane.longest_match(TableId::MAIN, address) else {
            return Some(format!("no route leads to {address}"));
        };
        match found {
            MatchKind::Neighbor => None,
            MatchKind::OnLink(port) => {
                Some(format!("the neighbour {address} on port {} is not resolved", view::port_name(desired, port)))
            }
            MatchKind::Route => {
                let at = entry(desired, TableId::MAIN, address, found).map(|entry| entry.at);
                let Some(RouteAction::Via(hops)) = at.and_then(|at| desired.routes.get(at)).map(|route| &route.action)
                else {
                    return None;
                };
                let is_up = |port: PortId| desired.ports.get(usize::from(port.0)).is_some_and(|port| port.up);
                let is_ready = |hop: &Hop| {
                    is_up(hop.port) && desired.neighbors.contains_key(&(hop.port, hop.via.unwrap_or(address)))
                };
                let what = || {
                    format!("no neighbour of the route to {address} is resolved: {}", view::hops_text(desired, hops))
                };
                (!hops.iter().any(is_ready)).then(what)
            }
            other => Some(format!("{address} leads to {}, and not to another node", described(desired, None, other).0)),
        }
    }

    /// Returns the last packets of each drop reason.
    pub fn drops(&self) -> Vec<LastDrop> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let all = self.dataplane.last_drops().into_iter();
        all.map(|(worker, device, dropped)| self.drop_row(worker, device, &dropped, now)).collect()
    }

    fn drop_row(&self, worker: usize, device: String, dropped: &Dropped, now: Duration) -> LastDrop {
        let explained = self.dataplane.explain_dropped(dropped);
        let looked_up = explained.as_ref().and_then(|explained| {
            explained.steps.iter().rev().find_map(|step| match step {
                TrailStep::LookedUp { destination, .. } => Some(destination.to_string()),
                _ => None,
            })
        });
        let verdict = explained.map(|explained| self.verdict(explained.verdict));
        LastDrop {
            reason: dropped.reason.name().to_owned(),
            meaning: dropped.reason.explanation().to_owned(),
            worker,
            device,
            leaving: dropped.is_leaving,
            time_ms: u64::try_from(now.saturating_sub(dropped.age).as_millis()).unwrap_or(u64::MAX),
            length: dropped.length,
            head: hex(&dropped.head),
            destination: looked_up,
            now: verdict.map(|verdict| match (verdict.reason, verdict.port) {
                (Some(reason), _) => format!("{}: {reason}", verdict.verdict),
                (None, Some(port)) => format!("{} by {port}", verdict.verdict),
                (None, None) => verdict.verdict,
            }),
        }
    }

    /// Returns the port of that name, or of the second name that an extension has for it.
    pub(super) fn port_named(&self, name: &str) -> Result<(PortId, &Port), String> {
        let desired = self.dataplane.desired();
        let other = self.inputs.configured.overlay.as_ref().and_then(|overlay| overlay.port_of(name));
        let mut ports = (0..).map(PortId).zip(&desired.ports);
        ports.find(|(_, port)| port.name == name || Some(&port.name) == other.as_ref()).ok_or_else(|| {
            let names: Vec<&str> = desired.ports.iter().map(|port| port.name.as_str()).collect();
            format!("{name} is no port: name one of {}", names.join(", "))
        })
    }

    /// Returns what may take the frame before a worker does: an XDP program or the tc program. Empty: nothing.
    fn in_front(&self, port: PortId, explained: &Explained) -> String {
        let desired = self.dataplane.desired();
        let Some(port) = desired.ports.get(usize::from(port.0)) else { return String::new() };
        if is_unclaimed(port, explained) {
            return "the XDP program of the port leaves packets to this destination to the kernel; a worker gets only those \
                    that a rule about sources or the SID space hands to it, or on an edge or host port those that a route \
                    of the kernel encapsulates, and does with them what follows"
                .to_owned();
        }
        let device = device_of(desired, port);
        let offload = self.dataplane.attached().find(|attached| attached.device == device);
        let is_offloaded = offload.and_then(|attached| attached.offload.as_ref()).is_some_and(|offload| offload.on);
        let is_delivered = matches!(self.dataplane.deliveries().get(&port.name), Some(None));
        if is_delivered && is_for_this_node(explained) {
            return "the XDP program may decapsulate it for this node in front of the worker, by the same tables"
                .to_owned();
        }
        match (is_offloaded && explained.is_plain, port.role) {
            (true, Role::Kernel) => {
                "the tc program may encapsulate it in front of the worker, by the same tables".to_owned()
            }
            (true, _) => "the XDP program may forward it in front of the worker, by the same tables".to_owned(),
            _ => String::new(),
        }
    }

    fn step(&self, step: &TrailStep) -> ExplainedStep {
        let desired = self.dataplane.desired();
        match step {
            TrailStep::Arrived(id) => {
                let port = desired.ports.get(usize::from(id.0));
                ExplainedStep::Port {
                    name: view::port_name(desired, *id),
                    role: port.map(|port| view::role(port.role)).unwrap_or_default().to_owned(),
                    table: port.map_or(TableId::MAIN, |port| port.table).0,
                    mtu: port.map(|port| port.mtu).unwrap_or_default(),
                }
            }
            TrailStep::LookedUp { table, destination, found } => {
                ExplainedStep::LookUp(self.match_row(*table, *destination, *found))
            }
            TrailStep::Shifted => ExplainedStep::Shift,
            TrailStep::NextSegment => ExplainedStep::NextSegment,
            TrailStep::Decapsulated { table, source, destination } => ExplainedStep::Decapsulate {
                source: source.to_string(),
                destination: destination.to_string(),
                table: table.0,
            },
            TrailStep::Path(choice) => ExplainedStep::Path(path_choice(desired, choice)),
            TrailStep::NextHop(choice) => ExplainedStep::NextHop(hop_choice(desired, choice)),
            TrailStep::Size { length, mtu } => ExplainedStep::Size { length: *length, mtu: *mtu },
        }
    }

    fn verdict(&self, verdict: Verdict) -> ExplainedVerdict {
        let desired = self.dataplane.desired();
        let name = |device: u16| Some(view::port_name(desired, PortId(device)));
        let (word, port, neighbor, reason) = match verdict {
            Verdict::Tx(device) => ("sent", name(device), None, None),
            Verdict::Kernel(_) => ("kernel", Some(self.veth.name.clone()), None, None),
            Verdict::Echo(device) => ("echo", name(device), None, None),
            Verdict::Error(reason, device) => ("answered", name(device), None, Some(reason)),
            Verdict::Drop(reason) => ("dropped", None, None, Some(reason)),
            Verdict::Hold(port, neighbor) => ("held", name(port.0), Some(neighbor.to_string()), None),
        };
        ExplainedVerdict {
            verdict: word.to_owned(),
            port,
            neighbor,
            reason: reason.map(|reason| reason.name().to_owned()),
            meaning: reason.map(|reason| reason.explanation().to_owned()),
            setting: reason.and_then(setting).map(str::to_owned),
        }
    }

    /// Returns the longest match of an address. `found` comes from the tables; the prefix comes from the desired state
    /// that they were compiled from.
    fn match_row(&self, table: TableId, address: IpAddr, found: Option<MatchKind>) -> LongestMatch {
        let desired = self.dataplane.desired();
        let entry = found.and_then(|found| entry(desired, table, address, found));
        let (kind, detail) = found.map_or(("none", String::new()), |found| described(desired, entry, found));
        LongestMatch {
            address: address.to_string(),
            table: table.0,
            prefix: entry.map(|entry| entry.prefix.to_string()),
            kind: kind.to_owned(),
            detail,
            origin: entry.map(|entry| self.origin(table, entry)).unwrap_or_default(),
        }
    }
}

/// Returns true if the XDP program of a port claims no packets to the destination of this one.
fn is_unclaimed(port: &Port, explained: &Explained) -> bool {
    let first = explained.steps.iter().find_map(|step| match step {
        TrailStep::LookedUp { found, .. } => Some(found),
        _ => None,
    });
    let is_claimed = !matches!(
        first,
        Some(None | Some(MatchKind::Local | MatchKind::Kernel | MatchKind::Unknown(UnknownSid::Punt)))
    );
    port.role != Role::Kernel && !is_claimed
}

/// Returns the verdict about a packet that the XDP program of a port leaves to the kernel.
fn left_on(port: &Port) -> ExplainedVerdict {
    ExplainedVerdict {
        verdict: "kernel".to_owned(),
        port: Some(port.name.clone()),
        neighbor: None,
        reason: None,
        meaning: None,
        setting: None,
    }
}

/// Returns true if the kernel gets a packet as it was received. What a worker refuses for another reason than its
/// destination is handed to the worker by the rule behind that reason.
fn is_left_to_kernel(port: &Port, explained: &Explained) -> bool {
    let is_about_destination = matches!(
        explained.verdict,
        Verdict::Kernel(_) | Verdict::Drop(DropReason::NoRoute) | Verdict::Error(DropReason::NoRoute, _)
    );
    is_unclaimed(port, explained) && is_about_destination
}

/// Returns true if a packet is decapsulated, and the one inside is for an address of this node.
fn is_for_this_node(explained: &Explained) -> bool {
    let mut steps = explained.steps.iter().skip_while(|step| !matches!(step, TrailStep::Decapsulated { .. }));
    steps.any(|step| matches!(step, TrailStep::LookedUp { found: Some(MatchKind::Local), .. }))
}

/// An entry of the desired state that matches an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    prefix: IpNet,
    rank: Rank,
    /// Index in its list.
    at: usize,
}

/// Returns the longest entry that matches an address, among those of the kind that the tables have found.
fn entry(desired: &Desired, table: TableId, address: IpAddr, found: MatchKind) -> Option<Entry> {
    let longest = |rank: Rank, prefixes: &mut dyn Iterator<Item = (usize, IpNet)>| {
        let matching = prefixes.filter(|(_, prefix)| prefix.contains(&address));
        let (at, prefix) = matching.max_by_key(|(_, prefix)| prefix.prefix_len())?;
        Some(Entry { prefix, rank, at })
    };
    match found {
        MatchKind::Local | MatchKind::Neighbor => {
            let rank = if found == MatchKind::Local { Rank::LocalAddress } else { Rank::Neighbor };
            Some(Entry { prefix: IpNet::from(address), rank, at: 0 })
        }
        MatchKind::Sid => {
            let sids = desired.sids.iter().map(|sid| IpNet::V6(sid.prefix));
            longest(Rank::Sid, &mut sids.enumerate())
        }
        MatchKind::Steer => {
            let steers = desired.steers.iter().enumerate().filter(|(_, steer)| steer.table == table);
            longest(Rank::Steer, &mut steers.map(|(at, steer)| (at, steer.prefix)))
        }
        MatchKind::Route | MatchKind::OnLink(_) | MatchKind::Kernel | MatchKind::Blackhole | MatchKind::Unreachable => {
            let routes = desired.routes.iter().enumerate().filter(|(_, route)| route.table == table);
            longest(Rank::Route, &mut routes.map(|(at, route)| (at, route.prefix)))
        }
        MatchKind::Unknown(_) => {
            let blocks = desired.blocks.iter().enumerate().filter(|(_, block)| block.unknown.is_some());
            longest(Rank::Block, &mut blocks.map(|(at, block)| (at, IpNet::V6(block.prefix))))
        }
    }
}

/// Returns the kind of an entry, and what it says.
fn described(desired: &Desired, entry: Option<Entry>, found: MatchKind) -> (&'static str, String) {
    let at = entry.map(|entry| entry.at);
    let route = || match at.and_then(|at| desired.routes.get(at)).map(|route| &route.action) {
        Some(RouteAction::Via(hops)) => view::hops_text(desired, hops),
        _ => String::new(),
    };
    match found {
        MatchKind::Sid => {
            ("sid", at.and_then(|at| desired.sids.get(at)).map(|sid| sid_text(desired, sid)).unwrap_or_default())
        }
        MatchKind::Steer => {
            let steer = at.and_then(|at| desired.steers.get(at));
            let names = |steer: &srv6d_srv6::desired::Steer| steer.paths.iter().map(|path| path.name.clone()).collect();
            ("steer", steer.map(names).map(|names: Vec<String>| names.join(", ")).unwrap_or_default())
        }
        MatchKind::Route => ("route", route()),
        MatchKind::OnLink(port) => ("on-link", view::port_name(desired, port)),
        MatchKind::Neighbor => ("neighbor", String::new()),
        MatchKind::Local => ("local", String::new()),
        MatchKind::Kernel => ("kernel", String::new()),
        MatchKind::Unknown(unknown) => {
            let what = match unknown {
                UnknownSid::Drop => "drop",
                UnknownSid::Icmp => "icmp",
                UnknownSid::Punt => "punt",
            };
            ("block", format!("unknown = {what:?}"))
        }
        MatchKind::Blackhole => ("blackhole", String::new()),
        MatchKind::Unreachable => ("unreachable", String::new()),
    }
}

fn sid_text(desired: &Desired, sid: &LocalSid) -> String {
    let mut text = view::behavior(desired, sid);
    let flavors = view::flavors(sid.flavors);
    if !flavors.is_empty() {
        text = format!("{text} {}", flavors.join(","));
    }
    match &sid.behavior {
        Behavior::EndDt { table: TableId::MAIN, .. } => format!("{text} table main"),
        Behavior::EndDt { table, .. } => format!("{text} table {}", table.0),
        Behavior::EndX { via, .. } | Behavior::EndDx { via, .. } => format!("{text} {}", view::hops_text(desired, via)),
        Behavior::End { .. } => text,
    }
}

fn path_choice(desired: &Desired, choice: &Selection<String>) -> ExplainedChoice<PathChoice> {
    let segments = |name: &String| {
        let path = desired.steers.iter().flat_map(|steer| &steer.paths).find(|path| path.name == *name);
        let addresses = path.map(|path| path.segments.addresses()).unwrap_or_default();
        addresses.iter().map(ToString::to_string).collect()
    };
    let members = choice.members.iter().map(|member| PathChoice {
        path: member.of.clone(),
        segments: segments(&member.of),
        slots: member.slots,
        chosen: member.chosen,
    });
    ExplainedChoice { slot: choice.slot, slots: SLOTS, members: members.collect() }
}

fn hop_choice(desired: &Desired, choice: &Selection<NextHop>) -> ExplainedChoice<HopChoice> {
    let members = choice.members.iter().map(|member| HopChoice {
        via: member.of.neighbor.to_string(),
        port: view::port_name(desired, member.of.port),
        mac: member.of.mac.map(|mac| mac.to_string()),
        state: match member.of.state {
            AdjacencyState::Ready => Health::Up,
            AdjacencyState::Unresolved => Health::Unresolved,
            AdjacencyState::Down => Health::Down,
        },
        slots: member.slots,
        chosen: member.chosen,
    });
    ExplainedChoice { slot: choice.slot, slots: SLOTS, members: members.collect() }
}

/// Returns the keys of the configuration that decide whether packets are dropped for a reason.
const fn setting(reason: DropReason) -> Option<&'static str> {
    Some(match reason {
        DropReason::Vlan => "`vlan` of [[port]]",
        DropReason::BadSource => "`role` of [[port]]",
        DropReason::AclEdge => "`role` and `allowed_carriers` of [[port]], `prefix` and `hosts` of [[block]]",
        DropReason::AclSid => "`domain_sources` of [node]",
        DropReason::AclPath => "`allowed_carriers` of [[port]]",
        DropReason::AclSource => "`allowed_sources` of [[port]]",
        DropReason::UnknownSid => "`unknown` of [[block]], and the [[sid]] that is missing",
        DropReason::NoRoute => {
            "the [[route]] or [[steer]] that is missing; `icmp_unreachable` of [node] tells the sender"
        }
        DropReason::Blackhole | DropReason::Unreachable => "`type` of [[route]]",
        DropReason::SrhInvalid => "`srh_check` of [node]",
        DropReason::UpperLayer => "`behavior` and `flavors` of [[sid]], `ua_last` of [node]",
        DropReason::DtArgument => "`dt_argument` of [node]",
        DropReason::NoNeigh => "`mac` of [[neighbor]], if the neighbour does not answer",
        DropReason::AdjDown => "`backup` of [[sid]], `nexthops` of [[route]]",
        DropReason::Nesting | DropReason::Rounds | DropReason::EncapLoop => "`segments` of [[steer]]",
        DropReason::NoHostPort => "`interface` of [host]",
        DropReason::QueueFull | DropReason::Wred | DropReason::WireLoss | DropReason::PortDown => {
            "`emulate` of [[port]]"
        }
        DropReason::Malformed
        | DropReason::EtherType
        | DropReason::NotOurMac
        | DropReason::L2Multicast
        | DropReason::SourceRoute
        | DropReason::HopLimit
        | DropReason::OptionDiscard
        | DropReason::OptionUnknown
        | DropReason::PacketTooBig
        | DropReason::Oversize
        | DropReason::Ecn
        | DropReason::FragOuter
        | DropReason::TxFull
        | DropReason::NoRoom => return None,
    })
}

/// Reads hexadecimal digits. Returns an error that names the problem and the fix.
fn bytes_of(digits: &str) -> Result<Vec<u8>, String> {
    let (digits, rest) = digits.as_bytes().as_chunks::<2>();
    if digits.len() > MAX_FRAME {
        return Err(format!("the frame is longer than {MAX_FRAME} bytes, which no port takes: give its first bytes"));
    }
    let nibble = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let bytes = digits.iter().map(|&[high, low]| Some(nibble(high)? << 4 | nibble(low)?));
    match bytes.collect::<Option<Vec<u8>>>() {
        Some(bytes) if rest.is_empty() && !bytes.is_empty() => Ok(bytes),
        _ => Err("the frame is not hexadecimal: give an even number of digits, from the Ethernet header on".to_owned()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|nibble| char::from_digit(nibble.into(), 16))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_keys_of_the_configuration() {
        const REFERENCE: &str = include_str!("../../../../docs/configuration.md");
        for text in DropReason::ALL.into_iter().filter_map(setting) {
            for key in text.split('`').skip(1).step_by(2) {
                assert!(REFERENCE.contains(&format!("\n| `{key}` |")), "{key} of {text:?}");
            }
        }
    }

    #[test]
    fn digits_are_read_or_refused() {
        assert_eq!(bytes_of("00fFa5"), Ok(vec![0, 0xff, 0xa5]));
        assert_eq!(hex(&[0, 0xff, 0xa5]), "00ffa5");
        for wrong in ["", "0", "0g", "0x12", "é2", "12 34", "١٢"] {
            assert!(bytes_of(wrong).is_err_and(|why| why.contains("hexadecimal")), "{wrong:?}");
        }
        assert!(bytes_of(&"00".repeat(MAX_FRAME)).is_ok());
        assert!(bytes_of(&"00".repeat(MAX_FRAME + 1)).is_err_and(|why| why.contains("longer than")));
    }
}
