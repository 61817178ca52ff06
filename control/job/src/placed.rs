//! What a placement says: to everybody, what the job takes of the fabric; to each rank, its own paths.

use std::collections::HashSet;
use std::net::Ipv6Addr;

use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::checked::CheckedJob;
use crate::job::{Address, check_id, check_name, hex};
use crate::refused::{Code, Refused};
use crate::{MOST_LINKS, MOST_PATHS, MOST_PHASES};

/// Longest list of segments, which is the longest outer header that is built.
const MOST_SEGMENTS: usize = 8;
/// Most switches that a path names.
const MOST_SWITCHES: usize = 64;
/// Most jobs that a placement shares links with, and most links that it names of each.
const MOST_SHARES: usize = 4096;

/// A placement of a whole job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// Id of the job.
    pub job: String,
    /// Generation of the job.
    pub generation: u64,
    /// Digest of the job that was placed.
    pub digest: String,
    /// Digest of the paths of all ranks.
    pub number: String,
    /// No placement of the job alone has less on its busiest link.
    pub bound: f64,
    /// Load per capacity of the busiest link of the job, with the other jobs that it must respect.
    pub busiest: f64,
    /// Name of that link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busiest_link: Option<String>,
    /// Loads of each phase, if the job has phases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseLoad>,
    /// Keys of the links that the job takes, each with its load, in the phase in which that is highest.
    pub links: Vec<(String, u64)>,
    /// Jobs with which it shares links.
    #[serde(default)]
    pub shares: Vec<Share>,
    /// Changes to the earlier placement, if the job was placed again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<Replaces>,
}

/// What a phase carries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseLoad {
    /// No placement of the phase alone has less on its busiest link.
    pub bound: f64,
    /// Load per capacity of its busiest link, with the other jobs that the job must respect.
    pub busiest: f64,
}

/// How a placement differs from an earlier one of the same job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaces {
    /// Generation of the earlier one.
    pub generation: u64,
    /// Number of flows between hosts.
    pub flows: usize,
    /// Number of them that take another path now.
    pub moved: usize,
    /// Number of them whose earlier path is gone.
    pub lost: usize,
}

/// The links that two jobs share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Id of the other job.
    pub job: String,
    /// Names of the links, such as `leaf00 -> spine01`.
    pub links: Vec<String>,
}

/// Paths of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankPaths {
    /// Number of the member.
    pub rank: u32,
    /// Paths to the members that it sends to.
    pub paths: Vec<RankPath>,
}

/// A path of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankPath {
    /// Lowest rank of the host that receives.
    pub to: u32,
    /// Prefix that packets are sent to.
    pub prefix: IpNet,
    /// Carriers, in the order in which they are visited.
    pub segments: Vec<Ipv6Addr>,
    /// Names of the switches that the path crosses.
    #[serde(default)]
    pub via: Vec<String>,
}

/// What a job occupies of the fabric, for others to be placed beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occupancy {
    /// Id of the job.
    pub id: String,
    /// Its generation.
    pub generation: u64,
    /// Name of its tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Its priority.
    #[serde(default)]
    pub priority: u8,
    /// Keys of the links that it takes, each with its load.
    pub links: Vec<(String, u64)>,
}

/// What jobs may do on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Prefixes that contain everything that jobs may steer.
    pub prefixes: Vec<IpNet>,
    /// Prefixes that contain all carriers. Empty: all that the blocks contain.
    pub carriers: Vec<Ipv6Net>,
    /// Blocks of this node. Empty: they are not known, and no carrier is refused for them.
    pub blocks: Vec<Ipv6Net>,
}

