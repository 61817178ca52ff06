//! Checks one network interface.

use std::collections::BTreeSet;
use std::fs;

use srv6d_xsk::probe::{self, Interface};

use super::{Finding, Plans, cpu_list, text};
use srv6d_daemon::kernel;

/// Largest MTU with which XDP programs without multi-buffer run (on a veth: a page, less the headroom, the end of an
/// skb, and the Ethernet header).
const ONE_BUFFER_MTU: usize = 3506;

/// Largest MTU srv6d was built for.
const MAX_MTU: usize = 9500;

/// Kernel drivers that run XDP programs themselves. All others fall back to generic mode.
const NATIVE_DRIVERS: [&str; 24] = [
    "atlantic",
    "bnxt_en",
    "dpaa2_eth",
    "ena",
    "fec",
    "gve",
    "hv_netvsc",
    "i40e",
    "iavf",
    "ice",
    "idpf",
    "igb",
    "igc",
    "ixgbe",
    "ixgbevf",
    "mana",
    "mlx4_en",
    "mlx5_core",
    "mvneta",
    "nfp",
    "stmmaceth",
    "tun",
    "veth",
    "virtio_net",
];

/// How the kernel places its own receive and transmit work for an interface.
#[derive(Clone, Debug, Default)]
pub struct KernelPlacement {
    /// Cores to which its interrupts are delivered.
    pub interrupt_cores: BTreeSet<usize>,
    /// `operstate` of the interface.
    pub operstate: Option<String>,
    /// Whether interrupts are deferred while a process polls: neither `napi_defer_hard_irqs` nor `gro_flush_timeout` is
    /// 0.
    pub defers_interrupts: bool,
    /// Feature bits of a virtio device that its driver has accepted: one character per bit, from bit 0.
    pub virtio_features: Option<String>,
    /// Number of processors that may send through the interface.
    pub processors: u32,
    /// Name of the queueing discipline for outgoing packets.
    pub qdisc: Option<String>,
}

impl KernelPlacement {
    /// Reads the placement of an interface. Cores come from the effective affinity of interrupts; virtual interfaces
    /// have none.
    pub fn read(ifname: &str) -> Self {
        let directory = format!("/sys/class/net/{ifname}/device/msi_irqs");
        let interrupts = fs::read_dir(directory).into_iter().flatten().flatten();
        let lists = interrupts.filter_map(|entry| {
            text(&format!("/proc/irq/{}/effective_affinity_list", entry.file_name().to_string_lossy()))
        });
        Self {
            interrupt_cores: lists.flat_map(|list| cpu_list(&list)).collect(),
            operstate: text(&format!("/sys/class/net/{ifname}/operstate")),
            defers_interrupts: ["napi_defer_hard_irqs", "gro_flush_timeout"]
                .iter()
                .all(|file| text(&format!("/sys/class/net/{ifname}/{file}")).is_some_and(|value| value.trim() != "0")),
            virtio_features: text(&format!("/sys/class/net/{ifname}/device/features")),
            processors: std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1)),
            qdisc: srv6d_daemon::qdisc(ifname),
        }
    }
}

pub fn judge(interface: &Interface, placement: &KernelPlacement, plans: &Plans) -> Vec<Finding> {
    let mut findings = vec![mode(interface, placement), program(interface, plans)];
    findings.extend(transmit_queues(interface, placement));
    findings.extend(qdisc(interface, placement));
    findings.push(mtu(interface));
    findings.push(queues(interface, plans));
    findings.extend(checksums(interface, plans));
    findings.extend(redirects(interface, plans));
    findings.push(segmentation(interface));
    findings.extend(shared_cores(interface, placement, plans));
    findings.extend(busy_polling(interface, placement, plans));
    findings.extend(state(interface, placement));
    findings
}

/// Feature bits of a virtio-net device (virtio 1.2, 5.1.3): offloads by which it may pass unusual packets to the
/// driver, and whether these can be switched off while it runs.
const GUEST_OFFLOADS: [usize; 7] = [1, 7, 8, 9, 10, 54, 55];
const CTRL_GUEST_OFFLOADS: usize = 2;

