//! Transactions: who is fenced, what ends how, and that a restart at any step changes nothing.

use std::collections::BTreeMap;

use bytes::Bytes;
use delivery::{
    Change, Claim, Commit, CommittedOffset, Ended, Ending, FoundOpen, Initialised, ProducerEpoch,
    TransactionCoordinator, TransactionError, TransactionRecord, TransactionSettings, TransactionState, Version,
};
use types::LogId;

const ID: &str = "orders";
const TIMEOUT: i32 = 60_000;
const RECORD_BYTES_MAX: usize = 4 << 20;

/// A coordinator, what it has made durable, and the time.
struct Desk {
    coordinator: TransactionCoordinator,
    records: BTreeMap<Bytes, Bytes>,
    now: u64,
    next_producer: i64,
}

impl Desk {
    fn new() -> Self {
        let settings = TransactionSettings {
            timeout_max: 900_000,
            id_expiration: 604_800_000,
            record_bytes_max: RECORD_BYTES_MAX,
        };
        Self {
            coordinator: TransactionCoordinator::new(settings),
            records: BTreeMap::new(),
            now: 1_000_000,
            next_producer: 40,
        }
    }

    /// What a coordinator knows that starts from what is durable.
    fn restart(&mut self) {
        let mut fresh = Self::new();
        for (key, value) in &self.records {
            assert!(fresh.coordinator.restore(key, value), "{key:?}");
        }
        self.coordinator = fresh.coordinator;
        let unneeded = self.coordinator.restored();
        unneeded.iter().for_each(|key| _ = self.records.remove(key));
    }

    fn keep_change(&mut self, Change { key, value, whole }: Change) {
        self.records.insert(key, value);
        let contained = whole.map_or_else(Vec::new, |whole| self.coordinator.written(&whole));
        contained.iter().for_each(|key| assert!(self.records.remove(key).is_some(), "{key:?}"));
    }

    fn keep(&mut self, (key, value): TransactionRecord) {
        match value {
            Some(value) => self.records.insert(key, value),
            None => self.records.remove(&key),
        };
    }

    fn fresh(&mut self) -> Option<i64> {
        self.coordinator.wants_producer_id(ID).then(|| {
            self.next_producer += 1;
            self.next_producer
        })
    }

    fn init_as(&mut self, expected: Option<ProducerEpoch>) -> Result<ProducerEpoch, TransactionError> {
        let fresh = self.fresh();
        match self.coordinator.init(ID, TIMEOUT, expected, fresh, self.now)? {
            Initialised::Granted(producer, record) => {
                self.keep(record);
                Ok(producer)
            }
            Initialised::Unchanged(producer) => Ok(producer),
            Initialised::Aborting(ending) => {
                assert!(!ending.commit);
                self.carry_out(&ending);
                Err(TransactionError::Concurrent)
            }
        }
    }

    fn init(&mut self) -> ProducerEpoch {
        self.init_as(None).unwrap()
    }

    fn write(&mut self, producer: ProducerEpoch, log: u64) {
        let record = self.coordinator.add_logs(claim(producer), [LogId(log)], self.now).unwrap();
        if let Some(record) = record {
            self.keep_change(record);
        }
    }

    /// Whether an id has this producer.
    fn found_open(&mut self, log: u64, producer_id: i64) -> bool {
        self.coordinator.found_open([FoundOpen { log: LogId(log), producer_id, since: self.now }]).is_empty()
    }

    fn carry_out(&mut self, ending: &Ending) {
        self.keep(ending.prepare.clone());
        ending.unneeded.iter().for_each(|key| _ = self.records.remove(key));
        self.keep(ending.complete.clone());
        self.coordinator.complete(&ending.id);
    }

    fn end(
        &mut self,
        producer: ProducerEpoch,
        commit: bool,
        version: Version,
    ) -> Result<(Option<Ending>, ProducerEpoch), TransactionError> {
        let fresh = self.fresh();
        Ok(match self.coordinator.end(claim(producer), commit, version, fresh, self.now)? {
            Ended::Already(next) => (None, next),
            Ended::Ending(ending, next) => (Some(*ending), next),
        })
    }

