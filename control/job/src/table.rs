//! The ranks that joined at one daemon, how long each lasts, and the paths that they are offered.
//!
//! ```text
//!        join                    the holder is gone, or the lease is over          grace is over
//!  ─────────────► lasts ───────────────────────────────────────────────► ending ─────────────────► gone
//!                   ▲   ◄──────────────────────────────────────────────────┘ │
//!                   └── join (another generation, too), renew               end: gone at once, from either
//! ```
//!
//! A job that was placed again changes over in two steps, so that all daemons hold the new paths before the first one uses
//! them: `prepare` checks and keeps them beside those in force, and `commit` puts them in force; `abandon` forgets them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv6Addr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use srv6d_addresses::TableId;
use srv6d_offer::{Offer, OfferedPath, OfferedSteer, job_source};
use srv6d_process::Process;

use crate::checked::CheckedJob;
use crate::job::{Job, Pattern, check_id, check_name};
use crate::placed::{Limits, Occupancy, Placement, RankPath, RankPaths, check_sizes};
use crate::refused::{Code, Refused};

/// Most jobs that a daemon knows.
const MOST_JOBS: usize = 256;
/// Most ranks of all jobs that joined at one daemon.
const MOST_RANKS: usize = 1024;
/// Most paths of all ranks that joined at one daemon.
const MOST_PATHS: usize = 131_072;
/// Most links of all placements that a daemon keeps.
const MOST_LINKS: usize = 4 << 20;

/// Seconds since the start of the machine.
type Seconds = u64;

/// The segments to one prefix, by the host that sends and the generation.
type Senders<'t> = BTreeMap<(&'t str, u64), &'t [Ipv6Addr]>;

/// The lease of a rank: how long it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lease {
    /// While the process lives.
    Process(Process),
    /// For some seconds after it joined or was renewed.
    Seconds {
        /// The length of the lease.
        seconds: Seconds,
        /// When it is over.
        until: Seconds,
    },
    /// Until it is ended.
    End,
}

/// A rank that joins.
#[derive(Clone, Debug, PartialEq)]
pub struct Join {
    /// The job as the rank knows it.
    pub job: CheckedJob,
    /// The placement of the whole job.
    pub placement: Placement,
    /// The rank.
    pub rank: u32,
    /// The paths of the rank.
    pub paths: Vec<RankPath>,
    /// The lease of the rank.
    pub lease: Lease,
    /// User who asks.
    pub user: u32,
}

/// All ranks that joined at a daemon, by job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    jobs: BTreeMap<String, Known>,
}

/// What a daemon knows of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// User who joined first.
    pub owner: u32,
    /// Highest generation that joined.
    pub generation: u64,
    /// Name of the tenant.
    pub tenant: Option<String>,
    /// Priority.
    pub priority: u8,
    /// Who sends to whom.
    pub pattern: Pattern,
    /// Number of members of the whole job.
    pub size: usize,
    /// The ranks that joined here.
    pub members: BTreeMap<u32, Membership>,
    /// The placements that ranks have joined with, by generation.
    placements: BTreeMap<u64, Placement>,
    /// A newer generation that ranks hold ready.
    #[serde(default)]
    pub prepared: Option<Prepared>,
}

/// A newer generation of a job, which ranks hold ready and which offers nothing yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// Its placement.
    pub placement: Placement,
    /// Paths of the ranks that hold it ready.
    pub ranks: BTreeMap<u32, Vec<RankPath>>,
    tenant: Option<String>,
    priority: u8,
    pattern: Pattern,
    size: usize,
    /// Names of the hosts of these ranks.
    hosts: BTreeMap<u32, String>,
}

/// A rank that joined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Membership {
    /// Name of its host in the topology.
    pub host: String,
    /// Generation of the job that it joined with.
    pub generation: u64,
    /// The paths of the rank.
    pub paths: Vec<RankPath>,
    /// The lease of the rank.
    pub lease: Lease,
    /// When its paths go, because its lease is over.
    pub ending: Option<Seconds>,
}

