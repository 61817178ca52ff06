//! Tests of the pack: bytes that are known in advance, wildcards, messages, and the round trip of every frame.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::path::PathBuf;

use crate::build::{Built, build};
use crate::case::Pack;
use crate::expect::Expect;
use crate::{decode, load};

fn pack() -> Pack {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../conformance");
    load(&directory).unwrap_or_else(|why| panic!("{why}"))
}

fn frame(text: &[&str]) -> Built {
    let text: Vec<String> = text.iter().map(ToString::to_string).collect();
    build(&text, None).unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    crate::notation::hex(&hex.replace([' ', '\n'], "")).unwrap()
}

const T: &str = "2001 0db8 cafe 0000 0000 0000 0000 0001";
const PAYLOAD: &str = "4141 4141 4141 4141 4141 4141 4141 4141 4141 4141";

#[test]
fn g1_ipv6_in_ipv6() {
    let golden = format!(
        "6620 0000 0044 2940 {T} fcbb bbbb 0002 0003 0000 0000 0000 0000
         6620 0777 001c 113f 2000 0000 0000 0000 0000 0000 0000 0001 4000 0000 0000 0000 0000 0000 0000 0009
         c350 12b7 001c 3d18 {PAYLOAD}"
    );
    let built = frame(&[
        "ip6 2001:db8:cafe::1 > fcbb:bbbb:2:3:: tc 0x62",
        "ip6 2000::1 > 4000::9 tc 0x62 fl 0x777 hl 63",
        "udp 50000 > 4791",
        "bytes 20 x 0x41",
    ]);
    assert_eq!(built.bytes, bytes(&golden));
}

#[test]
fn g2_ipv4_in_ipv6() {
    let golden = format!(
        "6b90 0000 0030 0440 {T} fcbb bbbb 0002 0003 0000 0000 0000 0000
         45b9 0030 0001 0000 3f11 4afe 0101 0101 2c02 0202 c350 12b7 001c 0000 {PAYLOAD}"
    );
    let built = frame(&[
        "ip6 2001:db8:cafe::1 > fcbb:bbbb:2:3:: tc 0xb9",
        "ip4 1.1.1.1 > 44.2.2.2 tos 0xb9 id 1 ttl 63",
        "udp 50000 > 4791 csum 0",
        "bytes 20 x 0x41",
    ]);
    assert_eq!(built.bytes, bytes(&golden));
    let received = frame(&["ip4 1.1.1.1 > 44.2.2.2 tos 0xb9 id 1", "udp 50000 > 4791 csum 0", "bytes 20 x 0x41"]);
    assert_eq!(received.bytes[10..12], [0x49, 0xfe]);
}

#[test]
fn g3_reduced_srh() {
    let golden = format!(
        "6000 0000 006c 2b40 {T} fcbb bbbb 0002 0003 0000 0000 0000 0000
         2904 0402 0100 0000 fcbb bbbb 0006 0000 0000 0000 0000 0000 fcbb bbbb 0004 0005 0000 0000 0000 0000
         6000 0000 001c 113f"
    );
    let built = frame(&[
        "ip6 2001:db8:cafe::1 > fcbb:bbbb:2:3::",
        "srh sl 2 seg fcbb:bbbb:6::,fcbb:bbbb:4:5::",
        "ip6 2000::1 > 4002::9 hl 63",
        "udp 50000 > 4791",
        "bytes 20 x 0x41",
    ]);
    let golden = bytes(&golden);
    assert_eq!(built.bytes[..golden.len()], golden);
    assert_eq!(built.bytes.len(), 40 + 40 + 68);
}

