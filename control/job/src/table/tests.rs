//! Tests of the table: single cases, and random histories with crashes against a naive model.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::placed::tests::{job, limits, path, placement};

const GRACE: Seconds = 10;

fn process(pid: i32) -> Process {
    Process { pid, started: 7 }
}

fn join_of(id: &str, generation: u64, rank: u32, lease: Lease) -> Join {
    let job = Job { generation, ..job(id) };
    let segment = format!("fcbb:0:{:x}:fe06::", 0x100 + generation);
    let paths = match rank {
        1 => vec![path(0, "2001:db8::1/128", &segment), path(0, "2001:db8::2/128", &segment)],
        _ => vec![path(1, "2001:db8:1::/64", &segment), path(1, "10.0.0.1/32", &segment)],
    };
    let placement = placement(&job, &format!("{id}.{generation}"));
    Join { placement, job: CheckedJob::new(job).unwrap(), rank, paths, lease, user: 1000 }
}

fn code(result: Result<(), Refused>) -> Code {
    result.unwrap_err().code
}

#[test]
fn refusals_change_nothing_and_say_why() {
    let mut table = Table::default();
    table.join(join_of("a", 2, 0, Lease::End), &limits()).unwrap();
    let before = table.clone();
    let stale = join_of("a", 1, 0, Lease::End);
    assert_eq!(code(table.join(stale, &limits())), Code::StaleGeneration);
    let mut foreign = join_of("a", 3, 0, Lease::End);
    foreign.user = 1001;
    assert_eq!(code(table.join(foreign, &limits())), Code::ForeignJob);
    let mut other = join_of("a", 2, 2, Lease::End);
    other.placement.number = "other".to_owned();
    assert_eq!(code(table.join(other, &limits())), Code::MembersDisagree);
    let mut lie = join_of("a", 2, 0, Lease::End);
    lie.placement.job = "b".to_owned();
    assert_eq!(code(table.join(lie, &limits())), Code::ForeignJob);
    assert_eq!(code(table.end("a", None, 1001)), Code::ForeignJob);
    assert_eq!(code(table.end("a", Some(1), 1000)), Code::UnknownRank);
    assert_eq!(code(table.end("b", None, 1000)), Code::UnknownJob);
    assert_eq!(code(table.renew("a", 1, 1000, 0)), Code::UnknownRank);
    assert_eq!(table, before);
    table.end("a", None, 0).unwrap();
    assert_eq!(table, Table::default(), "the superuser may end any job");
}

#[test]
fn a_part_of_another_users_prefix_is_refused() {
    let narrow = |user| {
        let text = r#"{"id":"b","members":[{"rank":0,"host":"h0","addresses":["2001:db8::1"]},
            {"rank":1,"host":"h1","addresses":["2001:db8:1::5"]}]}"#;
        let job: Job = serde_json::from_str(text).unwrap();
        let paths = vec![path(1, "2001:db8:1::5/128", "fcbb:0:1:fe06::")];
        let placement = placement(&job, "b.1");
        Join { placement, job: CheckedJob::new(job).unwrap(), rank: 0, paths, lease: Lease::End, user }
    };
    let mut table = Table::default();
    table.join(join_of("a", 1, 0, Lease::End), &limits()).unwrap();
    let refused = table.join(narrow(1001), &limits()).unwrap_err();
    assert_eq!(refused.code, Code::ForeignPrefix);
    assert!(refused.why.contains("2001:db8:1::5/128 is a part of a prefix of job a"), "{refused:?}");
    table.join(narrow(1000), &limits()).unwrap();
}

#[test]
fn ranks_join_together_or_not_at_all() {
    let Join { job, placement, paths, .. } = join_of("a", 1, 0, Lease::End);
    let of = |rank: u32| RankPaths { rank, paths: paths.clone() };
    let mut table = Table::default();
    let lie = RankPaths { rank: 2, paths: vec![path(7, "2001:db8:1::/64", "fcbb:0:1::")] };
    let all = table.join_all(&job, &placement, vec![of(0), lie], (Lease::End, 1000), &limits());
    assert_eq!((code(all), &table), (Code::ForeignPrefix, &Table::default()));
    table.join_all(&job, &placement, vec![of(0), of(2)], (Lease::End, 1000), &limits()).unwrap();
    assert_eq!(table.job("a").unwrap().members.len(), 2);
}