/// What the passing of time has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Jobs and ranks whose leases are over. Their paths stay for the grace period.
    pub ended: Vec<(String, u32)>,
    /// Jobs and ranks that are gone, with their paths.
    pub gone: Vec<(String, u32)>,
}

/// What ranks are checked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// They join.
    Join,
    /// They hold a newer generation ready.
    Prepare,
}

/// What jobs take of the bounds of a table.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    ranks: usize,
    paths: usize,
    links: usize,
}

impl Room {
    fn with(self, other: Self) -> Self {
        Self { ranks: self.ranks + other.ranks, paths: self.paths + other.paths, links: self.links + other.links }
    }

    /// Returns which bound is exceeded.
    fn excess(self) -> Option<String> {
        match self {
            Self { ranks, .. } if ranks > MOST_RANKS => Some(format!("more than {MOST_RANKS} ranks")),
            Self { paths, .. } if paths > MOST_PATHS => Some(format!("more than {MOST_PATHS} paths of all jobs")),
            Self { links, .. } if links > MOST_LINKS => Some(format!("more than {MOST_LINKS} links of all jobs")),
            _ => None,
        }
    }
}

/// Prefixes that jobs of other users have.
struct Foreign<'t> {
    /// The prefixes, with the ids of the jobs.
    prefixes: HashMap<IpNet, &'t str>,
    /// The lengths of these prefixes.
    lengths: BTreeSet<u8>,
}

impl Foreign<'_> {
    /// Checks that no path takes a part of the traffic of one of these prefixes. (Of two jobs with the same prefix, the plan
    /// takes the one that was there first.)
    fn check(&self, paths: &[RankPath]) -> Result<(), Refused> {
        for prefix in paths.iter().map(|path| path.prefix) {
            for &length in self.lengths.range(..prefix.prefix_len()) {
                let around = IpNet::new(prefix.addr(), length).map(|net| net.trunc());
                let Some(other) = around.ok().and_then(|net| self.prefixes.get(&net)) else { continue };
                let why = format!("{prefix} is a part of a prefix of job {other}, which is another user's");
                let why = format!("{why}: end that job, or let its members have the longer prefix");
                return Err(Refused::new(Code::ForeignPrefix, why));
            }
        }
        Ok(())
    }
}

impl Known {
    /// Returns the placement of the newest generation.
    pub fn newest(&self) -> Option<&Placement> {
        self.placements.values().next_back()
    }

    /// Returns what the job takes of the bounds of the table.
    fn room(&self) -> Room {
        let prepared = self.prepared.as_ref();
        let ready = |rank: &u32| prepared.and_then(|prepared| prepared.ranks.get(rank)).map_or(0, Vec::len);
        let placements = self.placements.values().chain(prepared.map(|prepared| &prepared.placement));
        Room {
            ranks: self.members.len(),
            paths: self.members.iter().map(|(rank, member)| member.paths.len().max(ready(rank))).sum(),
            links: placements.map(|placement| placement.links.len()).sum(),
        }
    }

    /// Returns whether what is held ready could have been prepared: it is of ranks that are here, and of no other placement of its
    /// generation than they have joined with.
    fn is_prepared_well(&self) -> bool {
        let Some(prepared) = &self.prepared else { return true };
        let same = self.placements.get(&prepared.placement.generation);
        prepared.is_good()
            && prepared.ranks.keys().chain(prepared.hosts.keys()).all(|rank| self.members.contains_key(rank))
            && same.is_none_or(|other| is_same(other, &prepared.placement))
    }
}

impl Table {
    /// Returns every job by its id.
    pub fn jobs(&self) -> impl Iterator<Item = (&str, &Known)> {
        self.jobs.iter().map(|(id, job)| (id.as_str(), job))
    }

    /// Returns a job.
    ///
    /// # Errors
    /// `unknown_job`.
    pub fn job(&self, id: &str) -> Result<&Known, Refused> {
        self.jobs.get(id).ok_or_else(|| unknown_job(id))
    }

