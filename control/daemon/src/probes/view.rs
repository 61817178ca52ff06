//! `show probes`.

use std::collections::BTreeMap;
use std::sync::Arc;

use srv6d_api::state::{ProbeRow, ProbesView};
use srv6d_liveness::{Lane, LaneId, Refused, Reject, State};
use srv6d_plan::Probes;

use super::UnusedPaths;
use super::prober::Prober;
use super::watched::{Loop, WatchedPath, WatchedPrefix};

/// Nanoseconds of a millisecond.
const MILLISECOND: u64 = 1_000_000;
/// State of a path without a loop.
const NOT_PROBED: &str = "not probed";

/// What is shown, as it was at one time. The thread waits while it is copied, so most of it is shared with the thread.
#[derive(Debug)]
pub(super) struct Copied {
    now: u64,
    settings: Option<Probes>,
    prefixes: Arc<Vec<WatchedPrefix>>,
    is_cut: bool,
    numbers: BTreeMap<Loop, LaneId>,
    lanes: BTreeMap<LaneId, Lane>,
    refused: Refused,
    unused: UnusedPaths,
    trouble: Option<String>,
    unsent: BTreeMap<LaneId, String>,
    late: u64,
}

impl Prober {
    /// Returns what [`Copied::view`] shows.
    pub(super) fn copy(&self) -> Copied {
        Copied {
            now: self.now,
            settings: self.settings.clone(),
            prefixes: self.prefixes.clone(),
            is_cut: self.is_cut,
            numbers: self.lanes.clone(),
            lanes: self.watch.lanes().clone(),
            refused: self.refused.clone(),
            unused: self.unused.clone(),
            trouble: self.trouble.clone(),
            unsent: self.unsent.clone(),
            late: self.watch.late(),
        }
    }

    /// Returns the state of each path, by its name.
    pub(super) fn states(&self) -> BTreeMap<String, &'static str> {
        let lane = |path: &WatchedPath| self.watch.lanes().get(&self.lane_of(&path.along)?);
        let state = |path: &WatchedPath| lane(path).map_or(NOT_PROBED, |lane| lane.state.word());
        let paths = self.prefixes.iter().flat_map(|prefix| &prefix.paths);
        paths.map(|path| (path.name.clone(), state(path))).collect()
    }
}

/// A loop with its round-trip times in microseconds: median, 99th percentile, and the longest one.
struct Shown<'c> {
    id: LaneId,
    lane: &'c Lane,
    trips: Option<[u64; 3]>,
}

impl Copied {
    /// Returns the state for display.
    pub(super) fn view(&self) -> ProbesView {
        let milliseconds = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let settings = self.settings.as_ref();
        let cut =
            self.is_cut.then_some("there are more paths than are looked at: choose some by `prefixes` of [probes]");
        // Paths share loops, so the times of each loop are computed once.
        let shown = |(along, id): (_, &LaneId)| {
            let lane = self.lanes.get(id)?;
            Some((along, Shown { id: *id, lane, trips: lane.round_trips.quantiles([0.5, 0.99, 1.0]) }))
        };
        let shown: BTreeMap<&Loop, Shown<'_>> = self.numbers.iter().filter_map(shown).collect();
        ProbesView {
            interval_ms: settings.map_or(0, |settings| milliseconds(settings.interval)),
            timeout_ms: settings.map_or(0, |settings| milliseconds(settings.timeout)),
            dead_after: settings.map_or(0, |settings| settings.dead_after),
            hold_ms: settings.map_or(0, |settings| milliseconds(settings.hold)),
            address: settings.and_then(|settings| Some(settings.address?.to_string())),
            trouble: self.trouble.clone().or_else(|| cut.map(str::to_owned)),
            late: self.late,
            refused: Reject::ALL.iter().map(|&reject| (reject.word().to_owned(), self.refused.of(reject))).collect(),
            paths: self.prefixes.iter().flat_map(|prefix| self.rows(prefix, &shown)).collect(),
        }
    }

