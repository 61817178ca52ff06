//! The XDP program of one port: loading, attaching, and its maps.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use aya::maps::lpm_trie::Key;
use aya::maps::{Array, HashMap, LpmTrie, MapData, PerCpuArray, XskMap};
use aya::programs::{ProgramFd, Xdp};
use aya::{Ebpf, EbpfLoader, Pod};
use xsk_rs::config::XdpFlags;

use crate::claims::{self, Address, Change, Claims};
use crate::{Mode, Socket, XskError, ethtool, probe, sys};

/// What `bpf/claim.c` was compiled to.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/claim.o"));

/// The function in `bpf/claim.c`.
pub(crate) const PROGRAM: &str = "srv6d_claim";

/// Entries an LPM map may grow to. Memory is taken per entry in use.
const MAX_CLAIMS: u32 = 1 << 20;

/// What a port's program starts with. All of it can be changed later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramSettings {
    /// The MAC whose frames are ours. None: the interface's.
    pub mac: Option<[u8; 6]>,
    /// Frames without a VLAN tag may be claimed.
    pub untagged: bool,
    /// VLAN ids whose frames may be claimed.
    pub vlans: Vec<u16>,
    /// Claim all unicast IPv4 and IPv6 but ND, without look-up.
    pub claim_all: bool,
}

/// What a port's program has done, all CPUs and queues together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames left to the kernel.
    pub passed: u64,
    /// Frames put into a socket's direction (the socket may still have had no
    /// room: see its own counters).
    pub redirected: u64,
}

/// `struct port` of `bpf/claim.c`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct PortConfig {
    mac: [u8; 6],
    untagged: u8,
    claim_all: u8,
}

// SAFETY: eight bytes without padding, any bit pattern is a value.
unsafe impl Pod for PortConfig {}

/// The program on one port. Dropping it, or the death of the process, takes it
/// off the port: all traffic is the kernel's again.
pub struct Program {
    // Declared before the maps: detached before they are closed.
    link: Link,
    ifname: String,
    chosen: (Mode, String),
    port: PortConfig,
    claims6: Claims<Ipv6Addr>,
    claims4: Claims<Ipv4Addr>,
    outer_sources: BTreeSet<Ipv6Addr>,
    vlans: Vec<u16>,
    maps: Maps,
    // Holds the program itself.
    ebpf: Ebpf,
}

struct Maps {
    claims6: LpmTrie<MapData, [u8; 16], u32>,
    claims4: LpmTrie<MapData, [u8; 4], u32>,
    outer_sources: HashMap<MapData, [u8; 16], u32>,
    xsks: XskMap<MapData>,
    port: Array<MapData, PortConfig>,
    vlans: Array<MapData, u32>,
    counters: PerCpuArray<MapData, u64>,
}

impl Maps {
    fn counts(&self) -> Result<Counts, aya::maps::MapError> {
        let sum = |index: u32| self.counters.get(&index, 0).map(|cells| cells.iter().sum());
        Ok(Counts { passed: sum(0)?, redirected: sum(1)? })
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Program {{ {}, {} }}", self.ifname, self.chosen.0)
    }
}

impl Program {
    /// Loads the program and attaches it to `ifname`, with no claim and no
    /// socket: everything still goes to the kernel. Generic mode is taken when
    /// asked for, or with [`Mode::Auto`] when the driver has no XDP.
    ///
    /// An XDP program that is already on the port stays there:
    /// [`XskError::ForeignProgram`] names it.
    pub fn attach(ifname: &str, mode: Mode, settings: &ProgramSettings) -> Result<Self, XskError> {
        let ifindex = crate::ifindex(ifname)?;
        if let Some(on) = probe::attached(ifindex) {
            return Err(foreign(ifname, on.id));
        }
        let port = PortConfig {
            mac: settings.mac.map_or_else(|| ethtool::mac(ifname), Ok)?,
            untagged: settings.untagged.into(),
            claim_all: settings.claim_all.into(),
        };
        let (mut ebpf, maps) = load(ifname, ethtool::queues(ifname)?)?;
        let (link, chosen) = attach(&mut ebpf, ifname, ifindex, mode)?;
        let mut program = Self {
            link,
            ifname: ifname.to_owned(),
            chosen,
            port,
            claims6: Claims::<Ipv6Addr>::new(),
            claims4: Claims::<Ipv4Addr>::new(),
            outer_sources: BTreeSet::new(),
            vlans: Vec::new(),
            maps,
            ebpf,
        };
        program.set_vlans(&settings.vlans)?;
        program.write_port()?;
        sys::give_back_free_memory();
        Ok(program)
    }

