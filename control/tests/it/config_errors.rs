//! Tests of all errors in a configuration: the message names the line, the key, and the fix.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use srv6d_config::{self as config, Errors};
use srv6d_plan::{self as plan, Device, Environment};
use srv6d_srv6::desired::Mac;

/// A valid node with two ports. Cases add text to it, or are complete by themselves.
const BASE: &str = r#"
[node]
source = "2001:db8::1"
[[block]]
prefix = "fcbb::/32"
[[port]]
name = "eth1"
[[port]]
name = "eth2"
"#;

fn environment() -> Environment {
    let device = |(ifindex, name, mtu, addresses): (u32, &str, u32, &[&str])| Device {
        name: name.to_owned(),
        ifindex,
        mac: Mac([2, 0, 0, 0, 0, u8::try_from(ifindex).unwrap()]),
        mtu,
        up: true,
        addresses: addresses.iter().map(|net| net.parse().unwrap()).collect(),
    };
    Environment {
        devices: vec![
            device((1, "lo", 65_536, &["::1/128", "2001:db8::1/128"])),
            device((2, "eth1", 1500, &["fe80::1/64", "2001:db8:1::1/64", "192.0.2.1/24"])),
            device((3, "eth2", 1300, &["fe80::1/64", "2001:db8:2::1/64"])),
        ],
        cores: vec![0, 1],
        ..Environment::default()
    }
}

fn errors(text: &str) -> Errors {
    let planned = config::parse(text, "srv6d.toml").and_then(|config| plan::plan(&config, &environment()));
    match planned {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(errors) => errors,
    }
}

/// Checks that `added` is refused. Its lines count from 1, because the base follows it.
fn assert_refused(added: &str, line: usize, parts: &[&str]) {
    let text = format!("{added}\n{BASE}");
    let errors = errors(&text);
    let shown = errors.to_string();
    let at = format!("error: srv6d.toml:{line}:");
    let fits = errors.0.iter().any(|error| {
        let one = error.to_string();
        !error.fix.is_empty() && one.starts_with(&at) && parts.iter().all(|part| one.contains(part))
    });
    assert!(fits, "no error in line {line} says {parts:?}; the errors are:\n{shown}");
}

/// Like [`assert_refused`], but for texts with their own node and ports.
fn assert_alone(text: &str, line: usize, parts: &[&str]) {
    let shown = errors(text).to_string();
    let at = format!("srv6d.toml:{line}:");
    assert!(shown.contains(&at) && parts.iter().all(|part| shown.contains(part)), "wanted {at} {parts:?}:\n{shown}");
}

#[test]
fn text_that_is_not_toml() {
    assert_alone("[node\nname = \"a\"", 1, &["fix: write it as TOML"]);
    assert_alone("[node]\nname = \nsource = 1", 2, &["fix: write it as TOML"]);
    assert_alone("[node]\nname = \"a\"\nname = \"b\"", 3, &["duplicate key", "fix: keep one of the lines"]);
    assert_alone("[node]\nname = \"a\"\n[node]\nsource = \"::1\"", 3, &["duplicate key", "fix: keep one of the lines"]);
}

#[test]
fn unknown_keys_and_tables_name_the_nearest_one() {
    assert_refused(
        "[[sid]]\nsid = \"fcbb:0:1::/48\"\nbehaviour = \"uN\"",
        3,
        &["[[sid]] behaviour", "did you mean `behavior`?"],
    );
    assert_refused("[[sids]]\nsid = \"fcbb:0:1::/48\"", 1, &["unknown key", "did you mean `sid`?"]);
    assert_refused("[workers]\npoling = \"busy\"", 2, &["[workers] poling", "did you mean `polling`?"]);
    assert_refused(
        "[workers]\nzzz = 1",
        2,
        &["unknown key", "remove it, or use one of: cores, polling, busy_budget, frames, ring"],
    );
    let steer = "[[steer]]\nprefix = \"2001:db8:9::/64\"\npaths = [{ segmets = [\"fcbb:0:2::\"] }]";
    assert_refused(steer, 3, &["paths segmets", "did you mean `segments`?"]);
}

#[test]
fn a_misspelt_key_is_one_mistake() {
    let text = format!("[[sid]]\nsid = \"fcbb:0:1::/48\"\nbehaviour = \"uN\"\n{BASE}");
    assert_eq!(errors(&text).0.len(), 1);
}

