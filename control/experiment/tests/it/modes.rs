//! Tests of the ranking of the ways of choosing, on the small fabric.

use crate::{MODES, experiment, goodput, json, run};

const PERMUTATION: &str = "traffic = \"permutation\"\nbytes = 400000";
const RING: &str = "traffic = \"ring\"\nbytes = 20000";
const SLOW: &str = "hosts = 6\nfault = { kind = \"slow\", share = 0.25 }";

#[test]
fn a_seed_gives_the_same_result_twice_and_another_seed_another_one() {
    let experiment = experiment(2, "", PERMUTATION);
    for mode in &experiment.modes {
        let [once, twice, other] = [1, 1, 2].map(|seed| json(&run(&experiment, &mode.name, seed)));
        assert_eq!(once, twice, "{}", mode.name);
        assert_ne!(once, other, "{}", mode.name);
    }
}

#[test]
fn a_permutation_is_best_placed_and_worst_hashed_in_one_piece() {
    let experiment = experiment(4, "", PERMUTATION);
    let [hash, shared, placed] = ["hash", "hash, 4 QPs", "placed"].map(|mode| goodput(&experiment, mode));
    assert!(hash < 0.55 && (0.4..0.8).contains(&shared) && placed > 0.9, "{hash} {shared} {placed}");
    assert!(hash + 0.05 < shared && shared + 0.1 < placed, "{hash} {shared} {placed}");
}

#[test]
fn beside_a_slow_link_weights_help_and_placement_helps_more() {
    for traffic in [PERMUTATION, RING] {
        let experiment = experiment(4, "", &format!("{traffic}\n{SLOW}"));
        let [hash, weighted, placed] =
            ["hash, 4 QPs", "weighted, 4 QPs", "placed"].map(|mode| goodput(&experiment, mode));
        assert!(hash + 0.1 < weighted && weighted + 0.05 < placed, "{traffic}: {hash} {weighted} {placed}");
    }
}

#[test]
fn all_to_all_needs_no_choice() {
    let experiment = experiment(1, "leaves = 2\nhosts = 4", "traffic = \"all-to-all\"\nbytes = 50000");
    for mode in ["hash, 4 QPs", "placed"] {
        let goodput = goodput(&experiment, mode);
        assert!(goodput > 0.8, "{mode}: {goodput}");
    }
}

#[test]
fn an_incast_is_as_fast_as_its_receiver_and_its_neighbour_suffers() {
    let experiment = experiment(1, "", "traffic = \"incast\"\nsenders = 16\nbytes = 100000");
    let run = run(&experiment, "placed", 1);
    assert!(run.goodput > 0.9, "{}", run.goodput);
    assert!(run.drops.queue_full > 0 && run.victim.is_some_and(|victim| victim > 1.0), "{run:?}");
}

/// The slow link is idle, and a busy one still has more left.
#[test]
fn an_idle_slow_link_attracts_flows_only_if_bands_are_relative() {
    let case = format!("traffic = \"ring\"\nbytes = 100000\n{SLOW}");
    let mut experiment = experiment(3, "", &case);
    let relative = r#"choose = "adaptive"
gap = "500us"
band = "relative""#;
    let text = MODES.replace("choose = \"adaptive\"\ngap = \"500us\"", relative);
    let available = goodput(&experiment, "adaptive");
    let file = format!("[[case]]\nname = \"c\"\ntraffic = \"ring\"\nbytes = 1\n{text}");
    experiment.modes = srv6d_experiment::parse(&file, "test.toml").unwrap().modes;
    let relative = goodput(&experiment, "adaptive");
    assert!(relative < available, "relative {relative}, available {available}");
}

#[test]
fn a_dilated_experiment_takes_as_many_times_longer_and_is_the_same() {
    let whole = experiment(1, "host_rate = \"1Gbit\"", PERMUTATION);
    let dilated = whole.clone().dilated(100).unwrap();
    for mode in ["hash", "placed"] {
        let [whole, dilated] = [&whole, &dilated].map(|experiment| run(experiment, mode, 1));
        assert!((dilated.seconds / whole.seconds - 100.0).abs() < 1e-3, "{mode}: {dilated:?} {whole:?}");
        assert_eq!(dilated.packets, whole.packets);
        assert!((dilated.goodput - whole.goodput).abs() < 1e-6, "{mode}");
    }
    let refused = whole.dilated(2000).unwrap_err().to_string();
    assert!(refused.contains("below 1000000 bit/s"), "{refused}");
}