    /// The mode in use, native or generic, and why.
    pub fn chosen(&self) -> (Mode, &str) {
        (self.chosen.0, &self.chosen.1)
    }

    /// From now on claimed packets of this queue go to this socket.
    pub fn set_socket(&mut self, queue: u32, socket: &Socket) -> Result<(), XskError> {
        let done = self.maps.xsks.set(queue, socket.as_fd(), 0);
        done.map_err(|why| self.map_error(format!("give queue {queue} its socket"), &why))
    }

    /// From now on all packets of this queue go to the kernel. Not an error
    /// when it had no socket.
    pub fn clear_socket(&mut self, queue: u32) -> Result<(), XskError> {
        match self.maps.xsks.unset(queue) {
            Err(why) if !is_missing(&why) => Err(self.map_error(format!("take the socket off queue {queue}"), &why)),
            _ => Ok(()),
        }
    }

    /// Makes these the port's claims: destination prefixes whose packets go to
    /// the socket (true) or stay with the kernel (false); the longest prefix
    /// decides. Only differences are written, additions before removals, so an
    /// address claimed before and after is claimed all the time.
    ///
    /// After an error the map holds a part of the changes; calling again goes
    /// on from there.
    pub fn set_claims(&mut self, v6: &[(Ipv6Addr, u8, bool)], v4: &[(Ipv4Addr, u8, bool)]) -> Result<(), XskError> {
        let maps = &mut self.maps;
        let done = write_claims::<Ipv6Addr>(&mut maps.claims6, &mut self.claims6, &claims::collect(v6))
            .and_then(|()| write_claims::<Ipv4Addr>(&mut maps.claims4, &mut self.claims4, &claims::collect(v4)));
        done.map_err(|why| self.map_error("change the claims".to_owned(), &why))
    }

    /// Changes the claims of some prefixes: to the socket, to the kernel, or `None` for whatever a shorter prefix says.
    pub fn amend_claims(&mut self, changes: &[(IpAddr, u8, Option<bool>)]) -> Result<(), XskError> {
        let maps = &mut self.maps;
        let mut done = Ok(());
        for &(network, length, claim) in changes {
            done = done.and(match network {
                IpAddr::V6(network) => {
                    write_claim::<Ipv6Addr>(&mut maps.claims6, &mut self.claims6, (network.octets(), length), claim)
                }
                IpAddr::V4(network) => {
                    write_claim::<Ipv4Addr>(&mut maps.claims4, &mut self.claims4, (network.octets(), length), claim)
                }
            });
        }
        done.map_err(|why| self.map_error("change the claims".to_owned(), &why))
    }

    /// Adds some to what [`set_outer_sources`](Self::set_outer_sources) has set.
    pub fn add_outer_sources(&mut self, more: &BTreeSet<Ipv6Addr>) -> Result<(), XskError> {
        if more.is_subset(&self.outer_sources) {
            return Ok(());
        }
        let all = self.outer_sources.union(more).copied().collect();
        self.set_outer_sources(&all)
    }