    fn state(&self) -> TransactionState {
        self.coordinator.describe(ID).unwrap().state
    }
}

fn claim(producer: ProducerEpoch) -> Claim<'static> {
    Claim { id: ID, producer }
}

fn offset(number: i64) -> Commit {
    let offset = CommittedOffset { offset: number, leader_epoch: -1, metadata: String::new(), committed_at: 1 };
    Commit { topic: "t".to_owned(), partition: 0, offset }
}

#[test]
fn each_initialisation_fences_the_producer_before() {
    let mut desk = Desk::new();
    let first = desk.init();
    assert_eq!(first, (41, 0));
    let second = desk.init();
    assert_eq!(second, (41, 1));
    assert_eq!(desk.coordinator.add_logs(claim(first), [LogId(1)], desk.now).err(), Some(TransactionError::Fenced));
    assert_eq!(desk.end(first, true, Version::V1).err(), Some(TransactionError::Fenced));
    assert_eq!(
        desk.coordinator.add_logs(claim((9, 1)), [LogId(1)], desk.now).err(),
        Some(TransactionError::UnknownProducer)
    );
    assert_eq!(
        desk.coordinator.add_logs(Claim { id: "nobody", producer: first }, [LogId(1)], desk.now).err(),
        Some(TransactionError::UnknownProducer)
    );
    assert_eq!(
        desk.coordinator.add_logs(Claim { id: "", producer: first }, [LogId(1)], desk.now).err(),
        Some(TransactionError::InvalidId)
    );
    desk.restart();
    assert_eq!(desk.init(), (41, 2));
}

#[test]
fn a_new_producer_aborts_what_the_old_one_left_open() {
    let mut desk = Desk::new();
    let old = desk.init();
    desk.write(old, 7);
    let gate = desk.coordinator.verify_logs(claim(old), [LogId(7)]).unwrap();
    assert_eq!(desk.init_as(None), Err(TransactionError::Concurrent), "the client comes again");
    assert!(gate.is_closed());
    assert_eq!(desk.state(), TransactionState::CompleteAbort);
    assert_eq!(desk.init(), (41, 2), "the abort took epoch 1");
    assert_eq!(desk.coordinator.verify_logs(claim(old), [LogId(7)]).err(), Some(TransactionError::Fenced));
}

#[test]
fn the_first_protocol_keeps_the_epoch_and_the_second_raises_it() {
    let mut desk = Desk::new();
    let producer = desk.init();
    desk.write(producer, 7);
    let (ending, next) = desk.end(producer, true, Version::V1).unwrap();
    let ending = ending.unwrap();
    assert_eq!((ending.commit, ending.producer, next), (true, producer, producer));
    assert_eq!(ending.logs, [LogId(7)]);
    assert_eq!(desk.end(producer, true, Version::V1).err(), Some(TransactionError::Concurrent));
    desk.carry_out(&ending);
    assert_eq!(desk.end(producer, true, Version::V1).unwrap().1, producer, "a repeated request is answered");
    assert_eq!(desk.end(producer, false, Version::V1).err(), Some(TransactionError::InvalidState));

    desk.write(producer, 8);
    let (ending, next) = desk.end(producer, false, Version::V2).unwrap();
    let ending = ending.unwrap();
    assert_eq!((ending.commit, ending.producer, next), (false, (41, 1), (41, 1)));
    desk.carry_out(&ending);
    assert_eq!(desk.end(producer, false, Version::V2).unwrap().1, next, "its answer was lost");
    assert_eq!(desk.end(producer, true, Version::V2).err(), Some(TransactionError::InvalidState));
    assert_eq!(desk.coordinator.add_logs(claim(producer), [LogId(1)], desk.now).err(), Some(TransactionError::Fenced));
    desk.write(next, 9);
    assert_eq!(desk.end(producer, false, Version::V2).err(), Some(TransactionError::Fenced), "the next one has begun");
}

