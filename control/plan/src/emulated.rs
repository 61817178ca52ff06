//! Plans `emulate` of `[[port]]`.

use std::collections::BTreeMap;

use srv6d_config::{self as config, EcnMarking, EcnRule, Findings, NonEct};
use srv6d_srv6::desired::{self, Chance, Emulation, PortId};

use super::Workers;
use super::node::or;

/// Bytes of a packet in one chunk of packet memory.
const CHUNK: u32 = 3840;
/// Most bytes of headers around a layer-3 packet: Ethernet with one tag, and outer headers that are removed here.
const HEADERS: u32 = 18 + 256;
/// MTU that the checks of a configuration assume. Devices may have another one, now or later.
const USUAL_MTU: u32 = 1500;
/// Bytes that a packet takes on the wire besides its layer-3 part: Ethernet header, preamble, FCS and gap.
const WIRE: u64 = 38;

/// Returns the emulated ports. `ports` are all ports of the state, those of the configuration first.
pub(super) fn ports(
    config: &config::Config,
    ports: &[desired::Port],
    workers: &Workers,
    found: &mut Findings,
) -> BTreeMap<PortId, Emulation> {
    let mut emulated = BTreeMap::new();
    let (mut packets, mut room) = (0, half(workers));
    for (index, (written, port)) in (0..).zip(config.ports.iter().zip(ports)) {
        let (written, Some(table)) = (written.get_ref(), &written.get_ref().emulate) else { continue };
        let emulation = emulation(table, found);
        check_port(written, table, found);
        check_workers(table, workers, found);
        check_queue(table, &emulation, found);
        packets += emulation.packets;
        check_memory(table, packets, workers, found);
        emulated.insert(PortId(index), fitted(table, emulation, port.mtu, &mut room, found));
    }
    emulated
}

/// Number of chunks that emulated ports may hold. The other half of the packet memory is for everything else.
const fn half(workers: &Workers) -> usize {
    (workers.frames / 2) as usize
}

/// Adapts a link to the present MTU of its device: its queue holds at least two packets. All links together may use
/// half of the packet memory, of which `room` is left.
fn fitted(
    table: &config::Emulate,
    emulation: Emulation,
    mtu: u32,
    room: &mut usize,
    found: &mut Findings,
) -> Emulation {
    let chunks = (mtu + HEADERS).div_ceil(CHUNK) as usize;
    let packets = emulation.packets.min(*room / chunks).max(1);
    let queue = emulation.queue.max(two_packets(mtu));
    *room = room.saturating_sub(packets * chunks);
    if (packets, queue) != (emulation.packets, emulation.queue) {
        found.warning(
            table.rate.span(),
            "[[port]] emulate",
            format!("with the MTU of {mtu} that the device has, the queue is of {queue} bytes and {packets} packets"),
            "write a larger `queue`, fewer `packets`, or more [workers] frames",
        );
    }
    Emulation { packets, queue, ..emulation }
}

/// Bytes that two packets take on the wire.
fn two_packets(mtu: u32) -> u64 {
    2 * (u64::from(mtu) + WIRE)
}

fn emulation(table: &config::Emulate, found: &mut Findings) -> Emulation {
    let rate = table.rate.get_ref().0;
    let defaults = Emulation::of_rate(rate);
    let nanoseconds = |time: &config::WireTime| u64::try_from(time.0.as_nanos()).unwrap_or(u64::MAX);
    Emulation {
        rate,
        queue: or(&table.queue, defaults.queue),
        packets: or(&table.packets, defaults.packets),
        overhead: or(&table.overhead, defaults.overhead),
        delay: table.delay.as_ref().map_or(0, |delay| nanoseconds(delay.get_ref())),
        loss: table.loss.as_ref().map_or(Chance::NEVER, |loss| Chance::of(loss.get_ref().0)),
        ecn: table.ecn.as_ref().map(|marking| marking_rule(marking, table, found)),
    }
}

