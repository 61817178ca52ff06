//! Which room uses which, as ARCHITECTURE.md says: the table there is compared with manifests and sources.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const ARCHITECTURE: &str = include_str!("../../../ARCHITECTURE.md");

/// The crate whose rooms are in the table, too.
const SEVERAL_ROOMS: &str = "daemon";

/// For each room, the rooms that it uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the rows of the table in their order.
fn table() -> Vec<(String, BTreeSet<String>)> {
    let section = ARCHITECTURE.split("### Who uses whom").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix('|')?.split_once('|'));
    let rows = rows.filter(|(room, _)| room.trim() != "room").map(|(room, uses)| {
        let uses = uses.split(',').map(str::trim).filter(|used| !used.is_empty());
        (room.trim().to_owned(), uses.map(str::to_owned).collect())
    });
    rows.collect()
}

/// Returns the crates of `dataplane` and `control`, with the crates of the workspace that they depend on.
fn crates() -> Uses {
    let manifest = |path: &Path| fs::read_to_string(path).unwrap().parse::<toml::Table>().unwrap();
    let workspace = manifest(&top().join("Cargo.toml"));
    let members = workspace["workspace"]["members"].as_array().unwrap().iter().map(|member| member.as_str().unwrap());
    let rooms = members.filter(|member| member.starts_with("dataplane") || member.starts_with("control"));
    let of_workspace = |name: &String| name.strip_prefix("srv6d-").map(str::to_owned);
    let uses = rooms.map(|member| {
        let manifest = manifest(&top().join(member).join("Cargo.toml"));
        let package = manifest["package"]["name"].as_str().unwrap().to_owned();
        let kinds = ["dependencies", "build-dependencies"];
        let dependencies = kinds.iter().filter_map(|kind| manifest.get(*kind).and_then(toml::Value::as_table));
        let used = dependencies.flat_map(toml::Table::keys).filter_map(of_workspace).collect();
        (of_workspace(&package).unwrap_or(package), used)
    });
    uses.collect()
}

fn sources(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|entry| sources(&entry)).collect()
}

/// Returns the rooms that a text of another room names: `crate::kernel` and, in braces, `crate::{kernel, limits}`.
fn named(text: &str) -> BTreeSet<String> {
    let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let word = |text: &str| text.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect::<String>();
    let of_path = |rest: &str| match rest.strip_prefix('{') {
        Some(list) => list
            .split("};")
            .next()
            .unwrap_or_default()
            .split(',')
            .map(|item| word(item.trim_start()))
            .collect::<Vec<_>>(),
        None => vec![word(rest)],
    };
    code.split("crate::").skip(1).flat_map(of_path).collect()
}

/// Returns the rooms of one crate, with the rooms of the same crate that they use.
fn rooms_of(name: &str) -> Uses {
    let source = top().join("control").join(name).join("src");
    let room = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let paths: Vec<PathBuf> = fs::read_dir(source).unwrap().map(|entry| entry.unwrap().path()).collect();
    let paths: Vec<&PathBuf> = paths.iter().filter(|path| room(path) != "lib").collect();
    let all: BTreeSet<String> = paths.iter().map(|path| room(path)).collect();
    let uses = paths.iter().map(|path| {
        let used = sources(path).into_iter().flat_map(|file| named(&fs::read_to_string(file).unwrap()));
        let others = used.filter(|used| *used != room(path) && all.contains(used));
        (format!("{name}/{}", room(path)), others.map(|used| format!("{name}/{used}")).collect())
    });
    uses.collect()
}

#[test]
fn rooms_use_each_other_as_the_table_says() {
    let mut found = crates();
    found.extend(rooms_of(SEVERAL_ROOMS));
    let written: Uses = table().into_iter().collect();
    assert!(found.keys().eq(written.keys()), "rooms: {:?}, table: {:?}", found.keys(), written.keys());
    for (room, used) in &found {
        let written = &written[room];
        let (more, less) = (used.difference(written), written.difference(used));
        let (more, less): (Vec<_>, Vec<_>) = (more.collect(), less.collect());
        assert!(more.is_empty(), "{room} uses {more:?}, which its row in ARCHITECTURE.md does not have");
        assert!(less.is_empty(), "{room} does not use {less:?}, which its row in ARCHITECTURE.md has");
    }
}

/// `control` is the binary's crate: it has the name of the program.
#[test]
fn a_directory_has_the_name_of_its_package() {
    let workspace = fs::read_to_string(top().join("Cargo.toml")).unwrap().parse::<toml::Table>().unwrap();
    for member in workspace["workspace"]["members"].as_array().unwrap() {
        let member = member.as_str().unwrap();
        let manifest = fs::read_to_string(top().join(member).join("Cargo.toml")).unwrap();
        let manifest = manifest.parse::<toml::Table>().unwrap();
        let inner = ["dataplane/", "control/", "tests/"].iter().find_map(|outer| member.strip_prefix(outer));
        let expected = match member {
            "control" => "srv6d".to_owned(),
            _ => format!("srv6d-{}", inner.unwrap_or(member).replace('/', "-")),
        };
        assert_eq!(manifest["package"]["name"].as_str(), Some(expected.as_str()), "{member}");
    }
}

#[test]
fn a_room_uses_what_stands_above_it() {
    let mut above = BTreeSet::new();
    for (room, used) in table() {
        let below: Vec<&String> = used.difference(&above).collect();
        assert!(below.is_empty(), "{room} uses {below:?}, which are not above it");
        above.insert(room);
    }
}

#[test]
fn configuration_plan_and_daemon_know_no_switch() {
    let found = crates();
    let mut open = vec!["config", "plan", "daemon"];
    let mut seen = BTreeSet::new();
    while let Some(room) = open.pop() {
        assert!(!room.starts_with("sonic"), "{seen:?} lead to {room}");
        if seen.insert(room) {
            open.extend(found[room].iter().map(String::as_str));
        }
    }
}

#[test]
fn names_in_braces_and_without_are_found() {
    let text = "// crate::no\nuse crate::kernel::Mirror;\nuse crate::{limits, metrics::{self}};\n";
    let found = named(text);
    assert!(
        ["kernel", "limits", "metrics"].iter().all(|room| found.contains(*room)) && !found.contains("no"),
        "{found:?}"
    );
}