#[test]
fn values_of_the_wrong_type() {
    assert_refused("[workers]\npolling = 3", 2, &["[workers] polling", "is a number", "\"adaptive\" or \"busy\""]);
    assert_refused("[workers]\nbusy_budget = 65536", 2, &["[workers] busy_budget", "from 0 to 65535"]);
    assert_refused("[workers]\nframes = \"many\"", 2, &["[workers] frames", "is a string", "from 64 to 1048576"]);
    assert_refused("[workers]\ncores = 1", 2, &["[workers] cores", "not a list", "e.g. [1, 2]"]);
    assert_refused("[workers]\ncores = [\"a\"]", 2, &["[workers] cores", "e.g. [1, 2]"]);
    assert_refused("[host]\nsteer_local = \"yes\"", 2, &["[host] steer_local", "true or false, without quotes"]);
    assert_refused("[[route]]\nprefix = 5", 2, &["[[route]] prefix", "is a number", "e.g. \"2001:db8:1::/64\""]);
    assert_refused("[sid]\nsid = \"fcbb:0:1::/48\"", 1, &["is a table, not a list", "write [[sid]]"]);
    assert_refused("[[api]]\nsocket = \"/run/x\"", 1, &["is a list, not a table", "write it once, as [api]"]);
}

#[test]
fn missing_keys() {
    assert_refused("[[sid]]\nsid = \"fcbb:0:1::/48\"", 1, &["`behavior` is missing", "one of \"uN\""]);
    assert_refused("[[neighbor]]\naddress = \"fe80::2\"\nport = \"eth1\"", 1, &["`mac` is missing", "02:00:00"]);
    assert_refused("[[block]]", 1, &["`prefix` is missing"]);
}

#[test]
fn words_that_are_not_known() {
    let sid = "[[sid]]\nsid = \"fcbb:0:1::/48\"\nbehavior = \"uDT7\"";
    assert_refused(sid, 3, &["[[sid]] behavior: \"uDT7\" is not known; known: uN, uA,", "fix: write \"uDT4\""]);
    assert_refused("[[port]]\nname = \"x\"\nrole = \"kernel\"", 3, &["[[port]] role", "known: fabric, edge, host"]);
}

#[test]
fn numbers_out_of_range() {
    for (text, range) in [
        ("[[port]]\nname = \"x\"\nvlan = 0", "from 1 to 4094"),
        ("[[port]]\nname = \"x\"\nvlan = 4095", "from 1 to 4094"),
        ("[[port]]\nname = \"x\"\ntable = 0", "from 1 to 4294967295"),
        ("[workers]\n\nframes = 1", "from 64 to 1048576"),
        ("[workers]\n\nframes = 9999999", "from 64 to 1048576"),
    ] {
        assert_refused(text, 3, &[range]);
    }
    assert_alone("[node]\nhop_limit = 0", 2, &["[node] hop_limit", "0 is out of range", "from 1 to 255"]);
    assert_alone("[node]\nhop_limit = 256", 2, &["256 is out of range"]);
    assert_alone("[node]\nicmp_rate = -1", 2, &["-1 is out of range"]);
    assert_alone("[node]\ndscp = 64", 2, &["[node] dscp", "a DSCP from 0 to 63"]);
    let weight =
        "[[route]]\nprefix = \"2001:db8:9::/64\"\nnexthops = [{ via = \"fe80::2\", port = \"eth1\", weight = 0 }]";
    assert_refused(weight, 3, &["nexthops weight", "from 1 to 65535"]);
}

#[test]
fn rings_and_frames_that_do_not_fit() {
    assert_refused("[workers]\nring = 1000", 2, &["1000 is not a power of two", "write 512 or 1024"]);
    assert_refused("[workers]\nframes = 2048", 2, &["2048 frames cannot fill", "frames = 4096 or more"]);
}

#[test]
fn cores_that_are_not_there_or_twice() {
    assert_refused("[workers]\ncores = [1, 1]", 2, &["core 1 is listed twice"]);
    assert_refused("[workers]\ncores = [9]", 2, &["core 9 does not exist here", "use some of 0, 1"]);
}

#[test]
fn prefixes_with_host_bits_get_the_masked_one_suggested() {
    assert_refused("[[route]]\nprefix = \"2001:db8:9::7/64\"", 2, &["bits set behind", "write \"2001:db8:9::/64\""]);
    assert_refused("[[sid]]\nsid = \"fcbb:0:1:2::/48\"\nbehavior = \"uN\"", 2, &["[[sid]] sid", "\"fcbb:0:1::/48\""]);
    assert_refused("[[route]]\nprefix = \"192.0.2.9\"", 2, &["is not a prefix", "\"192.0.2.9/32\""]);
    assert_refused("[[block]]\nprefix = \"192.0.2.0/24\"", 2, &["is not an IPv6 prefix"]);
}

#[test]
fn a_prefix_without_a_length_gets_the_one_its_bits_need() {
    assert_refused("[[sid]]\nsid = \"fcbb:0:1004::\"\nbehavior = \"uN\"", 2, &["\"fcbb:0:1004::/48\""]);
    assert_refused("[[sid]]\nsid = \"fcbb:0:1004:fe06::\"\nbehavior = \"uDT6\"", 2, &["\"fcbb:0:1004:fe06::/64\""]);
    assert_refused("[[route]]\nprefix = \"10.0.0.0\"", 2, &["\"10.0.0.0/8\""]);
    assert_refused("[[route]]\nprefix = \"::\"", 2, &["\"::/0\""]);
}

