//! Contents of the TOML files, before names are resolved.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::property::Property;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    #[serde(default)]
    pub(crate) setup: BTreeMap<String, Setup>,
    #[serde(default)]
    pub(crate) case: Vec<Case>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Setup {
    pub(crate) summary: String,
    pub(crate) config: String,
    pub(crate) port: Vec<Port>,
    #[serde(default)]
    pub(crate) addresses: Vec<String>,
    #[serde(default)]
    pub(crate) neighbor: Vec<Neighbor>,
    #[serde(default)]
    pub(crate) linux: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) mac: String,
    pub(crate) peer: String,
    pub(crate) mtu: Option<u32>,
    pub(crate) up: Option<bool>,
    #[serde(default)]
    pub(crate) addresses: Vec<String>,
    #[serde(default)]
    pub(crate) kernel: bool,
    pub(crate) device: Option<String>,
    pub(crate) vlan: Option<u16>,
}

/// Changes that one case makes to a port.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PortChange {
    pub(crate) name: String,
    pub(crate) mtu: Option<u32>,
    pub(crate) up: Option<bool>,
    pub(crate) addresses: Option<Vec<String>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Neighbor {
    pub(crate) port: String,
    pub(crate) address: String,
    pub(crate) mac: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) row: String,
    pub(crate) title: String,
    pub(crate) clause: String,
    pub(crate) priority: u8,
    pub(crate) setup: String,
    pub(crate) linux: String,
    /// Changes to the configuration of the setup.
    pub(crate) config: Option<toml::Table>,
    #[serde(default)]
    pub(crate) port: Vec<PortChange>,
    /// Addresses of neighbours of the setup that are not resolved in this case.
    #[serde(default)]
    pub(crate) unresolved: Vec<String>,
    /// Additional commands for the kernel oracle.
    #[serde(default)]
    pub(crate) oracle: Vec<String>,
    #[serde(default, rename = "in")]
    pub(crate) inputs: Vec<In>,
    #[serde(default, rename = "out")]
    pub(crate) outputs: Vec<Out>,
    #[serde(default)]
    pub(crate) step: Vec<Step>,
    /// Expected counters. A name with dots is written as nested tables: `drop.malformed`, `sid."fcbb:bbbb:1::/48"`.
    pub(crate) counters: Option<toml::Table>,
    pub(crate) refused: Option<String>,
    #[serde(default)]
    pub(crate) property: Vec<Property>,
    #[serde(default)]
    pub(crate) note: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    #[serde(default)]
    pub(crate) at_ms: u64,
    #[serde(default)]
    pub(crate) neighbor: Vec<Neighbor>,
    #[serde(default)]
    pub(crate) link: Vec<Link>,
    #[serde(default, rename = "in")]
    pub(crate) inputs: Vec<In>,
    #[serde(default, rename = "out")]
    pub(crate) outputs: Vec<Out>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Link {
    pub(crate) port: String,
    pub(crate) up: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct In {
    pub(crate) port: String,
    pub(crate) frame: Vec<String>,
    #[serde(default = "once")]
    pub(crate) repeat: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Out {
    /// Port, or several ports separated by `|` of which any is right.
    pub(crate) port: String,
    pub(crate) frame: Vec<String>,
    /// Entry of `in`, counted from 1 over all steps, that `rest` and `quote` refer to.
    pub(crate) of: Option<usize>,
    #[serde(default = "once")]
    pub(crate) repeat: u32,
}

fn once() -> u32 {
    1
}
