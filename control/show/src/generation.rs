//! Formats `show generation`, and the reports of `reload` and `check --diff`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use srv6d_api::state::Published;

use super::lines;
use crate::table::Table;
use srv6d_api::state::{Changed, GenerationView};
use srv6d_api::{Diff, Reloaded};

pub fn render(view: &GenerationView) -> String {
    let mut text = format!(
        "node {}, srv6d {}, pid {}, since {}\nconfiguration {}\n\n",
        view.node,
        view.daemon,
        view.pid,
        time(view.started),
        view.config
    );
    let mut table = Table::new(&[">GENERATION", "PUBLISHED", "SOURCE", "CHANGES"]);
    for row in &view.generations {
        table.row([row.generation.to_string(), time(row.published), row.source.clone(), changes(&row.changes)]);
    }
    text.push_str(&table.finish("nothing was published yet"));
    text.push_str(&tables(view.tables));
    let _ = writeln!(text, "kernel memory of BPF maps and programs: {} KiB", view.kernel_memory / 1024);
    if let Some(held) = view.held {
        let _ = writeln!(text, "held at generation {held} by a rollback; `srv6d reload` follows the sources again");
    }
    text.push_str(&section("pending", &view.pending));
    text.push_str(&section("note", &view.notes));
    text.push_str(&section("warning", &view.warnings));
    text.push_str(&section("last reload refused", &view.refused));
    text
}

/// Returns a line if some part of the configuration is not in force yet, otherwise nothing.
pub fn what_waits(view: &GenerationView) -> String {
    match view.pending.len() {
        0 => String::new(),
        count => format!("pending: {count} not in force yet; `srv6d show generation` says what each waits for\n"),
    }
}

/// Formats how often the tables were built as a whole and amended in place, and how many of these builds and amendments
/// were special cases.
fn tables(published: Published) -> String {
    let Published { whole, whole_for_amendment, in_place, copied } = published;
    let beside = |count: u64, of: &str| if count > 0 { format!(" ({count} of them {of})") } else { String::new() };
    format!(
        "tables: compiled whole {whole} times{}, amended in place {in_place} times{}\n",
        beside(whole_for_amendment, "for a change that could not be made in place"),
        beside(copied, "in a fresh copy")
    )
}

pub fn reloaded(reloaded: &Reloaded) -> String {
    let mut text = if reloaded.changes.is_empty() {
        format!("taken over; it changes no entry of the tables: generation {} stays in force\n", reloaded.generation)
    } else {
        format!("generation {} is in force\n{}", reloaded.generation, lines(&reloaded.changes))
    };
    if let Some(generation) = reloaded.returned_to {
        let _ = writeln!(
            text,
            "back at generation {generation}; `srv6d rollback` goes one further back, `srv6d reload` takes the file again"
        );
    }
    text.push_str(&section("pending", &reloaded.pending));
    text.push_str(&section("warning", &reloaded.warnings));
    text
}

pub fn diff(diff: &Diff) -> String {
    let mut text = if diff.changes.is_empty() {
        "nothing would change\n".to_owned()
    } else {
        format!("{}{}\n", lines(&diff.changes), diff.summary)
    };
    text.push_str(&section("warning", &diff.warnings));
    text
}

fn section(heading: &str, entries: &[String]) -> String {
    lines(&entries.iter().map(|entry| format!("{heading}: {entry}")).collect::<Vec<_>>())
}

/// Formats changes: `sids +3 -1 ~2, routes +1`. Kinds without a change are left out.
pub fn changes(changes: &BTreeMap<String, Changed>) -> String {
    let kinds: Vec<String> =
        changes.iter().filter_map(|(kind, changed)| Some(format!("{kind} {}", counts(*changed)?))).collect();
    if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") }
}

fn counts(changed: Changed) -> Option<String> {
    let signs = [('+', changed.added), ('-', changed.removed), ('~', changed.changed)];
    let counts: Vec<String> =
        signs.iter().filter(|(_, count)| *count > 0).map(|(sign, count)| format!("{sign}{count}")).collect();
    (!counts.is_empty()).then(|| counts.join(" "))
}

/// Formats a time as in RFC 3339, in UTC.
pub fn time(seconds: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_named() {
        let all = BTreeMap::from([
            ("routes".to_owned(), Changed { added: 0, removed: 0, changed: 0 }),
            ("sids".to_owned(), Changed { added: 3, removed: 1, changed: 2 }),
            ("steers".to_owned(), Changed { added: 0, removed: 4, changed: 0 }),
        ]);
        assert_eq!(changes(&all), "sids +3 -1 ~2, steers -4");
        assert_eq!(changes(&BTreeMap::new()), "none");
    }

    #[test]
    fn what_is_unusual_about_tables_is_said() {
        let usual = Published { whole: 3, in_place: 7, ..Published::default() };
        assert_eq!(tables(usual), "tables: compiled whole 3 times, amended in place 7 times\n");
        assert_eq!(
            tables(Published { whole_for_amendment: 1, copied: 2, ..usual }),
            "tables: compiled whole 3 times (1 of them for a change that could not be made in place), \
             amended in place 7 times (2 of them in a fresh copy)\n"
        );
    }

    #[test]
    fn time_is_utc() {
        assert_eq!(time(1_700_000_000), "2023-11-14T22:13:20Z");
    }
}
