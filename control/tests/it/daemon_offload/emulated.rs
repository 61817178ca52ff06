//! Tests that nothing is redirected into a port where the worker has to see it: an emulated one, because it would meet no
//! queue, and one whose load a policy judges, because it would not be counted.

use super::{config, hosts_are_known, neighbor_is_known, offload, offloaded_of_a_few, rig};
use crate::support::rig::Rig;

#[test]
#[ignore = "needs root"]
fn what_leaves_through_an_emulated_port_goes_through_its_worker() {
    let emulated = config().replace("name = \"eth2\"\n", "name = \"eth2\"\nemulate = { rate = \"1Gbit\" }\n");
    let mut rig = rig();
    rig.ready(&emulated);
    hosts_are_known(&rig);
    let is_left_to_the_worker = |rig: &Rig| {
        assert_eq!(offloaded_of_a_few(rig), (0, true));
        let (on, reason) = offload(rig, "eth1");
        assert!(
            on && reason.contains("what leaves through eth2 goes through the worker: the port is emulated"),
            "{reason}"
        );
    };
    is_left_to_the_worker(&rig);
    rig.reload(&config());
    neighbor_is_known(&rig);
    assert!(!offload(&rig, "eth1").1.contains("emulated"));
    rig.reload(&emulated);
    is_left_to_the_worker(&rig);
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn what_leaves_through_a_port_whose_load_is_judged_goes_through_its_worker() {
    let judged = config().replace("name = \"eth2\"\n", "name = \"eth2\"\nspeed = \"1Gbit\"\n")
        + "[[balance]]\nname = \"busy\"\nmode = \"adaptive\"\n[[route]]\nprefix = \"2001:db8:99::/48\"\n\
           nexthops = [{ via = \"2001:db8:b::2\", port = \"eth2\" }, { via = \"2001:db8:b::3\", port = \"eth2\" }]\n\
           balance = \"busy\"\n";
    let mut rig = rig();
    rig.ready(&judged);
    hosts_are_known(&rig);
    assert_eq!(offloaded_of_a_few(&rig), (0, true));
    let (on, reason) = offload(&rig, "eth1");
    let expected = "what leaves through eth2 goes through the worker: a policy of [[balance]] judges its load";
    assert!(on && reason.contains(expected), "{reason}");
    rig.reload(&judged.replace("\"adaptive\"", "\"flowlet\""));
    neighbor_is_known(&rig);
    assert!(!offload(&rig, "eth1").1.contains("judges"));
    rig.check_balance();
}
