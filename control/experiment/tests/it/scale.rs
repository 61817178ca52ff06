//! A large fabric.

use crate::{experiment, json, run};

#[test]
fn a_thousand_hosts_give_the_same_result_twice_and_are_best_placed() {
    let experiment = experiment(
        1,
        "leaves = 32\nspines = 32\nhosts = 32\nlink_rate = \"100Mbit\"",
        "traffic = \"permutation\"\nbytes = 20000",
    );
    let [once, twice] = [1, 1].map(|seed| run(&experiment, "hash", seed));
    assert_eq!(json(&once), json(&twice));
    let placed = run(&experiment, "placed", 1);
    assert_eq!((once.complete, placed.complete), (1024, 1024));
    assert!(placed.busiest_by_mean < 1.05 && once.busiest_by_mean > 3.5, "{once:?} {placed:?}");
}