impl Limits {
    /// Checks that a job may steer the prefix of a path over its carriers.
    ///
    /// # Errors
    /// `prefix_not_allowed` or `carrier_not_allowed`, with the fix.
    pub fn allow(&self, prefix: &IpNet, segments: &[Ipv6Addr]) -> Result<(), Refused> {
        if !self.prefixes.iter().any(|allowed| allowed.contains(prefix)) {
            let why = format!("{prefix} lies in none of `[jobs] allowed_prefixes`: add it there if jobs may steer it");
            return Err(Refused::new(Code::PrefixNotAllowed, why));
        }
        let within =
            |nets: &[Ipv6Net], segment: &Ipv6Addr| nets.is_empty() || nets.iter().any(|net| net.contains(segment));
        for segment in segments {
            let why = if !within(&self.blocks, segment) {
                "lies in no [[block]] of this node: add the fabric's block, or correct the topology"
            } else if !within(&self.carriers, segment) {
                "lies in none of `[jobs] allowed_carriers`: add it there if jobs may use it"
            } else {
                continue;
            };
            return Err(Refused::new(Code::CarrierNotAllowed, format!("carrier {segment} {why}")));
        }
        Ok(())
    }
}

impl Placement {
    /// Checks that this is a placement of the job that a rank knows.
    ///
    /// # Errors
    /// A refusal that names the fix.
    pub fn check(&self, job: &CheckedJob) -> Result<(), Refused> {
        self.check_itself()?;
        let (digest, job) = (job.digest(), job.job());
        if self.job != job.id {
            let why =
                format!("the placement is of job {}, and {} joins: hand over the one of {}", self.job, job.id, job.id);
            return Err(Refused::new(Code::ForeignJob, why));
        }
        if self.digest != digest || self.generation != job.generation {
            return Err(Refused::new(
                Code::MembersDisagree,
                format!(
                    "a rank knows job {} as {digest}, generation {}; placed was {}, generation {}: all ranks must have \
                     the same members, addresses, pattern and other keys",
                    job.id, job.generation, self.digest, self.generation
                ),
            ));
        }
        Ok(())
    }

    /// Checks what the placement says by itself: sizes and names.
    pub(crate) fn check_itself(&self) -> Result<(), Refused> {
        if self.links.len() > MOST_LINKS {
            return large("links of a placement", MOST_LINKS);
        }
        if self.shares.len() > MOST_SHARES || self.shares.iter().any(|share| share.links.len() > MOST_SHARES) {
            return large("shared links of a placement", MOST_SHARES);
        }
        if self.phases.len() > MOST_PHASES {
            return large("phases of a placement", MOST_PHASES);
        }
        check_id("the placement's job", &self.job)?;
        check_id("the placement's digest", &self.digest)?;
        check_id("the placement's number", &self.number)?;
        let names = self.links.iter().map(|(key, _)| key).chain(&self.busiest_link);
        let names = names.chain(self.shares.iter().flat_map(|share| share.links.iter().chain([&share.job])));
        names.into_iter().try_for_each(|name| check_name("a link", name))
    }
}

impl CheckedJob {
    /// Checks that the paths of a rank fit its job, and what jobs may do here.
    ///
    /// # Errors
    /// A refusal that names the path and the fix.
    pub fn check_paths(&self, rank: u32, paths: &[RankPath], limits: &Limits) -> Result<(), Refused> {
        check_sizes(paths)?;
        let Some(own) = self.member(rank) else {
            let size = self.job().members.len();
            let why = format!("rank {rank} of {size} members: ranks are 0 to {}", size - 1);
            return Err(Refused::new(Code::InvalidJob, why));
        };
        let mut seen = HashSet::new();
        for path in paths {
            let foreign = |why: String| Err(Refused::new(Code::ForeignPrefix, why));
            let RankPath { to, prefix, segments, .. } = path;
            let Some(member) = self.member(*to) else {
                let id = &self.job().id;
                return foreign(format!("{prefix} is said to be of rank {to}, which job {id} does not have"));
            };
            // Ranks of one host share its paths.
            if self.host_of(&Address(*prefix)) != Some(&member.host) {
                let why = "a path leads to an address of the member that it names";
                return foreign(format!("{prefix} is no address of {}, the host of rank {to}: {why}", member.host));
            }
            if member.host == own.host {
                return foreign(format!(
                    "{prefix} is of {} itself: a host does not send to itself over the fabric",
                    own.host
                ));
            }
            if !seen.insert(prefix) {
                return foreign(format!("{prefix} is there twice: a rank has one path to each prefix"));
            }
            limits.allow(prefix, segments)?;
        }
        Ok(())
    }
}

