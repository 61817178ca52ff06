//! Limits on ICMP errors (RFC 4443 section 2.4 f), so that one sender cannot use up the budgets of others.
//!
//! ```text
//! port the packet came by ─► Packet Too Big    ─► all of them, and each receiver's
//!                         └► every other error ─► all of them, and each receiver's
//! ```
//!
//! Without Packet Too Big messages a connection stands still, so no other error takes from their budget. A receiver
//! is an IPv4 address or an IPv6 /64. Several receivers may share a budget, because a hash tells them apart.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use crate::desired::PortId;

/// Number of receiver budgets, per port and kind of error.
const RECEIVERS: usize = 64;
/// The budget of a port for one kind of error, as a multiple of the budget of one receiver.
const PORT_SHARE: u32 = 4;

/// The budget that an error is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// Packet Too Big, or fragmentation needed.
    TooBig,
    /// Any other error.
    Other,
}

/// The current time, and how many errors per second one receiver may get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Nanoseconds of a clock that never goes back.
    pub(crate) now: u64,
    /// Errors per second. 0 means none.
    pub(crate) rate: u32,
}

/// A token bucket, as a generic cell rate algorithm. Its burst is a tenth of a second, and at least ten tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket {
    next: u64,
}

impl Bucket {
    /// Takes a token, if there is one at `now` (nanoseconds).
    pub fn take(&mut self, now: u64, per_second: u32) -> bool {
        let admitted = self.has(now, per_second);
        if admitted {
            self.next = self.next.max(now) + 1_000_000_000 / u64::from(per_second.max(1));
        }
        admitted
    }

    fn has(self, now: u64, per_second: u32) -> bool {
        let Some(interval) = 1_000_000_000u64.checked_div(u64::from(per_second)) else { return false };
        let burst = interval * u64::from((per_second / 10).max(10));
        self.next.max(now) - now < burst
    }
}

/// The budgets of one port for one kind of error.
#[derive(Clone, Debug)]
struct Budget {
    all: Bucket,
    receivers: [Bucket; RECEIVERS],
}

impl Default for Budget {
    fn default() -> Self {
        Self { all: Bucket::default(), receivers: [Bucket::default(); RECEIVERS] }
    }
}

impl Budget {
    fn admits(&mut self, receiver: usize, Pace { now, rate }: Pace) -> bool {
        let Some(own) = self.receivers.get_mut(receiver % RECEIVERS) else { return false };
        own.has(now, rate) && self.all.take(now, rate.saturating_mul(PORT_SHARE)) && own.take(now, rate)
    }
}

/// Limits the ICMP errors that one worker sends.
#[derive(Clone, Debug, Default)]
pub struct Limiter {
    /// Two budgets by port: for Packet Too Big, and for all other errors.
    ports: Vec<[Budget; 2]>,
    /// Random keys, so that a sender does not know who shares a budget with it.
    hash: RandomState,
}

impl Limiter {
    /// Charges one error about a packet that came by this port. Returns false if the budget is used up.
    pub(crate) fn admits(&mut self, (port, kind): (PortId, ErrorKind), receiver: IpAddr, pace: Pace) -> bool {
        let at = usize::from(port.0);
        if self.ports.len() <= at {
            self.ports.resize_with(at + 1, Default::default);
        }
        let Some([too_big, other]) = self.ports.get_mut(at) else { return false };
        let budget = if kind == ErrorKind::TooBig { too_big } else { other };
        #[allow(clippy::cast_possible_truncation, reason = "the lower bits of a hash are as good as all of them")]
        let receiver = self.hash.hash_one(site(receiver)) as usize;
        budget.admits(receiver, pace)
    }
}

/// Returns what one receiver's budget is for: an IPv4 address, or an IPv6 /64.
const fn site(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(v4) => v4.to_bits() as u64,
        #[allow(clippy::cast_possible_truncation, reason = "the upper half")]
        IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u32 = 100;

    fn host(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    /// Returns the number of errors that are admitted in a time span, with one attempt every 0.1 ms.
    fn admitted(limiter: &mut Limiter, budget: (u16, ErrorKind), receiver: IpAddr, (from, to): (u64, u64)) -> usize {
        let budget = (PortId(budget.0), budget.1);
        let moments = (from..to).step_by(100_000);
        moments.filter(|&now| limiter.admits(budget, receiver, Pace { now, rate: RATE })).count()
    }

    #[test]
    fn a_bucket_admits_a_burst_then_the_rate() {
        let mut bucket = Bucket::default();
        let mut admitted =
            |from: u64, to: u64| (from..to).step_by(100_000).filter(|&now| bucket.take(now, RATE)).count();
        assert_eq!(admitted(0, 1_000_000), 10, "ten in 0.1 ms each: the burst");
        let second = admitted(1_000_000, 1_001_000_000);
        assert!((98..=101).contains(&second), "{second} in the next second");
        assert!(!Bucket::default().take(0, 0));
    }

    #[test]
    fn neither_other_errors_nor_other_senders_nor_other_ports_use_up_a_budget() {
        let mut limiter = Limiter::default();
        let second = (0, 1_000_000_000);
        // Choose a receiver that does not share a budget with the one that is flooded.
        let site_of = |limiter: &Limiter, receiver| limiter.hash.hash_one(site(receiver)) % RECEIVERS as u64;
        let other = (2..=255).map(host).find(|other| site_of(&limiter, *other) != site_of(&limiter, host(1)));
        let other = other.unwrap_or(host(2));
        let flooded = admitted(&mut limiter, (0, ErrorKind::Other), host(1), second);
        assert!((100..=120).contains(&flooded), "{flooded}");
        let at_the_end = (1_000_000_000, 1_000_100_000);
        assert_eq!(admitted(&mut limiter, (0, ErrorKind::Other), host(1), at_the_end), 0, "used up");
        for (budget, receiver) in
            [((0, ErrorKind::TooBig), host(1)), ((0, ErrorKind::Other), other), ((1, ErrorKind::Other), host(1))]
        {
            assert_eq!(admitted(&mut limiter, budget, receiver, at_the_end), 1, "{budget:?} {receiver}");
        }
    }

    #[test]
    fn many_senders_together_have_a_budget_too() {
        let mut limiter = Limiter::default();
        let all: usize =
            (0..=255).map(|number| admitted(&mut limiter, (0, ErrorKind::TooBig), host(number), (0, 100_000))).sum();
        assert_eq!(all, 40, "the burst of four times the rate");
    }
}
