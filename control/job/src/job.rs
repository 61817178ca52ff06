//! What the members of a job agree on.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::fmt::Write;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::refused::{Code, Refused};
use crate::{MOST_FLOWS, MOST_MEMBERS, MOST_PHASES};

/// Longest id of a job, in bytes.
const LONGEST_ID: usize = 64;
/// Longest name of a host, a spine or a plane, in bytes.
const LONGEST_NAME: usize = 256;
/// Most addresses of a member.
const MOST_ADDRESSES: usize = 8;
/// Highest priority.
const HIGHEST_PRIORITY: u8 = 7;
/// Largest demand of a flow. The sum over all flows of the largest job is below 2^53.
const LARGEST_DEMAND: u64 = 1 << 32;

/// A job: its members, and who sends to whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Name of the job, unique among the jobs of a host.
    pub id: String,
    /// Number of this version of the job. A version that replaces another one has a higher number.
    #[serde(default = "one")]
    pub generation: u64,
    /// Name of the tenant, which is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Importance from 0 to 7. Where jobs have to share links, those of less important ones count as free.
    #[serde(default)]
    pub priority: u8,
    /// Who sends to whom, by ranks.
    #[serde(default)]
    pub pattern: Pattern,
    /// Flows beside those of the pattern.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<Pair>,
    /// Demand of each flow of the pattern, in the unit of capacities.
    #[serde(default = "one")]
    pub demand: u64,
    /// Phases that follow each other, instead of `pattern`, `pairs` and `demand`: what they send never adds up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// Number of hops by which a path may be longer than the shortest one.
    #[serde(default)]
    pub detour: usize,
    /// Seed of the permutation, and of random choices of the placement.
    #[serde(default = "one")]
    pub seed: u64,
    /// The only switches that the job may cross, in each tier that has a switch in this list. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spines: Vec<String>,
    /// The only planes that the job may cross. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub planes: Vec<String>,
    /// The members. Their ranks are the numbers from 0 on, each once.
    pub members: Vec<Member>,
}

const fn one() -> u64 {
    1
}

/// One phase of a job: who sends to whom at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Who sends to whom, by ranks.
    #[serde(default)]
    pub pattern: Pattern,
    /// Flows beside those of the pattern.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<Pair>,
    /// Demand of each flow of the pattern, in the unit of capacities.
    #[serde(default = "one")]
    pub demand: u64,
}

/// Who sends to whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Each rank sends to the next one, and the last one to the first.
    Ring,
    /// Each rank sends to every other one.
    #[default]
    AllToAll,
    /// Each rank sends to one other and receives from one other, drawn by the seed.
    Permutation,
    /// Only `pairs` send.
    Pairs,
}

impl Pattern {
    /// Returns the name of the pattern in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::AllToAll => "all-to-all",
            Self::Permutation => "permutation",
            Self::Pairs => "pairs",
        }
    }
}

/// A flow between two ranks: `[0, 1]`, or `[0, 1, 4]` with its demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "no pair: write [FROM, TO] or [FROM, TO, DEMAND], with ranks")]
pub enum Pair {
    /// Sender and receiver.
    Short(u32, u32),
    /// Sender, receiver and demand.
    Weighted(u32, u32, u64),
}

impl Pair {
    /// Returns the ranks of sender and receiver.
    pub const fn ranks(self) -> [u32; 2] {
        match self {
            Self::Short(from, to) | Self::Weighted(from, to, _) => [from, to],
        }
    }
}

/// One member of a job: a rank, its host, and the addresses that others send to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Number of the member, from 0 on.
    pub rank: u32,
    /// Name, key or id of its host in the topology. Members with the same host share its paths.
    pub host: String,
    /// Addresses and prefixes that others send to.
    pub addresses: Vec<Address>,
}

/// An address or a prefix: `2001:db8::1`, `2001:db8:1::/64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub IpNet);

impl Address {
    /// Reads an address or a prefix.
    ///
    /// # Errors
    /// The text is neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<std::net::IpAddr>() {
            return Ok(Self(address.into()));
        }
        let wrong = |_| format!("{text:?} is no address: write e.g. \"2001:db8::1\" or \"2001:db8:1::/64\"");
        let prefix: IpNet = text.parse().map_err(wrong)?;
        if prefix.trunc() != prefix {
            return Err(format!("{text:?} has bits behind its prefix length: write {}", prefix.trunc()));
        }
        Ok(Self(prefix))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl Phase {
    /// Checks demands and pairs of a job with so many members.
    fn check(&self, size: usize) -> Result<(), Refused> {
        let weights = self.pairs.iter().filter_map(|pair| match pair {
            Pair::Weighted(_, _, demand) => Some(*demand),
            Pair::Short(..) => None,
        });
        if let Some(demand) = weights.chain([self.demand]).find(|demand| !(1..=LARGEST_DEMAND).contains(demand)) {
            return invalid(format!("a demand of {demand}: write 1 to {LARGEST_DEMAND}"));
        }
        let is_rank = |rank: u32| (rank as usize) < size;
        for pair in &self.pairs {
            let [from, to] = pair.ranks();
            if !is_rank(from) || !is_rank(to) || from == to {
                return invalid(format!("pair [{from}, {to}]: write two different ranks below {size}"));
            }
        }
        if self.pattern == Pattern::Pairs && self.pairs.is_empty() {
            return invalid("pattern \"pairs\" without `pairs`: list them, or choose another pattern");
        }
        Ok(())
    }
}

