//! Builds bytes from layers: lengths, next headers and checksums follow from the surrounding layers unless they are
//! written.

use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::checksum::Sum16BitWords;

use crate::layer::{Field, ICMPV4_ERROR_MAX, ICMPV6_ERROR_MAX, Ip4, Ip6, Layer, Layers, Routing, Tail, Tcp, protocol};

/// Says how some of the bytes are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Ignores the bits that are set in the mask.
    Ignore {
        /// Offset in the frame.
        at: usize,
        /// One byte for each byte of the frame from `at` on.
        mask: Vec<u8>,
    },
    /// Requires that the flow label of an IPv6 header is not zero.
    FlowLabel {
        /// Offset of the IPv6 header.
        at: usize,
    },
    /// Requires that the IPv4 header has a valid checksum. It is used if parts of the header are not compared.
    Ipv4Checksum {
        /// Offset of the header.
        at: usize,
    },
}

/// A frame as bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Built {
    /// Bytes of the frame.
    pub bytes: Vec<u8>,
    /// Rules for the bytes that are not simply compared.
    pub rules: Vec<Rule>,
    /// Offset and protocol number of each layer above Ethernet and VLAN.
    pub(crate) layers: Vec<(usize, u8)>,
    /// Offset of the end of the last layer, where padding and trailers begin.
    pub(crate) end: usize,
}

impl Built {
    /// Returns the bytes of the layers from number `position` (counted from 1) on, and the protocol number of the first
    /// one.
    fn bytes_from(&self, position: usize) -> Result<(u8, &[u8]), String> {
        let found = position.checked_sub(1).and_then(|index| self.layers.get(index));
        let &(at, protocol) = found.ok_or_else(|| format!("the input frame has no layer {position}"))?;
        let bytes = self.bytes.get(at..self.end.min(self.bytes.len())).unwrap_or_default();
        Ok((protocol, bytes))
    }
}

/// Addresses that are included in a transport checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pseudo {
    V6(Ipv6Addr, Ipv6Addr),
    V4(Ipv4Addr, Ipv4Addr),
    None,
}

impl Pseudo {
    /// Computes a transport checksum: RFC 8200 section 8.1, RFC 9293 section 3.1.
    pub(crate) fn checksum(self, protocol: u8, bytes: &[u8]) -> u16 {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes();
        let sum = match self {
            Self::V6(source, destination) => Sum16BitWords::new()
                .add_16bytes(source.octets())
                .add_16bytes(destination.octets())
                .add_4bytes(len)
                .add_2bytes([0, protocol]),
            Self::V4(source, destination) => Sum16BitWords::new()
                .add_4bytes(source.octets())
                .add_4bytes(destination.octets())
                .add_4bytes(len)
                .add_2bytes([0, protocol]),
            Self::None => Sum16BitWords::new(),
        };
        wire_order(&sum.add_slice(bytes))
    }
}

/// Converts to network byte order; `etherparse` sums in the byte order of the machine.
fn wire_order(sum: &Sum16BitWords) -> u16 {
    sum.ones_complement().to_be()
}

/// Computes the checksum of an IPv4 header as if its checksum field were zero (RFC 791 section 3.1).
pub(crate) fn ipv4_checksum(header: &[u8]) -> u16 {
    let (before, after) = (header.get(..10).unwrap_or_default(), header.get(12..).unwrap_or_default());
    wire_order(&Sum16BitWords::new().add_slice(before).add_slice(after))
}

/// Builds every frame that `layers` describes: one for each combination of alternative source addresses.
///
/// # Errors
/// If `input` lacks a layer that is referred to, or if a length does not fit its field.
pub(crate) fn alternatives(layers: &Layers, input: Option<&Built>) -> Result<Vec<Built>, String> {
    let mut open = vec![layers.clone()];
    for index in 0..layers.layers.len() {
        open = open.into_iter().flat_map(|layers| split_sources(&layers, index)).collect();
    }
    open.iter().map(|layers| one(layers, input)).collect()
}

/// Builds the first of the frames that `text` describes.
///
/// # Errors
/// If the text is not in the notation of frames, or if `input` lacks a layer that is referred to.
pub fn build(text: &[String], input: Option<&Built>) -> Result<Built, String> {
    one(&crate::notation::parse(text)?, input)
}

