//! Compares what engines do with a frame against the right result.

use std::cell::RefCell;
use std::fmt::Write as _;

use srv6d_dataplane::memory::ROOM;
use srv6d_model::Outcome;
use srv6d_pack::decode;
use srv6d_srv6::desired::Desired;

use crate::describe;
use crate::engine::{Engine, Node, Treatment};
use crate::engines::{FastPath, Model, SlowPath, Worker};

/// Runs a frame through the worker and through each of its two paths alone. The naive forwarder says what is right. A state
/// from which no tables can be built counts as no difference.
///
/// # Errors
/// Describes the difference, with the state and the frame in the notation of the conformance pack, and the frame in
/// hexadecimal.
pub fn compare(desired: &Desired, port: u16, frame: &[u8]) -> Result<(), String> {
    thread_local! {
        // Each thread has one engine of each kind for all of its frames.
        static ENGINES: RefCell<(Worker, FastPath, SlowPath, Model)> = RefCell::default();
    }
    ENGINES.with_borrow_mut(|(worker, fast, slow, model)| {
        agree(&mut [worker, fast, slow], model, Node::from(desired), port, frame).map(|_| ())
    })
}

/// Runs a frame through each of these engines, as often as it asks for, and through one whose answer is right. Every
/// engine that does not leave the frame to another one must come to a right outcome. Returns their answers; an engine
/// that cannot be this node has none.
///
/// # Errors
/// Describes the difference, with the state and the frame.
pub fn agree(
    engines: &mut [&mut dyn Engine],
    right: &mut dyn Engine,
    node: Node<'_>,
    port: u16,
    frame: &[u8],
) -> Result<Vec<Option<Treatment>>, String> {
    if usize::from(port) >= node.desired.ports.len() || !right.go_over(node)? {
        return Ok(Vec::new());
    }
    let input = || format!("\n{}{}", describe::state(node.desired), describe::input(node.desired, port, frame));
    let said = |name: &str, why: String| format!("{}\n{name}: {why}", input());
    let Treatment::Outcomes(expected) = right.forward(port, frame).map_err(|why| said(right.name(), why))? else {
        return Err(said(right.name(), "it does not say what is right".to_owned()));
    };
    let mut answers = Vec::new();
    for engine in engines {
        if !engine.go_over(node)? {
            answers.push(None);
            continue;
        }
        let mut all: Vec<Treatment> = Vec::new();
        for _ in 0..engine.times() {
            all.push(engine.forward(port, frame).map_err(|why| said(engine.name(), why))?);
        }
        let is_steady = all.windows(2).all(|two| matches!(two, [one, next] if one == next));
        if !is_steady || !all.iter().all(|answer| is_right(node.desired, frame, answer, &expected)) {
            let mut text = input();
            for answer in all {
                let _ = writeln!(text, "\n{}: {}", engine.name(), answer_text(&answer));
            }
            for outcome in &expected {
                let _ = writeln!(text, "{}: {}", right.name(), outcome_text(outcome));
            }
            return Err(text);
        }
        answers.push(all.pop());
    }
    Ok(answers)
}

fn is_right(desired: &Desired, frame: &[u8], answer: &Treatment, expected: &[Outcome]) -> bool {
    let is_expected = |outcome: &Outcome| {
        let several_buffers = frame.len() > ROOM;
        expected.iter().any(|right| {
            if several_buffers { is_right_in_several_buffers(desired, outcome, right) } else { outcome == right }
        })
    };
    match answer {
        Treatment::Left => true,
        Treatment::Outcomes(all) => !all.is_empty() && all.iter().all(is_expected),
        Treatment::Frames(_) => expected.iter().any(|right| {
            Treatment::Outcomes(vec![right.clone()]).frames().is_some_and(|frames| answer.frames() == Some(frames))
        }),
    }
}

/// Compares a frame that occupies several buffers. The packet path writes to the first buffer only, so bytes behind the
/// packet stay, and transport checksums are not filled in.
fn is_right_in_several_buffers(desired: &Desired, fast: &Outcome, right: &Outcome) -> bool {
    let fills = desired.ports.iter().any(|port| port.fill_checksum);
    fast.verdict == right.verdict && fast.counts == right.counts && (fills || fast.frame.starts_with(&right.frame))
}

fn answer_text(answer: &Treatment) -> String {
    match answer {
        Treatment::Left => "left to others".to_owned(),
        Treatment::Outcomes(all) => all.iter().map(outcome_text).collect(),
        Treatment::Frames(frames) => format!("{frames:02x?}"),
    }
}

fn outcome_text(outcome: &Outcome) -> String {
    let mut text = format!("{:?}", outcome.verdict);
    for (counted, (packets, bytes)) in &outcome.counts {
        let _ = write!(text, ", {counted:?}: {packets} packets {bytes} bytes");
    }
    for line in decode(&outcome.frame) {
        let _ = write!(text, "\n    {line:?},");
    }
    text
}
