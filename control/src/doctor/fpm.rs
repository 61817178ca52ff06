//! Checks whether FRR announces anything over FPM.

use super::Finding;
use srv6d_api::state::{FpmView, SourceView};

const SUBJECT: &str = "machine";
const CHECK: &str = "fpm";

/// Judges the answer of the running daemon.
pub fn judge(view: &SourceView) -> Finding {
    let Some(fpm) = &view.fpm else {
        let fix = "start srv6d with this configuration, and ask again";
        return Finding::warn(SUBJECT, CHECK, "no srv6d with [fpm] answers", fix);
    };
    match view.state.as_str() {
        "refused" => {
            let found = view.last_error.clone().unwrap_or_else(|| format!("cannot listen on {}", view.endpoint));
            let fix = "set `lo` up, end what listens there (`ss -ltnp`), or write another `listen` in [fpm]";
            Finding::warn(SUBJECT, CHECK, found, fix)
        }
        "connected" => connected(view, fpm),
        other if fpm.turned_away > 0 && other != "connected" => {
            let why = fpm.last_turned_away.clone().unwrap_or_default();
            let found = format!(
                "{}: nobody is connected; {} were turned away, the last one: {why}",
                view.endpoint, fpm.turned_away
            );
            let fix =
                "if that was zebra, write its user into `allowed_users` of [fpm], or its address into `allowed_peers`";
            Finding::warn(SUBJECT, CHECK, found, fix)
        }
        other => {
            let stale =
                if fpm.stale > 0 { format!("; {} stale routes stay in force", fpm.stale) } else { String::new() };
            let found = format!("{}: nobody is connected ({other}){stale}", view.endpoint);
            let fix =
                "start zebra with `-M dplane_fpm_nl` in this network namespace, and write `fpm address 127.0.0.1`";
            Finding::warn(SUBJECT, CHECK, found, fix)
        }
    }
}

fn connected(view: &SourceView, fpm: &FpmView) -> Finding {
    let routes = fpm.routes + fpm.sids;
    let found = format!("{}: connected, {routes} routes and SIDs, {} stale", view.endpoint, fpm.stale);
    let not_in_force = fpm.unfollowed + fpm.without_vrf + fpm.waiting;
    if fpm.malformed > 0 {
        let why = fpm.last_malformed.clone().unwrap_or_default();
        let found = format!("{found}; {} messages made no sense, the last one: {why}", fpm.malformed);
        return Finding::warn(SUBJECT, CHECK, found, "compare the version of FRR with docs/fpm.md");
    }
    if let Some(why) = &fpm.last_refused {
        let found = format!("{found}; {} announcements were refused, the last one: {why}", fpm.refused);
        return Finding::warn(SUBJECT, CHECK, found, "raise `max_routes` of [fpm], and restart zebra");
    }
    if not_in_force > 0 {
        let found = format!("{found}; {not_in_force} are not in force");
        return Finding::warn(SUBJECT, CHECK, found, "srv6d show source; srv6d show routes --unfollowed");
    }
    Finding::ok(SUBJECT, CHECK, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;

    fn view(state: &str, fpm: FpmView) -> SourceView {
        let endpoint = "127.0.0.1:2620".to_owned();
        SourceView {
            source: "fpm".to_owned(),
            endpoint,
            state: state.to_owned(),
            fpm: Some(fpm),
            ..SourceView::default()
        }
    }

    #[test]
    fn every_state_has_its_verdict() {
        let said = |view: &SourceView| {
            let finding = judge(view);
            (finding.verdict, finding.found)
        };
        assert_eq!(said(&SourceView::default()).0, Severity::Warn);
        let refused = view("refused", FpmView::default());
        assert_eq!(said(&refused), (Severity::Warn, "cannot listen on 127.0.0.1:2620".to_owned()));
        let gone = said(&view("disconnected", FpmView { stale: 7, ..FpmView::default() }));
        assert_eq!(gone.0, Severity::Warn);
        assert!(gone.1.contains("7 stale routes stay in force"), "{}", gone.1);
        let fine = FpmView { routes: 10, sids: 2, ..FpmView::default() };
        let found = "127.0.0.1:2620: connected, 12 routes and SIDs, 0 stale".to_owned();
        assert_eq!(said(&view("connected", fine)), (Severity::Ok, found));
        let partly = said(&view("connected", FpmView { unfollowed: 3, ..FpmView::default() }));
        assert!(partly.0 == Severity::Warn && partly.1.contains("3 are not in force"), "{}", partly.1);
        let full = FpmView { refused: 2, last_refused: Some("the route to ::/0".to_owned()), ..FpmView::default() };
        assert!(said(&view("connected", full)).1.contains("2 announcements were refused"));
        let strange = FpmView { malformed: 1, last_malformed: Some("type 24: cut".to_owned()), ..FpmView::default() };
        assert!(said(&view("connected", strange)).1.contains("type 24: cut"));
    }
}
