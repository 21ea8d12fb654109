//! Regular expressions that Kafka clients send: for transactional ids, and for the topics of a consumer group (KIP-848). Compiling one and matching it take time in proportion to its size, and
//! to that times the names, so threads that unpack do both, in turns ([`crate::unpacking`]), and nothing that others wait for is locked meanwhile.
//!
//! What an expression of a group matches is kept as long as a group or a heartbeat holds it. Names that change later are matched alone, as long as the catalog
//! knows which those are.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use delivery::{MatchState, Matched, Matches, Topics};
use hashbrown::HashMap;
use parking_lot::Mutex;
use regex::bytes::{Regex, RegexBuilder};
use types::TopicId;

use crate::catalog::Catalog;
use crate::unpacking::Unpack;

/// Bytes of an expression: what is parsed takes a multiple of them, before any limit on what comes of it holds.
pub const EXPRESSION_TEXT_MAX: usize = 32_767;
/// Memory that a compiled expression may take. In the worst case all of it is gone through for each byte of a name.
pub const EXPRESSION_BYTES_MAX: usize = 128 << 10;
/// How long a thread matches names before it is another's turn.
const TURN: Duration = Duration::from_millis(10);
/// Names that are taken out of the catalog at once.
const NAMES_AT_ONCE: usize = 256;
/// What a name in a set takes beside its bytes, about.
const NAME: usize = 64;

/// An expression that has to match all of a name. Without Unicode's classes it is much smaller, and for names of ASCII it says the same.
pub struct Expression {
    text: Box<str>,
    ascii: Option<Regex>,
    /// Compiled when it is needed.
    unicode: OnceLock<Option<Regex>>,
}

impl Expression {
    /// `None`: it is no expression, or it is too long or too large.
    pub fn compile(text: &str) -> Option<Self> {
        if text.len() > EXPRESSION_TEXT_MAX {
            return None;
        }
        let compiled = Self { text: text.into(), ascii: whole(text, false), unicode: OnceLock::new() };
        (compiled.ascii.is_some() || compiled.unicode().is_some()).then_some(compiled)
    }

    fn unicode(&self) -> Option<&Regex> {
        self.unicode.get_or_init(|| whole(&self.text, true)).as_ref()
    }

    /// Does it match all of this name?
    pub fn is_match(&self, name: &str) -> bool {
        #[cfg(test)]
        MATCHED.set(MATCHED.get() + 1);
        let regex = match &self.ascii {
            Some(ascii) if name.is_ascii() => Some(ascii),
            ascii => self.unicode().or(ascii.as_ref()),
        };
        regex.is_some_and(|regex| regex.is_match(name.as_bytes()))
    }
}

#[cfg(test)]
thread_local! {
    /// Names that this thread has matched.
    static MATCHED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn whole(text: &str, unicode: bool) -> Option<Regex> {
    let build = |text: &str| {
        RegexBuilder::new(text)
            .unicode(unicode)
            .size_limit(EXPRESSION_BYTES_MAX)
            .dfa_size_limit(EXPRESSION_BYTES_MAX)
            .build()
            .ok()
    };
    // An expression that is only whole with what is put around it is none.
    build(text).and_then(|_| build(&format!("^(?:{text})$")))
}

/// What consumer groups ask of topics: the catalog, and what expressions match of it.
pub(crate) struct Expressions {
    catalog: Arc<Catalog>,
    by_text: Mutex<HashMap<Arc<str>, Weak<TopicExpression>>>,
    me: Weak<Self>,
    /// Of names that are matched, about.
    bytes: AtomicUsize,
    bytes_max: AtomicUsize,
}

impl Expressions {
    pub fn new(catalog: Arc<Catalog>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            catalog,
            by_text: Mutex::default(),
            me: Weak::clone(me),
            bytes: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(usize::MAX),
        })
    }

    /// Bytes of memory that names may take which expressions match, about.
    pub fn set_bytes_max(&self, bytes: usize) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// The same one as long as somebody holds it.
    fn expression(&self, text: &str) -> Arc<TopicExpression> {
        let mut by_text = self.by_text.lock();
        if let Some(found) = by_text.get(text).and_then(Weak::upgrade) {
            return found;
        }
        let text: Arc<str> = text.into();
        let new = Arc::new(TopicExpression {
            text: Arc::clone(&text),
            catalog: Arc::clone(&self.catalog),
            expressions: Weak::clone(&self.me),
            known: Mutex::new(Known { naming: None, bytes: 0, matched: Matched::unknown() }),
            scan: Mutex::default(),
        });
        by_text.insert(text, Arc::downgrade(&new));
        new
    }

    /// False: there is no room.
    fn take(&self, bytes: usize) -> bool {
        let fits = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.bytes_max.load(Ordering::Relaxed);
        if !fits {
            self.give(bytes);
        }
        fits
    }

    fn give(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Topics for Expressions {
    fn version(&self) -> u64 {
        self.catalog.version()
    }

    fn find(&self, name: &str) -> Option<(TopicId, u32)> {
        self.catalog.by_name(name).map(|topic| (topic.id, topic.logs().len() as u32))
    }

    fn name(&self, id: TopicId) -> Option<String> {
        self.catalog.by_id(id).map(|topic| topic.name.clone())
    }

    fn matches(&self, expression: &str) -> Arc<dyn Matches> {
        self.expression(expression)
    }
}

/// An expression with the names of topics that it matches.
pub(crate) struct TopicExpression {
    text: Arc<str>,
    catalog: Arc<Catalog>,
    expressions: Weak<Expressions>,
    /// Locked for a moment only.
    known: Mutex<Known>,
    /// Locked for a turn by who matches names.
    scan: Mutex<Option<Scan>>,
}

struct Known {
    /// State of the names against which it was matched.
    naming: Option<u64>,
    /// Of its names, as they are counted.
    bytes: usize,
    matched: Matched,
}

/// A pass over all names that is under way.
struct Scan {
    /// State of the names when it began: what changes meanwhile is matched afterwards.
    naming: u64,
    /// Behind which name it goes on.
    after: Option<String>,
    found: BTreeSet<String>,
    bytes: usize,
}

/// What came of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Through,
    GoesOn,
}