#[test]
fn an_epoch_that_runs_out_is_followed_by_a_new_producer_id() {
    let mut desk = Desk::new();
    let mut producer = desk.init();
    while producer.1 < i16::MAX - 1 {
        desk.write(producer, 1);
        let (ending, next) = desk.end(producer, true, Version::V2).unwrap();
        desk.carry_out(&ending.unwrap());
        producer = next;
    }
    desk.write(producer, 1);
    let (ending, next) = desk.end(producer, true, Version::V2).unwrap();
    let ending = ending.unwrap();
    assert_eq!(ending.producer, (41, i16::MAX), "markers are those of the producer that wrote");
    assert_eq!(next, (42, 0));
    desk.keep(ending.prepare.clone());
    desk.restart();
    assert_eq!(desk.coordinator.unfinished()[0].producer, (41, i16::MAX));
    assert!(desk.found_open(1, 41), "the log knows the old id");
}

#[test]
fn a_decision_is_carried_out_after_a_restart_and_nothing_else_happens_before() {
    for commit in [true, false] {
        let mut desk = Desk::new();
        let producer = desk.init();
        desk.write(producer, 7);
        let record =
            desk.coordinator.add_offsets(claim(producer), "readers", vec![offset(5)], Version::V2, desk.now).unwrap();
        desk.keep_change(record);
        let (ending, _) = desk.end(producer, commit, Version::V1).unwrap();
        desk.keep(ending.unwrap().prepare);
        desk.restart();
        assert_eq!(desk.init_as(None), Err(TransactionError::Concurrent));
        assert_eq!(
            desk.coordinator.holds_offset("readers", "t", 0),
            commit,
            "those of an abort take no effect any more"
        );
        let left = desk.coordinator.unfinished();
        assert_eq!((left.len(), left[0].commit, left[0].logs.as_slice()), (1, commit, &[LogId(7)][..]));
        assert_eq!(left[0].offsets.len(), usize::from(commit), "offsets of an aborted transaction take no effect");
        desk.carry_out(&left[0]);
        assert!(!desk.coordinator.holds_offset("readers", "t", 0));
        assert_eq!(desk.init(), (41, 1));
    }
}

#[test]
fn offsets_wait_for_the_end_and_need_their_group() {
    let mut desk = Desk::new();
    let producer = desk.init();
    let add = |desk: &mut Desk, version| {
        desk.coordinator.add_offsets(claim(producer), "readers", vec![offset(5)], version, desk.now)
    };
    assert_eq!(add(&mut desk, Version::V1).err(), Some(TransactionError::InvalidState));
    assert!(desk.coordinator.add_group(claim(producer), "readers", desk.now).unwrap().is_some());
    assert!(desk.coordinator.add_group(claim(producer), "readers", desk.now).unwrap().is_none());
    assert!(!desk.coordinator.holds_offset("readers", "t", 0));
    assert!(add(&mut desk, Version::V1).is_ok());
    assert!(desk.coordinator.holds_offset("readers", "t", 0));
    assert!(!desk.coordinator.holds_offset("readers", "t", 1) && !desk.coordinator.holds_offset("others", "t", 0));
    let (ending, _) = desk.end(producer, true, Version::V1).unwrap();
    let ending = ending.unwrap();
    assert_eq!(
        ending.offsets.iter().map(|(group, commit)| (group.as_str(), commit.offset.offset)).collect::<Vec<_>>(),
        [("readers", 5)]
    );
    desk.carry_out(&ending);
    assert!(!desk.coordinator.holds_offset("readers", "t", 0));
}

#[test]
fn what_is_open_for_too_long_is_aborted_and_its_producer_fenced() {
    let mut desk = Desk::new();
    let producer = desk.init();
    desk.write(producer, 7);
    assert_eq!(desk.coordinator.next_deadline(), Some(desk.now + TIMEOUT as u64));
    desk.now += TIMEOUT as u64 - 1;
    assert!(desk.coordinator.handle_timeouts(desk.now).is_empty());
    desk.now += 1;
    let endings = desk.coordinator.handle_timeouts(desk.now);
    assert_eq!((endings.len(), endings[0].commit, endings[0].producer), (1, false, (41, 1)));
    desk.carry_out(&endings[0]);
    assert_eq!(desk.coordinator.next_deadline(), None);
    assert_eq!(desk.end(producer, true, Version::V1).err(), Some(TransactionError::Fenced));
    assert_eq!(desk.init_as(Some(producer)), Err(TransactionError::Fenced));
}

