//! Prometheus: `GET /metrics`, on loopback unless told otherwise.

mod exposition;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, StatusCode, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tracing::debug;

use crate::api::state::State;
pub use exposition::exposition;

/// What is answered to Prometheus 2 and later.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// One scrape: where the state it needs goes.
pub type Scrape = oneshot::Sender<State>;

/// Opens the listening socket.
///
/// # Errors
/// The address is taken, or not an address of this network namespace (`lo` down).
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Answers scrapes with what `control` says; ends when `control` is gone.
pub async fn serve(listener: TcpListener, control: mpsc::Sender<Scrape>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors: give others time to close theirs.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        if control.is_closed() {
            return;
        }
        let control = control.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| answer(request, control.clone()));
            let connection =
                http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                debug!(%error, "a scrape broke off");
            }
        });
    }
}

type Answer = hyper::Response<Full<Bytes>>;

async fn answer(request: hyper::Request<Incoming>, control: mpsc::Sender<Scrape>) -> Result<Answer, Infallible> {
    if request.method() != Method::GET || request.uri().path() != "/metrics" {
        return Ok(status(StatusCode::NOT_FOUND, "metrics are at /metrics\n"));
    }
    let (sender, state) = oneshot::channel();
    let asked = control.send(sender).await.is_ok();
    let Some(state) = state.await.ok().filter(|_| asked) else {
        return Ok(status(StatusCode::SERVICE_UNAVAILABLE, "srv6d is stopping\n"));
    };
    let Ok(text) = exposition(state) else {
        return Ok(status(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n"));
    };
    let mut response = Answer::new(Full::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS));
    Ok(response)
}

fn status(status: StatusCode, text: &'static str) -> Answer {
    let mut response = Answer::new(Full::from(text));
    *response.status_mut() = status;
    response
}
