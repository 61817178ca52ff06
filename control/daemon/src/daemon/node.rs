//! The running node: the plan, the state in force, and the steps from one to the other.

mod amend;
mod local;
mod neighbors;
mod ports;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use srv6d_dataplane::{Dataplane, Generation, Settings};
use srv6d_xsk::device_features;
use tracing::{debug, error, info, warn};

use super::RunError;
use super::answers::headlines;
use super::fault;
use super::history::{History, Inputs, now};
use super::jobs::Counted;
use super::overlay::{Configured, Extension};
use super::path_mtu::PathMtus;
use super::resolution::Resolutions;
use crate::confine::keep_of_this_thread;
use crate::fpm::{self, InForce, Placed, Snapshot};
use crate::glb::Glb;
use crate::job::Jobs;
use crate::kernel::{self, Guards, HostVeth, KernelError, Mirror, Seen, Steering};
use crate::probes::Probing;
use crate::source::running::Status;
use local::{own_mtu, steered};
use neighbors::NextHopsInForce;
use srv6d_config::{Kernel, Polling};
use srv6d_offer::Offer;
use srv6d_offer::with_last_good;
use srv6d_plan::{self as plan, Diff, Environment, Plan};
use srv6d_srv6::desired::Links;

/// Largest number of findings of one plan that are logged.
const LOGGED_FINDINGS: usize = 20;

/// The cause of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The daemon has started.
    Start,
    /// The configuration file was read again.
    Reload,
    /// Links, addresses, neighbours or routes have changed, or a learned MTU has expired.
    Kernel,
    /// A router on a path has reported its MTU.
    PathMtu,
    /// Heartbeats tell of other capacities or loads, from which weights follow.
    Links,
    /// Probes have found that other paths work.
    Probes,
    /// A source of that name has another offer.
    Offer(String),
    /// An operator has returned to the inputs of that generation.
    Rollback(u64),
}

impl Cause {
    /// Returns true if somebody waits for the outcome. Such a cause fails as a whole if a port cannot be attached; with
    /// any other one, the port is left for later.
    pub(super) const fn is_request(&self) -> bool {
        match self {
            Self::Start | Self::Reload | Self::Rollback(_) => true,
            Self::Kernel | Self::PathMtu | Self::Links | Self::Probes | Self::Offer(_) => false,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("start"),
            Self::Reload => f.write_str("reload"),
            Self::Kernel => f.write_str("kernel"),
            Self::PathMtu => f.write_str("path MTU"),
            Self::Links => f.write_str("heartbeats"),
            Self::Probes => f.write_str("probes"),
            Self::Offer(source) => f.write_str(source),
            Self::Rollback(generation) => write!(f, "rollback to {generation}"),
        }
    }
}

/// Everything that the control loop owns.
pub struct Node {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) started: u64,
    /// Reads configurations.
    pub(super) extension: Arc<dyn Extension>,
    /// The inputs in force, besides the state of the kernel.
    pub(super) inputs: Inputs,
    /// The present offers of sources. They differ from those in force while a rollback holds.
    pub(super) latest: Arc<Vec<Offer>>,
    /// State of the sources at the last question.
    pub(super) statuses: Vec<Status>,
    /// The routes that FRR announces.
    pub(super) announced: Placed,
    /// State of FPM at the last question.
    pub(super) fpm: Option<(SocketAddr, fpm::Status)>,
    /// Generation and snapshot that the FPM server was told about.
    told: (u64, u64),
    /// The generation that was returned to. It stays until the next reload.
    pub(super) held: Option<u64>,
    pub(super) plan: Plan,
    pub(super) environment: Environment,
    /// Changes of the environment since it was last planned.
    unplanned: Seen,
    pub(super) dataplane: Dataplane,
    pub(super) history: History,
    /// Reasons why configured devices that exist are not attached.
    pub(super) refused: BTreeMap<String, String>,
    /// Errors of the last reload, if it was refused.
    pub(super) last_refusal: Vec<String>,
    /// The reason why not every steered prefix has its kernel route.
    pub(super) steering_trouble: Option<String>,
    /// Failures to make the kernel match the overlay.
    pub(super) overlay_trouble: BTreeSet<String>,
    /// Kernel index of every attached device. A device that was deleted and created again has another one.
    attached: BTreeMap<String, u32>,
    pub(super) veth: HostVeth,
    guards: Guards,
    /// Number of guards that were alive at the last check.
    pub(super) guards_alive: usize,
    steering: Steering,
    pub(super) resolutions: Resolutions,
    next_hops: NextHopsInForce,
    path_mtus: PathMtus,
    /// Heartbeats of this node and its neighbours.
    pub(super) glb: Glb,
    /// Probes of paths.
    pub(super) probing: Probing,
    /// Jobs whose ranks joined here.
    pub(super) jobs: Jobs,
    /// What was counted of them with the plan in force.
    pub(super) counted: Counted,
}

