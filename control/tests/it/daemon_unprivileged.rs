//! Tests of the daemon without root: as an ordinary user with only the capabilities and limits of the unit file.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use support::rig::{CONFIG, Rig, SRV6D, must, wait_for};

/// Returns a new user for each test, because locked memory is counted per user.
fn new_user() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(61_400);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns the value of a key in the unit file.
fn unit(key: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/srv6d.service");
    let text = fs::read_to_string(file).unwrap();
    text.lines().find_map(|line| line.strip_prefix(&format!("{key}="))).unwrap().to_owned()
}

/// Returns a list such as `-all,+net_admin` for setpriv.
fn capabilities(list: &str) -> String {
    let names = list.split_whitespace().map(|name| format!("+{}", name.strip_prefix("CAP_").unwrap().to_lowercase()));
    ["-all".to_owned()].into_iter().chain(names).collect::<Vec<_>>().join(",")
}

/// Returns the command that has the effect of systemd's settings, to be put in front of a program. It does not set
/// LimitMEMLOCK=infinity, which root may not set everywhere (containers). The packet memory of these tests fits into
/// the usual 8 MiB.
fn as_the_unit_says(user: u32, list: &str) -> Vec<String> {
    assert_eq!(unit("NoNewPrivileges"), "yes");
    let caps = capabilities(list);
    let bounding = capabilities(&unit("CapabilityBoundingSet"));
    [
        "setpriv".to_owned(),
        "--clear-groups".to_owned(),
        "--no-new-privs".to_owned(),
        format!("--reuid={user}"),
        format!("--regid={user}"),
        format!("--inh-caps={caps}"),
        format!("--ambient-caps={caps}"),
        format!("--bounding-set={bounding}"),
    ]
    .into()
}

