//! The part of ethtool(8)'s ioctl interface that a port needs.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::XskError;
use crate::probe::{Coalescing, Rings};

// Commands from linux/ethtool.h.
const GDRVINFO: u32 = 0x03;
const GCOALESCE: u32 = 0x0e;
const GRINGPARAM: u32 = 0x10;
const GCHANNELS: u32 = 0x3c;
pub(crate) const GTXCSUM: u32 = 0x16;
pub(crate) const STXCSUM: u32 = 0x17;
pub(crate) const GTSO: u32 = 0x1e;
pub(crate) const STSO: u32 = 0x1f;
pub(crate) const GGSO: u32 = 0x23;
pub(crate) const SGSO: u32 = 0x24;
const GFLAGS: u32 = 0x25;
const SFLAGS: u32 = 0x26;
/// Flags of transmit and receive VLAN offload.
pub(crate) const TXVLAN: u32 = 1 << 7;
pub(crate) const RXVLAN: u32 = 1 << 8;
pub(crate) const GGRO: u32 = 0x2b;
pub(crate) const SGRO: u32 = 0x2c;

/// Mirrors `struct ethtool_value`.
#[repr(C)]
struct Value {
    cmd: u32,
    data: u32,
}

/// Mirrors `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    cmd: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// Mirrors `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    cmd: u32,
    max: [u32; 4],
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// Mirrors `struct ethtool_ringparam`.
#[repr(C)]
#[derive(Default)]
struct RingParameters {
    cmd: u32,
    /// The largest sizes: receive, receive mini, receive jumbo, transmit.
    max: [u32; 4],
    rx: u32,
    rx_mini: u32,
    rx_jumbo: u32,
    tx: u32,
}

/// Mirrors `struct ethtool_coalesce`.
#[repr(C)]
#[derive(Default)]
struct Coalesce {
    cmd: u32,
    rx_usecs: u32,
    rx_frames: u32,
    /// Further limits of receiving and sending, and the interval of statistics.
    others: [u32; 7],
    use_adaptive_rx: u32,
    rest: [u32; 12],
}

/// Reads whether a feature is on.
pub(crate) fn feature(ifname: &str, cmd: u32, what: &'static str) -> Result<bool, XskError> {
    let mut value = Value { cmd, data: 0 };
    ethtool(ifname, what, &mut value)?;
    Ok(value.data != 0)
}

/// Switches a feature on or off.
pub(crate) fn set_feature(ifname: &str, cmd: u32, on: bool, what: &'static str) -> Result<(), XskError> {
    ethtool(ifname, what, &mut Value { cmd, data: u32::from(on) })
}

/// Returns whether a flag is set.
pub(crate) fn flag(ifname: &str, flag: u32, what: &'static str) -> Result<bool, XskError> {
    let mut value = Value { cmd: GFLAGS, data: 0 };
    ethtool(ifname, what, &mut value)?;
    Ok(value.data & flag != 0)
}

/// Clears a flag. The flag is read back to see whether the driver has cleared it.
pub(crate) fn clear_flag(ifname: &str, flag: u32, what: &'static str) -> Result<(), XskError> {
    let mut value = Value { cmd: GFLAGS, data: 0 };
    ethtool(ifname, what, &mut value)?;
    if value.data & flag == 0 {
        return Ok(());
    }
    ethtool(ifname, what, &mut Value { cmd: SFLAGS, data: value.data & !flag })
}

/// Returns the driver's name.
pub(crate) fn driver(ifname: &str) -> Result<String, XskError> {
    let mut info = DriverInfo { cmd: GDRVINFO, driver: [0; 32], rest: [0; 160] };
    ethtool(ifname, "-i", &mut info)?;
    let end = info.driver.iter().position(|&b| b == 0).unwrap_or(info.driver.len());
    Ok(String::from_utf8_lossy(info.driver.get(..end).unwrap_or_default()).into_owned())
}

/// Returns the number of receive queues in use: separate and combined channels together.
pub(crate) fn queues(ifname: &str) -> Result<u32, XskError> {
    let mut channels = Channels { cmd: GCHANNELS, ..Channels::default() };
    match ethtool(ifname, "-l", &mut channels) {
        Ok(()) => Ok((channels.rx + channels.combined).max(1)),
        // A driver without channels (tun, macvlan) has one queue.
        Err(XskError::Ethtool { why, .. }) if why.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(1),
        Err(why) => Err(why),
    }
}

