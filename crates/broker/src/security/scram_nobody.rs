//! What is told to one who claims a name that nobody has, or a user without keys: salt and iterations like those of some user. They are always
//! the same for a name, as long as users' keys are not very different ones, and among many such names as common as among the users: who knows that
//! tools of Kafka make keys of 4096 iterations, and this broker of 8192, does not learn from them who is there.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::Security;
use super::scram::{ITERATIONS, SALT_BYTES, ScramCredential, ScramMechanism};

/// What can be seen of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Look {
    iterations: u32,
    salt_bytes: usize,
    /// The salt is small letters and digits, as Kafka's tools make it; otherwise any bytes.
    is_text: bool,
}

const OWN: Look = Look { iterations: ITERATIONS.get(), salt_bytes: SALT_BYTES, is_text: false };
const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

impl Look {
    fn of(credential: &ScramCredential) -> Self {
        let salt = credential.salt();
        Self {
            iterations: credential.iterations(),
            salt_bytes: salt.len(),
            is_text: salt.iter().all(|byte| LETTERS.contains(byte)),
        }
    }
}

/// How many users have keys of a look.
type Counts = BTreeMap<Look, u64>;

/// What was counted last, and as of which version of the catalog.
#[derive(Default)]
pub(super) struct Looks(Mutex<(u64, [Counts; 2])>);

/// The look in this place among all that there are; places go from 0 to `u64::MAX`.
fn choose(counts: &Counts, place: u64) -> Look {
    let all: u64 = counts.values().sum();
    let mut at = u64::try_from((u128::from(place) * u128::from(all)) >> 64).unwrap_or(0);
    let found = counts.iter().find(|(_, count)| {
        let is_here = at < **count;
        at = at.saturating_sub(**count);
        is_here
    });
    found.map_or(OWN, |(look, _)| *look)
}

impl Security {
    /// Keys that nobody can prove to have.
    pub(super) fn scram_of_nobody(&self, mechanism: ScramMechanism, name: &str) -> ScramCredential {
        let number = [mechanism.number()];
        let place = self.keyed(&[&number, b"look", name.as_bytes()]);
        let look = self.look_at(mechanism, u64::from_be_bytes(*place.first_chunk().expect("a digest is longer")));
        let parts = (0..look.salt_bytes.div_ceil(place.len()))
            .flat_map(|part| self.keyed(&[&number, b"salt", &[part as u8], name.as_bytes()]));
        let letter = |byte: u8| if look.is_text { LETTERS[usize::from(byte) % LETTERS.len()] } else { byte };
        let salt: Vec<u8> = parts.take(look.salt_bytes).map(letter).collect();
        let key = vec![0; mechanism.key_bytes()];
        ScramCredential::from_parts(mechanism, look.iterations, &salt, &key, &key).expect("they are like somebody's")
    }

    fn look_at(&self, mechanism: ScramMechanism, place: u64) -> Look {
        let mut looks = self.scram_looks.0.lock();
        let version = self.version();
        if looks.0 != version {
            let mut counts = <[Counts; 2]>::default();
            for credential in self.inner.read().users.values().flat_map(|user| user.scram().iter()) {
                *counts[usize::from(credential.mechanism().number()) - 1].entry(Look::of(credential)).or_default() += 1;
            }
            *looks = (version, counts);
        }
        choose(&looks.1[usize::from(mechanism.number()) - 1], place)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::scram::ScramCredentials;
    use super::super::user::{User, UserLimits};
    use super::*;
    use crate::Settings;

    fn add(security: &Security, name: &str, salt: &[u8], iterations: u32) {
        let mut scram = ScramCredentials::default();
        scram.put(ScramCredential::from_salted(ScramMechanism::Sha256, salt, iterations, &[1; 32]).expect("keys"));
        let user = Arc::new(User::new(name.to_owned(), None, Vec::new(), UserLimits::default()).with_scram(scram));
        security.change(|inner| drop(inner.users.insert(name.to_owned(), user)));
    }

    fn looks(security: &Security) -> Counts {
        let mut counts = Counts::new();
        for number in 0..300 {
            let keys = security.scram_of_nobody(ScramMechanism::Sha256, &format!("nobody {number}"));
            *counts.entry(Look::of(&keys)).or_default() += 1;
        }
        counts
    }

    #[test]
    fn nobody_looks_like_somebody() {
        let security = Security::new(&Settings::default());
        assert_eq!(looks(&security).into_keys().collect::<Vec<_>>(), [OWN]);
        let (ours, theirs) = ([200; SALT_BYTES], b"1n6qx8ac0v3u7wz5k2y9d4fgh0");
        add(&security, "a", theirs, 4096);
        let kafkas = Look { iterations: 4096, salt_bytes: 26, is_text: true };
        assert_eq!(looks(&security).into_keys().collect::<Vec<_>>(), [kafkas], "as the only one who is there");
        for name in ["b", "c"] {
            add(&security, name, &ours, ITERATIONS.get());
        }
        let found = looks(&security);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [kafkas, OWN]);
        assert!((50..150).contains(&found[&kafkas]), "a third of them: {found:?}");
        add(&security, "d", &[7; 255], 16_384);
        assert!(looks(&security).keys().any(|look| look.salt_bytes == 255));
        let other = security.scram_of_nobody(ScramMechanism::Sha512, "x");
        assert_eq!(Look::of(&other), OWN, "nobody has keys of that mechanism");
    }
}
