//! Certificates for tests, of keys made on the spot: X.509 version 3 without extensions, signed by ECDSA.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};

fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = match content.len() {
        short @ 0..=0x7F => vec![short as u8],
        medium @ 0x80..=0xFF => vec![0x81, medium as u8],
        long => vec![0x82, (long >> 8) as u8, long as u8],
    };
    [&[tag][..], &length, content].concat()
}

fn name(common_name: &str) -> Vec<u8> {
    let attribute = der(0x30, &[der(0x06, &[0x55, 4, 3]), der(12, common_name.as_bytes())].concat());
    der(0x30, &der(0x31, &attribute))
}

/// A point in time, in seconds since 1970.
fn time(seconds: i64) -> Vec<u8> {
    // Years begin in March here, and 400 of them have 146,097 days.
    let (days, rest) = (seconds.div_euclid(86_400) + 719_468, seconds.rem_euclid(86_400));
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let (year, day) = (era * 400 + year + i64::from(month <= 2), day - (153 * shifted + 2) / 5 + 1);
    let text = format!("{year:04}{month:02}{day:02}{:02}{:02}{:02}Z", rest / 3600, rest / 60 % 60, rest % 60);
    der(0x18, text.as_bytes())
}

/// Somebody with a key.
pub struct Somebody {
    name: &'static str,
    document: Vec<u8>,
    pair: EcdsaKeyPair,
}

impl Somebody {
    pub fn new(name: &'static str) -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).expect("a key");
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &random).expect("a key");
        Self { name, document: document.as_ref().to_vec(), pair }
    }

    /// His private key in PEM.
    pub fn key(&self) -> String {
        pem("PRIVATE KEY", &self.document)
    }

    /// His certificate in PEM, by an authority, good from and until so many seconds after 1970.
    pub fn certificate(&self, authority: &Self, from: i64, until: i64) -> String {
        // ecdsa-with-SHA256; id-ecPublicKey with prime256v1.
        let algorithm = der(0x30, &der(0x06, &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 3, 2]));
        let curve =
            [der(0x06, &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 2, 1]), der(0x06, &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 3, 1, 7])]
                .concat();
        let key =
            der(0x30, &[der(0x30, &curve), der(0x03, &[&[0][..], self.pair.public_key().as_ref()].concat())].concat());
        let validity = der(0x30, &[time(from), time(until)].concat());
        let version = der(0xA0, &der(0x02, &[2]));
        let body = der(
            0x30,
            &[version, der(0x02, &[1]), algorithm.clone(), name(authority.name), validity, name(self.name), key]
                .concat(),
        );
        let signature = authority.pair.sign(&SystemRandom::new(), &body).expect("a signature");
        pem("CERTIFICATE", &der(0x30, &[body, algorithm, der(0x03, &[&[0][..], signature.as_ref()].concat())].concat()))
    }
}

/// Bytes in PEM.
pub fn pem(label: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).expect("letters")).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
