//! Patterns of traffic: who sends to whom.

use fastrand::Rng;

use crate::agenda::{PS_PER_NS, Ps};
use crate::job::Job;
use crate::settings::{Case, Traffic};
use crate::shape::Shape;

/// Returns the jobs of a case.
pub(crate) fn jobs(case: &Case, shape: Shape, random: &mut Rng) -> Vec<Job> {
    let hosts = hosts(case, shape);
    let mut jobs = match case.traffic {
        Traffic::Permutation => permutation(&hosts, shape, random),
        Traffic::Ring => ring(&hosts),
        Traffic::AllToAll => all_to_all(&hosts),
        Traffic::Incast { senders } => incast(case, shape, senders),
    };
    let spread = u64::try_from(case.spread.as_nanos()).unwrap_or(0).saturating_mul(PS_PER_NS);
    for job in &mut jobs {
        job.start = random.u64(0..=spread);
    }
    jobs
}

/// Returns the hosts that take part: the first one of each leaf, then the second ones, and so on. Neighbours in this order are
/// at different leaves.
fn hosts(case: &Case, shape: Shape) -> Vec<u32> {
    (0..case.hosts).flat_map(|place| (0..shape.leaves).map(move |leaf| leaf * shape.hosts + place)).collect()
}

fn onto<'a>(sources: &'a [u32], destinations: &'a [u32]) -> impl Iterator<Item = Job> {
    sources.iter().zip(destinations).map(|(source, destination)| Job::new(*source, *destination))
}

fn permutation(hosts: &[u32], shape: Shape, random: &mut Rng) -> Vec<Job> {
    let mut destinations = hosts.to_vec();
    random.shuffle(&mut destinations);
    let is_local = |source: u32, destination: u32| shape.leaf_of(source) == shape.leaf_of(destination);
    for (at, source) in hosts.iter().enumerate() {
        // Every leaf has equally many hosts, so there is another place to swap this one with.
        let mut other = random.usize(0..hosts.len());
        for _ in 0..hosts.len() {
            let pair =
                destinations.get(at).copied().zip(destinations.get(other).copied()).zip(hosts.get(other).copied());
            let Some(((own, theirs), their_source)) = pair.filter(|((own, _), _)| is_local(*source, *own)) else {
                break;
            };
            if !is_local(*source, theirs) && !is_local(their_source, own) {
                destinations.swap(at, other);
            }
            other = (other + 1) % hosts.len();
        }
    }
    onto(hosts, &destinations).collect()
}

/// Returns the number of steps of an all-reduce in a ring.
const fn steps(hosts: u32) -> u32 {
    2 * (hosts - 1)
}

fn ring(hosts: &[u32]) -> Vec<Job> {
    let mut destinations = hosts.to_vec();
    destinations.rotate_left(1);
    let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    let job = |(number, job): (u32, Job)| Job { steps: steps(count), next: Some((number + 1) % count), ..job };
    (0..).zip(onto(hosts, &destinations)).map(job).collect()
}

/// Returns the jobs in which each host sends to each other host. Each host begins with another destination.
fn all_to_all(hosts: &[u32]) -> Vec<Job> {
    let mut jobs = Vec::with_capacity(hosts.len() * hosts.len());
    for (at, source) in hosts.iter().enumerate() {
        let (before, behind) = hosts.split_at(at);
        jobs.extend(behind.iter().skip(1).chain(before).map(|destination| Job::new(*source, *destination)));
    }
    jobs
}

fn incast(case: &Case, shape: Shape, senders: u32) -> Vec<Job> {
    let others = shape.leaves - 1;
    let sender = |number: u32| (1 + number % others) * shape.hosts + number / others;
    let mut jobs: Vec<Job> = (0..senders).map(|number| Job::new(sender(number), 0)).collect();
    if case.hosts > 1 {
        jobs.push(Job { is_victim: true, ..Job::new(sender(senders), 1) });
    }
    jobs
}

/// Returns the largest number of senders of an incast that leaves a host for the victim.
pub(crate) const fn most_senders(leaves: u32, hosts: u32) -> u32 {
    ((leaves - 1) * hosts).saturating_sub(1)
}

