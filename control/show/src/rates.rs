//! Formats rates per second, which are calculated from two answers to the same request and the time between them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::render as whole;
use crate::table::Table;
use crate::workers;
use srv6d_api::Response;
use srv6d_api::state::{CountersView, PathStatus, PortStatus, SidStatus};

/// A counter: its names, its packets, and its bytes if they are counted, too.
struct Counted {
    names: Vec<String>,
    packets: u64,
    bytes: Option<u64>,
}

impl Counted {
    fn new<const N: usize>(names: [&str; N], packets: u64, bytes: Option<u64>) -> Self {
        Self { names: names.map(str::to_owned).to_vec(), packets, bytes }
    }
}

/// Formats an answer with the rates since an earlier one. An answer without packet counters is formatted as usual.
pub fn render(now: &Response, earlier: Option<(&Response, Duration)>) -> String {
    if let Response::Workers(rows) = now {
        let before = earlier.and_then(|(response, _)| match response {
            Response::Workers(before) => Some(before.as_slice()),
            _ => None,
        });
        return workers::render(rows, before);
    }
    let Some((headings, counted)) = counted(now) else { return whole(now) };
    let before = earlier.and_then(|(response, _)| self::counted(response)).map(|(_, counted)| counted);
    let before: BTreeMap<&[String], &Counted> =
        before.iter().flatten().map(|counted| (counted.names.as_slice(), counted)).collect();
    let seconds = earlier.map_or(0.0, |(_, passed)| passed.as_secs_f64());

    let columns = [&headings[..], &[">PACKETS", ">PACKETS/S", ">BIT/S"]].concat();
    let mut table = Table::new(&columns);
    for row in &counted {
        let then = before.get(row.names.as_slice());
        let packets = then.and_then(|then| per_second(then.packets, row.packets, seconds));
        let bits = then.and_then(|then| per_second(then.bytes?, row.bytes?, seconds)).map(|bytes| bytes * 8.0);
        let numbers = [row.packets.to_string(), rate(packets), rate(bits)];
        table.row(row.names.iter().cloned().chain(numbers));
    }
    table.finish("nothing is counted")
}

/// Returns the rate per second. `None`: no time has passed, or the counter restarted together with the daemon.
fn per_second(then: u64, now: u64, seconds: f64) -> Option<f64> {
    #[allow(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
    let came = now.checked_sub(then)? as f64;
    (seconds > 0.0).then(|| came / seconds)
}

/// Formats a rate with three digits and a prefix: `950`, `1.25 k`, `94.3 M`.
pub(crate) fn rate(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    let (scaled, prefix) = match value {
        value if value >= 1e9 => (value / 1e9, " G"),
        value if value >= 1e6 => (value / 1e6, " M"),
        value if value >= 1e3 => (value / 1e3, " k"),
        value => return format!("{value:.0}"),
    };
    let digits = if scaled < 10.0 { 2 } else { usize::from(scaled < 100.0) };
    format!("{scaled:.digits$}{prefix}")
}

/// Returns the headings of the names and all counters of an answer. `None`: the answer has no packet counters.
fn counted(response: &Response) -> Option<(Vec<&'static str>, Vec<Counted>)> {
    match response {
        Response::Ports(rows) => Some((vec!["PORT", "COUNTER"], rows.iter().flat_map(port).collect())),
        Response::Sids(rows) => Some((vec!["SID", "BEHAVIOR"], rows.iter().map(sid).collect())),
        Response::Paths(rows) => Some((vec!["PREFIX", "PATH"], rows.iter().map(path).collect())),
        Response::Counters(view) => Some((vec!["COUNTER", "REASON"], reasons(view))),
        _ => None,
    }
}

