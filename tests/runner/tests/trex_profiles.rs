//! Runs the packets of `trex-profiles/`, made by TRex's own client library, through the real worker step. Each packet
//! must become what `trex-profiles/tests/expect.py` says, or be counted as it says.
//!
//! Without Python 3.10 or 3.11, or without the client from PyPI, these tests are ignored, and the reason is printed.
#![allow(clippy::unwrap_used, clippy::panic)] // a failed test may panic

#[path = "trex/client.rs"]
mod client;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize;
use srv6d_plan::{Device, Environment};
use srv6d_report::Document;
use srv6d_runner::{Node, desired};
use srv6d_srv6::desired::{Desired, Mac};

use client::Client;

/// One stream of one profile.
#[derive(Deserialize)]
struct Stream {
    name: String,
    /// Number of routes of `dut/many` that the packets need.
    prefixes: u32,
    direction: u8,
    port: String,
    frames: Vec<Expectation>,
}

#[derive(Deserialize)]
struct Expectation {
    #[serde(rename = "in")]
    input: String,
    /// Port through which the packet leaves, if it does.
    port: Option<String>,
    frame: Option<String>,
    /// Whether the flow label of the outer header is chosen by the node.
    #[serde(default)]
    hash: bool,
    /// Counter of a packet that does not leave.
    counter: Option<String>,
    /// Whether the packet may be answered, as long as the rate limit permits.
    #[serde(default)]
    answered: bool,
}

fn main() {
    let arguments = Arguments::from_args();
    let trials = match client::Client::find() {
        // With `--ignored` only root tests are to run, and these are not among them.
        _ if arguments.ignored => Vec::new(),
        Err(client::Unavailable(why)) => {
            println!("SKIPPED: the TRex profiles are not checked: {why}");
            vec![Trial::test("profiles", || Ok(())).with_ignored_flag(true)]
        }
        Ok(client) => trials(&client),
    };
    libtest_mimic::run(&arguments, trials).exit();
}

/// Returns the driver's own tests, and one trial for each stream of each profile.
fn trials(client: &Client) -> Vec<Trial> {
    let programs = ["test_configurations.py", "test_search.py", "test_latency.py", "test_ndr.py", "test_recorded.py"];
    let mut trials: Vec<Trial> = programs.map(|program| program_trial(client, program)).into();
    trials.push(report_trial(client));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("trex-packets-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    match client.export(&folder) {
        Ok(files) => trials.extend(files.iter().flat_map(|file| streams_of(file))),
        Err(report) => trials.push(Trial::test("validate.py", move || Err(Failed::from(report)))),
    }
    std::fs::remove_dir_all(&folder).unwrap();
    trials
}

fn program_trial(client: &Client, program: &'static str) -> Trial {
    let client = client.clone();
    Trial::test(program, move || Ok(client.run(program, &[])?))
}

/// Checks that the driver's report can be shown in the form of the throughput bench.
fn report_trial(client: &Client) -> Trial {
    let client = client.clone();
    Trial::test("report", move || {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ndr-{}.json", std::process::id()));
        client.run("test_ndr.py", &["--report".as_ref(), path.as_ref()])?;
        let document: Document = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (markdown, page) = (document.markdown(), document.html());
        for text in ["| 256 | 256 |", "| 512 | 512 |", "pps", "| 256 | 10 % |", "| 256, NDR |"] {
            assert!(markdown.contains(text), "no {text} in\n{markdown}");
        }
        assert_eq!(page.matches("<svg").count(), 3, "rates, and latency of two sizes\n{page}");
        for text in ["Rate by frame size (kpps)", "bytes with FCS", "frames of 512 bytes (us)", "90 % of NDR, group 1"]
        {
            assert!(page.contains(text), "no {text} in\n{page}");
        }
        Ok(())
    })
}

fn streams_of(file: &Path) -> Vec<Trial> {
    let streams: Vec<Stream> = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    streams.into_iter().map(|stream| Trial::test(stream.name.clone(), move || Ok(run(&stream)?))).collect()
}

fn run(stream: &Stream) -> Result<(), String> {
    let mut node = Node::new(&device_under_test(stream)?)?;
    let mut expected = BTreeMap::from([("rx".to_owned(), stream.frames.len() as u64)]);
    for expectation in &stream.frames {
        node.receive(&stream.port, &bytes(&expectation.input))?;
        let sent = node.run(0);
        match (&expectation.port, &expectation.counter) {
            (Some(port), None) => {
                leaves(expectation, port, &sent)?;
                *expected.entry("tx".to_owned()).or_default() += 1;
            }
            (None, Some(counter)) => {
                if sent.iter().any(|(port, _)| *port != stream.port) {
                    return Err(format!("a packet that is {counter} left at the far port"));
                }
                let answered = expectation.answered && !sent.is_empty();
                let counter = format!("{}.{counter}", if answered { "reply" } else { "drop" });
                *expected.entry(counter).or_default() += 1;
            }
            _ => return Err("an expectation names a port or a counter".to_owned()),
        }
    }
    let mut counters = node.counters()?;
    counters.retain(|name, value| *value > 0 && !name.starts_with("sid.") && !name.starts_with("path."));
    if counters == expected { Ok(()) } else { Err(format!("counted {counters:?} instead of {expected:?}")) }
}

fn leaves(expectation: &Expectation, port: &str, sent: &[(String, Vec<u8>)]) -> Result<(), String> {
    let [(left, frame)] = sent else { return Err(format!("{} packets left instead of one", sent.len())) };
    if left != port {
        return Err(format!("it left at {left} instead of {port}"));
    }
    let mut frame = frame.clone();
    let mut expected = bytes(expectation.frame.as_deref().unwrap_or_default());
    // Ethernet addresses come from the configuration, which the conformance pack tests.
    for frame in [&mut frame, &mut expected] {
        frame.drain(..12);
    }
    if expectation.hash {
        let label = without_label(&mut frame);
        without_label(&mut expected);
        if label == 0 {
            return Err("the outer flow label is zero".to_owned());
        }
    }
    if frame == expected {
        return Ok(());
    }
    Err(format!("from the Ethernet type on it is\n{}\ninstead of\n{}", hex(&frame), hex(&expected)))
}

/// Removes the flow label from the IPv6 header behind the Ethernet type, and returns it.
fn without_label(frame: &mut [u8]) -> u32 {
    let Some([high, middle, low]) = frame.get_mut(3..6) else { return 0 };
    let label = u32::from_be_bytes([0, *high & 0x0f, *middle, *low]);
    (*high, *middle, *low) = (*high & 0xf0, 0, 0);
    label
}

fn device_under_test(stream: &Stream) -> Result<Desired, String> {
    let text = if stream.prefixes > 0 {
        client::many(stream.prefixes, stream.direction == 1)
    } else {
        std::fs::read_to_string(client::profiles().join("dut/srv6d.toml")).unwrap()
    };
    let device = |(ifindex, name): (u32, &str)| Device {
        name: name.to_owned(),
        ifindex,
        mac: Mac([2, 0, 0, 0, 0xdd, u8::from(name == "eth2")]),
        mtu: 9500,
        up: true,
        addresses: Vec::new(),
    };
    let environment =
        Environment { devices: [(2, "eth1"), (3, "eth2")].map(device).to_vec(), ..Environment::default() };
    desired(&text, &environment)
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}
