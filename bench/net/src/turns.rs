//! srv6d and the floor in turns: one thread with one pair of sockets alternates between forwarding like srv6d's worker
//! and forwarding without any work, some milliseconds each. Disturbances of the machine affect both turns of a pair.
//!
//! ```text
//! turn    │ srv6d │ floor │ srv6d │ floor │ ...     5 ms each; a tenth of that between two turns is not counted
//! at the sink    a1      b1      a2      b2         packets per second; what counts is the median of a1/b1, a2/b2, ...
//! ```

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ipnet::Ipv6Net;
use srv6d_dataplane::{BURST, PacketMemory, Publisher, Sockets, Step, Wiring, WorkerCounters, WorkerLoop};
use srv6d_srv6::carrier::SegmentList;
use srv6d_srv6::desired::{
    Behavior, Block, Csid, Desired, DscpMode, DtFamily, Flavors, Hop, LocalSid, Mac, Path, Port, PortId, Route,
    RouteAction, Steer, TableId, Tunnel, UnknownSid,
};
use srv6d_xsk::{Frame, Mode, Program, ProgramSettings, Rings, Socket, Umem, UmemRings, XskError};

use crate::floor::{self, FRAMES, RING};
use crate::frames::{IN_MAC, OUT_MAC, SINK_MAC, Work};
use crate::netns::Namespace;
use crate::{BenchError, affinity};

const NEXT_HOP: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 2));
const SOURCE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);

/// Approximate length of a round.
const A_ROUND: Duration = Duration::from_micros(10);

/// A thread that takes turns until this value is dropped. It starts as srv6d.
pub struct Turns {
    turn: Arc<Turn>,
    thread: Option<JoinHandle<()>>,
    /// Kernel id of the thread.
    pub thread_number: i32,
    // The XDP program takes the port from the kernel as long as it is attached.
    _program: Program,
}

/// State shared with the thread: commands and its answer.
#[derive(Default)]
struct Turn {
    stop: AtomicBool,
    is_floor: AtomicBool,
    /// Whether the floor has the turn in the current round.
    taken_by_floor: AtomicBool,
}

impl Turns {
    /// Starts the thread on a core; it uses the first queue of both ports.
    pub fn start(
        space: &Namespace,
        (ingress, egress): (&str, &str),
        core: usize,
        work: Work,
    ) -> Result<Self, BenchError> {
        let said = |why: XskError| BenchError(why.to_string());
        srv6d_netns::enter(space, || {
            let settings = ProgramSettings { untagged: true, claim_all: true, ..ProgramSettings::default() };
            let mut program = Program::attach(ingress, Mode::Auto, &settings).map_err(said)?;
            let mut rounds = worker(work, (ingress, egress), &mut program)?;
            let turn = Arc::<Turn>::default();
            let told_to = Arc::clone(&turn);
            let (tell, told) = mpsc::channel();
            let thread = thread::spawn(move || {
                if affinity::pin(0, core).is_ok() && tell.send(nix::unistd::gettid().as_raw()).is_ok() {
                    take_turns(&mut rounds, &told_to);
                }
            });
            let thread_number = told.recv().map_err(|why| BenchError::of("start a worker", why))?;
            Ok(Self { turn, thread: Some(thread), thread_number, _program: program })
        })
    }

