//! srv6d's own veth.
//!
//! ```text
//!   applications ─► kernel routes ─► srv6d0 ═══ srv6d0-x ─► AF_XDP ─► worker
//!   applications ◄─ kernel's stack ◄─ srv6d0 ═══ srv6d0-x ◄──────────  worker   (what is for this node)
//! ```
//!
//! * NOARP on the kernel's end: the kernel then sends to its own address and needs no neighbour entry. Both ends have
//!   the same address, so that such a frame is addressed to srv6d, too.
//! * Checksum offload off: the kernel would leave TCP and UDP checksums unfinished otherwise, and nobody behind a
//!   socket of AF_XDP can tell.
//! * A queue on the kernel's end, from Linux 6.18 on: a burst of local applications' packets waits there while the ring of
//!   the other end (256 packets) is full. Older kernels drop what finds no room, with a queue as without.
//! * No addresses of its own, no router solicitations: it is a wire, not a network.

use std::time::{Duration, Instant};

use rtnetlink::packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkMessage};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec};
use srv6d_srv6::model::Mac;
use tracing::warn;

use super::{KernelError, errno, netlink, qdisc, system};
use crate::plan;
use crate::process::Process;

/// Longest name of an interface.
const MAX_NAME: usize = 15;
const ALIAS: &str = "srv6d pid ";
/// What a killed process with its sockets takes to end on a busy machine, at most.
const ENDING: Duration = Duration::from_secs(2);
/// What the guard of a killed process takes then to remove rules, routes and veth: until it has, it could remove those
/// of the next srv6d. Without a guard they stay for so long.
const GUARDS_TURN: Duration = Duration::from_millis(500);

/// The pair, while the process lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostVeth {
    /// The kernel's end.
    pub name: String,
    /// The end with the sockets.
    pub peer: String,
    /// Index of the kernel's end.
    pub ifindex: u32,
    kernel_mac: Mac,
    packet_mac: Mac,
    mtu: u32,
}

impl HostVeth {
    /// Creates the pair and sets it up. A pair left behind by a process that was killed is replaced.
    ///
    /// # Errors
    /// The name belongs to somebody else, or the kernel refuses.
    pub async fn create(
        handle: &Handle,
        name: &str,
        queues: u32,
        mtu: u32,
        checksum_off: impl Fn(&str) -> std::io::Result<()>,
    ) -> Result<Self, KernelError> {
        let peer = peer_name(name);
        remove_stale(handle, name).await?;
        let end = |name: &str| {
            LinkMessageBuilder::<LinkUnspec>::default()
                .name(name.to_owned())
                .mtu(mtu)
                .append_extra_attribute(LinkAttribute::NumTxQueues(queues))
                .append_extra_attribute(LinkAttribute::NumRxQueues(queues))
        };
        let pair = LinkMessageBuilder::<LinkUnspec>::new_with_info_kind(InfoKind::Veth)
            .name(name.to_owned())
            .mtu(mtu)
            .append_extra_attribute(LinkAttribute::NumTxQueues(queues))
            .append_extra_attribute(LinkAttribute::NumRxQueues(queues))
            .set_info_data(InfoData::Veth(InfoVeth::Peer(end(&peer).build())))
            .build();
        handle.link().add(pair).execute().await.map_err(netlink(format!("create the veth {name}")))?;
        match Self::set_up(handle, name, &peer, mtu, checksum_off).await {
            Ok(veth) => Ok(veth),
            Err(why) => {
                if let Ok(Some(link)) = find(handle, name).await {
                    let _ = delete(handle, link.header.index).await; // the first error is the one to tell
                }
                Err(why)
            }
        }
    }

    async fn set_up(
        handle: &Handle,
        name: &str,
        peer: &str,
        mtu: u32,
        checksum_off: impl Fn(&str) -> std::io::Result<()>,
    ) -> Result<Self, KernelError> {
        checksum_off(name).map_err(system(format!("turn tx checksum offload of {name} off")))?;
        for end in [name, peer] {
            quiet(end)?;
        }
        write_sysctl(&format!("ipv6/conf/{peer}/disable_ipv6"), "1")?;
        write_sysctl(&format!("ipv4/conf/{name}/rp_filter"), "0")?;
        let missing = || system(format!("find the veth {name}"))(std::io::Error::from(std::io::ErrorKind::NotFound));
        let address = mac(&find(handle, name).await?.ok_or_else(missing)?).0.to_vec();
        let link = LinkUnspec::new_with_name(peer).address(address).build();
        handle.link().set(link).execute().await.map_err(netlink(format!("set the address of {peer}")))?;
        let alias = format!("{ALIAS}{}", std::process::id());
        for (end, arp) in [(peer, true), (name, false)] {
            let link = LinkUnspec::new_with_name(end).alias(alias.clone()).arp(arp).up().build();
            handle.link().set(link).execute().await.map_err(netlink(format!("set {end} up")))?;
        }
        let kernel = find(handle, name).await?.ok_or_else(missing)?;
        let packet = find(handle, peer).await?.ok_or_else(missing)?;
        if let Err(why) = qdisc::add_queue(handle, kernel.header.index).await {
            warn!("{name} has no queue: bursts of local applications' packets may be lost in front of it ({why})");
        }
        Ok(Self {
            name: name.to_owned(),
            peer: peer.to_owned(),
            ifindex: kernel.header.index,
            kernel_mac: mac(&kernel),
            packet_mac: mac(&packet),
            mtu,
        })
    }

