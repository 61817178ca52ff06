//! The claim program (`bpf/claim.c`), loaded once, and its maps, which all ports of a process share.
//!
//! Ports that look packets up in the same tables have the same claims. Such a set of claims is a *view*. The maps hold
//! each view once, however many ports use it, and they take kernel memory only for entries that are in use.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aya::maps::lpm_trie::Key;
use aya::maps::{Array, ArrayOfMaps, HashMap, LpmTrie, Map, MapData, MapError, PerCpuArray, XskMap};
use aya::programs::{ProgramFd, Xdp};
use aya::{Ebpf, EbpfLoader, Pod};

use crate::claims::{self, Address, Change, Claims};
use crate::hand_over::{self, QueueHandOver, Rows};
use crate::program::{Counts, chain, load, missing_program, os_code, program_fix};
use crate::{Socket, XskError};

/// The object file that `bpf/claim.c` was compiled to.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/claim.o"));

/// Name of the program's function in `bpf/claim.c`.
pub(crate) const PROGRAM: &str = "srv6d_claim";

/// Largest number of claims of all views together. Memory is taken per entry in use.
const MAX_CLAIMS: u32 = 1 << 22;
/// Largest number of VLANs of all ports together.
const MAX_VLANS: u32 = 1 << 16;
/// Largest number of allowed sources of all ports together.
const MAX_SOURCES: u32 = 1 << 20;
/// Number of counters per port, `COUNTERS` in `bpf/claim.c`: frames passed to the kernel, redirected to a socket, and
/// dropped.
const COUNTERS: u32 = 3;

/// `OWN_SOURCES_SHIFT` of `bpf/claim.c`.
const OWN_SOURCES_SHIFT: u32 = 8;

/// Rules for the frames of a port that have no tag, or for the frames of one VLAN.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// The kernel gets only packets that it may forward for senders outside the SRv6 domain. All others go to the
    /// socket, which refuses them.
    pub guards_sids: bool,
    /// Number of the set of this node's own sources ([`ClaimProgram::set_own_sources`]). No packet that comes in by a
    /// port that guards SIDs may have one. 0: there is none.
    pub own_sources: u16,
    /// Prefixes of allowed source addresses. Packets from other sources go to the socket, which refuses them. If this
    /// is empty, all sources are allowed.
    pub allowed_sources: BTreeSet<(IpAddr, u8)>,
}

impl Rules {
    /// Returns the rules as the bits that `bpf/claim.c` reads.
    pub(crate) fn bits(&self) -> u32 {
        let checks = u32::from(self.guards_sids) | u32::from(!self.allowed_sources.is_empty()) << 1;
        checks | u32::from(self.own_sources) << OWN_SOURCES_SHIFT
    }
}

/// Stands in errors where the name of a port would be, because the error concerns all ports.
const ALL_PORTS: &str = "claims";

/// Number of a view, a set of claims.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct View(pub u32);

/// Mirrors `struct port` of `bpf/claim.c`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClaimPortRow {
    pub(crate) mac: [u8; 6],
    pub(crate) untagged: u8,
    pub(crate) claim_all: u8,
    pub(crate) number: u32,
    pub(crate) view: u32,
    pub(crate) queues: u32,
    pub(crate) xsks: u32,
    pub(crate) rules: u32,
}

/// Mirrors `struct key6` and `struct key4` behind their prefix length.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct ViewKey<B> {
    view: u32,
    address: B,
}

/// Mirrors `struct vlan_key` behind its prefix length.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct VlanKey {
    port: u32,
    vid: u32,
}

// SAFETY: the struct has 28 bytes without padding, and any bit pattern is a value.
unsafe impl Pod for ClaimPortRow {}
/// Mirrors `struct source_key` behind its prefix length.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct SourceKey {
    port: u32,
    vid: u32,
    address: [u8; 16],
}

