//! Tests of plans with the kernel's routes and rules, which are read from netlink messages.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

mod amend;
mod rules;

use srv6d_config::{self as config, Config};
use srv6d_plan::{Device, Environment, KernelNeighbor};
use srv6d_srv6::desired::Mac;

const FILE: &str = r#"
[node]
source = "fcbb:0:9::1"
[[port]]
name = "eth1"
role = "fabric"
[[port]]
name = "eth2"
role = "fabric"
[[block]]
prefix = "fcbb::/32"
[[sid]]
sid = "fcbb:0:9::/48"
behavior = "uN"
[[route]]
prefix = "2001:db8:f::/48"
type = "blackhole"
[[steer]]
prefix = "2001:db8:e::/48"
segments = ["fcbb:0:8:1::"]
via = "2001:db8:a::2"
port = "eth1"
[kernel]
tables = ["main", 100]
"#;

fn config() -> Config {
    config::parse(FILE, "srv6d.toml").unwrap()
}

fn environment() -> Environment {
    let device = |ifindex, name: &str, addresses: &[&str]| Device {
        name: name.to_owned(),
        ifindex,
        mac: Mac([2, 0, 0, 0, 0, 1]),
        mtu: 1500,
        up: true,
        addresses: addresses.iter().map(|net| net.parse().unwrap()).collect(),
    };
    let neighbor = |device: &str, address: &str| KernelNeighbor {
        device: device.to_owned(),
        address: address.parse().unwrap(),
        mac: Mac([2, 0, 0, 0, 0, 2]),
    };
    Environment {
        devices: vec![
            device(1, "lo", &["fcbb:0:9::1/128"]),
            device(2, "eth1", &["2001:db8:a::1/64", "10.1.0.1/24"]),
            device(3, "eth2", &["2001:db8:b::1/64", "10.2.0.1/24"]),
            device(4, "eth3", &[]),
        ],
        neighbors: vec![neighbor("eth1", "2001:db8:a::2"), neighbor("eth2", "10.2.0.2")],
        ..Environment::default()
    }
}
