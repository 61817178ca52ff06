//! `show source`, for FPM.

use std::fmt::Write;

use super::source::time;
use crate::api::state::{FpmView, SourceView};

pub fn render(view: &SourceView, fpm: &FpmView) -> String {
    let since = fpm.since_seconds.map_or_else(String::new, |seconds| format!(" for {}", time(seconds)));
    let peer = fpm.peer.as_ref().map_or_else(String::new, |peer| format!(" to {peer}"));
    let mut text = format!(
        "fpm {}: {}{peer}{since}, dialect {}, connection {}\n{} routes, {} SIDs, {} next-hop objects; {} stale, {} swept\n",
        view.endpoint,
        view.state,
        fpm.dialect,
        fpm.connections,
        fpm.routes,
        fpm.sids,
        fpm.next_hops,
        fpm.stale,
        fpm.swept,
    );
    let _ = writeln!(
        text,
        "{} messages, {} malformed, {} unknown attributes; {} routes said to be in force",
        fpm.messages, fpm.malformed, fpm.unknown_attributes, fpm.answers
    );
    let ignored: Vec<String> = fpm.ignored.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    if !ignored.is_empty() {
        let _ = writeln!(text, "not used: {}", ignored.join(", "));
    }
    for (count, what) in [
        (fpm.waiting, "wait for a next hop that nobody has explained"),
        (fpm.without_vrf, "are of a VRF that has no device here"),
        (fpm.unfollowed, "are not in force: see `srv6d show routes --unfollowed`"),
    ] {
        if count > 0 {
            let _ = writeln!(text, "{count} {what}");
        }
    }
    if let Some(why) = &fpm.last_malformed {
        let _ = writeln!(text, "last malformed message: {why}");
    }
    if let Some(error) = &view.last_error {
        let _ = writeln!(text, "error: {error}");
    }
    text
}