impl Matches for TopicExpression {
    fn text(&self) -> &str {
        &self.text
    }

    fn version(&self) -> u64 {
        self.known.lock().matched.version
    }

    fn known(&self) -> Matched {
        self.known.lock().matched.clone()
    }

    fn is_current(&self) -> bool {
        let known = self.known.lock();
        known.matched.state == MatchState::Invalid || known.naming == Some(self.catalog.naming())
    }
}

impl Drop for TopicExpression {
    fn drop(&mut self) {
        let Some(expressions) = self.expressions.upgrade() else { return };
        let scanned = self.scan.get_mut().as_ref().map_or(0, |scan| scan.bytes);
        expressions.give(self.known.get_mut().bytes + scanned);
        let mut by_text = expressions.by_text.lock();
        if by_text.get(&self.text).is_some_and(|there| there.strong_count() == 0) {
            by_text.remove(&self.text);
        }
    }
}

impl TopicExpression {
    fn is_known_at(&self, naming: u64) -> bool {
        self.known.lock().naming.is_some_and(|known| known >= naming)
    }

    /// Goes on until `until` with matching names, those that there were at `naming` at least. One name is matched in any case.
    fn go_on(&self, expressions: &Expressions, naming: u64, until: Instant) -> Turn {
        let mut scan = self.scan.lock();
        if self.is_known_at(naming) {
            return Turn::Through;
        }
        // Compiled, it takes many times what it takes as a text: it is not kept.
        let Some(expression) = Expression::compile(&self.text) else {
            self.publish(MatchState::Invalid, None, Arc::default(), 0);
            return Turn::Through;
        };
        let pass = Pass { expression, expressions, until };
        loop {
            let changes = if scan.is_some() { None } else { self.changes() };
            let over = match changes {
                Some(changes) => self.match_changes(changes, &pass),
                None => self.match_all(&mut scan, &pass),
            };
            match over {
                Some(over) => return over,
                None if self.is_known_at(naming) => return Turn::Through,
                None => {}
            }
        }
    }

    /// Some of the names that have come or gone since it was matched; `None`: that is not known.
    fn changes(&self) -> Option<Vec<(String, bool)>> {
        let naming = self.known.lock().naming?;
        self.catalog.changed_names(naming, NAMES_AT_ONCE)
    }