    /// Lets a rank join, or join again. Nothing changes if it is refused.
    ///
    /// # Errors
    /// A refusal with its fix.
    pub fn join(&mut self, join: Join, limits: &Limits) -> Result<(), Refused> {
        let Join { job, placement, rank, paths, lease, user } = join;
        self.join_all(&job, &placement, vec![RankPaths { rank, paths }], (lease, user), limits)
    }

    /// Lets ranks of one job join, each with its paths. Nothing changes if one of them is refused.
    ///
    /// # Errors
    /// A refusal with its fix.
    pub fn join_all(
        &mut self,
        checked: &CheckedJob,
        placement: &Placement,
        ranks: Vec<RankPaths>,
        (lease, user): (Lease, u32),
        limits: &Limits,
    ) -> Result<(), Refused> {
        let job = checked.job();
        self.check(checked, placement, &ranks, (user, Purpose::Join), limits)?;
        let known = self.jobs.entry(job.id.clone()).or_insert_with(|| Known {
            owner: user,
            generation: job.generation,
            tenant: None,
            priority: 0,
            pattern: job.pattern,
            size: 0,
            members: BTreeMap::new(),
            placements: BTreeMap::new(),
            prepared: None,
        });
        known.generation = job.generation;
        (known.tenant, known.priority) = (job.tenant.clone(), job.priority);
        (known.pattern, known.size) = (job.pattern, job.members.len());
        for RankPaths { rank, paths } in ranks {
            let host = checked.member(rank).map(|member| member.host.clone()).unwrap_or_default();
            known.members.insert(rank, Membership { host, generation: job.generation, paths, lease, ending: None });
        }
        known.placements.entry(job.generation).or_insert_with(|| placement.clone());
        known.forget_placements();
        Ok(())
    }

    /// Checks everything about ranks that join, or prepare to.
    fn check(
        &self,
        checked: &CheckedJob,
        placement: &Placement,
        ranks: &[RankPaths],
        (user, purpose): (u32, Purpose),
        limits: &Limits,
    ) -> Result<(), Refused> {
        placement.check(checked)?;
        for RankPaths { rank, paths } in ranks {
            checked.check_paths(*rank, paths, limits)?;
        }
        let job = checked.job();
        self.check_known(job, placement, user)?;
        let foreign = self.foreign(&job.id, user);
        ranks.iter().try_for_each(|rank| foreign.check(&rank.paths))?;
        self.check_room(job, ranks, placement, purpose)
    }

    /// Lets ranks that have joined hold a newer generation ready. It takes the place of another one that was prepared before.
    /// Nothing changes if one of the ranks is refused, and no path changes in any case.
    ///
    /// # Errors
    /// A refusal with its fix.
    pub fn prepare(
        &mut self,
        checked: &CheckedJob,
        placement: &Placement,
        ranks: Vec<RankPaths>,
        user: u32,
        limits: &Limits,
    ) -> Result<(), Refused> {
        let job = checked.job();
        self.check(checked, placement, &ranks, (user, Purpose::Prepare), limits)?;
        let known = self.jobs.get_mut(&job.id).ok_or_else(|| unknown_job(&job.id))?;
        for RankPaths { rank, .. } in &ranks {
            known.members.get(rank).ok_or_else(|| unknown_rank(&job.id, *rank))?;
        }
        let stale = |generation: u64, is: &str| {
            let why = format!("generation {generation} of job {} is {is} already: prepare a newer one", job.id);
            Err(Refused::new(Code::StaleGeneration, why))
        };
        if job.generation <= known.generation {
            return stale(known.generation, "here");
        }
        let before = known.prepared.as_ref().map(|prepared| &prepared.placement);
        match before {
            Some(before) if before.generation > job.generation => return stale(before.generation, "prepared"),
            Some(before) if before.generation == job.generation => {}
            _ => known.prepared = None,
        }
        let prepared = known.prepared.get_or_insert_with(|| Prepared {
            placement: placement.clone(),
            ranks: BTreeMap::new(),
            tenant: job.tenant.clone(),
            priority: job.priority,
            pattern: job.pattern,
            size: job.members.len(),
            hosts: BTreeMap::new(),
        });
        for RankPaths { rank, paths } in ranks {
            let host = checked.member(rank).map(|member| member.host.clone()).unwrap_or_default();
            prepared.hosts.insert(rank, host);
            prepared.ranks.insert(rank, paths);
        }
        Ok(())
    }

