//! Exchanges: what is declared, what is kept of it, and when two declarations are equivalent.

use crate::binding::BindingId;
use crate::error::{DeclareError, Difference};
use crate::matcher::Matcher;
use crate::name::Name;
use crate::ring::{HashOn, Ring};
use crate::table::Table;
use crate::trie::Trie;
use crate::value::{Argument, Arguments, LONG_STRING, OwnedValue, Property};

/// Number of an exchange in its table; 0 is the default exchange.
pub(crate) type ExchangeId = u32;

/// How an exchange chooses among its bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The binding's key is the routing key.
    Direct,
    /// All bindings.
    Fanout,
    /// The binding's key is a pattern of words: `*` is one word, `#` any number of them.
    Topic,
    /// The binding's arguments are what the headers have to be.
    Headers,
    /// One of the bindings, by a hash; the binding's key is its weight.
    ConsistentHash,
    /// One of the bindings, by a hash of the routing keys.
    ModulusHash,
    /// Any one of the bindings.
    Random,
    /// Any one of the bindings, which are of queues and have no key.
    LocalRandom,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Direct,
        Self::Fanout,
        Self::Topic,
        Self::Headers,
        Self::ConsistentHash,
        Self::ModulusHash,
        Self::Random,
        Self::LocalRandom,
    ];

    /// The type's name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Fanout => "fanout",
            Self::Topic => "topic",
            Self::Headers => "headers",
            Self::ConsistentHash => "x-consistent-hash",
            Self::ModulusHash => "x-modulus-hash",
            Self::Random => "x-random",
            Self::LocalRandom => "x-local-random",
        }
    }

    /// The type's name in a declaration: `x-delayed-message` wraps the type by which it routes.
    pub(crate) fn spelling(self, delayed: bool) -> &'static str {
        if delayed { DELAYED } else { self.name() }
    }

    fn parse(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name().as_bytes() == name)
    }
}

const DELAYED: &str = "x-delayed-message";

/// A request to have an exchange.
#[derive(Clone, Debug)]
pub struct Declaration<'a> {
    /// Its name.
    pub name: Name,
    /// `direct`, `fanout`, `topic`, `headers`, `x-consistent-hash`, `x-modulus-hash`, `x-random`, `x-local-random` or `x-delayed-message`.
    pub kind: &'a [u8],
    /// Whether it outlives a restart.
    pub durable: bool,
    /// Whether it goes with the last binding that leads from it.
    pub auto_delete: bool,
    /// Whether clients may not publish to it.
    pub internal: bool,
    /// `alternate-exchange`, `x-delayed-type`, `hash-header`, `hash-property`; others are kept.
    pub arguments: Arguments,
}

/// What became of a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declared {
    /// The exchange is new.
    New,
    /// An equivalent one was there.
    Existing,
}

/// A declaration that has been understood.
pub(crate) struct Plan {
    pub kind: Kind,
    pub delayed: bool,
}

impl Plan {
    pub fn of(declaration: &Declaration<'_>) -> Result<Self, DeclareError> {
        let delayed = declaration.kind == DELAYED.as_bytes();
        if !delayed {
            let unknown = || DeclareError::UnknownKind(String::from_utf8_lossy(declaration.kind).into_owned());
            return Ok(Self { kind: Kind::parse(declaration.kind).ok_or_else(unknown)?, delayed });
        }
        let kind = match declaration.arguments.get(b"x-delayed-type").map(|argument| &argument.value) {
            Some(OwnedValue::Bytes(name)) if **name == *DELAYED.as_bytes() => return Err(DeclareError::DelayedTwice),
            Some(OwnedValue::Bytes(name)) => Kind::parse(name)
                .ok_or_else(|| DeclareError::UnknownKind(String::from_utf8_lossy(name).into_owned()))?,
            _ => return Err(DeclareError::DelayedKind),
        };
        Ok(Self { kind, delayed })
    }
}

/// An exchange as the table keeps it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub name: Name,
    pub kind: Kind,
    pub delayed: bool,
    pub durable: bool,
    pub auto_delete: bool,
    pub internal: bool,
    pub arguments: Arguments,
    /// Bytes by which it is in the account; those that are always there are not.
    pub counted: usize,
    /// Of the arguments.
    pub alternate: Option<Name>,
    /// Counts if the arguments name none.
    pub policy_alternate: Option<Name>,
    pub matcher: Matcher,
    /// Bindings from it and to it.
    pub outgoing: Vec<BindingId>,
    pub incoming: Vec<BindingId>,
}

impl Declaration<'_> {
    /// Bytes of memory that the exchange takes, about, without its bindings.
    pub fn weight(&self) -> usize {
        const EXCHANGE: usize = 640;
        EXCHANGE + 4 * self.name.len() + self.arguments.weight()
    }
}

