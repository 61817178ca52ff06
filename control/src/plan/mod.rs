//! [`Config`] and [`Environment`] to [`Desired`]: names become numbers, defaults are filled in, and what several
//! tables have to do with each other is checked.
//!
//! What is missing in the environment (a device that does not exist yet, an address that has not been assigned) is
//! never an error: the entry is left out or kept down, and reported as pending.

mod amend;
mod diff;
mod environment;
mod fib;
mod followed;
mod hops;
mod node;
mod offered;
mod ports;
mod roles;
mod routes;
mod rules;
mod sids;
mod sources;
mod steers;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use srv6d_srv6::model::{Desired, HostPort, TableId};

use crate::config::{Accepted, Config, Diagnostic, Errors, Findings, Polling, PortMode};
use crate::sonic;
use crate::source::{Offer, Outcome};

pub use amend::{Amended, FirstHops, Sources, amended, neighbors};
pub use diff::{Change, Diff, diff};
pub use environment::{Device, Environment, HostVeth, KernelNeighbor};
use fib::Fib;
pub(crate) use followed::whole_function;
pub use followed::{FPM, Unfollowed};
use ports::Ports;
pub use roles::RoleReason;
pub(crate) use rules::NOBODY;
use rules::Rules;
pub use srv6d_kernel_routes::{
    KernelAction, KernelEncap, KernelHop, KernelRoute, KernelSid, KernelSidAction, RouteKey,
};

/// Everything the daemon needs to run a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Name of the node, if one is configured; default: the host name.
    pub name: Option<String>,
    /// Input of the packet path.
    pub desired: Desired,
    /// Devices to open sockets on, without srv6d's own veth.
    pub devices: Vec<PortDevice>,
    /// Threads.
    pub workers: Workers,
    /// srv6d's own veth.
    pub host: Host,
    /// Where the daemon can be asked.
    pub api: Api,
    /// Accepted, but probably not what was meant.
    pub warnings: Vec<Diagnostic>,
    /// Right, and waiting for something that does not exist yet.
    pub pending: Vec<Diagnostic>,
    /// Notes: facts that are worth knowing and wait for nothing.
    pub notes: Vec<Diagnostic>,
    /// What became of everything that sources offer, and of followed routes that are not in force.
    pub offered: Vec<Outcome>,
    /// Routes of followed tables that stay with the kernel.
    pub unfollowed: Vec<Unfollowed>,
    /// Followed routes come into it one by one: rules ask `main` alone, and nothing waits or is refused, for which any route
    /// may be what it waits for.
    pub amendable: bool,
    /// What paths follow: a route to one of these is not changed alone.
    pub first_hops: FirstHops,
    /// By port: where its role comes from.
    pub roles: Vec<RoleReason>,
}

/// One device that carries ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDevice {
    /// Name of the device.
    pub device: String,
    /// AF_XDP mode.
    pub mode: PortMode,
    /// The environment has it.
    pub present: bool,
}

/// `[workers]` with its defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workers {
    /// One worker per item, pinned where a core is given. Never empty.
    pub cores: Vec<Option<usize>>,
    /// How they wait.
    pub polling: Polling,
    /// Packets that drivers receive in one system call of a worker; 0: in interrupts.
    pub busy_budget: u32,
    /// UMEM chunks of 4 KiB per worker.
    pub frames: u32,
    /// Descriptors per ring.
    pub ring: u32,
}

/// `[host]` with its defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name of the kernel's end of the veth.
    pub interface: String,
    /// Kernel routes for steered prefixes into it.
    pub steer_local: bool,
}

/// `[api]` with its defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Api {
    /// Unix socket.
    pub socket: PathBuf,
    /// Prometheus; `None`: off.
    pub metrics: Option<SocketAddr>,
}

/// What every part of the planning reads.
struct Context<'a> {
    config: &'a Config,
    environment: &'a Environment,
    rules: Rules,
    ports: Ports<'a>,
}

impl Context<'_> {
    /// The kernel's routes of this table count.
    fn follows(&self, table: TableId) -> bool {
        self.config.kernel.as_ref().is_some_and(|kernel| kernel.follows(table) || self.rules.lead_to(table))
    }
}

