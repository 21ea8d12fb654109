//! Definitions in: read and checked as a whole, then applied in the order in which one thing needs another: users, virtual hosts,
//! permissions, parameters, policies, exchanges, queues, bindings. On the controller's thread, in pieces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::vec;

use broker::append::AppendError;
use broker::{Broker, Gathering, JobOwner, Permissions, PolicyScope, PolicyWish, SecurityError, Vhost, VhostWish};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::super::{users, vhosts};
use super::declared::{self, Open, Step};
use crate::control::{await_policies, control};

/// A piece of an import is over after this long: others have the controller then.
const PIECE_MAX: Duration = Duration::from_millis(20);

/// Why definitions are not taken over.
#[derive(Debug, thiserror::Error)]
pub enum InvalidDefinitions {
    /// The file cannot be read.
    #[error("{0}")]
    File(std::io::Error),
    /// It is no JSON.
    #[error("line {line}: {reason}")]
    Syntax {
        /// From 1.
        line: usize,
        /// What is wrong there.
        reason: String,
    },
    /// Something in it cannot be.
    #[error("line {line}: {kind} {name:?}: {reason}")]
    Item {
        /// From 1.
        line: usize,
        /// Of what.
        kind: &'static str,
        /// Its name, as far as it has one.
        name: String,
        /// Why not.
        reason: String,
    },
    /// The journal does not take something.
    #[error("line {line}: {kind} {name:?}: {error}")]
    Journal {
        /// From 1.
        line: usize,
        /// Of what.
        kind: &'static str,
        /// Its name, as far as it has one.
        name: String,
        /// Why not.
        error: AppendError,
    },
    /// The controller does nothing else for too long.
    #[error("the broker has too much to do")]
    Busy,
}

/// Why an import ends at one thing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// It cannot be.
    Invalid(String),
    /// The journal does not take it.
    Journal(AppendError),
}

impl From<String> for Failed {
    fn from(reason: String) -> Self {
        Self::Invalid(reason)
    }
}

impl From<AppendError> for Failed {
    fn from(error: AppendError) -> Self {
        match error {
            // It is what is wrong, wherever it is to be written.
            AppendError::TooLarge => Self::Invalid(error.to_string()),
            other => Self::Journal(other),
        }
    }
}

/// Something that was not taken over, or only in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotTaken {
    /// Of what.
    pub kind: &'static str,
    /// Where it would be.
    pub vhost: String,
    /// Its name.
    pub name: String,
    /// Where it stands in the document, from 1.
    pub line: usize,
    /// Why, or what is missing.
    pub reason: String,
}

/// What came of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Things that were made or changed.
    pub changed: usize,
    /// Things that were not taken over, or only in part.
    pub not_taken: Vec<NotTaken>,
}

/// The lists of a document, in the order in which they are applied.
const LISTS: [(&str, &str); 10] = [
    ("users", "user"),
    ("vhosts", "vhost"),
    ("permissions", "permission"),
    ("topic_permissions", "topic permission"),
    ("global_parameters", "global parameter"),
    ("parameters", "parameter"),
    ("policies", "policy"),
    ("exchanges", "exchange"),
    ("queues", "queue"),
    ("bindings", "binding"),
];
/// What else a document may say: about itself, or about the virtual host that it is of.
const OTHERS: [&str; 13] = [
    "rabbit_version",
    "rabbitmq_version",
    "product_name",
    "product_version",
    "rabbitmq_definition_format",
    "original_cluster_name",
    "original_vhost_name",
    "explanation",
    "name",
    "description",
    "metadata",
    "limits",
    "default_queue_type",
];

/// One thing of a document.
pub(crate) struct Item {
    pub kind: &'static str,
    pub line: usize,
    pub fields: Map<String, Value>,
    pub vhost: String,
}

