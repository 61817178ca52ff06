//! Plans [`Desired`] from [`Config`] and [`Environment`]: names become numbers, defaults are filled in, and the
//! relations between tables of the configuration are checked.
//!
//! Something that is missing in the environment (a device that does not exist yet, an address that has not been
//! assigned) is never an error: the entry is left out or kept down, and reported as pending.

#![forbid(unsafe_code)]

mod amend;
mod balance;
mod diff;
mod emulated;
mod environment;
mod followed;
mod glb;
mod hops;
mod lookups;
mod node;
mod offered;
mod owners;
mod ports;
mod probes;
mod roles;
mod routes;
mod rules;
mod sids;
mod sources;
mod steers;
mod weights;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::{IpNet, Ipv6Net};
use srv6d_srv6::desired::{Block, Desired, HostPort, LocalSid, Path, Route, Steer, TableId};

use srv6d_config::{Accepted, Config, Diagnostic, Errors, Findings, HostEngine, Polling, PortMode};
use srv6d_offer::{Offer, OfferOutcome};

pub use amend::{FirstHopCounts, PlanChange, PlanInputs, neighbors, plan_change};
pub use diff::{Change, Diff, diff};
pub use environment::{Device, Environment, HostVeth, KernelNeighbor};
pub use followed::whole_function;
pub use followed::{FPM, Unfollowed};
pub use glb::Glb;
use lookups::Lookups;
pub use node::DEFAULT_FRAMES;
use owners::Owners;
use ports::Ports;
pub use probes::Probes;
pub use roles::RoleReason;
use rules::Rules;
pub use srv6d_kernel_routes::{
    KernelAction, KernelEncap, KernelHop, KernelRoute, KernelSid, KernelSidAction, RouteKey,
};
pub use weights::{WeightsFrom, capacity_of_hop, capacity_of_path};

/// Everything the daemon needs to run a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Name of the node; default: the host name.
    pub name: String,
    /// Input of the packet path.
    pub desired: Desired,
    /// Devices to open sockets on, without the veth of srv6d.
    pub devices: Vec<PortDevice>,
    /// Worker threads.
    pub workers: Workers,
    /// The veth of srv6d.
    pub host: Host,
    /// Addresses of the management socket and the metrics.
    pub api: Api,
    /// Heartbeats, if they are configured.
    pub glb: Option<Glb>,
    /// Path probes, if they are configured.
    pub probes: Option<Probes>,
    /// All paths of those steered prefixes of which probes leave some out.
    pub left_out: BTreeMap<(TableId, IpNet), Vec<Path>>,
    /// Entries that are accepted, but are probably not what was meant.
    pub warnings: Vec<Diagnostic>,
    /// Entries that are right, and wait for something that does not exist yet.
    pub pending: Vec<Diagnostic>,
    /// Facts that are worth knowing and wait for nothing.
    pub notes: Vec<Diagnostic>,
    /// Outcomes of everything that sources offer, and of followed routes that are not in force.
    pub offered: Vec<OfferOutcome>,
    /// Routes of followed tables that stay with the kernel. There may be a million, so whoever shows them shares them.
    pub unfollowed: Arc<Vec<Unfollowed>>,
    /// Whether followed routes can be amended one by one: rules lead to `main` only, and nothing is pending or
    /// refused, because it might wait for any route.
    pub amendable: bool,
    /// First hops of paths. A route to a first hop is not amended alone.
    pub first_hops: FirstHopCounts,
    /// The reason for the role of each port.
    pub roles: Vec<RoleReason>,
}

/// One device that carries ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDevice {
    /// Name of the device.
    pub device: String,
    /// AF_XDP mode.
    pub mode: PortMode,
    /// Whether the environment has the device.
    pub present: bool,
}

/// `[workers]` with its defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workers {
    /// One worker per item, pinned to the core if one is given. It is never empty.
    pub cores: Vec<Option<usize>>,
    /// How workers wait for packets.
    pub polling: Polling,
    /// Number of packets that drivers receive in one system call of a worker. 0 means that they receive in
    /// interrupts.
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
    /// Whether steered prefixes get kernel routes into the veth.
    pub steer_local: bool,
    /// What encapsulates the traffic of local applications.
    pub engine: HostEngine,
}

/// `[api]` with its defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Api {
    /// Path of the Unix socket.
    pub socket: PathBuf,
    /// Address of the Prometheus metrics. `None` means off.
    pub metrics: Option<SocketAddr>,
}

/// The inputs of every part of the planning.
struct Context<'a> {
    config: &'a Config,
    environment: &'a Environment,
    rules: Rules,
    ports: Ports<'a>,
    lookups: Lookups,
}

impl Context<'_> {
    /// Returns true if the kernel's routes of this table are followed.
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