impl Job {
    /// Checks everything that can be wrong without knowing the fabric.
    ///
    /// # Errors
    /// `invalid_job` or `too_large`.
    pub fn check(&self) -> Result<(), Refused> {
        check_id("id", &self.id)?;
        if let Some(tenant) = &self.tenant {
            check_id("tenant", tenant)?;
        }
        if self.generation == 0 {
            return invalid("generation is 0: the first one is 1");
        }
        if self.priority > HIGHEST_PRIORITY {
            return invalid(format!("priority {} is above {HIGHEST_PRIORITY}: write 0 to 7", self.priority));
        }
        let is_given = self.pattern != Pattern::default() || !self.pairs.is_empty() || self.demand != 1;
        if !self.phases.is_empty() && is_given {
            return invalid("`pattern`, `pairs` or `demand` beside `phases`: write them in each phase");
        }
        if self.phases.len() > MOST_PHASES {
            let why = format!("{} phases: at most {MOST_PHASES} are read", self.phases.len());
            return Err(Refused::new(Code::TooLarge, why));
        }
        self.check_members()?;
        self.all_phases().iter().try_for_each(|phase| phase.check(self.members.len()))?;
        for name in self.spines.iter().chain(&self.planes) {
            check_name("spines and planes", name)?;
        }
        let pairs = self.all_phases().iter().map(|phase| phase.pairs.len()).sum::<usize>();
        if pairs > MOST_FLOWS || self.spines.len().max(self.planes.len()) > MOST_MEMBERS {
            let why = format!("{pairs} pairs, {} spines", self.spines.len());
            return Err(Refused::new(
                Code::TooLarge,
                format!("{why}: at most {MOST_FLOWS} and {MOST_MEMBERS} are read"),
            ));
        }
        Ok(())
    }

    /// Returns the phases, of which a job without any has one.
    pub fn all_phases(&self) -> Cow<'_, [Phase]> {
        if !self.phases.is_empty() {
            return Cow::Borrowed(&self.phases);
        }
        let Self { pattern, pairs, demand, .. } = self;
        Cow::Owned(vec![Phase { pattern: *pattern, pairs: pairs.clone(), demand: *demand }])
    }

    fn check_members(&self) -> Result<(), Refused> {
        let size = self.members.len();
        if size > MOST_MEMBERS {
            let why =
                format!("{size} members: a job has at most {MOST_MEMBERS}; give hosts with several ranks one member");
            return Err(Refused::new(Code::TooLarge, why));
        }
        if size < 2 {
            return invalid(format!("{size} members: a job has at least two"));
        }
        let mut seen = vec![false; size];
        let mut owners: HashMap<Address, &str> = HashMap::new();
        for member in &self.members {
            let Member { rank, host, addresses } = member;
            check_name(&format!("host of rank {rank}"), host)?;
            match seen.get_mut(*rank as usize) {
                Some(seen) if !*seen => *seen = true,
                Some(_) => return invalid(format!("rank {rank} is there twice: each rank is one member")),
                None => return invalid(format!("rank {rank} of {size} members: ranks are 0 to {}", size - 1)),
            }
            if !(1..=MOST_ADDRESSES).contains(&addresses.len()) {
                let why = format!("rank {rank} has {} addresses: write 1 to {MOST_ADDRESSES}", addresses.len());
                return invalid(why);
            }
            for address in addresses {
                let owner = *owners.entry(*address).or_insert(host);
                if owner != host {
                    let why = format!("{address} is of {owner} and of {host}: an address belongs to one host");
                    return invalid(why);
                }
            }
        }
        Ok(())
    }

    /// Returns the digest of the job in hexadecimal. It does not depend on the order of the members, nor on how an
    /// address is written.
    pub fn digest(&self) -> String {
        let mut ordered = self.clone();
        ordered.members.sort_by_key(|member| member.rank);
        for member in &mut ordered.members {
            member.addresses.sort_unstable();
            member.addresses.dedup();
        }
        // A job is data without maps, so it can always be written.
        let text = serde_json::to_vec(&ordered).unwrap_or_default();
        hex(&Sha256::digest(text))
    }

    /// Returns the member of a rank.
    pub fn member(&self, rank: u32) -> Option<&Member> {
        let likely = self.members.get(rank as usize).filter(|member| member.rank == rank);
        likely.or_else(|| self.members.iter().find(|member| member.rank == rank))
    }
}

