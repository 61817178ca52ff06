//! Jobs: placed on a thread of their own, joined rank by rank, and offered to the plan like the paths of a controller.
//!
//! ```text
//! srv6d job start, a rank's program ──► JobRequest ─┬─► place (a thread) ─► paths of all ranks ─► the job's own rendezvous
//!                                                   └─► join ─► Table ─► Offer ─► plan
//! a process that dies, a lease that is over ──► sweep ──────────┘
//! the topology has changed ──► Watch: a job should be placed again ─► replace ─► place, close to what is in force
//! ```

mod place;
#[cfg(test)]
mod questions;
mod state;
mod watch;

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::future;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv6Net};
use srv6d_api::Response;
use srv6d_api::jobs::{Hold, HoldWord, JobRequest, JobView, PlacedJob};
use srv6d_api::server::{Answer, Peer};
use srv6d_config::{self as config, Config};
use srv6d_controller::jalapeno;
use srv6d_job::{CheckedJob, Code, Job, Join, Lease, Limits, Occupancy, RankPaths, Refused, Table};
use srv6d_offer::Offer;
use srv6d_process::Process;
use srv6d_text::{read_text, read_text_up_to};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::{info, warn};

use crate::source::settings::jalapeno_settings;
use place::{Earlier, Ground, Whole};
use watch::Watch;

/// Number of jobs that may wait for the one that is being placed.
const WAITING: usize = 4;
/// Number of placements that are remembered, for the paths of further ranks.
const REMEMBERED: usize = 4;
/// How long a placement is remembered.
const MEMORY: Duration = Duration::from_mins(10);
/// Number of paths after which an answer has no more ranks.
const PAGE: usize = 40_000;
/// Largest file of a topology, in MiB.
const LARGEST_TOPOLOGY: u64 = 64;
/// Longest wait for a controller's topology.
const PATIENCE: Duration = Duration::from_secs(30);
/// Shortest and longest lease, in seconds.
const SHORTEST_LEASE: u64 = 5;
const LONGEST_LEASE: u64 = 86_400;
/// Most other jobs beside which a job is placed.
const MOST_OTHERS: usize = 1024;

/// Where the topology comes from.
#[derive(Clone, Debug, PartialEq)]
enum Source {
    File(PathBuf),
    Jalapeno(Box<config::Jalapeno>),
    Nowhere,
}

/// `[jobs]` with its defaults.
#[derive(Clone, Debug, PartialEq)]
struct Settings {
    limits: Limits,
    grace: u64,
    source: Source,
    topology_interval: Duration,
    state: PathBuf,
}

/// The jobs of this daemon.
#[derive(Debug, Default)]
pub struct Jobs {
    /// `None` without `[jobs]`: no job can steer.
    settings: Option<Settings>,
    table: Table,
    /// Whether the state file has been read.
    is_loaded: bool,
    placing: Option<(JoinHandle<Result<Whole, Refused>>, Placing)>,
    waiting: VecDeque<(Task, Placing)>,
    remembered: VecDeque<(Instant, Arc<Whole>)>,
    watch: Watch,
    /// Rises with every change of the ranks, their paths, and what jobs may do.
    version: u64,
}

/// A job that is to be placed.
#[derive(Debug)]
struct Task {
    job: Job,
    others: Vec<Occupancy>,
    /// The placement whose paths stay as far as they can.
    earlier: Option<Earlier>,
    /// Ids of the jobs that have ranks here.
    here: BTreeSet<String>,
    source: Source,
}

/// The next generation of a job.
#[derive(Debug)]
struct Next {
    job: Job,
    /// The placement that it takes the place of.
    earlier: Earlier,
    /// Other jobs that were handed over for that one.
    handed: Vec<Occupancy>,
}

/// Who waits for a placement.
#[derive(Debug)]
struct Placing {
    id: String,
    /// The ranks that join afterwards.
    joining: Option<Joining>,
    answer: oneshot::Sender<Answer>,
}

