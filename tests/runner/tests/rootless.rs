//! Runs every case of the conformance pack through the real worker step, as one test each, named by its row: once as it
//! is, and once with every port emulated at a rate that is never reached. Known gaps
//! appear as ignored tests and are run with `--ignored`.
#![allow(missing_docs, clippy::expect_used)] // a failed test may panic

use std::path::Path;

use libtest_mimic::{Arguments, Failed, Trial};
use srv6d_runner::gaps::{judge, known_gap};

fn main() {
    let arguments = Arguments::from_args();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance");
    let pack = srv6d_pack::load(&directory).expect("the pack loads");
    let trials = pack.cases.into_iter().flat_map(|case| {
        let name = format!("{}::{} {}", case.area, case.id, case.title);
        let gap = known_gap(&case).is_some();
        let emulated = (format!("{name} (emulated ports)"), case.clone());
        let plain = Trial::test(name, move || judge(&case, srv6d_runner::run(&case)).map_err(Failed::from));
        let (name, case) = emulated;
        let emulated = Trial::test(name, move || judge(&case, srv6d_runner::run_emulated(&case)).map_err(Failed::from));
        [plain, emulated].map(|trial| trial.with_ignored_flag(gap))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
