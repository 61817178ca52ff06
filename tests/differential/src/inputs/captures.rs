//! pcap streams: what a daemon or `tcpdump` sends to `srv6d capture`.

use std::sync::Mutex;
use std::time::Duration;

use pcap_file::pcap::PcapReader;
use srv6d::capture::{self, PcapStream};

use super::most_text;

/// A pcap stream, whole, cut or damaged: its packets are copied until it makes no sense any more.
///
/// # Panics
/// More comes out than went in, or what comes out is no pcap stream.
pub fn pcap(data: &[u8]) {
    let mut copied = Vec::new();
    {
        let stream = Mutex::new(PcapStream::new(&mut copied).expect("memory takes it"));
        capture::copy(data, &stream).expect("memory takes it");
        stream.lock().expect("nobody else has it").flush().expect("memory takes it");
    }
    assert!(copied.len() <= most_text(data, 2), "{} bytes of {}", copied.len(), data.len());
    let mut reader = PcapReader::new(copied.as_slice()).expect("a stream of its own");
    while let Some(packet) = reader.next_packet() {
        packet.expect("a whole packet");
    }
}

/// Streams of some packets: short, empty, cut.
///
/// # Panics
/// A seed cannot be made.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for length in (0..40).map(|number| number * 37) {
        let mut bytes = Vec::new();
        {
            let mut stream = PcapStream::new(&mut bytes).expect("memory takes it");
            for packet in 0..3u8 {
                let captured = vec![packet; length];
                let time = Duration::new(1_700_000_000, 1_000 * u32::from(packet));
                stream.packet(time, &captured, length + usize::from(packet)).expect("memory takes it");
            }
            stream.flush().expect("memory takes it");
        }
        // The byte order of the other end.
        let mut swapped = bytes.clone();
        swapped.get_mut(..4).into_iter().for_each(<[u8]>::reverse);
        seeds.extend([bytes, swapped]);
    }
    seeds
}
