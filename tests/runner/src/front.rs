//! The XDP program of `offload = "xdp"` in front of a worker step, both without wires: `BPF_PROG_TEST_RUN` gives the
//! program a frame as if it had come in through a port, and gives back what the program has made of it.

use std::rc::Rc;

use nix::sched::{CloneFlags, unshare};
use srv6d_dataplane::forwarding;
use srv6d_srv6::Tables;
use srv6d_xsk::probe::TakesRedirect;
use srv6d_xsk::test_run::{Arrival, once};
use srv6d_xsk::xdp_offload::{PacketCount, XdpOffload};

use crate::netns;

/// Cases of the conformance pack with frames that the program forwards.
pub const OFFLOADED: [&str; 70] = [
    "A01", "A02", "A02b", "A06b", "A06c", "A07a", "A07b", "A07c", "A10", "A11", "A12", "E01", "E02", "E06a", "E06b",
    "E08a", "E08b", "E08c", "E10a", "E10b", "E11a", "E11b", "E12", "E13a", "E13b", "E13c", "E14a", "E14b", "E14c",
    "E17a", "E17b", "E27a", "E27b", "E28a", "E30", "E30b", "E35a", "E35b", "E36c", "E38", "I02", "I05b", "O02", "O05",
    "U01", "U02", "U03b", "U05a", "U08", "U09", "U10", "U11", "U15a", "U15b", "U37", "U38b", "U40", "U41a", "U41b",
    "U41c", "U41d", "U42", "U43b", "U50d", "U55a", "X01a", "X01b", "X04b", "X07a", "X08",
];

/// Ports there can be: more than any state of the tests has.
const PORTS: u16 = 8;
/// `XDP_PASS`, for want of a worker to call, and `XDP_REDIRECT`.
const PASS: u32 = 2;
const REDIRECT: u32 = 4;
/// Less than that the kernel calls no frame.
const ETHERNET: usize = 14;

/// The interfaces of a thread that is in a namespace of its own. They stand for ports, by number.
#[derive(Debug)]
pub struct Interfaces(Vec<(String, u32)>);

impl Interfaces {
    /// Moves this thread into a new network namespace, for good.
    ///
    /// # Errors
    /// No root, most likely.
    pub fn of_this_thread() -> Result<Self, String> {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|why| format!("a network namespace: {why}"))?;
        let name = |port| format!("port{port}");
        let commands: Vec<String> =
            (0..PORTS).map(|port| format!("link add {} type veth peer name far{port}", name(port))).collect();
        netns::ip_here(&commands)?;
        let index = |port| {
            let ifindex = nix::net::if_::if_nametoindex(name(port).as_str());
            ifindex.map(|ifindex| (name(port), ifindex)).map_err(|why| format!("{}: {why}", name(port)))
        };
        (0..PORTS).map(index).collect::<Result<_, String>>().map(Self)
    }
}

/// The program with its tables.
#[derive(Debug)]
pub struct Front {
    interfaces: Rc<Interfaces>,
    program: XdpOffload,
}

impl Front {
    /// Loads it, without tables as yet.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn load(interfaces: Rc<Interfaces>) -> Result<Self, String> {
        let mut program = XdpOffload::load().map_err(|why| why.to_string())?;
        for (port, (name, _)) in (0..).zip(&interfaces.0) {
            program.add_port(port, name).map_err(|why| why.to_string())?;
        }
        Ok(Self { interfaces, program })
    }

    /// Gives it the extract of these tables, on ports that send whatever is redirected into them.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn publish(&mut self, tables: &Tables) -> Result<(), String> {
        let everything = TakesRedirect { frames: true, multi_buffer: true };
        let extract = forwarding(tables.offload(), Some, |port| Some((port, everything)));
        self.program.publish(&extract).map_err(|why| why.to_string())
    }

    /// A frame that comes in through a device. `None`: it is the worker's, and as it was. Else the device it leaves
    /// through, and its bytes.
    ///
    /// # Errors
    /// The frame was written to and is still the worker's; it was counted in several places, or in none.
    pub fn forward(&mut self, device: u16, frame: &[u8]) -> Result<Option<(u16, Vec<u8>)>, String> {
        let Some((_, ifindex)) = self.interfaces.0.get(usize::from(device)) else { return Ok(None) };
        let program = self.program.program().ok_or("no program")?;
        if frame.len() < ETHERNET {
            return Ok(None);
        }
        let before = self.counts();
        let arrival = Arrival { ifindex: *ifindex, queue: 0 };
        let (verdict, bytes) = once(program, frame, arrival).map_err(|why| format!("test run: {why}"))?;
        let grown: Vec<(u64, u64)> =
            before.iter().zip(self.counts()).map(|(was, now)| (now.0 - was.0, now.1 - was.1)).collect();
        let received: u64 = grown.iter().map(|(received, _)| received).sum();
        let came_in = grown.get(usize::from(device)).map_or(0, |(received, _)| *received);
        let sent: Vec<u16> = (0..).zip(&grown).filter(|(_, grown)| grown.1 > 0).map(|(port, _)| port).collect();
        match (verdict, received, came_in, sent.as_slice()) {
            (PASS, 0, 0, []) if bytes == frame => Ok(None),
            (REDIRECT, 1, 1, &[port]) => Ok(Some((port, bytes))),
            (PASS, ..) if bytes != frame => Err("a frame that is the worker's was written to".to_owned()),
            _ => Err(format!("verdict {verdict}, and counted (received, sent) by port: {grown:?}")),
        }
    }

    fn counts(&self) -> Vec<(u64, u64)> {
        (0..PORTS).map(|port| (self.program.received(port).packets, self.program.sent(port).packets)).collect()
    }

    /// What was forwarded at the SID with this slot.
    pub fn sid(&self, slot: usize) -> PacketCount {
        u32::try_from(slot).map(|slot| self.program.sid(slot)).unwrap_or_default()
    }

    /// What was encapsulated towards the path with this slot.
    pub fn path(&self, slot: usize) -> PacketCount {
        u32::try_from(slot).map(|slot| self.program.path(slot)).unwrap_or_default()
    }

    /// What was sent to the next hop with this slot.
    pub fn hop(&self, slot: usize) -> PacketCount {
        u32::try_from(slot).map(|slot| self.program.hop(slot)).unwrap_or_default()
    }

    /// Frames forwarded.
    pub fn forwarded(&self) -> u64 {
        self.counts().iter().map(|(received, _)| received).sum()
    }
}
