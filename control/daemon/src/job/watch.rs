//! Jobs that were placed here, and whether they fit the topology as it is now.
//!
//! Only the daemon that placed a job knows the paths of all its ranks. It looks at the topology again and again. Nothing moves by
//! that: `srv6d job show` says why a job should be placed again, and somebody asks for it.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use srv6d_job::{Code, Known, Occupancy, Placement, Refused, Table};
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use super::place::{self, Fit, Ground, Whole};
use super::{Source, ground, others_of};

/// Most jobs whose paths are kept.
const MOST_HELD: usize = 16;

/// The jobs that were placed here and have ranks here.
#[derive(Debug, Default)]
pub struct Watch {
    /// In the order in which jobs were placed. Those of one job follow each other: that in force, and that held ready.
    held: VecDeque<Held>,
    /// When the topology was looked at.
    last: Option<Instant>,
    looking: Option<Receiver<Look>>,
    /// Why the topology cannot be read.
    trouble: Option<String>,
}

#[derive(Debug)]
struct Held {
    whole: Arc<Whole>,
    compared: Option<Compared>,
    stale: Option<String>,
}

/// What a job was compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Compared {
    /// State of the topology.
    topology: u64,
    /// State of the other jobs, if the verdict depends on them.
    others: Option<u64>,
}

/// What a look at the topology found: of jobs with the numbers of their placements, why they do not fit.
type Look = Result<Vec<Verdict>, String>;

#[derive(Debug)]
struct Verdict {
    id: String,
    number: String,
    compared: Compared,
    stale: Option<String>,
}

impl Held {
    fn is_of(&self, placement: &Placement) -> bool {
        let own = &self.whole.placement;
        (&own.job, &own.number) == (&placement.job, &placement.number)
    }
}

impl Watch {
    /// Keeps the paths of all ranks of a job: of its newest placement, and of the one that ranks hold ready. `find` returns what
    /// was placed here, by its number. Of too many jobs, the one that was placed first is forgotten.
    pub fn hold(&mut self, id: &str, known: &Known, find: impl Fn(&str) -> Option<Arc<Whole>>) {
        let ready = known.prepared.as_ref().map(|prepared| &prepared.placement);
        let missing = known.newest().into_iter().chain(ready);
        let missing = missing.filter(|placement| !self.held.iter().any(|held| held.is_of(placement)));
        let found = missing.filter_map(|placement| find(&placement.number).filter(|whole| whole.placement.job == id));
        let found: Vec<Arc<Whole>> = found.collect();
        if found.is_empty() {
            return;
        }
        let all = std::mem::take(&mut self.held);
        let (own, others): (VecDeque<Held>, VecDeque<Held>) =
            all.into_iter().partition(|held| held.whole.placement.job == id);
        let new = found.into_iter().map(|whole| Held { whole, compared: None, stale: None });
        self.held = others.into_iter().chain(own).chain(new).collect();
        let jobs = |held: &VecDeque<Held>| {
            held.iter().map(|held| held.whole.placement.job.as_str()).collect::<BTreeSet<_>>().len()
        };
        while jobs(&self.held) > MOST_HELD {
            self.held.pop_front();
        }
    }

    /// Forgets jobs that are gone, or that have another placement and hold none ready.
    pub fn retain(&mut self, table: &Table) {
        self.held.retain(|held| {
            let Ok(known) = table.job(&held.whole.placement.job) else { return false };
            let ready = known.prepared.as_ref().map(|prepared| &prepared.placement);
            known.newest().into_iter().chain(ready).any(|placement| held.is_of(placement))
        });
    }

    /// Returns a job with the paths of all its ranks.
    pub fn whole(&self, placement: &Placement) -> Option<&Arc<Whole>> {
        self.held.iter().find(|held| held.is_of(placement)).map(|held| &held.whole)
    }

    /// Returns why a job should be placed again.
    pub fn stale(&self, placement: &Placement) -> Option<&str> {
        self.held.iter().find(|held| held.is_of(placement)).and_then(|held| held.stale.as_deref())
    }

