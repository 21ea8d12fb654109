//! Settings of one group: consumer, share and streams groups can have their own. Kept as keyed state in journal 0, checked against
//! the limits that the broker's settings give.
//!
//! ```text
//! key   "k" group                value  u8 version (2), settings as in `overrides.rs`, u16 count, then of each setting by which the broker acts
//!                                       later: u16 length, its name, who has set it as in `security/setter.rs`
//! ```
//!
//! Version 1 ends behind the settings. Who has set what it has is not known: that is not asked for his rights until it is set again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use delivery::{GroupTimes, StreamsConfig};
use hashbrown::HashMap;
use journal::AppendItem;
use parking_lot::RwLock;

use crate::overrides::{self, Overrides};
use crate::settings::{Class, Kind, Setting, SettingError, Settings, find};
use crate::{AlterError, Broker, Setter};

/// First byte of the key of a group's settings.
pub(crate) const GROUP_CONFIG_KEY: u8 = b'k';
const VERSION: u8 = 2;
/// Without anything about who has set what.
const VERSION_WITHOUT_SETTERS: u8 = 1;

/// What a group wants of the records.
const FILTER: &str = "mainstem.filter";
const FILTER_CLIENTS: &str = "mainstem.filter.client.ids";
/// Names the topic of a share group's dead letters: who sets it has them written there.
pub const DEAD_LETTER_TOPIC: &str = "mainstem.share.dead.letter.topic";
/// What slows down who is far behind.
const LAGGARD_RULES: &str = "mainstem.laggard.rules";
/// Settings by which the broker acts later, with the rights of who has set them.
const ACTING: [&str; 2] = [DEAD_LETTER_TOPIC, LAGGARD_RULES];
/// What settings of a group take beside their texts, about: decoded, with what groups, filters and rules know of them; each text; and who has set one.
const CONFIG_BYTES: usize = 1024;
const TEXT_BYTES: usize = 150;
const SETTER_BYTES: usize = 300;
/// A group's name is kept in so many places, and a filter or a rule takes so many times its text.
const NAME_TIMES: usize = 4;
const COMPILED_TIMES: usize = 6;
/// Characters of a filter that a refusal repeats.
const FILTER_SHOWN: usize = 200;

/// A group setting, with the broker's settings that it depends on.
struct Row {
    setting: Setting,
    /// Gives the default.
    default: Option<&'static str>,
    limits: Limits,
}

/// The broker's settings that bound a group's.
#[derive(Clone, Copy)]
enum Limits {
    None,
    UpTo(&'static str),
    Between(&'static str, &'static str),
}

impl Limits {
    /// The least and the largest value, if there are such.
    fn range(self, settings: &Settings) -> Option<(i64, i64)> {
        match self {
            Self::None => None,
            Self::UpTo(high) => Some((0, settings.int(high))),
            Self::Between(low, high) => Some((settings.int(low), settings.int(high))),
        }
    }

