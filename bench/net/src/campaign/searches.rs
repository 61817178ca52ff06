//! Searches for NDR and PDR of every DUT, and measures latency at fractions of them.

use std::time::{Duration, Instant};

use super::Campaign;
use crate::BenchError;
use crate::dut::Dut;
use crate::frames::Size;
use crate::generator::Load;
use crate::latency::Latency;
use crate::layout::{Layout, SinkPlacement};
use crate::plan::LOADS;
use crate::progress::Kind;
use crate::results::{LatencyRow, PartOf, SearchRow};
use crate::search::{self, Found, Range};
use crate::testbed::Mtu;
use crate::trial::Rig;
use crate::verdict::Counted;

/// Lowest rate of a search, in packets per second.
const SLOWEST: f64 = 20_000.0;
/// Highest rate of a search; no generator sends as much.
const MOST: f64 = 100e6;
/// Shortest frame for latency measurements in bytes: it has to contain a time stamp.
const SHORTEST_STAMPED: usize = 128;
/// Approximate number of latency samples at one load.
const SAMPLES: f64 = 100_000.0;

/// Returns the frame size for latency measurements that belong to a search with this size.
fn stamped(searched: Size) -> Size {
    match searched {
        Size::Bytes(bytes) => Size::Bytes(bytes.max(SHORTEST_STAMPED)),
        Size::Imix => Size::Imix,
    }
}

