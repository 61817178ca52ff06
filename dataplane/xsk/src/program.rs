//! Attaches the claim program to one port and sets what belongs to that port.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use aya::maps::MapError;
use xsk_rs::config::XdpFlags;

use crate::claim_program::{Capacity, ClaimPortRow, ClaimProgram, PROGRAM, Rules, View};
use crate::hand_over::QueueHandOver;
use crate::tag_program::TagProgram;
use crate::{Mode, Socket, XskError, ethtool, probe, sys};

/// Settings with which a port's program starts. All of them can be changed later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramSettings {
    /// The MAC address of frames that may be claimed. `None`: the interface's own.
    pub mac: Option<[u8; 6]>,
    /// Whether frames without a VLAN tag may be claimed.
    pub untagged: bool,
    /// VLAN ids whose frames may be claimed.
    pub vlans: Vec<u16>,
    /// Whether all unicast IPv4 and IPv6 packets except ND are claimed, without a look-up.
    pub claim_all: bool,
}

/// Counters of a port's XDP program, summed over all CPUs and queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames left to the kernel.
    pub passed: u64,
    /// Frames redirected to a socket. The socket may have had no room for them: see its own counters.
    pub redirected: u64,
    /// Frames dropped on a port that guards SIDs or checks sources: those with too many priority tags, and those that
    /// the kernel must not have on a queue without a worker to refuse them.
    pub dropped: u64,
}

/// The program on one port. When it is dropped or the process dies, the program is detached, and all traffic goes to
/// the kernel again.
pub struct Program {
    /// `None` while the program rests.
    link: Option<Link>,
    ifname: String,
    ifindex: u32,
    chosen: (Mode, String),
    port: ClaimPortRow,
    vlans: Vec<u16>,
    /// Rules by VID; 0 stands for frames without a tag.
    rules: BTreeMap<u16, Rules>,
    /// The program that runs in front if the driver can be asked for tags that stand beside a frame; otherwise the
    /// reason why it cannot.
    tags: Result<TagProgram, String>,
    loaded: ClaimProgram,
    /// Rows of the queues that have a socket.
    hand_overs: BTreeMap<u32, QueueHandOver>,
}

impl Drop for Program {
    fn drop(&mut self) {
        self.rest();
        self.loaded.remove_port(self.ifindex, self.port, &self.vlans, &self.rules);
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Program {{ {}, {} }}", self.ifname, self.chosen.0)
    }
}

impl Program {
    /// Loads the program for `ifname` alone and attaches it, with no claim and no socket: everything still goes to the
    /// kernel. It uses generic mode if that is asked for, or if the driver has no XDP and `mode` is [`Mode::Auto`].
    ///
    /// # Errors
    /// [`XskError::ForeignProgram`] if an XDP program is on the port already; that program stays there. Another error
    /// if the kernel refuses.
    pub fn attach(ifname: &str, mode: Mode, settings: &ProgramSettings) -> Result<Self, XskError> {
        let loaded = ClaimProgram::load(Capacity { ports: 1, queues: ethtool::queues(ifname)? })?;
        Self::attach_loaded(&loaded, 0, ifname, mode, settings)
    }

    /// Attaches a program that is loaded already. `number` identifies the port and is below [`Capacity::ports`]. Its
    /// counters continue from the values that an earlier port with this number has left.
    ///
    /// # Errors
    /// Those of [`attach`](Self::attach).
    pub fn attach_loaded(
        loaded: &ClaimProgram,
        number: u32,
        ifname: &str,
        mode: Mode,
        settings: &ProgramSettings,
    ) -> Result<Self, XskError> {
        let ifindex = crate::ifindex(ifname)?;
        if let Some(on) = probe::attached(ifindex) {
            return Err(foreign(ifname, on.id));
        }
        let queues = loaded.queues();
        let port = ClaimPortRow {
            mac: settings.mac.map_or_else(|| ethtool::mac(ifname), Ok)?,
            untagged: settings.untagged.into(),
            claim_all: settings.claim_all.into(),
            number,
            view: 0,
            queues,
            xsks: number.saturating_mul(queues),
            rules: 0,
        };
        let tags = match mode {
            // The kernel itself is the only sender at its other end.
            _ if settings.claim_all => Err("srv6d's own veth".to_owned()),
            Mode::Generic => Err("XDP runs in generic mode".to_owned()),
            _ => TagProgram::load(loaded, ifindex).map_err(|why| why.to_string()),
        };
        let (link, chosen, tags) = attach_reading_tags(loaded, ifname, ifindex, mode, tags)?;
        let (link, ifname, vlans) = (Some(link), ifname.to_owned(), Vec::new());
        let (rules, loaded) = (BTreeMap::new(), loaded.clone());
        let hand_overs = BTreeMap::new();
        let mut program = Self { link, ifname, ifindex, chosen, port, vlans, rules, tags, loaded, hand_overs };
        program.set_vlans(&settings.vlans)?;
        program.write_port()?;
        sys::give_back_free_memory();
        Ok(program)
    }