    /// Matches names that have come, and forgets those that have gone. `None`: all of these.
    fn match_changes(&self, changes: Vec<(String, bool)>, pass: &Pass<'_>) -> Option<Turn> {
        let (mut naming, mut bytes, mut topics) = {
            let known = self.known.lock();
            (known.naming?, known.bytes, Arc::clone(&known.matched.topics))
        };
        let mut over = None;
        for (name, there) in changes {
            let cost = NAME + name.len();
            if !there && topics.contains(&name) {
                pass.expressions.give(cost);
                bytes -= cost;
                Arc::make_mut(&mut topics).remove(&name);
            } else if there && !topics.contains(&name) && pass.expression.is_match(&name) {
                if !pass.expressions.take(cost) {
                    over = Some(Turn::Through);
                    break;
                }
                bytes += cost;
                Arc::make_mut(&mut topics).insert(name);
            }
            naming += 1;
            if Instant::now() >= pass.until {
                over = Some(Turn::GoesOn);
                break;
            }
        }
        self.publish(MatchState::Known, Some(naming), topics, bytes);
        over
    }

    /// Goes on with a pass over all names, or begins one. `None`: it has come to its end.
    fn match_all(&self, slot: &mut Option<Scan>, pass: &Pass<'_>) -> Option<Turn> {
        let before = self.known().topics;
        let new = || Scan { naming: self.catalog.naming(), after: None, found: BTreeSet::new(), bytes: 0 };
        let scan = slot.get_or_insert_with(new);
        loop {
            let names = self.catalog.names_after(scan.after.as_deref(), NAMES_AT_ONCE);
            let Some(last) = names.last().cloned() else { break };
            for name in names {
                if before.contains(&name) || pass.expression.is_match(&name) {
                    let cost = NAME + name.len();
                    if !pass.expressions.take(cost) {
                        pass.expressions.give(scan.bytes);
                        *slot = None;
                        self.refuse();
                        return Some(Turn::Through);
                    }
                    scan.bytes += cost;
                    scan.found.insert(name.clone());
                }
                if Instant::now() >= pass.until {
                    scan.after = Some(name);
                    return Some(Turn::GoesOn);
                }
            }
            scan.after = Some(last);
        }
        if let Some(scan) = slot.take() {
            pass.expressions.give(self.known.lock().bytes);
            self.publish(MatchState::Known, Some(scan.naming), Arc::new(scan.found), scan.bytes);
        }
        None
    }

    /// There is no memory for what it matches. What was known before is.
    fn refuse(&self) {
        let mut known = self.known.lock();
        if known.naming.is_none() {
            known.matched.state = MatchState::NoMemory;
            known.matched.version += 1;
        }
    }

    /// By who holds the lock of the scan.
    fn publish(&self, state: MatchState, naming: Option<u64>, topics: Arc<BTreeSet<String>>, bytes: usize) {
        let before = self.known();
        let changed = before.state != state || !Arc::ptr_eq(&before.topics, &topics) && before.topics != topics;
        let mut known = self.known.lock();
        (known.naming, known.bytes) = (naming, bytes);
        if changed {
            known.matched = Matched { version: before.version + 1, state, topics };
        }
    }
}

/// What a turn works with.
struct Pass<'a> {
    expression: Expression,
    expressions: &'a Expressions,
    until: Instant,
}

/// Expressions that are to be matched before a heartbeat is carried out. What comes of it is kept while this is.
pub struct Matching {
    table: Arc<Expressions>,
    expressions: Vec<Arc<TopicExpression>>,
    /// Names of when it was asked for are to be known, whatever comes later.
    naming: u64,
}

impl Matching {
    /// Matches them, in turns; to be [handed to other threads](crate::Broker::unpack). It ends early once `gone` is set. The answer is the [`Duration`] that it took.
    pub fn work(&self, gone: Arc<AtomicBool>) -> Unpack {
        let (table, naming) = (Arc::clone(&self.table), self.naming);
        let mut left: VecDeque<Arc<TopicExpression>> = self.expressions.iter().cloned().collect();
        let mut took = Duration::ZERO;
        Box::new(move |_| {
            let began = Instant::now();
            while !gone.load(Ordering::Relaxed)
                && began.elapsed() < TURN
                && let Some(next) = left.pop_front()
            {
                if next.go_on(&table, naming, began + TURN) == Turn::GoesOn {
                    left.push_front(next);
                }
            }
            took += began.elapsed();
            let goes_on = !left.is_empty() && !gone.load(Ordering::Relaxed);
            (!goes_on).then(|| Box::new(took) as Box<dyn std::any::Any + Send>)
        })
    }
}

impl Expressions {
    /// Those of these that are to be matched against the names that there are now.
    pub fn matching(&self, unmatched: &[Arc<dyn Matches>]) -> Option<Matching> {
        let table = self.me.upgrade()?;
        let expressions = unmatched.iter().map(|matches| self.expression(matches.text())).collect();
        Some(Matching { table, expressions, naming: self.catalog.naming() })
    }
}

#[cfg(test)]
mod tests;
