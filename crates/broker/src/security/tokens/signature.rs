//! Signatures of tokens, verified by `ring`, which is the cryptography of the rest of the broker; `jsonwebtoken` takes it as its provider.
//! It signs nothing.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature as verification;

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Has tokens of this process verified here. Another time it changes nothing.
pub(super) fn install() {
    let _ = PROVIDER.install_default();
}

struct OfRing {
    algorithm: Algorithm,
    key: DecodingKey,
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    if !key.family().algorithms().contains(algorithm) {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(OfRing { algorithm: *algorithm, key: key.clone() }))
}

fn of_rsa(algorithm: Algorithm) -> Option<&'static verification::RsaParameters> {
    Some(match algorithm {
        Algorithm::RS256 => &verification::RSA_PKCS1_2048_8192_SHA256,
        Algorithm::RS384 => &verification::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::RS512 => &verification::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::PS256 => &verification::RSA_PSS_2048_8192_SHA256,
        Algorithm::PS384 => &verification::RSA_PSS_2048_8192_SHA384,
        Algorithm::PS512 => &verification::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

fn of_curve(algorithm: Algorithm) -> Option<&'static dyn verification::VerificationAlgorithm> {
    Some(match algorithm {
        Algorithm::ES256 => &verification::ECDSA_P256_SHA256_FIXED,
        Algorithm::ES384 => &verification::ECDSA_P384_SHA384_FIXED,
        Algorithm::EdDSA => &verification::ED25519,
        _ => return None,
    })
}

impl Verifier<Vec<u8>> for OfRing {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let is_right = match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => of_rsa(self.algorithm)
                .is_some_and(|of| verification::RsaPublicKeyComponents { n, e }.verify(of, message, signature).is_ok()),
            DecodingKeyKind::SecretOrDer(point) => of_curve(self.algorithm)
                .is_some_and(|of| verification::UnparsedPublicKey::new(of, point).verify(message, signature).is_ok()),
        };
        if is_right { Ok(()) } else { Err(Error::new()) }
    }
}

impl JwtVerifier for OfRing {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
