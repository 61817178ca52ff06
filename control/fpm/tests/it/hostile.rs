//! Invalid bytes: they never cause a panic, and each error affects no more than its message or its connection.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use crate::made;

use std::time::Instant;

use made::{
    DEL_SID, NEW_NEXT_HOP, NEW_SID, address, announce, attribute, events, frame, group, next_hop, number, sid, steer,
    withdraw,
};
use proptest::collection::vec;
use proptest::prelude::*;
use srv6d_fpm::{Event, FrameError, FrameReader, Rib, decode, messages};

/// Returns a stream with one well-formed message of each kind.
fn stream() -> Vec<u8> {
    let leg = |device: u32| [&16_u16.to_ne_bytes()[..], &[0, 0], &device.to_ne_bytes(), &number(30, 1)].concat();
    let seg6 = nested_seg6();
    let said = [
        announce("2001:db8:b::/48", 254, &[address(5, "fe80::1"), number(4, 2)]),
        announce("2001:db8:c::/48", 254, &[attribute(9, &[leg(2), leg(3)].concat())]),
        announce("2001:db8:d::/48", 254, &seg6),
        announce("192.0.2.0/24", 0, &steer("fcbb:bbbb:2:d046::", "fcbb:bbbb:1::1")),
        withdraw("2001:db8:b::/48", 254),
        next_hop(NEW_NEXT_HOP, 3, &[number(5, 2), address(6, "fe80::3")]),
        group(9, &[(3, 1), (4, 2)]),
        sid(NEW_SID, "fcbb:bbbb:1:fe24::/64", [32, 16, 16, 0], &[number(3, 15), attribute(12, b"Ethernet4\0")]),
        sid(DEL_SID, "fcbb:bbbb:1::/48", [32, 16, 0, 0], &[]),
    ];
    said.iter().flat_map(|message| frame(std::slice::from_ref(message))).collect()
}

fn nested_seg6() -> Vec<Vec<u8>> {
    let srh = [&1_u32.to_ne_bytes()[..], &[0, 2, 4, 0, 0, 0, 0, 0], &[0xfc; 16]].concat();
    vec![attribute(21, &5_u16.to_ne_bytes()), made::nested(22, &[attribute(1, &srh)])]
}

/// Reads everything that can be read. Returns false if the connection has to end.
fn read(stream: &[u8], rib: &mut Rib) -> bool {
    let mut frames = FrameReader::default();
    // Bytes arrive in small pieces, as they can from a socket.
    for piece in stream.chunks(7) {
        frames.push(piece);
        loop {
            let payload = match frames.next_frame() {
                Ok(Some(payload)) => payload,
                Ok(None) => break,
                Err(_) => return false,
            };
            for message in messages(payload) {
                let Ok(message) = message else { return false };
                if let Ok(decoded) = decode(message) {
                    rib.apply(decoded.event, Instant::now());
                }
            }
        }
    }
    true
}

#[test]
fn the_whole_stream_is_read_in_pieces() {
    let mut rib = Rib::default();
    assert!(read(&stream(), &mut rib));
    assert_eq!((rib.len(), rib.next_hops()), (4, 2));
    assert_eq!(events(&stream()).len(), 9);
}

#[test]
fn a_stream_out_of_step_ends_the_connection() {
    let frames = |bytes: &[u8]| {
        let mut frames = FrameReader::default();
        frames.push(bytes);
        frames.next_frame().map(|frame| frame.map(<[u8]>::to_vec))
    };
    assert_eq!(frames(&[1, 1, 0]), Ok(None));
    assert_eq!(frames(b"GET / HTTP/1.1"), Err(FrameError::Version(b'G')));
    assert_eq!(frames(&[1, 2, 0, 4]), Err(FrameError::Type(2)));
    assert_eq!(frames(&[1, 1, 0, 3]), Err(FrameError::Length(3)));
    assert_eq!(frames(&[1, 1, 0, 4]), Ok(Some(Vec::new())));
}

