//! The keys of each table: one `read` per table, in the order of the reference.

use std::path::PathBuf;

use toml::Spanned;

use super::schema::{
    Api, Block, Config, Host, Neighbor, NextHop, Node, OneHop, PathKeys, Port, Route, Sid, Steer, SteerPath, Workers,
};
use super::table::{Record, Table};
use super::value::{InterfaceName, Value, is_interface_name};

impl Record for Config {
    const HEADER: &'static str = "";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        Some(Self {
            source: super::Source::default(),
            node: table.record("node"),
            workers: table.record("workers"),
            host: table.record("host"),
            api: table.record("api"),
            blocks: table.records("block"),
            ports: table.records("port"),
            balances: table.records("balance"),
            glb: table.optional_record("glb"),
            probes: table.optional_record("probes"),
            sids: table.records("sid"),
            steers: table.records("steer"),
            routes: table.records("route"),
            neighbors: table.records("neighbor"),
            fpm: table.optional_record("fpm"),
            kernel: table.optional_record("kernel"),
            remarks: Vec::new(),
            jalapeno: table.optional_record("jalapeno"),
            syd: table.optional_record("syd"),
            jobs: table.optional_record("jobs"),
        })
    }
}

impl Record for Node {
    const HEADER: &'static str = "[node]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        Some(Self {
            name: table.optional("name"),
            source: table.optional("source"),
            hop_limit: table.number("hop_limit", 1..=255),
            dscp: table.optional("dscp"),
            ecn: table.optional("ecn"),
            hash_qp: table.optional("hash_qp"),
            hash_seed: table.number("hash_seed", 0..=u32::MAX.into()),
            decrement_local: table.optional("decrement_local"),
            icmp_rate: table.number("icmp_rate", 0..=1_000_000),
            icmp_unreachable: table.optional("icmp_unreachable"),
            srh_check: table.optional("srh_check"),
            ua_last: table.optional("ua_last"),
            dt_argument: table.optional("dt_argument"),
            vrf_sids: table.optional("vrf_sids"),
            domain_sources: table.list("domain_sources"),
            least_path_mtu: table.number("least_path_mtu", 1280..=65535),
            balance: table.optional("balance"),
        })
    }
}

impl Record for Workers {
    const HEADER: &'static str = "[workers]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        Some(Self {
            cores: table.numbers("cores", "[1, 2]"),
            polling: table.optional("polling"),
            // Maximum of the kernel for SO_BUSY_POLL_BUDGET.
            busy_budget: table.number("busy_budget", 0..=65_535),
            // Each has 4 KiB, so a worker has from 256 KiB to 4 GiB.
            frames: table.number("frames", 64..=1_048_576),
            ring: table.number("ring", 16..=32_768),
        })
    }
}

impl Record for Host {
    const HEADER: &'static str = "[host]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        Some(Self {
            interface: table.optional_interface("interface"),
            steer_local: table.optional("steer_local"),
            engine: table.optional("engine"),
        })
    }
}

/// Length of the longest path of a Unix socket in bytes: `sun_path` without the NUL at its end (unix(7)).
const LONGEST_SOCKET: usize = 107;

impl Record for Api {
    const HEADER: &'static str = "[api]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        let socket = table.optional::<PathBuf>("socket").filter(|socket| {
            let length = socket.get_ref().as_os_str().len();
            if length > LONGEST_SOCKET {
                let what = format!("a path of {length} bytes is no address of a socket");
                table.refuse(socket.span(), "socket", what, format!("write one of at most {LONGEST_SOCKET} bytes"));
            }
            length <= LONGEST_SOCKET
        });
        Some(Self { socket, metrics: table.optional("metrics") })
    }
}

impl Record for Block {
    const HEADER: &'static str = "[[block]]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        let prefix = table.required("prefix");
        let unknown = table.optional("unknown");
        let hosts = table.list("hosts");
        Some(Self { prefix: prefix?, unknown, hosts })
    }
}

