//! Streams that are read: pcapng of a daemon, or pcap of tcpdump.

use std::io::{BufRead, Read};
use std::ops::ControlFlow;

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::{Block, PcapNgReader};

use crate::{MOST_INTERFACES, Packet};

/// First byte of a pcapng stream.
const PCAPNG: u8 = 0x0a;
/// Bits of a packet's flags that say whether it was received or sent.
const DIRECTION: u32 = 3;

/// Reads a stream packet by packet, until `each` breaks. If the stream ends within a packet, or a packet cannot be parsed,
/// reading ends there. Packets of a pcap stream are of `interface`, since such a stream does not say.
pub fn read(mut from: impl BufRead, interface: &str, each: impl FnMut(Packet) -> ControlFlow<()>) {
    match from.fill_buf().ok().and_then(|bytes| bytes.first().copied()) {
        Some(PCAPNG) => read_pcapng(from, each),
        Some(_) => read_pcap(from, interface, each),
        None => {}
    }
}

fn read_pcap(from: impl Read, interface: &str, mut each: impl FnMut(Packet) -> ControlFlow<()>) {
    let Ok(mut reader) = PcapReader::new(from) else { return };
    while let Some(Ok(packet)) = reader.next_packet() {
        let packet = Packet {
            interface: interface.to_owned(),
            time: packet.timestamp,
            length: packet.orig_len as usize,
            bytes: packet.data.into_owned(),
            ..Packet::default()
        };
        if each(packet).is_break() {
            return;
        }
    }
}

fn read_pcapng(from: impl Read, mut each: impl FnMut(Packet) -> ControlFlow<()>) {
    let Ok(mut reader) = PcapNgReader::new(from) else { return };
    let mut names: Vec<String> = Vec::new();
    while let Some(Ok(block)) = reader.next_block() {
        match block {
            Block::SectionHeader(_) => names.clear(),
            Block::InterfaceDescription(interface) if names.len() < MOST_INTERFACES => names.push(name(&interface)),
            Block::InterfaceDescription(_) => return,
            Block::EnhancedPacket(packet) => {
                let interface = usize::try_from(packet.interface_id).ok().and_then(|number| names.get(number));
                let Some(interface) = interface else { return };
                if each(enhanced(packet, interface)).is_break() {
                    return;
                }
            }
            _ => {}
        }
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
        read(bytes, "", |packet| {
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
}
