//! The whole bench: every row, interleaved round by round.

mod searches;

use std::cmp::Ordering::Equal;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::BenchError;
use crate::bars;
use crate::dut::{self, Dut};
use crate::frames::Size;
use crate::generator::Load;
use crate::layout::{Layout, Placement};
use crate::plan::{Plan, TURN};
use crate::progress::{Kind, Progress};
use crate::results::{Figure, Results, Row, Trial, TurnsRow};
use crate::statistics::number_of;
use crate::testbed::Mtu;
use crate::trial::Rig;
use crate::verdict::Verdict;

/// A run in progress.
pub struct Campaign<'p> {
    plan: &'p Plan,
    started: Instant,
    progress: Progress,
    /// Tells people how it goes.
    tell: &'p dyn Fn(&str),
    /// Keeps what there is so far.
    keep: &'p dyn Fn(&Results) -> Result<(), BenchError>,
    results: Results,
}

impl<'p> Campaign<'p> {
    /// Does everything that the plan says and this machine can do. What ends it early is said in the results
    /// ([`Results::cut_off`]): hours of measuring are not lost with the last minute.
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

    /// srv6d's rows and the floor in turns, at the sizes of the promises.
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

    /// An error once somebody wants the run to end: what was measured meanwhile may be without its DUT, which the same
    /// Ctrl-C ends.
    fn go_on(&self) -> Result<(), BenchError> {
        if self.plan.interrupted.load(Ordering::Relaxed) {
            return Err(BenchError("interrupted".to_owned()));
        }
        Ok(())
    }

    /// None: the DUT does not forward here. That is said, and the others are measured all the same.
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
                self.progress.skip(kind);
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
    use crate::verdict::Counted;

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
}