fn large(what: &str, most: usize) -> Result<(), Refused> {
    Err(Refused::new(Code::TooLarge, format!("{what}: at most {most} are read")))
}

/// Checks what paths say by themselves: sizes and names.
pub(crate) fn check_sizes(paths: &[RankPath]) -> Result<(), Refused> {
    if paths.len() > MOST_PATHS {
        return large("paths of a rank", MOST_PATHS);
    }
    paths.iter().flat_map(|path| &path.via).try_for_each(|name| check_name("a switch", name))?;
    let wrong = |path: &RankPath| !(1..=MOST_SEGMENTS).contains(&path.segments.len()) || path.via.len() > MOST_SWITCHES;
    if let Some(path) = paths.iter().find(|path| wrong(path)) {
        let why = format!("{} segments to {}: a path has 1 to {MOST_SEGMENTS}", path.segments.len(), path.prefix);
        return Err(Refused::new(Code::CarrierNotAllowed, why));
    }
    Ok(())
}

impl Occupancy {
    /// Checks sizes and names of what a member handed over.
    ///
    /// # Errors
    /// `too_large` or `invalid_job`.
    pub fn check(&self) -> Result<(), Refused> {
        check_id("id of another job", &self.id)?;
        if self.links.len() > MOST_LINKS {
            let why = format!("links of {}: at most {MOST_LINKS} are read", self.id);
            return Err(Refused::new(Code::TooLarge, why));
        }
        self.links.iter().try_for_each(|(key, _)| check_name("a link", key))
    }
}

