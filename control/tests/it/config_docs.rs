//! Tests that reference and program agree.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use srv6d_config as config;
use srv6d_plan::{self as plan, Environment};
use srv6d_sonic_switch::Sonic;

const REFERENCE: &str = include_str!("../../../docs/configuration.md");
const DICTIONARY: &str = include_str!("../../../tests/fuzz/srv6d.dict");

/// Returns the text below a heading, up to the next one of the same level.
fn section(heading: &str) -> &'static str {
    let start = REFERENCE.find(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no section {heading:?}"));
    let text = REFERENCE.get(start + 4..).unwrap();
    text.split("\n## ").next().unwrap()
}

/// Returns the keys that the tables of a section explain. The first cell of a row has one or several keys.
fn explained(section: &str) -> Vec<&str> {
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

/// Returns the TOML blocks, each with the line at which it begins.
fn examples() -> Vec<(usize, String)> {
    let mut examples = Vec::new();
    let mut lines = REFERENCE.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if line == "```toml" {
            let text: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
            examples.push((number + 2, text.join("\n")));
        }
    }
    examples
}

#[test]
fn every_key_is_explained_and_every_explained_key_exists() {
    for (table, keys) in config::keys().into_iter().chain([config::keys_of::<Sonic>()]) {
        let heading = match table {
            "nexthops" => "Next hops",
            "paths" => "steer",
            "peers" => "syd",
            "emulate" => "Emulated ports",
            "reactive" => "Moves within a flowlet",
            "ecn" => "ECN marks of an emulated port",
            other => other.trim_matches(['[', ']']),
        };
        let explained = explained(section(heading));
        for key in &keys {
            assert!(explained.contains(key), "{table} {key} is not in section {heading:?}");
        }
        // The sections of SIDs, policies and syd have a second table.
        if !matches!(heading, "sid" | "steer" | "syd") {
            assert_eq!(explained, keys, "section {heading:?}");
        }
    }
}

#[test]
fn the_fuzzer_knows_every_key_and_behaviour() {
    let known: Vec<&str> = DICTIONARY.lines().filter_map(|line| line.strip_prefix('"')?.strip_suffix('"')).collect();
    let keys = config::keys().into_iter().flat_map(|(_, keys)| keys);
    let missing: Vec<&str> = keys.chain(behaviors()).filter(|word| !known.contains(word)).collect();
    assert_eq!(missing, Vec::<&str>::new(), "tests/fuzz/srv6d.dict does not have them");
}

/// Returns the keywords of `behavior`.
fn behaviors() -> impl Iterator<Item = &'static str> {
    <config::SidBehavior as config::Keyword>::KEYWORDS.iter().map(|(word, _)| *word)
}

#[test]
fn every_word_is_explained() {
    for (table, key, words) in [
        ("node", "srh_check", &["strict", "lenient"][..]),
        ("port", "mode", &["auto", "zero-copy", "native", "generic"]),
        ("port", "offload", &["off", "xdp", "auto"]),
        ("Emulated ports", "ecn", &["lab", "azure-lossless", "hpcc-100g"]),
        ("ECN marks of an emulated port", "non_ect", &["drop", "pass"]),
        ("balance", "mode", &["flowlet", "adaptive", "global", "weighted"]),
        ("glb", "role", &["helper-only", "load-balancer-only", "both"]),
        ("balance", "metric", &["capacity", "available"]),
        ("balance", "band", &["available", "relative"]),
        ("route", "type", &["unicast", "blackhole", "unreachable", "kernel"]),
        ("block", "unknown", &["drop", "icmp", "punt", "route"]),
    ] {
        let row = section(table).lines().find(|line| line.starts_with(&format!("| `{key}`"))).unwrap();
        assert!(words.iter().all(|word| row.contains(&format!("`\"{word}\"`"))), "{row}");
    }
    let refused = config::parse("[[sid]]\nsid = \"fcbb:0:1::/48\"\nbehavior = \"\"", "x").unwrap_err().to_string();
    let known = refused.split("known: ").nth(1).unwrap().lines().next().unwrap();
    let missing: Vec<&str> = known.split(", ").filter(|word| !section("sid").contains(&format!("`{word}`"))).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn every_example_is_right() {
    let examples = examples();
    assert!(examples.len() >= 12, "only {} examples found", examples.len());
    for (line, text) in examples {
        let parsed = config::parse_with::<Sonic>(&text, "example");
        let planned = parsed.and_then(|(config, _)| plan::plan(&config, &Environment::default()));
        let plan = planned.unwrap_or_else(|errors| panic!("example in line {line}:\n{errors}"));
        let warnings: Vec<String> = plan.warnings.iter().map(ToString::to_string).collect();
        assert!(warnings.is_empty(), "example in line {line}:\n{}", warnings.join("\n"));
        // Only network devices may be missing, which this environment does not have.
        let waiting: Vec<String> = plan.pending.iter().map(config::Diagnostic::headline).collect();
        assert!(waiting.iter().all(|line| line.contains("waits for network device")), "{waiting:#?}");
    }
}

/// Tables of sources. A plan of all of them at once would need a controller; `config_errors` has their keys.
const OF_SOURCES: [&str; 5] = ["[fpm]", "[kernel]", "[jalapeno]", "[syd]", "peers"];

/// A key that is always refused.
const NEVER: &str = "pfc";

/// The configuration that plans and mutations start from has every key, so a new key is tested by both.
#[test]
fn the_full_configuration_has_every_key() {
    let full = toml::Value::Table(include_str!("config_full.toml").parse().unwrap());
    let mut missing = Vec::new();
    for (table, keys) in config::keys().into_iter().filter(|(table, _)| !OF_SOURCES.contains(table)) {
        let mut written = Vec::new();
        collect(&full, table.trim_matches(['[', ']']), &mut written);
        missing.extend(
            keys.into_iter().filter(|key| !written.contains(key) && *key != NEVER).map(|key| format!("{table} {key}")),
        );
    }
    assert_eq!(missing, Vec::<String>::new());
}

/// Collects the keys of all tables with this name, at any depth.
fn collect<'t>(value: &'t toml::Value, name: &str, keys: &mut Vec<&'t str>) {
    match value {
        toml::Value::Table(table) => {
            for (key, inner) in table {
                if key == name {
                    let tables = inner.as_array().map_or_else(|| vec![inner], |tables| tables.iter().collect());
                    keys.extend(
                        tables
                            .iter()
                            .filter_map(|table| table.as_table())
                            .flat_map(|table| table.keys().map(String::as_str)),
                    );
                }
                collect(inner, name, keys);
            }
        }
        toml::Value::Array(values) => values.iter().for_each(|value| collect(value, name, keys)),
        _ => {}
    }
}