impl Item {
    /// A field that is text.
    pub fn text(&self, name: &str) -> &str {
        self.fields.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn flag(&self, name: &str) -> bool {
        self.fields.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    /// What it is known by.
    pub fn shown(&self) -> String {
        match self.kind {
            "permission" => format!("{} of {}", self.text("user"), self.vhost),
            "topic permission" => {
                format!("{} of {}, exchange {}", self.text("user"), self.vhost, self.text("exchange"))
            }
            "binding" => {
                format!("{} to {}, key {}", self.text("source"), self.text("destination"), self.text("routing_key"))
            }
            "parameter" => format!("{} {}", self.text("component"), self.text("name")),
            _ => self.text("name").to_owned(),
        }
    }

    fn invalid(&self, reason: impl ToString) -> InvalidDefinitions {
        InvalidDefinitions::Item { line: self.line, kind: self.kind, name: self.shown(), reason: reason.to_string() }
    }

    fn failed(&self, failed: Failed) -> InvalidDefinitions {
        match failed {
            Failed::Invalid(reason) => self.invalid(reason),
            Failed::Journal(error) => {
                InvalidDefinitions::Journal { line: self.line, kind: self.kind, name: self.shown(), error }
            }
        }
    }

    fn not_taken(&self, reason: impl ToString) -> NotTaken {
        NotTaken {
            kind: self.kind,
            vhost: self.vhost.clone(),
            name: self.shown(),
            line: self.line,
            reason: reason.to_string(),
        }
    }

    /// Fields that it cannot be without, which are text.
    fn check(&self) -> Result<(), InvalidDefinitions> {
        let needed: &[&str] = match self.kind {
            "permission" => &["user", "configure", "write", "read"],
            "topic permission" => &["user", "exchange", "write", "read"],
            "binding" => &["source", "destination", "destination_type"],
            "parameter" => &["component", "name"],
            "policy" => &["name", "pattern"],
            "exchange" => &["name", "type"],
            _ => &["name"],
        };
        let is_text = |name: &&&str| self.fields.get(**name).is_some_and(Value::is_string);
        match needed.iter().find(|name| !is_text(name)) {
            Some(missing) => Err(self.invalid(format!("{missing} is missing or no text"))),
            None => Ok(()),
        }
    }
}

/// What came of one thing.
pub(crate) enum Came {
    /// It was as it is to be.
    Same,
    /// It was made or changed.
    Changed,
    /// It was not taken over.
    Not(String),
    /// It was made or changed, or is the same, without something.
    Partly(bool, Vec<String>),
}

/// A document that was read.
pub(crate) struct Document {
    items: Vec<Item>,
    unknown: Vec<NotTaken>,
}

/// Tells the lines of parts of a text, from 1; each byte is looked at once if they come one behind the other.
struct Lines<'t> {
    text: &'t str,
    /// A place that was asked for, and its line.
    at: usize,
    line: usize,
}

impl<'t> Lines<'t> {
    fn new(text: &'t str) -> Self {
        Self { text, at: 0, line: 1 }
    }

    fn of(&mut self, part: &str) -> usize {
        let at = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize).min(self.text.len());
        if at < self.at {
            (self.at, self.line) = (0, 1);
        }
        self.line += self.text.as_bytes()[self.at..at].iter().filter(|byte| **byte == b'\n').count();
        self.at = at;
        self.line
    }
}

fn syntax(error: &serde_json::Error, before: usize) -> InvalidDefinitions {
    let text = error.to_string();
    let reason = text.split(" at line ").next().unwrap_or_default().to_owned();
    InvalidDefinitions::Syntax { line: before + error.line(), reason }
}

