//! Plans `[node]`, `[workers]`, `[host]` and `[api]`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use sha2::{Digest, Sha256};
use srv6d_srv6::desired::{DscpMode, NodePolicy, Tunnel};

use super::environment::{Environment, is_link_local};
use super::{Api, Host, Workers, not_unicast};
use srv6d_config::{
    self as config, DtArgument, Ecn, Findings, HostEngine, MetricsAddress, Optional, OuterDscp, Polling, Spanned,
    SrhCheck, UaLast,
};

/// Default of `[workers] frames`.
pub const DEFAULT_FRAMES: u32 = 8192;

/// Returns the value of a key, or its default.
#[expect(clippy::ref_option, reason = "callers hold the keys of a table by reference")]
pub(super) fn or<T: Clone>(key: &Optional<T>, default: T) -> T {
    key.as_ref().map_or(default, |value| value.get_ref().clone())
}

pub(super) fn tunnel(node: &config::Node, environment: &Environment, found: &mut Findings) -> Tunnel {
    let defaults = Tunnel::default();
    let source = outer_source(node.source.as_ref(), "[node] source", environment, found);
    Tunnel {
        source,
        hop_limit: or(&node.hop_limit, defaults.hop_limit),
        dscp: match or(&node.dscp, OuterDscp::Uniform) {
            OuterDscp::Uniform => DscpMode::Uniform,
            OuterDscp::Fixed(dscp) => DscpMode::Pipe(dscp),
        },
        ecn_compat: or(&node.ecn, Ecn::Normal) == Ecn::Compat,
        hash_qp: or(&node.hash_qp, defaults.hash_qp),
        decrement_local: or(&node.decrement_local, defaults.decrement_local),
    }
}

/// Returns the outer source address, which must be a unicast address of the sender (RFC 4291 section 2.7).
pub(super) fn outer_source(
    source: Option<&Spanned<Ipv6Addr>>,
    entry: &str,
    environment: &Environment,
    found: &mut Findings,
) -> Option<Ipv6Addr> {
    let source = source?;
    let address = IpAddr::V6(*source.get_ref());
    let link_local = is_link_local(address).then_some("a link-local address");
    if let Some(kind) = not_unicast(address).or(link_local) {
        found.error(
            source.span(),
            entry,
            format!("{address} is {kind}, and cannot be the source of a packet that crosses the fabric"),
            "use a global unicast address of this node, e.g. the one of its loopback device",
        );
    }
    let own = || environment.devices.iter().flat_map(|device| &device.addresses).any(|net| net.addr() == address);
    if !environment.devices.is_empty() && !own() {
        found.warning(
            source.span(),
            entry,
            format!("{address} is not an address of this node: ICMP errors about encapsulated packets get lost"),
            format!("ip -6 address add {address}/128 dev lo"),
        );
    }
    Some(*source.get_ref())
}

/// Returns the name of the node.
pub(super) fn name(node: &config::Node, environment: &Environment) -> String {
    or(&node.name, environment.host_name.clone())
}

