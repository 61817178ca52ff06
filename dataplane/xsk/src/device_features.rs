//! Device offloads that spoil packets for AF_XDP, and facts about a port's driver.
//!
//! What a local application sends over a veth arrives at the peer with a *partial* checksum: the kernel expects the
//! "hardware" to finish it. An AF_XDP socket gets the bytes but not the note that the checksum is partial, so the
//! receiving TCP discards what the socket forwards. (ping works: ICMP has no such offload.) Therefore the sending end
//! of the veth must have its transmit checksum offload off, which also switches TSO off.

use crate::XskError;
use crate::ethtool;

/// The state of the offloads that change what an AF_XDP socket sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // four switches, as ethtool lists them
pub struct Features {
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

/// Runs `ethtool -K IFNAME tx off`: packets that leave here have complete checksums.
pub fn set_tx_checksum_off(ifname: &str) -> Result<(), XskError> {
    ethtool::set_feature(ifname, ethtool::STXCSUM, false, "-K tx off")
}

/// Runs `ethtool -K IFNAME txvlan off`: frames that leave here have their VLAN tag in the frame, where the XDP program
/// at the other end of a veth sees it.
///
/// # Errors
/// There is no such interface, or its driver does not let the offload be turned off.
pub fn set_tag_insertion_off(ifname: &str) -> Result<(), XskError> {
    ethtool::clear_flag(ifname, ethtool::TXVLAN, "-K txvlan off")
}

/// Runs `ethtool -K IFNAME rxvlan off`: a NIC leaves VLAN tags in the frames. On a veth it has no effect.
///
/// # Errors
/// There is no such interface, or its driver does not let the offload be turned off.
pub fn set_tag_stripping_off(ifname: &str) -> Result<(), XskError> {
    ethtool::clear_flag(ifname, ethtool::RXVLAN, "-K rxvlan off")
}

/// Whether frames may arrive with their VLAN tag beside them, so that only the driver can tell the tag. This is so if
/// the NIC strips tags, or if it is a veth, whose peer may leave tags beside the frames.
pub fn may_strip_tags(ifname: &str) -> bool {
    let is_veth = ethtool::driver(ifname).is_ok_and(|driver| driver == "veth");
    is_veth || ethtool::flag(ifname, ethtool::RXVLAN, "-k rxvlan").unwrap_or(false)
}

/// Runs `ethtool -K IFNAME tso off gso off`: packets that leave here fit the MTU.
pub fn set_segmentation_off(ifname: &str) -> Result<(), XskError> {
    ethtool::set_feature(ifname, ethtool::STSO, false, "-K tso off")?;
    ethtool::set_feature(ifname, ethtool::SGSO, false, "-K gso off")
}

/// Runs `ethtool -K IFNAME gro on` or `off`. A veth with GRO on has NAPI and accepts what XDP programs redirect into
/// its peer.
pub fn set_receive_offload(ifname: &str, on: bool) -> Result<(), XskError> {
    ethtool::set_feature(ifname, ethtool::SGRO, on, "-K gro")
}

/// Whether what local applications send leaves this device with unfinished checksums, as a veth with transmit checksum offload
/// hands it over. A port of srv6d at its other end would forward it as it is.
pub fn leaves_checksums_unfinished(ifname: &str) -> bool {
    let is_veth = ethtool::driver(ifname).is_ok_and(|driver| driver == "veth");
    is_veth && tx_checksum_on(ifname).unwrap_or(false)
}

/// Whether the kernel leaves the calculation of checksums to this device.
pub fn tx_checksum_on(ifname: &str) -> Result<bool, XskError> {
    ethtool::feature(ifname, ethtool::GTXCSUM, "-k tx")
}

/// Reads all [`Features`] of an interface.
pub fn features(ifname: &str) -> Result<Features, XskError> {
    Ok(Features {
        tx_checksum: tx_checksum_on(ifname)?,
        tso: ethtool::feature(ifname, ethtool::GTSO, "-k tso")?,
        gso: ethtool::feature(ifname, ethtool::GGSO, "-k gso")?,
        gro: ethtool::feature(ifname, ethtool::GGRO, "-k gro")?,
    })
}

/// Number of receive queues of the port (`ethtool -l`), at least 1.
pub fn queues(ifname: &str) -> Result<u32, XskError> {
    ethtool::queues(ifname)
}

/// Returns the driver's name (`ethtool -i`), for example `veth`.
pub fn driver(ifname: &str) -> Result<String, XskError> {
    ethtool::driver(ifname)
}

/// Returns the port's MAC address.
pub fn mac(ifname: &str) -> Result<[u8; 6], XskError> {
    ethtool::mac(ifname)
}

/// Returns the port's MTU, in bytes without the Ethernet header.
pub fn mtu(ifname: &str) -> Result<usize, XskError> {
    ethtool::mtu(ifname)
}
