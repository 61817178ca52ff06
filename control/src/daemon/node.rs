//! The running node: what is planned, what is in force, and the steps from one to the other.

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

use srv6d_dataplane::{Dataplane, Settings};
use srv6d_xsk::offload;
use tracing::{error, info, warn};

use super::RunError;
use super::answers::headlines;
use super::fault;
use super::history::{History, Inputs, now};
use super::path_mtu::PathMtus;
use super::resolution::Resolutions;
use crate::config::{Config, Kernel, Polling};
use crate::confine::keep_of_this_thread;
use crate::fpm::{self, InForce, Placed, Snapshot};
use crate::kernel::{self, Guards, HostVeth, KernelError, Mirror, Seen, Steering};
use crate::plan::{self, Diff, Environment, Plan};
use crate::sonic::{self, SwitchKernel};
use crate::source::Offer;
use crate::source::last_good::with_last_good;
use crate::source::running::Status;
use local::{own_mtu, steered};
use neighbors::NextHops;

/// How many findings of one plan are logged.
const LOGGED_FINDINGS: usize = 20;

/// What brought a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The first one.
    Start,
    /// The configuration file.
    Reload,
    /// Links, addresses or neighbours, or that a learned MTU is too old.
    Kernel,
    /// A router on a path has said how large packets may be.
    PathMtu,
    /// A source of that name offers something else.
    Offer(String),
    /// Back to the inputs of that generation.
    Rollback(u64),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("start"),
            Self::Reload => f.write_str("reload"),
            Self::Kernel => f.write_str("kernel"),
            Self::PathMtu => f.write_str("path MTU"),
            Self::Offer(source) => f.write_str(source),
            Self::Rollback(generation) => write!(f, "rollback to {generation}"),
        }
    }
}

/// Everything the control loop owns.
pub struct Node {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) started: u64,
    /// What is in force, beside what the kernel shows.
    pub(super) inputs: Inputs,
    /// What sources offer now; differs from what is in force while a rollback holds.
    pub(super) latest: Arc<Vec<Offer>>,
    /// How the sources are doing, as of the last question.
    pub(super) statuses: Vec<Status>,
    /// What FRR announces.
    pub(super) announced: Placed,
    /// How FPM is doing, as of the last question.
    pub(super) fpm: Option<(SocketAddr, fpm::Status)>,
    /// Generation and snapshot that the FPM server was told about.
    told: (u64, u64),
    /// The generation that was returned to: it stays until the next reload.
    pub(super) held: Option<u64>,
    pub(super) plan: Plan,
    pub(super) environment: Environment,
    /// What has changed in it since it was last planned.
    unplanned: Seen,
    pub(super) dataplane: Dataplane,
    pub(super) history: History,
    /// Why a configured device that is there is not attached.
    pub(super) refused: BTreeMap<String, String>,
    /// Errors of the last reload, if it was refused.
    pub(super) last_refusal: Vec<String>,
    /// Why not every steered prefix has its kernel route.
    pub(super) steering_trouble: Option<String>,
    /// Where the kernel could not be made to match the switch.
    pub(super) switch_trouble: BTreeSet<String>,
    switch: SwitchKernel,
    /// Kernel index of every attached device: one that was deleted and created again has another.
    attached: BTreeMap<String, u32>,
    pub(super) veth: HostVeth,
    guards: Guards,
    /// As of the last look.
    pub(super) guards_alive: usize,
    steering: Steering,
    pub(super) resolutions: Resolutions,
    next_hops: NextHops,
    path_mtus: PathMtus,
}

impl Node {
    /// Own veth first, then workers, ports, tables, and the kernel's routes last: nothing is steered into a node that
    /// cannot forward yet.
    pub async fn start(
        path: &Path,
        config: Config,
        guards: Guards,
        planned: &Plan,
        mirror: &mut Mirror,
    ) -> Result<Self, RunError> {
        let queues = u32::try_from(planned.workers.cores.len()).unwrap_or(u32::MAX);
        let checksum_off = |name: &str| {
            let done = offload::set_tx_checksum_off(name).and_then(|()| offload::set_tag_insertion_off(name));
            done.map_err(io::Error::other)
        };
        let interface = &planned.host.interface;
        let veth = HostVeth::create(mirror.handle(), interface, queues, own_mtu(planned), checksum_off).await?;
        let undo = veth.clone();
        match Self::start_on(path, config, guards, planned, veth, mirror).await {
            Ok(node) => Ok(node),
            Err(why) => {
                remove(&undo, mirror).await;
                Err(why)
            }
        }
    }