    /// As a plan wants it.
    pub fn for_plan(&self) -> plan::HostVeth {
        plan::HostVeth {
            device: self.peer.clone(),
            packet_mac: self.packet_mac,
            kernel_mac: self.kernel_mac,
            mtu: self.mtu,
            up: true,
        }
    }

    /// Packets of local applications that the kernel has dropped in front of srv6d: its driver, because the ring of the
    /// other end was full, or the queueing discipline, because too many waited. `None`: the kernel does not tell.
    pub async fn lost_in_front(&self, handle: &Handle) -> Option<u64> {
        let link = find(handle, &self.name).await.ok()??;
        let by_driver = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(statistics) => Some(statistics.tx_dropped),
            _ => None,
        });
        let by_queue = qdisc::dropped(handle, self.ifindex).await;
        Some(by_driver?.saturating_add(u64::from(by_queue)))
    }

    /// Removes the pair, and with it all routes into it. One that is gone already is fine.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn delete(&self, handle: &Handle) -> Result<(), KernelError> {
        delete(handle, self.ifindex).await
    }
}

/// Removes a pair that a killed process left behind. False: there is none. One whose process is just ending, as when it is
/// restarted, is waited for a moment.
///
/// # Errors
/// It belongs to a process that lives or to somebody else, or the kernel refuses.
pub async fn remove_stale(handle: &Handle, name: &str) -> Result<bool, KernelError> {
    let deadline = Instant::now() + ENDING;
    let mut ended = None;
    loop {
        let Some(link) = find(handle, name).await? else { return Ok(false) };
        let taken = |whose: String| KernelError::NameTaken { name: name.to_owned(), whose };
        let owner = owner(&link).ok_or_else(|| taken("is not srv6d's".to_owned()))?;
        if !runs(owner) {
            if ended.get_or_insert_with(Instant::now).elapsed() >= GUARDS_TURN {
                return delete(handle, link.header.index).await.map(|()| true);
            }
        } else if Instant::now() >= deadline {
            return Err(taken(format!("belongs to srv6d with pid {owner}, which runs")));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// `srv6d0` and `srv6d0-x`.
fn peer_name(name: &str) -> String {
    let room = MAX_NAME - 2;
    format!("{}-x", name.get(..room).unwrap_or(name))
}

/// The process that made this veth, if it is srv6d's.
fn owner(link: &LinkMessage) -> Option<u32> {
    let alias = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfAlias(alias) => Some(alias.as_str()),
        _ => None,
    });
    alias?.strip_prefix(ALIAS)?.parse().ok()
}

/// Whether this process is another srv6d that has not ended yet.
fn runs(pid: u32) -> bool {
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    comm.trim_end() == "srv6d" && pid != std::process::id() && Process::of(pid).is_some_and(Process::alive)
}

pub(super) async fn find(handle: &Handle, name: &str) -> Result<Option<LinkMessage>, KernelError> {
    use futures_util::stream::TryStreamExt;
    let mut links = std::pin::pin!(handle.link().get().match_name(name.to_owned()).execute());
    match links.try_next().await {
        Ok(link) => Ok(link),
        Err(why) if errno(&why) == Some(nix::errno::Errno::ENODEV as i32) => Ok(None),
        Err(why) => Err(netlink(format!("look for {name}"))(why)),
    }
}

async fn delete(handle: &Handle, ifindex: u32) -> Result<(), KernelError> {
    match handle.link().del(ifindex).execute().await {
        Err(why) if errno(&why) == Some(nix::errno::Errno::ENODEV as i32) => Ok(()),
        result => result.map_err(netlink(format!("delete interface {ifindex}"))),
    }
}

fn mac(link: &LinkMessage) -> Mac {
    let bytes = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Address(bytes) => bytes.as_slice().try_into().ok(),
        _ => None,
    });
    Mac(bytes.unwrap_or_default())
}

/// No link-local address, no router solicitations.
fn quiet(end: &str) -> Result<(), KernelError> {
    const NO_ADDRESS: &str = "1"; // IN6_ADDR_GEN_MODE_NONE
    write_sysctl(&format!("ipv6/conf/{end}/addr_gen_mode"), NO_ADDRESS)?;
    write_sysctl(&format!("ipv6/conf/{end}/accept_ra"), "0")?;
    write_sysctl(&format!("ipv6/conf/{end}/router_solicitations"), "0")
}

fn write_sysctl(key: &str, value: &str) -> Result<(), KernelError> {
    let path = format!("/proc/sys/net/{key}");
    match std::fs::write(&path, value) {
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(()), // IPv6 is not in this kernel
        result => result.map_err(system(format!("write {value} to {path}"))),
    }
}
