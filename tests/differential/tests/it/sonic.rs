//! Files of SONiC switches with rows, fields and lines changed: they are either read, or refused with a helpful
//! message.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test may panic")]

use std::sync::OnceLock;

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Map, Value, json};
use srv6d_differential::random_tests;
use srv6d_differential::sonic::{seeds, sonic};

/// One change of a JSON file. An index selects among all values of the file.
#[derive(Clone, Debug)]
enum Row {
    Value(Index, Value),
    Key(Index, String),
    Remove(Index),
    /// Adds a copy of a row to the same table under another key.
    Again(Index, String),
    /// Adds a table with rows.
    New(String),
}

/// One change of a text file.
#[derive(Clone, Debug)]
enum Line {
    Remove(Index),
    Move(Index, Index),
    Again(Index, Index),
    Word(Index, Index, String),
    Insert(Index, String),
}

/// Returns the words of the samples, and some that fit nowhere.
fn words() -> &'static [String] {
    static WORDS: OnceLock<Vec<String>> = OnceLock::new();
    WORDS.get_or_init(|| {
        let odd = [
            "",
            " ",
            "::",
            "::/0",
            "0.0.0.0/0",
            "0.0.0.0",
            "fe80::1",
            "fe80::/10",
            "ff02::1",
            "ff00::/8",
            "::1",
            "::1/128",
            "127.0.0.1",
            "255.255.255.255",
            "Ethernet0",
            "Ethernet4",
            "Ethernet5",
            "Ethernet4294967295",
            "Ethernet4294967292",
            "eth1",
            "Vlan60",
            "Vlan0",
            "Loopback0",
            "PortChannel1",
            "default",
            "vrfdefault",
            "Vrf1",
            "null",
            "true",
            "-1",
            "0",
            "1",
            "8",
            "63",
            "64",
            "127",
            "128",
            "129",
            "255",
            "65536",
            "99999999999999999999",
            "uN",
            "uA",
            "uDT4",
            "uDT6",
            "uDT46",
            "pipe",
            "uniform",
            "blackhole",
            "reject",
            "segments",
            "vrf",
            "sid",
            "no",
            "exit",
            "end",
            "a|b",
            "|",
            "\u{0}",
            "\u{feff}",
            "\n",
            "é",
            "\"",
            "\\",
            "fd60:6:2::/48",
            "fd60:6::/32",
            "fd60::/16",
            "fd60:6:1::1",
            "H_Encaps_Red",
            "encap-behavior",
        ];
        let seeds = seeds();
        let texts: Vec<&str> = seeds.iter().map(|seed| std::str::from_utf8(seed).unwrap()).collect();
        let split = |letter: char| letter.is_whitespace() || "\"|,{}\u{0}".contains(letter);
        let mut words: Vec<String> = texts.iter().flat_map(|text| text.split(split)).map(str::to_owned).collect();
        words.sort();
        words.dedup();
        // Half of the choices are unusual words.
        let odd = odd.iter().cycle().take(words.len().max(odd.len()));
        odd.map(|&word| word.to_owned()).chain(words.clone()).collect()
    })
}

fn word() -> impl Strategy<Value = String> {
    let one = any::<Index>().prop_map(|at| at.get(words()).clone());
    prop_oneof![
        8 => one.clone(),
        1 => (one.clone(), one.clone()).prop_map(|(a, b)| format!("{a}|{b}")),
        1 => (one.clone(), one).prop_map(|(a, b)| format!("{a},{b}")),
    ]
}

