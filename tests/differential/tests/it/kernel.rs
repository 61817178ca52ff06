//! The frames of the conformance pack through every engine that can be the node, a Linux kernel among them: what comes
//! out is what the case says, from each of them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed test may panic")]

use std::path::Path;

use srv6d_differential::engine::{Engine, Node};
use srv6d_differential::engines::{FastPath, Kernel, Model, SlowPath, Worker};
use srv6d_pack::{Case, Input, Linux};
use srv6d_runner::{desired, environment};

/// Areas of the pack that are compared: the behaviours of SIDs and what H.Encaps.Red does.
const AREAS: [char; 2] = ['U', 'E'];

/// Cases of one step in which nothing but frames happens, and in which a kernel does what srv6d does.
fn is_compared(case: &Case) -> bool {
    let is_plain = case.refused.is_none()
        && case.properties.is_empty()
        && matches!(case.steps.as_slice(), [step] if step.events.is_empty());
    is_plain && matches!(case.linux, Linux::Agree) && case.id.starts_with(AREAS)
}

/// Forwards the frames one by one. Returns why what came out is not what the case says; an engine that leaves a frame to
/// others proves nothing.
fn difference(engine: &mut dyn Engine, node: Node<'_>, case: &Case) -> Option<String> {
    let devices = node.devices();
    let mut run = || {
        if !engine.go_over(node)? {
            return Err("it cannot be the node".to_owned());
        }
        let mut sent = vec![Vec::new()];
        for Input { port, built, .. } in &case.steps[0].inputs {
            let port = devices.iter().position(|name| name == port).ok_or("no such port")?;
            let answer = engine.forward(u16::try_from(port).unwrap(), &built.bytes)?;
            let Some(choices) = answer.frames() else { return Ok(()) };
            sent = sent
                .iter()
                .flat_map(|sent| choices.iter().map(move |frames| [sent.as_slice(), frames].concat()))
                .collect();
        }
        let named = |frames: Vec<(u16, Vec<u8>)>| -> Vec<(String, Vec<u8>)> {
            frames.into_iter().map(|(device, frame)| (devices[usize::from(device)].clone(), frame)).collect()
        };
        let wrong: Vec<String> = sent
            .into_iter()
            .filter_map(|frames| case.steps[0].check(&named(frames)).err())
            .map(|diff| diff.to_string())
            .collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    };
    let why = run().err()?;
    Some(format!("{} {}, {}: {why}", case.id, case.title, engine.name()))
}

#[test]
#[ignore = "needs root"]
fn every_engine_sends_what_the_kernel_sends() {
    let pack = srv6d_pack::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance")).unwrap();
    let (mut worker, mut fast, mut slow) = (Worker::default(), FastPath::default(), SlowPath::default());
    let (mut model, mut kernel) = (Model::default(), Kernel::default());
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for case in pack.cases.iter().filter(|case| is_compared(case)) {
        let state = desired(&case.setup.config, &environment(&case.setup)).unwrap();
        let node = Node { desired: &state, case: Some(case) };
        let engines: [&mut dyn Engine; 5] = [&mut worker, &mut fast, &mut slow, &mut model, &mut kernel];
        wrong.extend(engines.into_iter().filter_map(|engine| difference(engine, node, case)));
        compared += 1;
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n\n"));
    assert!(compared > 20, "only {compared} cases were compared");
    eprintln!("{compared} cases");
}