/// Logs that were added by what was written are not in the record: after a restart they are found in the logs.
#[test]
fn records_in_logs_tell_after_a_restart_what_was_under_way() {
    let mut desk = Desk::new();
    let producer = desk.init();
    let (_, new) = desk.coordinator.enter_logs(claim(producer), [LogId(7), LogId(8)], desk.now).unwrap();
    assert!(new);
    desk.restart();
    assert_eq!(desk.state(), TransactionState::Empty);
    assert!(desk.found_open(8, producer.0));
    assert!(!desk.found_open(9, 1234), "a producer of nobody");
    assert_eq!(desk.state(), TransactionState::Ongoing);
    assert_eq!(desk.coordinator.next_deadline(), Some(desk.now + TIMEOUT as u64));
    let (ending, _) = desk.end(producer, true, Version::V2).unwrap();
    assert_eq!(ending.unwrap().logs, [LogId(8)]);
}

#[test]
fn a_client_that_says_who_it_was_is_checked() {
    let mut desk = Desk::new();
    let producer = desk.init();
    let next = desk.init_as(Some(producer)).unwrap();
    assert_eq!(next, (41, 1));
    assert_eq!(desk.init_as(Some(producer)).unwrap(), next, "its answer was lost");
    assert_eq!(desk.init_as(Some((41, 7))), Err(TransactionError::Fenced));
    assert_eq!(desk.init_as(Some((9, 1))), Err(TransactionError::Fenced));
}

#[test]
fn limits_hold_and_ids_that_nobody_uses_are_forgotten() {
    let mut desk = Desk::new();
    for timeout in [0, -1, 900_001] {
        assert_eq!(
            desk.coordinator.init(ID, timeout, None, Some(1), desk.now).err(),
            Some(TransactionError::InvalidTimeout)
        );
    }
    let producer = desk.init();
    desk.write(producer, 7);
    desk.now += 604_800_000;
    assert_eq!(desk.coordinator.expire(desk.now, None, 10), (vec![], None), "a transaction is open");
    let ending = desk.coordinator.handle_timeouts(desk.now).remove(0);
    desk.carry_out(&ending);
    assert_eq!(desk.coordinator.expire(desk.now + 604_799_999, None, 10), (vec![], None));
    assert_eq!(desk.coordinator.expire(desk.now + 604_800_000, None, 10).0.len(), 1);
    assert_eq!(desk.init(), (42, 0));
}

#[test]
fn ids_are_forgotten_in_pieces_and_each_is_looked_at_once() {
    let mut coordinator = TransactionCoordinator::new(TransactionSettings {
        timeout_max: 1_000,
        id_expiration: 10_000,
        record_bytes_max: RECORD_BYTES_MAX,
    });
    for number in 0..1_000_u64 {
        // Every third was used late.
        let now = if number % 3 == 0 { 5_000 } else { 0 };
        coordinator.init(&number.to_string(), 1_000, None, Some(number as i64), now).expect("a new id");
    }
    // Who lists them meanwhile meets each id that stays once.
    let (mut at, mut removed, mut listed) = (None, Vec::new(), Vec::new());
    loop {
        let (keys, next) = coordinator.expire(10_000, at.as_deref(), 64);
        assert!(keys.len() <= 64, "no more than were to be looked at");
        removed.extend(keys);
        at = next;
        let more: Vec<String> =
            coordinator.after(listed.last().map(String::as_str), 50).map(|(id, _)| id.to_string()).collect();
        listed.extend(more);
        if at.is_none() {
            break;
        }
    }
    let left: Vec<String> = coordinator.after(None, 1_000).map(|(id, _)| id.to_string()).collect();
    assert_eq!((removed.len(), left.len(), coordinator.count()), (666, 334, 334));
    assert!(left.iter().all(|id| id.parse::<u64>().expect("a number") % 3 == 0));
    listed.retain(|id| left.contains(id));
    let behind: Vec<&String> = left.iter().filter(|id| listed.last().is_some_and(|last| *id <= last)).collect();
    assert_eq!(listed.iter().collect::<Vec<_>>(), behind);
}

