//! Reads `config_db.json` as tables whose rows have text values, whatever their JSON types are.

use std::cell::RefCell;
use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::finding::{Findings, Quirk};
use crate::value;

/// The whole file, parsed.
pub(crate) struct Db {
    tables: Map<String, Value>,
    /// Tables that have been read already.
    read: RefCell<HashSet<&'static str>>,
}

/// One row of a table: `TABLE|key` with its fields.
pub(crate) struct Row<'a> {
    table: &'a str,
    /// Key, without blanks around its parts.
    pub(crate) key: String,
    /// Parts of the key, which are separated by bars.
    parts: Vec<String>,
    fields: Vec<(&'a str, String)>,
}

impl Db {
    /// Parses the file. `None`: it is not a JSON object; a finding says so.
    pub(crate) fn parse(text: &str, found: &mut Findings) -> Option<Self> {
        match serde_json::from_str(text.trim_start_matches('\u{feff}')) {
            Ok(Value::Object(tables)) => Some(Self { tables, read: RefCell::default() }),
            Ok(_) => {
                found.error(
                    "config_db.json",
                    "is not a JSON object: write { \"TABLE\": { \"key\": { \"field\": \"value\" } } }",
                );
                None
            }
            Err(error) => {
                // The error's text ends with the position. Here the position stands in front.
                let text = error.to_string();
                let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
                found.error(format!("config_db.json:{}:{}", error.line(), error.column()), format!("no JSON: {what}"));
                None
            }
        }
    }

    /// Whether the table exists, even without rows.
    pub(crate) fn has(&self, table: &str) -> bool {
        self.tables.get(table).is_some_and(Value::is_object)
    }

    /// Returns the rows of a table, in the order of the file.
    pub(crate) fn rows<'a>(&'a self, table: &'static str, found: &mut Findings) -> Vec<Row<'a>> {
        // Findings about a table are recorded only when it is read for the first time.
        let first = self.read.borrow_mut().insert(table);
        if first { self.read_rows(table, found) } else { self.read_rows(table, &mut Findings::default()) }
    }

    fn read_rows<'a>(&'a self, table: &'a str, found: &mut Findings) -> Vec<Row<'a>> {
        match self.tables.get(table) {
            None => Vec::new(),
            Some(Value::Object(rows)) => {
                let mut keys = HashSet::new();
                let rows = rows.iter().filter_map(|(key, fields)| {
                    let row = Row::read(table, key, fields, found)?;
                    if !keys.insert(row.key.clone()) {
                        found.ignored(row.place(""), "stands there twice, once with blanks: the first counts");
                        return None;
                    }
                    Some(row)
                });
                rows.collect()
            }
            Some(Value::Null) => {
                found.tolerated(format!("config_db.json: {table}"), "is null: taken as a table without rows");
                Vec::new()
            }
            Some(other) => {
                let what = format!("is {}, not a table: taken as one without rows", value::json_type(other));
                found.tolerated(format!("config_db.json: {table}"), what);
                Vec::new()
            }
        }
    }

    /// Checks the tables that nothing has read. Their contents are not used, but findings about them are listed, too.
    pub(crate) fn check_others(&self, found: &mut Findings) {
        for table in self.tables.keys().filter(|table| !self.read.borrow().contains(table.as_str())) {
            self.read_rows(table, found);
        }
    }
}

impl<'a> Row<'a> {
    fn read(table: &'a str, key: &str, written: &'a Value, found: &mut Findings) -> Option<Self> {
        let parts: Vec<String> = key.split('|').map(|part| part.trim().to_owned()).collect();
        let mut row = Self { table, key: parts.join("|"), parts, fields: Vec::new() };
        if row.key != key {
            found.tolerated(row.place(""), "has blanks in its key: taken without them");
        }
        match written {
            Value::Object(fields) => {
                for (name, value) in fields {
                    row.read_field(name, value, found);
                }
            }
            Value::Null => found.tolerated(row.place(""), "is null: taken as a row without fields"),
            other => {
                found.ignored(row.place(""), format!("is {}, not a row: left out", value::json_type(other)));
                return None;
            }
        }
        Some(row)
    }

    fn read_field(&mut self, name: &'a str, written: &Value, found: &mut Findings) {
        // The database itself writes this into a row without fields.
        if name == "NULL" {
            return;
        }
        let text = match written {
            Value::String(text) => text.clone(),
            Value::Number(number) => {
                found.count(self.table, Quirk::Bare);
                number.to_string()
            }
            Value::Bool(word) => {
                found.count(self.table, Quirk::Bare);
                word.to_string()
            }
            Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
            Value::Null | Value::Object(_) => {
                let what = format!("is {}: taken as not written", value::json_type(written));
                found.tolerated(self.place(name), what);
                return;
            }
        };
        let trimmed = text.trim();
        if trimmed != text {
            found.tolerated(self.place(name), "has blanks around its value: taken without them");
        }
        self.fields.push((name, trimmed.to_owned()));
    }

    /// Returns the row's place for findings. `field` may be empty.
    pub(crate) fn place(&self, field: &str) -> String {
        format!("config_db.json: {}|{} {field}", self.table, self.key).trim_end().to_owned()
    }

    /// Returns the name of the row's table.
    pub(crate) fn table(&self) -> &str {
        self.table
    }

    /// Returns the parts of the key, which are separated by bars.
    pub(crate) fn parts(&self) -> Vec<&str> {
        self.parts.iter().map(String::as_str).collect()
    }

    /// Returns a field that is not empty.
    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        let written = self.fields.iter().find(|(name, _)| *name == field);
        written.map(|(_, text)| text.as_str()).filter(|text| !text.is_empty())
    }

    /// Returns a field as an owned text.
    pub(crate) fn owned(&self, field: &str) -> Option<String> {
        self.text(field).map(str::to_owned)
    }

    /// Iterates over the names of all fields.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(name, _)| *name)
    }

    /// Returns a field that is one of SONiC's truth words.
    pub(crate) fn truth(&self, field: &str, found: &mut Findings) -> Option<bool> {
        let text = self.text(field)?;
        let truth = value::truth(text);
        if truth.is_none() {
            let known = "true, up, enable, enabled, on, or the opposite of one";
            found.tolerated(self.place(field), format!("{text:?} is no truth word ({known}): taken as not written"));
        }
        truth
    }

    /// Returns a field that is a number from `low` to `high`.
    pub(crate) fn number(&self, field: &str, low: u32, high: u32, found: &mut Findings) -> Option<u32> {
        let text = self.text(field)?;
        let number = text.parse().ok().filter(|number| (low..=high).contains(number));
        if number.is_none() {
            let what = format!("{text:?} is no number from {low} to {high}: taken as not written");
            found.tolerated(self.place(field), what);
        }
        number
    }

    /// Parses a field. If that fails, the field is left out and a finding says so.
    pub(crate) fn parsed<T>(
        &self,
        field: &str,
        what: &str,
        parse: impl Fn(&str) -> Option<T>,
        found: &mut Findings,
    ) -> Option<T> {
        let text = self.text(field)?;
        let parsed = parse(text);
        if parsed.is_none() {
            found.tolerated(self.place(field), format!("{text:?} is not {what}: taken as not written"));
        }
        parsed
    }
}
