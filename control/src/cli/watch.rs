//! `srv6d show --watch`: repeats a request and shows the changes in between as rates.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::ask::refused;
use srv6d_api::client::{self, AskError};
use srv6d_api::{Request, Response, Topic};
use srv6d_command::{Failure, output};
use srv6d_show as show;

/// Repeats the request every `pause` until the reader of the output has gone. If the daemon is restarted meanwhile,
/// waits for it.
pub fn watch(socket: &Path, topic: Topic, pause: Duration) -> Result<(), Failure> {
    let request = Request::Show { topic };
    let mut earlier: Option<(Response, Instant)> = None;
    let mut was_there = false;
    loop {
        let asked = Instant::now();
        let text = match client::ask(socket, &request) {
            Ok(Response::Refused(refusal)) => return Err(refused(&refusal)),
            Ok(response) => {
                was_there = true;
                let before = earlier.as_ref().map(|(response, then)| (response, asked.duration_since(*then)));
                let text = show::rates::render(&response, before);
                earlier = Some((response, asked));
                text
            }
            Err(AskError::NotRunning { .. } | AskError::Broken { .. }) if was_there => {
                earlier = None;
                "srv6d is not running; waiting for it\n".to_owned()
            }
            Err(why) => return Err(why.into()),
        };
        if !output::print_on(&show::page(&text, SystemTime::now(), io::stdout().is_terminal()))? {
            return Ok(());
        }
        thread::sleep(pause);
    }
}
