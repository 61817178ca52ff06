//! Tests that a veth whose other end gets or loses its NAPI is known of at once.
#![allow(clippy::unwrap_used)] // a failure here is a failed test

use srv6d_xsk::probe::{TakesRedirect, takes_redirect};
use srv6d_xsk::{FeatureChanges, Mode, Program, ProgramSettings};

use crate::netns::{enter, until, veth};

#[test]
#[ignore = "needs root"]
fn a_change_of_what_a_port_takes_is_notified() {
    enter();
    veth("port", "peer", 1500, 1);
    let changes = match FeatureChanges::open() {
        Ok(changes) => changes,
        Err(why) => return eprintln!("SKIPPED: this kernel notifies of no features: {why}"),
    };
    let takes_frames = || takes_redirect("port").map(|TakesRedirect { frames, .. }| frames);
    changes.take();
    assert!(!changes.take(), "nothing has changed");
    assert_eq!(takes_frames(), Some(false));

    let program = Program::attach("peer", Mode::Native, &ProgramSettings::default()).unwrap();
    until("a notification", || changes.take().then_some(()));
    assert_eq!(takes_frames(), Some(true));

    drop(program);
    until("another one", || changes.take().then_some(()));
    until("the end of the program", || (takes_frames() == Some(false)).then_some(()));
}
