//! Limits the neighbours that the kernel is asked for, so that a scan of a subnet prevents no other neighbour from
//! being found (RFC 6583).
//!
//! A request occupies a place until the kernel reports that the neighbour has resolved, or has given it up after
//! three solicitations. If no place is free, the oldest request that had time enough for an answer gives up its own.
//! An existing neighbour answers in a small part of that time. Any other is asked for again a second later, as the
//! kernel does, or when a place is free. Next hops, and neighbours that have answered before, have places of their
//! own.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Largest number of requests for unknown neighbours in one IPv6 /64 or IPv4 /24 of a device.
const PER_SUBNET: usize = 224;
/// Largest number of requests for unknown neighbours on one device.
const PER_DEVICE: usize = 256;
/// Largest number of requests for unknown neighbours on all devices: half of the entries that the kernel keeps by
/// default, in all network namespaces together.
const IN_ALL: usize = 512;
/// Time that a neighbour has for its answer before another request may take its place.
pub const ANSWER: Duration = Duration::from_millis(50);
/// Time after which a request no longer matters, if the kernel does not report its end. The kernel gives up after
/// three solicitations, a second apart.
const GIVEN_UP: Duration = Duration::from_millis(3500);
/// Largest number of neighbours without a place that are asked for as soon as there is one. Beyond it the oldest are
/// forgotten.
const POSTPONED: usize = 512;
/// Time after which a neighbour that has lost its place unanswered is asked for again, unless a place is free
/// earlier. The kernel repeats a solicitation after the same time (RFC 4861, `RetransTimer`).
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Largest number of neighbours that are recorded as having lost their places.
const UNANSWERED: usize = 8192;
/// Largest number of neighbours that are recorded as having answered before.
const REMEMBERED: usize = 4096;

/// A neighbour: index of its device, and its address.
pub type Key = (u32, IpAddr);
/// A device, and a subnet of it.
type Subnet = (u32, IpAddr);

/// The decision about a neighbour that packets wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The kernel is asked for it.
    Ask,
    /// The kernel is asked for it, and that other neighbour is given up.
    InPlaceOf(Key),
    /// Nothing is done, because it is being asked for or there is no place.
    Wait,
}

/// Requests that the kernel has not answered yet.
#[derive(Debug, Default)]
pub struct Resolutions {
    /// Time of each request.
    asked: HashMap<Key, Instant>,
    /// Requests for neighbours of which nothing is known, the oldest first.
    unknown: BTreeMap<Subnet, VecDeque<(Instant, Key)>>,
    /// Neighbours that had no place, the oldest first.
    postponed: VecDeque<Key>,
    /// Neighbours that have lost their places unanswered, with the time of that.
    unanswered: HashMap<Key, Instant>,
    /// Neighbours that have lost their places, in the order in which they lost them.
    given_up: VecDeque<(Instant, Key)>,
    answered: HashSet<Key>,
    /// Neighbours that have answered before, in the order of their first answers.
    order: VecDeque<Key>,
}

impl Resolutions {
    /// Decides what to do about a neighbour that packets wait for.
    pub fn admit(&mut self, key: Key, is_next_hop: bool, now: Instant) -> Admission {
        if self.asked.get(&key).is_some_and(|asked| now.duration_since(*asked) < GIVEN_UP) {
            return Admission::Wait;
        }
        self.end(key);
        if is_next_hop || self.answered.contains(&key) {
            self.asked.insert(key, now);
            return Admission::Ask;
        }
        let admission = self.place_for(key, now);
        // Packets to a scanned subnet are reported again whenever the tables change. Neighbours that had their chance
        // must not come before neighbours that nobody has asked for yet.
        if admission != Admission::Ask && self.has_lost_its_place(key, now) {
            return Admission::Wait;
        }
        if admission == Admission::Wait {
            self.postpone(key);
        }
        self.take_place(key, admission, now);
        admission
    }

    fn has_lost_its_place(&self, key: Key, now: Instant) -> bool {
        self.unanswered.get(&key).is_some_and(|lost| now.duration_since(*lost) < ASK_AGAIN)
    }

    fn lose_place(&mut self, key: Key, now: Instant) {
        self.end(key);
        self.unanswered.insert(key, now);
        self.given_up.push_back((now, key));
        while let Some(&(lost, oldest)) = self.given_up.front()
            && (self.given_up.len() > UNANSWERED || now.duration_since(lost) >= ASK_AGAIN)
        {
            self.given_up.pop_front();
            if self.unanswered.get(&oldest) == Some(&lost) {
                self.unanswered.remove(&oldest);
            }
        }
    }