    /// Makes these the addresses whose `ICMPv6` Packet Too Big messages go to the socket, whatever the claims say of the
    /// rest of their packets.
    pub fn set_outer_sources(&mut self, wanted: &BTreeSet<Ipv6Addr>) -> Result<(), XskError> {
        let (map, now) = (&mut self.maps.outer_sources, &self.outer_sources);
        let added = wanted.difference(now).try_for_each(|address| map.insert(address.octets(), 1, 0));
        let done = added.and_then(|()| now.difference(wanted).try_for_each(|address| map.remove(&address.octets())));
        done.map_err(|why| self.map_error("change the outer sources".to_owned(), &why))?;
        self.outer_sources.clone_from(wanted);
        Ok(())
    }

    /// VLAN ids whose frames may be claimed. 0 and ids over 4094 are ignored.
    pub fn set_vlans(&mut self, vids: &[u16]) -> Result<(), XskError> {
        let mut wanted: Vec<u16> = vids.iter().copied().filter(|vid| (1..=4094).contains(vid)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let added = wanted.iter().filter(|vid| !self.vlans.contains(vid)).map(|&vid| (vid, 1));
        let removed = self.vlans.iter().filter(|vid| !wanted.contains(vid)).map(|&vid| (vid, 0));
        for (vid, known) in added.chain(removed) {
            let done = self.maps.vlans.set(u32::from(vid), known, 0);
            done.map_err(|why| self.map_error(format!("change VLAN {vid}"), &why))?;
        }
        self.vlans = wanted;
        Ok(())
    }

    /// Whether frames without a VLAN tag may be claimed.
    pub fn set_untagged(&mut self, may: bool) -> Result<(), XskError> {
        self.port.untagged = may.into();
        self.write_port()
    }

    /// Whether all unicast is claimed without look-up, for srv6d's own veth.
    pub fn claim_all(&mut self, all: bool) -> Result<(), XskError> {
        self.port.claim_all = all.into();
        self.write_port()
    }

    /// The MAC whose frames are ours, after a change of the port's address.
    pub fn set_mac(&mut self, mac: [u8; 6]) -> Result<(), XskError> {
        self.port.mac = mac;
        self.write_port()
    }

    /// Puts another program on the port in place of this one, which the other is to call; `None`: this one again. There
    /// is no moment without either.
    pub(crate) fn set_front(&mut self, front: Option<BorrowedFd<'_>>) -> Result<(), XskError> {
        let program = self.fd()?.as_fd();
        self.link.update(front.unwrap_or(program)).map_err(|why| XskError::Program {
            ifname: self.ifname.clone(),
            what: "exchange",
            fix: program_fix(why.raw_os_error()),
            why: why.to_string(),
        })
    }

    /// The program itself, for another one to call.
    pub(crate) fn fd(&self) -> Result<&ProgramFd, XskError> {
        let program: Option<&Xdp> = self.ebpf.program(PROGRAM).and_then(|program| program.try_into().ok());
        program.and_then(|program| program.fd().ok()).ok_or_else(|| missing_program(&self.ifname))
    }

    /// Counters since the program was attached.
    pub fn counts(&self) -> Result<Counts, XskError> {
        self.maps.counts().map_err(|why| self.map_error("read the counters".to_owned(), &why))
    }

    fn write_port(&mut self) -> Result<(), XskError> {
        let done = self.maps.port.set(0, self.port, 0);
        done.map_err(|why| self.map_error("change the port's settings".to_owned(), &why))
    }

    fn map_error(&self, what: String, why: &aya::maps::MapError) -> XskError {
        XskError::Map { ifname: self.ifname.clone(), what, why: chain(why) }
    }
}

fn is_missing(why: &aya::maps::MapError) -> bool {
    crate::os_error(why).and_then(|os| os.raw_os_error()) == Some(libc::ENOENT)
}

fn write_claims<A: Address>(
    map: &mut LpmTrie<MapData, A::Bytes, u32>,
    now: &mut Claims<A>,
    wanted: &Claims<A>,
) -> Result<(), aya::maps::MapError>
where
    A::Bytes: Pod,
{
    claims::diff(now, wanted).into_iter().try_for_each(|change| match change {
        Change::Put(net, len, xsk) => write_claim::<A>(map, now, (net, len), Some(xsk)),
        Change::Remove(net, len) => write_claim::<A>(map, now, (net, len), None),
    })
}

fn write_claim<A: Address>(
    map: &mut LpmTrie<MapData, A::Bytes, u32>,
    now: &mut Claims<A>,
    (net, len): (A::Bytes, u8),
    claim: Option<bool>,
) -> Result<(), aya::maps::MapError>
where
    A::Bytes: Pod,
{
    let key = Key::new(u32::from(len), net);
    match claim {
        Some(xsk) => {
            map.insert(&key, u32::from(xsk), 0)?;
            now.insert((net, len), xsk);
        }
        None if now.contains_key(&(net, len)) => {
            map.remove(&key)?;
            now.remove(&(net, len));
        }
        None => {}
    }
    Ok(())
}

fn load(ifname: &str, queues: u32) -> Result<(Ebpf, Maps), XskError> {
    let failed = |why: String, code: Option<i32>| XskError::Program {
        ifname: ifname.to_owned(),
        what: "load",
        why,
        fix: program_fix(code),
    };
    let mut ebpf = EbpfLoader::new()
        .map_max_entries("claims6", MAX_CLAIMS)
        .map_max_entries("claims4", MAX_CLAIMS)
        .map_max_entries("outer_sources", MAX_CLAIMS)
        .map_max_entries("xsks", queues)
        .load(OBJECT)
        .map_err(|why| failed(chain(&why), os_code(&why)))?;
    let maps = take_maps(&mut ebpf).ok_or_else(|| failed("a map is missing in the object".to_owned(), None))?;
    let program: Option<&mut Xdp> = ebpf.program_mut(PROGRAM).and_then(|p| p.try_into().ok());
    let program = program.ok_or_else(|| missing_program(ifname))?;
    program.load().map_err(|why| failed(chain(&why), os_code(&why)))?;
    Ok((ebpf, maps))
}

/// The program and its counters, on no port.
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test may panic")]
pub(crate) fn load_unattached(ifname: &str) -> Result<(Ebpf, impl Fn() -> Counts), XskError> {
    let (ebpf, maps) = load(ifname, 1)?;
    Ok((ebpf, move || maps.counts().unwrap()))
}

fn take_maps(ebpf: &mut Ebpf) -> Option<Maps> {
    Some(Maps {
        claims6: ebpf.take_map("claims6")?.try_into().ok()?,
        claims4: ebpf.take_map("claims4")?.try_into().ok()?,
        outer_sources: ebpf.take_map("outer_sources")?.try_into().ok()?,
        xsks: ebpf.take_map("xsks")?.try_into().ok()?,
        port: ebpf.take_map("port")?.try_into().ok()?,
        vlans: ebpf.take_map("vlans")?.try_into().ok()?,
        counters: ebpf.take_map("counters")?.try_into().ok()?,
    })
}

/// The bpf_link that holds the program on the port.
struct Link(OwnedFd);

impl Link {
    fn update(&self, program: BorrowedFd<'_>) -> std::io::Result<()> {
        // SAFETY: takes two numbers, descriptors that live; no options.
        let code = unsafe { libxdp_sys::bpf_link_update(self.0.as_raw_fd(), program.as_raw_fd(), std::ptr::null()) };
        if code == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(-code)) }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Closing the descriptor detaches only when it was the last: a child
        // that another thread is just starting has a copy of it until exec.
        // SAFETY: takes one number, the descriptor we own.
        unsafe { libxdp_sys::bpf_link_detach(self.0.as_raw_fd()) };
    }
}

