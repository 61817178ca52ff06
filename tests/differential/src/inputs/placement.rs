//! Job files of the placement: flows, tenants and patterns on a fabric.

use std::sync::OnceLock;

use srv6d_path_server::EXAMPLE;
use srv6d_placement::{Clos, Fabric, Job, Report, compare, svg};

use super::most_text;

/// Limit on flows: more of them take too long for a fuzzer.
const FLOWS: usize = 400;

/// Fuzz target: a job is read and placed. Input: `| fabric | job, as JSON or TOML |`
///
/// # Panics
/// If a placement is better than its lower bound, or if a job is refused without a reason.
pub fn job(data: &[u8]) {
    let Some((&fabric, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let read: Option<Job> = serde_json::from_str(text).ok().or_else(|| toml::from_str(text).ok());
    let Some(job) = read else { return };
    let fabrics = fabrics();
    let Some(fabric) = fabrics.get(usize::from(fabric) % fabrics.len()) else { return };
    let (demand, constraints) = match job.resolve(fabric) {
        Ok(resolved) => resolved,
        Err(why) => return assert!(!why.to_string().is_empty(), "refused without a reason"),
    };
    if demand.flows.len() > FLOWS {
        return;
    }
    let comparison = match compare(fabric, &demand, &constraints, 1) {
        Ok(comparison) => comparison,
        Err(why) => return assert!(!why.to_string().is_empty(), "refused without a reason"),
    };
    let (placed, bound) = (comparison.placed.busiest.value(), comparison.bound.value());
    assert!(placed >= bound * (1.0 - 1e-9), "the busiest link carries {placed}, and nothing is below {bound}");
    let report = Report {
        fabric,
        demand: &demand,
        constraints: &constraints,
        comparison: &comparison,
        sids: None,
        most_flows: usize::MAX,
    };
    let text = serde_json::to_string(&report).expect("a report can be written");
    let drawn = svg(&report);
    let most = most_text(data, 64) + 2048 * demand.flows.len();
    assert!(text.len() <= most && drawn.len() <= 4 * most, "{} and {} bytes", text.len(), drawn.len());
}

fn fabrics() -> &'static [Fabric] {
    static FABRICS: OnceLock<Vec<Fabric>> = OnceLock::new();
    FABRICS.get_or_init(|| {
        let example = serde_json::from_str(EXAMPLE).expect("the example is JSON");
        vec![
            Clos::two_tier(2, 2, 2).build(),
            Clos::three_tier(2, 2, 2, 2, 1).build(),
            Clos { rails: 2, ..Clos::two_tier(2, 2, 2) }.build(),
            Fabric::from_topology(&example).expect("the example is a topology"),
        ]
    })
}

/// Returns jobs of every kind, on every fabric.
pub fn seeds() -> Vec<Vec<u8>> {
    let jobs = [
        "{}",
        r#"{"pattern": "ring", "demand": 3, "seed": 9}"#,
        r#"{"pattern": "permutation", "detour": 2}"#,
        r#"{"pairs": [["host0000", "host0002"], ["hosts/host0001", "host0003", 4]]}"#,
        r#"{"pairs": [{"source": "host0000", "destination": "host0001", "demand": 1}], "pattern": "all-to-all"}"#,
        r#"{"tenants": [{"name": "a", "hosts": ["host0000", "host0002"], "spines": ["spine001"]},
            {"name": "b", "hosts": ["host0001", "host0003"], "planes": ["p"]}], "disjoint": [["a", "b"]]}"#,
        "pattern = \"ring\"\nhosts = [\"host0000\", \"host0001\"]\n",
        "demand = 9007199254740993\npairs = [[\"host0000\", \"host0001\", 18446744073709551615]]\n",
    ];
    let seed = |(fabric, job): (u8, &&str)| [&[fabric][..], job.as_bytes()].concat();
    (0..4).flat_map(|fabric| jobs.iter().map(move |job| (fabric, job))).map(seed).collect()
}
