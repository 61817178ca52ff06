//! Tests of every cell of the table in docs/security.md, with a real node whose kernel forwards with the same SIDs.
//!
//! ```text
//! a ── eth1, with each role in turn  router: srv6d, and its kernel   eth2, fabric ── b: counts the packets that arrive
//! ```
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use support::rig::{CONFIG, Rig, wait_for};
use support::wire::{Wire, ethernet, ipv6, mac};

const SECURITY: &str = include_str!("../../../docs/security.md");
const COPIES: usize = 3;
const V6: u16 = 0x86dd;
const V4: u16 = 0x0800;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DEST_OPTIONS: u8 = 60;
const IN_IPV6: u8 = 41;
type Mac = [u8; 6];

const QUIET: Duration = Duration::from_millis(700);

/// Addresses of `a` and of another host.
const OWN: &str = "2001:db8:a::2";
const SPOOFED: &str = "2001:db8:bad::1";
/// An address that is allowed as IPv4, written as IPv6.
const MAPPED: &str = "::ffff:10.1.0.2";
/// Addresses of the router's port, and of its block: allowed by `allowed_sources`, and spoofed all the same.
const NODE: &str = "2001:db8:a::1";
const SID: &str = "fcbb:0:1004:fe06::";
const IN_BLOCK: &str = "fcbb:0:1009::1";
/// Sources of the edge and of the host port.
const ALLOWED: &str = "allowed_sources = [\"2001:db8:a::/64\", \"10.1.0.0/24\", \"fcbb::/32\"]\n";

/// MAC address of a macvlan device above the router's port.
const ABOVE: Mac = [2, 0, 0, 0, 0xab, 0xe];

fn config(role: &str, offload: &str, a: &str, b: &str) -> String {
    let rules = match role {
        "fabric" => String::new(),
        "edge" => ALLOWED.to_owned(),
        _ => format!("{ALLOWED}allowed_carriers = [\"fcbb:0:1004:1005::/64\", \"fcbb:0:1004:fe07::/64\"]\n"),
    };
    let route =
        |prefix: &str, via: &str| format!("[[route]]\nprefix = \"{prefix}\"\nvia = \"{via}\"\nport = \"eth2\"\n");
    let routes: String =
        ["2001:db8:d::/64", "fcbb:0:1005::/48", "fcbb:0:1006::/48", "3fff:0:1005::/48", "fcbb:0:800:1::/64"]
            .map(|prefix| route(prefix, "2001:db8:b::2"))
            .concat()
            + &route("10.4.0.0/24", "10.2.0.2");
    let neighbor = |address: &str, port: &str, mac: &str| {
        format!("[[neighbor]]\naddress = \"{address}\"\nport = \"{port}\"\nmac = \"{mac}\"\n")
    };
    let neighbors =
        [neighbor("2001:db8:b::2", "eth2", b), neighbor("10.2.0.2", "eth2", b), neighbor("2001:db8:a::2", "eth1", a)]
            .concat();
    format!(
        r#"
[node]
source = "2001:db8:a::1"
[workers]
frames = 2048
ring = 512
[api]
metrics = "off"
[[block]]
prefix = "fcbb::/32"
hosts = ["fcbb:0:800::/48"]
[[port]]
name = "eth1"
role = "{role}"
offload = "{offload}"
{rules}
[[port]]
name = "eth2"
role = "fabric"
[[sid]]
sid = "fcbb:0:1004::/48"
behavior = "uN"
[[sid]]
sid = "fcbb:0:1004:fe06::/64"
behavior = "uDT6"
[[sid]]
sid = "fcbb:0:1004:fe07::/64"
behavior = "uDT6"
[[sid]]
sid = "3fff:0:1004::/48"
behavior = "uN"
{routes}{neighbors}"#
    )
}

