//! Tests what a process without root needs, and what error it gets when that is missing.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a failure here is a failed test

mod netns;

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use netns::{PORT_MAC, Wire, bytes, enter, ipv6, receive, until, veth};
use srv6d_xsk::{Mode, Program, ProgramSettings, Rings, Socket, Umem, XskError, device_features, probe};

const FRAMES: u32 = 1024; // 4 MiB
/// A sufficient amount of locked memory that any root may set: Debian's default.
const ENOUGH_KIB: u32 = 8 << 10;

/// This is no test of its own: [`run`] runs it as another user. It prints one line.
#[test]
#[ignore = "needs root"]
fn child_with_few_capabilities() {
    if std::env::var_os("SRV6D_XSK_CHILD").is_none() {
        return;
    }
    match forwards_one_packet() {
        Ok(()) => println!("\nRESULT forwarded"),
        Err(why) => println!("\nRESULT {why}"),
    }
    let missing: Vec<_> = probe::machine().capabilities.iter().filter(|c| !c.held).map(|c| c.name).collect();
    println!("MISSING {}", missing.join(" "));
}

fn forwards_one_packet() -> Result<(), XskError> {
    let settings = ProgramSettings { untagged: true, ..ProgramSettings::default() };
    let mut umem = Umem::new(FRAMES)?;
    let mut program = Program::attach("port", Mode::Auto, &settings)?;
    let mut socket = Socket::open(&umem, "port", 0, Mode::Auto, Rings::default())?;
    socket.rx_burst(&mut umem, 0, &mut Vec::new());
    program.set_claims(&[("fcbb:0:1000::".parse().unwrap(), 48, true)], &[("10.0.0.0".parse().unwrap(), 8, true)])?;
    program.set_socket(0, &socket)?;
    device_features::set_tx_checksum_off("port")?;
    let wire = Wire::open("peer");
    let packet = ipv6(PORT_MAC, "fcbb:0:1000::1", 100, 0);
    wire.send(&packet);
    let frame = receive(&mut umem, &mut socket);
    assert_eq!(bytes(&umem, &frame), packet);
    socket.tx(frame).unwrap();
    socket.flush(&mut umem);
    assert_eq!(until("the packet back", || wire.next()), packet);
    Ok(())
}

/// Runs the child as an ordinary user with these capabilities and this limit of locked memory (KiB). Returns its two
/// lines.
fn run(capabilities: &[&str], memlock_kib: u32) -> (String, String) {
    // Each run has a user of its own, because locked memory is counted per user.
    static NEXT_USER: AtomicU32 = AtomicU32::new(61_000);

    let user = NEXT_USER.fetch_add(1, Relaxed);
    enter();
    veth("port", "peer", 1500, 1);
    let plus: Vec<String> = capabilities.iter().map(|cap| format!("+{cap}")).collect();
    let caps = format!("-all,{}", plus.join(","));
    let caps = caps.trim_end_matches(',');
    let limit = u64::from(memlock_kib) << 10;
    // Makes a copy that the user can read, wherever the build directory is.
    let copy = std::env::temp_dir().join(format!("srv6d-{}-privileges-{user}", std::process::id()));
    // A process of its own makes the copy. If this process had the copy open for writing, a child that another test is
    // starting at that moment would inherit the descriptor, and the copy could not be executed (ETXTBSY) until that
    // child has called exec.
    assert!(Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&copy).status().unwrap().success());
    let out = Command::new("prlimit")
        .arg(format!("--memlock={limit}:{limit}"))
        .args(["setpriv", "--clear-groups"])
        .args([format!("--reuid={user}"), format!("--regid={user}")])
        .args([format!("--inh-caps={caps}"), format!("--ambient-caps={caps}"), format!("--bounding-set={caps}")])
        .arg(&copy)
        .args(["--exact", "child_with_few_capabilities", "--ignored", "--nocapture"])
        .env("SRV6D_XSK_CHILD", "1")
        .env_remove("RUST_BACKTRACE")
        .output();
    std::fs::remove_file(&copy).unwrap();
    let out = out.unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let line = |word: &str| said.lines().find_map(|line| line.strip_prefix(word)).map(str::to_owned);
    match (line("RESULT "), line("MISSING ")) {
        (Some(result), Some(missing)) => (result, missing),
        _ => panic!("the child said: {said}\n{}", String::from_utf8_lossy(&out.stderr)),
    }
}

#[test]
#[ignore = "needs root"]
fn three_capabilities_and_locked_memory_are_enough() {
    let (result, missing) = run(&["net_admin", "net_raw", "bpf"], ENOUGH_KIB);
    assert_eq!((result.as_str(), missing.as_str()), ("forwarded", ""));
}

#[test]
#[ignore = "needs root"]
fn ipc_lock_stands_in_for_the_limit_of_locked_memory() {
    let (result, _) = run(&["net_admin", "net_raw", "bpf", "ipc_lock"], 64);
    assert_eq!(result, "forwarded");
}

#[test]
#[ignore = "needs root"]
fn too_little_locked_memory_is_named() {
    let (result, _) = run(&["net_admin", "net_raw", "bpf"], 1 << 10);
    assert!(result.contains("UMEM") && result.contains("LimitMEMLOCK"), "{result}");
}

#[test]
#[ignore = "needs root"]
fn no_net_raw_is_named() {
    let (result, missing) = run(&["net_admin", "bpf"], ENOUGH_KIB);
    assert!(result.contains("CAP_NET_RAW"), "{result}");
    assert_eq!(missing, "CAP_NET_RAW");
}

#[test]
#[ignore = "needs root"]
fn no_bpf_is_named() {
    let (result, missing) = run(&["net_admin", "net_raw"], ENOUGH_KIB);
    assert!(result.contains("CAP_BPF"), "{result}");
    assert_eq!(missing, "CAP_BPF");
}

#[test]
#[ignore = "needs root"]
fn no_net_admin_is_named() {
    let (result, missing) = run(&["net_raw", "bpf"], ENOUGH_KIB);
    assert!(result.contains("CAP_NET_ADMIN"), "{result}");
    assert_eq!(missing, "CAP_NET_ADMIN");
}

#[test]
#[ignore = "needs root"]
fn no_capability_at_all_is_named() {
    let (result, missing) = run(&[], ENOUGH_KIB);
    assert!(result.contains("CAP_NET_RAW"), "{result}");
    assert_eq!(missing, "CAP_NET_ADMIN CAP_NET_RAW CAP_BPF");
}