/// Ranks that join when their job is placed.
#[derive(Debug)]
struct Joining {
    host: Option<String>,
    ranks: Vec<u32>,
    lease: Lease,
    user: u32,
}

/// What a request about a job has led to.
#[derive(Debug)]
pub enum Done {
    /// It is answered, or will be.
    Nothing,
    /// The answer is known.
    Answer(oneshot::Sender<Answer>, Answer),
    /// The jobs are to be shown: one, or all.
    Show(oneshot::Sender<Answer>, Option<String>),
    /// The paths of a job have changed, and it is to be shown: as one, or as a list.
    Changed {
        /// Id of the job.
        id: String,
        /// Whether the answer is a list, which is empty when nothing of the job is left here.
        as_list: bool,
        /// The channel for the answer.
        answer: oneshot::Sender<Answer>,
    },
}

impl Jobs {
    /// Takes over `[jobs]` of a configuration. The first time it also reads the ranks that joined before the daemon was
    /// restarted. Returns true if other paths are offered than before.
    pub fn configure(&mut self, config: &Config, socket: &Path) -> bool {
        let settings = config.jobs.as_ref().map(|table| settings(table, config, socket));
        if self.settings == settings && (self.is_loaded || settings.is_none()) {
            return false;
        }
        let before = self.offers();
        let path = |settings: &Option<Settings>| settings.as_ref().map(|settings| settings.state.clone());
        self.version += 1;
        let is_elsewhere = path(&self.settings) != path(&settings);
        self.settings = settings;
        if let Some(settings) = &self.settings {
            if !std::mem::replace(&mut self.is_loaded, true) {
                self.table = state::read(&settings.state);
                self.table.renew_all(now());
            } else if is_elsewhere {
                self.write();
            }
        }
        before != self.offers()
    }

    /// Returns what all jobs offer.
    pub fn offers(&self) -> Vec<Offer> {
        self.settings.as_ref().map_or_else(Vec::new, |settings| self.table.offers(&settings.limits))
    }

    /// Returns the ranks that joined.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Returns what jobs may do here. `None`: nothing.
    pub fn limits(&self) -> Option<&Limits> {
        self.settings.as_ref().map(|settings| &settings.limits)
    }

    /// Returns the ids of the jobs that are being placed, or wait for that.
    pub fn being_placed(&self) -> impl Iterator<Item = &str> {
        let current = self.placing.iter().map(|(_, placing)| placing);
        current.chain(self.waiting.iter().map(|(_, placing)| placing)).map(|placing| placing.id.as_str())
    }

    /// Returns why a job should be placed again.
    pub fn stale(&self, id: &str) -> Option<&str> {
        self.watch.stale(self.table.job(id).ok()?.newest()?)
    }

    /// Returns a number that rises with every change of the ranks, their paths, and what jobs may do.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the number of seconds since the start of the machine.
    pub fn now() -> u64 {
        now()
    }

    /// Lets time pass: leases end, the paths of what has ended go, and the topology is looked at again. Returns true if the paths
    /// have changed.
    pub fn sweep(&mut self) -> bool {
        let Some(settings) = &self.settings else { return false };
        if self.table.jobs().next().is_none() {
            return false;
        }
        self.watch.look(&settings.source, settings.topology_interval, &self.table);
        let swept = self.table.sweep(now(), settings.grace, Process::alive);
        for (id, rank) in &swept.ended {
            info!("job {id}: the process or lease of rank {rank} is over; its paths go in {} s", settings.grace);
        }
        for (id, rank) in &swept.gone {
            info!("job {id}: rank {rank} is gone, and its paths with it");
        }
        if !swept.ended.is_empty() || !swept.gone.is_empty() {
            self.version += 1;
            self.watch.retain(&self.table);
            self.write();
        }
        !swept.gone.is_empty()
    }

