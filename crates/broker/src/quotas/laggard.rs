//! Rules for groups that are far behind, after TubeMQ's flow control: whoever reads old records at full speed takes disk, memory and
//! network from those who are up to date. A rule says from which lag on, and at which time of day, a group gets only so much a minute.
//!
//! ```text
//! rules   rule { ";" rule }                              group setting `mainstem.laggard.rules`
//! rule    [ HH:MM "-" HH:MM ] lag rate                   words; times are UTC, the second may be before the first (over midnight)
//! lag     "lag>" ( size | number "records" )             sizes as `1GiB`; in bytes a lag is an estimate from the mean size of records
//! rate    size "/min"
//! ```
//!
//! For example `08:00-18:00 lag>1GiB 600MiB/min; lag>10GiB 60MiB/min`. Of the rules that apply the one with the lowest rate counts. All
//! members of the group share it. Members that read partitions of their own are heard of one by one, and their lags are added up; of a share
//! group, whose members read the same partitions, the lag is looked up as a whole. Of queues each has a lag and an account of its own, of
//! streams each consumer (`Single`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use delivery::ConsumerId;
use hashbrown::HashMap;
use journal::Log;
use parking_lot::{Mutex, RwLock};
use types::{ByteSize, ConnectionId, TopicId};

use super::Account;
use crate::Setter;

/// What a member was heard of counts for so long.
const HEARD_FOR: Duration = Duration::from_secs(30);
/// How far a share group is behind is looked up so often.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Whoever reads slowly keeps credit for no longer.
const CREDIT: Duration = Duration::from_secs(1);
/// Rules of a group.
const RULES_MAX: usize = 16;
const MINUTES_A_DAY: u32 = 24 * 60;

/// How far behind somebody is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Records.
    pub records: u64,
    /// Bytes, about.
    pub bytes: u64,
}

impl Lag {
    /// So many records of a log; their bytes by the mean size of all.
    pub fn in_log(log: &Log, behind: u64) -> Self {
        let records = log.high_watermark().0.saturating_sub(log.start().0).max(1);
        Self { records: behind, bytes: (behind as f64 * log.live_bytes() as f64 / records as f64) as u64 }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { records: self.records.saturating_add(other.records), bytes: self.bytes.saturating_add(other.bytes) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beyond {
    Records(u64),
    Bytes(u64),
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    /// Minutes of the day, the second excluded.
    hours: Option<(u32, u32)>,
    beyond: Beyond,
    bytes_a_minute: u64,
}

impl Rule {
    fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace().peekable();
        let hours = words.next_if(|word| word.contains(':')).map(hours).transpose()?;
        let lag = words
            .next()
            .and_then(|word| word.strip_prefix("lag>"))
            .ok_or_else(|| format!("{text:?} has no lag, like lag>1GiB"))?;
        let beyond = if words.next_if_eq(&"records").is_some() || lag.ends_with("records") {
            let number = lag.trim_end_matches("records");
            Beyond::Records(number.parse().map_err(|_| format!("{lag:?} is not a number of records"))?)
        } else {
            Beyond::Bytes(lag.parse::<ByteSize>().map_err(|error| error.to_string())?.bytes())
        };
        let rate = words
            .next()
            .and_then(|word| word.strip_suffix("/min"))
            .ok_or_else(|| format!("{text:?} has no rate, like 60MiB/min"))?;
        let bytes_a_minute = rate.parse::<ByteSize>().map_err(|error| error.to_string())?.bytes();
        if bytes_a_minute == 0 {
            return Err("a group gets at least 1 byte a minute".to_owned());
        }
        match words.next() {
            Some(more) => Err(format!("{more:?} does not belong to a rule")),
            None => Ok(Self { hours, beyond, bytes_a_minute }),
        }
    }

    fn applies(&self, lag: Lag, minute: u32) -> bool {
        let within = |(from, until)| {
            if from <= until { (from..until).contains(&minute) } else { minute >= from || minute < until }
        };
        self.hours.is_none_or(within)
            && match self.beyond {
                Beyond::Records(records) => lag.records > records,
                Beyond::Bytes(bytes) => lag.bytes > bytes,
            }
    }
}

fn hours(text: &str) -> Result<(u32, u32), String> {
    let minute = |text: &str| {
        let (hour, minute) = text.split_once(':')?;
        let (hour, minute) = (hour.parse::<u32>().ok()?, minute.parse::<u32>().ok()?);
        (hour < 24 && minute < 60 || (hour, minute) == (24, 0)).then_some(hour * 60 + minute)
    };
    let found = text.split_once('-').and_then(|(from, until)| Some((minute(from)?, minute(until)?)));
    found.ok_or_else(|| format!("{text:?} is not a time of day, like 08:00-18:00"))
}

fn parse(text: &str) -> Result<Vec<Rule>, String> {
    let rules: Vec<Rule> =
        text.split(';').map(str::trim).filter(|text| !text.is_empty()).map(Rule::parse).collect::<Result<_, _>>()?;
    if rules.len() > RULES_MAX { Err(format!("a group has at most {RULES_MAX} rules")) } else { Ok(rules) }
}

/// Are these rules?
///
/// # Errors
/// What is wrong with the first that is none.
pub(crate) fn check(text: &str) -> Result<(), String> {
    parse(text).map(drop)
}

#[derive(Debug, Default)]
struct Heard {
    members: HashMap<ConnectionId, (Lag, Instant)>,
    /// Of a share group as a whole.
    whole: Option<(Lag, Instant)>,
    /// The rate in force, in bytes a minute.
    account: Option<(u64, Arc<Account>)>,
}

impl Heard {
    /// It was heard of lately, or waits until something is paid for, which may be long.
    fn counts(&self, now: Instant) -> bool {
        let lately = self.whole.is_some_and(|(_, at)| now.saturating_duration_since(at) < HEARD_FOR);
        lately || self.account.as_ref().is_some_and(|(_, account)| !account.debt(now).is_zero())
    }
}

/// Who is under the rules of a group that names no members, each for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Single {
    /// A queue, whose consumers share what it may give out.
    Queue(TopicId),
    /// A consumer of a stream.
    StreamConsumer(ConsumerId),
}

/// A group that has rules.
#[derive(Debug)]
pub struct Laggard {
    /// Its name.
    pub group: String,
    /// Who has set the rules, as far as that is known.
    pub(crate) setter: Option<Setter>,
    rules: Vec<Rule>,
    heard: Mutex<Heard>,
    singles: Mutex<HashMap<Single, Heard>>,
}

impl Laggard {
    /// A member is this far behind; `now_ms` since 1970. The account of the group, if a rule applies to it.
    pub fn hear(&self, connection: ConnectionId, lag: Lag, now: Instant, now_ms: i64) -> Option<Arc<Account>> {
        let mut heard = self.heard.lock();
        heard.members.insert(connection, (lag, now));
        heard.members.retain(|_, (_, at)| now.saturating_duration_since(*at) < HEARD_FOR);
        let sum = heard.members.values().fold(Lag::default(), |sum, (lag, _)| sum.plus(*lag));
        self.judge(&mut heard, sum, now, now_ms)
    }

