//! A generator for frames longer than a page. It uses AF_XDP, because the kernel runs programs only with live frames of
//! a single page.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use srv6d_xsk::{Mode, Rings, Socket, Umem, UmemRings, XskError};

use crate::BenchError;
use crate::generator::Load;

/// Length in bytes above which frames are sent from here: a page minus what the kernel needs in front of and behind a
/// packet.
pub const LONGEST_LIVE: usize = 3200;
const RING: u32 = 2048;
const CHUNKS: u32 = 8192;
/// Number of frames between two wake-ups of the kernel, if there is no rate.
const BATCH: u64 = 16;
/// Delay of a sender above which the missed time is skipped. Catching up would cause a burst.
const LATE: Duration = Duration::from_micros(100);

/// Counters of frames sent.
#[derive(Debug, Default)]
pub struct Count {
    /// Number of frames.
    pub frames: AtomicU64,
    /// Number of bytes in these frames.
    pub bytes: AtomicU64,
}

/// Sends from the calling thread, in its namespace, until told to stop or until the limit is reached.
pub fn send(
    device: &str,
    queue: u32,
    load: &Load,
    cores: u64,
    count: &Count,
    stop: &AtomicBool,
) -> Result<(), BenchError> {
    let said = |why: XskError| BenchError(why.to_string());
    let mut umem = Umem::with_rings(CHUNKS, UmemRings { fill: 64, completion: RING }).map_err(said)?;
    let mut socket = Socket::open(&umem, device, queue, Mode::Auto, Rings { rx: 64, tx: RING }).map_err(said)?;
    let gap = load.rate.map(|rate| Duration::from_secs_f64(cores as f64 / rate));
    let limit = load.limit.map_or(u64::MAX, |limit| limit / cores);
    let (mut due, mut sent) = (Instant::now(), 0_u64);
    let mut frames = load.frames.clone();
    let shapes = frames.len().max(1) as u64;
    while !stop.load(Ordering::Relaxed) && sent < limit {
        if let Some(gap) = gap {
            let now = Instant::now();
            if now < due {
                std::hint::spin_loop();
                continue;
            }
            due = due.max(now.checked_sub(LATE).unwrap_or(now)) + gap;
        }
        let Some(bytes) = frames.get_mut((sent % shapes) as usize) else { break };
        write_flow(bytes, load, sent);
        let frame = umem.frame_of(bytes);
        match frame.map(|frame| socket.tx(frame)) {
            Some(Ok(())) => {
                sent += 1;
                count.frames.fetch_add(1, Ordering::Relaxed);
                count.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            Some(Err(frame)) => drop(umem.recycle(frame)),
            None => {}
        }
        if gap.is_some() || sent % BATCH == 0 || socket.outstanding().1 > RING / 2 {
            socket.flush(&mut umem);
        }
    }
    socket.flush(&mut umem);
    Ok(())
}

/// Writes the flow as the BPF program does: the source port is the flow, and its complement behind the header keeps the
/// checksum valid.
fn write_flow(frame: &mut [u8], load: &Load, number: u64) {
    let flow = (0x8000 | (number & (load.flows - 1) & 0x7fff) as u16).to_be_bytes();
    if let Some(port) = frame.get_mut(load.udp_offset..load.udp_offset + 2) {
        port.copy_from_slice(&flow);
    }
    if let Some(complement) = frame.get_mut(load.udp_offset + 8..load.udp_offset + 10) {
        complement.copy_from_slice(&flow.map(|byte| !byte));
    }
}