/// Resolves a configuration against what the kernel shows.
///
/// # Errors
/// Every mistake that can be seen at this stage, each with its line and fix.
pub fn plan(config: &Config, environment: &Environment) -> Result<Plan, Errors> {
    plan_with(config, environment, &[])
}

/// The same, with what sources offer. An offer never makes an error: see [`Plan::offered`].
///
/// # Errors
/// As [`plan`].
pub fn plan_with(config: &Config, environment: &Environment, offers: &[Offer]) -> Result<Plan, Errors> {
    let mut findings = Findings::new(config.source.clone());
    let found = &mut findings;
    sonic::report(config, found);
    let environment = &*sonic::laid_over(config, environment);

    let workers = node::workers(&config.workers, environment, found);
    let tunnel = node::tunnel(&config.node, environment, found);
    let rules = ports::rules(config, environment);
    let ports = Ports::resolve(config, environment, &rules, found);
    let context = Context { config, environment, rules, ports };
    let mut fib = Fib::default();

    let blocks = sids::blocks(config, found);
    let host_prefixes = sids::host_prefixes(config, found);
    let mut sids = sids::sids(&context, &blocks, &mut fib, found);
    let mut routes = routes::routes(&context, &mut fib, found);
    let claimed = steers::claim(&context, &mut fib, found);
    routes.extend(routes::connected(&context, &mut fib));
    let followed = followed::follow(&context, &mut fib);
    sids.extend(followed.sids);
    routes.extend(followed.routes);
    let offers: Vec<&Offer> = offers.iter().chain(&followed.offers).collect();
    let entries = offered::claim(&context, &offers, &mut fib);
    let mut names = steers::Names::new();
    let mut steers = steers::steers(&context, &claimed, &blocks, &fib, &mut names, found);
    let (more, mut offered, waits) = offered::steers(&context, entries, &blocks, &fib, &mut names);
    steers.extend(more);
    let neighbors = ports::neighbors(&context, found);
    sources::check(&context, found);

    let mut unfollowed = followed.unfollowed;
    let refused: Vec<Unfollowed> = offered.iter().filter_map(followed::refused).collect();
    routes.extend(refused.iter().map(Unfollowed::left_to_the_kernel));
    unfollowed.extend(refused);
    // Of followed routes, those that are in force are known by their steered prefixes.
    offered.retain(|outcome| !followed::is_in_force(outcome));

    let rules_are_plain = context.rules.are_plain(&environment.routes);
    let devices = context.ports.devices();
    let mut desired = Desired {
        host: (context.ports.host.zip(environment.host.as_ref()))
            .map(|(port, veth)| HostPort { port, kernel_mac: veth.kernel_mac }),
        local_addresses: context.ports.local_addresses(environment, &context.rules),
        offload: ports::offload(config),
        ports: context.ports.models,
        tunnel,
        policy: node::policy(&config.node),
        blocks,
        host_prefixes,
        sids,
        steers,
        routes,
        neighbors,
        path_mtus: environment.path_mtus.clone(),
    };
    let role_reasons = roles::decide(config, &environment.faced_routers, &mut desired);
    roles::report(config, &desired, &role_reasons, found);
    let Accepted { warnings, pending, notes } = findings.finish()?;
    let first_hops = FirstHops::of(&desired.steers);
    let amendable = !waits && pending.is_empty() && rules_are_plain;
    let name = config.node.name.as_ref().map(|name| name.get_ref().clone());
    let (host, api) = (node::host(&config.host), node::api(&config.api));
    Ok(Plan {
        name,
        desired,
        devices,
        workers,
        host,
        api,
        warnings,
        pending,
        notes,
        offered,
        unfollowed,
        amendable,
        first_hops,
        roles: role_reasons,
    })
}

/// An address that can be neither a source, nor a next hop, nor a segment.
fn not_unicast(address: IpAddr) -> Option<&'static str> {
    if address.is_multicast() || address == IpAddr::V4(std::net::Ipv4Addr::BROADCAST) {
        Some("a multicast address")
    } else if address.is_unspecified() {
        Some("the unspecified address")
    } else if address.is_loopback() {
        Some("a loopback address")
    } else {
        None
    }
}
