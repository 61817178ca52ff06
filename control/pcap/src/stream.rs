//! A pcapng stream that is written.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::{DataLink, PcapError};

use crate::{MOST_INTERFACES, Packet, SNAPLEN};

/// Resolution of timestamps: nanoseconds, as a negative power of ten.
const NANOSECONDS: u8 = 9;
/// Bits of the flags of a packet: received, and sent.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// A pcapng stream.
pub struct Stream<W: Write> {
    writer: PcapNgWriter<BufWriter<W>>,
    interfaces: BTreeMap<String, u32>,
}

impl<W: Write> Stream<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// The stream accepts no data.
    pub fn new(to: W) -> io::Result<Self> {
        let mut stream =
            Self { writer: PcapNgWriter::new(BufWriter::new(to)).map_err(as_io)?, interfaces: BTreeMap::new() };
        stream.flush()?;
        Ok(stream)
    }

    /// Describes an interface, unless that has been done. Returns its number.
    ///
    /// # Errors
    /// The stream accepts no more data, or there are too many interfaces.
    pub fn interface(&mut self, name: &str) -> io::Result<u32> {
        if let Some(number) = self.interfaces.get(name) {
            return Ok(*number);
        }
        if self.interfaces.len() >= MOST_INTERFACES {
            return Err(io::Error::other(format!("a capture has at most {MOST_INTERFACES} interfaces")));
        }
        let number = u32::try_from(self.interfaces.len()).unwrap_or(u32::MAX);
        let name_option = InterfaceDescriptionOption::IfName(Cow::Borrowed(name));
        let options = vec![name_option, InterfaceDescriptionOption::IfTsResol(NANOSECONDS)];
        let block = InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: SNAPLEN, options };
        self.writer.write_pcapng_block(block).map_err(as_io)?;
        self.interfaces.insert(name.to_owned(), number);
        Ok(number)
    }

    /// Writes a packet. Returns the number of bytes that it takes in the stream.
    ///
    /// # Errors
    /// The stream accepts no more data.
    pub fn packet(&mut self, packet: &Packet) -> io::Result<usize> {
        let interface_id = self.interface(&packet.interface)?;
        let mut options = Vec::new();
        if let Some(sent) = packet.sent {
            options.push(EnhancedPacketOption::Flags(if sent { OUTBOUND } else { INBOUND }));
        }
        if let Some(comment) = &packet.comment {
            options.push(EnhancedPacketOption::Comment(Cow::Borrowed(comment)));
        }
        // Readers refuse a packet whose length exceeds the longest one.
        let data = packet.bytes.get(..SNAPLEN as usize).unwrap_or(&packet.bytes);
        let original_len = u32::try_from(packet.length).unwrap_or(SNAPLEN).min(SNAPLEN);
        let data = Cow::Borrowed(data);
        let block = EnhancedPacketBlock { interface_id, timestamp: packet.time, original_len, data, options };
        self.writer.write_pcapng_block(block).map_err(as_io)
    }

    /// Writes out everything that is buffered.
    ///
    /// # Errors
    /// The stream accepts no more data.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.get_mut().flush()
    }
}

fn as_io(why: PcapError) -> io::Error {
    match why {
        PcapError::IoError(why) => why,
        other => io::Error::other(other),
    }
}
