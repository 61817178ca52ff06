//! Netlink messages and FPM frames in both dialects that are mostly well-formed. Their prefixes, groups and devices
//! come from small pools, so that messages refer to each other.

use arbitrary::{Result, Unstructured};

use super::any_bytes;
use crate::routes::bytes::{self, Attributes};
use crate::routes::{fpm, kernel};

/// Maximum number of messages of one input.
const MESSAGES: usize = 40;

/// Fuzz target: a stream of zebra with routes, next-hop groups and SIDs, some of it damaged. Input: `| decisions |`,
/// from which the stream is made.
///
/// # Panics
/// As in [`fpm::fpm`].
pub fn fpm_stream(data: &[u8]) {
    let mut decisions = Unstructured::new(data);
    if let Ok(stream) = stream(&mut decisions) {
        fpm::fpm(&stream);
    }
}

/// Fuzz target: a dump of the kernel's routes and later messages, some of them damaged. Input: `| decisions |`, from
/// which the messages are made.
///
/// # Panics
/// As in [`kernel::kernel_routes`].
pub fn kernel_messages(data: &[u8]) {
    let mut decisions = Unstructured::new(data);
    if let Ok(datagram) = datagram(&mut decisions) {
        kernel::kernel_routes(&datagram);
    }
}

fn stream(from: &mut Unstructured) -> Result<Vec<u8>> {
    let mut stream = vec![from.arbitrary()?];
    let mut frame = Vec::new();
    for _ in 0..from.int_in_range(1..=MESSAGES)? {
        let mut message = message(from, true)?;
        damage(from, &mut message)?;
        frame.extend(message);
        // A frame may hold several messages, but is shorter than 64 KiB.
        if frame.len() > 16 * 1024 || from.ratio(2, 3)? {
            stream.extend(bytes::frame(&frame));
            frame.clear();
        }
    }
    stream.extend(bytes::frame(&frame));
    if from.ratio(1, 8)? {
        damage(from, &mut stream)?;
    }
    Ok(stream)
}

fn datagram(from: &mut Unstructured) -> Result<Vec<u8>> {
    let mut datagram = vec![from.arbitrary()?];
    for _ in 0..from.int_in_range(1..=MESSAGES)? {
        let mut message = message(from, false)?;
        damage(from, &mut message)?;
        datagram.extend(message);
    }
    Ok(datagram)
}

/// Damages a message in one of ten cases.
fn damage(from: &mut Unstructured, message: &mut Vec<u8>) -> Result<()> {
    if message.is_empty() || !from.ratio(1, 10)? {
        return Ok(());
    }
    let at = from.int_in_range(0..=message.len() - 1)?;
    match from.int_in_range(0..=2)? {
        0 => message.truncate(at),
        1 => message.insert(at, from.arbitrary()?),
        _ => *message.get_mut(at).expect("it is inside") = from.arbitrary()?,
    }
    Ok(())
}

fn message(from: &mut Unstructured, of_zebra: bool) -> Result<Vec<u8>> {
    Ok(match from.int_in_range(0..=9)? {
        0 | 1 => bytes::next_hop(
            if from.ratio(1, 5)? { bytes::DEL_NEXT_HOP } else { bytes::NEW_NEXT_HOP },
            id(from)?,
            &one_hop(from)?,
        ),
        // The members of a group may be groups, the group itself, or unknown objects.
        2 | 3 => {
            let count = from.int_in_range(0..=12)?;
            let members: Vec<(u32, u8)> =
                (0..count).map(|_| Ok((id(from)?, from.int_in_range(1..=255)?))).collect::<Result<_>>()?;
            bytes::group(id(from)?, &members)
        }
        4 if of_zebra => {
            let kind = if from.ratio(1, 4)? { bytes::DEL_SID } else { bytes::NEW_SID };
            let attributes = [bytes::number(3, from.int_in_range(0..=20)?), words(from, &[4, 12])?];
            bytes::sid(kind, pick(from, &SIDS)?, [32, 16, 16, 0], &attributes)
        }
        4 => bytes::rule(id(from)?, table(from)?.into()),
        _ => {
            let kind = if from.ratio(1, 4)? { bytes::DEL_ROUTE } else { bytes::NEW_ROUTE };
            let flags = pick(from, &[bytes::CREATE, bytes::REPLACE, bytes::APPEND, 0])?;
            let what = pick(from, &[bytes::UNICAST, bytes::UNICAST, bytes::UNICAST, bytes::BLACKHOLE, 7, 8, 2])?;
            bytes::route(kind, flags, pick(from, &PREFIXES)?, (table(from)?, what), &way(from, of_zebra)?)
        }
    })
}