#[test]
fn what_could_not_have_joined_is_left_out_of_a_table_that_was_read() {
    let mut table = Table::default();
    for id in ["a", "b", "c"] {
        table.join(join_of(id, 1, 0, Lease::End), &limits()).unwrap();
    }
    assert_eq!(table.clone().checked(), (table.clone(), 0));
    let evil = table.jobs.remove("b").unwrap();
    table.jobs.insert("b\n2029 ERROR".to_owned(), evil);
    let member = table.jobs.get_mut("c").unwrap().members.get_mut(&0).unwrap();
    member.paths[0].prefix = "2001:db8:1::1/64".parse().unwrap();
    let (checked, bad) = table.checked();
    assert_eq!((checked.jobs.keys().map(String::as_str).collect::<Vec<_>>(), bad), (vec!["a"], 2));
}

#[test]
fn the_table_has_room_for_so_many_jobs_and_no_more() {
    let mut table = Table::default();
    for number in 0..MOST_JOBS {
        table.join(join_of(&format!("j{number}"), 1, 0, Lease::End), &limits()).unwrap();
    }
    assert_eq!(code(table.join(join_of("one-more", 1, 0, Lease::End), &limits())), Code::TooLarge);
    table.join(join_of("j0", 2, 0, Lease::End), &limits()).unwrap();
}

#[test]
fn paths_stay_for_the_grace_period_and_a_new_lease_keeps_them() {
    let mut table = Table::default();
    table.join(join_of("a", 1, 0, Lease::Process(process(1))), &limits()).unwrap();
    let offers = table.offers(&limits());
    assert_eq!(offers[0].steers.len(), 2);
    assert_eq!(table.sweep(100, GRACE, |_| true), Swept::default());
    assert_eq!(table.sweep(101, GRACE, |_| false).ended, [("a".to_owned(), 0)]);
    assert_eq!(table.sweep(105, GRACE, |_| false), Swept::default());
    assert_eq!(table.offers(&limits()), offers, "nothing has changed in the plan");
    table.join(join_of("a", 1, 0, Lease::Seconds { seconds: 5, until: 110 }), &limits()).unwrap();
    assert_eq!(table.sweep(109, GRACE, |_| false), Swept::default());
    table.renew("a", 0, 1000, 109).unwrap();
    assert_eq!(table.sweep(113, GRACE, |_| false), Swept::default());
    assert_eq!(table.sweep(114, GRACE, |_| false).ended.len(), 1);
    assert_eq!(table.sweep(124, GRACE, |_| false).gone, [("a".to_owned(), 0)]);
    assert_eq!(table.offers(&limits()), []);
}

#[test]
fn ranks_of_one_host_have_one_path_and_those_of_two_hosts_share() {
    let mut table = Table::default();
    table.join(join_of("a", 1, 0, Lease::End), &limits()).unwrap();
    table.join(join_of("a", 1, 2, Lease::End), &limits()).unwrap();
    let paths = |table: &Table| table.offers(&limits())[0].steers[0].paths.clone();
    assert_eq!(paths(&table).len(), 1);
    assert_eq!(paths(&table)[0].weight, 1);
    // While the ranks change over, the host has the paths of the newest generation.
    table.join(join_of("a", 2, 2, Lease::End), &limits()).unwrap();
    assert_eq!(paths(&table).len(), 1);
    assert_eq!(paths(&table)[0].segments, ["fcbb:0:102:fe06::".parse::<std::net::Ipv6Addr>().unwrap()]);
    let narrower = Limits { prefixes: vec!["10.0.0.0/8".parse().unwrap()], ..limits() };
    assert_eq!(table.offers(&narrower)[0].steers.len(), 1, "what is no longer allowed is not offered");
}

