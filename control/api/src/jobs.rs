//! Requests about jobs, and what they are answered. `docs/jobs.md` is their reference.

use serde::{Deserialize, Serialize};
use srv6d_job::{Job, Occupancy, PhaseLoad, Placement, RankPath, RankPaths, Replaces, Share};

/// A request about a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "lowercase", deny_unknown_fields)]
pub enum JobRequest {
    /// Say what the jobs of this daemon occupy of the fabric.
    Occupancy,
    /// Place a whole job, and change nothing.
    Place {
        /// The job.
        job: Job,
        /// Other jobs that members know.
        #[serde(default)]
        others: Vec<Occupancy>,
        /// An earlier placement, whose paths stay as far as they can.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Box<PlacedJob>>,
    },
    /// Place a job again that this daemon has placed, on the topology as it is now, with few moves, and change nothing.
    Replace {
        /// Id of the job.
        job: String,
        /// Other jobs that members know.
        #[serde(default)]
        others: Vec<Occupancy>,
    },
    /// Say the paths of further ranks of a placement.
    Assignments {
        /// Number of the placement.
        number: String,
        /// First rank.
        first: u32,
    },
    /// Put the paths of a rank in force.
    Join {
        /// The job, as the rank knows it.
        job: Job,
        /// The placement of the whole job.
        placement: Placement,
        /// The rank.
        rank: u32,
        /// The paths of the rank.
        paths: Vec<RankPath>,
        /// The lease of the rank.
        #[serde(default)]
        hold: Hold,
        /// Check the paths and hold them ready, and put them in force by `Commit` only.
        #[serde(default)]
        prepare: bool,
    },
    /// Put a generation in force that all ranks here hold ready.
    Commit {
        /// Id of the job.
        job: String,
        /// The generation.
        generation: u64,
    },
    /// Forget what ranks here hold ready.
    Abandon {
        /// Id of the job.
        job: String,
    },
    /// Place a whole job, and put the paths of ranks of this host in force.
    Start {
        /// The job.
        job: Job,
        /// Other jobs that members know.
        #[serde(default)]
        others: Vec<Occupancy>,
        /// Host whose ranks join.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<String>,
        /// Ranks that join, instead of those of a host.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ranks: Vec<u32>,
        /// The lease of the ranks.
        #[serde(default)]
        hold: Hold,
    },
    /// Show one job, or all.
    Show {
        /// Id of the job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<String>,
    },
    /// Renew the lease of a rank.
    Renew {
        /// Id of the job.
        job: String,
        /// The rank.
        rank: u32,
    },
    /// End a rank, or all ranks of this daemon.
    End {
        /// Id of the job.
        job: String,
        /// The rank.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rank: Option<u32>,
    },
}

/// How long a rank lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "no `hold`: write \"process\", {\"process\": PID}, {\"seconds\": 60} or \"end\""
)]
pub enum Hold {
    /// A word.
    Word(HoldWord),
    /// While that process lives.
    Process {
        /// Its id, as the daemon sees it.
        process: u32,
    },
    /// For so many seconds after it has joined, and after each renewal.
    Seconds {
        /// The seconds.
        seconds: u64,
    },
}

impl Default for Hold {
    fn default() -> Self {
        Self::Word(HoldWord::Process)
    }
}

/// How long a rank lasts, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HoldWord {
    /// While the process that asks lives.
    Process,
    /// Until it is ended.
    End,
}

/// A job that was placed, with the paths of some ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlacedJob {
    /// The placement.
    pub placement: Placement,
    /// Paths of ranks, in their order.
    pub assignments: Vec<RankPaths>,
    /// First rank that is not among them.
    pub next: Option<u32>,
    /// The job as it is now, if it was placed again: members need not know its new generation by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Box<Job>>,
}

/// A job, as far as this daemon has part in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// Id of the job.
    pub id: String,
    /// Highest generation that ranks have joined with.
    pub generation: u64,
    /// Name of the tenant.
    pub tenant: Option<String>,
    /// Priority, from 0 to 7.
    pub priority: u8,
    /// Who sends to whom: `ring`, `all-to-all`, `permutation`, `pairs`; or `phases`.
    pub pattern: String,
    /// Number of members of the whole job.
    pub size: usize,
    /// Digest of the job.
    pub digest: Option<String>,
    /// Number of the placement.
    pub number: Option<String>,
    /// `placing`, `installing`, `installed` or `ending`.
    pub state: String,
    /// User who may change the job.
    pub owner: u32,
    /// No placement of the job alone has less on its busiest link.
    pub bound: Option<f64>,
    /// Load per capacity of the busiest link of the job.
    pub busiest: Option<f64>,
    /// Loads of each phase, if the job has phases.
    #[serde(default)]
    pub phases: Vec<PhaseLoad>,
    /// The ranks that joined at this daemon.
    pub members: Vec<JobMemberView>,
    /// Their paths.
    pub paths: Vec<JobPathView>,
    /// Jobs with which it shares links.
    pub shares: Vec<Share>,
    /// Changes to the earlier placement, if the job was placed again.
    #[serde(default)]
    pub replaces: Option<Replaces>,
    /// Why the job should be placed again: what the topology says now.
    #[serde(default)]
    pub stale: Option<String>,
    /// A newer generation that ranks here hold ready.
    #[serde(default)]
    pub prepared: Option<JobPreparedView>,
}