/// Returns the counters of a port. Losses are included only if there were any.
fn port(row: &PortStatus) -> Vec<Counted> {
    let all = [
        Counted::new([&row.name, "rx"], row.rx_packets, Some(row.rx_bytes)),
        Counted::new([&row.name, "tx"], row.tx_packets, Some(row.tx_bytes)),
        Counted::new([&row.name, "to kernel"], row.to_kernel, None),
        Counted::new([&row.name, "rx lost"], row.rx_lost, None),
        Counted::new([&row.name, "tx lost"], row.tx_lost, None),
    ];
    let is_told = |counted: &Counted| counted.packets > 0 || !counted.names.iter().any(|name| name.ends_with(" lost"));
    all.into_iter().filter(is_told).collect()
}

fn sid(row: &SidStatus) -> Counted {
    Counted::new([&row.sid, &row.behavior], row.packets, Some(row.bytes))
}

fn path(row: &PathStatus) -> Counted {
    Counted::new([&row.prefix, &row.path], row.packets, Some(row.bytes))
}

fn reasons(view: &CountersView) -> Vec<Counted> {
    let totals = [("rx", view.rx), ("tx", view.tx), ("kernel", view.kernel), ("offloaded", view.offloaded)];
    let totals = totals.map(|(name, packets)| Counted::new([name, "-"], packets, None));
    let rx_lost = view.ports.iter().map(|port| port.rx_lost).sum();
    let lost = [("local lost", view.local_lost.unwrap_or_default()), ("rx lost", rx_lost)];
    let lost = lost.into_iter().filter(|(_, packets)| *packets > 0);
    let lost = lost.map(|(name, packets)| Counted::new([name, "-"], packets, None));
    let replies = view.reply.iter().map(|row| Counted::new(["reply", &row.reason], row.packets, None));
    let drops = view.drop.iter().map(|row| Counted::new(["drop", &row.reason], row.packets, None));
    totals.into_iter().chain(lost).chain(replies).chain(drops).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;
    use srv6d_api::decode;

    fn sids() -> Vec<SidStatus> {
        match decode(include_str!("../../tests/it/recorded/sids.json")).unwrap() {
            Response::Sids(rows) => rows,
            other => unreachable!("{other:?}"),
        }
    }

    /// Returns the cells of the line that begins with `name`.
    fn line(text: &str, name: &str) -> Vec<String> {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn a_rate_is_what_came_over_the_time_that_passed() {
        let (before, mut after) = (sids(), sids());
        after.first_mut().unwrap().packets += 3000;
        after.first_mut().unwrap().bytes += 3_000_000;
        let (sid, packets) = (before.first().unwrap().sid.clone(), after.first().unwrap().packets.to_string());
        let (before, after) = (Response::Sids(before), Response::Sids(after));
        let text = render(&after, Some((&before, Duration::from_secs(2))));
        assert!(line(&text, &sid).ends_with(&[packets, "1.50 k".to_owned(), "12.0 M".to_owned()]), "{text}");
    }

    #[test]
    fn there_is_no_rate_before_the_second_answer_nor_over_a_restart() {
        let mut before = sids();
        let now = Response::Sids(before.clone());
        let name = before.first().unwrap().sid.clone();
        let none = ["-", "-"].map(str::to_owned);
        assert!(line(&render(&now, None), &name).ends_with(&none));
        before.first_mut().unwrap().packets += 1;
        before.first_mut().unwrap().bytes += 1;
        let text = render(&now, Some((&Response::Sids(before), Duration::from_secs(1))));
        assert!(line(&text, &name).ends_with(&none), "{text}");
    }

    #[test]
    fn three_digits_and_a_prefix() {
        let shown = [0.0, 950.4, 1250.0, 94_300_000.0, 1.0e11].map(|value| rate(Some(value)));
        assert_eq!(shown, ["0", "950", "1.25 k", "94.3 M", "100 G"]);
    }

    #[test]
    fn what_counts_no_packets_is_shown_as_ever() {
        let routes = decode(include_str!("../../tests/it/recorded/routes.json")).unwrap();
        assert_eq!(render(&routes, None), whole(&routes));
    }
}
