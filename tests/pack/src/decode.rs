//! Decodes bytes into layers in the notation of frames, for messages to people.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::build::{Pseudo, ipv4_checksum};
use crate::layer::protocol;

/// Returns the layers of a frame. [`build`](crate::build()) makes the same bytes from them again.
pub fn decode(frame: &[u8]) -> Vec<String> {
    let mut decoder = Decoder { lines: Vec::new(), tail: Vec::new(), pseudo: Pseudo::None };
    decoder.ethernet(frame);
    decoder.lines.append(&mut decoder.tail);
    decoder.lines
}

struct Decoder {
    lines: Vec<String>,
    /// Layers for the bytes behind the outermost packet.
    tail: Vec<String>,
    pseudo: Pseudo,
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

impl Decoder {
    /// Writes bytes that are not a header, or a header that is cut short.
    fn raw(&mut self, bytes: &[u8]) {
        match bytes {
            [] => {}
            [first, ..] if bytes.len() >= 8 && bytes.iter().all(|byte| byte == first) => {
                self.lines.push(format!("bytes {} x {first:#04x}", bytes.len()));
            }
            _ => self.lines.push(format!("hex {}", hex(bytes))),
        }
    }

    fn ethernet(&mut self, bytes: &[u8]) {
        let Some((header, rest)) = bytes.split_first_chunk::<14>() else { return self.raw(bytes) };
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *header;
        let ends = format!("{} > {}", mac([s0, s1, s2, s3, s4, s5]), mac([d0, d1, d2, d3, d4, d5]));
        self.tagged(&format!("eth {ends}"), u16::from_be_bytes([t0, t1]), rest);
    }

    /// Decodes what follows an `EtherType`.
    fn tagged(&mut self, line: &str, ethertype: u16, rest: &[u8]) {
        let version = rest.first().map_or(0, |byte| byte >> 4);
        match (ethertype, rest.split_first_chunk::<4>()) {
            (0x8100, Some((&[c0, c1, t0, t1], inner))) => {
                self.lines.push(line.to_owned());
                let control = u16::from_be_bytes([c0, c1]);
                let pcp = if control >> 13 == 0 { String::new() } else { format!(" pcp {}", control >> 13) };
                self.tagged(&format!("vlan {}{pcp}", control & 0xfff), u16::from_be_bytes([t0, t1]), inner);
            }
            (0x86dd, _) if rest.len() >= 40 => {
                self.lines.push(line.to_owned());
                self.ip6(rest, true);
            }
            (0x0800, _)
                if rest.len() >= 20
                    && usize::from(rest.first().map_or(0, |b| b & 0xf)) * 4 <= rest.len()
                    && version != 6 =>
            {
                self.lines.push(line.to_owned());
                self.ip4(rest, true);
            }
            _ => {
                self.lines.push(format!("{line} type {ethertype:#06x}"));
                self.raw(rest);
            }
        }
    }

