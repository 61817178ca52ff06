//! Jobs that were placed here, and whether they fit the topology as it is now.
//!
//! Only the daemon that placed a job knows the paths of all its ranks. It looks at the topology again and again. Nothing moves by
//! that: `srv6d job show` says why a job should be placed again, and somebody asks for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use srv6d_job::{Code, Known, Refused, Table};
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use super::place::{self, Fit, Ground, Whole};
use super::{Source, ground};

/// Most jobs whose paths are kept.
const MOST_HELD: usize = 16;

/// The jobs that were placed here and have ranks here.
#[derive(Debug, Default)]
pub struct Watch {
    held: BTreeMap<String, Held>,
    /// When the topology was looked at.
    last: Option<Instant>,
    looking: Option<Receiver<Look>>,
    /// Why the topology cannot be read.
    trouble: Option<String>,
}

#[derive(Debug)]
struct Held {
    whole: Arc<Whole>,
    /// State of the topology that the job was compared with.
    compared: Option<u64>,
    stale: Option<String>,
}

/// What a look at the topology found: its state, and of jobs with the numbers of their placements, why they do not fit.
type Look = Result<(u64, Vec<Verdict>), String>;

#[derive(Debug)]
struct Verdict {
    id: String,
    number: String,
    stale: Option<String>,
}

impl Watch {
    /// Keeps a job.
    pub fn hold(&mut self, whole: Arc<Whole>) {
        let id = whole.job.job().id.clone();
        let is_known = self.held.get(&id).is_some_and(|held| held.whole.placement.number == whole.placement.number);
        if !is_known && (self.held.len() < MOST_HELD || self.held.contains_key(&id)) {
            self.held.insert(id, Held { whole, compared: None, stale: None });
        }
    }

    /// Forgets jobs that are gone, or that have another placement.
    pub fn retain(&mut self, table: &Table) {
        self.held.retain(|id, held| {
            let newest = table.job(id).ok().and_then(Known::newest);
            newest.is_some_and(|placement| placement.number == held.whole.placement.number)
        });
    }

    /// Returns a job with the paths of all its ranks.
    pub fn whole(&self, id: &str) -> Option<&Arc<Whole>> {
        self.held.get(id).map(|held| &held.whole)
    }

    /// Returns why a job should be placed again.
    pub fn stale(&self, id: &str) -> Option<&str> {
        self.held.get(id).and_then(|held| held.stale.as_deref())
    }

    /// Takes over what a look has found, and begins the next one when it is time.
    pub fn look(&mut self, source: &Source, interval: Duration) {
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
        let held = self.held.values().map(|held| (Arc::clone(&held.whole), held.compared)).collect();
        let (result, looking) = channel();
        self.looking = Some(looking);
        let source = source.clone();
        // A daemon that ends does not wait for the result.
        spawn_blocking(move || drop(result.send(compare(source, held))));
    }

    /// Returns whether the topology is being looked at.
    #[cfg(test)]
    pub fn is_looking(&self) -> bool {
        self.looking.is_some()
    }

    fn take(&mut self, look: Look) {
        let (state, verdicts) = match look {
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
        for Verdict { id, number, stale } in verdicts {
            let held = self.held.get_mut(&id).filter(|held| held.whole.placement.number == number);
            let Some(held) = held else { continue };
            match (&held.stale, &stale) {
                (Some(_), None) => info!("job {id} fits the topology again"),
                (before, Some(why)) if before.as_ref() != Some(why) => warn!("job {id} should be placed again: {why}"),
                _ => {}
            }
            (held.compared, held.stale) = (Some(state), stale);
        }
    }
}

/// Compares jobs with the topology, as far as it has changed since.
fn compare(source: Source, held: Vec<(Arc<Whole>, Option<u64>)>) -> Look {
    let Ground { document, functions } = ground(source)?;
    let of = || Ground { document: document.clone(), functions };
    let state = of().state().map_err(|refused| refused.why)?;
    let changed = held.into_iter().filter(|(_, compared)| *compared != Some(state));
    Ok((state, changed.map(|(whole, _)| verdict(&whole, of())).collect()))
}

fn verdict(whole: &Whole, ground: Ground) -> Verdict {
    let (job, number) = (whole.job.job().clone(), whole.placement.number.clone());
    let id = job.id.clone();
    let stale = match place::place(job, whole.others.clone(), ground, Some(&whole.as_earlier())) {
        Ok(again) => again.fit.and_then(|fit| says(&id, &fit)),
        Err(Refused { code: Code::CannotPlace, why }) => {
            Some(format!("it cannot be placed on the topology as it is now: {why}"))
        }
        Err(refused) => Some(refused.why),
    };
    Verdict { id, number, stale }
}

/// Returns why a job should be placed again. `None`: nothing would move.
fn says(id: &str, fit: &Fit) -> Option<String> {
    let Fit { replaces, gone, before, after } = fit;
    if replaces.moved == 0 {
        return None;
    }
    let why = match (replaces.lost, gone) {
        (0, _) => format!("its busiest link carries {before}"),
        (lost, Some(link)) => format!("{lost} of {} paths are gone, {link} among their links", replaces.flows),
        (lost, None) => format!("{lost} of {} paths are gone", replaces.flows),
    };
    let then = format!("placed again, {} paths move and the busiest link carries {after}", replaces.moved);
    Some(format!("{why}; {then}: `srv6d job replace {id}`"))
}