/// Returns the largest possible number of combined channels; 0 if the driver does not tell.
pub(crate) fn most_channels(ifname: &str) -> u32 {
    let mut channels = Channels { cmd: GCHANNELS, ..Channels::default() };
    // The order is max_rx, max_tx, max_other, max_combined.
    ethtool(ifname, "-l", &mut channels).map_or(0, |()| channels.max[3])
}

/// Returns the number of descriptors of a receive and of a transmit queue. `None` if the driver does not tell.
pub(crate) fn rings(ifname: &str) -> Option<Rings> {
    let mut rings = RingParameters { cmd: GRINGPARAM, ..RingParameters::default() };
    ethtool(ifname, "-g", &mut rings).ok()?;
    Some(Rings { receive: rings.rx, transmit: rings.tx })
}

/// Returns how long receive interrupts are put off. `None` if the driver does not tell.
pub(crate) fn coalescing(ifname: &str) -> Option<Coalescing> {
    let mut coalesce = Coalesce { cmd: GCOALESCE, ..Coalesce::default() };
    ethtool(ifname, "-c", &mut coalesce).ok()?;
    Some(Coalescing { is_adaptive: coalesce.use_adaptive_rx != 0, microseconds: coalesce.rx_usecs })
}

/// Returns the MTU, in bytes without the Ethernet header.
pub(crate) fn mtu(ifname: &str) -> Result<usize, XskError> {
    let mut request = request(ifname, "mtu")?;
    ioctl(ifname, "mtu", libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: SIOCGIFMTU succeeded, so the kernel has written this member.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(usize::try_from(mtu).unwrap_or(0))
}

/// Returns the MAC address.
pub(crate) fn mac(ifname: &str) -> Result<[u8; 6], XskError> {
    let mut request = request(ifname, "address")?;
    ioctl(ifname, "address", libc::SIOCGIFHWADDR, &mut request)?;
    // SAFETY: SIOCGIFHWADDR succeeded, so the kernel has written this member.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    let mut mac = [0; 6];
    for (to, from) in mac.iter_mut().zip(address.sa_data) {
        *to = from.cast_unsigned();
    }
    Ok(mac)
}

/// Runs one ethtool command. `body` is a `repr(C)` mirror of the command's struct, whose first word is the command.
fn ethtool<T>(ifname: &str, what: &'static str, body: &mut T) -> Result<(), XskError> {
    let mut request = request(ifname, what)?;
    request.ifr_ifru.ifru_data = (&raw mut *body).cast();
    ioctl(ifname, what, libc::SIOCETHTOOL as libc::c_ulong, &mut request)
}

fn ioctl(ifname: &str, what: &'static str, code: libc::c_ulong, request: &mut libc::ifreq) -> Result<(), XskError> {
    let wrong = |why| XskError::Ethtool { ifname: ifname.to_owned(), what, why };
    let any: OwnedFd = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
        .map_err(|why| wrong(why.into()))?;
    // SAFETY: `request` is a live ifreq with a NUL-terminated name. If the command follows ifru_data, `ethtool` has set
    // it to a live struct of the command's own layout.
    let failed = unsafe { libc::ioctl(any.as_raw_fd(), code as _, &raw mut *request) };
    if failed < 0 {
        let why = io::Error::last_os_error();
        if why.raw_os_error() == Some(libc::ENODEV) {
            return Err(XskError::NoInterface { ifname: ifname.to_owned(), why });
        }
        return Err(wrong(why));
    }
    Ok(())
}

/// Returns an ifreq that has only the name set.
fn request(ifname: &str, what: &'static str) -> Result<libc::ifreq, XskError> {
    let mut name: [libc::c_char; libc::IFNAMSIZ] = [0; libc::IFNAMSIZ];
    if ifname.len() >= name.len() {
        let why = io::Error::from_raw_os_error(libc::ENAMETOOLONG);
        return Err(XskError::Ethtool { ifname: ifname.to_owned(), what, why });
    }
    for (to, from) in name.iter_mut().zip(ifname.bytes()) {
        *to = from.cast_signed();
    }
    // Every variant of the union is plain memory; data is the widest pointer.
    let ifr_ifru = libc::__c_anonymous_ifr_ifru { ifru_data: std::ptr::null_mut() };
    Ok(libc::ifreq { ifr_name: name, ifr_ifru })
}