/// A transaction that writes to one log after the other is not written down whole for each of them, and at start ids are not looked
/// through for each log.
#[test]
fn transactions_with_many_logs_and_many_ids_cost_what_they_hold() {
    const LOGS: u64 = 50_000;
    let mut desk = Desk::new();
    let producer = desk.init();
    let began = std::time::Instant::now();
    for log in 0..LOGS {
        let (gate, new) = desk.coordinator.enter_logs(claim(producer), [LogId(log)], desk.now).unwrap();
        assert!(new && !gate.is_closed());
    }
    assert!(!desk.coordinator.enter_logs(claim(producer), (0..LOGS).map(LogId), desk.now).unwrap().1, "they are there");
    let (ending, _) = desk.end(producer, true, Version::V2).unwrap();
    assert_eq!(ending.unwrap().logs.len(), LOGS as usize);
    desk.restart();
    for number in 0..2000 {
        desk.coordinator.init(&format!("id-{number}"), TIMEOUT, None, Some(1000 + number), desk.now).unwrap();
    }
    let found =
        (0..LOGS).map(|log| FoundOpen { log: LogId(log), producer_id: 1000 + (log % 2001) as i64, since: desk.now });
    assert_eq!(desk.coordinator.found_open(found).into_iter().collect::<Vec<_>>(), [3000]);
    assert_eq!(desk.coordinator.describe("id-1").map(|known| known.logs.len()), Some(LOGS as usize / 2001 + 1));
    assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?}", began.elapsed());
}

#[test]
fn ids_and_what_their_transactions_hold_are_counted_and_bounded() {
    let mut desk = Desk::new();
    let (long, max) = ("i".repeat(30_000), 1 << 20);
    desk.coordinator.set_bytes_max(max);
    let take = |desk: &mut Desk, number: usize| {
        let initialised =
            desk.coordinator.init(&format!("{number:05}{long}"), TIMEOUT, None, Some(number as i64), desk.now)?;
        let Initialised::Granted(_, record) = initialised else { panic!("{initialised:?}") };
        desk.keep(record);
        Ok(())
    };
    let refused = (0..100).find_map(|number| take(&mut desk, number).err().map(|error| (number, error)));
    assert_eq!(refused, Some((17, TransactionError::NoMemory)), "17 ids of 30 kB are a mebibyte, twice in memory");
    assert_eq!((desk.coordinator.count(), desk.coordinator.refused_for_memory()), (17, 1));

    // Who is there goes on, within a quarter more.
    let id = format!("00000{long}");
    let claim = Claim { id: &id, producer: (0, 0) };
    desk.coordinator.add_logs(claim, [LogId(1)], desk.now).expect("it is there");
    let committed = CommittedOffset { offset: 1, leader_epoch: 0, metadata: "m".repeat(4000), committed_at: 1 };
    let offset = |partition| Commit { topic: "t".to_owned(), partition, offset: committed.clone() };
    let add = |desk: &mut Desk, partition| {
        desk.coordinator.add_offsets(claim, "g", vec![offset(partition)], Version::V2, desk.now).map(drop)
    };
    let refused = (0..1000).find_map(|partition| add(&mut desk, partition).err().map(|error| (partition, error)));
    let Some((taken, TransactionError::NoMemory)) = refused else { panic!("{refused:?}") };
    assert!((max + max / 5..max + max / 4).contains(&desk.coordinator.bytes()), "{}", desk.coordinator.bytes());
    assert_eq!(add(&mut desk, taken - 1), Ok(()), "in place of what is there");
    let logs = (0..100_000).map(LogId);
    assert!(matches!(desk.coordinator.enter_logs(claim, logs, desk.now), Err(TransactionError::NoMemory)));
    assert_eq!(
        desk.coordinator.enter_logs(claim, [LogId(1)], desk.now).map(|(_, new)| new).ok(),
        Some(false),
        "it has that"
    );

    // A start takes what there was, and what is over is given back.
    let before = desk.coordinator.bytes();
    let record = desk.coordinator.add_offsets(claim, "g", vec![offset(0)], Version::V2, desk.now).expect("taken");
    desk.keep_change(record);
    desk.restart();
    assert_eq!(desk.coordinator.bytes(), before);
    desk.coordinator.set_bytes_max(max / 2);
    assert!(take(&mut desk, 200).is_err());
    assert!(add(&mut desk, 999).is_err());

    // An id that was brought back can have a small transaction.
    let id = format!("00001{long}");
    let small = Claim { id: &id, producer: (1, 0) };
    assert_eq!(desk.coordinator.enter_logs(small, (0..8).map(LogId), desk.now).map(|(_, new)| new).ok(), Some(true));
    assert!(matches!(
        desk.coordinator.enter_logs(small, (0..100).map(LogId), desk.now),
        Err(TransactionError::NoMemory)
    ));
    let ended = desk.coordinator.end(small, true, Version::V2, None, desk.now).expect("open");
    let Ended::Ending(ending, _) = ended else { panic!("{ended:?}") };
    desk.carry_out(&ending);
    let ended = desk.coordinator.end(claim, false, Version::V2, None, desk.now).expect("open");
    let Ended::Ending(ending, _) = ended else { panic!("{ended:?}") };
    desk.carry_out(&ending);
    assert!(desk.coordinator.bytes() < max);
    assert!(desk.coordinator.expire(u64::MAX, None, 1000).1.is_none());
    assert_eq!((desk.coordinator.bytes(), desk.coordinator.count()), (0, 0));
}

