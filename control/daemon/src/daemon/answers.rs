//! The answers of the daemon on its management socket.

use std::sync::Arc;

use crate::capture::{self, Turn};
use crate::confine;
use crate::fpm;
use crate::kernel::{self, Mirror};
use crate::limits;
use crate::source;
use srv6d_api::server::Answer;
use srv6d_api::state::{
    CountersView, GenerationView, PathStatus, ProcessView, Published, SourceView, StageTime, State, UnfollowedRoute,
    WorkerStatus,
};
use srv6d_api::{Diff, Direction, Refusal, Reloaded, Request, Response, Topic};
use srv6d_config::{Diagnostic, Errors};
use srv6d_dataplane::{Polling, STAGES, Workload};
use srv6d_plan::{self as plan, Plan, Unfollowed};
use srv6d_srv6::desired::{Port, TableId};

use srv6d_offer::Offer;

use super::history::Inputs;
use super::node::{Cause, Node};
use super::overlay::Configured;
use super::reading::Read;
use super::view::{RouteTable, View, device_of};

impl Node {
    /// Carries out a request that needs no configuration to be read.
    pub async fn answer(&mut self, request: Request, mirror: &mut Mirror) -> Answer {
        match request {
            Request::Show { topic: Topic::Ports } => self.show_ports(mirror).await.into(),
            Request::Show { topic: Topic::Counters } => {
                Response::Counters(Box::new(self.counters(mirror).await)).into()
            }
            Request::Show { topic: Topic::Routes } => {
                let routes = RouteTable::of(self.dataplane.desired());
                Answer::made_by(move || Response::Routes(routes.rows()))
            }
            Request::Show { topic: Topic::Unfollowed } => self.show_unfollowed(),
            Request::Show { topic: Topic::Drops } => Response::Drops(self.drops()).into(),
            Request::Show { topic } => self.show(topic).into(),
            Request::Explain { port, frame } => self.explain(&port, &frame).into(),
            Request::Match { address, table } => {
                self.longest_match(address, table.map_or(TableId::MAIN, TableId)).into()
            }
            Request::Sync if self.inputs.config().jalapeno.is_none() && self.inputs.config().syd.is_none() => {
                Response::failed("no path controller is configured; add [jalapeno] or [syd]").into()
            }
            Request::Sync => Response::Syncing.into(),
            Request::Capture { .. }
            | Request::Reload { .. }
            | Request::Rollback { .. }
            | Request::Diff { .. }
            | Request::Job(_) => answered_elsewhere().into(),
        }
    }

    /// Carries out a request whose configuration has been read.
    pub(super) async fn answer_read(&mut self, request: Request, read: Read, mirror: &mut Mirror) -> Response {
        match (request, read) {
            (Request::Rollback { generation, dry_run }, _) => {
                self.rollback(generation, dry_run, mirror).await.unwrap_or_else(Response::Refused)
            }
            (Request::Reload { dry_run: false }, Some(read)) => self.reload(read, mirror).await,
            (Request::Reload { dry_run: true }, Some(read)) => match self.plan_reload(read, mirror).await {
                Ok((inputs, plan)) => {
                    let mut diff = self.diff_to(&plan);
                    diff.warnings.extend(self.asked_after(&inputs));
                    Response::Diff(diff)
                }
                Err(refusal) => Response::Refused(refusal),
            },
            (Request::Diff { offers, .. }, Some(read)) => {
                let offers = self.with_latest(offers.unwrap_or_default());
                match read
                    .and_then(|configured| self.plan_config(configured, &offers).map_err(|errors| invalid(&errors)))
                {
                    Ok((_, plan)) => Response::Diff(self.diff_to(&plan)),
                    Err(refusal) => Response::Refused(refusal),
                }
            }
            _ => answered_elsewhere(),
        }
    }

