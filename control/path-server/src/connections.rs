//! Connections of clients, which are limited in number and time.

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

/// Maximum number of simultaneous connections. Further ones wait until one of them ends.
const CONNECTIONS: usize = 256;
/// Maximum time for the head of a request, including the wait for its first byte.
const HEAD: Duration = Duration::from_secs(10);
/// Maximum time for which a client may leave sent data unread.
const UNREAD: Duration = Duration::from_secs(30);
/// Pause after the system has refused to accept a connection.
const AGAIN: Duration = Duration::from_millis(100);

/// Serves all connections, until it is dropped.
pub async fn serve(listener: TcpListener, router: Router) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    // The tasks of the connections end when the set is dropped.
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
                warn!("cannot accept a connection: {why}");
                tokio::time::sleep(AGAIN).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(stream: TcpStream, router: Router) {
    // A kernel that refuses the option keeps its own, longer timeout.
    let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(UNREAD));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD);
    // A client that is gone or too slow is not an error of the server.
    let _ = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
}
