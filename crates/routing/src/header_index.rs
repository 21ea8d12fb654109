//! Headers exchanges: bindings found by the headers of a message.
//!
//! The arguments of a binding are conditions: a header with that value, or with any if the argument has none. `x-match` says
//! whether all (also when it is absent) or any of them have to hold. Arguments whose name begins with `x-` are no conditions,
//! unless `x-match` ends in `-with-x`; `x-match` itself never is one. All of no conditions hold, any of none does not.
//!
//! A binding for all is listed under one of its conditions, the one that the fewest others are listed under; a binding for any
//! under each. A message looks up its own headers, so that what it has nothing in common with costs nothing; a binding for all that
//! is found is then checked in full. The headers of a message are decoded once in each exchange for that, so the cost is at most the sum of its
//! headers and of the conditions of the bindings that have something in common with it.

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::binding::{BindingId, Bindings};
use crate::error::InvalidBinding;
use crate::listed::Listed;
use crate::route::{Steps, TooFar};
use crate::value::{Argument, Arguments, Headers, LONG_STRING, OwnedValue, Value};

const MATCH: &[u8] = b"x-match";
/// Arguments of a binding that are compared in one step.
const ARGUMENTS_OF_STEP: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    any: bool,
    with_x: bool,
}

impl Rule {
    fn of(arguments: &Arguments) -> Result<Self, InvalidBinding> {
        let Some(Argument { tag, value, .. }) = arguments.get(MATCH) else {
            return Ok(Self { any: false, with_x: false });
        };
        let OwnedValue::Bytes(word) = value else {
            return Err(InvalidBinding::MatchType { tag: *tag, value: value.to_string() });
        };
        if *tag != LONG_STRING {
            return Err(InvalidBinding::MatchType { tag: *tag, value: value.to_string() });
        }
        let (any, with_x) = match &**word {
            b"all" => (false, false),
            b"any" => (true, false),
            b"all-with-x" => (false, true),
            b"any-with-x" => (true, true),
            other => return Err(InvalidBinding::Match(String::from_utf8_lossy(other).into_owned())),
        };
        Ok(Self { any, with_x })
    }

    fn conditions(self, arguments: &Arguments) -> impl Iterator<Item = &Argument> {
        arguments
            .fields()
            .iter()
            .filter(move |field| if self.with_x { &*field.name != MATCH } else { !field.name.starts_with(b"x-") })
    }

    /// For a message that meets the condition that the binding was found by.
    fn holds(self, arguments: &Arguments, headers: &Decoded<'_>) -> bool {
        let met = |condition: &Argument| match (headers.get(&condition.name), condition.value.as_value()) {
            (None, _) => false,
            (Some(_), Value::Void) => true,
            (Some(header), value) => header == value,
        };
        self.any || self.conditions(arguments).all(met)
    }
}

/// Headers of a message that are looked up without a hash table, and so without an allocation.
const FEW: usize = 8;

/// The headers of a message, each once.
#[derive(Default)]
struct Decoded<'a> {
    /// All of them, while they are few.
    few: SmallVec<[(&'a [u8], Value<'a>); FEW]>,
    /// All of them otherwise.
    many: HashMap<&'a [u8], Value<'a>>,
    /// With those that have a name again.
    visited: usize,
}

impl<'a> Decoded<'a> {
    fn of(headers: &'a dyn Headers) -> Self {
        let mut decoded = Self::default();
        headers.visit(&mut |name, value| decoded.enter(name, value));
        decoded
    }

    fn enter(&mut self, name: &'a [u8], value: Value<'a>) {
        self.visited += 1;
        if self.many.is_empty() {
            if self.get(name).is_some() {
                return;
            }
            if self.few.len() < FEW {
                self.few.push((name, value));
                return;
            }
            self.many.extend(self.few.drain(..));
        }
        self.many.entry(name).or_insert(value);
    }

    fn get(&self, name: &[u8]) -> Option<Value<'a>> {
        if self.many.is_empty() {
            return self.few.iter().find(|(found, _)| *found == name).map(|(_, value)| *value);
        }
        self.many.get(name).copied()
    }

    fn iter(&self) -> impl Iterator<Item = (&'a [u8], Value<'a>)> {
        self.few.iter().copied().chain(self.many.iter().map(|(name, value)| (*name, *value)))
    }
}

pub(crate) fn check(arguments: &Arguments) -> Result<(), InvalidBinding> {
    Rule::of(arguments).map(|_| ())
}

