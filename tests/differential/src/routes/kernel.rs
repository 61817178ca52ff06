//! Routes of the kernel: a dump, and the messages after it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use srv6d_config::Config;
use srv6d_kernel_routes::{Effect, Message, Messages, RouteKey, Routes};
use srv6d_plan::{self as plan, Environment, Plan, PlanInputs};
use srv6d_srv6::desired::Desired;

use super::{bytes, compiled, environment, node, planned};

/// Maximum number of messages after the dump that are applied.
const LONGEST: usize = 24;

/// Fuzz target: routes of the kernel are read, followed and planned. Input: `| messages of the dump, 1 byte | datagram
/// |`. The messages behind the dump are notifications.
///
/// # Panics
/// If a message changes a route without reporting it, if a look-up in the routes misses one, if a plan cannot be made
/// or put in force, or if an amended plan differs from a new one.
pub fn kernel_routes(data: &[u8]) {
    let Some((&dump, datagram)) = data.split_first() else { return };
    every_message_alone(datagram);
    let mut messages = Messages::new(datagram);
    let mut routes = Routes::default();
    messages.by_ref().take(dump.into()).for_each(|message| routes.load(message));
    is_consistent(&routes);
    let mut followed = Followed::new(routes.clone());
    for message in messages.take(LONGEST) {
        let (before, mut changed) = (routes.clone(), BTreeSet::new());
        if routes.apply(message, &mut changed) == Effect::DumpAgain {
            // The daemon would request a new dump from the kernel here.
            return;
        }
        is_consistent(&routes);
        let differences = before.differences(&routes).expect("rules change by a dump alone");
        assert!(differences.is_subset(&changed), "changed: {differences:?}, said: {changed:?}");
        followed.follow(routes.clone(), &changed);
    }
}

/// Checks that a datagram gives the same messages as its messages one by one.
fn every_message_alone(datagram: &[u8]) {
    let together: Vec<Message> = Messages::new(datagram).collect();
    let mut alone = Vec::new();
    let mut rest = datagram;
    while let Some(length) = rest.first_chunk::<4>().map(|bytes| u32::from_ne_bytes(*bytes) as usize) {
        let Some(message) = rest.get(..length).filter(|message| message.len() >= 16) else { break };
        alone.extend(Messages::new(message));
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    assert_eq!(together, alone);
}

/// Checks that all look-up functions of the routes agree with each other.
fn is_consistent(routes: &Routes) {
    let all: Vec<RouteKey> = routes.used().map(|route| RouteKey { table: route.table, prefix: route.prefix }).collect();
    assert_eq!(all.len(), routes.len(), "a prefix without a route");
    for key in &all {
        let used = routes.used_for(key).expect("it is used");
        assert!(routes.table(key.table).any(|route| route == used), "{key:?} is missing in its table");
        let is_inside = |inner: &&RouteKey| {
            inner.table == key.table && inner.prefix != key.prefix && key.prefix.contains(&inner.prefix)
        };
        let inside: Vec<&RouteKey> = routes.inside(*key).collect();
        assert_eq!(inside, all.iter().filter(is_inside).collect::<Vec<_>>(), "inside of {key:?}");
    }
}

/// A node that follows the routes as the daemon does.
struct Followed {
    config: &'static Config,
    environment: Environment,
    plan: Plan,
}

impl Followed {
    fn new(routes: Routes) -> Self {
        static CONFIG: OnceLock<Config> = OnceLock::new();
        let config = CONFIG.get_or_init(|| node("[kernel]\n"));
        let environment = Environment { routes: Arc::new(routes), ..environment() };
        Self { config, plan: planned(config, &environment), environment }
    }

    /// Amends the plan if that is possible, and compares the result with a new plan.
    fn follow(&mut self, routes: Routes, changed: &BTreeSet<RouteKey>) {
        self.environment.routes = Arc::new(routes);
        let next_hops: Vec<IpAddr> = compiled(&self.plan).next_hops().map(|(_, address, _)| address).collect();
        let inputs = PlanInputs { config: self.config, offers: &[], environment: &self.environment };
        let amended = plan::plan_change(inputs, &self.plan, changed, &next_hops);
        let new = planned(self.config, &self.environment);
        if let Some(amended) = amended {
            self.plan.amend(amended);
            assert_eq!(in_order(&self.plan), in_order(&new), "amended, and planned anew");
        }
        self.plan = new;
    }
}

/// Returns the plan in a fixed order. Entries that are looked up by prefix have no order of their own.
fn in_order(plan: &Plan) -> (Desired, Vec<String>) {
    let mut desired = plan.desired.clone();
    desired.routes.sort_by_key(|route| (route.table, route.prefix));
    desired.steers.sort_by_key(|steer| (steer.table, steer.prefix));
    desired.sids.sort_by_key(|sid| sid.prefix);
    let mut unfollowed: Vec<String> = plan.unfollowed.iter().map(|route| format!("{route:?}")).collect();
    unfollowed.sort();
    (desired, unfollowed)
}

/// Returns messages as the kernel sends them: each alone, and in many orders behind dumps of many lengths.
pub fn seeds() -> Vec<Vec<u8>> {
    let messages = bytes::of_the_kernel();
    let mut seeds: Vec<Vec<u8>> = messages.iter().map(|message| [&[0][..], message].concat()).collect();
    for turn in 0..messages.len() {
        let (ahead, behind) = messages.split_at(turn);
        let dump = u8::try_from(turn * 2).unwrap_or(u8::MAX);
        seeds.push([&[dump][..], &behind.concat(), &ahead.concat()].concat());
    }
    seeds
}
