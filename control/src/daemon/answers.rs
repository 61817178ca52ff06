//! What the daemon answers on its management socket.

use std::sync::Arc;

use crate::api::server::Answer;
use crate::api::state::{CountersView, GenerationView, ProcessView, SourceView, State, UnfollowedRow};
use crate::api::{Diff, Refusal, Reloaded, Request, Response, Topic};
use crate::capture::Turn;
use crate::config::{Diagnostic, Errors};
use crate::confine::Privileges;
use crate::doctor::passed_by;
use crate::files;
use crate::fpm;
use crate::kernel::{self, Mirror};
use crate::limits;
use crate::plan::{self, Plan, Unfollowed};
use crate::sonic;
use crate::source::{self, Offer};

use super::history::Inputs;
use super::node::{Cause, Node};
use super::view::{View, device_of};

impl Node {
    /// Carries out one request.
    pub async fn answer(&mut self, request: Request, mirror: &mut Mirror) -> Response {
        match request {
            Request::Show { topic: Topic::Ports } => self.show_ports(mirror).await,
            Request::Show { topic: Topic::Counters } => Response::Counters(Box::new(self.counters(mirror).await)),
            Request::Show { topic } => self.show(topic),
            Request::Sync if self.inputs.config.jalapeno.is_none() && self.inputs.config.syd.is_none() => {
                Response::failed("no path controller is configured; add [jalapeno] or [syd]")
            }
            Request::Sync => Response::Syncing,
            // Answered with more than a line, where questions come in.
            Request::Capture { .. } => Response::failed("a capture is no question for here"),
            Request::Reload { dry_run: false } => self.reload(mirror).await,
            Request::Reload { dry_run: true } => match self.read(mirror).await {
                Ok((inputs, plan)) => {
                    let mut diff = self.diff_to(&plan);
                    diff.warnings.extend(self.asked_after(&inputs));
                    Response::Diff(diff)
                }
                Err(refusal) => Response::Refused(refusal),
            },
            Request::Rollback { generation, dry_run } => {
                self.rollback(generation, dry_run, mirror).await.unwrap_or_else(Response::Refused)
            }
            Request::Diff { filename, text, offers } => {
                match self.plan_text(&text, &filename, &self.with_latest(offers.unwrap_or_default())) {
                    Ok((_, plan)) => Response::Diff(self.diff_to(&plan)),
                    Err(errors) => Response::Refused(invalid(&errors)),
                }
            }
        }
    }

    /// Copies of a port's packets, by its name, that of its device, or that of the switch's wire.
    pub fn capture(&mut self, name: &str) -> Answer {
        let desired = self.dataplane.desired();
        let other = srv6d_sonic::port_of_wire(name).unwrap_or_default();
        let port = desired.ports.iter().find(|port| port.name == name || port.name == other);
        let Some(port) = port else {
            let names: Vec<&str> = desired.ports.iter().map(|port| port.name.as_str()).collect();
            return Response::failed(format!("{name} is no port: capture one of {}", names.join(", "))).into();
        };
        let device = device_of(desired, port).to_owned();
        let Some(turn) = Turn::take() else {
            return Response::failed("so many captures are under way that no other one begins: end one of them").into();
        };
        match self.dataplane.capture(&device) {
            Some(capture) => Answer::Capture(capture, device, turn),
            None => Response::failed(format!("{name} has never been attached: its device {device} is missing")).into(),
        }
    }

    /// A source that is not among them was not asked, or did not answer: what it offers now stays.
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

    /// Reads the file again and takes it as a whole, or changes nothing.
    pub async fn reload(&mut self, mirror: &mut Mirror) -> Response {
        let response = self.try_reload(mirror).await.unwrap_or_else(Response::Refused);
        self.last_refusal = match &response {
            Response::Refused(refusal) => refusal.errors.clone(),
            _ => Vec::new(),
        };
        response
    }

    /// The file as it is now, planned with what sources offer now.
    async fn read(&mut self, mirror: &mut Mirror) -> Result<(Inputs, Plan), Refusal> {
        let filename = self.path.display().to_string();
        let text = files::read_text(&self.path).map_err(|why| {
            failed(format!(
                "cannot read {filename}: {why}\n\
                 fix: put it back, readable for the daemon's user; until then the old configuration stays in force"
            ))
        })?;
        self.look_for_all(mirror).await?;
        self.plan_text(&text, &filename, &self.latest).map_err(|errors| invalid(&errors))
    }

