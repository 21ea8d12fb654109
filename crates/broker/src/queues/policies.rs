//! Policies: rules for the queues and exchanges of a virtual host whose names match a pattern. Of the policies that match, the one with the
//! highest priority counts, and so does one of those that operators set beside them; `policy_keys.rs` has what they may say and how the two
//! come to one. What is in force for a queue are its own arguments and that, joined key by key as RabbitMQ 4.3 does: the lesser
//! of two numbers; of two names that of the arguments.
//!
//! Changes run on the controller's thread: durable first, then in force for what is declared, and then applied to the queues and exchanges of the virtual host
//! that are there, in pieces (`policy_walk.rs`). Each pattern is compiled once, when its policy is made or read; what a name has to begin with is compared
//! before the expression is run.

use std::cmp::Ordering;
use std::ops::Deref;
use std::sync::atomic::{self, AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use delivery::{Overflow, QueueKind, QueueRules};
use journal::AppendItem;
use parking_lot::{Mutex, RwLock};
use routing::{Arguments, Counted, DefinitionMemory, Name, OwnedValue};
use serde_json::{Map, Number, Value, json};

use super::Vhost;
use super::arguments::{QueueArguments, RetryArguments, kind_name, retry_of};
use super::erlang::Term;
use super::parameters::{self, ParameterError};
use super::policy_keys::{self, is_for};
use super::policy_pattern::Pattern;
use super::policy_rights::prefix_of;
use super::policy_search::Search;
use super::policy_walk::WalkState;
use super::queue::Queue;
use crate::Broker;
use crate::change_batch::Change;
use crate::security::Principal;

/// What is in force for queues, of which those that have the same share it: this many are remembered.
const SHARED_MAX: usize = 16;
/// A start waits so long, for each virtual host, until it is known which policies count for its exchanges and queues. The others are found out by and by.
const START_MAX: Duration = Duration::from_secs(2);
/// Bytes that a policy takes beside its texts, …
const AROUND: usize = 512;
/// … each key of its definition …
const AROUND_KEY: usize = 128;
/// … and those: itself, as it is kept, and in force.
const TEXTS: usize = 3;
/// The key by which an exchange sends on what no binding takes.
const ALTERNATE: &str = "alternate-exchange";

/// Who sets a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyScope {
    /// Whoever may set policies.
    User,
    /// An operator, whose limits hold beside those of others.
    Operator,
}

impl PolicyScope {
    pub(super) const BOTH: [Self; 2] = [Self::User, Self::Operator];

    /// RabbitMQ's name of the component.
    pub fn component(self) -> &'static str {
        match self {
            Self::User => "policy",
            Self::Operator => "operator_policy",
        }
    }
}

/// What a policy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApplyTo {
    All,
    Exchanges,
    Queues,
    /// Of the type that is called so in `x-queue-type`.
    QueuesOf(&'static str),
}

impl ApplyTo {
    const ALL: [(&'static str, Self); 6] = [
        ("all", Self::All),
        ("exchanges", Self::Exchanges),
        ("queues", Self::Queues),
        ("classic_queues", Self::QueuesOf("classic")),
        ("quorum_queues", Self::QueuesOf("quorum")),
        ("streams", Self::QueuesOf("stream")),
    ];

    fn parse(value: &Value) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|(name, _)| value.as_str() == Some(name)).map(|(_, found)| found);
        let shown = || value.as_str().map_or_else(|| Term(value).to_string(), str::to_owned);
        // Two spaces: RabbitMQ's.
        let rest = "unrecognised; should be one of: 'queues', 'classic_queues',  'quorum_queues', 'streams', 'exchanges', or 'all'";
        known.ok_or_else(|| format!("apply-to '{}' {rest}", shown()))
    }

    fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, value)| *value == self).map_or("all", |(name, _)| name)
    }
}

/// A policy to be set. The values are as they came, so that what is wrong with them can be told in RabbitMQ's words.
#[derive(Clone, Debug)]
pub struct PolicyWish {
    /// A regular expression, found anywhere in a name unless it is anchored.
    pub pattern: Value,
    /// A table: see RabbitMQ's keys.
    pub definition: Value,
    /// A number; `None`: 0.
    pub priority: Option<Value>,
    /// `all`, `queues`, `classic_queues`, `quorum_queues`, `streams` or `exchanges`; `None`: `all`.
    pub apply_to: Option<Value>,
}

