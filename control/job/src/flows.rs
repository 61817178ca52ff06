//! The flows of a job between hosts of the topology.

use std::collections::BTreeMap;

use srv6d_random::SplitMix64;

use crate::MOST_FLOWS;
use crate::job::{Job, Pair, Pattern, Phase};
use crate::refused::{Code, Refused};

/// What one host sends to another one: the sum over all of their ranks. All of it takes one path, because packets to an
/// address of the receiver are steered by that address alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostFlow {
    /// Number of the host that sends.
    pub from: usize,
    /// Number of the host that receives.
    pub to: usize,
    /// Demand, in the unit of capacities.
    pub demand: u64,
}

/// Returns the flows of each phase of a job that is checked, ordered by sender and receiver. `host_of` has the number of each
/// rank's host. What stays within a host is no flow.
///
/// # Errors
/// `too_large`: there are more than [`MOST_FLOWS`].
pub fn flows(job: &Job, host_of: &[usize]) -> Result<Vec<Vec<HostFlow>>, Refused> {
    let mut phases = Vec::new();
    let mut left = MOST_FLOWS;
    for (phase, seed) in job.all_phases().iter().zip(job.seed..) {
        let flows = of_phase(phase, seed, host_of, left)?;
        left -= flows.len();
        phases.push(flows);
    }
    Ok(phases)
}

/// Returns the flows of one phase, at most `most`.
fn of_phase(phase: &Phase, seed: u64, host_of: &[usize], most: usize) -> Result<Vec<HostFlow>, Refused> {
    let mut demands: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    let mut add = |from: usize, to: usize, demand: u64| {
        if from != to {
            // A sum that is too large is refused when the flows are placed.
            let sum = demands.entry((from, to)).or_default();
            *sum = sum.saturating_add(demand);
        }
        if demands.len() > most { Err(too_many()) } else { Ok(()) }
    };
    let host = |rank: usize| host_of.get(rank).copied().unwrap_or_default();
    let size = host_of.len();
    match phase.pattern {
        Pattern::Ring => (0..size).try_for_each(|rank| add(host(rank), host((rank + 1) % size), phase.demand))?,
        Pattern::Permutation => {
            let to = permutation(size, seed);
            to.iter().enumerate().try_for_each(|(rank, to)| add(host(rank), host(*to), phase.demand))?;
        }
        Pattern::AllToAll => {
            let mut ranks: BTreeMap<usize, u64> = BTreeMap::new();
            for host in host_of {
                *ranks.entry(*host).or_default() += 1;
            }
            for (from, senders) in &ranks {
                for (to, receivers) in &ranks {
                    add(*from, *to, (senders * receivers).saturating_mul(phase.demand))?;
                }
            }
        }
        Pattern::Pairs => {}
    }
    for pair in &phase.pairs {
        let [from, to] = pair.ranks().map(|rank| host(rank as usize));
        let demand = if let Pair::Weighted(_, _, demand) = pair { *demand } else { phase.demand };
        add(from, to, demand)?;
    }
    Ok(demands.into_iter().map(|((from, to), demand)| HostFlow { from, to, demand }).collect())
}

fn too_many() -> Refused {
    let fix = "leave out members, or choose a pattern with fewer flows";
    Refused::new(Code::TooLarge, format!("more than {MOST_FLOWS} flows between hosts: {fix}"))
}

/// Returns a permutation in which no rank sends to itself: one cycle through all ranks (Sattolo).
fn permutation(size: usize, seed: u64) -> Vec<usize> {
    let mut random = SplitMix64::new(seed);
    let mut to: Vec<usize> = (0..size).collect();
    for last in (1..size).rev() {
        // The remainder is below `last`, which is a usize; the bias is below 2^-47.
        let other = usize::try_from(random.draw() % last as u64).unwrap_or_default();
        to.swap(last, other);
    }
    to
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]
    use super::*;

    fn job(pattern: &str, pairs: &str) -> Job {
        let member = |rank| format!(r#"{{"rank":{rank},"host":"h","addresses":["2001:db8::1"]}}"#);
        let members: Vec<String> = (0..4).map(member).collect();
        let text = format!(r#"{{"id":"a","pattern":"{pattern}","pairs":{pairs},"members":[{}]}}"#, members.join(","));
        serde_json::from_str(&text).unwrap()
    }

    fn of(pattern: &str, pairs: &str, host_of: &[usize]) -> Vec<(usize, usize, u64)> {
        let flows = flows(&job(pattern, pairs), host_of).unwrap();
        assert_eq!(flows.len(), 1, "one phase");
        flows[0].iter().map(|flow| (flow.from, flow.to, flow.demand)).collect()
    }

    #[test]
    fn ranks_of_one_host_send_together() {
        assert_eq!(of("ring", "[]", &[0, 1, 2, 3]), [(0, 1, 1), (1, 2, 1), (2, 3, 1), (3, 0, 1)]);
        assert_eq!(of("ring", "[]", &[0, 0, 1, 1]), [(0, 1, 1), (1, 0, 1)]);
        assert_eq!(of("all-to-all", "[]", &[0, 0, 0, 1]), [(0, 1, 3), (1, 0, 3)]);
        assert_eq!(of("pairs", "[[0,1],[0,1,4],[2,3]]", &[0, 1, 2, 2]), [(0, 1, 5)]);
    }

    #[test]
    fn every_phase_has_its_flows() {
        let mut job = job("all-to-all", "[]");
        job.phases =
            serde_json::from_str(r#"[{"pattern":"ring","demand":3},{"pattern":"pairs","pairs":[[0,1]]}]"#).unwrap();
        let flows = flows(&job, &[0, 1, 2, 3]).unwrap();
        assert_eq!(flows.iter().map(Vec::len).collect::<Vec<_>>(), [4, 1]);
        assert_eq!([flows[0][0].demand, flows[1][0].demand], [3, 1]);
    }

    #[test]
    fn a_permutation_leaves_no_rank_alone() {
        for seed in 0..50 {
            let to = permutation(7, seed);
            let mut sorted = to.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..7).collect::<Vec<_>>());
            assert!(to.iter().enumerate().all(|(from, to)| from != *to), "{to:?}");
        }
        assert_ne!(permutation(7, 1), permutation(7, 2));
    }

    #[test]
    fn too_many_flows_are_refused_before_they_are_made() {
        let host_of: Vec<usize> = (0..2000).collect();
        assert_eq!(flows(&job("all-to-all", "[]"), &host_of).unwrap_err().code, Code::TooLarge);
    }
}
