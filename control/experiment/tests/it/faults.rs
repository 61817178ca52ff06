//! Tests of the effects of faults, and of what is counted then.

use crate::{experiment, run};

const CASE: &str = "traffic = \"permutation\"\nbytes = 400000";

/// Number of packets of all transfers: 32 transfers of 258 packets each.
const PACKETS: u64 = 32 * 258;

#[test]
fn without_a_fault_every_packet_arrives_once() {
    let experiment = experiment(1, "", CASE);
    for mode in &experiment.modes {
        if mode.queue_pairs == 1 {
            let run = run(&experiment, &mode.name, 1);
            assert_eq!((run.packets, run.complete, run.recovery_ms), (PACKETS, 32, None), "{}", mode.name);
            assert_eq!((run.drops.wire_loss, run.drops.port_down), (0, 0), "{}", mode.name);
        }
    }
}

#[test]
fn what_a_lossy_link_loses_is_sent_again() {
    let experiment = experiment(1, "", &format!("{CASE}\nfault = {{ kind = \"lossy\", share = 0.05 }}"));
    let run = run(&experiment, "hash", 1);
    assert_eq!((run.packets, run.complete), (PACKETS, 32));
    assert!(run.drops.wire_loss > 0 && run.recovery_ms.is_some(), "{run:?}");
}

#[test]
fn a_link_that_is_down_from_the_beginning_loses_nothing() {
    let experiment = experiment(1, "", &format!("{CASE}\nfault = {{ kind = \"down\" }}"));
    for mode in ["hash", "flowlet", "placed"] {
        let run = run(&experiment, mode, 1);
        assert_eq!((run.packets, run.drops.port_down, run.complete), (PACKETS, 0, 32), "{mode}");
    }
}

#[test]
fn a_link_that_goes_down_loses_packets_until_the_routing_has_learnt_of_it() {
    let fault = "fault = { kind = \"down\", at = \"5ms\", reaction = \"10ms\" }";
    let experiment = experiment(1, "", &format!("{CASE}\n{fault}"));
    for mode in ["hash", "weighted, 4 QPs", "adaptive"] {
        let run = run(&experiment, mode, 1);
        assert!(run.drops.port_down > 0 && run.complete == 32, "{mode}: {run:?}");
        // Packets that other leaves have queued towards the spine by then are lost later: up to 10 ms of the link.
        assert!(run.recovery_ms.is_some_and(|recovery| (1.0..21.0).contains(&recovery)), "{mode}: {run:?}");
    }
}

#[test]
fn nobody_goes_round_a_black_hole() {
    let mut experiment = experiment(1, "", &format!("{CASE}\npatience = 4\nfault = {{ kind = \"black-hole\" }}"));
    let stuck = run(&experiment, "hash", 1);
    assert!(stuck.complete < 32 && stuck.drops.wire_loss > 0, "{stuck:?}");
    assert!(stuck.goodput.abs() < 1e-9, "{stuck:?}");
    let fault = experiment.cases[0].fault.as_mut().unwrap();
    fault.until = Some(std::time::Duration::from_millis(20));
    let freed = run(&experiment, "hash", 1);
    assert_eq!((freed.complete, freed.packets), (32, PACKETS));
    assert!(freed.recovery_ms.is_some_and(|recovery| recovery <= 20.1), "{freed:?}");
}

#[test]
fn a_flapping_link_moves_flows_away_and_back() {
    let fault = "fault = { kind = \"flap\", at = \"5ms\", up = \"10ms\", down = \"10ms\", reaction = \"1ms\" }";
    let experiment = experiment(1, "", &format!("{CASE}\n{fault}"));
    let run = run(&experiment, "hash", 1);
    assert!(run.complete == 32 && run.moves > 2 && run.drops.port_down > 0, "{run:?}");
}
