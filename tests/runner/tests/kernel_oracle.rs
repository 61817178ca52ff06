//! The kernel oracle: sends the frames of the conformance pack through a Linux kernel that is configured as the same
//! node, and compares the result byte by byte with the pack. Where the kernel differs,
//! `tests/conformance/divergences.toml` contains its exact behaviour and the reason; that is compared, too.
#![allow(missing_docs, clippy::expect_used)] // a failed test may panic

use std::collections::BTreeMap;
use std::path::Path;

use libtest_mimic::{Arguments, Failed, Trial};
use srv6d_pack::{Case, Linux, Pack};
use srv6d_runner::kernel;

/// The first kernel with NEXT-CSID for End.X, which the nodes of the pack need.
const OLDEST: (u32, u32) = (6, 6);

fn main() {
    let arguments = Arguments::from_args();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a Linux kernel");
    if version(&release).is_none_or(|version| version < OLDEST) {
        println!("not compared: Linux {} has no NEXT-CSID for End.X; 6.6 is the first that has", release.trim());
        return;
    }
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance");
    let pack = srv6d_pack::load(&directory).expect("the pack loads");
    let is_asked = |case: &&Case| !matches!(case.linux, Linux::None(_));
    let mut trials: Vec<Trial> = pack.cases.iter().filter(is_asked).cloned().map(trial).collect();
    trials.push(Trial::test("what the kernel is not asked", move || {
        show_not_compared(&pack);
        Ok(())
    }));
    libtest_mimic::run(&arguments, trials).exit();
}

/// Parses a kernel release: `6.18.44-any` becomes (6, 18).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

fn trial(case: Case) -> Trial {
    let name = format!("kernel::{} {} ({})", case.id, case.title, case.linux);
    Trial::test(name, move || kernel::run(&case).map_err(Failed::from)).with_ignored_flag(true)
}

fn show_not_compared(pack: &Pack) {
    let mut groups = BTreeMap::<&str, Vec<&str>>::new();
    for case in &pack.cases {
        if let Linux::None(why) = &case.linux {
            groups.entry(why).or_default().push(&case.id);
        }
    }
    for (why, ids) in groups {
        println!("not compared: {why}: {}", ids.join(" "));
    }
}