/// Fills a pattern. Capital letters stand for a random value: `P` for a prefix, `A` for an address, `I` for an
/// interface.
fn filled(patterns: &'static [&'static str]) -> impl Strategy<Value = String> {
    let choices = (prop::sample::select(patterns), prop::collection::vec(any::<Index>(), 6));
    choices.prop_map(|(pattern, picks)| {
        let mut picks = picks.into_iter().cycle();
        let words = pattern.split_inclusive([' ', '|', '/', '"']).map(|word| {
            let (slot, rest) = word.split_at(word.len().min(1));
            let alone = rest.is_empty() || rest.starts_with([' ', '|', '/', '"']);
            let kind = ["P", "A", "I"].into_iter().position(|kind| alone && kind == slot);
            match kind.zip(picks.next()) {
                Some((kind, pick)) => format!("{}{rest}", pick.get(&kinds()[kind])),
                None => word.to_owned(),
            }
        });
        words.collect()
    })
}

/// Returns the prefixes, addresses and interfaces among the words, each as often as it occurs.
fn kinds() -> &'static [Vec<String>; 3] {
    static KINDS: OnceLock<[Vec<String>; 3]> = OnceLock::new();
    KINDS.get_or_init(|| {
        let of = |fits: fn(&str) -> bool| words().iter().filter(|word| fits(word)).cloned().collect();
        [
            of(|word| word.parse::<ipnet::IpNet>().is_ok()),
            of(|word| word.parse::<std::net::IpAddr>().is_ok()),
            of(|word| word.starts_with("Ethernet") || word.starts_with("Vlan") || word.starts_with("Loopback")),
        ]
    })
}

const LINES: [&str; 14] = [
    "ipv6 route P A I",
    "ipv6 route P A",
    "ipv6 route P I",
    "ipv6 route P I segments A",
    "ipv6 route P I segments A/A encap-behavior H_Encaps_Red",
    "ipv6 route P A segments A encap-source A",
    "ip route P A I",
    "ip route P I segments A",
    "ipv6 route P blackhole",
    "vrf Vrf1",
    "sid P locator MAIN behavior uA interface I nexthop A",
    "sid P locator MAIN behavior uN",
    "source-address A",
    "prefix P",
];

const ROWS: [&str; 9] = [
    r#"STATIC_ROUTE {"default|P": {"nexthop": "A", "ifname": "I"}}"#,
    r#"STATIC_ROUTE {"Vrf1|P": {"nexthop": "A"}}"#,
    r#"STATIC_ROUTE {"P": {"blackhole": "true"}}"#,
    r#"SRV6_MY_SIDS {"loc1|P": {"action": "uN"}}"#,
    r#"SRV6_MY_SIDS {"loc1|P": {"action": "uA", "interface": "I", "adj": "A"}}"#,
    r#"SRV6_MY_LOCATORS {"loc1": {"prefix": "A"}}"#,
    r#"NEIGH {"I|A": {"neigh": "02:00:00:00:00:07"}}"#,
    r#"VLAN_MEMBER {"Vlan60|I": {"tagging_mode": "tagged"}}"#,
    r#"INTERFACE {"I|P": {}}"#,
];

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => word().prop_map(Value::String),
        1 => prop::sample::select(vec![json!(null), json!(7), json!(-1), json!(true), json!([]), json!(["a", 7]), json!({}), json!({"a": {}})]),
    ]
}

fn row() -> impl Strategy<Value = Row> {
    prop_oneof![
        4 => (any::<Index>(), value()).prop_map(|(at, value)| Row::Value(at, value)),
        3 => (any::<Index>(), word()).prop_map(|(at, word)| Row::Key(at, word)),
        2 => any::<Index>().prop_map(Row::Remove),
        3 => (any::<Index>(), word()).prop_map(|(at, word)| Row::Again(at, word)),
        8 => filled(&ROWS).prop_map(Row::New),
    ]
}

fn line() -> impl Strategy<Value = Line> {
    prop_oneof![
        1 => any::<Index>().prop_map(Line::Remove),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Line::Move(from, to)),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Line::Again(from, to)),
        2 => (any::<Index>(), any::<Index>(), word()).prop_map(|(line, at, word)| Line::Word(line, at, word)),
        1 => (any::<Index>(), prop::collection::vec(word(), 1..9)).prop_map(|(at, words)| Line::Insert(at, words.join(" "))),
        8 => (any::<Index>(), filled(&LINES)).prop_map(|(at, line)| Line::Insert(at, line)),
    ]
}