    /// Copies the packets of ports, which are given by their names, or by the second name that an extension has for each. No
    /// name: of all ports.
    pub fn capture(&mut self, names: &[String], direction: Option<Direction>) -> Answer {
        let devices = match self.devices_named(names) {
            Ok(devices) => devices,
            Err(why) => return Response::failed(why).into(),
        };
        let Some(turn) = Turn::take() else {
            return Response::failed("too many captures are running: end one of them").into();
        };
        let (capture, by_socket) = self.dataplane.capture(&devices);
        if let Some(missing) =
            devices.iter().find(|device| !names.is_empty() && !by_socket.values().any(|known| known == *device))
        {
            return Response::failed(format!("the device {missing} is missing: it has never been attached")).into();
        }
        let captured = if names.is_empty() { "all ports".to_owned() } else { devices.join(", ") };
        Answer::followed_by(Response::Capturing { devices }, move |stream| {
            capture::send_in_background(turn, stream, capture, by_socket, direction, captured);
        })
    }

    /// Returns the devices of ports, each once.
    fn devices_named(&self, names: &[String]) -> Result<Vec<String>, String> {
        let desired = self.dataplane.desired();
        let ports: Vec<&Port> = match names {
            [] => desired.ports.iter().collect(),
            names => names.iter().map(|name| self.port_named(name).map(|(_, port)| port)).collect::<Result<_, _>>()?,
        };
        let mut devices: Vec<String> = ports.into_iter().map(|port| device_of(desired, port).to_owned()).collect();
        devices.sort_unstable();
        devices.dedup();
        Ok(devices)
    }

    /// Adds the latest offers of sources that were not asked or did not answer: their present offers stay.
    fn with_latest(&self, mut offers: Vec<Offer>) -> Vec<Offer> {
        let asked = |offers: &[Offer], source: &str| offers.iter().any(|offer| offer.source == source);
        for offer in self.latest.iter() {
            if !asked(&offers, &offer.source) {
                offers.push(offer.clone());
            }
        }
        offers
    }

    fn diff_to(&self, plan: &Plan) -> Diff {
        let diff = plan::diff(self.dataplane.desired(), &plan.desired);
        Diff { summary: diff.to_string(), changes: diff.lines(), warnings: self.warnings_of(plan) }
    }

    /// Puts the file that has been read in force as a whole, or changes nothing.
    async fn reload(&mut self, read: Result<Configured, Refusal>, mirror: &mut Mirror) -> Response {
        let response = self.try_reload(read, mirror).await.unwrap_or_else(Response::Refused);
        self.last_refusal = match &response {
            Response::Refused(refusal) => refusal.errors.clone(),
            _ => Vec::new(),
        };
        response
    }

    /// Plans the file that has been read, with the present state of the kernel and the present offers.
    async fn plan_reload(
        &mut self,
        read: Result<Configured, Refusal>,
        mirror: &mut Mirror,
    ) -> Result<(Inputs, Plan), Refusal> {
        let configured = read?;
        self.look_for_all(mirror).await?;
        self.plan_config(configured, &self.latest).map_err(|errors| invalid(&errors))
    }

    /// Reads the whole state of the kernel, because another configuration may need more of it than this one.
    async fn look_for_all(&mut self, mirror: &mut Mirror) -> Result<(), Refusal> {
        mirror.look_again();
        mirror.follow_routes(true).map_err(|why| failed(why.to_string()))?;
        self.look(mirror).await.map(drop).map_err(|why| failed(why.to_string()))
    }

    async fn try_reload(
        &mut self,
        read: Result<Configured, Refusal>,
        mirror: &mut Mirror,
    ) -> Result<Response, Refusal> {
        let (inputs, plan) = self.plan_reload(read, mirror).await?;
        let asked_after = self.asked_after(&inputs);
        let mut reloaded = self.apply_inputs(inputs, plan, Cause::Reload, mirror).await?;
        reloaded.warnings.extend(asked_after);
        self.held = None;
        Ok(Response::Reloaded(reloaded))
    }