    /// Splits the bytes where the packet ends according to its length field. Returns `None` if that field is wrong.
    fn payload<'b>(&mut self, bytes: &'b [u8], len: usize, outermost: bool) -> Option<&'b [u8]> {
        let (payload, behind) = bytes.split_at_checked(len)?;
        if behind.is_empty() {
            return Some(payload);
        }
        if !outermost {
            return None;
        }
        self.tail.push(format!("trailer {}", hex(behind)));
        Some(payload)
    }

    fn ip6(&mut self, bytes: &[u8], outermost: bool) {
        let Some((header, rest)) = bytes.split_first_chunk::<40>() else { return self.raw(bytes) };
        let [v0, v1, v2, v3, l0, l1, next, hop_limit, addresses @ ..] = *header;
        let first = u32::from_be_bytes([v0, v1, v2, v3]);
        let (source, destination) = u128_pair(addresses);
        self.pseudo = Pseudo::V6(source, destination);
        let mut line = format!("ip6 {source} > {destination} hl {hop_limit}");
        if first >> 28 != 6 {
            let _ = write!(line, " version {}", first >> 28);
        }
        if first >> 20 & 0xff != 0 {
            let _ = write!(line, " tc {:#04x}", first >> 20 & 0xff);
        }
        if first & 0xf_ffff != 0 {
            let _ = write!(line, " fl {:#07x}", first & 0xf_ffff);
        }
        let payload_len = u16::from_be_bytes([l0, l1]);
        let payload = self.payload(rest, usize::from(payload_len), outermost);
        if payload.is_none() {
            let _ = write!(line, " plen {payload_len}");
        }
        self.chain(line, "nh", next, payload.unwrap_or(rest));
    }

    fn ip4(&mut self, bytes: &[u8], outermost: bool) {
        let Some((header, _)) = bytes.split_first_chunk::<20>() else { return self.raw(bytes) };
        let [v, tos, l0, l1, i0, i1, f0, f1, ttl, protocol, c0, c1, s0, s1, s2, s3, d0, d1, d2, d3] = *header;
        let header_len = usize::from(v & 0xf) * 4;
        let options = bytes.get(20..header_len).unwrap_or_default();
        let rest = bytes.get(header_len.max(20)..).unwrap_or_default();
        let (source, destination) = (Ipv4Addr::new(s0, s1, s2, s3), Ipv4Addr::new(d0, d1, d2, d3));
        self.pseudo = Pseudo::V4(source, destination);
        let mut line = format!("ip4 {source} > {destination} ttl {ttl}");
        let mut note = |key: &str, shown: bool, value: String| {
            if shown {
                let _ = write!(line, " {key}{value}");
            }
        };
        let (id, flags) = (u16::from_be_bytes([i0, i1]), u16::from_be_bytes([f0, f1]));
        note("version ", v >> 4 != 4, (v >> 4).to_string());
        note("ihl ", header_len < 20, (v & 0xf).to_string());
        note("tos ", tos != 0, format!("{tos:#04x}"));
        note("id ", id != 0, id.to_string());
        note("reserved", flags & 0x8000 != 0, String::new());
        note("df", flags & 0x4000 != 0, String::new());
        note("mf", flags & 0x2000 != 0, String::new());
        note("off ", flags & 0x1fff != 0, (flags & 0x1fff).to_string());
        note("opts ", !options.is_empty(), hex(options));
        let total_len = u16::from_be_bytes([l0, l1]);
        let len = usize::from(total_len).checked_sub(header_len.max(20));
        let payload = len.and_then(|len| self.payload(rest, len, outermost));
        note("len ", payload.is_none(), total_len.to_string());
        let checksum = u16::from_be_bytes([c0, c1]);
        let whole = bytes.get(..header_len.max(20)).unwrap_or_default();
        note("csum ", checksum != ipv4_checksum(whole), format!("{checksum:#06x}"));
        self.chain(line, "proto", protocol, payload.unwrap_or(rest));
    }

    /// Writes `line`, then the header of type `next` behind it. If that header is not decoded, `line` gets its number.
    fn chain(&mut self, line: String, key: &str, next: u8, rest: &[u8]) {
        let at = self.lines.len();
        self.lines.push(line);
        // A later fragment starts in the middle of a header.
        let is_header = !self.lines.get(at).is_some_and(|line| is_later_fragment(line));
        let known = is_header && self.upper(next, rest);
        if !known {
            self.raw(rest);
        }
        if !known
            && next != protocol::NO_NEXT_HEADER
            && let Some(line) = self.lines.get_mut(at)
        {
            let _ = write!(line, " {key} {next}");
        }
    }

    /// Decodes the header of type `next`. Returns false if that is not possible; then nothing is written.
    fn upper(&mut self, next: u8, bytes: &[u8]) -> bool {
        match next {
            protocol::IPV6 if bytes.len() >= 40 => self.ip6(bytes, false),
            protocol::IPV4 if bytes.len() >= 20 && ipv4_header_fits(bytes) => self.ip4(bytes, false),
            protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS => return self.options(next, bytes),
            protocol::ROUTING => return self.routing(bytes),
            protocol::FRAGMENT => return self.fragment(bytes),
            protocol::UDP => return self.udp(bytes),
            protocol::TCP => return self.tcp(bytes),
            protocol::ICMPV6 => return self.icmp("icmp6", next, bytes),
            protocol::ICMP => return self.icmp("icmp4", next, bytes),
            _ => return false,
        }
        true
    }

    fn options(&mut self, kind: u8, bytes: &[u8]) -> bool {
        let &[next, len, ref rest @ ..] = bytes else { return false };
        let Some((data, rest)) = rest.split_at_checked(usize::from(len) * 8 + 6) else { return false };
        let name = if kind == protocol::HOP_BY_HOP { "hbh" } else { "dst" };
        let line = format!("{name} {}", option_list(data).unwrap_or_else(|| format!("raw {}", hex(data))));
        self.chain(line, "nh", next, rest);
        true
    }

    fn routing(&mut self, bytes: &[u8]) -> bool {
        let Some((&[next, len, kind, segments_left, last_entry, flags, t0, t1], rest)) = bytes.split_first_chunk()
        else {
            return false;
        };
        let (body, rest, whole) = match rest.split_at_checked(usize::from(len) * 8) {
            Some((body, rest)) => (body, rest, true),
            None => (rest, [].as_slice(), false),
        };
        let listed = if kind == 4 { usize::from(last_entry) + 1 } else { 0 };
        let listed = listed.min(body.len() / 16);
        let (segments, tlv) = body.split_at_checked(listed * 16).unwrap_or((body, &[]));
        let (segments, _) = segments.as_chunks::<16>();
        let mut line = if kind == 4 { "srh".to_owned() } else { format!("routing {kind}") };
        let _ = write!(line, " sl {segments_left}");
        if usize::from(last_entry) != segments.len().saturating_sub(1) {
            let _ = write!(line, " le {last_entry}");
        }
        if !whole || !body.len().is_multiple_of(8) {
            let _ = write!(line, " hel {len}");
        }
        if flags != 0 {
            let _ = write!(line, " flags {flags:#04x}");
        }
        if [t0, t1] != [0, 0] {
            let _ = write!(line, " tag {}", u16::from_be_bytes([t0, t1]));
        }
        let texts: Vec<String> = segments.iter().map(|&segment| Ipv6Addr::from(segment).to_string()).collect();
        if !texts.is_empty() {
            let _ = write!(line, " seg {}", texts.join(","));
        }
        if !tlv.is_empty() {
            let _ = write!(line, " tlv {}", hex(tlv));
        }
        if let (Pseudo::V6(source, _), true, Some(&last)) = (self.pseudo, segments_left > 0, segments.first()) {
            self.pseudo = Pseudo::V6(source, last.into());
        }
        self.chain(line, "nh", next, rest);
        true
    }

    fn fragment(&mut self, bytes: &[u8]) -> bool {
        let Some((&[next, 0, o0, o1, i0, i1, i2, i3], rest)) = bytes.split_first_chunk() else { return false };
        let field = u16::from_be_bytes([o0, o1]);
        if field & 0b110 != 0 {
            return false;
        }
        let more = if field & 1 == 1 { " more" } else { "" };
        let line = format!("frag off {}{more} id {}", field >> 3, u32::from_be_bytes([i0, i1, i2, i3]));
        self.chain(line, "nh", next, rest);
        true
    }

    /// Returns the `csum` field of a transport header, or nothing if the checksum is right.
    fn checksum(&self, protocol: u8, bytes: &[u8], at: usize) -> String {
        let mut zeroed = bytes.to_vec();
        let Some(field) = zeroed.get_mut(at..at + 2) else { return String::new() };
        let found = field.iter().fold(0u16, |word, &byte| word << 8 | u16::from(byte));
        field.fill(0);
        let pseudo = if protocol == protocol::ICMP { Pseudo::None } else { self.pseudo };
        let right = match pseudo.checksum(protocol, &zeroed) {
            0 if protocol == protocol::UDP => 0xffff,
            right => right,
        };
        if found == right { String::new() } else { format!(" csum {found:#06x}") }
    }

    fn udp(&mut self, bytes: &[u8]) -> bool {
        let Some((&[s0, s1, d0, d1, l0, l1, _, _], rest)) = bytes.split_first_chunk() else { return false };
        let len = u16::from_be_bytes([l0, l1]);
        let mut line = format!("udp {} > {}", u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
        if usize::from(len) != bytes.len() {
            let _ = write!(line, " len {len}");
        }
        line += &self.checksum(protocol::UDP, bytes, 6);
        self.lines.push(line);
        self.raw(rest);
        true
    }

    fn tcp(&mut self, bytes: &[u8]) -> bool {
        let Some((header, rest)) = bytes.split_first_chunk::<20>() else { return false };
        let [s0, s1, d0, d1, q0, q1, q2, q3, a0, a1, a2, a3, 0x50, flags, w0, w1, _, _, 0, 0] = *header else {
            return false;
        };
        let mut line = format!(
            "tcp {} > {} seq {} ack {} flags {flags:#04x} win {}",
            u16::from_be_bytes([s0, s1]),
            u16::from_be_bytes([d0, d1]),
            u32::from_be_bytes([q0, q1, q2, q3]),
            u32::from_be_bytes([a0, a1, a2, a3]),
            u16::from_be_bytes([w0, w1]),
        );
        line += &self.checksum(protocol::TCP, bytes, 16);
        self.lines.push(line);
        self.raw(rest);
        true
    }

    fn icmp(&mut self, name: &str, protocol: u8, bytes: &[u8]) -> bool {
        let Some((&[kind, code, _, _, b0, b1, b2, b3], rest)) = bytes.split_first_chunk() else { return false };
        let (id, body) = (u16::from_be_bytes([b0, b1]), u32::from_be_bytes([b0, b1, b2, b3]));
        let seq = u16::from_be_bytes([b2, b3]);
        let message = match (name, kind, body) {
            ("icmp6", 1, 0) => "unreachable".to_owned(),
            ("icmp6", 2, mtu) => format!("packet-too-big mtu {mtu}"),
            ("icmp6", 3, 0) | ("icmp4", 11, 0) => "time-exceeded".to_owned(),
            ("icmp6", 4, pointer) => format!("parameter-problem pointer {pointer}"),
            ("icmp6", 128, _) | ("icmp4", 8, _) => format!("echo id {id} seq {seq}"),
            ("icmp6", 129, _) | ("icmp4", 0, _) => format!("reply id {id} seq {seq}"),
            ("icmp6", 135, 0) => "neighbor-solicitation".to_owned(),
            ("icmp4", 3, mtu) => format!("unreachable mtu {mtu}"),
            (_, kind, body) => format!("type {kind} body {body:#010x}"),
        };
        let code = if code == 0 { String::new() } else { format!(" code {code}") };
        let checksum = self.checksum(protocol, bytes, 2);
        self.lines.push(format!("{name} {message}{code}{checksum}"));
        let is_error = if name == "icmp6" { kind < 128 } else { matches!(kind, 3 | 11 | 12) };
        match rest.first().map(|byte| byte >> 4) {
            Some(6) if is_error && rest.len() >= 40 => self.ip6(rest, false),
            Some(4) if is_error && ipv4_header_fits(rest) => self.ip4(rest, false),
            _ => self.raw(rest),
        }
        true
    }
}

