//! Tests that any text is either accepted or refused, and never causes a panic.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use srv6d_config as config;
use srv6d_plan::{self as plan, Environment};

const FULL: &str = include_str!("config_full.toml");

fn read(text: &str) {
    match config::parse(text, "fuzz.toml") {
        Ok(config) => drop(plan::plan(&config, &Environment::default()).map_err(|errors| errors.to_string())),
        Err(errors) => {
            assert!(!errors.0.is_empty());
            assert!(errors.0.iter().all(|error| error.line >= 1 && error.column >= 1 && !error.fix.is_empty()));
            drop(errors.to_string());
        }
    }
}

/// Generates pieces of text that a mutation may insert anywhere.
fn piece() -> impl Strategy<Value = String> {
    let known = [
        "",
        "\n",
        "\"",
        "[",
        "]]",
        "{",
        "=",
        "0",
        "-1",
        "18446744073709551616",
        "0xffff",
        "1e9",
        "true",
        "\"::\"",
        "\"ff02::1/0\"",
        "\"fcbb::/32\"",
        "[[steer]]\n",
        "[[sid]]\n",
        "[node]\n",
        "nexthops = [{}]\n",
        "paths = []\n",
        "segments = []\n",
        "lblen = 255\n",
        "nflen = 255\n",
        "\u{0}",
        "é",
        "\t",
        "\r\n",
        "#",
    ];
    prop_oneof![prop::sample::select(known.to_vec()).prop_map(str::to_owned), any::<String>()]
}

proptest! {
    #[test]
    fn any_text(text in any::<String>()) {
        read(&text);
    }

    #[test]
    fn a_configuration_with_pieces_replaced(
        edits in prop::collection::vec((0..FULL.len(), 0..40usize, piece()), 1..4)
    ) {
        let mut text = FULL.to_owned();
        for (at, length, piece) in edits {
            let start = text.floor_char_boundary(at.min(text.len()));
            let end = text.floor_char_boundary((start + length).min(text.len()));
            text.replace_range(start..end, &piece);
        }
        read(&text);
    }

    #[test]
    fn lines_left_out_or_twice(picks in prop::collection::vec(0..FULL.lines().count(), 1..120)) {
        let lines: Vec<&str> = FULL.lines().collect();
        let text: Vec<&str> = picks.iter().filter_map(|&pick| lines.get(pick).copied()).collect();
        read(&text.join("\n"));
    }
}