    fn names(self) -> String {
        match self {
            Self::None => String::new(),
            Self::UpTo(high) => format!("0 to {high}"),
            Self::Between(low, high) => format!("{low} to {high}"),
        }
    }
}

const INT: i64 = i32::MAX as i64;

const fn row(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Setting {
    Setting { name, kind, default, class: Class::Enforced, doc }
}

/// Settings of a group, as they are shown.
pub const GROUP: &[Setting] = &[
    ROWS[0].setting,
    ROWS[1].setting,
    ROWS[2].setting,
    ROWS[3].setting,
    ROWS[4].setting,
    ROWS[5].setting,
    ROWS[6].setting,
    ROWS[7].setting,
    ROWS[8].setting,
    ROWS[9].setting,
    ROWS[10].setting,
    ROWS[11].setting,
    ROWS[12].setting,
    ROWS[13].setting,
    ROWS[14].setting,
    ROWS[15].setting,
    ROWS[16].setting,
    ROWS[17].setting,
    ROWS[18].setting,
    ROWS[19].setting,
    ROWS[20].setting,
    ROWS[21].setting,
];

const fn limited(setting: Setting, default: &'static str, low: &'static str, high: &'static str) -> Row {
    Row { setting, default: Some(default), limits: Limits::Between(low, high) }
}

const fn own(setting: Setting) -> Row {
    Row { setting, default: None, limits: Limits::None }
}

const ROWS: &[Row] = &[
    limited(
        row(
            "consumer.session.timeout.ms",
            Kind::Int(1, INT),
            "45000",
            "A member that is silent for so long is out of the consumer group.",
        ),
        "group.consumer.session.timeout.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    limited(
        row(
            "consumer.heartbeat.interval.ms",
            Kind::Int(1, INT),
            "5000",
            "How often members of the consumer group send heartbeats; those that wait for partitions up to ten times as often.",
        ),
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    limited(
        row(
            "consumer.assignment.interval.ms",
            Kind::Int(0, INT),
            "1000",
            "Assignments of the consumer group are not computed more often.",
        ),
        "group.consumer.assignment.interval.ms",
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
    limited(
        row(
            "share.session.timeout.ms",
            Kind::Int(1, INT),
            "45000",
            "A member that is silent for so long is out of the share group.",
        ),
        "group.share.session.timeout.ms",
        "group.share.min.session.timeout.ms",
        "group.share.max.session.timeout.ms",
    ),
    limited(
        row(
            "share.heartbeat.interval.ms",
            Kind::Int(1, INT),
            "5000",
            "How often members of the share group send heartbeats.",
        ),
        "group.share.heartbeat.interval.ms",
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
    ),
    limited(
        row(
            "share.assignment.interval.ms",
            Kind::Int(0, INT),
            "1000",
            "Assignments of the share group are not computed more often.",
        ),
        "group.share.assignment.interval.ms",
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
    ),
    limited(
        row(
            "share.record.lock.duration.ms",
            Kind::Int(1000, INT),
            "30000",
            "How long a record is a member's before others may get it.",
        ),
        "group.share.record.lock.duration.ms",
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    limited(
        row("share.delivery.count.limit", Kind::Int(2, INT), "5", "How often a record is delivered at most."),
        "group.share.delivery.count.limit",
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    ),
    limited(
        row(
            "share.partition.max.record.locks",
            Kind::Int(100, INT),
            "2000",
            "Records of a partition that may be out with members at once.",
        ),
        "group.share.partition.max.record.locks",
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
    limited(
        row(
            "streams.session.timeout.ms",
            Kind::Int(1, INT),
            "45000",
            "A member that is silent for so long is out of the streams group.",
        ),
        "group.streams.session.timeout.ms",
        "group.streams.min.session.timeout.ms",
        "group.streams.max.session.timeout.ms",
    ),
    limited(
        row(
            "streams.heartbeat.interval.ms",
            Kind::Int(1, INT),
            "5000",
            "How often members of the streams group send heartbeats.",
        ),
        "group.streams.heartbeat.interval.ms",
        "group.streams.min.heartbeat.interval.ms",
        "group.streams.max.heartbeat.interval.ms",
    ),
    limited(
        row(
            "streams.assignment.interval.ms",
            Kind::Int(0, INT),
            "1000",
            "Tasks of the streams group are not given out more often.",
        ),
        "group.streams.assignment.interval.ms",
        "group.streams.min.assignment.interval.ms",
        "group.streams.max.assignment.interval.ms",
    ),
    Row {
        setting: row(
            "streams.num.standby.replicas",
            Kind::Int(0, INT),
            "0",
            "How many members keep the state of a task that they do not run.",
        ),
        default: Some("group.streams.num.standby.replicas"),
        limits: Limits::UpTo("group.streams.max.standby.replicas"),
    },
    Row {
        setting: row(
            "streams.initial.rebalance.delay.ms",
            Kind::Int(0, INT),
            "3000",
            "A new streams group waits so long for more members before tasks are given out.",
        ),
        default: Some("group.streams.initial.rebalance.delay.ms"),
        limits: Limits::None,
    },
    own(row(
        "share.auto.offset.reset",
        Kind::Text,
        "latest",
        "Where a new share group begins: earliest, latest, or by_duration: and an ISO 8601 duration.",
    )),
    own(row(
        "share.isolation.level",
        Kind::OneOf(&["read_committed", "read_uncommitted"]),
        "read_uncommitted",
        "Which records of transactions are delivered.",
    )),
    own(row("share.renew.acknowledge.enable", Kind::Bool, "true", "May members have more time for a record?")),
    own(row(
        DEAD_LETTER_TOPIC,
        Kind::Text,
        "",
        "Where records go that were delivered as often as they may be, with the rights of who sets it; empty: nowhere.",
    )),
    own(row("mainstem.share.key.ordered", Kind::Bool, "false", "Deliver records of a key one after the other.")),
    own(row(
        FILTER,
        Kind::Text,
        "",
        "Members get only records for which this expression is true, like key IN ('a', 'b') or header.type = 'created'; empty: all.",
    )),
    own(row(
        FILTER_CLIENTS,
        Kind::Text,
        "",
        "Client ids, separated by commas, under which members of the group alone fetch: for clients whose connections do not tell.",
    )),
    own(row(
        LAGGARD_RULES,
        Kind::Text,
        "",
        "Rules for members that are far behind, like 08:00-18:00 lag>1GiB 600MiB/min; lag>10GiB 60MiB/min, times in UTC; empty: none.",
    )),
];
const _: () = assert!(ROWS.len() == GROUP.len(), "every row is shown");

/// Where a share group begins to read a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareStart {
    /// With the first record.
    Earliest,
    /// With what is written from now on.
    Latest,
    /// With what is not older than so many milliseconds.
    Duration(u64),
}

impl ShareStart {
    /// As it is written in a setting.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "earliest" => Some(Self::Earliest),
            "latest" => Some(Self::Latest),
            _ => duration_ms(text.strip_prefix("by_duration:")?).map(Self::Duration),
        }
    }
}

/// An ISO 8601 duration of days, hours, minutes and seconds that is not negative, in ms.
fn duration_ms(text: &str) -> Option<u64> {
    let text = text.to_ascii_uppercase();
    let rest = text.strip_prefix('P')?;
    let (days, time) = rest.split_once('T').map_or((rest, None), |(days, time)| (days, Some(time)));
    let mut total: u64 = 0;
    let mut parts = 0;
    let mut add = |mut text: &str, units: &[(char, u64)]| -> Option<()> {
        for (unit, ms) in units {
            if let Some((number, rest)) = text.split_once(*unit) {
                let value = match number.split_once('.') {
                    Some((whole, fraction)) if *unit == 'S' && !fraction.is_empty() && fraction.len() <= 9 => {
                        let nanos = format!("{fraction:0<9}").parse::<u64>().ok()?;
                        whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(nanos / 1_000_000)?
                    }
                    _ => number.parse::<u64>().ok()?.checked_mul(*ms)?,
                };
                total = total.checked_add(value)?;
                parts += 1;
                text = rest;
            }
        }
        text.is_empty().then_some(())
    };
    add(days, &[('D', 86_400_000)])?;
    if let Some(time) = time {
        add(time, &[('H', 3_600_000), ('M', 60_000), ('S', 1000)])?;
    }
    (parts > 0 && time != Some("")).then_some(total)
}

/// What is in force for a group, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// What was set for this group, by name.
    pub overrides: BTreeMap<String, String>,
    /// As a consumer group.
    pub consumer: GroupTimes,
    /// As a share group.
    pub share: GroupTimes,
    /// As a streams group.
    pub streams: StreamsConfig,
    /// `share.record.lock.duration.ms`
    pub share_lock_ms: u64,
    /// `share.delivery.count.limit`
    pub share_delivery_limit: u32,
    /// `share.partition.max.record.locks`
    pub share_locks_max: u32,
    /// `share.auto.offset.reset`
    pub share_start: ShareStart,
    /// `share.isolation.level` is `read_committed`.
    pub share_read_committed: bool,
    /// `share.renew.acknowledge.enable`
    pub share_renew: bool,
    /// `mainstem.share.dead.letter.topic`; `None` when it is empty.
    pub share_dead_letter_topic: Option<String>,
    /// `mainstem.share.key.ordered`
    pub share_key_ordered: bool,
    /// Who has set those by which the broker acts later, as far as that is known.
    pub(crate) setters: Setters,
}

/// By the name of the setting.
type Setters = BTreeMap<String, Setter>;

/// What is to be set of a group.
#[derive(Clone, Debug)]
pub struct GroupChange {
    /// Which.
    pub group: String,
    /// All that it has of its own then.
    pub overrides: BTreeMap<String, String>,
    /// What of that is set now, be it as it was: from now on the rights of who does so count for it.
    pub set: Vec<String>,
}

/// The value of a group setting in force, whether it was set for the group, and the broker's setting that gives the default with its
/// value and whether that was set.
pub struct GroupValue<'a> {
    /// In force.
    pub value: String,
    /// For this group.
    pub own: bool,
    /// Name, value, whether it was set.
    pub broker: Option<(&'static str, &'a str, bool)>,
}

fn value<'a>(row: &Row, overrides: &BTreeMap<String, String>, settings: &'a Settings) -> GroupValue<'a> {
    let broker = row.default.map(|name| {
        let (value, set) = settings.text(name);
        (name, value, set)
    });
    let own = overrides.get(row.setting.name);
    let default = || broker.map_or(row.setting.default, |(_, value, _)| value).to_owned();
    let mut value = own.cloned().unwrap_or_else(default);
    // The broker's limits may be others than when the value was set.
    if let (Some((low, high)), Some(number)) =
        (row.limits.range(settings), own.and_then(|value| value.parse::<i64>().ok()))
    {
        value = number.max(low).min(high.max(low)).to_string();
    }
    GroupValue { value, own: own.is_some(), broker }
}

