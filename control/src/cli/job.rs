//! `srv6d job`: jobs are placed as a whole, and each host puts its own part in force.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueHint};
use srv6d_text::{escaped, escaped_lines};

use srv6d_api::client::{self, AskError};
use srv6d_api::jobs::{Hold, HoldWord, JobRequest, JobView, PlacedJob};
use srv6d_api::{Refusal, Request, Response};
use srv6d_command::{Failure, output, read};
use srv6d_config::Source;
use srv6d_job::{Code, Job, Occupancy};

use super::ask::{self, refused};

/// Time between two requests to the daemon.
const PAUSE: Duration = Duration::from_millis(200);
/// Number of paths that are named when the time is up.
const NAMED: usize = 5;
/// What a placement looks like, for error messages.
const PLACED: &str = "write what `srv6d job place` prints";
/// Examples of jobs, for error messages.
const JOB_IN_TOML: &str = r#"write e.g. `id = "a"` and `[[members]]` with `rank = 0`, `host = "host00"`, `addresses = ["2001:db8::1"]`; docs/jobs.md has every key"#;
const JOB_IN_JSON: &str = r#"write e.g. {"id": "a", "members": [{"rank": 0, "host": "host00", "addresses": ["2001:db8::1"]}, ...]}, or name a file of TOML `.toml`; docs/jobs.md has every key"#;

/// Arguments of `srv6d job`.
#[derive(Debug, Args)]
pub struct JobArguments {
    #[command(subcommand)]
    command: JobCommand,
}

