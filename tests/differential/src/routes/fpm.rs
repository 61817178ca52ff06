//! Announcements of FRR: a stream of frames, on a connection that is lost and established again.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use srv6d_config::Config;
use srv6d_daemon::fpm::{Placed, Snapshot};
use srv6d_fpm::{Announced, Dialect, Event, FrameError, FrameReader, Rib, decode, messages, offloaded};

use super::{bytes, environment, node, planned};

/// Fuzz target: a stream of FRR over FPM. Input: `| bytes read at a time, 1 byte | stream |`
///
/// # Panics
/// If the result depends on the pieces in which a stream arrives, if a second connection with the same announcements
/// leads to another result, if an answer is not about its route, or if a plan cannot be made or put in force.
pub fn fpm(data: &[u8]) {
    let Some((&piece, stream)) = data.split_first() else { return };
    let whole = Said::read(stream, stream.len().max(1));
    assert_eq!(Said::read(stream, usize::from(piece).max(1)), whole, "in pieces of {piece}, and at once");

    let (mut rib, now) = (Rib::default(), Instant::now());
    rib.connected(now);
    whole.events.iter().for_each(|event| rib.apply(event.clone(), now));
    let first = Snapshot { dialect: Some(whole.dialect), ..snapshot(&rib) };
    rib.disconnected(Instant::now());
    assert_eq!(rib.stale(), rib.len(), "all of it is an earlier connection's");
    rib.connected(now);
    whole.events.iter().for_each(|event| rib.apply(event.clone(), now));
    rib.sweep();
    assert_eq!(snapshot(&rib), Snapshot { dialect: None, ..first.clone() }, "said twice");
    first.routes.iter().for_each(is_answered);
    goes_into_force(first);
}

/// Events of a stream, and how it ends.
#[derive(Debug, PartialEq)]
struct Said {
    events: Vec<Event>,
    dialect: Dialect,
    end: Option<FrameError>,
}

impl Said {
    /// Reads a stream in pieces, as a socket would return it.
    fn read(stream: &[u8], piece: usize) -> Self {
        let mut said = Self { events: Vec::new(), dialect: Dialect::Stock, end: None };
        let mut frames = FrameReader::default();
        for received in stream.chunks(piece) {
            frames.push(received);
            if let Err(end) = said.take(&mut frames) {
                said.end = Some(end);
                break;
            }
        }
        said
    }

    fn take(&mut self, frames: &mut FrameReader) -> Result<(), FrameError> {
        while let Some(payload) = frames.next_frame()? {
            for message in messages(payload) {
                match decode(message?) {
                    Ok(decoded) => {
                        self.dialect = decoded.dialect.unwrap_or(self.dialect);
                        self.events.push(decoded.event);
                    }
                    Err(malformed) => assert!(!malformed.0.is_empty(), "refused without a reason"),
                }
            }
        }
        Ok(())
    }
}

fn snapshot(rib: &Rib) -> Snapshot {
    Snapshot {
        routes: rib.routes().collect(),
        sids: rib.sids().map(|(prefix, sid)| (prefix, sid.clone())).collect(),
        ..Snapshot::default()
    }
}

/// Checks that the answer to zebra is one frame about this route.
fn is_answered(route: &Announced) {
    let said = Said::read(&offloaded(&route.key, route.protocol), usize::MAX);
    let is_it = |event: &Event| matches!(event, Event::Route(key, said) if *key == route.key && said.protocol == route.protocol);
    assert!(said.end.is_none() && said.events.len() == 1 && said.events.iter().all(is_it), "{route:?}: {said:?}");
}

fn goes_into_force(snapshot: Snapshot) {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    let config = CONFIG.get_or_init(|| node("[fpm]\n"));
    let (mut environment, mut placed) = (environment(), Placed::default());
    let known: Vec<_> = snapshot.routes.iter().map(|route| route.key).collect();
    let sids: Vec<_> = snapshot.sids.iter().map(|(prefix, _)| (*prefix).into()).collect();
    placed.announced(Arc::new(snapshot), &environment);
    environment.announced = placed.routes(&environment);
    let plan = planned(config, &environment);
    for key in placed.in_force(&plan).without {
        assert!(known.contains(&key) || sids.contains(&key.prefix), "{key:?} was never announced");
    }
}

/// Returns streams of both dialects: each message alone, and all of them in many orders.
pub fn seeds() -> Vec<Vec<u8>> {
    let messages = bytes::of_zebra();
    let mut seeds: Vec<Vec<u8>> = messages.iter().map(|message| [&[3][..], &bytes::frame(message)].concat()).collect();
    for turn in 0..messages.len() {
        let (ahead, behind) = messages.split_at(turn);
        let frames: Vec<u8> = behind.iter().chain(ahead).flat_map(|message| bytes::frame(message)).collect();
        seeds.push([&[u8::try_from(turn).unwrap_or(u8::MAX)][..], &frames].concat());
        // This seed is one frame with all messages.
        seeds.push([&[200][..], &bytes::frame(&[behind.concat(), ahead.concat()].concat())].concat());
    }
    seeds
}