// SAFETY: the struct has 24 bytes without padding, and any bit pattern is a value.
unsafe impl Pod for SourceKey {}
// SAFETY: the struct has 4 and 16 bytes without padding, and any bit pattern is a value.
unsafe impl Pod for ViewKey<[u8; 16]> {}
// SAFETY: the struct has 4 and 4 bytes without padding, and any bit pattern is a value.
unsafe impl Pod for ViewKey<[u8; 4]> {}
// SAFETY: the struct has 8 bytes without padding, and any bit pattern is a value.
unsafe impl Pod for VlanKey {}

type ViewTrie<A> = LpmTrie<MapData, ViewKey<<A as Address>::Bytes>, u32>;

/// Largest number of ports, and of queues per port that may have a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Number of ports. They are numbered from 0.
    pub ports: u32,
    /// Number of queues per port. They are numbered from 0; frames of queues beyond go to the kernel.
    pub queues: u32,
}

/// The loaded program. Clones share it; it is unloaded when the last clone and the last port that it is attached to are
/// gone.
#[derive(Clone)]
pub struct ClaimProgram(Arc<Mutex<Loaded>>);

struct Loaded {
    capacity: Capacity,
    views: BTreeMap<View, Written>,
    claims6: ViewTrie<Ipv6Addr>,
    claims4: ViewTrie<Ipv4Addr>,
    outer_sources: ViewTrie<Ipv6Addr>,
    sid_space: ViewTrie<Ipv6Addr>,
    /// The present contents of `sid_space`: view 0 is the SID space, the others are sets of own sources.
    sid_space_now: BTreeMap<View, Claims<Ipv6Addr>>,
    allowed_sources: LpmTrie<MapData, SourceKey, u32>,
    vlans: LpmTrie<MapData, VlanKey, u32>,
    xsks: XskMap<MapData>,
    ports: HashMap<MapData, u32, ClaimPortRow>,
    counters: PerCpuArray<MapData, u64>,
    hand_overs: Array<MapData, HandOverBytes>,
    hand_over_rows: Arc<Rows>,
    /// Descriptors of all maps, by name.
    fds: Vec<(&'static CStr, OwnedFd)>,
    // Keeps the program itself loaded.
    ebpf: Ebpf,
}

/// The present contents of the maps for one view.
#[derive(Default)]
struct Written {
    claims6: Claims<Ipv6Addr>,
    claims4: Claims<Ipv4Addr>,
    outer_sources: BTreeSet<Ipv6Addr>,
}

impl std::fmt::Debug for ClaimProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClaimProgram {{ {:?} }}", self.loaded().capacity)
    }
}

impl ClaimProgram {
    /// Loads the program, with empty maps, and puts it on no port.
    ///
    /// # Errors
    /// The kernel's verifier refuses the program, or memory or privileges are missing.
    pub fn load(capacity: Capacity) -> Result<Self, XskError> {
        let failed = |why: String, code: Option<i32>| XskError::Program {
            ifname: ALL_PORTS.to_owned(),
            what: "load",
            why,
            fix: program_fix(code),
        };
        let mut ebpf = EbpfLoader::new()
            .map_max_entries("claims6", MAX_CLAIMS)
            .map_max_entries("claims4", MAX_CLAIMS)
            .map_max_entries("outer_sources", MAX_CLAIMS)
            .map_max_entries("sid_space", MAX_CLAIMS)
            .map_max_entries("allowed_sources", MAX_SOURCES)
            .map_max_entries("vlans", MAX_VLANS)
            .map_max_entries("xsks", capacity.ports.saturating_mul(capacity.queues))
            .map_max_entries("ports", capacity.ports)
            .map_max_entries("counters", capacity.ports.saturating_mul(COUNTERS))
            .map_max_entries("hand_overs", capacity.ports.saturating_mul(capacity.queues))
            .load(OBJECT)
            .map_err(|why| failed(chain(&why), os_code(&why)))?;
        let program: Option<&mut Xdp> = ebpf.program_mut(PROGRAM).and_then(|p| p.try_into().ok());
        let program = program.ok_or_else(|| missing_program(ALL_PORTS))?;
        load(|| program.load()).map_err(|why| failed(chain(&why), os_code(&why)))?;
        let fds = map_fds(&ebpf).map_err(|why| failed(why.to_string(), why.raw_os_error()))?;
        let loaded = Loaded::take(ebpf, capacity, fds);
        let loaded = loaded.ok_or_else(|| failed("a map is missing in the object".to_owned(), None))?;
        let loaded = loaded.map_err(|why| failed(format!("cannot map memory: {why}"), why.raw_os_error()))?;
        Ok(Self(Arc::new(Mutex::new(loaded))))
    }

    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the claims of a view: destination prefixes whose packets go to the socket (true) or stay with the kernel
    /// (false). The longest prefix decides. Only differences are written, additions before removals, so an address that
    /// is claimed before and after is claimed all the time.
    ///
    /// # Errors
    /// The kernel refuses a write. The map then holds a part of the changes; a further call continues from there.
    pub fn set_claims(
        &self,
        view: View,
        v6: &[(Ipv6Addr, u8, bool)],
        v4: &[(Ipv4Addr, u8, bool)],
    ) -> Result<(), XskError> {
        let mut loaded = self.loaded();
        let Loaded { claims6, claims4, views, .. } = &mut *loaded;
        let now = views.entry(view).or_default();
        let done = write_claims::<Ipv6Addr>(claims6, view, &mut now.claims6, &claims::collect(v6))
            .and_then(|()| write_claims::<Ipv4Addr>(claims4, view, &mut now.claims4, &claims::collect(v4)));
        done.map_err(|why| map_error("change the claims", &why))
    }

