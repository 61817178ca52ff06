//! `show workers`: how busy each worker is.

use std::time::Duration;

use srv6d_api::state::WorkerStatus;

use crate::rates::rate;
use crate::table::Table;

/// Headings of the columns that [`cells`] fills.
pub const HEADINGS: [&str; 15] = [
    "WORKER",
    "CORE",
    "POLLING",
    ">BUSY",
    ">ASLEEP",
    ">PACKETS/S",
    ">PACKETS/ROUND",
    ">FULL",
    ">LATE",
    ">LONGEST",
    ">NS/PACKET",
    ">RECEIVE",
    ">LOOK UP",
    ">WRITE",
    ">SEND",
];

/// Formats the workers, by what they did since an earlier answer, or since they were started.
pub fn render(now: &[WorkerStatus], earlier: Option<&[WorkerStatus]>) -> String {
    let mut table = Table::new(&HEADINGS);
    for row in now {
        let before = earlier.and_then(|rows| rows.iter().find(|before| before.worker == row.worker));
        table.row(cells(&row.since(before)));
    }
    table.finish("there are no workers")
}

/// Returns the cells of a worker from its number on.
pub fn cells(row: &WorkerStatus) -> Vec<String> {
    let stages: Vec<Option<f64>> =
        row.stages_ns.iter().map(|stage| quotient(stage.nanoseconds, row.timed_packets)).collect();
    let whole = (!stages.is_empty()).then(|| stages.iter().copied().sum::<Option<f64>>()).flatten();
    let mut cells = vec![
        row.worker.to_string(),
        row.core.map_or_else(|| "-".to_owned(), |core| core.to_string()),
        row.polling.clone(),
        percent(row.busy_ns, row.lived_ns),
        percent(row.asleep_ns, row.lived_ns),
        rate(quotient(row.packets, row.lived_ns).map(|packets| packets * 1e9)),
        number(quotient(row.packets, row.busy_rounds), 1),
        percent(row.full_rounds, row.busy_rounds),
        row.late_rounds.to_string(),
        longest(row.longest_round_ns),
        number(whole, 0),
    ];
    cells.extend(stages.iter().map(|stage| number(*stage, 0)));
    cells
}

/// Returns the longest round, if one was late.
fn longest(nanoseconds: u64) -> String {
    match nanoseconds {
        0 => "-".to_owned(),
        _ => format!("{:.1} ms", Duration::from_nanos(nanoseconds).as_secs_f64() * 1e3),
    }
}

fn percent(part: u64, whole: u64) -> String {
    quotient(part, whole).map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", (share * 100.0).min(100.0)))
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

#[allow(clippy::cast_precision_loss, reason = "it is shown with three digits")]
fn quotient(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