    /// Returns the next neighbour that had to wait for a place and has one now.
    pub fn next_postponed(&mut self, now: Instant) -> Option<(Key, Admission)> {
        while let Some(key) = self.postponed.front().copied() {
            let is_asked_for = self.asked.contains_key(&key);
            let admission = if is_asked_for { Admission::Wait } else { self.place_for(key, now) };
            if !is_asked_for && admission == Admission::Wait {
                return None;
            }
            self.postponed.pop_front();
            if !is_asked_for {
                self.take_place(key, admission, now);
                return Some((key, admission));
            }
        }
        None
    }

    /// Returns true if neighbours wait for a place.
    pub fn has_postponed(&self) -> bool {
        !self.postponed.is_empty()
    }

    fn postpone(&mut self, key: Key) {
        if self.postponed.contains(&key) {
            return;
        }
        if self.postponed.len() >= POSTPONED {
            self.postponed.pop_front();
        }
        self.postponed.push_back(key);
    }

    fn take_place(&mut self, key: Key, admission: Admission, now: Instant) {
        if let Admission::InPlaceOf(other) = admission {
            self.lose_place(other, now);
        }
        if admission != Admission::Wait {
            self.asked.insert(key, now);
            self.unknown.entry(subnet(key)).or_default().push_back((now, key));
        }
    }

    /// Records that the kernel has resolved a neighbour, has given it up, or has forgotten it.
    pub fn settled(&mut self, key: Key, has_resolved: bool) {
        self.end(key);
        if has_resolved && self.answered.insert(key) {
            self.order.push_back(key);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.answered.remove(&oldest);
        }
    }

    /// Removes the requests that the kernel must have given up.
    pub fn expire(&mut self, now: Instant) {
        let old = self.asked.iter().filter(|(_, asked)| now.duration_since(**asked) >= GIVEN_UP);
        let old: Vec<Key> = old.map(|(key, _)| *key).collect();
        for key in old {
            self.end(key);
        }
    }

    /// Returns a free place, or that of the oldest request of the fullest subnet.
    fn place_for(&self, key: Key, now: Instant) -> Admission {
        let all = || self.unknown.iter().map(|(subnet, requests)| (*subnet, requests.len()));
        let on_device = || all().filter(|((ifindex, _), _)| *ifindex == key.0);
        let in_subnet = self.unknown.get(&subnet(key)).map_or(0, VecDeque::len);
        let most = |counts: &mut dyn Iterator<Item = (Subnet, usize)>| counts.max_by_key(|(_, count)| *count);
        let fullest = if in_subnet >= PER_SUBNET {
            Some((subnet(key), in_subnet))
        } else if on_device().map(|(_, count)| count).sum::<usize>() >= PER_DEVICE {
            most(&mut on_device())
        } else if all().map(|(_, count)| count).sum::<usize>() >= IN_ALL {
            most(&mut all())
        } else {
            return Admission::Ask;
        };
        let oldest = fullest.and_then(|(subnet, _)| self.unknown.get(&subnet)?.front());
        let had_time = oldest.filter(|(asked, _)| now.duration_since(*asked) >= ANSWER);
        had_time.map_or(Admission::Wait, |(_, oldest)| Admission::InPlaceOf(*oldest))
    }

    fn end(&mut self, key: Key) {
        if self.asked.remove(&key).is_none() {
            return;
        }
        let Some(requests) = self.unknown.get_mut(&subnet(key)) else { return };
        requests.retain(|(_, known)| *known != key);
        if requests.is_empty() {
            self.unknown.remove(&subnet(key));
        }
    }
}