impl Slot {
    pub fn new(declaration: Declaration<'_>, plan: &Plan) -> Result<Self, DeclareError> {
        let Declaration { name, durable, auto_delete, internal, arguments, .. } = declaration;
        let alternate = match string(&arguments, "alternate-exchange")? {
            // No exchange has a longer name, so there is none to fall back to.
            Some(name) => Name::new(name).ok(),
            None => None,
        };
        let matcher = match plan.kind {
            Kind::Direct => Matcher::Direct(Default::default()),
            Kind::Fanout => Matcher::Fanout,
            Kind::Topic => Matcher::Topic(Trie::new()),
            Kind::Headers => Matcher::Headers(Default::default()),
            Kind::ConsistentHash => Matcher::ConsistentHash(Ring::new(hash_on(&arguments)?)),
            Kind::ModulusHash => Matcher::Modulus(Default::default()),
            Kind::Random => Matcher::Random { local: false },
            Kind::LocalRandom => Matcher::Random { local: true },
        };
        let Plan { kind, delayed } = *plan;
        let (outgoing, incoming, policy_alternate) = (Vec::new(), Vec::new(), None);
        Ok(Self {
            name,
            kind,
            delayed,
            durable,
            auto_delete,
            internal,
            arguments,
            counted: 0,
            alternate,
            policy_alternate,
            matcher,
            outgoing,
            incoming,
        })
    }

    /// # Errors
    /// The first thing that differs, in RabbitMQ's order. Of the arguments only `alternate-exchange` counts.
    pub fn check_equivalent(&self, declaration: &Declaration<'_>, plan: &Plan) -> Result<(), Difference> {
        if (plan.kind.spelling(plan.delayed)) != self.kind.spelling(self.delayed) {
            let (received, current) = ((plan.kind, plan.delayed), (self.kind, self.delayed));
            return Err(Difference::Kind { received, current });
        }
        if declaration.durable != self.durable {
            return Err(Difference::Durable { received: declaration.durable });
        }
        if declaration.auto_delete != self.auto_delete {
            return Err(Difference::AutoDelete { received: declaration.auto_delete });
        }
        if declaration.internal != self.internal {
            return Err(Difference::Internal { received: declaration.internal });
        }
        let alternate = |arguments: &Arguments| arguments.get(b"alternate-exchange").cloned();
        let (received, current) = (alternate(&declaration.arguments), alternate(&self.arguments));
        if received != current {
            return Err(Difference::AlternateExchange { received, current });
        }
        Ok(())
    }

    /// Where a message goes that no binding takes.
    pub fn fallback(&self) -> Option<&Name> {
        self.alternate.as_ref().or(self.policy_alternate.as_ref())
    }
}

fn string<'a>(arguments: &'a Arguments, name: &'static str) -> Result<Option<&'a [u8]>, DeclareError> {
    match arguments.get(name.as_bytes()) {
        None => Ok(None),
        Some(Argument { tag: LONG_STRING, value: OwnedValue::Bytes(bytes), .. }) => Ok(Some(bytes)),
        Some(Argument { tag, .. }) => Err(DeclareError::ArgumentType { argument: name, tag: *tag }),
    }
}

fn hash_on(arguments: &Arguments) -> Result<HashOn, DeclareError> {
    match (string(arguments, "hash-header")?, string(arguments, "hash-property")?) {
        (None, None) => Ok(HashOn::RoutingKey),
        (Some(header), None) => Ok(HashOn::Header(header.into())),
        (None, Some(b"message_id")) => Ok(HashOn::Property(Property::MessageId)),
        (None, Some(b"correlation_id")) => Ok(HashOn::Property(Property::CorrelationId)),
        (None, Some(b"timestamp")) => Ok(HashOn::Property(Property::Timestamp)),
        (None, Some(other)) => Err(DeclareError::HashProperty(String::from_utf8_lossy(other).into_owned())),
        (Some(_), Some(_)) => Err(DeclareError::HashTwice),
    }
}

/// An exchange of a table.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    pub(crate) table: &'a Table,
    pub(crate) id: ExchangeId,
}

impl<'a> Exchange<'a> {
    pub(crate) fn slot(&self) -> &'a Slot {
        self.table.slot(self.id)
    }

    /// Its name; of the default exchange none.
    pub fn name(&self) -> &'a Name {
        &self.slot().name
    }

    /// How it routes; of a delayed exchange the type it wraps.
    pub fn kind(&self) -> Kind {
        self.slot().kind
    }

    /// Whether it was declared as `x-delayed-message`: header `x-delay` of a message says how long it waits before it is routed.
    pub fn delayed(&self) -> bool {
        self.slot().delayed
    }

    /// Its type as it was declared.
    pub fn kind_name(&self) -> &'static str {
        self.slot().kind.spelling(self.slot().delayed)
    }

    /// Whether it outlives a restart.
    pub fn durable(&self) -> bool {
        self.slot().durable
    }

    /// Whether it goes with the last binding that leads from it.
    pub fn auto_delete(&self) -> bool {
        self.slot().auto_delete
    }

    /// Whether clients may not publish to it (403 ACCESS_REFUSED); routing does not ask.
    pub fn internal(&self) -> bool {
        self.slot().internal
    }

    /// The arguments of its declaration.
    pub fn arguments(&self) -> &'a Arguments {
        &self.slot().arguments
    }

    /// Where a message goes that no binding takes: the argument's, else the policy's.
    pub fn alternate(&self) -> Option<&'a Name> {
        self.slot().fallback()
    }

    /// How many bindings lead from it.
    pub fn outgoing_count(&self) -> usize {
        self.slot().outgoing.len()
    }
}
