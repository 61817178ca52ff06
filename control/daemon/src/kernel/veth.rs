//! Creates and removes srv6d's own veth.
//!
//! ```text
//!   applications ─► kernel routes ─► srv6d0 ═══ srv6d0-x ─► AF_XDP ─► worker
//!   applications ◄─ kernel's stack ◄─ srv6d0 ═══ srv6d0-x ◄──────────  worker   (what is for this node)
//! ```
//!
//! * The kernel's end is NOARP: the kernel then sends to its own address and needs no neighbour entry. Both ends have
//!   the same address, so that such a frame is addressed to srv6d, too.
//! * Checksum offload is off: otherwise the kernel would leave TCP and UDP checksums unfinished, and a reader of an
//!   AF_XDP socket cannot see that.
//! * From Linux 6.18 on, the kernel's end has a queue: a burst of local applications' packets waits there while the
//!   ring of the other end (256 packets) is full. Older kernels drop packets that find no room, with or without a
//!   queue.
//! * It has no addresses of its own and sends no router solicitations: it is a wire, not a network.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rtnetlink::packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkMessage};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec};
use srv6d_addresses::Mac;
use tracing::warn;

use super::{KernelError, errno, netlink, qdisc, system};
use srv6d_plan as plan;
use srv6d_process::Process;

/// Longest name of an interface.
const MAX_NAME: usize = 15;
const ALIAS: &str = "srv6d pid ";
/// Longest time that a killed process with its sockets needs to end on a busy machine.
const ENDING: Duration = Duration::from_secs(2);
/// Time that the guard of a killed process then needs to remove rules, routes and veth. The next srv6d waits for that,
/// because the guard could otherwise remove the new rules and routes. Without a guard the old ones stay that long.
const GUARDS_TURN: Duration = Duration::from_millis(500);
/// Number of further attempts to write a setting that is not there yet, and pause in front of each.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// The pair of interfaces, which exists while the process lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostVeth {
    /// Name of the kernel's end.
    pub name: String,
    /// Name of the end with the sockets.
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
    /// The name is taken by another owner, or the kernel refuses.
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
                    let _ = delete(handle, link.header.index).await; // the first error is the one to report
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

    /// Returns the pair in the form that planning needs.
    pub fn for_plan(&self) -> plan::HostVeth {
        plan::HostVeth {
            device: self.peer.clone(),
            packet_mac: self.packet_mac,
            kernel_mac: self.kernel_mac,
            mtu: self.mtu,
            up: true,
        }
    }

    /// Returns how many packets of local applications the kernel has dropped in front of srv6d: by the driver, because
    /// the ring of the other end was full, or by the queueing discipline, because too many waited. `None`: the kernel
    /// does not tell.
    pub async fn lost_in_front(&self, handle: &Handle) -> Option<u64> {
        let link = find(handle, &self.name).await.ok()??;
        let by_driver = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(statistics) => Some(statistics.tx_dropped),
            _ => None,
        });
        let by_queue = qdisc::dropped(handle, self.ifindex).await;
        Some(by_driver?.saturating_add(u64::from(by_queue)))
    }

    /// Removes the pair, and with it all routes into it. It is no error if the pair is gone already.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn delete(&self, handle: &Handle) -> Result<(), KernelError> {
        delete(handle, self.ifindex).await
    }
}

/// Removes a pair that a killed process left behind. Returns false if there is none. If its process is just ending, as
/// at a restart, waits a moment for its end.
///
/// # Errors
/// The pair belongs to a process that lives or to another owner, or the kernel refuses.
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

/// Returns the name of the other end, `srv6d0-x` for `srv6d0`.
fn peer_name(name: &str) -> String {
    let room = MAX_NAME - 2;
    format!("{}-x", name.get(..room).unwrap_or(name))
}

/// Returns the process that made this veth, if that is a srv6d.
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

/// Prevents a link-local address and router solicitations.
fn quiet(end: &str) -> Result<(), KernelError> {
    const NO_ADDRESS: &str = "1"; // IN6_ADDR_GEN_MODE_NONE
    write_sysctl(&format!("ipv6/conf/{end}/addr_gen_mode"), NO_ADDRESS)?;
    write_sysctl(&format!("ipv6/conf/{end}/accept_ra"), "0")?;
    write_sysctl(&format!("ipv6/conf/{end}/router_solicitations"), "0")
}

/// Writes a kernel setting. While the kernel removes the settings of an earlier interface of the same name, those of the new one
/// may not be found for a moment.
fn write_sysctl(key: &str, value: &str) -> Result<(), KernelError> {
    let path = format!("/proc/sys/net/{key}");
    // Without `create`: the kernel would answer that with "permission denied" when there is no such file.
    let write = || OpenOptions::new().write(true).open(&path)?.write_all(value.as_bytes());
    let is_missing =
        |result: &std::io::Result<()>| matches!(result, Err(why) if why.kind() == std::io::ErrorKind::NotFound);
    if !Path::new("/proc/sys/net/ipv6").exists() && key.starts_with("ipv6/") {
        return Ok(()); // this kernel has no IPv6
    }
    let mut result = write();
    for _ in 0..ATTEMPTS {
        if !is_missing(&result) {
            break;
        }
        std::thread::sleep(PAUSE);
        result = write();
    }
    result.map_err(system(format!("write {value} to {path}")))
}
