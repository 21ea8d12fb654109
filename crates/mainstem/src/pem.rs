//! Certificates and private keys in PEM files (RFC 7468), and what is wrong with a file that has none, in words of those who made it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Bytes of a file: a bundle of all authorities that a machine trusts has a quarter of it.
const BYTES_MAX: u64 = 1 << 20;

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > BYTES_MAX { Err(format!("it is longer than {BYTES_MAX} bytes")) } else { Ok(bytes) }
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

/// What is there instead of what was looked for.
fn instead(bytes: &[u8], wanted: &str) -> String {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return "the file is empty".to_owned();
    }
    // A SEQUENCE with a length of two bytes.
    if bytes.starts_with(&[0x30, 0x82]) {
        return format!(
            "the file has no {wanted} in PEM: it looks like DER, which `openssl x509 -inform DER` and `openssl pkey -inform DER` read"
        );
    }
    let others = [
        ("PRIVATE KEY-----", "a private key"),
        ("BEGIN CERTIFICATE-----", "a certificate"),
        ("CERTIFICATE REQUEST-----", "a request for a certificate"),
    ];
    match others.into_iter().find(|(mark, _)| has(bytes, mark)) {
        Some((_, other)) => format!("the file has no {wanted} in PEM, but {other}"),
        None => format!("the file has no {wanted} in PEM"),
    }
}

fn explain(error: &Error, bytes: &[u8], wanted: &str) -> String {
    let line = |text: &[u8]| String::from_utf8_lossy(text).trim().chars().take(80).collect::<String>();
    match error {
        Error::NoItemsFound => instead(bytes, wanted),
        Error::MissingSectionEnd { end_marker } => {
            format!("the file is cut off: it has no line \"-----END {}-----\"", line(end_marker).trim_matches('-'))
        }
        Error::IllegalSectionStart { line: found } => {
            format!("the file is no PEM: a part begins with the line {:?}", line(found))
        }
        Error::Base64Decode(reason) => {
            format!("the file is no PEM: what is between its lines BEGIN and END is no base64 ({reason})")
        }
        other => format!("the file is no PEM: {other}"),
    }
}

/// All certificates of a file, at least one.
///
/// # Errors
/// What is wrong with it.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let refuse = |error: Error| explain(&error, &bytes, "certificate");
    let all = all.map_err(refuse)?;
    if all.is_empty() { Err(refuse(Error::NoItemsFound)) } else { Ok(all) }
}

/// The first private key of a file.
///
/// # Errors
/// What is wrong with it.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let bytes = read(path)?;
    if has(&bytes, "BEGIN ENCRYPTED PRIVATE KEY-----") || has(&bytes, "Proc-Type: 4,ENCRYPTED") {
        return Err("the key is encrypted, and nobody is asked for its password: `openssl pkey -in FILE -out FILE` takes that off; the file is for the broker's user only".to_owned());
    }
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| explain(&error, &bytes, "private key"))
}
