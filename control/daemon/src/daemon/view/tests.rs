#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]
#![allow(clippy::redundant_closure_for_method_calls, reason = "a View borrows: its methods are not general enough")]
use srv6d_dataplane::{PathCounters, SidCounters};
use srv6d_srv6::carrier::SegmentList;
use srv6d_srv6::desired::{Block, Csid, DscpMode, Mac, TableId, UnknownSid};

use super::*;

fn port(name: &str, device: u16, vlan: Option<u16>, up: bool) -> Port {
    Port { vlan, up, ..Port::fabric(name, device, Mac([2, 0, 0, 0, 0, 1]), 1500) }
}

fn hop(port: u16, via: &str) -> Hop {
    Hop { port: PortId(port), via: Some(via.parse().unwrap()), weight: 1 }
}

fn sid(prefix: &str, behavior: Behavior) -> LocalSid {
    LocalSid { prefix: prefix.parse().unwrap(), behavior, flavors: Flavors::default() }
}

fn ua(via: Vec<Hop>, backup: Vec<Hop>) -> Behavior {
    Behavior::EndX { csid: Some(Csid { lblen: 32, nflen: 32 }), via, backup }
}

/// Returns a state in which eth1 is up, with a resolved neighbour `::2` and an unresolved `::9`, eth2 is down, and
/// eth3 is absent.
fn desired() -> Desired {
    let path = |name: &str, segment: &str| Path {
        name: name.to_owned(),
        segments: SegmentList::new(vec![segment.parse().unwrap()], &[]).unwrap(),
        full_srh: false,
        weight: 1,
        source: None,
        via: Vec::new(),
    };
    let dt = |family| Behavior::EndDt { family, table: TableId(100), dscp: DscpMode::Uniform };
    Desired {
        ports: vec![
            port("eth1", 0, None, true),
            port("eth1.7", 0, Some(7), true),
            port("eth2", 2, None, false),
            port("eth3", 3, None, false),
        ],
        blocks: vec![Block { prefix: "fcbb::/32".parse().unwrap(), unknown: Some(UnknownSid::Drop) }],
        sids: vec![
            sid("fcbb:0:1:a::/64", ua(vec![hop(0, "2001:db8::2")], vec![])),
            sid("fcbb:0:1:b::/64", ua(vec![hop(0, "2001:db8::9")], vec![])),
            sid("fcbb:0:1:c::/64", ua(vec![hop(2, "2001:db8::2")], vec![])),
            sid("fcbb:0:1:d::/64", ua(vec![hop(2, "2001:db8::2")], vec![hop(0, "2001:db8::2")])),
            sid("fcbb:0:1:e::/64", dt(DtFamily::V46)),
            sid("fd00::e/128", dt(DtFamily::V4)),
        ],
        steers: vec![Steer {
            table: TableId::MAIN,
            prefix: "2001:db8:b::/48".parse().unwrap(),
            paths: vec![path("left", "fcbb:0:1000:fe06::"), path("right", "fd00::1")],
        }],
        neighbors: [((PortId(0), "2001:db8::2".parse().unwrap()), Mac([2, 0, 0, 0, 0, 2]))].into(),
        ..Desired::default()
    }
}