    /// Gives the turn to the floor or to srv6d, and waits until the other one has ended its last round.
    pub fn change(&self, to_floor: bool) {
        self.turn.is_floor.store(to_floor, Ordering::Relaxed);
        let is_running = || self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        while self.turn.taken_by_floor.load(Ordering::Acquire) != to_floor && is_running() {
            thread::sleep(A_ROUND);
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.turn.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn take_turns(rounds: &mut WorkerLoop, turn: &Turn) {
    let mut burst: Vec<Frame> = Vec::with_capacity(BURST);
    while !turn.stop.load(Ordering::Relaxed) {
        let is_floor = turn.is_floor.load(Ordering::Relaxed);
        turn.taken_by_floor.store(is_floor, Ordering::Release);
        let received = if is_floor { cross(&mut rounds.io, &mut burst) } else { rounds.round().unwrap_or(0) };
        if received == 0 {
            std::hint::spin_loop();
        }
    }
}

/// Runs one round of the floor, as in the row `af_xdp-floor`.
fn cross(io: &mut Sockets, burst: &mut Vec<Frame>) -> usize {
    let Some((from, umem)) = io.at(0) else { return 0 };
    let received = from.rx_burst(umem, BURST, burst);
    if let Some((to, umem)) = io.at(1) {
        floor::send(to, umem, burst);
    }
    received
}

/// Makes a worker like that of srv6d, with two ports and the tables for this work.
fn worker(work: Work, (ingress, egress): (&str, &str), program: &mut Program) -> Result<WorkerLoop, BenchError> {
    let said = |why: XskError| BenchError(why.to_string());
    let umem = Umem::with_rings(FRAMES, UmemRings { fill: RING, completion: RING }).map_err(said)?;
    let rings = Rings { rx: RING, tx: RING };
    let from = Socket::open(&umem, ingress, 0, Mode::Auto, rings).map_err(said)?;
    let to = Socket::open(&umem, egress, 0, Mode::Auto, rings).map_err(said)?;
    program.set_socket(0, &from).map_err(said)?;
    let mut io = Sockets::new(umem);
    for (number, socket) in [from, to].into_iter().enumerate() {
        io.open(number, PacketMemory::Copy, Box::new(socket));
    }
    let mut publisher = Publisher::new(1);
    publisher
        .publish(Some(Arc::new(desired(work)?)), |_, _| Wiring::direct(2))
        .map_err(|why| BenchError::of("build the tables", why))?;
    let step = Step::new(0, Arc::new(WorkerCounters::default()), |_, _| {});
    Ok(WorkerLoop::alone(io, step, publisher.reader()))
}

/// Returns the same state as in the configuration of srv6d's rows.
fn desired(work: Work) -> Result<Desired, BenchError> {
    let mut desired = Desired {
        ports: vec![Port::fabric("in", 0, Mac(IN_MAC), 1500), Port::fabric("out", 1, Mac(OUT_MAC), 2000)],
        tunnel: Tunnel { source: Some(SOURCE), ..Tunnel::default() },
        blocks: vec![Block { prefix: net([0xfcbb, 0, 0, 0], 32), unknown: Some(UnknownSid::Drop) }],
        routes: vec![route(net([0xfcbb, 0, 0, 0], 32))],
        neighbors: [((PortId(1), NEXT_HOP), Mac(SINK_MAC))].into(),
        ..Desired::default()
    };
    let sid = |prefix, behavior| LocalSid { prefix, behavior, flavors: Flavors::default() };
    let inner = net([0x2001, 0xdb8, 0xb, 0], 64);
    let dscp = DscpMode::Pipe(0);
    match work {
        Work::Encapsulate => desired.steers.push(steer(inner)?),
        Work::Cross | Work::Forward | Work::Shift | Work::Decapsulate => desired.routes.push(route(inner)),
    }
    match work {
        Work::Shift => {
            let csid = Some(Csid { lblen: 32, nflen: 16 });
            desired.sids.push(sid(net([0xfcbb, 0, 1, 0], 48), Behavior::End { csid, dscp }));
        }
        Work::Decapsulate => {
            let end = Behavior::EndDt { family: DtFamily::V6, table: TableId::MAIN, dscp };
            desired.sids.push(sid(net([0xfcbb, 0, 1, 0xfe06], 64), end));
        }
        Work::Cross | Work::Forward | Work::Encapsulate => {}
    }
    Ok(desired)
}

fn net([a, b, c, d]: [u16; 4], length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), length)
}

fn hop() -> Hop {
    Hop { port: PortId(1), via: Some(NEXT_HOP), weight: 1 }
}

fn route(prefix: Ipv6Net) -> Route {
    Route { table: TableId::MAIN, prefix: prefix.into(), action: RouteAction::Via(vec![hop()]) }
}

fn steer(prefix: Ipv6Net) -> Result<Steer, BenchError> {
    let carrier = Ipv6Addr::new(0xfcbb, 0, 2, 0xfe06, 0, 0, 0, 0);
    let segments = SegmentList::new(vec![carrier], &[]).map_err(|why| BenchError::of("make the path", why))?;
    let path = Path { name: "path".to_owned(), segments, full_srh: false, weight: 1, source: None, via: vec![hop()] };
    Ok(Steer { table: TableId::MAIN, prefix: prefix.into(), paths: vec![path] })
}
