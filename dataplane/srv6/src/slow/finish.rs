//! The last stage: writes the decision into the packet, and counts it.

use srv6d_wire::Packet;

use super::{Egress, FurtherSum, Layer, Out, Progress, SlowPath, Verdict};
use crate::edit;
use crate::icmp::{self, Reply};
use crate::limiter::Limiter;
use crate::reason::DropReason;
use crate::tables::Tables;
use crate::tally::Tally;

/// What is written into a packet that is neither dropped nor held.
pub(super) enum Ending<'t> {
    Send(Egress<'t>),
    Kernel,
    Echo(Reply<'t>),
    Error(DropReason, Reply<'t>),
}

impl<'t> SlowPath<'t, '_, '_> {
    /// Returns what is written of a packet that is not forwarded, or the verdict if nothing is.
    pub(super) fn ending(
        &self,
        out: Out,
        limiter: &mut Limiter,
        further: FurtherSum<'_>,
    ) -> Result<Ending<'t>, Verdict> {
        match out {
            Out::Drop(reason) => Err(Verdict::Drop(reason)),
            Out::Hold(port, neighbor) => Err(Verdict::Hold(port, neighbor)),
            Out::Kernel => Ok(Ending::Kernel),
            Out::Echo(at) => icmp::plan_echo(self, at, further).map(Ending::Echo).map_err(Verdict::Drop),
            Out::Tell(reason, notice) => icmp::plan_error(self, notice, limiter, self.now)
                .map(|reply| Ending::Error(reason, reply))
                .ok_or(Verdict::Drop(reason)),
        }
    }
}

/// Writes the headers of a packet that came as `received` bytes, and counts it.
#[inline]
pub(super) fn write(
    tables: &Tables,
    tally: &Tally,
    packet: &mut Packet<'_>,
    (progress, received): (&Progress, usize),
    ending: Ending<'_>,
    fill_checksum: bool,
) -> Result<Verdict, DropReason> {
    let layer = &progress.layer;
    let verdict = match ending {
        Ending::Send(egress) => {
            let device = edit::send(tables, packet, layer, egress, fill_checksum)?;
            count_egress(tally, layer, egress);
            Verdict::Tx(device)
        }
        Ending::Kernel => Verdict::Kernel(edit::to_kernel(tables, packet, layer)?),
        Ending::Echo(reply) => Verdict::Echo(icmp::write_echo(tables, packet, &reply)?),
        Ending::Error(reason, reply) => {
            return icmp::write_error(tables, packet, &reply).map(|device| Verdict::Error(reason, device));
        }
    };
    progress.count(tally, received);
    Ok(verdict)
}

#[inline]
fn count_egress(tally: &Tally, layer: &Layer, egress: Egress<'_>) {
    match egress {
        Egress::Routed(adjacency) => tally.adjacency(adjacency.slot, 1, layer.len()),
        Egress::Encapsulated(path, adjacency, _) => {
            tally.path(path.slot, layer.len() + path.header_len);
            tally.adjacency(adjacency.slot, 1, layer.len() + path.header_len);
        }
    }
}