/// Makes the router's kernel forward, with the SIDs of srv6d and one of its own.
fn kernel_beside(rig: &Rig, b: &str) {
    rig.inside(
        "router",
        "sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv4.ip_forward=1 net.ipv6.conf.all.seg6_enabled=1 \
         net.ipv6.conf.eth1.seg6_enabled=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth1.rp_filter=0",
    );
    for (port, address) in [("eth1", "10.1.0.1/24"), ("eth2", "10.2.0.1/24")] {
        rig.inside("router", &format!("ip addr add {address} dev {port}"));
    }
    for address in ["2001:db8:b::2", "10.2.0.2"] {
        rig.inside("router", &format!("ip neigh replace {address} lladdr {b} dev eth2 nud permanent"));
    }
    let shift = "encap seg6local action End flavors next-csid lblen 32 nflen 16 dev eth2";
    for sid in ["fcbb:0:1004::/48", "3fff:0:1004::/48", "3ffe:0:1004::/48"] {
        rig.inside("router", &format!("ip -6 route add {sid} {shift}"));
    }
    rig.inside("router", "ip -6 route add fcbb:0:1004:fe06::/64 encap seg6local action End.DT6 table 254 dev eth2");
    // A device with a MAC address of its own, in the same network as the port.
    if rig
        .output("router", &format!("ip link add link eth1 name above address {} type macvlan", written(ABOVE)))
        .status
        .success()
    {
        rig.inside("router", "ip link set above up");
    }
    let plain = [
        "2001:db8:c::/64",
        "2001:db8:d::/64",
        "fcbb:0:1005::/48",
        "fcbb:0:1006::/48",
        "3fff:0:1005::/48",
        "3ffe:0:1005::/48",
        "fcbb:0:800:1::/64",
    ];
    for prefix in plain {
        rig.inside("router", &format!("ip -6 route add {prefix} via 2001:db8:b::2 dev eth2"));
    }
    rig.inside(
        "router",
        "ip route add 10.6.0.0/24 encap seg6 mode encap.red segs fcbb:0:1005:4:: via 10.2.0.2 dev eth2",
    );
    for prefix in ["10.3.0.0/24", "10.4.0.0/24"] {
        rig.inside("router", &format!("ip route add {prefix} via 10.2.0.2 dev eth2"));
    }
}

/// Returns a datagram with a marker of the row, so that it is recognized in whatever form it leaves.
fn datagram(row: usize) -> Vec<u8> {
    let marker = u16::try_from(row).unwrap().to_be_bytes();
    [&[0x30, 0x39, 0x30, 0x39, 0, 24, 0, 0][..], b"srv6d-perim-", &marker, &[0, 0]].concat()
}

fn row_of(frame: &[u8]) -> Option<usize> {
    let at = frame.windows(12).position(|window| window == b"srv6d-perim-")?;
    let bytes: [u8; 2] = frame.get(at + 12..at + 14)?.try_into().unwrap();
    Some(usize::from(u16::from_be_bytes(bytes)))
}

fn ipv4(source: [u8; 4], destination: [u8; 4], options: &[u8], payload: &[u8]) -> Vec<u8> {
    let words = 5 + options.len() / 4;
    let total = u16::try_from(words * 4 + payload.len()).unwrap();
    let mut header = vec![0x40 | u8::try_from(words).unwrap(), 0];
    header.extend(total.to_be_bytes());
    header.extend([0, 0, 0, 0, 64, UDP, 0, 0]);
    header.extend(source);
    header.extend(destination);
    header.extend(options);
    let mut sum: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let checksum = !u16::try_from(sum).unwrap();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    [header, payload.to_vec()].concat()
}

/// Returns an SRH with one segment left. Segments are in the order of the header.
fn srh(next_header: u8, segments: &[&str], behind: &[u8]) -> Vec<u8> {
    let count = u8::try_from(segments.len()).unwrap();
    let mut header = vec![next_header, 2 * count, 4, 1, count - 1, 0, 0, 0];
    for segment in segments {
        header.extend(segment.parse::<std::net::Ipv6Addr>().unwrap().octets());
    }
    [header, behind.to_vec()].concat()
}

/// An authentication header (RFC 4302 section 2.2) of 24 bytes.
fn authentication(next_header: u8) -> [u8; 24] {
    let mut header = [0xa5; 24];
    header[..12].copy_from_slice(&[next_header, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]);
    header
}

struct Ends {
    a: Mac,
    eth1: Mac,
    /// Link-local address of the port.
    link_local: String,
}

