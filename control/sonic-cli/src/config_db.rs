//! CONFIG_DB as a document that `config`, `counterpoll`, `sonic-cfggen` and `sonic-db-cli` read and change.
//!
//! Rows keep the order and the fields that the user wrote, known or unknown.

mod commands;
mod keys;

pub use commands::{
    AddressChange, add_vrf, bind_vrf, change_address, delete_vrf, set_admin, set_hostname, set_srv6_interval,
    set_srv6_polling, unbind_vrf,
};
pub use keys::matches;

use serde::Serialize;
use serde_json::{Map, Value};
use srv6d_sonic::{Switch, lanes_of_port};

/// The reason why a command is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// The contents of CONFIG_DB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigDb(Map<String, Value>);

impl ConfigDb {
    /// Reads a file. An empty file is an empty document.
    ///
    /// # Errors
    /// The text is not a JSON object.
    pub fn parse(text: &str) -> Result<Self, Refused> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        match serde_json::from_str(text) {
            Ok(Value::Object(tables)) => Ok(Self(tables)),
            Ok(_) => Err(Refused("it is no JSON object of tables".to_owned())),
            Err(why) => Err(Refused(format!("it is no JSON: {why}"))),
        }
    }

    /// Returns the text of the file, indented as SONiC writes it.
    pub fn to_text(&self) -> String {
        let mut text = indented(&Value::Object(self.0.clone()));
        text.push('\n');
        text
    }

    /// Returns a table. `None`: there is no such table.
    pub fn table(&self, table: &str) -> Option<&Map<String, Value>> {
        self.0.get(table)?.as_object()
    }

    /// Returns the document as JSON.
    pub fn value(&self) -> Value {
        Value::Object(self.0.clone())
    }

    /// Returns a row of a table. Blanks around its key do not matter.
    pub fn row(&self, table: &str, key: &str) -> Option<&Map<String, Value>> {
        let rows = self.table(table)?;
        rows.iter().find(|(written, _)| same_key(written, key))?.1.as_object()
    }

    /// Returns a field of a row as text. The elements of a list are joined by commas.
    pub fn field(&self, table: &str, key: &str, field: &str) -> Option<String> {
        let row = self.row(table, key)?;
        row.get(field).or_else(|| row.get(field.strip_suffix('@')?)).map(text_of)
    }

    /// Sets fields of a row, which is made if it does not exist. Returns how many of the fields are new.
    pub fn set<'a>(&mut self, table: &str, key: &str, fields: impl IntoIterator<Item = (&'a str, Value)>) -> usize {
        let Some(row) = self.row_mut(table, key) else { return 0 };
        let mut new = 0;
        for (field, value) in fields {
            new += usize::from(row.insert(field.to_owned(), value).is_none());
        }
        new
    }

    /// Removes a row, and the table if it has no other row. Returns whether the row existed.
    pub fn remove(&mut self, table: &str, key: &str) -> bool {
        let Some(rows) = self.0.get_mut(table).and_then(Value::as_object_mut) else { return false };
        let before = rows.len();
        rows.retain(|written, _| !same_key(written, key));
        let removed = rows.len() < before;
        if rows.is_empty() {
            self.0.remove(table);
        }
        removed
    }

    /// Removes a field. Returns whether it existed.
    pub fn remove_field(&mut self, table: &str, key: &str, field: &str) -> bool {
        let row = self
            .0
            .get_mut(table)
            .and_then(Value::as_object_mut)
            .and_then(|rows| rows.iter_mut().find(|(written, _)| same_key(written, key))?.1.as_object_mut());
        row.is_some_and(|row| row.remove(field).is_some())
    }

    /// Adds another document to this one, field by field, as `config load` does. Fields of the other document replace
    /// existing ones.
    pub fn merge(&mut self, other: Self) {
        for (table, rows) in other.0 {
            match rows {
                Value::Object(rows) => {
                    for (key, row) in rows {
                        self.merge_row(&table, &key, row);
                    }
                }
                // Real files have scalars and lists where tables should be.
                other => drop(self.0.entry(table).or_insert(other)),
            }
        }
    }

    fn merge_row(&mut self, table: &str, key: &str, row: Value) {
        let fields = match row {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        if let Some(known) = self.row_mut(table, key) {
            known.extend(fields);
        }
    }

    /// Returns a row, which is made if it does not exist. The result is never `None`.
    fn row_mut(&mut self, table: &str, key: &str) -> Option<&mut Map<String, Value>> {
        let rows = self.0.entry(table).or_insert_with(|| Value::Object(Map::new()));
        if !rows.is_object() {
            *rows = Value::Object(Map::new());
        }
        let rows = rows.as_object_mut()?;
        let written = rows.keys().find(|written| same_key(written, key)).cloned().unwrap_or_else(|| key.to_owned());
        let row = rows.entry(written).or_insert_with(|| Value::Object(Map::new()));
        if !row.is_object() {
            *row = Value::Object(Map::new());
        }
        row.as_object_mut()
    }

    /// Writes rows for all ports if the document has none: once one port has a row, only ports with a row exist. All
    /// ports of the lane map are written, because interfaces may appear later.
    pub fn write_ports(&mut self, switch: &Switch) {
        if self.table("PORT").is_none_or(Map::is_empty) {
            let mut rows: Map<String, Value> = (0..PORTS).map(|number| absent(number * 4)).collect();
            rows.extend(ports(switch));
            self.0.insert("PORT".to_owned(), Value::Object(rows));
        }
    }

    /// Returns the document with every port that exists, written or not. Scripts learn the names of ports from it.
    #[must_use]
    pub fn with_ports(mut self, switch: &Switch) -> Self {
        let rows = self.ports(switch);
        self.0.insert("PORT".to_owned(), rows);
        self
    }

    /// Returns the `PORT` table, written or not.
    pub fn ports(&self, switch: &Switch) -> Value {
        match self.table("PORT").filter(|rows| !rows.is_empty()) {
            Some(rows) => Value::Object(rows.clone()),
            None => Value::Object(ports(switch)),
        }
    }
}