impl GroupConfig {
    fn new(overrides: BTreeMap<String, String>, settings: &Settings) -> Self {
        let text = |name: &str| {
            let row = ROWS.iter().find(|row| row.setting.name == name).expect("a setting of the table");
            value(row, &overrides, settings).value
        };
        let int = |name: &str| text(name).parse::<u64>().unwrap_or(0);
        let times = |kind: &str| GroupTimes {
            session_timeout: int(&format!("{kind}.session.timeout.ms")),
            heartbeat_interval: int(&format!("{kind}.heartbeat.interval.ms")),
            assignment_interval: int(&format!("{kind}.assignment.interval.ms")),
        };
        Self {
            consumer: times("consumer"),
            share: times("share"),
            streams: StreamsConfig {
                times: times("streams"),
                standbys: int("streams.num.standby.replicas") as u32,
                initial_delay: int("streams.initial.rebalance.delay.ms"),
            },
            share_lock_ms: int("share.record.lock.duration.ms"),
            share_delivery_limit: int("share.delivery.count.limit") as u32,
            share_locks_max: int("share.partition.max.record.locks") as u32,
            share_start: ShareStart::parse(&text("share.auto.offset.reset")).unwrap_or(ShareStart::Latest),
            share_read_committed: text("share.isolation.level") == "read_committed",
            share_renew: text("share.renew.acknowledge.enable") == "true",
            share_dead_letter_topic: Some(text(DEAD_LETTER_TOPIC)).filter(|topic| !topic.is_empty()),
            share_key_ordered: text("mainstem.share.key.ordered") == "true",
            overrides,
            setters: Setters::new(),
        }
    }

