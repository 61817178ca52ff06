//! Parses the text of a layer, such as `ip6 2001:db8::1 > fcbb:bbbb:1:2:: hl 64 fl 0x12345`.

use std::net::Ipv6Addr;
use std::str::FromStr;

use crate::layer::{Field, Ip4, Ip6, Layer, Layers, Routing, Tail, Tcp, protocol};

/// Parses every layer and tail of a frame.
pub(crate) fn parse(frame: &[String]) -> Result<Layers, String> {
    let mut parsed = Layers::default();
    for text in frame {
        let mut words = Words::new(text);
        let kind = words.next().ok_or("an empty layer")?;
        let one = match tail(kind, &mut words) {
            Some(found) => found.map(|tail| parsed.tails.push(tail)),
            None => layer(kind, &mut words).map(|layer| parsed.layers.push(layer)),
        };
        one.and_then(|()| words.finish()).map_err(|why| format!("{text:?}: {why}"))?;
    }
    Ok(parsed)
}

/// Words of a layer. Those with a fixed place are taken with `next`, the others by their keys.
struct Words<'t> {
    words: Vec<&'t str>,
}

impl<'t> Words<'t> {
    fn new(text: &'t str) -> Self {
        Self { words: text.split_whitespace().collect() }
    }

    fn next(&mut self) -> Option<&'t str> {
        (!self.words.is_empty()).then(|| self.words.remove(0))
    }

    fn need(&mut self, what: &str) -> Result<&'t str, String> {
        self.next().ok_or_else(|| format!("{what} is missing"))
    }

    /// Parses `source > destination`.
    fn ends(&mut self) -> Result<(&'t str, &'t str), String> {
        let source = self.need("the source")?;
        if self.next() != Some(">") {
            return Err("write `source > destination`".to_owned());
        }
        Ok((source, self.need("the destination")?))
    }

    /// Takes `key` and the word behind it, and returns that word.
    fn value(&mut self, key: &str) -> Result<Option<&'t str>, String> {
        let Some(at) = self.words.iter().position(|word| *word == key) else { return Ok(None) };
        self.words.remove(at);
        if at < self.words.len() { Ok(Some(self.words.remove(at))) } else { Err(format!("{key} has no value")) }
    }

    fn flag(&mut self, key: &str) -> bool {
        let at = self.words.iter().position(|word| *word == key);
        at.map(|at| self.words.remove(at)).is_some()
    }

    fn number<T: TryFrom<u64>>(&mut self, key: &str, default: T) -> Result<T, String> {
        self.value(key)?.map_or(Ok(default), |word| number(key, word))
    }

    fn field<T: TryFrom<u64>>(&mut self, key: &str, default: Field<T>) -> Result<Field<T>, String> {
        Ok(match self.value(key)? {
            None => default,
            Some("auto") => Field::Auto,
            Some("any") => Field::Any,
            Some("hash") => Field::NonZero,
            Some(word) => Field::Is(number(key, word)?),
        })
    }

    fn address(&mut self, key: &str) -> Result<Option<Ipv6Addr>, String> {
        self.value(key)?.map(|word| from_text(key, word)).transpose()
    }

    fn hex(&mut self, key: &str) -> Result<Vec<u8>, String> {
        self.value(key)?.map_or(Ok(Vec::new()), hex)
    }

    fn finish(&self) -> Result<(), String> {
        match self.words.first() {
            None => Ok(()),
            Some(word) => Err(format!("{word:?} is not known here")),
        }
    }
}

fn from_text<T: FromStr>(what: &str, word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{what}: {word:?} is not an address of the right family"))
}

/// Parses a decimal number, or a hexadecimal one with `0x`.
fn number<T: TryFrom<u64>>(what: &str, word: &str) -> Result<T, String> {
    let parsed =
        word.strip_prefix("0x").map_or_else(|| word.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok());
    let parsed = parsed.ok_or_else(|| format!("{what}: {word:?} is not a number"))?;
    T::try_from(parsed).map_err(|_| format!("{what}: {word} is too large"))
}