    /// Takes the program off the port. What belongs to the port stays: claims, rules, and the sockets, which go on sending.
    pub fn rest(&mut self) {
        if let Some(link) = self.link.take() {
            link.detach();
        }
    }

    /// Puts a program that rests on the port again, in the mode that it had.
    ///
    /// # Errors
    /// Another XDP program is there by now, or the kernel refuses.
    pub fn resume(&mut self) -> Result<(), XskError> {
        if self.link.is_some() {
            return Ok(());
        }
        let mode = match self.chosen.0 {
            Mode::Generic => XdpFlags::XDP_FLAGS_SKB_MODE,
            Mode::Auto | Mode::ZeroCopy | Mode::Native => XdpFlags::XDP_FLAGS_DRV_MODE,
        };
        let attach = |program: BorrowedFd<'_>| attach_as(program, &self.ifname, self.ifindex, mode);
        let link = match &self.tags {
            Ok(tags) => attach(tags.fd())?,
            Err(_) => self.loaded.with_fd(|own| attach(own.as_fd())).ok_or_else(|| missing_program(&self.ifname))??,
        };
        self.link = Some(link);
        Ok(())
    }

    /// Returns the mode in use, native or generic, and why.
    pub fn chosen(&self) -> (Mode, &str) {
        (self.chosen.0, &self.chosen.1)
    }

    /// Sends claimed packets of this queue to this socket from now on.
    pub fn set_socket(&mut self, queue: u32, socket: &Socket) -> Result<(), XskError> {
        let slot = self.socket_slot(queue)?;
        let hand_over = self.loaded.hand_over(slot);
        hand_over.reset();
        socket.count_in(hand_over.clone());
        self.hand_overs.insert(queue, hand_over);
        let done = self.loaded.set_socket(slot, socket);
        done.map_err(|why| self.map_error(format!("give queue {queue} its socket"), &why))
    }

    /// Sends all packets of this queue to the kernel from now on. It is not an error if the queue had no socket.
    pub fn clear_socket(&mut self, queue: u32) -> Result<(), XskError> {
        match self.loaded.clear_socket(self.socket_slot(queue)?) {
            Err(why) if !is_missing(&why) => Err(self.map_error(format!("take the socket off queue {queue}"), &why)),
            _ => Ok(()),
        }
    }

    fn socket_slot(&self, queue: u32) -> Result<u32, XskError> {
        if queue < self.port.queues {
            return Ok(self.port.xsks.saturating_add(queue));
        }
        let what = format!("find a place for the socket of queue {queue}");
        let why = format!("the program was loaded for {} queues of each port", self.port.queues);
        Err(XskError::Map { ifname: self.ifname.clone(), what, why })
    }

    /// Makes this view the port's claims from now on.
    pub fn set_view(&mut self, view: View) -> Result<(), XskError> {
        self.port.view = view.0;
        self.write_port()
    }

    /// Calls [`ClaimProgram::set_claims`] for the view that the port uses.
    pub fn set_claims(&mut self, v6: &[(Ipv6Addr, u8, bool)], v4: &[(Ipv4Addr, u8, bool)]) -> Result<(), XskError> {
        self.loaded.set_claims(View(self.port.view), v6, v4)
    }