#[derive(Debug, Subcommand)]
enum JobCommand {
    /// Place a whole job, and put the paths of this host in force
    #[command(after_help = "Examples:\n  \
        srv6d job start job.toml --host host03\n  \
        srv6d job start job.toml --host host03 --pid $$    ends when this shell ends\n\n\
        Every host starts the same file with the same topology, and comes to the same placement.")]
    Start {
        #[command(flatten)]
        placing: Placing,
        #[command(flatten)]
        whose: Whose,
        #[command(flatten)]
        holding: Holding,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Place a whole job, print the paths of all ranks as JSON, and change nothing
    #[command(after_help = "Examples:\n  \
        srv6d job place job.toml > placed.json\n  \
        srv6d job place job.toml --from placed.json > again.json    as few paths move as can be")]
    Place {
        #[command(flatten)]
        placing: Placing,
        /// What `srv6d job place` has printed before: its paths stay as far as they can, and the generation is the next one,
        /// unless the job names a higher one
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        from: Option<PathBuf>,
    },
    /// Place a job again that this daemon has placed, print the paths of all ranks as JSON, and change nothing
    #[command(after_help = "Example:\n  \
        srv6d job replace llm-4711 > again.json\n  \
        srv6d job join --placed again.json --host host03 --prepare    on every host\n  \
        srv6d job commit llm-4711 --generation 2                      on every host\n\n\
        The topology is read again. Paths stay, except those that have lost a link, and as few others as can be so\n\
        that the busiest link carries no more than it has to.")]
    Replace {
        /// Id of the job
        #[arg(value_name = "ID")]
        id: String,
        /// Other jobs, as `srv6d job occupancy` prints them on other hosts. May be given several times
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        beside: Vec<PathBuf>,
    },
    /// Put the paths of this host's ranks in force, which `srv6d job place` has printed
    #[command(after_help = "Example:\n  srv6d job join job.toml --placed placed.json --host host03")]
    Join {
        /// Job: TOML if its name ends in .toml, else JSON [default: as `srv6d job replace` has printed it]
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
        /// What `srv6d job place` or `srv6d job replace` has printed
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        placed: PathBuf,
        #[command(flatten)]
        whose: Whose,
        #[command(flatten)]
        holding: Holding,
        /// Check the paths and hold them ready for `srv6d job commit`: those in force stay
        #[arg(long, conflicts_with_all = ["pid", "lease"])]
        prepare: bool,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Put the generation in force that every rank of this daemon holds ready
    Commit {
        /// Id of the job
        #[arg(value_name = "ID")]
        id: String,
        /// The generation, as in the placement
        #[arg(long, value_name = "NUMBER")]
        generation: u64,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Forget what the ranks of this daemon hold ready: the paths in force stay
    Abandon {
        /// Id of the job
        #[arg(value_name = "ID")]
        id: String,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Wait until the paths of this daemon's ranks are in force
    #[command(after_help = "Example:\n  srv6d job wait llm-4711 --timeout 60s && python train.py\n\n\
        A path is in force when its carrier is in the tables and a neighbour behind it is known.\n\
        Exit status 1 when time is up: what is missing is named then.")]
    Wait {
        /// Id of the job
        #[arg(value_name = "ID")]
        id: String,
        /// Wait only for the paths of this rank
        #[arg(long, value_name = "RANK")]
        rank: Option<u32>,
        /// Longest time to wait, e.g. 60s [default: no limit]
        #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
        timeout: Option<Duration>,
    },
    /// Show the jobs of this daemon: ranks, paths, leases, and which jobs share which links
    Show {
        /// Id of the job [default: all jobs]
        #[arg(value_name = "ID")]
        id: Option<String>,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// End a job on this host: its paths go at once
    End {
        /// Id of the job
        #[arg(value_name = "ID")]
        id: String,
        /// End only this rank [default: all ranks of this daemon]
        #[arg(long, value_name = "RANK")]
        rank: Option<u32>,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Print what the jobs of this daemon occupy of the fabric as JSON, for --beside on another host
    Occupancy,
}

/// What is placed, and beside what.
#[derive(Debug, Args)]
struct Placing {
    /// Job: TOML if its name ends in .toml, else JSON
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Other jobs, as `srv6d job occupancy` prints them on other hosts. May be given several times
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    beside: Vec<PathBuf>,
}

/// Whose paths are put in force.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Whose {
    /// All ranks of this host, as the job names it
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// This rank. May be given several times
    #[arg(long = "rank", value_name = "RANK")]
    ranks: Vec<u32>,
}

/// How long the ranks last.
#[derive(Debug, Args)]
struct Holding {
    /// Process with which the ranks end [default: they last until `srv6d job end`]
    #[arg(long, value_name = "PID", conflicts_with = "lease")]
    pid: Option<u32>,
    /// Time after which the ranks end, e.g. 60s, unless they are started again
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    lease: Option<Duration>,
}

impl Holding {
    fn hold(&self) -> Hold {
        match (self.pid, self.lease) {
            (Some(process), _) => Hold::Process { process },
            (None, Some(lease)) => Hold::Seconds { seconds: lease.as_secs() },
            (None, None) => Hold::Word(HoldWord::End),
        }
    }
}

/// Carries out `srv6d job`.
pub fn job(arguments: JobArguments, socket: &Path) -> Result<(), Failure> {
    match arguments.command {
        JobCommand::Start { placing, whose: Whose { host, ranks }, holding, json } => {
            let (job, others) = placing.read()?;
            let request = JobRequest::Start { job, others, host, ranks, hold: holding.hold() };
            ask::ask(socket, &asking(request), json)
        }
        JobCommand::Place { placing, from } => place(&placing, from.as_deref(), socket),
        JobCommand::Replace { id, beside } => {
            print_placed(JobRequest::Replace { job: id, others: others(&beside)? }, socket)
        }
        JobCommand::Join { file, placed, whose, holding, prepare, json } => {
            let joining = Joining { hold: holding.hold(), prepare, json };
            join(file.as_deref(), &placed, &whose, &joining, socket)
        }
        JobCommand::Commit { id, generation, json } => {
            ask::ask(socket, &asking(JobRequest::Commit { job: id, generation }), json)
        }
        JobCommand::Abandon { id, json } => ask::ask(socket, &asking(JobRequest::Abandon { job: id }), json),
        JobCommand::Wait { id, rank, timeout } => wait(&id, rank, timeout, socket),
        JobCommand::Show { id, json } => ask::ask(socket, &asking(JobRequest::Show { job: id }), json),
        JobCommand::End { id, rank, json } => ask::ask(socket, &asking(JobRequest::End { job: id, rank }), json),
        JobCommand::Occupancy => ask::ask(socket, &asking(JobRequest::Occupancy), true),
    }
}

fn asking(request: JobRequest) -> Request {
    Request::Job(Box::new(request))
}

impl Placing {
    fn read(&self) -> Result<(Job, Vec<Occupancy>), Failure> {
        let others = others(&self.beside)?;
        Ok((read_job(&self.file)?, others))
    }
}

fn others(files: &[PathBuf]) -> Result<Vec<Occupancy>, Failure> {
    let mut others = Vec::new();
    for file in files {
        others.extend(json::<Vec<Occupancy>>(file, "write what `srv6d job occupancy` prints")?);
    }
    Ok(others)
}

fn read_job(file: &Path) -> Result<Job, Failure> {
    let text = read(file)?;
    if file.extension().is_some_and(|extension| extension == "toml") {
        let source = Source::new(&file.display().to_string(), &text);
        let read = toml::from_str(&text).map_err(|why| source.refused_toml(&why, JOB_IN_TOML));
        return read.map_err(|why| Failure::invalid(why.to_string()));
    }
    json(file, JOB_IN_JSON)
}

fn json<T: serde::de::DeserializeOwned>(file: &Path, fix: &str) -> Result<T, Failure> {
    let text = read(file)?;
    let source = Source::new(&file.display().to_string(), &text);
    serde_json::from_str(&text).map_err(|why| Failure::invalid(source.refused_json(&why, fix).to_string()))
}

/// Asks the daemon to place a job, and prints the paths of all ranks.
fn place(placing: &Placing, from: Option<&Path>, socket: &Path) -> Result<(), Failure> {
    let (mut job, others) = placing.read()?;
    let from = from.map(|file| json::<PlacedJob>(file, PLACED)).transpose()?;
    if let Some(from) = &from {
        job.generation = job.generation.max(from.placement.generation.saturating_add(1));
    }
    print_placed(JobRequest::Place { job, others, from: from.map(Box::new) }, socket)
}

/// Sends a request that places a job, and prints the paths of all ranks.
fn print_placed(request: JobRequest, socket: &Path) -> Result<(), Failure> {
    let mut whole = placed(socket, request)?;
    while let Some(first) = whole.next {
        let number = whole.placement.number.clone();
        let more = placed(socket, JobRequest::Assignments { number, first })?;
        whole.assignments.extend(more.assignments);
        whole.next = more.next;
    }
    output::print_json(&whole)
}

fn placed(socket: &Path, request: JobRequest) -> Result<PlacedJob, Failure> {
    match client::ask(socket, &asking(request))? {
        Response::Placed(placed) => Ok(*placed),
        Response::Refused(refusal) => Err(refused(&refusal)),
        _ => Err(other_answer()),
    }
}

fn other_answer() -> Failure {
    Failure::failed("error: the daemon answered another question")
}

/// How ranks join.
struct Joining {
    hold: Hold,
    prepare: bool,
    json: bool,
}

fn join(file: Option<&Path>, placed: &Path, whose: &Whose, joining: &Joining, socket: &Path) -> Result<(), Failure> {
    let PlacedJob { placement, mut assignments, job, .. } = json(placed, PLACED)?;
    let mut job = match (file, job) {
        (Some(file), _) => read_job(file)?,
        (None, Some(job)) => *job,
        (None, None) => {
            let what = format!("error: {} does not say what the job is", placed.display());
            return Err(Failure::invalid(format!("{what}\nfix: name the job's FILE, too")));
        }
    };
    // A job that was placed again has a higher generation than its file. The digest says whether all else is the same.
    if placement.job == job.id {
        job.generation = job.generation.max(placement.generation);
    }
    let Joining { hold, prepare, json: as_json } = *joining;
    let members = job.members.iter();
    let ranks: Vec<u32> = match &whose.host {
        Some(host) => members.filter(|member| member.host == *host).map(|member| member.rank).collect(),
        None => whose.ranks.clone(),
    };
    if ranks.is_empty() {
        let host = whose.host.as_deref().unwrap_or_default();
        return Err(Failure::invalid(format!("error: no member of job {} has the host {host:?}", job.id)));
    }
    for rank in ranks {
        let Some(own) = assignments.iter_mut().find(|own| own.rank == rank) else {
            let what = format!("error: {} has no paths of rank {rank}", placed.display());
            return Err(Failure::invalid(format!("{what}\nfix: place the job anew with `srv6d job place`")));
        };
        let (job, placement) = (job.clone(), placement.clone());
        let paths = std::mem::take(&mut own.paths);
        let request = JobRequest::Join { job, placement, rank, paths, hold, prepare };
        if let Response::Refused(refusal) = client::ask(socket, &asking(request))? {
            return Err(refused(&refusal));
        }
    }
    let request = asking(JobRequest::Show { job: Some(job.id) });
    if prepare {
        let shown = client::ask(socket, &request)?;
        let missing = if let Response::Jobs(views) = &shown { unready(views) } else { Vec::new() };
        if !missing.is_empty() {
            let fix = "fix: what is in force stays; `srv6d job abandon`, or prepare again when this is repaired";
            return Err(Failure::failed(format!(
                "error: these paths could not come into force:\n{}{fix}",
                named(&missing)
            )));
        }
    }
    ask::ask(socket, &request, as_json)
}

/// Lists why paths that are held ready could not come into force.
fn unready(views: &[JobView]) -> Vec<String> {
    views.iter().filter_map(|view| view.prepared.as_ref()).flat_map(|prepared| prepared.missing.clone()).collect()
}

/// Waits until every path of a job's ranks here is in force, but at most for `timeout`.
fn wait(id: &str, rank: Option<u32>, timeout: Option<Duration>, socket: &Path) -> Result<(), Failure> {
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let request = asking(JobRequest::Show { job: Some(id.to_owned()) });
    let mut is_told = false;
    loop {
        let missing = match client::ask(socket, &request) {
            Ok(Response::Jobs(views)) => missing(&views, rank),
            // The ranks may be about to join.
            Ok(Response::Refused(Refusal { code: Some(Code::UnknownJob), errors, .. })) => errors,
            Ok(Response::Refused(refusal)) => return Err(refused(&refusal)),
            Ok(_) => return Err(other_answer()),
            // The daemon may be about to start.
            Err(why @ (AskError::NotRunning { .. } | AskError::Broken { .. })) => vec![why.to_string()],
            Err(why) => return Err(why.into()),
        };
        if missing.is_empty() {
            return output::print(&format!("every path of job {} is in force\n", escaped(id)));
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            return Err(Failure::failed(too_late(id, &missing)));
        }
        if !std::mem::replace(&mut is_told, true) {
            missing.iter().take(NAMED).for_each(|what| eprintln!("waiting: {}", escaped_lines(what)));
        }
        sleep(PAUSE);
    }
}

/// Lists what is not in force yet.
fn missing(views: &[JobView], rank: Option<u32>) -> Vec<String> {
    let is_meant = |other: u32| rank.is_none_or(|rank| rank == other);
    let mut missing = Vec::new();
    for view in views {
        if !view.members.iter().any(|member| is_meant(member.rank)) {
            let who = rank.map_or_else(|| "no rank".to_owned(), |rank| format!("rank {rank}"));
            missing.push(format!("{who} has not joined here: job {} is {}", view.id, view.state));
        }
        let waiting = view.paths.iter().filter(|path| is_meant(path.rank) && path.state != "in_force");
        missing.extend(waiting.map(|path| {
            let why = path.why.as_deref().unwrap_or("no reason is known");
            format!("rank {} to {} is {}: {why}", path.rank, path.prefix, path.state)
        }));
    }
    missing
}

/// Names the first of what is missing, a line each.
fn named(missing: &[String]) -> String {
    let named = missing.iter().take(NAMED).map(|what| format!("  {what}\n")).collect::<Vec<_>>().concat();
    match missing.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named}  and {more} more\n"),
    }
}

fn too_late(id: &str, missing: &[String]) -> String {
    let fix = format!("fix: see `srv6d job show {id}`, or wait longer with --timeout");
    format!("error: not every path of job {id} is in force:\n{}{fix}", named(missing))
}
