//! Who is let in, and what is known of him afterwards.

use super::*;
use crate::settings::Settings;

const HERE: &str = "127.0.0.1:4";
const ELSEWHERE: &str = "192.0.2.1:4";

fn security() -> Security {
    let mut settings = Settings::default();
    settings.set("mainstem.password.iterations", "1000").expect("a setting");
    settings.set("mainstem.login.failures", "0").expect("a setting");
    Security::new(&settings)
}

fn add(security: &Security, name: &str, password: Option<PasswordHash>) {
    let user = Arc::new(User::new(name.to_owned(), password, Vec::new(), UserLimits::default()));
    security.change(|inner| drop(inner.users.insert(name.to_owned(), user)));
}

fn hash(password: &str) -> Option<PasswordHash> {
    Some(PasswordHash::of(password.as_bytes(), NonZeroU32::new(1000).expect("not 0")))
}

fn ask<'a>(name: &'a str, password: &'a str, peer: &str) -> Credentials<'a> {
    Credentials { name: name.as_bytes(), password: password.as_bytes(), peer: peer.parse().expect("an address") }
}

fn login(security: &Security, name: &str, password: &str, peer: &str) -> Result<String, Refused> {
    security.authenticate(ask(name, password, peer)).map(|user| user.name().to_owned())
}

#[test]
fn guest_is_there_as_long_as_nobody_else_is() {
    let security = security();
    assert_eq!(login(&security, "guest", "guest", HERE).as_deref(), Ok("guest"));
    assert_eq!(login(&security, "guest", "guest", "[::ffff:127.0.0.1]:4").as_deref(), Ok("guest"));
    assert_eq!(login(&security, "guest", "guest", ELSEWHERE), Err(Refused::NotLocal));
    for (name, password) in [("guest", "wrong"), ("guest", ""), ("", "guest"), ("bob", "guest")] {
        assert_eq!(login(&security, name, password, HERE), Err(Refused::Credentials), "{name:?} {password:?}");
    }
    assert!(security.permissions("/", "guest").is_some_and(|all| all.write.matches(b"anything")));
    assert!(security.users().is_empty() && security.user("guest").is_some());
    add(&security, "bob", hash("secret"));
    assert_eq!(login(&security, "guest", "guest", HERE), Err(Refused::Credentials));
    assert!(security.user("guest").is_none() && security.permissions("/", "guest").is_none());
    assert_eq!(login(&security, "bob", "secret", ELSEWHERE).as_deref(), Ok("bob"));
    add(&security, "guest", hash("another"));
    assert_eq!(login(&security, "guest", "another", HERE).as_deref(), Ok("guest"));
    assert_eq!(login(&security, "guest", "another", ELSEWHERE), Err(Refused::NotLocal));
}

#[test]
fn what_was_verified_is_known_until_it_changes() {
    let security = security();
    add(&security, "bob", hash("secret"));
    let right = ask("bob", "secret", HERE);
    assert!(security.known(right).is_none());
    assert!(security.authenticate(right).is_ok());
    assert!(security.known(right).is_some_and(|outcome| outcome.is_ok()));
    assert!(security.known(ask("bob", "secre", HERE)).is_none());
    assert!(security.known(ask("bo", "bsecret", HERE)).is_none());
    add(&security, "bob", hash("new"));
    assert!(security.known(right).is_none());
    assert_eq!(login(&security, "bob", "secret", HERE), Err(Refused::Credentials));
    assert_eq!(login(&security, "bob", "new", HERE).as_deref(), Ok("bob"));
}

#[test]
fn what_was_wrong_lately_is_known_too() {
    let security = security();
    add(&security, "bob", hash("secret"));
    let wrong = ask("bob", "password", HERE);
    assert!(security.authenticate(wrong).is_err());
    assert_eq!(security.known(wrong).map(|outcome| outcome.err()), Some(Some(Refused::Credentials)));
    add(&security, "bob", hash("password"));
    assert!(security.known(wrong).is_none(), "somebody may have changed it");
    assert!(security.authenticate(wrong).is_ok());
    for number in 0..2 * 256 {
        assert!(security.authenticate(ask("alice", &number.to_string(), HERE)).is_err());
    }
    assert!(security.known(ask("alice", "0", HERE)).is_none(), "a bounded number of them");
}

#[test]
fn who_guesses_waits_and_who_is_known_does_not() {
    let mut settings = Settings::default();
    settings.set("mainstem.password.iterations", "1000").expect("a setting");
    settings.set("mainstem.login.failures", "3").expect("a setting");
    settings.set("mainstem.login.failure.recovery.ms", "3600000").expect("a setting");
    let security = Security::new(&settings);
    add(&security, "bob", hash("secret"));
    add(&security, "ann", hash("other"));
    assert_eq!(login(&security, "bob", "secret", ELSEWHERE).as_deref(), Ok("bob"));
    for _ in 0..100 {
        assert_eq!(
            login(&security, "bob", "wrong", ELSEWHERE),
            Err(Refused::Credentials),
            "the same again is one guess"
        );
    }
    for number in 0..2 {
        assert_eq!(login(&security, "bob", &number.to_string(), ELSEWHERE), Err(Refused::Credentials));
    }
    assert_eq!(login(&security, "bob", "another guess", ELSEWHERE), Err(Refused::Throttled));
    assert!(security.is_throttled(ELSEWHERE.parse().expect("an address"), "bob"));
    assert_eq!(login(&security, "bob", "secret", ELSEWHERE).as_deref(), Ok("bob"), "he is known");
    assert_eq!(login(&security, "ann", "other", ELSEWHERE).as_deref(), Ok("ann"), "nobody guesses hers");
}

#[test]
fn who_has_no_password_comes_in_by_other_means_only() {
    let security = security();
    add(&security, "device", None);
    for password in ["", "device"] {
        assert_eq!(login(&security, "device", password, HERE), Err(Refused::Credentials));
    }
    let peer = ELSEWHERE.parse().expect("an address");
    assert!(security.authenticate_by_name("device", peer).is_ok());
    assert_eq!(security.authenticate_by_name("other", peer).err(), Some(Refused::Credentials));
}

/// A wrong password costs the same whoever it is tried for, so that the time does not tell which users there are.
#[test]
fn refusals_take_the_same_time() {
    let mut settings = Settings::default();
    settings.set("mainstem.password.iterations", "100000").expect("a setting");
    let security = Security::new(&settings);
    add(&security, "ours", Some(PasswordHash::of(b"secret", security.iterations())));
    let cheap = PasswordHash::from_bytes(HashAlgorithm::RabbitSha256, &[7; 36]).expect("a hash");
    add(&security, "imported", Some(cheap));
    add(&security, "device", None);
    // Time on a processor, in ns: what else runs does not count.
    let spent = || {
        let told = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
        told.split(' ').next().and_then(|first| first.parse::<u64>().ok()).expect("a number")
    };
    let shortest = |name: &str| {
        let one = |number: u32| {
            let started = spent();
            assert!(login(&security, name, &format!("wrong {number}"), HERE).is_err());
            spent() - started
        };
        (0..5).map(one).min().expect("five")
    };
    let times = ["ours", "imported", "device", "nobody"].map(shortest);
    let (least, most) = (times.iter().min().expect("four"), times.iter().max().expect("four"));
    assert!(*most < *least * 2, "{times:?}");
}
