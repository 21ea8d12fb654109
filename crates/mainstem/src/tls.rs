//! TLS: certificate, key and trusted authorities from files, checked at the start and read again on SIGHUP. Connections that are there
//! keep what they began with.
//!
//! A certificate that is out of date is told of and served at the start, where nothing better is there and clients of other listeners wait; in
//! the place of one that is there it is not taken. What clients may do without, as an authority that has expired, is told of.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{Error, InconsistentKeys, RootCertStore, ServerConfig};

use crate::certificate::Parts;
use crate::pem;
use crate::utc::rfc3339;

/// Certificates of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Not asked for.
    #[default]
    None,
    /// Verified where there is one.
    Optional,
    /// Nobody comes in without.
    Required,
}

impl fmt::Display for ClientCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Optional => "optional",
            Self::Required => "required",
        })
    }
}

/// What of a client's certificate is the name of its user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoginFrom {
    /// All of its subject, as RFC 4514 writes it.
    #[default]
    DistinguishedName,
    /// The common name in its subject.
    CommonName,
}

/// Where everything is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Present unless clients show no certificates.
    pub ca: Option<PathBuf>,
    pub clients: ClientCertificates,
    pub login_from: LoginFrom,
}

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Not there, no PEM, or something else than it is to be.
    #[error("{flag} {path}: {reason}")]
    File {
        /// Which setting names it.
        flag: &'static str,
        path: String,
        reason: String,
    },
    /// Key and certificate, which do not belong together.
    #[error("{CERTIFICATE} {certificate} and {KEY} {key}: {reason}")]
    Pair { certificate: String, key: String, reason: String },
}

const CERTIFICATE: &str = "--tls-certificate";
const KEY: &str = "--tls-key";
const CA: &str = "--tls-ca";

/// Files that were read and can be used.
pub struct Loaded {
    config: Arc<ServerConfig>,
    chain: Vec<CertificateDer<'static>>,
    /// Of the broker's own certificate, when it is not good now.
    out_of_date: Option<TlsError>,
    /// What people should know.
    notes: Vec<TlsError>,
}

/// TLS as new connections have it.
pub struct Tls {
    files: TlsFiles,
    current: RwLock<Loaded>,
}

fn unusable(flag: &'static str, path: &Path, reason: impl fmt::Display) -> TlsError {
    TlsError::File { flag, path: path.display().to_string(), reason: reason.to_string() }
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

fn shown(seconds: i64) -> String {
    rfc3339(UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// A certificate as people find it again.
fn called(place: usize, parts: &Parts<'_>) -> String {
    format!("certificate {} ({})", place + 1, parts.subject())
}

/// Why a certificate is not good at a time.
fn out_of_date(place: usize, parts: &Parts<'_>, now: i64) -> Option<String> {
    let called = called(place, parts);
    match (parts.from, parts.until) {
        (from, _) if now < from => {
            Some(format!("{called} is not good before {}; the clock says {}", shown(from), shown(now)))
        }
        (_, until) if now > until => {
            Some(format!("{called} has expired at {}; the clock says {}", shown(until), shown(now)))
        }
        _ => None,
    }
}

/// What is wrong with the certificates behind the first, which clients may get over.
fn chain_notes(all: &[Parts<'_>], now: i64) -> Vec<String> {
    let mut notes: Vec<String> =
        all.iter().enumerate().skip(1).filter_map(|(place, parts)| out_of_date(place, parts, now)).collect();
    let gap = all.windows(2).position(|pair| !pair[0].is_issued_by(&pair[1]));
    if let Some(place) = gap {
        let (one, next) = (called(place, &all[place]), called(place + 1, &all[place + 1]));
        notes.push(format!("{next} is not that of {}, the authority that has issued {one}: each has to stand behind the one that it has issued", all[place].issuer()));
    }
    notes
}

fn parts_of<'a>(flag: &'static str, path: &Path, all: &'a [CertificateDer<'_>]) -> Result<Vec<Parts<'a>>, TlsError> {
    let one = |(place, certificate): (usize, &'a CertificateDer<'_>)| {
        Parts::of(certificate).ok_or_else(|| unusable(flag, path, format!("certificate {} is none", place + 1)))
    };
    all.iter().enumerate().map(one).collect()
}

impl TlsFiles {
    fn load(&self, now: i64) -> Result<Loaded, TlsError> {
        let provider = Arc::new(default_provider());
        let of_certificate = |reason| unusable(CERTIFICATE, &self.certificate, reason);
        let chain = pem::certificates(&self.certificate).map_err(of_certificate)?;
        let parts = parts_of(CERTIFICATE, &self.certificate, &chain)?;
        let mut notes: Vec<TlsError> = chain_notes(&parts, now).into_iter().map(of_certificate).collect();
        let out_of_date = out_of_date(0, &parts[0], now).map(of_certificate);
        let pair = self.pair(&chain, &provider)?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| of_certificate(error.to_string()))?;
        let builder = match (&self.ca, self.clients) {
            (None, _) | (_, ClientCertificates::None) => builder.with_no_client_auth(),
            (Some(path), wanted) => {
                let (roots, of_roots) = authorities(path, now)?;
                notes.extend(of_roots);
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier =
                    if wanted == ClientCertificates::Optional { verifier.allow_unauthenticated() } else { verifier };
                builder.with_client_cert_verifier(verifier.build().map_err(|error| unusable(CA, path, error))?)
            }
        };
        let config = Arc::new(builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(pair))));
        Ok(Loaded { config, chain, out_of_date, notes })
    }

    /// The certificates with the key of the first.
    fn pair(&self, chain: &[CertificateDer<'static>], provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let key = pem::private_key(&self.key).map_err(|reason| unusable(KEY, &self.key, reason))?;
        let unknown = |error| unusable(KEY, &self.key, format!("the key is none that can be used: {error}"));
        let key = provider.key_provider.load_private_key(key).map_err(unknown)?;
        let pair = CertifiedKey::new(chain.to_vec(), Arc::clone(&key));
        match pair.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(pair),
            Err(Error::InconsistentKeys(_)) => {
                let is_its = |one: &CertificateDer<'static>| {
                    CertifiedKey::new(vec![one.clone()], Arc::clone(&key)).keys_match().is_ok()
                };
                let reason = match chain.iter().position(is_its) {
                    Some(place) => format!("the key is that of certificate {}, which has to be the first", place + 1),
                    None => "the key is another than that of the certificate".to_owned(),
                };
                Err(TlsError::Pair {
                    certificate: self.certificate.display().to_string(),
                    key: self.key.display().to_string(),
                    reason,
                })
            }
            Err(error) => {
                Err(unusable(CERTIFICATE, &self.certificate, format!("certificate 1 cannot be used: {error}")))
            }
        }
    }
}