    /// Calls [`ClaimProgram::set_outer_sources`] for the view that the port uses.
    pub fn set_outer_sources(&mut self, wanted: &BTreeSet<Ipv6Addr>) -> Result<(), XskError> {
        self.loaded.set_outer_sources(View(self.port.view), wanted)
    }

    /// Sets the VLAN ids whose frames may be claimed. 0 and ids above 4094 are ignored.
    pub fn set_vlans(&mut self, vids: &[u16]) -> Result<(), XskError> {
        let mut wanted: Vec<u16> = vids.iter().copied().filter(|vid| (1..=4094).contains(vid)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let bits = |vid: &u16| self.rules.get(vid).map(Rules::bits).unwrap_or_default();
        let added = wanted.iter().filter(|vid| !self.vlans.contains(vid)).map(|vid| (*vid, Some(bits(vid))));
        let removed = self.vlans.iter().filter(|vid| !wanted.contains(vid)).map(|&vid| (vid, None));
        for (vid, rules) in added.chain(removed) {
            let done = self.loaded.set_vlan(self.port.number, vid, rules);
            done.map_err(|why| self.map_error(format!("change VLAN {vid}"), &why))?;
        }
        self.vlans = wanted;
        Ok(())
    }

    /// Sets the rules for the frames of a VLAN, or with `vid` 0 for frames without a tag. They may be set before the
    /// VLAN is known.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_rules(&mut self, vid: u16, rules: &Rules) -> Result<(), XskError> {
        let known = self.rules.get(&vid).cloned().unwrap_or_default();
        if known == *rules {
            return Ok(());
        }
        let (port, wanted) = ((self.port.number, vid), &rules.allowed_sources);
        // Sources that stay allowed are allowed all the time. New sources are written before the check is switched on.
        let both = known.allowed_sources.union(wanted).copied().collect();
        let added = self.loaded.set_sources(port, &known.allowed_sources, &both);
        let switched = added.and_then(|()| match vid {
            0 => {
                self.port.rules = rules.bits();
                self.loaded.set_port(self.ifindex, self.port)
            }
            _ if self.vlans.contains(&vid) => self.loaded.set_vlan(self.port.number, vid, Some(rules.bits())),
            _ => Ok(()),
        });
        let done = switched.and_then(|()| self.loaded.set_sources(port, &both, wanted));
        done.map_err(|why| self.map_error(format!("change the rules of VLAN {vid}"), &why))?;
        self.rules.insert(vid, rules.clone());
        Ok(())
    }

    /// Returns why tags that the driver puts beside frames cannot be read, or `None` if they can.
    pub fn cannot_read_tags(&self) -> Option<&str> {
        self.tags.as_ref().err().map(String::as_str)
    }

    /// Sets whether frames without a VLAN tag may be claimed.
    pub fn set_untagged(&mut self, may: bool) -> Result<(), XskError> {
        self.port.untagged = may.into();
        self.write_port()
    }

    /// Sets whether all unicast packets are claimed without a look-up, as on srv6d's own veth.
    pub fn claim_all(&mut self, all: bool) -> Result<(), XskError> {
        self.port.claim_all = all.into();
        self.write_port()
    }

    /// Sets the MAC address of frames that may be claimed, after a change of the port's address.
    pub fn set_mac(&mut self, mac: [u8; 6]) -> Result<(), XskError> {
        self.port.mac = mac;
        self.write_port()
    }

    /// Puts `front` on the port in place of this program; `front` is to call this one. `None` puts this program back.
    /// At every moment one of the two is on the port.
    pub(crate) fn set_front(&mut self, front: Option<BorrowedFd<'_>>) -> Result<(), XskError> {
        let updated = match front {
            _ if self.tags.is_ok() => self.tags.as_ref().map_or(Ok(()), |tags| tags.set_front(front)),
            Some(front) => self.link.as_ref().map_or(Ok(()), |link| link.update(front)),
            None => {
                let link = self.link.as_ref();
                let own = self.loaded.with_fd(|own| link.map_or(Ok(()), |link| link.update(own.as_fd())));
                own.ok_or_else(|| missing_program(&self.ifname))?
            }
        };
        updated.map_err(|why| XskError::Program {
            ifname: self.ifname.clone(),
            what: "exchange",
            fix: program_fix(why.raw_os_error()),
            why: why.to_string(),
        })
    }