impl Node {
    /// Starts the own veth first, then workers, ports and tables, and the kernel's routes last: nothing is steered
    /// into a node that cannot forward yet.
    pub async fn start(
        path: &Path,
        extension: Arc<dyn Extension>,
        configured: Configured,
        guards: Guards,
        planned: &Plan,
        mirror: &mut Mirror,
    ) -> Result<Self, RunError> {
        let queues = u32::try_from(planned.workers.cores.len()).unwrap_or(u32::MAX);
        let checksum_off = |name: &str| {
            let done =
                device_features::set_tx_checksum_off(name).and_then(|()| device_features::set_tag_insertion_off(name));
            done.map_err(io::Error::other)
        };
        let interface = &planned.host.interface;
        let veth = HostVeth::create(mirror.handle(), interface, queues, own_mtu(planned), checksum_off).await?;
        let undo = veth.clone();
        match Self::start_on(path, extension, configured, guards, planned, veth, mirror).await {
            Ok(node) => Ok(node),
            Err(why) => {
                remove(&undo, mirror).await;
                Err(why)
            }
        }
    }

    async fn start_on(
        path: &Path,
        extension: Arc<dyn Extension>,
        configured: Configured,
        mut guards: Guards,
        planned: &Plan,
        veth: HostVeth,
        mirror: &mut Mirror,
    ) -> Result<Self, RunError> {
        guards.watch(&veth.name, veth.ifindex)?;
        let mut dataplane = Dataplane::start(settings(planned))?;
        fault::prepare(&mut dataplane);
        dataplane.attach_own_veth(&veth.peer, &veth.name)?;
        let mut node = Self {
            name: planned.name.clone(),
            // A client that asks for the path has another current directory.
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            started: now(),
            extension,
            inputs: Inputs { configured, ..Inputs::default() },
            latest: Arc::default(),
            statuses: Vec::new(),
            announced: Placed::default(),
            fpm: None,
            told: (0, 0),
            held: None,
            plan: planned.clone(),
            environment: Environment::default(),
            unplanned: Seen::default(),
            dataplane,
            history: History::default(),
            refused: BTreeMap::new(),
            last_refusal: Vec::new(),
            steering_trouble: None,
            overlay_trouble: BTreeSet::new(),
            attached: BTreeMap::new(),
            veth,
            guards_alive: guards.alive(),
            guards,
            steering: Steering::default(),
            resolutions: Resolutions::default(),
            next_hops: NextHopsInForce::default(),
            path_mtus: PathMtus::default(),
            glb: Glb::default(),
            probing: Probing::default(),
            jobs: Jobs::default(),
            counted: Counted::default(),
        };
        mirror.look_again();
        node.look(mirror).await?;
        let plan = node.inputs.plan(&node.environment)?;
        log_findings(findings(&plan));
        if plan.host.steer_local
            && !steered(&plan).is_empty()
            && let Some(other) = kernel::steered_by_another(mirror.handle(), &node.veth.name).await?
        {
            return Err(KernelError::SteeredBy(other).into());
        }
        node.put_in_force(plan, node.inputs.clone(), Cause::Start, mirror).await?;
        Ok(node)
    }

    /// Reads the present state of the kernel, with the own veth in it, and the learned MTUs.
    pub(super) async fn look(&mut self, mirror: &mut Mirror) -> Result<(), RunError> {
        let mut seen = mirror.look(&mut self.environment).await?;
        if self.environment.device(&self.veth.name).is_none() {
            return Err(RunError::OwnVethGone(self.veth.name.clone()));
        }
        self.environment.host = Some(self.veth.for_plan());
        let path_mtus = self.path_mtus.believed(Instant::now());
        seen.devices |= path_mtus != self.environment.path_mtus;
        self.environment.path_mtus = path_mtus;
        self.environment.announced = self.announced.routes(&self.environment);
        self.unplanned.extend(seen);
        Ok(())
    }