    async fn start_on(
        path: &Path,
        config: Config,
        mut guards: Guards,
        planned: &Plan,
        veth: HostVeth,
        mirror: &mut Mirror,
    ) -> Result<Self, RunError> {
        guards.watch(&veth.name, veth.ifindex)?;
        let mut dataplane = Dataplane::start(settings(planned))?;
        if fault::refuses_offload() {
            dataplane.refuse_offload();
        }
        dataplane.attach_own_veth(&veth.peer)?;
        let host_name = || nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned());
        let mut node = Self {
            name: planned.name.clone().unwrap_or_else(|| host_name().unwrap_or_default()),
            // Whoever asks stands somewhere else.
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            started: now(),
            inputs: Inputs { config: Arc::new(config), ..Inputs::default() },
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
            switch_trouble: BTreeSet::new(),
            switch: SwitchKernel::default(),
            attached: BTreeMap::new(),
            veth,
            guards_alive: guards.alive(),
            guards,
            steering: Steering::default(),
            resolutions: Resolutions::default(),
            next_hops: NextHops::default(),
            path_mtus: PathMtus::default(),
        };
        mirror.look_again();
        node.look(mirror).await?;
        let plan = plan::plan(&node.inputs.config, &node.environment)?;
        log_findings(findings(&plan));
        if plan.host.steer_local
            && !steered(&plan).is_empty()
            && let Some(other) = kernel::steered_by_another(mirror.handle(), &node.veth.name).await?
        {
            return Err(KernelError::SteeredBy(other).into());
        }
        node.take(plan, node.inputs.clone(), Cause::Start, mirror).await?;
        Ok(node)
    }

    /// What the kernel shows now, with the own veth in it, and what routers have said.
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

    /// Somebody needs the kernel's routes: `[kernel]`, or steered prefixes that must leave what `main` knows better alone.
    fn needs_routes(&self) -> bool {
        let config = &self.inputs.config;
        let steers = !config.steers.is_empty() || !self.latest.is_empty() || !self.inputs.offers.is_empty();
        config.kernel.is_some() || self.plan.host.steer_local && (steers || config.fpm.is_some())
    }

    /// Makes the kernel's interfaces, addresses and routes those of the switch, if there is one.
    async fn match_switch(&mut self, config: &Config, mirror: &Mirror) {
        let Some(wanted) = sonic::wanted(config) else { return };
        let trouble = match self.switch.sync(mirror.handle(), &wanted).await {
            Ok(synced) => {
                for (ifindex, name) in synced.renamed {
                    if let Some(device) = self.environment.devices.iter_mut().find(|device| device.ifindex == ifindex) {
                        info!("{}: the switch's port {name}", device.name);
                        device.name = name;
                    }
                }
                synced.trouble.into_iter().collect()
            }
            Err(why) => BTreeSet::from([why.to_string()]),
        };
        for what in trouble.difference(&self.switch_trouble) {
            warn!("{what}");
        }
        self.switch_trouble = trouble;
    }

    /// What the files of a switch come to where other ports exist than before.
    fn see_ports(&mut self) {
        let interfaces: Vec<String> = self.environment.devices.iter().map(|device| device.name.clone()).collect();
        match sonic::with_interfaces(&self.inputs.config, &interfaces) {
            Some(Ok(config)) => self.inputs.config = Arc::new(config),
            Some(Err(errors)) => error!("the switch stays as it is:\n{errors}"),
            None => {}
        }
    }

    /// Puts a plan in force: new ports, tables, then ports that are no longer wanted, then the kernel's routes. On an
    /// error what was in force stays so.
    pub(super) async fn take(
        &mut self,
        mut plan: Plan,
        inputs: Inputs,
        cause: Cause,
        mirror: &Mirror,
    ) -> Result<Diff, RunError> {
        self.match_switch(&inputs.config, mirror).await;
        let added = self.attach_new(&plan, &cause)?;
        self.take_down_refused(&mut plan.desired);
        let diff = plan::diff(self.dataplane.desired(), &plan.desired);
        if !diff.is_empty() || cause == Cause::Start {
            if inputs.config.kernel.is_some() {
                self.dataplane.expect_amendments();
            }
            if let Err(why) = self.dataplane.publish(&plan.desired) {
                self.detach_all(&added);
                return Err(why.into());
            }
            self.history.push(self.dataplane.generation(), &cause.to_string(), &diff, inputs.clone());
            info!("generation {} ({cause}): {diff}", self.dataplane.generation().0);
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
        self.remember_faced_routers();
        self.unplanned = Seen::default();
        self.steer(mirror).await;
        self.ask_for_unresolved(mirror);
        Ok(diff)
    }

    /// A port that a learned route to SIDs has left by stays open when the route goes: what passes through the node must
    /// not end with a session of BGP.
    fn remember_faced_routers(&mut self) {
        let ports = self.plan.desired.ports.iter().zip(&self.plan.roles);
        let faced = ports.filter(|(_, reason)| reason.is_kept()).map(|(port, _)| port.name.clone());
        self.environment.faced_routers.extend(faced);
    }

    /// Something changed in the kernel: plan anew, publish only if that changes the tables.
    pub async fn follow_kernel(&mut self, mirror: &mut Mirror) -> Result<(), RunError> {
        mirror.follow_routes(self.needs_routes())?;
        self.note_settled(mirror);
        let kernel = self.inputs.config.kernel.as_ref();
        mirror.hold_withdrawn(kernel.map_or(Duration::ZERO, Kernel::hold_time));
        self.look(mirror).await?;
        let is_well = self.refused.is_empty() && self.switch_trouble.is_empty() && self.steering_trouble.is_none();
        if is_well && (self.unplanned.is_nothing() || self.amend(mirror).await) {
            return Ok(());
        }
        self.see_ports();
        self.follow(self.inputs.clone(), Cause::Kernel, mirror).await
    }

    /// A source offers something else than before. While a rollback holds, that is only remembered.
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
        let inputs = Inputs { config: self.inputs.config.clone(), offers };
        self.follow(inputs, Cause::Offer(source.to_owned()), mirror).await
    }

    /// Offers, each prefix with the paths that are in force for it now.
    pub(super) fn keep_last_good(&self, offers: &[Offer]) -> Vec<Offer> {
        with_last_good(offers, &self.inputs.offers, &self.plan.offered)
    }

    /// FRR announces something else than before; `None`: it is not listened to.
    pub async fn follow_announced(&mut self, snapshot: Option<Arc<Snapshot>>, mirror: &Mirror) -> Result<(), RunError> {
        self.announced.announced(snapshot.unwrap_or_default(), &self.environment);
        self.environment.announced = self.announced.routes(&self.environment);
        self.follow(self.inputs.clone(), Cause::Offer(plan::FPM.to_owned()), mirror).await
    }

    /// FPM is no longer configured, and may be again.
    pub fn forget_announced(&mut self) {
        (self.announced, self.told) = (Placed::default(), (0, 0));
    }

    /// What the FPM server has to know of the plan in force, unless it knows already.
    pub fn announced_in_force(&mut self) -> Option<InForce> {
        let now = (self.dataplane.generation().0, self.announced.serial());
        if std::mem::replace(&mut self.told, now) == now {
            return None;
        }
        Some(self.announced.in_force(&self.plan))
    }

    /// What came by itself is taken if it fits; otherwise the tables stay as they are.
    async fn follow(&mut self, inputs: Inputs, cause: Cause, mirror: &Mirror) -> Result<(), RunError> {
        match plan::plan_with(&inputs.config, &self.environment, &inputs.offers) {
            Ok(plan) => match self.take(plan, inputs, cause, mirror).await {
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

    /// Every few seconds: a fresh look, neighbours in use, the guard.
    pub async fn tick(&mut self, mirror: &mut Mirror) -> Result<(), RunError> {
        self.follow_kernel(mirror).await?;
        self.resolutions.expire(Instant::now());
        self.ask_for_unresolved(mirror);
        for (port, address) in self.dataplane.used_neighbors() {
            self.keep_fresh(port, address, mirror);
        }
        self.look_for_neighbors();
        self.look_after_guards();
        Ok(())
    }

    /// One that ended cannot be replaced: executing a program is what the daemon has given up.
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

    /// Packets wait for neighbours, a path carries less than was known, or a worker has died.
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
        self.follow(self.inputs.clone(), Cause::PathMtu, mirror).await
    }

    /// The descriptor that is readable when workers want something.
    pub fn wakeup(&self) -> io::Result<OwnedFd> {
        self.dataplane.wakeup().try_clone_to_owned()
    }

    /// One line for systemd and the log.
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

    /// Local applications go back to the kernel's routes first, then the ports, then the veth.
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

/// What deserves a look, and what waits.
fn findings(plan: &Plan) -> impl Iterator<Item = String> {
    headlines(&plan.warnings).into_iter().chain(headlines(&plan.pending))
}

/// A link that goes may leave a thousand paths waiting: the log has the first of them.
fn log_findings(mut findings: impl Iterator<Item = String>) {
    for finding in findings.by_ref().take(LOGGED_FINDINGS) {
        warn!("{finding}");
    }
    let more = findings.count();
    if more > 0 {
        warn!("{more} more like these: `srv6d show generation` has all");
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