    /// Takes over what a look has found, and begins the next one when it is time.
    pub fn look(&mut self, source: &Source, interval: Duration, table: &Table) {
        match self.looking.as_ref().map(Receiver::try_recv) {
            Some(Ok(look)) => {
                self.looking = None;
                self.take(look);
            }
            Some(Err(TryRecvError::Empty)) => return,
            Some(Err(TryRecvError::Disconnected)) => self.looking = None,
            None => {}
        }
        let is_early = self.last.is_some_and(|last| last.elapsed() < interval);
        if self.held.is_empty() || is_early || *source == Source::Nowhere {
            return;
        }
        self.last = Some(Instant::now());
        let in_force = self.held.iter().filter(|held| {
            let newest = table.job(&held.whole.placement.job).ok().and_then(Known::newest);
            newest.is_some_and(|placement| held.is_of(placement))
        });
        let held = in_force.map(|held| (Arc::clone(&held.whole), held.compared)).collect();
        let here = table.occupancies();
        let (result, looking) = channel();
        self.looking = Some(looking);
        let source = source.clone();
        // A daemon that ends does not wait for the result.
        spawn_blocking(move || drop(result.send(compare(source, held, &here))));
    }

    /// Returns whether the topology is being looked at.
    #[cfg(test)]
    pub fn is_looking(&self) -> bool {
        self.looking.is_some()
    }

    fn take(&mut self, look: Look) {
        let verdicts = match look {
            Ok(found) => found,
            Err(why) => {
                if self.trouble.as_ref() != Some(&why) {
                    warn!("it cannot be said whether jobs fit the topology: {why}");
                }
                self.trouble = Some(why);
                return;
            }
        };
        self.trouble = None;
        for Verdict { id, number, compared, stale } in verdicts {
            let of = |held: &&mut Held| (&held.whole.placement.job, &held.whole.placement.number) == (&id, &number);
            let Some(held) = self.held.iter_mut().find(of) else { continue };
            match (&held.stale, &stale) {
                (Some(_), None) => info!("job {id} fits the topology again"),
                (before, Some(why)) if before.as_ref() != Some(why) => warn!("job {id} should be placed again: {why}"),
                _ => {}
            }
            (held.compared, held.stale) = (Some(compared), stale);
        }
    }
}

/// Compares jobs with the topology, as far as something has changed since. `here` has what jobs with ranks here occupy.
fn compare(source: Source, held: Vec<(Arc<Whole>, Option<Compared>)>, here: &[Occupancy]) -> Look {
    let ground = ground(source)?;
    let topology = ground.state().map_err(|refused| refused.why)?;
    let mut verdicts = Vec::new();
    for (whole, compared) in held {
        let mut hash = DefaultHasher::new();
        for other in here.iter().filter(|other| other.id != whole.placement.job) {
            (&other.id, other.generation).hash(&mut hash);
        }
        let others = hash.finish();
        let known = [None, Some(others)].map(|others| Some(Compared { topology, others }));
        if known.contains(&compared) {
            continue;
        }
        let (depends, stale) = verdict(&whole, &ground, here);
        verdicts.push(Verdict {
            id: whole.placement.job.clone(),
            number: whole.placement.number.clone(),
            compared: Compared { topology, others: depends.then_some(others) },
            stale,
        });
    }
    Ok(verdicts)
}

/// Returns why a job should be placed again, and whether that depends on the other jobs. It does not as long as the topology
/// gives no reason: a job that arrives moves no other one. If there is a reason, the verdict says what `replace` would do now.
fn verdict(whole: &Whole, ground: &Ground, here: &[Occupancy]) -> (bool, Option<String>) {
    let job = whole.job.job();
    let again = |others: Vec<Occupancy>| {
        let ground = Ground { document: ground.document.clone(), functions: ground.functions };
        place::place(job.clone(), others, ground, Some(&whole.as_earlier()))
    };
    if again(whole.others.clone()).is_ok_and(|again| again.fit.is_none_or(|fit| fit.replaces.moved == 0)) {
        return (false, None);
    }
    let stale = match others_of(job, whole.handed(), here.to_vec()).and_then(again) {
        Ok(again) => again.fit.and_then(|fit| says(&job.id, &fit)),
        Err(Refused { code: Code::CannotPlace, why }) => {
            Some(format!("it cannot be placed on the topology as it is now: {why}"))
        }
        Err(refused) => Some(refused.why),
    };
    (true, stale)
}