    /// Returns to the inputs of an earlier generation, which stay until the next reload. Links, addresses and
    /// neighbours are those of now.
    async fn rollback(
        &mut self,
        generation: Option<u64>,
        dry_run: bool,
        mirror: &mut Mirror,
    ) -> Result<Response, Refusal> {
        let target = generation.or_else(|| self.history.before(&self.inputs, self.held));
        let target = target.ok_or_else(|| match self.held {
            Some(held) => failed(format!(
                "no generation before {held} is remembered, which is in force; `srv6d show generation` lists those \
                 that are, `srv6d rollback GENERATION` returns to one of them"
            )),
            None => failed("there is no earlier generation to return to".to_owned()),
        })?;
        let inputs = self.history.inputs_of(target).cloned().ok_or_else(|| {
            failed(format!("generation {target} is no longer kept; `srv6d show generation` lists those that are"))
        })?;
        self.look_for_all(mirror).await?;
        let plan = inputs.plan(&self.environment).map_err(|e| invalid(&e))?;
        if dry_run {
            return Ok(Response::Diff(self.diff_to(&plan)));
        }
        let mut reloaded = self.apply_inputs(inputs, plan, Cause::Rollback(target), mirror).await?;
        reloaded.returned_to = Some(target);
        self.held = Some(target);
        Ok(Response::Reloaded(reloaded))
    }

    async fn apply_inputs(
        &mut self,
        inputs: Inputs,
        plan: Plan,
        cause: Cause,
        mirror: &Mirror,
    ) -> Result<Reloaded, Refusal> {
        let (warnings, pending) = (self.warnings_of(&plan), headlines(&plan.pending));
        let diff = self.put_in_force(plan, inputs, cause, mirror).await.map_err(|why| failed(why.to_string()))?;
        Ok(Reloaded {
            generation: self.dataplane.generation().0,
            changes: diff.lines(),
            warnings,
            pending,
            returned_to: None,
        })
    }

    fn plan_config(&self, configured: Configured, offers: &[Offer]) -> Result<(Inputs, Plan), Errors> {
        // Ports may have come or gone since the configuration was read.
        let configured = configured.for_interfaces(&self.interfaces())?;
        // A source that is no longer configured offers nothing.
        let still: Vec<Offer> =
            offers.iter().filter(|offer| configured.config.has_source(&offer.source)).cloned().collect();
        let offers = Arc::new(self.keep_last_good(&still));
        let inputs = Inputs { configured, offers };
        let plan = inputs.plan(&self.environment)?;
        Ok((inputs, plan))
    }

    /// Returns notes about sources whose table differs, because their answer is not known yet.
    fn asked_after(&self, inputs: &Inputs) -> Vec<String> {
        let (old, new) = (self.inputs.config(), inputs.config());
        let changed = [("[jalapeno]", old.jalapeno != new.jalapeno), ("[syd]", old.syd != new.syd)];
        let say = |table: &str| {
            format!("{table} changed: it is asked after the reload; `srv6d run --dry-run --config FILE` asks now")
        };
        changed.iter().filter(|(_, changed)| *changed).map(|(table, _)| say(table)).collect()
    }

    /// Returns the warnings of a plan, and those about changes that a running daemon cannot make.
    fn warnings_of(&self, plan: &Plan) -> Vec<String> {
        let mut warnings = headlines(&plan.warnings);
        let restart = |what: &str| format!("{what} changed: takes effect when srv6d is restarted");
        if plan.workers != self.plan.workers {
            warnings.push(restart("[workers]"));
        }
        if plan.host.interface != self.plan.host.interface {
            warnings.push(restart("[host] interface"));
        }
        if plan.api != self.plan.api {
            warnings.push(restart("[api]"));
        }
        for port in &plan.devices {
            let mode_changed = |old: &&plan::PortDevice| old.device == port.device && old.mode != port.mode;
            if self.plan.devices.iter().any(|old| mode_changed(&old)) {
                warnings.push(restart(&format!("mode of port {}", port.device)));
            }
        }
        warnings
    }

    fn show(&self, topic: Topic) -> Response {
        let counters = self.dataplane.counters();
        let view = self.view(&counters);
        match topic {
            Topic::Ports => Response::Ports(view.ports()),
            Topic::Sids => Response::Sids(view.sids()),
            Topic::Routes | Topic::Unfollowed | Topic::Drops => answered_elsewhere(),
            Topic::Paths => Response::Paths(self.paths(&view)),
            Topic::Neighbors => Response::Neighbors(view.neighbors()),
            Topic::Balance => Response::Balance(view.balance()),
            Topic::Glb => self.glb.view().map_or_else(
                || Response::failed("no heartbeats are configured; add [glb]"),
                |view| Response::Glb(Box::new(view)),
            ),
            Topic::Probes => self.probing.view().map_or_else(
                || Response::failed("no probes are configured; add [probes]"),
                |view| Response::Probes(Box::new(view)),
            ),
            Topic::Counters => Response::Counters(Box::new(view.counters())),
            Topic::Source => Response::Source(self.sources()),
            Topic::Workers => Response::Workers(self.workers()),
            Topic::Process => Response::Process(Box::new(self.process())),
            Topic::Generation => Response::Generation(Box::new(self.generation())),
        }
    }