#[test]
fn e15_sources_that_are_no_unicast_address() {
    for (source, kind) in
        [("ff02::1", "multicast"), ("::", "unspecified"), ("::1", "loopback"), ("fe80::1", "link-local")]
    {
        assert_alone(&format!("[node]\nsource = {source:?}"), 2, &["[node] source", kind, "global unicast"]);
        let port = format!("[[port]]\nname = \"eth3\"\nsource = {source:?}");
        assert_refused(&port, 3, &["[[port]] source", kind]);
        let steer =
            format!("[[steer]]\nprefix = \"2001:db8:9::/64\"\nsource = {source:?}\nsegments = [\"fcbb:0:2::\"]");
        assert_refused(&steer, 3, &["[[steer]] source", kind]);
    }
}

#[test]
fn e23_a_list_that_starts_with_an_own_sid() {
    let own = "[[sid]]\nsid = \"fcbb:0:1::/48\"\nbehavior = \"uN\"\n";
    let steer = "[[steer]]\nprefix = \"2001:db8:9::/64\"\nsegments = [\"fcbb:0:1:2::\"]\n";
    let parts = ["own SID fcbb:0:1::/48 (line 2)", "begin with the next node's SID"];
    assert_refused(&format!("{own}{steer}"), 6, &parts);
    assert_refused(&format!("{own}{steer}via = \"fe80::2\"\nport = \"eth1\""), 6, &parts);
}

#[test]
fn e23_a_prefix_that_covers_its_own_first_hop() {
    let all = "[[steer]]\nprefix = \"::/0\"\nsegments = [\"fcbb:0:2:3::\"]\n";
    assert_refused(
        all,
        3,
        &["steered prefix ::/0 covers the path's own first segment fcbb:0:2:3::", "`via` and `port`"],
    );
    let other =
        "[[steer]]\nprefix = \"fcbb:0:2::/48\"\nsegments = [\"fcbb:0:7::\"]\nvia = \"fe80::2\"\nport = \"eth1\"\n";
    let into_other = format!("{other}[[steer]]\nprefix = \"2001:db8:9::/64\"\nsegments = [\"fcbb:0:2:3::\"]");
    assert_refused(&into_other, 8, &["steered prefix fcbb:0:2::/48"]);
    let next_hop = "[[steer]]\nprefix = \"2001:db8:1::/64\"\nsegments = [\"fcbb:0:2:3::\"]\n\
        [[route]]\nprefix = \"fcbb:0:2::/48\"\nvia = \"2001:db8:1::2\"\nport = \"eth1\"";
    assert_refused(next_hop, 3, &["covers the path's own next hop 2001:db8:1::2"]);
}

#[test]
fn e29_a_usid_0_inside_a_carrier() {
    let steer =
        |segment: &str| format!("[[steer]]\nprefix = \"2001:db8:9::/64\"\nsegments = [\"fcbb:0:2::\", {segment:?}]");
    assert_refused(&steer("fcbb:0:1:0:2::"), 3, &["[[steer]] segments", "uSID 0 at position 2", "leave the 0 out"]);
    assert_refused(&steer("fcbb::"), 3, &["carries no uSID"]);
    assert_refused(&steer("ff02::1"), 3, &["cannot be a segment"]);
    assert_refused(&steer("fcbb:0:1:2:3:4:5:6:7"), 3, &["not an IPv6 address", "six 16-bit uSIDs"]);
}

#[test]
fn e33_a_list_that_is_too_long_names_the_limit() {
    let segments = ["\"fcbb:0:2::\""; 9].join(", ");
    let steer = format!("[[steer]]\nprefix = \"2001:db8:9::/64\"\nsegments = [{segments}]");
    assert_refused(&steer, 3, &["9 segments; at most 8 are supported", "at most 8 segments"]);
    assert_refused("[[steer]]\nprefix = \"2001:db8:9::/64\"", 1, &["at least one segment", "add `segments"]);
}

#[test]
fn e35_a_policy_without_a_source() {
    let text = "[[port]]\nname = \"eth1\"\n[[steer]]\nprefix = \"2001:db8:9::/64\"\nsegments = [\"fcbb:0:2::\"]\n\
        via = \"fe80::2\"\nport = \"eth1\"";
    assert_alone(text, 3, &["no outer source address", "`source = ...` under [node]"]);
    let other_port = format!("{text}\n[[port]]\nname = \"eth2\"\nsource = \"2001:db8::1\"");
    assert_alone(&other_port, 5, &["leaves through eth1, which has no outer source", "`source = ...` under [node]"]);
    let this_port = text.replacen("\"eth1\"", "\"eth1\"\nsource = \"2001:db8::1\"", 1);
    assert!(config::parse(&this_port, "").and_then(|config| plan::plan(&config, &environment())).is_ok());
}