    /// Puts a generation in force that all ranks of the job here hold ready. Ranks that have it already keep it.
    ///
    /// # Errors
    /// `unknown_job`, `foreign_job`, `stale_generation`, `not_prepared` with the ranks that do not hold it ready, or
    /// `foreign_prefix` if a job of another user has come in between.
    pub fn commit(&mut self, id: &str, generation: u64, user: u32) -> Result<(), Refused> {
        let known = self.jobs.get(id).ok_or_else(|| unknown_job(id))?;
        is_owner(id, known, user)?;
        if generation < known.generation {
            let why = format!("generation {} of job {id} is here already, and {generation} is older", known.generation);
            return Err(Refused::new(Code::StaleGeneration, format!("{why}: `srv6d job show {id}` has both")));
        }
        let prepared = known.prepared.as_ref().filter(|prepared| prepared.placement.generation == generation);
        let is_ready = |rank: &u32| prepared.is_some_and(|prepared| prepared.ranks.contains_key(rank));
        let lacks = |(rank, member): &(&u32, &Membership)| member.generation != generation && !is_ready(rank);
        let lacking = known.members.iter().filter(|(_, member)| member.ending.is_none());
        let lacking: Vec<String> = lacking.filter(lacks).map(|(rank, _)| rank.to_string()).collect();
        if !lacking.is_empty() {
            let why = format!("generation {generation} of job {id} is not prepared for rank {}", lacking.join(", "));
            let fix = "the paths stay as they are; `srv6d job join --prepare` for every rank first";
            return Err(Refused::new(Code::NotPrepared, format!("{why}: {fix}")));
        }
        if let Some(prepared) = prepared {
            let foreign = self.foreign(id, known.owner);
            prepared.ranks.values().try_for_each(|paths| foreign.check(paths))?;
        }
        let known = self.jobs.get_mut(id).ok_or_else(|| unknown_job(id))?;
        let Some(prepared) = known.prepared.take_if(|prepared| prepared.placement.generation == generation) else {
            return Ok(());
        };
        let Prepared { placement, ranks, tenant, priority, pattern, size, mut hosts } = prepared;
        for (rank, paths) in ranks {
            if let Some(member) = known.members.get_mut(&rank) {
                member.host = hosts.remove(&rank).unwrap_or_default();
                (member.generation, member.paths) = (generation, paths);
            }
        }
        known.generation = generation;
        (known.tenant, known.priority, known.pattern, known.size) = (tenant, priority, pattern, size);
        known.placements.entry(generation).or_insert(placement);
        known.forget_placements();
        Ok(())
    }

    /// Forgets what ranks of a job hold ready. The paths stay as they are.
    ///
    /// # Errors
    /// `unknown_job` or `foreign_job`.
    pub fn abandon(&mut self, id: &str, user: u32) -> Result<(), Refused> {
        let known = self.jobs.get_mut(id).ok_or_else(|| unknown_job(id))?;
        is_owner(id, known, user)?;
        known.prepared = None;
        Ok(())
    }

    /// Checks that a user may join a job with a placement, as far as ranks of the job are here already.
    fn check_known(&self, job: &Job, placement: &Placement, user: u32) -> Result<(), Refused> {
        let Some(known) = self.jobs.get(&job.id) else { return Ok(()) };
        is_owner(&job.id, known, user)?;
        if job.generation < known.generation {
            let why = format!("generation {} of job {} is here already", known.generation, job.id);
            let why = format!("{why}: join with that one, or place a newer one than {}", job.generation);
            return Err(Refused::new(Code::StaleGeneration, why));
        }
        let ready = known.prepared.as_ref().map(|prepared| &prepared.placement);
        if ready.is_some_and(|ready| ready.generation == job.generation && !is_same(ready, placement)) {
            let why = format!("generation {} of job {} is prepared with another placement", job.generation, job.id);
            let why = format!("{why}: `srv6d job abandon {}`, or place it with a higher generation", job.id);
            return Err(Refused::new(Code::MembersDisagree, why));
        }
        if known.placements.get(&job.generation).is_some_and(|other| !is_same(other, placement)) {
            return Err(Refused::new(
                Code::MembersDisagree,
                format!(
                    "another rank of this host joined generation {} of job {} with another placement: all ranks must \
                     join with the same one; a job that starts anew has a higher generation or another id",
                    job.generation, job.id
                ),
            ));
        }
        Ok(())
    }

