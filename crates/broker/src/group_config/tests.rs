//! Durations, limits, defaults.

use super::*;

#[test]
fn durations_are_read_as_they_are_written() {
    let cases = [
        ("earliest", Some(ShareStart::Earliest)),
        ("latest", Some(ShareStart::Latest)),
        ("by_duration:PT1H", Some(ShareStart::Duration(3_600_000))),
        ("by_duration:P1DT2H3M4.5S", Some(ShareStart::Duration(93_784_500))),
        ("by_duration:PT0S", Some(ShareStart::Duration(0))),
        ("by_duration:-PT1H", None),
        ("by_duration:P", None),
        ("by_duration:PT", None),
        ("by_duration:P1DT", None),
        ("by_duration:1h", None),
        ("by_duration:PT99999999999999999999H", None),
        ("none", None),
        ("Earliest", None),
    ];
    for (text, expected) in cases {
        assert_eq!(ShareStart::parse(text), expected, "{text}");
    }
}

fn overrides(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn values_lie_within_the_limits_of_the_broker() {
    let mut settings = Settings::default();
    let session = |value: &str| overrides(&[("consumer.session.timeout.ms", value)]);
    assert!(check(&session("45000"), &settings).is_ok());
    assert!(check(&session("44999"), &settings).is_err());
    assert!(check(&session("60001"), &settings).is_err());
    assert!(check(&session("soon"), &settings).is_err());
    assert!(check(&overrides(&[("consumer.session", "45000")]), &settings).is_err());
    settings.set("group.consumer.min.session.timeout.ms", "100").unwrap();
    assert!(check(&session("6000"), &settings).is_ok());
    assert!(check(&session("5000"), &settings).is_err(), "no longer than the time between heartbeats");
    let standbys = |value: &str| overrides(&[("streams.num.standby.replicas", value)]);
    assert!(check(&standbys("2"), &settings).is_ok());
    assert!(check(&standbys("3"), &settings).is_err(), "one bound only");
    assert!(
        check(&overrides(&[("streams.initial.rebalance.delay.ms", "2147483647")]), &settings).is_ok(),
        "and here there is none"
    );
    assert!(check(&overrides(&[("streams.session.timeout.ms", "44999")]), &settings).is_err());
    assert!(check(&overrides(&[("mainstem.share.dead.letter.topic", "a b")]), &settings).is_err());
    assert!(check(&overrides(&[("share.auto.offset.reset", "yesterday")]), &settings).is_err());
}

#[test]
fn what_is_set_comes_before_what_the_broker_says() {
    let mut settings = Settings::default();
    settings.set("group.share.delivery.count.limit", "7").unwrap();
    let set = overrides(&[("share.auto.offset.reset", "earliest"), ("consumer.session.timeout.ms", "50000")]);
    let config = GroupConfig::new(set.clone(), &settings);
    assert_eq!((config.share_delivery_limit, config.consumer.session_timeout), (7, 50_000));
    assert_eq!(
        (config.share_start, config.share_renew, config.share_dead_letter_topic),
        (ShareStart::Earliest, true, None)
    );
    assert_eq!(decode(&encode(&set, &Setters::new())), Some((set, Setters::new())));
    settings.set("group.consumer.max.session.timeout.ms", "48000").unwrap();
    let config = GroupConfig::new(config.overrides, &settings);
    assert_eq!(config.consumer.session_timeout, 48_000, "limits that are set later hold too");
    settings.set("group.streams.initial.rebalance.delay.ms", "70").unwrap();
    let config = GroupConfig::new(
        overrides(&[("streams.num.standby.replicas", "2"), ("streams.heartbeat.interval.ms", "6000")]),
        &settings,
    );
    assert_eq!(
        (config.streams.standbys, config.streams.initial_delay, config.streams.times.heartbeat_interval),
        (2, 70, 6_000)
    );
    settings.set("group.streams.max.standby.replicas", "1").unwrap();
    assert_eq!(GroupConfig::new(config.overrides, &settings).streams.standbys, 1);
}

fn somebody(name: &str) -> Setter {
    let security = crate::security::Security::new(&Settings::default());
    security.setter(Some(name), "127.0.0.1".parse().expect("an address"))
}

#[test]
fn who_has_set_something_is_kept_until_it_is_set_again() {
    let change = |pairs: &[(&str, &str)], set: &[&str]| GroupChange {
        group: "g".to_owned(),
        overrides: overrides(pairs),
        set: set.iter().map(|name| (*name).to_owned()).collect(),
    };
    let (bob, eve) = (somebody("bob"), somebody("eve"));
    let mut config = GroupConfig::new(BTreeMap::new(), &Settings::default());
    let mut after = |change: GroupChange, who: Option<&Setter>| {
        let setters = setters_then(&config, &change, who);
        config = GroupConfig { setters, ..GroupConfig::new(change.overrides, &Settings::default()) };
        (config.dead_letter_setter().cloned(), config.setters.get(LAGGARD_RULES).cloned())
    };
    let letters = (DEAD_LETTER_TOPIC, "dead");
    assert_eq!(after(change(&[letters], &[DEAD_LETTER_TOPIC]), Some(&bob)), (Some(bob.clone()), None));
    let rules = (LAGGARD_RULES, "lag>1 1/min");
    assert_eq!(
        after(change(&[letters, rules], &[LAGGARD_RULES]), Some(&eve)),
        (Some(bob.clone()), Some(eve.clone())),
        "of what he did not set bob answers"
    );
    assert_eq!(
        after(change(&[letters, rules], &[DEAD_LETTER_TOPIC]), Some(&eve)),
        (Some(eve.clone()), Some(eve.clone())),
        "set as it was"
    );
    assert_eq!(
        after(change(&[(DEAD_LETTER_TOPIC, "other"), rules], &[]), Some(&bob)),
        (Some(bob.clone()), Some(eve.clone()))
    );
    assert_eq!(after(change(&[rules], &[]), Some(&eve)), (None, Some(eve.clone())));
    assert_eq!(after(change(&[letters], &[DEAD_LETTER_TOPIC]), None), (None, None), "the broker's own");
}

#[test]
fn records_of_both_versions_are_read() {
    let set = overrides(&[(DEAD_LETTER_TOPIC, "dead")]);
    let setters = Setters::from([(DEAD_LETTER_TOPIC.to_owned(), somebody("bob"))]);
    let bytes = encode(&set, &setters);
    assert_eq!(decode(&bytes), Some((set.clone(), setters)));
    (0..bytes.len()).for_each(|end| assert_eq!(decode(&bytes[..end]), None, "{end} bytes"));
    let mut old = BytesMut::new();
    old.put_u8(VERSION_WITHOUT_SETTERS);
    overrides::encode(&set, &mut old);
    assert_eq!(decode(&old), Some((set, Setters::new())));
}