/// A policy.
#[derive(Debug)]
pub struct Policy {
    name: String,
    pattern: Pattern,
    /// What each name begins with that the pattern matches.
    prefix: Box<str>,
    apply_to: ApplyTo,
    definition: Map<String, Value>,
    priority: Number,
    /// It was deleted, or another one of its name has taken its place.
    gone: AtomicBool,
    /// In the account, from when it is set until nothing needs it any more.
    counted: OnceLock<Counted>,
}

impl Policy {
    /// # Errors
    /// All that is wrong, in RabbitMQ's words and order.
    pub(super) fn new(name: &str, wish: &PolicyWish, scope: PolicyScope) -> Result<Self, ParameterError> {
        let mut wrong = Vec::new();
        let definition = definition(&wish.definition, scope).map_err(|text| wrong.push(text));
        let apply_to = wish.apply_to.as_ref().map_or(Ok(ApplyTo::All), ApplyTo::parse).map_err(|text| wrong.push(text));
        let pattern = Pattern::new(&wish.pattern).map_err(|text| wrong.push(text));
        let priority = match &wish.priority {
            None => Ok(Number::from(0)),
            Some(Value::Number(number)) => Ok(number.clone()),
            Some(other) => Err(format!("priority should be a number, actually was {}", Term(other))),
        }
        .map_err(|text| wrong.push(text));
        match (definition, apply_to, pattern, priority) {
            (Ok(definition), Ok(apply_to), Ok(pattern), Ok(priority)) => {
                Ok(Self::with(name, pattern, apply_to, definition, priority))
            }
            _ => Err(ParameterError::Invalid(wrong)),
        }
    }

    fn with(name: &str, pattern: Pattern, apply_to: ApplyTo, definition: Map<String, Value>, priority: Number) -> Self {
        let (name, prefix, gone) = (name.to_owned(), prefix_of(pattern.text()), AtomicBool::new(false));
        Self { name, pattern, prefix, apply_to, definition, priority, gone, counted: OnceLock::new() }
    }

    /// Bytes of memory that it takes, about.
    pub(super) fn weight(&self) -> usize {
        let definition = self.definition.iter().map(|(key, value)| key.len() + value.to_string().len()).sum::<usize>();
        AROUND
            + TEXTS * (self.name.len() + self.prefix.len() + definition)
            + self.definition.len() * AROUND_KEY
            + self.pattern.weight()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The regular expression that names are to match.
    pub fn pattern(&self) -> &str {
        self.pattern.text()
    }

    /// What it is for, as in [`PolicyWish::apply_to`].
    pub fn apply_to(&self) -> &'static str {
        self.apply_to.name()
    }

    /// What it says.
    pub fn definition(&self) -> &Map<String, Value> {
        &self.definition
    }

    /// Of several that match the highest counts.
    pub fn priority(&self) -> &Number {
        &self.priority
    }

    /// As it is kept, and as RabbitMQ shows an operator's policy among the parameters.
    pub fn value(&self) -> Value {
        let Self { definition, priority, .. } = self;
        json!({ "pattern": self.pattern(), "definition": definition, "priority": priority, "apply-to": self.apply_to() })
    }

    /// Reads what [`Policy::value`] gave.
    pub(super) fn restored(name: &str, value: &Value) -> Option<Self> {
        let pattern = Pattern::kept(value.get("pattern")?)?;
        let apply_to = ApplyTo::parse(value.get("apply-to")?).ok()?;
        let Value::Number(priority) = value.get("priority")?.clone() else { return None };
        Some(Self::with(name, pattern, apply_to, value.get("definition")?.as_object()?.clone(), priority))
    }

    /// Is it for this queue, if no other one is?
    pub(super) fn is_for_queue(&self, queue: &Queue) -> bool {
        self.matches(Subject::Queue(&queue.name, kind_name(queue.understood().kind)))
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(atomic::Ordering::Relaxed)
    }

