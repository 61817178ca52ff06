//! pcap streams, as a daemon or `tcpdump` sends them to `srv6d capture`.

use std::sync::Mutex;
use std::time::Duration;

use pcap_file::pcap::PcapReader;
use srv6d_daemon::capture::{self, PcapStream};

use super::most_text;

/// Fuzz target: copies a pcap stream that is intact, cut or damaged. Packets are copied up to the first invalid byte.
///
/// # Panics
/// If the copy is longer than the input can explain, or is not a valid pcap stream.
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

/// Returns streams of a few packets: short, empty, and longer than captured.
///
/// # Panics
/// If a seed cannot be made.
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
        // A machine of the other byte order would write the stream like this.
        let mut swapped = bytes.clone();
        swapped.get_mut(..4).into_iter().for_each(<[u8]>::reverse);
        seeds.extend([bytes, swapped]);
    }
    seeds
}