    /// Changes the claims of some prefixes: to the socket (true), to the kernel (false), or `None` to remove the claim,
    /// so that a shorter prefix decides.
    ///
    /// # Errors
    /// The kernel refuses one of the changes; the others are written.
    pub fn amend_claims(&self, view: View, changes: &[(IpAddr, u8, Option<bool>)]) -> Result<(), XskError> {
        let mut loaded = self.loaded();
        let Loaded { claims6, claims4, views, .. } = &mut *loaded;
        let now = views.entry(view).or_default();
        let mut done = Ok(());
        for &(network, length, claim) in changes {
            done = done.and(match network {
                IpAddr::V6(network) => {
                    let prefix = (network.octets(), length);
                    write_claim::<Ipv6Addr>(claims6, view, &mut now.claims6, prefix, claim)
                }
                IpAddr::V4(network) => {
                    let prefix = (network.octets(), length);
                    write_claim::<Ipv4Addr>(claims4, view, &mut now.claims4, prefix, claim)
                }
            });
        }
        done.map_err(|why| map_error("change the claims", &why))
    }

    /// Adds addresses to those that [`set_outer_sources`](Self::set_outer_sources) has set.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn add_outer_sources(&self, view: View, more: &BTreeSet<Ipv6Addr>) -> Result<(), XskError> {
        let now = self.loaded().views.get(&view).map(|now| now.outer_sources.clone()).unwrap_or_default();
        if more.is_subset(&now) {
            return Ok(());
        }
        self.set_outer_sources(view, &now.union(more).copied().collect())
    }

    /// Sets the addresses whose ICMPv6 Packet Too Big messages go to the socket. The claims still decide about all
    /// other packets to them.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_outer_sources(&self, view: View, wanted: &BTreeSet<Ipv6Addr>) -> Result<(), XskError> {
        let mut loaded = self.loaded();
        let Loaded { outer_sources: map, views, .. } = &mut *loaded;
        let now = &mut views.entry(view).or_default().outer_sources;
        let key = |address: &Ipv6Addr| view_key(view, address.octets(), <Ipv6Addr as Address>::BITS);
        let added = wanted.difference(now).try_for_each(|address| map.insert(&key(address), 1, 0));
        let done = added.and_then(|()| now.difference(wanted).try_for_each(|address| map.remove(&key(address))));
        done.map_err(|why| map_error("change the outer sources", &why))?;
        now.clone_from(wanted);
        Ok(())
    }

    /// Sets the SID space that ports guard: prefixes whose packets go to the socket to be refused (true), and
    /// exceptions inside of them (false).
    ///
    /// # Errors
    /// The kernel refuses a write. The map then holds a part of the changes; a further call continues from there.
    pub fn set_sid_space(&self, prefixes: &[(Ipv6Addr, u8, bool)]) -> Result<(), XskError> {
        self.loaded().write_sid_space(View(0), prefixes).map_err(|why| map_error("change the SID space", &why))
    }

    /// Makes these prefixes a set of this node's own sources. With none it is forgotten: no port may use it any more.
    ///
    /// # Errors
    /// The kernel refuses. The map then holds a part of the changes; calling again goes on from there.
    pub fn set_own_sources(&self, set: NonZeroU16, prefixes: &[(Ipv6Addr, u8)]) -> Result<(), XskError> {
        let all: Vec<_> = prefixes.iter().map(|&(network, length)| (network, length, true)).collect();
        let done = self.loaded().write_sid_space(View(set.get().into()), &all);
        done.map_err(|why| map_error("change the own sources", &why))
    }

    /// Adds prefixes to the SID space.
    ///
    /// # Errors
    /// The kernel refuses one of them; the others are written.
    pub fn add_sid_space(&self, prefixes: &BTreeSet<(Ipv6Addr, u8)>) -> Result<(), XskError> {
        let mut loaded = self.loaded();
        let Loaded { sid_space, sid_space_now, .. } = &mut *loaded;
        let sid_space_now = sid_space_now.entry(View(0)).or_default();
        let mut done = Ok(());
        for &(network, length) in prefixes {
            let key = (network.octets(), length);
            if !sid_space_now.contains_key(&key) {
                done = done.and(write_claim::<Ipv6Addr>(sid_space, View(0), sid_space_now, key, Some(true)));
            }
        }
        done.map_err(|why| map_error("change the SID space", &why))
    }

    /// Changes the sources that a port, or one VLAN of it, allows.
    pub(crate) fn set_sources(
        &self,
        (port, vid): (u32, u16),
        now: &BTreeSet<(IpAddr, u8)>,
        wanted: &BTreeSet<(IpAddr, u8)>,
    ) -> Result<(), MapError> {
        let map = &mut self.loaded().allowed_sources;
        let key = |&(address, len): &(IpAddr, u8)| source_key((port, vid), address, len);
        wanted.difference(now).try_for_each(|source| map.insert(&key(source), 1, 0))?;
        now.difference(wanted).try_for_each(|source| map.remove(&key(source)))
    }

    /// Removes all claims of a view. No port may use it any more.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn drop_view(&self, view: View) -> Result<(), XskError> {
        self.set_claims(view, &[], &[])?;
        self.set_outer_sources(view, &BTreeSet::new())?;
        self.loaded().views.remove(&view);
        Ok(())
    }

    /// Returns what the program has done with the frames of the port with this number since it was loaded.
    ///
    /// # Errors
    /// The kernel refuses, or there is no such port.
    pub fn counts(&self, port: u32) -> Result<Counts, XskError> {
        let loaded = self.loaded();
        let sum = |which: u32| {
            let index = port.saturating_mul(COUNTERS).saturating_add(which);
            loaded.counters.get(&index, 0).map(|cells| cells.iter().sum())
        };
        let counts = sum(0).and_then(|passed| Ok(Counts { passed, redirected: sum(1)?, dropped: sum(2)? }));
        counts.map_err(|why| map_error("read the counters", &why))
    }

    /// Returns the row of the socket in this place.
    pub(crate) fn hand_over(&self, slot: u32) -> QueueHandOver {
        QueueHandOver::new(Arc::clone(&self.loaded().hand_over_rows), slot)
    }

    /// Gives another program the map in which this one counts what queues give to their workers.
    pub(crate) fn share_hand_overs(&self, with: &mut HandOversOfClaim) -> Result<(), MapError> {
        with.set(0, &self.loaded().hand_overs, 0)
    }

    pub(crate) fn queues(&self) -> u32 {
        self.loaded().capacity.queues
    }

    pub(crate) fn set_port(&self, ifindex: u32, row: ClaimPortRow) -> Result<(), MapError> {
        self.loaded().ports.insert(ifindex, row, 0)
    }

    /// Makes all frames of the port go to the kernel from now on, and removes its sockets and VLANs.
    pub(crate) fn remove_port(&self, ifindex: u32, row: ClaimPortRow, vlans: &[u16], rules: &BTreeMap<u16, Rules>) {
        for (&vid, rules) in rules {
            let _ = self.set_sources((row.number, vid), &rules.allowed_sources, &BTreeSet::new());
        }
        let mut loaded = self.loaded();
        // An entry may be missing already; that is not an error.
        let _ = loaded.ports.remove(&ifindex);
        for queue in 0..row.queues {
            let _ = loaded.xsks.unset(row.xsks + queue);
        }
        for &vid in vlans {
            let _ = loaded.vlans.remove(&vlan_key(row.number, vid));
        }
    }

    /// Sets the rules for the frames of a VLAN. `None` removes the VLAN, so that its frames are no longer claimed.
    pub(crate) fn set_vlan(&self, port: u32, vid: u16, rules: Option<u32>) -> Result<(), MapError> {
        let vlans = &mut self.loaded().vlans;
        let key = vlan_key(port, vid);
        match rules {
            Some(rules) => vlans.insert(&key, rules, 0),
            None => vlans.remove(&key),
        }
    }

    /// Returns descriptors of the maps, by name, for another program that is to use the same maps.
    pub(crate) fn map_fds(&self) -> std::io::Result<Vec<(&'static CStr, OwnedFd)>> {
        let loaded = self.loaded();
        loaded.fds.iter().map(|(name, fd)| Ok((*name, fd.try_clone()?))).collect()
    }

    pub(crate) fn set_socket(&self, slot: u32, socket: &Socket) -> Result<(), MapError> {
        self.loaded().xsks.set(slot, socket.as_fd(), 0)
    }

    pub(crate) fn clear_socket(&self, slot: u32) -> Result<(), MapError> {
        self.loaded().xsks.unset(slot)
    }

    /// Calls `with` with all programs and maps of the object that nobody has taken out of it.
    pub(crate) fn with_ebpf<T>(&self, with: impl FnOnce(&mut Ebpf) -> T) -> T {
        with(&mut self.loaded().ebpf)
    }

    /// Calls `with` with the program's descriptor.
    pub(crate) fn with_fd<T>(&self, with: impl FnOnce(&ProgramFd) -> T) -> Option<T> {
        let loaded = self.loaded();
        let program: &Xdp = loaded.ebpf.program(PROGRAM)?.try_into().ok()?;
        Some(with(program.fd().ok()?))
    }

    /// Calls `with` with the program itself.
    #[cfg(test)]
    pub(crate) fn with_program<T>(&self, with: impl FnOnce(&Xdp) -> T) -> Option<T> {
        Some(with(self.loaded().ebpf.program(PROGRAM)?.try_into().ok()?))
    }
}