    /// Carries out a request, or begins to.
    pub fn take(&mut self, request: JobRequest, peer: Peer, answer: oneshot::Sender<Answer>) -> Done {
        let Some(settings) = self.settings.clone() else {
            let why = "no job can steer here: srv6d.toml has no [jobs]; add it with `allowed_prefixes`, the prefixes of \
                       the hosts that jobs run on, and `srv6d reload`";
            return Done::Answer(answer, Response::from(Refused::new(Code::NoJobsTable, why)).into());
        };
        match request {
            JobRequest::Occupancy => Done::Answer(answer, Response::Occupancy(self.table.occupancies()).into()),
            JobRequest::Show { job } => match job.as_deref().map(|id| self.known(id)).transpose() {
                Ok(_) => Done::Show(answer, job),
                Err(refused) => Done::Answer(answer, Response::from(refused).into()),
            },
            JobRequest::Place { job, others, from } => match from.map(|from| earlier(&job, *from)).transpose() {
                Ok(earlier) => self.begin(&settings, job, others, earlier, None, answer),
                Err(refused) => Done::Answer(answer, Response::from(refused).into()),
            },
            JobRequest::Replace { job, others } => match self.next_of(&job) {
                Ok(Next { job, earlier, handed }) => {
                    let others = if others.is_empty() { handed } else { others };
                    self.begin(&settings, job, others, Some(earlier), None, answer)
                }
                Err(refused) => Done::Answer(answer, Response::from(refused).into()),
            },
            JobRequest::Start { host, ranks, .. } if host.is_some() != ranks.is_empty() => {
                let why = "write the `host` whose ranks join, or the `ranks`, and not both";
                Done::Answer(answer, Response::from(Refused::new(Code::InvalidJob, why)).into())
            }
            JobRequest::Start { job, others, host, ranks, hold } => match lease(hold, peer) {
                Ok(lease) => {
                    let joining = Joining { host, ranks, lease, user: peer.user };
                    self.begin(&settings, job, others, None, Some(joining), answer)
                }
                Err(refused) => Done::Answer(answer, Response::from(refused).into()),
            },
            JobRequest::Assignments { number, first } => Done::Answer(answer, self.page_of(&number, first)),
            JobRequest::Join { job, placement, rank, paths, prepare: true, .. } => {
                let id = job.id.clone();
                let prepared = CheckedJob::new(job).and_then(|job| {
                    let ranks = vec![RankPaths { rank, paths }];
                    self.table.prepare(&job, &placement, ranks, peer.user, &settings.limits)
                });
                self.changed(id, prepared, false, answer)
            }
            JobRequest::Commit { job, generation } => {
                let committed = self.table.commit(&job, generation, peer.user);
                self.changed(job, committed, false, answer)
            }
            JobRequest::Abandon { job } => {
                let abandoned = self.table.abandon(&job, peer.user);
                self.changed(job, abandoned, false, answer)
            }
            JobRequest::Join { job, placement, rank, paths, hold, prepare: false } => {
                let id = job.id.clone();
                let joined = lease(hold, peer).and_then(|lease| {
                    let job = CheckedJob::new(job)?;
                    let join = Join { job, placement, rank, paths, lease, user: peer.user };
                    self.table.join(join, &settings.limits)
                });
                self.changed(id, joined, false, answer)
            }
            JobRequest::Renew { job, rank } => {
                // The paths stay as they are, and a restart renews all leases, so there is nothing to write.
                match self.table.renew(&job, rank, peer.user, now()) {
                    Ok(()) => Done::Show(answer, Some(job)),
                    Err(refused) => Done::Answer(answer, Response::from(refused).into()),
                }
            }
            JobRequest::End { job, rank } => {
                let ended = self.table.end(&job, rank, peer.user);
                self.changed(job, ended, true, answer)
            }
        }
    }

    fn known(&self, id: &str) -> Result<(), Refused> {
        if self.being_placed().any(|placing| placing == id) {
            return Ok(());
        }
        self.table.job(id).map(drop)
    }

