//! `show probes`.

use srv6d_api::state::{ProbeRow, ProbesView};
use srv6d_liveness::{Lane, Reject, State};

use super::prober::Prober;
use super::watched::{WatchedPath, WatchedPrefix};

/// Nanoseconds of a millisecond.
const MILLISECOND: u64 = 1_000_000;

impl Prober {
    /// Returns the state for display.
    pub(super) fn view(&self) -> ProbesView {
        let milliseconds = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let settings = self.settings.as_ref();
        let cut =
            self.is_cut.then_some("there are more paths than are looked at: choose some by `prefixes` of [probes]");
        ProbesView {
            interval_ms: settings.map_or(0, |settings| milliseconds(settings.interval)),
            timeout_ms: settings.map_or(0, |settings| milliseconds(settings.timeout)),
            dead_after: settings.map_or(0, |settings| settings.dead_after),
            hold_ms: settings.map_or(0, |settings| milliseconds(settings.hold)),
            address: settings.and_then(|settings| Some(settings.address?.to_string())),
            trouble: self.trouble.clone().or_else(|| cut.map(str::to_owned)),
            late: self.watch.late(),
            refused: Reject::ALL.iter().map(|&reject| (reject.word().to_owned(), self.refused.of(reject))).collect(),
            paths: self.prefixes.iter().flat_map(|prefix| self.rows(prefix)).collect(),
        }
    }

    fn rows(&self, prefix: &WatchedPrefix) -> Vec<ProbeRow> {
        let median = |path: &WatchedPath| self.lane(path)?.round_trips.quantile(0.5);
        let fastest = prefix.paths.iter().filter_map(median).min();
        prefix.paths.iter().map(|path| self.row(prefix, path, fastest)).collect()
    }

    fn lane(&self, path: &WatchedPath) -> Option<&Lane> {
        self.watch.lanes().get(&self.lane_of(&path.along)?)
    }

    fn row(&self, prefix: &WatchedPrefix, path: &WatchedPath, fastest: Option<u64>) -> ProbeRow {
        let unsent = self.lane_of(&path.along).and_then(|lane| self.unsent.get(&lane));
        let mut row = ProbeRow {
            prefix: prefix.prefix.to_string(),
            table: prefix.table.0,
            path: path.name.clone(),
            state: "not probed".to_owned(),
            in_use: !self.unused.contains(&path.name),
            carrier: path.along.as_ref().ok().map(|along| along.carrier.to_string()),
            why: path.along.as_ref().err().or(unsent).cloned(),
            ..ProbeRow::default()
        };
        let Some(lane) = self.lane(path) else { return row };
        let trip = |share| lane.round_trips.quantile(share);
        lane.state.word().clone_into(&mut row.state);
        row.since_ms = self.now.saturating_sub(lane.since) / MILLISECOND;
        (row.sent, row.received, row.lost) = (lane.sent, lane.received, lane.lost);
        (row.unjudged, row.overdue, row.ce) = (lane.unjudged, lane.overdue, lane.ce);
        row.loss_percent = lane.loss_percent();
        (row.rtt_p50_us, row.rtt_p99_us, row.rtt_max_us) = (trip(0.5), trip(0.99), trip(1.0));
        row.skew_us = trip(0.5).zip(fastest).map(|(own, fastest)| own.saturating_sub(fastest));
        if lane.state == State::Dead && row.in_use {
            row.why = Some("it stays in use, because every path of the prefix is dead".to_owned());
        }
        row
    }
}