fn subnet((ifindex, address): Key) -> Subnet {
    let network = match address {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() >> 8 << 8)),
    };
    (ifindex, network)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(ifindex: u32, subnet: u16, host: u16) -> Key {
        (ifindex, Ipv6Addr::new(0x2001, 0xdb8, subnet, 0, 0, 0, 0, host).into())
    }

    /// Asks for that many neighbours of a subnet at once. Returns the number of requests that were admitted.
    fn scan(resolutions: &mut Resolutions, (ifindex, subnet): (u32, u16), hosts: u16, now: Instant) -> usize {
        let asked = |host: &u16| resolutions.admit(key(ifindex, subnet, *host), false, now) != Admission::Wait;
        (0..hosts).filter(asked).count()
    }

    #[test]
    fn a_neighbour_is_asked_for_once_until_the_kernel_has_settled_it() {
        let (mut resolutions, now) = (Resolutions::default(), Instant::now());
        assert_eq!(resolutions.admit(key(1, 1, 1), true, now), Admission::Ask);
        assert_eq!(resolutions.admit(key(1, 1, 1), true, now + Duration::from_secs(2)), Admission::Wait);
        resolutions.settled(key(1, 1, 1), false);
        assert_eq!(resolutions.admit(key(1, 1, 1), true, now + Duration::from_secs(2)), Admission::Ask);
        assert_eq!(resolutions.admit(key(1, 1, 1), true, now + Duration::from_secs(2) + GIVEN_UP), Admission::Ask);
    }

    #[test]
    fn a_scanned_subnet_has_a_budget_and_gives_its_oldest_requests_up() {
        let (mut resolutions, now) = (Resolutions::default(), Instant::now());
        assert_eq!(scan(&mut resolutions, (1, 1), 1000, now), PER_SUBNET);
        assert_eq!(scan(&mut resolutions, (1, 2), 1000, now), PER_DEVICE - PER_SUBNET);
        assert_eq!(scan(&mut resolutions, (2, 1), 1000, now), PER_SUBNET, "another device has its own");
        let later = now + ANSWER;
        assert_eq!(resolutions.admit(key(1, 1, 2000), false, later), Admission::InPlaceOf(key(1, 1, 0)));
        assert_eq!(resolutions.admit(key(1, 3, 1), false, later), Admission::InPlaceOf(key(1, 1, 1)));
        assert_eq!(scan(&mut resolutions, (3, 1), 1000, now), IN_ALL - PER_DEVICE - PER_SUBNET, "of all devices");
    }

    #[test]
    fn next_hops_and_who_has_answered_before_need_no_place() {
        let (mut resolutions, now) = (Resolutions::default(), Instant::now());
        resolutions.settled(key(1, 1, 5000), true);
        scan(&mut resolutions, (1, 1), 1000, now);
        assert_eq!(resolutions.admit(key(1, 1, 4000), false, now), Admission::Wait);
        assert_eq!(resolutions.admit(key(1, 1, 4000), true, now), Admission::Ask);
        assert_eq!(resolutions.admit(key(1, 1, 5000), false, now), Admission::Ask);
        resolutions.expire(now + GIVEN_UP);
        assert!(resolutions.asked.is_empty() && resolutions.unknown.is_empty());
    }

    #[test]
    fn who_finds_no_place_is_asked_for_as_soon_as_there_is_one() {
        let (mut resolutions, now) = (Resolutions::default(), Instant::now());
        scan(&mut resolutions, (1, 1), 1000, now);
        assert!(resolutions.has_postponed() && resolutions.next_postponed(now).is_none());
        let first = u16::try_from(1000 - POSTPONED).unwrap_or_default();
        let later = now + ANSWER;
        let expected = (key(1, 1, first), Admission::InPlaceOf(key(1, 1, 0)));
        assert_eq!(resolutions.next_postponed(later), Some(expected), "of those that are not forgotten");
        let asked = std::iter::from_fn(|| resolutions.next_postponed(later)).count();
        assert_eq!(asked, PER_SUBNET - 1, "then all places are taken by younger ones");
    }

    #[test]
    fn who_has_had_its_chance_stands_in_nobodys_way() {
        let (mut resolutions, now) = (Resolutions::default(), Instant::now());
        scan(&mut resolutions, (1, 1), 224, now);
        let later = now + ANSWER;
        for host in 1000..1224 {
            assert_ne!(resolutions.admit(key(1, 1, host), false, later), Admission::Wait);
        }
        assert_eq!(scan(&mut resolutions, (1, 1), 224, later + ANSWER), 0, "the tables have changed: told of again");
        assert!(!resolutions.has_postponed());
        assert_eq!(resolutions.admit(key(1, 1, 5000), false, later + ANSWER), Admission::InPlaceOf(key(1, 1, 1000)));
        assert_eq!(scan(&mut resolutions, (1, 1), 1, later + ASK_AGAIN), 1, "a second later");
        resolutions.settled(key(1, 1, 5000), true);
        assert_eq!(resolutions.admit(key(1, 1, 7), false, later + ANSWER), Admission::Ask, "there is a free place");
        for host in 0..30_000 {
            resolutions.admit(key(1, 1, host), false, later + ASK_AGAIN + ANSWER * u32::from(host));
        }
        assert!(resolutions.unanswered.len() <= UNANSWERED && resolutions.given_up.len() <= UNANSWERED);
    }

    #[test]
    fn so_many_answers_are_remembered() {
        let mut resolutions = Resolutions::default();
        for host in 0..5000 {
            resolutions.settled(key(1, 1, host), true);
        }
        assert_eq!((resolutions.answered.len(), resolutions.order.len()), (REMEMBERED, REMEMBERED));
        assert!(!resolutions.answered.contains(&key(1, 1, 0)) && resolutions.answered.contains(&key(1, 1, 4999)));
    }
}
