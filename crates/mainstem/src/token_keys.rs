//! Where the keys come from by which tokens are verified (`sasl.oauthbearer.jwks.endpoint.url`): a file, or an address of the authority that
//! signs them. They are fetched at the start, then by a thread each `…refresh.ms`, sooner when a token names a key that is not there, but not
//! more often than each [`PAUSE`]; a file also when the configuration is read again. What cannot be fetched leaves the keys as they are.
//!
//! An answer is at most [`BYTES_MAX`] long and takes at most [`FETCH_MAX`]. Redirects are not followed and no proxy is asked. For `https`
//! the authorities count that the machine trusts (`SSL_CERT_FILE` names others).

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::{Broker, Settings, TokenKeys};
use rustls::crypto::ring::default_provider;
use ureq::http::{StatusCode, Uri};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Bytes of a set of keys.
const BYTES_MAX: u64 = 1 << 20;
/// How long fetching it may take.
const FETCH_MAX: Duration = Duration::from_secs(10);
/// Between two fetches because of tokens that name unknown keys: anybody can make such tokens.
const PAUSE: Duration = Duration::from_secs(10);

/// Where keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    File(PathBuf),
    Web(Uri),
}

/// Keys that cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("sasl.oauthbearer.jwks.endpoint.url {place}: {reason}")]
pub struct KeysError {
    place: String,
    reason: String,
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Web(address) => write!(f, "{address}"),
        }
    }
}