/// A newer generation of a job, which ranks hold ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPreparedView {
    /// The generation.
    pub generation: u64,
    /// The ranks that hold it ready.
    pub ranks: Vec<u32>,
    /// Why paths could not come into force.
    pub missing: Vec<String>,
}

/// How many ranks and paths a job has at this daemon, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCounts {
    /// Id of the job.
    pub id: String,
    /// Number of ranks that joined here.
    pub ranks: usize,
    /// Number of their paths that are in force.
    pub in_force: usize,
    /// Number of their paths that wait for something.
    pub waiting: usize,
    /// Number of their paths that are refused.
    pub refused: usize,
    /// True if the job should be placed again.
    pub is_stale: bool,
}

/// A rank that joined at this daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMemberView {
    /// Number of the member.
    pub rank: u32,
    /// Name of its host in the topology.
    pub host: String,
    /// Generation that it joined with.
    pub generation: u64,
    /// `installing`, `installed` or `ending`.
    pub state: String,
    /// How long it lasts: `process 4242`, `60 seconds`, `end`.
    pub hold: String,
    /// Seconds left of its lease, or of the grace period if it is ending.
    pub left_seconds: Option<u64>,
}

/// A path of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPathView {
    /// Number of the member.
    pub rank: u32,
    /// Lowest rank of the host that receives.
    pub to: u32,
    /// Prefix that packets are sent to.
    pub prefix: String,
    /// Carriers, in the order in which they are visited.
    pub segments: Vec<String>,
    /// Names of the switches that the path crosses.
    pub via: Vec<String>,
    /// `in_force`, `waiting` or `refused`.
    pub state: String,
    /// Why it is not in force.
    pub why: Option<String>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::{Request, decode, encode};

    const JOIN: &str = concat!(
        r#"{"version":1,"request":"job","action":"join","job":{"id":"a","members":["#,
        r#"{"rank":0,"host":"h0","addresses":["2001:db8::1"]},{"rank":1,"host":"h1","addresses":["10.0.0.1"]}]},"#,
        r#""placement":{"job":"a","generation":1,"digest":"d","number":"n","bound":1.0,"busiest":1.5,"links":[["a_b",2]]},"#,
        r#""rank":0,"paths":[{"to":1,"prefix":"10.0.0.1/32","segments":["fcbb:0:1:fe04::"],"via":["leaf00"]}],"hold":HOLD}"#
    );

    fn hold_of(request: &JobRequest) -> Hold {
        let JobRequest::Join { hold, .. } = request else { unreachable!("{request:?}") };
        *hold
    }

    #[test]
    fn every_way_to_hold_a_rank_is_read() {
        let hold = |text: &str| match decode::<Request>(&JOIN.replace("HOLD", text)) {
            Ok(Request::Job(request)) => hold_of(&request),
            other => unreachable!("{text}: {other:?}"),
        };
        assert_eq!(hold("\"process\""), Hold::Word(HoldWord::Process));
        assert_eq!(hold("\"end\""), Hold::Word(HoldWord::End));
        assert_eq!(hold("{\"process\":7}"), Hold::Process { process: 7 });
        assert_eq!(hold("{\"seconds\":60}"), Hold::Seconds { seconds: 60 });
        assert!(decode::<Request>(&JOIN.replace("HOLD", "\"ever\"")).is_err());
        let without = JOIN.replace(",\"hold\":HOLD", "");
        let Ok(Request::Job(request)) = decode::<Request>(&without) else { unreachable!("{without}") };
        assert_eq!(hold_of(&request), Hold::Word(HoldWord::Process));
    }

    #[test]
    fn a_request_survives_the_line() {
        for request in [
            JobRequest::Occupancy,
            JobRequest::Show { job: None },
            JobRequest::End { job: "a".to_owned(), rank: Some(3) },
            JobRequest::Commit { job: "a".to_owned(), generation: 2 },
            JobRequest::Replace { job: "a".to_owned(), others: Vec::new() },
        ] {
            let line = encode(Request::Job(Box::new(request.clone()))).unwrap();
            assert_eq!(decode::<Request>(&line).unwrap(), Request::Job(Box::new(request)));
        }
        let line = encode(Request::Job(Box::new(JobRequest::Occupancy))).unwrap();
        assert_eq!(line, "{\"version\":1,\"request\":\"job\",\"action\":\"occupancy\"}\n");
    }

    #[test]
    fn an_unknown_key_of_a_job_is_refused() {
        let text = JOIN.replace("HOLD", "\"end\"").replace("\"id\":\"a\"", "\"id\":\"a\",\"stages\":[]");
        assert!(decode::<Request>(&text).unwrap_err().to_string().contains("unknown field `stages`"));
    }
}