/// Returns the seed of the choices of next hops and paths. It depends on the name of the node alone: nodes choose
/// independently, and a node that is restarted chooses as before.
fn seed_of(name: &str) -> u64 {
    let digest = Sha256::digest(name);
    digest.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

pub(super) fn policy(node: &config::Node, name: &str) -> NodePolicy {
    let defaults = NodePolicy::default();
    NodePolicy {
        hash_seed: node.hash_seed.as_ref().map_or_else(|| seed_of(name), |seed| (*seed.get_ref()).into()),
        icmp_per_second: or(&node.icmp_rate, defaults.icmp_per_second),
        icmp_unreachable: or(&node.icmp_unreachable, defaults.icmp_unreachable),
        srh_lenient: or(&node.srh_check, SrhCheck::Strict) == SrhCheck::Lenient,
        ua_last_forward: or(&node.ua_last, UaLast::Reject) == UaLast::Forward,
        vrf_sids: or(&node.vrf_sids, false),
        dt_argument_accept: or(&node.dt_argument, DtArgument::Strict) == DtArgument::Accept,
        least_path_mtu: or(&node.least_path_mtu, defaults.least_path_mtu),
        domain_sources: node.domain_sources.iter().map(|prefix| *prefix.get_ref()).collect(),
    }
}

pub(super) fn workers(workers: &config::Workers, environment: &Environment, found: &mut Findings) -> Workers {
    let frames = or(&workers.frames, DEFAULT_FRAMES);
    let ring = or(&workers.ring, 2048);
    if let Some(written) = workers.ring.as_ref().filter(|ring| !ring.get_ref().is_power_of_two()) {
        let (below, above) = (ring.next_power_of_two() / 2, ring.next_power_of_two());
        found.error(
            written.span(),
            "[workers] ring",
            format!("{ring} is not a power of two"),
            format!("write {below} or {above}"),
        );
    }
    // A full receive ring and a full transmit ring hold two rings' worth of frames.
    if frames < ring.saturating_mul(2)
        && let Some(span) = workers.frames.as_ref().or(workers.ring.as_ref()).map(Spanned::span)
    {
        found.error(
            span,
            "[workers] frames",
            format!("{frames} frames cannot fill a receive and a transmit ring of {ring}"),
            format!("write frames = {} or more, or a smaller ring", ring.saturating_mul(2)),
        );
    }
    check_cores(&workers.cores, environment, found);
    let pinned: Vec<Option<usize>> = workers.cores.iter().map(|core| Some(*core.get_ref())).collect();
    let cores = if pinned.is_empty() { vec![None] } else { pinned };
    let polling = or(&workers.polling, Polling::Adaptive);
    Workers { cores, polling, busy_budget: or(&workers.busy_budget, 0), frames, ring }
}

fn check_cores(cores: &[Spanned<usize>], environment: &Environment, found: &mut Findings) {
    for (index, core) in cores.iter().enumerate() {
        let number = *core.get_ref();
        if cores.iter().take(index).any(|earlier| earlier.get_ref() == core.get_ref()) {
            let fix = "list every core once: two workers on one core only take turns";
            found.error(core.span(), "[workers] cores", format!("core {number} is listed twice"), fix);
        }
        if !environment.cores.is_empty() && !environment.cores.contains(&number) {
            let known: Vec<String> = environment.cores.iter().map(usize::to_string).collect();
            let what = format!("core {number} does not exist here, or this process may not use it");
            found.error(core.span(), "[workers] cores", what, format!("use some of {}", known.join(", ")));
        }
    }
}

pub(super) fn host(host: &config::Host) -> Host {
    Host {
        interface: or(&host.interface, "srv6d0".to_owned()),
        steer_local: or(&host.steer_local, true),
        engine: or(&host.engine, HostEngine::Auto),
    }
}

/// Refuses a name of srv6d's own veth that another device has.
pub(super) fn check_host(config: &config::Config, found: &mut Findings) {
    const ENTRY: &str = "[host] interface";
    let Some(interface) = &config.host.interface else { return };
    let (name, fix) =
        (interface.get_ref(), "write a name that no device has, e.g. \"srv6d0\": srv6d makes a veth of this name");
    if name == "lo" {
        found.error(interface.span(), ENTRY, "lo is the loopback device", fix);
    }
    let is_device = |port: &&config::Port| port.device.as_ref().unwrap_or(&port.name).get_ref() == name;
    if let Some(port) = config.ports.iter().map(Spanned::get_ref).find(is_device) {
        let what = format!("{name} is the device of port {}", port.name.get_ref());
        found.error(interface.span(), ENTRY, what, fix);
    }
}

pub(super) fn api(api: &config::Api) -> Api {
    let default = MetricsAddress::Listen(SocketAddr::from((Ipv6Addr::LOCALHOST, 9469)));
    Api {
        socket: or(&api.socket, PathBuf::from("/run/srv6d/srv6d.sock")),
        metrics: match or(&api.metrics, default) {
            MetricsAddress::Off => None,
            MetricsAddress::Listen(address) => Some(address),
        },
    }
}