/// Whether the driver refuses native XDP (`virtnet_xdp_set` of `drivers/net/virtio_net.c`). It does if the device
/// passes merged packets or packets without checksum to it, and that cannot be switched off.
fn virtio_refuses_xdp(features: &str) -> bool {
    let has = |bit: &usize| features.as_bytes().get(*bit) == Some(&b'1');
    !has(&CTRL_GUEST_OFFLOADS) && GUEST_OFFLOADS.iter().any(has)
}

/// Checks the number of transmit queues. `virtio_net` sends packets that XDP redirects through queues of its own, one
/// for each processor. If there are too few, all processors share queues with a lock.
fn transmit_queues(interface: &Interface, placement: &KernelPlacement) -> Option<Finding> {
    let Interface { ifname, driver, queues, most_queues, .. } = interface;
    let needed = queues + placement.processors;
    (driver == "virtio_net" && *most_queues > 0 && needed > *most_queues).then(|| {
        Finding::warn(
            ifname,
            "transmit queues",
            format!(
                "{most_queues} queue pairs, and {queues} in use and one for each of {} processors would take {needed}: what \
                 XDP programs send through it shares a locked queue",
                placement.processors
            ),
            format!("give the device more queues (QEMU: queues={needed}), or use fewer: `ethtool -L {ifname} combined N`"),
        )
    })
}

fn qdisc(interface: &Interface, placement: &KernelPlacement) -> Option<Finding> {
    let (ifname, qdisc) = (&interface.ifname, placement.qdisc.as_ref()?);
    kernel::passed_by(qdisc).then(|| {
        Finding::warn(
            ifname,
            "qdisc",
            format!("{qdisc}: AF_XDP sends past it, so it delays, drops and shapes only what the kernel itself sends"),
            format!(
                "`emulate` of the port in srv6d.toml has rate, delay and loss; or put it on the other end of the link; `tc qdisc del dev \
                 {ifname} root` removes it"
            ),
        )
    })
}

fn mode(interface: &Interface, placement: &KernelPlacement) -> Finding {
    let Interface { ifname, driver, zero_copy, .. } = interface;
    let check = "driver";
    if driver == "virtio_net" && placement.virtio_features.as_deref().is_some_and(virtio_refuses_xdp) {
        return Finding::warn(
            ifname,
            check,
            format!(
                "{driver}: the device hands over merged packets or unfinished checksums, which cannot be turned off here, \
                 and the driver then refuses native XDP: generic mode, several times slower"
            ),
            "give the device ctrl_guest_offloads=on, or guest_csum, guest_tso4, guest_tso6, guest_ecn and guest_ufo off \
             (QEMU's -device virtio-net-pci)",
        );
    }
    if *zero_copy == Some(true) {
        return Finding::ok(ifname, check, format!("{driver}: zero-copy"));
    }
    if NATIVE_DRIVERS.contains(&driver.as_str()) {
        let why = if zero_copy.is_some() { "native copy mode, the driver has no zero-copy" } else { "native XDP" };
        return Finding::ok(ifname, check, format!("{driver}: {why}"));
    }
    Finding::warn(
        ifname,
        check,
        format!("{driver} is not known to run XDP itself: generic mode, several times slower"),
        "use a NIC with native XDP (ice, i40e, igc, ixgbe, mlx5, ena, virtio_net, ...), or accept mode = \"generic\"",
    )
}

fn program(interface: &Interface, plans: &Plans) -> Finding {
    let ifname = &interface.ifname;
    match &interface.program {
        None => Finding::ok(ifname, "XDP program", "none"),
        Some(program) if plans.own_programs.contains(&program.id) => {
            Finding::ok(ifname, "XDP program", format!("program {} of the srv6d that runs", program.id))
        }
        Some(program) => Finding::fail(
            ifname,
            "XDP program",
            format!(
                "program {} ({}) is attached, and not by a srv6d that answers: the port waits for its end",
                program.id,
                probe::program_name(program.id)
            ),
            format!(
                "stop its owner, or `ip link set dev {ifname} xdp off` (in generic mode `xdpgeneric off`); ask a running srv6d with --socket"
            ),
        ),
    }
}