pub(crate) fn hex(word: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<u32> = word.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>().unwrap_or_default();
    if digits.len() != word.len() || !digits.len().is_multiple_of(2) {
        return Err(format!("{word:?} is not pairs of hexadecimal digits"));
    }
    let byte = |pair: &[u32]| pair.iter().fold(0u32, |byte, digit| byte << 4 | digit);
    Ok(digits.chunks(2).filter_map(|pair| u8::try_from(byte(pair)).ok()).collect())
}

pub(crate) fn mac(word: &str) -> Result<[u8; 6], String> {
    let wrong = || format!("{word:?} is not a MAC address such as 02:00:00:00:00:01");
    hex(&word.replace(':', "")).ok().and_then(|bytes| bytes.try_into().ok()).ok_or_else(wrong)
}

fn tail(kind: &str, words: &mut Words<'_>) -> Option<Result<Tail, String>> {
    let mut length = |what: &str| words.need(what).and_then(|word| number(what, word));
    match kind {
        "pad" => Some(length("the frame length").map(Tail::Pad)),
        "truncate" => Some(length("the frame length").map(Tail::Truncate)),
        "trailer" => Some(words.need("bytes in hexadecimal").and_then(hex).map(Tail::Trailer)),
        _ => None,
    }
}

fn layer(kind: &str, words: &mut Words<'_>) -> Result<Layer, String> {
    match kind {
        "eth" => eth(words),
        "vlan" => vlan(words),
        "ip6" => ip6(words),
        "ip4" => ip4(words),
        "hbh" => options(protocol::HOP_BY_HOP, words),
        "dst" => options(protocol::DESTINATION_OPTIONS, words),
        "srh" => routing(4, words),
        "routing" => {
            let kind = number("the routing type", words.need("the routing type")?)?;
            routing(kind, words)
        }
        "frag" => fragment(words),
        "udp" => udp(words),
        "tcp" => tcp(words),
        "icmp6" => icmp6(words),
        "icmp4" => icmp4(words),
        "bth" => bth(words),
        "hex" => words.need("bytes in hexadecimal").and_then(hex).map(Layer::Raw),
        "bytes" => bytes(words),
        "quote" => position(words).map(Layer::Quote),
        "rest" => position(words).map(Layer::Rest),
        _ => Err(format!("{kind:?} is not a layer")),
    }
}

fn eth(words: &mut Words<'_>) -> Result<Layer, String> {
    let (source, destination) = words.ends()?;
    let ethertype = words.field("type", Field::Auto)?;
    Ok(Layer::Eth { destination: mac(destination)?, source: mac(source)?, ethertype })
}

fn vlan(words: &mut Words<'_>) -> Result<Layer, String> {
    let vid = number("the VID", words.need("the VID")?)?;
    Ok(Layer::Vlan { vid, pcp: words.number("pcp", 0)?, ethertype: words.field("type", Field::Auto)? })
}

fn ip6(words: &mut Words<'_>) -> Result<Layer, String> {
    let (source, destination) = words.ends()?;
    Ok(Layer::Ip6(Ip6 {
        sources: source.split('|').map(|one| from_text("source", one)).collect::<Result<_, _>>()?,
        destination: from_text("destination", destination)?,
        version: words.number("version", 6)?,
        traffic_class: words.field("tc", Field::Is(0))?,
        flow_label: words.field("fl", Field::Is(0))?,
        payload_len: words.field("plen", Field::Auto)?,
        next: words.field("nh", Field::Auto)?,
        hop_limit: words.number("hl", 64)?,
    }))
}

