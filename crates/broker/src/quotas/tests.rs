//! Precedence, sharing and changes.

use super::*;

fn quotas() -> Quotas {
    Quotas::new(&Settings::default())
}

fn entity(parts: &[(&str, Option<&str>)]) -> QuotaEntity {
    QuotaEntity::of(parts.iter().copied()).expect("an entity")
}

fn put(quotas: &Quotas, parts: &[(&str, Option<&str>)], rate: f64) {
    quotas.put(&entity(parts), [(QuotaKey::ProducerByteRate, rate)].into());
}

fn rate(quotas: &Quotas, user: &str, client_id: &str) -> Option<f64> {
    Some(quotas.of(user, client_id, Instant::now())?.produce?.rate())
}

#[test]
fn the_first_that_has_the_key_counts() {
    let quotas = quotas();
    assert_eq!((quotas.generation(), rate(&quotas, "u", "c")), (0, None));
    let levels: [&[(&str, Option<&str>)]; 8] = [
        &[("client-id", None)],
        &[("client-id", Some("c"))],
        &[("user", None)],
        &[("user", None), ("client-id", None)],
        &[("user", None), ("client-id", Some("c"))],
        &[("user", Some("u"))],
        &[("user", Some("u")), ("client-id", None)],
        &[("user", Some("u")), ("client-id", Some("c"))],
    ];
    for (number, parts) in (1u32..).zip(levels) {
        put(&quotas, parts, f64::from(number));
        assert_eq!(rate(&quotas, "u", "c"), Some(f64::from(number)), "{parts:?}");
    }
    assert_eq!(rate(&quotas, "u", "other"), Some(7.0));
    assert_eq!(rate(&quotas, "other", "c"), Some(5.0));
    assert_eq!(rate(&quotas, "other", "other"), Some(4.0));
    // One that has another key only is passed over.
    quotas.put(&entity(&[("user", Some("u")), ("client-id", Some("c"))]), [(QuotaKey::ConsumerByteRate, 1.0)].into());
    assert_eq!(rate(&quotas, "u", "c"), Some(7.0));
}

#[test]
fn accounts_are_shared_as_kafka_shares_them() {
    let quotas = quotas();
    let now = Instant::now();
    let produce = |user, client_id| quotas.of(user, client_id, now).expect("a quota").produce.expect("of producers");
    put(&quotas, &[("user", None)], 1000.0);
    assert!(Arc::ptr_eq(&produce("u", "a"), &produce("u", "b")));
    assert!(!Arc::ptr_eq(&produce("u", "a"), &produce("v", "a")));
    put(&quotas, &[("user", Some("u")), ("client-id", None)], 1000.0);
    assert!(Arc::ptr_eq(&produce("u", "a"), &produce("u", "a")));
    assert!(!Arc::ptr_eq(&produce("u", "a"), &produce("u", "b")));
}

#[test]
fn a_change_ends_the_accounts_that_it_concerns() {
    let quotas = quotas();
    let now = Instant::now();
    put(&quotas, &[("user", Some("u"))], 1000.0);
    put(&quotas, &[("user", Some("v"))], 1000.0);
    let produce = |user| quotas.of(user, "c", now).expect("a quota").produce.expect("of producers");
    let (u, v) = (produce("u"), produce("v"));
    assert_eq!(u.take(60_000, now), Duration::from_secs(60));
    let before = quotas.generation();
    put(&quotas, &[("user", Some("u"))], 2000.0);
    assert!(quotas.generation() > before);
    assert!(produce("u").debt(now).is_zero() && Arc::ptr_eq(&v, &produce("v")));
    quotas.put(&entity(&[("user", Some("u"))]), QuotaValues::new());
    assert!(quotas.of("u", "c", now).is_none());
}

#[test]
fn addresses_have_so_many_connections_a_second() {
    let quotas = quotas();
    let start = Instant::now();
    let address: IpAddr = "192.0.2.1".parse().expect("an address");
    let admitted = |from: IpAddr, count: usize, now| (0..count).filter(|_| quotas.admit_connection(from, now)).count();
    assert_eq!(admitted(address, 1000, start), 1000);
    quotas.put(&QuotaEntity::Ip(QuotaName::Default), [(QuotaKey::ConnectionCreationRate, 5.0)].into());
    // What he may have in the time of all windows, and one that begins the debt.
    assert_eq!(admitted(address, 1000, start), 51);
    assert_eq!(admitted("::ffff:192.0.2.1".parse().expect("the same"), 1000, start), 0);
    assert_eq!(admitted(address, 1000, start + Duration::from_secs(2)), 10);
    assert_eq!(admitted("192.0.2.2".parse().expect("an address"), 1, start), 1);
}

#[test]
fn accounts_that_nobody_uses_go() {
    let quotas = quotas();
    let start = Instant::now();
    put(&quotas, &[("client-id", None)], 1000.0);
    for number in 0..5000u64 {
        let now = start + Duration::from_secs(number);
        let of = quotas.of("u", &number.to_string(), now).expect("a quota");
        of.produce.expect("of producers").take(1, now);
    }
    assert!(quotas.accounts.lock().by_holder.len() <= ACCOUNTS_TIDY);
}