    /// Who has named the topic for dead letters, as far as that is known.
    pub(crate) fn dead_letter_setter(&self) -> Option<&Setter> {
        self.setters.get(DEAD_LETTER_TOPIC)
    }
}

/// The settings of all groups that have their own, and those of the others.
pub(crate) struct GroupConfigs {
    of: RwLock<HashMap<String, Arc<GroupConfig>>>,
    default: Arc<GroupConfig>,
    /// Of memory that those in `of` take, about; and that they may take.
    bytes: AtomicUsize,
    bytes_max: AtomicUsize,
}

impl GroupConfigs {
    pub fn new(settings: &Settings) -> Self {
        let default = Arc::new(GroupConfig::new(BTreeMap::new(), settings));
        Self { of: RwLock::default(), default, bytes: AtomicUsize::new(0), bytes_max: AtomicUsize::new(usize::MAX) }
    }

    /// What there is of a group now; 0: it has no settings of its own.
    fn weight_of(&self, group: &str) -> usize {
        self.of.read().get(group).map_or(0, |config| weight(group, &config.overrides, &config.setters))
    }
}

/// Bytes of memory that settings of a group take, about: decoded, as text, and those that are compiled.
fn weight(group: &str, overrides: &Overrides, setters: &Setters) -> usize {
    if overrides.is_empty() {
        return 0;
    }
    let of_value = |name: &str, value: &str| {
        if [FILTER, FILTER_CLIENTS, LAGGARD_RULES].contains(&name) { COMPILED_TIMES * value.len() } else { value.len() }
    };
    let texts: usize = overrides.iter().map(|(name, value)| TEXT_BYTES + name.len() + of_value(name, value)).sum();
    CONFIG_BYTES + NAME_TIMES * group.len() + texts + setters.len() * SETTER_BYTES
}

