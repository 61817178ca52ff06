//! Tests of controllers with TLS: requests are sent only to a server with a trusted certificate.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use srv6d_controller::jalapeno::Settings;
use srv6d_path_server::Server;
use support::lab::{all_fresh, follow, settings_at, start};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// A certificate authority of this test.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Starts a TLS server with a certificate for `name` in front of a plain server. Returns its port.
    async fn front(&self, name: &str, plain: String) -> u16 {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        let secret = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], secret)
            .unwrap();
        let (acceptor, listener) = (TlsAcceptor::from(Arc::new(config)), TcpListener::bind("[::1]:0").await.unwrap());
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, plain) = (acceptor.clone(), plain.clone());
                tokio::spawn(async move {
                    // A client that does not trust this server closes the connection.
                    let Ok(mut inside) = acceptor.accept(stream).await else { return };
                    let mut server = TcpStream::connect(plain).await.unwrap();
                    let _ = copy_bidirectional(&mut inside, &mut server).await;
                });
            }
        });
        port
    }
}

/// Returns the error for a server that gets no requests.
async fn refusal(settings: Settings) -> String {
    let mut source = follow(settings);
    let failed = source.until("a failure", |snapshot| snapshot.health.last_error.is_some()).await;
    assert_eq!(failed.health.successes, 0);
    failed.health.last_error.clone().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_come_through_tls_from_whom_the_file_trusts_and_from_nobody_else() {
    let server = start(Server::default()).await;
    let plain = server.url().trim_start_matches("http://").trim_end_matches('/').to_owned();
    let (authority, other) = (Authority::new("fabric"), Authority::new("another"));
    let port = authority.front("::1", plain.clone()).await;
    let endpoint = format!("https://[::1]:{port}");
    let asked = |ca: Option<&str>| Settings { ca: ca.map(str::to_owned), ..settings_at(endpoint.clone()) };

    let mut source = follow(asked(Some(&authority.pem)));
    source.until("paths to both", all_fresh).await;
    source.stop().await;
    // One matching certificate in a file with several is enough.
    let mut source = follow(asked(Some(&format!("{}{}", other.pem, authority.pem))));
    source.until("paths to both", all_fresh).await;
    source.stop().await;

    for ca in [None, Some(other.pem.as_str())] {
        let said = refusal(asked(ca)).await;
        assert!(said.contains("UnknownIssuer") || said.contains("unknown issuer"), "{said}");
    }
    let said = refusal(asked(Some("# nothing\n"))).await;
    assert!(said.contains("ca_file: there is no certificate in it"), "{said}");

    let port = authority.front("controller.example", plain.clone()).await;
    let misnamed = Settings { endpoint: format!("https://[::1]:{port}"), ..asked(Some(&authority.pem)) };
    let said = refusal(misnamed).await;
    assert!(said.contains("not valid for name"), "{said}");
    let no_tls = Settings {
        endpoint: format!("https://{plain}"),
        timeout: Duration::from_secs(5),
        ..asked(Some(&authority.pem))
    };
    let said = refusal(no_tls).await;
    assert!(said.contains("corrupt message") || said.contains("InvalidContentType"), "{said}");
}
