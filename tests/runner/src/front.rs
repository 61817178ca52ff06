//! Runs the XDP program of `offload = "xdp"` and of `engine = "tc"`, and the tc program that encapsulates, in front of a
//! worker step, all without real ports: `BPF_PROG_TEST_RUN` gives the program a frame as if a port had received it, or an
//! application had sent it, and returns the result.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use nix::sched::{CloneFlags, unshare};
use srv6d_dataplane::offload_wiring;
use srv6d_srv6::desired::Desired;
use srv6d_srv6::{Tables, Verdict};
use srv6d_xsk::probe::TakesRedirect;
use srv6d_xsk::test_run::{Arrival, once, once_local};
use srv6d_xsk::xdp_offload::{KernelEnd, PacketCount, Sizes, XdpOffload};

use srv6d_netns as netns;

/// Cases of the conformance pack with frames that the program forwards.
pub const OFFLOADED: [&str; 122] = [
    "A01", "A02", "A02b", "A06b", "A06c", "A07a", "A07b", "A07c", "A10", "A11", "A12", "D01", "D02b", "D06c", "D07",
    "D10", "D11", "D12", "D14", "D18", "D20a", "D20b", "D24c", "D25", "D27a", "D27b", "E01", "E02", "E03", "E03b",
    "E04", "E05a", "E06a", "E06b", "E08a", "E08b", "E08c", "E10a", "E10b", "E11a", "E11b", "E12", "E13a", "E13b",
    "E13c", "E14a", "E14b", "E14c", "E17a", "E17b", "E17c", "E27a", "E27b", "E28a", "E28b", "E30", "E30b", "E34-2",
    "E34-3", "E35a", "E35b", "E36c", "E38", "E39a", "E39b", "E39d", "E39e", "I02", "I05b", "O02", "O05", "S01d",
    "S01e", "S02d", "S02e", "S02f", "S03b", "S03d", "S04c", "S06a", "S06b", "S06c", "S06e", "S11e", "S11f", "S12b",
    "S12f", "U01", "U02", "U03b", "U05a", "U08", "U09", "U10", "U11", "U15a", "U15b", "U32", "U37", "U38b", "U40",
    "U41a", "U41b", "U41c", "U41d", "U42", "U43b", "U50d", "U55a", "X01a", "X01b", "X01c", "X04b", "X07a", "X08",
    "X10a", "X10b", "X10c", "X10f", "X10g", "X16", "X17",
];

/// Cases of the conformance pack with frames that the program decapsulates for this node.
pub const DELIVERED: [&str; 2] = ["D29a", "D29b"];

/// Cases of the conformance pack with frames that the tc program encapsulates if they come from applications.
pub const ENCAPSULATED: [&str; 44] = [
    "E01", "E02", "E03", "E03b", "E04", "E05a", "E06a", "E06b", "E08a", "E08b", "E08c", "E09a", "E09b", "E10a", "E10b",
    "E11a", "E11b", "E12", "E13a", "E13b", "E13c", "E14a", "E14b", "E14c", "E17a", "E17b", "E17c", "E27a", "E27b",
    "E28a", "E28b", "E30", "E30b", "E34-2", "E34-3", "E35a", "E35b", "E36c", "E38", "E39a", "E39b", "E39e", "I05b",
    "S02f",
];

/// Number of ports; no state of the tests has more.
const PORTS: u16 = 8;
/// Maximum number of counters of one kind; no case has more.
const SLOTS: usize = 160;
/// Verdicts of the XDP program: `XDP_PASS`, because no worker can be called, and `XDP_REDIRECT`.
const OF_XDP: Verdicts = Verdicts { pass: 2, redirect: 4 };
/// Verdicts of the tc program: `TCX_NEXT`, and `TCX_REDIRECT`.
const OF_TC: Verdicts = Verdicts { pass: u32::MAX, redirect: 7 };
/// Length of the longest frame that the kernel accepts for a test run of a tc program, which has one page for it.
const LONGEST_OF_TC: usize = 3500;
/// Length of an Ethernet header, the shortest frame that the kernel accepts for a test run.
const ETHERNET: usize = 14;
/// Length of the shortest frame on a wire.
const MIN_FRAME: usize = 60;