/// Collects the path to every key of every object.
fn places(value: &Value, way: &[String], places: &mut Vec<Vec<String>>) {
    for (key, inner) in value.as_object().into_iter().flatten() {
        let way: Vec<String> = way.iter().chain([key]).cloned().collect();
        places.push(way.clone());
        self::places(inner, &way, places);
    }
}

fn object<'v>(file: &'v mut Value, way: &[String]) -> Option<&'v mut Map<String, Value>> {
    way.iter().try_fold(file, |value, key| value.get_mut(key))?.as_object_mut()
}

fn change(file: &mut Value, change: &Row) {
    if let Row::New(text) = change {
        let (table, rows) = text.split_once(' ').unwrap();
        let rows: Option<Map<String, Value>> = serde_json::from_str(rows).ok();
        let tables = file.as_object_mut().unwrap();
        if let (Some(rows), Value::Object(known)) = (rows, tables.entry(table).or_insert(json!({}))) {
            known.extend(rows);
        }
        return;
    }
    let mut all = Vec::new();
    places(file, &[], &mut all);
    let (Row::Value(at, _) | Row::Key(at, _) | Row::Remove(at) | Row::Again(at, _)) = change else { return };
    let Some((key, way)) = all.get(at.index(all.len().max(1))).and_then(|way| way.split_last()) else { return };
    let Some(object) = object(file, way) else { return };
    match change {
        Row::Value(_, value) => drop(object.insert(key.clone(), value.clone())),
        Row::Key(_, word) => {
            let value = object.shift_remove(key).unwrap_or_default();
            object.insert(word.clone(), value);
        }
        Row::Remove(_) | Row::New(_) => drop(object.shift_remove(key)),
        Row::Again(_, word) => {
            let value = object.get(key).cloned().unwrap_or_default();
            let key = match key.rsplit_once('|') {
                Some((before, _)) => format!("{before}|{word}"),
                None => word.clone(),
            };
            object.insert(key, value);
        }
    }
}

fn edit(lines: &mut Vec<String>, change: &Line) {
    let at = |index: &Index| index.index(lines.len() + 1).min(lines.len().saturating_sub(1));
    if lines.is_empty() {
        return;
    }
    match change {
        Line::Remove(index) => drop(lines.remove(at(index))),
        Line::Move(from, to) => {
            let (from, to) = (at(from), at(to));
            let line = lines.remove(from);
            lines.insert(to.min(lines.len()), line);
        }
        Line::Again(from, to) => {
            let (from, to) = (at(from), at(to));
            lines.insert(to, lines[from].clone());
        }
        Line::Word(line, index, word) => {
            let line = at(line);
            let mut words: Vec<&str> = lines[line].split_whitespace().collect();
            let place = index.index(words.len() + 1);
            if let Some(slot) = words.get_mut(place) {
                *slot = word;
            } else {
                words.push(word);
            }
            lines[line] = words.join(" ");
        }
        Line::Insert(index, text) => {
            let at = at(index);
            lines.insert(at, text.clone());
        }
    }
}

proptest! {
    #![proptest_config(random_tests(1500))]

    #[test]
    fn rows_and_lines_changed(
        pick in any::<Index>(),
        rows in prop::collection::vec(row(), 0..8),
        lines in prop::collection::vec(line(), 0..8),
    ) {
        static SEEDS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
        let seed = pick.get(SEEDS.get_or_init(seeds));
        let (config_db, frr) = std::str::from_utf8(seed).unwrap().split_once('\0').unwrap();
        let mut file: Value = serde_json::from_str(config_db).unwrap();
        for row in &rows {
            change(&mut file, row);
        }
        let mut text: Vec<String> = frr.lines().map(str::to_owned).collect();
        for line in &lines {
            edit(&mut text, line);
        }
        sonic([file.to_string().as_bytes(), text.join("\n").as_bytes()].join(&0).as_slice());
    }
}
