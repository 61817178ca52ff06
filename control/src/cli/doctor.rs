//! `srv6d doctor`.

use std::path::Path;

use super::check::{environment, read};
use super::output::{self, Failure};
use crate::api::client;
use crate::api::state::SourceView;
use crate::api::{DEFAULT_SOCKET, Request, Response, Topic};
use crate::config::{self, Checksum, Config, Polling, PortMode};
use crate::doctor::{Plans, Verdict, examine, render, worst};
use crate::plan::{self, Plan, PortDevice, Unfollowed};
use crate::sonic;

/// A UMEM chunk.
const CHUNK_BYTES: u64 = 4096;

/// Examines, prints, and fails when something is in the way.
pub fn doctor(interfaces: &[String], config: Option<&Path>, socket: Option<&Path>, json: bool) -> Result<(), Failure> {
    let planned = config.map(planned).transpose()?;
    let configured = planned.as_ref().map(|(_, plan)| plan.api.socket.as_path());
    let socket = socket.or(configured).unwrap_or(Path::new(DEFAULT_SOCKET));
    let running = running(socket);
    let (plans, devices) = match &planned {
        Some((config, plan)) => (Plans { fpm: fpm(config, socket), ..plans(config, plan, running) }, devices(plan)),
        None => (Plans { umem_bytes: 8192 * CHUNK_BYTES, followed: unfollowed(socket), ..running }, Vec::new()),
    };
    let findings = examine(if interfaces.is_empty() { &devices } else { interfaces }, &plans);
    if json {
        output::print_json(&findings)?;
    } else {
        output::print(&render(&findings))?;
    }
    if worst(&findings) == Verdict::Fail { Err(Failure::silent()) } else { Ok(()) }
}

fn planned(file: &Path) -> Result<(Config, Plan), Failure> {
    let filename = file.display().to_string();
    let invalid = |errors: config::Errors| Failure::invalid(errors.to_string());
    let config =
        sonic::configuration(&read(file)?, &filename, sonic::interfaces_of_a_switch().as_deref()).map_err(invalid)?;
    let plan = plan::plan(&config, &environment()).map_err(invalid)?;
    Ok((config, plan))
}

/// What a configuration asks of the machine.
fn plans(config: &Config, plan: &Plan, running: Plans) -> Plans {
    let said = |route: &Unfollowed| (route.prefix.to_string(), route.why.clone());
    Plans {
        cores: plan.workers.cores.iter().copied().flatten().collect(),
        busy: plan.workers.polling == Polling::Busy,
        polls_drivers: plan.workers.busy_budget > 0,
        umem_bytes: u64::from(plan.workers.frames) * CHUNK_BYTES * packet_memories(plan),
        filled: filled(config),
        offloads: !plan.desired.offload.is_empty(),
        followed: config.kernel.as_ref().map(|_| plan.unfollowed.iter().map(said).collect()),
        ..running
    }
}

/// Packet memories of a worker: zero-copy ports have one of their own.
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

/// What a running daemon has attached; none runs, and there is none.
fn running(socket: &Path) -> Plans {
    let Ok(Response::Ports(rows)) = client::ask(socket, &Request::Show { topic: Topic::Ports }) else {
        return Plans::default();
    };
    let own_veth = rows.iter().find(|row| row.role == "kernel").map(|row| row.device.clone());
    let process = match client::ask(socket, &Request::Show { topic: Topic::Process }) {
        Ok(Response::Process(view)) => Some(*view),
        _ => None,
    };
    Plans {
        process,
        own_programs: rows.into_iter().filter_map(|row| row.xdp_program).collect(),
        own_veth,
        ..Plans::default()
    }
}

/// What a running daemon leaves to the kernel of the tables it follows; nothing, and nothing is said.
fn unfollowed(socket: &Path) -> Option<Vec<(String, String)>> {
    let answer = client::ask(socket, &Request::Show { topic: Topic::Unfollowed });
    let Ok(Response::Unfollowed(rows)) = answer else { return None };
    let said: Vec<_> = rows.into_iter().map(|row| (row.prefix, row.why)).collect();
    (!said.is_empty()).then_some(said)
}

/// How the running daemon's FPM is doing, where it is configured; a view without it where none runs.
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
