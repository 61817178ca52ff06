//! The stored state of a running lab: its run directory.
//!
//! ```text
//! /run/srv6d-lab/fabric/
//!   topology.toml        the file it was made from
//!   state.json           node processes
//!   leaf00/srv6d.toml    configuration     leaf00/srv6d.sock   management socket     leaf00/srv6d.log
//!   leaf00/frr/          with routing = "bgp": zebra and bgpd, their configurations, sockets and logs
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::controller;
use super::error::LabError;
use super::topology::{Chosen, Topology};
use srv6d_process::Process;

/// Directories for the run directories of labs, the preferred one first.
const PLACES: [&str; 2] = ["/run/srv6d-lab", "/tmp/srv6d-lab"];

/// Contents of `state.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Settings of the command line that replace those of the topology.
    #[serde(flatten)]
    pub chosen: Chosen,
    /// Processes of the nodes.
    #[serde(default)]
    pub daemons: Vec<Daemon>,
}

/// The programs that a lab runs in its nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LabProgram {
    /// srv6d itself, as a daemon or as the path server.
    #[default]
    Srv6d,
    /// The part of FRR that talks to the kernel.
    Zebra,
    /// FRR's BGP.
    Bgpd,
}

impl LabProgram {
    /// Returns the name of the binary.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Srv6d => "srv6d",
            Self::Zebra => "zebra",
            Self::Bgpd => "bgpd",
        }
    }
}

/// A process of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Daemon {
    /// Name of the node.
    pub node: String,
    /// The program.
    #[serde(default)]
    pub program: LabProgram,
    /// The process of the node.
    #[serde(flatten)]
    pub process: Process,
}

impl State {
    /// Returns the process of a node's program, whether or not it is still running.
    pub fn process(&self, node: &str, program: LabProgram) -> Option<Process> {
        let found = self.daemons.iter().find(|daemon| daemon.node == node && daemon.program == program);
        found.map(|daemon| daemon.process)
    }

    /// Returns the processes of a node.
    pub fn of_node(&self, node: &str) -> Vec<Process> {
        self.daemons.iter().filter(|daemon| daemon.node == node).map(|daemon| daemon.process).collect()
    }

    /// Records a process. It replaces an earlier one of the same program and node.
    pub fn put(&mut self, node: &str, program: LabProgram, process: Process) {
        self.daemons.retain(|daemon| daemon.node != node || daemon.program != program);
        self.daemons.push(Daemon { node: node.to_owned(), program, process });
    }
}

/// The run directory of one lab.
#[derive(Clone, Debug)]
pub struct RunDirectory(PathBuf);

impl RunDirectory {
    /// Makes the directory. This process owns the lab only because the directory did not exist before.
    ///
    /// # Errors
    /// The lab is up already, or no place is writable.
    pub fn create(lab: &str) -> Result<Self, LabError> {
        if let Some(existing) = Self::find(lab) {
            return Err(already_up(lab, &existing));
        }
        let mut refused = None;
        for place in PLACES {
            let place = Path::new(place);
            if let Err(error) = private_directory(place, true) {
                refused = Some(not_made(place, &error));
                continue;
            }
            let directory = place.join(lab);
            match private_directory(&directory, false) {
                Ok(()) => return Ok(Self(directory)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(already_up(lab, &Self(directory)));
                }
                Err(error) => refused = Some(LabError::io("make", &directory, &error)),
            }
        }
        Err(refused.unwrap_or(LabError::Interrupted))
    }

    /// Returns the directory of a lab that is up.
    pub fn find(lab: &str) -> Option<Self> {
        PLACES.iter().map(|place| Path::new(place).join(lab)).find(|directory| ours(directory)).map(Self)
    }

