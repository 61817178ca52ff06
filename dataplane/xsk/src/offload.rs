//! Offloads that spoil packets for AF_XDP, and what a port's driver is.
//!
//! What a local application sends over a veth arrives at the peer with a
//! *partial* checksum: the kernel expects the "hardware" to finish it. An
//! AF_XDP socket gets the bytes but not the note that says so, and whatever it
//! forwards is discarded by the far TCP. (ping survives: ICMP has no such
//! offload.) So the sending end of the veth must have its transmit checksum
//! offload off, which switches TSO off with it.

use crate::XskError;
use crate::ethtool;

/// Offloads that change what an AF_XDP socket sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // four switches, as ethtool lists them
pub struct Offloads {
    /// Transmit checksumming: peers of a veth get partial checksums.
    pub tx_checksum: bool,
    /// TCP segmentation offload.
    pub tso: bool,
    /// Generic segmentation offload: peers of a veth get super-frames when
    /// their XDP program is in generic mode.
    pub gso: bool,
    /// Generic receive offload. On a veth it also means "has NAPI".
    pub gro: bool,
}

/// `ethtool -K IFNAME tx off`: what leaves here has complete checksums.
pub fn set_tx_checksum_off(ifname: &str) -> Result<(), XskError> {
    ethtool::set_feature(ifname, ethtool::STXCSUM, false, "-K tx off")
}

/// `ethtool -K IFNAME txvlan off`: what leaves here has its VLAN tag in the frame, where the XDP program of a veth's other
/// end sees it.
///
/// # Errors
/// There is no such interface, or its driver does not let the offload be turned off.
pub fn set_tag_insertion_off(ifname: &str) -> Result<(), XskError> {
    ethtool::clear_flag(ifname, ethtool::TXVLAN, "-K txvlan off")
}

/// `ethtool -K IFNAME rxvlan off`: a NIC leaves VLAN tags in the frames. On a veth it has no effect.
///
/// # Errors
/// There is no such interface, or its driver does not let the offload be turned off.
pub fn set_tag_stripping_off(ifname: &str) -> Result<(), XskError> {
    ethtool::clear_flag(ifname, ethtool::RXVLAN, "-K rxvlan off")
}

/// Frames may arrive with their VLAN tag beside them, where only a driver that is asked tells of it: the NIC strips tags, or
/// it is a veth, whose peer may leave them there.
pub fn may_strip_tags(ifname: &str) -> bool {
    let is_veth = ethtool::driver(ifname).is_ok_and(|driver| driver == "veth");
    is_veth || ethtool::flag(ifname, ethtool::RXVLAN, "-k rxvlan").unwrap_or(false)
}

/// `ethtool -K IFNAME tso off gso off`: what leaves here fits the MTU.
pub fn set_segmentation_off(ifname: &str) -> Result<(), XskError> {
    ethtool::set_feature(ifname, ethtool::STSO, false, "-K tso off")?;
    ethtool::set_feature(ifname, ethtool::SGSO, false, "-K gso off")
}

/// `ethtool -K IFNAME gro on` or `off`. On a veth, on: it has NAPI, and takes what XDP programs redirect into its peer.
pub fn set_receive_offload(ifname: &str, on: bool) -> Result<(), XskError> {
    ethtool::set_feature(ifname, ethtool::SGRO, on, "-K gro")
}

/// Whether the kernel leaves checksums to this device.
pub fn tx_checksum_on(ifname: &str) -> Result<bool, XskError> {
    ethtool::feature(ifname, ethtool::GTXCSUM, "-k tx")
}

/// All of [`Offloads`].
pub fn offloads(ifname: &str) -> Result<Offloads, XskError> {
    Ok(Offloads {
        tx_checksum: tx_checksum_on(ifname)?,
        tso: ethtool::feature(ifname, ethtool::GTSO, "-k tso")?,
        gso: ethtool::feature(ifname, ethtool::GGSO, "-k gso")?,
        gro: ethtool::feature(ifname, ethtool::GGRO, "-k gro")?,
    })
}

/// Receive queues of the port (`ethtool -l`), at least 1.
pub fn queues(ifname: &str) -> Result<u32, XskError> {
    ethtool::queues(ifname)
}

/// The driver's name (`ethtool -i`), `veth` for example.
pub fn driver(ifname: &str) -> Result<String, XskError> {
    ethtool::driver(ifname)
}

/// The port's MAC address.
pub fn mac(ifname: &str) -> Result<[u8; 6], XskError> {
    ethtool::mac(ifname)
}

/// The port's MTU, in bytes without the Ethernet header.
pub fn mtu(ifname: &str) -> Result<usize, XskError> {
    ethtool::mtu(ifname)
}
