//! Formats the part of `show source` about FPM.

use std::fmt::Write;

use super::source::time;
use srv6d_api::state::{FpmView, SourceView};

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
        (fpm.waiting, "wait for a next hop that was not announced"),
        (fpm.without_vrf, "are in a VRF that has no device"),
        (fpm.unfollowed, "are not in force: see `srv6d show routes --unfollowed`"),
    ] {
        if count > 0 {
            let _ = writeln!(text, "{count} {what}");
        }
    }
    if let Some(why) = &fpm.last_turned_away {
        let _ = writeln!(text, "{} connections turned away, the last one: {why}", fpm.turned_away);
    }
    for object in &fpm.unusable_next_hops {
        let _ = writeln!(text, "next-hop object {object}");
    }
    if let Some(why) = &fpm.last_refused {
        let _ = writeln!(text, "{} announcements refused, the last one: {why}", fpm.refused);
    }
    if let Some(why) = &fpm.last_malformed {
        let _ = writeln!(text, "last malformed message: {why}");
    }
    if let Some(error) = &view.last_error {
        let _ = writeln!(text, "error: {error}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn everything_that_deserves_a_look_is_said() {
        let fpm = FpmView {
            peer: Some("127.0.0.1:35054".to_owned()),
            since_seconds: Some(65),
            connections: 2,
            dialect: "sonic".to_owned(),
            routes: 10,
            sids: 3,
            next_hops: 4,
            waiting: 1,
            stale: 5,
            swept: 6,
            unfollowed: 7,
            without_vrf: 8,
            messages: 99,
            malformed: 1,
            last_malformed: Some("type 24: a next hop that is cut".to_owned()),
            unknown_attributes: 2,
            ignored: BTreeMap::from([("neighbours".to_owned(), 3)]),
            answers: 9,
            since: None,
            turned_away: 3,
            last_turned_away: Some("127.0.0.1:40000: user nobody is not allowed".to_owned()),
            refused: 12,
            last_refused: Some("the route to 2001:db8::/32: there are 3 already".to_owned()),
            unusable_next_hops: vec!["7: a group of next hops in a circle".to_owned()],
        };
        let view = SourceView {
            endpoint: "127.0.0.1:2620".to_owned(),
            state: "connected".to_owned(),
            fpm: Some(fpm.clone()),
            ..SourceView::default()
        };
        let expected = "\
fpm 127.0.0.1:2620: connected to 127.0.0.1:35054 for 1m 5s, dialect sonic, connection 2
10 routes, 3 SIDs, 4 next-hop objects; 5 stale, 6 swept
99 messages, 1 malformed, 2 unknown attributes; 9 routes said to be in force
not used: neighbours 3
1 wait for a next hop that was not announced
8 are in a VRF that has no device
7 are not in force: see `srv6d show routes --unfollowed`
3 connections turned away, the last one: 127.0.0.1:40000: user nobody is not allowed
next-hop object 7: a group of next hops in a circle
12 announcements refused, the last one: the route to 2001:db8::/32: there are 3 already
last malformed message: type 24: a next hop that is cut
";
        assert_eq!(render(&view, &fpm), expected);
    }
}
