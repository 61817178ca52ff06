//! The whole bench: every row, interleaved round by round.

use std::cmp::Ordering::Equal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::BenchError;
use crate::bars;
use crate::dut::{self, Dut, Forwarder};
use crate::frames::Size;
use crate::generator::Load;
use crate::latency::Latency;
use crate::layout::{Layout, Placement};
use crate::results::{Figure, LatencyRow, Results, Row, SearchRow, Trial, TurnsRow};
use crate::search::{self, Found, Range};
use crate::sink::SinkKind;
use crate::statistics::number_of;
use crate::testbed::Mtu;
use crate::trial::{Rig, Timing};
use crate::verdict::{Counted, Verdict};

/// Making namespaces, starting the DUT, the frames before the first trial, and taking it all down.
const VISIT: Duration = Duration::from_millis(1600);
/// Emptying rings and reading counters, beside the time of the traffic.
const AROUND_TRIAL: Duration = Duration::from_millis(250);
/// A turn of srv6d or the floor: short beside whatever the machine does for a while.
const TURN: Duration = Duration::from_millis(5);
/// Reading counters and waking up, for a pair of turns.
const AROUND_TURN: Duration = Duration::from_millis(1);
/// Lowest rate of a search.
const SLOWEST: f64 = 20_000.0;
/// Parts of the NDR, or of the PDR where there is no NDR, at which latency is measured, in percent.
const LOADS: [u32; 3] = [10, 50, 90];
/// Latency frames are at least so long: they carry the time.
const LATENCY_SIZE: Size = Size::Bytes(128);
/// Latency samples of one load, about.
const SAMPLES: f64 = 100_000.0;

/// What to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The srv6d to measure.
    pub srv6d: PathBuf,
    /// Cores to use.
    pub cores: Vec<usize>,
    /// Where the work runs, one after the other.
    pub placements: Vec<Placement>,
    /// Who forwards.
    pub duts: Vec<Dut>,
    /// Sizes of the floods.
    pub sizes: Vec<Size>,
    /// How frames end.
    pub sink: SinkKind,
    /// How often everything is measured.
    pub rounds: usize,
    /// How often what no promise is about is: other sizes, and several workers.
    pub other_rounds: usize,
    /// One trial.
    pub timing: Timing,
    /// Only one load where a placement has several.
    pub one_load: bool,
    /// Pairs of turns of srv6d and the floor; 0: none.
    pub pairs: usize,
    /// A trial that is worth nothing, or was disturbed, is repeated so often.
    pub repeats: u32,
    /// Sizes at which NDR and PDR are searched, with one worker; empty: no search, no latency.
    pub searched: Vec<Size>,
    /// Where they are.
    pub searched_in: Vec<Placement>,
    /// Numbers of workers of the floods over several queues; empty: none.
    pub workers: Vec<usize>,
    /// Threads that carry packets go before all others of the machine.
    pub first: bool,
    /// Set by a signal: end at the next step, and leave nothing behind.
    pub interrupted: Arc<AtomicBool>,
}

/// A run in progress.
pub struct Campaign<'p> {
    plan: &'p Plan,
    started: Instant,
    /// Says how it goes.
    progress: &'p dyn Fn(&str),
    /// Keeps what there is so far.
    keep: &'p dyn Fn(&Results) -> Result<(), BenchError>,
    results: Results,
    left: Duration,
}

impl Plan {
    /// About how long it takes.
    pub fn estimate(&self) -> Duration {
        let (placements, duts) = (self.placements.len() as u32, self.duts.len() as u32);
        let trial = self.trial_length();
        let round = |sizes: Vec<Size>| {
            let frames = [Mtu::Standard, Mtu::Jumbo].map(|mtu| sizes.iter().any(|&size| Mtu::of(size) == mtu));
            VISIT * frames.into_iter().filter(|&is_there| is_there).count() as u32 + trial * sizes.len() as u32
        };
        let floods: Duration = (0..self.rounds).map(|number| round(self.sizes_of(number))).sum();
        let workers = (VISIT + trial * 2) * self.workers.len() as u32 * duts * self.other_rounds as u32;
        let loads = |placement: &Placement| if self.one_load { 1 } else { placement.loads().len() as u32 };
        let more: u32 = self.placements.iter().map(|placement| loads(placement) - 1).sum();
        let sizes: usize = (0..self.rounds).map(|number| self.sizes_of(number).len()).sum();
        let loads = trial * sizes as u32 * more * duts;
        floods * placements * duts
            + loads
            + workers
            + self.turns_length() * placements
            + self.search_length() * duts * self.searched_in.len() as u32
    }