/// The interfaces of a thread in its own network namespace. Each stands for the port of its number.
#[derive(Debug)]
pub struct Interfaces(Vec<(String, u32)>);

impl Interfaces {
    /// Moves this thread permanently into a new network namespace, and creates the interfaces there.
    ///
    /// # Errors
    /// If that fails, most likely because the process is not root.
    pub fn of_this_thread() -> Result<Self, String> {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|why| format!("a network namespace: {why}"))?;
        let name = |port| format!("port{port}");
        let commands: Vec<String> =
            (0..PORTS).map(|port| format!("link add {} type veth peer name far{port}", name(port))).collect();
        netns::ip_batch_here(&commands)?;
        let index = |port| {
            let ifindex = nix::net::if_::if_nametoindex(name(port).as_str());
            ifindex.map(|ifindex| (name(port), ifindex)).map_err(|why| format!("{}: {why}", name(port)))
        };
        (0..PORTS).map(index).collect::<Result<_, String>>().map(Self)
    }
}

/// Numbers of the verdicts of a kind of program.
#[derive(Clone, Copy, Debug)]
struct Verdicts {
    pass: u32,
    redirect: u32,
}

/// The programs with their tables.
#[derive(Debug)]
pub struct Front {
    interfaces: Rc<Interfaces>,
    program: Rc<RefCell<XdpOffload>>,
    /// Counters at the time when this value was made.
    before: Counts,
    /// Port of this node's kernel, with the addresses of frames that are sent to it.
    host: Option<(u16, [u8; 12])>,
    applications: Option<Applications>,
}

/// How frames are treated that come from applications of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applications {
    /// Those that come in through the own veth.
    OfVeth,
    /// Those that come in through ports as well. Sending costs a hop, as forwarding does.
    OfPorts,
}

/// Counters by slot or port: SIDs, paths, next hops, received and sent frames of ports.
#[derive(Debug, Default)]
struct Counts([Vec<PacketCount>; 5]);

impl Front {
    /// Loads the programs, still without tables. A kernel without tcx refuses the tc program, which then forwards nothing.
    ///
    /// # Errors
    /// If the kernel does not accept the program.
    pub fn load(interfaces: Rc<Interfaces>) -> Result<Self, String> {
        let mut program = XdpOffload::load(&Sizes::largest()).map_err(|why| why.to_string())?;
        for (port, (name, _)) in (0..).zip(&interfaces.0) {
            program.add_port(port, name).map_err(|why| why.to_string())?;
        }
        // Where it is attached does not matter to test runs.
        if let Some((name, _)) = interfaces.0.first()
            && let Err(why) = program.put_on_local(0, name)
        {
            eprintln!("no tc program: {why}");
        }
        Ok(Self {
            interfaces,
            program: Rc::new(RefCell::new(program)),
            before: Counts::default(),
            host: None,
            applications: None,
        })
    }

    /// Returns the same program with counters that start at zero, because loading a program takes long. It keeps the
    /// tables that were published last.
    #[must_use]
    pub fn again(&self) -> Self {
        let before = Counts::of(&self.program.borrow());
        let (interfaces, program) = (Rc::clone(&self.interfaces), Rc::clone(&self.program));
        Self { interfaces, program, before, ..*self }
    }

    /// The tc program, instead of the XDP program, has what comes from applications.
    #[must_use]
    pub fn for_applications(self, applications: Applications) -> Self {
        Self { applications: Some(applications), ..self }
    }

    /// Returns which frames come from applications, if the tc program has them.
    pub fn applications(&self) -> Option<Applications> {
        self.applications
    }

