//! Requests about jobs: the plan follows them, and the answers say which of their paths are in force.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use srv6d_api::Response;
use srv6d_api::jobs::{JobCounts, JobMemberView, JobPathView, JobPreparedView, JobView};
use srv6d_dataplane::Published;
use srv6d_job::{Known, Lease, Membership, Prepared, RankPath};
use srv6d_offer::{OutcomeState, is_job, job_source};
use srv6d_srv6::desired::{Steer, TableId};

use super::RunError;
use super::node::Node;
use crate::job::{Done, Jobs, placing_view};
use crate::kernel::Mirror;

/// What the counts of jobs depend on, beside the plan: the tables in force, the ranks, and a rollback.
type Basis = (Published, u64, Option<u64>);

/// The counts of jobs, which are asked for again and again and seldom change. A new plan forgets them.
#[derive(Debug, Default)]
pub(super) struct Counted {
    of: Option<Basis>,
    rows: Vec<JobCounts>,
}

impl Counted {
    /// Returns the counts on a basis, which are made if they are of another one.
    fn on(&mut self, basis: Basis, make: impl FnOnce() -> Vec<JobCounts>) -> Vec<JobCounts> {
        if self.of != Some(basis) {
            (self.of, self.rows) = (Some(basis), make());
        }
        self.rows.clone()
    }
}

