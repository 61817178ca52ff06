//! `srv6d doctor`.

use std::path::Path;

use super::check::environment;
use crate::doctor::{Plans, Severity, TcEngine, examine, render, worst};
use srv6d_api::client;
use srv6d_api::state::SourceView;
use srv6d_api::{DEFAULT_SOCKET, Request, Response, Topic};
use srv6d_command::{Failure, output, read};
use srv6d_config::{self as config, Checksum, Config, HostEngine, Polling, PortMode};
use srv6d_plan::{DEFAULT_FRAMES, Plan, PortDevice, Unfollowed};
use srv6d_sonic_switch as sonic;

/// Size of a UMEM chunk.
const CHUNK_BYTES: u64 = 4096;

/// Examines the machine, prints the findings, and fails if one of them prevents srv6d from working.
pub fn doctor(interfaces: &[String], config: Option<&Path>, socket: Option<&Path>, json: bool) -> Result<(), Failure> {
    let planned = config.map(planned).transpose()?;
    let configured = planned.as_ref().map(|(_, plan)| plan.api.socket.as_path());
    let socket = socket.or(configured).unwrap_or(Path::new(DEFAULT_SOCKET));
    let running = running(socket);
    let (plans, devices) = if let Some((config, plan)) = &planned {
        (Plans { fpm: fpm(config, socket), ..plans(config, plan, running) }, devices(plan))
    } else {
        let frames = u64::from(DEFAULT_FRAMES);
        (Plans { frames, umem_bytes: frames * CHUNK_BYTES, followed: unfollowed(socket), ..running }, Vec::new())
    };
    let findings = examine(if interfaces.is_empty() { &devices } else { interfaces }, &plans);
    if json {
        output::print_json(&findings)?;
    } else {
        output::print(&render(&findings))?;
    }
    if worst(&findings) == Severity::Fail { Err(Failure::silent()) } else { Ok(()) }
}

fn planned(file: &Path) -> Result<(Config, Plan), Failure> {
    let filename = file.display().to_string();
    let invalid = |errors: config::Errors| Failure::invalid(errors.to_string());
    let read =
        sonic::configuration(&read(file)?, &filename, sonic::interfaces_of_a_switch().as_deref()).map_err(invalid)?;
    let plan = read.plan(&environment()).map_err(invalid)?;
    Ok((read.config, plan))
}

/// Returns what a configuration requires of the machine.
fn plans(config: &Config, plan: &Plan, running: Plans) -> Plans {
    let said = |route: &Unfollowed| (route.prefix.to_string(), route.why.clone());
    Plans {
        cores: plan.workers.cores.iter().copied().flatten().collect(),
        busy: plan.workers.polling == Polling::Busy,
        polls_drivers: plan.workers.busy_budget > 0,
        frames: plan.workers.frames.into(),
        umem_bytes: u64::from(plan.workers.frames) * CHUNK_BYTES * packet_memories(plan),
        filled: filled(config),
        offloads: plan.desired.offload.difference(&plan.desired.auto_offload).any(|_| true),
        tc: match running.tc {
            TcEngine::NotAsked if plan.host.engine != HostEngine::Worker => TcEngine::Planned,
            tc => tc,
        },
        followed: config.kernel.as_ref().map(|_| plan.unfollowed.iter().map(said).collect()),
        ..running
    }
}

/// Number of packet memories of a worker. Zero-copy ports have one of their own.
fn packet_memories(plan: &Plan) -> u64 {
    let is_zero_copy = |port: &PortDevice| {
        matches!(port.mode, PortMode::Auto | PortMode::ZeroCopy)
            && srv6d_xsk::probe::interface(&port.device).is_ok_and(|interface| interface.zero_copy == Some(true))
    };
    1 + u64::from(plan.devices.iter().any(is_zero_copy))
}

fn devices(plan: &Plan) -> Vec<String> {
    plan.devices.iter().map(|port| port.device.clone()).collect()
}

/// Returns what a running daemon has attached. It is empty if no daemon runs.
fn running(socket: &Path) -> Plans {
    let Ok(Response::Ports(rows)) = client::ask(socket, &Request::Show { topic: Topic::Ports }) else {
        return Plans::default();
    };
    let own = rows.iter().find(|row| row.role == "kernel");
    let own_veth = own.map(|row| row.device.clone());
    let tc = match own.and_then(|row| row.offload.as_ref()) {
        None => TcEngine::NotAsked,
        Some(tc) if tc.on => TcEngine::InForce,
        Some(tc) => TcEngine::Refused(tc.reason.clone()),
    };
    let process = match client::ask(socket, &Request::Show { topic: Topic::Process }) {
        Ok(Response::Process(view)) => Some(*view),
        _ => None,
    };
    Plans {
        process,
        own_programs: rows.into_iter().filter_map(|row| row.xdp_program).collect(),
        own_veth,
        tc,
        ..Plans::default()
    }
}

/// Returns the routes of followed tables that a running daemon leaves to the kernel. `None`: there are none, or no
/// daemon runs.
fn unfollowed(socket: &Path) -> Option<Vec<(String, String)>> {
    let answer = client::ask(socket, &Request::Show { topic: Topic::Unfollowed });
    let Ok(Response::Unfollowed(rows)) = answer else { return None };
    let said: Vec<_> = rows.into_iter().map(|row| (row.prefix, row.why)).collect();
    (!said.is_empty()).then_some(said)
}

/// Returns the state of the running daemon's FPM. `None`: FPM is not configured. If no daemon runs, the view has no
/// `fpm` part.
fn fpm(config: &Config, socket: &Path) -> Option<SourceView> {
    config.fpm.as_ref()?;
    let answer = client::ask(socket, &Request::Show { topic: Topic::Source });
    let Ok(Response::Source(views)) = answer else { return Some(SourceView::default()) };
    Some(views.into_iter().find(|view| view.fpm.is_some()).unwrap_or_default())
}

fn filled(config: &Config) -> Vec<String> {
    let ports = config.ports.iter().map(config::Spanned::get_ref);
    ports
        .filter(|port| port.checksum.as_ref().is_some_and(|checksum| *checksum.get_ref() == Checksum::Fill))
        .map(|port| port.device.as_ref().unwrap_or(&port.name).get_ref().clone())
        .collect()
}