    /// Returns the paths, with those that probes leave out, and what probes say of each.
    fn paths(&self, view: &View<'_>) -> Vec<PathStatus> {
        let mut rows = view.paths(&self.plan.left_out);
        if let Some(said) = self.probing.states() {
            for row in &mut rows {
                row.probes = said.get(&row.path).map(|&state| state.to_owned());
            }
        }
        rows
    }

    /// Returns the whole state, for metrics.
    pub async fn state(&mut self, mirror: &Mirror) -> State {
        let jobs = self.job_counts();
        let shown_counters = self.counters(mirror).await;
        let counters = self.dataplane.counters();
        let view = self.view(&counters);
        State {
            counters: shown_counters,
            workers: self.workers(),
            sids: view.sids(),
            paths: self.paths(&view),
            neighbors: view.neighbors(),
            generation: self.generation(),
            sources: self.sources(),
            glb: self.glb.view(),
            probes: self.probing.view(),
            jobs,
        }
    }

    /// Returns the counters of the workers, and the packets that the kernel dropped before the workers could receive
    /// them.
    async fn counters(&self, mirror: &Mirror) -> CountersView {
        let local_lost = self.veth.lost_in_front(mirror.handle()).await;
        let counters = self.dataplane.counters();
        CountersView { local_lost, ..self.view(&counters).counters() }
    }

    /// Returns the ports. A port whose mode bypasses a queueing discipline has a note that says so.
    async fn show_ports(&self, mirror: &Mirror) -> Response {
        let qdiscs = kernel::root_qdiscs(mirror.handle()).await;
        let mut response = self.show(Topic::Ports);
        if let Response::Ports(rows) = &mut response {
            for row in rows.iter_mut().filter(|row| row.mode.is_some()) {
                let index = self.environment.device(&row.device).map(|device| device.ifindex);
                if let Some(qdisc) = index.and_then(|index| qdiscs.get(&index)).filter(|qdisc| kernel::passed_by(qdisc))
                {
                    row.reason = format!("{}; AF_XDP bypasses qdisc {qdisc}", row.reason);
                }
            }
        }
        response
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        let polling = match self.dataplane.polling() {
            Polling::Busy => "busy",
            Polling::Adaptive => "adaptive",
        };
        let workloads = self.dataplane.workloads().enumerate();
        workloads.map(|(worker, (core, workload))| worker_status(worker, core, polling, &workload)).collect()
    }

    fn process(&self) -> ProcessView {
        let privileges = confine::privileges();
        ProcessView {
            pid: std::process::id(),
            least_privilege: confine::is_least(&privileges),
            privileges,
            guards: self.guards_alive,
            open_files: limits::open_files(),
            open_files_limit: limits::most_open_files(),
        }
    }

    fn show_unfollowed(&self) -> Answer {
        if self.inputs.config().kernel.is_none() && self.inputs.config().fpm.is_none() {
            return Response::failed("no routes are followed; add [kernel] or [fpm]").into();
        }
        unfollowed(&self.plan.unfollowed)
    }

    fn sources(&self) -> Vec<SourceView> {
        let mut views = source::view::views(&self.statuses, &self.plan.offered, self.held);
        let fpm = self.fpm.as_ref();
        views.extend(fpm.map(|status| fpm::view::view(status, &self.plan.unfollowed, self.announced.nowhere)));
        views
    }