#[test]
fn e18_an_underlay_that_is_too_narrow() {
    // eth2 has an MTU of 1300, which is less than 1280 + 40.
    let steer =
        "[[steer]]\nprefix = \"2001:db8:9::/64\"\nsegments = [\"fcbb:0:2::\"]\nvia = \"fe80::2\"\nport = \"eth2\"";
    assert_refused(steer, 3, &["port eth2 has MTU 1300", "needs 1320", "ip link set eth2 mtu 1320"]);
    let routed = "[[route]]\nprefix = \"fcbb:0:2::/48\"\nvia = \"2001:db8:2::2\"\n\
        [[steer]]\nprefix = \"2001:db8:9::/64\"\nmode = \"encap\"\nsegments = [\"fcbb:0:2::\"]";
    assert_refused(routed, 7, &["64 bytes of outer header needs 1344"]);
}

#[test]
fn x06_lengths_that_no_shift_can_have() {
    for lengths in ["lblen = 0", "nflen = 0", "lblen = 12", "nflen = 9", "lblen = 120\nnflen = 16", "lblen = 48"] {
        let sid = format!("[[sid]]\nsid = \"fcbb:0:1::/48\"\nbehavior = \"uN\"\n{lengths}");
        let line = if lengths.contains('\n') { 5 } else { 4 };
        assert_refused(&sid, line, &["Invalid Locator Block/Node Function lengths", "multiples of 8"]);
    }
}

#[test]
fn sids_that_cannot_work() {
    let sid = |rest: &str| format!("[[sid]]\nsid = \"fcbb:0:1::/48\"\nbehavior = {rest}");
    assert_refused(&sid("\"uA\""), 3, &["uA needs a next hop", "via = \"fe80::2\""]);
    assert_refused(&sid("\"End.DX4\"\nvia = \"fe80::2\"\nport = \"eth1\""), 4, &["wrong family", "IPv4 next hop"]);
    assert_refused(&sid("\"uDX6\"\nvia = \"192.0.2.2\"\nport = \"eth1\""), 4, &["wrong family", "IPv6 next hop"]);
    assert_refused(&sid("\"uA\"\nnexthops = [{ port = \"eth1\" }]"), 4, &["which neighbour"]);
    let mixed = "\"uDX6\"\nnexthops = [{ port = \"eth1\" }, { via = \"fe80::2\", port = \"eth1\" }]";
    assert_refused(&sid(mixed), 4, &["which neighbour", "add `via = ...`"]);
    assert_refused(&sid("\"uN\"\ntable = 100"), 4, &["[[sid]] table", "has no meaning for uN", "remove `table`"]);
    assert_refused(&sid("\"uDT6\"\nflavors = [\"usd\"]"), 4, &["has no meaning for uDT6"]);
    assert_refused(&sid("\"End\"\nlblen = 32"), 4, &["has no meaning for End"]);
    assert_refused(
        "[[sid]]\nsid = \"fcbb::/32\"\nbehavior = \"uDT6\"",
        2,
        &["is the whole block fcbb::/32", "e.g. a /48"],
    );
}

#[test]
fn next_hops_that_do_not_resolve() {
    let route = |rest: &str| format!("[[route]]\nprefix = \"2001:db8:9::/64\"\n{rest}");
    assert_refused(&route("via = \"fe80::2\""), 3, &["[[route]] via", "exists on every port", "add `port"]);
    assert_refused(&route("via = \"2001:db8:7::2\""), 3, &["no port has an address in the subnet", "add `port"]);
    assert_refused(
        &route("via = \"fe80::2\"\nport = \"eht1\""),
        4,
        &["no [[port]] is named \"eht1\"", "did you mean \"eth1\"?"],
    );
    assert_refused(&route("via = \"ff02::1\"\nport = \"eth1\""), 3, &["multicast", "cannot be a next hop"]);
    assert_refused(&route("via = \"192.0.2.2\"\nport = \"eth1\""), 3, &["wrong family"]);
    assert_refused(&route(""), 1, &["2001:db8:9::/64 has no next hop", "\"blackhole\""]);
    assert_refused(&route("type = \"blackhole\"\nport = \"eth1\""), 1, &["type \"blackhole\" has no next hop"]);
    let both = route("via = \"fe80::2\"\nport = \"eth1\"\nnexthops = [{ via = \"fe80::3\", port = \"eth2\" }]");
    assert_refused(&both, 1, &["both `via`/`port` and `nexthops`", "move"]);
    assert_refused(&route("nexthops = [{ weight = 2 }]"), 3, &["needs `via` or `port`"]);
}

