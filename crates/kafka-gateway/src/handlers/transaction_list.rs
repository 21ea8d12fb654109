//! ListTransactions. There may be a million transactional ids, and a pattern may take long to match one: other threads go through them in turns, a hundred ids under
//! one hold of the lock for which all producers wait. What has been found is kept as it is sent, and counted as answers are.
//!
//! An id that is there all the time is listed, whatever comes and goes meanwhile, and none is listed twice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::{AclOperation, Expression};
use delivery::TransactionState;
use hashbrown::HashSet;
use kafka_wire::list_transactions::{ListTransactionsRequest, ListTransactionsResponse, TransactionState as Listed};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};

use super::{JobBody, NO_ROOM, Outcome};
use crate::access::Asking;
use crate::answer_room::AnswerRoom;
use crate::gateway::Gateway;
use crate::session::{Context, Turns};
use crate::written::{Listing, Parts};

/// The states that a filter may name: those in use here, and those of Kafka that nothing is ever in.
const STATES: &[&str] = &[
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
];
/// A turn is over after so many ids …
const IDS_OF_TURN: usize = 1000;
/// … or after this long, once one was looked at. Compiling the pattern comes before.
const TURN: Duration = Duration::from_millis(10);

/// What is looked at of a transactional id.
struct Seen {
    id: Arc<str>,
    state: TransactionState,
    producer: i64,
    started: i64,
}

/// Which are to be listed, beside the pattern.
struct Filters {
    states: HashSet<String>,
    producers: HashSet<i64>,
    /// In ms; less than 0: none.
    duration: i64,
    /// When it was asked.
    now: i64,
}

impl Filters {
    fn let_pass(&self, seen: &Seen) -> bool {
        (self.states.is_empty() || self.states.contains(seen.state.name()))
            && (self.producers.is_empty() || self.producers.contains(&seen.producer))
            && (self.duration < 0 || self.now - seen.started > self.duration)
    }
}

/// A list that is being made.
struct TransactionList {
    gateway: Arc<Gateway>,
    version: i16,
    pattern: Option<Str>,
    filters: Filters,
    unknown: Vec<Str>,
    /// The id that was looked at last.
    after: Option<Arc<str>>,
    parts: Parts,
}

pub(crate) fn list(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = ListTransactionsRequest::decode(reader, context.version)?;
    let pattern = request.transactional_id_pattern.filter(|pattern| !pattern.is_empty());
    let broker = &context.gateway.broker;
    // A pattern takes long to compile and to match, however few ids there are.
    if context.is_long(if pattern.is_some() { usize::MAX } else { broker.transactions().count() }) {
        return Ok(Outcome::Long);
    }
    let filters = Filters {
        states: request.state_filters.iter().map(|state| state.to_string()).collect(),
        producers: request.producer_id_filters.into_iter().collect(),
        duration: request.duration_filter,
        now: broker.now_ms(),
    };
    let list = TransactionList {
        gateway: Arc::clone(context.gateway),
        version: context.version,
        pattern,
        filters,
        unknown: request.state_filters.into_iter().filter(|state| !STATES.contains(&&**state)).collect(),
        after: None,
        parts: Parts::counted(&context.gateway.pinned),
    };
    Ok(context.go_through(list))
}

impl Turns for TransactionList {
    fn turn(&mut self, asking: &Asking<'_>) -> Option<JobBody> {
        let Ok(pattern) = self.compiled() else { return Some(refused(ErrorCode::InvalidRegularExpression)) };
        let (until, asking) = (Instant::now() + TURN, asking.quietly());
        let mut room = AnswerRoom::for_all_behind(self.parts.bytes(), &self.gateway);
        let mut left = IDS_OF_TURN;
        while left > 0 {
            let piece = self.next_ids();
            if piece.is_empty() {
                return Some(self.whole());
            }
            for seen in piece {
                left = left.saturating_sub(1);
                let wanted = self.filters.let_pass(&seen)
                    && asking.check_transaction(AclOperation::Describe, &seen.id).is_ok()
                    && pattern.as_ref().is_none_or(|pattern| pattern.is_match(&seen.id));
                if wanted && !self.add(&seen, &mut room) {
                    // A list that is not whole would be taken for all that there is.
                    return Some(refused(NO_ROOM));
                }
                self.after = Some(seen.id);
                if Instant::now() >= until {
                    left = 0;
                    break;
                }
            }
        }
        None
    }
}

impl TransactionList {
    /// Compiled, the pattern takes many times what it takes as a text: it is not kept from turn to turn. An error: it is none.
    fn compiled(&self) -> Result<Option<Expression>, ()> {
        self.pattern.as_ref().map(|pattern| Expression::compile(pattern).ok_or(())).transpose()
    }

    fn next_ids(&self) -> Vec<Seen> {
        self.gateway.broker.transactions().after(self.after.as_deref(), |id, known| Seen {
            id: Arc::clone(id),
            state: known.state,
            producer: known.producer.0,
            started: known.started as i64,
        })
    }

    /// False: there is no room.
    fn add(&mut self, seen: &Seen, room: &mut AnswerRoom) -> bool {
        let (transactional_id, transaction_state) = ((&*seen.id).into(), Str::from_static(seen.state.name()));
        let one = Listed { transactional_id, producer_id: seen.producer, transaction_state, ..Listed::default() };
        self.parts.push(room, |writer| one.encode(writer, self.version))
    }

    fn whole(&mut self) -> JobBody {
        let unknown_state_filters = std::mem::take(&mut self.unknown);
        Box::new(
            std::mem::take(&mut self.parts)
                .of(ListTransactionsResponse { unknown_state_filters, ..ListTransactionsResponse::default() }),
        )
    }
}

fn refused(code: ErrorCode) -> JobBody {
    Box::new(ListTransactionsResponse { error_code: code.code(), ..ListTransactionsResponse::default() })
}

impl Listing for ListTransactionsResponse {
    fn behind(_version: i16) -> (bool, usize) {
        // No tags.
        (true, 1)
    }
}