    /// Returns the program itself, for another one to call.
    pub(crate) fn loaded(&self) -> &ClaimProgram {
        &self.loaded
    }

    /// Returns what the queues with a socket have given to their workers.
    pub fn hand_overs(&self) -> impl Iterator<Item = (u32, &QueueHandOver)> {
        self.hand_overs.iter().map(|(&queue, hand_over)| (queue, hand_over))
    }

    /// Returns the counters since the program was loaded.
    pub fn counts(&self) -> Result<Counts, XskError> {
        self.loaded.counts(self.port.number)
    }

    fn write_port(&mut self) -> Result<(), XskError> {
        let done = self.loaded.set_port(self.ifindex, self.port);
        done.map_err(|why| self.map_error("change the port's settings".to_owned(), &why))
    }

    fn map_error(&self, what: String, why: &MapError) -> XskError {
        XskError::Map { ifname: self.ifname.clone(), what, why: chain(why) }
    }
}

fn is_missing(why: &MapError) -> bool {
    crate::os_error(why).and_then(|os| os.raw_os_error()) == Some(libc::ENOENT)
}

/// The bpf_link that keeps the program attached to the port.
struct Link(OwnedFd);

impl Link {
    fn update(&self, program: BorrowedFd<'_>) -> std::io::Result<()> {
        // SAFETY: the call takes two numbers, which are open descriptors, and no options.
        let code = unsafe { libxdp_sys::bpf_link_update(self.0.as_raw_fd(), program.as_raw_fd(), std::ptr::null()) };
        if code == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(-code)) }
    }
}

impl Link {
    fn detach(&self) {
        // Closing the descriptor would detach the program only if it were the last one: a child process that another
        // thread is just starting has a copy of it until exec.
        // SAFETY: takes one number, the descriptor that we own.
        unsafe { libxdp_sys::bpf_link_detach(self.0.as_raw_fd()) };
    }
}

/// The link, the mode with its reason, and the program that reads tags.
type Attached = (Link, (Mode, String), Result<TagProgram, String>);

/// Attaches the program that reads tags beside frames if the driver and the kernel support it, otherwise the program
/// that does not read them.
fn attach_reading_tags(
    loaded: &ClaimProgram,
    ifname: &str,
    ifindex: u32,
    mode: Mode,
    tags: Result<TagProgram, String>,
) -> Result<Attached, XskError> {
    if let Ok(program) = &tags
        && let Ok(link) = attach_as(program.fd(), ifname, ifindex, XdpFlags::XDP_FLAGS_DRV_MODE)
    {
        return Ok((link, (Mode::Native, "the driver runs XDP".to_owned()), tags));
    }
    let attached = loaded.with_fd(|fd| attach(fd.as_fd(), ifname, ifindex, mode));
    let (link, chosen) = attached.ok_or_else(|| missing_program(ifname))??;
    let why = tags.err().unwrap_or_else(|| "the driver does not take a program that is bound to it".to_owned());
    Ok((link, chosen, Err(why)))
}

/// Attaches in native mode if possible, and in generic mode as the last resort.
fn attach(program: BorrowedFd<'_>, ifname: &str, ifindex: u32, mode: Mode) -> Result<(Link, (Mode, String)), XskError> {
    if mode == Mode::Generic {
        let link = attach_as(program, ifname, ifindex, XdpFlags::XDP_FLAGS_SKB_MODE)?;
        return Ok((link, (Mode::Generic, "as asked".to_owned())));
    }
    match attach_as(program, ifname, ifindex, XdpFlags::XDP_FLAGS_DRV_MODE) {
        Ok(link) => Ok((link, (Mode::Native, "the driver runs XDP".to_owned()))),
        Err(XskError::Program { why, .. }) if mode == Mode::Auto => {
            let link = attach_as(program, ifname, ifindex, XdpFlags::XDP_FLAGS_SKB_MODE)?;
            Ok((link, (Mode::Generic, format!("the driver did not take the program: {why}"))))
        }
        Err(why) => Err(why),
    }
}

