//! `srv6d show --watch`: the same question again and again, with what came in between.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::ask::refused;
use super::output::{self, Failure};
use crate::api::client::{self, AskError};
use crate::api::{Request, Response, Topic};
use crate::show;

/// Cursor to the top left, and nothing below it.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Asks every `pause` until the reader has seen enough. A daemon that is restarted meanwhile is waited for.
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
        if !output::print_on(&page(&text))? {
            return Ok(());
        }
        thread::sleep(pause);
    }
}

/// A terminal shows the newest page alone; a file keeps them all, each with its time.
fn page(text: &str) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let time = show::time(now.as_secs());
    if io::stdout().is_terminal() { format!("{CLEAR}{time}\n{text}") } else { format!("{time}\n{text}\n") }
}