    fn changed(
        &mut self,
        id: String,
        result: Result<(), Refused>,
        as_list: bool,
        answer: oneshot::Sender<Answer>,
    ) -> Done {
        match result {
            Ok(()) => {
                self.version += 1;
                self.hold(&id);
                self.write();
                Done::Changed { id, as_list, answer }
            }
            Err(refused) => Done::Answer(answer, Response::from(refused).into()),
        }
    }

    /// Keeps the paths of all ranks of a job, if it was placed here: those in force, and those held ready.
    fn hold(&mut self, id: &str) {
        let whole = |number: &str| {
            let mut wholes = self.remembered.iter().map(|(_, whole)| whole);
            wholes.find(|whole| whole.placement.number == number).map(Arc::clone)
        };
        if let Ok(known) = self.table.job(id) {
            self.watch.hold(id, known, whole);
        }
        self.watch.retain(&self.table);
    }

    /// Returns the next generation of a job, and the placement that it takes the place of.
    fn next_of(&self, id: &str) -> Result<Next, Refused> {
        let known = self.table.job(id)?;
        let Some(whole) = known.newest().and_then(|placement| self.watch.whole(placement)) else {
            let why = format!("the paths of all ranks of job {id} are not known here: ask the daemon that placed it");
            let why = format!("{why}, or `srv6d job place FILE --from placed.json` with what it has answered");
            return Err(Refused::new(Code::UnknownPlacement, why));
        };
        let prepared = known.prepared.as_ref().map_or(0, |prepared| prepared.placement.generation);
        let generation = known.generation.max(prepared).saturating_add(1);
        let job = Job { generation, ..whole.job.job().clone() };
        Ok(Next { job, earlier: whole.as_earlier(), handed: whole.handed() })
    }

    /// Begins to place a job, or lets it wait.
    fn begin(
        &mut self,
        settings: &Settings,
        job: Job,
        others: Vec<Occupancy>,
        earlier: Option<Earlier>,
        joining: Option<Joining>,
        answer: oneshot::Sender<Answer>,
    ) -> Done {
        let known = self.table.occupancies();
        let here = known.iter().map(|other| other.id.clone()).collect();
        let checked = job.check().and_then(|()| others_of(&job, others, known));
        let checked = checked.and_then(|others| {
            if settings.source == Source::Nowhere {
                let why = "no topology to place a job on: name a file in `[jobs] topology`, or configure [jalapeno]";
                return Err(Refused::new(Code::NoTopology, why));
            }
            if self.waiting.len() >= WAITING {
                let why = format!("{} jobs are being placed here: try again in some seconds", WAITING + 1);
                return Err(Refused::new(Code::Busy, why));
            }
            Ok(others)
        });
        let others = match checked {
            Ok(others) => others,
            Err(refused) => return Done::Answer(answer, Response::from(refused).into()),
        };
        let placing = Placing { id: job.id.clone(), joining, answer };
        self.waiting.push_back((Task { job, others, earlier, here, source: settings.source.clone() }, placing));
        self.go_on();
        Done::Nothing
    }

    /// Begins to place the job that has waited longest, if no other one is being placed.
    fn go_on(&mut self) {
        if self.placing.is_none()
            && let Some((task, placing)) = self.waiting.pop_front()
        {
            self.placing = Some((spawn_blocking(move || carry_out(task)), placing));
        }
    }

    /// Waits until a job has been placed. It can be cancelled without losing anything.
    pub async fn placed(&mut self) -> Placed {
        let result = match &mut self.placing {
            Some((placing, _)) => placing.await,
            None => future::pending().await,
        };
        let failed = |why: tokio::task::JoinError| {
            Err(Refused::new(Code::CannotPlace, format!("the placement stopped: {why}; report this")))
        };
        let result = result.unwrap_or_else(failed);
        match self.placing.take() {
            Some((_, placing)) => Placed { result, placing },
            None => future::pending().await,
        }
    }

