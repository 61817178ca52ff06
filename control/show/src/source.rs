//! Formats `show source`.

use std::fmt::Write;
use std::time::Duration;

use crate::table::Table;
use srv6d_api::state::SourceView;

pub fn render(views: &[SourceView]) -> String {
    if views.is_empty() {
        return "no path controller is configured, and no FPM; add [jalapeno], [syd] or [fpm]\n".to_owned();
    }
    views.iter().map(one).collect::<Vec<_>>().join("\n")
}

fn one(view: &SourceView) -> String {
    if let Some(fpm) = &view.fpm {
        return super::fpm::render(view, fpm);
    }
    let age = view.age_seconds.map_or_else(|| "never".to_owned(), |age| format!("{} ago", time(age)));
    let mut text = format!(
        "{} {}: {}, {} of {} peers fresh, last complete {age}\n{} rounds, {} complete, the last one took {} ms\n",
        view.source,
        view.endpoint,
        view.state,
        view.peers_fresh,
        view.peers_total,
        view.attempts,
        view.successes,
        view.last_duration_ms,
    );
    if let Some(generation) = view.held {
        let _ = writeln!(text, "held at generation {generation} by a rollback; `srv6d reload` follows again");
    }
    let failures: Vec<String> = view
        .failures
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(cause, count)| format!("{cause} {count}"))
        .collect();
    if !failures.is_empty() {
        let _ = writeln!(text, "failures: {}", failures.join(", "));
    }
    if let Some(error) = &view.last_error {
        let _ = writeln!(text, "error: {error}");
    }
    text.push('\n');
    let mut table = Table::new(&["PEER", "PREFIX", "STATE", "IN FORCE", "PATHS"]);
    for row in &view.peers {
        table.row([
            row.peer.clone(),
            row.prefix.clone().unwrap_or_else(|| "-".to_owned()),
            row.state.clone(),
            row.programmed.clone(),
            row.paths.join(", "),
        ]);
    }
    text.push_str(&table.finish("no peers"));
    for row in &view.peers {
        let said = row.error.iter().map(|error| ("error", error)).chain(row.notes.iter().map(|note| ("note", note)));
        text.extend(said.map(|(kind, what)| format!("{}: {kind}: {what}\n", row.peer)));
    }
    text
}

pub(super) fn time(seconds: u64) -> String {
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}