/// Prepares ranks of a host for a generation.
fn prepare(table: &mut Table, id: &str, generation: u64, ranks: &[u32]) -> Result<(), Refused> {
    let Join { job, placement, .. } = join_of(id, generation, 0, Lease::End);
    let of = |rank: &u32| RankPaths { rank: *rank, paths: join_of(id, generation, *rank, Lease::End).paths };
    table.prepare(&job, &placement, ranks.iter().map(of).collect(), 1000, &limits())
}

#[test]
fn what_is_prepared_offers_nothing_before_it_is_committed() {
    let mut table = Table::default();
    assert_eq!(code(prepare(&mut table, "a", 2, &[0])), Code::UnknownJob);
    for rank in [0, 2] {
        table.join(join_of("a", 1, rank, Lease::End), &limits()).unwrap();
    }
    let offers = table.offers(&limits());
    assert_eq!(code(prepare(&mut table, "a", 1, &[0])), Code::StaleGeneration);
    assert_eq!(code(prepare(&mut table, "a", 2, &[0, 1])), Code::UnknownRank);
    assert_eq!(code(table.commit("a", 2, 1000)), Code::NotPrepared);
    prepare(&mut table, "a", 2, &[0]).unwrap();
    let refused = table.commit("a", 2, 1000).unwrap_err();
    assert_eq!(refused.code, Code::NotPrepared);
    assert!(refused.why.contains("not prepared for rank 2"), "{refused}");
    assert_eq!(table.offers(&limits()), offers);
    // Another placement of the same generation, and an older one, are refused; a newer one takes its place.
    let mut other = join_of("a", 2, 2, Lease::End);
    other.placement.number = "other".to_owned();
    let ranks = vec![RankPaths { rank: 2, paths: other.paths }];
    let refused = table.prepare(&other.job, &other.placement, ranks, 1000, &limits());
    assert_eq!(code(refused), Code::MembersDisagree);
    prepare(&mut table, "a", 3, &[0, 2]).unwrap();
    assert_eq!(code(prepare(&mut table, "a", 2, &[0])), Code::StaleGeneration);
    assert_eq!(code(table.commit("a", 2, 1000)), Code::NotPrepared);
    assert_eq!(code(table.commit("a", 3, 1001)), Code::ForeignJob);
    assert_eq!(table.clone().checked(), (table.clone(), 0), "a restart keeps what is prepared");
    table.commit("a", 3, 1000).unwrap();
    table.commit("a", 3, 1000).unwrap();
    assert_eq!(code(table.commit("a", 2, 1000)), Code::StaleGeneration);
    let known = table.job("a").unwrap();
    assert_eq!((known.generation, &known.prepared, known.newest().unwrap().number.as_str()), (3, &None, "a.3"));
    let segments = table.offers(&limits())[0].steers[0].paths[0].segments.clone();
    assert_eq!(segments, ["fcbb:0:103:fe06::".parse::<std::net::Ipv6Addr>().unwrap()]);
    // What is abandoned is forgotten, and the paths stay.
    prepare(&mut table, "a", 4, &[0, 2]).unwrap();
    assert_eq!(code(table.abandon("a", 1001)), Code::ForeignJob);
    table.abandon("a", 1000).unwrap();
    assert_eq!(code(table.commit("a", 4, 1000)), Code::NotPrepared);
    assert_eq!(table.job("a").unwrap().generation, 3);
}

/// Returns a job of which ranks 0 and 1, on one host, send to `count` addresses of other members.
fn wide(id: &str, generation: u64, count: usize) -> (CheckedJob, Placement, Vec<RankPath>) {
    let addresses: Vec<String> = (0..count).map(|number| format!("2001:db8:1::{number:x}")).collect();
    let member = |(at, addresses): (usize, &[String])| serde_json::json!({"rank": at + 2, "host": format!("w{at}"), "addresses": addresses});
    let mut members: Vec<serde_json::Value> = addresses.chunks(8).enumerate().map(member).collect();
    for rank in 0..2 {
        members.push(serde_json::json!({"rank": rank, "host": "h0", "addresses": [format!("2001:db8::{rank}")]}));
    }
    let job = serde_json::json!({"id": id, "generation": generation, "pattern": "ring", "members": members});
    let job: Job = serde_json::from_value(job).unwrap();
    let to = |number: usize| u32::try_from(number / 8 + 2).unwrap();
    let paths = addresses.iter().enumerate();
    let paths = paths.map(|(number, address)| path(to(number), &format!("{address}/128"), "fcbb:0:1:fe06::")).collect();
    let placement = placement(&job, &format!("{id}.{generation}"));
    (CheckedJob::new(job).unwrap(), placement, paths)
}