    /// Answers a request whose job has been placed, and lets its ranks join.
    pub fn follow(&mut self, placed: Placed) -> Done {
        self.go_on();
        let Placed { result, placing: Placing { id, joining, answer } } = placed;
        let whole = match result {
            Ok(whole) => Arc::new(whole),
            Err(refused) => return Done::Answer(answer, Response::from(refused).into()),
        };
        self.remembered.retain(|(since, _)| since.elapsed() < MEMORY);
        self.remembered.truncate(REMEMBERED - 1);
        self.remembered.push_front((Instant::now(), Arc::clone(&whole)));
        match joining {
            None => Done::Answer(answer, page(whole, 0)),
            Some(joining) => {
                let joined = self.join_all(&whole, joining);
                self.changed(id, joined, false, answer)
            }
        }
    }

    /// Lets all ranks of a host join, or none.
    fn join_all(&mut self, whole: &Whole, joining: Joining) -> Result<(), Refused> {
        let Joining { host, ranks, lease, user } = joining;
        let members = whole.job.job().members.iter();
        let ranks: BTreeSet<u32> = match &host {
            Some(host) => members.filter(|member| member.host == *host).map(|member| member.rank).collect(),
            None => ranks.into_iter().collect(),
        };
        if ranks.is_empty() {
            let host = host.unwrap_or_default();
            let id = &whole.job.job().id;
            let why = format!("no member of job {id} has the host {host:?}: name one of its hosts, or ranks");
            return Err(Refused::new(Code::InvalidJob, why));
        }
        let limits = self.settings.as_ref().map(|settings| settings.limits.clone()).unwrap_or_default();
        let paths = ranks.into_iter().map(|rank| whole.of_rank(rank)).collect();
        self.table.join_all(&whole.job, &whole.placement, paths, (lease, user), &limits)
    }

    fn page_of(&self, number: &str, first: u32) -> Answer {
        let known = self.remembered.iter().filter(|(since, _)| since.elapsed() < MEMORY);
        match known.map(|(_, whole)| whole).find(|whole| whole.placement.number == number) {
            Some(whole) if (first as usize) < whole.size() => page(Arc::clone(whole), first),
            Some(whole) => {
                let why = format!("rank {first} of {} members", whole.size());
                Response::from(Refused::new(Code::InvalidJob, why)).into()
            }
            None => {
                let minutes = MEMORY.as_secs() / 60;
                let why =
                    format!("this placement is not known: the last {REMEMBERED} of {minutes} minutes are; place again");
                Response::from(Refused::new(Code::UnknownPlacement, why)).into()
            }
        }
    }

    /// Writes the ranks down, for a daemon that is restarted.
    fn write(&self) {
        let Some(settings) = &self.settings else { return };
        if let Err(why) = state::write(&settings.state, &self.table) {
            warn!(
                "jobs are not remembered: cannot write {}: {why}; let `[jobs] state` name a file in a directory that \
                 srv6d may write",
                settings.state.display()
            );
        }
    }
}

/// A job that has been placed, or why not.
#[derive(Debug)]
pub struct Placed {
    result: Result<Whole, Refused>,
    placing: Placing,
}

fn settings(table: &config::Jobs, config: &Config, socket: &Path) -> Settings {
    let source = match (&table.topology, &config.jalapeno) {
        (Some(file), _) => Source::File(file.get_ref().clone()),
        (None, Some(jalapeno)) => Source::Jalapeno(Box::new(jalapeno.clone())),
        (None, None) => Source::Nowhere,
    };
    let state = table.state.as_ref().map_or_else(|| beside(socket), |state| state.get_ref().clone());
    let grace = table.grace();
    Settings {
        limits: Limits {
            prefixes: table.allowed_prefixes.iter().map(|prefix| *prefix.get_ref()).collect::<Vec<IpNet>>(),
            carriers: table.allowed_carriers.iter().map(|prefix| *prefix.get_ref()).collect::<Vec<Ipv6Net>>(),
            blocks: config.blocks.iter().map(|block| *block.get_ref().prefix.get_ref()).collect(),
        },
        grace: grace.as_secs() + u64::from(grace.subsec_nanos() > 0),
        source,
        topology_interval: table.topology_interval(),
        state,
    }
}

