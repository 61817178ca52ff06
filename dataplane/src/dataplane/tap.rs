//! Copies of what the XDP program forwards, for captures. A thread takes them out of the program's ring while a capture is open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use srv6d_xsk::xdp_offload::Tap;

use crate::capture::Taps;

/// Pause of the thread when the ring is empty. The ring takes the packets of several milliseconds.
const PAUSE: Duration = Duration::from_millis(1);
/// Number of copies after which the open captures are looked up again.
const BATCH: usize = 256;
/// Time between two looks at what found no room.
const BETWEEN_LOSSES: Duration = Duration::from_millis(50);

/// The thread. It ends when this is dropped, with what is in the ring by then.
#[derive(Debug)]
pub(super) struct ProgramTap {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ProgramTap {
    /// Begins to hand copies to the captures that are open.
    pub(super) fn start(tap: Tap, taps: Arc<Taps>) -> std::io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::Builder::new().name("srv6d-tap".to_owned());
        let thread = thread.spawn(move || hand_over(tap, &taps, &over))?;
        Ok(Self { is_over, thread: Some(thread) })
    }
}

impl Drop for ProgramTap {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // what a panic of it means is that the captures end
        }
    }
}

fn hand_over(mut tap: Tap, taps: &Taps, is_over: &AtomicBool) {
    let mut looked = Instant::now();
    loop {
        let ends = is_over.load(Ordering::Acquire);
        let copies = tap.drain(BATCH, |copy| taps.copy_of_program(&copy));
        if copies == 0 || looked.elapsed() > BETWEEN_LOSSES {
            looked = Instant::now();
            tap.lost(|device, frames| taps.lost(device.into(), frames));
        }
        match copies {
            0 if ends => return,
            0 => std::thread::sleep(PAUSE),
            _ => {}
        }
    }
}