fn mtu(interface: &Interface) -> Finding {
    let Interface { ifname, mtu, .. } = interface;
    if *mtu > MAX_MTU {
        let found = format!("{mtu} is more than the {MAX_MTU} bytes srv6d forwards");
        return Finding::warn(ifname, "MTU", found, format!("ip link set dev {ifname} mtu {MAX_MTU}"));
    }
    if *mtu > ONE_BUFFER_MTU {
        return Finding::ok(ifname, "MTU", format!("{mtu}: frames come in several buffers (Linux 6.6 or newer)"));
    }
    Finding::ok(ifname, "MTU", format!("{mtu}; an encapsulation takes 40 bytes of it, 24 more with an SRH"))
}

fn queues(interface: &Interface, plans: &Plans) -> Finding {
    let Interface { ifname, driver, queues, .. } = interface;
    let workers = u32::try_from(plans.cores.len().max(1)).unwrap_or(u32::MAX);
    let found = format!("{queues} receive queue(s), {workers} worker(s)");
    if *queues > workers {
        let fix =
            format!("`ethtool -L {ifname} combined {workers}` (veth: rx and tx), or list {queues} [workers] cores");
        return Finding::warn(ifname, "queues", format!("{found}: what arrives on the others goes to the kernel"), fix);
    }
    if *queues < workers {
        let fix = if driver == "veth" {
            format!("create the veth with numrxqueues {workers} numtxqueues {workers}")
        } else {
            format!("ethtool -L {ifname} combined {workers}")
        };
        let fix = format!("{fix}, or list {queues} [workers] cores");
        return Finding::fail(ifname, "queues", format!("{found}: srv6d refuses the port"), fix);
    }
    Finding::ok(ifname, "queues", found)
}

/// Checks checksum offload. A veth passes unfinished checksums to its peer, and the peer's AF_XDP socket would send
/// them out unchanged.
fn checksums(interface: &Interface, plans: &Plans) -> Option<Finding> {
    let Interface { ifname, driver, features, .. } = interface;
    (driver == "veth").then(|| {
        if plans.filled.contains(ifname) {
            return Finding::ok(ifname, "checksums", "checksum = \"fill\": srv6d finishes them");
        }
        if !features.tx_checksum {
            return Finding::ok(ifname, "checksums", "tx checksum offload is off; the peer needs the same");
        }
        Finding::warn(
            ifname,
            "checksums",
            "veth with tx checksum offload on: TCP and UDP of local applications on one end reach srv6d on the other \
             with unfinished checksums (ping works, TCP does not)",
            format!("`ethtool -K {ifname} tx off` on both ends, or checksum = \"fill\" for the [[port]]"),
        )
    })
}

/// Checks whether the interface sends what the XDP program of another port redirects into it.
fn redirects(interface: &Interface, plans: &Plans) -> Option<Finding> {
    let Interface { ifname, driver, takes_redirect, .. } = interface;
    let check = "offload";
    let fix = || {
        if driver == "veth" {
            return "give the other end of the veth NAPI: `ethtool -K PEER gro on` where it is, or an XDP program of its own"
                .to_owned();
        }
        "nothing has to be done: the worker forwards it; a driver with ndo_xdp_xmit can do more".to_owned()
    };
    plans.offloads.then(|| match takes_redirect {
        Some(takes) if takes.multi_buffer => {
            Finding::ok(ifname, check, "it sends what the XDP programs of other ports redirect")
        }
        Some(takes) if takes.frames => Finding::ok(
            ifname,
            check,
            "it sends what XDP programs redirect; frames in several buffers go by the worker",
        ),
        Some(_) => {
            let found = "it sends nothing that XDP programs redirect: what leaves here goes by the worker";
            Finding::warn(ifname, check, found, fix())
        }
        None => {
            let found = "the kernel does not tell whether it sends what XDP programs redirect: the worker forwards it";
            Finding::warn(ifname, check, found, "use Linux 6.3 or newer for offload = \"xdp\"")
        }
    })
}

