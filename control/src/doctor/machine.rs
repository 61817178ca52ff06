//! Checks kernel, privileges, memory and cores.

use srv6d_xsk::probe::Machine;

use super::{Finding, Plans, TcEngine, cpu_list, text};

const MACHINE: &str = "machine";

/// Facts about the machine that the packet path's own probe does not read.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Number of cores that this process may run on.
    pub cores: usize,
    /// Value of `net.ipv4.conf.all.rp_filter`.
    pub rp_filter: Option<String>,
    /// Value of `net.ipv6.conf.all.disable_ipv6`.
    pub ipv6_disabled: Option<String>,
    /// Number of reserved huge pages.
    pub hugepages: Option<String>,
    /// Cores on which the scheduler places nothing by itself (`isolcpus=`). `None` if the kernel does not tell.
    pub isolated: Option<Vec<usize>>,
    /// Whether the process is in a user namespace of its own.
    pub in_user_namespace: bool,
    /// Cores whose frequency follows the load slowly (governor `powersave`).
    pub slow: Vec<usize>,
}

impl Host {
    /// Reads the facts from /proc.
    pub fn read() -> Self {
        Self {
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            rp_filter: text("/proc/sys/net/ipv4/conf/all/rp_filter"),
            ipv6_disabled: text("/proc/sys/net/ipv6/conf/all/disable_ipv6"),
            hugepages: text("/proc/sys/vm/nr_hugepages"),
            isolated: text("/sys/devices/system/cpu/isolated").map(|list| cpu_list(&list)),
            in_user_namespace: srv6d_xsk::probe::in_user_namespace(),
            slow: slow_cores(),
        }
    }
}