    /// Loads the offload extract of `tables` into the program. All ports are treated as ports that transmit redirected
    /// frames, and what is for this node is delivered through its own veth.
    ///
    /// # Errors
    /// If the kernel does not accept them.
    pub fn publish(&mut self, tables: &Tables, desired: &Desired) -> Result<(), String> {
        let everything = TakesRedirect { frames: true, multi_buffer: true };
        let rows = &tables.offload().forwarding;
        let device = |port: u16| desired.ports.get(usize::from(port)).map(|port| port.device);
        let mut wiring = offload_wiring(rows, device, |port| Some((device(port)?, everything)));
        wiring.vlan_slots = rows.vlans.keys().map(|&port| (port, port)).collect();
        self.host = desired.host.map(|host| (host.port.0, rows.to_kernel));
        wiring.kernel = self.host.and_then(|(number, _)| {
            let (name, _) = self.interfaces.0.get(usize::from(number))?;
            let from = rows.ports.keys().copied().collect();
            Some(KernelEnd { from, ..KernelEnd::of(name, number).ok()? })
        });
        self.program.borrow_mut().publish(rows, &wiring).map_err(|why| why.to_string())
    }

    /// Runs the program on a frame that a device receives. Returns the verdict and the bytes of the frame, which has the
    /// addresses that the tc program writes if it is for this node, or `None` if the program left the frame unchanged to the
    /// worker.
    ///
    /// # Errors
    /// If the frame was changed but left to the worker, or if it was not counted exactly once.
    pub fn forward(&mut self, device: u16, frame: &[u8]) -> Result<Option<(Verdict, Vec<u8>)>, String> {
        let Some((_, ifindex)) = self.interfaces.0.get(usize::from(device)) else { return Ok(None) };
        if frame.len() < ETHERNET {
            return Ok(None);
        }
        let arrival = Arrival { ifindex: *ifindex, queue: 0 };
        let run = |offload: &XdpOffload| once(offload.program().ok_or_else(no_program)?, frame, arrival);
        self.judge(device, frame, OF_XDP, run)
    }

    /// Runs the tc program on a frame that an application sends, as if `device` were the own veth. Returns verdict and bytes
    /// as [`forward`](Self::forward) does.
    ///
    /// # Errors
    /// Those of [`forward`](Self::forward).
    pub fn send(&mut self, device: u16, frame: &[u8]) -> Result<Option<(Verdict, Vec<u8>)>, String> {
        let Some((_, ifindex)) = self.interfaces.0.get(usize::from(device)) else { return Ok(None) };
        if !is_taken_by_tc(frame) {
            return Ok(None);
        }
        let run = |offload: &XdpOffload| {
            let program = offload.local_program().filter(|program| program.fd().is_ok()).ok_or_else(no_program)?;
            once_local(program, frame, *ifindex)
        };
        self.judge(device, frame, OF_TC, run)
    }

    fn judge(
        &self,
        device: u16,
        frame: &[u8],
        verdicts: Verdicts,
        run: impl FnOnce(&XdpOffload) -> io::Result<(u32, Vec<u8>)>,
    ) -> Result<Option<(Verdict, Vec<u8>)>, String> {
        let before = self.by_port();
        let (verdict, bytes) = run(&self.program.borrow()).map_err(|why| format!("test run: {why}"))?;
        let grown: Vec<(u64, u64)> =
            before.iter().zip(self.by_port()).map(|(was, now)| (now.0 - was.0, now.1 - was.1)).collect();
        let received: u64 = grown.iter().map(|(received, _)| received).sum();
        let came_in = grown.get(usize::from(device)).map_or(0, |(received, _)| *received);
        let sent: Vec<u16> = (0..).zip(&grown).filter(|(_, grown)| grown.1 > 0).map(|(port, _)| port).collect();
        let (passes, redirects) = (verdict == verdicts.pass, verdict == verdicts.redirect);
        match (received, came_in, sent.as_slice()) {
            (0, 0, []) if passes && bytes == frame => Ok(None),
            (1, 1, &[port]) if redirects => Ok(Some((Verdict::Tx(port), bytes))),
            (1, 1, &[port]) if passes && self.host.is_some_and(|(host, _)| host == port) => {
                Ok(Some((Verdict::Kernel(port), self.delivered_as(frame, &bytes)?)))
            }
            _ if passes && bytes != frame => Err("a frame that is the worker's was written to".to_owned()),
            _ => Err(format!("verdict {verdict}, and counted (received, sent) by port: {grown:?}")),
        }
    }

