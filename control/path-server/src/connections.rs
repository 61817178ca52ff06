//! Connections of clients, which are limited in number and time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tracing::warn;

/// Maximum number of simultaneous connections. One more takes the place of the oldest that has not sent a whole request yet;
/// if all of them have, it waits until one ends.
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
    let mut silent = Silent::default();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(why) => {
                warn!("cannot accept a connection: {why}");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        if room.available_permits() == 0 {
            silent.end_oldest();
        }
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let (router, has_asked) = (router.clone(), Arc::new(AtomicBool::new(false)));
        let asks = Arc::clone(&has_asked);
        let task = connections.spawn(async move {
            answer(stream, router, &asks).await;
            drop(permit);
        });
        silent.add(task, has_asked);
        while connections.try_join_next().is_some() {}
    }
}

/// Connections that may not have sent a whole request yet, the oldest first.
#[derive(Default)]
struct Silent(VecDeque<(AbortHandle, Arc<AtomicBool>)>);

impl Silent {
    fn add(&mut self, task: AbortHandle, has_asked: Arc<AtomicBool>) {
        if self.0.len() >= 2 * CONNECTIONS {
            self.forget_others();
        }
        self.0.push_back((task, has_asked));
    }

    fn forget_others(&mut self) {
        self.0.retain(|(task, has_asked)| !task.is_finished() && !has_asked.load(Ordering::Relaxed));
    }

    /// Ends the oldest connection that has not sent a whole request.
    fn end_oldest(&mut self) {
        self.forget_others();
        if let Some((task, _)) = self.0.pop_front() {
            task.abort();
        }
    }
}

async fn answer(stream: TcpStream, router: Router, has_asked: &AtomicBool) {
    // A kernel that refuses the option keeps its own, longer timeout.
    let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(UNREAD));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD);
    // A client that is gone or too slow is not an error of the server.
    let router = TowerToHyperService::new(router);
    let service = service_fn(|request| {
        has_asked.store(true, Ordering::Relaxed);
        router.call(request)
    });
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}
