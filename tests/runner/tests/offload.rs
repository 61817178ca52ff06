//! Runs every case of the conformance pack with the XDP program of `offload = "xdp"` in front of the worker step:
//! frames and counters must be the same. `front::OFFLOADED` lists the cases in which the program forwards frames, and
//! `front::DELIVERED` those in which it decapsulates for this node; without these lists, a program that leaves all frames
//! to the worker would pass.
//!
//! Every case is run a third time with its frames coming from applications of this node, with the tc program in front:
//! `front::ENCAPSULATED` lists those that it has a part in.
//!
//! The cases of the XDP program, and those about permission to use SIDs, are run again with all ports as edge ports and as host ports.
//! Then the result must be that of the worker alone, and the program must forward the same frames as with fabric ports,
//! except those to SIDs that no port allows, those from addresses of the node, and those that may name segments, in the outer header or
//! in one behind it.
#![allow(missing_docs, clippy::expect_used)] // a failed test may panic

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::rc::Rc;

use ipnet::Ipv6Net;
use libtest_mimic::{Arguments, Failed, Trial};
use srv6d_pack::Case;
use srv6d_runner::front::{Applications, DELIVERED, ENCAPSULATED, Front, Interfaces, OFFLOADED};
use srv6d_runner::gaps::judge;
use srv6d_runner::{desired, environment, play_as};
use srv6d_srv6::desired::{Behavior, Port, Role, TableId};
use srv6d_srv6::own_sources;

/// Prefix of the ids of cases about permission to use SIDs.
const SECURITY: &str = "S";
/// Where an untagged IPv6 frame has its source and its destination.
const SOURCE: usize = 22;
/// Where an untagged IPv4 frame has its source.
const SOURCE_V4: usize = 26;
const DESTINATION: usize = 38;

fn main() {
    let arguments = Arguments::from_args();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance");
    let pack = srv6d_pack::load(&directory).expect("the pack loads");
    libtest_mimic::run(&arguments, pack.cases.into_iter().flat_map(trials).collect()).exit();
}

fn trials(case: Case) -> Vec<Trial> {
    let name = |role: &str| format!("offload{role}::{} {}", case.id, case.title);
    let mut trials = Vec::new();
    if OFFLOADED.contains(&case.id.as_str()) || case.id.starts_with(SECURITY) {
        for role in [Role::Edge, Role::Host] {
            let (name, case) = (name(&format!(" {role:?}").to_lowercase()), case.clone());
            let trial = Trial::test(name, move || run_as(&case, role).map_err(Failed::from));
            trials.push(trial.with_ignored_flag(true));
        }
    }
    let (of_applications, same) = (format!("applications::{} {}", case.id, case.title), case.clone());
    let trial = Trial::test(of_applications, move || judge(&same, run_for_applications(&same)).map_err(Failed::from));
    trials.push(trial.with_ignored_flag(true));
    let name = name("");
    let trial = Trial::test(name, move || judge(&case, run(&case)).map_err(Failed::from));
    trials.push(trial.with_ignored_flag(true));
    trials
}

/// Returns the program of this thread, which serves all cases: each case replaces the tables of the one before.
fn front() -> Result<Front, String> {
    thread_local!(static LOADED: OnceCell<Front> = const { OnceCell::new() });
    LOADED.with(|loaded| {
        if loaded.get().is_none() {
            let new = Front::load(Rc::new(Interfaces::of_this_thread()?))?;
            loaded.get_or_init(|| new);
        }
        loaded.get().map(Front::again).ok_or_else(|| "no program".to_owned())
    })
}

fn run(case: &Case) -> Result<(), String> {
    let forwarded = srv6d_runner::run_behind(case, Some(front()?))?;
    let id = case.id.as_str();
    match (OFFLOADED.contains(&id) || DELIVERED.contains(&id), forwarded) {
        (true, 0) => Err("all of it was left to the worker".to_owned()),
        (false, 1..) => Err(format!("{forwarded} frames were not left to the worker: add {} to the list", case.id)),
        _ => Ok(()),
    }
}

fn run_for_applications(case: &Case) -> Result<(), String> {
    let mut kernel = case.setup.ports.iter().filter(|port| port.kernel);
    let is_of_veth = kernel.any(|port| case.steps.iter().flat_map(|step| &step.inputs).any(|of| of.port == port.name));
    let applications = if is_of_veth { Applications::OfVeth } else { Applications::OfPorts };
    let forwarded = srv6d_runner::run_behind(case, Some(front()?.for_applications(applications)))?;
    match (ENCAPSULATED.contains(&case.id.as_str()), forwarded) {
        (true, 0) => Err("all of it was left to the worker".to_owned()),
        (false, 1..) => Err(format!("{forwarded} frames were not left to the worker: add {} to the list", case.id)),
        _ => Ok(()),
    }
}

