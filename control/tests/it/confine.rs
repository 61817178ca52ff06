//! Tests with a confined process that tries what it can no longer do, and with a confined daemon that continues its
//! work.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use crate::support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, sched_getaffinity, sched_setaffinity, setns, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use nix::unistd::{Pid, Uid, chown, chroot, getppid, sethostname, setuid};
use srv6d_daemon::confine::{OF_THE_DAEMON, SETTINGS, confine, only_change_below, refuse_local_streams};
use support::rig::{CONFIG, Rig, must, text, wait_for};

/// Variable that is set for the process that tries. Its value is whether the process confines itself first.
const CHILD: &str = "SRV6D_CONFINE_CHILD";

fn made(family: AddressFamily, of_type: SockType, protocol: impl Into<Option<SockProtocol>>) -> Result<(), Errno> {
    socket(family, of_type, SockFlag::empty(), protocol).map(drop)
}

/// Returns the error number of the system call behind an error of the crate `region`.
fn number(error: &region::Error) -> Errno {
    match error {
        region::Error::SystemCall(number) => Errno::from_raw(*number),
        _ => Errno::UnknownErrno,
    }
}

/// Tries everything in a harmless way: each success leaves the machine unchanged.
fn attempts(scratch: &str) -> Vec<(&'static str, Result<(), Errno>)> {
    let ran = |result: std::io::Result<_>| match result {
        Ok(()) => Ok(()),
        Err(why) => Err(why.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw)),
    };
    let mounted = || {
        mount(Some("none"), scratch, Some("tmpfs"), MsFlags::empty(), None::<&str>)?;
        umount2(scratch, MntFlags::MNT_DETACH)
    };
    let written = memmap2::MmapMut::map_anon(1).unwrap();
    let both = region::alloc(1, region::Protection::READ_WRITE_EXECUTE).map(drop);
    let name = nix::unistd::gethostname().unwrap();
    let namespace = fs::File::open("/proc/thread-self/ns/net").unwrap();
    vec![
        ("execve", ran(Command::new("true").status().map(drop))),
        ("execute written memory", ran(written.make_exec().map(drop))),
        ("memory to be written and executed", both.map_err(|error| number(&error))),
        ("unshare mount", unshare(CloneFlags::CLONE_NEWNS)),
        ("mount", mounted()),
        ("setns", setns(&namespace, CloneFlags::CLONE_NEWNET)),
        ("chroot", chroot("/")),
        ("sethostname", sethostname(&name)),
        ("setuid", setuid(Uid::from_raw(0))),
        ("chown", chown(scratch, Some(Uid::from_raw(1)), None)),
        ("kill", nix::sys::signal::kill(getppid(), None)),
        // Beside the commands that a daemon needs, fcntl(2) has some that send signals to any process of the user.
        ("other commands of fcntl", fcntl(&nix::unistd::pipe().unwrap().0, FcntlArg::F_GETPIPE_SZ).map(drop)),
        ("sched_setaffinity of another", sched_setaffinity(getppid(), &sched_getaffinity(getppid()).unwrap())),
        ("packet socket", made(AddressFamily::Packet, SockType::Raw, None)),
        ("raw IP socket", made(AddressFamily::Inet6, SockType::Raw, SockProtocol::Raw)),
        ("netlink to the firewall", made(AddressFamily::Netlink, SockType::Raw, SockProtocol::NetlinkNetFilter)),
        ("Unix stream", made(AddressFamily::Unix, SockType::Stream, None)),
        ("Unix messages in order", made(AddressFamily::Unix, SockType::SeqPacket, None)),
        (
            "init_module",
            nix::kmod::init_module(b"no module", c"")
                .or_else(|why| if why == Errno::ENOEXEC { Ok(()) } else { Err(why) }),
        ),
        // No process has this number, so a process that may trace gets ESRCH.
        (
            "ptrace",
            nix::sys::ptrace::attach(Pid::from_raw(0))
                .or_else(|why| if why == Errno::ESRCH { Ok(()) } else { Err(why) }),
        ),
    ]
}

/// This is not a test, but what [`tried`] runs. It prints a line for each attempt.
#[test]
#[ignore = "needs root"]
fn child_that_tries() {
    let Ok(how) = std::env::var(CHILD) else { return };
    let scratch = std::env::temp_dir().join(format!("srv6d-confine-{}", std::process::id()));
    fs::create_dir_all(&scratch).unwrap();
    if how == "confined" {
        assert_eq!(confine(&OF_THE_DAEMON), Vec::<String>::new());
        assert_eq!(refuse_local_streams(), None);
    }
    for (what, done) in attempts(scratch.to_str().unwrap()) {
        println!("\nTRIED {what}: {}", done.err().map_or("done".to_owned(), |why| format!("{why:?}")));
    }
    // A thread and a file must still be possible.
    let again = std::thread::spawn(|| fs::read_to_string("/proc/self/status").is_ok()).join().unwrap();
    println!("\nTRIED thread and file: {}", if again { "done" } else { "failed" });
}