fn marking_rule(marking: &EcnMarking, table: &config::Emulate, found: &mut Findings) -> desired::Ecn {
    match marking {
        EcnMarking::Profile(profile) => profile.get_ref().rule(),
        EcnMarking::Rule(written) => {
            let [min, max] = limits(written, table, found);
            let probability = written.probability.as_ref().map_or(1.0, |share| share.get_ref().0);
            let non_ect = match or(&written.non_ect, NonEct::Drop) {
                NonEct::Drop => desired::NonEct::Drop,
                NonEct::Pass => desired::NonEct::Pass,
            };
            desired::Ecn { min, max, probability: Chance::of(probability), non_ect }
        }
    }
}

/// Returns the depths at which marks begin, and from which everything is marked. With a round-trip time both are a seventh
/// of what the link carries in that time (DCTCP, section 3.3).
fn limits(rule: &EcnRule, table: &config::Emulate, found: &mut Findings) -> [u64; 2] {
    let EcnRule { min, max, rtt, .. } = rule;
    if let (Some(rtt), None, None) = (rtt, min, max) {
        let bits = rtt.get_ref().0.as_nanos() * u128::from(table.rate.get_ref().0) / 1_000_000_000;
        return [u64::try_from(bits / 8 / 7).unwrap_or(u64::MAX); 2];
    }
    if let (Some(min), Some(max), None) = (min, max, rtt) {
        return [*min.get_ref(), *max.get_ref()];
    }
    let what = "says either `min` and `max`, or `rtt`";
    let fix = "write ecn = { min = 30000, max = 120000 }, or ecn = { rtt = \"200us\" }";
    found.error(table.rate.span(), "[[port]] emulate ecn", what, fix);
    [0; 2]
}

fn check_port(port: &config::Port, table: &config::Emulate, found: &mut Findings) {
    if let Some(vlan) = &port.vlan {
        found.error(
            table.rate.span(),
            "[[port]] emulate",
            format!("a link is a whole device, and this port is VLAN {} of one", vlan.get_ref()),
            "write `emulate` in the entry of the device without `vlan`",
        );
    }
}

fn check_workers(table: &config::Emulate, workers: &Workers, found: &mut Findings) {
    if workers.cores.len() > 1 {
        found.error(
            table.rate.span(),
            "[[port]] emulate",
            format!(
                "the queue of an emulated port belongs to one worker, and [workers] cores has {}",
                workers.cores.len()
            ),
            "list one core in [workers] cores, or none, or remove `emulate`",
        );
    }
}

fn check_queue(table: &config::Emulate, emulation: &Emulation, found: &mut Findings) {
    let queue = emulation.queue;
    let span = table.queue.as_ref().map_or_else(|| table.rate.span(), config::Spanned::span);
    let least = two_packets(USUAL_MTU);
    if queue < least {
        let what = format!("{queue} bytes do not hold two packets of MTU {USUAL_MTU}, which take {least}");
        found.error(span.clone(), "[[port]] emulate queue", what, format!("write queue = {least} or more"));
    }
    let Some(desired::Ecn { min, max, .. }) = emulation.ecn else { return };
    if min > max || max > queue {
        found.error(
            span,
            "[[port]] emulate ecn",
            format!("min ({min}) <= max ({max}) <= queue ({queue}) does not hold, all in bytes"),
            format!("write queue = {} or more, and min <= max", max.max(min)),
        );
    }
}

/// Checks that half of the packet memory is left for everything else. `packets` is what the ports so far may hold.
fn check_memory(table: &config::Emulate, packets: usize, workers: &Workers, found: &mut Findings) {
    let half = half(workers);
    if packets > half {
        let span = table.packets.as_ref().map_or_else(|| table.rate.span(), config::Spanned::span);
        found.error(
            span,
            "[[port]] emulate packets",
            format!(
                "the emulated ports up to this one may hold {packets} packets, and half of [workers] frames = \
                 {} is {half}",
                workers.frames
            ),
            format!("write [workers] frames = {} or more, or fewer `packets`", packets * 2),
        );
    }
}
