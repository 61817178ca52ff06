//! `sonic-db-cli`: reads and changes single rows of CONFIG_DB, and reads rows of the APPL_DB that belongs to it.

use serde_json::Value;
use srv6d_sonic_cli::app_db;
use srv6d_sonic_cli::cfggen::fields_of;
use srv6d_sonic_cli::config_db::{ConfigDb, matches};

use super::node::Node;
use super::tree::{argument, wrong};
use srv6d_command::{Failure, output};

const COMMAND: &str = "sonic-db-cli";

/// Carries out `sonic-db-cli CONFIG_DB HSET|HDEL|HGET|HGETALL|DEL|KEYS ...`,
/// `sonic-db-cli APPL_DB HGET|HGETALL|KEYS ...` and `PING`.
pub fn db_cli(node: &Node, arguments: &[String]) -> Result<(), Failure> {
    let (database, rest) = argument(COMMAND, "DATABASE", arguments)?;
    if database.eq_ignore_ascii_case("ping") {
        return output::print("PONG\n");
    }
    let (word, rest) = argument(COMMAND, "COMMAND", rest)?;
    let word = word.to_lowercase();
    match (database, word.as_str()) {
        (_, "ping") => output::print("PONG\n"),
        ("CONFIG_DB", "hset" | "hmset" | "hdel" | "del") => change(node, &word, rest),
        ("CONFIG_DB", _) => ask(&config_rows(&node.running()?.config_db), &word, rest),
        ("APPL_DB", _) => {
            let rows = app_db::rows(&node.switch()?).into_iter();
            let own = |fields: Vec<(&str, String)>| {
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            };
            ask(&rows.map(|(key, fields)| (key, own(fields))).collect::<Vec<_>>(), &word, rest)
        }
        ("ASIC_DB" | "COUNTERS_DB" | "STATE_DB" | "FLEX_COUNTER_DB" | "LOGLEVEL_DB", _) => ask(&[], &word, rest),
        _ => Err(wrong(COMMAND, &format!("invalid database name: {database}"))),
    }
}

type Row = (String, Vec<(String, String)>);

fn config_rows(db: &ConfigDb) -> Vec<Row> {
    let document = db.value();
    let tables = document.as_object().into_iter().flatten();
    let rows = tables.filter_map(|(table, rows)| Some((table, rows.as_object()?))).flat_map(|(table, rows)| {
        rows.iter().map(move |(key, row)| {
            let fields = row.as_object().into_iter().flatten();
            let field = |name: &String| db.field(table, key, name).unwrap_or_default();
            (format!("{table}|{}", key.trim()), fields.map(|(name, _)| (name.clone(), field(name))).collect())
        })
    });
    rows.collect()
}

fn ask(rows: &[Row], word: &str, arguments: &[String]) -> Result<(), Failure> {
    let (key, rest) = argument(COMMAND, "KEY", arguments)?;
    let row = rows.iter().find(|(known, _)| known == key);
    match word {
        "keys" => {
            let found = rows.iter().filter(|(known, _)| matches(key, known));
            output::print_data(&found.flat_map(|(known, _)| [known, "\n"]).collect::<String>())
        }
        "hget" => {
            let (field, _) = argument(COMMAND, "FIELD", rest)?;
            let value = row.and_then(|(_, fields)| fields.iter().find(|(name, _)| name == field));
            output::print_data(&format!("{}\n", value.map_or("", |(_, value)| value)))
        }
        "hgetall" => {
            let fields = row.into_iter().flat_map(|(_, fields)| fields);
            let text = fields_of(fields.map(|(name, value)| (name.as_str(), format!("'{value}'"))));
            output::print_data(&format!("{text}\n"))
        }
        "exists" => output::print(if row.is_some() { "1\n" } else { "0\n" }),
        other => Err(wrong(COMMAND, &format!("{other} is not known here"))),
    }
}

fn change(node: &Node, word: &str, arguments: &[String]) -> Result<(), Failure> {
    let (first, rest) = argument(COMMAND, "KEY", arguments)?;
    let split = |key: &str| -> Result<(String, String), Failure> {
        let (table, key) = key.split_once('|').ok_or_else(|| wrong(COMMAND, &format!("{key} is no TABLE|KEY")))?;
        Ok((table.to_owned(), key.to_owned()))
    };
    let (table, key) = split(first)?;
    let count = node.change(|running| {
        let db = &mut running.config_db;
        if table == "PORT" {
            db.write_ports(&running.switch);
        }
        match word {
            "del" => {
                let mut removed = 0;
                for key in arguments {
                    let (table, key) = split(key)?;
                    removed += usize::from(db.remove(&table, &key));
                }
                Ok(removed)
            }
            "hdel" => Ok(rest.iter().filter(|field| db.remove_field(&table, &key, field)).count()),
            _ if rest.is_empty() || rest.len() % 2 != 0 => {
                Err(wrong(COMMAND, "a field and a value, one or several times, stand behind the key"))
            }
            _ => {
                let fields = rest.chunks_exact(2).filter_map(|pair| match pair {
                    // In redis, a row without fields has this field.
                    [name, _] if name == "NULL" => None,
                    [name, value] => Some((name.as_str(), Value::from(value.as_str()))),
                    _ => None,
                });
                Ok(db.set(&table, &key, fields))
            }
        }
    })?;
    output::print(&format!("{count}\n"))
}
