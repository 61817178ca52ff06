//! The two paths of the worker, each alone.

use std::rc::Rc;

use srv6d_dataplane::io::Io;
use srv6d_dataplane::look_ups;
use srv6d_dataplane::memory::{Memory, MemoryFrame};
use srv6d_model::Outcome;
use srv6d_srv6::{Frames, LookUps, SlowState, Tally, Verdict, slow_path, write_burst};

use super::{APART, Compiled, counts};
use crate::engine::{Engine, Node, Treatment};

/// The fast path of the worker, with its destination cache.
#[derive(Debug)]
pub struct FastPath {
    compiled: Option<Rc<Compiled>>,
    look_ups: LookUps,
}

impl Default for FastPath {
    fn default() -> Self {
        Self { compiled: None, look_ups: look_ups() }
    }
}

impl Engine for FastPath {
    fn name(&self) -> &'static str {
        "fast path"
    }

    fn go_over(&mut self, node: Node<'_>) -> Result<bool, String> {
        self.compiled = Compiled::of(node.desired);
        Ok(self.compiled.is_some())
    }

    /// Forwards a plain frame. A frame that is not plain is left, and must be unchanged.
    fn forward(&mut self, port: u16, frame: &[u8]) -> Result<Treatment, String> {
        let Compiled { tables, slots, .. } = self.compiled.as_deref().ok_or("no tables")?;
        let tally = Tally::new(slots);
        let io = Memory::default();
        let mut frames = [MemoryFrame::new(frame)];
        let (found, mut inside) = self.look_ups.look_up(tables, port, &io, &mut frames);
        let mut left = None;
        let leave = |leaving| left = Some(leaving);
        let written = write_burst(tables, &tally, &io, &mut frames, found, &mut inside, leave);
        let bytes = frames.first().map(MemoryFrame::bytes).unwrap_or_default();
        let counts = counts(slots, &tally);
        match (written, left) {
            (0, None) if bytes == frame && counts.is_empty() => Ok(Treatment::Left),
            (1, Some(leaving)) if leaving.packets == 1 && leaving.bytes == bytes.len() => {
                let verdict = Verdict::Tx(leaving.device);
                Ok(Treatment::Outcomes(vec![Outcome { verdict, frame: bytes, counts }]))
            }
            _ => Err(format!("{written} frames written, {left:?}, {counts:?}: {bytes:02x?}")),
        }
    }

    /// Returns the same number as for `Worker`, because this path has the same cache.
    fn times(&self) -> usize {
        4
    }
}

/// The slow path of the worker, which every packet can take.
#[derive(Debug, Default)]
pub struct SlowPath {
    compiled: Option<Rc<Compiled>>,
    state: SlowState,
    now: u64,
}

impl Engine for SlowPath {
    fn name(&self) -> &'static str {
        "slow path"
    }

    fn go_over(&mut self, node: Node<'_>) -> Result<bool, String> {
        self.compiled = Compiled::of(node.desired);
        Ok(self.compiled.is_some())
    }

    fn forward(&mut self, port: u16, frame: &[u8]) -> Result<Treatment, String> {
        let Compiled { tables, slots, .. } = self.compiled.as_deref().ok_or("no tables")?;
        let tally = Tally::new(slots);
        let io = Memory::default();
        let mut frame = MemoryFrame::new(frame);
        self.now += APART;
        let (mut packet, further) = io.packet_and_further(&mut frame);
        let verdict = slow_path(tables, &tally, &mut self.state, self.now, port, &mut packet, &further);
        let (at, keep_tail) = (packet.extent(), packet.tail_len() > 0);
        drop(further);
        io.place(&mut frame, at, keep_tail);
        let counts = counts(slots, &tally);
        Ok(Treatment::Outcomes(vec![Outcome { verdict, frame: frame.bytes(), counts }]))
    }
}
