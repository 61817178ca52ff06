//! The allocations that `path = "load"` has made. A request for a path by load changes the controller's books. So each
//! pair is requested once, and the result is kept across restarts if there is a file for it. So are the
//! carriers that were made of the paths: a restarted daemon uses them until the controller answers.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::snapshot::{Cause, PrefixPaths, RequestResults};
use srv6d_text::read_text_up_to;
use srv6d_text::{MAX_NAME, shown, shown_up_to};

/// Maximum size of the file in MiB; sufficient for some hundred thousand peers.
const LONGEST: u64 = 128;

/// The allocations of one sender in one graph, as the state file contains them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Allocations {
    /// The graph in which they were made.
    graph: String,
    /// The sender for which they were made.
    source: String,
    /// Ids along each path, by the id of the peer.
    paths: BTreeMap<String, Vec<String>>,
    /// Carriers that were last in force, by the id of the peer.
    #[serde(default)]
    carriers: BTreeMap<String, Vec<PrefixPaths>>,
    #[serde(skip)]
    file: Option<PathBuf>,
    #[serde(skip)]
    unsaved: bool,
}

impl Allocations {
    /// Reads the allocations from the file if it belongs to this graph and sender. Any other file, or one that cannot
    /// be read, is replaced. What it had allocated still counts at the controller, so this is logged and counted as a
    /// failure. A device, a pipe or a directory is left
    /// as it is.
    pub fn load(file: Option<PathBuf>, graph: &str, source: &str, health: &mut RequestResults) -> Self {
        let empty = Self { graph: graph.to_owned(), source: source.to_owned(), ..Self::default() };
        let Some(file) = file else { return empty };
        if file.exists() && !file.is_file() {
            let what = "is no regular file: allocations are forgotten at the end; name another `state`";
            failed(health, format!("{} {what}", file.display()));
            return empty;
        }
        let known = empty.read(&file).unwrap_or_else(|why| {
            health.failed(Cause::State);
            warn!(
                "jalapeno: {}: {why}; begun anew, and what it had allocated goes on counting at the controller",
                file.display()
            );
            None
        });
        Self { file: Some(file), ..known.unwrap_or(empty) }
    }

    /// Reads the file. Returns `None` if it does not exist.
    fn read(&self, file: &Path) -> Result<Option<Self>, String> {
        let text = match read_text_up_to(LONGEST, file) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|why| format!("allocations cannot be read: {why}"))?,
        };
        let known: Self = serde_json::from_str(&text)
            .map_err(|why| format!("no file of allocations: {}", shown(&why.to_string())))?;
        if (&known.graph, &known.source) == (&self.graph, &self.source) {
            return Ok(Some(known));
        }
        let [source, graph] = [&known.source, &known.graph].map(|name| shown_up_to(name, MAX_NAME));
        Err(format!("allocations of {source} in {graph}, not of {} in {}", self.source, self.graph))
    }

    /// Returns the path that was allocated to a peer.
    pub fn of(&self, peer: &str) -> Option<&Vec<String>> {
        self.paths.get(peer)
    }

    /// Returns every peer that has an allocation.
    pub fn peers(&self) -> impl Iterator<Item = &String> {
        self.paths.keys()
    }

    /// Adds an allocation, which is lost at the end of the process unless [`Self::save`] writes it.
    pub fn insert(&mut self, peer: &str, path: Vec<String>) {
        self.paths.insert(peer.to_owned(), path);
        self.unsaved = true;
    }

    /// Removes allocations that were released.
    pub fn forget(&mut self, peers: &[String]) {
        for peer in peers {
            self.unsaved |= self.paths.remove(peer).is_some() | self.carriers.remove(peer).is_some();
        }
    }

    /// Keeps the carriers that are in force for a peer.
    pub fn remember(&mut self, peer: &str, prefixes: &[PrefixPaths]) {
        if self.file.is_some() && self.carriers.get(peer).is_none_or(|known| known != prefixes) {
            self.carriers.insert(peer.to_owned(), prefixes.to_vec());
            self.unsaved = true;
        }
    }

    /// Returns the carriers that were last in force for a peer.
    pub fn last_good(&self, peer: &str) -> &[PrefixPaths] {
        self.carriers.get(peer).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns whether the allocations outlive this process.
    pub const fn are_remembered(&self) -> bool {
        self.file.is_some()
    }

    /// Writes the allocations to the file if they have changed. A failure is recorded in `health`.
    pub fn save(&mut self, health: &mut RequestResults) {
        let Some(file) = self.file.as_ref().filter(|_| self.unsaved) else { return };
        let written = self.write(file);
        match written {
            Ok(()) => health.state_error = None,
            Err(why) => {
                let fix = "see to it that srv6d may write there, or name another `state`";
                failed(health, format!("allocations cannot be remembered in {}: {why}; {fix}", file.display()));
            }
        }
        self.unsaved = false;
    }

    /// Writes a new file that then replaces the old one, so that a crash in between loses nothing.
    fn write(&self, file: &Path) -> io::Result<()> {
        srv6d_text::replace_file(file, &serde_json::to_vec_pretty(self)?)
    }
}

fn failed(health: &mut RequestResults, why: String) {
    warn!("jalapeno: {why}");
    health.failed(Cause::State);
    health.state_error = Some(why);
}