    /// Sizes of the floods in one round.
    fn sizes_of(&self, round: usize) -> Vec<Size> {
        let is_due = |size: &&Size| round < self.other_rounds || bars::SIZES.contains(&size.to_string().as_str());
        self.sizes.iter().filter(is_due).copied().collect()
    }

    fn trial_length(&self) -> Duration {
        self.timing.before + self.timing.measured + AROUND_TRIAL
    }

    /// All turns in one placement: two sizes of each row of srv6d.
    fn turns_length(&self) -> Duration {
        let rows = self.duts.iter().filter(|dut| dut.forwarder == Forwarder::Srv6d).count() as u32;
        let pairs = (TURN * 22 / 10 + AROUND_TURN) * self.pairs as u32;
        if self.pairs == 0 { Duration::ZERO } else { (VISIT + pairs * 2) * rows }
    }

    /// Searches and latencies of one DUT: some ten trials each for NDR and PDR, the last twice as long.
    fn search_length(&self) -> Duration {
        if self.searched.is_empty() {
            return Duration::ZERO;
        }
        let latencies = VISIT + self.trial_length() * LOADS.len() as u32;
        (VISIT + self.trial_length() * 22) * self.searched.len() as u32 + latencies * 2
    }
}

impl<'p> Campaign<'p> {
    /// Does everything that the plan says and this machine can do. What ends it early is said in the results
    /// ([`Results::cut_off`]): hours of measuring are not lost with the last minute.
    pub fn run(
        plan: &'p Plan,
        results: Results,
        progress: &'p dyn Fn(&str),
        keep: &'p dyn Fn(&Results) -> Result<(), BenchError>,
    ) -> Results {
        let mut campaign = Self { plan, started: Instant::now(), progress, keep, results, left: plan.estimate() };
        let ended = campaign
            .floods()
            .and_then(|()| campaign.in_turns())
            .and_then(|()| campaign.several_workers())
            .and_then(|()| campaign.searches());
        let took = campaign.started.elapsed().as_secs();
        campaign.results.stamp.add("took", format!("{took} s"));
        campaign.results.cut_off = ended.err().map(|why| why.0);
        campaign.results
    }

    fn floods(&mut self) -> Result<(), BenchError> {
        let mut layouts = Vec::new();
        for &placement in &self.plan.placements {
            match Layout::of(placement, &self.plan.cores) {
                Ok(layout) => layouts.push((placement, layout)),
                Err(why) => self.leave_out(why.0),
            }
        }
        for round in 0..self.plan.rounds {
            for (placement, layout) in &layouts {
                for dut in &self.plan.duts {
                    self.visit(round, *placement, layout, dut, &self.plan.sizes_of(round), false)?;
                }
            }
        }
        Ok(())
    }

