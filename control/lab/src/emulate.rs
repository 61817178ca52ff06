//! `emulate` of a link, and of a port in a node's `srv6d.toml`.
//!
//! The keys are those of `emulate` of `[[port]]`, and srv6d's own reader and planner judge them. A file is changed in place,
//! so that what somebody has written into it by hand stays.

use std::fmt;

use serde::{Deserialize, Serialize};
use srv6d_config::Errors;
use srv6d_plan::Environment;
use toml::{Table, Value};
use toml_edit::{ArrayOfTables, DocumentMut, Item};

/// Number of packets that a port holds if `packets` says nothing else.
const DEFAULT_PACKETS: u64 = 512;
/// Keys in the order in which they are written.
const KEYS: [&str; 7] = ["rate", "queue", "packets", "overhead", "delay", "loss", "ecn"];

/// Settings of an emulated port, as they are written: `{ rate = "100Mbit", delay = "50us" }`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Emulate(Table);

impl Emulate {
    /// Sets one key.
    pub(super) fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.0.insert(key.to_owned(), value.into());
    }

    /// Removes one key.
    pub(super) fn remove(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// Sets or removes one key, as others have it.
    pub(super) fn take_over(&mut self, key: &str, others: &Self) {
        match others.0.get(key) {
            Some(value) => self.set(key, value.clone()),
            None => self.remove(key),
        }
    }

    /// Whether a key is set.
    pub(super) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Returns the value of a key as a person reads it, without the quotes of a text.
    pub(super) fn shown(&self, key: &str) -> Option<String> {
        let value = self.0.get(key)?;
        Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    /// Number of packets that the port holds at most.
    pub(super) fn packets(&self) -> u64 {
        let written = self.0.get("packets").and_then(Value::as_integer);
        written.and_then(|packets| packets.try_into().ok()).unwrap_or(DEFAULT_PACKETS)
    }

    /// Checks the settings as srv6d will, apart from what all ports of a node share.
    ///
    /// # Errors
    /// Every mistake, with its fix.
    pub(super) fn check(&self) -> Result<(), Errors> {
        let text = format!("[workers]\nframes = 65536\n\n[[port]]\nname = \"eth1\"\nemulate = {self}\n");
        let config = srv6d_config::parse(&text, "emulate")?;
        srv6d_plan::plan(&config, &Environment::default()).map(|_| ())
    }
}

impl fmt::Display for Emulate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = KEYS.iter().filter_map(|key| Some((*key, self.0.get(*key)?)));
        let others = self.0.iter().map(|(key, value)| (key.as_str(), value)).filter(|(key, _)| !KEYS.contains(key));
        let pairs: Vec<String> = known.chain(others).map(|(key, value)| format!("{} = {value}", quoted(key))).collect();
        write!(f, "{{ {} }}", pairs.join(", "))
    }
}

/// Returns a key of TOML, in quotes where it needs them.
fn quoted(key: &str) -> String {
    let is_bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if is_bare { key.to_owned() } else { Value::from(key).to_string() }
}

/// Returns `emulate` of a port in the text of a `srv6d.toml`. `None`: the port is not emulated, or not in the text.
///
/// # Errors
/// The text is not TOML.
pub(super) fn of_port(text: &str, port: &str) -> Result<Option<Emulate>, String> {
    let document: Table = toml::from_str(text).map_err(|error: toml::de::Error| error.message().to_owned())?;
    let ports = document.get("port").and_then(Value::as_array).into_iter().flatten();
    let mut own = ports.filter(|table| table.get("name").and_then(Value::as_str) == Some(port));
    let emulate = own.next().and_then(|table| table.get("emulate")).and_then(Value::as_table);
    Ok(emulate.map(|table| Emulate(table.clone())))
}

/// Returns the text of a `srv6d.toml` in which a port has this `emulate`, or none. Everything else stays as it is.
///
/// # Errors
/// The text is not TOML, or has no such port.
pub(super) fn changed(text: &str, port: &str, emulate: Option<&Emulate>) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| error.message().to_owned())?;
    let ports = document.get_mut("port").and_then(Item::as_array_of_tables_mut);
    let own = ports
        .into_iter()
        .flat_map(ArrayOfTables::iter_mut)
        .find(|table| table.get("name").and_then(Item::as_str) == Some(port));
    let own = own.ok_or_else(|| format!("it has no [[port]] named {port:?}"))?;
    match emulate {
        None => drop(own.remove("emulate")),
        Some(emulate) => {
            let value: toml_edit::Value = emulate.to_string().parse().map_err(|error| format!("{emulate}: {error}"))?;
            own.insert("emulate", Item::Value(value));
        }
    }
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    const FILE: &str = "# by hand\n[[port]]\nname = \"eth1\"   # to spine00\nrole = \"fabric\"\n\n\
                        [[port]]\nname = \"eth2\"\n\n[[sid]]\nsid = \"fcbb:0:1004::/48\" # mine\nbehavior = \"uN\"\n";

    fn settings(text: &str) -> Emulate {
        Emulate(toml::from_str(text).unwrap())
    }

    #[test]
    fn only_emulate_of_the_port_changes() {
        let slow = settings("delay = \"5ms\"\nrate = \"10Mbit\"\nloss = 0.01\necn = { max = 9000, min = 3000 }");
        let text = changed(FILE, "eth1", Some(&slow)).unwrap();
        let line = "emulate = { rate = \"10Mbit\", delay = \"5ms\", loss = 0.01, ecn = { max = 9000, min = 3000 } }\n";
        assert_eq!(text, FILE.replacen("role = \"fabric\"\n", &format!("role = \"fabric\"\n{line}"), 1));
        assert_eq!(of_port(&text, "eth1").unwrap().unwrap(), slow);
        assert_eq!(of_port(&text, "eth2").unwrap(), None);
        assert_eq!(changed(&text, "eth1", None).unwrap(), FILE);
    }

    #[test]
    fn a_table_of_its_own_is_read_and_replaced() {
        let text = FILE.replace("\n\n[[sid]]", "\n\n[port.emulate]\nrate = \"1Gbit\"\n\n[[sid]]");
        assert_eq!(of_port(&text, "eth2").unwrap().unwrap(), settings("rate = \"1Gbit\""));
        let text = changed(&text, "eth2", Some(&settings("rate = \"2Mbit\""))).unwrap();
        assert_eq!(of_port(&text, "eth2").unwrap().unwrap(), settings("rate = \"2Mbit\""));
    }

    #[test]
    fn what_is_no_toml_or_has_no_such_port_is_refused() {
        assert!(changed(FILE, "eth9", None).unwrap_err().contains("no [[port]] named \"eth9\""));
        assert!(changed("[[port]", "eth1", None).is_err());
        assert!(of_port("[[port]", "eth1").is_err());
    }

    #[test]
    fn mistakes_are_those_that_srv6d_finds() {
        settings("rate = \"10Mbit\"").check().unwrap();
        for (text, what) in [
            ("delay = \"5ms\"", "rate"),
            ("rate = \"10\"", "1Mbit"),
            ("rate = \"10Mbit\"\nlatency = \"5ms\"", "latency"),
            ("rate = \"10Mbit\"\nqueue = 100", "two packets"),
            ("rate = \"10Mbit\"\npfc = true", "priority flow control"),
            ("rate = \"10Mbit\"\nqueue = 100000\necn = \"lab\"", "max (120000)"),
        ] {
            let errors = settings(text).check().unwrap_err().to_string();
            assert!(errors.contains(what), "{text}:\n{errors}");
        }
    }
}
