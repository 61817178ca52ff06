//! Every case of the conformance pack with the XDP program of `offload = "xdp"` in front of the worker step: the same
//! frames come out, and the same is counted. Which cases the program forwards frames of is written down
//! (`front::OFFLOADED`): a program that leaves all to the worker would pass everything else.
#![allow(missing_docs, clippy::expect_used)] // a failed test may panic

use std::cell::OnceCell;
use std::path::Path;
use std::rc::Rc;

use libtest_mimic::{Arguments, Failed, Trial};
use srv6d_conformance::front::{Front, Interfaces, OFFLOADED};
use srv6d_conformance::gaps::judge;
use srv6d_pack::Case;

fn main() {
    let arguments = Arguments::from_args();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance");
    let pack = srv6d_pack::load(&directory).expect("the pack loads");
    libtest_mimic::run(&arguments, pack.cases.into_iter().map(trial).collect()).exit();
}

fn trial(case: Case) -> Trial {
    let name = format!("offload::{} {}", case.id, case.title);
    Trial::test(name, move || judge(&case, run(&case)).map_err(Failed::from)).with_ignored_flag(true)
}

fn run(case: &Case) -> Result<(), String> {
    thread_local!(static INTERFACES: OnceCell<Rc<Interfaces>> = const { OnceCell::new() });
    let interfaces = INTERFACES.with(|made| match made.get() {
        Some(made) => Ok(Rc::clone(made)),
        None => Interfaces::of_this_thread().map(|new| Rc::clone(made.get_or_init(|| Rc::new(new)))),
    })?;
    let forwarded = srv6d_conformance::run_behind(case, Some(Front::load(interfaces)?))?;
    match (OFFLOADED.contains(&case.id.as_str()), forwarded) {
        (true, 0) => Err("all of it was left to the worker".to_owned()),
        (false, 1..) => Err(format!("{forwarded} frames were not left to the worker: add {} to the list", case.id)),
        _ => Ok(()),
    }
}