#[test]
fn a_message_longer_than_its_frame_ends_the_connection() {
    let mut long = announce("2001:db8:b::/48", 254, &[]);
    *long.first_mut().unwrap() = 0xff;
    let said: Vec<_> = messages(&long).collect();
    assert!(matches!(said.as_slice(), [Err(FrameError::Message { .. })]), "{said:?}");
    // This length is below that of the message's own header.
    *long.first_mut().unwrap() = 8;
    assert!(matches!(messages(&long).next(), Some(Err(FrameError::Message { length: 8, .. }))));
    // Half a header follows a valid message.
    let good = [announce("2001:db8:b::/48", 254, &[]), vec![0; 8]].concat();
    let said: Vec<bool> = messages(&good).map(|message| message.is_ok()).collect();
    assert_eq!(said, [true, false]);
}

#[test]
fn a_message_that_makes_no_sense_costs_only_itself() {
    for message in [
        announce("2001:db8:b::/48", 254, &[attribute(4, &[1, 2])]),
        announce("192.0.2.0/24", 254, &[address(1, "2001:db8::1")]),
        announce("2001:db8:b::/129", 254, &[]),
        announce("2001:db8:b::/48", 254, &[attribute(21, &7_u16.to_ne_bytes()), attribute(22, &[1])]),
        announce("2001:db8:b::/48", 254, &[attribute(21, &5_u16.to_ne_bytes())]),
        next_hop(NEW_NEXT_HOP, 3, &[attribute(2, &[0; 9])]),
        made::message(NEW_SID, &[10, 48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]),
        made::message(24, &[10], &[]),
    ] {
        let only = messages(&message).next().unwrap().unwrap();
        let why = decode(only).unwrap_err().to_string();
        assert!(!why.is_empty());
    }
}

#[test]
fn attributes_that_nobody_knows_are_counted() {
    let decoded = made::decoded(&announce("2001:db8:b::/48", 254, &[number(99, 1), number(77, 1), number(4, 2)]));
    assert_eq!(decoded.unknown_attributes, 2);
    assert!(matches!(decoded.event, Event::Route(..)));
}

#[test]
fn flags_of_an_attribute_are_no_part_of_its_type() {
    let decoded = made::decoded(&announce("2001:db8:b::/48", 254, &[number(4 | 0x8000, 2)]));
    assert_eq!(decoded.unknown_attributes, 0);
}

proptest! {
    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..600)) {
        read(&bytes, &mut Rib::default());
        for message in messages(&bytes).flatten() {
            let _ = decode(message);
        }
    }

    /// Valid frames around arbitrary messages, which is as far as a hostile peer gets.
    #[test]
    fn any_message(kind in prop_oneof![24_u16..=25, 104_u16..=105, 1000_u16..=1001, any::<u16>()],
                   body in vec(any::<u8>(), 0..300)) {
        let mut rib = Rib::default();
        rib.connected(Instant::now());
        prop_assert!(read(&frame(&[made::message(kind, &body, &[])]), &mut rib));
        let _ = rib.routes().count();
    }

    #[test]
    fn a_good_stream_with_some_bytes_changed(changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..12)) {
        let mut stream = stream();
        for (at, byte) in changes {
            let at = at.index(stream.len());
            *stream.get_mut(at).unwrap() = byte;
        }
        let mut rib = Rib::default();
        rib.connected(Instant::now());
        read(&stream, &mut rib);
        rib.disconnected(Instant::now());
        rib.connected(Instant::now());
        rib.sweep();
        prop_assert!(rib.is_empty());
    }

    #[test]
    fn a_good_stream_that_is_cut(end in any::<prop::sample::Index>()) {
        let stream = stream();
        let end = end.index(stream.len());
        prop_assert!(read(stream.get(..end).unwrap(), &mut Rib::default()), "what is missing may still come");
    }
}
