//! Sums of the values in `show counters --json`, which are computed here and not by the daemon.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use serde_json::Value;

/// Returns whether every received packet is accounted for and none waits: `rx = tx + kernel + reply + drop`.
pub fn add_up(view: &Value) -> bool {
    let number = |name: &str| view.get(name).and_then(Value::as_u64).unwrap();
    let ends = number("tx") + number("kernel") + packets(view, "reply", None) + packets(view, "drop", None);
    number("rx") == ends && number("held") == 0 && number("queued") == 0
}

/// Returns the packets of one reason, or of all reasons, under `reply` or `drop`.
pub fn packets(view: &Value, ending: &str, reason: Option<&str>) -> u64 {
    let rows = view.get(ending).and_then(Value::as_array).unwrap().iter();
    let chosen = rows.filter(|row| reason.is_none_or(|reason| row.get("reason").unwrap() == reason));
    chosen.map(|row| row.get("packets").and_then(Value::as_u64).unwrap()).sum()
}
