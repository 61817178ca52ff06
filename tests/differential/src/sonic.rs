//! Fuzz target for the files of a SONiC switch.
#![allow(clippy::panic, clippy::expect_used, reason = "a panic is what a fuzz target reports with")]

use srv6d_plan::{self as plan, Environment};
use srv6d_runner::sonic;
use srv6d_sonic::{Severity, Usd};
use srv6d_srv6::{Slots, Tables};

/// Fuzz target: the two files of a SONiC switch. Input: `config_db.json`, a zero byte, `frr.conf`. Either the switch is
/// read and becomes a valid configuration, or the files are refused with a helpful message.
///
/// # Panics
/// If a switch is read but its configuration is refused, or if the files are refused without saying what is wrong, and
/// where.
pub fn sonic(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (config_db, frr) = text.split_once('\0').unwrap_or((text, ""));
    let reading = match srv6d_sonic::read(Some(config_db), Some(frr), None, false) {
        Ok(reading) => reading,
        Err(findings) => {
            assert!(findings.iter().any(|finding| finding.severity == Severity::Error), "refused without a reason");
            return findings.iter().for_each(|finding| assert!(!finding.place.is_empty() && !finding.what.is_empty()));
        }
    };
    assert!(reading.findings.iter().all(|finding| finding.severity < Severity::Error && !finding.what.is_empty()));
    for usd in [Usd::Always, Usd::Configured] {
        // The configuration is planned once on an empty machine and once where everything exists.
        let config = sonic::configuration(&reading.switch, usd).unwrap_or_else(|why| panic!("{why}"));
        let early = plan::plan(&config, &Environment::default());
        let early = early.unwrap_or_else(|why| panic!("{}\n{why}", reading.switch.to_toml(usd).toml));
        let late = sonic::plan(&reading.switch, usd).unwrap_or_else(|why| panic!("{why}"));
        for plan in [early, late] {
            let built = Tables::build(&plan.desired, &mut Slots::default());
            built.unwrap_or_else(|why| panic!("{}\n{why}", reading.switch.to_toml(usd).toml));
        }
    }
    // A strict reading gives the same switch or none.
    if let Ok(strict) = srv6d_sonic::read(Some(config_db), Some(frr), None, true) {
        assert_eq!(strict.switch, reading.switch);
    }
}

/// Returns every sample of the reader: each `config_db.json` with each `frr.conf`.
///
/// # Panics
/// If the samples cannot be read.
pub fn seeds() -> Vec<Vec<u8>> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../control/sonic/samples");
    let files = std::fs::read_dir(directory).expect("the samples are there");
    let mut texts: Vec<(bool, Vec<u8>)> = files
        .map(|file| file.expect("the samples can be listed").path())
        .map(|path| {
            (path.extension().is_some_and(|end| end == "json"), std::fs::read(path).expect("a sample is there"))
        })
        .collect();
    texts.sort();
    let of = |kind| texts.iter().filter(move |(json, _)| *json == kind).map(|(_, text)| text.as_slice());
    of(true).flat_map(|config_db| of(false).map(move |frr| [config_db, frr].join(&0u8))).collect()
}
