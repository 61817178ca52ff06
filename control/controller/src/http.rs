//! The HTTP client of a controller's task: every answer has a bound in size and time, and all answers that are being
//! read share one bound in memory.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect::{Attempt, Policy};
use reqwest::{Certificate, Method, RequestBuilder, StatusCode, Url};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::failure::Failure;
use crate::snapshot::Cause;
use crate::text::shown;

/// Bytes of answers that are held at a time where the settings name no other bound: 32 MiB, a topology of a hundred
/// thousand links.
pub const MAX_ANSWER: usize = 32 * 1024 * 1024;
/// Bytes of an error's body that are read: more is not needed to say what is wrong.
const MAX_ERROR: usize = 64 * 1024;
/// Smaller answers are parsed where they are read; larger ones on a thread of their own.
const SMALL: usize = 64 * 1024;
/// Redirects within one host that are followed.
const MAX_REDIRECTS: usize = 3;
/// Attempts at an idempotent request whose connection the server closed.
const ATTEMPTS: usize = 3;

/// What a client needs to know.
#[derive(Clone, Copy, Debug)]
pub struct Options<'s> {
    /// Certificates (PEM) that the one of an `https` endpoint must be signed by; `None`: the system's.
    pub ca: Option<&'s str>,
    /// Time for a connection.
    pub connect_timeout: Duration,
    /// Bytes of answers that are held at a time.
    pub max_answer: usize,
}

/// Whether a request may be sent twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// A connection that the server closed is no reason to give up: it is sent again at once.
    Safe,
    /// The server does something each time: it goes out once, over a connection of its own.
    Never,
}

/// A client with its bounds.
#[derive(Clone, Debug)]
pub struct Http {
    pooled: reqwest::Client,
    /// Makes a connection for every request: none that the server may be closing just then.
    single: reqwest::Client,
    /// Bytes that answers may still take.
    budget: Arc<Semaphore>,
    max_answer: usize,
}

impl Http {
    /// # Errors
    /// `ca` holds no certificate.
    pub fn new(endpoint: &Url, options: Options<'_>) -> Result<Self, String> {
        Ok(Self {
            pooled: client(endpoint, options, 8)?,
            single: client(endpoint, options, 0)?,
            budget: Arc::new(Semaphore::new(options.max_answer)),
            max_answer: options.max_answer,
        })
    }

    /// Sends a request and reads its answer, whatever its status, until `deadline`.
    ///
    /// # Errors
    /// No answer in time, no connection, or an answer larger than the bound.
    pub async fn ask(
        &self,
        (method, url): (Method, Url),
        body: Option<&Value>,
        repeat: Repeat,
        deadline: Instant,
    ) -> Result<Answer, Failure> {
        let text = url.to_string();
        let asked = timeout_at(deadline, self.exchange((method, url), body, repeat)).await;
        asked.unwrap_or_else(|_| Err(late(&text)))
    }

    async fn exchange(
        &self,
        (method, url): (Method, Url),
        body: Option<&Value>,
        repeat: Repeat,
    ) -> Result<Answer, Failure> {
        let text = url.to_string();
        let client = if repeat == Repeat::Safe { &self.pooled } else { &self.single };
        let mut attempts = if repeat == Repeat::Safe { ATTEMPTS } else { 1 };
        loop {
            attempts -= 1;
            let mut request: RequestBuilder = client.request(method.clone(), url.clone());
            if let Some(body) = body {
                request = request.json(body);
            }
            match request.send().await {
                Ok(response) => return self.read(text, response).await,
                Err(why) if attempts > 0 && is_closed(&why) => {}
                Err(why) => return Err(transport(&text, &why)),
            }
        }
    }

    /// Opens a stream of events; `None`: there is none, or not in time.
    pub async fn stream(&self, url: Url, deadline: Instant) -> Option<reqwest::Response> {
        let sent = timeout_at(deadline, self.single.get(url).send()).await.ok()?.ok()?;
        sent.status().is_success().then_some(sent)
    }

    async fn read(&self, url: String, mut response: reqwest::Response) -> Result<Answer, Failure> {
        let status = response.status();
        let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let controller = response.remote_addr().map(|address| address.ip());
        let mut held = Held { bytes: Vec::new(), permit: None };
        while let Some(chunk) = response.chunk().await.map_err(|why| transport(&url, &why))? {
            if !status.is_success() && held.bytes.len() + chunk.len() > MAX_ERROR {
                break;
            }
            self.hold(&mut held, &chunk).map_err(|why| Failure::new(Cause::Body, format!("{url}: {why}")))?;
        }
        Ok(Answer { url, status, retry_after: retry_after.map(Duration::from_secs), controller, held })
    }