/// Native first, generic as the last resort.
fn attach(ebpf: &mut Ebpf, ifname: &str, ifindex: u32, mode: Mode) -> Result<(Link, (Mode, String)), XskError> {
    let program: Option<&mut Xdp> = ebpf.program_mut(PROGRAM).and_then(|p| p.try_into().ok());
    let fd = program.and_then(|program| program.fd().ok()).ok_or_else(|| missing_program(ifname))?;
    if mode == Mode::Generic {
        let link = attach_as(fd.as_fd(), ifname, ifindex, XdpFlags::XDP_FLAGS_SKB_MODE)?;
        return Ok((link, (Mode::Generic, "as asked".to_owned())));
    }
    match attach_as(fd.as_fd(), ifname, ifindex, XdpFlags::XDP_FLAGS_DRV_MODE) {
        Ok(link) => Ok((link, (Mode::Native, "the driver runs XDP".to_owned()))),
        Err(XskError::Program { why, .. }) if mode == Mode::Auto => {
            let link = attach_as(fd.as_fd(), ifname, ifindex, XdpFlags::XDP_FLAGS_SKB_MODE)?;
            Ok((link, (Mode::Generic, format!("the driver did not take the program: {why}"))))
        }
        Err(why) => Err(why),
    }
}

/// Attaches by bpf_link and in no other way: aya falls back to netlink, and a
/// program attached so would outlive a killed process.
fn attach_as(program: BorrowedFd<'_>, ifname: &str, ifindex: u32, mode: XdpFlags) -> Result<Link, XskError> {
    // SAFETY: all of it is numbers and pointers that may be null.
    let mut opts: libxdp_sys::bpf_link_create_opts = unsafe { std::mem::zeroed() };
    opts.sz = size_of_val(&opts);
    opts.flags = mode.bits();
    let (program, target) = (program.as_raw_fd(), ifindex.cast_signed());
    // SAFETY: `opts` is a live struct whose first member says its size, as
    // libbpf's option structs ask; the rest are numbers.
    let fd =
        unsafe { libxdp_sys::bpf_link_create(program, target, libxdp_sys::bpf_attach_type_BPF_XDP, &raw const opts) };
    if fd >= 0 {
        // SAFETY: the kernel made the descriptor just now, for us.
        return Ok(Link(unsafe { OwnedFd::from_raw_fd(fd) }));
    }
    match (-fd, probe::attached(ifindex)) {
        // Somebody was faster than us, or is on it in the other mode.
        (libc::EBUSY | libc::EEXIST, Some(on)) => Err(foreign(ifname, on.id)),
        (code, _) => Err(XskError::Program {
            ifname: ifname.to_owned(),
            what: "attach",
            why: std::io::Error::from_raw_os_error(code).to_string(),
            fix: program_fix(Some(code)),
        }),
    }
}