/// Whose certificates of clients are trusted, and what is wrong with some of them.
fn authorities(path: &Path, now: i64) -> Result<(RootCertStore, Vec<TlsError>), TlsError> {
    let all = pem::certificates(path).map_err(|reason| unusable(CA, path, reason))?;
    let parts = parts_of(CA, path, &all)?;
    let notes = parts
        .iter()
        .enumerate()
        .filter_map(|(place, parts)| out_of_date(place, parts, now))
        .map(|reason| unusable(CA, path, reason))
        .collect();
    let mut roots = RootCertStore::empty();
    for (place, one) in all.iter().enumerate() {
        roots
            .add(one.clone())
            .map_err(|error| unusable(CA, path, format!("certificate {} cannot be used: {error}", place + 1)))?;
    }
    Ok((roots, notes))
}

impl Loaded {
    fn tell(&self) {
        for problem in self.out_of_date.iter().chain(&self.notes) {
            tracing::warn!(%problem, "clients may refuse this broker, or be refused");
        }
    }
}

impl Tls {
    /// # Errors
    /// The first file that cannot be used.
    pub fn open(files: TlsFiles) -> Result<Self, TlsError> {
        let loaded = files.load(now())?;
        loaded.tell();
        Ok(Self { files, current: RwLock::new(loaded) })
    }

    /// Reads the files again, and changes nothing yet.
    ///
    /// # Errors
    /// The first file that cannot be used; a certificate that is out of date, unless it is the one that is there.
    pub fn load(&self) -> Result<Loaded, TlsError> {
        self.load_at(now())
    }

    fn load_at(&self, now: i64) -> Result<Loaded, TlsError> {
        let mut loaded = self.files.load(now)?;
        let is_new = loaded.chain.first() != self.current.read().chain.first();
        match loaded.out_of_date.take_if(|_| is_new) {
            Some(error) => Err(error),
            None => Ok(loaded),
        }
    }

    /// New connections have this from now on.
    pub fn put(&self, loaded: Loaded) {
        loaded.tell();
        *self.current.write() = loaded;
    }

    /// For a new connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read().config)
    }

    /// Until when all certificates of the broker's chain are good, in seconds since 1970.
    pub fn until(&self) -> i64 {
        let current = self.current.read();
        current.chain.iter().filter_map(|one| Parts::of(one)).map(|parts| parts.until).min().unwrap_or(0)
    }

    /// What of a certificate is a user's name.
    pub fn login_from(&self) -> LoginFrom {
        self.files.login_from
    }
}

#[cfg(test)]
mod tests;