fn slow_cores() -> Vec<usize> {
    let present = text("/sys/devices/system/cpu/present").map(|list| cpu_list(&list)).unwrap_or_default();
    let governor = |core: &usize| text(&format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor"));
    present.into_iter().filter(|core| governor(core).as_deref() == Some("powersave")).collect()
}

pub fn judge(machine: &Machine, host: &Host, plans: &Plans) -> Vec<Finding> {
    let mut findings = vec![kernel(&machine.kernel), xdp_sockets(machine)];
    findings.extend(host_engine(&machine.kernel, plans));
    findings.extend(user_namespace(host));
    findings.extend(capabilities(machine));
    findings.push(memlock(machine, plans));
    findings.extend(barriers(machine));
    findings.push(jit(machine));
    findings.push(cores(host, plans));
    findings.extend(isolation(host, plans));
    findings.extend(frequency(host, plans));
    findings.extend(ipv6(host));
    findings.extend(rp_filter(host));
    findings.push(Finding::ok(
        MACHINE,
        "seg6 sysctls",
        "not needed: claimed packets never reach the kernel's seg6 code",
    ));
    findings.push(Finding::ok(
        MACHINE,
        "huge pages",
        format!("{} reserved; not needed, copy mode gains nothing from them", host.hugepages.as_deref().unwrap_or("0")),
    ));
    findings
}

/// Checks whether the tc program can encapsulate what local applications send, if it is to.
fn host_engine(release: &str, plans: &Plans) -> Option<Finding> {
    const CHECK: &str = "host engine";
    let worker = |why: &str| format!("workers encapsulate what local applications send: {why}");
    Some(match &plans.tc {
        TcEngine::NotAsked => return None,
        TcEngine::Refused(why) => Finding::warn(
            MACHINE,
            CHECK,
            worker(why),
            "end the capture; if the kernel has refused the program, remove the reason and reload with engine = \"worker\" and back",
        ),
        TcEngine::InForce => Finding::ok(MACHINE, CHECK, "the tc program encapsulates what local applications send"),
        TcEngine::Planned if srv6d_daemon::kernel_release::version(release) < (6, 6) => {
            Finding::ok(MACHINE, CHECK, format!("tc, by filters of clsact: {release} has no tcx"))
        }
        TcEngine::Planned => Finding::ok(MACHINE, CHECK, "tc: the kernel has tcx"),
    })
}

/// Checks the kernel's version. Linux 5.9 introduced the XDP `bpf_link`, 6.6 AF_XDP multi-buffer.
fn kernel(release: &str) -> Finding {
    let version = srv6d_daemon::kernel_release::version(release);
    if version < (5, 9) {
        let fix = "install Linux 5.9 or newer (6.6 for jumbo frames)";
        Finding::fail(MACHINE, "kernel", format!("{release} has no bpf_link for XDP: a port would outlive srv6d"), fix)
    } else if version < (6, 6) {
        let found = format!("{release} has no AF_XDP multi-buffer: frames above 3.5 kB cannot be forwarded");
        Finding::warn(MACHINE, "kernel", found, "keep MTUs at 3506 or less, or install Linux 6.6 or newer")
    } else {
        Finding::ok(MACHINE, "kernel", release)
    }
}

fn xdp_sockets(machine: &Machine) -> Finding {
    let check = "AF_XDP sockets";
    match machine.xdp_sockets {
        Some(true) => Finding::ok(MACHINE, check, "available"),
        Some(false) => Finding::fail(
            MACHINE,
            check,
            "the kernel has none",
            "run a kernel built with CONFIG_XDP_SOCKETS=y and CONFIG_BPF_SYSCALL=y (every distribution kernel since 2019)",
        ),
        None => Finding::warn(
            MACHINE,
            check,
            "could not be tried without CAP_NET_RAW",
            "run doctor as root, or as srv6d runs",
        ),
    }
}

/// Checks whether the capabilities count: the kernel asks for those of the initial user namespace before it loads a program.
fn user_namespace(host: &Host) -> Option<Finding> {
    let fix = "run srv6d in the initial user namespace: as root of the machine, or in a container that is not rootless";
    host.in_user_namespace.then(|| {
        Finding::fail(MACHINE, "user namespace", "the kernel loads no XDP program for a process in one of its own", fix)
    })
}

fn capabilities(machine: &Machine) -> Vec<Finding> {
    let needed = machine.capabilities.iter().map(|capability| capability.name).collect::<Vec<_>>().join(",");
    let judge = |capability: &srv6d_xsk::probe::Capability| {
        if capability.held {
            return Finding::ok(MACHINE, capability.name, "held");
        }
        let fix = format!(
            "run as root, or give it: `AmbientCapabilities={0}` in the unit, `setcap {1}+ep` on the binary (all that it \
             needs at once: setcap replaces what was there), `--cap-add {2}` for a container",
            capability.name,
            needed.to_lowercase(),
            capability.name.trim_start_matches("CAP_"),
        );
        Finding::fail(MACHINE, capability.name, format!("missing: it is needed to {}", capability.what_for), fix)
    };
    machine.capabilities.iter().map(judge).collect()
}

/// Checks the limit of locked memory. UMEM pages are pinned and count against `RLIMIT_MEMLOCK`.
fn memlock(machine: &Machine, plans: &Plans) -> Finding {
    let workers = plans.cores.len().max(1) as u64;
    let needed = plans.umem_bytes * workers;
    let need = format!("{} MiB for {workers} worker(s)", needed.div_ceil(1 << 20));
    match machine.memlock {
        None => Finding::ok(MACHINE, "locked memory", format!("unlimited, {need} needed")),
        Some(_) if machine.memlock_exempt => {
            Finding::ok(MACHINE, "locked memory", format!("CAP_IPC_LOCK lifts the limit, {need} needed"))
        }
        Some(limit) if limit >= needed => {
            Finding::ok(MACHINE, "locked memory", format!("{} MiB allowed, {need} needed", limit >> 20))
        }
        Some(limit) => Finding::fail(
            MACHINE,
            "locked memory",
            format!("{} KiB allowed, {need} needed", limit >> 10),
            "`LimitMEMLOCK=infinity` in the unit, `ulimit -l unlimited` in a shell, or fewer [workers] frames",
        ),
    }
}

/// Checks whether the verifier takes the programs as they are. It takes none without `CAP_BPF`, which is another finding.
fn barriers(machine: &Machine) -> Option<Finding> {
    const CHECK: &str = "CAP_PERFMON";
    if machine.capabilities.iter().any(|capability| !capability.held) {
        return None;
    }
    Some(if machine.speculation_barriers {
        Finding::warn(
            MACHINE,
            CHECK,
            "missing: the kernel puts barriers against speculation into the XDP and tc programs, which then take two to four \
             times as long",
            "run as root, or give it: `AmbientCapabilities=CAP_PERFMON` in the unit, `setcap \
             cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon+ep` on the binary, `--cap-add PERFMON` for a container",
        )
    } else {
        Finding::ok(MACHINE, CHECK, "held")
    })
}

fn jit(machine: &Machine) -> Finding {
    match machine.jit {
        Some(false) => Finding::warn(
            MACHINE,
            "BPF JIT",
            "off: the XDP program is interpreted for every packet",
            "sysctl -w net.core.bpf_jit_enable=1",
        ),
        Some(true) => Finding::ok(MACHINE, "BPF JIT", "on"),
        // A kernel with CONFIG_BPF_JIT_ALWAYS_ON has no switch that could be read.
        None => Finding::ok(MACHINE, "BPF JIT", "cannot be read here"),
    }
}

fn cores(host: &Host, plans: &Plans) -> Finding {
    let workers = plans.cores.len().max(1);
    let found = format!("{} usable, {workers} worker(s)", host.cores);
    if plans.busy && workers >= host.cores {
        let fix = "polling = \"adaptive\", or leave a core to the kernel's receive path and the control thread";
        return Finding::warn(MACHINE, "cores", format!("{found} that spin on all of them"), fix);
    }
    if host.cores == 1 {
        let fix = "give it a second core: on a veth, sender, kernel and worker otherwise take turns";
        return Finding::warn(MACHINE, "cores", found, fix);
    }
    Finding::ok(MACHINE, "cores", found)
}

/// Checks that nobody else runs on the cores of workers that spin.
fn isolation(host: &Host, plans: &Plans) -> Option<Finding> {
    let (isolated, check) =
        (host.isolated.as_ref().filter(|_| plans.busy && !plans.cores.is_empty())?, "isolated cores");
    let shared = numbers(plans.cores.iter().filter(|core| !isolated.contains(core)));
    if shared.is_empty() {
        return Some(Finding::ok(MACHINE, check, "the scheduler places nothing else on the cores of the workers"));
    }
    Some(Finding::warn(
        MACHINE,
        check,
        format!("other threads may run on core {shared}, where a worker spins: packets wait meanwhile"),
        format!("boot with isolcpus={shared} nohz_full={shared} rcu_nocbs={shared}"),
    ))
}

/// Checks that the cores of workers do not run slowly when a burst arrives.
fn frequency(host: &Host, plans: &Plans) -> Option<Finding> {
    let slow = numbers(plans.cores.iter().filter(|core| host.slow.contains(core)));
    (!slow.is_empty()).then(|| {
        Finding::warn(
            MACHINE,
            "frequency",
            format!("core {slow} of a worker has the governor powersave: it may be slow when a burst arrives"),
            format!("cpupower -c {slow} frequency-set -g performance"),
        )
    })
}

fn numbers<'c>(cores: impl Iterator<Item = &'c usize>) -> String {
    cores.map(usize::to_string).collect::<Vec<_>>().join(",")
}