    /// What another configuration may need is more than what this one does.
    async fn look_for_all(&mut self, mirror: &mut Mirror) -> Result<(), Refusal> {
        mirror.look_again();
        mirror.follow_routes(true).map_err(|why| failed(why.to_string()))?;
        self.look(mirror).await.map(drop).map_err(|why| failed(why.to_string()))
    }

    async fn try_reload(&mut self, mirror: &mut Mirror) -> Result<Response, Refusal> {
        let (inputs, plan) = self.read(mirror).await?;
        let asked_after = self.asked_after(&inputs);
        let mut reloaded = self.put_in_force(inputs, plan, Cause::Reload, mirror).await?;
        reloaded.warnings.extend(asked_after);
        self.held = None;
        Ok(Response::Reloaded(reloaded))
    }

    /// Returns to what an earlier generation was made of, and stays there until the next reload. Links, addresses and
    /// neighbours are those of now.
    async fn rollback(
        &mut self,
        generation: Option<u64>,
        dry_run: bool,
        mirror: &mut Mirror,
    ) -> Result<Response, Refusal> {
        let target = generation.or_else(|| self.history.before(&self.inputs));
        let target = target.ok_or_else(|| failed("there is no earlier generation to return to".to_owned()))?;
        let inputs = self.history.inputs_of(target).cloned().ok_or_else(|| {
            failed(format!("generation {target} is not remembered; `srv6d show generation` lists those that are"))
        })?;
        self.look_for_all(mirror).await?;
        let plan = plan::plan_with(&inputs.config, &self.environment, &inputs.offers).map_err(|e| invalid(&e))?;
        if dry_run {
            return Ok(Response::Diff(self.diff_to(&plan)));
        }
        let reloaded = self.put_in_force(inputs, plan, Cause::Rollback(target), mirror).await?;
        self.held = Some(target);
        Ok(Response::Reloaded(reloaded))
    }

    async fn put_in_force(
        &mut self,
        inputs: Inputs,
        plan: Plan,
        cause: Cause,
        mirror: &Mirror,
    ) -> Result<Reloaded, Refusal> {
        let (warnings, pending) = (self.warnings_of(&plan), headlines(&plan.pending));
        let diff = self.take(plan, inputs, cause, mirror).await.map_err(|why| failed(why.to_string()))?;
        Ok(Reloaded { generation: self.dataplane.generation().0, changes: diff.lines(), warnings, pending })
    }

    fn plan_text(&self, text: &str, filename: &str, offers: &[Offer]) -> Result<(Inputs, Plan), Errors> {
        let interfaces: Vec<String> = self.environment.devices.iter().map(|device| device.name.clone()).collect();
        let config = Arc::new(sonic::configuration(text, filename, Some(&interfaces))?);
        // A source that is no longer configured has nothing more to say.
        let still: Vec<Offer> = offers.iter().filter(|offer| config.has_source(&offer.source)).cloned().collect();
        let offers = Arc::new(self.keep_last_good(&still));
        let plan = plan::plan_with(&config, &self.environment, &offers)?;
        Ok((Inputs { config, offers }, plan))
    }

    /// Sources whose table differs: what they say to it is not known yet.
    fn asked_after(&self, inputs: &Inputs) -> Vec<String> {
        let (old, new) = (&self.inputs.config, &inputs.config);
        let changed = [("[jalapeno]", old.jalapeno != new.jalapeno), ("[syd]", old.syd != new.syd)];
        let say = |table: &str| {
            format!("{table} changed: it is asked after the reload; `srv6d run --dry-run --config FILE` asks now")
        };
        changed.iter().filter(|(_, changed)| *changed).map(|(table, _)| say(table)).collect()
    }