    /// Can it say where an exchange sends what no binding takes?
    pub(super) fn names_alternate(&self) -> bool {
        self.definition.contains_key(ALTERNATE)
    }

    /// See [`Pattern::cost`].
    pub(super) fn cost(&self) -> usize {
        self.pattern.cost()
    }

    fn is_meant_for(&self, subject: Subject<'_>) -> bool {
        match (subject, self.apply_to) {
            (_, ApplyTo::All) | (Subject::Exchange(_), ApplyTo::Exchanges) | (Subject::Queue(..), ApplyTo::Queues) => {
                true
            }
            (Subject::Queue(_, kind), ApplyTo::QueuesOf(other)) => other == kind,
            (Subject::Queue(..), ApplyTo::Exchanges)
            | (Subject::Exchange(_), ApplyTo::Queues | ApplyTo::QueuesOf(_)) => false,
        }
    }

    /// Is its pattern to be asked? That costs nothing.
    pub(super) fn may_match(&self, subject: Subject<'_>) -> bool {
        let (name, kind) = match subject {
            Subject::Exchange(name) => (name, None),
            Subject::Queue(name, kind) => (name, Some(kind)),
        };
        self.is_meant_for(subject)
            && name.starts_with(self.prefix.as_bytes())
            && kind.is_none_or(|kind| is_for(&self.definition, kind))
    }

    pub(super) fn matches(&self, subject: Subject<'_>) -> bool {
        #[cfg(test)]
        if self.is_meant_for(subject) {
            tests::note_question(if self.may_match(subject) { self.cost() } else { 0 });
        }
        let (Subject::Exchange(name) | Subject::Queue(name, _)) = subject;
        self.may_match(subject) && self.pattern.is_match(name)
    }

    pub(super) fn rank(&self, other: &Self) -> Ordering {
        let priority = |one: &Self| one.priority.as_f64().unwrap_or(0.0);
        priority(other).total_cmp(&priority(self)).then_with(|| self.name.cmp(&other.name))
    }
}

fn definition(value: &Value, scope: PolicyScope) -> Result<Map<String, Value>, String> {
    match value {
        Value::Object(fields) => policy_keys::check(fields, scope == PolicyScope::Operator).map(|()| fields.clone()),
        Value::Array(all) if all.is_empty() => Err("no policy provided".to_owned()),
        Value::Array(_) => Err(format!("definition must be a dictionary: {}", Term(value))),
        other => Err(format!(
            "parse error while reading policy definition: {}. Validator: {}_validator.",
            Term(other),
            scope.component()
        )),
    }
}

/// What policies are looked up for, by name.
#[derive(Clone, Copy)]
pub(super) enum Subject<'a> {
    Exchange(&'a [u8]),
    /// With its type, as in `x-queue-type`.
    Queue(&'a [u8], &'static str),
}

/// The policies that count for a queue or an exchange.
#[derive(Clone, Debug, Default)]
pub struct Matched {
    /// Of all but operators.
    pub policy: Option<Arc<Policy>>,
    /// Of operators.
    pub operator: Option<Arc<Policy>>,
}

impl Matched {
    /// What the two come to.
    pub fn definition(&self) -> Map<String, Value> {
        let of = |policy: &'_ Option<Arc<Policy>>| policy.as_ref().map(|policy| policy.definition.clone());
        policy_keys::merged(of(&self.policy).as_ref(), of(&self.operator).as_ref())
    }

    /// Where they send what no binding of an exchange takes.
    pub(super) fn alternate(&self) -> Option<Name> {
        name_of(&self.definition(), ALTERNATE)
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        let same = |one: &Option<Arc<Policy>>, other: &Option<Arc<Policy>>| match (one, other) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        same(&self.policy, &other.policy) && same(&self.operator, &other.operator)
    }
}

/// What is in force for a queue.
#[derive(Debug)]
pub(super) struct InForce {
    pub understood: QueueArguments,
    pub matched: Matched,
    /// After a start: it is not known yet which policies count.
    pub unjudged: bool,
    /// Of queues that stay, and of those that go with their last consumer.
    rules: [Arc<QueueRules>; 2],
}