/// Returns the default state file: `jobs.json` beside `srv6d.sock`, `jobs-NAME.json` beside another socket.
pub fn beside(socket: &Path) -> PathBuf {
    let stem = socket.file_stem().and_then(|stem| stem.to_str()).unwrap_or("srv6d");
    let name = if stem == "srv6d" { "jobs.json".to_owned() } else { format!("jobs-{stem}.json") };
    socket.with_file_name(name)
}

fn now() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    time.map_or(0, |time| u64::try_from(time.tv_sec()).unwrap_or_default())
}

/// Returns the other jobs beside which a job is placed: each id once, with its highest generation, in their order.
fn others_of(job: &Job, handed: Vec<Occupancy>, own: Vec<Occupancy>) -> Result<Vec<Occupancy>, Refused> {
    let mut others: std::collections::BTreeMap<String, Occupancy> = std::collections::BTreeMap::new();
    for other in own.into_iter().chain(handed).filter(|other| other.id != job.id) {
        other.check()?;
        let is_newer = others.get(&other.id).is_none_or(|known| known.generation < other.generation);
        if is_newer {
            others.insert(other.id.clone(), other);
        }
        if others.len() > MOST_OTHERS {
            return Err(Refused::new(
                Code::TooLarge,
                format!("more than {MOST_OTHERS} other jobs: leave out those that are over"),
            ));
        }
    }
    Ok(others.into_values().collect())
}

/// Returns an earlier placement that a request hands over.
fn earlier(job: &Job, from: PlacedJob) -> Result<Earlier, Refused> {
    let PlacedJob { placement, assignments, next, .. } = from;
    if placement.job != job.id {
        let why = format!("the earlier placement is of job {:?}: hand over the one of {}", placement.job, job.id);
        return Err(Refused::new(Code::ForeignJob, why));
    }
    if placement.generation >= job.generation {
        let why = format!("generation {} of job {} is not above {}", job.generation, job.id, placement.generation);
        return Err(Refused::new(Code::StaleGeneration, format!("{why}, that of the earlier placement: raise it")));
    }
    if next.is_some() {
        let why = "the earlier placement lacks ranks: hand over all pages, as `srv6d job place` prints them";
        return Err(Refused::new(Code::InvalidJob, why));
    }
    Ok(Earlier { generation: placement.generation, ranks: assignments })
}

/// Returns the lease that a request asks for.
fn lease(hold: Hold, peer: Peer) -> Result<Lease, Refused> {
    let unseen = |why: String| Refused::new(Code::UnseenProcess, why);
    match hold {
        Hold::Word(HoldWord::End) => Ok(Lease::End),
        Hold::Word(HoldWord::Process) => {
            let process = peer.pid.and_then(Process::of).filter(|process| process.alive());
            process.map(Lease::Process).ok_or_else(|| {
                let why = "the daemon does not see the process that asks (it has ended, or is in another container)";
                unseen(format!("{why}: hold the rank by {{\"seconds\": 60}} and renew it, or by \"end\""))
            })
        }
        Hold::Process { process } => {
            let found = Process::of(process).filter(|process| process.alive());
            let Some(found) = found else {
                return Err(unseen(format!("no process {process} runs: name one as the daemon sees it")));
            };
            let owner = fs::metadata(format!("/proc/{process}")).map(|about| about.uid());
            if peer.user != 0 && owner.ok() != Some(peer.user) {
                return Err(unseen(format!("process {process} is another user's: name one of your own")));
            }
            Ok(Lease::Process(found))
        }
        Hold::Seconds { seconds } if (SHORTEST_LEASE..=LONGEST_LEASE).contains(&seconds) => {
            Ok(Lease::Seconds { seconds, until: now().saturating_add(seconds) })
        }
        Hold::Seconds { seconds } => {
            let why = format!("a lease of {seconds} s: write {SHORTEST_LEASE} to {LONGEST_LEASE} seconds");
            Err(Refused::new(Code::InvalidJob, why))
        }
    }
}

