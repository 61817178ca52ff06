//! Tests emulated ports in the worker's step, on ports in memory and in virtual time.
#![allow(clippy::cast_possible_truncation)] // a failed test may panic

use srv6d_dataplane::memory::MemoryFrame;
use srv6d_dataplane::{EmulatedPort, QueueCounters, Totals};
use srv6d_emulate::{Draws, EmulatedLink, Offered, Refusal};
use srv6d_srv6::desired::{Chance, Ecn, Emulation, NonEct};
use srv6d_wire::{checksum, ecn};

use super::step::{Rig, in_frame, node, v6};

const MS: u64 = 1_000_000;
const SLOW: Emulation = Emulation::of_rate(1_000_000);
/// A rule that marks everything behind the first kilobyte.
const EAGER: Ecn = Ecn { min: 1000, max: 1000, probability: Chance::ALWAYS, non_ect: NonEct::Drop };

fn emulate(rig: &mut Rig, port: usize, emulation: Option<Emulation>, is_up: bool) {
    let emulated = emulation.map(|emulation| EmulatedPort { device: format!("p{port}"), emulation, is_up });
    rig.snapshot.wiring.emulated.resize(3, None);
    rig.snapshot.wiring.emulated[port] = emulated;
    if rig.snapshot.wiring.emulated.iter().all(Option::is_none) {
        rig.snapshot.wiring.emulated.clear();
    }
    rig.snapshot.revision += 1;
}

/// Returns a rig whose port 1 is emulated.
fn rig(emulation: Emulation) -> Rig {
    let mut rig = Rig::new(&node());
    emulate(&mut rig, 1, Some(emulation), true);
    rig
}

/// A plain packet to `3000::9`, which leaves by port 1. Its frame is 101 bytes long, and its last byte is its number.
fn plain(number: u8, ecn: u8) -> Vec<u8> {
    let mut packet = v6("2000::1", "3000::9", 17, 64, &[&[7; 46][..], &[number]].concat());
    packet[1] |= ecn << 4;
    in_frame(&packet)
}

fn receive(rig: &mut Rig, frame: &[u8], now: u64) -> Vec<(usize, u8)> {
    rig.io.port(0).unwrap().rx.push_back(MemoryFrame::new(frame));
    numbers(rig, now)
}

/// Makes rounds at `now`. Returns what is sent: the port, and the last byte.
fn numbers(rig: &mut Rig, now: u64) -> Vec<(usize, u8)> {
    let mut sent = rig.run(now);
    if sent.is_empty() {
        sent = rig.run(now);
    }
    sent.into_iter().map(|(port, frame)| (port, *frame.last().unwrap())).collect()
}

fn queue(rig: &Rig) -> QueueCounters {
    let mut queue = QueueCounters::default();
    rig.counters.add_queue_to(1, &mut queue);
    queue
}

#[test]
fn packets_leave_one_by_one_when_their_last_bit_is_through() {
    let mut rig = rig(SLOW); // a packet of 125 bytes on the wire takes a millisecond
    for number in 1..=3 {
        assert_eq!(receive(&mut rig, &plain(number, 0), 0), []);
    }
    assert_eq!(rig.totals(), Totals { rx: 3, queued: 3, ..Totals::default() });
    assert_eq!((queue(&rig).packets, queue(&rig).bytes, queue(&rig).peak_bytes), (3, 375, 375));
    assert_eq!(rig.step.next_event(), Some(MS));
    assert_eq!(numbers(&mut rig, MS - 1), []);
    assert_eq!(numbers(&mut rig, MS), [(1, 1)]);
    assert_eq!(rig.totals(), Totals { rx: 3, tx: 1, queued: 2, ..Totals::default() });
    assert_eq!(queue(&rig).bytes, 250);
    assert_eq!(numbers(&mut rig, 4 * MS), [(1, 2), (1, 3)], "a worker that comes late sends what is due");
    assert_eq!(rig.totals(), Totals { rx: 3, tx: 3, ..Totals::default() });
    let late: Vec<u64> = queue(&rig).late.to_vec();
    assert_eq!((late[0], late.iter().sum::<u64>(), queue(&rig).late_ns), (1, 3, 3 * MS), "0, 2 and 1 ms");
    assert_eq!((late[10], late[11]), (1, 1), "up to 1.05 ms, up to 2.1 ms");
}

#[test]
fn other_ports_do_not_wait() {
    let mut rig = rig(SLOW);
    let back = in_frame(&v6("3000::9", "2000::1", 17, 64, &[9; 20]));
    assert_eq!(receive(&mut rig, &plain(1, 0), 0), []);
    assert_eq!(receive(&mut rig, &back, 0), [(0, 9)]);
}