fn tried(how: &str) -> BTreeMap<String, String> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "confine::child_that_tries", "--ignored", "--nocapture"])
        .env(CHILD, how)
        .output()
        .unwrap();
    let said = text(&output.stdout);
    let lines = said.lines().filter_map(|line| line.strip_prefix("TRIED ")?.split_once(": "));
    let tried: BTreeMap<String, String> = lines.map(|(what, how)| (what.to_owned(), how.to_owned())).collect();
    assert!(tried.len() > 10, "{said}\n{}", text(&output.stderr));
    tried
}

#[test]
#[ignore = "needs root"]
fn what_is_given_up_cannot_be_done_any_more() {
    let (free, confined) = (tried("free"), tried("confined"));
    for (what, done) in &free {
        // A kernel without module support refuses modules even for unconfined processes.
        assert!(done == "done" || what == "init_module", "{what}, unconfined: {done}");
    }
    for (what, done) in &confined {
        let refused = matches!(done.as_str(), "EPERM" | "ENOSYS");
        assert_eq!(refused, what != "thread and file", "{what}, confined: {done}");
    }
}

/// This is not a test of its own: the next test runs it. It prints what can be changed.
#[test]
#[ignore = "needs root"]
fn child_that_changes_files() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let scratch = std::env::temp_dir().join(format!("srv6d-landlock-{}", std::process::id()));
    let (own, other) = (scratch.join("own"), scratch.join("other"));
    for directory in [&own, &other] {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join("old"), "before").unwrap();
    }
    let changed: Vec<PathBuf> = SETTINGS.iter().map(PathBuf::from).chain([own.clone()]).collect();
    if !only_change_below(&changed).unwrap() {
        return println!("\nTRIED SKIPPED: this kernel has no Landlock");
    }
    let elsewhere = std::thread::spawn(move || {
        let refused =
            |result: std::io::Result<()>| result.err().is_some_and(|why| why.raw_os_error() == Some(libc::EACCES));
        assert!(refused(fs::write(other.join("new"), "after")), "a new file");
        assert!(refused(fs::write(other.join("old"), "after")), "a file that is there");
        assert!(refused(fs::remove_file(other.join("old"))), "and its removal");
        assert!(refused(fs::rename(own.join("old"), other.join("moved"))), "out of the own directory");
        assert!(refused(Command::new("/bin/true").status().map(drop)), "a program");
        assert_eq!(fs::read_to_string(other.join("old")).unwrap(), "before");
        for setting in ["kernel/core_pattern", "kernel/hostname", "net/ipv4/ip_forward", "vm/overcommit_memory"] {
            let opened = fs::File::options().write(true).open(Path::new("/proc/sys").join(setting));
            assert!(refused(opened.map(drop)), "{setting}");
        }
        for setting in ["ipv4/conf/lo/rp_filter", "ipv6/conf/lo/accept_ra"] {
            fs::File::options().write(true).open(Path::new("/proc/sys/net").join(setting)).unwrap();
        }
        fs::write(own.join("new"), "after").unwrap();
        std::os::unix::net::UnixListener::bind(own.join("socket")).unwrap();
        fs::rename(own.join("new"), own.join("old")).unwrap();
    });
    println!("\nTRIED files: {}", if elsewhere.join().is_ok() { "done" } else { "failed" });
}

#[test]
#[ignore = "needs root"]
fn files_are_changed_in_the_own_directories_only() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "confine::child_that_changes_files", "--ignored", "--nocapture"])
        .env(CHILD, "files")
        .output()
        .unwrap();
    let said = text(&output.stdout);
    for left in fs::read_dir(std::env::temp_dir()).unwrap().flatten() {
        if left.file_name().to_string_lossy().starts_with("srv6d-landlock-") {
            let _ = fs::remove_dir_all(left.path());
        }
    }
    if said.contains("TRIED SKIPPED") {
        return println!("SKIPPED: this kernel has no Landlock");
    }
    assert!(said.contains("TRIED files: done"), "{said}\n{}", text(&output.stderr));
}

/// Capabilities by their numbers in capabilities(7).
const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;
const BPF: u64 = 1 << 39;
/// With it the verifier puts no barriers into programs.
const PERFMON: u64 = 1 << 38;

/// Returns the statuses of all threads of a process, once none waits for a grace period: such a thread lives for some ten
/// milliseconds, and may have been started before the process gave up its last capability.
fn statuses(pid: u32) -> Vec<String> {
    wait_for("the end of a grace period", || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let statuses: Vec<String> =
            tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok()).collect();
        let waits = |status: &String| status.lines().next().is_some_and(|name| name.ends_with("srv6d-grace"));
        (!statuses.iter().any(waits)).then_some(statuses)
    })
}