    /// Returns a frame that is for this node as the tc program hands it over, padded as the worker's frames are.
    fn delivered_as(&self, frame: &[u8], bytes: &[u8]) -> Result<Vec<u8>, String> {
        let mark = self.program.borrow().mark();
        let marked = bytes.strip_prefix(&mark).and_then(|marked| marked.split_at_checked(ETHERNET - 2));
        let (addresses, rest) = marked.filter(|(addresses, _)| frame.starts_with(addresses)).ok_or_else(|| {
            format!("a frame for this node without its mark, or with other addresses than it came with: {bytes:x?}")
        })?;
        let (_, to_kernel) = self.host.unwrap_or_default();
        let mut out = [to_kernel.get(..addresses.len()).unwrap_or_default(), rest].concat();
        out.resize(out.len().max(MIN_FRAME), 0);
        Ok(out)
    }

    /// Returns the number of frames that were for this node.
    pub fn delivered(&self) -> u64 {
        self.host.map_or(0, |(host, _)| self.counted(SENT, host.into()).packets)
    }

    /// Returns the numbers of received and sent frames of each port.
    fn by_port(&self) -> Vec<(u64, u64)> {
        let frames = |at, port| self.counted(at, port).packets;
        (0..usize::from(PORTS)).map(|port| (frames(RECEIVED, port), frames(SENT, port))).collect()
    }

    /// Returns what was forwarded at the SID with this slot.
    pub fn sid(&self, slot: usize) -> PacketCount {
        self.counted(SID, slot)
    }

    /// Returns what was encapsulated for the path with this slot.
    pub fn path(&self, slot: usize) -> PacketCount {
        self.counted(PATH, slot)
    }

    /// Returns what was sent to the next hop with this slot.
    pub fn hop(&self, slot: usize) -> PacketCount {
        self.counted(HOP, slot)
    }

    /// Returns the number of forwarded frames.
    pub fn forwarded(&self) -> u64 {
        self.by_port().iter().map(|(received, _)| received).sum()
    }

    fn counted(&self, at: usize, number: usize) -> PacketCount {
        let now = Counts::one(&self.program.borrow(), at, number);
        let before = self.before.0.get(at).and_then(|counts| counts.get(number)).copied().unwrap_or_default();
        PacketCount { packets: now.packets - before.packets, bytes: now.bytes - before.bytes }
    }
}

/// Whether the kernel accepts a frame for a test run of a tc program: it wants the whole IP header.
fn is_taken_by_tc(frame: &[u8]) -> bool {
    let shortest = match frame.get(12..ETHERNET) {
        Some([0x86, 0xdd]) => ETHERNET + 40,
        Some([8, 0]) => ETHERNET + 20,
        _ => ETHERNET,
    };
    (shortest..LONGEST_OF_TC).contains(&frame.len())
}

fn no_program() -> io::Error {
    io::Error::other("no program")
}

const SID: usize = 0;
const PATH: usize = 1;
const HOP: usize = 2;
const RECEIVED: usize = 3;
const SENT: usize = 4;

impl Counts {
    fn of(program: &XdpOffload) -> Self {
        Self([SID, PATH, HOP, RECEIVED, SENT].map(|at| (0..SLOTS).map(|slot| Self::one(program, at, slot)).collect()))
    }

    fn one(program: &XdpOffload, at: usize, number: usize) -> PacketCount {
        let (slot, port) = (u32::try_from(number).unwrap_or(u32::MAX), u16::try_from(number).unwrap_or(u16::MAX));
        match at {
            SID => program.sid(slot),
            PATH => program.path(slot),
            HOP => program.hop(slot),
            RECEIVED => program.received(port),
            _ => program.sent(port),
        }
    }
}