/// Returns the frame of a row.
#[allow(clippy::too_many_lines, reason = "the rows one after the other")]
fn frame(ends: &Ends, what: &str, row: usize) -> Vec<u8> {
    let data = datagram(row);
    let inside = ipv6(OWN, "2001:db8:d::1", UDP, 64, &data);
    let udp = |source: &str, to: &str| ipv6(source, to, UDP, 64, &data);
    let carrier = udp(OWN, "fcbb:0:1004:1005::");
    let with = |kind: u16, packet: &[u8]| ethernet(ends.eth1, ends.a, None, kind, packet);
    let tagged = |tags: &[(u16, u16)], packet: &[u8]| {
        let mut frame = [ends.eth1, ends.a].concat();
        for (kind, tci) in tags {
            frame.extend([kind.to_be_bytes(), tci.to_be_bytes()].concat());
        }
        frame.extend(V6.to_be_bytes());
        [frame, packet.to_vec()].concat()
    };
    let solicitation =
        [&[135, 0, 0, 0, 0, 0, 0, 0][..], &[0x20, 1, 0xd, 0xb8, 0, 0xa, 0, 0], &[0; 7], &[1], &data].concat();
    let naming = |to: &str| ipv6(OWN, to, ROUTING, 64, &srh(UDP, &["fcbb:0:1004:1006::", to], &data));
    let mapped = |v4: [u8; 4], to: [u8; 4]| ipv4(v4, to, &[], &data);
    let packet = match what {
        "IPv6 for a route of srv6d" => udp(OWN, "2001:db8:d::1"),
        "IPv6 for a route that only the kernel has" => udp(OWN, "2001:db8:c::1"),
        "IPv6 from a source that is not allowed, for a route of srv6d" => udp(SPOOFED, "2001:db8:d::1"),
        "IPv6 from a source that is not allowed, for a route that only the kernel has" => udp(SPOOFED, "2001:db8:c::1"),
        "IPv6 from an IPv4-mapped address, for a route of srv6d" => udp(MAPPED, "2001:db8:d::1"),
        "IPv6 from an IPv4-mapped address, for a route that only the kernel has" => udp(MAPPED, "2001:db8:c::1"),
        "IPv4 for a route of srv6d" => return with(V4, &mapped([10, 1, 0, 2], [10, 4, 0, 1])),
        "IPv4 for a route that only the kernel has" => return with(V4, &mapped([10, 1, 0, 2], [10, 3, 0, 1])),
        "IPv4 from a source that is not allowed, for a route of srv6d" => {
            return with(V4, &mapped([10, 9, 0, 2], [10, 4, 0, 1]));
        }
        "IPv4 from a source that is not allowed, for a route that only the kernel has" => {
            return with(V4, &mapped([10, 9, 0, 2], [10, 3, 0, 1]));
        }
        "IPv4 with a source route, for a route that only the kernel has" => {
            return with(V4, &ipv4([10, 1, 0, 2], [10, 3, 0, 1], &[131, 7, 4, 10, 3, 0, 9, 0], &data));
        }
        "IPv4 with a source route, for a route of srv6d" => {
            return with(V4, &ipv4([10, 1, 0, 2], [10, 4, 0, 1], &[131, 7, 4, 10, 4, 0, 9, 0], &data));
        }
        "IPv6 from an address of this node, for a route of srv6d" => udp(NODE, "2001:db8:d::1"),
        "IPv6 from an address of this node, for a route that only the kernel has" => udp(NODE, "2001:db8:c::1"),
        "IPv4 from an address of this node, for a route of srv6d" => {
            return with(V4, &mapped([10, 1, 0, 1], [10, 4, 0, 1]));
        }
        "IPv4 from an address of this node, for a route that only the kernel has" => {
            return with(V4, &mapped([10, 1, 0, 1], [10, 3, 0, 1]));
        }
        "IPv6 from a SID of this node, for a route of srv6d" => udp(SID, "2001:db8:d::1"),
        "IPv6 from a SID of this node, for a route that only the kernel has" => udp(SID, "2001:db8:c::1"),
        "IPv6 from an address inside the block, for a route of srv6d" => udp(IN_BLOCK, "2001:db8:d::1"),
        "IPv6 from an address inside the block, for a route that only the kernel has" => udp(IN_BLOCK, "2001:db8:c::1"),
        "IPv6 from an address inside the block, in `hosts`" => udp("fcbb:0:800:2::1", "2001:db8:d::1"),
        "a carrier with a uN of this node" => udp(OWN, "fcbb:0:1004:1006::"),
        "a carrier in `allowed_carriers` of the host port" => carrier,
        "a carrier of another node" => udp(OWN, "fcbb:0:1005:7::"),
        "an address inside the block, in `hosts`" => udp(OWN, "fcbb:0:800:1::5"),
        "IPv6 in IPv6 for a uDT6 of this node" => ipv6(OWN, "fcbb:0:1004:fe06::", IN_IPV6, 64, &inside),
        "IPv6 in IPv6 for a uDT6 in `allowed_carriers` of the host port" => {
            ipv6(OWN, "fcbb:0:1004:fe07::", IN_IPV6, 64, &inside)
        }
        "the same with a carrier inside" => ipv6(OWN, "fcbb:0:1004:fe07::", IN_IPV6, 64, &udp(OWN, "fcbb:0:1005:7::")),
        "the same with an address of this node as inner source" => {
            ipv6(OWN, "fcbb:0:1004:fe07::", IN_IPV6, 64, &udp(NODE, "2001:db8:d::1"))
        }
        "a carrier with a uN outside of every block" => udp(OWN, "3fff:0:1004:1005::"),
        "a SID that only the kernel has, outside of every block" => udp(OWN, "3ffe:0:1004:1005::"),
        "IPv4 for a route of the kernel's own that encapsulates" => {
            return with(V4, &mapped([10, 1, 0, 2], [10, 6, 0, 1]));
        }
        "a carrier behind a priority tag (802.1Q, VID 0)" => {
            return tagged(&[(0x8100, 0xe000)], &udp(OWN, "fcbb:0:1004:1006::"));
        }
        "a carrier behind a priority tag (802.1ad, VID 0)" => {
            return tagged(&[(0x88a8, 0)], &udp(OWN, "fcbb:0:1004:1006::"));
        }
        "a carrier behind two priority tags" => {
            return tagged(&[(0x88a8, 0), (0x8100, 0)], &udp(OWN, "fcbb:0:1004:1006::"));
        }
        "a carrier behind three priority tags" => return tagged(&[(0x8100, 0); 3], &udp(OWN, "fcbb:0:1004:1006::")),
        "IPv6 for a route of srv6d, behind a priority tag" => {
            return tagged(&[(0x8100, 0x6000)], &udp(OWN, "2001:db8:d::1"));
        }
        "a carrier with the tag of a VLAN that is no port" => return tagged(&[(0x8100, 9)], &carrier),
        "the same with a priority tag behind that of the VLAN" => {
            return tagged(&[(0x8100, 9), (0x8100, 0)], &carrier);
        }
        "IPv6 for a route that only the kernel has, to the MAC address of a macvlan" => {
            return ethernet(ABOVE, ends.a, None, V6, &udp(OWN, "2001:db8:c::1"));
        }
        "IPv6 for a route of srv6d, to the MAC address of a macvlan" => {
            return ethernet(ABOVE, ends.a, None, V6, &udp(OWN, "2001:db8:d::1"));
        }
        "IPv6 from a source that is not allowed, to the MAC address of a macvlan" => {
            return ethernet(ABOVE, ends.a, None, V6, &udp(SPOOFED, "2001:db8:c::1"));
        }
        "a carrier with a uN of this node, to the MAC address of a macvlan" => {
            return ethernet(ABOVE, ends.a, None, V6, &udp(OWN, "fcbb:0:1004:1006::"));
        }
        "a carrier in `allowed_carriers` of the host port, to the MAC address of a macvlan" => {
            return ethernet(ABOVE, ends.a, None, V6, &carrier);
        }
        "an SRH that names a SID, to a plain address, to the MAC address of a macvlan" => {
            return ethernet(ABOVE, ends.a, None, V6, &naming("2001:db8:c::1"));
        }
        "a carrier to the MAC address of somebody else" => {
            return ethernet([2, 0, 0, 0, 0xab, 0xf], ends.a, None, V6, &udp(OWN, "fcbb:0:1004:1006::"));
        }
        "neighbour discovery, to a carrier" => ipv6(OWN, "fcbb:0:1004:1006::", ICMPV6, 255, &solicitation),
        "neighbour discovery, to an address of this node" => {
            // The kernel answers this packet and counts it. It has no marker, which would be an invalid option.
            let mut question = solicitation[..24].to_vec();
            let sum = icmpv6_checksum(OWN, "2001:db8:a::1", &question);
            question[2..4].copy_from_slice(&sum.to_be_bytes());
            ipv6(OWN, "2001:db8:a::1", ICMPV6, 255, &question)
        }
        "an SRH that names a SID, to a plain address" => naming("2001:db8:d::1"),
        "an SRH that names a SID, behind destination options" => {
            let options = [ROUTING, 0, 1, 4, 0, 0, 0, 0];
            let behind = srh(UDP, &["fcbb:0:1004:1006::", "2001:db8:d::1"], &data);
            ipv6(OWN, "2001:db8:d::1", DEST_OPTIONS, 64, &[&options[..], &behind].concat())
        }
        "an SRH that names a SID, behind an authentication header" => {
            let behind = srh(UDP, &["fcbb:0:1004:1006::", "2001:db8:d::1"], &data);
            ipv6(OWN, "2001:db8:d::1", AUTHENTICATION, 64, &[&authentication(ROUTING)[..], &behind].concat())
        }
        "something plain, behind an authentication header" => {
            ipv6(OWN, "2001:db8:c::1", AUTHENTICATION, 64, &[&authentication(UDP)[..], &data].concat())
        }
        "an SRH that names a SID, to an address of this node" => naming("2001:db8:a::1"),
        "an SRH that names a SID, to the link-local address of the port" => naming(&ends.link_local),
        "an SRH with a given carrier first and another one behind" => {
            let behind = srh(IN_IPV6, &["fcbb:0:1005:8::", "fcbb:0:1004:1005::"], &inside);
            ipv6(OWN, "fcbb:0:1004:1005::", ROUTING, 64, &behind)
        }
        "a fragment that hides an SRH" => {
            ipv6(OWN, "2001:db8:d::1", FRAGMENT, 64, &[&[ROUTING, 0, 0, 1, 0, 0, 0, 7][..], &data].concat())
        }
        "a fragment of a datagram" => {
            ipv6(OWN, "2001:db8:d::1", FRAGMENT, 64, &[&[UDP, 0, 0, 1, 0, 0, 0, 8][..], &data].concat())
        }
        "IPv6 in IPv6 for a uDT6, from a link-local address" => {
            ipv6("fe80::a", "fcbb:0:1004:fe06::", IN_IPV6, 64, &inside)
        }
        other => panic!("docs/security.md has a row that this test does not know: {other:?}"),
    };
    with(V6, &packet)
}