    /// Returns the names of the labs that are up.
    pub fn labs() -> Vec<String> {
        let mut labs = Vec::new();
        for place in PLACES {
            let entries = fs::read_dir(place).into_iter().flatten().flatten();
            labs.extend(
                entries.filter(|entry| ours(&entry.path())).filter_map(|entry| entry.file_name().into_string().ok()),
            );
        }
        labs.sort_unstable();
        labs.dedup();
        labs
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the directory of a node.
    pub fn node(&self, node: &str) -> PathBuf {
        self.0.join(node)
    }

    /// Returns the path of the configuration of a node's srv6d.
    pub fn config(&self, node: &str) -> PathBuf {
        self.node(node).join("srv6d.toml")
    }

    /// Returns the path of the management socket of a node's srv6d.
    pub fn socket(&self, node: &str) -> PathBuf {
        self.node(node).join("srv6d.sock")
    }

    /// Returns the path of the log of a node's srv6d.
    pub fn log(&self, node: &str) -> PathBuf {
        self.node(node).join("srv6d.log")
    }

    /// Stores the topology, and makes the directories of the nodes.
    pub fn write_topology(&self, topology: &Topology, text: &str) -> Result<(), LabError> {
        self.write("topology.toml", text)?;
        let controller = topology.controller.as_ref().map(|_| controller::NODE);
        for node in topology.nodes().map(|node| node.name.as_str()).chain(controller) {
            let directory = self.node(node);
            private_directory(&directory, true).map_err(|error| LabError::io("make", &directory, &error))?;
        }
        Ok(())
    }

    /// Reads the topology from which the lab was made.
    pub fn topology(&self) -> Result<Topology, LabError> {
        let file = self.0.join("topology.toml");
        let text = fs::read_to_string(&file).map_err(|error| LabError::io("read", &file, &error))?;
        Topology::parse_with(&text, &file.display().to_string(), self.state().chosen)
    }

    /// Stores the state.
    pub fn write_state(&self, state: &State) -> Result<(), LabError> {
        let text = serde_json::to_string_pretty(state).map_err(|error| LabError::Failed(error.to_string()))?;
        self.write("state.json", &text)
    }

    /// Reads the state. It is empty before the lab has begun to come up.
    pub fn state(&self) -> State {
        let text = fs::read_to_string(self.0.join("state.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Replaces a file as a whole, so that no reader sees half of it.
    pub fn write(&self, name: &str, text: &str) -> Result<(), LabError> {
        let file = self.0.join(name);
        srv6d_text::replace_file(&file, text.as_bytes()).map_err(|error| LabError::io("write", &file, &error))
    }

    /// Removes the directory with everything in it.
    pub fn remove(&self) -> Result<(), LabError> {
        fs::remove_dir_all(&self.0).map_err(|error| LabError::io("remove", &self.0, &error))?;
        // The directory above is removed with its last lab.
        let _ = self.0.parent().map(fs::remove_dir);
        Ok(())
    }
}

/// Makes the error for a place of run directories that cannot be used.
fn not_made(place: &Path, error: &io::Error) -> LabError {
    match fs::symlink_metadata(place) {
        Ok(metadata) if error.kind() == io::ErrorKind::AlreadyExists => LabError::Failed(format!(
            "{} belongs to user {}\nfix: run the lab as that user, or remove what is there",
            place.display(),
            metadata.uid()
        )),
        _ => LabError::io("make", place, error),
    }
}

/// Whether a directory belongs to this user. Every user may write to /tmp, so a directory of another user is not a lab
/// of ours.
fn ours(directory: &Path) -> bool {
    fs::symlink_metadata(directory)
        .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == nix::unistd::geteuid().as_raw())
}

fn private_directory(directory: &Path, may_exist: bool) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && may_exist && ours(directory) => Ok(()),
        other => other,
    }
}

fn already_up(lab: &str, directory: &RunDirectory) -> LabError {
    LabError::Failed(format!(
        "the lab {lab} is up already (it lives in {})\n\
         fix: look at it with `srv6d lab status --name {lab}`, take it down with `srv6d lab down --name {lab}`, \
         or bring up another one with --name",
        directory.path().display()
    ))
}