impl Record for Port {
    const HEADER: &'static str = "[[port]]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        let name = table.required("name");
        let device = table.optional_interface("device");
        let vlan = table.number("vlan", 1..=4094);
        if let (Some(name), None) = (&name, &device) {
            names_a_device(table, name, vlan.as_ref());
        }
        let mode = table.optional("mode");
        let role = table.optional("role");
        let vrf = table.optional("table");
        let source = table.optional("source");
        let allowed_sources = table.list("allowed_sources");
        let allowed_carriers = table.list("allowed_carriers");
        let checksum = table.optional("checksum");
        let offload = table.optional("offload");
        let emulate = table.optional_record("emulate");
        let speed = table.optional("speed");
        let neighbor_id = table.optional("neighbor_id");
        Some(Self {
            name: name?,
            device,
            vlan,
            mode,
            role,
            table: vrf,
            source,
            allowed_sources,
            allowed_carriers,
            checksum,
            offload,
            emulate,
            speed,
            neighbor_id,
        })
    }
}

/// Checks the name of a port without a device, which is the name of its device, optionally with the VLAN appended.
fn names_a_device(table: &mut Table<'_, '_>, name: &Spanned<String>, vlan: Option<&Spanned<u16>>) {
    let suffix = vlan.map(|vlan| format!(".{}", vlan.get_ref()));
    let device = suffix.and_then(|suffix| name.get_ref().strip_suffix(&suffix)).unwrap_or(name.get_ref());
    if !is_interface_name(device) {
        let what = format!("{:?} does not fit here", name.get_ref());
        table.refuse(name.span(), "name", what, format!("write {}", InterfaceName::expected()));
    }
}

impl Record for Sid {
    const HEADER: &'static str = "[[sid]]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        let sid = table.required("sid");
        let behavior = table.required("behavior");
        let flavors = table.list("flavors");
        let lblen = table.number("lblen", 0..=255);
        let nflen = table.number("nflen", 0..=255);
        let inner_table = table.optional("table");
        let dscp = table.optional("dscp");
        let hop = one_hop(table);
        let nexthops = table.records("nexthops");
        let backup = table.records("backup");
        let balance = table.optional("balance");
        let via_nodes = table.list("via_nodes");
        Some(Self {
            sid: sid?,
            behavior: behavior?,
            flavors,
            lblen,
            nflen,
            table: inner_table,
            dscp,
            hop,
            nexthops,
            backup,
            balance,
            via_nodes,
        })
    }
}

fn one_hop(table: &mut Table<'_, '_>) -> OneHop {
    OneHop { via: table.optional("via"), port: table.optional("port") }
}

impl Record for NextHop {
    const HEADER: &'static str = "nexthops";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        let hop = one_hop(table);
        Some(Self { hop, weight: table.number("weight", 1..=65_535), capacity: table.optional("capacity") })
    }
}

impl Record for Steer {
    const HEADER: &'static str = "[[steer]]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        let prefix = table.required("prefix");
        let vrf = table.optional("table");
        let mode = table.optional("mode");
        let source = table.optional("source");
        let path = path_keys(table);
        let paths = table.records("paths");
        let balance = table.optional("balance");
        let via_nodes = table.list("via_nodes");
        Some(Self { prefix: prefix?, table: vrf, mode, source, path, paths, balance, via_nodes })
    }
}

fn path_keys(table: &mut Table<'_, '_>) -> PathKeys {
    PathKeys { segments: table.list("segments"), hop: one_hop(table), nexthops: table.records("nexthops") }
}

impl Record for SteerPath {
    const HEADER: &'static str = "paths";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        Some(Self {
            name: table.optional("name"),
            weight: table.number("weight", 1..=65_535),
            capacity: table.optional("capacity"),
            path: path_keys(table),
        })
    }
}

impl Record for Route {
    const HEADER: &'static str = "[[route]]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        let prefix = table.required("prefix");
        let route_table = table.optional("table");
        let kind = table.optional("type");
        let hop = one_hop(table);
        let nexthops = table.records("nexthops");
        let balance = table.optional("balance");
        let via_nodes = table.list("via_nodes");
        Some(Self { prefix: prefix?, table: route_table, kind, hop, nexthops, balance, via_nodes })
    }
}

impl Record for Neighbor {
    const HEADER: &'static str = "[[neighbor]]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        let address = table.required("address");
        let port = table.required("port");
        let mac = table.required("mac");
        Some(Self { address: address?, port: port?, mac: mac? })
    }
}