/// Number of ports of the default lane map.
const PORTS: u32 = 32;

/// Returns the row of a port of the lane map that has no interface so far. The port is as it would be without a row.
fn absent(number: u32) -> (String, Value) {
    let name = format!("Ethernet{number}");
    let lanes: Vec<String> = lanes_of_port(&name).iter().map(ToString::to_string).collect();
    let row = [
        ("lanes", lanes.join(",")),
        ("alias", format!("fortyGigE0/{number}")),
        ("speed", "40000".to_owned()),
        ("admin_status", "up".to_owned()),
    ];
    let row: Map<String, Value> = row.into_iter().map(|(field, value)| (field.to_owned(), value.into())).collect();
    (name, row.into())
}

fn ports(switch: &Switch) -> Map<String, Value> {
    let row = |port: &srv6d_sonic::Port| {
        let lanes: Vec<String> = port.lanes.iter().map(ToString::to_string).collect();
        let mut row = Map::new();
        let mut put = |field: &str, value: String| row.insert(field.to_owned(), Value::String(value));
        put("lanes", lanes.join(","));
        if let Some(alias) = &port.alias {
            put("alias", alias.clone());
        }
        if let Some(index) = port.index {
            put("index", index.to_string());
        }
        put("speed", port.speed.to_string());
        put("admin_status", if port.admin_up { "up" } else { "down" }.to_owned());
        put("mtu", port.mtu.to_string());
        (port.name.clone(), Value::Object(row))
    };
    switch.ports.iter().filter(|port| port.present).map(row).collect()
}

/// Whether two keys are equal. Keys of real files have blanks at their ends.
fn same_key(written: &str, key: &str) -> bool {
    written.trim() == key.trim()
}

/// Returns a value as redis holds it: as text.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(elements) => elements.iter().map(text_of).collect::<Vec<_>>().join(","),
        Value::Bool(true) => "true".to_owned(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Formats JSON with an indentation of four blanks.
pub fn indented(value: &Value) -> String {
    let mut text = Vec::new();
    let format = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    // Neither writing to memory nor serialising a JSON value can fail.
    let _ = value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, format));
    String::from_utf8(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn what_is_not_touched_stays_as_it_was_written() {
        let text = "{\n    \"ZEBRA\": {\n        \"b\": 1,\n        \"a\": null\n    },\n    \"X\": []\n}\n";
        let mut db = ConfigDb::parse(text).unwrap();
        assert_eq!(db.to_text(), text);
        assert_eq!(db.set("VRF", "Vrf1", [("vni", "7".into())]), 1);
        assert_eq!(db.set("VRF", "Vrf1", [("vni", "8".into())]), 0);
        assert!(db.remove("VRF", "Vrf1") && !db.remove("VRF", "Vrf1"));
        assert_eq!(db.to_text(), text);
        assert!(ConfigDb::parse("[]").is_err() && ConfigDb::parse("{").is_err());
        assert_eq!(ConfigDb::parse(" \n"), Ok(ConfigDb::default()));
    }

    #[test]
    fn loading_lays_fields_over_fields() {
        let mut db =
            ConfigDb::parse(r#"{"PORT": {"Ethernet0 ": {"mtu": "9100", "speed": 40000}}, "VRF": {}}"#).unwrap();
        let over =
            r#"{"PORT": {"Ethernet0": {"mtu": "1500"}, "Ethernet4": {}}, "odd": "scalar", "VRF": {"Vrf1": null}}"#;
        db.merge(ConfigDb::parse(over).unwrap());
        assert_eq!(db.field("PORT", "Ethernet0", "mtu").unwrap(), "1500");
        assert_eq!(db.field("PORT", "Ethernet0", "speed").unwrap(), "40000");
        assert_eq!(db.table("PORT").unwrap().len(), 2);
        assert!(db.row("VRF", "Vrf1").unwrap().is_empty());
    }

    #[test]
    fn ports_that_nobody_wrote_down_are_written_before_one_of_them_changes() {
        let present = ["eth1".to_owned(), "eth2".to_owned()];
        let switch = srv6d_sonic::read(Some("{}"), None, Some(&present), false).unwrap().switch;
        let mut db = ConfigDb::default();
        assert_eq!(db.ports(&switch).as_object().unwrap().len(), 2);
        db.write_ports(&switch);
        assert_eq!(db.field("PORT", "Ethernet4", "lanes").unwrap(), "29,30,31,32");
        assert_eq!(db.field("PORT", "Ethernet124", "alias").unwrap(), "fortyGigE0/124");
        assert_eq!(db.field("PORT", "Ethernet4", "mtu").unwrap(), "9100");
        db.set("PORT", "Ethernet4", [("admin_status", "down".into())]);
        db.write_ports(&switch);
        // An interface that appears later is a port as well.
        let present = ["eth1".to_owned(), "eth2".to_owned(), "eth3".to_owned()];
        let switch = srv6d_sonic::read(Some(&db.to_text()), None, Some(&present), false).unwrap().switch;
        let ports: Vec<_> = switch.ports.iter().filter(|port| port.present).map(|port| port.admin_up).collect();
        assert_eq!((switch.ports.len(), ports), (32, vec![true, false, true]));
    }
}
