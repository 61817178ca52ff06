//! Management socket: requests of a client to the daemon, and answers of a daemon to `srv6d show`.

use std::cell::RefCell;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use srv6d_api::jobs::JobRequest;
use srv6d_api::server::{Question, Server};
use srv6d_api::{Direction, Reloaded, Request, Response, Topic, decode, encode};
use srv6d_config as config;
use srv6d_plan::{self as plan, Environment};
use srv6d_show as show;
use srv6d_srv6::{Slots, Tables};
use tokio::sync::mpsc;

use super::most_text;

/// Fuzz target: messages of the management socket. Input: `| 0: a request, 1: an answer, 2: a connection | bytes |`
///
/// # Panics
/// If a message changes when it is read and written again, if an answer is shown in more text than its size can
/// explain, if a configuration that a client wants to compare cannot be planned, or if the daemon's end of the socket
/// answers with something other than one line.
pub fn management(data: &[u8]) {
    let Some((&side, bytes)) = data.split_first() else { return };
    match (side % 3, std::str::from_utf8(bytes)) {
        (0, Ok(text)) => request(text),
        (1, Ok(text)) => response(text),
        (2, _) => connection(bytes),
        _ => {}
    }
}

fn request(text: &str) {
    let Ok(request) = decode::<Request>(text) else { return };
    let line = encode(&request).expect("a request can be written");
    assert_eq!(decode::<Request>(&line).expect("it was written just now"), request);
    let Request::Diff { filename, text, offers } = request else { return };
    let Ok(config) = config::parse(&text, &filename) else { return };
    let offers = offers.unwrap_or_default();
    if let Ok(plan) = plan::plan_with(&config, &Environment::default(), &offers) {
        Tables::build(&plan.desired, &mut Slots::default()).unwrap_or_else(|why| panic!("not compiled: {why}"));
    }
}

fn response(text: &str) {
    let Ok(response) = decode::<Response>(text) else { return };
    let line = encode(&response).expect("an answer can be written");
    let again = decode::<Response>(&line).expect("it was written just now");
    assert_eq!(encode(&again).expect("an answer can be written"), line);
    // In a table every line is as wide as the longest cell, so the size is at most quadratic in the size of the answer.
    let shown = show::render(&response);
    let lines = shown.lines().count().max(1);
    assert!(shown.len() <= lines * most_text(text.as_bytes(), 8), "{} bytes in {lines} lines", shown.len());
}

thread_local! {
    static SERVER: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// Sends some bytes over a connection and then closes the sending direction.
fn connection(bytes: &[u8]) {
    let socket = SERVER.with_borrow_mut(|server| server.get_or_insert_with(serve).clone());
    let mut client = UnixStream::connect(&socket).expect("the server listens");
    client.set_read_timeout(Some(Duration::from_mins(1))).expect("a socket has timeouts");
    // The server may close the connection early, so errors are ignored.
    let _ = client.write_all(bytes);
    let _ = client.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    if client.read_to_end(&mut answer).is_err() {
        return;
    }
    assert!(answer.len() <= most_text(bytes, 8), "{} bytes", answer.len());
    let Ok(text) = std::str::from_utf8(&answer) else { panic!("an answer that is no text") };
    assert!(text.is_empty() || decode::<Response>(text).is_ok(), "no answer: {text:?}");
}

/// Starts a server that refuses every request, on its own thread.
fn serve() -> PathBuf {
    let name = format!("srv6d-fuzz-{}-{:?}.sock", std::process::id(), std::thread::current().id());
    let socket = std::env::temp_dir().join(name);
    let (ready, is_ready) = std::sync::mpsc::channel();
    let path = socket.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let server = Server::listen(&path).expect("the directory can be written");
            let (sender, mut questions) = mpsc::channel::<Question>(8);
            tokio::spawn(server.serve(sender));
            ready.send(()).expect("somebody waits");
            while let Some(Question { answer, .. }) = questions.recv().await {
                // The client may have closed the connection.
                let _ = answer.send(Response::failed("nothing is done here").into());
            }
        });
    });
    is_ready.recv().expect("the server starts");
    socket
}

/// Returns requests and answers of every kind, and lines that are neither.
///
/// # Panics
/// If a seed cannot be made.
pub fn seeds() -> Vec<Vec<u8>> {
    let topics = [
        Topic::Ports,
        Topic::Sids,
        Topic::Routes,
        Topic::Paths,
        Topic::Neighbors,
        Topic::Counters,
        Topic::Generation,
        Topic::Source,
        Topic::Unfollowed,
    ];
    let mut requests: Vec<Request> = topics.into_iter().map(|topic| Request::Show { topic }).collect();
    let diff = |text: &str| Request::Diff { filename: "x".to_owned(), text: text.to_owned(), offers: Some(Vec::new()) };
    requests.extend([
        Request::Reload { dry_run: true },
        Request::Rollback { generation: Some(3), dry_run: false },
        Request::Sync,
        Request::Job(Box::new(JobRequest::Occupancy)),
        Request::Job(Box::new(JobRequest::End { job: "a".to_owned(), rank: Some(1) })),
        Request::Capture { ports: vec!["eth1".to_owned()], direction: Some(Direction::In) },
        diff("[node]\nsource = \"2001:db8::1\"\n"),
        diff("[[port]]\n"),
    ]);
    let words = vec!["+ sid fcbb:0:1000::/48".to_owned(), "a\nb".to_owned()];
    let responses = [
        Response::failed("no"),
        Response::Reloaded(Reloaded {
            generation: 7,
            changes: words.clone(),
            warnings: words.clone(),
            pending: words,
            returned_to: Some(5),
        }),
        Response::Capturing { devices: vec!["eth1".to_owned()] },
        Response::Ports(Vec::new()),
        Response::Source(Vec::new()),
    ];
    let mut lines: Vec<(u8, String)> = Vec::new();
    for request in &requests {
        let line = encode(request).expect("a request can be written");
        lines.extend([(0, line.clone()), (2, line)]);
    }
    lines.extend(responses.iter().map(|response| (1, encode(response).expect("an answer can be written"))));
    lines.extend([(2, "GET / HTTP/1.1\r\n\r\n".to_owned()), (2, String::new()), (0, "{}".to_owned())]);
    lines.into_iter().map(|(side, line)| [&[side][..], line.as_bytes()].concat()).collect()
}