/// Returns the first 128 bits in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().take(16).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Checks an id: 1 to 64 letters, digits, `.`, `_` and `-`, beginning with a letter or digit.
pub(crate) fn check_id(what: &str, id: &str) -> Result<(), Refused> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let starts = id.chars().next().is_some_and(|first| first.is_ascii_alphanumeric());
    if starts && id.len() <= LONGEST_ID && id.chars().all(fits) {
        return Ok(());
    }
    let shown: String = id.chars().take(LONGEST_ID).collect();
    invalid(format!(
        "{what} {shown:?}: write 1 to {LONGEST_ID} letters, digits, `.`, `_` and `-`, beginning with a letter or digit"
    ))
}

pub(crate) fn check_name(what: &str, name: &str) -> Result<(), Refused> {
    if (1..=LONGEST_NAME).contains(&name.len()) && !name.chars().any(char::is_control) {
        return Ok(());
    }
    let shown: String = name.chars().take(40).collect();
    invalid(format!("{what}: {shown:?} is no name: write 1 to {LONGEST_NAME} bytes without control characters"))
}

pub(crate) fn invalid<T>(why: impl Into<String>) -> Result<T, Refused> {
    Err(Refused::new(Code::InvalidJob, why))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]
    use super::*;

    fn job(text: &str) -> Job {
        serde_json::from_str(text).unwrap()
    }

    const TWO: &str = r#"{"id":"a","members":[{"rank":0,"host":"h0","addresses":["2001:db8::1"]},
        {"rank":1,"host":"h1","addresses":["2001:db8:1::/64","10.0.0.1"]}]}"#;

    fn ring_phase() -> Phase {
        Phase { pattern: Pattern::Ring, pairs: Vec::new(), demand: 1 }
    }

    #[test]
    fn a_digest_is_of_what_is_meant_and_not_of_how_it_is_written() {
        let one = job(TWO);
        one.check().unwrap();
        let mut other = one.clone();
        other.members.reverse();
        other.members[0].addresses.reverse();
        assert_eq!(one.digest(), other.digest());
        assert_eq!(one.digest().len(), 32);
        for change in [
            |job: &mut Job| job.generation = 2,
            |job: &mut Job| job.members[1].host = "h2".to_owned(),
            |job: &mut Job| job.pattern = Pattern::Ring,
            |job: &mut Job| job.phases = vec![ring_phase()],
            |job: &mut Job| job.members[1].addresses.truncate(1),
        ] {
            let mut changed = one.clone();
            change(&mut changed);
            assert_ne!(one.digest(), changed.digest());
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let refused = |change: fn(&mut Job), says: &str| {
            let mut job = job(TWO);
            change(&mut job);
            let why = job.check().unwrap_err();
            assert!(why.why.contains(says), "{why} does not say {says}");
            why.code
        };
        let invalid = Code::InvalidJob;
        assert_eq!(refused(|job| job.id = "../x".to_owned(), "letters, digits"), invalid);
        assert_eq!(refused(|job| job.id = "x".repeat(65), "1 to 64"), invalid);
        assert_eq!(refused(|job| job.generation = 0, "generation is 0"), invalid);
        assert_eq!(refused(|job| job.priority = 8, "write 0 to 7"), invalid);
        assert_eq!(refused(|job| job.demand = 0, "demand of 0"), invalid);
        assert_eq!(refused(|job| job.pairs = vec![Pair::Short(0, 2)], "ranks below 2"), invalid);
        assert_eq!(refused(|job| job.pattern = Pattern::Pairs, "without `pairs`"), invalid);
        assert_eq!(refused(|job| job.members.truncate(1), "at least two"), invalid);
        assert_eq!(refused(|job| (job.demand, job.phases) = (2, vec![ring_phase()]), "beside `phases`"), invalid);
        assert_eq!(refused(|job| job.phases = vec![Phase { demand: 0, ..ring_phase() }], "demand of 0"), invalid);
        assert_eq!(refused(|job| job.phases = vec![ring_phase(); MOST_PHASES + 1], "at most 16"), Code::TooLarge);
        assert_eq!(refused(|job| job.members[1].rank = 0, "rank 0 is there twice"), invalid);
        assert_eq!(refused(|job| job.members[1].rank = 9, "ranks are 0 to 1"), invalid);
        assert_eq!(refused(|job| job.members[1].addresses.clear(), "0 addresses"), invalid);
        assert_eq!(refused(|job| job.members[1].host = "a\nb".to_owned(), "is no name"), invalid);
        let same = |job: &mut Job| job.members[1].addresses = job.members[0].addresses.clone();
        assert_eq!(refused(same, "belongs to one host"), invalid);
        let many = |job: &mut Job| job.members = vec![job.members[0].clone(); MOST_MEMBERS + 1];
        assert_eq!(refused(many, "at most 65536"), Code::TooLarge);
    }

    #[test]
    fn unknown_keys_and_wrong_addresses_are_refused_by_name() {
        let says = |text: &str| serde_json::from_str::<Job>(text).unwrap_err().to_string();
        assert!(says(r#"{"id":"a","stages":[],"members":[]}"#).contains("unknown field `stages`"));
        assert!(says(&TWO.replace("10.0.0.1", "10.0.0.1/8")).contains("write 10.0.0.0/8"));
        assert!(says(&TWO.replace("10.0.0.1", "host7")).contains("is no address"));
    }
}