#[test]
fn duplicates() {
    assert_refused(
        "[[port]]\nname = \"eth1\"\ndevice = \"eth9\"",
        10,
        &["\"eth1\" is already the name of the port in line 1"],
    );
    assert_refused("[[port]]\nname = \"again\"\ndevice = \"eth1\"", 9, &["eth1 is already the port in line 1"]);
    let vlan =
        "[[port]]\nname = \"a\"\ndevice = \"eth1\"\nvlan = 7\n[[port]]\nname = \"b\"\ndevice = \"eth1\"\nvlan = 7";
    assert_refused(vlan, 5, &["eth1 VLAN 7 is already the port in line 1"]);
    let mode = "[[port]]\nname = \"a\"\ndevice = \"eth1\"\nvlan = 7\nmode = \"generic\"";
    assert_refused(&format!("{mode}\n"), 12, &["but line 1 wants \"generic\" for the same device eth1"]);
    assert_refused("[[block]]\nprefix = \"fcbb::/32\"", 7, &["already a block in line 1"]);
    let sid = "[[sid]]\nsid = \"fcbb:0:1::/48\"\nbehavior = \"uN\"\n";
    assert_refused(&sid.repeat(2), 5, &["already a [[sid]] in line 2", "keep one"]);
    let steer =
        "[[steer]]\nprefix = \"fcbb:0:1::/48\"\nsegments = [\"fcbb:0:2::\"]\nvia = \"fe80::2\"\nport = \"eth1\"";
    assert_refused(&format!("{sid}{steer}"), 5, &["[[steer]]: fcbb:0:1::/48 is already a [[sid]] in line 2"]);
    let neighbor = "[[neighbor]]\naddress = \"fe80::2\"\nport = \"eth1\"\nmac = \"02:00:00:00:00:09\"\n";
    assert_refused(&neighbor.repeat(2), 5, &["fe80::2 on eth1 is already in line 1"]);
    let paths = "[[steer]]\nprefix = \"2001:db8:9::/64\"\npaths = [\n\
        { name = \"a\", segments = [\"fcbb:0:2::\"], via = \"fe80::2\", port = \"eth1\" },\n\
        { name = \"a\", segments = [\"fcbb:0:3::\"], via = \"fe80::2\", port = \"eth1\" },\n]";
    assert_refused(paths, 5, &["\"a\" is already the name of the path in line 4"]);
}

#[test]
fn other_values() {
    assert_refused("[api]\nsocket = \"srv6d.sock\"", 2, &["[api] socket", "an absolute path"]);
    assert_refused("[api]\nmetrics = \"9469\"", 2, &["[api] metrics", "\"[::1]:9469\""]);
    let mac = |mac: &str| format!("[[neighbor]]\naddress = \"fe80::2\"\nport = \"eth1\"\nmac = {mac:?}");
    assert_refused(&mac("33:33:00:00:00:01"), 4, &["[[neighbor]] mac", "not the address of one neighbour"]);
    assert_refused(&mac("2:0:0"), 4, &["[[neighbor]] mac", "e.g. \"02:00:00:00:01:02\""]);
    assert_refused("[[steer]]\nprefix = \"ff00::/8\"\nsegments = [\"fcbb:0:2::\"]", 2, &["never encapsulated"]);
    assert_refused("[[steer]]\nprefix = \"fe80::/10\"\nsegments = [\"fcbb:0:2::\"]", 2, &["never encapsulated"]);
}

#[test]
fn all_mistakes_are_reported_in_the_order_of_the_file() {
    let text = "[node]\nhop_limit = 0\nsorce = \"::2\"\n[[sid]]\nsid = \"fcbb::1/48\"\nbehavior = \"uX\"\n";
    let lines: Vec<usize> = errors(text).0.iter().map(|error| error.line).collect();
    assert_eq!(lines, [2, 3, 5, 6]);
}

#[test]
fn an_error_shows_its_line_with_a_caret() {
    let text = "[[sid]]\nsid = \"fcbb:0:1::/48\"\n\tbehavior = \"uDT7\" # é\n";
    let shown = errors(text).to_string();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.first().unwrap().split_once(" [[").unwrap().0, "error: srv6d.toml:3:13:");
    assert_eq!(lines.get(2).unwrap(), &"3 |  behavior = \"uDT7\" # é");
    assert_eq!(lines.get(3).unwrap(), &"  |             ^^^^^^");
    assert!(lines.get(4).unwrap().starts_with("fix: write \"uDT"));
}

#[test]
fn of_a_long_line_the_part_around_the_mistake_is_shown() {
    let long = "é, ".repeat(40_000);
    let error = errors(&format!("[node]\nx = \"{long}\" y\n")).0.remove(0);
    assert_eq!((error.line, error.column), (2, 120_008));
    let shown = error.to_string();
    let lines: Vec<&str> = shown.lines().collect();
    let caret = lines.get(3).and_then(|line| line.chars().position(|character| character == '^')).unwrap();
    assert_eq!(lines.get(2).unwrap().chars().nth(caret), Some('y'), "{shown}");
    assert!(lines.get(2).unwrap().starts_with("2 | ..."), "{shown}");
    let shown = errors(&format!("[node]\nsource = 7 # {long}\n")).to_string();
    assert!(shown.contains("\n2 | source = 7 # é, ") && shown.contains("...\n") && shown.len() < 1_000, "{shown}");
}