    fn view<'a>(&'a self, counters: &'a srv6d_dataplane::Counters) -> View<'a> {
        let attached = self.dataplane.attached();
        let program = |device: &str| srv6d_xsk::probe::interface(device).ok()?.program.map(|program| program.id);
        View {
            desired: self.dataplane.desired(),
            roles: &self.plan.roles,
            counters,
            far: self.dataplane.far_ports(),
            programs: attached.filter_map(|port| Some((port.device.clone(), program(&port.device)?))).collect(),
            busy_polling: self
                .dataplane
                .attached()
                .map(|port| (port.device.clone(), self.dataplane.busy_polling(&port.device)))
                .collect(),
            attached: self.dataplane.attached().map(|port| (port.device.as_str(), port)).collect(),
            refused: &self.refused,
            local_paths: self.dataplane.local_paths(),
            deliveries: self.dataplane.deliveries(),
            next_hops: self.dataplane.next_hops().into_iter().map(|(port, ip, state)| ((port, ip), state)).collect(),
        }
    }

    fn generation(&self) -> GenerationView {
        let refused = self.refused.iter().map(|(device, why)| format!("{device} is not attached: {why}"));
        let mut warnings = headlines(&self.plan.warnings);
        warnings.extend(refused);
        warnings.extend(self.steering_trouble.clone());
        warnings.extend(self.overlay_trouble.iter().cloned());
        GenerationView {
            node: self.name.clone(),
            daemon: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started: self.started,
            config: self.path.display().to_string(),
            generations: self.history.rows(),
            tables: published(self.dataplane.published()),
            kernel_memory: srv6d_xsk::kernel_memory(std::process::id()).unwrap_or_default(),
            held: self.held,
            pending: headlines(&self.plan.pending),
            notes: headlines(&self.plan.notes),
            warnings,
            refused: self.last_refusal.clone(),
        }
    }
}

/// Lists the routes that stay with the kernel. There may be a million, so the answer shares the list, and its rows are
/// made on another thread than the control loop's.
fn unfollowed(routes: &Arc<Vec<Unfollowed>>) -> Answer {
    let row = |route: &Unfollowed| UnfollowedRoute {
        prefix: route.prefix.to_string(),
        table: route.table.0,
        why: route.why.clone(),
    };
    let routes = Arc::clone(routes);
    Answer::made_by(move || Response::Unfollowed(routes.iter().map(row).collect()))
}

/// Returns place, entry and problem of each finding, without severity, which the list shows, and without source
/// lines.
pub(super) fn headlines(diagnostics: &[Diagnostic]) -> Vec<String> {
    let severity = |found: &Diagnostic| format!("{}: ", found.severity);
    diagnostics.iter().map(|found| found.headline().trim_start_matches(&severity(found)).to_owned()).collect()
}

pub(super) fn invalid(errors: &Errors) -> Refusal {
    Refusal { invalid_configuration: true, errors: errors.0.iter().map(ToString::to_string).collect(), code: None }
}

pub(super) fn failed(error: String) -> Refusal {
    Refusal { invalid_configuration: false, errors: vec![error], code: None }
}

/// Returns the answer to a request that is carried out elsewhere.
fn answered_elsewhere() -> Response {
    Response::failed("this request cannot be answered here")
}

fn published(counted: srv6d_dataplane::Published) -> Published {
    let srv6d_dataplane::Published { whole, whole_for_amendment, in_place, copied } = counted;
    Published { whole, whole_for_amendment, in_place, copied }
}

fn worker_status(worker: usize, core: Option<usize>, polling: &str, workload: &Workload) -> WorkerStatus {
    let stages = STAGES.iter().zip(workload.stages);
    WorkerStatus {
        worker,
        core,
        polling: polling.to_owned(),
        packets: workload.packets,
        rounds: workload.rounds,
        busy_rounds: workload.busy_rounds,
        full_rounds: workload.full_rounds,
        late_rounds: workload.late_rounds,
        longest_round_ns: workload.longest_round,
        lived_ns: workload.lived,
        busy_ns: workload.busy,
        asleep_ns: workload.asleep,
        timed_packets: workload.timed_packets,
        stages_ns: stages.map(|(stage, nanoseconds)| StageTime { stage: (*stage).to_owned(), nanoseconds }).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_unfollowed_routes_are_not_made_on_the_control_loop() {
        let routes = Arc::new(Vec::new());
        let answer = unfollowed(&routes);
        assert_eq!(Arc::strong_count(&routes), 2, "the answer has the list, and nothing made of it");
        drop(answer);
        assert_eq!(Arc::strong_count(&routes), 1);
    }
}