/// Returns why a job should be placed again. `None`: nothing would move.
fn says(id: &str, fit: &Fit) -> Option<String> {
    let Fit { replaces, gone, is_renumbered, before, after } = fit;
    if replaces.moved == 0 {
        return None;
    }
    let why = match (replaces.lost, gone) {
        (0, _) => format!("its busiest link carries {before}"),
        (lost, Some(link)) => format!("{lost} of {} paths are gone, {link} among their links", replaces.flows),
        (lost, None) if *is_renumbered => {
            format!("{lost} of {} paths are gone, because SIDs have changed", replaces.flows)
        }
        (lost, None) => format!("{lost} of {} paths are gone", replaces.flows),
    };
    let then = format!("placed again, {} paths move and the busiest link carries {after}", replaces.moved);
    Some(format!("{why}; {then}: `srv6d job replace {id}`"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use srv6d_job::{Lease, Limits};

    use super::super::place::tests::{ground, job, occupancy, without};
    use super::*;

    const PAIRS: &str = r#","pattern":"pairs","pairs":[[0,2],[1,3]]"#;

    fn limits() -> Limits {
        let prefixes = vec!["2001:db8::/32".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        Limits { prefixes, ..Limits::default() }
    }

    fn placed(id: &str, more: &str, others: Vec<Occupancy>) -> Arc<Whole> {
        Arc::new(place::place(job(id, &[0, 1, 2, 3], more), others, ground(), None).unwrap())
    }

    #[test]
    fn of_too_many_jobs_the_one_that_was_placed_first_is_forgotten() {
        let (mut watch, mut table) = (Watch::default(), Table::default());
        let ids: Vec<String> = (0..=MOST_HELD).map(|number| format!("j{number}")).collect();
        let mut hold = |table: &mut Table, id: &str, more: &str| {
            let whole = placed(id, &format!("{PAIRS}{more}"), Vec::new());
            let ranks = vec![whole.of_rank(0)];
            table.join_all(&whole.job, &whole.placement, ranks, (Lease::End, 0), &limits()).unwrap();
            watch.hold(id, table.job(id).unwrap(), |_| Some(Arc::clone(&whole)));
            watch.retain(table);
            let is_held = |id: &&String| {
                let newest = table.job(id).ok().and_then(Known::newest);
                newest.is_some_and(|placement| watch.whole(placement).is_some())
            };
            ids.iter().filter(is_held).map(String::as_str).collect::<Vec<_>>()
        };
        for id in ids.iter().take(MOST_HELD) {
            hold(&mut table, id, "");
        }
        // A job that was placed again is the last one.
        assert_eq!(hold(&mut table, "j0", r#","generation":2"#).len(), MOST_HELD);
        let watched = hold(&mut table, "j16", "");
        assert_eq!(
            (watched.len(), watched.contains(&"j0"), watched.contains(&"j1"), watched.contains(&"j16")),
            (16, true, false, true)
        );
    }

    #[test]
    fn a_verdict_says_what_a_placement_beside_the_jobs_of_now_would_do() {
        let whole = placed("a", PAIRS, Vec::new());
        let other = placed("b", PAIRS, Vec::new());
        let here = [occupancy(&other, 0)];
        assert_eq!(verdict(&whole, &ground(), &here), (false, None), "a job that arrives moves no other one");
        let lost = without("spine0");
        let says = |here: &[Occupancy]| verdict(&whole, &lost, here).1.unwrap();
        assert!(says(&[]).contains("the busiest link carries 2:"), "{}", says(&[]));
        assert!(says(&here).contains("the busiest link carries 3:"), "{}", says(&here));
        // What was handed over still counts; what had ranks here counts as long as it has.
        let mut beside = place::place(job("a", &[0, 1, 2, 3], PAIRS), here.to_vec(), ground(), None).unwrap();
        assert!(verdict(&beside, &lost, &[]).1.unwrap().contains("carries 3:"));
        beside.here.insert("b".to_owned());
        assert!(verdict(&beside, &lost, &[]).1.unwrap().contains("carries 2:"));
    }
}
