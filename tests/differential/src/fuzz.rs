//! Fuzz targets as plain functions: they take bytes and panic if something is wrong.
//!
//! They are called by a coverage-guided fuzzer (`tests/fuzz`) and by a test that changes seeds at random
//! (`tests/it/fuzz.rs` of this crate). Seeds are the frames and configurations of the conformance pack, the samples of
//! SONiC switches, and netlink messages.
#![allow(clippy::panic, clippy::expect_used, reason = "a panic is what a fuzz target reports with")]

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use etherparse::{EtherType, Ethernet2Header, Ipv4Header, Ipv6Header, Ipv6RawExtHeader, SingleVlanHeader};
use nix::time::{ClockId, clock_gettime};
use srv6d_config::{self as config, Errors};
use srv6d_pack::{Pack, decode};
use srv6d_plan::{self as plan, Environment};
use srv6d_runner::{desired, environment};
use srv6d_srv6::desired::Desired;
use srv6d_srv6::{Slots, Tables};
use srv6d_wire::srh::Routing;
use srv6d_wire::{Packet, eth, ipv4, ipv6};

use crate::compare::compare;
use crate::inputs::{captures, controllers, heartbeats, management, path_server, placement, topologies, words};
use crate::structured::{frames, netlink};
use crate::{routes, sonic};

/// A fuzz target and the inputs it starts from.
pub struct Target {
    /// Name of the target and of its corpus directory.
    pub name: &'static str,
    /// Function that runs one input; it panics if something is wrong.
    pub run: fn(&[u8]),
    /// Returns the seeds: inputs that reach deep into the code.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

impl Target {
    /// Runs the target on one input.
    ///
    /// # Panics
    /// If something is wrong, or if the input took longer than `LONGEST`.
    pub fn check(&self, input: &[u8]) {
        let start = processor_time();
        (self.run)(input);
        let took = processor_time().saturating_sub(start);
        assert!(took < LONGEST, "{}: {took:?} for an input of {} bytes", self.name, input.len());
    }

    /// Returns the inputs that a fuzzer has found: `tests/fuzz/corpus`.
    pub fn corpus(&self) -> Vec<Vec<u8>> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(self.name);
        let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let mut inputs: Vec<Vec<u8>> = files.filter_map(|file| std::fs::read(file.path()).ok()).collect();
        inputs.sort();
        inputs
    }
}

/// Limit on the processor time of one input: a thousand times what most inputs take in a build without optimisation.
const LONGEST: Duration = Duration::from_secs(10);

/// Returns the processor time of this thread so far. On a loaded machine, it is far less than the time that has passed.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// All targets.
pub const TARGETS: [Target; 18] = [
    Target { name: "parser", run: parser, seeds: frames_of_pack },
    Target { name: "forward", run: forward, seeds: frames_of_states },
    Target { name: "configuration", run: configuration, seeds: configurations },
    Target { name: "sonic", run: sonic::sonic, seeds: sonic::seeds },
    Target { name: "kernel-routes", run: routes::kernel::kernel_routes, seeds: routes::kernel::seeds },
    Target { name: "fpm", run: routes::fpm::fpm, seeds: routes::fpm::seeds },
    Target { name: "frames", run: frames::frames_on_states, seeds: frames::seeds },
    Target { name: "fpm-stream", run: netlink::fpm_stream, seeds: netlink::seeds },
    Target { name: "kernel-messages", run: netlink::kernel_messages, seeds: netlink::seeds },
    Target { name: "jalapeno", run: controllers::jalapeno, seeds: controllers::jalapeno_seeds },
    Target { name: "syd", run: controllers::syd, seeds: controllers::syd_seeds },
    Target { name: "path-server", run: path_server::path_server, seeds: path_server::seeds },
    Target { name: "management", run: management::management, seeds: management::seeds },
    Target { name: "job", run: placement::job, seeds: placement::seeds },
    Target { name: "topology", run: topologies::topology, seeds: topologies::seeds },
    Target { name: "pcap", run: captures::pcap, seeds: captures::seeds },
    Target { name: "heartbeats", run: heartbeats::heartbeats, seeds: heartbeats::seeds },
    Target { name: "sonic-words", run: words::sonic_words, seeds: words::seeds },
];

/// Checks parsers: the packet path must read the same header fields as another parser if both accept the bytes.
///
/// # Panics
/// If the two parsers read different values.
pub fn parser(data: &[u8]) {
    parse_ethernet(data);
    parse_ipv6(data);
    parse_ipv4(data);
    parse_routing(data);
    move_around(data);
    let _ = decode(data);
}

