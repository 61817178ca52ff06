//! Random frames: most of them are well-formed, some are not.
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "headers are built here, and frames are shorter than 64 KiB"
)]

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::addresses::{carrier, destination_v4, destination_v6, source_v4, source_v6};
use super::state::VID;

/// A frame and the port (device) on which it arrives.
#[derive(Clone)]
pub struct Arrival {
    /// Index of the port; the state may have fewer ports.
    pub port: u16,
    /// Bytes of the frame.
    pub frame: Vec<u8>,
}

/// Short form, because a difference is reported with the whole frame; see [`crate::compare`].
impl fmt::Debug for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes on port {}", self.frame.len(), self.port)
    }
}

/// Protocol number and bytes of an IP payload.
type Upper = (u8, Vec<u8>);

/// Makes a frame for one of the devices of [`super::state`].
pub fn arrival() -> impl Strategy<Value = Arrival> {
    let port = prop_oneof![6 => Just(0u16), 3 => 1u16..3, 1 => Just(4)];
    let to = prop_oneof![
        60 => Just(None),
        1 => Just(Some([2u8, 0, 0, 0, 0xdd, 1])),
        1 => Just(Some([0x33, 0x33, 0, 0, 0, 1])),
        1 => Just(Some([0xff; 6])),
    ];
    let tag = prop_oneof![40 => Just(None), 6 => Just(Some(VID)), 1 => Just(Some(7)), 1 => Just(Some(0xe000 | VID))];
    let other_type = option::weighted(0.01, select(vec![0x0806u16, 0x88cc, 0x8100, 0x88a8, 0x86dd, 0x0800]));
    let behind = prop_oneof![6 => Just(Vec::new()), 1 => vec(any::<u8>(), 1..40), 1 => Just(vec![0; 46])];
    let damage = prop_oneof![7 => Just(Vec::new()), 1 => vec(damage(), 1..3)];
    (port, to, tag, packet(), other_type, (behind, damage)).prop_map(|(port, to, tag, packet, other_type, rest)| {
        let (behind, damages) = rest;
        let (is_v6, bytes) = packet;
        let own = [2, 0, 0, 0, u8::try_from(port).unwrap_or_default(), 1];
        let mut frame = [to.unwrap_or(own), [2, 0, 0, 0, 0xee, 9]].concat();
        if let Some(tag) = tag.filter(|_| port == 0) {
            frame.extend([0x81, 0x00]);
            frame.extend(tag.to_be_bytes());
        }
        frame.extend(other_type.unwrap_or(if is_v6 { 0x86dd } else { 0x0800 }).to_be_bytes());
        frame.extend(bytes);
        frame.extend(behind);
        for damage in &damages {
            damage.to(&mut frame);
        }
        Arrival { port, frame }
    })
}

