//! Tests with hostile servers: whatever they answer, memory and time are limited, and the last good paths stay.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::json;
use srv6d_controller::jalapeno::Settings;
use srv6d_controller::{Cause, MAX_ANSWER, Snapshot};
use support::lab::{FABRIC, FAR, NEAR, all_fresh, follow, is_stale, settings_at};
use support::{Source, carriers};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const MIB: usize = 1024 * 1024;
/// Number of bytes that a hostile server sends in total.
const HUGE: usize = 120 * MIB;
/// The answer with the recorded fabric's path to the far host.
const PATH: &str = include_str!("../data/2026-01-shortest-path.json");

/// Returns the largest resident memory of this process so far, in bytes.
fn peak_memory() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

/// Returns a body that begins with `head` and repeats `item` up to `bytes`; it is never held as a whole.
fn endless(head: &'static str, item: &'static str, bytes: usize) -> Response {
    let block = Bytes::from(item.repeat(64 * 1024 / item.len()));
    let blocks = bytes / block.len();
    let chunks = std::iter::once(Bytes::from(head)).chain(std::iter::repeat_n(block, blocks));
    Body::from_stream(stream::iter(chunks.map(Ok::<_, std::io::Error>))).into_response()
}

/// Answers with the recorded fabric and path until `hostile` is set, and then with the result of `answer`.
async fn serve(
    answer: impl Fn(&str) -> Option<Response> + Clone + Send + Sync + 'static,
) -> (String, Arc<AtomicUsize>) {
    let hostile = Arc::new(AtomicUsize::new(0));
    let switch = Arc::clone(&hostile);
    let near = PATH.replace("srv6-pytorch-2", "srv6-pytorch-1").replace("10.0.0.202_leaf02", "10.0.0.201_leaf01");
    let handler = move |request: Request| {
        let target = request.uri().to_string();
        let harm = if switch.load(Ordering::SeqCst) > 0 { answer(&target) } else { None };
        let right = match () {
            () if target.ends_with("/topology") => FABRIC.to_owned(),
            () if target.contains("srv6-pytorch-2") => PATH.to_owned(),
            () => near.clone(),
        };
        async move { harm.unwrap_or_else(|| right.into_response()) }
    };
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(handler)).await });
    (url, hostile)
}

/// Returns a source that has paths to both peers.
async fn fresh(url: String, change: impl Fn(Settings) -> Settings) -> Source {
    let mut source = follow(change(Settings { interval: Duration::from_millis(200), ..settings_at(url) }));
    source.until("fresh", all_fresh).await;
    source
}

/// Bodies of 120 MB, with documents that would need many times their size in memory, are refused with an error that
/// names the limit.
#[tokio::test(flavor = "multi_thread")]
async fn huge_answers_cost_no_more_memory_than_they_may() {
    let bodies: [(&'static str, &'static str); 4] = [
        (r#"{"vertices":{},"edges":["#, r#"{"":0},"#),
        (r#"{"vertices":{},"edges":["#, "[],"),
        ("[", "[],"),
        (r#"{"found":true,"path":["#, r#"{"vertex":{"":0}},"#),
    ];
    for (head, item) in bodies {
        // One size is below the limit in bytes, and one above it: the memory for the parsed documents is limited in
        // both cases.
        for bytes in [MAX_ANSWER - MIB, HUGE] {
            let (url, hostile) = serve(move |_| Some(endless(head, item, bytes))).await;
            let mut source = fresh(url, |settings| settings).await;
            let before = peak_memory();
            hostile.store(1, Ordering::SeqCst);
            source.sync().await;
            let snapshot = source.until("stale", |snapshot| is_stale(snapshot, FAR)).await;
            assert_eq!(carriers(&snapshot.peers[FAR]), ["fcbb:0:1004:1000:1006:fe06::"]);
            let grown = peak_memory() - before;
            // The server's own buffers are in this process, too.
            assert!(grown < 3 * MAX_ANSWER, "{head}{item}: {} MiB more", grown / MIB);
            source.stop().await;
        }
    }
}

/// Eight simultaneous requests share one limit.
#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_read_together_share_the_bound() {
    let path = |target: &str| target.contains("shortest_path").then(|| endless("[", "[],", 24 * MIB));
    let (url, hostile) = serve(path).await;
    let mut source = fresh(url, |settings| settings).await;
    let before = peak_memory();
    hostile.store(1, Ordering::SeqCst);
    source.sync().await;
    let both = |snapshot: &Snapshot| is_stale(snapshot, FAR) && is_stale(snapshot, NEAR);
    source.until("stale", both).await;
    let grown = peak_memory() - before;
    assert!(grown < 3 * MAX_ANSWER, "{} MiB more", grown / MIB);
}

#[tokio::test]
async fn a_bound_is_what_the_settings_say() {
    let (url, hostile) = serve(|_| Some(endless("[", " ", 2 * MIB))).await;
    let mut source = fresh(url, |settings| Settings { max_answer: MIB, ..settings }).await;
    hostile.store(1, Ordering::SeqCst);
    source.sync().await;
    let snapshot = source.until("refused", |snapshot| snapshot.health.last_error.is_some()).await;
    let why = snapshot.health.last_error.clone().unwrap();
    assert!(why.ends_with("the answer is larger than 1 MiB (max_answer)"), "{why}");
}

/// A topology that would take minutes to arrive byte by byte, and an answer whose header never ends, end at the
/// timeout.
#[tokio::test]
async fn an_answer_that_drips_ends_with_its_time() {
    for head in ["HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n{", "HTTP/1.1 200 OK\r\nx: "] {
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    stream.write_all(head.as_bytes()).await.unwrap();
                    while stream.write_all(b" ").await.is_ok() {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                });
            }
        });
        let settings = settings_at(url);
        let mut source = follow(Settings { timeout: Duration::from_secs(1), ..settings });
        let counted = |snapshot: &Snapshot| snapshot.health.failures.contains_key(&Cause::Timeout);
        source.until("given up", counted).await;
    }
}

