//! Captures, as a daemon or `tcpdump` sends them to `srv6d capture`.

use std::ops::ControlFlow;
use std::time::Duration;

use srv6d_pcap::{Filter, Packet, Stream, read};

use super::most_text;

/// Fuzz target: reads a capture that is intact, cut or damaged, up to the first invalid byte, filters it, and writes it again.
///
/// # Panics
/// If what is written is longer than the input can explain, or is not read again as it was.
pub fn pcap(data: &[u8]) {
    let filter = Filter::parse("not (sid fcbb::/32 or port 7 or vlan 5 or src host ::1)").expect("a filter");
    let (mut packets, mut copied) = (Vec::new(), Vec::new());
    let mut stream = Stream::new(&mut copied).expect("memory takes it");
    let _why_not_all = read(data, "eth1", |packet| {
        filter.fits(&packet.bytes);
        let is_written = stream.packet(&packet).is_ok();
        if is_written {
            packets.push(packet);
        }
        if is_written { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    stream.flush().expect("memory takes it");
    drop(stream);
    assert!(copied.len() <= most_text(data, 8), "{} bytes of {}", copied.len(), data.len());
    let mut again = 0;
    let whole = read(copied.as_slice(), "", |packet| {
        assert_eq!(packets.get(again).map(|known| &known.bytes), Some(&packet.bytes));
        again += 1;
        ControlFlow::Continue(())
    });
    whole.expect("what was written is a capture");
    assert_eq!(again, packets.len());
}

/// Returns streams of a few packets: short, empty, and longer than captured.
///
/// # Panics
/// If a seed cannot be made.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for length in (0..40).map(|number| number * 37) {
        let mut bytes = Vec::new();
        let mut stream = Stream::new(&mut bytes).expect("memory takes it");
        for number in 0..3u8 {
            let packet = Packet {
                interface: format!("eth{}", number % 2),
                time: Duration::new(1_700_000_000, 1_000 * u32::from(number)),
                sent: Some(number == 1),
                bytes: vec![number; length],
                length: length + usize::from(number),
                comment: Some("dropped: no_route".to_owned()),
            };
            stream.packet(&packet).expect("memory takes it");
        }
        stream.flush().expect("memory takes it");
        drop(stream);
        // A machine of the other byte order would write the stream like this.
        let mut swapped = bytes.clone();
        swapped.get_mut(8..12).into_iter().for_each(<[u8]>::reverse);
        seeds.extend([bytes, swapped]);
    }
    seeds
}
