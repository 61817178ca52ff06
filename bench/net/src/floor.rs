//! The AF_XDP floor: sockets and rings like those of srv6d, without any work between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use srv6d_xsk::{Frame, Mode, Program, ProgramSettings, Rings, Socket, Umem, UmemRings, XskError};

use crate::netns::Namespace;
use crate::{BenchError, affinity};

/// Maximum number of packets received at a time, the same number as in srv6d's workers.
const BURST: usize = 64;
/// Size of a ring, the default of srv6d.
pub const RING: u32 = 2048;
/// Number of frames in the packet memory, the default of srv6d.
pub const FRAMES: u32 = 8192;

/// Threads that move frames from the first port to the second until this value is dropped.
pub struct Floor {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Kernel ids of the threads.
    pub thread_numbers: Vec<i32>,
    // The XDP program takes the port from the kernel as long as it is attached.
    _program: Program,
}

impl Floor {
    /// Starts one thread per core: core i serves queue i of both ports.
    pub fn start(space: &Namespace, ingress: &str, egress: &str, cores: &[usize]) -> Result<Self, BenchError> {
        srv6d_netns::enter(space, || {
            let settings = ProgramSettings { untagged: true, claim_all: true, ..ProgramSettings::default() };
            let mut program = Program::attach(ingress, Mode::Auto, &settings).map_err(said)?;
            let stop = Arc::new(AtomicBool::new(false));
            let (tell, told) = mpsc::channel();
            let mut threads = Vec::new();
            for (queue, &core) in (0..).zip(cores) {
                let ports = Ports::open(ingress, egress, queue).map_err(said)?;
                program.set_socket(queue, &ports.from).map_err(said)?;
                let (stop, tell) = (Arc::clone(&stop), tell.clone());
                threads.push(thread::spawn(move || {
                    if affinity::pin(0, core).is_ok() && tell.send(nix::unistd::gettid().as_raw()).is_ok() {
                        drop(tell);
                        ports.cross(&stop);
                    }
                }));
            }
            drop(tell);
            let thread_numbers = told.iter().collect();
            Ok(Self { stop, threads, thread_numbers, _program: program })
        })
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// One queue of both ports, with a common packet memory.
struct Ports {
    umem: Umem,
    from: Socket,
    to: Socket,
}

impl Ports {
    fn open(ingress: &str, egress: &str, queue: u32) -> Result<Self, XskError> {
        let umem = Umem::with_rings(FRAMES, UmemRings { fill: RING, completion: RING })?;
        let rings = Rings { rx: RING, tx: RING };
        let from = Socket::open(&umem, ingress, queue, Mode::Auto, rings)?;
        let to = Socket::open(&umem, egress, queue, Mode::Auto, rings)?;
        Ok(Self { umem, from, to })
    }

    fn cross(mut self, stop: &AtomicBool) {
        let mut burst: Vec<Frame> = Vec::with_capacity(BURST);
        while !stop.load(Ordering::Relaxed) {
            if self.from.rx_burst(&mut self.umem, BURST, &mut burst) == 0 {
                std::hint::spin_loop();
            }
            send(&mut self.to, &mut self.umem, &mut burst);
        }
    }
}

/// Sends a burst. A frame for which the ring has no room even after a flush is dropped.
pub(crate) fn send(to: &mut Socket, umem: &mut Umem, burst: &mut Vec<Frame>) {
    for frame in burst.drain(..) {
        if let Err(frame) = to.tx(frame) {
            to.flush(umem);
            if let Err(frame) = to.tx(frame) {
                umem.recycle(frame);
            }
        }
    }
    if to.tx_pending() {
        to.flush(umem);
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn said(why: XskError) -> BenchError {
    BenchError(why.to_string())
}
