//! `BPF_PROG_TEST_RUN`: runs an XDP program on frames that were not received.
//!
//! ```text
//! once   frame ─► program ─► verdict, and the frame as the program has left it. Nothing is sent
//! live   frame ─► n copies on real pages ─► program ─► the verdict is carried out: passed, sent, redirected
//! ```
//!
//! Live frames are the fastest generator that a machine has without special hardware: they are built in the kernel and
//! go where the program redirects them, past any socket. Pages are reused and run again *as they were left*, so a
//! program that changes headers has to write all of them for each frame. A veth accepts what is redirected into it only
//! if its peer has NAPI (by a native XDP program or generic receive offload): see [`probe::Interface::takes_redirect`].
//!
//! [`probe::Interface::takes_redirect`]: crate::probe::Interface::takes_redirect

use std::io;

use aya::programs::{ProgramError, SchedClassifier, TestRun as _, TestRunAttrs, TestRunOptions, Xdp};

/// Number of bytes that a program may put in front of a frame; the kernel leaves this much room.
const HEADROOM: usize = 256;

/// Number of 32-bit words of a `struct __sk_buff`, and the place of the interface's index.
const SKB_WORDS: usize = 48;
const IFINDEX: usize = 10;

/// The interface and queue through which a frame is said to have come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Index of the interface, in the caller's network namespace.
    pub ifindex: u32,
    /// Receive queue, which has to exist.
    pub queue: u32,
}

impl Arrival {
    /// Returns a `struct xdp_md`: data, `data_end`, `data_meta`, `ingress_ifindex`, `rx_queue_index`, `egress_ifindex`.
    /// The frame begins behind `metadata` bytes of metadata.
    fn context(self, metadata: usize, len: usize) -> Vec<u8> {
        let [metadata, len] = [metadata, len].map(|len| u32::try_from(len).unwrap_or(u32::MAX));
        [metadata, len, 0, self.ifindex, self.queue, 0].into_iter().flat_map(u32::to_ne_bytes).collect()
    }
}

/// Runs the program on one frame. Returns its verdict (`enum xdp_action`) and the frame as the program has left it.
///
/// # Errors
/// The kernel refuses: no privilege, a frame shorter than an Ethernet header, no such interface.
pub fn once(program: &Xdp, frame: &[u8], arrival: Arrival) -> io::Result<(u32, Vec<u8>)> {
    once_behind(program, 0, frame, arrival)
}

/// Like [`once`], but the first `metadata` bytes of `frame` are metadata. They lie in the room in front of the frame:
/// the more metadata, the less can be put in front.
///
/// # Errors
/// Those of [`once`]. Kernels before 6.6 accept at most 32 bytes of metadata.
pub fn once_behind(program: &Xdp, metadata: usize, frame: &[u8], arrival: Arrival) -> io::Result<(u32, Vec<u8>)> {
    let context = arrival.context(metadata, frame.len());
    let mut out = vec![0; frame.len() + HEADROOM];
    let options = TestRunOptions {
        data_in: Some(frame),
        data_out: Some(&mut out),
        ctx_in: Some(&context),
        ..TestRunOptions::new()
    };
    let result = program.test_run(options).map_err(system)?;
    out.truncate(result.data_size_out as usize);
    Ok((result.return_value, out))
}

/// Runs a tc program on one frame, which is said to leave through an interface. Returns its verdict (`enum
/// tcx_action_base`) and the frame as the program has left it.
///
/// # Errors
/// The kernel refuses: no privilege, a frame shorter than an Ethernet header, no such interface.
pub fn once_local(program: &SchedClassifier, frame: &[u8], ifindex: u32) -> io::Result<(u32, Vec<u8>)> {
    let mut context = [0; SKB_WORDS];
    context[IFINDEX] = ifindex;
    let context: Vec<u8> = context.into_iter().flat_map(u32::to_ne_bytes).collect();
    let mut out = vec![0; frame.len() + HEADROOM];
    let options = TestRunOptions {
        data_in: Some(frame),
        data_out: Some(&mut out),
        ctx_in: Some(&context),
        ..TestRunOptions::new()
    };
    let result = program.test_run(options).map_err(system)?;
    out.truncate(result.data_size_out as usize);
    Ok((result.return_value, out))
}

/// Runs the program on `repeat` copies of a frame, `batch` at a time (1 to 256; more than 64 gains nothing), and
/// carries out the program's verdict for each. Returns when all have been handled, or at the first signal: then with
/// [`io::ErrorKind::Interrupted`], which is how to end a run of unknown length. One call takes some ten milliseconds
/// before its first frame.
///
/// # Errors
/// The kernel refuses (it must be Linux 5.18 or later), or a signal has come.
pub fn live(program: &Xdp, frame: &[u8], arrival: Arrival, repeat: u32, batch: u32) -> io::Result<()> {
    let context = arrival.context(0, frame.len());
    let options = TestRunOptions {
        data_in: Some(frame),
        ctx_in: Some(&context),
        repeat,
        attrs: TestRunAttrs::new().xdp_live_frames(batch),
        ..TestRunOptions::new()
    };
    program.test_run(options).map(|_| ()).map_err(system)
}

fn system(why: ProgramError) -> io::Error {
    crate::os_error(&why).unwrap_or_else(|| io::Error::other(why))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test may panic")]
mod tests {

    use super::*;
    use crate::claim_program::{Capacity, ClaimPortRow, ClaimProgram};

    #[test]
    #[ignore = "needs root"]
    fn a_program_sees_frames_that_no_wire_has_brought() {
        const PASS: u32 = 2;
        srv6d_netns::move_thread_to_new().unwrap();
        let program = ClaimProgram::load(Capacity { ports: 1, queues: 1 }).unwrap();
        let arrival = Arrival { ifindex: crate::ifindex("lo").unwrap(), queue: 0 };
        let frame: Vec<u8> = (0..60).collect();
        let nowhere = Arrival { ifindex: 1 << 20, queue: 0 };
        let port =
            ClaimPortRow { mac: [2; 6], untagged: 0, claim_all: 0, number: 0, view: 0, queues: 1, xsks: 0, rules: 0 };
        program.set_port(arrival.ifindex, port).unwrap();
        let run = |program: &Xdp| {
            assert_eq!(once(program, &frame, arrival).unwrap(), (PASS, frame.clone()));
            live(program, &frame, arrival, 1000, 64).unwrap();
            assert!(once(program, &frame, nowhere).is_err(), "there is no such interface");
        };
        program.with_program(run).unwrap();
        assert_eq!(program.counts(0).unwrap().passed, 1001);
    }
}