/// Checks segmentation offloads. Super-frames reach a socket only in generic mode: native XDP on a veth switches TSO
/// off.
fn segmentation(interface: &Interface) -> Finding {
    let Interface { ifname, driver, features, .. } = interface;
    let on: Vec<&str> = [("tso", features.tso), ("gso", features.gso), ("gro", features.gro)]
        .into_iter()
        .filter_map(|(name, on)| on.then_some(name))
        .collect();
    if on.is_empty() {
        return Finding::ok(ifname, "segmentation offloads", "off");
    }
    if NATIVE_DRIVERS.contains(&driver.as_str()) {
        return Finding::ok(ifname, "segmentation offloads", format!("{} on, harmless in native mode", on.join(", ")));
    }
    Finding::warn(
        ifname,
        "segmentation offloads",
        format!(
            "{} on: generic mode sees frames larger than the MTU and drops them (counter `oversize`)",
            on.join(", ")
        ),
        format!("ethtool -K {ifname} {} off", on.join(" off ")),
    )
}

/// Checks whether workers that never sleep share cores with interrupts. A spinning worker starves the kernel's receive
/// work on its core: measured 0.16 instead of 0.8 Mpps.
fn shared_cores(interface: &Interface, placement: &KernelPlacement, plans: &Plans) -> Option<Finding> {
    let shared: Vec<String> =
        plans.cores.iter().filter(|core| placement.interrupt_cores.contains(core)).map(usize::to_string).collect();
    (plans.busy && !shared.is_empty()).then(|| {
        Finding::warn(
            &interface.ifname,
            "interrupts",
            format!("delivered to core {}, where a worker spins: both starve", shared.join(", ")),
            "move one of them: [workers] cores, or /proc/irq/N/smp_affinity_list (and stop irqbalance)",
        )
    })
}

/// Checks what `busy_budget` needs from the device: otherwise interrupts continue to do the driver's work.
fn busy_polling(interface: &Interface, placement: &KernelPlacement, plans: &Plans) -> Option<Finding> {
    let Interface { ifname, driver, .. } = interface;
    let check = "busy polling";
    plans.polls_drivers.then(|| {
        if driver == "veth" {
            return Finding::ok(ifname, check, "a veth has no NAPI that a socket could poll: busy_budget does nothing");
        }
        if placement.defers_interrupts {
            return Finding::ok(ifname, check, "interrupts are put off while workers poll");
        }
        Finding::warn(
            ifname,
            check,
            "interrupts are not put off: they do the work that busy_budget means the workers to do",
            format!(
                "echo 2 > /sys/class/net/{ifname}/napi_defer_hard_irqs; \
                 echo 200000 > /sys/class/net/{ifname}/gro_flush_timeout"
            ),
        )
    })
}

fn state(interface: &Interface, placement: &KernelPlacement) -> Option<Finding> {
    let ifname = &interface.ifname;
    let state = placement.operstate.as_deref()?;
    (state == "down" || state == "lowerlayerdown").then(|| {
        Finding::warn(
            ifname,
            "state",
            format!("{state}: nothing is forwarded on it"),
            format!("ip link set dev {ifname} up, or check the cable"),
        )
    })
}

#[cfg(test)]
mod tests {
    use srv6d_xsk::probe::{Attached, TakesRedirect};

    use super::super::Severity;
    use super::super::tests::a_nic;
    use super::*;

    fn healthy() -> (Interface, KernelPlacement, Plans) {
        let placement = KernelPlacement {
            interrupt_cores: [0, 1].into(),
            operstate: Some("up".into()),
            processors: 2,
            qdisc: Some("mq".into()),
            ..KernelPlacement::default()
        };
        (a_nic(), placement, Plans { cores: vec![2], ..Plans::default() })
    }

    fn not_ok((interface, placement, plans): &(Interface, KernelPlacement, Plans)) -> Vec<(&'static str, Severity)> {
        let findings = judge(interface, placement, plans);
        assert!(findings.iter().all(|finding| (finding.verdict == Severity::Ok) == finding.fix.is_none()));
        findings.iter().filter(|f| f.verdict != Severity::Ok).map(|f| (f.check, f.verdict)).collect()
    }

    #[test]
    fn healthy_interface_has_nothing_to_fix() {
        assert_eq!(not_ok(&healthy()), []);
    }