    fn rows(&self, prefix: &WatchedPrefix, shown: &BTreeMap<&Loop, Shown<'_>>) -> Vec<ProbeRow> {
        let of = |path: &WatchedPath| shown.get(path.along.as_ref().ok()?);
        let paths: Vec<_> = prefix.paths.iter().map(|path| (path, of(path))).collect();
        let fastest = paths.iter().filter_map(|(_, shown)| shown.as_ref()?.trips).map(|[median, ..]| median).min();
        paths.into_iter().map(|(path, shown)| self.row(prefix, path, shown, fastest)).collect()
    }

    fn row(
        &self,
        prefix: &WatchedPrefix,
        path: &WatchedPath,
        shown: Option<&Shown<'_>>,
        fastest: Option<u64>,
    ) -> ProbeRow {
        let unsent = shown.and_then(|shown| self.unsent.get(&shown.id));
        let mut row = ProbeRow {
            prefix: prefix.prefix.to_string(),
            table: prefix.table.0,
            path: path.name.clone(),
            state: NOT_PROBED.to_owned(),
            in_use: !self.unused.contains(&path.name),
            carrier: path.along.as_ref().ok().map(|along| along.carrier.to_string()),
            why: path.along.as_ref().err().or(unsent).cloned(),
            ..ProbeRow::default()
        };
        let Some(Shown { lane, trips, .. }) = shown else { return row };
        lane.state.word().clone_into(&mut row.state);
        row.since_ms = self.now.saturating_sub(lane.since) / MILLISECOND;
        (row.sent, row.received, row.lost) = (lane.sent, lane.received, lane.lost);
        (row.unjudged, row.overdue, row.ce) = (lane.unjudged, lane.overdue, lane.ce);
        row.loss_percent = lane.loss_percent();
        if let Some([median, p99, longest]) = *trips {
            (row.rtt_p50_us, row.rtt_p99_us, row.rtt_max_us) = (Some(median), Some(p99), Some(longest));
            row.skew_us = fastest.map(|fastest| median.saturating_sub(fastest));
        }
        if lane.state == State::Dead && row.in_use {
            row.why = Some("it stays in use, because every path of the prefix is dead".to_owned());
        }
        row
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]
    use std::collections::BTreeSet;

    use srv6d_liveness::{Settings, Watch};
    use srv6d_srv6::desired::TableId;

    use super::*;

    #[test]
    fn paths_of_one_loop_show_its_numbers() {
        let carrier = "fcbb:0:1400:1001:1401:1001:1400:fe06".parse().unwrap();
        let along = Loop { carrier, hops: Vec::new() };
        let path = |name: &str, along| WatchedPath { name: name.to_owned(), along };
        let paths =
            vec![path("one", Ok(along.clone())), path("two", Ok(along.clone())), path("none", Err("why".into()))];
        let prefix = WatchedPrefix { table: TableId::MAIN, prefix: "fcbb:0:800::/64".parse().unwrap(), paths };
        let settings = Settings { interval: 100, timeout: 100, dead_after: 3, hold: 1000 };
        let mut prober = Prober::new(tokio::sync::watch::Sender::default());
        prober.prefixes = Arc::new(vec![prefix]);
        prober.lanes = BTreeMap::from([(along, 4)]);
        prober.watch = Watch::new(settings);
        prober.watch.change(settings, &BTreeSet::from([4]), 0);
        let mut answer = |sent: u64, took: u64| {
            let sequence = prober.watch.sent(4, sent, sent).unwrap();
            prober.watch.answered(4, sequence, false, (sent + took, sent + took)).unwrap();
            prober.copy()
        };
        let copy = answer(0, 5000);
        let later = answer(10_000, 9000);
        let rows = copy.view().paths;
        assert_eq!(rows.iter().map(|row| row.received).collect::<Vec<_>>(), [1, 1, 0]);
        assert_eq!(rows.iter().map(|row| row.rtt_max_us).collect::<Vec<_>>(), [Some(5), Some(5), None]);
        assert_eq!(rows.iter().map(|row| row.skew_us).collect::<Vec<_>>(), [Some(0), Some(0), None]);
        assert_eq!(later.view().paths[1].rtt_max_us, Some(9), "a copy stays as it was");
        let states = [("none", "not probed"), ("one", "good"), ("two", "good")];
        assert_eq!(prober.states(), states.map(|(path, state)| (path.to_owned(), state)).into());
        assert_eq!(rows[2].why.as_deref(), Some("why"));
    }
}
