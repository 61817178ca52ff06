//! Serves `GET /metrics` for Prometheus, by default on the loopback address.

mod emulated;
mod exposition;
mod glb;
mod jobs;
mod probes;
mod workers;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, StatusCode, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tracing::debug;

pub use exposition::exposition;
use srv6d_api::connections::{AcceptFailures, Connections};
use srv6d_api::state::State;

/// Content type of the answer to Prometheus 2 and later.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// One scrape: the channel on which the control loop returns the state.
pub type Scrape = oneshot::Sender<State>;

/// Opens the listening socket.
///
/// # Errors
/// The address is taken, or it is not an address of this network namespace (for example because `lo` is down).
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Largest number of connections at a time; any user of this machine may open some.
const CONNECTIONS: usize = 64;
/// Longest time from the beginning of a connection to the last byte of the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Scrapes within this time get the same answer, so that the control loop is not asked more often.
const FRESH: Duration = Duration::from_millis(500);

/// Answers scrapes with the state that `control` returns. It ends when the receiver of `control` is gone.
pub async fn serve(listener: TcpListener, control: mpsc::Sender<Scrape>) {
    let (mut connections, mut accept_failures) = (Connections::at_most(CONNECTIONS), AcceptFailures::default());
    let scrapes = Arc::new(Scrapes { control, last: Mutex::default() });
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(why) => {
                accept_failures.pause("metrics", &why).await;
                continue;
            }
        };
        accept_failures.over();
        if scrapes.control.is_closed() {
            return;
        }
        connections.serve(converse(stream, Arc::clone(&scrapes)));
    }
}

/// Serves one connection, which has one request. A connection that is kept open for more would be idle in between.
async fn converse(stream: TcpStream, scrapes: Arc<Scrapes>) {
    let service = service_fn(|request| answer(request, &scrapes));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(PATIENCE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "a scrape broke off"),
        Err(_) => debug!("a scraper was too slow"),
    }
}

/// The channel to the control loop, and its last answer.
#[derive(Debug)]
struct Scrapes {
    control: mpsc::Sender<Scrape>,
    last: Mutex<Option<(Instant, Bytes)>>,
}

impl Scrapes {
    /// Returns the present metrics, or those of a moment ago.
    async fn text(&self) -> Result<Bytes, Response> {
        let mut last = self.last.lock().await;
        if let Some((_, text)) = last.as_ref().filter(|(told, _)| told.elapsed() < FRESH) {
            return Ok(text.clone());
        }
        let (sender, state) = oneshot::channel();
        let asked = self.control.send(sender).await.is_ok();
        let Some(state) = state.await.ok().filter(|_| asked) else {
            return Err(status(StatusCode::SERVICE_UNAVAILABLE, "srv6d is stopping\n"));
        };
        // Formatting takes time, and this thread also runs the control loop. So another thread formats.
        let Ok(Ok(text)) = tokio::task::spawn_blocking(move || exposition(state)).await else {
            return Err(status(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n"));
        };
        let text = Bytes::from(text);
        *last = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

type Response = hyper::Response<Full<Bytes>>;

async fn answer(request: hyper::Request<Incoming>, scrapes: &Scrapes) -> Result<Response, Infallible> {
    if request.method() != Method::GET || request.uri().path() != "/metrics" {
        return Ok(status(StatusCode::NOT_FOUND, "metrics are at /metrics\n"));
    }
    Ok(match scrapes.text().await {
        Ok(text) => {
            let mut response = Response::new(Full::from(text));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS));
            response
        }
        Err(refusal) => refusal,
    })
}

fn status(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}