/// A change that damages a frame.
#[derive(Clone, Debug)]
enum Damage {
    Flip(Index, u8),
    Set(Index, u8),
    Cut(Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let edge = select(vec![0u8, 1, 2, 4, 6, 41, 43, 44, 58, 59, 60, 0x45, 0x60, 0x7f, 0x80, 0xfe, 0xff]);
    prop_oneof![
        3 => (any::<Index>(), 0..8u8).prop_map(|(at, bit)| Damage::Flip(at, 1 << bit)),
        3 => (any::<Index>(), edge).prop_map(|(at, value)| Damage::Set(at, value)),
        2 => any::<Index>().prop_map(Damage::Cut),
    ]
}

impl Damage {
    /// Damages the frame. Bits and bytes change in the headers only, because more depends on them than on the payload.
    fn to(&self, frame: &mut Vec<u8>) {
        const HEADERS: usize = 160;
        let reach = frame.len().clamp(1, HEADERS);
        match self {
            Self::Flip(at, bits) => frame.get_mut(at.index(reach)).into_iter().for_each(|byte| *byte ^= bits),
            Self::Set(at, value) => frame.get_mut(at.index(reach)).into_iter().for_each(|byte| *byte = *value),
            Self::Cut(at) => frame.truncate(at.index(frame.len() + 1)),
        }
    }
}

/// Makes an IP packet with up to three others inside. The flag is true for IPv6.
fn packet() -> impl Strategy<Value = (bool, Vec<u8>)> {
    let inner = prop_oneof![3 => v6(upper()), 2 => v4(upper())].prop_map(carried).boxed();
    let content = prop_oneof![2 => upper(), 3 => inner].boxed();
    let twice = v6(content.clone()).prop_map(carried).boxed();
    let thrice = v6(twice.clone()).prop_map(carried).boxed();
    prop_oneof![9 => v6(content), 2 => v4(upper()), 2 => v6(twice), 1 => v6(thrice)]
}

/// Returns a packet as the payload of another one, with its protocol number.
fn carried((is_v6, bytes): (bool, Vec<u8>)) -> Upper {
    (if is_v6 { 41 } else { 4 }, bytes)
}

/// Makes an innermost payload: transport protocols, ICMP and others.
fn upper() -> BoxedStrategy<Upper> {
    let len = prop_oneof![
        30 => 0usize..64,
        1 => 1180usize..1300,
        4 => 1360usize..1440,
        1 => Just(3000),
        1 => Just(8800),
    ];
    let transport = (select(vec![17u8, 17, 6]), len, select(vec![4791u16, 53]), any::<u16>());
    let transport = transport.prop_map(|(number, len, port, from)| {
        let ports = [from.to_be_bytes(), port.to_be_bytes()].concat();
        let rest = if number == 6 { vec![0x50, 0x10, 1, 0, 0x12, 0x34, 0, 0] } else { vec![0, 8, 0xbe, 0xef] };
        let padding = if number == 6 { vec![7; 8] } else { Vec::new() };
        (number, [ports, padding, rest, vec![0x41; len]].concat())
    });
    let kinds = select(vec![128u8, 128, 129, 1, 2, 3, 4, 133, 135, 136, 137, 127, 200]);
    let rest = prop_oneof![20 => vec(any::<u8>(), 3..24), 1 => vec(any::<u8>(), 4900..5000)];
    let icmp6 = (kinds, rest).prop_map(|(kind, rest)| (58, [vec![kind], rest].concat()));
    let kinds = select(vec![0u8, 8, 3, 5, 11, 12, 13, 40]);
    let icmp4 = (kinds, vec(any::<u8>(), 7..24)).prop_map(|(kind, rest)| (1, [vec![kind], rest].concat()));
    let odd = select(vec![59u8, 0, 41, 4, 43, 44, 50, 58, 60, 132, 135, 255]);
    let other = (odd, vec(any::<u8>(), 0..12));
    prop_oneof![8 => transport, 3 => icmp6, 1 => icmp4, 1 => other].boxed()
}

fn hop_limit() -> impl Strategy<Value = u8> + Clone {
    prop_oneof![20 => Just(64u8), 2 => Just(1), 2 => Just(2), 1 => Just(0), 1 => Just(3), 2 => Just(255)]
}

/// Makes the error that is added to a length field, mostly 0.
fn lie() -> impl Strategy<Value = i16> + Clone {
    prop_oneof![80 => Just(0i16), 1 => Just(1), 1 => Just(-1), 1 => -60i16..60]
}

fn v6(upper: BoxedStrategy<Upper>) -> BoxedStrategy<(bool, Vec<u8>)> {
    let addresses = (source_v6(), destination_v6());
    let first_word = (any::<u8>(), prop_oneof![Just(0u32), any::<u32>()]);
    let extensions = prop_oneof![5 => Just(Vec::new()), 3 => vec(extension(), 1..2), 1 => vec(extension(), 2..4)];
    let is_summed = prop_oneof![7 => Just(true), 1 => Just(false)];
    (addresses, first_word, hop_limit(), (extensions, is_summed), upper, lie())
        .prop_map(|((source, destination), (class, label), hop_limit, (extensions, is_summed), (upper, inner), lie)| {
            let inner = if is_summed && upper == 58 { summed(source, destination, inner) } else { inner };
            let (next_header, payload) = in_front(&extensions, upper, inner);
            let word = 0x6000_0000 | u32::from(class) << 20 | label & 0x000f_ffff;
            let len = (payload.len() as u16).saturating_add_signed(lie);
            let mut bytes = word.to_be_bytes().to_vec();
            bytes.extend(len.to_be_bytes());
            bytes.extend([next_header, hop_limit]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
            bytes.extend(payload);
            (true, bytes)
        })
        .boxed()
}

fn v4(upper: BoxedStrategy<Upper>) -> BoxedStrategy<(bool, Vec<u8>)> {
    let addresses = (source_v4(), destination_v4());
    let fragment = prop_oneof![8 => Just(0u16), 6 => Just(0x4000), 1 => Just(0x2000), 1 => Just(5), 1 => Just(0x8000)];
    let options = prop_oneof![
        16 => Just(Vec::new()),
        2 => Just(vec![1; 4]),
        2 => Just(vec![1; 40]),
        1 => Just(vec![131, 7, 4, 10, 0, 0, 1, 0]),
        1 => Just(vec![148, 4, 0, 0, 137, 7, 8, 10, 0, 0, 1, 0]),
        1 => select(vec![4usize, 8, 40]).prop_flat_map(|len| vec(select(vec![0u8, 1, 2, 3, 4, 7, 131, 137, 148]), len)),
    ];
    (addresses, any::<u8>(), hop_limit(), (fragment, options), upper, lie())
        .prop_map(|(addresses, tos, ttl, (fragment, options), (number, payload), lie)| {
            (true, v4_bytes(addresses, [tos, ttl, number], fragment, &options, &payload, lie))
        })
        .prop_map(|(_, bytes)| (false, bytes))
        .boxed()
}

fn v4_bytes(
    (source, destination): (Ipv4Addr, Ipv4Addr),
    [tos, ttl, number]: [u8; 3],
    fragment: u16,
    options: &[u8],
    payload: &[u8],
    lie: i16,
) -> Vec<u8> {
    let len = ((20 + options.len() + payload.len()) as u16).saturating_add_signed(lie);
    let mut header = vec![0x45 + (options.len() / 4) as u8, tos];
    header.extend(len.to_be_bytes());
    header.extend([0x12, 0x34]);
    header.extend(fragment.to_be_bytes());
    header.extend([ttl, number, 0, 0]);
    header.extend(source.octets());
    header.extend(destination.octets());
    header.extend(options);
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum);
    [header, payload.to_vec()].concat()
}

/// Returns an `ICMPv6` message with the checksum that belongs to these addresses.
fn summed(source: Ipv6Addr, destination: Ipv6Addr, mut message: Vec<u8>) -> Vec<u8> {
    if message.len() >= 4 {
        message[2..4].fill(0);
        let pseudo = [source.octets(), destination.octets()].concat();
        let len = (message.len() as u32).to_be_bytes();
        let sum = checksum(&[&pseudo, len.as_slice(), &[0, 0, 0, 58], &message].concat());
        message[2..4].copy_from_slice(&sum);
    }
    message
}

/// Computes the Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let word = |pair: &[u8]| u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    let sum: u64 = bytes.chunks(2).map(word).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    (!((folded & 0xffff) + (folded >> 16)) as u16).to_be_bytes()
}

