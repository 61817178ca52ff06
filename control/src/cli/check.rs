//! `srv6d check`: checks a configuration, finds what it lacks on this machine, and says what it would change.

use std::fs;
use std::os::unix::fs::FileTypeExt;
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
    let filename = file.display().to_string();
    let text = text_of(file, json)?;
    if let Some(socket) = daemon {
        return ask(&socket, &Request::Diff { filename, text, offers: None }, json);
    }
    let interfaces = sonic::interfaces_of_a_switch();
    let planned =
        sonic::configuration(&text, &filename, interfaces.as_deref()).and_then(|read| read.plan(&environment()));
    let in_the_way = planned.as_ref().ok().and_then(|plan| occupied(&plan.api.socket));
    if let Some((what, fix)) = in_the_way {
        return Err(unusable(&filename, "[api] socket", what, fix, json));
    }
    if json {
        return report(planned);
    }
    let plan = planned.map_err(|errors| Failure::invalid(errors.to_string()))?;
    output::print(&summary(&filename, &plan))
}

/// Checks `file` without this machine's ports, cores, addresses and routes, because the file is meant for another
/// machine.
pub fn offline(file: &Path, json: bool) -> Result<(), Failure> {
    let filename = file.display().to_string();
    let text = text_of(file, json)?;
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

/// Reads the configuration. With `json`, the reason why it cannot be read is a report, too.
fn text_of(file: &Path, json: bool) -> Result<String, Failure> {
    read(file).map_err(|unreadable| {
        if json {
            unusable(&file.display().to_string(), "", unreadable.what, unreadable.fix.to_owned(), json)
        } else {
            unreadable.into()
        }
    })
}

/// Returns what is wrong with the path of the management socket, and the fix, if a file that is no socket has it.
fn occupied(socket: &Path) -> Option<(String, String)> {
    let found = fs::symlink_metadata(socket).ok().filter(|found| !found.file_type().is_socket())?;
    let kind = if found.is_dir() { "a directory" } else { "a file" };
    let what = format!("{} is {kind}, and no socket", socket.display());
    Some((what, "remove it, or choose another path".to_owned()))
}

/// Makes the failure of a configuration that cannot be used. With `json`, its report has been printed.
fn unusable(file: &str, entry: &str, what: String, fix: String, json: bool) -> Failure {
    if !json {
        return Failure::invalid(format!("error: {file}: {entry}: {what}\nfix: {fix}"));
    }
    let errors = vec![Diagnostic::of_file(file.to_owned(), entry, what, fix)];
    match output::print_json(&Report { errors, ..Report::default() }) {
        Ok(()) => Failure::invalid(""),
        Err(failure) => failure,
    }
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