/// Bytes of memory that a binding takes in the index, about: one for any of its conditions is listed under each.
pub(crate) fn weight(arguments: &Arguments) -> usize {
    const LISTED: usize = 144;
    arguments.bytes() + arguments.fields().len().max(1) * LISTED
}

/// Bindings listed under conditions on one header.
#[derive(Debug, Default)]
struct Conditions {
    present: Listed,
    values: HashMap<OwnedValue, Listed>,
}

impl Conditions {
    fn list(&self, value: Value<'_>) -> &[BindingId] {
        if value == Value::Void {
            self.present.as_slice()
        } else {
            self.values.get(&value).map_or(&[], Listed::as_slice)
        }
    }

    fn insert(&mut self, value: &OwnedValue, id: BindingId) {
        match value {
            OwnedValue::Void => self.present.insert(id),
            value => self.values.entry(value.clone()).or_default().insert(id),
        }
    }

    fn remove(&mut self, value: Value<'_>, id: BindingId) {
        if value == Value::Void {
            return self.present.remove(id);
        }
        if let Some(list) = self.values.get_mut(&value) {
            list.remove(id);
            if list.is_empty() {
                self.values.remove(&value);
            }
        }
    }
}

/// The bindings of a headers exchange.
#[derive(Debug, Default)]
pub(crate) struct HeaderIndex {
    headers: HashMap<Box<[u8]>, Conditions>,
    /// Bindings for all of no conditions.
    unconditional: Listed,
    /// Of each binding, its rule and which of its conditions it is listed under, if it is for all.
    rules: HashMap<BindingId, (Rule, usize)>,
}

impl HeaderIndex {
    pub fn insert(&mut self, id: BindingId, bindings: &Bindings) {
        let arguments = &bindings.get(id).arguments;
        let rule = Rule::of(arguments).expect("checked before it was bound");
        let listed = |condition: &Argument| {
            self.headers.get(&*condition.name).map_or(0, |conditions| conditions.list(condition.value.as_value()).len())
        };
        let rarest = rule.conditions(arguments).map(listed).enumerate().min_by_key(|(_, listed)| *listed);
        let rarest = rarest.map(|(at, _)| at);
        self.rules.insert(id, (rule, rarest.unwrap_or(0)));
        for (at, condition) in rule.conditions(arguments).enumerate() {
            if rule.any || Some(at) == rarest {
                self.headers.entry(condition.name.clone()).or_default().insert(&condition.value, id);
            }
        }
        if rarest.is_none() && !rule.any {
            self.unconditional.insert(id);
        }
    }

    pub fn remove(&mut self, id: BindingId, bindings: &Bindings) {
        let arguments = &bindings.get(id).arguments;
        let (rule, rarest) = self.rules.remove(&id).expect("each binding has a rule");
        let mut conditions = 0;
        for (at, condition) in rule.conditions(arguments).enumerate() {
            conditions += 1;
            if rule.any || at == rarest {
                // Of two conditions that are the same the first has done it.
                let Some(listed) = self.headers.get_mut(&*condition.name) else { continue };
                listed.remove(condition.value.as_value(), id);
                if listed.present.is_empty() && listed.values.is_empty() {
                    self.headers.remove(&*condition.name);
                }
            }
        }
        if conditions == 0 && !rule.any {
            self.unconditional.remove(id);
        }
    }

    /// Tells the bindings that match, some perhaps more than once.
    pub fn select(
        &self,
        headers: &dyn Headers,
        bindings: &Bindings,
        steps: &mut Steps,
        mut found: impl FnMut(BindingId),
    ) -> Result<(), TooFar> {
        self.unconditional.as_slice().iter().copied().for_each(&mut found);
        if self.headers.is_empty() {
            return Ok(());
        }
        let mut decoded = None;
        steps.take_headers(|| decoded.insert(Decoded::of(headers)).visited)?;
        let headers = decoded.unwrap_or_else(|| Decoded::of(headers));
        for (name, value) in headers.iter() {
            let Some(conditions) = self.headers.get(name) else { continue };
            let valued = if value == Value::Void { &[] } else { conditions.list(value) };
            for id in conditions.present.as_slice().iter().chain(valued) {
                let (rule, _) = self.rules[id];
                let arguments = &bindings.get(*id).arguments;
                steps.note(1 + arguments.fields().len() / ARGUMENTS_OF_STEP);
                if rule.holds(arguments, &headers) {
                    found(*id);
                }
            }
        }
        Ok(())
    }
}
