//! Queueing disciplines of devices, as `tc qdisc show` lists them.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use rtnetlink::packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};

use crate::kernel_release;

/// A queue of packets in order of arrival, as long as the device's `txqueuelen`. Every kernel with queueing disciplines
/// has it (`CONFIG_NET_SCH_FIFO`); that is not so for `fq_codel`.
const FIFO: &str = "pfifo";
/// The first kernel whose veth can use a queue. While the other end's ring is full, its veth leaves packets to the
/// queueing discipline instead of dropping them (since 6.16, `veth_xmit`), and that can no longer stop its transmit
/// queue for ever (since 6.18).
const VETH_WAITS: (u32, u32) = (6, 18);

/// Returns the root discipline of each device, by its index. The map is empty if the kernel does not tell.
pub async fn root_qdiscs(handle: &rtnetlink::Handle) -> BTreeMap<u32, String> {
    let kind = |message: TcMessage| {
        message.attributes.into_iter().find_map(|attribute| match attribute {
            TcAttribute::Kind(kind) => Some(kind),
            _ => None,
        })
    };
    let roots = roots(handle).await.into_iter();
    roots.filter_map(|(index, message)| Some((index, kind(message)?))).collect()
}

/// Returns how many packets the root discipline of a device has dropped since the discipline was added.
pub(super) async fn dropped(handle: &rtnetlink::Handle, ifindex: u32) -> u32 {
    let root = roots(handle).await.remove(&ifindex);
    let attributes = root.map(|message| message.attributes).unwrap_or_default();
    let statistics = attributes.into_iter().find_map(|attribute| match attribute {
        TcAttribute::Stats2(statistics) => Some(statistics),
        _ => None,
    });
    let queue = statistics.unwrap_or_default().into_iter().find_map(|statistic| match statistic {
        TcStats2::Queue(queue) => Some(queue.drops),
        _ => None,
    });
    queue.unwrap_or_default()
}

/// Gives a veth a queue in which packets wait while the ring of its other end is full. Does nothing on kernels whose
/// veth does not use a queue.
///
/// # Errors
/// The kernel refuses, for instance because it was built without queueing disciplines.
pub(super) async fn add_queue(handle: &rtnetlink::Handle, ifindex: u32) -> Result<(), rtnetlink::Error> {
    if kernel_release::this().is_none_or(|release| release < VETH_WAITS) {
        return Ok(());
    }
    let mut message = TcMessage::with_index(i32::try_from(ifindex).unwrap_or_default());
    message.header.parent = TcHandle::ROOT;
    message.attributes.push(TcAttribute::Kind(FIFO.to_owned()));
    let mut request = NetlinkMessage::from(RouteNetlinkMessage::NewQueueDiscipline(message));
    request.header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    let mut answers = std::pin::pin!(handle.clone().request(request)?);
    while let Some(answer) = answers.next().await {
        if let NetlinkPayload::Error(refusal) = answer.payload
            && refusal.code.is_some()
        {
            return Err(rtnetlink::Error::NetlinkError(refusal));
        }
    }
    Ok(())
}

async fn roots(handle: &rtnetlink::Handle) -> BTreeMap<u32, TcMessage> {
    let mut found = BTreeMap::new();
    let mut disciplines = std::pin::pin!(handle.qdisc().get().execute());
    while let Some(Ok(message)) = disciplines.next().await {
        if let (TcHandle::ROOT, Ok(index)) = (message.header.parent, u32::try_from(message.header.index)) {
            found.insert(index, message);
        }
    }
    found
}

/// Queueing disciplines that send packets at once and in order, and those for received packets.
const PLAIN_QDISCS: [&str; 9] = ["noqueue", "noop", "pfifo_fast", "pfifo", "bfifo", "mq", "fq_codel", "fq", "ingress"];

/// Whether packets of AF_XDP bypass a queueing discipline that an operator has configured on purpose.
pub fn passed_by(qdisc: &str) -> bool {
    !PLAIN_QDISCS.contains(&qdisc)
}
