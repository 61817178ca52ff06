//! Tests of the operator's commands on a running leaf, called by their own names: commands that show the state,
//! commands that change the configuration, and the sequences of lab scripts.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use support::lab::{SRV6D, text};
use support::leaf::{CONFIG_DB, FRR, Leaf};
use support::rig::wait_for;

/// The output of a command, and its exit status.
struct Said {
    out: String,
    err: String,
    status: Option<i32>,
}

/// A leaf with links that have the names of the commands.
struct Switch {
    leaf: Leaf,
}

impl Switch {
    fn new() -> Self {
        Self::of(Leaf::running())
    }

    fn of(leaf: Leaf) -> Self {
        let links = leaf.root.join("bin");
        let made = Command::new(SRV6D).args(["sonic", "install-words"]).arg(&links).output().unwrap();
        assert!(made.status.success(), "{}", text(&made.stderr));
        Self { leaf }
    }

    /// Runs a line of a script in the node.
    fn say(&self, line: &str) -> Said {
        let root = self.leaf.root.display();
        let script = self.leaf.root.join("script");
        fs::write(&script, format!("cd {root}\nexport PATH={root}/bin:$PATH SRV6D_SONIC_ROOT={root}\n{line}\n"))
            .unwrap();
        let output = self.leaf.output("leaf", &format!("env -u SRV6D_SOCKET sh {}", script.display()));
        Said { out: text(&output.stdout), err: text(&output.stderr), status: output.status.code() }
    }

    /// Runs a line that must succeed, and returns its output.
    fn ask(&self, line: &str) -> String {
        let said = self.say(line);
        assert_eq!(said.status, Some(0), "{line}: {}{}", said.out, said.err);
        said.out
    }

    /// Runs a line that must succeed without output.
    fn tell(&self, line: &str) {
        assert_eq!(self.ask(line), "", "{line}");
    }

    fn refused(&self, line: &str, status: i32, why: &str) {
        let said = self.say(line);
        assert_eq!(said.status, Some(status), "{line}: {}{}", said.out, said.err);
        assert!(format!("{}{}", said.out, said.err).contains(why), "{line}: {}{}", said.out, said.err);
    }
}