    /// srv6d's rows and the floor in turns, at the sizes of the promises.
    fn in_turns(&mut self) -> Result<(), BenchError> {
        let plan = self.plan;
        if plan.pairs == 0 || !plan.duts.iter().any(|dut| dut.forwarder == Forwarder::AfXdpFloor) {
            return Ok(());
        }
        let is_promised = |size: &Size| bars::SIZES.contains(&size.to_string().as_str());
        for &placement in &plan.placements {
            let Ok(layout) = Layout::of(placement, &plan.cores) else { continue };
            for dut in plan.duts.iter().filter(|dut| dut.forwarder == Forwarder::Srv6d) {
                let Some(mut rig) = self.rig(&dut::in_turns(dut.work), &layout, Mtu::Standard)? else { continue };
                let mut said = Vec::new();
                for &size in plan.sizes.iter().filter(|size| is_promised(size)) {
                    let load = Load::of(dut.work, size, false).flood(placement.flood());
                    let pairs = rig.turns(&load, TURN, plan.pairs)?;
                    self.go_on()?;
                    let (dut, beside) = (dut.name.to_owned(), bars::FLOOR.to_owned());
                    let row = TurnsRow { placement, dut, beside, size: size.to_string(), pairs };
                    said.extend(row.ratio().map(|ratio| format!("{size}: {}", ratio.shown(1.0, 2))));
                    self.results.turns.push(row);
                }
                drop(rig);
                let floor = bars::FLOOR;
                self.say(&format!("in turns {:20} {} / {floor} {}", placement.name(), dut.name, said.join("  ")));
                (self.keep)(&self.results)?;
            }
        }
        Ok(())
    }