    /// A member of a share group reads; `lag` finds out how far the group is behind, and is asked now and then only. As [`Laggard::hear`].
    pub fn hear_share_group(&self, lag: impl FnOnce() -> Lag, now: Instant, now_ms: i64) -> Option<Arc<Account>> {
        self.hear_whole(&mut self.heard.lock(), lag, now, now_ms)
    }

    /// Messages are given out, as [`Laggard::hear_share_group`].
    pub(crate) fn hear_single(
        &self,
        single: Single,
        lag: impl FnOnce() -> Lag,
        now: Instant,
        now_ms: i64,
    ) -> Option<Arc<Account>> {
        let mut singles = self.singles.lock();
        if !singles.contains_key(&single) {
            singles.retain(|_, heard| heard.counts(now));
        }
        self.hear_whole(singles.entry(single).or_default(), lag, now, now_ms)
    }

    fn hear_whole(
        &self,
        heard: &mut Heard,
        lag: impl FnOnce() -> Lag,
        now: Instant,
        now_ms: i64,
    ) -> Option<Arc<Account>> {
        let known = heard.whole.filter(|(_, at)| now.saturating_duration_since(*at) < LOOK_AGAIN);
        let (lag, _) = *heard.whole.insert(known.unwrap_or_else(|| (lag(), now)));
        self.judge(heard, lag, now, now_ms)
    }