fn icmpv6_checksum(source: &str, destination: &str, message: &[u8]) -> u16 {
    let address = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let all = [&address(source)[..], &address(destination), &length, &[0, 0, 0, ICMPV6], message].concat();
    let mut sum: u32 = all.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

/// A row of the table: the packet that arrives, and its treatment for each role.
type Row = (String, BTreeMap<&'static str, String>);

/// Returns the rows about Packet Too Big, and the others.
fn all_rows() -> (Vec<Row>, Vec<Row>) {
    let (_, table) = SECURITY.split_once("<!-- cells -->").unwrap();
    let lines = table.lines().skip(3).take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let by_role = ["fabric", "edge", "host"].into_iter().zip(cells[1..].iter().map(|cell| (*cell).to_owned()));
        (cells[0].to_owned(), by_role.collect())
    };
    lines.map(row).partition(|(what, _): &Row| what.contains("Packet Too Big"))
}

fn written(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Returns how many neighbour advertisements the router has sent, each of which answers a solicitation.
fn answers(rig: &Rig) -> u64 {
    let shown = rig.inside("router", "nstat -asz Icmp6OutNeighborAdvertisements");
    shown.lines().filter_map(|line| line.split_whitespace().nth(1)).find_map(|count| count.parse().ok()).unwrap()
}

fn try_all_cells(offload: &str) {
    let (_, all_rows) = all_rows();
    assert!(all_rows.len() > 25, "the table is read");
    for role in ["fabric", "edge", "host"] {
        let mut rig = Rig::new(1);
        let [a, b] = ["a", "b"].map(|host| mac(&rig, host, "wire"));
        rig.inside("b", "ethtool -K wire gro on");
        kernel_beside(&rig, &written(b));
        let shown = rig.inside("router", "ip -6 -o addr show dev eth1 scope link");
        let link_local = shown.split_whitespace().nth(3).unwrap().split('/').next().unwrap().to_owned();
        let ends = Ends { a, eth1: mac(&rig, "router", "eth1"), link_local };
        rig.ready(&config(role, offload, &written(a), &written(b)));
        rig.inside("router", &format!("ip neigh replace {OWN} lladdr {} dev eth1 nud permanent", written(a)));
        let mut rows = all_rows.clone();
        if !rig.output("router", "ip link show above").status.success() {
            println!("SKIPPED: the rows about a macvlan, because this kernel makes none");
            rows.retain(|(what, _)| !what.contains("macvlan"));
        }
        let mut out = Wire::open(&rig, "b", &[]);
        let mut into = Wire::open(&rig, "a", &[]);
        if offload != "off" && role == "fabric" {
            // The program takes a port over once its worker has finished.
            let plain = frame(&ends, "IPv6 for a route of srv6d", rows.len());
            wait_for("packets of the XDP program", || {
                into.send(&plain);
                std::thread::sleep(Duration::from_millis(20));
                (rig.counter("offloaded") > 0).then_some(())
            });
        }
        let before = answers(&rig);
        for (number, (what, _)) in rows.iter().enumerate() {
            for _ in 0..COPIES {
                into.send(&frame(&ends, what, number));
            }
        }
        let (mut came, mut last) = (vec![0; rows.len()], Instant::now());
        let is_expected = |came: &[usize]| {
            rows.iter().zip(came).all(|((_, cells), came)| cells[role] != "forwarded" || *came >= COPIES)
        };
        wait_for("everything that is to come", || {
            while let Some(frame) = out.poll() {
                if let Some(count) = row_of(&frame).and_then(|row| came.get_mut(row)) {
                    *count += 1;
                }
                last = Instant::now();
            }
            (last.elapsed() > QUIET && (is_expected(&came) || last.elapsed() > 10 * QUIET)).then_some(())
        });
        let wrong: Vec<String> = (rows.iter().zip(&came))
            .filter(|((_, cells), came)| match cells[role].as_str() {
                "forwarded" => **came != COPIES,
                "refused" | "node" => **came != 0,
                "kernel" => false,
                other => panic!("{other:?} is no word of the table"),
            })
            .map(|((what, cells), came)| format!("{what}: {}, but {came} of {COPIES} came out", cells[role]))
            .collect();
        assert!(wrong.is_empty(), "{role}, offload {offload}:\n{}\n{}", wrong.join("\n"), rig.show("counters"));
        wait_for("answers of the node", || (answers(&rig) > before).then_some(()));
        rig.check_balance();
    }
}

#[test]
#[ignore = "needs root"]
fn every_cell_holds_for_the_worker() {
    try_all_cells("off");
}

#[test]
#[ignore = "needs root"]
fn every_cell_holds_with_the_xdp_program_in_front() {
    try_all_cells("auto");
}

/// Sources of the domain in the second half of the test about Packet Too Big: `b`, and not `a`.
const DOMAIN: &str = "domain_sources = [\"2001:db8:b::/64\"]";
/// The smallest MTU that is believed.
const LEAST: u32 = 1290;

/// A path of its own for each row, so that what is learned for one says nothing about another.
fn steered(rows: usize) -> String {
    let path = |row: usize| {
        format!("[[steer]]\nprefix = \"2001:db8:e{row:x}::/48\"\nsegments = [\"fcbb:0:1005:{:x}::\"]\n", row + 1)
    };
    (0..rows).map(path).collect()
}

fn learned(rig: &Rig, row: usize) -> Option<u64> {
    let paths = rig.show("paths");
    let prefix = format!("2001:db8:e{row:x}::/48");
    let path = paths.as_array().unwrap().iter().find(|path| path["prefix"] == prefix).unwrap();
    path["learned_mtu"].as_u64()
}

/// Messages of type Packet Too Big that the router's kernel has received.
fn kernel_received(rig: &Rig) -> u64 {
    let shown = rig.inside("router", "nstat -asz Icmp6InPktTooBigs");
    shown.lines().filter_map(|line| line.split_whitespace().nth(1)).find_map(|count| count.parse().ok()).unwrap()
}

/// Returns an outer packet that the router sends along the path of this row.
fn encapsulated(rig: &Rig, ends: &Ends, (into, out): (&mut Wire, &mut Wire), row: usize) -> Vec<u8> {
    let inner = ipv6(OWN, &format!("2001:db8:e{row:x}::1"), UDP, 64, &[datagram(row), vec![0; 500]].concat());
    let frame = ethernet(ends.eth1, ends.a, None, V6, &inner);
    wait_for("an encapsulated packet", || {
        into.send(&frame);
        std::thread::sleep(Duration::from_millis(20));
        while let Some(frame) = out.poll() {
            if row_of(&frame) == Some(row) && frame.get(20) == Some(&IN_IPV6) {
                return Some(frame.get(14..).unwrap().to_vec());
            }
        }
        rig.inside("router", "true"); // keeps the rate down
        None
    })
}

fn too_big(from: &str, mtu: u32, quote: &[u8]) -> Vec<u8> {
    let mut message = [&[2, 0, 0, 0][..], &mtu.to_be_bytes(), quote].concat();
    let sum = icmpv6_checksum(from, NODE, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    ipv6(from, NODE, ICMPV6, 64, &message)
}

/// Of each row a message comes in by the port of the role, and then one that is believed comes from the fabric. What was
/// learned is the smaller one of the two.
#[test]
#[ignore = "needs root"]
fn packet_too_big_is_believed_where_the_table_says_so() {
    let (rows, _) = all_rows();
    assert!(rows.len() > 3, "the table is read");
    for role in ["fabric", "edge", "host"] {
        let mut rig = Rig::new(1);
        let [a, b] = ["a", "b"].map(|host| mac(&rig, host, "wire"));
        let ends = Ends { a, eth1: mac(&rig, "router", "eth1"), link_local: String::new() };
        let eth2 = mac(&rig, "router", "eth2");
        let plain = config(role, "off", &written(a), &written(b)) + &steered(rows.len());
        let plain = plain.replacen("[node]", &format!("[node]\nleast_path_mtu = {LEAST}"), 1);
        rig.ready(&plain);
        let mut out = Wire::open(&rig, "b", &[]);
        let mut into = Wire::open(&rig, "a", &[]);
        for (number, (what, cells)) in rows.iter().enumerate() {
            let mut quote = encapsulated(&rig, &ends, (&mut into, &mut out), number);
            let in_domain = what.contains("domain_sources");
            let text =
                if in_domain { plain.replacen("[node]", &format!("[node]\n{DOMAIN}"), 1) } else { plain.clone() };
            std::fs::write(rig.file("node.toml"), text).unwrap();
            assert!(rig.ask("node", "reload").status.success());
            let genuine = quote.clone();
            let (mut from, mut mtu) = (OWN, 1300);
            match what.as_str() {
                "a Packet Too Big from a source that is not allowed" => from = SPOOFED,
                "a Packet Too Big about a packet that this node has encapsulated"
                | "a Packet Too Big from a source outside of `domain_sources`" => {}
                "a Packet Too Big with less than `least_path_mtu`" => mtu = LEAST - 1,
                "a Packet Too Big about a packet that this node has not sent" => quote[24 + 4] ^= 1, // uSID of a path
                other => panic!("docs/security.md has a row that this test does not know: {other:?}"),
            }
            let before = kernel_received(&rig);
            into.send(&ethernet(ends.eth1, ends.a, None, V6, &too_big(from, mtu, &quote)));
            out.send(&ethernet(eth2, b, None, V6, &too_big("2001:db8:b::2", 1450, &genuine)));
            let (smallest, received) = match cells[role].as_str() {
                "believed" => (u64::from(mtu), 2),
                "node" => (1450, 2),
                "refused" => (1450, 1),
                other => panic!("{other:?} is no word of these rows"),
            };
            let said = format!("{role}: {what}");
            wait_for(&said, || (learned(&rig, number) == Some(smallest)).then_some(()));
            wait_for(&said, || (kernel_received(&rig) >= before + received).then_some(()));
            assert_eq!(kernel_received(&rig), before + received, "{said}: what the kernel has received");
        }
        rig.check_balance();
    }
}

/// Echo requests that the router's kernel has received.
fn echo_requests(rig: &Rig) -> u64 {
    let shown = rig.inside("router", "nstat -asz Icmp6InEchos");
    shown.lines().filter_map(|line| line.split_whitespace().nth(1)).find_map(|count| count.parse().ok()).unwrap()
}

#[test]
#[ignore = "needs root"]
fn a_sid_that_comes_later_is_no_source_from_outside() {
    let mut rig = Rig::new(1);
    rig.inside("router", "sysctl -qw net.ipv6.conf.all.forwarding=1");
    rig.inside("a", "ip addr add 3fff:0:9::1/128 dev wire nodad");
    rig.ready(&format!("{}[kernel]\n", CONFIG.replacen("role = \"fabric\"", "role = \"edge\"", 1)));
    let ping = || rig.output("a", "ping -c 1 -W 1 -I 3fff:0:9::1 2001:db8:a::1");
    let before = echo_requests(&rig);
    ping();
    assert_eq!(echo_requests(&rig), before + 1, "nothing is wrong with it yet");
    // From the second one on, changes are amendments.
    for number in 1..4 {
        let prefix = format!("2001:db8:f{number}::/64");
        rig.inside("router", &format!("ip -6 route add {prefix} via 2001:db8:b::2 dev eth2"));
        wait_for("the route", || rig.show("routes").to_string().contains(&prefix).then_some(()));
    }
    rig.inside("router", "ip -6 route add 3fff:0:9::/48 encap seg6local action End dev eth2");
    wait_for("the SID", || rig.show("sids").to_string().contains("3fff:0:9::/48").then_some(()));
    let before = echo_requests(&rig);
    ping();
    assert_eq!(echo_requests(&rig), before, "{}", rig.show("counters"));
    let shown = rig.inside("router", "ip -6 -o addr show dev eth1 scope link");
    let link_local = shown.split_whitespace().nth(3).unwrap().split('/').next().unwrap().to_owned();
    rig.output("a", &format!("ping -c 1 -W 1 -I 3fff:0:9::1 {link_local}%wire"));
    assert_eq!(echo_requests(&rig), before, "to a link-local address: {}", rig.show("counters"));
    rig.output("a", &format!("ping -c 1 -W 1 {link_local}%wire"));
    assert_eq!(echo_requests(&rig), before + 1, "from another link-local address");
    let before = before + 1;
    rig.inside("router", "ip -6 route del 3fff:0:9::/48");
    wait_for("no SID", || (!rig.show("sids").to_string().contains("3fff:0:9::/48")).then_some(()));
    ping();
    assert_eq!(echo_requests(&rig), before + 1, "it is as before");
}

/// Packets that a SID of the kernel has taken.
fn taken_by_the_kernel(rig: &Rig, sid: &str) -> u64 {
    let shown = rig.inside("router", &format!("ip -6 -s route show {sid}"));
    let mut words = shown.split_whitespace().skip_while(|word| *word != "packets");
    words.nth(1).unwrap().parse().unwrap()
}

/// The kernel processes SIDs also where it does not forward, and does not tell the XDP program of them.
#[test]
#[ignore = "needs root"]
fn a_port_without_forwarding_reaches_no_sid_of_the_kernel() {
    const SID: &str = "3ffe:0:1004::/48";
    for (role, reaches) in [("fabric", true), ("edge", false), ("host", false)] {
        let mut rig = Rig::new(1);
        rig.inside("router", "sysctl -qw net.ipv6.conf.all.seg6_enabled=1 net.ipv6.conf.eth1.seg6_enabled=1");
        rig.inside("router", "sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv6.conf.eth1.forwarding=0");
        rig.inside("router", &format!("ip -6 route add {SID} encap seg6local action End.DT6 table 254 count dev eth2"));
        rig.ready(&CONFIG.replacen("role = \"fabric\"", &format!("role = \"{role}\""), 1));
        let before = echo_requests(&rig);
        rig.output("a", "ping -c 1 -W 1 2001:db8:a::1");
        assert_eq!(echo_requests(&rig), before + 1, "{role}: addresses of the node are reached");
        let eth1 = mac(&rig, "router", "eth1");
        let a = mac(&rig, "a", "wire");
        let inside = ipv6("2001:db8:9::9", "2001:db8:a::1", UDP, 64, &datagram(0));
        let outer = ipv6(OWN, "3ffe:0:1004::1", IN_IPV6, 64, &inside);
        let mut wire = Wire::open(&rig, "a", &[]);
        let frame = ethernet(eth1, a, None, V6, &outer);
        let sent_until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < sent_until && taken_by_the_kernel(&rig, SID) == 0 {
            wire.send(&frame);
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(taken_by_the_kernel(&rig, SID) > 0, reaches, "{role}");
    }
}