#[tokio::test]
async fn a_redirect_to_another_server_is_not_followed() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let (inner, _) = serve(|_| None).await;
    let (other, hostile) = serve(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        None
    })
    .await;
    hostile.store(1, Ordering::SeqCst);
    let to = other.clone();
    let (url, hostile) = serve(move |target| {
        Some((StatusCode::TEMPORARY_REDIRECT, [("location", format!("{to}{target}"))]).into_response())
    })
    .await;
    let mut source = fresh(url, |settings| settings).await;
    hostile.store(1, Ordering::SeqCst);
    source.sync().await;
    let snapshot = source.until("stale", |snapshot| is_stale(snapshot, FAR)).await;
    let why = snapshot.health.last_error.clone().unwrap();
    assert!(why.contains(&format!("redirected to {other}")) && why.contains("another server"), "{why}");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    drop(inner);
}

#[tokio::test]
async fn a_redirect_within_the_server_is_followed() {
    let redirect = |target: &str| {
        let stripped = target.strip_suffix("/topology")?;
        Some(
            (StatusCode::TEMPORARY_REDIRECT, [("location", format!("{stripped}/./x/../topology?again"))])
                .into_response(),
        )
    };
    let (url, hostile) = serve(redirect).await;
    hostile.store(1, Ordering::SeqCst);
    // The second request does not end in /topology, so the server answers it with a path: not a topology, but no
    // redirect either.
    let mut source = follow(settings_at(url));
    let snapshot = source.until("answered", |snapshot| snapshot.health.last_error.is_some()).await;
    assert!(snapshot.health.failures.contains_key(&Cause::Body), "{:?}", snapshot.health);
}

/// A server closes each connection after an answer without announcing it, so that the next request meets a closed
/// connection.
#[tokio::test]
async fn a_connection_that_was_closed_is_made_anew_at_once() {
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let number = count.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut request = vec![0; 4096];
                let read = stream.read(&mut request).await.unwrap();
                if number % 2 == 1 {
                    return; // closes the connection instead of an answer
                }
                let near =
                    PATH.replace("srv6-pytorch-2", "srv6-pytorch-1").replace("10.0.0.202_leaf02", "10.0.0.201_leaf01");
                let line = String::from_utf8_lossy(&request[..read]).lines().next().unwrap_or_default().to_owned();
                let body = match () {
                    () if line.contains("/topology") => FABRIC.to_owned(),
                    () if line.contains("srv6-pytorch-2") => PATH.to_owned(),
                    () => near,
                };
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            });
        }
    });
    let mut source = follow(Settings { interval: Duration::from_hours(1), concurrency: 1, ..settings_at(url) });
    let snapshot = source.until("one round", |snapshot| snapshot.health.next.is_some()).await;
    assert!(all_fresh(&snapshot), "{snapshot:#?}");
    assert!(snapshot.health.failures.is_empty(), "{:?}", snapshot.health.failures);
}

#[tokio::test]
async fn text_of_the_controller_is_escaped_and_cut() {
    let rude = format!("\u{1b}[2J\nINFO ready: all is well\u{202e}{}", "x".repeat(60_000));
    let body = json!({ "detail": rude }).to_string();
    let (url, hostile) = serve(move |target| {
        let body = body.clone();
        target.contains("shortest_path").then(|| (StatusCode::BAD_REQUEST, body).into_response())
    })
    .await;
    let mut source = fresh(url, |settings| settings).await;
    hostile.store(1, Ordering::SeqCst);
    source.sync().await;
    let snapshot = source.until("stale", |snapshot| is_stale(snapshot, FAR)).await;
    for why in [snapshot.peers[FAR].last_error.clone(), snapshot.health.last_error.clone()] {
        let why = why.unwrap();
        assert!(why.contains("status 400: \\u{1b}[2J\\nINFO ready"), "{why}");
        assert!(why.chars().count() < 600 && !why.chars().any(char::is_control), "{why}");
    }
}