/// Returns the cells of the row of a table whose first cell is `first`.
fn cells(table: &str, first: &str) -> Vec<String> {
    let row = table.lines().find(|line| line.split_whitespace().next() == Some(first));
    row.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

#[test]
fn links_carry_the_names_of_the_words() {
    let directory = std::env::temp_dir().join(format!("srv6d-words-{}", std::process::id()));
    let install = || Command::new(SRV6D).args(["sonic", "install-words"]).arg(&directory).output().unwrap();
    assert!(install().status.success());
    assert!(install().status.success(), "a second time replaces its own links");
    let called = |name: &str, arguments: &[&str]| {
        let mut command = Command::new(directory.join(name));
        let output = command.args(arguments).env("SRV6D_SONIC_ROOT", &directory).env_remove("SRV6D_SOCKET").output();
        let output = output.unwrap();
        (text(&output.stdout), text(&output.stderr), output.status.code())
    };
    let (version, _, status) = called("show", &["ver"]);
    assert_eq!(status, Some(0));
    for line in ["\nSONiC Software Version: SONiC.srv6d-", "\nHwSKU: N/A\nASIC: srv6d\n", "\nPlatform: N/A\n"] {
        assert!(version.contains(line), "{line}: {version}");
    }
    assert_eq!(called("sonic-db-cli", &["PING"]).0, "PONG\n");
    let (_, why, status) = called("show", &["i"]);
    assert_eq!(status, Some(2));
    assert!(why.ends_with("Error: Too many matches: interfaces, ip, ipv6\n"), "{why}");
    let (_, why, status) = called("show", &["srv6", "stats"]);
    assert_eq!(status, Some(1));
    assert!(why.contains("no switch runs here"), "{why}");
    assert_eq!(called("supervisorctl", &["status"]).2, Some(3));
    assert_eq!(called("vtysh", &["-c", "show version"]).2, Some(1), "not ready");
    // The command is called through the program itself.
    let output = Command::new(SRV6D).args(["sonic", "sonic-db-cli", "PING"]).output().unwrap();
    assert_eq!(text(&output.stdout), "PONG\n");
    let output = Command::new(SRV6D).args(["sonic", "frobnicate"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    // A file that is not a link belongs to somebody else, and is not replaced.
    fs::remove_file(directory.join("show")).unwrap();
    fs::write(directory.join("show"), "").unwrap();
    assert_eq!(install().status.code(), Some(1));
    let nowhere = Command::new(SRV6D).args(["sonic", "install-words", "/proc/nowhere"]).output().unwrap();
    let why = text(&nowhere.stderr);
    assert!(why.starts_with("error: cannot make /proc/nowhere: ") && why.contains("\nfix: run as root"), "{why}");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
#[ignore = "needs root"]
fn a_running_leaf_answers_every_word() {
    let switch = Switch::new();
    let locators = "\
Locator    Prefix           Block Len    Node Len    Func Len
---------  -------------  -----------  ----------  ----------
MAIN       fcbb:bbbb:1::           32          16          16
";
    assert_eq!(switch.ask("show srv6 locators"), locators);
    switch.leaf.wait_for_ping("a", "2001:db8:b::2");
    let sids = "\
SID                    Locator    Action    Decap DSCP Mode    Decap VRF    Offloaded
---------------------  ---------  --------  -----------------  -----------  -----------
fcbb:bbbb:1::/48       MAIN       uN        pipe               N/A          True
fcbb:bbbb:1:d046::/64  MAIN       uDT46     pipe               Vrf-green    True
fcbb:bbbb:fe04::/48    MAIN       uA        N/A                N/A          True
";
    wait_for("SIDs in the dataplane", || (switch.ask("show srv6 static-sids") == sids).then_some(()));
    assert_eq!(switch.ask("show srv6 static-sids nobody").lines().count(), 2);
    let status =
        "  Interface        Lanes    Speed    MTU    FEC          Alias    Vlan    Oper    Admin    Type    Asym PFC
-----------  -----------  -------  -----  -----  -------------  ------  ------  -------  ------  ----------
  Ethernet0  25,26,27,28      40G   9100    N/A   fortyGigE0/0  routed      up       up     N/A         N/A
  Ethernet4  29,30,31,32      40G   9100    N/A   fortyGigE0/4  routed      up       up     N/A         N/A
  Ethernet8  33,34,35,36      40G   9100    N/A   fortyGigE0/8  routed      up       up     N/A         N/A
 Ethernet12  37,38,39,40      40G   9100    N/A  fortyGigE0/12  routed    down     down     N/A         N/A
";
    assert_eq!(switch.ask("show interface status"), status);
    assert_eq!(switch.ask("srv6d=1 show interfaces status Ethernet4").lines().count(), 3);
    let addresses = switch.ask("show ip interfaces");
    assert_eq!(cells(&addresses, "Ethernet0"), ["Ethernet0", "192.0.2.1/30", "up/up", "N/A", "N/A"]);
    assert_eq!(cells(&addresses, "Ethernet8"), ["Ethernet8", "Vrf-green", "198.51.100.1/24", "up/up", "N/A", "N/A"]);
    let addresses = switch.ask("show ipv6 interfaces");
    assert_eq!(cells(&addresses, "Loopback0"), ["Loopback0", "fcbb:bbbb:1::1/128", "up/up", "N/A", "N/A"]);
    assert!(addresses.contains("%Ethernet0/64 "), "{addresses}");
    assert_eq!(cells(&switch.ask("show vrf"), "Vrf-green"), ["Vrf-green", "Ethernet8"]);
    assert!(switch.ask("show platform summary").contains("\nHwSKU: Force10-S6000\n"));
    switch.leaf.inside("a", "ping -c 1 -W 5 2001:db8:a::1");
    let neighbor = wait_for("a neighbour", || {
        let found = cells(&switch.ask("show ndp 2001:db8:a::2"), "2001:db8:a::2");
        (!found.is_empty()).then_some(found)
    });
    assert_eq!(neighbor[2..], ["Ethernet0", "-", "N/A"]);
    assert!(switch.ask("show arp").starts_with("Address"));
    switch.refused("show arp nonsense", 2, "is no address");
    assert!(switch.ask("show runningconfiguration all").contains("\"Vrf-green\""));
    assert!(switch.ask("show version --brief").contains("\nHwSKU: Force10-S6000\n"));
    let resources = switch.ask("crm show resources srv6-my-sid-entry");
    assert_eq!(cells(&resources, "srv6_my_sid_entry"), ["srv6_my_sid_entry", "3", "65533"]);
    assert!(resources.starts_with('\n') && resources.ends_with("\n\n"), "{resources}");
    assert!(switch.ask("crm show resources all").contains("srv6_nexthop"));
    assert!(switch.ask("supervisorctl status").contains("RUNNING"));
    check_routes(&switch);
}

fn check_routes(switch: &Switch) {
    let text = switch.ask("show ipv6 route");
    let (codes, routes) = text.split_once("\n\n").unwrap();
    assert!(codes.starts_with("Codes: K - kernel route, C - connected, S - static, R - RIP,\n"), "{text}");
    for route in [
        "C>*2001:db8:a::/64 is directly connected, Ethernet0, ",
        "C>*fcbb:bbbb:1::1/128 is directly connected, Loopback0, ",
        "S>*fcbb:bbbb::/32 [1/0] (blackhole) ",
        "S>*fcbb:bbbb:1::/48 [1/0] is directly connected, sr0, ",
        "S>*fcbb:bbbb:fe04::/48 [1/0] is directly connected, Ethernet4, ",
        "S>*fcbb:bbbb:2::/48 [1/0] via 2001:db8:b::2, Ethernet4, ",
    ] {
        assert!(routes.lines().any(|line| line.starts_with(route)), "{route}: {text}");
    }
    assert!(!routes.contains("seg6"), "{text}");
    assert!(switch.ask("show ip route").contains("\nC>*192.0.2.0/30 is directly connected, Ethernet0, "));
    let entry = switch.ask("show ipv6 route fcbb:bbbb:2::/48");
    assert!(
        entry.starts_with("Routing entry for fcbb:bbbb:2::/48\n  Known via \"static\", distance 1, metric 0, best\n")
    );
    assert!(entry.ends_with(" ago\n  * 2001:db8:b::2, via Ethernet4\n\n"), "{entry}");
    let of_vrf = switch.ask("show ipv6 route vrf Vrf-green");
    assert!(of_vrf.starts_with(":\nCodes: ") && of_vrf.contains("\nIPv6 unicast VRF Vrf-green:\n"), "{of_vrf}");
    assert!(of_vrf.contains("\nS>* 2001:db8:a::/64 [1/0] is directly connected, Ethernet0, seg6 fcbb:bbbb:a:d6::, encap behavior H.Encaps.Red, weight 1, "), "{of_vrf}");
    let json: serde_json::Value = serde_json::from_str(&switch.ask("show ipv6 route json")).unwrap();
    assert_eq!(json.pointer("/fcbb:bbbb:2::~148/0/nexthops/0/interfaceName").unwrap(), "Ethernet4");
    assert!(
        switch
            .ask("vtysh -c 'show ipv6 route'")
            .contains("\nS>* fcbb:bbbb:1::/48 [1/0] is directly connected, sr0, seg6local uN, ")
    );
    // Another program has added a route to the kernel.
    switch.tell("ip -6 route add 2001:db8:beef::/48 via 2001:db8:b::2 metric 77 proto bgp");
    assert!(switch.ask("show ipv6 route").contains("\nB>*2001:db8:beef::/48 [20/0] via 2001:db8:b::2, Ethernet4, "));
}

#[test]
#[ignore = "needs root"]
fn counters_count_and_begin_anew_for_whoever_clears_them() {
    let switch = Switch::new();
    let leaf = &switch.leaf;
    leaf.steer_a("fcbb:bbbb:1:2:d6::");
    leaf.wait_for_ping("a", "3fff:b::1");
    let nothing = "MySID    Packets    Bytes\n-------  ---------  -------\n";
    assert_eq!(switch.ask("show srv6 stats"), nothing, "not polled");
    assert_eq!(switch.ask("counterpoll show").lines().count(), 2);
    switch.tell("counterpoll srv6 enable");
    assert_eq!(switch.ask("counterpoll show").lines().last(), Some("SRV6_STAT  default (10000)     enable"));
    switch.tell("counterpoll srv6 interval 1000");
    assert_eq!(cells(&switch.ask("counterpoll show"), "SRV6_STAT"), ["SRV6_STAT", "1000", "enable"]);
    switch.refused("counterpoll srv6 interval 10", 2, "not in the valid range");
    switch.tell("sonic-clear srv6counters");
    // A packet has 40 bytes of outer header, 24 of SRH, 40 of inner header and 8 + 56 of echo request. SONiC also
    // counts 14 bytes of Ethernet header and four more.
    leaf.inside("a", "ping -c 5 -i 0.2 3fff:b::1");
    let frame = 40 + 24 + 40 + 64 + 14 + 4;
    let five = [5.to_string(), (5 * frame).to_string()];
    // The last packet may not have been counted yet.
    let counted = || cells(&switch.ask("show srv6 stats"), "fcbb:bbbb:1::/48");
    wait_for("five packets", || counted().ends_with(&five).then_some(()));
    assert_eq!(switch.ask("srv6stat -s fcbb:bbbb:1::/48").lines().count(), 3);
    switch.tell("srv6stat -c");
    assert_eq!(cells(&switch.ask("show srv6 stats"), "fcbb:bbbb:1::/48")[1..], ["0", "0"]);
    check_port_counters(&switch);
    // After a restart of the daemon, its counters are shown without subtracting the cleared values.
    leaf.inside("a", "ping -c 3 -i 0.2 3fff:b::1");
    switch.tell("sonic-clear srv6counters");
    let mut switch = switch;
    assert_eq!(switch.leaf.end("TERM"), Some(0));
    let enabled = CONFIG_DB.trim_end().trim_end_matches('}').to_owned()
        + ",\n\"FLEX_COUNTER_TABLE\": {\"SRV6\": {\"FLEX_COUNTER_STATUS\": \"enable\"}}}";
    switch.leaf.write("/etc/sonic/config_db.json", &enabled);
    switch.leaf.start(3);
    switch.leaf.wait_until_ready();
    switch.leaf.wait_for_ping("a", "2001:db8:b::2");
    switch.leaf.inside("a", "ping -c 2 -i 0.2 3fff:b::1");
    let counted = || cells(&switch.ask("show srv6 stats"), "fcbb:bbbb:1::/48");
    wait_for("two packets", || (counted().get(1)? == "2").then_some(()));
}

/// Checks that packets to the blackhole of the block are counted as discards of the port on which they arrived.
fn check_port_counters(switch: &Switch) {
    assert_eq!(switch.ask("sonic-clear counters"), "Cleared counters\n");
    switch.leaf.output("a", "ping -6 -c 4 -i 0.2 -W 1 fcbb:bbbb:77::1");
    let table = wait_for("four discards", || {
        let table = switch.ask("show interfaces counters");
        cells(&table, "Ethernet0")[7].parse().is_ok_and(|dropped: u64| dropped >= 4).then_some(table)
    });
    assert!(table.starts_with("Last cached time was 2"), "{table}");
    let heading: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        heading.join(" "),
        "IFACE STATE RX_OK RX_BPS RX_UTIL RX_ERR RX_DRP RX_OVR TX_OK TX_BPS TX_UTIL TX_ERR TX_DRP TX_OVR"
    );
    let row = cells(&table, "Ethernet0");
    // A rate has a blank before its unit.
    let (state, received, dropped) = (&row[1], row[2].parse::<u64>().unwrap(), row[7].parse::<u64>().unwrap());
    assert_eq!(state, "U");
    assert!(dropped >= 4 && received >= 4, "{table}");
    assert!(!table.contains("Ethernet12"), "it does not exist: {table}");
    let one = switch.ask("portstat -i Ethernet4");
    assert_eq!(one.lines().count(), 4, "{one}");
    assert_eq!(cells(&one, "Ethernet4")[1], "U");
}

#[test]
#[ignore = "needs root"]
fn what_is_typed_is_in_force_and_what_is_refused_changes_nothing() {
    let switch = Switch::new();
    let leaf = &switch.leaf;
    let kernel = |question: &str| leaf.inside("leaf", &format!("ip {question}"));
    switch.tell("config interface shutdown Ethernet4");
    wait_for("port that is down", || (leaf.port_state("Ethernet4").as_deref() == Some("down")).then_some(()));
    assert_eq!(cells(&switch.ask("show interfaces description"), "Ethernet4")[1..3], ["down", "down"]);
    switch.tell("config interface startup Ethernet4");
    wait_for("port that is up", || (leaf.port_state("Ethernet4").as_deref() == Some("up")).then_some(()));
    switch.tell("config interface ip add Ethernet4 203.0.113.1/24");
    assert!(kernel("addr show dev Ethernet4").contains("203.0.113.1/24"));
    switch.tell("config interface ip remove Ethernet4 203.0.113.1/24");
    assert!(!kernel("addr show dev Ethernet4").contains("203.0.113.1"));
    switch.tell("config interface ip add Loopback0 fcbb:bbbb:1::2/128");
    assert!(switch.ask("show ipv6 interfaces").contains("fcbb:bbbb:1::2/128"));
    switch.refused("config interface startup Ethernet44", 2, "Ethernet44: no such port");
    switch.refused("config interface ip add Ethernet4 nonsense", 2, "nonsense is no address");
    switch.tell("config vrf add Vrf-blue");
    switch.refused("config vrf add Vrf-blue", 2, "exists already");
    assert!(switch.ask("show vrf").contains("Vrf-blue"));
    switch.tell("config vrf del Vrf-blue");
    switch.tell("config hostname leaf7");
    assert_eq!(switch.ask("sonic-cfggen -d -v DEVICE_METADATA.localhost.hostname"), "leaf7\n");
    assert_eq!(switch.ask("sonic-db-cli CONFIG_DB HGET 'DEVICE_METADATA|localhost' hostname"), "leaf7\n");
    check_rows(&switch);
    // An entry that contradicts the other file is refused, and the existing one stays.
    let before = switch.ask("show runningconfiguration all");
    switch.refused(
        "sonic-db-cli CONFIG_DB HSET 'SRV6_MY_SIDS|MAIN|fcbb:bbbb:fe04::/48' action uDT46",
        2,
        "nothing was changed",
    );
    assert_eq!(switch.ask("show runningconfiguration all"), before);
    switch.leaf.wait_for_ping("a", "2001:db8:b::2");
}

/// Checks the keys of both databases, and a SID that is added and removed.
fn check_rows(switch: &Switch) {
    let key = "'SRV6_MY_SIDS|MAIN|fcbb:bbbb:1:d004::/64'";
    assert_eq!(switch.ask(&format!("sonic-db-cli CONFIG_DB HSET {key} action uDT4 decap_vrf default")), "2\n");
    assert_eq!(
        switch.ask("sonic-db-cli APPL_DB keys 'SRV6_MY_SID_TABLE*d004::'"),
        "SRV6_MY_SID_TABLE:32:16:16:0:fcbb:bbbb:1:d004::\n"
    );
    assert_eq!(
        switch.ask("sonic-db-cli APPL_DB hget 'SRV6_MY_SID_TABLE:32:16:16:0:fcbb:bbbb:1:d004::' action"),
        "udt4\n"
    );
    wait_for("new SID", || switch.leaf.show("sids").to_string().contains("fcbb:bbbb:1:d004::/64").then_some(()));
    assert_eq!(switch.ask(&format!("sonic-db-cli CONFIG_DB DEL {key}")), "1\n");
    assert_eq!(switch.ask(&format!("sonic-db-cli CONFIG_DB DEL {key}")), "0\n");
    assert_eq!(switch.ask("sonic-db-cli CONFIG_DB KEYS 'SRV6_MY_SIDS*d004*'"), "");
    assert!(!switch.leaf.show("sids").to_string().contains("d004"));
    assert_eq!(switch.ask("sonic-db-cli CONFIG_DB HGET 'PORT|Ethernet0' nothing"), "\n");
}

/// A process that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "needs root"]
fn a_node_begins_with_supervisord_and_gets_its_files_by_its_words() {
    let switch = Switch::of(Leaf::new());
    let leaf = &switch.leaf;
    leaf.bring_links();
    let log = fs::File::create(leaf.root.join("log")).unwrap();
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &leaf.ns("leaf")]).arg(leaf.root.join("bin/supervisord")).arg("-n");
    command.env("SRV6D_SONIC_ROOT", &leaf.root).env("CLAB_INTFS", "3").env_remove("SRV6D_SOCKET");
    let _running = Running(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    // No file contains a port yet; the first commands wait for the daemon.
    leaf.write("/tmp/db.json", &CONFIG_DB.replace("\"PORT\"", "\"PORTS\""));
    switch.tell("sonic-cfggen -j tmp/db.json --write-to-db");
    let ports: serde_json::Value = serde_json::from_str(&switch.ask("sonic-cfggen -d --var-json PORT")).unwrap();
    let names: Vec<&String> = ports.as_object().unwrap().keys().collect();
    assert_eq!(names, ["Ethernet0", "Ethernet4", "Ethernet8"]);
    // A new file is read without losing entered configuration, and loading it once more changes nothing.
    leaf.write("/etc/frr/frr.conf", FRR);
    wait_for("file that appeared", || leaf.log().contains("FRR's configuration: /etc/frr/frr.conf").then_some(()));
    switch.tell("vtysh -f etc/frr/frr.conf");
    assert_eq!(switch.ask("vtysh -c 'show running-config'").matches("static-sids").count(), 1);
    leaf.wait_for_ping("a", "2001:db8:c::2");
    switch.tell("config interface shutdown Ethernet8");
    wait_for("port that is down", || (leaf.port_state("Ethernet8").as_deref() == Some("down")).then_some(()));
    assert_eq!(cells(&switch.ask("show interfaces status"), "Ethernet0")[7..9], ["up", "up"]);
    switch.ask("config save -y");
    assert!(fs::read_to_string(leaf.root.join("etc/sonic/config_db.json")).unwrap().contains("Vrf-green"));
    // The stored configuration is older than the next command.
    switch.tell("config interface startup Ethernet8");
    leaf.wait_for_ping("a", "2001:db8:c::2");
    // A second start is refused, and neither the running configuration nor readiness is lost.
    wait_for("switch", || leaf.is_ready().then_some(()));
    let typed = || fs::read_to_string(leaf.root.join("run/srv6d/sonic/config_db.json")).unwrap();
    let before = typed();
    switch.refused("supervisord -n", 1, "srv6d is already running as pid");
    assert_eq!(typed(), before);
    assert!(leaf.is_ready());
}

#[test]
#[ignore = "needs root"]
fn the_sequences_of_lab_scripts_run() {
    let switch = Switch::new();
    let leaf = &switch.leaf;
    // Files are copied into the running node, and then loaded.
    let ports = switch.ask("sonic-cfggen -d --var-json PORT");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&ports).unwrap().as_object().unwrap().len(), 4);
    leaf.write("/tmp/more.json", r#"{"LOOPBACK_INTERFACE": {"Loopback0|fcbb:bbbb:1::3/128": {}}}"#);
    switch.tell("sonic-cfggen -j tmp/more.json --write-to-db");
    assert!(switch.ask("show ipv6 interfaces").contains("fcbb:bbbb:1::3/128"));
    leaf.write("/etc/sonic/config_db.json", &CONFIG_DB.replace("192.0.2.1/30", "192.0.2.1/29"));
    switch.tell("config load -y");
    assert!(switch.ask("show ip interfaces").contains("192.0.2.1/29"));
    switch.ask("config save -y");
    let stored = fs::read_to_string(leaf.root.join("etc/sonic/config_db.json")).unwrap();
    assert!(stored.contains("fcbb:bbbb:1::3/128"), "{stored}");
    // The node forwards while it reads its files again.
    leaf.wait_for_ping("a", "2001:db8:b::2");
    leaf.write("/etc/sonic/config_db.json", CONFIG_DB);
    switch.tell("config reload -y -f");
    assert!(!switch.ask("show ipv6 interfaces").contains("fcbb:bbbb:1::3"), "the file says nothing of it");
    assert_eq!(switch.ask("supervisorctl restart all"), "srv6d: stopped\nsrv6d: started\n");
    for line in
        ["supervisorctl stop bgpd zebra staticd", "supervisorctl start bgpd zebra staticd", "supervisorctl start bgpd"]
    {
        assert!(switch.ask(line).contains("FRR is not installed here"));
    }
    check_vtysh(&switch);
    // Changes of the kernel by scripts do no harm.
    for line in
        ["ip link add sr0 type dummy", "sysctl -w net.vrf.strict_mode=1", "ip link add vrfdefault type vrf table main"]
    {
        switch.say(line);
    }
    leaf.wait_for_ping("a", "2001:db8:b::2");
}

fn check_vtysh(switch: &Switch) {
    let leaf = &switch.leaf;
    assert!(switch.ask("vtysh -c 'show version'").contains("no FRR runs here"));
    switch.tell("vtysh -c 'configure terminal' -c 'no router bgp 65000' -c exit");
    switch.refused(
        "vtysh -c 'configure terminal' -c 'router bgp 65000' -c 'neighbor Ethernet0 interface remote-as 1'",
        1,
        "bgpd is not running",
    );
    switch.refused("vtysh -c 'show bgp summary'", 1, "bgpd is not running");
    switch.refused("vtysh -c 'conf t' -c 'ipv6 route nonsense Null0'", 1, "nonsense");
    switch.refused("vtysh -c frobnicate", 1, "% Unknown command: frobnicate");
    switch.tell("vtysh -c 'configure terminal' -c 'ipv6 route 2001:db8:77::/48 2001:db8:b::2 Ethernet4'");
    assert!(leaf.inside("leaf", "ip -6 route show").contains("2001:db8:77::/48 via 2001:db8:b::2 dev Ethernet4"));
    assert!(
        switch
            .ask("vtysh -c 'show running-config'")
            .contains("\nipv6 route 2001:db8:77::/48 2001:db8:b::2 Ethernet4\n")
    );
    switch.tell("vtysh -c 'configure terminal' -c 'no ipv6 route 2001:db8:77::/48 2001:db8:b::2 Ethernet4'");
    assert!(!leaf.inside("leaf", "ip -6 route show").contains("2001:db8:77::/48"));
    let file = "\
router bgp 65001
 neighbor Ethernet0 interface remote-as 65000
!
segment-routing
 srv6
  static-sids
   sid fcbb:bbbb:1:d006::/64 locator MAIN behavior uDT6 vrf Vrf-green
";
    leaf.write("/tmp/frr.conf", file);
    for _ in 0..2 {
        assert_eq!(switch.ask("vtysh -f tmp/frr.conf"), "bgpd is not running\n");
    }
    assert_eq!(switch.ask("vtysh -c 'show running-config'").matches("d006").count(), 1, "loaded twice is there once");
    switch.ask("vtysh -c 'write memory'");
    assert!(fs::read_to_string(leaf.root.join("etc/sonic/frr/frr.conf")).unwrap().contains("d006"));
    assert!(switch.ask("show srv6 static-sids").contains("fcbb:bbbb:1:d006::/64"));
    assert!(
        switch
            .ask("vtysh -c 'show segment-routing srv6 locator'")
            .contains("\nMAIN                       1 fcbb:bbbb:1::/48         Up\n")
    );
    // The real vtysh is called on a node on which FRR runs.
    leaf.write("/run/frr/zebra.vty", "");
    leaf.write("/usr/bin/vtysh", "#!/bin/sh\necho \"the real one: $*\"\n");
    fs::set_permissions(leaf.root.join("usr/bin/vtysh"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(switch.ask("vtysh -c 'show bgp summary'"), "the real one: -c show bgp summary\n");
    assert_eq!(switch.ask("show ip route vrf Vrf-green"), ":\nthe real one: -c show ip route vrf Vrf-green\n");
    leaf.write("/usr/bin/vtysh", "#!/bin/sh\necho '{\"3fff::/64\":[{\"protocol\":\"bgp\",\"distance\":20,\"metric\":0,\"selected\":true,\"installed\":true,\"uptime\":\"00:00:09\",\"nexthops\":[{\"fib\":true,\"active\":true,\"ip\":\"fe80::1\",\"interfaceName\":\"Ethernet0\"}]}]}'\n");
    let routes = switch.ask("show ipv6 route");
    assert_eq!(routes.lines().last(), Some("B>*3fff::/64 [20/0] via fe80::1, Ethernet0, 00:00:09"));
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn words_of_sonic_that_mean_nothing_here_say_so() {
    let switch = Switch::new();
    for (line, why) in [
        ("show lldp table", "no LLDP daemon runs here"),
        ("show processes cpu", "`top`"),
        ("show int portchannel", "no PortChannels"),
        ("show queue counters", "no queues of its own"),
        ("show interfaces counters rif", "by port and by SID"),
        ("config apply-patch patch.json", "config load FILE -y"),
        ("config vlan proxy_arp 10 enabled", "no VLANs of a bridge"),
        ("show ipv6 bgp sum", "bgpd is not running"),
    ] {
        let said = switch.say(line);
        assert_eq!(said.status, Some(1), "{line}: {}{}", said.out, said.err);
        assert!(said.err.contains(why), "{line}: {}", said.err);
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_running_configuration_of_vtysh_has_what_the_database_was_given() {
    let switch = Switch::new();
    switch.ask("sonic-db-cli CONFIG_DB HSET 'SRV6_MY_LOCATORS|loc9' prefix fcbb:bbbb:9:: func_len 0");
    switch.ask("sonic-db-cli CONFIG_DB HSET 'SRV6_MY_SIDS|loc9|fcbb:bbbb:9::/48' action uN decap_dscp_mode pipe");
    let shown = switch.ask("vtysh -c 'show running-config'");
    assert!(shown.contains("   locator loc9\n    prefix fcbb:bbbb:9::/48 block-len 32"), "{shown}");
    assert!(shown.contains("   sid fcbb:bbbb:9::/48 locator loc9 behavior uN\n"), "{shown}");
}
