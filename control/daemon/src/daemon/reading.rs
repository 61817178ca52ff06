//! Requests for which a configuration is read first. It is read on a thread of its own, because the files of a switch
//! may take seconds. The control loop looks after neighbours and answers other requests meanwhile.

use std::collections::VecDeque;
use std::future;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};

use super::answers::{failed, invalid};
use super::node::Node;
use super::overlay::{Configured, Extension};
use srv6d_api::server::Answer;
use srv6d_api::{Refusal, Request, Response};

/// Number of requests that may wait for the one whose configuration is being read.
const WAITING: usize = 16;

/// A configuration that has been read. `None` means that the request needs none.
pub(super) type Read = Option<Result<Configured, Refusal>>;

/// A request for which a configuration is read, or that must not overtake such a request.
pub(super) struct Job {
    pub(super) request: Request,
    /// The channel for the answer. `None` means that a signal made the request.
    pub(super) answer: Option<oneshot::Sender<Answer>>,
}

/// Requests whose configuration is read, one after the other.
#[derive(Default)]
pub(super) struct Readings {
    current: Option<(JoinHandle<Read>, Job)>,
    waiting: VecDeque<Job>,
}

/// Returns true for a request for which a configuration is read, or that must not overtake such a request.
pub(super) const fn is_read_for(request: &Request) -> bool {
    matches!(request, Request::Reload { .. } | Request::Rollback { .. } | Request::Diff { .. })
}

impl Readings {
    /// Begins to read, or lets the request wait for those before it.
    pub(super) fn add(&mut self, job: Job, node: &Node) {
        if self.current.is_none() {
            self.current = Some((start(&job.request, node), job));
        } else if job.answer.is_none() && self.waiting.iter().any(|other| other.answer.is_none()) {
            // The request of an earlier signal has not begun yet, and serves this one too.
        } else if self.waiting.len() < WAITING {
            self.waiting.push_back(job);
        } else if let Some(answer) = job.answer {
            let why = format!("{WAITING} requests wait for a configuration that is being read: ask again later");
            // A client that hung up is no error.
            let _ = answer.send(Response::failed(why).into());
        }
    }

    /// Waits until the configuration of a request has been read.
    pub(super) async fn next(&mut self) -> (Job, Read) {
        let read = match &mut self.current {
            Some((reading, _)) => reading.await,
            None => future::pending().await,
        };
        let read = read.unwrap_or_else(|why| Some(Err(failed(format!("the configuration was not read: {why}")))));
        match self.current.take() {
            Some((_, job)) => (job, read),
            None => future::pending().await,
        }
    }

    /// Begins to read for the request that has waited longest.
    pub(super) fn go_on(&mut self, node: &Node) {
        if let Some(job) = self.waiting.pop_front() {
            self.add(job, node);
        }
    }
}

fn start(request: &Request, node: &Node) -> JoinHandle<Read> {
    let (extension, interfaces) = (Arc::clone(&node.extension), node.interfaces());
    match request {
        Request::Reload { .. } => {
            let path = node.path.clone();
            spawn_blocking(move || Some(read_file(&*extension, &path, &interfaces)))
        }
        Request::Diff { filename, text, .. } => {
            let (filename, text) = (filename.clone(), text.clone());
            spawn_blocking(move || {
                Some(extension.read(&text, &filename, &interfaces).map_err(|errors| invalid(&errors)))
            })
        }
        _ => spawn_blocking(|| None),
    }
}

fn read_file(extension: &dyn Extension, path: &Path, interfaces: &[String]) -> Result<Configured, Refusal> {
    let filename = path.display().to_string();
    let text = srv6d_text::read_text(path).map_err(|why| {
        failed(format!(
            "cannot read {filename}: {why}\n\
             fix: put it back, readable for the daemon's user; until then the old configuration stays in force"
        ))
    })?;
    extension.read(&text, &filename, interfaces).map_err(|errors| invalid(&errors))
}