    fn several_workers(&mut self) -> Result<(), BenchError> {
        for round in 0..self.plan.other_rounds {
            for &workers in &self.plan.workers {
                match Layout::queues(workers, &self.plan.cores) {
                    Ok(layout) => {
                        for dut in &self.plan.duts {
                            self.visit(round, Placement::Inline, &layout, dut, &[Size::Bytes(64)], true)?;
                        }
                    }
                    Err(why) if round == 0 => self.leave_out(why.0),
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }

    /// One DUT in one placement: all sizes of one round.
    fn visit(
        &mut self,
        round: usize,
        placement: Placement,
        layout: &Layout,
        dut: &Dut,
        sizes: &[Size],
        several: bool,
    ) -> Result<(), BenchError> {
        for mtu in [Mtu::Standard, Mtu::Jumbo] {
            let sizes: Vec<Size> = sizes.iter().copied().filter(|&size| Mtu::of(size) == mtu).collect();
            if sizes.is_empty() {
                continue;
            }
            let started = Instant::now();
            let Some(mut rig) = self.rig(dut, layout, mtu)? else { continue };
            let mut said = Vec::new();
            for size in sizes {
                let load = Load::of(dut.work, size, false);
                let trial = self.best_trial(&mut rig, &load, placement, round)?;
                said.push(shown(size, &trial));
                self.keep(placement, layout.workers.len(), dut, size, &load, trial, several);
            }
            drop(rig);
            self.left = self.left.saturating_sub(started.elapsed());
            let place = if several { number_of(layout.workers.len(), "worker") } else { placement.name().to_owned() };
            self.say(&format!("round {} {place:19} {:24} {}", round + 1, dut.name, said.join("  ")));
            (self.keep)(&self.results)?;
        }
        Ok(())
    }

    /// An error once somebody wants the run to end: what was measured meanwhile may be without its DUT, which the same
    /// Ctrl-C ends.
    fn go_on(&self) -> Result<(), BenchError> {
        if self.plan.interrupted.load(Ordering::Relaxed) {
            return Err(BenchError("interrupted".to_owned()));
        }
        Ok(())
    }

    /// None: the DUT does not forward here. That is said, and the others are measured all the same.
    fn rig(&mut self, dut: &Dut, layout: &Layout, mtu: Mtu) -> Result<Option<Rig>, BenchError> {
        self.go_on()?;
        let made = Rig::new(dut, layout, mtu, self.plan.sink, &self.plan.srv6d).and_then(|mut rig| {
            if self.plan.first {
                rig.put_first()?;
            }
            Ok(rig)
        });
        match made {
            Ok(rig) => Ok(Some(rig)),
            Err(why) => {
                self.leave_out(format!("{}: {why}", dut.name));
                Ok(None)
            }
        }
    }

    /// At the load of which most is forwarded.
    fn best_trial(&self, rig: &mut Rig, load: &Load, placement: Placement, round: usize) -> Result<Trial, BenchError> {
        let usual = [placement.flood()];
        let loads = if self.plan.one_load { &usual } else { placement.loads() };
        let trials = loads.iter().map(|&rate| self.trial(rig, &load.clone().flood(rate), round));
        best(trials.collect::<Result<_, _>>()?).ok_or_else(|| BenchError("no load was offered".to_owned()))
    }

    /// Repeated until it measured the DUT undisturbed; else the best of the attempts.
    fn trial(&self, rig: &mut Rig, load: &Load, round: usize) -> Result<Trial, BenchError> {
        let mut best: Option<Trial> = None;
        for attempts in 1..=self.plan.repeats + 1 {
            let counted = rig.trial(load, self.plan.timing)?;
            self.go_on()?;
            let verdict = counted.verdict();
            let is_fine = matches!(verdict, Verdict::Measured { .. }) && !counted.is_disturbed();
            let trial = Trial { round, attempts, counted, verdict, cores: rig.cores.clone() };
            // The generator's own limit does not go away by trying again.
            if is_fine || (verdict == Verdict::GeneratorLimited && !trial.counted.is_disturbed()) {
                return Ok(trial);
            }
            if best.as_ref().is_none_or(|best| worth(&trial) > worth(best)) {
                best = Some(trial);
            }
        }
        best.ok_or_else(|| BenchError("no trial was made".to_owned()))
    }

    #[allow(clippy::too_many_arguments, reason = "the coordinates of a figure")]
    fn keep(
        &mut self,
        placement: Placement,
        workers: usize,
        dut: &Dut,
        size: Size,
        load: &Load,
        trial: Trial,
        several: bool,
    ) {
        let rows = if several { &mut self.results.workers } else { &mut self.results.floods };
        let size = size.to_string();
        let known = rows.iter_mut().find(|row| {
            (row.placement, row.workers, row.dut.as_str(), &row.size) == (placement, workers, dut.name, &size)
        });
        if let Some(row) = known {
            row.trials.push(trial);
            return;
        }
        let bytes: usize = load.frames.iter().map(Vec::len).sum();
        let frame = bytes as f64 / load.frames.len().max(1) as f64;
        rows.push(Row { placement, workers, dut: dut.name.to_owned(), size, frame, trials: vec![trial] });
    }

    /// NDR and PDR of every DUT, and its latencies at parts of them.
    fn searches(&mut self) -> Result<(), BenchError> {
        for &placement in &self.plan.searched_in {
            // Said before if there are too few cores: floods are measured there, too.
            let Ok(layout) = Layout::of(placement, &self.plan.cores) else { continue };
            for &size in &self.plan.searched {
                for dut in &self.plan.duts {
                    let kept = self.search(placement, &layout, dut, size)?;
                    if Some(&size) == self.plan.searched.first() {
                        self.latencies_at_parts_of(kept, placement, &layout, dut)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// In the placement of the search, and once inline.
    fn latencies_at_parts_of(
        &mut self,
        kept: Option<f64>,
        placement: Placement,
        layout: &Layout,
        dut: &Dut,
    ) -> Result<(), BenchError> {
        let Some(kept) = kept else {
            let place = placement.name();
            self.leave_out(format!(
                "latency of {}, {place}: no rate was found that it is measured at parts of",
                dut.name
            ));
            return Ok(());
        };
        self.latencies(placement, layout, dut, kept)?;
        let is_inline = |row: &LatencyRow| row.placement == Placement::Inline && row.dut == dut.name;
        if self.results.latencies.iter().any(is_inline) {
            return Ok(());
        }
        let inline = Layout::of(Placement::Inline, &self.plan.cores)?;
        self.latencies(Placement::Inline, &inline, dut, kept)
    }

    /// The NDR. Where a packet is lost now and then at any rate, as on a busy machine, the PDR.
    fn search(
        &mut self,
        placement: Placement,
        layout: &Layout,
        dut: &Dut,
        size: Size,
    ) -> Result<Option<f64>, BenchError> {
        let started = Instant::now();
        let Some(mut rig) = self.rig(dut, layout, Mtu::of(size))? else { return Ok(None) };
        let flooded = rig.trial(&Load::of(dut.work, size, false).flood(placement.flood()), self.plan.timing)?;
        let pdr = self.searched(&mut rig, dut, size, search::PDR, flooded.forwarded * 1.1)?;
        self.results.searches.push(SearchRow::of(placement, dut.name, size, search::PDR, pdr));
        // What loses nothing loses no more than the PDR.
        let ndr = match pdr.rate {
            Some(rate) => self.searched(&mut rig, dut, size, search::NDR, rate)?.below(pdr),
            None => Found { trials: 0, void: 0, ..pdr },
        };
        self.results.searches.push(SearchRow::of(placement, dut.name, size, search::NDR, ndr));
        drop(rig);
        self.left = self.left.saturating_sub(started.elapsed());
        let [ndr_said, pdr_said] = [ndr, pdr]
            .map(|found| found.rate.map_or_else(|| "none".to_owned(), |rate| format!("{:.3} Mpps", rate / 1e6)));
        self.say(&format!("search {:20} {:24} {size}: NDR {ndr_said}, PDR {pdr_said}", placement.name(), dut.name));
        (self.keep)(&self.results)?;
        Ok(ndr.rate.or(pdr.rate))
    }

    fn searched(
        &self,
        rig: &mut Rig,
        dut: &Dut,
        size: Size,
        accepted_loss: f64,
        high: f64,
    ) -> Result<Found, BenchError> {
        let range = Range { low: SLOWEST, high: high.max(SLOWEST), gap: 0.02 };
        search::search(accepted_loss, range, |rate, is_last| {
            let load = Load::of(dut.work, size, false).at(Some(rate));
            let counted = rig.trial(&load, if is_last { self.plan.timing.twice() } else { self.plan.timing })?;
            self.go_on().map(|()| counted)
        })
    }

    fn latencies(&mut self, placement: Placement, layout: &Layout, dut: &Dut, kept: f64) -> Result<(), BenchError> {
        let started = Instant::now();
        let Some(mut rig) = self.rig(dut, layout, Mtu::Standard)? else { return Ok(()) };
        let mut said = Vec::new();
        for percent in LOADS {
            let rate = kept * f64::from(percent) / 100.0;
            let load = Load::of(dut.work, LATENCY_SIZE, true).at(Some(rate));
            let every = (rate * self.plan.timing.measured.as_secs_f64() / SAMPLES).ceil().max(1.0);
            let (counted, samples) = self.timed(&mut rig, &load, every as u64)?;
            let latency = Latency::of(&samples)?;
            said.push(latency.as_ref().map_or_else(|| "none".to_owned(), |latency| format!("{:.1}", latency.p50)));
            self.results.latencies.push(LatencyRow {
                placement,
                dut: dut.name.to_owned(),
                size: LATENCY_SIZE.to_string(),
                load: percent,
                rate,
                offered: Some(counted.offered),
                latency,
                loss: counted.loss(),
            });
        }
        drop(rig);
        self.left = self.left.saturating_sub(started.elapsed());
        self.say(&format!("latency {:24} {}: p50 {} us", dut.name, placement.name(), said.join(", ")));
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

    fn leave_out(&mut self, why: String) {
        self.say(&format!("left out: {why}"));
        if !self.results.left_out.contains(&why) {
            self.results.left_out.push(why);
        }
    }

    fn say(&self, what: &str) {
        let (passed, left) = (self.started.elapsed().as_secs(), self.left.as_secs());
        (self.progress)(&format!("[{passed:4} s, about {left:4} s to go] {what}"));
    }
}

/// Of trials at rising loads the one that forwarded most, or any rather than a void one. Where a higher load brought
/// less, a load that was forwarded whole is what the DUT can do, and no lower bound of it.
fn best(trials: Vec<Trial>) -> Option<Trial> {
    let is_void = |trial: &Trial| matches!(trial.verdict, Verdict::Void { .. });
    let last = trials.len().checked_sub(1)?;
    let rank = |trial: &Trial| (!is_void(trial), trial.counted.forwarded);
    let (at, mut best) =
        trials.into_iter().enumerate().max_by(|(_, a), (_, b)| rank(a).partial_cmp(&rank(b)).unwrap_or(Equal))?;
    if best.verdict == Verdict::GeneratorLimited && at < last {
        best.verdict = Verdict::Measured { loss: best.counted.loss() };
    }
    Some(best)
}

/// Of two trials the one that measured the DUT, then the one that waited less.
fn worth(trial: &Trial) -> (bool, f64) {
    (matches!(trial.verdict, Verdict::Measured { .. }), -trial.counted.waited - trial.counted.stolen)
}

fn shown(size: Size, trial: &Trial) -> String {
    let note = trial.verdict.why_none().map_or_else(String::new, |why| format!(" ({why})"));
    let mark = if trial.counted.is_disturbed() { "~" } else { "" };
    format!("{size}: {mark}{:.3}{note}", Figure::PerSecond.of(&trial.counted) / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(other_rounds: usize) -> Plan {
        Plan {
            srv6d: PathBuf::new(),
            cores: vec![0, 1],
            placements: vec![Placement::OneCore],
            duts: vec![crate::dut::LOSSY],
            sizes: [64, 512, 1500, 9000].map(Size::Bytes).to_vec(),
            sink: SinkKind::Xdp,
            rounds: 3,
            other_rounds,
            timing: Timing { before: Duration::ZERO, measured: Duration::from_millis(750) },
            one_load: true,
            pairs: 0,
            repeats: 0,
            searched: Vec::new(),
            searched_in: vec![Placement::OneCore],
            workers: Vec::new(),
            first: false,
            interrupted: Arc::default(),
        }
    }

    #[test]
    fn sizes_with_a_promise_are_measured_in_every_round_and_others_as_often_as_asked() {
        let sizes = |round| plan(1).sizes_of(round).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(sizes(0), ["64", "512", "1500", "9000"]);
        assert_eq!((sizes(1), sizes(2)), (vec!["64".to_owned(), "1500".to_owned()], sizes(1)));
        // Two visits for both MTUs and four trials of a second; then twice one visit and two trials.
        assert_eq!(plan(3).estimate(), Duration::from_millis(3 * (2 * 1600 + 4000)));
        assert_eq!(plan(1).estimate(), Duration::from_millis(2 * 1600 + 4000 + 2 * (1600 + 2000)));
    }

    #[test]
    fn the_load_counts_of_which_most_is_forwarded() {
        let measured = Verdict::Measured { loss: 0.5 };
        let void = Verdict::Void { why: crate::verdict::Why::SinkLimited };
        let best = |trials: &[(f64, Verdict)]| {
            let trial = |&(forwarded, verdict): &(f64, Verdict)| {
                let counted = Counted { forwarded, sent: 10, received: 10, ..Counted::default() };
                Trial { round: 0, attempts: 1, counted, verdict, cores: Vec::new() }
            };
            best(trials.iter().map(trial).collect()).map(|best| (best.counted.forwarded, best.verdict))
        };
        let whole = Verdict::GeneratorLimited;
        assert_eq!(best(&[(0.5, whole), (0.6, measured), (0.2, measured)]), Some((0.6, measured)));
        // More was offered, and less came of it.
        assert_eq!(best(&[(0.5, whole), (0.4, measured)]), Some((0.5, Verdict::Measured { loss: 0.0 })));
        assert_eq!(best(&[(0.5, whole), (0.7, whole)]), Some((0.7, whole)));
        assert_eq!(best(&[(0.5, measured), (0.7, void)]), Some((0.5, measured)));
        assert_eq!(best(&[(0.7, void)]), Some((0.7, void)));
        assert_eq!(best(&[]), None);
    }

    #[test]
    fn turns_take_a_visit_of_each_row_of_srv6d_and_two_turns_a_pair_at_both_sizes() {
        let duts = ["srv6d-uN", "srv6d-uN-offload", "af_xdp-floor"].into_iter().filter_map(dut::named).collect();
        let plan = Plan { duts, pairs: 10, ..plan(1) };
        assert_eq!(plan.turns_length(), Duration::from_millis(1600 + 2 * 10 * (2 * 5 + 1 + 1)));
        assert_eq!(Plan { pairs: 0, ..plan }.turns_length(), Duration::ZERO);
    }
}