#[test]
fn what_is_prepared_has_its_room_before_it_is_committed() {
    let all = |paths: &[RankPath]| [0, 1].map(|rank| RankPaths { rank, paths: paths.to_vec() }).to_vec();
    let half = MOST_PATHS / 2;
    let mut table = Table::default();
    for id in ["a", "b"] {
        let (job, placement, paths) = wide(id, 1, 1);
        table.join_all(&job, &placement, all(&paths), (Lease::End, 1000), &limits()).unwrap();
    }
    // Two paths of job b are in force, so there is room for so many of job a.
    let (job, placement, paths) = wide("a", 2, half);
    let refused = table.prepare(&job, &placement, all(&paths), 1000, &limits());
    assert_eq!(code(refused), Code::TooLarge);
    let (job, placement, paths) = wide("a", 3, half - 1);
    table.prepare(&job, &placement, all(&paths), 1000, &limits()).unwrap();
    let (other, at, more) = wide("b", 2, 2);
    let refused = table.prepare(&other, &at, all(&more), 1000, &limits());
    assert_eq!(code(refused), Code::TooLarge, "job a has the room");
    let refused = table.join_all(&other, &at, all(&more), (Lease::End, 1000), &limits());
    assert_eq!(code(refused), Code::TooLarge);
    assert_eq!(table.clone().checked().1, 0);
    table.commit("a", 3, 1000).unwrap();
    // The same paths may be prepared again: a rank counts once.
    let (job, placement, paths) = wide("a", 4, half - 1);
    table.prepare(&job, &placement, all(&paths), 1000, &limits()).unwrap();
    assert_eq!(table.clone().checked().1, 0);
    // A file that holds more than the bounds loses the jobs that do not fit.
    let mut long = table.clone();
    let ready = long.jobs["a"].prepared.clone().unwrap();
    let known = long.jobs.get_mut("b").unwrap();
    known.prepared = Some(Prepared { ranks: ready.ranks.into_iter().take(1).collect(), ..ready });
    let (checked, bad) = long.checked();
    assert_eq!((checked.jobs.keys().map(String::as_str).collect::<Vec<_>>(), bad), (vec!["a"], 1));
    // Nor is anything held ready for a rank that is not here.
    let lost = table.jobs.get_mut("a").unwrap().members.remove(&1);
    assert!(lost.is_some() && table.checked().1 == 1);
}

#[test]
fn a_generation_has_one_placement_whether_it_is_joined_or_prepared() {
    let mut table = Table::default();
    for rank in [0, 2] {
        table.join(join_of("a", 1, rank, Lease::End), &limits()).unwrap();
    }
    prepare(&mut table, "a", 2, &[0, 2]).unwrap();
    let before = table.clone();
    let mut other = join_of("a", 2, 0, Lease::End);
    other.placement.number = "other".to_owned();
    let refused = table.join(other, &limits()).unwrap_err();
    assert_eq!(refused.code, Code::MembersDisagree);
    assert!(refused.why.contains("`srv6d job abandon a`"), "{refused}");
    assert_eq!(table, before);
    table.join(join_of("a", 2, 0, Lease::End), &limits()).unwrap();
    // A file in which the two differ is not believed.
    let mut evil = table.clone();
    evil.jobs.get_mut("a").unwrap().prepared.as_mut().unwrap().placement.number = "other".to_owned();
    assert_eq!([table.clone().checked().1, evil.checked().1], [0, 1]);
    table.commit("a", 2, 1000).unwrap();
    let known = table.job("a").unwrap();
    assert!(known.members.values().all(|member| member.generation == 2));
}