fn missing_program(ifname: &str) -> XskError {
    XskError::Program {
        ifname: ifname.to_owned(),
        what: "load",
        why: format!("the object has no program {PROGRAM}"),
        fix: "build srv6d anew",
    }
}

fn foreign(ifname: &str, id: u32) -> XskError {
    XskError::ForeignProgram { ifname: ifname.to_owned(), id, name: probe::program_name(id) }
}

pub(crate) fn os_code(why: &(dyn std::error::Error + 'static)) -> Option<i32> {
    crate::os_error(why).and_then(|os| os.raw_os_error())
}

pub(crate) fn program_fix(code: Option<i32>) -> &'static str {
    match code {
        Some(libc::EPERM | libc::EACCES) => {
            "give the process CAP_BPF and CAP_NET_ADMIN (systemd: AmbientCapabilities=)"
        }
        Some(libc::ERANGE) => {
            "lower the MTU of the interface or of its peer, or use a kernel whose driver takes \
             multi-buffer XDP"
        }
        Some(libc::EOPNOTSUPP) => "ask for mode `auto` or `generic`: the driver has no XDP",
        Some(libc::EBUSY | libc::EEXIST) => "remove the XDP program that is on the interface",
        _ => "see `srv6d doctor`",
    }
}

/// An error with all its causes, in one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(why) = cause {
        let next = why.to_string();
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = why.source();
    }
    text
}