impl Document {
    /// Reads a document; `into`: all of it belongs to this virtual host.
    ///
    /// # Errors
    /// `Syntax`, `Item`.
    pub fn parse(text: &str, into: Option<&str>) -> Result<Self, InvalidDefinitions> {
        let sections: BTreeMap<String, &RawValue> = serde_json::from_str(text).map_err(|error| syntax(&error, 0))?;
        let (mut items, mut unknown, mut lines) = (Vec::new(), Vec::new(), Lines::new(text));
        for (name, kind) in LISTS {
            let Some(section) = sections.get(name) else { continue };
            let first = lines.of(section.get());
            let all: Vec<&RawValue> = serde_json::from_str(section.get()).map_err(|error| syntax(&error, first - 1))?;
            for raw in all {
                let line = lines.of(raw.get());
                let fields: Map<String, Value> =
                    serde_json::from_str(raw.get()).map_err(|error| syntax(&error, line - 1))?;
                let own = fields.get("vhost").and_then(Value::as_str).unwrap_or_default();
                let vhost = into.unwrap_or(own).to_owned();
                let item = Item { kind, line, fields, vhost };
                item.check()?;
                match into.filter(|_| {
                    ["users", "vhosts", "permissions", "topic_permissions", "global_parameters"].contains(&name)
                }) {
                    Some(_) => unknown.push(item.not_taken("not of one virtual host: import it for the whole broker")),
                    None => items.push(item),
                }
            }
        }
        for (name, section) in &sections {
            if !LISTS.iter().any(|(known, _)| known == name) && !OTHERS.contains(&name.as_str()) {
                let (vhost, line) = (into.unwrap_or_default().to_owned(), lines.of(section.get()));
                unknown.push(NotTaken {
                    kind: "section",
                    vhost,
                    name: name.clone(),
                    line,
                    reason: "not known".to_owned(),
                });
            }
        }
        Ok(Self { items, unknown })
    }

    /// Applies it on the controller's thread, in pieces, between which the controller has time for others. Queues and exchanges that were there before
    /// follow its policies then.
    ///
    /// # Errors
    /// `Item`, `Journal`: what was before it is done. `Busy`.
    pub fn apply(self, broker: &Arc<Broker>, of: JobOwner) -> Result<Imported, InvalidDefinitions> {
        let mut imported = Imported { changed: 0, not_taken: self.unknown };
        let waits = |kind| ["policy", "parameter", "queue", "exchange"].contains(&kind);
        let with_policies: BTreeSet<String> =
            self.items.iter().filter(|item| waits(item.kind)).map(|item| item.vhost.clone()).collect();
        let mut items = self.items.into_iter();
        while !items.as_slice().is_empty() {
            (items, imported) = control(broker, of, move |broker| apply_piece(broker, items, imported))
                .ok_or(InvalidDefinitions::Busy)??;
        }
        let mut vhosts = with_policies.iter().filter_map(|vhost| broker.vhosts().get(vhost));
        if vhosts.all(|vhost| await_policies(&vhost)) { Ok(imported) } else { Err(InvalidDefinitions::Busy) }
    }
}

/// Things of a piece, and what came of them.
#[derive(Default)]
struct Piece {
    items: Vec<(Item, Option<Came>)>,
    open: Open,
    /// Those of which that is known when what is open is written.
    later: Vec<usize>,
}

impl Piece {
    /// Writes what is open.
    fn write(&mut self, broker: &Arc<Broker>) -> Result<(), InvalidDefinitions> {
        for (at, outcome) in std::mem::take(&mut self.later).into_iter().zip(self.open.write(broker)) {
            let (item, came) = &mut self.items[at];
            *came = Some(outcome.map_err(|failed| item.failed(failed))?);
        }
        Ok(())
    }

    fn take(&mut self, broker: &Arc<Broker>, item: Item) -> Result<(), InvalidDefinitions> {
        if self.open.is_over_with(item.kind) {
            self.write(broker)?;
        }
        let came = loop {
            match one(broker, &item, &mut self.open) {
                Ok(Step::Came(came)) => break Some(came),
                Ok(Step::Later) => break None,
                Ok(Step::AfterOthers) => self.write(broker)?,
                Err(failed) => {
                    self.write(broker)?;
                    return Err(item.failed(failed));
                }
            }
        };
        if came.is_none() {
            self.later.push(self.items.len());
        }
        self.items.push((item, came));
        Ok(())
    }
}