/// Resolves a configuration, with the offers of sources. An offer never causes an error: see [`Plan::offered`].
///
/// # Errors
/// Returns the same errors as [`plan`].
pub fn plan_with(config: &Config, environment: &Environment, offers: &[Offer]) -> Result<Plan, Errors> {
    let mut findings = Findings::new(config.source.clone());
    let found = &mut findings;
    found.extend(&config.remarks);
    let name = node::name(&config.node, environment);
    let workers = node::workers(&config.workers, environment, found);
    node::check_host(config, found);
    let tunnel = node::tunnel(&config.node, environment, found);
    let rules = ports::rules(config, environment);
    let ports = Ports::resolve(config, environment, &rules, found);
    let context = Context { config, environment, rules, ports, lookups: Lookups::default() };

    let blocks = sids::blocks(config, found);
    let host_prefixes = sids::host_prefixes(config, found);
    let Owned { sids, mut routes, steers, mut unfollowed, mut offered, waits } =
        owned(&context, offers, (&blocks, &host_prefixes), found);
    let neighbors = ports::neighbors(&context, found);
    sources::check(&context, found);

    let refused: Vec<Unfollowed> = offered.iter().filter_map(followed::refused).collect();
    routes.extend(refused.iter().map(Unfollowed::left_to_the_kernel));
    unfollowed.extend(refused);
    // Followed routes that are in force are listed with their steered prefixes.
    offered.retain(|outcome| !followed::is_in_force(outcome));

    let rules_lead_to_main_only = context.rules.lead_to_main_only(&environment.routes);
    let devices = context.ports.devices();
    // The tc program forwards for the port of local applications.
    let engine = node::host(&config.host).engine;
    let by_tc = context.ports.host.filter(|_| engine != HostEngine::Worker);
    let emulated = emulated::ports(config, &context.ports.desired, &workers, found);
    let mut desired = Desired {
        host: (context.ports.host.zip(environment.host.as_ref()))
            .map(|(port, veth)| HostPort { port, kernel_mac: veth.kernel_mac }),
        local_addresses: context.ports.local_addresses(environment, &context.rules),
        offload: ports::offload(config),
        auto_offload: ports::auto_offload(config),
        balance: balance::plan(config, &emulated, found),
        emulated,
        ports: context.ports.desired,
        tunnel,
        policy: node::policy(&config.node, &name),
        blocks,
        host_prefixes,
        sids,
        steers,
        routes,
        neighbors,
        path_mtus: environment.path_mtus.clone(),
    };
    let glb = glb::plan(config, &mut desired.balance.settings, found);
    let probes = probes::plan(config, found);
    desired.balance.links = Arc::clone(&environment.links);
    desired.offload.extend(by_tc);
    desired.auto_offload.extend(by_tc.filter(|_| engine == HostEngine::Auto));
    weights::weigh(config, &mut desired, found);
    let role_reasons = roles::decide(config, &environment.faced_routers, &mut desired);
    roles::report(config, &desired, &role_reasons, found);
    let Accepted { warnings, pending, notes } = findings.finish()?;
    let first_hops = FirstHopCounts::of(&desired.steers);
    let unused = probes.as_ref().map(|_| &*environment.unused_paths);
    let left_out = unused.map(|unused| probes::leave_out(&mut desired.steers, unused)).unwrap_or_default();
    let amendable = !waits && pending.is_empty() && rules_lead_to_main_only;
    let (host, api) = (node::host(&config.host), node::api(&config.api));
    Ok(Plan {
        name,
        desired,
        devices,
        workers,
        host,
        api,
        glb,
        probes,
        left_out,
        warnings,
        pending,
        notes,
        offered,
        unfollowed: Arc::new(unfollowed),
        amendable,
        first_hops,
        roles: role_reasons,
    })
}

/// The entries that own a prefix, and what became of everything else that wanted one.
struct Owned {
    sids: Vec<LocalSid>,
    routes: Vec<Route>,
    steers: Vec<Steer>,
    unfollowed: Vec<Unfollowed>,
    offered: Vec<OfferOutcome>,
    /// An offered prefix, or one of its paths, is pending or refused.
    waits: bool,
}

/// Plans everything that owns a prefix. Who comes first owns it: the file, subnets of ports, SIDs and routes that FRR
/// announces, and then those of the kernel. Steered prefixes that are not in the file come last, those of FRR and the kernel
/// together with those of controllers ([`offered::record_owners`] has their order). Paths are resolved when all owners are
/// recorded, because a path may run into any of them.
fn owned(
    context: &Context<'_>,
    offers: &[Offer],
    (blocks, host_prefixes): (&[Block], &[Ipv6Net]),
    found: &mut Findings,
) -> Owned {
    let mut owners = Owners::default();
    let mut sids = sids::sids(context, blocks, &mut owners, found);
    let mut routes = routes::routes(context, &mut owners, found);
    let owns = steers::record_owners(context, &mut owners, found);
    routes.extend(routes::connected(context, &mut owners));
    let followed = followed::follow(context, &mut owners);
    sids.extend(followed.sids);
    routes.extend(followed.routes);
    let offers: Vec<&Offer> = offers.iter().chain(&followed.offers).collect();
    let reserved = offered::Reserved::of(context, blocks, host_prefixes);
    let entries = offered::record_owners(context, &offers, &reserved, &mut owners);
    let mut names = steers::Names::new();
    let mut steers = steers::steers(context, &owns, &owners, &mut names, found);
    let (more, offered, waits) = offered::steers(context, entries, blocks, &owners, &mut names);
    steers.extend(more);
    Owned { sids, routes, steers, unfollowed: followed.unfollowed, offered, waits }
}

/// Returns a description of an address that can be neither a source, nor a next hop, nor a segment.
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