    /// Returns true if the kernel's routes are needed: for `[kernel]`, or because steered prefixes must not override
    /// more specific routes of `main`.
    fn needs_routes(&self) -> bool {
        let config = self.inputs.config();
        let steers = !config.steers.is_empty() || !self.latest.is_empty() || !self.inputs.offers.is_empty();
        config.kernel.is_some() || self.plan.host.steer_local && (steers || config.fpm.is_some())
    }

    /// Makes the kernel match what an extension adds to the configuration.
    async fn match_overlay(&mut self, inputs: &Inputs, mirror: &Mirror) {
        let Some(overlay) = &inputs.configured.overlay else { return };
        let trouble = match overlay.sync(mirror.handle()).await {
            Ok(synced) => {
                for (ifindex, name) in synced.renamed {
                    if let Some(device) = self.environment.devices.iter_mut().find(|device| device.ifindex == ifindex) {
                        info!("{} is called {name} from now on", device.name);
                        device.name = name;
                    }
                }
                synced.trouble.into_iter().collect()
            }
            Err(why) => BTreeSet::from([why.to_string()]),
        };
        for what in trouble.difference(&self.overlay_trouble) {
            warn!("{what}");
        }
        self.overlay_trouble = trouble;
    }

    /// Returns the names of all interfaces.
    pub(super) fn interfaces(&self) -> Vec<String> {
        self.environment.devices.iter().map(|device| device.name.clone()).collect()
    }

    /// Evaluates the configuration again when other ports exist than before.
    fn see_ports(&mut self) {
        match self.inputs.configured.clone().for_interfaces(&self.interfaces()) {
            Ok(configured) => self.inputs.configured = configured,
            Err(errors) => error!("the configuration stays as it is:\n{errors}"),
        }
    }

    /// Puts a plan in force: new ports, tables, then ports that are no longer wanted, then the kernel's routes. After
    /// an error the former state stays in force.
    pub(super) async fn put_in_force(
        &mut self,
        mut plan: Plan,
        inputs: Inputs,
        cause: Cause,
        mirror: &Mirror,
    ) -> Result<Diff, RunError> {
        self.match_overlay(&inputs, mirror).await;
        let added = self.attach_new(&plan, &cause)?;
        self.take_down_refused(&mut plan.desired);
        let diff = plan::diff(self.dataplane.desired(), &plan.desired);
        if !diff.is_empty() || cause == Cause::Start {
            if inputs.config().kernel.is_some() || plan.probes.is_some() {
                self.dataplane.expect_amendments();
            }
            if let Err(why) = self.dataplane.publish(&plan.desired) {
                self.detach_all(&added);
                return Err(why.into());
            }
            self.history.push(self.dataplane.generation(), &cause.to_string(), &diff, inputs.clone());
            log_generation(self.dataplane.generation(), &cause, &diff);
        }
        self.detach_unwanted(&plan);
        if plan.devices.iter().any(|port| port.present && self.had_to_go(&port.device)) {
            self.attach_new(&plan, &Cause::Kernel)?;
        }
        if cause != Cause::Start {
            let known: BTreeSet<String> = findings(&self.plan).collect();
            log_findings(findings(&plan).filter(|finding| !known.contains(finding)));
        }
        self.inputs = inputs;
        self.plan = plan;
        self.counted = Counted::default();
        self.remember_faced_routers();
        self.unplanned = Seen::default();
        self.follow_glb();
        self.follow_probes();
        self.steer(mirror).await;
        self.ask_for_unresolved(mirror);
        Ok(diff)
    }

    /// Records the ports that a learned route to SIDs leaves by. They stay open when the route goes, because
    /// forwarding must not end with a BGP session.
    fn remember_faced_routers(&mut self) {
        let ports = self.plan.desired.ports.iter().zip(&self.plan.roles);
        let faced = ports.filter(|(_, reason)| reason.is_kept()).map(|(port, _)| port.name.clone());
        self.environment.faced_routers.extend(faced);
    }

