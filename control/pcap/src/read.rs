//! Streams that are read: pcapng of a daemon, or pcap of tcpdump.

use std::io::{BufRead, Read};
use std::ops::ControlFlow;

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::blocks::simple_packet::SimplePacketBlock;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError};

use crate::{MOST_INTERFACES, Packet};

/// First byte of a pcapng stream.
const PCAPNG: u8 = 0x0a;
/// Bits of a packet's flags that say whether it was received or sent.
const DIRECTION: u32 = 3;

/// Reason why a capture cannot be read any further.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The stream cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// What was read is no capture.
    #[error("is no capture, or a damaged one: {0}")]
    Damaged(#[from] PcapError),
    /// A packet is not of Ethernet.
    #[error("the capture is of {0:?}, not of Ethernet: capture on a port, not on `any`")]
    NoEthernet(DataLink),
    /// A packet is of an interface that no block describes.
    #[error("a packet is of an interface that the capture does not describe")]
    Undescribed,
    /// There are too many interfaces.
    #[error("the capture has more than {MOST_INTERFACES} interfaces")]
    TooManyInterfaces,
}

/// Reads a stream of Ethernet packet by packet, until `each` breaks. Packets of a pcap stream are of `interface`, since such a
/// stream does not say.
///
/// # Errors
/// The stream ends within a packet, or a packet cannot be parsed or is not of Ethernet. `each` has had those in front of it.
pub fn read(
    from: impl BufRead,
    interface: &str,
    mut each: impl FnMut(Packet) -> ControlFlow<()>,
) -> Result<(), ReadError> {
    walk(from, interface, |packet, link| match check(link) {
        Ok(()) => each(packet).map_break(Ok),
        Err(why) => ControlFlow::Break(Err(why)),
    })
}

/// Returns the packet with this number, from 1. `None`: there are fewer.
///
/// # Errors
/// The stream ends within a packet in front of it, or that one cannot be parsed or is not of Ethernet.
pub fn nth(from: impl BufRead, number: u64) -> Result<Option<Packet>, ReadError> {
    let (mut at, mut found) = (0, None);
    walk(from, "", |packet, link| {
        at += 1;
        if at < number {
            return ControlFlow::Continue(());
        }
        found = Some(packet);
        ControlFlow::Break(check(link))
    })?;
    Ok(found)
}

fn check(link: DataLink) -> Result<(), ReadError> {
    if link == DataLink::ETHERNET { Ok(()) } else { Err(ReadError::NoEthernet(link)) }
}

/// Reads packets of any link type, until `each` breaks.
fn walk(
    mut from: impl BufRead,
    interface: &str,
    each: impl FnMut(Packet, DataLink) -> ControlFlow<Result<(), ReadError>>,
) -> Result<(), ReadError> {
    match from.fill_buf()?.first() {
        Some(&PCAPNG) => walk_pcapng(from, each),
        Some(_) => walk_pcap(from, interface, each),
        None => Err(ReadError::Damaged(PcapError::IncompleteBuffer)),
    }
}

fn walk_pcap(
    from: impl Read,
    interface: &str,
    mut each: impl FnMut(Packet, DataLink) -> ControlFlow<Result<(), ReadError>>,
) -> Result<(), ReadError> {
    let mut reader = PcapReader::new(from)?;
    let link = reader.header().datalink;
    while let Some(packet) = reader.next_packet().transpose()? {
        let packet = Packet {
            interface: interface.to_owned(),
            time: packet.timestamp,
            length: packet.orig_len as usize,
            bytes: packet.data.into_owned(),
            ..Packet::default()
        };
        if let ControlFlow::Break(end) = each(packet, link) {
            return end;
        }
    }
    Ok(())
}

fn walk_pcapng(
    from: impl Read,
    mut each: impl FnMut(Packet, DataLink) -> ControlFlow<Result<(), ReadError>>,
) -> Result<(), ReadError> {
    let mut reader = PcapNgReader::new(from)?;
    let mut interfaces: Vec<(String, DataLink)> = Vec::new();
    while let Some(block) = reader.next_block().transpose()? {
        let (packet, link) = match block {
            // A stream may be several captures, one behind the other. Each has interfaces of its own.
            Block::SectionHeader(_) => {
                interfaces.clear();
                continue;
            }
            Block::InterfaceDescription(_) if interfaces.len() == MOST_INTERFACES => {
                return Err(ReadError::TooManyInterfaces);
            }
            Block::InterfaceDescription(interface) => {
                interfaces.push((name(&interface), interface.linktype));
                continue;
            }
            Block::EnhancedPacket(packet) => {
                let (name, link) = described(&interfaces, packet.interface_id)?;
                (enhanced(packet, name), *link)
            }
            Block::SimplePacket(packet) => {
                let (name, link) = described(&interfaces, 0)?;
                (simple(packet, name), *link)
            }
            _ => continue,
        };
        if let ControlFlow::Break(end) = each(packet, link) {
            return end;
        }
    }
    Ok(())
}