#[test]
fn a_transaction_holds_no_more_than_its_record_may_name() {
    let mut desk = Desk::new();
    let producer = desk.init();
    let long = CommittedOffset { offset: 1, leader_epoch: 0, metadata: "m".repeat(4000), committed_at: 1 };
    let commit = |partition| Commit { topic: "t".to_owned(), partition, offset: long.clone() };
    let add = |desk: &mut Desk, partition| {
        desk.coordinator.add_offsets(claim(producer), "g", vec![commit(partition)], Version::V2, desk.now)
    };
    let refused = (0..1000).find_map(|partition| match add(&mut desk, partition) {
        Ok(change) => {
            desk.keep_change(change);
            None
        }
        Err(error) => Some((partition, error)),
    });
    let Some((taken @ 400..1000, TransactionError::TooMuch)) = refused else { panic!("{refused:?}") };
    assert_eq!(
        desk.coordinator.describe(ID).map(|known| known.offsets["g"].len()),
        Some(taken as usize),
        "what is refused is not held"
    );
    assert!(matches!(
        desk.coordinator.enter_logs(claim(producer), (0..300_000).map(LogId), desk.now),
        Err(TransactionError::TooMuch)
    ));
    assert_eq!(
        desk.coordinator.add_group(claim(producer), &"g".repeat(100_000), desk.now),
        Err(TransactionError::TooMuch)
    );
    let ended = desk.end(producer, true, Version::V2);
    let Ok((Some(ending), _)) = ended else { panic!("{ended:?}") };
    let length = |ending: &Ending| ending.prepare.1.as_ref().map_or(0, Bytes::len);
    assert!((RECORD_BYTES_MAX / 3..RECORD_BYTES_MAX).contains(&length(&ending)), "{}", length(&ending));

    // A start with smaller segments: it can only be aborted, and no offset is named then.
    let settings = TransactionSettings { timeout_max: 900_000, id_expiration: 604_800_000, record_bytes_max: 100_000 };
    let mut smaller = TransactionCoordinator::new(settings);
    desk.records.iter().for_each(|(key, value)| assert!(smaller.restore(key, value)));
    assert_eq!(smaller.restored(), Vec::<Bytes>::new());
    assert!(matches!(smaller.end(claim(producer), true, Version::V2, None, desk.now), Err(TransactionError::TooMuch)));
    let aborted = smaller.end(claim(producer), false, Version::V2, None, desk.now);
    let Ok(Ended::Ending(ending, _)) = aborted else { panic!("{aborted:?}") };
    assert!(length(&ending) < 200, "{}", length(&ending));
}

/// An offset in a partition of a topic with a long name.
fn long_offset(partition: u32, offset: i64) -> Commit {
    let offset = CommittedOffset { offset, leader_epoch: 0, metadata: "m".repeat(100), committed_at: 1 };
    Commit { topic: "t".repeat(50), partition, offset }
}