/// State of a path, and why it is not in force.
type PathState = (&'static str, Option<String>);

impl Node {
    /// Plans what jobs offer now, beside what controllers offer. `source` is the cause of the generation.
    pub async fn follow_jobs(&mut self, source: &str, mirror: &mut Mirror) -> Result<(), RunError> {
        let mut offers: Vec<_> = self.latest.iter().filter(|offer| !is_job(&offer.source)).cloned().collect();
        offers.extend(self.jobs.offers());
        self.follow_offers(offers, source, mirror).await
    }

    /// Follows what a request about a job has led to, and answers it.
    pub async fn finish_job(&mut self, done: Done, mirror: &mut Mirror) -> Result<(), RunError> {
        // A client that hung up is no error.
        match done {
            Done::Nothing => {}
            Done::Answer(channel, answer) => drop(channel.send(answer)),
            Done::Show(channel, id) => drop(channel.send(Response::Jobs(self.job_views(id.as_deref())).into())),
            Done::Changed { id, as_list, answer } => {
                self.follow_jobs(&job_source(&id), mirror).await?;
                let mut views = self.job_views(Some(&id));
                let response = match (as_list, views.pop()) {
                    (false, Some(view)) => Response::Job(Box::new(view)),
                    (_, last) => Response::Jobs(last.into_iter().collect()),
                };
                drop(answer.send(response.into()));
            }
        }
        Ok(())
    }

    /// Returns how many ranks and paths each job has.
    pub(super) fn job_counts(&mut self) -> Vec<JobCounts> {
        let basis = (self.dataplane.published(), self.jobs.version(), self.held);
        let mut counted = std::mem::take(&mut self.counted);
        let mut rows = counted.on(basis, || {
            let known: Vec<(&str, &Known)> = self.jobs.table().jobs().collect();
            let judge = Judge::of(self, &known, false);
            known.iter().map(|(id, known)| counts(id, known, &judge)).collect()
        });
        self.counted = counted;
        for row in &mut rows {
            row.is_stale = self.jobs.stale(&row.id).is_some();
        }
        rows
    }

    /// Returns the rows of one job, or of all.
    fn job_views(&self, id: Option<&str>) -> Vec<JobView> {
        let is_meant = |other: &str| id.is_none_or(|id| id == other);
        let known: Vec<(&str, &Known)> = self.jobs.table().jobs().filter(|(id, _)| is_meant(id)).collect();
        let judge = Judge::of(self, &known, true);
        let mut views: Vec<JobView> = known.iter().map(|(id, known)| view(id, known, &judge)).collect();
        for id in self.jobs.being_placed().filter(|id| is_meant(id)) {
            match views.iter_mut().find(|view| view.id == id) {
                Some(view) => "placing".clone_into(&mut view.state),
                None => views.push(placing_view(id)),
            }
        }
        views
    }
}

/// Judges which paths are in force.
struct Judge<'n> {
    node: &'n Node,
    outcomes: HashMap<(&'n str, IpNet), &'n OutcomeState>,
    steers: HashMap<IpNet, &'n Steer>,
    /// Why packets to the first segments of paths cannot leave.
    obstacles: BTreeMap<Ipv6Addr, Option<String>>,
}

impl<'n> Judge<'n> {
    /// `with_ready`: it also judges paths that are held ready.
    fn of(node: &'n Node, jobs: &[(&str, &Known)], with_ready: bool) -> Self {
        let members = || jobs.iter().flat_map(|(_, known)| known.members.values());
        let paths = || members().flat_map(|member| &member.paths);
        let prefixes: HashSet<IpNet> = paths().map(|path| path.prefix).collect();
        let outcomes = node.plan.offered.iter().filter(|outcome| prefixes.contains(&outcome.prefix));
        let steers = node.dataplane.desired().steers.iter();
        let steers = steers.filter(|steer| steer.table == TableId::MAIN && prefixes.contains(&steer.prefix));
        let mut obstacles = BTreeMap::new();
        let prepared = jobs.iter().filter_map(|(_, known)| known.prepared.as_ref()).filter(|_| with_ready);
        let prepared = prepared.flat_map(|prepared| prepared.ranks.values().flatten());
        for first in paths().chain(prepared).filter_map(|path| path.segments.first()) {
            obstacles.entry(*first).or_insert_with(|| node.obstacle(IpAddr::V6(*first)));
        }
        Self {
            node,
            outcomes: outcomes.map(|outcome| ((outcome.source.as_str(), outcome.prefix), &outcome.state)).collect(),
            steers: steers.map(|steer| (steer.prefix, steer)).collect(),
            obstacles,
        }
    }

    /// Returns why a path that is held ready could not come into force, as far as that can be seen.
    fn lacks(&self, path: &RankPath) -> Option<String> {
        match self.node.jobs.limits().map(|limits| limits.allow(&path.prefix, &path.segments)) {
            Some(Ok(())) => path.segments.first().and_then(|first| self.obstacles.get(first)).cloned().flatten(),
            Some(Err(refused)) => Some(refused.why),
            None => Some("srv6d.toml has no [jobs] any more".to_owned()),
        }
    }

    fn state(&self, source: &str, path: &RankPath) -> PathState {
        if let Some(held) = self.node.held {
            let why = format!("generation {held} is held by a rollback; `srv6d reload` follows jobs again");
            return ("waiting", Some(why));
        }
        let allowed = self.node.jobs.limits().map(|limits| limits.allow(&path.prefix, &path.segments));
        match allowed {
            Some(Ok(())) => {}
            Some(Err(refused)) => return ("refused", Some(refused.why)),
            None => return ("refused", Some("srv6d.toml has no [jobs] any more".to_owned())),
        }
        match self.outcomes.get(&(source, path.prefix)) {
            Some(OutcomeState::Programmed) => {}
            Some(OutcomeState::Refused(why)) => return ("refused", Some(why.clone())),
            Some(OutcomeState::Pending(why)) => return ("waiting", Some(why.clone())),
            Some(OutcomeState::Kept(why)) => {
                return ("waiting", Some(format!("earlier paths stay in force: {why}")));
            }
            None => return ("waiting", Some("the tables stay as they are; see `srv6d show generation`".to_owned())),
        }
        let is_there = |steer: &&Steer| steer.paths.iter().any(|other| other.segments.addresses() == path.segments);
        if self.steers.get(&path.prefix).is_none_or(|steer| !is_there(steer)) {
            return ("waiting", Some("another generation of the job is in force on this host".to_owned()));
        }
        match path.segments.first().and_then(|first| self.obstacles.get(first)).cloned().flatten() {
            Some(why) => ("waiting", Some(why)),
            None => ("in_force", None),
        }
    }
}

fn counts(id: &str, known: &Known, judge: &Judge<'_>) -> JobCounts {
    let source = job_source(id);
    let mut counts = JobCounts { id: id.to_owned(), ranks: known.members.len(), ..JobCounts::default() };
    for path in known.members.values().flat_map(|member| &member.paths) {
        match judge.state(&source, path).0 {
            "in_force" => counts.in_force += 1,
            "refused" => counts.refused += 1,
            _ => counts.waiting += 1,
        }
    }
    counts
}

fn view(id: &str, known: &Known, judge: &Judge<'_>) -> JobView {
    let source = job_source(id);
    let mut members = Vec::new();
    let mut paths = Vec::new();
    for (rank, member) in &known.members {
        let first = paths.len();
        paths.extend(member.paths.iter().map(|path| path_view(*rank, path, judge.state(&source, path))));
        let own: &[JobPathView] = paths.get(first..).unwrap_or_default();
        let are_in_force = own.iter().all(|path| path.state == "in_force");
        members.push(member_view(*rank, member, are_in_force));
    }
    let state = |state: &str| members.iter().any(|member| member.state == state);
    let state = match (state("installing"), state("installed")) {
        (true, _) => "installing",
        (false, true) => "installed",
        (false, false) => "ending",
    };
    let placement = known.newest();
    let phases = placement.map(|placement| placement.phases.clone()).unwrap_or_default();
    JobView {
        id: id.to_owned(),
        generation: known.generation,
        tenant: known.tenant.clone(),
        priority: known.priority,
        pattern: if phases.is_empty() { known.pattern.name() } else { "phases" }.to_owned(),
        size: known.size,
        digest: placement.map(|placement| placement.digest.clone()),
        number: placement.map(|placement| placement.number.clone()),
        state: state.to_owned(),
        owner: known.owner,
        bound: placement.map(|placement| placement.bound),
        busiest: placement.map(|placement| placement.busiest),
        phases,
        members,
        paths,
        shares: placement.map(|placement| placement.shares.clone()).unwrap_or_default(),
        replaces: placement.and_then(|placement| placement.replaces),
        stale: judge.node.jobs.stale(id).map(str::to_owned),
        prepared: known.prepared.as_ref().map(|prepared| prepared_view(prepared, judge)),
    }
}

fn prepared_view(prepared: &Prepared, judge: &Judge<'_>) -> JobPreparedView {
    let paths = prepared.ranks.iter().flat_map(|(rank, paths)| paths.iter().map(move |path| (rank, path)));
    let lacks =
        |(rank, path): (&u32, &RankPath)| judge.lacks(path).map(|why| format!("rank {rank} to {}: {why}", path.prefix));
    JobPreparedView {
        generation: prepared.placement.generation,
        ranks: prepared.ranks.keys().copied().collect(),
        missing: paths.filter_map(lacks).collect(),
    }
}

fn member_view(rank: u32, member: &Membership, are_in_force: bool) -> JobMemberView {
    let now = Jobs::now();
    let state = match (member.ending, are_in_force) {
        (Some(_), _) => "ending",
        (None, true) => "installed",
        (None, false) => "installing",
    };
    let hold = match member.lease {
        Lease::Process(process) => format!("process {}", process.pid),
        Lease::Seconds { seconds, .. } => format!("{seconds} seconds"),
        Lease::End => "end".to_owned(),
    };
    let until = match (member.ending, member.lease) {
        (Some(end), _) => Some(end),
        (None, Lease::Seconds { until, .. }) => Some(until),
        (None, Lease::Process(_) | Lease::End) => None,
    };
    JobMemberView {
        rank,
        host: member.host.clone(),
        generation: member.generation,
        state: state.to_owned(),
        hold,
        left_seconds: until.map(|until| until.saturating_sub(now)),
    }
}

fn path_view(rank: u32, path: &RankPath, (state, why): PathState) -> JobPathView {
    JobPathView {
        rank,
        to: path.to,
        prefix: path.prefix.to_string(),
        segments: path.segments.iter().map(ToString::to_string).collect(),
        via: path.via.clone(),
        state: state.to_owned(),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_counted_again_when_something_has_changed() {
        let (mut counted, mut made) = (Counted::default(), 0);
        let tables = Published { in_place: 1, ..Published::default() };
        let bases = [
            (Published::default(), 1, None),
            (Published::default(), 1, None),
            (tables, 1, None),
            (tables, 2, None),
            (tables, 2, Some(7)),
            (tables, 2, Some(7)),
        ];
        let mut count = |basis| {
            let mut now = made;
            let rows = counted.on(basis, || {
                now += 1;
                vec![JobCounts { ranks: now, ..JobCounts::default() }]
            });
            made = now;
            rows.first().map_or(0, |row| row.ranks)
        };
        assert_eq!(bases.map(&mut count), [1, 1, 2, 3, 4, 4]);
    }
}