impl InForce {
    pub fn new(understood: QueueArguments, matched: Matched) -> Self {
        let rules = [false, true].map(|auto_delete| Arc::new(understood.rules(auto_delete)));
        Self { understood, matched, unjudged: false, rules }
    }

    /// As the rules of a queue's machine, which all queues share that have them.
    pub fn rules(&self, auto_delete: bool) -> Arc<QueueRules> {
        Arc::clone(&self.rules[usize::from(auto_delete)])
    }
}

/// What the arguments of a queue and its policies come to, as it was when this was asked for.
#[derive(Clone, Debug)]
pub struct Understood(pub(super) Arc<InForce>);

impl Deref for Understood {
    type Target = QueueArguments;

    fn deref(&self) -> &QueueArguments {
        &self.0.understood
    }
}

/// The policies of a virtual host.
#[derive(Debug, Default)]
pub struct Policies {
    sets: RwLock<Sets>,
    /// Memory of the policies of all virtual hosts.
    account: Arc<DefinitionMemory>,
    /// What judging queues and exchanges has taken at the start, in µs.
    start_us: AtomicU64,
    /// What was in force for the last queues.
    shared: Mutex<Vec<Arc<InForce>>>,
    /// How far changes have been applied.
    pub(super) walk: WalkState,
}

/// Each by rank.
#[derive(Debug, Default)]
pub(super) struct Sets {
    policies: Vec<Arc<Policy>>,
    operators: Vec<Arc<Policy>>,
}

impl Sets {
    pub fn of(&self, scope: PolicyScope) -> &[Arc<Policy>] {
        match scope {
            PolicyScope::User => &self.policies,
            PolicyScope::Operator => &self.operators,
        }
    }

    fn of_mut(&mut self, scope: PolicyScope) -> &mut Vec<Arc<Policy>> {
        match scope {
            PolicyScope::User => &mut self.policies,
            PolicyScope::Operator => &mut self.operators,
        }
    }

    /// Where it stands by its rank.
    pub fn add(&mut self, scope: PolicyScope, policy: Arc<Policy>) {
        let all = self.of_mut(scope);
        let place = all.partition_point(|one| one.rank(&policy) == Ordering::Less);
        all.insert(place, policy);
    }

    pub fn any(&self, wanted: impl Fn(&Policy) -> bool) -> bool {
        self.policies.iter().chain(&self.operators).any(|policy| wanted(policy))
    }
}

impl Policies {
    /// None yet. `account`: of the policies of all virtual hosts.
    pub(super) fn counted(account: Arc<DefinitionMemory>) -> Self {
        Self { account, ..Self::default() }
    }

    /// All, the highest priority first.
    pub fn all(&self, scope: PolicyScope) -> Vec<Arc<Policy>> {
        self.sets.read().of(scope).to_vec()
    }

    /// One by name.
    pub fn get(&self, scope: PolicyScope, name: &str) -> Option<Arc<Policy>> {
        self.sets.read().of(scope).iter().find(|policy| policy.name == name).cloned()
    }

    /// What counts for an exchange.
    pub fn of_exchange(&self, name: &[u8]) -> Matched {
        self.matched(Subject::Exchange(name))
    }

    fn matched(&self, subject: Subject<'_>) -> Matched {
        let sets = self.sets.read();
        let first = |policies: &[Arc<Policy>]| policies.iter().find(|policy| policy.matches(subject)).cloned();
        Matched { policy: first(&sets.policies), operator: first(&sets.operators) }
    }