/// Attaches by bpf_link only. aya falls back to netlink, and a program that is attached by netlink would outlive a
/// killed process.
fn attach_as(program: BorrowedFd<'_>, ifname: &str, ifindex: u32, mode: XdpFlags) -> Result<Link, XskError> {
    // SAFETY: all members are numbers and pointers that may be null.
    let mut opts: libxdp_sys::bpf_link_create_opts = unsafe { std::mem::zeroed() };
    opts.sz = size_of_val(&opts);
    opts.flags = mode.bits();
    let (program, target) = (program.as_raw_fd(), ifindex.cast_signed());
    // SAFETY: `opts` is a live struct whose first member holds its size, as libbpf requires of option structs; the rest
    // are numbers.
    let fd =
        unsafe { libxdp_sys::bpf_link_create(program, target, libxdp_sys::bpf_attach_type_BPF_XDP, &raw const opts) };
    if fd >= 0 {
        // SAFETY: the kernel made the descriptor just now, for us.
        return Ok(Link(unsafe { OwnedFd::from_raw_fd(fd) }));
    }
    match (-fd, probe::attached(ifindex)) {
        // Another program was attached in the meantime, or one is attached in the other mode.
        (libc::EBUSY | libc::EEXIST, Some(on)) => Err(foreign(ifname, on.id)),
        (code, _) => Err(XskError::Program {
            ifname: ifname.to_owned(),
            what: "attach",
            why: std::io::Error::from_raw_os_error(code).to_string(),
            fix: program_fix(Some(code)),
        }),
    }
}

pub(crate) fn missing_program(ifname: &str) -> XskError {
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

/// Number of attempts to load a program. libbpf makes as many.
const LOADS: usize = 5;

/// Loads a program. The verifier gives up while a signal waits for the thread (EAGAIN, `bpf_check` in
/// `kernel/bpf/verifier.c`), so it is asked again then.
pub(crate) fn load<E: std::error::Error + 'static>(mut load: impl FnMut() -> Result<(), E>) -> Result<(), E> {
    for _ in 1..LOADS {
        match load() {
            Err(why) if os_code(&why) == Some(libc::EAGAIN) => {}
            done => return done,
        }
    }
    load()
}

pub(crate) fn os_code(why: &(dyn std::error::Error + 'static)) -> Option<i32> {
    crate::os_error(why).and_then(|os| os.raw_os_error())
}

pub(crate) fn program_fix(code: Option<i32>) -> &'static str {
    match code {
        Some(libc::EPERM | libc::EACCES) if crate::probe::in_user_namespace() => crate::error::USER_NAMESPACE,
        Some(libc::EPERM | libc::EACCES) => {
            "give the process CAP_BPF and CAP_NET_ADMIN (systemd: AmbientCapabilities=)"
        }
        Some(libc::ERANGE) => {
            "lower the MTU of the interface or of its peer, or use a kernel whose driver takes \
             multi-buffer XDP"
        }
        Some(libc::EOPNOTSUPP) => "ask for mode `auto` or `generic`: the driver has no XDP",
        Some(libc::EMFILE | libc::ENFILE) => crate::error::TOO_FEW_DESCRIPTORS,
        Some(libc::EBUSY | libc::EEXIST) => "remove the XDP program that is on the interface",
        _ => "see `srv6d doctor`",
    }
}

/// Returns an error with all its causes, in one line.
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

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_signal_that_waits_does_not_refuse_a_program() {
        let refused = |code| Err(io::Error::from_raw_os_error(code));
        let attempts = |interrupted: usize, then: i32| {
            let mut attempts = 0;
            let loaded = load(|| {
                attempts += 1;
                if attempts > interrupted && then == 0 {
                    return Ok(());
                }
                refused(if attempts > interrupted { then } else { libc::EAGAIN })
            });
            (attempts, loaded.is_ok())
        };
        assert_eq!(attempts(0, 0), (1, true));
        assert_eq!(attempts(4, 0), (5, true));
        assert_eq!(attempts(0, libc::EACCES), (1, false));
        assert_eq!(attempts(9, 0), (5, false), "somebody sends signals all the time");
    }
}
