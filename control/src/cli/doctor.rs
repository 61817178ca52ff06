//! `srv6d doctor`.

use std::path::Path;

use super::check::{environment, read};
use super::output::{self, Failure};
use crate::config::{self, Checksum, Config, Polling};
use crate::doctor::{Plans, Verdict, examine, render, worst};
use crate::plan;

/// A UMEM chunk.
const CHUNK_BYTES: u64 = 4096;

/// Examines, prints, and fails when something is in the way.
pub fn doctor(interfaces: &[String], config: Option<&Path>, json: bool) -> Result<(), Failure> {
    let (plans, devices) = match config {
        Some(file) => plans(file)?,
        None => (Plans { umem_bytes: 8192 * CHUNK_BYTES, ..Plans::default() }, Vec::new()),
    };
    let findings = examine(if interfaces.is_empty() { &devices } else { interfaces }, &plans);
    if json {
        output::print_json(&findings)?;
    } else {
        output::print(&render(&findings))?;
    }
    if worst(&findings) == Verdict::Fail { Err(Failure::silent()) } else { Ok(()) }
}

/// What a configuration asks of the machine, and the devices it names.
fn plans(file: &Path) -> Result<(Plans, Vec<String>), Failure> {
    let filename = file.display().to_string();
    let invalid = |errors: config::Errors| Failure::invalid(errors.to_string());
    let config = config::parse(&read(file)?, &filename).map_err(invalid)?;
    let plan = plan::plan(&config, &environment()).map_err(invalid)?;
    let plans = Plans {
        cores: plan.workers.cores.iter().copied().flatten().collect(),
        busy: plan.workers.polling == Polling::Busy,
        umem_bytes: u64::from(plan.workers.frames) * CHUNK_BYTES,
        filled: filled(&config),
    };
    Ok((plans, plan.devices.into_iter().map(|port| port.device).collect()))
}

fn filled(config: &Config) -> Vec<String> {
    let ports = config.ports.iter().map(config::Spanned::get_ref);
    ports
        .filter(|port| port.checksum.as_ref().is_some_and(|checksum| *checksum.get_ref() == Checksum::Fill))
        .map(|port| port.device.as_ref().unwrap_or(&port.name).get_ref().clone())
        .collect()
}