/// Returns whether the frame has a routing header, or is an IPv6 fragment or has an authentication header, behind which one
/// may be. It may name segments, so on ports that guard SIDs the worker has to process it.
fn may_name_segments(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[0x86, 0xdd]) && frame.get(20).is_some_and(|next| [43, 44, 51].contains(next))
}

/// Returns the frame without its VLAN tag.
fn untagged(frame: &[u8]) -> Vec<u8> {
    let tagged = frame.split_at_checked(12).filter(|(_, rest)| rest.starts_with(&[0x81, 0]));
    tagged.map_or_else(|| frame.to_vec(), |(addresses, rest)| [addresses, rest.get(4..).unwrap_or_default()].concat())
}

/// Returns the packet behind the outer header as a frame.
fn inside(frame: &[u8]) -> Option<Vec<u8>> {
    let kind = match frame.get(20)? {
        41 => [0x86, 0xdd],
        4 => [8, 0],
        _ => return None,
    };
    Some([frame.get(..12)?, &kind, frame.get(54..)?].concat())
}

/// Returns whether the port that a frame is addressed to accepts its source.
fn is_allowed_source(ports: &[Port], frame: &[u8]) -> bool {
    let source: Option<IpAddr> = match frame.get(12..14) {
        Some([0x86, 0xdd]) => {
            frame.get(SOURCE..).and_then(|bytes| bytes.first_chunk::<16>()).map(|bytes| (*bytes).into())
        }
        _ => frame.get(SOURCE_V4..).and_then(|bytes| bytes.first_chunk::<4>()).map(|bytes| (*bytes).into()),
    };
    let mut ports = ports.iter().filter(|port| frame.starts_with(&port.mac.0));
    ports.all(|port| {
        let allowed = &port.allowed_sources;
        allowed.is_empty() || source.is_some_and(|source| allowed.iter().any(|prefix| prefix.contains(&source)))
    })
}

fn run_as(case: &Case, role: Role) -> Result<(), String> {
    let played = |role: Role, front: Option<Front>| {
        play_as(case, role, front)?.ok_or_else(|| "a configuration that is refused".to_owned())
    };
    let (alone, mut behind) = (played(role, None)?, played(role, Some(front()?))?);
    let offloaded = std::mem::take(&mut behind.offloaded);
    if behind != alone {
        return Err(format!("with the program: {behind:#?}\nby the worker alone: {alone:#?}"));
    }
    let state = desired(&case.setup.config, &environment(&case.setup))?;
    let closed: Vec<Ipv6Net> =
        (state.blocks.iter().map(|block| block.prefix)).chain(state.sids.iter().map(|sid| sid.prefix)).collect();
    let allowed: Vec<Ipv6Net> = state.ports.iter().flat_map(|port| port.allowed_carriers.iter().copied()).collect();
    // What is behind their outer headers has to be admitted, too.
    let ends = state.sids.iter().filter(|sid| matches!(sid.behavior, Behavior::EndDt { .. }));
    let ends: Vec<Ipv6Net> = ends.map(|sid| sid.prefix).collect();
    let own = |tables: BTreeSet<TableId>| -> Vec<Ipv6Net> {
        let networks = own_sources(&state, &tables).into_values().flatten();
        networks.filter_map(|(network, len)| Ipv6Net::new(network, len).ok()).collect()
    };
    let own_of_ports = own(state.ports.iter().map(|port| port.table).collect());
    let table_of = |behavior: &Behavior| if let Behavior::EndDt { table, .. } = behavior { Some(*table) } else { None };
    let own_inside = own(state.sids.iter().filter_map(|sid| table_of(&sid.behavior)).collect());
    let is_among = |prefixes: &[Ipv6Net], frame: &[u8], at: usize| {
        let address = frame.get(at..).filter(|_| frame.get(12..14) == Some(&[0x86, 0xdd]));
        let address = address.and_then(|bytes| Some(Ipv6Addr::from(*bytes.first_chunk::<16>()?)));
        address.is_some_and(|address| prefixes.iter().any(|prefix| prefix.contains(&address)))
    };
    let mut expected = played(Role::Fabric, Some(front()?))?.offloaded;
    let is_open = |frame: &[u8], own: &[Ipv6Net]| {
        let may_enter = !is_among(&closed, frame, DESTINATION) || is_among(&allowed, frame, DESTINATION);
        may_enter && !is_among(own, frame, SOURCE) && !may_name_segments(frame)
    };
    expected.retain(|frame| {
        let frame = untagged(frame);
        let inner = inside(&frame).filter(|_| is_among(&ends, &frame, DESTINATION));
        let may_enter_inside = |inner: Vec<u8>| is_open(&inner, &own_inside) && is_allowed_source(&state.ports, &inner);
        is_open(&frame, &own_of_ports) && inner.is_none_or(may_enter_inside)
    });
    if offloaded == expected { Ok(()) } else { Err(format!("forwarded {offloaded:x?}, and not {expected:x?}")) }
}
