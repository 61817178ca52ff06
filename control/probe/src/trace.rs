//! A traceroute: probes with a growing hop limit, and who answers them.

use std::time::{Duration, Instant};

use crate::answer::{Answer, read};
use crate::network::{Network, NetworkError};
use crate::probe::Probe;

/// Number of silent hops in a row behind which nothing is expected any more.
pub const SILENT_HOPS: u8 = 5;

/// Settings of a traceroute.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    /// Largest hop limit.
    pub max_hops: u8,
    /// Number of probes for each hop.
    pub probes: u8,
    /// Longest time to wait for the answers of one hop.
    pub timeout: Duration,
}

/// The answers of one hop.
#[derive(Clone, Debug)]
pub struct Hop {
    /// Hop limit of its probes.
    pub number: u8,
    /// For each probe: the answer with its round-trip time, if there was one in time.
    pub answers: Vec<Option<(Answer, Duration)>>,
}

/// How a traceroute has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// A probe has arrived where it ends.
    Ended,
    /// The last hops were silent.
    Silent,
    /// The largest hop limit was not enough.
    TooFar,
    /// Somebody asked to stop.
    Stopped,
}

impl Hop {
    /// Whether a probe went no further than this hop.
    pub fn is_end(&self) -> bool {
        self.answers.iter().flatten().any(|(answer, _)| answer.kind.is_end())
    }

    fn is_silent(&self) -> bool {
        self.answers.iter().all(Option::is_none)
    }
}

/// Runs a traceroute. `on_hop` gets each hop when its answers are there. It takes at most `max_hops` times `timeout`, whatever
/// is received.
///
/// # Errors
/// A probe cannot be sent.
pub fn trace(
    probe: &Probe,
    settings: Trace,
    network: &mut impl Network,
    is_stopped: impl Fn() -> bool,
    mut on_hop: impl FnMut(&Hop),
) -> Result<Ran, NetworkError> {
    let mut silent = 0;
    for number in 1..=settings.max_hops {
        let hop = ask(probe, number, settings, network, &is_stopped)?;
        if is_stopped() {
            return Ok(Ran::Stopped);
        }
        on_hop(&hop);
        if hop.is_end() {
            return Ok(Ran::Ended);
        }
        silent = if hop.is_silent() { silent + 1 } else { 0 };
        if silent == SILENT_HOPS {
            return Ok(Ran::Silent);
        }
    }
    Ok(Ran::TooFar)
}

/// Sends the probes of a hop and waits for their answers.
fn ask(
    probe: &Probe,
    hop: u8,
    settings: Trace,
    network: &mut impl Network,
    is_stopped: &impl Fn() -> bool,
) -> Result<Hop, NetworkError> {
    let first = u32::from(hop) * u32::from(settings.probes);
    let mut sent = Vec::new();
    for number in (first..).take(settings.probes.into()) {
        sent.push(Instant::now());
        for packet in probe.packets(number, hop) {
            network.send(&packet, probe.way.first())?;
        }
    }
    let mut answers = vec![None; sent.len()];
    let deadline = Instant::now() + settings.timeout;
    while answers.iter().any(Option::is_none) && Instant::now() < deadline && !is_stopped() {
        let Some(received) = network.receive(deadline)? else { continue };
        let Some(answer) = read(probe, received.from, &received.message) else { continue };
        let place = answer.number.checked_sub(first).and_then(|place| usize::try_from(place).ok());
        let Some(place) = place else { continue };
        if let (Some(slot @ None), Some(sent)) = (answers.get_mut(place), sent.get(place)) {
            *slot = Some((answer, received.at.saturating_duration_since(*sent)));
        }
    }
    Ok(Hop { number: hop, answers })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::network::Received;
    use crate::probe::Payload;
    use crate::way::Way;
    use std::net::Ipv6Addr;

    /// A network in which hops 1 and 2 answer, and hop 3 is silent or the end.
    struct Made {
        ready: Vec<Received>,
        noise: Option<Vec<u8>>,
        end: Option<u8>,
        sent: usize,
    }

    fn router(hop: u8) -> Ipv6Addr {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(hop))
    }

    impl Network for Made {
        fn send(&mut self, packet: &[u8], _: Ipv6Addr) -> Result<(), NetworkError> {
            self.sent += 1;
            let hop = packet[7];
            let kind = if self.end == Some(hop) { 1 } else { 3 };
            if hop <= self.end.unwrap_or(2) {
                let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
                message.extend(packet);
                self.ready.push(Received { from: router(hop), message, at: Instant::now() });
            }
            Ok(())
        }

        fn receive(&mut self, until: Instant) -> Result<Option<Received>, NetworkError> {
            if let Some(noise) = &self.noise {
                let noise = Received { from: router(99), message: noise.clone(), at: Instant::now() };
                return Ok(Some(self.ready.pop().unwrap_or(noise)));
            }
            let ready = self.ready.pop();
            if ready.is_none() {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
            }
            Ok(ready)
        }
    }

    fn probe() -> Probe {
        let way = Way::new(vec!["fcbb:0:1:2:3::".parse().unwrap()], "fcbb::/32".parse().unwrap(), 16).unwrap();
        let source = "2001:db8::1".parse().unwrap();
        Probe {
            ends: vec![source],
            way,
            source,
            to: None,
            payload: Payload::Echo,
            length: 56,
            flow_label: 0,
            token: [7; 8],
        }
    }

    fn run(network: &mut Made, is_stopped: bool) -> (Ran, Vec<Hop>) {
        let mut hops = Vec::new();
        let settings = Trace { max_hops: 30, probes: 3, timeout: Duration::from_millis(20) };
        let ran = trace(&probe(), settings, network, || is_stopped, |hop| hops.push(hop.clone())).unwrap();
        (ran, hops)
    }

    #[test]
    fn a_traceroute_ends_where_a_probe_ends() {
        let mut network = Made { ready: Vec::new(), noise: None, end: Some(3), sent: 0 };
        let (ran, hops) = run(&mut network, false);
        assert_eq!((ran, hops.len(), network.sent), (Ran::Ended, 3, 9));
        for hop in &hops {
            let from: Vec<Ipv6Addr> = hop.answers.iter().flatten().map(|(answer, _)| answer.from).collect();
            assert_eq!(from, [router(hop.number); 3]);
        }
    }

    #[test]
    fn silence_is_not_waited_for_for_ever() {
        let mut network = Made { ready: Vec::new(), noise: None, end: None, sent: 0 };
        let (ran, hops) = run(&mut network, false);
        assert_eq!((ran, hops.len()), (Ran::Silent, 2 + usize::from(SILENT_HOPS)));
        assert!(hops[1].answers.iter().all(Option::is_some) && hops[2].is_silent());
    }

    #[test]
    fn a_flood_of_messages_neither_answers_nor_prolongs() {
        for noise in [
            vec![],
            vec![3, 0, 0, 0],
            vec![0xff; 1500],
            [vec![3, 0, 0, 0, 0, 0, 0, 0], probe().packets(0, 1).next().unwrap()].concat(),
        ] {
            let mut network = Made { ready: Vec::new(), noise: Some(noise), end: None, sent: 0 };
            let (ran, hops) = run(&mut network, false);
            assert_eq!((ran, hops.len()), (Ran::Silent, 7));
        }
    }

    #[test]
    fn whoever_asks_to_stop_gets_no_further_hop() {
        let mut network = Made { ready: Vec::new(), noise: None, end: None, sent: 0 };
        let (ran, hops) = run(&mut network, true);
        assert_eq!((ran, hops.len(), network.sent), (Ran::Stopped, 0, 3));
    }
}