impl Loaded {
    fn write_sid_space(&mut self, view: View, prefixes: &[(Ipv6Addr, u8, bool)]) -> Result<(), MapError> {
        let Self { sid_space, sid_space_now, .. } = self;
        let now = sid_space_now.entry(view).or_default();
        write_claims::<Ipv6Addr>(sid_space, view, now, &claims::collect(prefixes))?;
        sid_space_now.retain(|_, now| !now.is_empty());
        Ok(())
    }

    fn take(mut ebpf: Ebpf, capacity: Capacity, fds: Vec<(&'static CStr, OwnedFd)>) -> Option<std::io::Result<Self>> {
        let hand_overs: Array<MapData, HandOverBytes> = ebpf.take_map("hand_overs")?.try_into().ok()?;
        let mapped = fds.iter().find(|(name, _)| *name == HAND_OVERS).map(|(_, fd)| fd.as_fd())?;
        let hand_over_rows = match Rows::map(mapped, hand_overs.len()) {
            Ok(rows) => rows,
            Err(why) => return Some(Err(why)),
        };
        Some(Ok(Self {
            hand_over_rows,
            hand_overs,
            fds,
            capacity,
            views: BTreeMap::new(),
            claims6: ebpf.take_map("claims6")?.try_into().ok()?,
            claims4: ebpf.take_map("claims4")?.try_into().ok()?,
            outer_sources: ebpf.take_map("outer_sources")?.try_into().ok()?,
            sid_space: ebpf.take_map("sid_space")?.try_into().ok()?,
            sid_space_now: BTreeMap::new(),
            allowed_sources: ebpf.take_map("allowed_sources")?.try_into().ok()?,
            vlans: ebpf.take_map("vlans")?.try_into().ok()?,
            xsks: ebpf.take_map("xsks")?.try_into().ok()?,
            ports: ebpf.take_map("ports")?.try_into().ok()?,
            counters: ebpf.take_map("counters")?.try_into().ok()?,
            ebpf,
        }))
    }
}

/// Names of the maps of `bpf/claim.c`.
const MAPS: [&CStr; 10] = [
    c"claims6",
    c"claims4",
    c"outer_sources",
    c"sid_space",
    c"allowed_sources",
    c"vlans",
    c"xsks",
    c"ports",
    c"counters",
    HAND_OVERS,
];

const HAND_OVERS: &CStr = c"hand_overs";

type HandOverBytes = [u8; hand_over::ROW];

/// The map of another program that holds this one's map of hand-overs.
pub(crate) type HandOversOfClaim = ArrayOfMaps<MapData, Array<MapData, HandOverBytes>>;

fn map_fds(ebpf: &Ebpf) -> std::io::Result<Vec<(&'static CStr, OwnedFd)>> {
    let fd = |name: &&'static CStr| {
        let map = ebpf.map(name.to_str().ok()?)?;
        let (Map::LpmTrie(data) | Map::XskMap(data) | Map::HashMap(data) | Map::PerCpuArray(data) | Map::Array(data)) =
            map
        else {
            return None;
        };
        Some(data.fd().as_fd().try_clone_to_owned().map(|fd| (*name, fd)))
    };
    MAPS.iter().filter_map(fd).collect()
}

