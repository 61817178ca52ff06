//! Searches of a campaign: NDR and PDR of every DUT, and its latencies at parts of them.

use std::time::{Duration, Instant};

use super::Campaign;
use crate::BenchError;
use crate::dut::Dut;
use crate::frames::Size;
use crate::generator::Load;
use crate::latency::Latency;
use crate::layout::{Layout, Placement};
use crate::plan::LOADS;
use crate::progress::Kind;
use crate::results::{LatencyRow, PartOf, SearchRow};
use crate::search::{self, Found, Range};
use crate::testbed::Mtu;
use crate::trial::Rig;
use crate::verdict::Counted;

/// Lowest rate of a search.
const SLOWEST: f64 = 20_000.0;
/// More than any generator sends.
const MOST: f64 = 100e6;
/// Latency frames are at least so long: they carry the time.
const SHORTEST_STAMPED: usize = 128;
/// Latency samples of one load, about.
const SAMPLES: f64 = 100_000.0;

/// Size of the frames that latency is measured with, beside a search with these.
fn stamped(searched: Size) -> Size {
    match searched {
        Size::Bytes(bytes) => Size::Bytes(bytes.max(SHORTEST_STAMPED)),
        Size::Imix => Size::Imix,
    }
}

impl Campaign<'_> {
    /// NDR and PDR of every DUT, and its latencies at parts of them.
    pub(super) fn searches(&mut self) -> Result<(), BenchError> {
        for &placement in &self.plan.searched_in {
            // Said before if there are too few cores: floods are measured there, too.
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

    /// In the placement of the search, and once inline.
    fn latencies_at_parts_of(
        &mut self,
        kept: Option<&SearchRow>,
        placement: Placement,
        layout: &Layout,
        dut: &Dut,
        searched: Size,
    ) -> Result<(), BenchError> {
        let size = stamped(searched);
        let named = size.to_string();
        let is_inline =
            |row: &LatencyRow| (row.placement, row.dut.as_str(), &row.size) == (Placement::Inline, dut.name, &named);
        let has_inline = self.results.latencies.iter().any(is_inline);
        let Some(kept) = kept else {
            self.progress.skip(Kind::Latency);
            // Inline, too, unless another placement has a rate.
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
        let inline = Layout::of(Placement::Inline, &self.plan.cores)?;
        self.latencies(Placement::Inline, &inline, dut, size, kept)
    }

    /// The NDR. Where a packet is lost now and then at any rate, as on a busy machine, the PDR.
    fn search(
        &mut self,
        placement: Placement,
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
        // What loses nothing loses no more than the PDR.
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
        placement: Placement,
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

    /// Below the NDR nothing should be lost: repeated until nothing is, else the trial that lost least.
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