    pub(super) fn sets(&self) -> impl Deref<Target = Sets> + '_ {
        self.sets.read()
    }

    /// Sets one, in place of that of its name, which is told.
    pub(super) fn insert(&self, scope: PolicyScope, policy: Arc<Policy>) -> Option<Arc<Policy>> {
        policy.counted.get_or_init(|| Counted::new(Arc::clone(&self.account), policy.weight()));
        let mut sets = self.sets.write();
        let before = take_out(sets.of_mut(scope), &policy.name);
        sets.add(scope, policy);
        before
    }

    pub(super) fn remove(&self, scope: PolicyScope, name: &str) -> Option<Arc<Policy>> {
        take_out(self.sets.write().of_mut(scope), name)
    }

    /// What is in force for a queue that was declared so, as far as that is found out at once; the rest of the search, if there is any. `own`: what
    /// its arguments come to.
    pub(super) fn begin_in_force(
        &self,
        name: &[u8],
        declared: &Arguments,
        own: QueueArguments,
    ) -> (Arc<InForce>, Option<Search>) {
        let subject = Subject::Queue(name, kind_name(own.kind));
        let mut search = Search::new(self.walk.changes());
        let is_over = self.search(subject, &mut search);
        (self.in_force_of(search.matched(), declared, own), (!is_over).then_some(search))
    }

    /// The same at a start: it may take longer, as long as those before have not taken too long together.
    pub(super) fn in_force_at_start(
        &self,
        name: &[u8],
        declared: &Arguments,
        own: QueueArguments,
    ) -> (Arc<InForce>, Option<Search>) {
        match self.search_at_start(Subject::Queue(name, kind_name(own.kind))) {
            (matched, None) => (self.in_force_of(matched, declared, own), None),
            (_, rest) => (Arc::new(InForce { unjudged: true, ..InForce::new(own, Matched::default()) }), rest),
        }
    }

    fn search_at_start(&self, subject: Subject<'_>) -> (Matched, Option<Search>) {
        let mut search = Search::new(self.walk.changes());
        let spent = || Duration::from_micros(self.start_us.load(atomic::Ordering::Relaxed));
        while spent() < START_MAX {
            let began = Instant::now();
            let is_over = self.search(subject, &mut search);
            self.start_us.fetch_add(began.elapsed().as_micros() as u64, atomic::Ordering::Relaxed);
            if is_over {
                return (search.matched(), None);
            }
        }
        // What a part of them says may not hold.
        (Matched::default(), Some(Search::new(self.walk.changes())))
    }

    /// The same, whatever it takes.
    #[cfg(test)]
    pub(super) fn in_force(&self, name: &[u8], declared: &Arguments, own: QueueArguments) -> Arc<InForce> {
        let matched = self.matched(Subject::Queue(name, kind_name(own.kind)));
        self.in_force_of(matched, declared, own)
    }

    /// The same, if these policies count for it.
    pub(super) fn in_force_of(&self, matched: Matched, declared: &Arguments, own: QueueArguments) -> Arc<InForce> {
        let understood =
            if matched.is(&Matched::default()) { own } else { join(&own, declared, &matched.definition()) };
        let mut shared = self.shared.lock();
        if let Some(found) = shared.iter().find(|one| one.matched.is(&matched) && one.understood == understood) {
            return Arc::clone(found);
        }
        let made = Arc::new(InForce::new(understood, matched));
        if shared.len() == SHARED_MAX {
            shared.remove(0);
        }
        shared.push(Arc::clone(&made));
        made
    }

    /// Forgets what was in force before a change.
    pub(super) fn forget_shared(&self) {
        self.shared.lock().clear();
    }

    /// Where a policy sends what no binding of an exchange takes.
    #[cfg(test)]
    pub(super) fn alternate(&self, exchange: &[u8]) -> Option<Name> {
        self.of_exchange(exchange).alternate()
    }
}

fn take_out(all: &mut Vec<Arc<Policy>>, name: &str) -> Option<Arc<Policy>> {
    let place = all.iter().position(|one| one.name == name)?;
    let policy = all.remove(place);
    policy.gone.store(true, atomic::Ordering::Relaxed);
    Some(policy)
}

/// A name of the definition. No exchange has a longer one than a name may have, so there is none.
fn name_of(definition: &Map<String, Value>, key: &str) -> Option<Name> {
    definition.get(key).and_then(Value::as_str).and_then(|text| Name::new(text.as_bytes()).ok())
}