/// Returns the digest of the paths of all ranks, in hexadecimal. `digest` is that of the job.
pub fn fingerprint(digest: &str, assignments: impl IntoIterator<Item = RankPaths>) -> String {
    let mut hash = Sha256::new();
    hash.update(digest);
    for RankPaths { rank, paths } in assignments {
        hash.update(rank.to_be_bytes());
        for RankPath { to, prefix, segments, .. } in paths {
            hash.update(to.to_be_bytes());
            hash.update(prefix.to_string());
            hash.update((segments.len() as u64).to_be_bytes());
            for segment in &segments {
                hash.update(segment.octets());
            }
        }
    }
    hex(&hash.finalize())
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::job::Job;

    pub(crate) fn job(id: &str) -> Job {
        let text = format!(
            r#"{{"id":"{id}","members":[{{"rank":0,"host":"h0","addresses":["2001:db8::1"]}},
                {{"rank":1,"host":"h1","addresses":["2001:db8:1::/64","10.0.0.1"]}},
                {{"rank":2,"host":"h0","addresses":["2001:db8::2"]}}]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    pub(crate) fn limits() -> Limits {
        Limits {
            prefixes: vec!["2001:db8::/32".parse().unwrap(), "10.0.0.0/8".parse().unwrap()],
            carriers: Vec::new(),
            blocks: vec!["fcbb::/32".parse().unwrap()],
        }
    }

    pub(crate) fn placement(job: &Job, number: &str) -> Placement {
        Placement {
            job: job.id.clone(),
            generation: job.generation,
            digest: job.digest(),
            number: number.to_owned(),
            bound: 1.0,
            busiest: 1.0,
            busiest_link: None,
            phases: Vec::new(),
            links: vec![("a_b".to_owned(), 1)],
            shares: Vec::new(),
            replaces: None,
        }
    }

    pub(crate) fn path(to: u32, prefix: &str, segment: &str) -> RankPath {
        let segments = vec![segment.parse().unwrap()];
        RankPath { to, prefix: prefix.parse().unwrap(), segments, via: vec!["leaf".to_owned()] }
    }

    #[test]
    fn every_lie_is_refused_by_its_name() {
        let job = job("a");
        let right = vec![path(1, "2001:db8:1::/64", "fcbb:0:1:2:fe06::"), path(1, "10.0.0.1/32", "fcbb:0:1:2:fe04::")];
        let checked = |placement: Placement, rank, paths: &[RankPath], limits: &Limits| {
            let checked = CheckedJob::new(job.clone()).unwrap();
            let done = placement.check(&checked).and_then(|()| checked.check_paths(rank, paths, limits));
            done.map_err(|refused| refused.code)
        };
        let good = || placement(&job, "1");
        let limits = limits();
        assert_eq!(checked(good(), 0, &right, &limits), Ok(()));
        assert_eq!(checked(good(), 2, &right, &limits), Ok(()), "rank 2 is on the host of rank 0");
        let other = Placement { job: "b".to_owned(), ..good() };
        assert_eq!(checked(other, 0, &right, &limits), Err(Code::ForeignJob));
        let other = Placement { digest: "0".to_owned(), ..good() };
        assert_eq!(checked(other, 0, &right, &limits), Err(Code::MembersDisagree));
        assert_eq!(checked(Placement { generation: 2, ..good() }, 0, &right, &limits), Err(Code::MembersDisagree));
        assert_eq!(checked(good(), 3, &right, &limits), Err(Code::InvalidJob));
        let cases = [
            (path(1, "2001:db8:2::/64", "fcbb:0:1::"), Code::ForeignPrefix),
            (path(7, "2001:db8:1::/64", "fcbb:0:1::"), Code::ForeignPrefix),
            (path(2, "2001:db8::2/128", "fcbb:0:1::"), Code::ForeignPrefix),
            (path(1, "2001:db8:1::/64", "2001:db8:9::1"), Code::CarrierNotAllowed),
        ];
        for (lie, code) in cases {
            assert_eq!(checked(good(), 0, &[lie], &limits), Err(code));
        }
        assert_eq!(checked(good(), 0, &[right[0].clone(), right[0].clone()], &limits), Err(Code::ForeignPrefix));
        let none = RankPath { segments: Vec::new(), ..right[0].clone() };
        assert_eq!(checked(good(), 0, &[none], &limits), Err(Code::CarrierNotAllowed));
        let closed = Limits { prefixes: Vec::new(), ..limits.clone() };
        assert_eq!(checked(good(), 0, &right, &closed), Err(Code::PrefixNotAllowed));
        let narrow = Limits { carriers: vec!["fcbb:0:7::/48".parse().unwrap()], ..limits.clone() };
        assert_eq!(checked(good(), 0, &right, &narrow), Err(Code::CarrierNotAllowed));
        let many = vec![right[0].clone(); MOST_PATHS + 1];
        assert_eq!(checked(good(), 0, &many, &limits), Err(Code::TooLarge));
        let named = Placement { links: vec![("\u{1b}[2J".to_owned(), 1)], ..good() };
        assert_eq!(checked(named, 0, &right, &limits), Err(Code::InvalidJob));
    }

    #[test]
    fn a_fingerprint_is_of_every_path() {
        let one = vec![RankPaths { rank: 0, paths: vec![path(1, "2001:db8:1::/64", "fcbb:0:1::")] }];
        let other = vec![RankPaths { rank: 0, paths: vec![path(1, "2001:db8:1::/64", "fcbb:0:2::")] }];
        assert_eq!(fingerprint("x", one.clone()), fingerprint("x", one.clone()));
        assert_ne!(fingerprint("x", one.clone()), fingerprint("x", other));
        assert_ne!(fingerprint("x", one.clone()), fingerprint("y", one));
    }
}