#[test]
fn what_ends_too_early_is_pointed_at_behind_its_last_line() {
    let error = errors("[node]\nname =\n\n").0.remove(0);
    assert_eq!((error.line, error.source_line.as_str(), error.width), (2, "name =", 1));
    assert_eq!(errors("x").0.remove(0).line, 1);
}

/// A place in the file must be found without a search through the whole file each time.
#[test]
fn as_many_mistakes_as_lines_are_all_named() {
    let text = "[[route]]\nprefix = \"2001:db8::1/32\"\n".repeat(20_000);
    let errors = errors(&text).0;
    assert_eq!(errors.len(), 20_000);
    assert_eq!(errors.last().map(|error| error.line), Some(40_000));
}

#[test]
fn certificates_are_for_https() {
    let text = |scheme: &str| {
        format!(
            "[jalapeno]\nendpoint = \"{scheme}://[2001:db8::5]:30800\"\nsource = \"hosts/host00\"\n\
             peers = [\"hosts/host01\"]\nca_file = \"/etc/ssl/fabric.pem\"\n"
        )
    };
    assert_refused(&text("http"), 5, &["is asked without TLS", "write https:// in `endpoint`"]);
    assert_refused(&text("ftp"), 2, &["it does not begin with http:// or https:// and a host"]);
    let config = config::parse(&format!("{BASE}{}", text("https")), "srv6d.toml").unwrap();
    plan::plan(&config, &environment()).unwrap();
}

#[test]
fn peers_that_cannot_be_and_next_hops_without_a_port_are_refused() {
    let text = "[jalapeno]\nendpoint = \"http://[2001:db8::5]:30800\"\nsource = \"hosts/host00\"\n\
         peers = [\"hosts/host00\", \"hosts/host01\", \"hosts/host01\"]\nvia = \"fe80::9\"\n";
    assert_refused(text, 4, &["hosts/host00 is this node itself", "fix: remove it"]);
    assert_refused(text, 4, &["hosts/host01 is listed twice"]);
    assert_refused(text, 5, &["fe80::9 is link-local", "fix: add `port = ...`"]);
}

#[test]
fn policies_that_cannot_be() {
    let refused = |keys: &str, line, parts: &[&str]| assert_refused(&format!("[[balance]]\n{keys}"), line, parts);
    let flowlet = |keys: &str, parts: &[&str]| {
        refused(&format!("name = \"x\"\nmode = \"flowlet\"\n{keys}"), 4, parts);
    };
    let adaptive = |keys: &str, line, parts: &[&str]| {
        refused(&format!("name = \"x\"\nmode = \"adaptive\"\n{keys}"), line, parts);
    };
    refused("name = \"hash\"\nmode = \"flowlet\"", 2, &["[[balance]] name", "\"hash\" is the name of the plain hash"]);
    refused("name = \"x\"\nmode = \"spray\"", 3, &["[[balance]] mode", "flowlet"]);
    flowlet("metric = \"capacity\"", &["does not use `metric`", "mode = \"weighted\""]);
    refused("name = \"x\"\nmode = \"weighted\"\nmetric = \"available\"", 4, &["nobody measures loads without [glb]"]);
    flowlet("sample = \"2ms\"", &["does not use `sample`", "mode = \"adaptive\""]);
    for (key, value) in [("gap", "\"2ms\""), ("flows", "512"), ("reorder", "\"accept\""), ("low", "7")] {
        let weighted = format!("name = \"x\"\nmode = \"weighted\"\n{key} = {value}");
        refused(&weighted, 4, &["mode \"weighted\" does not use", key]);
    }
    let twice = "nexthops = [{ via = \"2001:db8::1\", port = \"lo\", weight = 2, capacity = \"1Gbit\" }]";
    let text = format!("[[port]]\nname = \"lo\"\n[[route]]\nprefix = \"2001:db8:7::/48\"\n{twice}");
    assert_refused(&text, 5, &["has both `weight` and `capacity`", "remove `weight`"]);
    adaptive("gap = \"11s\"", 4, &["[[balance]] gap", "\"10s\""]);
    adaptive("flows = 100", 4, &["[[balance]] flows", "from 256 to 1048576"]);
    adaptive("low = 100", 4, &["band \"available\" has no `low` and `high`"]);
    adaptive("band = \"relative\"\nlow = 900\nhigh = 100", 3, &["`low` = 900 is not below `high` = 100"]);
    adaptive("reactive = {}", 3, &["reactive", "out of order", "reorder = \"accept\""]);
    adaptive("[[balance]]\nname = \"x\"\nmode = \"flowlet\"", 5, &["\"x\" is the name of another one"]);
    let other = "sample = \"1ms\"\n[[balance]]\nname = \"y\"\nmode = \"adaptive\"\nsample = \"2ms\"";
    adaptive(other, 8, &["`sample` is another one than in an entry above"]);
    let unknown = "[[route]]\nprefix = \"2001:db8:7::/48\"\ntype = \"kernel\"\nbalance = \"fabric\"";
    assert_refused(unknown, 4, &["no [[balance]] named \"fabric\"", "write one of: hash"]);
}