/// A queue's arguments and what policies say, key by key.
fn join(own: &QueueArguments, declared: &Arguments, set: &Map<String, Value>) -> QueueArguments {
    let text = |key: &str| set.get(key).and_then(Value::as_str);
    let least = |own: Option<u64>, key: &str| own.into_iter().chain(set.get(key).and_then(Value::as_u64)).min();
    let quorum = own.kind == QueueKind::Quorum;
    let overflow = match text("overflow") {
        None => own.overflow,
        Some(_) if !quorum && declared.get(b"x-overflow").is_some() => own.overflow,
        Some("reject-publish") => Overflow::RejectPublish,
        Some("reject-publish-dlx") if !quorum => Overflow::RejectPublishDeadLetter,
        Some(_) => Overflow::DropHead,
    };
    let dead_letter_exchange = own.dead_letter_exchange.clone().or_else(|| name_of(set, "dead-letter-exchange"));
    let strategy = match declared.get(b"x-dead-letter-strategy").map(|argument| &argument.value) {
        Some(OwnedValue::Bytes(bytes)) => **bytes == *b"at-least-once",
        _ => text("dead-letter-strategy") == Some("at-least-once"),
    };
    QueueArguments {
        ttl: least(own.ttl, "message-ttl"),
        expires: least(own.expires, "expires"),
        length_max: least(own.length_max, "max-length"),
        bytes_max: least(own.bytes_max, "max-length-bytes"),
        overflow,
        letters_wait: quorum && strategy && overflow == Overflow::RejectPublish && dead_letter_exchange.is_some(),
        dead_letter_exchange,
        dead_letter_key: own.dead_letter_key.clone().or_else(|| name_of(set, "dead-letter-routing-key")),
        consumer_time_out: if quorum { least(own.consumer_time_out, "consumer-timeout") } else { None },
        retry: if quorum { retry(own, set) } else { own.retry },
        delivery_limit: if quorum { delivery_limit(own, declared, set) } else { None },
        stream: own.stream.joined(text("max-age"), set.get("max-length-bytes").and_then(Value::as_u64)),
        ..own.clone()
    }
}

fn retry(own: &QueueArguments, set: &Map<String, Value>) -> RetryArguments {
    let number = |name: &str| set.get(name).and_then(Value::as_u64);
    let least = |own: Option<u64>, name: &str| own.into_iter().chain(number(name)).min();
    RetryArguments {
        of: set.get("delayed-retry-type").and_then(Value::as_str).map_or(own.retry.of, retry_of),
        min_ms: least(own.retry.min_ms, "delayed-retry-min"),
        max_ms: least(own.retry.max_ms, "delayed-retry-max"),
    }
}

fn delivery_limit(own: &QueueArguments, declared: &Arguments, set: &Map<String, Value>) -> Option<u32> {
    let Some(policy) = set.get("delivery-limit").and_then(Value::as_i64) else { return own.delivery_limit };
    let limit = match declared.get(b"x-delivery-limit").map(|argument| &argument.value) {
        // Below 0 there is none, and whoever has one wins.
        Some(OwnedValue::Int(argument)) if policy < 0 || *argument < 0 => policy.max(*argument),
        Some(OwnedValue::Int(argument)) => policy.min(*argument),
        _ => policy,
    };
    u32::try_from(limit).ok()
}

impl Broker {
    /// Sets a policy: it counts for what is declared from then on, and is applied to the queues and exchanges of the virtual host
    /// ([`Policies::wait_until_applied`]). On the controller's thread.
    ///
    /// # Errors
    /// `Invalid`, `VhostDeleted`, `Append`.
    pub fn put_policy(
        self: &Arc<Self>,
        vhost: &Arc<Vhost>,
        scope: PolicyScope,
        name: &str,
        wish: &PolicyWish,
    ) -> Result<(), ParameterError> {
        let change = self.plan_policy(vhost, scope, name, wish)?;
        Ok(self.carry_out(change)?)
    }

    pub(crate) fn plan_policy(
        &self,
        vhost: &Arc<Vhost>,
        scope: PolicyScope,
        name: &str,
        wish: &PolicyWish,
    ) -> Result<Option<Change>, ParameterError> {
        vhost.check_alive()?;
        Self::plan_made_policy(vhost, scope, Policy::new(name, wish, scope)?)
    }

