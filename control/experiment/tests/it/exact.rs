//! Tests of the exact mode: runs with real frames are compared with runs with records.

use srv6d_experiment::{Packets, simulate};

use crate::{experiment, json, outcome};

const PERMUTATION: &str = "traffic = \"permutation\"\nbytes = 100000";
const SMALL: &str = "leaves = 3\nspines = 3\nhosts = 3";
const FRAMES: Packets = Packets::Frames;

/// If nothing is left to chance, frames take the time that records take: a node adds no time of its own, and loses nothing.
/// An incast is left out, because chance decides which of two packets that arrive at one time finds the queue full.
#[test]
fn frames_on_given_paths_take_as_long_as_records() {
    let slow = "fault = { kind = \"slow\", share = 0.25, leaf = 1 }";
    let ring = "traffic = \"ring\"\nbytes = 20000";
    let all = "traffic = \"all-to-all\"\nbytes = 20000";
    for case in [PERMUTATION.to_owned(), format!("{PERMUTATION}\n{slow}"), ring.to_owned(), all.to_owned()] {
        let experiment = experiment(1, SMALL, &case);
        let [records, frames] = [Packets::Records, FRAMES].map(|packets| outcome(&experiment, "placed", 1, packets));
        assert_eq!(records.completions_ms.len(), frames.completions_ms.len(), "{case}");
        for (record, frame) in records.completions_ms.iter().zip(&frames.completions_ms) {
            assert!((record - frame).abs() < 0.01 * record, "{case}: {record} ms and {frame} ms");
        }
        assert_eq!((records.run.packets, records.run.drops), (frames.run.packets, frames.run.drops), "{case}");
        assert!((frames.run.reordered - records.run.reordered).abs() < 1e-9, "{case}");
    }
}

#[test]
fn a_seed_gives_the_same_result_twice() {
    let experiment = experiment(1, SMALL, PERMUTATION);
    for mode in &experiment.modes {
        let [once, twice] = [(); 2].map(|()| json(&outcome(&experiment, &mode.name, 1, FRAMES).run));
        assert_eq!(once, twice, "{}", mode.name);
    }
}

/// Every way of choosing brings all transfers to their end, over all spines.
#[test]
fn every_way_of_choosing_forwards_real_frames() {
    let experiment = experiment(1, SMALL, "traffic = \"all-to-all\"\nbytes = 20000");
    for mode in &experiment.modes {
        let run = outcome(&experiment, &mode.name, 1, FRAMES).run;
        assert_eq!(run.complete, run.transfers, "{}", mode.name);
        assert!(run.goodput > 0.5 && run.busiest_by_mean < 2.5, "{}: {run:?}", mode.name);
        let may_move = matches!(mode.name.as_str(), "flowlet" | "adaptive" | "reactive");
        assert!(run.moves == 0 || may_move, "{}: {run:?}", mode.name);
    }
}

#[test]
fn weights_of_configured_capacities_take_flows_off_a_slow_link() {
    let case = "traffic = \"permutation\"\nbytes = 400000\nfault = { kind = \"slow\", share = 0.25 }";
    let experiment = experiment(3, "leaves = 2\nspines = 2\nhosts = 4", case);
    let goodput = |mode: &str| (1..=3).map(|seed| outcome(&experiment, mode, seed, FRAMES).run.goodput).sum::<f64>();
    let [hash, weighted, placed] = ["hash, 4 QPs", "weighted, 4 QPs", "placed"].map(goodput);
    assert!(hash + 0.1 < weighted && hash + 0.1 < placed, "{hash} {weighted} {placed}");
}

#[test]
fn a_link_that_goes_down_loses_packets_until_the_others_know() {
    let fault = |more: &str| {
        format!("{PERMUTATION}\npatience = 100\nfault = {{ kind = \"down\", at = \"2ms\", reaction = \"3ms\"{more} }}")
    };
    for mode in ["hash, 4 QPs", "weighted, 4 QPs", "placed"] {
        let run = outcome(&experiment(1, SMALL, &fault("")), mode, 1, FRAMES).run;
        assert_eq!(run.complete, run.transfers, "{mode}: {run:?}");
        let again = outcome(&experiment(1, SMALL, &fault(", until = \"4ms\"")), mode, 1, FRAMES).run;
        assert_eq!(again.complete, again.transfers, "{mode}: {again:?}");
    }
    let hole = format!("{PERMUTATION}\npatience = 5\nfault = {{ kind = \"black-hole\" }}");
    let run = outcome(&experiment(1, SMALL, &hole), "hash, 4 QPs", 1, FRAMES).run;
    assert!(run.drops.wire_loss > 0 && run.complete < run.transfers && run.recovery_ms.is_some(), "{run:?}");
}

#[test]
fn a_fabric_of_too_many_nodes_is_refused_with_the_fix() {
    let experiment = experiment(1, "leaves = 8\nspines = 8\nhosts = 16", PERMUTATION);
    let (case, mode) = (&experiment.cases[0], &experiment.modes[0]);
    let refused = simulate(&experiment, (case, mode, 1), FRAMES, false, &mut |_| {}).unwrap_err().to_string();
    assert!(refused.contains("144 nodes") && refused.contains("fix: run it without --exact"), "{refused}");
}