    #[test]
    fn virtio_is_judged_by_its_features_and_queues() {
        let bits = |set: &[usize]| (0..64).map(|bit| if set.contains(&bit) { '1' } else { '0' }).collect::<String>();
        let mut facts = healthy();
        facts.0.driver = "virtio_net".into();
        facts.0.most_queues = 4;
        for (set, expected) in [
            (&[][..], &[][..]),
            (&[0, 5, 15], &[]),
            (&[1], &[("driver", Severity::Warn)]),
            (&[7, 8, 54], &[("driver", Severity::Warn)]),
            (&[1, 2, 7, 8], &[]),
        ] {
            facts.1.virtio_features = Some(bits(set));
            assert_eq!(not_ok(&facts), expected, "{set:?}");
        }
        facts.0.most_queues = 2;
        assert_eq!(not_ok(&facts), [("transmit queues", Severity::Warn)]);
    }

    #[test]
    fn a_qdisc_that_shapes_is_passed_by() {
        let mut facts = healthy();
        for (qdisc, expected) in
            [("noqueue", &[][..]), ("tbf", &[("qdisc", Severity::Warn)]), ("netem", &[("qdisc", Severity::Warn)])]
        {
            facts.1.qdisc = Some(qdisc.into());
            assert_eq!(not_ok(&facts), expected, "{qdisc}");
        }
    }

    #[test]
    fn too_few_queues_are_what_run_refuses() {
        let mut facts = healthy();
        facts.2.cores = vec![2, 3];
        assert_eq!(not_ok(&facts), [("queues", Severity::Fail)]);
    }

    #[test]
    fn each_trouble_is_named() {
        type Break = fn(&mut (Interface, KernelPlacement, Plans));
        let cases: [(Break, &[&str]); 6] = [
            (|(i, ..)| i.mtu = 16_000, &["MTU"]),
            (|(i, ..)| i.queues = 4, &["queues"]),
            (|(i, ..)| i.driver = "veth".into(), &["checksums"]),
            (
                |(i, ..)| {
                    i.driver = "e1000e".into();
                    i.zero_copy = Some(false);
                },
                &["driver", "segmentation offloads"],
            ),
            (
                |(_, _, p)| {
                    p.cores = vec![1];
                    p.busy = true;
                },
                &["interrupts"],
            ),
            (|(_, p, _)| p.operstate = Some("down".into()), &["state"]),
        ];
        for (break_it, checks) in cases {
            let mut facts = healthy();
            break_it(&mut facts);
            let expected: Vec<_> = checks.iter().map(|check| (*check, Severity::Warn)).collect();
            assert_eq!(not_ok(&facts), expected);
        }
    }

    #[test]
    fn program_of_the_running_daemon_is_no_trouble_and_any_other_is_in_the_way() {
        let mut facts = healthy();
        facts.0.program = Some(Attached { id: 7, generic: false });
        assert_eq!(not_ok(&facts), [("XDP program", Severity::Fail)]);
        facts.2.own_programs = vec![7];
        assert_eq!(not_ok(&facts), []);
    }

    #[test]
    fn filled_checksums_need_no_offload_change() {
        let mut facts = healthy();
        facts.0.driver = "veth".into();
        facts.2.filled = vec!["eth1".into()];
        assert_eq!(not_ok(&facts), []);
    }

    #[test]
    fn offload_needs_ports_that_send_what_is_redirected() {
        let mut facts = healthy();
        facts.2.offloads = true;
        let everything = TakesRedirect { frames: true, multi_buffer: true };
        for (takes, warned) in [
            (None, true),
            (Some(TakesRedirect::default()), true),
            (Some(TakesRedirect { multi_buffer: false, ..everything }), false),
            (Some(everything), false),
        ] {
            facts.0.takes_redirect = takes;
            let expected: &[_] = if warned { &[("offload", Severity::Warn)] } else { &[] };
            assert_eq!(not_ok(&facts), expected, "{takes:?}");
        }
    }

    #[test]
    fn workers_poll_drivers_whose_interrupts_wait() {
        let mut facts = healthy();
        facts.2.polls_drivers = true;
        assert_eq!(not_ok(&facts), [("busy polling", Severity::Warn)]);
        facts.1.defers_interrupts = true;
        assert_eq!(not_ok(&facts), []);
        // On a veth nothing can be done about this, so the check must not ask for it.
        facts.1.defers_interrupts = false;
        facts.0.driver = "veth".into();
        assert_eq!(not_ok(&facts), [("checksums", Severity::Warn)]);
    }
}