/// Makes a copy of the program that the user can access, wherever the build directory is, and a directory for its
/// socket.
fn within_reach(rig: &Rig, user: u32) -> PathBuf {
    let copy = rig.file("srv6d");
    // With fs::copy, a process that another test starts meanwhile would hold the copy open for writing (ETXTBSY).
    must(&format!("cp {SRV6D} {}", copy.display()));
    fs::set_permissions(&rig.directory, fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(rig.file("run"), Some(user), Some(user)).unwrap();
    copy
}

fn config() -> String {
    CONFIG.replace("frames = 2048", "frames = 1024").replace("[[port]]\n", "[[port]]\noffload = \"xdp\"\n")
}

fn start(rig: &mut Rig, user: u32, list: &str) -> usize {
    let program = within_reach(rig, user);
    let command = rig.daemon_of(&program, "node", &config(), &as_the_unit_says(user, list));
    rig.spawn(command)
}

/// Without `CAP_PERFMON` the verifier has more objections, and puts barriers into what it takes.
#[test]
#[ignore = "needs root"]
fn without_cap_perfmon_the_programs_are_taken_and_their_price_is_said() {
    let mut rig = Rig::new(1);
    let list = unit("AmbientCapabilities").replace(" CAP_PERFMON", "");
    let daemon = start(&mut rig, new_user(), &list);
    rig.wait_until_ready();
    rig.wait_for_pings();
    let ports = rig.show("ports");
    let offloaded = ports.as_array().unwrap().iter().filter(|row| row.pointer("/offload/on") == Some(&true.into()));
    assert_eq!(offloaded.count(), 3, "two ports and the own veth: {ports}");
    assert!(rig.log("node").contains("CAP_PERFMON is missing: "), "{}", rig.log("node"));
    assert_eq!(rig.stop(daemon, "TERM"), Some(0), "{}", rig.log("node"));
}

/// Docker 20.10 knows of no `CAP_BPF`, so containers have none, whatever they are given.
#[test]
#[ignore = "needs root"]
fn where_nobody_gives_cap_bpf_cap_sys_admin_does() {
    let mut rig = Rig::new(1);
    let wrapper = ["setpriv".to_owned(), "--bounding-set=-bpf".to_owned()];
    let command = rig.daemon_of(Path::new(SRV6D), "node", CONFIG, &wrapper);
    let daemon = rig.spawn(command);
    rig.wait_until_ready();
    rig.wait_for_pings();
    let status = fs::read_to_string(format!("/proc/{}/status", rig.pid(daemon))).unwrap();
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim();
    // CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_ADMIN
    assert_eq!(u64::from_str_radix(held, 16).unwrap(), 1 << 12 | 1 << 13 | 1 << 21, "{status}");
}

#[test]
#[ignore = "needs root"]
fn it_forwards_reloads_follows_ports_and_cleans_up() {
    let mut rig = Rig::new(1);
    let user = new_user();
    let daemon = start(&mut rig, user, &unit("AmbientCapabilities"));
    rig.wait_until_ready();
    let status = fs::read_to_string(format!("/proc/{}/status", rig.pid(daemon))).unwrap();
    assert!(status.lines().any(|line| line.starts_with("Uid:") && line.contains(&user.to_string())), "{status}");

    rig.wait_for_pings();
    let ports = rig.show("ports");
    let offloads = |name: &str| {
        let row = ports.as_array().unwrap().iter().find(|row| row.get("name").unwrap() == name).unwrap();
        row.pointer("/offload/on").unwrap() == true
    };
    assert!(offloads("eth1") && offloads("eth2"), "the verifier takes the program of those who are not root: {ports}");
    let (sent, received) = rig.tcp("a", "b", "[2001:db8:b::2]:7040");
    assert_eq!(sent, received);

    let steered = "\n[[steer]]\nprefix = \"3fff::/20\"\nsegments = [\"fcbb:0:1001::\"]\nvia = \"2001:db8:b::2\"\n";
    fs::write(rig.file("node.toml"), config() + steered).unwrap();
    let reloaded = rig.ask("node", "reload");
    assert!(reloaded.status.success(), "{reloaded:?}");
    let route = rig.inside("router", "ip -6 route show table all 3fff::/20");
    assert!(route.contains("dev srv6d0"), "the kernel steers into the own veth: {route}");

    rig.inside("b", "ip link del wire");
    rig.link("b", "eth2", 1);
    wait_for("ping through the new port", || rig.pings().then_some(()));
    rig.check_balance();
    assert_eq!(rig.stop(daemon, "TERM"), Some(0), "{}", rig.log("node"));
    assert!(rig.is_kernels("eth1") && rig.is_kernels("eth2") && !rig.exists("srv6d0"), "{}", rig.log("node"));
    assert!(rig.inside("router", "ip -6 route show table all 3fff::/20").is_empty());
    let log = rig.log("node");
    let warned = |line: &&str| line.contains("WARN") && !line.contains("waits");
    assert_eq!(log.lines().find(warned), None, "but for the port that was away: {log}");
}

#[test]
#[ignore = "needs root"]
fn its_guard_cleans_up_after_kill_9() {
    let mut rig = Rig::new(1);
    let user = new_user();
    let daemon = start(&mut rig, user, &unit("AmbientCapabilities"));
    rig.wait_until_ready();
    rig.inside("router", "sysctl -qw net.ipv6.conf.all.forwarding=1");
    rig.check_balance();
    assert_eq!(rig.stop(daemon, "KILL"), None);
    wait_for("end of the own veth", || (!rig.exists("srv6d0")).then_some(()));
    assert!(rig.is_kernels("eth1") && rig.is_kernels("eth2"));
    wait_for("ping through the kernel", || rig.pings().then_some(()));
}

#[test]
#[ignore = "needs root"]
fn each_capability_is_needed_and_missed_by_name() {
    let all = unit("AmbientCapabilities");
    for missing in all.split_whitespace().filter(|name| *name != "CAP_PERFMON") {
        let mut rig = Rig::new(1);
        let fewer: Vec<&str> = all.split_whitespace().filter(|name| *name != missing).collect();
        let daemon = start(&mut rig, new_user(), &fewer.join(" "));
        let code = rig.ended(daemon);
        let log = rig.log("node");
        assert_eq!(code, Some(1), "without {missing}: {log}");
        assert!(log.contains(missing), "without {missing}: {log}");
        assert!(rig.is_kernels("eth1") && !rig.exists("srv6d0"), "without {missing}");
        let processes = || must(&format!("ip netns pids {}", rig.ns("router")));
        wait_for("end of every process", || processes().is_empty().then_some(()));
    }
}