fn encode(overrides: &Overrides, setters: &Setters) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(VERSION);
    overrides::encode(overrides, &mut out);
    out.put_u16(setters.len() as u16);
    for (name, setter) in setters {
        overrides::put_text(&mut out, name);
        setter.encode(&mut out);
    }
    out.freeze()
}

fn decode(mut bytes: &[u8]) -> Option<(Overrides, Setters)> {
    let version = bytes.try_get_u8().ok()?;
    if ![VERSION, VERSION_WITHOUT_SETTERS].contains(&version) {
        return None;
    }
    let (overrides, mut setters) = (overrides::decode(&mut bytes)?, Setters::new());
    if version == VERSION {
        for _ in 0..bytes.try_get_u16().ok()? {
            let name = overrides::take_text(&mut bytes)?;
            setters.insert(name, Setter::decode(&mut bytes)?);
        }
    }
    Some((overrides, setters))
}

/// Who has set what, after a change by `who`; `None`: the broker itself, whom nobody asks.
fn setters_then(before: &GroupConfig, change: &GroupChange, who: Option<&Setter>) -> Setters {
    let mut setters = before.setters.clone();
    for name in ACTING {
        let then = change.overrides.get(name).filter(|value| !value.trim().is_empty());
        let is_set = change.set.iter().any(|set| set == name) || then != before.overrides.get(name);
        match who {
            _ if then.is_none() => drop(setters.remove(name)),
            _ if !is_set => {}
            Some(who) => drop(setters.insert(name.to_owned(), who.clone())),
            None => drop(setters.remove(name)),
        }
    }
    setters
}

fn group_key(group: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(group.len() + 1);
    key.put_u8(GROUP_CONFIG_KEY);
    key.put_slice(group.as_bytes());
    key.freeze()
}

fn check(overrides: &BTreeMap<String, String>, settings: &Settings) -> Result<(), SettingError> {
    for (name, text) in overrides {
        find(GROUP, name)?.check(text)?;
        let refuse = |expected: String| Err(SettingError { name: name.clone(), value: Some(text.clone()), expected });
        let row = ROWS.iter().find(|row| row.setting.name == name);
        if let (Some(limits), Ok(number)) = (row.map(|row| row.limits), text.trim().parse::<i64>())
            && let Some((low, high)) = limits.range(settings)
            && !(low..=high).contains(&number)
        {
            return refuse(format!("it is from {}, which are {low} and {high}", limits.names()));
        }
        if name == "share.auto.offset.reset" && ShareStart::parse(text).is_none() {
            return refuse("it is earliest, latest, or by_duration: and a duration like P1DT2H3M4S".to_owned());
        }
        if name == DEAD_LETTER_TOPIC && !text.is_empty() {
            crate::check_topic_name(text).or_else(|rule| refuse(rule.to_owned()))?;
        }
        if name == LAGGARD_RULES {
            crate::quotas::laggard::check(text).or_else(refuse)?;
        }
        if name == FILTER
            && !text.is_empty()
            && let Err(error) = crate::filters::check(text)
        {
            let value = text.chars().take(FILTER_SHOWN).collect();
            return Err(SettingError { name: name.clone(), value: Some(value), expected: error.to_string() });
        }
    }
    let config = GroupConfig::new(overrides.clone(), settings);
    for (kind, times) in [("consumer", config.consumer), ("share", config.share), ("streams", config.streams.times)] {
        if times.heartbeat_interval >= times.session_timeout {
            let name = format!("{kind}.heartbeat.interval.ms");
            let expected = format!("it is less than {kind}.session.timeout.ms, which is {}", times.session_timeout);
            return Err(SettingError { name, value: Some(times.heartbeat_interval.to_string()), expected });
        }
    }
    Ok(())
}

impl Broker {
    /// What is in force for a group, whether there is one of this name or not.
    pub fn group_config(&self, group: &str) -> Arc<GroupConfig> {
        let configs = self.group_configs();
        configs.of.read().get(group).unwrap_or(&configs.default).clone()
    }