#[test]
fn probes_that_cannot_be() {
    let probes = |keys: &str, line, parts: &[&str]| assert_refused(&format!("[probes]\n{keys}"), line, parts);
    probes("interval = \"5ms\"", 2, &["[probes] interval", "below 10 ms"]);
    probes("interval = \"50ms\"\ntimeout = \"20ms\"", 3, &["shorter than the interval of 50 ms", "a longer timeout"]);
    probes("timeout = \"2100ms\"", 2, &["longer than 20 intervals of 100 ms"]);
    probes("dead_after = 1", 2, &["from 2 to 100"]);
    probes("decap = 0", 2, &["from 1 to 65535"]);
    probes("address = \"fe80::1\"", 2, &["a link-local address", "leave it out"]);
    probes("interval = \"1h\"", 2, &["from \"1us\" to \"10s\""]);
}

#[test]
fn heartbeats_that_cannot_be() {
    const GLB: &str = "[glb]\nrole = \"both\"\nnode_id = \"10.0.0.1\"\n";
    const GLOBAL: &str = "[[balance]]\nname = \"far\"\nmode = \"global\"\n";
    let port = |keys: &str| format!("[[port]]\nname = \"lo\"\n{keys}\n");
    let glb = |keys: &str, line, parts: &[&str]| assert_refused(&format!("{GLB}{keys}"), line, parts);
    assert_refused(GLOBAL, 3, &["\"global\" needs heartbeats", "add [glb] with role = \"load-balancer-only\""]);
    let helper = GLB.replace("both", "helper-only");
    let parts = ["role \"helper-only\" receives none", "write role = \"both\""];
    assert_refused(&format!("{helper}{GLOBAL}"), 6, &parts);
    assert_refused("[glb]\nrole = \"leaf\"\nnode_id = \"10.0.0.1\"", 2, &["[glb] role", "helper-only"]);
    assert_refused("[glb]\nrole = \"both\"\nnode_id = \"0.0.0.0\"", 3, &["[glb] node_id", "BGP identifier"]);
    glb("group = \"ff05::1\"", 4, &["[glb] group", "\"ff02::114\""]);
    glb("udp_port = 0", 4, &["[glb] udp_port", "from 1 to 65535"]);
    glb("period = \"500us\"\nmin_gap = \"500us\"", 4, &["[glb] period", "below 1 ms"]);
    glb("min_gap = \"50us\"", 4, &["[glb] min_gap", "\"100us\" or more"]);
    glb("period = \"10ms\"\nmin_gap = \"11ms\"", 5, &["longer than the period of 10 ms"]);
    glb("key_id = 7", 4, &["[glb] key_id", "there is no key"]);
    glb("key = \"glb.key\"", 4, &["[glb] key", "absolute path"]);
    glb(&port("neighbor_id = \"10.0.0.1\""), 6, &["10.0.0.1 is this node itself"]);
    glb(&port("vlan = 5\ndevice = \"eth1\"\nneighbor_id = \"10.0.0.2\""), 8, &["heartbeats have no VLAN tag"]);
    let neighbors = |count: u32| -> String {
        let port = |n| format!("[[port]]\nname = \"p{n}\"\nneighbor_id = \"10.0.1.{n}\"\n");
        (1..=count).map(port).collect()
    };
    glb(&neighbors(65), 2, &["there are 65 neighbours, and role \"both\" has room for 64"]);
    let route = |n: u32| {
        format!(
            "[[route]]\nprefix = \"2001:db8:{n}::/48\"\ntype = \"kernel\"\nbalance = \"far\"\n\
             via_nodes = [\"10.0.2.{n}\"]\n"
        )
    };
    let routes: String = (1..=65).map(route).collect();
    let text = format!("{GLB}{GLOBAL}{routes}");
    assert_refused(
        &text,
        6 + 65 * 5,
        &["[[route]] via_nodes", "profile 65, and there is room for 64", "fix: name the same"],
    );
}