#[test]
fn what_a_long_transaction_adds_is_written_once_and_a_part_more() {
    let mut desk = Desk::new();
    let producer = desk.init();
    let (mut asked, mut written, mut longest) = (0, 0, 0);
    for at in 0..4000 {
        let commit = long_offset(at % 3000, i64::from(at));
        asked += commit.topic.len() + commit.offset.metadata.len() + 32;
        let change =
            desk.coordinator.add_offsets(claim(producer), "g", vec![commit], Version::V2, desk.now).expect("added");
        written += change.key.len() + change.value.len();
        desk.keep_change(change);
        longest = longest.max(desk.records.len());
        if at % 400 == 0 {
            let before = desk.coordinator.describe(ID).expect("there").offsets.clone();
            desk.restart();
            assert_eq!(desk.coordinator.describe(ID).expect("there").offsets, before, "{at}");
        }
    }
    assert!((asked..8 * asked).contains(&written), "{written} of {asked}");
    assert!((100..1000).contains(&longest), "{longest}");
    // So do logs, one after another, and groups.
    let before = desk.records.values().map(Bytes::len).sum::<usize>();
    for log in 0..100 {
        desk.write(producer, log);
        let change =
            desk.coordinator.add_group(claim(producer), &format!("g{log}"), desk.now).expect("added").expect("new");
        desk.keep_change(change);
    }
    assert!(desk.records.values().map(Bytes::len).sum::<usize>() < before + 20_000);
    desk.restart();
    let (Some(ending), _) = desk.end(producer, true, Version::V2).expect("open") else { panic!("it was open") };
    assert_eq!((ending.logs.len(), ending.offsets.len()), (100, 3000));
    assert!(ending.offsets.iter().all(|(group, commit)| group == "g"
        && commit.offset.offset
            == i64::from(if commit.partition < 1000 { commit.partition + 3000 } else { commit.partition })));
    desk.carry_out(&ending);
    assert_eq!(desk.records.len(), 1, "pieces go with the decision");
}

#[test]
fn a_piece_counts_with_its_whole_record_only() {
    // Whole records that are lost, or not known to be durable, and a removal that is lost: whatever was told is there after a restart.
    for seed in 0..200_u64 {
        let mut desk = Desk::new();
        let producer = desk.init();
        let mut state = seed;
        let mut chance = |of: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % of
        };
        let mut told = BTreeMap::new();
        // It is long by offsets, or by logs, of which no record says anything.
        let mut next = if seed % 2 == 0 {
            Some((0..500).map(|partition| long_offset(partition, 0)).collect::<Vec<_>>())
        } else {
            desk.coordinator.enter_logs(claim(producer), (0..10_000).map(LogId), desk.now).expect("entered");
            None
        };
        for number in 1..60_i64 {
            let commits = next
                .take()
                .unwrap_or_else(|| (0..=chance(40)).map(|_| long_offset(chance(2000) as u32, number)).collect());
            let change = desk
                .coordinator
                .add_offsets(claim(producer), "g", commits.clone(), Version::V2, desk.now)
                .expect("added");
            // The journal has refused it: who asked is told, and asks again.
            if chance(5) == 0 {
                next = Some(commits);
                continue;
            }
            told.extend(commits.into_iter().map(|commit| (commit.partition, commit.offset.offset)));
            let Change { key, value, whole } = change;
            desk.records.insert(key, value);
            let contained = whole.map_or_else(Vec::new, |whole| desk.coordinator.written(&whole));
            if chance(3) > 0 {
                contained.iter().for_each(|key| _ = desk.records.remove(key));
            }
            if chance(8) == 0 {
                desk.restart();
                let known = desk.coordinator.describe(ID).expect("there");
                let found: BTreeMap<u32, i64> = known
                    .offsets
                    .get("g")
                    .into_iter()
                    .flatten()
                    .map(|((_, partition), one)| (*partition, one.offset))
                    .collect();
                assert_eq!(found, told, "seed {seed}, change {number}");
            }
        }
    }
}
