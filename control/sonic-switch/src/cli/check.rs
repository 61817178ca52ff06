//! `srv6d sonic check`: checks the files of a switch.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use serde::Serialize;
use srv6d_sonic::{Finding, Reading, Switch, Usd};

use srv6d_command::read;
use srv6d_command::{Failure, output};

/// The files of a switch. One of them is enough.
#[derive(Debug, Args)]
#[group(id = "files", required = true, multiple = true)]
pub struct Files {
    /// CONFIG_DB as a file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, group = "files")]
    config_db: Option<PathBuf>,
    /// FRR's configuration: locators, static-sids and static routes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, group = "files")]
    frr: Option<PathBuf>,
}

/// Arguments of `srv6d sonic check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    #[command(flatten)]
    files: Files,
    /// Refuse what SONiC's YANG models or its daemons refuse
    #[arg(long)]
    strict: bool,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// The output of `--json`.
#[derive(Serialize)]
struct Report {
    valid: bool,
    findings: Vec<Finding>,
    switch: Option<Switch>,
}

/// Prints every finding once.
pub fn check(arguments: &CheckArguments) -> Result<(), Failure> {
    let reading = arguments.files.switch(arguments.strict)?;
    if arguments.json {
        return report(reading);
    }
    let Reading { switch, mut findings } = reading.map_err(|findings| refused(&findings, arguments.strict))?;
    findings.extend(switch.to_toml(Usd::default()).findings);
    output::print(&format!("{}{}\n", lines(&findings), summary(&switch)))
}

impl Files {
    /// Reads the switch. The interfaces of this machine do not matter for a file: all ports count as existing.
    pub(super) fn switch(&self, strict: bool) -> Result<Result<Reading, Vec<Finding>>, Failure> {
        let text = |file: &Option<PathBuf>| file.as_deref().map(|file: &Path| read(file)).transpose();
        let (config_db, frr) = (text(&self.config_db)?, text(&self.frr)?);
        let reading = srv6d_sonic::read(config_db.as_deref(), frr.as_deref(), None, strict);
        Ok(match reading {
            Ok(Reading { switch, findings }) => Ok(Reading { switch, findings: self.named(findings) }),
            Err(findings) => Err(self.named(findings)),
        })
    }

    /// Replaces the general names of the files in findings by the names that the user gave.
    fn named(&self, mut findings: Vec<Finding>) -> Vec<Finding> {
        for (role, file) in [("config_db.json", &self.config_db), ("frr.conf", &self.frr)] {
            let Some(file) = file else { continue };
            for finding in &mut findings {
                if let Some(rest) = finding.place.strip_prefix(role) {
                    finding.place = format!("{}{rest}", file.display());
                }
            }
        }
        findings
    }
}

/// Makes a failure that says why the files are refused, and what to do.
pub(super) fn refused(findings: &[Finding], strict: bool) -> Failure {
    let fix = if strict {
        "correct the lines with an error; without --strict most of them are accepted"
    } else {
        "correct the lines with an error"
    };
    Failure::invalid(format!("{}fix: {fix}", lines(findings)))
}

pub(super) fn lines(findings: &[Finding]) -> String {
    findings.iter().flat_map(|finding| [finding.to_string(), "\n".to_owned()]).collect()
}

fn report(reading: Result<Reading, Vec<Finding>>) -> Result<(), Failure> {
    match reading {
        Ok(Reading { switch, findings }) => output::print_json(&Report { valid: true, findings, switch: Some(switch) }),
        Err(findings) => {
            output::print_json(&Report { valid: false, findings, switch: None })?;
            Err(Failure::invalid(""))
        }
    }
}

fn summary(switch: &Switch) -> String {
    let routed = switch.ports.iter().filter(|port| port.routed).count();
    format!(
        "{}: {} ports ({routed} routed), {} VRFs, {} locators, {} SIDs, {} static routes",
        switch.device.hostname.as_deref().unwrap_or("sonic"),
        switch.ports.len(),
        switch.vrfs.len(),
        switch.locators.len(),
        switch.sids.len(),
        switch.routes.len()
    )
}
