//! The rows of `show source`: the state of each controller, and the outcomes of its offers.

use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use ipnet::IpNet;
use srv6d_controller::{Cause, Peer, PeerState};

use super::running::Status;
use srv6d_api::state::{SourcePeerStatus, SourceView};
use srv6d_offer::{OfferOutcome, OutcomeState};

/// Returns one view per controller.
pub fn views(statuses: &[Status], outcomes: &[OfferOutcome], held: Option<u64>) -> Vec<SourceView> {
    statuses.iter().map(|status| view(status, outcomes, held)).collect()
}

fn view(status: &Status, outcomes: &[OfferOutcome], held: Option<u64>) -> SourceView {
    let health = &status.snapshot.health;
    let ours = outcomes.iter().filter(|outcome| outcome.source == status.name);
    let ours: Outcomes<'_> = ours.map(|outcome| ((outcome.peer.as_str(), outcome.prefix), &outcome.state)).collect();
    let peers: Vec<SourcePeerStatus> =
        status.snapshot.peers.iter().flat_map(|(id, peer)| rows(id, peer, &ours)).collect();
    let peers =
        peers.into_iter().map(|row| SourcePeerStatus { programmed: in_force(row.programmed, held), ..row }).collect();
    let fresh = status.snapshot.peers.values().filter(|peer| peer.state == PeerState::Fresh).count();
    SourceView {
        source: status.name.to_owned(),
        endpoint: status.endpoint.clone(),
        state: state(status).to_owned(),
        held,
        peers_total: status.snapshot.peers.len(),
        peers_fresh: fresh,
        attempts: health.attempts,
        successes: health.successes,
        failures: Cause::ALL
            .iter()
            .map(|cause| (cause.name().to_owned(), health.failures.get(cause).copied().unwrap_or(0)))
            .collect::<BTreeMap<_, _>>(),
        last_success: health.last_success.map(seconds),
        age_seconds: health.last_success.and_then(|then| then.elapsed().ok()).map(|age| age.as_secs()),
        last_duration_ms: u64::try_from(health.last_duration.as_millis()).unwrap_or(u64::MAX),
        last_error: [&status.refused, &health.last_error, &health.state_error].into_iter().flatten().next().cloned(),
        text_mismatches: health.mismatches,
        peers,
        fpm: None,
    }
}

/// Returns whether an offer is in force. While a rollback holds, the controller's present offer is not.
fn in_force(programmed: String, held: Option<u64>) -> String {
    if held.is_some() && programmed == "yes" { "held".to_owned() } else { programmed }
}

fn state(status: &Status) -> &'static str {
    let health = &status.snapshot.health;
    match (&status.refused, &health.last_error, health.last_success) {
        (Some(_), _, _) => "refused",
        (None, Some(_), _) => "failing",
        (None, None, Some(_)) => "fresh",
        (None, None, None) => "waiting",
    }
}

/// Outcomes of the prefixes of one source, by the id of the peer.
type Outcomes<'o> = HashMap<(&'o str, IpNet), &'o OutcomeState>;

fn rows(id: &str, peer: &Peer, outcomes: &Outcomes<'_>) -> Vec<SourcePeerStatus> {
    let (word, since) = match &peer.state {
        PeerState::Waiting => ("waiting", None),
        PeerState::Fresh => ("fresh", None),
        PeerState::Stale { since } => ("stale", Some(seconds(*since))),
        PeerState::Missing => ("missing", None),
    };
    let row = |prefix: Option<&srv6d_controller::PrefixPaths>| {
        let outcome = prefix.and_then(|prefix| outcomes.get(&(id, prefix.prefix)));
        let (programmed, why) = match outcome {
            Some(OutcomeState::Programmed) => ("yes", None),
            Some(OutcomeState::Kept(why)) => ("kept", Some(format!("the last good paths stay: {why}"))),
            Some(OutcomeState::Pending(why)) => ("pending", Some(why.clone())),
            Some(OutcomeState::Refused(why)) => ("refused", Some(why.clone())),
            None => ("no", None),
        };
        SourcePeerStatus {
            peer: id.to_owned(),
            prefix: prefix.map(|prefix| prefix.prefix.to_string()),
            state: word.to_owned(),
            stale_since: since,
            synced: peer.synced.map(seconds),
            paths: prefix.map_or_else(Vec::new, |prefix| prefix.paths.iter().map(path).collect()),
            programmed: programmed.to_owned(),
            error: peer.last_error.clone().or(why),
            notes: peer.notes.clone(),
        }
    };
    if peer.prefixes.is_empty() {
        vec![row(None)]
    } else {
        peer.prefixes.iter().map(|prefix| row(Some(prefix))).collect()
    }
}

/// Formats a path by names, `1004:1001:1006`, or by segments if the controller gave no names.
fn path(path: &srv6d_controller::CarrierPath) -> String {
    let segments: Vec<String> = path.segments.iter().map(ToString::to_string).collect();
    let segments = segments.join(" ");
    if path.visits.is_empty() { segments } else { format!("{} ({segments})", path.visits.join(" > ")) }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