    /// Bytes of memory that settings of groups may take, about; what comes back from the journal at a start is taken whatever it weighs.
    pub fn bound_group_configs(&self, bytes: usize) {
        self.group_configs().bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of memory that they take, about.
    pub fn group_config_bytes(&self) -> usize {
        self.group_configs().bytes.load(Ordering::Relaxed)
    }

    /// Names of the groups that have settings of their own.
    pub fn configured_groups(&self) -> Vec<String> {
        self.group_configs().of.read().keys().cloned().collect()
    }

    /// The settings of a group in force, in the table's order.
    pub fn describe_group_config(&self, group: &str) -> Vec<(&'static Setting, GroupValue<'_>)> {
        self.describe_group_settings(group, |_| true)
    }

    /// The same of those that are wanted, by name; nothing is made of others.
    pub fn describe_group_settings(
        &self,
        group: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> Vec<(&'static Setting, GroupValue<'_>)> {
        let config = self.group_config(group);
        let rows = GROUP.iter().zip(ROWS).filter(|(setting, _)| wanted(setting.name));
        rows.map(|(setting, row)| (setting, value(row, &config.overrides, self.settings()))).collect()
    }

    /// Would these overrides be taken?
    ///
    /// # Errors
    /// `Setting`.
    pub fn check_group_config(&self, overrides: &BTreeMap<String, String>) -> Result<(), AlterError> {
        Ok(check(overrides, self.settings())?)
    }

    /// Replaces the overrides of groups, each for itself, with one commit for all; an outcome for each. No group is there twice. `who` asks for it; `None`: the
    /// broker itself. On the controller's thread.
    pub fn set_group_configs(&self, groups: Vec<GroupChange>, who: Option<&Setter>) -> Vec<Result<(), AlterError>> {
        let (mut items, configs) = (Vec::new(), self.group_configs());
        let mut left = configs.bytes_max.load(Ordering::Relaxed).saturating_sub(configs.bytes.load(Ordering::Relaxed));
        let checked: Vec<Result<(String, Overrides, Setters), AlterError>> = groups
            .into_iter()
            .map(|change| {
                self.check_group_config(&change.overrides)?;
                let setters = setters_then(&self.group_config(&change.group), &change, who);
                let (before, now) =
                    (configs.weight_of(&change.group), weight(&change.group, &change.overrides, &setters));
                let more = now.saturating_sub(before);
                if more > left {
                    return Err(AlterError::NoMemory);
                }
                left -= more;
                let GroupChange { group, overrides, .. } = change;
                let value = (!overrides.is_empty()).then(|| encode(&overrides, &setters));
                items.push(AppendItem::State { key: group_key(&group), value });
                Ok((group, overrides, setters))
            })
            .collect();
        let committed = if items.is_empty() { Ok(()) } else { self.commit(0, items) };
        let put = |outcome: Result<(String, Overrides, Setters), AlterError>| {
            let (group, overrides, setters) = outcome?;
            committed?;
            self.put_group_config(&group, overrides, setters);
            Ok(())
        };
        checked.into_iter().map(put).collect()
    }

    /// Puts overrides in force that are durable.
    fn put_group_config(&self, group: &str, overrides: BTreeMap<String, String>, setters: Setters) {
        let configs = self.group_configs();
        configs.bytes.fetch_add(weight(group, &overrides, &setters), Ordering::Relaxed);
        configs.bytes.fetch_sub(configs.weight_of(group), Ordering::Relaxed);
        let text = |name: &str| overrides.get(name).map_or("", |value| value.trim());
        self.filters().set(group, text(FILTER), text(FILTER_CLIENTS));
        if self.quotas().laggards().set(group, text(LAGGARD_RULES), setters.get(LAGGARD_RULES)) {
            self.quotas().changed();
        }
        if overrides.is_empty() {
            configs.of.write().remove(group);
            self.groups().set_times(group, None);
            return;
        }
        let config = Arc::new(GroupConfig { setters, ..GroupConfig::new(overrides, self.settings()) });
        self.groups().set_times(group, Some(&config));
        configs.of.write().insert(group.to_owned(), config);
    }

    /// Puts a record back at start.
    pub(crate) fn restore_group_config(&self, key: &[u8], value: &[u8]) {
        match (std::str::from_utf8(&key[1..]), decode(value)) {
            (Ok(group), Some((overrides, setters))) => self.put_group_config(group, overrides, setters),
            _ => tracing::warn!(key = %key.escape_ascii(), "settings of a group are not readable by this release"),
        }
    }
}

#[cfg(test)]
mod tests;
