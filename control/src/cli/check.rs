//! `srv6d check`: checks a configuration, finds what it lacks on this machine, and says what it would change.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::ask::ask;
use srv6d_api::Request;
use srv6d_command::{Failure, output, read};
use srv6d_config::{self as config, Diagnostic};
use srv6d_daemon as daemon;
use srv6d_plan::{Environment, Plan};
use srv6d_sonic_switch as sonic;

/// The output of `--json`.
#[derive(Default, Serialize)]
struct Report {
    valid: bool,
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
    pending: Vec<Diagnostic>,
    notes: Vec<Diagnostic>,
}

/// Checks `file` against this machine. With `daemon`, shows what the file would change in that daemon.
pub fn check(file: &Path, daemon: Option<PathBuf>, json: bool) -> Result<(), Failure> {
    let text = read(file)?;
    let filename = file.display().to_string();
    if let Some(socket) = daemon {
        return ask(&socket, &Request::Diff { filename, text, offers: None }, json);
    }
    let interfaces = sonic::interfaces_of_a_switch();
    let planned =
        sonic::configuration(&text, &filename, interfaces.as_deref()).and_then(|read| read.plan(&environment()));
    if json {
        return report(planned);
    }
    let plan = planned.map_err(|errors| Failure::invalid(errors.to_string()))?;
    output::print(&summary(&filename, &plan))
}

/// Checks `file` without this machine's ports, cores, addresses and routes, because the file is meant for another
/// machine.
pub fn offline(file: &Path, json: bool) -> Result<(), Failure> {
    let text = read(file)?;
    let filename = file.display().to_string();
    let configuration = sonic::configuration(&text, &filename, None);
    let planned = configuration.and_then(|read| {
        let mut plan = read.plan(&Environment::default())?;
        plan.pending.clear(); // every entry waits for that machine
        Ok((read.config, plan))
    });
    if json {
        return report(planned.map(|(_, plan)| plan));
    }
    let (config, plan) = planned.map_err(|errors| Failure::invalid(errors.to_string()))?;
    let valid = format!(
        "{filename}: valid, without a look at this machine: {} ports, {} SIDs, {} steered prefixes, {} routes, {} \
         worker(s)\n",
        config.ports.len(),
        config.sids.len(),
        config.steers.len(),
        config.routes.len(),
        plan.workers.cores.len()
    );
    let warnings = plan.warnings.iter().map(ToString::to_string);
    output::print(&warnings.chain([valid]).collect::<Vec<_>>().join("\n\n"))
}

/// Returns the kernel's present state. If it cannot be read, syntax and references can still be checked.
pub fn environment() -> Environment {
    daemon::environment().unwrap_or_default()
}

fn report(planned: Result<Plan, config::Errors>) -> Result<(), Failure> {
    match planned {
        Ok(Plan { warnings, pending, notes, .. }) => {
            output::print_json(&Report { valid: true, errors: Vec::new(), warnings, pending, notes })
        }
        Err(config::Errors(errors)) => {
            output::print_json(&Report { valid: false, errors, ..Report::default() })?;
            Err(Failure::invalid(""))
        }
    }
}

fn summary(filename: &str, plan: &Plan) -> String {
    let desired = &plan.desired;
    let waiting = plan.pending.iter().filter(|entry| entry.entry.starts_with("[[sid]]")).count();
    let waiting = if waiting == 0 { String::new() } else { format!(" ({waiting} pending)") };
    let valid = format!(
        "{filename}: valid: {} ports, {} SIDs{waiting}, {} steered prefixes, {} routes, {} worker(s)\n",
        desired.ports.len(),
        desired.sids.len(),
        desired.steers.len(),
        desired.routes.len(),
        plan.workers.cores.len()
    );
    let findings = plan.warnings.iter().chain(&plan.pending).chain(&plan.notes).map(ToString::to_string);
    findings.chain([valid]).collect::<Vec<_>>().join("\n\n")
}