/// Reads the topology, and places a job on it.
fn carry_out(task: Task) -> Result<Whole, Refused> {
    let Task { job, others, earlier, here, source } = task;
    let ground = ground(source).map_err(|why| Refused::new(Code::TopologyFailed, why))?;
    let mut whole = place::place(job, others, ground, earlier.as_ref())?;
    whole.here = here;
    Ok(whole)
}

fn ground(source: Source) -> Result<Ground, String> {
    match source {
        Source::File(file) => {
            let text = read_text_up_to(LARGEST_TOPOLOGY, &file)
                .map_err(|why| format!("cannot read {}: {why}; correct `[jobs] topology`", file.display()))?;
            let document = serde_json::from_str(&text).map_err(|why| {
                format!("{}: {why}; write JSON as `srv6d path-server --example` does", file.display())
            })?;
            Ok(Ground { document, functions: [None; 2] })
        }
        Source::Jalapeno(table) => {
            let settings = jalapeno_settings(&table, Vec::new(), read_text)?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|why: io::Error| format!("cannot ask the controller: {why}"))?;
            let asked = runtime.block_on(jalapeno::topology_document(&settings, PATIENCE));
            runtime.shutdown_background();
            let document =
                asked.map_err(|failure| format!("{}; try again, or name a file in `[jobs] topology`", failure.what))?;
            Ok(Ground { document, functions: [settings.function_v6, settings.function_v4] })
        }
        Source::Nowhere => Err("there is none".to_owned()),
    }
}

/// Returns the paths of ranks from `first` on, as many as one answer has.
fn page(whole: Arc<Whole>, first: u32) -> Answer {
    Answer::made_by(move || {
        let size = u32::try_from(whole.size()).unwrap_or(u32::MAX);
        let (mut assignments, mut count, mut rank) = (Vec::new(), 0, first);
        while rank < size && count < PAGE {
            let of_rank = whole.of_rank(rank);
            count += of_rank.paths.len() + 1;
            assignments.push(of_rank);
            rank += 1;
        }
        let next = (rank < size).then_some(rank);
        let placement = whole.placement.clone();
        let is_again = placement.replaces.is_some() && first == 0;
        let job = is_again.then(|| Box::new(whole.job.job().clone()));
        Response::Placed(Box::new(PlacedJob { placement, assignments, next, job }))
    })
}