impl Campaign<'_> {
    /// Searches NDR and PDR of every DUT, and measures its latencies at fractions of them.
    pub(super) fn searches(&mut self) -> Result<(), BenchError> {
        for &placement in &self.plan.searched_in {
            // Too few cores have been reported before, because floods are measured in this placement, too.
            let Ok(layout) = Layout::of(placement, &self.plan.cores) else { continue };
            for &size in &self.plan.searched {
                for dut in self.plan.thorough() {
                    let kept = self.search(placement, &layout, dut, size)?;
                    self.latencies_at_parts_of(kept.as_ref(), placement, &layout, dut, size)?;
                }
            }
        }
        Ok(())
    }

    /// Measures latencies in the placement of the search and, once, in the placement `Inline`.
    fn latencies_at_parts_of(
        &mut self,
        kept: Option<&SearchRow>,
        placement: SinkPlacement,
        layout: &Layout,
        dut: &Dut,
        searched: Size,
    ) -> Result<(), BenchError> {
        let size = stamped(searched);
        let named = size.to_string();
        let is_inline = |row: &LatencyRow| {
            (row.placement, row.dut.as_str(), &row.size) == (SinkPlacement::Inline, dut.name, &named)
        };
        let has_inline = self.results.latencies.iter().any(is_inline);
        let Some(kept) = kept else {
            self.progress.skip(Kind::Latency);
            // The measurement in `Inline` is skipped, too, unless another placement may still find a rate.
            if self.plan.searched_in.last() == Some(&placement) && !has_inline {
                self.progress.skip(Kind::Latency);
            }
            let place = placement.name();
            self.leave_out(format!(
                "latency of {} at {searched}, {place}: no rate was found that it is measured at parts of",
                dut.name
            ));
            return Ok(());
        };
        self.latencies(placement, layout, dut, size, kept)?;
        if has_inline {
            return Ok(());
        }
        let inline = Layout::of(SinkPlacement::Inline, &self.plan.cores)?;
        self.latencies(SinkPlacement::Inline, &inline, dut, size, kept)
    }

    /// Searches and stores PDR and NDR. Returns the NDR or, if none was found, the PDR: on a busy machine a packet may
    /// be lost occasionally at any rate. `None`: neither was found, or the DUT does not forward on this machine.
    fn search(
        &mut self,
        placement: SinkPlacement,
        layout: &Layout,
        dut: &Dut,
        size: Size,
    ) -> Result<Option<SearchRow>, BenchError> {
        let started = Instant::now();
        let number = self.progress.next(Kind::Search);
        let Some(mut rig) = self.rig(Kind::Search, dut, layout, Mtu::of(size))? else { return Ok(None) };
        let flooded = rig.trial(&Load::of(dut.work, size, false).flood(placement.flood()), self.plan.timing)?;
        let pdr = self.searched(&mut rig, dut, size, search::PDR, [flooded.forwarded * 1.1, MOST])?;
        let row = |accepted_loss, found| SearchRow::of(placement, dut.name, size, accepted_loss, found);
        let pdr_row = row(search::PDR, pdr);
        self.results.searches.push(pdr_row.clone());
        // A rate without loss cannot exceed the PDR.
        let ndr = match pdr.rate {
            Some(rate) => self.searched(&mut rig, dut, size, search::NDR, [rate; 2])?.below(pdr),
            None => Found { trials: 0, void: 0, ..pdr },
        };
        let ndr_row = row(search::NDR, ndr);
        self.results.searches.push(ndr_row.clone());
        drop(rig);
        self.progress.done(Kind::Search, started.elapsed());
        let [ndr_said, pdr_said] = [ndr, pdr].map(|found| match found.rate {
            Some(rate) if found.is_lower_bound() => format!(">= {:.3} Mpps", rate / 1e6),
            Some(rate) => format!("{:.3} Mpps", rate / 1e6),
            None => format!("none ({})", found.limit.text()),
        });
        let place = placement.name();
        self.say(&format!("search {number} {place:20} {:24} {size}: NDR {ndr_said}, PDR {pdr_said}", dut.name));
        (self.keep)(&self.results)?;
        Ok([ndr_row, pdr_row].into_iter().find(|row| row.found.rate.is_some()))
    }

    fn searched(
        &self,
        rig: &mut Rig,
        dut: &Dut,
        size: Size,
        accepted_loss: f64,
        [first, most]: [f64; 2],
    ) -> Result<Found, BenchError> {
        let range = Range { low: SLOWEST, first: first.max(SLOWEST), most: most.max(SLOWEST), gap: self.plan.gap };
        search::search(accepted_loss, range, |rate, is_last| {
            let load = Load::of(dut.work, size, false).at(Some(rate));
            let counted = rig.trial(&load, if is_last { self.plan.timing.twice() } else { self.plan.timing })?;
            self.go_on().map(|()| counted)
        })
    }

    fn latencies(
        &mut self,
        placement: SinkPlacement,
        layout: &Layout,
        dut: &Dut,
        size: Size,
        kept: &SearchRow,
    ) -> Result<(), BenchError> {
        let Some(whole) = kept.found.rate else { return Ok(()) };
        let started = Instant::now();
        let Some(mut rig) = self.rig(Kind::Latency, dut, layout, Mtu::of(size))? else { return Ok(()) };
        let mut said = Vec::new();
        for percent in LOADS {
            let rate = whole * f64::from(percent) / 100.0;
            let load = Load::of(dut.work, size, true).at(Some(rate));
            let every = (rate * self.plan.timing.measured.as_secs_f64() / SAMPLES).ceil().max(1.0);
            let (counted, samples) = self.timed(&mut rig, &load, every as u64)?;
            let latency = Latency::of(&samples)?;
            said.push(latency.as_ref().map_or_else(|| "none".to_owned(), |latency| format!("{:.1}", latency.p50)));
            self.results.latencies.push(LatencyRow {
                placement,
                dut: dut.name.to_owned(),
                size: size.to_string(),
                load: percent,
                rate,
                offered: Some(counted.offered),
                latency,
                loss: counted.loss(),
                part_of: Some(PartOf::of(kept)),
            });
        }
        drop(rig);
        self.progress.done(Kind::Latency, started.elapsed());
        self.say(&format!("latency {:24} {} {size}: p50 {} us", dut.name, placement.name(), said.join(", ")));
        (self.keep)(&self.results)
    }

    /// Runs a trial with time stamps. Below the NDR nothing should be lost, so the trial is repeated until nothing is;
    /// otherwise the one with the smallest loss is returned.
    fn timed(&self, rig: &mut Rig, load: &Load, every: u64) -> Result<(Counted, Vec<Duration>), BenchError> {
        let mut best = rig.timed(load, self.plan.timing, every)?;
        for _ in 0..self.plan.repeats {
            self.go_on()?;
            if best.0.loss() <= search::NDR {
                break;
            }
            let again = rig.timed(load, self.plan.timing, every)?;
            if again.0.loss() < best.0.loss() {
                best = again;
            }
        }
        self.go_on().map(|()| best)
    }
}