/// Makes the attributes that say where a route leads.
fn way(from: &mut Unstructured, of_zebra: bool) -> Result<Attributes> {
    let mut way = match from.int_in_range(0..=7)? {
        0 | 1 => vec![bytes::number(30, id(from)?)],
        2 | 3 => via(from)?,
        4 => {
            let legs = from.int_in_range(0..=8)?;
            let legs: Attributes = (0..legs)
                .map(|_| {
                    Ok(bytes::leg(
                        device(from)?,
                        from.int_in_range(1..=255)?,
                        &[bytes::address(5, pick(from, &GATEWAYS)?)],
                    ))
                })
                .collect::<Result<_>>()?;
            vec![bytes::legs(&legs)]
        }
        5 => {
            let count = from.int_in_range(1..=4)?;
            let segments: Vec<&str> = (0..count).map(|_| pick(from, &SEGMENTS)).collect::<Result<_>>()?;
            bytes::seg6(from.int_in_range(0..=5)?, &segments).to_vec()
        }
        6 if of_zebra => bytes::zebra_encap(pick(from, &SEGMENTS)?, "fcbb:bbbb:1::1").to_vec(),
        _ => {
            let more = [
                bytes::next_csid(),
                bytes::address(5, pick(from, &GATEWAYS)?),
                bytes::number(3, table(from)?.into()),
                bytes::number(9, table(from)?.into()),
                bytes::number(7, device(from)?),
            ];
            let kept: Attributes = more.into_iter().filter(|_| from.arbitrary().unwrap_or(false)).collect();
            bytes::seg6local(from.int_in_range(0..=16)?, &kept).to_vec()
        }
    };
    if from.arbitrary()? {
        way.push(bytes::number(4, device(from)?));
    }
    Ok(way)
}

fn via(from: &mut Unstructured) -> Result<Attributes> {
    Ok(vec![bytes::address(5, pick(from, &GATEWAYS)?), bytes::number(4, device(from)?)])
}

/// Makes the attributes of a next-hop object that is not a group.
fn one_hop(from: &mut Unstructured) -> Result<Attributes> {
    Ok(match from.int_in_range(0..=5)? {
        0 => vec![bytes::attribute(4, &[])],
        1 => bytes::seg6(3, &[pick(from, &SEGMENTS)?]).into_iter().chain([bytes::number(5, device(from)?)]).collect(),
        _ => vec![bytes::address(6, pick(from, &GATEWAYS)?), bytes::number(5, device(from)?)],
    })
}

/// Makes an attribute of one of these types with the name of a device or VRF.
fn words(from: &mut Unstructured, kinds: &[u16]) -> Result<Vec<u8>> {
    let kind = *from.choose(kinds)?;
    Ok(bytes::attribute(kind, pick(from, &[&b"eth2\0"[..], b"Vrf-red\0", b"nobody\0", b""])?))
}

fn pick<T: Copy>(from: &mut Unstructured, among: &[T]) -> Result<T> {
    from.choose(among).copied()
}

fn id(from: &mut Unstructured) -> Result<u32> {
    from.int_in_range(9..=30)
}

fn device(from: &mut Unstructured) -> Result<u32> {
    from.int_in_range(0..=8)
}

fn table(from: &mut Unstructured) -> Result<u8> {
    pick(from, &[254, 254, 254, 0, 100, 255])
}

const PREFIXES: [&str; 14] = [
    "::/0",
    "0.0.0.0/0",
    "2001:db8:a::/48",
    "2001:db8:a:1::/64",
    "2001:db8:a:1::7/128",
    "2001:db8:1::/64",
    "10.9.0.0/16",
    "10.9.8.0/24",
    "fcbb:bbbb::/32",
    "fcbb:bbbb:1::/48",
    "fcbb:bbbb:2::/48",
    "fcbb:bbbb:1:fe24::/64",
    "fcbb:bbbb:1:fe24::1/128",
    "fe80::/64",
];
const GATEWAYS: [&str; 8] =
    ["2001:db8:1::2", "fe80::3", "fe80::4", "10.0.1.2", "2001:db8:a:1::7", "fcbb:bbbb:2::1", "::", "224.0.0.1"];
const SEGMENTS: [&str; 6] =
    ["fcbb:bbbb:2:d046::", "fcbb:bbbb:3:4:5:6:7:8", "fcbb:bbbb:1::", "2001:db8:a::9", "::", "ff02::1"];
const SIDS: [&str; 5] =
    ["fcbb:bbbb:1:fe24::/64", "fcbb:bbbb:1:fe46::/64", "fcbb:bbbb:9::/48", "fcbb:bbbb:1::/48", "::/0"];

/// Returns decisions of several lengths.
pub fn seeds() -> Vec<Vec<u8>> {
    [64, 256, 1024].into_iter().flat_map(|length| any_bytes(24, length)).collect()
}