#[test]
fn a_commit_takes_no_part_of_a_prefix_that_another_user_has_joined_with_since() {
    let of = |id: &str, generation: u64, address: &str, user: u32| {
        let text = format!(
            r#"{{"id":"{id}","generation":{generation},"members":[{{"rank":0,"host":"h0","addresses":["2001:db8::1"]}},
            {{"rank":1,"host":"h1","addresses":["2001:db8:9::1","{address}"]}}]}}"#
        );
        let job: Job = serde_json::from_str(&text).unwrap();
        let paths = vec![path(1, address, "fcbb:0:1:fe04::")];
        let placement = placement(&job, &format!("{id}.{generation}"));
        Join { placement, job: CheckedJob::new(job).unwrap(), rank: 0, paths, lease: Lease::End, user }
    };
    let mut table = Table::default();
    table.join(of("a", 1, "2001:db8:9::1/128", 1000), &limits()).unwrap();
    let Join { job, placement, rank, paths, .. } = of("a", 2, "10.0.0.1/32", 1000);
    table.prepare(&job, &placement, vec![RankPaths { rank, paths }], 1000, &limits()).unwrap();
    table.join(of("b", 1, "10.0.0.0/16", 1001), &limits()).unwrap();
    let before = table.clone();
    for user in [1000, 0] {
        let refused = table.commit("a", 2, user).unwrap_err();
        assert_eq!(refused.code, Code::ForeignPrefix);
        assert!(refused.why.contains("10.0.0.1/32 is a part of a prefix of job b"), "{refused}");
        assert_eq!(table, before, "nothing is changed");
    }
    table.end("b", None, 1001).unwrap();
    table.commit("a", 2, 1000).unwrap();
}

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    Join {
        job: usize,
        generation: u64,
        rank: u32,
        holder: i32,
    },
    Lease {
        job: usize,
        rank: u32,
        seconds: u64,
    },
    Renew {
        job: usize,
        rank: u32,
    },
    End {
        job: usize,
        rank: u32,
    },
    Prepare {
        job: usize,
        generation: u64,
        rank: u32,
    },
    Commit {
        job: usize,
        generation: u64,
    },
    Dies {
        holder: i32,
    },
    Passes {
        seconds: u64,
    },
    /// The daemon is killed, and starts again with what it has written.
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let (job, rank) = (0_usize..3, 0_u32..3);
    prop_oneof![
        (job.clone(), 1_u64..3, rank.clone(), 1_i32..5).prop_map(|(job, generation, rank, holder)| Step::Join {
            job,
            generation,
            rank,
            holder
        }),
        (job.clone(), rank.clone(), 5_u64..20).prop_map(|(job, rank, seconds)| Step::Lease { job, rank, seconds }),
        (job.clone(), rank.clone()).prop_map(|(job, rank)| Step::Renew { job, rank }),
        (job.clone(), 1_u64..4, rank.clone()).prop_map(|(job, generation, rank)| Step::Prepare {
            job,
            generation,
            rank
        }),
        (job.clone(), 1_u64..4).prop_map(|(job, generation)| Step::Commit { job, generation }),
        (job, rank).prop_map(|(job, rank)| Step::End { job, rank }),
        (1_i32..5).prop_map(|holder| Step::Dies { holder }),
        (1_u64..8).prop_map(|seconds| Step::Passes { seconds }),
        Just(Step::Crash),
    ]
}

/// The naive account of a rank.
#[derive(Clone, Debug)]
struct Account {
    generation: u64,
    holder: Option<i32>,
    seconds: u64,
    until: u64,
    over: Option<u64>,
}

#[derive(Default)]
struct Model {
    ranks: BTreeMap<(usize, u32), Account>,
    /// Highest generation of each job that has ranks.
    highest: BTreeMap<usize, u64>,
    /// Generation and ranks that are held ready.
    prepared: BTreeMap<usize, (u64, BTreeSet<u32>)>,
    dead: BTreeSet<i32>,
    now: u64,
}

impl Model {
    /// Returns whether a join of that generation is accepted.
    fn accepts(&self, job: usize, generation: u64) -> bool {
        self.highest.get(&job).is_none_or(|highest| generation >= *highest)
    }