    /// Returns the prefixes that jobs of other users have.
    fn foreign(&self, id: &str, user: u32) -> Foreign<'_> {
        let foreign = self.jobs.iter().filter(|(other, known)| *other != id && known.owner != user);
        let prefixes = foreign.flat_map(|(other, known)| {
            let paths = known.members.values().flat_map(|member| &member.paths);
            paths.map(move |path| (path.prefix, other.as_str()))
        });
        let prefixes: HashMap<IpNet, &str> = prefixes.collect();
        Foreign { lengths: prefixes.keys().map(IpNet::prefix_len).collect(), prefixes }
    }

    /// Returns the table without what could not have joined, and how much that is. It is for a table that was read from a
    /// file.
    pub fn checked(mut self) -> (Self, usize) {
        let (jobs, mut bad) = (std::mem::take(&mut self.jobs), 0);
        let mut room = Room::default();
        for (id, known) in jobs {
            let members = || known.members.values();
            let names = members().map(|member| &member.host);
            let is_good = check_id("id", &id).is_ok()
                && known.tenant.as_ref().is_none_or(|tenant| check_id("tenant", tenant).is_ok())
                && names.into_iter().all(|name| check_name("host", name).is_ok())
                && members().all(|member| check_sizes(&member.paths).is_ok())
                && members().flat_map(|member| &member.paths).all(|path| path.prefix == path.prefix.trunc())
                && known.placements.values().all(|placement| placement.check_itself().is_ok())
                && known.is_prepared_well()
                && room.with(known.room()).excess().is_none()
                && self.jobs.len() < MOST_JOBS;
            if is_good {
                room = room.with(known.room());
                self.jobs.insert(id, known);
            } else {
                bad += 1;
            }
        }
        (self, bad)
    }

    /// Checks that these ranks of a job fit the bounds of the table. A rank counts with the larger of its lists of paths, that in
    /// force and that held ready, so that what is held ready has its room when it is put in force.
    fn check_room(
        &self,
        job: &Job,
        ranks: &[RankPaths],
        placement: &Placement,
        purpose: Purpose,
    ) -> Result<(), Refused> {
        let large = |what: String| {
            Err(Refused::new(Code::TooLarge, format!("{what}: end a job that is over, by `srv6d job end`")))
        };
        if !self.jobs.contains_key(&job.id) && self.jobs.len() >= MOST_JOBS {
            return large(format!("{MOST_JOBS} jobs are here already"));
        }
        let nobody = Known::default();
        let own = self.jobs.get(&job.id).unwrap_or(&nobody);
        let mut room = Room::default();
        for other in self.jobs.iter().filter(|(id, _)| **id != job.id).map(|(_, known)| known) {
            room = room.with(other.room());
        }
        // What is ready of an older generation is forgotten.
        let stays = own.prepared.as_ref().filter(|ready| ready.placement.generation >= job.generation);
        let ready = |rank: u32| stays.and_then(|ready| ready.ranks.get(&rank)).map_or(0, Vec::len);
        let in_force = |rank: u32| own.members.get(&rank).map_or(0, |member| member.paths.len());
        let joining: BTreeMap<u32, usize> = ranks.iter().map(|of| (of.rank, of.paths.len())).collect();
        let all: BTreeSet<u32> = own.members.keys().chain(joining.keys()).copied().collect();
        room.ranks += all.len();
        for rank in all {
            room.paths += match (joining.get(&rank), purpose) {
                (Some(paths), Purpose::Join) => ready(rank).max(*paths),
                (Some(paths), Purpose::Prepare) => in_force(rank).max(*paths),
                (None, _) => ready(rank).max(in_force(rank)),
            };
        }
        room.links += own.room().links + placement.links.len();
        match room.excess() {
            Some(what) => large(what),
            None => Ok(()),
        }
    }

    /// Renews the lease of a rank.
    ///
    /// # Errors
    /// `unknown_job`, `unknown_rank` or `foreign_job`.
    pub fn renew(&mut self, id: &str, rank: u32, user: u32, now: Seconds) -> Result<(), Refused> {
        let known = self.jobs.get_mut(id).ok_or_else(|| unknown_job(id))?;
        is_owner(id, known, user)?;
        let member = known.members.get_mut(&rank).ok_or_else(|| unknown_rank(id, rank))?;
        if let Lease::Seconds { seconds, until } = &mut member.lease {
            *until = now.saturating_add(*seconds);
            member.ending = None;
        }
        Ok(())
    }

    /// Ends a rank, or all ranks of a job that joined here. Their paths go at once.
    ///
    /// # Errors
    /// `unknown_job`, `unknown_rank` or `foreign_job`.
    pub fn end(&mut self, id: &str, rank: Option<u32>, user: u32) -> Result<(), Refused> {
        let known = self.jobs.get_mut(id).ok_or_else(|| unknown_job(id))?;
        is_owner(id, known, user)?;
        match rank {
            Some(rank) => drop(known.members.remove(&rank).ok_or_else(|| unknown_rank(id, rank))?),
            None => known.members.clear(),
        }
        self.forget_empty();
        Ok(())
    }

    /// Lets time pass: leases end, and what has ended goes when `grace` is over.
    pub fn sweep(&mut self, now: Seconds, grace: Seconds, lives: impl Fn(Process) -> bool) -> Swept {
        let mut swept = Swept::default();
        for (id, known) in &mut self.jobs {
            for (rank, member) in &mut known.members {
                let is_over = match member.lease {
                    Lease::Process(process) => !lives(process),
                    Lease::Seconds { until, .. } => now >= until,
                    Lease::End => false,
                };
                if is_over && member.ending.is_none() {
                    member.ending = Some(now.saturating_add(grace));
                    swept.ended.push((id.clone(), *rank));
                }
            }
            known.members.retain(|rank, member| {
                let stays = member.ending.is_none_or(|end| now < end);
                if !stays {
                    swept.gone.push((id.clone(), *rank));
                }
                stays
            });
        }
        self.forget_empty();
        swept
    }

    /// Gives every lease in seconds its whole length again, because nobody could renew it while the daemon was away.
    pub fn renew_all(&mut self, now: Seconds) {
        for member in self.jobs.values_mut().flat_map(|known| known.members.values_mut()) {
            if let Lease::Seconds { seconds, until } = &mut member.lease {
                *until = now.saturating_add(*seconds);
                member.ending = None;
            }
        }
    }

    fn forget_empty(&mut self) {
        self.jobs.retain(|_, known| {
            known.forget_placements();
            !known.members.is_empty()
        });
    }

    /// Returns what each job occupies of the fabric.
    pub fn occupancies(&self) -> Vec<Occupancy> {
        let of = |(id, known): (&String, &Known)| {
            let placement = known.newest()?;
            Some(Occupancy {
                id: id.clone(),
                generation: placement.generation,
                tenant: known.tenant.clone(),
                priority: known.priority,
                links: placement.links.clone(),
            })
        };
        self.jobs.iter().filter_map(of).collect()
    }

    /// Returns the offers of all jobs, as far as they are allowed. Ranks that share a prefix share its paths.
    pub fn offers(&self, limits: &Limits) -> Vec<Offer> {
        self.jobs.iter().map(|(id, known)| offer(id, known, limits)).collect()
    }
}

