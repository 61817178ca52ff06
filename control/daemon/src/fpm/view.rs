//! The part of `show source` about FPM.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use srv6d_fpm::Dialect;

use super::Status;
use srv6d_api::state::{FpmView, SourceView};
use srv6d_plan::{FPM, Unfollowed};

/// Returns the state of the server for display. `nowhere` is the number of routes in VRFs without a device.
pub fn view((listen, status): &(SocketAddr, Status), unfollowed: &[Unfollowed], nowhere: usize) -> SourceView {
    let state = match (&status.not_listening, status.peer, status.since) {
        (Some(_), ..) => "refused",
        (None, Some(_), _) => "connected",
        (None, None, Some(_)) => "disconnected",
        (None, None, None) => "waiting",
    };
    let fpm = FpmView {
        peer: status.peer.map(|peer| peer.to_string()),
        since: status.since.and_then(|since| since.duration_since(UNIX_EPOCH).ok()).map(|since| since.as_secs()),
        since_seconds: status.since.and_then(|since| SystemTime::now().duration_since(since).ok()).map(|s| s.as_secs()),
        dialect: match status.dialect {
            Some(Dialect::Sonic) => "sonic",
            Some(Dialect::Stock) => "frr",
            None if status.counts.messages > 0 => "frr",
            None => "unknown",
        }
        .to_owned(),
        unfollowed: unfollowed.iter().filter(|route| route.source == FPM).count(),
        without_vrf: nowhere,
        ..status.counts.clone()
    };
    SourceView {
        source: FPM.to_owned(),
        endpoint: listen.to_string(),
        state: state.to_owned(),
        last_error: status
            .not_listening
            .clone()
            .or_else(|| status.last_error.clone().filter(|_| status.peer.is_none())),
        fpm: Some(fpm),
        ..SourceView::default()
    }
}