fn parse_ethernet(data: &[u8]) {
    let ours = eth::parse(data).map(|header| (header.destination, header.source, header.vlan, header.ether_type));
    let theirs = Ethernet2Header::from_slice(data).ok().and_then(|(header, mut rest)| {
        let is_tag = |kind| matches!(kind, EtherType::VLAN_TAGGED_FRAME | EtherType::PROVIDER_BRIDGING);
        let (mut vlan, mut ether_type) = (None, header.ether_type);
        for priority_tags in 0..3 {
            if !is_tag(ether_type) {
                break;
            }
            let (tag, behind) = SingleVlanHeader::from_slice(rest).ok()?;
            let vid = tag.vlan_id.value();
            if vid == 0 && priority_tags == 2 || vid != 0 && ether_type == EtherType::PROVIDER_BRIDGING {
                break;
            }
            (ether_type, rest) = (tag.ether_type, behind);
            if vid != 0 {
                vlan = Some(vid);
                break;
            }
        }
        Some((header.destination, header.source, vlan, ether_type.0))
    });
    assert_eq!(ours, theirs, "Ethernet");
}

fn parse_ipv6(data: &[u8]) {
    let ours = ipv6::Header::parse(data);
    let theirs = Ipv6Header::from_slice(data).ok().map(|(header, _)| header);
    assert_eq!(ours.is_some(), theirs.is_some(), "IPv6");
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return };
    assert_eq!(ours.traffic_class(), theirs.traffic_class, "traffic class");
    assert_eq!(ours.flow_label(), theirs.flow_label.value(), "flow label");
    assert_eq!(ours.payload_len(), usize::from(theirs.payload_length), "payload length");
    assert_eq!(
        (ours.next_header(), ours.hop_limit()),
        (theirs.next_header.0, theirs.hop_limit),
        "next header, hop limit"
    );
    let addresses = [ours.source(), ours.destination()].map(u128::to_be_bytes);
    assert_eq!(addresses, [theirs.source, theirs.destination], "addresses");
}

fn parse_ipv4(data: &[u8]) {
    let ours = ipv4::Header::parse(data);
    let theirs = Ipv4Header::from_slice(data).ok().map(|(header, _)| header);
    assert_eq!(ours.is_some(), theirs.is_some(), "IPv4");
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return };
    assert_eq!(ours.header_len(), theirs.header_len(), "header length");
    assert_eq!(ours.total_len(), usize::from(theirs.total_len), "total length");
    assert_eq!(ours.tos(), theirs.dscp.value() << 2 | theirs.ecn.value(), "type of service");
    assert_eq!((ours.ttl(), ours.protocol()), (theirs.time_to_live, theirs.protocol.0), "TTL, protocol");
    assert_eq!(ours.dont_fragment(), theirs.dont_fragment, "DF");
    assert_eq!(ours.has_offset(), theirs.fragment_offset.value() != 0, "fragment offset");
    assert_eq!(ours.is_fragment(), theirs.is_fragmenting_payload(), "fragment");
    let addresses = [ours.source(), ours.destination()].map(u32::to_be_bytes);
    assert_eq!(addresses, [theirs.source, theirs.destination], "addresses");
}

fn parse_routing(data: &[u8]) {
    let ours = Routing::parse(data);
    let theirs = Ipv6RawExtHeader::from_slice(data).ok().map(|(header, _)| header);
    assert_eq!(ours.map(Routing::len), theirs.map(|header| header.header_len()), "routing header");
    let Some(header) = ours else { return };
    for index in 0..=u8::MAX {
        let bytes = data.get(8 + 16 * usize::from(index)..8 + 16 * (usize::from(index) + 1));
        let inside = 8 + 16 * (usize::from(index) + 1) <= header.len();
        let expected = bytes.filter(|_| inside).and_then(|bytes| bytes.try_into().ok()).map(u128::from_be_bytes);
        assert_eq!(header.segment(index), expected, "Segment[{index}]");
    }
}

/// Moves the start and end of a packet in its buffer, and compares it with a plain vector. The first 16 bytes of the
/// input say what to do, two for each step.
fn move_around(data: &[u8]) {
    const ROOM: usize = 512;
    let (steps, bytes) = data.split_at_checked(16).unwrap_or((data, &[]));
    let mut plain: Vec<u8> = bytes.iter().copied().take(ROOM).collect();
    let mut room = vec![0xa5; ROOM];
    if let Some(slot) = room.get_mut(..plain.len()) {
        slot.copy_from_slice(&plain);
    }
    let mut packet = Packet::new(&mut room, plain.len(), 0);
    for step in steps.chunks_exact(2) {
        let &[what, n] = step else { return };
        let n = usize::from(n);
        match what % 4 {
            0 if packet.push_front(n).is_ok() => {
                packet.bytes_mut().iter_mut().take(n).for_each(|byte| *byte = 7);
                plain.splice(..0, vec![7; n]);
            }
            1 => {
                packet.pull_front(n);
                plain.drain(..n.min(plain.len()));
            }
            2 => {
                packet.truncate(n);
                plain.truncate(n);
            }
            3 if 8 + n <= plain.len() => {
                packet.cut(8, n);
                plain.drain(8..8 + n);
            }
            _ => {}
        }
        assert_eq!(packet.bytes(), plain, "a packet that moved");
    }
}