#[test]
fn an_emulated_port_that_cannot_be() {
    let refused = |keys: &str, parts: &[&str]| {
        assert_refused(&format!("[[port]]\nname = \"lo\"\nemulate = {{ {keys} }}"), 3, parts);
    };
    refused("queue = 5000", &["emulate", "`rate` is missing", "\"100Mbit\""]);
    for rate in ["999kbit", "1.7Tbit", "100", "fast", "100Mbyte"] {
        refused(&format!("rate = \"{rate}\""), &["emulate rate", rate, "from \"1Mbit\" to \"1.6Tbit\""]);
    }
    refused("rate = 999999", &["emulate rate", "999999"]);
    let more = |keys: &str, parts: &[&str]| refused(&format!("rate = \"10Mbit\", {keys}"), parts);
    more("packets = 7", &["emulate packets", "from 8 to 16384"]);
    more("overhead = 65", &["emulate overhead", "from 0 to 64"]);
    more("delay = \"1001ms\"", &["emulate delay", "up to \"1s\""]);
    more("loss = 1.5", &["emulate loss", "1.5", "from 0 to 1"]);
    more("queue = 3075", &["emulate queue", "two packets of MTU 1500", "write queue = 3076 or more"]);
    more("ecn = \"laboratory\"", &["emulate ecn", "write \"lab\""]);
    more("ecn = { probabilty = 1 }", &["ecn probabilty", "did you mean `probability`?"]);
    more("ecn = { min = 1 }", &["emulate ecn", "either `min` and `max`, or `rtt`"]);
    more("ecn = { min = 1, max = 2, rtt = \"1ms\" }", &["emulate ecn", "either"]);
    more("ecn = { min = 3, max = 2 }", &["emulate ecn", "min (3) <= max (2) <= queue (256000)"]);
    more("ecn = \"azure-lossless\"", &["emulate ecn", "write queue = 2097152 or more"]);
    more("pfc = true", &["emulate pfc", "AF_XDP has no priorities", "0x8808", "a pause cannot reach a socket"]);
    more("speed = 1", &["emulate speed", "unknown key"]);
    let tagged = "[[port]]\nname = \"eth1.7\"\nvlan = 7\nemulate = { rate = \"1Gbit\" }";
    assert_refused(tagged, 4, &["[[port]] emulate", "VLAN 7", "without `vlan`"]);
}

#[test]
fn emulated_ports_that_do_not_fit_the_worker() {
    let two = "[[port]]\nname = \"eth9\"\nemulate = { rate = \"1Gbit\" }\n[workers]\ncores = [0, 1]";
    assert_refused(two, 3, &["[[port]] emulate", "belongs to one worker", "[workers] cores has 2", "list one core"]);
    // A packet of this MTU takes 18 chunks: no error, because a device may have another MTU at any time.
    let mut environment = environment();
    environment.devices.push(Device { name: "huge".to_owned(), mtu: 65_536, ..environment.devices[1].clone() });
    let planned = |packets: u32| {
        let port =
            format!("[[port]]\nname = \"huge\"\nemulate = {{ rate = \"1Gbit\", packets = {packets}, queue = 4000 }}");
        let config = config::parse(&format!("{port}\n{BASE}"), "srv6d.toml").unwrap();
        let plan = plan::plan(&config, &environment).unwrap();
        let emulation = plan.desired.emulated.values().next().unwrap();
        let said = plan.warnings.iter().any(|warning| warning.to_string().contains("with the MTU of 65536"));
        (emulation.packets, emulation.queue, said)
    };
    assert_eq!(planned(227), (227, 131_148, true), "the queue holds two packets");
    assert_eq!(planned(228), (227, 131_148, true), "half of the packet memory");
    let both = "emulate = { rate = \"1Gbit\", packets = 4000 }";
    let text = format!("[[port]]\nname = \"a\"\n{both}\n[[port]]\nname = \"b\"\n{both}");
    assert_refused(&text, 6, &["emulate packets", "8000 packets", "frames = 8192 is 4096", "frames = 16000 or more"]);
}

#[test]
fn the_loopback_device_is_no_port() {
    assert_refused("[[port]]\nname = \"lo\"", 2, &["[[port]]", "lo is the loopback device"]);
    assert_refused("[[port]]\nname = \"x\"\ndevice = \"lo\"", 2, &["[[port]]", "lo is the loopback device"]);
}

#[test]
fn names_that_the_kernel_would_change_or_that_are_settings_are_no_devices() {
    for name in ["a%d", "all", "default"] {
        assert_refused(&format!("[host]\ninterface = \"{name}\""), 2, &["[host] interface", name]);
    }
}

#[test]
fn what_is_never_forwarded_is_not_steered() {
    for prefix in [
        "::1/128",
        "::/128",
        "::ffff:0:0/96",
        "::ffff:192.0.2.0/120",
        "127.0.0.0/8",
        "127.0.0.1/32",
        "0.0.0.0/8",
        "255.255.255.255/32",
    ] {
        let steer = format!("[[steer]]\nprefix = \"{prefix}\"\nsegments = [\"fcbb:0:1::\"]");
        let text = format!("{steer}\n{BASE}");
        let said = errors(&text).to_string();
        assert!(
            said.contains("is never encapsulated") && said.contains("fix: steer a unicast prefix"),
            "{prefix}: {said}"
        );
    }
}