fn u128_pair(addresses: [u8; 32]) -> (Ipv6Addr, Ipv6Addr) {
    let (halves, _) = addresses.as_chunks::<16>();
    let address = |index: usize| halves.get(index).map_or(Ipv6Addr::UNSPECIFIED, |&half| half.into());
    (address(0), address(1))
}

/// Returns whether the header has version 4 and is no longer than the available bytes.
fn ipv4_header_fits(bytes: &[u8]) -> bool {
    bytes.len() >= 20
        && bytes.first().is_some_and(|first| first >> 4 == 4 && usize::from(first & 0xf) * 4 <= bytes.len())
}

fn is_later_fragment(line: &str) -> bool {
    let mut words = line.split(' ').skip_while(|word| *word != "off").skip(1);
    words.next().is_some_and(|offset| offset != "0")
}

/// Decodes a list of options. Returns `None` if an option runs past the end.
fn option_list(mut data: &[u8]) -> Option<String> {
    let mut words = Vec::new();
    while let Some((&kind, rest)) = data.split_first() {
        if kind == 0 {
            words.push("pad1".to_owned());
            data = rest;
            continue;
        }
        let (&len, rest) = rest.split_first()?;
        let (value, rest) = rest.split_at_checked(usize::from(len))?;
        words.push(match (kind, value) {
            (1, value) if value.iter().all(|&byte| byte == 0) => format!("padn {}", value.len() + 2),
            (_, []) => format!("opt {kind:#04x} -"),
            _ => format!("opt {kind:#04x} {}", hex(value)),
        });
        data = rest;
    }
    Some(words.join(" "))
}
