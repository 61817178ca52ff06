//! Expected frames, and how they differ from frames that were sent.

use std::fmt;

use crate::build::{Built, Rule, ipv4_checksum};
use crate::decode::decode;

/// A frame that the node must send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// The frame as written in the case.
    pub text: Vec<String>,
    /// Port and bytes of every frame that is right; more than one if the case allows a choice.
    pub candidates: Vec<(String, Built)>,
}

impl Expect {
    /// Returns the ports through which the frame may leave.
    pub fn ports(&self) -> Vec<&str> {
        let mut ports: Vec<&str> = self.candidates.iter().map(|(port, _)| port.as_str()).collect();
        ports.dedup();
        ports
    }

    /// Compares a frame with every candidate for its port.
    ///
    /// # Errors
    /// [`Diff`] from the first candidate, if none is equal.
    pub fn matches(&self, port: &str, frame: &[u8]) -> Result<(), Diff> {
        let mut first = None;
        for (_, candidate) in self.candidates.iter().filter(|(name, _)| name == port) {
            match compare(candidate, frame) {
                Ok(()) => return Ok(()),
                Err(diff) => first = first.or(Some(diff)),
            }
        }
        Err(first.unwrap_or_else(|| {
            Diff::only(format!("expected on {}, came out of {port}", self.ports().join(" or ")), &[], frame)
        }))
    }
}

impl Built {
    /// Returns whether this frame is equal to the built one under its rules.
    pub fn matches(&self, frame: &[u8]) -> bool {
        compare(self, frame).is_ok()
    }
}

/// Difference between an expected and a sent frame, layer by layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diff(String);

impl Diff {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Makes a difference from a headline, the layers of a missing frame (`-`) and those of an unexpected frame (`+`).
    pub(crate) fn only(headline: impl fmt::Display, missing: &[u8], surplus: &[u8]) -> Self {
        let mut lines = vec![headline.to_string()];
        lines.extend(decode_some(missing).into_iter().map(|line| format!("  - {line}")));
        lines.extend(decode_some(surplus).into_iter().map(|line| format!("  + {line}")));
        Self(lines.join("\n"))
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Diff {}

fn decode_some(frame: &[u8]) -> Vec<String> {
    if frame.is_empty() { Vec::new() } else { decode(frame) }
}

fn compare(expected: &Built, frame: &[u8]) -> Result<(), Diff> {
    let mut wanted = expected.bytes.clone();
    let mut broken = Vec::new();
    for rule in &expected.rules {
        match rule {
            Rule::Ignore { at, mask } => copy_masked(&mut wanted, frame, *at, mask),
            Rule::FlowLabel { at } => {
                let label = frame.get(at + 1..at + 4).unwrap_or_default();
                if let [a, b, c] = label
                    && (a & 0xf, *b, *c) == (0, 0, 0)
                {
                    broken.push("the flow label is zero");
                }
            }
            Rule::Ipv4Checksum { at } => {
                let len = usize::from(frame.get(*at).map_or(0, |first| first & 0xf)) * 4;
                let header = frame.get(*at..at + len).unwrap_or_default();
                if header.get(10..12) != Some(ipv4_checksum(header).to_be_bytes().as_slice()) {
                    broken.push("the IPv4 header checksum is wrong");
                }
            }
        }
    }
    if wanted == frame && broken.is_empty() {
        return Ok(());
    }
    Err(describe(&wanted, frame, &broken))
}

fn copy_masked(wanted: &mut [u8], frame: &[u8], at: usize, mask: &[u8]) {
    let pairs = wanted.iter_mut().skip(at).zip(frame.iter().skip(at));
    for ((wanted, found), mask) in pairs.zip(mask) {
        *wanted = *wanted & !mask | *found & mask;
    }
}

fn describe(wanted: &[u8], frame: &[u8], broken: &[&str]) -> Diff {
    let mut lines = Vec::new();
    let differing = wanted.iter().zip(frame).position(|(a, b)| a != b);
    if let Some(at) = differing.or((wanted.len() != frame.len()).then(|| wanted.len().min(frame.len()))) {
        lines.push(format!(
            "first difference at byte {at} ({} behind Ethernet); expected {} bytes, got {}",
            at.saturating_sub(14),
            wanted.len(),
            frame.len()
        ));
    }
    lines.extend(broken.iter().map(ToString::to_string));
    lines.extend(layer_diff(&decode(wanted), &decode(frame)));
    Diff(lines.join("\n"))
}

/// Compares layers: equal ones at both ends appear once, the others as expected (`-`) and as sent (`+`).
fn layer_diff(wanted: &[String], found: &[String]) -> Vec<String> {
    let head = wanted.iter().zip(found).take_while(|(a, b)| a == b).count();
    let rest = wanted.len().min(found.len()) - head;
    let tail = wanted.iter().rev().zip(found.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let middle = |lines: &[String], mark: &str| -> Vec<String> {
        let inner = lines.iter().take(lines.len() - tail).skip(head);
        inner.map(|line| format!("  {mark} {line}")).collect()
    };
    let same =
        |lines: &mut dyn Iterator<Item = &String>| -> Vec<String> { lines.map(|line| format!("    {line}")).collect() };
    let mut all = same(&mut wanted.iter().take(head));
    all.extend(middle(wanted, "-"));
    all.extend(middle(found, "+"));
    all.extend(same(&mut wanted.iter().skip(wanted.len() - tail)));
    all
}