    /// Handles a change in the kernel. It plans anew, and publishes only if the tables change.
    pub async fn follow_kernel(&mut self, mirror: &mut Mirror) -> Result<(), RunError> {
        mirror.follow_routes(self.needs_routes())?;
        self.note_settled(mirror);
        let kernel = self.inputs.config().kernel.as_ref();
        mirror.hold_withdrawn(kernel.map_or(Duration::ZERO, Kernel::hold_time));
        self.look(mirror).await?;
        let is_well = self.refused.is_empty() && self.overlay_trouble.is_empty() && self.steering_trouble.is_none();
        if is_well && (self.unplanned.is_nothing() || self.amend(mirror).await) {
            return Ok(());
        }
        self.see_ports();
        self.plan_and_publish(self.inputs.clone(), Cause::Kernel, mirror).await
    }

    /// Handles another offer of a source. While a rollback holds, the offer is only stored.
    pub async fn follow_offers(
        &mut self,
        offers: Vec<Offer>,
        source: &str,
        mirror: &mut Mirror,
    ) -> Result<(), RunError> {
        self.latest = Arc::new(offers);
        if self.needs_routes() {
            mirror.follow_routes(true)?;
            self.look(mirror).await?;
        }
        if self.held.is_some() || self.inputs.offers == self.latest {
            return Ok(());
        }
        let offers = Arc::new(self.keep_last_good(&self.latest));
        let inputs = Inputs { configured: self.inputs.configured.clone(), offers };
        self.plan_and_publish(inputs, Cause::Offer(source.to_owned()), mirror).await
    }

    /// Returns the offers, each prefix with the paths that are in force for it now.
    pub(super) fn keep_last_good(&self, offers: &[Offer]) -> Vec<Offer> {
        with_last_good(offers, &self.inputs.offers, &self.plan.offered)
    }

    /// Handles another announcement of FRR. `None` means that FPM is not configured.
    pub async fn follow_announced(&mut self, snapshot: Option<Arc<Snapshot>>, mirror: &Mirror) -> Result<(), RunError> {
        self.announced.announced(snapshot.unwrap_or_default(), &self.environment);
        self.environment.announced = self.announced.routes(&self.environment);
        self.plan_and_publish(self.inputs.clone(), Cause::Offer(plan::FPM.to_owned()), mirror).await
    }

    /// Handles other capacities or loads of links.
    pub async fn follow_links(&mut self, links: Arc<Links>, mirror: &Mirror) -> Result<(), RunError> {
        self.environment.links = links;
        self.plan_and_publish(self.inputs.clone(), Cause::Links, mirror).await
    }

    /// Forgets the announcements, because FPM is no longer configured.
    pub fn forget_announced(&mut self) {
        (self.announced, self.told) = (Placed::default(), (0, 0));
    }

    /// Returns what the FPM server has to know of the plan in force, unless it knows that already.
    pub fn announced_in_force(&mut self) -> Option<InForce> {
        let now = (self.dataplane.generation().0, self.announced.serial());
        if std::mem::replace(&mut self.told, now) == now {
            return None;
        }
        Some(self.announced.in_force(&self.plan))
    }

    /// Plans inputs that changed without a request. They are put in force if they fit; otherwise the tables stay as
    /// they are.
    async fn plan_and_publish(&mut self, inputs: Inputs, cause: Cause, mirror: &Mirror) -> Result<(), RunError> {
        match inputs.plan(&self.environment) {
            Ok(plan) => match self.put_in_force(plan, inputs, cause, mirror).await {
                Ok(_) => {}
                Err(RunError::Dataplane(why)) => {
                    self.unplanned.all_routes = true;
                    error!("the tables stay as they are: {why}");
                }
                Err(why) => return Err(why),
            },
            Err(errors) => {
                self.unplanned.all_routes = true;
                error!("the tables stay as they are, {cause} does not fit:\n{errors}");
            }
        }
        Ok(())
    }

    /// Does the work of every few seconds: it reads the kernel's state, refreshes neighbours in use, and checks the
    /// guards.
    pub async fn tick(&mut self, mirror: &mut Mirror) -> Result<(), RunError> {
        self.follow_kernel(mirror).await?;
        self.resolutions.expire(Instant::now());
        self.ask_for_unresolved(mirror);
        for (port, address) in self.dataplane.used_neighbors() {
            self.keep_fresh(port, address, mirror);
        }
        self.look_for_neighbors();
        self.look_after_guards();
        self.follow_glb();
        self.follow_probes();
        Ok(())
    }

