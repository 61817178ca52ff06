//! Fuzz targets for routes in netlink messages: those of the kernel, and those that FRR announces over FPM.
//!
//! ```text
//! bytes ─► messages ─► Routes (kernel.rs) | Rib (fpm.rs) ─► Environment ─► plan ─► Tables
//! ```
//!
//! Whatever the messages contain, the resulting plan can be put in force: a program that writes routes cannot stop the
//! node.
#![allow(clippy::panic, clippy::expect_used, reason = "a panic is what a fuzz target reports with")]

pub(crate) mod bytes;
pub mod fpm;
pub mod kernel;

use std::sync::OnceLock;

use srv6d_config::{self as config, Config};
use srv6d_plan::{self as plan, Device, Environment, KernelNeighbor, Plan};
use srv6d_srv6::desired::{Mac, TableId};
use srv6d_srv6::{Slots, Tables};

/// Configuration with two ports, a SID and a route, so that learned routes meet configured ones.
const NODE: &str = r#"
[node]
source = "2001:db8:1::1"
[[port]]
name = "eth1"
role = "fabric"
[[port]]
name = "eth2"
role = "fabric"
[[block]]
prefix = "fcbb:bbbb::/32"
[[sid]]
sid = "fcbb:bbbb:1::/48"
behavior = "uN"
[[route]]
prefix = "2001:db8:f::/48"
type = "blackhole"
"#;

/// Returns the node with one source of routes: `[kernel]` or `[fpm]`.
fn node(source: &str) -> Config {
    config::parse(&format!("{NODE}{source}"), "srv6d.toml").unwrap_or_else(|errors| panic!("{errors}"))
}

/// Returns what the kernel shows besides routes: lo 1, eth1 2, eth2 3, a VRF device 7 for table 100.
fn environment() -> Environment {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    ENVIRONMENT.get_or_init(make_environment).clone()
}

fn make_environment() -> Environment {
    let device = |ifindex, name: &str, addresses: &[&str]| Device {
        name: name.to_owned(),
        ifindex,
        mac: Mac([2, 0, 0, 0, 0, 1]),
        mtu: 1500,
        up: true,
        addresses: addresses.iter().map(|net| net.parse().expect("an address")).collect(),
    };
    let neighbor = |device: &str, address: &str| KernelNeighbor {
        device: device.to_owned(),
        address: address.parse().expect("an address"),
        mac: Mac([2, 0, 0, 0, 0, 2]),
    };
    Environment {
        devices: vec![
            device(1, "lo", &["fcbb:bbbb:1::1/128"]),
            device(2, "eth1", &["2001:db8:1::1/64", "10.0.1.1/24"]),
            device(3, "eth2", &["2001:db8:2::1/64"]),
            device(7, "Vrf-red", &[]),
        ],
        neighbors: vec![neighbor("eth1", "2001:db8:1::2"), neighbor("eth2", "fe80::3")],
        vrfs: [(7, TableId(100))].into(),
        ..Environment::default()
    }
}

/// Makes a plan, and checks that it can be compiled and that every route left out has a reason.
fn planned(config: &Config, environment: &Environment) -> Plan {
    let plan = plan::plan(config, environment).unwrap_or_else(|errors| panic!("refused: {errors}"));
    assert!(plan.unfollowed.iter().all(|route| !route.why.is_empty()), "left out without a reason");
    compiled(&plan);
    plan
}

fn compiled(plan: &Plan) -> Tables {
    Tables::build(&plan.desired, &mut Slots::default()).unwrap_or_else(|why| panic!("not compiled: {why}"))
}
