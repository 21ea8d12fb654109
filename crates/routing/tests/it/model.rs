//! Random changes and messages, beside a model that keeps lists and looks through all of them.

use std::collections::{BTreeMap, BTreeSet};

use routing::{
    Argument, Arguments, Bound, Declaration, Declared, DeleteError, Destination, OwnedValue, QueueId, Removal,
};
use routing::{RemovedDestination, Table};

use crate::random::Random;
use crate::{Message, name, route_with, string};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Queue(u64),
    Exchange(String),
}

impl End {
    fn destination(&self) -> Destination<'_> {
        match self {
            Self::Queue(id) => Destination::Queue(QueueId(*id)),
            Self::Exchange(name) => Destination::Exchange(name.as_bytes()),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct ModelBinding {
    source: String,
    end: End,
    key: String,
    arguments: Vec<Argument>,
}

#[derive(Clone, Debug)]
struct ModelExchange {
    kind: &'static str,
    auto_delete: bool,
    durable: bool,
    alternate: Option<String>,
}

#[derive(Default, Debug)]
struct Model {
    exchanges: BTreeMap<String, ModelExchange>,
    queues: BTreeMap<u64, bool>,
    bindings: Vec<ModelBinding>,
}

/// Exchanges, and bindings as text, that went.
type Gone = (BTreeSet<String>, BTreeSet<String>);

impl Model {
    fn exists(&self, end: &End) -> bool {
        match end {
            End::Queue(id) => self.queues.contains_key(id),
            End::Exchange(name) => self.exchanges.contains_key(name),
        }
    }

    fn durable(&self, binding: &ModelBinding) -> bool {
        let end = match &binding.end {
            End::Queue(id) => self.queues[id],
            End::Exchange(name) => self.exchanges[name].durable,
        };
        end && self.exchanges[&binding.source].durable
    }

    /// Drops bindings, then exchanges that have lost their last one, until nothing changes.
    fn drop_bindings(&mut self, which: impl Fn(&ModelBinding) -> bool, gone: &mut Gone) {
        let doomed: Vec<_> = self.bindings.iter().filter(|binding| which(binding)).cloned().collect();
        self.bindings.retain(|binding| !which(binding));
        gone.1.extend(doomed.iter().map(|binding| format!("{binding:?}")));
        for ModelBinding { source, .. } in doomed {
            let bare = self.bindings.iter().all(|binding| binding.source != source);
            if bare && self.exchanges.get(&source).is_some_and(|exchange| exchange.auto_delete) {
                self.drop_exchange(&source, gone);
            }
        }
    }

    fn drop_exchange(&mut self, name: &str, gone: &mut Gone) {
        if self.exchanges.remove(name).is_some() {
            gone.0.insert(name.to_owned());
            self.drop_bindings(|binding| binding.source == name || binding.end == End::Exchange(name.to_owned()), gone);
        }
    }

    fn matches(&self, binding: &ModelBinding, keys: &[&str], message: &Message) -> bool {
        match self.exchanges[&binding.source].kind {
            "direct" => keys.contains(&&*binding.key),
            "fanout" => true,
            "topic" => keys.iter().any(|key| crate::topics::naive(&binding.key, key)),
            _ => headers_match(&binding.arguments, message),
        }
    }

    fn route(&self, exchange: &str, keys: &[&str], message: &Message) -> Vec<u64> {
        let (mut queues, mut seen, mut next) = (BTreeSet::new(), BTreeSet::new(), vec![exchange.to_owned()]);
        while let Some(name) = next.pop() {
            if !self.exchanges.contains_key(&name) || !seen.insert(name.clone()) {
                continue;
            }
            let from = self.bindings.iter().filter(|binding| binding.source == name);
            let matched: Vec<_> = from.filter(|binding| self.matches(binding, keys, message)).collect();
            if matched.is_empty() {
                next.extend(self.exchanges[&name].alternate.clone());
            }
            for binding in matched {
                match &binding.end {
                    End::Queue(id) => drop(queues.insert(*id)),
                    End::Exchange(name) => next.push(name.clone()),
                }
            }
        }
        queues.into_iter().collect()
    }
}

fn headers_match(arguments: &[Argument], message: &Message) -> bool {
    let rule =
        arguments.iter().find(|argument| &*argument.name == b"x-match").map(|argument| argument.value.to_string());
    let rule = rule.as_deref().unwrap_or("all");
    let conditions: Vec<bool> = arguments
        .iter()
        .filter(|argument| {
            &*argument.name != b"x-match" && (rule.ends_with("-with-x") || !argument.name.starts_with(b"x-"))
        })
        .map(|argument| {
            let header = message.headers.iter().rev().find(|(name, _)| *name.as_bytes() == *argument.name);
            header.is_some_and(|(_, value)| matches!(argument.value, OwnedValue::Void) || *value == argument.value)
        })
        .collect();
    if rule.starts_with("any") { conditions.contains(&true) } else { !conditions.contains(&false) }
}

const KINDS: [&str; 4] = ["direct", "fanout", "topic", "headers"];
const RULES: [&str; 4] = ["all", "any", "all-with-x", "any-with-x"];
const KEYS: [&str; 9] = ["", "a", "b", "a.b", "*", "#", "a.#", "*.b", "#.b.#"];
const MESSAGE_KEYS: [&str; 6] = ["", "a", "b", "a.b", "b.b", "c"];

fn exchange_name(random: &mut Random) -> String {
    format!("e{}", random.below(6))
}

fn value(random: &mut Random) -> OwnedValue {
    match random.below(3) {
        0 => OwnedValue::Void,
        number => OwnedValue::Int(number as i64),
    }
}

fn arguments(random: &mut Random) -> Vec<Argument> {
    if random.chance(40) {
        return Vec::new();
    }
    let mut all = Vec::new();
    if random.chance(70) {
        all.push(string("x-match", RULES[random.below(4)]));
    }
    for header in ["h", "i", "x-j"] {
        if random.chance(40) {
            all.push(Argument { name: header.as_bytes().into(), tag: b'I', value: value(random) });
        }
    }
    all
}

fn message(random: &mut Random) -> Message {
    let names = ["h", "i", "x-j", "h"];
    let headers = names.iter().filter(|_| random.chance(50)).map(|name| (*name).to_owned()).collect::<Vec<_>>();
    Message { headers: headers.into_iter().map(|name| (name, value(random))).collect(), ..Message::default() }
}

fn binding(random: &mut Random) -> ModelBinding {
    let end = if random.chance(60) { End::Queue(random.below(6) as u64) } else { End::Exchange(exchange_name(random)) };
    let (source, key) = (exchange_name(random), (*random.pick(&KEYS)).to_owned());
    let mut arguments = arguments(random);
    arguments.sort_by(|one, other| one.name.cmp(&other.name));
    ModelBinding { source, end, key, arguments }
}

fn text(removal: &Removal) -> Gone {
    let utf8 = |bytes: &[u8]| String::from_utf8(bytes.into()).unwrap();
    let bindings = removal.bindings.iter().map(|binding| {
        let end = match &binding.destination {
            RemovedDestination::Queue(id) => End::Queue(id.0),
            RemovedDestination::Exchange(name) => End::Exchange(name.to_string()),
        };
        let (source, key, arguments) =
            (binding.source.to_string(), utf8(&binding.key), binding.arguments.fields().to_vec());
        format!("{:?}", ModelBinding { source, end, key, arguments })
    });
    let exchanges = removal.exchanges.iter().map(|exchange| exchange.name.to_string());
    let (exchanges, bindings): Gone = (exchanges.collect(), bindings.collect());
    assert_eq!(
        (exchanges.len(), bindings.len()),
        (removal.exchanges.len(), removal.bindings.len()),
        "each is told once"
    );
    (exchanges, bindings)
}

fn sorted(mut removal: Removal) -> Removal {
    removal.exchanges.sort_by_key(|exchange| exchange.name.to_string());
    removal.bindings.sort_by_key(|binding| format!("{binding:?}"));
    removal
}

fn change(random: &mut Random, table: &mut Table, model: &mut Model) {
    let mut gone = Gone::default();
    match random.below(100) {
        0..14 => declare(random, table, model),
        14..16 => {
            let (name, if_unused) = (exchange_name(random), random.chance(50));
            let used = model.bindings.iter().any(|binding| binding.source == name);
            let planned = table.deletion(name.as_bytes(), if_unused);
            let removed = table.delete(name.as_bytes(), if_unused);
            assert_eq!(planned.map(sorted), removed.clone().map(sorted));
            if if_unused && used {
                assert_eq!(removed, Err(DeleteError::InUse(crate::name(&name))));
            } else {
                model.drop_exchange(&name, &mut gone);
                assert_eq!(text(&removed.unwrap()), gone);
            }
        }
        16..23 => {
            let (id, durable) = (random.below(6) as u64, random.chance(50));
            let added = table.add_queue(name(&format!("q{id}")), QueueId(id), durable).is_ok();
            assert_eq!(added, !model.queues.contains_key(&id));
            model.queues.entry(id).or_insert(durable);
        }
        23..25 => {
            let id = random.below(6) as u64;
            let planned = text(&table.queue_removal(QueueId(id)));
            let removal = table.remove_queue(QueueId(id));
            assert_eq!(planned, text(&removal));
            model.drop_bindings(|binding| binding.end == End::Queue(id), &mut gone);
            model.queues.remove(&id);
            assert_eq!(text(&removal), gone);
        }
        25..88 => {
            let binding = binding(random);
            let arguments = Arguments::new(binding.arguments.clone());
            let bound =
                table.bind(binding.source.as_bytes(), binding.end.destination(), binding.key.as_bytes(), &arguments);
            if !model.exchanges.contains_key(&binding.source) || !model.exists(&binding.end) {
                bound.unwrap_err();
            } else if model.bindings.contains(&binding) {
                assert_eq!(bound, Ok(Bound::Existing));
            } else {
                assert_eq!(bound, Ok(Bound::New { durable: model.durable(&binding) }));
                model.bindings.push(binding);
            }
        }
        _ => {
            let known = if model.bindings.is_empty() { None } else { Some(random.pick(&model.bindings).clone()) };
            let wanted = known.filter(|_| random.chance(80)).unwrap_or_else(|| binding(random));
            let arguments = Arguments::new(wanted.arguments.clone());
            let planned = table
                .unbinding(wanted.source.as_bytes(), wanted.end.destination(), wanted.key.as_bytes(), &arguments)
                .unwrap();
            let removal = table
                .unbind(wanted.source.as_bytes(), wanted.end.destination(), wanted.key.as_bytes(), &arguments)
                .unwrap();
            model.drop_bindings(|binding| *binding == wanted, &mut gone);
            assert_eq!(text(&removal), gone);
            assert_eq!(sorted(planned), sorted(removal));
        }
    }
}

fn declare(random: &mut Random, table: &mut Table, model: &mut Model) {
    let name = exchange_name(random);
    let alternate = random.chance(40).then(|| exchange_name(random));
    let (kind, auto_delete, durable) = (*random.pick(&KINDS), random.chance(25), random.chance(50));
    let arguments = Arguments::new(alternate.iter().map(|name| string("alternate-exchange", name)).collect());
    let (internal, declaration_name) = (false, crate::name(&name));
    let declaration =
        Declaration { name: declaration_name, kind: kind.as_bytes(), durable, auto_delete, internal, arguments };
    let declared = table.declare(declaration);
    match model.exchanges.get(&name) {
        None => {
            assert_eq!(declared, Ok(Declared::New));
            model.exchanges.insert(name, ModelExchange { kind, auto_delete, durable, alternate });
        }
        Some(found) => {
            let same = (found.kind, found.auto_delete, found.durable, &found.alternate)
                == (kind, auto_delete, durable, &alternate);
            assert_eq!(declared.is_ok(), same);
        }
    }
}

fn listed<'a>(bindings: impl Iterator<Item = routing::Binding<'a>>) -> Vec<String> {
    let mut all: Vec<_> = bindings
        .filter(|binding| !binding.source.is_empty())
        .map(|binding| {
            let utf8 = |bytes: &[u8]| String::from_utf8(bytes.into()).unwrap();
            let end = match binding.destination {
                Destination::Queue(id) => End::Queue(id.0),
                Destination::Exchange(name) => End::Exchange(utf8(name)),
            };
            let arguments = binding.arguments.fields().to_vec();
            let model = ModelBinding { source: utf8(binding.source), end, key: utf8(binding.key), arguments };
            format!("{model:?} {}", binding.durable)
        })
        .collect();
    all.sort();
    all
}

fn check_lists(table: &Table, model: &Model) {
    let expected = |which: &dyn Fn(&ModelBinding) -> bool| {
        let bindings = model.bindings.iter().filter(|binding| which(binding));
        let mut all: Vec<_> = bindings.map(|binding| format!("{binding:?} {}", model.durable(binding))).collect();
        all.sort();
        all
    };
    assert_eq!(listed(table.all_bindings()), expected(&|_| true));
    assert_eq!(table.binding_count(), model.bindings.len());
    for name in model.exchanges.keys() {
        assert_eq!(listed(table.bindings_from(name.as_bytes())), expected(&|binding| binding.source == *name));
        let end = End::Exchange(name.clone());
        assert_eq!(listed(table.bindings_to(end.destination())), expected(&|binding| binding.end == end));
        let ends = model.queues.keys().map(|id| End::Queue(*id)).chain([end]);
        for end in ends {
            let between = listed(table.bindings_between(name.as_bytes(), end.destination()));
            assert_eq!(between, expected(&|binding| binding.source == *name && binding.end == end));
        }
    }
    for id in model.queues.keys() {
        assert_eq!(
            listed(table.bindings_to(End::Queue(*id).destination())),
            expected(&|binding| binding.end == End::Queue(*id))
        );
    }
    assert_eq!(table.exchanges().count(), model.exchanges.len() + 7);
}

#[test]
fn the_table_routes_as_the_model_does() {
    let mut routed = 0;
    for seed in 0..3_000 {
        let mut random = Random(seed);
        let (mut table, mut model) = (Table::new(), Model::default());
        for step in 0..120 {
            change(&mut random, &mut table, &mut model);
            let Some(exchange) = model.exchanges.keys().nth(random.below(6)) else { continue };
            let message = message(&mut random);
            let keys: Vec<_> = (0..=random.below(3)).map(|_| *random.pick(&MESSAGE_KEYS)).collect();
            let got = route_with(&table, exchange, &keys, &message);
            let expected = model.route(exchange, &keys, &message);
            assert_eq!(got, expected, "seed {seed}, step {step}, exchange {exchange}, keys {keys:?}, {model:#?}");
            routed += got.len();
        }
        check_lists(&table, &model);
    }
    assert!(routed > 100_000, "messages came through: {routed}");
}