    fn plan_made_policy(
        vhost: &Arc<Vhost>,
        scope: PolicyScope,
        policy: Policy,
    ) -> Result<Option<Change>, ParameterError> {
        let there = vhost.policies.get(scope, &policy.name);
        if there.as_ref().is_some_and(|there| there.value() == policy.value()) {
            return Ok(None);
        }
        let more = policy.weight().saturating_sub(there.map_or(0, |there| there.weight()));
        if more > 0 && !vhost.policies.account.admits(more) {
            return Err(ParameterError::NoMemory { policy: policy.name });
        }
        let key = parameters::policy_key(&vhost.name, scope, &policy.name);
        let item = AppendItem::State { key, value: Some(parameters::encode(&policy.value())) };
        let of = Arc::clone(vhost);
        let change = Change::new(vec![item], move |_| of.policies.set(scope, Arc::new(policy)));
        Ok(change.map(|change| change.with_policies_of(vhost)))
    }

    /// Deletes a policy, as [`Broker::put_policy`] sets one. On the controller's thread.
    ///
    /// # Errors
    /// `NotFound`, `VhostDeleted`, `Append`.
    pub fn delete_policy(
        self: &Arc<Self>,
        vhost: &Arc<Vhost>,
        scope: PolicyScope,
        name: &str,
    ) -> Result<(), ParameterError> {
        vhost.check_alive()?;
        vhost.policies.get(scope, name).ok_or(ParameterError::NotFound)?;
        self.commit_state(vec![(parameters::policy_key(&vhost.name, scope, name), None)])?;
        vhost.policies.unset(scope, name);
        self.apply_policies(vhost);
        Ok(())
    }

    /// As [`Broker::put_policy`], if who asks may. On the controller's thread.
    ///
    /// # Errors
    /// The same; `Denied`.
    pub fn put_policy_for(
        self: &Arc<Self>,
        who: &Principal,
        vhost: &Arc<Vhost>,
        scope: PolicyScope,
        name: &str,
        wish: &PolicyWish,
    ) -> Result<(), ParameterError> {
        let policy = Policy::new(name, wish, scope)?;
        self.check_policy(who, vhost, &policy, true)?;
        if let Some(there) = vhost.policies.get(scope, name) {
            self.check_policy(who, vhost, &there, false)?;
        }
        vhost.check_alive()?;
        let change = Self::plan_made_policy(vhost, scope, policy)?;
        Ok(self.carry_out(change)?)
    }

    /// As [`Broker::delete_policy`], if who asks may. On the controller's thread.
    ///
    /// # Errors
    /// The same; `Denied`.
    pub fn delete_policy_for(
        self: &Arc<Self>,
        who: &Principal,
        vhost: &Arc<Vhost>,
        scope: PolicyScope,
        name: &str,
    ) -> Result<(), ParameterError> {
        if let Some(there) = vhost.policies.get(scope, name) {
            self.check_policy(who, vhost, &there, false)?;
        }
        self.delete_policy(vhost, scope, name)
    }
}

impl Vhost {
    /// Its policies.
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Has an exchange send what no binding takes where policies say, unless its own arguments do. The search, where it takes too long for a start.
    pub(super) fn set_alternate_at_start(&self, exchange: &[u8]) -> Option<Search> {
        let (matched, rest) = if self.policies.sets().any(Policy::names_alternate) {
            self.policies.search_at_start(Subject::Exchange(exchange))
        } else {
            Default::default()
        };
        self.exchanges.write().set_policy_alternate(exchange, matched.alternate());
        rest
    }

    /// The same as far as it is found out at once; the rest of the search, if there is any.
    pub(super) fn begin_alternate(&self, exchange: &[u8]) -> Option<Search> {
        if !self.policies.sets().any(Policy::names_alternate) {
            self.exchanges.write().set_policy_alternate(exchange, None);
            return None;
        }
        let mut search = Search::new(self.policies.walk.changes());
        if !self.policies.search(Subject::Exchange(exchange), &mut search) {
            return Some(search);
        }
        self.exchanges.write().set_policy_alternate(exchange, search.matched().alternate());
        None
    }
}

#[cfg(test)]
pub(super) mod tests;
