//! Connections of clients: how many there are, and how long one may take.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::warn;

/// Connections at one time: further ones wait until one of them ends.
const CONNECTIONS: usize = 256;
/// How long the head of a request may take, the wait for its first byte included.
const HEAD: Duration = Duration::from_secs(10);
/// How long a client may leave what was sent to it unread.
const UNREAD: Duration = Duration::from_secs(30);
/// How long to wait after the system has refused a connection.
const AGAIN: Duration = Duration::from_millis(100);

/// Serves whoever connects, until it is dropped.
pub async fn serve(listener: TcpListener, router: Router) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    // Their tasks end with the set.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let router = router.clone();
                connections.spawn(async move {
                    answer(stream, router).await;
                    drop(permit);
                });
            }
            Err(why) => {
                warn!("no connection was taken: {why}");
                tokio::time::sleep(AGAIN).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(stream: TcpStream, router: Router) {
    // A kernel that refuses it keeps its own, longer time.
    let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(UNREAD));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD);
    // A client that is gone, or too slow, is no error of the server's.
    let _ = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
}
