//! Runs the commands that `docs/host.md` and `docs/switch.md` show.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test may panic")]

use std::path::Path;
use std::process::Command;

use srv6d_config as config;

const HOST: &str = include_str!("../../../docs/host.md");
const SWITCH: &str = include_str!("../../../docs/switch.md");

/// The namespaces have the names that the pages give them, where nobody else can see them.
const APART: &str = "mkdir -p /run/netns && mount -t tmpfs none /run/netns";

/// Blocks of code in a language, from a heading to the next one of its level.
fn blocks(page: &str, heading: &str, language: &str) -> Vec<String> {
    let section = page.split_once(&format!("\n## {heading}\n")).unwrap().1;
    let section = section.split("\n## ").next().unwrap();
    let after_fences = section.split("\n```").skip(1).step_by(2);
    after_fences.filter_map(|block| Some(block.strip_prefix(language)?.strip_prefix('\n')?.to_owned())).collect()
}

/// Runs the commands in namespaces of their own, in the top folder of the repository, and returns what they print.
fn pasted(commands: &str) -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_srv6d")).parent().unwrap();
    let output = Command::new("timeout")
        .args(["120", "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c"])
        .arg(format!("{APART} || exit\n{commands}\n[ -z \"$(ip netns list)\" ]"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()))
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).join("\n");
    assert!(output.status.success(), "{said}");
    said
}

fn has_tcpdump() -> bool {
    Command::new("tcpdump").arg("--version").output().is_ok()
}

#[test]
#[ignore = "needs root"]
fn the_tutorial_of_a_host_prints_what_the_page_says() {
    let mut blocks = blocks(HOST, "A tutorial", "sh");
    assert_eq!(blocks.remove(0), "export PATH=$PWD/target/release:$PATH");
    assert!(blocks.len() >= 7, "{blocks:#?}");
    if !has_tcpdump() {
        println!("SKIPPED: the blocks with tcpdump, which is not installed");
        blocks.retain(|block| !block.contains("tcpdump"));
    }
    let said = pasted(&blocks.join("\n"));
    for expected in
        ["3 packets transmitted, 3 received", "rx 6 = tx 3 + kernel 3 + reply 0 + drop 0 + held 0 + queued 0: balanced"]
    {
        assert!(HOST.contains(expected) && said.contains(expected), "{expected}: {said}");
    }
    let (from, to) = ("2001:db8:0:1::1 > fcbb:0:b:fe06::", "2001:db8:0:1::2 > fcbb:0:a:fe06::");
    assert!(!has_tcpdump() || said.contains(from) && said.contains(to), "{said}");
}

#[test]
#[ignore = "needs root"]
fn the_switches_of_the_page_forward_and_count() {
    let blocks = blocks(SWITCH, "A SONiC leaf", "sh");
    assert_eq!(blocks.len(), 2, "{blocks:#?}");
    let said = pasted(&blocks.join("\n"));
    for expected in ["3 packets transmitted, 3 received", "fcbb:0:1000::/48          3      366"] {
        assert!(SWITCH.contains(expected) && said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn configurations_of_the_pages_are_right() {
    let of_host = blocks(HOST, "Where paths come from", "toml");
    let of_leaf = blocks(SWITCH, "One leaf", "toml");
    assert_eq!((of_host.len(), of_leaf.len()), (3, 1));
    for text in of_host.iter().chain(&of_leaf) {
        config::parse(text, "example").unwrap_or_else(|errors| panic!("{text}\n{errors}"));
    }
}