fn with_view<T>(show: impl Fn(&View<'_>) -> T) -> T {
    let desired = desired();
    let attached = |device: &str| AttachedPort {
        device: device.to_owned(),
        mode: "native".to_owned(),
        reason: "as asked".to_owned(),
        queues: 1,
        multi_buffer: true,
        offload: None,
    };
    let (eth1, eth2) = (attached("eth1"), attached("eth2"));
    let mut counters = Counters::default();
    let path = |name: &str, packets| PathCounters {
        path: name.to_owned(),
        packets,
        bytes: packets * 100,
        choices: srv6d_dataplane::ChoiceCounters::default(),
    };
    counters.paths = vec![path("left", 1), path("right", 2), path("of an old generation", 9)];
    counters.sids = vec![SidCounters { sid: "fcbb:0:1:e::/64".to_owned(), packets: 4, bytes: 400 }];
    let unresolved = ((PortId(0), "2001:db8::9".parse().unwrap()), AdjacencyState::Unresolved);
    show(&View {
        desired: &desired,
        roles: &[RoleReason::Written, RoleReason::FacesNone],
        counters: &counters,
        far: &srv6d_srv6::FarPorts::default(),
        attached: [("eth1", &eth1), ("eth2", &eth2)].into(),
        programs: [("eth1".to_owned(), 7)].into(),
        busy_polling: [("eth1".to_owned(), vec![BusyPolling::Napi(8193)])].into(),
        refused: &[("eth3".to_owned(), "another program is there".to_owned())].into(),
        local_paths: BTreeMap::new(),
        deliveries: BTreeMap::new(),
        next_hops: [unresolved].into(),
    })
}

#[test]
fn ports_show_their_device_and_why_they_wait() {
    let rows = with_view(|view| view.ports());
    let shown: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.device.as_str(), row.state)).collect();
    assert_eq!(
        shown,
        [
            ("eth1", "eth1", Health::Up),
            ("eth1.7", "eth1", Health::Up),
            ("eth2", "eth2", Health::Down),
            ("eth3", "eth3", Health::Pending),
        ]
    );
    assert_eq!((rows[1].xdp_program, rows[1].mode.as_deref()), (Some(7), Some("native")));
    assert_eq!((rows[3].reason.as_str(), rows[3].mode.as_deref()), ("another program is there", None));
}

#[test]
fn a_port_says_which_napi_its_workers_poll_or_why_none() {
    let rows = with_view(|view| view.ports());
    let shown: Vec<_> = rows.iter().map(|row| row.busy_polling.as_ref().map(|row| row.napi_ids.clone())).collect();
    assert_eq!(shown, [Some(vec![8193]), None, None, None], "eth1.7 is a VLAN of eth1");
    let half = busy_polling(&[BusyPolling::Napi(8193), BusyPolling::NoNapi]).unwrap();
    assert_eq!(half.napi_ids, [8193]);
    assert!(half.reason.contains("veth"), "{}", half.reason);
    assert!(busy_polling(&[BusyPolling::Unknown]).unwrap().reason.contains("first packet"));
    assert!(busy_polling(&[BusyPolling::Refused]).unwrap().reason.contains("5.11"));
    assert_eq!(busy_polling(&[]), None);
}

#[test]
fn sids_are_named_as_in_the_rfcs_and_as_healthy_as_their_best_next_hop() {
    let rows = with_view(|view| view.sids());
    let shown: Vec<_> = rows.iter().map(|row| (row.behavior.as_str(), row.state, row.packets)).collect();
    assert_eq!(
        shown,
        [
            ("uA", Health::Up, 0),
            ("uA", Health::Unresolved, 0),
            ("uA", Health::Down, 0),
            ("uA", Health::Up, 0),
            ("uDT46", Health::Up, 4),
            ("End.DT4", Health::Up, 0),
        ]
    );
}

#[test]
fn paths_show_usids_inside_blocks_only_and_their_share() {
    let rows = with_view(|view| view.paths(&BTreeMap::new()));
    assert_eq!(rows[0].usids, [["1000", "fe06"]]);
    assert_eq!(rows[1].usids, [["fd00::1"]]);
    assert_eq!((rows[0].share_percent, rows[1].share_percent), (Some(33.3), Some(66.7)));
}

#[test]
fn neighbors_show_what_the_tables_wait_for() {
    let rows = with_view(|view| view.neighbors());
    let shown: Vec<_> = rows.iter().map(|row| (row.address.as_str(), row.state, row.next_hop)).collect();
    assert_eq!(shown, [("2001:db8::2", Health::Up, false), ("2001:db8::9", Health::Unresolved, true)]);
}

#[test]
fn every_way_a_packet_ends_has_a_meaning() {
    assert!(DropReason::ALL.iter().all(|reason| !meaning(reason.name()).is_empty()));
    assert!(!meaning("echo").is_empty());
}

#[test]
fn no_packets_have_no_share() {
    assert_eq!(percent(0, 0), None);
    assert_eq!(percent(0, 7), Some(0.0));
    assert_eq!(percent(u64::MAX, u64::MAX), Some(100.0));
}