fn source_key((port, vid): (u32, u16), address: IpAddr, len: u8) -> Key<SourceKey> {
    const MAPPED: u32 = 96;
    let (octets, len) = match address {
        IpAddr::V6(address) => (address.octets(), u32::from(len)),
        IpAddr::V4(address) => (address.to_ipv6_mapped().octets(), MAPPED + u32::from(len)),
    };
    Key::new(2 * u32::BITS + len, SourceKey { port, vid: vid.into(), address: octets })
}

fn view_key<B: Copy>(view: View, address: B, len: u8) -> Key<ViewKey<B>>
where
    ViewKey<B>: Pod,
{
    Key::new(u32::BITS + u32::from(len), ViewKey { view: view.0, address })
}

fn vlan_key(port: u32, vid: u16) -> Key<VlanKey> {
    Key::new(2 * u32::BITS, VlanKey { port, vid: vid.into() })
}

fn write_claims<A: Address>(
    map: &mut ViewTrie<A>,
    view: View,
    now: &mut Claims<A>,
    wanted: &Claims<A>,
) -> Result<(), MapError>
where
    ViewKey<A::Bytes>: Pod,
{
    claims::diff(now, wanted).into_iter().try_for_each(|change| match change {
        Change::Put(net, len, xsk) => write_claim::<A>(map, view, now, (net, len), Some(xsk)),
        Change::Remove(net, len) => write_claim::<A>(map, view, now, (net, len), None),
    })
}

fn write_claim<A: Address>(
    map: &mut ViewTrie<A>,
    view: View,
    now: &mut Claims<A>,
    (net, len): (A::Bytes, u8),
    claim: Option<bool>,
) -> Result<(), MapError>
where
    ViewKey<A::Bytes>: Pod,
{
    let key = view_key(view, net, len);
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

fn map_error(what: &str, why: &MapError) -> XskError {
    XskError::Map { ifname: ALL_PORTS.to_owned(), what: what.to_owned(), why: chain(why) }
}