/// Returns the description of an interface of a packet.
fn described(interfaces: &[(String, DataLink)], number: u32) -> Result<&(String, DataLink), ReadError> {
    usize::try_from(number).ok().and_then(|number| interfaces.get(number)).ok_or(ReadError::Undescribed)
}

/// Returns a packet that was written without its time.
fn simple(packet: SimplePacketBlock<'_>, interface: &str) -> Packet {
    Packet {
        interface: interface.to_owned(),
        length: packet.original_len as usize,
        bytes: packet.data.into_owned(),
        ..Packet::default()
    }
}

fn name(interface: &InterfaceDescriptionBlock<'_>) -> String {
    let name = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfName(name) => Some(name.clone().into_owned()),
        _ => None,
    });
    name.unwrap_or_default()
}

fn enhanced(packet: EnhancedPacketBlock<'_>, interface: &str) -> Packet {
    let mut read = Packet {
        interface: interface.to_owned(),
        time: packet.timestamp,
        length: packet.original_len as usize,
        bytes: packet.data.into_owned(),
        ..Packet::default()
    };
    for option in packet.options {
        match option {
            EnhancedPacketOption::Flags(flags) => {
                read.sent = match flags & DIRECTION {
                    1 => Some(false),
                    2 => Some(true),
                    _ => None,
                };
            }
            EnhancedPacketOption::Comment(comment) => read.comment = Some(comment.into_owned()),
            _ => {}
        }
    }
    read
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::Stream;
    use std::time::Duration;

    fn packets() -> Vec<Packet> {
        let packet = |interface: &str, nanoseconds: u64, sent, comment: Option<&str>| Packet {
            interface: interface.to_owned(),
            time: Duration::from_nanos(1_700_000_000_000_000_000 + nanoseconds),
            sent,
            bytes: vec![7; 65],
            length: 1500,
            comment: comment.map(str::to_owned),
        };
        vec![
            packet("eth1", 1, Some(false), Some("dropped: no_route")),
            packet("leaf00:eth2", 2, Some(true), None),
            packet("eth1", 3, None, None),
        ]
    }

    fn written() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut stream = Stream::new(&mut bytes).unwrap();
        for packet in packets() {
            stream.packet(&packet).unwrap();
        }
        stream.flush().unwrap();
        drop(stream);
        bytes
    }

    fn all(bytes: &[u8]) -> Vec<Packet> {
        let mut found = Vec::new();
        let _: Result<(), ReadError> = read(bytes, "", |packet| {
            found.push(packet);
            ControlFlow::Continue(())
        });
        found
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(all(&written()), packets());
    }

    #[test]
    fn a_stream_that_is_cut_or_damaged_ends_there() {
        let whole = written();
        for length in 0..whole.len() {
            let found = all(whole.get(..length).unwrap());
            assert!(packets().starts_with(&found), "{length}");
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            *damaged.get_mut(place).unwrap() ^= 0xff;
            all(&damaged);
        }
    }

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    }

    /// Returns a section of a pcapng file with an interface of this type, and a packet of four bytes.
    fn section(link: u8, packet: [u8; 4]) -> Vec<u8> {
        let header = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
        let captured = [&[0; 12][..], &[4, 0, 0, 0, 4, 0, 0, 0], &packet].concat();
        [block(0x0a0d_0d0a, &header), block(1, &[link, 0, 0, 0, 0, 0, 0, 0]), block(6, &captured)].concat()
    }

    #[test]
    fn each_section_of_a_file_has_interfaces_of_its_own() {
        const RAW: u8 = 101;
        const ETHERNET: u8 = 1;
        let file = [section(RAW, *b"last"), section(ETHERNET, *b"this")].concat();
        assert_eq!(nth(&file[..], 2).unwrap().unwrap().bytes, b"this");
        assert!(nth(&file[..], 1).is_err_and(|why| why.to_string().contains("not of Ethernet")));
        assert_eq!(nth(&file[..], 3).unwrap(), None);
    }
}