    fn hold(&self, held: &mut Held, chunk: &[u8]) -> Result<(), String> {
        let bound = || format!("{} MiB (max_answer)", self.max_answer / (1024 * 1024));
        if held.bytes.len() + chunk.len() > self.max_answer {
            return Err(format!("the answer is larger than {}", bound()));
        }
        let bytes = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
        let Ok(more) = Arc::clone(&self.budget).try_acquire_many_owned(bytes) else {
            return Err(format!("the answers that are being read are together larger than {}", bound()));
        };
        match &mut held.permit {
            Some(permit) => permit.merge(more),
            none => *none = Some(more),
        }
        held.bytes.extend_from_slice(chunk);
        Ok(())
    }
}

/// A body, and its share of the bound.
#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    permit: Option<OwnedSemaphorePermit>,
}

/// A whole answer, whatever it says.
#[derive(Debug)]
pub struct Answer {
    /// What was asked.
    pub url: String,
    /// HTTP status.
    pub status: StatusCode,
    /// The server asks to be left alone for so long.
    pub retry_after: Option<Duration>,
    /// Address that answered.
    pub controller: Option<std::net::IpAddr>,
    held: Held,
}

impl Answer {
    /// The body, of which an error's is cut.
    pub fn bytes(&self) -> &[u8] {
        &self.held.bytes
    }

    /// Parses the body. A large one is parsed on another thread, and its share of the memory is given back when that
    /// has ended, even if nobody waits for it any more.
    ///
    /// # Errors
    /// `parse` refuses it, or has not ended at `deadline`.
    pub async fn parse<T: Send + 'static>(
        self,
        deadline: Instant,
        parse: impl FnOnce(&[u8]) -> serde_json::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        let Self { url, held, .. } = self;
        let parsed = if held.bytes.len() <= SMALL {
            parse(&held.bytes)
        } else {
            let parsing = tokio::task::spawn_blocking(move || {
                let parsed = parse(&held.bytes);
                drop(held);
                parsed
            });
            match timeout_at(deadline, parsing).await {
                Err(_) => return Err(late(&url)),
                Ok(Err(why)) => return Err(Failure::new(Cause::Body, format!("{url}: {why}"))),
                Ok(Ok(parsed)) => parsed,
            }
        };
        parsed.map_err(|why| Failure::new(Cause::Body, format!("{url}: {}", words_of(&why))))
    }
}

fn words_of(why: &serde_json::Error) -> String {
    let why_text = shown(&why.to_string());
    if why.is_data() { why_text } else { format!("not JSON: {why_text}") }
}

/// A client for one endpoint, with at most so many idle connections.
fn client(endpoint: &Url, options: Options<'_>, idle: usize) -> Result<reqwest::Client, String> {
    let is_https = endpoint.scheme() == "https";
    let mut builder = reqwest::Client::builder()
        // The controller is beside the fabric: a proxy of the environment is for other traffic.
        .no_proxy()
        .user_agent(concat!("srv6d/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(options.connect_timeout)
        .pool_max_idle_per_host(idle)
        .redirect(Policy::custom(redirect))
        // No redirect leads out of TLS.
        .https_only(is_https)
        // A hundred and more, which take time and memory.
        .tls_built_in_root_certs(is_https && options.ca.is_none());
    if let Some(pem) = options.ca {
        let certificates = Certificate::from_pem_bundle(pem.as_bytes()).map_err(|why| format!("ca_file: {why}"))?;
        if certificates.is_empty() {
            return Err("ca_file: there is no certificate in it (BEGIN CERTIFICATE)".to_owned());
        }
        builder = certificates.into_iter().fold(builder, reqwest::ClientBuilder::add_root_certificate);
    }
    builder.build().map_err(|why| innermost(&why))
}

/// Follows a redirect to another path of the same host and port, as a missing or trailing slash causes it, and no other.
fn redirect(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let place = |url: &Url| (url.scheme().to_owned(), url.host_str().map(str::to_owned), url.port_or_known_default());
    let stays = attempt.previous().first().is_some_and(|first| place(first) == place(attempt.url()));
    if attempt.previous().len() > MAX_REDIRECTS {
        return attempt.error("redirected again and again");
    }
    if stays {
        return attempt.follow();
    }
    let elsewhere = shown(attempt.url().as_str());
    attempt.error(format!("redirected to {elsewhere}, which is another server: name that as `endpoint` if it is right"))
}

/// The connection was there, and is closed: by a server that closes each one after an answer, for example.
fn is_closed(why: &reqwest::Error) -> bool {
    why.is_request() && !why.is_connect() && !why.is_timeout() && !why.is_redirect()
}

fn late(url: &str) -> Failure {
    Failure::new(Cause::Timeout, format!("{url}: no answer in time"))
}

fn transport(url: &str, why: &reqwest::Error) -> Failure {
    let (cause, what) = if why.is_timeout() {
        (Cause::Timeout, "no answer in time".to_owned())
    } else if why.is_body() || why.is_decode() {
        (Cause::Body, "the answer was cut off".to_owned())
    } else if why.is_redirect() {
        (Cause::Refused, innermost(why))
    } else {
        (Cause::Connect, innermost(why))
    };
    Failure { is_unsent: why.is_connect(), ..Failure::new(cause, format!("{url}: {what}")) }
}

/// The system's own words: the outer ones only repeat the URL.
pub fn innermost(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