/// Sends one frame to one of the nodes of the pack, through the packet path and through the naive forwarder.
///
/// ```text
/// | node, 2 bytes | port | frame |
/// ```
///
/// # Panics
/// If the two disagree.
pub fn forward(data: &[u8]) {
    let Some((&[high, low, port], frame)) = data.split_first_chunk::<3>() else { return };
    let states = states();
    let state = usize::from(u16::from_be_bytes([high, low])) % states.len();
    let Some(desired) = states.get(state) else { return };
    let port = u16::from(port) % u16::try_from(desired.ports.len()).unwrap_or(u16::MAX).max(1);
    let is_device = desired.ports.get(usize::from(port)).is_some_and(|known| known.device == port);
    if let (true, Err(difference)) = (is_device, compare(desired, port, frame)) {
        panic!("{difference}");
    }
}

/// Reads, plans and compiles a configuration; if that is not possible, it must be refused with a helpful message.
///
/// # Panics
/// If it is refused without saying what is wrong, where, or what to do.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let config = match config::parse(text, "srv6d.toml") {
        Ok(config) => config,
        Err(errors) => return check_errors(text, &errors),
    };
    for environment in environments() {
        match plan::plan(&config, environment) {
            Ok(plan) => {
                let _ = Tables::build(&plan.desired, &mut Slots::default());
                let findings = plan.warnings.iter().chain(&plan.pending);
                findings.for_each(|finding| assert!(!finding.to_string().is_empty()));
            }
            Err(errors) => check_errors(text, &errors),
        }
    }
}

/// Checks that every error says what is wrong, where, and how to fix it.
fn check_errors(text: &str, errors: &Errors) {
    assert!(!errors.0.is_empty(), "refused without a reason");
    assert!(!errors.to_string().is_empty());
    for error in &errors.0 {
        assert!(!error.what.is_empty() && !error.fix.is_empty(), "without words: {error:?}");
        let lines = text.lines().count().max(1);
        assert!((1..=lines).contains(&error.line), "line {} of {lines}: {error:?}", error.line);
    }
}

fn pack() -> &'static Pack {
    static PACK: OnceLock<Pack> = OnceLock::new();
    PACK.get_or_init(|| {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance");
        srv6d_pack::load(&directory).expect("the conformance pack loads")
    })
}

/// Returns the distinct states of the nodes of the pack.
fn states() -> &'static [Desired] {
    static STATES: OnceLock<Vec<Desired>> = OnceLock::new();
    STATES.get_or_init(|| {
        let mut states: Vec<Desired> = Vec::new();
        for case in &pack().cases {
            let Ok(state) = desired(&case.setup.config, &environment(&case.setup)) else { continue };
            if !states.contains(&state) {
                states.push(state);
            }
        }
        states
    })
}

/// Returns what the kernel shows to the nodes of the pack, according to their setups; and an empty machine.
fn environments() -> &'static [Environment] {
    static ENVIRONMENTS: OnceLock<Vec<Environment>> = OnceLock::new();
    ENVIRONMENTS.get_or_init(|| {
        let mut all: Vec<Environment> = vec![Environment::default()];
        let mut names: Vec<&str> = Vec::new();
        for case in &pack().cases {
            if !names.contains(&case.setup.name.as_str()) {
                names.push(&case.setup.name);
                all.push(environment(&case.setup));
            }
        }
        all
    })
}

fn frames_of_pack() -> Vec<Vec<u8>> {
    let steps = pack().cases.iter().flat_map(|case| &case.steps);
    let mut frames: Vec<Vec<u8>> = Vec::new();
    for input in steps.flat_map(|step| &step.inputs) {
        let frame = input.built.bytes.clone();
        frames.push(frame.get(eth::LEN..).unwrap_or_default().to_vec());
        frames.push(frame);
    }
    frames.sort();
    frames.dedup();
    frames
}

/// Returns the frames of the pack, each with the node and the port that it is meant for.
fn frames_of_states() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for case in &pack().cases {
        let Ok(state) = desired(&case.setup.config, &environment(&case.setup)) else { continue };
        let Some(index) = states().iter().position(|known| *known == state) else { continue };
        for input in case.steps.iter().flat_map(|step| &step.inputs) {
            let port = state.ports.iter().position(|port| port.name == input.port).unwrap_or(0);
            let [high, low] = u16::try_from(index).unwrap_or(0).to_be_bytes();
            let head = [high, low, u8::try_from(port).unwrap_or(0)];
            seeds.push([&head, input.built.bytes.as_slice()].concat());
        }
    }
    seeds.sort();
    seeds.dedup();
    seeds
}

fn configurations() -> Vec<Vec<u8>> {
    let mut texts: Vec<Vec<u8>> = pack().cases.iter().map(|case| case.setup.config.clone().into_bytes()).collect();
    texts.sort();
    texts.dedup();
    texts
}
