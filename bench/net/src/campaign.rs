//! Runs the whole bench: every row, with the rounds interleaved.

mod searches;

use std::cmp::Ordering::Equal;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::BenchError;
use crate::bars;
use crate::dut::{self, Dut};
use crate::frames::Size;
use crate::generator::Load;
use crate::layout::{Layout, SinkPlacement};
use crate::plan::{Plan, TURN};
use crate::progress::{Kind, Progress};
use crate::results::{Figure, Results, Row, Trial, TurnsRow};
use crate::statistics::number_of;
use crate::testbed::Mtu;
use crate::trial::Rig;
use crate::verdict::TrialVerdict;

/// A run in progress.
pub struct Campaign<'p> {
    plan: &'p Plan,
    started: Instant,
    progress: Progress,
    /// Reports progress to the user.
    tell: &'p dyn Fn(&str),
    /// Stores the results so far.
    keep: &'p dyn Fn(&Results) -> Result<(), BenchError>,
    results: Results,
}

impl<'p> Campaign<'p> {
    /// Measures everything that the plan contains and this machine allows. If the run ends early, the results contain
    /// the reason ([`Results::cut_off`]) and all figures measured until then.
    pub fn run(
        plan: &'p Plan,
        results: Results,
        tell: &'p dyn Fn(&str),
        keep: &'p dyn Fn(&Results) -> Result<(), BenchError>,
    ) -> Results {
        let progress = Progress::of(plan.steps());
        let mut campaign = Self { plan, started: Instant::now(), progress, tell, keep, results };
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
                    let sizes = self.plan.sizes_of(round, *placement, dut);
                    self.visit(round, *placement, layout, dut, &sizes, false)?;
                }
            }
        }
        Ok(())
    }

    /// Measures srv6d's rows and the floor in turns, at the sizes of the promises.
    fn in_turns(&mut self) -> Result<(), BenchError> {
        let plan = self.plan;
        for &placement in &plan.placements {
            let Ok(layout) = Layout::of(placement, &plan.cores) else { continue };
            for dut in plan.in_turns(placement) {
                let started = Instant::now();
                let turns = dut::in_turns(dut.work);
                let Some(mut rig) = self.rig(Kind::Turns, &turns, &layout, Mtu::Standard)? else { continue };
                let mut said = Vec::new();
                for size in plan.sizes_in_turns() {
                    let load = Load::of(dut.work, size, false).flood(placement.flood());
                    let pairs = rig.turns(&load, TURN, plan.pairs)?;
                    self.go_on()?;
                    let (dut, beside) = (dut.name.to_owned(), bars::FLOOR.to_owned());
                    let row = TurnsRow { placement, dut, beside, size: size.to_string(), pairs };
                    let ratio = row.ratio().map_or_else(|| "too few pairs".to_owned(), |ratio| ratio.shown(1.0, 2));
                    said.push(format!("{size}: {ratio}"));
                    self.results.turns.push(row);
                }
                drop(rig);
                self.progress.done(Kind::Turns, started.elapsed());
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
                        for dut in self.plan.thorough() {
                            self.visit(round, SinkPlacement::Inline, &layout, dut, &[Size::Bytes(64)], true)?;
                        }
                    }
                    Err(why) if round == 0 => self.leave_out(why.0),
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Measures one DUT in one placement: all sizes of one round.
    fn visit(
        &mut self,
        round: usize,
        placement: SinkPlacement,
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
            let kind = if several { Kind::Workers } else { Kind::Flood };
            let Some(mut rig) = self.rig(kind, dut, layout, mtu)? else { continue };
            let mut said = Vec::new();
            for size in sizes {
                let load = Load::of(dut.work, size, false);
                let trial = self.best_trial(&mut rig, &load, placement, round)?;
                said.push(shown(size, &trial));
                self.keep(placement, layout.workers.len(), dut, size, &load, trial, several);
            }
            drop(rig);
            self.progress.done(kind, started.elapsed());
            let place = if several { number_of(layout.workers.len(), "worker") } else { placement.name().to_owned() };
            self.say(&format!("round {} {place:19} {:24} {}", round + 1, dut.name, said.join("  ")));
            (self.keep)(&self.results)?;
        }
        Ok(())
    }

    /// Returns an error once the run has been interrupted. A figure measured in the meantime may lack its DUT, because
    /// the same Ctrl-C ends the DUT.
    fn go_on(&self) -> Result<(), BenchError> {
        if self.plan.interrupted.load(Ordering::Relaxed) {
            return Err(BenchError("interrupted".to_owned()));
        }
        Ok(())
    }

    /// Makes a rig. Returns `None` if the DUT does not forward on this machine; that is reported, and the other rows
    /// are measured nevertheless.
    fn rig(&mut self, kind: Kind, dut: &Dut, layout: &Layout, mtu: Mtu) -> Result<Option<Rig>, BenchError> {
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
                // If the run was interrupted, this returns: the failure then says nothing about the machine.
                self.go_on()?;
                self.progress.skip(kind);
                self.leave_out(format!("{}: {why}", dut.name));
                Ok(None)
            }
        }
    }

    /// Runs trials at all loads and returns the one in which most was forwarded.
    fn best_trial(
        &self,
        rig: &mut Rig,
        load: &Load,
        placement: SinkPlacement,
        round: usize,
    ) -> Result<Trial, BenchError> {
        let usual = [placement.flood()];
        let loads = if self.plan.one_load { &usual } else { placement.loads() };
        let trials = loads.iter().map(|&rate| self.trial(rig, &load.clone().flood(rate), round));
        best(trials.collect::<Result<_, _>>()?).ok_or_else(|| BenchError("no load was offered".to_owned()))
    }

    /// Repeats a trial until it measures the DUT without disturbance, and otherwise returns the best attempt.
    fn trial(&self, rig: &mut Rig, load: &Load, round: usize) -> Result<Trial, BenchError> {
        let mut best: Option<Trial> = None;
        for attempts in 1..=self.plan.repeats + 1 {
            let counted = rig.trial(load, self.plan.timing)?;
            self.go_on()?;
            let verdict = counted.verdict();
            let is_fine = matches!(verdict, TrialVerdict::Measured { .. }) && !counted.is_disturbed();
            let trial = Trial { round, attempts, counted, verdict, cores: rig.cores.clone() };
            // A repetition would not remove the limit of the generator.
            if is_fine || (verdict == TrialVerdict::GeneratorLimited && !trial.counted.is_disturbed()) {
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
        placement: SinkPlacement,
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

    fn leave_out(&mut self, why: String) {
        self.say(&format!("left out: {why}"));
        if !self.results.left_out.contains(&why) {
            self.results.left_out.push(why);
        }
    }

    fn say(&self, what: &str) {
        let (passed, left) = (self.started.elapsed().as_secs(), self.progress.left().as_secs_f64().ceil());
        (self.tell)(&format!("[{passed:4} s, about {left:4} s to go] {what}"));
    }
}

/// Returns the trial at rising loads that forwarded most; a void one only if all are void. If a higher load brought
/// less, the best load is what the DUT can do and not a lower bound, even if it was forwarded without loss.
fn best(trials: Vec<Trial>) -> Option<Trial> {
    let is_void = |trial: &Trial| matches!(trial.verdict, TrialVerdict::Void { .. });
    let last = trials.len().checked_sub(1)?;
    let rank = |trial: &Trial| (!is_void(trial), trial.counted.forwarded);
    let (at, mut best) =
        trials.into_iter().enumerate().max_by(|(_, a), (_, b)| rank(a).partial_cmp(&rank(b)).unwrap_or(Equal))?;
    if best.verdict == TrialVerdict::GeneratorLimited && at < last {
        best.verdict = TrialVerdict::Measured { loss: best.counted.loss() };
    }
    Some(best)
}

/// Returns the rank of a trial: first whether it measured the DUT, then how little its threads waited.
fn worth(trial: &Trial) -> (bool, f64) {
    (matches!(trial.verdict, TrialVerdict::Measured { .. }), -trial.counted.waited - trial.counted.stolen)
}

fn shown(size: Size, trial: &Trial) -> String {
    let note = trial.verdict.why_none().map_or_else(String::new, |why| format!(" ({why})"));
    let mark = if trial.counted.is_disturbed() { "~" } else { "" };
    format!("{size}: {mark}{:.3}{note}", Figure::PerSecond.of(&trial.counted) / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Counted;

    #[test]
    fn the_load_counts_of_which_most_is_forwarded() {
        let measured = TrialVerdict::Measured { loss: 0.5 };
        let void = TrialVerdict::Void { why: crate::verdict::Why::SinkLimited };
        let best = |trials: &[(f64, TrialVerdict)]| {
            let trial = |&(forwarded, verdict): &(f64, TrialVerdict)| {
                let counted = Counted { forwarded, sent: 10, received: 10, ..Counted::default() };
                Trial { round: 0, attempts: 1, counted, verdict, cores: Vec::new() }
            };
            best(trials.iter().map(trial).collect()).map(|best| (best.counted.forwarded, best.verdict))
        };
        let whole = TrialVerdict::GeneratorLimited;
        assert_eq!(best(&[(0.5, whole), (0.6, measured), (0.2, measured)]), Some((0.6, measured)));
        // More was offered, but less was forwarded.
        assert_eq!(best(&[(0.5, whole), (0.4, measured)]), Some((0.5, TrialVerdict::Measured { loss: 0.0 })));
        assert_eq!(best(&[(0.5, whole), (0.7, whole)]), Some((0.7, whole)));
        assert_eq!(best(&[(0.5, measured), (0.7, void)]), Some((0.5, measured)));
        assert_eq!(best(&[(0.7, void)]), Some((0.7, void)));
        assert_eq!(best(&[]), None);
    }
}