fn ip4(words: &mut Words<'_>) -> Result<Layer, String> {
    let (source, destination) = words.ends()?;
    let flags = u8::from(words.flag("reserved")) << 2 | u8::from(words.flag("df")) << 1 | u8::from(words.flag("mf"));
    Ok(Layer::Ip4(Ip4 {
        sources: source.split('|').map(|one| from_text("source", one)).collect::<Result<_, _>>()?,
        destination: from_text("destination", destination)?,
        version: words.number("version", 4)?,
        ihl: words.field("ihl", Field::Auto)?,
        tos: words.field("tos", Field::Is(0))?,
        total_len: words.field("len", Field::Auto)?,
        id: words.field("id", Field::Is(0))?,
        flags: words.field("flags", Field::Is(flags))?,
        offset: words.number("off", 0)?,
        ttl: words.number("ttl", 64)?,
        protocol: words.field("proto", Field::Auto)?,
        checksum: words.field("csum", Field::Auto)?,
        options: words.hex("opts")?,
    }))
}

/// Parses `padn N`, `pad1` and `opt TYPE HEX` in the order they are written. `PadN` fills the header up to a multiple
/// of 8.
fn options(protocol: u8, words: &mut Words<'_>) -> Result<Layer, String> {
    let (next, len) = (words.field("nh", Field::Auto)?, words.field("len", Field::Auto)?);
    let mut data = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "pad1" => data.push(0),
            "padn" => push_padn(&mut data, number("padn", words.need("the length of PadN")?)?)?,
            "opt" => {
                let kind: u8 = number("opt", words.need("the option type")?)?;
                let value =
                    words.next().map_or(Ok(Vec::new()), |word| if word == "-" { Ok(Vec::new()) } else { hex(word) })?;
                data.push(kind);
                data.push(u8::try_from(value.len()).map_err(|_| "the option is too long".to_owned())?);
                data.extend(value);
            }
            "raw" => data.extend(hex(words.need("bytes in hexadecimal")?)?),
            _ => return Err(format!("{word:?} is not an option: write `padn N`, `pad1`, `opt TYPE HEX`, `raw HEX`")),
        }
    }
    match (8 - (data.len() + 2) % 8) % 8 {
        0 => {}
        1 => data.push(0),
        fill => push_padn(&mut data, fill)?,
    }
    Ok(Layer::Options { protocol, data, next, len })
}

/// Adds a `PadN` of `total` bytes, including its own two.
fn push_padn(data: &mut Vec<u8>, total: usize) -> Result<(), String> {
    let zeros = total.checked_sub(2).ok_or("PadN has at least 2 bytes")?;
    data.push(1);
    data.push(u8::try_from(zeros).map_err(|_| "PadN is too long".to_owned())?);
    data.resize(data.len() + zeros, 0);
    Ok(())
}

fn routing(kind: u8, words: &mut Words<'_>) -> Result<Layer, String> {
    let segments = words.value("seg")?.unwrap_or_default();
    let segments = segments.split(',').filter(|segment| !segment.is_empty());
    Ok(Layer::Routing(Routing {
        kind,
        segments_left: words.number("sl", 0)?,
        next: words.field("nh", Field::Auto)?,
        len: words.field("hel", Field::Auto)?,
        last_entry: words.field("le", Field::Auto)?,
        flags: words.number("flags", 0)?,
        tag: words.number("tag", 0)?,
        segments: segments.map(|segment| from_text("seg", segment)).collect::<Result<_, _>>()?,
        tlv: words.hex("tlv")?,
    }))
}

fn fragment(words: &mut Words<'_>) -> Result<Layer, String> {
    Ok(Layer::Fragment {
        offset: words.number("off", 0)?,
        more: words.flag("more"),
        id: words.number("id", 0)?,
        next: words.field("nh", Field::Auto)?,
    })
}

fn udp(words: &mut Words<'_>) -> Result<Layer, String> {
    let (source, destination) = words.ends()?;
    Ok(Layer::Udp {
        source: number("source port", source)?,
        destination: number("destination port", destination)?,
        len: words.field("len", Field::Auto)?,
        checksum: words.field("csum", Field::Auto)?,
        to: words.address("to")?,
    })
}

