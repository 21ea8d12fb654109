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
    assert!(check(&overrides(&[("streams.initial.rebalance.delay.ms", "2147483647")]), &settings).is_ok(), "and here there is none");
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
    assert_eq!((config.share_start, config.share_renew, config.share_dead_letter_topic), (ShareStart::Earliest, true, None));
    assert_eq!(decode(&encode(&set)), Some(set));
    settings.set("group.consumer.max.session.timeout.ms", "48000").unwrap();
    let config = GroupConfig::new(config.overrides, &settings);
    assert_eq!(config.consumer.session_timeout, 48_000, "limits that are set later hold too");
    settings.set("group.streams.initial.rebalance.delay.ms", "70").unwrap();
    let config = GroupConfig::new(overrides(&[("streams.num.standby.replicas", "2"), ("streams.heartbeat.interval.ms", "6000")]), &settings);
    assert_eq!((config.streams.standbys, config.streams.initial_delay, config.streams.times.heartbeat_interval), (2, 70, 6_000));
    settings.set("group.streams.max.standby.replicas", "1").unwrap();
    assert_eq!(GroupConfig::new(config.overrides, &settings).streams.standbys, 1);
}