#[test]
fn g4_shift() {
    let inner = ["ip6 2000::1 > 4000::9 tc 0x62 fl 0x777", "udp 50000 > 4791", "bytes 20 x 0x41"];
    let before = frame(&[&["ip6 2001:db8:cafe::1 > fcbb:bbbb:1:2:3:: tc 0xb9 fl 0x12345"], inner.as_slice()].concat());
    let after = build(
        &["ip6 2001:db8:cafe::1 > fcbb:bbbb:2:3:: tc 0xb9 fl 0x12345 hl 63".to_owned(), "rest 2".to_owned()],
        Some(&before),
    )
    .unwrap();
    assert_eq!(before.bytes[..8], bytes("6b91 2345 0044 2940"));
    assert_eq!(after.bytes[..8], bytes("6b91 2345 0044 293f"));
    assert_eq!(after.bytes[24..40], bytes("fcbb bbbb 0002 0003 0000 0000 0000 0000"));
    assert_eq!(after.bytes[40..], before.bytes[40..]);
}

#[test]
fn every_frame_decodes_to_what_builds_it() {
    for case in pack().cases {
        for step in &case.steps {
            let out = step.outputs.iter().flat_map(|out| &out.candidates).map(|(_, built)| built);
            for built in step.inputs.iter().map(|input| &input.built).chain(out) {
                let text = decode(&built.bytes);
                let again = build(&text, None).unwrap_or_else(|why| panic!("{}: {why}", case.id));
                assert_eq!(again.bytes, built.bytes, "{}: {text:#?}", case.id);
            }
        }
    }
}

/// Returns the text of a case with one frame in and one frame out of port p1.
fn one_case_text(input: &str, output: &str, counters: &str) -> String {
    format!(
        r#"
        [setup.s]
        summary = "one port"
        config = "[node]"
        port = [{{ name = "p1", mac = "02:00:00:00:01:01", peer = "02:00:00:00:01:02" }}]
        [[case]]
        id = "C1"
        row = "C1"
        title = "t"
        clause = "c"
        priority = 0
        setup = "s"
        linux = "agree"
        counters = {counters}
        in = [{{ port = "p1", frame = {input} }}]
        out = [{{ port = "p1", frame = {output} }}]
        "#
    )
}

fn one_case(input: &str, output: &str, counters: &str) -> Result<Pack, String> {
    let text = one_case_text(input, output, counters);
    crate::load::parse(&[("area.toml".to_owned(), text)], &crate::linux::Record::default())
        .map_err(|why| why.to_string())
}

const IN: &str = r#"["ip6 2001:db8::1 > 2001:db8::2", "udp 1 > 2", "bytes 8 x 1"]"#;
const ONE: &str = "{ rx = 1, tx = 1 }";

fn expect(output: &str) -> Expect {
    one_case(IN, output, ONE).unwrap().cases[0].steps[0].outputs[0].clone()
}

fn received(text: &[&str]) -> Vec<u8> {
    frame(&[&["eth 02:00:00:00:01:01 > 02:00:00:00:01:02"], text].concat()).bytes
}