/// Takes over items for a while; what is left of them, and what has come of all so far.
fn apply_piece(
    broker: &Arc<Broker>,
    mut items: vec::IntoIter<Item>,
    mut imported: Imported,
) -> Result<(vec::IntoIter<Item>, Imported), InvalidDefinitions> {
    let (began, mut piece) = (Instant::now(), Piece::default());
    for item in items.by_ref() {
        piece.take(broker, item)?;
        if began.elapsed() >= PIECE_MAX {
            break;
        }
    }
    piece.write(broker)?;
    for (item, came) in piece.items {
        match came {
            None | Some(Came::Same) => {}
            Some(Came::Changed) => imported.changed += 1,
            Some(Came::Not(reason)) => imported.not_taken.push(item.not_taken(reason)),
            Some(Came::Partly(changed, reasons)) => {
                imported.changed += usize::from(changed);
                imported.not_taken.extend(reasons.into_iter().map(|reason| item.not_taken(reason)));
            }
        }
    }
    Ok((items, imported))
}

fn one(broker: &Arc<Broker>, item: &Item, open: &mut Open) -> Result<Step, Failed> {
    match item.kind {
        "exchange" => declared::exchange(broker, item, open),
        "queue" => declared::queue(broker, item, open),
        "binding" => declared::binding(broker, item, open),
        _ if open.holds(item) => Ok(Step::AfterOthers),
        "user" => Ok(user(broker, item, open)?),
        "vhost" => Ok(vhost(broker, item, open)?),
        "permission" => Ok(permission(broker, item, open)?),
        "topic permission" => Ok(topic_permission(broker, item, open)?),
        "global parameter" => Ok(global_parameter(broker, item, open)),
        "parameter" => Ok(parameter(broker, item, open)?),
        _ => Ok(policy(broker, item, open)?),
    }
}

/// What comes of a thing without something: `missing`.
fn came_without(changed: bool, missing: Vec<String>) -> Came {
    match (changed, missing.is_empty()) {
        (_, false) => Came::Partly(changed, missing),
        (true, true) => Came::Changed,
        (false, true) => Came::Same,
    }
}

/// # Errors
/// There is no such virtual host.
pub(crate) fn vhost_of(broker: &Arc<Broker>, item: &Item) -> Result<Arc<Vhost>, String> {
    broker.vhosts().get(&item.vhost).ok_or_else(|| format!("no virtual host {:?}", item.vhost))
}

/// The reason of a refusal, as text.
pub(crate) fn reason(refusal: super::super::answer::Refusal) -> String {
    let reason = refusal.reason();
    if reason.is_empty() { refusal.status.to_string() } else { reason }
}

fn user(broker: &Arc<Broker>, item: &Item, open: &mut Open) -> Result<Step, String> {
    let mut wish = users::wish(item.text("name"), &item.fields).map_err(reason)?;
    if let Some(there) = broker.security().defined_user(&wish.name) {
        wish.password = users::unless_same(wish.password, &there);
        if users::is_as_wanted(&wish, &there) {
            return Ok(Step::Came(Came::Same));
        }
    }
    let planned = open.changes.put_user(broker, wish).map_err(|error| error.to_string())?;
    Ok(open.planned(item, planned, |_| Came::Changed))
}

fn vhost(broker: &Arc<Broker>, item: &Item, open: &mut Open) -> Result<Step, String> {
    let name = item.text("name");
    let mut wish: VhostWish = vhosts::wish(name, &item.fields).map_err(reason)?;
    let mut missing = Vec::new();
    if item.fields.get("metadata").and_then(|metadata| metadata.get("protected_from_deletion"))
        == Some(&Value::Bool(true))
    {
        missing.push("protection from deletion is not there".to_owned());
    }
    if wish.default_queue_type.as_ref().is_some_and(|kind| kind.as_deref() == Some("stream")) {
        wish.default_queue_type = None;
        missing.push("queues of type stream cannot be the default here".to_owned());
    }
    let none = Map::new();
    let limits = item.fields.get("limits").and_then(Value::as_object).unwrap_or(&none);
    let planned = open.changes.put_vhost(broker, wish, limits).map_err(|error| error.to_string())?;
    Ok(open.planned(item, planned, |changed| came_without(changed, missing)))
}

