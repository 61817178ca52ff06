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

/// Terminal sequence that moves the cursor to the top left and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

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
        if !output::print_on(&page(&text))? {
            return Ok(());
        }
        thread::sleep(pause);
    }
}

/// Formats one page. On a terminal it replaces the previous page; in a file all pages are kept, each with its time.
fn page(text: &str) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let time = show::time(now.as_secs());
    if io::stdout().is_terminal() { format!("{CLEAR}{time}\n{text}") } else { format!("{time}\n{text}\n") }
}