#[test]
fn a_flow_label_may_be_any_but_not_zero() {
    let any = expect(r#"["ip6 2001:db8::1 > 2001:db8::2 fl any", "rest 2"]"#);
    let hash = expect(r#"["ip6 2001:db8::1 > 2001:db8::2 fl hash", "rest 2"]"#);
    let with =
        |label: &str| received(&[&format!("ip6 2001:db8::1 > 2001:db8::2 fl {label}"), "udp 1 > 2", "bytes 8 x 1"]);
    assert_eq!(any.matches("p1", &with("0")), Ok(()));
    assert_eq!(hash.matches("p1", &with("0xf0000")), Ok(()));
    assert!(hash.matches("p1", &with("0")).unwrap_err().to_string().contains("flow label is zero"));
    let class = received(&["ip6 2001:db8::1 > 2001:db8::2 fl 5 tc 1", "udp 1 > 2", "bytes 8 x 1"]);
    assert!(any.matches("p1", &class).is_err());
}

#[test]
fn one_of_several_sources() {
    let output = expect(r#"["ip6 2001:db8::7|2001:db8::8 > 2001:db8::1 fl any", "icmp6 time-exceeded", "quote"]"#);
    assert_eq!(output.candidates.len(), 2);
    for (_, built) in &output.candidates {
        assert_eq!(output.matches("p1", &built.bytes), Ok(()));
    }
    let mut wrong = output.candidates[0].1.bytes.clone();
    wrong[14 + 23] = 9;
    assert!(output.matches("p1", &wrong).is_err());
}

#[test]
fn a_masked_ipv4_header_still_needs_its_checksum() {
    let input = r#"["ip4 192.0.2.1 > 192.0.2.2", "udp 1 > 2", "bytes 40 x 1"]"#;
    let pack = one_case(input, r#"["ip4 192.0.2.1 > 192.0.2.2 id any", "rest 2"]"#, ONE).unwrap();
    let output = &pack.cases[0].steps[0].outputs[0];
    let right = received(&["ip4 192.0.2.1 > 192.0.2.2 id 99", "udp 1 > 2", "bytes 40 x 1"]);
    let wrong = received(&["ip4 192.0.2.1 > 192.0.2.2 id 99 csum 1", "udp 1 > 2", "bytes 40 x 1"]);
    assert_eq!(output.matches("p1", &right), Ok(()));
    assert!(output.matches("p1", &wrong).unwrap_err().to_string().contains("checksum"));
}

#[test]
fn a_quote_fits_into_1280_bytes() {
    let input = r#"["ip6 2001:db8::1 > 2001:db8::2", "udp 1 > 2", "bytes 1400 x 1"]"#;
    let pack =
        one_case(input, r#"["ip6 2001:db8::2 > 2001:db8::1", "icmp6 packet-too-big mtu 1400", "quote"]"#, ONE).unwrap();
    let built = &pack.cases[0].steps[0].outputs[0].candidates[0].1;
    assert_eq!(built.bytes.len(), 14 + 1280);
    assert_eq!(built.bytes[14 + 48..], pack.cases[0].steps[0].inputs[0].built.bytes[14..14 + 1232]);
}

#[test]
fn a_difference_is_shown_layer_by_layer() {
    let output = expect(r#"["ip6 2001:db8::1 > 2001:db8::2 hl 63", "rest 2"]"#);
    let got = received(&["ip6 2001:db8::1 > 2001:db8::2 hl 64", "udp 1 > 2", "bytes 8 x 1"]);
    let shown = output.matches("p1", &got).unwrap_err().to_string();
    assert!(shown.contains("- ip6 2001:db8::1 > 2001:db8::2 hl 63"), "{shown}");
    assert!(shown.contains("+ ip6 2001:db8::1 > 2001:db8::2 hl 64"), "{shown}");
    assert!(shown.contains("    udp 1 > 2"), "{shown}");
    assert!(output.matches("p2", &got).unwrap_err().to_string().contains("came out of p2"));
}

#[test]
fn missing_and_surplus_frames_are_named() {
    let pack = one_case(IN, IN, ONE).unwrap();
    let step = &pack.cases[0].steps[0];
    let frame = step.outputs[0].candidates[0].1.bytes.clone();
    assert!(step.check(&[]).unwrap_err().to_string().starts_with("missing on p1"));
    let twice = [("p1".to_owned(), frame.clone()), ("p1".to_owned(), frame)];
    assert!(step.check(&twice).unwrap_err().to_string().starts_with("unexpected frame on p1"));
    assert_eq!(step.check(&twice[..1]), Ok(()));
}

#[test]
fn mistakes_name_file_case_and_field() {
    let message = |input, output, counters| one_case(input, output, counters).unwrap_err();
    let wrong_layer = message(r#"["ipv6 ::1 > ::2"]"#, IN, ONE);
    assert_eq!(wrong_layer, r#"area.toml: case C1: in 1: "ipv6 ::1 > ::2": "ipv6" is not a layer"#);
    let leftover = message(r#"["ip6 ::1 > ::2 ttl 3"]"#, IN, ONE);
    assert!(leftover.contains(r#""ttl" is not known here"#), "{leftover}");
    assert!(message(IN, r#"["rest 9"]"#, ONE).contains("out 1: the input frame has no layer 9"));
    let unbalanced = message(IN, IN, "{ rx = 1, tx = 1, drop.malformed = 1 }");
    assert!(unbalanced.contains("case C1: counters: 1 frames arrive"), "{unbalanced}");
    assert!(message(IN, IN, "{ rx = 1, tx = 1, lost = 0 }").contains("lost is not a counter"));
    assert!(message(r#"["ip6 ::1 > ::2 fl any"]"#, IN, ONE).contains("frames that come out"));
}

#[test]
fn counters_are_compared_both_ways() {
    let pack = one_case(IN, IN, "{ rx = 1, tx = 1, sid.\"fcbb:bbbb:1::/48\" = 1 }").unwrap();
    let found = |pairs: &[(&str, u64)]| pairs.iter().map(|&(name, count)| (name.to_owned(), count)).collect();
    let sid = ("sid.fcbb:bbbb:1::/48", 1);
    assert_eq!(pack.cases[0].check_counters(&found(&[("rx", 1), ("tx", 1), sid, ("drop.vlan", 0)])), Ok(()));
    let diff = pack.cases[0].check_counters(&found(&[("rx", 1), ("tx", 1), ("drop.vlan", 2)])).unwrap_err().to_string();
    assert!(
        diff.contains("drop.vlan: expected 0, got 2") && diff.contains("sid.fcbb:bbbb:1::/48: expected 1, got 0"),
        "{diff}"
    );
}

#[test]
fn a_configuration_is_laid_over_the_setup() {
    let pack = pack();
    let case = pack.case("U03b").unwrap();
    let table: toml::Table = case.setup.config.parse().unwrap();
    let base: toml::Table = pack.case("U01").unwrap().setup.config.parse().unwrap();
    assert_eq!(table["route"].as_array().unwrap().len(), base["route"].as_array().unwrap().len() + 1);
    assert_eq!(table["sid"], base["sid"]);
}

#[test]
fn the_page_explains_every_row_with_its_priority() {
    let page =
        std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../conformance/README.md")).unwrap();
    for case in pack().cases {
        let explained = page.lines().find(|line| line.starts_with(&format!("| {} |", case.row)));
        let explained = explained.unwrap_or_else(|| panic!("{}: row {} is not in README.md", case.id, case.row));
        let priority = explained.split(" | ").nth(3).unwrap();
        assert_eq!(priority, case.priority.to_string(), "{}: priority", case.id);
    }
}

#[test]
fn what_linux_does_is_listed_for_the_cases_that_say_so() {
    let check = |linux: &str, record: &str| -> Result<(), String> {
        let record = crate::linux::Record::parse(record)?;
        let text = one_case_text(IN, r#"["rest 1"]"#, ONE).replace("\"agree\"", &format!("\"{linux}\""));
        let pack = crate::load::parse(&[("area.toml".to_owned(), text)], &record).map_err(|why| why.to_string())?;
        record.check_against(&pack)
    };
    let listed = "[[linux]]\ncase = \"C1\"\nout = []\n[why]\nslow = \"It is.\"";
    let skipped = "[[not_compared]]\nwhy = \"It needs more.\"\ncases = [\"C1\"]";
    assert_eq!(check("agree", ""), Ok(()));
    assert_eq!(check("slow", listed), Ok(()));
    assert_eq!(check("none", skipped), Ok(()));
    for (linux, record, part) in [
        ("agree", listed, "C1 is no case that names a divergence"),
        ("agree", skipped, "C1 is no case that says linux"),
        ("agree", "[why]\nslow = \"It is.\"", "no case names the divergence slow"),
        ("none", "", "says why"),
        ("slow", "", "no sentence"),
        ("slow", "[why]\nslow = \"It is.\"", "no [[linux]]"),
    ] {
        let why = check(linux, record).unwrap_err();
        assert!(why.contains(part), "{linux}, {record}: {why}");
    }
}