/// An expression that is none is told, and what is else in the document taken over.
fn unless_invalid(planned: Result<Gathering<()>, SecurityError>, item: &Item, open: &mut Open) -> Result<Step, String> {
    match planned {
        Ok(planned) => Ok(open.planned(item, planned, |_| Came::Changed)),
        Err(error @ SecurityError::Pattern(_)) => Ok(Step::Came(Came::Not(error.to_string()))),
        Err(error) => Err(error.to_string()),
    }
}

fn permission(broker: &Arc<Broker>, item: &Item, open: &mut Open) -> Result<Step, String> {
    let (user, [configure, write, read]) =
        (item.text("user"), ["configure", "write", "read"].map(|name| item.text(name)));
    let there = broker.security().permissions(&item.vhost, user).filter(|_| broker.security().has_users());
    if there.is_some_and(|there| {
        [there.configure.text(), there.write.text(), there.read.text()] == [configure, write, read]
    }) {
        return Ok(Step::Came(Came::Same));
    }
    match Permissions::new(configure, write, read) {
        Ok(permissions) => {
            unless_invalid(open.changes.set_permissions(broker, &item.vhost, user, permissions), item, open)
        }
        Err(error) => Ok(Step::Came(Came::Not(error.to_string()))),
    }
}

fn topic_permission(broker: &Arc<Broker>, item: &Item, open: &mut Open) -> Result<Step, String> {
    let [user, exchange, write, read] = ["user", "exchange", "write", "read"].map(|name| item.text(name));
    let there = broker.security().topic_permissions(&item.vhost, user);
    if there.get(exchange).is_some_and(|there| (there.write.text(), there.read.text()) == (write, read)) {
        return Ok(Step::Came(Came::Same));
    }
    unless_invalid(open.changes.set_topic_permission(broker, &item.vhost, user, exchange, [write, read]), item, open)
}

fn global_parameter(broker: &Arc<Broker>, item: &Item, open: &mut Open) -> Step {
    let (name, value) = (item.text("name"), item.fields.get("value").cloned().unwrap_or_default());
    if ["cluster_name", "internal_cluster_id"].contains(&name) {
        return Step::Came(Came::Not("a cluster keeps the name that it has".to_owned()));
    }
    if broker.vhosts().global_parameter(name).as_ref() == Some(&value) {
        return Step::Came(Came::Same);
    }
    let planned = open.changes.put_global_parameter(broker, name, value);
    open.planned(item, planned, |_| Came::Changed)
}

fn parameter(broker: &Arc<Broker>, item: &Item, open: &mut Open) -> Result<Step, String> {
    let vhost = vhost_of(broker, item)?;
    let (component, name) = (item.text("component"), item.text("name"));
    let value = item.fields.get("value").cloned().unwrap_or_default();
    match component {
        "operator_policy" => {
            let fields = value.as_object().cloned().unwrap_or_default();
            set_policy(broker, &vhost, (PolicyScope::Operator, name), &fields, item, open)
        }
        "vhost-limits" => {
            let planned = open
                .changes
                .put_parameter(broker, &vhost, component, name, &value)
                .map_err(|error| error.to_string())?;
            Ok(open.planned(item, planned, |changed| came_without(changed, Vec::new())))
        }
        _ => Ok(Step::Came(Came::Not(format!("there is no component {component} here")))),
    }
}

fn policy(broker: &Arc<Broker>, item: &Item, open: &mut Open) -> Result<Step, String> {
    let vhost = vhost_of(broker, item)?;
    set_policy(broker, &vhost, (PolicyScope::User, item.text("name")), &item.fields, item, open)
}