/// Checks that every thread of a process has at most these capabilities, `NoNewPrivs`, and a filter.
fn check_confined(pid: u32, capabilities: u64) {
    for status in statuses(pid) {
        let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim().to_owned();
        let set = |key: &str| u64::from_str_radix(&field(key), 16).unwrap();
        let expected = if field("Name:").starts_with("srv6d-worker") { 0 } else { capabilities };
        assert_eq!((set("CapEff:"), set("CapPrm:"), set("CapInh:")), (expected, expected, 0), "{status}");
        assert_eq!((field("NoNewPrivs:").as_str(), field("Seccomp:").as_str()), ("1", "2"), "{status}");
    }
}

fn guards_of(pid: u32) -> Vec<u32> {
    let pids = support::rig::run(&format!("pgrep -P {pid} -x srv6-guard")).stdout;
    text(&pids).split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn scrape() -> String {
    let mut stream = TcpStream::connect("[::1]:9469").unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
#[ignore = "needs root"]
fn a_confined_daemon_does_all_its_work() {
    let config = CONFIG.replace("\"off\"", "\"[::1]:9469\"").replace("[[port]]\n", "[[port]]\noffload = \"xdp\"\n");
    let mut rig = Rig::new(1);
    let daemon = rig.ready(&config);
    let pid = rig.pid(daemon);
    check_confined(pid, NET_ADMIN | NET_RAW | BPF | PERFMON);
    assert!(!rig.log("node").contains("cannot "), "{}", rig.log("node"));
    let guards = guards_of(pid);
    assert_eq!(guards.len(), 2);
    for guard in &guards {
        check_confined(*guard, NET_ADMIN);
    }
    let shown = text(&rig.ask("node", "show process").stdout);
    assert!(
        shown.contains("CAP_BPF CAP_NET_ADMIN CAP_NET_RAW CAP_PERFMON\n") && shown.contains("seccomp       yes"),
        "{shown}"
    );
    assert!(
        rig.output(
            "router",
            &format!("{} --socket {} doctor eth1", support::rig::SRV6D, rig.socket_of("node").display())
        )
        .stdout
        .windows(10)
        .any(|window| window == b"privileges")
    );

    rig.wait_for_pings();
    let steered = "\n[[steer]]\nprefix = \"3fff::/20\"\nsegments = [\"fcbb:0:1001::\"]\nvia = \"2001:db8:b::2\"\n";
    fs::write(rig.file("node.toml"), config + steered).unwrap();
    assert!(rig.ask("node", "reload").status.success(), "{}", rig.log("node"));
    rig.inside("b", "ip link del wire");
    rig.link("b", "eth2", 1);
    wait_for("ping through a port that came later", || rig.pings().then_some(()));
    let socket = rig.socket_of("node");
    let flow = rig.flow("a");
    let captured = support::rig::run(&format!(
        "timeout 60 {} --socket {} capture eth1 | head -c 400 | wc -c",
        support::rig::SRV6D,
        socket.display()
    ));
    assert_eq!(text(&captured.stdout).trim(), "400");
    drop(flow);
    let namespace = fs::File::open(format!("/run/netns/{}", rig.ns("router"))).unwrap();
    let scraped = std::thread::spawn(move || {
        setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
        scrape()
    });
    assert!(scraped.join().unwrap().contains("srv6d_build_info"));
    check_confined(pid, NET_ADMIN | NET_RAW | BPF | PERFMON);
    rig.check_balance();

    // One guard is killed, and the other one removes the veth.
    must(&format!("kill -9 {}", guards.first().unwrap()));
    wait_for("a line about it", || rig.log("node").contains("a guard process has ended: 1 left").then_some(()));
    assert_eq!(rig.stop(daemon, "KILL"), None);
    wait_for("end of the own veth", || (!rig.exists("srv6d0")).then_some(()));
}

#[test]
#[ignore = "needs root"]
fn unconfined_keeps_what_it_was_started_with() {
    let mut rig = Rig::new(1);
    let mut command = rig.daemon("node", CONFIG);
    command.env("SRV6D_UNCONFINED", "1");
    rig.spawn(command);
    rig.wait_until_ready();
    let shown = text(&rig.ask("node", "show process").stdout);
    assert!(shown.contains("CAP_SYS_ADMIN") && shown.contains("seccomp       no"), "{shown}");
    assert!(shown.contains("fix: start it without --unconfined"), "{shown}");
    assert!(rig.log("node").contains("privileges are kept"), "{}", rig.log("node"));
}
