//! Runs the conformance pack through a real `srv6d run`: AF_XDP on virtual cables in network namespaces, with frames
//! and counters as the pack says. All of them except those in [`MIXED`] are run a second time with `offload = "auto"`
//! on every port.
#![allow(missing_docs, clippy::expect_used)] // a failed test may panic

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use libtest_mimic::{Arguments, Failed, Trial};
use srv6d_pack::Case;
use srv6d_runner::gaps::judge;
use srv6d_runner::namespace::Rig;

const SRV6D: &str = env!("CARGO_BIN_EXE_srv6d-under-test");

/// Cases that cannot be run on a node in a namespace, with the reasons.
const NOT_EXPRESSIBLE: [(&str, &str); 3] = [
    ("U51", "what is sent to an address of the node stays with its kernel"),
    ("E26i", "a raw socket sends no less than an Ethernet header"),
    ("E37", "a virtual cable drops what is longer than its other end takes"),
];

/// Idle nodes of one kind, and the number of cases that still need one.
#[derive(Default)]
struct Kind {
    idle: Vec<Rig>,
    wanted: usize,
}

/// Nodes by their surroundings. For a case with the same surroundings, a node needs only a reload.
type Nodes = Mutex<BTreeMap<String, Kind>>;

fn main() {
    let arguments = Arguments::from_args();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance");
    let pack = srv6d_pack::load(&directory).expect("the pack loads");
    let mut nodes = BTreeMap::<String, Kind>::new();
    let mut asked = Vec::new();
    for case in pack.cases {
        if let Some((id, why)) = NOT_EXPRESSIBLE.iter().find(|(id, _)| *id == case.id) {
            println!("not run: {id}: {why}");
            continue;
        }
        // In these cases the worker forwards some of the frames, and frames that the program forwards overtake them.
        let is_mixed = MIXED.contains(&case.id.as_str());
        for offload in [false, true].into_iter().filter(|offload| !(is_mixed && *offload)) {
            nodes.entry(surroundings(&case, offload)).or_default().wanted += 1;
            asked.push((case.clone(), offload));
        }
    }
    let nodes = Arc::new(Nodes::new(nodes));
    let trials = asked.into_iter().map(|(case, offload)| trial(case, offload, Arc::clone(&nodes)));
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    // Nodes that no later case needs. They are dropped here, because `exit` drops nothing.
    drop(nodes);
    conclusion.exit();
}

/// Cases whose frames leave in the order in which they came, and which both engines forward. `tests/offload.rs` runs them with
/// both.
const MIXED: [&str; 2] = ["D27a", "D27b"];

fn trial(case: Case, offload: bool, nodes: Arc<Nodes>) -> Trial {
    let name = format!("namespace{}::{} {}", if offload { " with offload" } else { "" }, case.id, case.title);
    Trial::test(name, move || run(&case, offload, &nodes)).with_ignored_flag(true)
}

fn run(case: &Case, offload: bool, nodes: &Nodes) -> Result<(), Failed> {
    judge(case, run_on_a_node(case, offload, nodes)).map_err(Failed::from)
}

fn run_on_a_node(case: &Case, offload: bool, nodes: &Nodes) -> Result<(), String> {
    let kind = surroundings(case, offload);
    let waiting = with_kind(nodes, &kind, |kind| kind.idle.pop());
    let rig = waiting.map_or_else(|| Rig::new(case, Path::new(SRV6D), offload), Ok);
    let result = rig.and_then(|rig| rig.run(case).map(|()| rig));
    // A node cannot be used again if its case failed, or if it learned something in several steps (neighbours, links,
    // path MTUs).
    let learned = case.steps.len() > 1;
    // The kernel frees the queue of an AF_XDP socket some time after it was closed. Such sockets are used to read VLAN
    // tags.
    let had_sockets_outside = case.setup.ports.iter().any(|port| port.vlan.is_some());
    let is_as_before = !learned && !had_sockets_outside;
    let spare = with_kind(nodes, &kind, |kind| {
        kind.wanted -= 1;
        let again = result.map(|rig| kind.idle.extend(is_as_before.then_some(rig)));
        let spare: Vec<Rig> = if kind.wanted == 0 { kind.idle.drain(..).collect() } else { Vec::new() };
        (again, spare)
    });
    spare.0
}

fn with_kind<T>(nodes: &Nodes, kind: &str, what: impl FnOnce(&mut Kind) -> T) -> T {
    what(nodes.lock().expect("nobody panics while holding it").entry(kind.to_owned()).or_default())
}

/// Returns what a reload does not change.
fn surroundings(case: &Case, offload: bool) -> String {
    let setup = &case.setup;
    format!("{offload} {:?} {:?} {:?}", setup.ports, setup.addresses, setup.neighbors)
}