/// Keys of mirroring, which RabbitMQ 4 does not have any more: a message is as safe as the journal makes it.
fn is_mirroring(key: &str) -> bool {
    key.starts_with("ha-")
}

/// Sets a policy, without keys that are not known here.
fn set_policy(
    broker: &Arc<Broker>,
    vhost: &Arc<Vhost>,
    (scope, name): (PolicyScope, &str),
    fields: &Map<String, Value>,
    item: &Item,
    open: &mut Open,
) -> Result<Step, String> {
    let not = |reason: String| Ok(Step::Came(Came::Not(reason)));
    let field = |name: &str| fields.get(name).cloned();
    let mut definition = field("definition").and_then(|value| value.as_object().cloned()).unwrap_or_default();
    let mut missing = Vec::new();
    definition.retain(|key, _| {
        let kept = !is_mirroring(key);
        if !kept {
            missing.push(format!("{key}: queues are not mirrored"));
        }
        kept
    });
    let whole = definition.is_empty() && !missing.is_empty();
    if whole {
        return not(missing.join(", "));
    }
    let mut wish = PolicyWish {
        pattern: field("pattern").unwrap_or_default(),
        definition: Value::Object(definition),
        priority: field("priority"),
        apply_to: field("apply-to"),
    };
    let planned = loop {
        let text = match open.changes.put_policy(broker, vhost, scope, name, &wish) {
            Ok(planned) => break planned,
            Err(error) => error.to_string(),
        };
        // What no release of RabbitMQ 4 knows either may stand in definitions of plugins and of older ones.
        let Value::Object(definition) = &mut wish.definition else { return Err(text) };
        let unknown: Vec<String> = definition
            .keys()
            .filter(|key| text.contains(&format!("<<\"{key}\">>")) && text.contains("not recognised"))
            .cloned()
            .collect();
        if unknown.is_empty() {
            return not(text.trim().replace("\n\n", ": "));
        }
        for key in unknown {
            definition.remove(&key);
            missing.push(format!("{key} is not known here"));
        }
        if definition.is_empty() {
            return not(missing.join(", "));
        }
    };
    Ok(open.planned(item, planned, |changed| came_without(changed, missing)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        Document::parse(text, None).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        assert_eq!(wrong("{\n\"queues\": [\n{\"name\": 1}]}"), "line 3: queue \"\": name is missing or no text");
        assert_eq!(wrong("{\n\"queues\": {}}"), "line 2: invalid type: map, expected a sequence");
        assert_eq!(wrong("{\n\n\"queues\": [,]}"), "line 3: expected value");
        assert_eq!(wrong("[]"), "line 1: invalid type: sequence, expected a map");
        assert_eq!(wrong("{\"queues\": [{\"name\": \"q\", \"vhost\": \"/\"}], \"explanation\": \"\"}"), "");
    }

    #[test]
    fn what_the_journal_does_not_take_is_told_as_that() {
        let item = Item {
            kind: "queue",
            line: 3,
            fields: Map::from_iter([("name".to_owned(), Value::from("q"))]),
            vhost: "/".to_owned(),
        };
        let told = |error: AppendError| item.failed(error.into());
        assert!(matches!(
            told(AppendError::Stopped),
            InvalidDefinitions::Journal { line: 3, kind: "queue", error: AppendError::Stopped, .. }
        ));
        assert_eq!(told(AppendError::DiskFull).to_string(), "line 3: queue \"q\": disk is full");
        assert!(matches!(told(AppendError::TooLarge), InvalidDefinitions::Item { .. }), "it is the document's");
    }

    #[test]
    fn sections_that_nobody_knows_are_told() {
        let Ok(document) = Document::parse("{\"users\": [{\"name\": \"u\"}],\n\"other\": []}", Some("/")) else {
            panic!("read")
        };
        let told: Vec<_> = document.unknown.iter().map(|one| (one.kind, one.name.as_str(), one.line)).collect();
        assert_eq!(told, [("user", "u", 1), ("section", "other", 2)]);
        assert!(document.items.is_empty());
    }
}
