//! Limits on the size of a run.

use srv6d_config::{Findings, Spanned};

use crate::schema::ModeTable;
use crate::settings::{Case, Fabric, Mode};
use crate::traffic::size;

/// Largest number of queue pairs of a run.
const MOST_QUEUE_PAIRS: u64 = 1 << 22;
/// Largest number of packets of a run.
const MOST_PACKETS: u64 = 1 << 30;
/// Largest number of packets that may be under way at the same time. Each of them takes 48 bytes.
const MOST_UNDER_WAY: u64 = 1 << 24;
/// Largest number of flows that all leaves together remember; a flow takes 16 bytes.
const MOST_FLOWS: u64 = 1 << 26;

/// Refuses a case that would take more memory or time than a run may.
pub(crate) fn of_case(case: &Case, bytes: &Spanned<u64>, fabric: &Fabric, modes: &[Mode], found: &mut Findings) {
    let (transfers, steps) = size(case, fabric.leaves);
    let most = modes.iter().map(|mode| u64::from(mode.queue_pairs)).max().unwrap_or(1);
    let packets = |mode: &Mode| {
        let pairs = u64::from(mode.queue_pairs);
        case.bytes.div_ceil(pairs).div_ceil(fabric.frame.into()).saturating_mul(pairs).saturating_mul(steps)
    };
    let of_transfer = modes.iter().map(packets).max().unwrap_or(0);
    let window = most.saturating_mul((fabric.window / u64::from(fabric.frame)).max(1));
    let under_way = transfers.saturating_mul(window.min(of_transfer));
    let mut refuse = |what, fix| found.error(bytes.span(), "[[case]]", what, fix);
    if transfers.saturating_mul(most) > MOST_QUEUE_PAIRS {
        let what = format!("{transfers} transfers of {most} queue pairs each are too many");
        let fix = format!("write fewer hosts, or fewer queue pairs: at most {MOST_QUEUE_PAIRS} are possible in a run");
        refuse(what, fix);
    } else if transfers.saturating_mul(of_transfer) > MOST_PACKETS {
        let what = format!("{transfers} transfers of {of_transfer} packets each are too many");
        refuse(what, format!("write fewer `bytes`: at most {MOST_PACKETS} packets are possible in a run"));
    } else if under_way > MOST_UNDER_WAY {
        let what = format!("{under_way} packets would be under way at once");
        let fix = format!("write a smaller `window`, or fewer hosts: at most {MOST_UNDER_WAY} packets are possible");
        refuse(what, fix);
    }
}

/// Refuses a mode in which leaves would remember more flows than there is memory for.
pub(crate) fn of_mode(table: &ModeTable, leaves: u32, found: &mut Findings) {
    let most = MOST_FLOWS / u64::from(leaves);
    if let Some(flows) = table.flows.as_ref().filter(|flows| *flows.get_ref() as u64 > most) {
        let what = format!("{leaves} leaves with room for {} flows each", flows.get_ref());
        found.error(flows.span(), "[[mode]] flows", what, format!("write at most {most}"));
    }
}