#[test]
fn a_delay_keeps_the_order() {
    let mut rig = rig(Emulation { delay: 5 * MS, ..Emulation::of_rate(1_000_000_000) });
    for number in 0..20 {
        assert_eq!(receive(&mut rig, &plain(number, 0), u64::from(number) * MS / 10), []);
    }
    let mut sent = Vec::new();
    while let Some(event) = rig.step.next_event().filter(|_| rig.step.queued() > 0) {
        sent.extend(numbers(&mut rig, event).into_iter().map(|(_, number)| (event, number)));
    }
    assert_eq!(sent.iter().map(|(_, number)| *number).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    // 125 bytes take a microsecond
    assert!(sent.iter().all(|&(now, number)| now == u64::from(number) * MS / 10 + 1000 + 5 * MS), "{sent:?}");
}

#[test]
fn every_packet_that_does_not_leave_has_its_reason() {
    let drops = |emulation: Emulation, is_up: bool| {
        let mut rig = Rig::new(&node());
        emulate(&mut rig, 1, Some(emulation), is_up);
        for number in 0..20 {
            receive(&mut rig, &plain(number, 0), 0);
        }
        (rig.totals().drop.into_iter().collect::<Vec<_>>(), rig.step.queued(), queue(&rig))
    };
    let (reasons, queued, counted) = drops(Emulation { packets: 8, ..SLOW }, true);
    assert_eq!((reasons, queued, counted.queue_full), (vec![("queue_full", 12)], 8, 12));
    let (reasons, queued, counted) = drops(Emulation { ecn: Some(EAGER), ..SLOW }, true);
    // Nine packets are 1,125 bytes.
    assert_eq!((reasons, queued, counted.wred_dropped), (vec![("wred", 11)], 9, 11));
    let (reasons, queued, counted) = drops(Emulation { loss: Chance::ALWAYS, ..SLOW }, true);
    assert_eq!((reasons, queued, counted.wire_loss), (vec![("wire_loss", 20)], 0, 20));
    let (reasons, queued, counted) = drops(SLOW, false);
    assert_eq!((reasons, queued, counted.port_down), (vec![("port_down", 20)], 0, 20));
}

#[test]
fn the_outermost_header_is_marked_and_no_other() {
    let mut rig = rig(Emulation { ecn: Some(EAGER), ..SLOW });
    (0..9).for_each(|number| assert_eq!(receive(&mut rig, &plain(number, 2), 0), []));
    let mut steered = v6("2000::1", "4000::9", 17, 64, &[5; 20]);
    steered[1] |= 2 << 4;
    assert_eq!(receive(&mut rig, &in_frame(&steered), 0), []);
    let mut v4 = [&[0x45, 0xb8 | 1, 0, 28, 1, 2, 0x40, 0, 64, 17, 0, 0, 1, 1, 1, 1, 10, 0, 0, 2][..], &[6; 8]].concat();
    let [high, low] = checksum::of(&v4[..20]).to_be_bytes();
    (v4[10], v4[11]) = (high, low);
    assert_eq!(receive(&mut rig, &in_frame(&v4), 0), []);
    let sent = rig.run(100 * MS);
    let sent: Vec<_> = sent.into_iter().chain(rig.run(100 * MS)).map(|(_, frame)| frame).collect();
    assert_eq!(sent.len(), 11);
    assert!(sent[..9].iter().all(|frame| ecn::of(frame) == 2), "the queue was short");
    assert_eq!((ecn::of(&sent[9]), sent[9][54..56].to_vec()), (3, vec![0x60, 0x20]), "CE outside, ECT(0) inside");
    assert_eq!((ecn::of(&sent[10]), sent[10][15] >> 2, checksum::of(&sent[10][14..34])), (3, 0xb8 >> 2, 0));
    assert_eq!((queue(&rig).ce_marked, rig.totals()), (2, Totals { rx: 11, tx: 11, ..Totals::default() }));
}

#[test]
fn an_answer_waits_like_other_packets() {
    let mut rig = Rig::new(&node());
    emulate(&mut rig, 0, Some(SLOW), true);
    let exhausted = in_frame(&v6("2000::9", "fcbb:bbbb:1:2::", 17, 1, &[7; 20]));
    assert_eq!(receive(&mut rig, &exhausted, 0), []);
    assert_eq!(rig.totals(), Totals { rx: 1, queued: 1, ..Totals::default() });
    assert_eq!(numbers(&mut rig, 2 * MS).len(), 1);
    assert_eq!(rig.totals().reply.get("hop_limit"), Some(&1));
}

#[test]
fn other_settings_lose_no_packet_and_none_at_all_send_everything() {
    let mut rig = rig(SLOW);
    (0..10).for_each(|number| assert_eq!(receive(&mut rig, &plain(number, 0), 0), []));
    emulate(&mut rig, 1, Some(Emulation::of_rate(10_000_000)), true);
    assert_eq!(numbers(&mut rig, 0), []);
    assert_eq!(rig.step.next_event(), Some(MS / 10));
    assert_eq!(numbers(&mut rig, MS / 2).len(), 5);
    rig.snapshot.revision += 1;
    assert_eq!(numbers(&mut rig, MS / 2), [], "the same settings change nothing");
    emulate(&mut rig, 1, None, true);
    assert_eq!(numbers(&mut rig, MS / 2), [5, 6, 7, 8, 9].map(|number| (1, number)));
    assert_eq!((rig.totals(), rig.step.next_event()), (Totals { rx: 10, tx: 10, ..Totals::default() }, None));
    assert_eq!(receive(&mut rig, &plain(11, 0), MS), [(1, 11)]);
}

#[test]
fn packets_of_a_port_that_goes_are_counted_and_its_counters_stay() {
    let mut rig = rig(SLOW);
    (0..4).for_each(|number| assert_eq!(receive(&mut rig, &plain(number, 0), 0), []));
    emulate(&mut rig, 1, Some(SLOW), false);
    assert_eq!(numbers(&mut rig, 1), []);
    assert_eq!((rig.totals().drop.get("port_down"), queue(&rig).packets), (Some(&4), 0));
    emulate(&mut rig, 1, Some(SLOW), true);
    (0..3).for_each(|number| assert_eq!(receive(&mut rig, &plain(number, 0), 2), []));
    rig.step.close_queue(&mut rig.io, 1, 3);
    assert_eq!((rig.totals().drop.get("port_down"), rig.io.recycled.len()), (Some(&7), 7));
    assert_eq!(receive(&mut rig, &plain(9, 0), 4), [], "it is closed, and the tables do not know it yet");
    assert_eq!((rig.totals().drop.get("port_down"), queue(&rig).port_down), (Some(&8), 8));
    emulate(&mut rig, 1, None, true);
    numbers(&mut rig, 5);
    emulate(&mut rig, 1, Some(SLOW), true);
    assert_eq!(receive(&mut rig, &plain(9, 0), 6), []);
    rig.step.abandon_queued(&mut rig.io, 7);
    assert_eq!((rig.totals().queued, queue(&rig).port_down), (0, 9), "counted on");
}

#[test]
fn a_worker_and_a_port_alone_count_the_same_packets() {
    let emulation = Emulation {
        queue: 5000,
        packets: 40,
        delay: MS,
        loss: Chance::of(0.05),
        ecn: Some(Ecn { min: 500, max: 4000, probability: Chance::of(0.4), non_ect: NonEct::Drop }),
        ..Emulation::of_rate(2_000_000)
    };
    let (mut rig, mut port) = (rig(emulation), EmulatedLink::new(emulation, 0));
    let (mut draws, mut times) = (Draws::named("p1"), Draws::named("times"));
    let (mut now, mut by_worker, mut alone) = (0, Vec::new(), Vec::new());
    for number in 0..5000_u32 {
        let [gap, field] = times.pair();
        now += u64::from(gap) % (MS * 7 / 10);
        let (last, field) = (number as u8, (field & 3) as u8);
        while let Some(released) = port.release(u128::from(now) * 1000) {
            alone.push(released.frame);
        }
        let offered = Offered { len: 101, ecn: field, draws: draws.pair() };
        let outcome = port.offer(u128::from(now) * 1000, offered, (last, field), |frame| frame.1 = 3);
        assert!(!matches!(outcome, Err((_, Refusal::PortDown))));
        rig.io.port(0).unwrap().rx.push_back(MemoryFrame::new(&plain(last, field)));
        let sent = rig.run(now).into_iter().map(|(_, frame)| (*frame.last().unwrap(), ecn::of(&frame)));
        by_worker.extend(sent);
        rig.totals();
    }
    assert!(by_worker.len() > 1000 && by_worker == alone);
    let (counts, queue) = (port.counts(), queue(&rig));
    let of_worker = [queue.ce_marked, queue.wred_dropped, queue.queue_full, queue.wire_loss];
    assert_eq!(of_worker, [counts.ce_marked, counts.wred_dropped, counts.queue_full, counts.wire_loss]);
    assert!(of_worker.iter().all(|&count| count > 20), "{of_worker:?}");
    assert_eq!((queue.packets, queue.peak_bytes), (port.len() as u64, counts.peak_queue));
}

#[test]
fn a_full_ring_behind_the_queue_is_a_counted_drop() {
    let mut rig = rig(SLOW);
    (0..3).for_each(|number| assert_eq!(receive(&mut rig, &plain(number, 0), 0), []));
    rig.io.port(1).unwrap().room = Some(1);
    assert_eq!(numbers(&mut rig, 3 * MS), [(1, 0)]);
    assert_eq!(rig.totals().drop.get("tx_full"), Some(&2));
}