fn ipv6(host: &Host) -> Option<Finding> {
    (host.ipv6_disabled.as_deref() != Some("0")).then(|| {
        Finding::fail(
            MACHINE,
            "IPv6",
            "disabled: next hops of the fabric cannot resolve",
            "sysctl -w net.ipv6.conf.all.disable_ipv6=0 (and boot without ipv6.disable=1)",
        )
    })
}

/// Checks `rp_filter`. The kernel uses the stricter of `all` and the interface's own value: 1 is strict (RFC 3704), 2
/// is loose.
fn rp_filter(host: &Host) -> Option<Finding> {
    (host.rp_filter.as_deref() == Some("1")).then(|| {
        Finding::warn(
            MACHINE,
            "rp_filter",
            "strict: the kernel drops decapsulated IPv4 packets whose way back is not srv6d's own interface",
            "sysctl -w net.ipv4.conf.all.rp_filter=2",
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "a test stops at the first surprise")]
    use srv6d_xsk::probe::Capability;

    use super::super::Severity;
    use super::*;

    fn healthy() -> (Machine, Host, Plans) {
        let capability = |name| Capability { name, what_for: "test", held: true };
        let machine = Machine {
            kernel: "6.12.1-amd64".into(),
            capabilities: vec![capability("CAP_NET_ADMIN"), capability("CAP_NET_RAW"), capability("CAP_BPF")],
            memlock: None,
            memlock_exempt: false,
            xdp_sockets: Some(true),
            speculation_barriers: false,
            jit: Some(true),
        };
        let host = Host {
            in_user_namespace: false,
            cores: 4,
            rp_filter: Some("0".into()),
            ipv6_disabled: Some("0".into()),
            hugepages: Some("0".into()),
            isolated: None,
            slow: Vec::new(),
        };
        (machine, host, Plans { umem_bytes: 32 << 20, ..Plans::default() })
    }

    fn not_ok((machine, host, plans): &(Machine, Host, Plans)) -> Vec<(&'static str, Severity)> {
        let findings = judge(machine, host, plans);
        assert!(findings.iter().all(|finding| (finding.verdict == Severity::Ok) == finding.fix.is_none()));
        findings.iter().filter(|f| f.verdict != Severity::Ok).map(|f| (f.check, f.verdict)).collect()
    }

    #[test]
    fn healthy_machine_has_nothing_to_fix() {
        assert_eq!(not_ok(&healthy()), []);
    }

    #[test]
    fn the_tc_program_says_how_it_is_attached_and_what_keeps_it_away() {
        let found = |release, tc| {
            let finding = host_engine(release, &Plans { tc, ..Plans::default() });
            finding.map(|finding| (finding.verdict, finding.found))
        };
        let is = |found: Option<(Severity, String)>, wanted: Severity, says: &str| {
            found.is_some_and(|(verdict, found)| verdict == wanted && found.contains(says))
        };
        assert_eq!(found("6.5.0", TcEngine::NotAsked), None);
        assert!(is(found("6.5.0", TcEngine::Planned), Severity::Ok, "clsact: 6.5.0 has no tcx"));
        assert!(is(found("6.6.0", TcEngine::Planned), Severity::Ok, "tcx"));
        let refused = TcEngine::Refused("a capture is open".to_owned());
        assert!(is(found("6.6.0", refused), Severity::Warn, "a capture"));
        assert!(is(found("6.6.0", TcEngine::InForce), Severity::Ok, "encapsulates"));
    }

    #[test]
    fn kernel_versions() {
        let verdict = |release| kernel(release).verdict;
        assert_eq!(verdict("5.4.0-150-generic"), Severity::Fail);
        assert_eq!(verdict("5.9.0"), Severity::Warn);
        assert_eq!(verdict("6.1.0-18-amd64"), Severity::Warn);
        assert_eq!(verdict("6.6.0"), Severity::Ok);
        assert_eq!(verdict("10.0"), Severity::Ok);
    }

    #[test]
    fn each_trouble_is_named() {
        type Break = fn(&mut (Machine, Host, Plans));
        let cases: [(Break, &str, Severity); 10] = [
            (|(m, ..)| m.xdp_sockets = Some(false), "AF_XDP sockets", Severity::Fail),
            (|(m, ..)| m.xdp_sockets = None, "AF_XDP sockets", Severity::Warn),
            (|(m, ..)| m.capabilities[1].held = false, "CAP_NET_RAW", Severity::Fail),
            (|(m, ..)| m.memlock = Some(8 << 20), "locked memory", Severity::Fail),
            (|(m, ..)| m.speculation_barriers = true, "CAP_PERFMON", Severity::Warn),
            (|(m, ..)| m.jit = Some(false), "BPF JIT", Severity::Warn),
            (|(_, h, _)| h.cores = 1, "cores", Severity::Warn),
            (|(_, h, _)| h.ipv6_disabled = None, "IPv6", Severity::Fail),
            (|(_, h, _)| h.rp_filter = Some("1".into()), "rp_filter", Severity::Warn),
            (
                |(_, _, p)| {
                    p.busy = true;
                    p.cores = vec![0, 1, 2, 3];
                },
                "cores",
                Severity::Warn,
            ),
        ];
        for (break_it, check, verdict) in cases {
            let mut facts = healthy();
            break_it(&mut facts);
            assert_eq!(not_ok(&facts), [(check, verdict)]);
        }
    }

    #[test]
    fn cores_of_workers_are_their_own_and_fast() {
        let mut facts = healthy();
        facts.1.isolated = Some(vec![2]);
        facts.2.cores = vec![2, 3];
        assert_eq!(not_ok(&facts), [], "workers that sleep share");
        facts.2.busy = true;
        assert_eq!(not_ok(&facts), [("isolated cores", Severity::Warn)]);
        facts.1.isolated = Some(vec![2, 3]);
        assert_eq!(not_ok(&facts), []);
        facts.1.slow = vec![0, 3];
        assert_eq!(not_ok(&facts), [("frequency", Severity::Warn)]);
    }

    #[test]
    fn memlock_counts_every_worker_and_spares_the_exempt() {
        let (mut machine, _, mut plans) = healthy();
        machine.memlock = Some(64 << 20);
        plans.cores = vec![1, 2];
        assert_eq!(memlock(&machine, &plans).verdict, Severity::Ok);
        plans.cores.push(3);
        assert_eq!(memlock(&machine, &plans).verdict, Severity::Fail);
        machine.memlock_exempt = true;
        assert_eq!(memlock(&machine, &plans).verdict, Severity::Ok);
    }
}
