//! A containerlab topology file, with the keys that the labs of `packaging/containerlab` use.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub struct File {
    pub topology: Topology,
}

#[derive(Debug, Deserialize)]
pub struct Topology {
    pub nodes: BTreeMap<String, Node>,
    pub links: Vec<Link>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Node {
    pub entrypoint: Option<String>,
    pub cmd: Option<String>,
    pub healthcheck: Option<Healthcheck>,
    #[serde(default)]
    pub binds: Vec<String>,
    #[serde(default)]
    pub exec: Vec<String>,
    #[serde(default)]
    pub sysctls: BTreeMap<String, i64>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Healthcheck {
    pub test: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Link {
    pub endpoints: [String; 2],
}

impl Link {
    /// Returns (node, interface) of both ends.
    pub fn ends(&self) -> [(String, String); 2] {
        self.endpoints.clone().map(|end| {
            let (node, interface) = end.split_once(':').unwrap();
            (node.to_owned(), interface.to_owned())
        })
    }
}

/// Returns the directory of the labs.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/containerlab")
}

/// Returns all topology files of the labs.
pub fn files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_string_lossy().ends_with(".clab.yml")).collect()
}

/// Returns the topology file of the TRex profiles, whose nodes have other images.
pub fn of_trex() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../trex-profiles/clab/srv6d-trex.clab.yml")
}

/// Reads a topology file of the labs.
pub fn read(name: &str) -> File {
    serde_saphyr::from_str(&std::fs::read_to_string(folder().join(name)).unwrap()).unwrap()
}