    fn judge(&self, heard: &mut Heard, sum: Lag, now: Instant, now_ms: i64) -> Option<Arc<Account>> {
        let minute = (now_ms / 60_000).rem_euclid(i64::from(MINUTES_A_DAY)) as u32;
        let rate = self.rules.iter().filter(|rule| rule.applies(sum, minute)).map(|rule| rule.bytes_a_minute).min();
        let Some(rate) = rate else {
            heard.account = None;
            return None;
        };
        match &heard.account {
            Some((of, account)) if *of == rate => Some(Arc::clone(account)),
            _ => {
                let account = Arc::new(Account::new(rate as f64 / 60.0, CREDIT, false, now));
                heard.account = Some((rate, Arc::clone(&account)));
                Some(account)
            }
        }
    }
}

impl Laggard {
    /// What limits the group, if a rule applied when a member was heard of last.
    pub fn account(&self) -> Option<Arc<Account>> {
        self.heard.lock().account.as_ref().map(|(_, account)| Arc::clone(account))
    }
}

/// The groups that have rules.
#[derive(Debug, Default)]
pub struct Laggards {
    any: AtomicBool,
    groups: RwLock<HashMap<String, Arc<Laggard>>>,
}

impl Laggards {
    /// Has any group rules?
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Those of a group.
    pub fn of_group(&self, group: &str) -> Option<Arc<Laggard>> {
        self.groups.read().get(group).cloned()
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<Laggard>> {
        self.groups.read().values().cloned().collect()
    }

    /// Gives a group rules; none: takes them away. True if that is a change. Text that was checked.
    pub(crate) fn set(&self, group: &str, text: &str, setter: Option<&Setter>) -> bool {
        let rules = parse(text).unwrap_or_default();
        let mut groups = self.groups.write();
        let known = groups.get(group);
        let changed = known.map_or(&[][..], |known| &known.rules) != rules.as_slice()
            || known.is_some_and(|known| known.setter.as_ref() != setter);
        if changed && rules.is_empty() {
            groups.remove(group);
        } else if changed {
            let laggard = Laggard {
                group: group.to_owned(),
                setter: setter.cloned(),
                rules,
                heard: Mutex::default(),
                singles: Mutex::default(),
            };
            groups.insert(group.to_owned(), Arc::new(laggard));
        }
        self.any.store(!groups.is_empty(), Ordering::Relaxed);
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_or_refused_with_a_reason() {
        let rules =
            parse("08:00-18:30 lag>1GiB 600MiB/min; lag>5 records 1KiB/min;lag>7records 9/min; ").expect("rules");
        assert_eq!(
            rules[0],
            Rule { hours: Some((480, 1110)), beyond: Beyond::Bytes(1 << 30), bytes_a_minute: 600 << 20 }
        );
        assert_eq!(rules[1], Rule { hours: None, beyond: Beyond::Records(5), bytes_a_minute: 1024 });
        assert_eq!((rules[2].beyond, rules.len()), (Beyond::Records(7), 3));
        assert_eq!(parse(""), Ok(Vec::new()));
        let of_time = ["25:00-26:00 lag>1 1/min", "08:00 lag>1 1/min"];
        for wrong in ["lag>1GiB", "1GiB 1MiB/min", "lag>1 0/min", "lag>x 1/min", "lag>1 1/min more", "lag>1 1/s"]
            .into_iter()
            .chain(of_time)
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(check(&"lag>1 1/min;".repeat(17)).is_err());
    }

    #[test]
    fn the_lowest_rate_that_applies_counts_for_the_whole_group() {
        let laggards = Laggards::default();
        assert!(
            laggards.set("g", "08:00-18:00 lag>100 600/min; lag>1000 60/min; 22:00-02:00 lag>0 records 1/min", None)
                && laggards.any()
        );
        assert!(!laggards.set(
            "g",
            "08:00-18:00  lag>100 600/min; lag>1000 60/min; 22:00-02:00 lag>0 records 1/min",
            None
        ));
        let (laggard, start) = (laggards.of_group("g").expect("rules"), Instant::now());
        let hear = |connection, bytes, hour: i64, after: u64| {
            let lag = Lag { records: bytes / 10, bytes };
            laggard
                .hear(ConnectionId(connection), lag, start + Duration::from_secs(after), hour * 3_600_000)
                .map(|account| account.rate())
        };
        assert_eq!((hear(1, 100, 12, 0), hear(1, 101, 12, 0), hear(1, 101, 20, 0)), (None, Some(10.0), None));
        assert_eq!((hear(2, 1001, 12, 0), hear(1, 0, 12, 0)), (Some(1.0), Some(1.0)), "members are added up");
        assert_eq!(hear(1, 0, 12, 31), None, "who is not heard any more does not count");
        assert_eq!(
            (hear(1, 10, 23, 31), hear(1, 10, 1, 31), hear(1, 10, 3, 31)),
            (Some(1.0 / 60.0), Some(1.0 / 60.0), None)
        );
        assert!(laggards.set("g", "", None) && !laggards.any());
    }

    #[test]
    fn who_owes_is_not_forgotten_while_others_come() {
        let laggards = Laggards::default();
        assert!(laggards.set("g", "lag>100 60/min", None));
        let (laggard, start) = (laggards.of_group("g").expect("rules"), Instant::now());
        let hear = |consumer, after: u64| {
            let lag = || Lag { records: 1000, bytes: 1000 };
            let single = Single::StreamConsumer(ConsumerId(consumer));
            laggard.hear_single(single, lag, start + Duration::from_secs(after), 0).expect("it is behind")
        };
        assert_eq!(hear(1, 0).take(100, start), Duration::from_secs(100));
        hear(2, 0);
        hear(3, 50);
        assert_eq!(laggard.singles.lock().len(), 2, "who owes nothing goes");
        assert_eq!(hear(1, 50).debt(start + Duration::from_secs(50)), Duration::from_secs(50));
    }
}