    fn join(&mut self, job: usize, rank: u32, account: Account) {
        if self.accepts(job, account.generation) {
            self.highest.insert(job, account.generation);
            self.ranks.insert((job, rank), account);
            self.forget();
        }
    }

    /// Returns whether a rank may hold a generation ready.
    fn prepare(&mut self, job: usize, generation: u64, rank: u32) -> bool {
        let is_newer = self.highest.get(&job).is_some_and(|highest| generation > *highest);
        let before = self.prepared.get(&job).map_or(0, |(generation, _)| *generation);
        if !self.ranks.contains_key(&(job, rank)) || !is_newer || before > generation {
            return false;
        }
        if before < generation {
            self.prepared.insert(job, (generation, BTreeSet::new()));
        }
        self.prepared.get_mut(&job).unwrap().1.insert(rank);
        true
    }

    /// Returns whether a generation comes into force.
    fn commit(&mut self, job: usize, generation: u64) -> bool {
        let ready = self.prepared.get(&job).filter(|(other, _)| *other == generation);
        let ready = ready.map(|(_, ranks)| ranks.clone()).unwrap_or_default();
        let own = self.ranks.iter().filter(|((other, _), account)| *other == job && account.over.is_none());
        let mut lacking = own.filter(|((_, rank), account)| account.generation != generation && !ready.contains(rank));
        if self.highest.get(&job).is_none_or(|highest| generation < *highest) || lacking.next().is_some() {
            return false;
        }
        if !ready.is_empty() {
            for rank in ready {
                self.ranks.get_mut(&(job, rank)).unwrap().generation = generation;
            }
            self.highest.insert(job, generation);
            self.forget();
        }
        true
    }

    /// Lets the leases end, and what ended long ago go.
    fn sweep(&mut self) {
        let (now, dead) = (self.now, &self.dead);
        for account in self.ranks.values_mut() {
            let is_over = account.holder.map_or(now >= account.until, |holder| dead.contains(&holder));
            if is_over && account.over.is_none() {
                account.over = Some(now + GRACE);
            }
        }
        self.ranks.retain(|_, account| account.over.is_none_or(|over| now < over));
        self.forget();
    }

    fn forget(&mut self) {
        let ranks = &self.ranks;
        self.highest.retain(|job, _| ranks.keys().any(|(other, _)| other == job));
        let highest = &self.highest;
        self.prepared.retain(|job, (generation, ready)| {
            let waits = |rank: &u32| ranks.get(&(*job, *rank)).is_some_and(|account| account.generation < *generation);
            ready.retain(waits);
            !ready.is_empty() && highest.get(job).is_some_and(|highest| highest <= generation)
        });
    }
}

fn id(job: usize) -> String {
    format!("job-{job}")
}

