//! Tests of the kernel memory that the maps of the program take.

use std::fs;

use super::support::rig::{Rig, end, report};
use super::{SID, config, judge, neighbor_is_known, offload, rig};

/// Returns the bytes of kernel memory that BPF maps of a process take.
fn maps_of(pid: u32) -> u64 {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    // A descriptor may be closed meanwhile.
    let infos = entries.filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok());
    let maps = infos.filter(|info| info.contains("map_type:"));
    let bytes = |info: String| info.lines().find_map(|line| line.strip_prefix("memlock:")?.trim().parse::<u64>().ok());
    maps.filter_map(bytes).sum()
}

#[test]
#[ignore = "needs root"]
fn the_maps_of_a_small_node_are_small() {
    let mut rig = rig();
    let daemon = rig.ready(&config());
    neighbor_is_known(&rig);
    let with = maps_of(rig.pid(daemon));
    assert!(with > 0 && with < 1 << 20, "{with} bytes");
}

/// Returns a configuration with so many SIDs and paths more.
fn with_more(more: u16) -> String {
    let entries = (0..more).map(|number| {
        format!(
            "[[sid]]\nsid = \"fcbb:0:{:x}::/48\"\nbehavior = \"uN\"\n[[steer]]\nprefix = \"2a00:{number:x}::/32\"\n\
             paths = [{{ name = \"more-{number}\", segments = [\"fcbb:0:2:1::\"] }}]\n",
            0x1000 + number * 16
        )
    });
    config() + &entries.collect::<String>()
}

#[test]
#[ignore = "needs root"]
fn maps_grow_with_the_tables_without_a_loss_and_every_counter_goes_on() {
    let mut rig = rig();
    let daemon = rig.ready(&config());
    neighbor_is_known(&rig);
    let counted = |rig: &Rig| {
        let sids = rig.show("sids");
        let sid = sids.as_array().unwrap().iter().find(|row| SID.contains(row.get("sid").unwrap().as_str().unwrap()));
        let of_sid = sid.and_then(|row| row.get("packets")).and_then(serde_json::Value::as_u64).unwrap();
        [
            of_sid,
            rig.counter("offloaded"),
            rig.port_counter("eth1", "rx_packets"),
            rig.port_counter("eth2", "tx_packets"),
        ]
    };
    let (before, small) = (counted(&rig), maps_of(rig.pid(daemon)));
    let receiver = rig.receiver("b", "udp", "[2001:db8:b::2]:7087");
    let mut sender = rig.stream("a", "[2001:db8:b::2]:7087", 4000);
    for more in [100, 400, 800, 0] {
        let last = counted(&rig);
        rig.reload(&with_more(more));
        assert_eq!(offload(&rig, "eth1"), (true, String::new()));
        assert!(counted(&rig).iter().zip(last).all(|(now, was)| *now >= was), "no counter goes back");
    }
    end(&mut sender);
    let report = report(&receiver.wait_with_output().unwrap().stdout);
    let (sent, wrong) = judge(&report);
    // What a worker still has may be overtaken when the program takes over.
    let lost = wrong - super::support::rig::number(&report, "reordered");
    assert!(sent > 100 && lost == 0, "{lost} of {sent}: {report}");
    let grown: Vec<u64> = before.iter().zip(counted(&rig)).map(|(before, now)| now - before).collect();
    assert!(
        grown.iter().enumerate().all(|(at, &packets)| at == 1 || packets >= sent),
        "{sent} sent, {grown:?} counted"
    );
    assert!(maps_of(rig.pid(daemon)) > small);
    rig.check_balance();
}
