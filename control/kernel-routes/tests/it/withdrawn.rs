//! Deletions of encapsulating routes are delayed, so that a new route can take the prefix.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::netlink;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use netlink::{Route, number, seg6};
use srv6d_kernel_routes::{KernelAction, Messages, Routes, Withdrawn};

const TIME: Duration = Duration::from_millis(20);
const PREFIX: &str = "2001:db8:9::/64";

struct Kept {
    routes: Routes,
    withdrawn: Withdrawn,
    now: Instant,
}

impl Kept {
    fn new() -> Self {
        let mut withdrawn = Withdrawn::default();
        withdrawn.set_time(TIME);
        Self { routes: Routes::default(), withdrawn, now: Instant::now() }
    }

    /// Passes messages on, and applies what is due.
    fn take(&mut self, bytes: &[u8]) {
        let mut changed = BTreeSet::new();
        for message in Messages::new(bytes) {
            for message in self.withdrawn.pass(message, &self.routes, self.now) {
                self.routes.apply(message, &mut changed);
            }
        }
        for message in self.withdrawn.due(self.now) {
            self.routes.apply(message, &mut changed);
        }
    }

    /// Returns the first segment of the prefix's route, `-` if the route has no encapsulation, or `None` if there is no
    /// route.
    fn segment(&self) -> Option<String> {
        let route = self.routes.used().find(|route| route.prefix.to_string() == PREFIX)?;
        let KernelAction::Via(hops) = &route.action else { return Some("-".to_owned()) };
        let encap = hops.first().unwrap().encap.as_ref();
        Some(encap.map_or_else(|| "-".to_owned(), |encap| encap.segments.first().unwrap().to_string()))
    }
}

fn encap(segment: &str) -> Route {
    Route::to(PREFIX).with(&seg6((21, 22), 3, &[segment.parse().unwrap()])).with(&number(4, 2))
}

#[test]
fn a_route_that_is_deleted_and_added_never_vanishes() {
    let mut kept = Kept::new();
    let (one, other) = (encap("fcbb:0:1::"), encap("fcbb:0:2::"));
    kept.take(&one.added(0));
    kept.take(&one.deleted());
    assert_eq!(kept.segment().as_deref(), Some("fcbb:0:1::"));
    assert_eq!(kept.withdrawn.next(), Some(kept.now + TIME));
    kept.take(&other.added(0));
    assert_eq!(kept.segment().as_deref(), Some("fcbb:0:2::"));
    // The delayed deletion is not applied later.
    kept.now += TIME;
    kept.take(&[]);
    assert_eq!((kept.segment().as_deref(), kept.withdrawn.next()), (Some("fcbb:0:2::"), None));
}

#[test]
fn a_route_that_nobody_adds_again_goes_in_its_time() {
    let mut kept = Kept::new();
    let route = encap("fcbb:0:1::");
    kept.take(&[route.added(0), route.deleted()].concat());
    kept.now += TIME / 2;
    kept.take(&[]);
    assert!(kept.segment().is_some());
    // After deletion, addition and deletion, the delay of the last deletion counts.
    kept.take(&[route.added(0), route.deleted()].concat());
    kept.now += TIME / 2;
    kept.take(&[]);
    assert!(kept.segment().is_some());
    kept.now += TIME / 2;
    kept.take(&[]);
    assert_eq!(kept.segment(), None);
}

#[test]
fn whatever_takes_the_prefix_counts_at_once_and_plain_routes_are_not_held() {
    let mut kept = Kept::new();
    let (route, plain) = (encap("fcbb:0:1::"), Route::to(PREFIX).via("2001:db8:a::2", 2));
    kept.take(&[route.added(0), route.deleted(), plain.added(0)].concat());
    assert_eq!(kept.segment().as_deref(), Some("-"));
    kept.take(&plain.deleted());
    assert_eq!((kept.segment(), kept.withdrawn.next().is_some_and(|due| due > kept.now + TIME)), (None, false));
    kept.withdrawn.set_time(Duration::ZERO);
    kept.take(&[route.added(0), route.deleted()].concat());
    assert_eq!(kept.segment(), None, "held by nobody");
}