/// Number and bytes of an extension header; its Next Header field is still zero.
type Extension = (u8, Vec<u8>);

fn extension() -> BoxedStrategy<Extension> {
    prop_oneof![
        1 => options().prop_map(|bytes| (0, bytes)),
        1 => options().prop_map(|bytes| (60, bytes)),
        6 => routing().prop_map(|bytes| (43, bytes)),
        1 => fragment().prop_map(|bytes| (44, bytes)),
    ]
    .boxed()
}

/// Puts extension headers in front of the upper layer; each header names the one behind it.
fn in_front(extensions: &[Extension], upper: u8, payload: Vec<u8>) -> Upper {
    let mut behind = (upper, payload);
    for (number, bytes) in extensions.iter().rev() {
        let mut bytes = bytes.clone();
        if let Some(next_header) = bytes.first_mut() {
            *next_header = behind.0;
        }
        bytes.extend(behind.1);
        behind = (*number, bytes);
    }
    behind
}

fn options() -> impl Strategy<Value = Vec<u8>> {
    let option = prop_oneof![
        4 => Just(vec![1u8, 0]),
        2 => Just(vec![0u8]),
        1 => Just(vec![1u8, 3, 0, 0, 0]),
        1 => (any::<u8>(), 0u8..9).prop_map(|(kind, len)| [vec![kind, len], vec![0; usize::from(len)]].concat()),
        1 => any::<[u8; 2]>().prop_map(Vec::from),
    ];
    (vec(option, 0..4), 0u8..6).prop_map(|(options, short)| {
        let mut bytes = [vec![0, 0], options.concat()].concat();
        // The rest of the header is filled with padding: Pad1, or one PadN.
        let missing = (8 - bytes.len() % 8) % 8;
        match missing {
            2.. if short > 0 => {
                bytes.extend([1, missing as u8 - 2]);
                bytes.extend(vec![0; missing - 2]);
            }
            _ => bytes.extend(vec![0; missing]),
        }
        bytes[1] = (bytes.len() / 8 - 1) as u8;
        bytes
    })
}

fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let offset = prop_oneof![2 => Just(0u16), 1 => Just(1), 1 => Just(0x10), 1 => Just(6)];
    offset.prop_map(|offset| [vec![0, 0], offset.to_be_bytes().to_vec(), vec![0, 0, 0, 9]].concat())
}

/// Makes a routing header: a valid SRH, one at the limits of its fields, or one of another routing type.
fn routing() -> impl Strategy<Value = Vec<u8>> {
    let segment = prop_oneof![4 => carrier(), 4 => destination_v6()];
    let kind = prop_oneof![12 => Just(4u8), 1 => Just(0), 1 => Just(2)];
    let off_by = prop_oneof![6 => Just(0i8), 1 => Just(1), 1 => Just(2), 3 => Just(-1)];
    let tlv = prop_oneof![4 => Just(Vec::new()), 1 => Just(vec![0u8; 8]), 1 => Just(vec![0x6f; 16])];
    (vec(segment, 0..4), kind, any::<Index>(), off_by, off_by_zero(), tlv).prop_map(
        |(segments, kind, left, last_off, len_off, tlv): (Vec<Ipv6Addr>, _, _, _, i8, _)| {
            let count = segments.len() as u8;
            let mut bytes = vec![0, 0, kind, left.index(segments.len() + 2) as u8];
            bytes.extend([count.wrapping_sub(1).wrapping_add_signed(last_off), 0, 0, 0]);
            bytes.extend(segments.iter().flat_map(Ipv6Addr::octets));
            bytes.extend(&tlv);
            bytes[1] = ((bytes.len() / 8 - 1) as u8).saturating_add_signed(len_off);
            bytes
        },
    )
}

fn off_by_zero() -> impl Strategy<Value = i8> {
    prop_oneof![20 => Just(0i8), 1 => Just(1), 1 => Just(-1)]
}
