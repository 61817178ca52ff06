//! Requests of the path server's clients.

use std::fmt::Write as _;
use std::future::Future;
use std::time::Duration;

use srv6d_path_server::{EXAMPLE, Edition, Server, Store};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::most_text;

/// Limit on the time of one answer. It is long because a loaded machine takes many times as long as an idle one.
const PATIENCE: Duration = Duration::from_mins(1);
const METHODS: [&str; 6] = ["GET", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS"];
/// Limit on an answer about the whole example topology in all detail, in bytes.
const DOCUMENT: usize = 1 << 20;

/// Fuzz target: requests to the path server. Input: `| edition | method | target, a zero byte, body | request 2 ... |`,
/// with a byte 0xff between requests. If the method byte is 0xfe, the bytes behind it are sent unchanged.
///
/// # Panics
/// If a request is not answered, if an answer is larger than the request can explain, or if the server stops answering.
pub fn path_server(data: &[u8]) {
    let Some((&edition, requests)) = data.split_first() else { return };
    let edition = if edition % 2 == 0 { Edition::January2026 } else { Edition::November2025 };
    with_runtime(|runtime| {
        runtime.block_on(async {
            let store = Store::parse(EXAMPLE).expect("the example is a topology");
            let server = Server { store, edition, ..Server::default() };
            let running = server.start("127.0.0.1:0".parse().expect("an address")).await.expect("a port is free");
            for request in requests.split(|byte| *byte == 0xff).take(4) {
                ask(&running, request).await;
            }
            let health = request("GET", "/health", b"");
            assert!(said(&running, health.as_slice(), false).await.starts_with(b"HTTP/1.1 200"), "the server is gone");
            running.stop().await;
        });
    });
}

fn with_runtime(run: impl FnOnce(&Runtime)) {
    thread_local! {
        static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    }
    RUNTIME.with(run);
}

async fn ask(running: &srv6d_path_server::Running, bytes: &[u8]) {
    let Some((&method, rest)) = bytes.split_first() else { return };
    if method == 0xfe {
        said(running, rest, true).await;
        return;
    }
    let (target, body) = split(rest);
    // A stream of events does not end.
    let endless = target.contains("/events");
    let method = METHODS.get(usize::from(method) % METHODS.len()).copied().unwrap_or("GET");
    let answer = said(running, &request(method, &target, body), endless).await;
    assert!(answer.starts_with(b"HTTP/1.1 "), "{method} {target}: no answer, but {answer:?}");
    assert!(answer.len() <= DOCUMENT + most_text(bytes, 256), "{method} {target}: {} bytes", answer.len());
}

/// Returns the request target, with bytes escaped that may not be in a request line, and the body.
fn split(bytes: &[u8]) -> (String, &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (target, body) = bytes.split_at(end);
    let mut text = String::from(if target.first() == Some(&b'/') { "" } else { "/" });
    for byte in target {
        match byte {
            b'!'..=b'~' if !b"\"<>\\^`{|}#".contains(byte) => text.push(char::from(*byte)),
            // Writing to a string cannot fail.
            other => drop(write!(text, "%{other:02x}")),
        }
    }
    (text, body.get(1..).unwrap_or_default())
}

fn request(method: &str, target: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Sends a request and returns the answer: everything up to the end of the connection or, for a stream without end,
/// until nothing has arrived for a moment.
async fn said(running: &srv6d_path_server::Running, bytes: &[u8], endless: bool) -> Vec<u8> {
    let mut stream = in_time(TcpStream::connect(running.address())).await.expect("the server listens");
    // The server may close the connection early, so errors are ignored.
    let _ = in_time(stream.write_all(bytes)).await;
    let mut answer = Vec::new();
    if endless {
        let mut some = [0; 4096];
        let _ = stream.shutdown().await;
        while let Ok(Ok(length @ 1..)) = timeout(Duration::from_millis(20), stream.read(&mut some)).await {
            answer.extend(some.iter().take(length));
            if answer.len() > DOCUMENT {
                break;
            }
        }
    } else {
        // If the connection breaks, what has arrived is the answer.
        let _ = in_time(stream.read_to_end(&mut answer)).await;
    }
    answer
}

async fn in_time<F: Future>(what: F) -> F::Output {
    timeout(PATIENCE, what).await.expect("the server answers in time")
}

/// Returns requests for every route of the API, with their parameters.
pub fn seeds() -> Vec<Vec<u8>> {
    let pair = "source=hosts/host0&destination=hosts/host1";
    let graph = "/api/v1/graphs/fabric_graph";
    let mut targets: Vec<(u8, String)> =
        ["/health", "/openapi.json", "/docs", "/metrics", "/api/v1/graphs", "/api/v1/rpo"]
            .into_iter()
            .chain([
                "/api/v1/collections/hosts?limit=2&skip=1",
                "/api/v1/rpo/hosts/select-optimal?metric=cpu",
                "/nowhere",
            ])
            .map(|target| (0, target.to_owned()))
            .collect();
    for route in ["", "/latency", "/utilization", "/load", "/best-paths", "/next-best-path", "/placed"] {
        targets.push((0, format!("{graph}/shortest_path{route}?{pair}&algo=0&direction=any&limit=9")));
    }
    for route in ["topology", "topology/nodes", "edges/detail?limit=3", "vertices/summary", "events", "info"] {
        targets.push((0, format!("{graph}/{route}")));
    }
    targets.extend([
        (0, format!("{graph}/shortest_path/sovereignty?{pair}&excluded_countries=FRA,DEU")),
        (0, format!("{graph}/traverse?source=hosts/host0&max_depth=9")),
        (0, format!("{graph}/neighbors?source=hosts/host0&depth=3")),
        (1, format!("{graph}/placement\0{{\"pattern\": \"ring\"}}")),
        (2, format!("{graph}/vertices/fabric_node/leaf00\0{{\"up\": false}}")),
        (3, format!("{graph}/shortest_path/load?{pair}")),
        (1, format!("{graph}/shortest_path/load/reset")),
        (4, graph.to_owned()),
        (5, graph.to_owned()),
        (0xfe, "GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_owned()),
    ]);
    let mut seeds: Vec<Vec<u8>> =
        targets.iter().map(|(method, target)| [&[0, *method][..], target.as_bytes()].concat()).collect();
    let several = targets.chunks(3).map(|some| {
        let one = |(method, target): &(u8, String)| [&[*method][..], target.as_bytes()].concat();
        [vec![1], some.iter().map(one).collect::<Vec<_>>().join(&0xff)].concat()
    });
    seeds.extend(several.collect::<Vec<_>>());
    seeds
}