/// Returns the ideal time: how long the busiest host needs for what it sends or receives, if nothing slows it down.
#[allow(clippy::cast_precision_loss, reason = "a time to compare with")]
pub(crate) fn ideal(case: &Case, jobs: &[Job], host_rate: u64) -> f64 {
    let steps = jobs.first().map_or(1, |job| job.steps);
    let transfers = match case.traffic {
        Traffic::Permutation | Traffic::Ring => 1,
        Traffic::AllToAll => jobs.iter().filter(|job| job.source == 0).count(),
        Traffic::Incast { senders } => senders as usize,
    };
    transfers as f64 * f64::from(steps) * case.bytes as f64 * 8.0 / host_rate as f64
}

/// Returns the number of transfers of a case, and the number of steps of each.
pub(crate) fn size(case: &Case, leaves: u32) -> (u64, u64) {
    let hosts = u64::from(case.hosts) * u64::from(leaves);
    match case.traffic {
        Traffic::Permutation => (hosts, 1),
        Traffic::Ring => (hosts, 2 * hosts.saturating_sub(1)),
        Traffic::AllToAll => (hosts * hosts.saturating_sub(1), 1),
        Traffic::Incast { senders } => (u64::from(senders) + 1, 1),
    }
}

/// Returns the moment that is a number of seconds behind the start.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "within a day")]
pub(crate) fn moment(seconds: f64) -> Ps {
    (seconds * crate::agenda::PS_PER_SECOND as f64) as Ps
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::time::Duration;

    fn case(traffic: Traffic, hosts: u32) -> Case {
        let name = String::new();
        Case { name, traffic, hosts, bytes: 1000, spread: Duration::from_millis(1), fault: None, patience: 20 }
    }

    #[test]
    fn a_permutation_stays_at_no_leaf_and_meets_every_host_once() {
        for (leaves, hosts) in [(2, 1), (2, 8), (4, 8), (32, 32), (3, 2)] {
            let shape = Shape { leaves, spines: 4, hosts };
            for seed in 0..50 {
                let jobs = jobs(&case(Traffic::Permutation, hosts), shape, &mut Rng::with_seed(seed));
                let met: HashSet<u32> = jobs.iter().map(|job| job.destination).collect();
                assert_eq!(met.len(), jobs.len());
                assert!(jobs.iter().all(|job| shape.leaf_of(job.source) != shape.leaf_of(job.destination)));
            }
        }
    }

    #[test]
    fn a_ring_goes_once_around_all_hosts_and_leaves_the_leaf_with_every_step() {
        let shape = Shape { leaves: 4, spines: 4, hosts: 8 };
        let jobs = jobs(&case(Traffic::Ring, 6), shape, &mut Rng::with_seed(1));
        let mut at = 0;
        let mut met = HashSet::new();
        while met.insert(at) {
            let job = jobs.iter().find(|job| job.source == at).cloned().unwrap_or_default();
            assert_ne!(shape.leaf_of(job.source), shape.leaf_of(job.destination));
            assert_eq!(
                (job.steps, job.next.map(|next| jobs.get(next as usize).map(|next| next.source))),
                (46, Some(Some(job.destination)))
            );
            at = job.destination;
        }
        assert_eq!((met.len(), at), (24, 0));
    }

    #[test]
    fn an_incast_has_its_senders_at_other_leaves_and_a_victim_beside_the_receiver() {
        let shape = Shape { leaves: 4, spines: 4, hosts: 8 };
        let jobs = jobs(&case(Traffic::Incast { senders: 16 }, 8), shape, &mut Rng::with_seed(1));
        let sources: HashSet<u32> = jobs.iter().map(|job| job.source).collect();
        assert_eq!((sources.len(), jobs.iter().filter(|job| job.is_victim).count()), (17, 1));
        assert!(sources.iter().all(|source| shape.leaf_of(*source) != 0));
        assert!(jobs.iter().all(|job| job.destination == u32::from(job.is_victim)));
    }

    #[test]
    fn the_ideal_time_is_that_of_the_busiest_host() {
        let shape = Shape { leaves: 4, spines: 4, hosts: 8 };
        for (traffic, seconds) in [
            (Traffic::Permutation, 0.008),
            (Traffic::Ring, 62.0 * 0.008),
            (Traffic::AllToAll, 31.0 * 0.008),
            (Traffic::Incast { senders: 16 }, 16.0 * 0.008),
        ] {
            let case = case(traffic, 8);
            let jobs = jobs(&case, shape, &mut Rng::with_seed(1));
            assert!((ideal(&case, &jobs, 1_000_000) - seconds).abs() < 1e-9, "{traffic:?}");
            assert_eq!(size(&case, 4).0, jobs.len() as u64);
        }
    }
}