/// Carries out a step on both sides, and returns the table that the daemon has afterwards.
fn carry_out(step: &Step, mut table: Table, model: &mut Model) -> Table {
    match *step {
        Step::Join { job, generation, rank, holder } => {
            model.dead.remove(&holder);
            let joined = table.join(join_of(&id(job), generation, rank, Lease::Process(process(holder))), &limits());
            assert_eq!(joined.is_ok(), model.accepts(job, generation), "{joined:?}");
            let account = Account { generation, holder: Some(holder), seconds: 0, until: 0, over: None };
            model.join(job, rank, account);
        }
        Step::Lease { job, rank, seconds } => {
            let generation = model.highest.get(&job).copied().unwrap_or(1);
            let until = model.now + seconds;
            table.join(join_of(&id(job), generation, rank, Lease::Seconds { seconds, until }), &limits()).unwrap();
            model.join(job, rank, Account { generation, holder: None, seconds, until, over: None });
        }
        Step::Renew { job, rank } => {
            let renewed = table.renew(&id(job), rank, 1000, model.now);
            let known = model.ranks.get_mut(&(job, rank));
            assert_eq!(renewed.is_ok(), known.is_some());
            if let Some(account) = known.filter(|account| account.holder.is_none()) {
                (account.until, account.over) = (model.now + account.seconds, None);
            }
        }
        Step::End { job, rank } => {
            let ended = table.end(&id(job), Some(rank), 1000);
            assert_eq!(ended.is_ok(), model.ranks.remove(&(job, rank)).is_some());
            model.forget();
        }
        Step::Prepare { job, generation, rank } => {
            let prepared = prepare(&mut table, &id(job), generation, &[rank]);
            assert_eq!(prepared.is_ok(), model.prepare(job, generation, rank), "{prepared:?}");
        }
        Step::Commit { job, generation } => {
            let committed = table.commit(&id(job), generation, 1000);
            assert_eq!(committed.is_ok(), model.commit(job, generation), "{committed:?}");
        }
        Step::Dies { holder } => drop(model.dead.insert(holder)),
        Step::Passes { seconds } => model.now += seconds,
        Step::Crash => {
            let written = serde_json::to_vec(&table).unwrap();
            table = serde_json::from_slice(&written).unwrap();
            table.renew_all(model.now);
            for account in model.ranks.values_mut().filter(|account| account.holder.is_none()) {
                (account.until, account.over) = (model.now + account.seconds, None);
            }
        }
    }
    let dead = model.dead.clone();
    table.sweep(model.now, GRACE, |process| !dead.contains(&process.pid));
    model.sweep();
    table
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// After every step of every history, the table has the ranks of the naive account, each with the paths of its
    /// generation, and what a step does to one job leaves the offers of the others as they are. When all holders are
    /// dead, nothing is left after the grace period.
    #[test]
    fn a_history_with_crashes_leaves_what_the_naive_account_says(steps in prop::collection::vec(step(), 0..60)) {
        let (mut table, mut model) = (Table::default(), Model::default());
        for step in &steps {
            let before = table.offers(&limits());
            table = carry_out(step, table, &mut model);
            let ranks: Vec<(String, u32, u64, bool)> = table
                .jobs()
                .flat_map(|(id, known)| {
                    let of = |(rank, member): (&u32, &Membership)| {
                        (id.to_owned(), *rank, member.generation, member.ending.is_some())
                    };
                    known.members.iter().map(of).collect::<Vec<_>>()
                })
                .collect();
            let expected: Vec<(String, u32, u64, bool)> = model
                .ranks
                .iter()
                .map(|((job, rank), account)| (id(*job), *rank, account.generation, account.over.is_some()))
                .collect();
            prop_assert_eq!(&ranks, &expected, "after {:?}", step);
            let ready: BTreeMap<String, (u64, BTreeSet<u32>)> = table
                .jobs()
                .filter_map(|(id, known)| Some((id.to_owned(), known.prepared.as_ref()?)))
                .map(|(id, ready)| (id, (ready.placement.generation, ready.ranks.keys().copied().collect())))
                .collect();
            let expected = model.prepared.iter().map(|(job, ready)| (id(*job), ready.clone())).collect();
            prop_assert_eq!(ready, expected, "after {:?}", step);
            let after = table.offers(&limits());
            prop_assert_eq!(after.len(), model.highest.len());
            if matches!(step, Step::Prepare { .. }) {
                prop_assert_eq!(&after, &before, "what is prepared is not in force");
            }
            if let Step::Commit { job, .. } | Step::Join { job, .. } | Step::Lease { job, .. } | Step::Renew { job, .. } | Step::End { job, .. } = step {
                let others = |offers: &[Offer]| -> Vec<Offer> {
                    offers.iter().filter(|offer| offer.source != job_source(&id(*job))).cloned().collect()
                };
                let own_now: BTreeSet<String> = model.highest.keys().map(|job| job_source(&id(*job))).collect();
                let stayed: Vec<Offer> =
                    others(&before).into_iter().filter(|offer| own_now.contains(&offer.source)).collect();
                prop_assert_eq!(others(&after), stayed, "after {:?}", step);
            }
            for (_, known) in table.jobs() {
                prop_assert!(known.newest().is_some(), "a placement of every generation in use is kept");
            }
        }
        model.dead.extend(0..10);
        for _ in 0..2 {
            model.now += 100;
            table.sweep(model.now, GRACE, |_| false);
        }
        prop_assert_eq!(table, Table::default());
    }
}