    /// Checks the guards. A guard that ended cannot be replaced, because the daemon has given up the privilege to
    /// execute a program.
    fn look_after_guards(&mut self) {
        let alive = self.guards.alive();
        if alive >= std::mem::replace(&mut self.guards_alive, alive) {
            return;
        }
        if alive > 0 {
            warn!("a guard process has ended: {alive} left");
            return;
        }
        error!(
            "all guard processes have ended: {} would outlive a srv6d that is killed now, until `srv6d cleanup` or the next \
             start; restart srv6d to have guards again",
            self.veth.name
        );
    }

    /// Handles the requests of workers: packets that wait for neighbours, a smaller path MTU, or a dead worker.
    pub async fn serve_workers(&mut self, mirror: &mut Mirror) -> Result<(), RunError> {
        if !self.dataplane.healthy() {
            return Err(RunError::WorkerDied);
        }
        self.ask_for_wanted(mirror);
        let smaller = self.dataplane.smaller_paths();
        if smaller.is_empty() {
            return Ok(());
        }
        for (segments, mtu) in smaller {
            self.path_mtus.learn(segments, mtu, Instant::now());
        }
        self.look(mirror).await?;
        self.plan_and_publish(self.inputs.clone(), Cause::PathMtu, mirror).await
    }

    /// Returns the descriptor that is readable when workers have a request.
    pub fn wakeup(&self) -> io::Result<OwnedFd> {
        self.dataplane.wakeup().try_clone_to_owned()
    }

    /// Makes the heartbeats follow the ports and the configuration in force, and opens sockets that were refused before.
    fn follow_glb(&mut self) {
        self.glb.follow(&self.plan, &self.environment, &self.dataplane);
    }

    /// Makes the probes follow the paths and the configuration in force, and opens sockets that were refused before.
    fn follow_probes(&mut self) {
        self.probing.follow(&self.plan, &self.environment, &self.dataplane);
    }

    /// Returns one line for systemd and the log.
    pub fn status(&self) -> String {
        let desired = self.dataplane.desired();
        let pending = self.plan.devices.len().saturating_sub(self.attached.len());
        format!(
            "generation {}, {} ports attached ({pending} pending), {} SIDs, {} steered prefixes",
            self.dataplane.generation().0,
            self.attached.len(),
            desired.sids.len(),
            desired.steers.len()
        )
    }

    /// Returns the traffic of local applications to the kernel's routes first, then the ports, then removes the veth.
    pub async fn stop(mut self, mirror: &Mirror) {
        if let Err(why) = self.steering.clear(mirror.handle(), (&self.veth.name, self.veth.ifindex)).await {
            warn!("{why}");
        }
        let counters = self.dataplane.stop();
        remove(&self.veth, mirror).await;
        self.guards.dismiss();
        info!("stopped: {}", counters.total.equation());
    }
}

/// Returns the warnings and the pending entries of a plan.
fn findings(plan: &Plan) -> impl Iterator<Item = String> {
    headlines(&plan.warnings).into_iter().chain(headlines(&plan.pending))
}

/// Logs the first findings. A link that goes may leave a thousand paths pending.
fn log_findings(mut findings: impl Iterator<Item = String>) {
    for finding in findings.by_ref().take(LOGGED_FINDINGS) {
        warn!("{finding}");
    }
    let more = findings.count();
    if more > 0 {
        warn!("{more} more findings like these: `srv6d show generation` lists all");
    }
}

/// Logs a generation. Loads may change ten times a second, so theirs are for debugging.
fn log_generation(Generation(number): Generation, cause: &Cause, diff: &Diff) {
    if *cause == Cause::Links {
        debug!("generation {number} ({cause}): {diff}");
    } else {
        info!("generation {number} ({cause}): {diff}");
    }
}

async fn remove(veth: &HostVeth, mirror: &Mirror) {
    let deleted: Result<(), KernelError> = veth.delete(mirror.handle()).await;
    if let Err(why) = deleted {
        warn!("{why}");
    }
}

fn settings(plan: &Plan) -> Settings {
    Settings {
        cores: plan.workers.cores.clone(),
        polling: match plan.workers.polling {
            Polling::Adaptive => srv6d_dataplane::Polling::Adaptive,
            Polling::Busy => srv6d_dataplane::Polling::Busy,
        },
        busy_budget: plan.workers.busy_budget,
        frames: plan.workers.frames,
        ring: plan.workers.ring,
        ports: u32::try_from(plan.devices.len() + 1).unwrap_or(u32::MAX),
        worker_start: || keep_of_this_thread(&[]),
    }
}