    /// A plan's own, and what a running daemon cannot change.
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
            Topic::Routes => Response::Routes(view.routes()),
            Topic::Unfollowed if self.inputs.config.kernel.is_none() && self.inputs.config.fpm.is_none() => {
                Response::failed("no routes are followed; add [kernel] or [fpm]")
            }
            Topic::Unfollowed => Response::Unfollowed(self.unfollowed()),
            Topic::Paths => Response::Paths(view.paths()),
            Topic::Neighbors => Response::Neighbors(view.neighbors()),
            Topic::Counters => Response::Counters(Box::new(view.counters())),
            Topic::Source => Response::Source(self.sources()),
            Topic::Process => Response::Process(Box::new(self.process())),
            Topic::Generation => Response::Generation(Box::new(self.generation())),
        }
    }

    /// Everything, for metrics.
    pub async fn state(&self, mirror: &Mirror) -> State {
        let shown_counters = self.counters(mirror).await;
        let counters = self.dataplane.counters();
        let view = self.view(&counters);
        State {
            counters: shown_counters,
            sids: view.sids(),
            routes: view.routes(),
            paths: view.paths(),
            neighbors: view.neighbors(),
            generation: self.generation(),
            sources: self.sources(),
        }
    }

    /// What the workers count, and what the kernel dropped before they could.
    async fn counters(&self, mirror: &Mirror) -> CountersView {
        let local_lost = self.veth.lost_in_front(mirror.handle()).await;
        let counters = self.dataplane.counters();
        CountersView { local_lost, ..self.view(&counters).counters() }
    }

    /// The ports, and beside each why it has its mode: a queueing discipline that its packets pass by.
    async fn show_ports(&self, mirror: &Mirror) -> Response {
        let qdiscs = kernel::root_qdiscs(mirror.handle()).await;
        let mut response = self.show(Topic::Ports);
        if let Response::Ports(rows) = &mut response {
            for row in rows.iter_mut().filter(|row| row.mode.is_some()) {
                let index = self.environment.device(&row.device).map(|device| device.ifindex);
                if let Some(qdisc) = index.and_then(|index| qdiscs.get(&index)).filter(|qdisc| passed_by(qdisc)) {
                    row.reason = format!("{}; qdisc {qdisc} is passed by: AF_XDP sends past it", row.reason);
                }
            }
        }
        response
    }

    fn process(&self) -> ProcessView {
        let privileges = Privileges::read();
        ProcessView {
            pid: std::process::id(),
            least_privilege: privileges.is_least(),
            privileges,
            guards: self.guards_alive,
            open_files: limits::open_files(),
            open_files_limit: limits::most_open_files(),
        }
    }

    fn unfollowed(&self) -> Vec<UnfollowedRow> {
        let row = |route: &Unfollowed| UnfollowedRow {
            prefix: route.prefix.to_string(),
            table: route.table.0,
            why: route.why.clone(),
        };
        self.plan.unfollowed.iter().map(row).collect()
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
            programs: attached.filter_map(|port| Some((port.device.clone(), program(&port.device)?))).collect(),
            busy_polling: self
                .dataplane
                .attached()
                .map(|port| (port.device.clone(), self.dataplane.busy_polling(&port.device)))
                .collect(),
            attached: self.dataplane.attached().map(|port| (port.device.as_str(), port)).collect(),
            refused: &self.refused,
            next_hops: self.dataplane.next_hops().into_iter().map(|(port, ip, state)| ((port, ip), state)).collect(),
        }
    }

    fn generation(&self) -> GenerationView {
        let refused = self.refused.iter().map(|(device, why)| format!("{device} is not attached: {why}"));
        let mut warnings = headlines(&self.plan.warnings);
        warnings.extend(refused);
        warnings.extend(self.steering_trouble.clone());
        warnings.extend(self.switch_trouble.iter().cloned());
        GenerationView {
            node: self.name.clone(),
            daemon: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started: self.started,
            config: self.path.display().to_string(),
            generations: self.history.rows(),
            tables: self.dataplane.published(),
            kernel_memory: srv6d_xsk::kernel_memory(std::process::id()).unwrap_or_default(),
            held: self.held,
            pending: headlines(&self.plan.pending),
            notes: headlines(&self.plan.notes),
            warnings,
            refused: self.last_refusal.clone(),
        }
    }
}

/// Place, entry and what is wrong: without severity, which the list says, and without source lines.
pub(super) fn headlines(diagnostics: &[Diagnostic]) -> Vec<String> {
    let severity = |found: &Diagnostic| format!("{}: ", found.severity);
    diagnostics.iter().map(|found| found.headline().trim_start_matches(&severity(found)).to_owned()).collect()
}

fn invalid(errors: &Errors) -> Refusal {
    Refusal { invalid_configuration: true, errors: errors.0.iter().map(ToString::to_string).collect() }
}

fn failed(error: String) -> Refusal {
    Refusal { invalid_configuration: false, errors: vec![error] }
}