/// Returns the row of a job that is being placed and has no ranks here yet.
pub fn placing_view(id: &str) -> JobView {
    JobView {
        id: id.to_owned(),
        generation: 0,
        tenant: None,
        priority: 0,
        pattern: String::new(),
        size: 0,
        digest: None,
        number: None,
        state: "placing".to_owned(),
        owner: 0,
        bound: None,
        busiest: None,
        phases: Vec::new(),
        members: Vec::new(),
        paths: Vec::new(),
        shares: Vec::new(),
        replaces: None,
        stale: None,
        prepared: None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    fn peer() -> Peer {
        Peer { user: nix::unistd::getuid().as_raw(), pid: Some(std::process::id()) }
    }

    fn code<T: std::fmt::Debug>(result: Result<T, Refused>) -> Code {
        result.unwrap_err().code
    }

    #[test]
    fn a_rank_is_held_by_a_process_that_the_daemon_sees() {
        assert!(matches!(lease(Hold::default(), peer()), Ok(Lease::Process(process)) if process.alive()));
        let own = Hold::Process { process: std::process::id() };
        assert!(matches!(lease(own, peer()), Ok(Lease::Process(_))));
        assert_eq!(code(lease(Hold::default(), Peer { pid: None, ..peer() })), Code::UnseenProcess);
        // No process has the highest number of all.
        assert_eq!(code(lease(Hold::Process { process: u32::MAX >> 1 }, peer())), Code::UnseenProcess);
        let other = Peer { user: peer().user + 1, ..peer() };
        assert_eq!(code(lease(own, other)), Code::UnseenProcess);
        for seconds in [0, SHORTEST_LEASE - 1, LONGEST_LEASE + 1] {
            assert_eq!(code(lease(Hold::Seconds { seconds }, peer())), Code::InvalidJob);
        }
        assert!(matches!(lease(Hold::Seconds { seconds: 60 }, peer()), Ok(Lease::Seconds { seconds: 60, .. })));
    }

    #[test]
    fn of_the_other_jobs_each_counts_once_by_its_newest_generation() {
        let other = |id: &str, generation: u64| Occupancy {
            id: id.to_owned(),
            generation,
            tenant: None,
            priority: 0,
            links: vec![("a_b".to_owned(), generation)],
        };
        let member = |rank| format!(r#"{{"rank":{rank},"host":"h{rank}","addresses":["2001:db8::{rank}"]}}"#);
        let text = format!(r#"{{"id":"own","members":[{},{}]}}"#, member(0), member(1));
        let job: Job = serde_json::from_str(&text).unwrap();
        let handed = vec![other("b", 2), other("own", 9), other("a", 1), other("b", 3)];
        let known = others_of(&job, handed, vec![other("b", 1)]).unwrap();
        let known: Vec<(&str, u64)> = known.iter().map(|other| (other.id.as_str(), other.generation)).collect();
        assert_eq!(known, [("a", 1), ("b", 3)]);
        let many = (0..=MOST_OTHERS).map(|number| other(&format!("j{number}"), 1)).collect();
        assert_eq!(code(others_of(&job, many, Vec::new())), Code::TooLarge);
        assert_eq!(code(others_of(&job, vec![other("../x", 1)], Vec::new())), Code::InvalidJob);
    }

    #[test]
    fn what_is_prepared_is_watched_although_its_placement_has_been_forgotten() {
        let prefixes = vec!["2001:db8::/32".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        let limits = Limits { prefixes, ..Limits::default() };
        let mut jobs = Jobs::default();
        let place = |jobs: &mut Jobs, generation: u64, earlier: Option<&Earlier>| {
            let job = Job { generation, ..place::tests::job("a", &[0, 2], "") };
            let whole = Arc::new(place::place(job, Vec::new(), place::tests::ground(), earlier).unwrap());
            jobs.remembered.push_front((Instant::now(), Arc::clone(&whole)));
            whole
        };
        let first = place(&mut jobs, 1, None);
        jobs.table.join_all(&first.job, &first.placement, vec![first.of_rank(0)], (Lease::End, 0), &limits).unwrap();
        jobs.hold("a");
        let next = place(&mut jobs, 2, Some(&first.as_earlier()));
        jobs.table.prepare(&next.job, &next.placement, vec![next.of_rank(0)], 0, &limits).unwrap();
        jobs.hold("a");
        jobs.remembered.clear();
        assert_eq!(jobs.next_of("a").unwrap().earlier.generation, 1, "generation 1 is in force");
        jobs.table.commit("a", 2, 0).unwrap();
        jobs.hold("a");
        assert_eq!(jobs.next_of("a").unwrap().earlier.generation, 2);
    }

    #[test]
    fn the_state_is_beside_the_socket() {
        assert_eq!(beside(Path::new("/run/srv6d/srv6d.sock")), Path::new("/run/srv6d/jobs.json"));
        assert_eq!(beside(Path::new("/tmp/leaf00.sock")), Path::new("/tmp/jobs-leaf00.json"));
    }
}