fn split_sources(layers: &Layers, index: usize) -> Vec<Layers> {
    let with = |layer: Layer| {
        let mut split = layers.clone();
        if let Some(slot) = split.layers.get_mut(index) {
            *slot = layer;
        }
        split
    };
    match layers.layers.get(index) {
        Some(Layer::Ip6(ip)) => {
            ip.sources.iter().map(|&one| with(Layer::Ip6(Ip6 { sources: vec![one], ..ip.clone() }))).collect()
        }
        Some(Layer::Ip4(ip)) => {
            ip.sources.iter().map(|&one| with(Layer::Ip4(Ip4 { sources: vec![one], ..ip.clone() }))).collect()
        }
        _ => vec![layers.clone()],
    }
}

fn one(layers: &Layers, input: Option<&Built>) -> Result<Built, String> {
    let mut writer = Writer {
        layers: &layers.layers,
        input,
        done: Vec::new(),
        next: protocol::NO_NEXT_HEADER,
        rules: Vec::new(),
        starts: Vec::new(),
    };
    for index in (0..layers.layers.len()).rev() {
        writer.layer(index)?;
    }
    let mut built = writer.finish();
    for tail in &layers.tails {
        match tail {
            Tail::Pad(len) => built.bytes.resize(built.bytes.len().max(*len), 0),
            Tail::Trailer(bytes) => built.bytes.extend(bytes),
            Tail::Truncate(len) => built.bytes.truncate(*len),
        }
    }
    Ok(built)
}

/// Returns the value of a field as written or, if none is written, the computed one.
fn written<T>(field: Field<T>, computed: T) -> T {
    if let Field::Is(value) = field { value } else { computed }
}

/// Writes a frame from the last layer to the first, so that the bytes written so far are the payload of the next layer.
struct Writer<'l> {
    layers: &'l [Layer],
    input: Option<&'l Built>,
    done: Vec<u8>,
    /// Protocol number of the first layer in `done`.
    next: u8,
    /// Rules, with offsets counted from the end of the frame.
    rules: Vec<Rule>,
    /// Start and protocol number of each layer, with offsets counted from the end of the frame.
    starts: Vec<(usize, u8)>,
}

