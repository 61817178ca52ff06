//! `srv6d check`: is the configuration right, what does it miss here, what would it change.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::ask::ask;
use super::output::{self, Failure};
use crate::api::Request;
use crate::config::{self, Diagnostic};
use crate::daemon;
use crate::plan::{self, Environment, Plan};
use crate::sonic;

/// `--json`.
#[derive(Serialize)]
struct Report {
    valid: bool,
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
    pending: Vec<Diagnostic>,
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

/// The text of a file that somebody has named.
pub fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| {
        let fix = match error.kind() {
            ErrorKind::InvalidData => "name a file of text, in UTF-8",
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
        Ok(Plan { warnings, pending, .. }) => {
            output::print_json(&Report { valid: true, errors: Vec::new(), warnings, pending })
        }
        Err(config::Errors(errors)) => {
            output::print_json(&Report { valid: false, errors, warnings: Vec::new(), pending: Vec::new() })?;
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
    let findings = plan.warnings.iter().chain(&plan.pending).map(ToString::to_string);
    findings.chain([valid]).collect::<Vec<_>>().join("\n\n")
}