fn tcp(words: &mut Words<'_>) -> Result<Layer, String> {
    let (source, destination) = words.ends()?;
    Ok(Layer::Tcp(Tcp {
        source: number("source port", source)?,
        destination: number("destination port", destination)?,
        sequence: words.number("seq", 0)?,
        acknowledgment: words.number("ack", 0)?,
        flags: words.number("flags", 0x10)?,
        window: words.number("win", 1024)?,
        checksum: words.field("csum", Field::Auto)?,
        to: words.address("to")?,
    }))
}

/// Parses identifier and sequence number of an echo.
fn echo(words: &mut Words<'_>) -> Result<[u8; 4], String> {
    let (id, seq): (u16, u16) = (words.number("id", 0)?, words.number("seq", 0)?);
    Ok((u32::from(id) << 16 | u32::from(seq)).to_be_bytes())
}

fn icmp6(words: &mut Words<'_>) -> Result<Layer, String> {
    let word = words.need("the message")?;
    let mut code: u8 = words.number("code", 0)?;
    let (kind, rest) = match word {
        "unreachable" => (1, [0; 4]),
        "packet-too-big" => (2, words.number("mtu", 0u32)?.to_be_bytes()),
        "time-exceeded" => (3, [0; 4]),
        "parameter-problem" => (4, words.number("pointer", 0u32)?.to_be_bytes()),
        "echo" => (128, echo(words)?),
        "reply" => (129, echo(words)?),
        "neighbor-solicitation" => (135, [0; 4]),
        "neighbor-advertisement" => (136, words.number("flags", 0x6000_0000u32)?.to_be_bytes()),
        "type" => {
            let kind = number("type", words.need("the type")?)?;
            (kind, words.number("body", 0u32)?.to_be_bytes())
        }
        _ => return Err(format!("{word:?} is not an ICMPv6 message")),
    };
    code = words.number("code", code)?;
    Ok(Layer::Icmp6 { kind, code, rest, checksum: words.field("csum", Field::Auto)?, to: words.address("to")? })
}

fn icmp4(words: &mut Words<'_>) -> Result<Layer, String> {
    let word = words.need("the message")?;
    let (kind, rest) = match word {
        "reply" => (0, echo(words)?),
        // RFC 1191 section 4: the low 16 bits are the next-hop MTU.
        "unreachable" => (3, words.number("mtu", 0u32)?.to_be_bytes()),
        "echo" => (8, echo(words)?),
        "time-exceeded" => (11, [0; 4]),
        "type" => {
            let kind = number("type", words.need("the type")?)?;
            (kind, words.number("body", 0u32)?.to_be_bytes())
        }
        _ => return Err(format!("{word:?} is not an ICMP message")),
    };
    Ok(Layer::Icmp4 { kind, code: words.number("code", 0)?, rest, checksum: words.field("csum", Field::Auto)? })
}

/// Parses a base transport header of `RoCEv2` (12 bytes).
fn bth(words: &mut Words<'_>) -> Result<Layer, String> {
    let opcode: u8 = words.number("op", 4)?;
    let partition: u16 = words.number("pkey", 0xffff)?;
    let (queue_pair, sequence): (u32, u32) = (words.number("qp", 0)?, words.number("psn", 0)?);
    let mut bytes = vec![opcode, 0];
    bytes.extend(partition.to_be_bytes());
    bytes.extend((queue_pair & 0xff_ffff).to_be_bytes());
    bytes.extend((sequence & 0xff_ffff).to_be_bytes());
    Ok(Layer::Raw(bytes))
}

/// Parses `bytes COUNT x VALUE`.
fn bytes(words: &mut Words<'_>) -> Result<Layer, String> {
    let count: u16 = number("count", words.need("the count")?)?;
    if words.next() != Some("x") {
        return Err("write `bytes COUNT x VALUE`".to_owned());
    }
    Ok(Layer::Raw(vec![number("value", words.need("the value")?)?; usize::from(count)]))
}

/// Parses the number of a layer of the input frame, counted from 1. The default is 1, its first packet.
fn position(words: &mut Words<'_>) -> Result<usize, String> {
    words.next().map_or(Ok(1), |word| number("the layer", word))
}