impl Writer<'_> {
    fn finish(self) -> Built {
        let len = self.done.len();
        let from_start = |from_end: usize| len - from_end;
        let rules = self.rules.into_iter().map(|rule| match rule {
            Rule::Ignore { at, mask } => Rule::Ignore { at: from_start(at), mask },
            Rule::FlowLabel { at } => Rule::FlowLabel { at: from_start(at) },
            Rule::Ipv4Checksum { at } => Rule::Ipv4Checksum { at: from_start(at) },
        });
        let layers = self.starts.iter().rev().map(|&(at, protocol)| (from_start(at), protocol));
        Built { rules: rules.collect(), layers: layers.collect(), end: len, bytes: self.done }
    }

    fn layer(&mut self, index: usize) -> Result<(), String> {
        let Some(layer) = self.layers.get(index) else { return Ok(()) };
        match layer {
            Layer::Eth { destination, source, ethertype } => {
                let ethertype = written(*ethertype, self.ethertype(index));
                self.push([destination.as_slice(), source, &ethertype.to_be_bytes()].concat());
            }
            Layer::Vlan { vid, pcp, ethertype } => {
                let ethertype = written(*ethertype, self.ethertype(index));
                let control = u16::from(*pcp) << 13 | vid & 0xfff;
                self.push([control.to_be_bytes(), ethertype.to_be_bytes()].concat());
            }
            Layer::Ip6(ip) => self.ip6(ip)?,
            Layer::Ip4(ip) => self.ip4(ip)?,
            Layer::Options { data, next, len, .. } => {
                let next = written(*next, self.next);
                let len = written(*len, small(data.len() / 8, "options")?);
                self.push([&[next, len], data.as_slice()].concat());
            }
            Layer::Routing(routing) => self.routing(routing)?,
            Layer::Fragment { offset, more, id, next } => {
                let next = written(*next, self.next);
                let field = (offset << 3 | u16::from(*more)).to_be_bytes();
                self.push([[next, 0].as_slice(), &field, &id.to_be_bytes()].concat());
            }
            Layer::Udp { source, destination, len, checksum, to } => {
                let len = written(*len, word(self.done.len() + 8)?);
                let header = [source.to_be_bytes(), destination.to_be_bytes(), len.to_be_bytes(), [0; 2]].concat();
                self.transport(index, header, 6, *checksum, *to);
            }
            Layer::Tcp(tcp) => self.transport(index, tcp_header(tcp), 16, tcp.checksum, tcp.to),
            Layer::Icmp6 { kind, code, rest, checksum, to } => {
                self.transport(index, [&[*kind, *code, 0, 0], rest.as_slice()].concat(), 2, *checksum, *to);
            }
            Layer::Icmp4 { kind, code, rest, checksum } => {
                self.transport(index, [&[*kind, *code, 0, 0], rest.as_slice()].concat(), 2, *checksum, None);
            }
            Layer::Raw(bytes) => self.push(bytes.clone()),
            Layer::Quote(position) => {
                let (_, bytes) = self.input.ok_or("there is no input frame to quote")?.bytes_from(*position)?;
                let quoted = bytes.get(..self.quote_max(index).min(bytes.len())).unwrap_or_default();
                self.push(quoted.to_vec());
            }
            Layer::Rest(position) => {
                let (next, bytes) = self.input.ok_or("there is no input frame to copy from")?.bytes_from(*position)?;
                self.push(bytes.to_vec());
                self.next = next;
                self.starts.push((self.done.len(), next));
                return Ok(());
            }
        }
        self.next = layer.protocol();
        if !layer.is_l2() {
            self.starts.push((self.done.len(), self.next));
        }
        Ok(())
    }

    fn push(&mut self, header: Vec<u8>) {
        self.done.splice(0..0, header);
    }

    /// Adds a rule for bytes of the header that has just been written, if its field is not compared.
    fn ignore<T: Copy>(&mut self, field: Field<T>, offset: usize, mask: &[u8]) {
        if matches!(field, Field::Any | Field::NonZero) {
            self.rules.push(Rule::Ignore { at: self.done.len() - offset, mask: mask.to_vec() });
        }
    }

    fn ethertype(&self, index: usize) -> u16 {
        match self.layers.get(index + 1) {
            Some(Layer::Vlan { .. }) => 0x8100,
            _ if self.next == protocol::IPV6 => 0x86dd,
            _ if self.next == protocol::IPV4 => 0x0800,
            _ => 0xffff,
        }
    }

    /// Writes an IPv6 header:
    ///
    /// ```text
    /// 0 version 4, traffic class 8, flow label 20 | 4 payload length | 6 next header | 7 hop limit | 8 source | 24 destination
    /// ```
    fn ip6(&mut self, ip: &Ip6) -> Result<(), String> {
        let source = ip.sources.first().copied().unwrap_or(Ipv6Addr::UNSPECIFIED);
        let label = written(ip.flow_label, 0);
        let class = u32::from(written(ip.traffic_class, 0));
        let payload_len = written(ip.payload_len, word(self.done.len())?);
        let next = written(ip.next, self.next);
        let first = u32::from(ip.version) << 28 | class << 20 | label & 0xf_ffff;
        let header = [first.to_be_bytes().as_slice(), &payload_len.to_be_bytes(), &[next, ip.hop_limit]].concat();
        self.push([header.as_slice(), &source.octets(), &ip.destination.octets()].concat());
        self.ignore(ip.traffic_class, 0, &[0x0f, 0xf0]);
        self.ignore(ip.flow_label, 1, &[0x0f, 0xff, 0xff]);
        if ip.flow_label == Field::NonZero {
            self.rules.push(Rule::FlowLabel { at: self.done.len() });
        }
        Ok(())
    }

    fn ip4(&mut self, ip: &Ip4) -> Result<(), String> {
        let source = ip.sources.first().copied().unwrap_or(Ipv4Addr::UNSPECIFIED);
        let mut options = ip.options.clone();
        options.resize(options.len().next_multiple_of(4), 0);
        let ihl = written(ip.ihl, small(5 + options.len() / 4, "IPv4 options")?);
        let total_len = written(ip.total_len, word(20 + options.len() + self.done.len())?);
        let flags = u16::from(written(ip.flags, 0)) << 13 | ip.offset & 0x1fff;
        let protocol = written(ip.protocol, self.next);
        let mut header = vec![ip.version << 4 | ihl & 0xf, written(ip.tos, 0)];
        header.extend([total_len, written(ip.id, 0), flags].into_iter().flat_map(u16::to_be_bytes));
        header.extend([ip.ttl, protocol, 0, 0]);
        header.extend(source.octets().into_iter().chain(ip.destination.octets()).chain(options));
        let checksum = written(ip.checksum, ipv4_checksum(&header));
        header.splice(10..12, checksum.to_be_bytes());
        self.push(header);
        self.ignore(ip.tos, 1, &[0xff]);
        self.ignore(ip.id, 4, &[0xff, 0xff]);
        self.ignore(ip.flags, 6, &[0xe0]);
        if ip.tos == Field::Any || ip.id == Field::Any || ip.flags == Field::Any {
            self.ignore(Field::<u16>::Any, 10, &[0xff, 0xff]);
            self.rules.push(Rule::Ipv4Checksum { at: self.done.len() });
        }
        Ok(())
    }

    /// Writes a routing header:
    ///
    /// ```text
    /// 0 next header | 1 length in 8 bytes, without the first 8 | 2 routing type | 3 segments left
    /// 4 last entry | 5 flags | 6 tag | 8 segments of 16 bytes | TLVs
    /// ```
    fn routing(&mut self, routing: &Routing) -> Result<(), String> {
        let body = routing.segments.len() * 16 + routing.tlv.len();
        let last_entry = small(routing.segments.len().saturating_sub(1), "the segment list")?;
        let next = written(routing.next, self.next);
        let len = written(routing.len, small(body / 8, "the SRH")?);
        let last_entry = written(routing.last_entry, last_entry);
        let mut header = vec![next, len, routing.kind, routing.segments_left, last_entry, routing.flags];
        header.extend(routing.tag.to_be_bytes());
        header.extend(routing.segments.iter().flat_map(Ipv6Addr::octets));
        header.extend(&routing.tlv);
        self.push(header);
        Ok(())
    }

    fn transport(&mut self, index: usize, mut header: Vec<u8>, at: usize, field: Field<u16>, to: Option<Ipv6Addr>) {
        let layer = self.layers.get(index);
        let protocol = layer.map_or(protocol::NO_NEXT_HEADER, Layer::protocol);
        let pseudo = match layer {
            Some(Layer::Icmp4 { .. }) => Pseudo::None,
            _ => self.pseudo(index, to),
        };
        let bytes = [header.as_slice(), &self.done].concat();
        let mut checksum = pseudo.checksum(protocol, &bytes);
        // RFC 768: zero would mean that there is no checksum.
        if protocol == protocol::UDP && checksum == 0 {
            checksum = 0xffff;
        }
        header.splice(at..at + 2, written(field, checksum).to_be_bytes());
        self.push(header);
        self.ignore(field, at, &[0xff, 0xff]);
    }

    /// Returns the addresses of the IP header before layer `index`. While segments are left, the last segment counts as
    /// the destination.
    fn pseudo(&self, index: usize, to: Option<Ipv6Addr>) -> Pseudo {
        let before = self.layers.get(..index).unwrap_or_default();
        let mut last_segment = None;
        for layer in before.iter().rev() {
            match layer {
                Layer::Routing(routing) if routing.segments_left > 0 => {
                    last_segment = routing.segments.first().copied();
                }
                Layer::Ip6(ip) => {
                    let source = ip.sources.first().copied().unwrap_or(Ipv6Addr::UNSPECIFIED);
                    return Pseudo::V6(source, to.or(last_segment).unwrap_or(ip.destination));
                }
                Layer::Ip4(ip) => {
                    return Pseudo::V4(ip.sources.first().copied().unwrap_or(Ipv4Addr::UNSPECIFIED), ip.destination);
                }
                _ => {}
            }
        }
        Pseudo::None
    }

    /// Returns how many bytes of a quoted packet fit behind the IP and ICMP headers.
    fn quote_max(&self, index: usize) -> usize {
        let before = self.layers.get(..index).unwrap_or_default();
        match before.iter().rev().find(|layer| matches!(layer, Layer::Ip6(_) | Layer::Ip4(_))) {
            Some(Layer::Ip4(_)) => ICMPV4_ERROR_MAX - 20 - 8,
            _ => ICMPV6_ERROR_MAX - 40 - 8,
        }
    }
}

/// Writes a TCP header:
///
/// ```text
/// 0 ports | 4 sequence | 8 acknowledgment | 12 data offset, flags, window | 16 checksum, urgent pointer
/// ```
fn tcp_header(tcp: &Tcp) -> Vec<u8> {
    let mut header = [tcp.source.to_be_bytes(), tcp.destination.to_be_bytes()].concat();
    header.extend(tcp.sequence.to_be_bytes().into_iter().chain(tcp.acknowledgment.to_be_bytes()));
    header.extend([5 << 4, tcp.flags]);
    header.extend(tcp.window.to_be_bytes());
    header.extend([0; 4]);
    header
}

fn word(len: usize) -> Result<u16, String> {
    u16::try_from(len).map_err(|_| format!("{len} bytes do not fit a 16-bit length"))
}

fn small(value: usize, what: &str) -> Result<u8, String> {
    u8::try_from(value).map_err(|_| format!("{what}: too long"))
}
