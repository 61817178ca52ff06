//! What `path = "load"` has allocated: asking for a path by load changes the controller's books, so each pair is asked
//! once, and remembered across restarts if there is a file for it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::snapshot::{Cause, Health};

/// Which allocations a file is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocations {
    /// The graph they were made in.
    graph: String,
    /// The sender they were made for.
    source: String,
    /// Ids along the path, by the id of the peer.
    paths: BTreeMap<String, Vec<String>>,
    #[serde(skip)]
    file: Option<PathBuf>,
    #[serde(skip)]
    unsaved: bool,
}

impl Allocations {
    /// Those of the file, if it is about this graph and sender. One that is not, or cannot be read, is written anew: what
    /// it had allocated goes on counting at the controller, so that is said.
    pub fn load(file: Option<PathBuf>, graph: &str, source: &str, health: &mut Health) -> Self {
        let empty = Self { graph: graph.to_owned(), source: source.to_owned(), ..Self::default() };
        let Some(file) = file else { return empty };
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

    /// `None`: there is no file yet.
    fn read(&self, file: &Path) -> Result<Option<Self>, String> {
        let text = match fs::read_to_string(file) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|why| format!("allocations cannot be read: {why}"))?,
        };
        let known: Self = serde_json::from_str(&text).map_err(|why| format!("no file of allocations: {why}"))?;
        if (&known.graph, &known.source) == (&self.graph, &self.source) {
            return Ok(Some(known));
        }
        Err(format!("allocations of {} in {}, not of {} in {}", known.source, known.graph, self.source, self.graph))
    }

    /// The path that was allocated to a peer.
    pub fn of(&self, peer: &str) -> Option<&Vec<String>> {
        self.paths.get(peer)
    }

    /// Every peer that has one.
    pub fn peers(&self) -> impl Iterator<Item = &String> {
        self.paths.keys()
    }

    /// Remembers one, until the process ends or [`Self::save`] writes it down.
    pub fn insert(&mut self, peer: &str, path: Vec<String>) {
        self.paths.insert(peer.to_owned(), path);
        self.unsaved = true;
    }

    /// Forgets what was given back.
    pub fn forget(&mut self, peers: &[String]) {
        for peer in peers {
            self.unsaved |= self.paths.remove(peer).is_some();
        }
    }

    /// Writes them down if there is something new; what keeps it from doing so is said in the health.
    pub fn save(&mut self, health: &mut Health) {
        if !self.unsaved {
            return;
        }
        self.unsaved = false;
        if let (Err(why), Some(file)) = (self.write(), &self.file) {
            health.failed(Cause::State);
            warn!("jalapeno: allocations cannot be remembered in {}: {why}", file.display());
        }
    }

    /// Beside the file, then in its place: a crash in between loses nothing.
    fn write(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        crate::replace_file(file, &serde_json::to_vec_pretty(self)?)
    }
}