impl KeySource {
    /// Of a URL.
    ///
    /// # Errors
    /// What would be right.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "it is file:///PATH, https://HOST/PATH or http://HOST/PATH";
        if let Some(rest) = text.strip_prefix("file:") {
            let path = rest.strip_prefix("//").unwrap_or(rest);
            let path = percent_encoding::percent_decode_str(path).decode_utf8().map_err(|_| EXPECTED)?;
            return if path.starts_with('/') {
                Ok(Self::File(PathBuf::from(path.as_ref())))
            } else {
                Err("the path of a file begins with /: file:///PATH")
            };
        }
        let address: Uri = text.parse().map_err(|_| EXPECTED)?;
        if !matches!(address.scheme_str(), Some("http" | "https")) || address.host().is_none_or(str::is_empty) {
            return Err(EXPECTED);
        }
        if address.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("settings are shown to those who may see them, so it has no user and no password in it");
        }
        Ok(Self::Web(address))
    }

    /// Can anybody on the way change what comes?
    fn is_open(&self) -> bool {
        let Self::Web(address) = self else { return false };
        let host = address.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let is_here =
            host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        address.scheme_str() == Some("http") && !is_here
    }

    /// The keys that are there now.
    ///
    /// # Errors
    /// Nobody answers, or not with keys.
    pub fn fetch(&self) -> Result<TokenKeys, KeysError> {
        let text = match self {
            Self::File(path) => read(path),
            Self::Web(address) => get(address),
        };
        let refuse = |reason: String| KeysError { place: self.to_string(), reason };
        TokenKeys::parse(&text.map_err(refuse)?).map_err(|error| refuse(error.to_string()))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(BYTES_MAX + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > BYTES_MAX { Err(format!("it is longer than {BYTES_MAX} bytes")) } else { Ok(text) }
}

fn get(address: &Uri) -> Result<Vec<u8>, String> {
    let is_encrypted = address.scheme_str() == Some("https");
    let mut agent = ureq::Agent::config_builder()
        .https_only(is_encrypted)
        .max_redirects(0)
        .proxy(None)
        .timeout_global(Some(FETCH_MAX));
    agent = agent.user_agent(concat!("mainstem/", env!("CARGO_PKG_VERSION"))).accept("application/json");
    if is_encrypted {
        let trusted = rustls_native_certs::load_native_certs().certs;
        if trusted.is_empty() {
            return Err("the machine trusts no authority: SSL_CERT_FILE names a file of certificates".to_owned());
        }
        let trusted = RootCerts::from(trusted.iter().map(|one| Certificate::from_der(one).to_owned()));
        let tls =
            TlsConfig::builder().root_certs(trusted).unversioned_rustls_crypto_provider(Arc::new(default_provider()));
        agent = agent.tls_config(tls.build());
    }
    let agent: ureq::Agent = agent.build().into();
    let mut answer = agent.get(address).call().map_err(|error| error.to_string())?;
    if answer.status() != StatusCode::OK {
        return Err(format!("the answer has status {}", answer.status().as_u16()));
    }
    answer.body_mut().with_config().limit(BYTES_MAX).read_to_vec().map_err(|error| error.to_string())
}

/// Fetches keys again and again.
struct Fetcher {
    source: KeySource,
    broker: Arc<Broker>,
    refresh: Duration,
    /// After a failure, and after many.
    backoff: (Duration, Duration),
    failures: u32,
    last: Instant,
}

/// Fetches keys for the first time, and has them fetched from now on.
///
/// # Errors
/// A file that is not there or has none. From another machine they may come later.
pub fn start(source: KeySource, broker: &Arc<Broker>) -> anyhow::Result<()> {
    let millis = |settings: &Settings, name: &str| Duration::from_millis(settings.int(name).unsigned_abs());
    let settings = broker.settings();
    if source.is_open() {
        tracing::warn!(place = %source, "keys of tokens come without TLS: whoever is on their way can let himself in");
    }
    let mut fetcher = Fetcher {
        source,
        broker: Arc::clone(broker),
        refresh: millis(settings, "sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        backoff: (
            millis(settings, "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
            millis(settings, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        ),
        failures: 0,
        last: Instant::now(),
    };
    if let KeySource::File(_) = fetcher.source {
        let keys = fetcher.source.fetch()?;
        tracing::info!(keys = keys.count(), "keys of tokens read");
        broker.security().tokens().put_keys(keys);
    } else {
        fetcher.fetch();
    }
    std::thread::Builder::new().name("token-keys".to_owned()).spawn(move || fetcher.run())?;
    Ok(())
}

impl Fetcher {
    fn run(mut self) {
        self.broker.security().tokens().set_fetcher(std::thread::current());
        loop {
            self.rest();
            self.fetch();
        }
    }

    /// Until keys are to be fetched.
    fn rest(&self) {
        let mut due = self.last.checked_add(self.pause());
        loop {
            if self.broker.security().tokens().take_wanted() {
                let soon = self.last + PAUSE;
                due = Some(due.map_or(soon, |due| due.min(soon)));
            }
            match due.map(|due| due.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return,
                Some(left) => std::thread::park_timeout(left),
                None => std::thread::park(),
            }
        }
    }

    fn pause(&self) -> Duration {
        let Some(doublings) = self.failures.checked_sub(1) else { return self.refresh };
        let (least, most) = self.backoff;
        least.saturating_mul(1 << doublings.min(20)).min(most).max(least).min(self.refresh)
    }

    fn fetch(&mut self) {
        let tokens = self.broker.security().tokens();
        let outcome = self.source.fetch();
        self.last = Instant::now();
        match outcome {
            Ok(keys) => {
                if self.failures > 0 || !tokens.are_taken() {
                    tracing::info!(keys = keys.count(), place = %self.source, "keys of tokens fetched");
                }
                tokens.put_keys(keys);
                self.failures = 0;
            }
            Err(error) => {
                // One line for as long as it lasts.
                if self.failures == 0 {
                    tracing::warn!(%error, "keys of tokens stay as they were");
                }
                self.failures = self.failures.saturating_add(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    const KEYS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    #[test]
    fn a_source_is_a_file_or_an_address() {
        let file = |path: &str| Ok(KeySource::File(path.into()));
        for (text, expected) in [("file:///a/b.json", file("/a/b.json")), ("file:/a%20b", file("/a b"))] {
            assert_eq!(KeySource::parse(text), expected, "{text}");
        }
        for text in ["https://authority.example.org/keys", "http://127.0.0.1:8080/keys?x=y", "http://[::1]/"] {
            let source = KeySource::parse(text).expect("an address");
            assert_eq!((source.to_string().as_str(), source.is_open()), (text, false));
        }
        assert!(KeySource::parse("http://authority.example.org/keys").is_ok_and(|source| source.is_open()));
        for text in [
            "",
            "keys.json",
            "/a/b.json",
            "file:keys.json",
            "file://",
            "ftp://a/b",
            "https://",
            "https:///a",
            "https://me:secret@a/b",
            "http://a b/",
        ] {
            assert!(KeySource::parse(text).is_err(), "{text}");
        }
    }

    /// What comes of an answer to one request.
    fn answered(answer: String) -> Result<usize, String> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let source = KeySource::parse(&format!("http://{}/keys", listener.local_addr().expect("an address")))
            .expect("an address");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut head = [0; 1024];
            let count = stream.read(&mut head).expect("a request");
            assert!(head[..count].starts_with(b"GET /keys HTTP/1.1\r\n"));
            // Whoever has seen enough may be gone.
            let _ = stream.write_all(answer.as_bytes());
        });
        let outcome = source.fetch().map(|keys| keys.count()).map_err(|error| error.to_string());
        server.join().expect("answered");
        outcome
    }

    #[test]
    fn what_is_fetched_is_short_and_is_keys() {
        let of = |status: &str, body: &str| {
            format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
        };
        assert_eq!(answered(of("200 OK", KEYS)), Ok(1));
        let chunked =
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{KEYS}\r\n0\r\n\r\n", KEYS.len());
        assert_eq!(answered(chunked), Ok(1));
        for (answer, expected) in [
            (of("404 Not Found", ""), "404"),
            (of("302 Found\r\nlocation: http://127.0.0.1:1/", ""), "status 302"),
            (of("200 OK", "<html>"), "it is no JSON Web Key Set"),
            (of("200 OK", &" ".repeat((1 << 20) + 1)), "limit"),
            ("nonsense\r\n\r\n".to_owned(), ""),
            (format!("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{KEYS}"), ""),
        ] {
            let said = answered(answer).expect_err("refused");
            assert!(
                said.starts_with("sasl.oauthbearer.jwks.endpoint.url http://127.0.0.1:") && said.contains(expected),
                "{said}"
            );
        }
    }

    #[test]
    fn a_file_is_read_as_far_as_it_may_be_long() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys");
        let source = KeySource::File(path.clone());
        assert!(source.fetch().is_err_and(|error| error.to_string().contains("No such file")));
        std::fs::write(&path, KEYS).expect("written");
        assert!(source.fetch().is_ok_and(|keys| keys.count() == 1));
        std::fs::write(&path, " ".repeat((1 << 20) + 1)).expect("written");
        assert!(source.fetch().is_err_and(|error| error.to_string().contains("longer than 1048576 bytes")));
    }
}
