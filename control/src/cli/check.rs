//! `srv6d check`: is the configuration right, what does it miss here, what would it change.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::ask::ask;
use super::output::{self, Failure};
use crate::api::Request;
use crate::config::{self, Diagnostic};
use crate::daemon;
use crate::files;
use crate::plan::{self, Environment, Plan};
use crate::sonic;

/// `--json`.
#[derive(Default, Serialize)]
struct Report {
    valid: bool,
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
    pending: Vec<Diagnostic>,
    notes: Vec<Diagnostic>,
}

/// Checks `file` against this machine; with `daemon`, shows what it would change there.
pub fn check(file: &Path, daemon: Option<PathBuf>, json: bool) -> Result<(), Failure> {
    let text = read(file)?;
    let filename = file.display().to_string();
    if let Some(socket) = daemon {
        return ask(&socket, &Request::Diff { filename, text, offers: None }, json);
    }
    let interfaces = sonic::interfaces_of_a_switch();
    let planned = sonic::configuration(&text, &filename, interfaces.as_deref())
        .and_then(|config| plan::plan(&config, &environment()));
    if json {
        return report(planned);
    }
    let plan = planned.map_err(|errors| Failure::invalid(errors.to_string()))?;
    output::print(&summary(&filename, &plan))
}

/// Checks `file` alone: whatever ports, cores, addresses and routes this machine has, another one is meant.
pub fn offline(file: &Path, json: bool) -> Result<(), Failure> {
    let text = read(file)?;
    let filename = file.display().to_string();
    let configuration = sonic::configuration(&text, &filename, None);
    let planned = configuration.and_then(|config| {
        let mut plan = plan::plan(&config, &Environment::default())?;
        plan.pending.clear(); // everything waits for the machine
        Ok((config, plan))
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

/// The text of a file that somebody has named.
pub fn read(file: &Path) -> Result<String, Failure> {
    files::read_text_or_pipe(file).map_err(|error| {
        let fix = match error.kind() {
            ErrorKind::InvalidData => "name a file of text, in UTF-8",
            ErrorKind::InvalidInput => "name a file of text of at most 16 MiB",
            _ => "name a file that exists and can be read",
        };
        Failure::invalid(format!("error: cannot read {}: {error}\nfix: {fix}", file.display()))
    })
}

/// What the kernel shows now; a machine that shows nothing can still check syntax and references.
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