impl Prepared {
    fn is_good(&self) -> bool {
        self.placement.check_itself().is_ok()
            && self.tenant.as_ref().is_none_or(|tenant| check_id("tenant", tenant).is_ok())
            && self.hosts.values().all(|host| check_name("host", host).is_ok())
            && self.ranks.values().all(|paths| check_sizes(paths).is_ok())
            && self.ranks.values().flatten().all(|path| path.prefix == path.prefix.trunc())
    }
}

impl Known {
    /// Forgets placements that no rank has joined with, and what is prepared for ranks that are gone or for an older
    /// generation.
    fn forget_placements(&mut self) {
        let members = &self.members;
        if let Some(prepared) = &mut self.prepared {
            let generation = prepared.placement.generation;
            let waits = |rank: &u32| members.get(rank).is_some_and(|member| member.generation < generation);
            prepared.ranks.retain(|rank, _| waits(rank));
            prepared.hosts.retain(|rank, _| waits(rank));
        }
        let generation = self.generation;
        self.prepared.take_if(|prepared| prepared.ranks.is_empty() || prepared.placement.generation < generation);
        self.placements.retain(|generation, _| members.values().any(|member| member.generation == *generation));
    }
}

fn offer(id: &str, known: &Known, limits: &Limits) -> Offer {
    // Each host of the topology that sends counts once, however many ranks it has.
    let mut prefixes: BTreeMap<IpNet, (u32, Senders<'_>)> = BTreeMap::new();
    for member in known.members.values() {
        for path in member.paths.iter().filter(|path| limits.allow(&path.prefix, &path.segments).is_ok()) {
            let (_, senders) = prefixes.entry(path.prefix).or_insert((path.to, BTreeMap::new()));
            senders.insert((&member.host, member.generation), &path.segments);
        }
    }
    let steer = |(prefix, (to, senders)): (IpNet, (u32, Senders<'_>))| {
        let mut weights: BTreeMap<&[Ipv6Addr], u16> = BTreeMap::new();
        // A host whose ranks change generations one by one counts with the newest.
        let newest: BTreeMap<&str, &[Ipv6Addr]> =
            senders.iter().map(|((host, _), segments)| (*host, *segments)).collect();
        for segments in newest.into_values() {
            let weight = weights.entry(segments).or_default();
            *weight = weight.saturating_add(1);
        }
        let name = |number: usize| match number {
            0 => format!("{id} {prefix}"),
            more => format!("{id} {prefix}#{}", more + 1),
        };
        let paths = weights.into_iter().enumerate().map(|(number, (segments, weight))| OfferedPath {
            name: name(number),
            segments: segments.to_vec(),
            weight,
        });
        OfferedSteer {
            peer: format!("rank {to}"),
            prefix,
            table: TableId::MAIN.0,
            full_srh: false,
            source: None,
            via: None,
            port: None,
            paths: paths.collect(),
            last_good: Vec::new(),
            is_in_force: false,
        }
    };
    Offer { source: job_source(id), steers: prefixes.into_iter().map(steer).collect(), gone: Vec::new() }
}

/// Returns whether two placements are one.
fn is_same(one: &Placement, other: &Placement) -> bool {
    (&one.digest, &one.number) == (&other.digest, &other.number)
}

/// Checks that a user may change a job. The superuser may change all.
fn is_owner(id: &str, known: &Known, user: u32) -> Result<(), Refused> {
    if user == known.owner || user == 0 {
        return Ok(());
    }
    let why = format!("job {id} belongs to user {}, and you are {user}: choose another id", known.owner);
    Err(Refused::new(Code::ForeignJob, why))
}

fn unknown_job(id: &str) -> Refused {
    let shown: String = id.chars().take(64).collect();
    Refused::new(Code::UnknownJob, format!("no rank of job {shown:?} is here: `srv6d job show` lists the jobs"))
}

fn unknown_rank(id: &str, rank: u32) -> Refused {
    Refused::new(
        Code::UnknownRank,
        format!("rank {rank} of job {id} is not here: `srv6d job show {id}` lists those that are"),
    )
}

#[cfg(test)]
mod tests;
