//! Runtime parameters: of virtual hosts (their limits; policies, which have their own file) and of the whole broker. Values are JSON.
//!
//! ```text
//! key "qp", "qo"  u8 length, virtual host, name                         a policy, one of operators
//!     "qr"        u8 length, virtual host, u8 length, component, name   a parameter
//!     "qg"        u8 0, name                                            a global parameter
//! value           u8 version (1), JSON
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use journal::{AppendError, AppendItem};
use parking_lot::RwLock;
use serde_json::{Map, Value};

use super::erlang::{Pairs, Term};
use super::policies::{Policy, PolicyScope, PolicyWish};
use super::record::QUEUES_KEY;
use super::{Vhost, VhostDeleted, Vhosts};
use crate::Broker;
use crate::change_batch::Change;
use crate::limits::LimitKind;
use crate::security::Denial;

const VERSION: u8 = 1;
const POLICY: u8 = b'p';
const OPERATOR: u8 = b'o';
const PARAMETER: u8 = b'r';
const GLOBAL: u8 = b'g';

/// The component of the limits of a virtual host, and the one name in it.
const LIMITS: (&str, &str) = ("vhost-limits", "limits");
const CONNECTIONS: &str = "max-connections";
const QUEUES: &str = "max-queues";

/// Why a policy or a parameter is not set or deleted. The texts are RabbitMQ's.
#[derive(Debug, thiserror::Error)]
pub enum ParameterError {
    /// All that is wrong.
    #[error("Validation failed\n\n{}\n", .0.join("\n"))]
    Invalid(Vec<String>),
    /// Policies take as much memory as they may.
    #[error(
        "policy '{policy}' would take more memory than there is for policies: see mainstem_memory_policy_bytes and --memory"
    )]
    NoMemory {
        /// Its name.
        policy: String,
    },
    /// It is set another way.
    #[error("policies may not be {0} using this method")]
    IsPolicy(&'static str),
    /// Nothing of that name.
    #[error("Parameter does not exist")]
    NotFound,
    /// The virtual host is gone.
    #[error(transparent)]
    VhostDeleted(#[from] VhostDeleted),
    /// Who asks may not.
    #[error(transparent)]
    Denied(#[from] Box<Denial>),
    /// The journal did not take it.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// Parameters of a virtual host, by component and name.
#[derive(Debug, Default)]
pub struct Parameters {
    values: RwLock<BTreeMap<String, BTreeMap<String, Value>>>,
    /// Connections that have opened the virtual host.
    connections: AtomicU64,
}

impl Parameters {
    /// All, by component and name.
    pub fn all(&self) -> Vec<(String, String, Value)> {
        let values = self.values.read();
        let of =
            |component: &String, (name, value): (&String, &Value)| (component.clone(), name.clone(), value.clone());
        values.iter().flat_map(|(component, named)| named.iter().map(move |one| of(component, one))).collect()
    }

    /// One by component and name.
    pub fn get(&self, component: &str, name: &str) -> Option<Value> {
        self.values.read().get(component)?.get(name).cloned()
    }

    /// The limits of the virtual host, by name: `max-connections`, `max-queues`. A negative one is none.
    pub fn limits(&self) -> Map<String, Value> {
        match self.get(LIMITS.0, LIMITS.1) {
            Some(Value::Object(limits)) => limits,
            _ => Map::new(),
        }
    }

    fn limit(&self, name: &str) -> Option<u64> {
        self.values.read().get(LIMITS.0)?.get(LIMITS.1)?.get(name)?.as_u64()
    }

    fn put(&self, component: &str, name: &str, value: Option<Value>) {
        let mut values = self.values.write();
        let named = values.entry(component.to_owned()).or_default();
        match value {
            Some(value) => drop(named.insert(name.to_owned(), value)),
            None => drop(named.remove(name)),
        }
        values.retain(|_, named| !named.is_empty());
    }
}

/// The place of a connection in a virtual host, which is free again once this is dropped.
pub struct VhostSeat(Arc<Vhost>);

impl Drop for VhostSeat {
    fn drop(&mut self) {
        self.0.parameters.connections.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Vhost {
    /// Its limits are these from now on, which is durable.
    pub(crate) fn set_limits(&self, limits: Value) {
        self.parameters.put(LIMITS.0, LIMITS.1, Some(limits));
    }

    /// Its parameters, except policies.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Connections that have it open.
    pub fn connections(&self) -> u64 {
        self.parameters.connections.load(Ordering::SeqCst)
    }

    /// A connection opens it.
    ///
    /// # Errors
    /// Its limit of connections, which is reached.
    pub fn enter(self: &Arc<Self>) -> Result<VhostSeat, u64> {
        let limit = self.parameters.limit(CONNECTIONS);
        let within = |now: u64| limit.is_none_or(|limit| now < limit).then_some(now + 1);
        let entered = self.parameters.connections.fetch_update(Ordering::SeqCst, Ordering::SeqCst, within);
        entered.map(|_| VhostSeat(Arc::clone(self))).map_err(|_| limit.unwrap_or(0))
    }

    /// Are there limits?
    pub(crate) fn has_limits(&self) -> bool {
        self.parameters.values.read().contains_key(LIMITS.0)
    }

    /// Its limits, each with how much of it is used.
    pub(crate) fn limits_in_force(&self) -> Vec<(LimitKind, u64, u64)> {
        let queues = self.queues.read().len() as u64;
        let all =
            [(LimitKind::VhostConnections, CONNECTIONS, self.connections()), (LimitKind::VhostQueues, QUEUES, queues)];
        all.into_iter().filter_map(|(kind, name, used)| Some((kind, self.parameters.limit(name)?, used))).collect()
    }

    /// Its limit of queues, when one more would exceed it beside those that are there and `coming`.
    pub(super) fn queue_limit_reached(&self, coming: usize) -> Option<u64> {
        let limit = self.parameters.limit(QUEUES)?;
        ((self.queues.read().len() + coming) as u64 >= limit).then_some(limit)
    }
}

impl Vhosts {
    /// The parameters of the broker, by name.
    pub fn global_parameters(&self) -> BTreeMap<String, Value> {
        self.global.read().clone()
    }

    /// One by name.
    pub fn global_parameter(&self, name: &str) -> Option<Value> {
        self.global.read().get(name).cloned()
    }
}

/// Is a value one for the limits of a virtual host?
fn check_limits(value: &Value) -> Result<(), ParameterError> {
    let fields = match value {
        Value::Object(fields) => fields.clone(),
        Value::Array(all) if all.is_empty() => Map::new(),
        other => return Err(ParameterError::Invalid(vec![format!("{} not a list {}", LIMITS.1, Term(other))])),
    };
    let (known, others): (Map<_, _>, Map<_, _>) =
        fields.into_iter().partition(|(name, _)| [CONNECTIONS, QUEUES].contains(&name.as_str()));
    let mut wrong = Vec::new();
    if !others.is_empty() {
        wrong.push(format!("Unrecognised terms {} in {}", Pairs(&others), LIMITS.1));
    }
    // The last one first, as RabbitMQ says them.
    for (name, value) in known.iter().rev().filter(|(_, value)| !value.is_i64() && !value.is_u64()) {
        wrong.push(format!("{name} should be a number, actually was {}", Term(value)));
    }
    if wrong.is_empty() { Ok(()) } else { Err(ParameterError::Invalid(wrong)) }
}

impl Broker {
    /// Sets a parameter of a virtual host: `vhost-limits` `limits`, or an operator's policy. On the controller's thread.
    ///
    /// # Errors
    /// `Invalid` (also for components that are not there, such as those of shovels and federation), `IsPolicy`, `VhostDeleted`, `Append`.
    pub fn put_parameter(
        self: &Arc<Self>,
        vhost: &Arc<Vhost>,
        component: &str,
        name: &str,
        value: &Value,
    ) -> Result<(), ParameterError> {
        let change = self.plan_parameter(vhost, component, name, value)?;
        Ok(self.carry_out(change)?)
    }

    pub(crate) fn plan_parameter(
        &self,
        vhost: &Arc<Vhost>,
        component: &str,
        name: &str,
        value: &Value,
    ) -> Result<Option<Change>, ParameterError> {
        vhost.check_alive()?;
        let invalid = |text: String| Err(ParameterError::Invalid(vec![text]));
        match component {
            "policy" => return Err(ParameterError::IsPolicy("set")),
            "operator_policy" => {
                let field = |key: &str| value.get(key).cloned();
                let missing = ["definition", "pattern", "priority"].into_iter().filter(|key| field(key).is_none());
                let missing: Vec<String> = missing.map(|key| format!("Key \"{key}\" not found in {name}")).collect();
                if !missing.is_empty() {
                    return Err(ParameterError::Invalid(missing));
                }
                let (pattern, definition) =
                    (field("pattern").unwrap_or_default(), field("definition").unwrap_or_default());
                let wish = PolicyWish { pattern, definition, priority: field("priority"), apply_to: field("apply-to") };
                return self.plan_policy(vhost, PolicyScope::Operator, name, &wish);
            }
            _ if component == LIMITS.0 => {}
            _ => return invalid(format!("component {component} not found")),
        }
        if name != LIMITS.1 {
            return invalid(format!("{name} is no name for {component}: it is '{}'", LIMITS.1));
        }
        check_limits(value)?;
        if vhost.parameters.get(component, name).as_ref() == Some(value) {
            return Ok(None);
        }
        let item = AppendItem::State { key: parameter_key(&vhost.name, component, name), value: Some(encode(value)) };
        let (vhost, component, name, value) = (Arc::clone(vhost), component.to_owned(), name.to_owned(), value.clone());
        Ok(Change::new(vec![item], move |_| vhost.parameters.put(&component, &name, Some(value))))
    }

    /// The limits of a virtual host, which need not be there yet, with some more or others: what is to be written, and what they are then. `None`: they are
    /// so.
    pub(crate) fn plan_vhost_limits(
        &self,
        vhost: &str,
        more: &Map<String, Value>,
    ) -> Result<Option<(AppendItem, Value)>, ParameterError> {
        let before = self.vhosts.get(vhost).map(|vhost| vhost.parameters.limits()).unwrap_or_default();
        let mut limits = before.clone();
        limits.extend(more.iter().map(|(name, value)| (name.clone(), value.clone())));
        if limits == before {
            return Ok(None);
        }
        let limits = Value::Object(limits);
        check_limits(&limits)?;
        Ok(Some((
            AppendItem::State { key: parameter_key(vhost, LIMITS.0, LIMITS.1), value: Some(encode(&limits)) },
            limits,
        )))
    }

    /// Deletes a parameter of a virtual host. On the controller's thread.
    ///
    /// # Errors
    /// `NotFound`, `IsPolicy`, `VhostDeleted`, `Append`.
    pub fn delete_parameter(
        self: &Arc<Self>,
        vhost: &Arc<Vhost>,
        component: &str,
        name: &str,
    ) -> Result<(), ParameterError> {
        vhost.check_alive()?;
        match component {
            "policy" => return Err(ParameterError::IsPolicy("cleared")),
            "operator_policy" => return self.delete_policy(vhost, PolicyScope::Operator, name),
            _ => {}
        }
        vhost.parameters.get(component, name).ok_or(ParameterError::NotFound)?;
        self.commit_state(vec![(parameter_key(&vhost.name, component, name), None)])?;
        vhost.parameters.put(component, name, None);
        Ok(())
    }

    /// Sets one limit of a virtual host, `max-connections` or `max-queues`; `None`: it has none any more. On the controller's thread.
    ///
    /// # Errors
    /// `Invalid`, `VhostDeleted`, `Append`.
    pub fn put_vhost_limit(
        self: &Arc<Self>,
        vhost: &Arc<Vhost>,
        name: &str,
        value: Option<Value>,
    ) -> Result<(), ParameterError> {
        let mut limits = vhost.parameters.limits();
        match value {
            Some(value) => drop(limits.insert(name.to_owned(), value)),
            None => drop(limits.remove(name)),
        }
        self.put_parameter(vhost, LIMITS.0, LIMITS.1, &Value::Object(limits))
    }

    /// Sets a parameter of the broker. On the controller's thread.
    ///
    /// # Errors
    /// `Append`.
    pub fn put_global_parameter(self: &Arc<Self>, name: &str, value: Value) -> Result<(), ParameterError> {
        let change = self.plan_global_parameter(name, value);
        Ok(self.carry_out(change)?)
    }

    pub(crate) fn plan_global_parameter(&self, name: &str, value: Value) -> Option<Change> {
        let item = AppendItem::State { key: global_key(name), value: Some(encode(&value)) };
        let name = name.to_owned();
        Change::new(vec![item], move |broker| drop(broker.vhosts.global.write().insert(name, value)))
    }

    /// Deletes a parameter of the broker. On the controller's thread.
    ///
    /// # Errors
    /// `NotFound`, `Append`.
    pub fn delete_global_parameter(&self, name: &str) -> Result<(), ParameterError> {
        self.vhosts.global_parameter(name).ok_or(ParameterError::NotFound)?;
        self.commit_state(vec![(global_key(name), None)])?;
        self.vhosts.global.write().remove(name);
        Ok(())
    }

    /// What was found in the catalog, before there are queues that it counts for. Tells keys that belong to no virtual host.
    pub(super) fn restore_parameters(&self, found: Vec<Found>) -> Vec<Bytes> {
        let mut orphans = Vec::new();
        for one in found {
            match one {
                Found::Policy { vhost, scope, name, value } => {
                    match (self.vhosts.get(&vhost), Policy::restored(&name, &value)) {
                        (Some(host), Some(policy)) => drop(host.policies.insert(scope, Arc::new(policy))),
                        (Some(_), None) => {
                            tracing::warn!(vhost, policy = name, "policy of the catalog that is not readable ignored")
                        }
                        (None, _) => orphans.push(policy_key(&vhost, scope, &name)),
                    }
                }
                Found::Parameter { vhost, component, name, value } => match self.vhosts.get(&vhost) {
                    Some(host) => host.parameters.put(&component, &name, Some(value)),
                    None => orphans.push(parameter_key(&vhost, &component, &name)),
                },
                Found::Global { name, value } => drop(self.vhosts.global.write().insert(name, value)),
            }
        }
        orphans
    }
}

/// A record of the catalog.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Found {
    Policy { vhost: String, scope: PolicyScope, name: String, value: Value },
    Parameter { vhost: String, component: String, name: String, value: Value },
    Global { name: String, value: Value },
}

fn key(kind: u8, shorts: &[&str], name: &str) -> Bytes {
    let mut key = BytesMut::new();
    key.put_slice(&[QUEUES_KEY, kind]);
    for short in shorts {
        key.put_u8(u8::try_from(short.len()).expect("names of virtual hosts and components are short"));
        key.put_slice(short.as_bytes());
    }
    key.put_slice(name.as_bytes());
    key.freeze()
}

pub(super) fn policy_key(vhost: &str, scope: PolicyScope, name: &str) -> Bytes {
    let kind = match scope {
        PolicyScope::User => POLICY,
        PolicyScope::Operator => OPERATOR,
    };
    key(kind, &[vhost], name)
}

pub(super) fn parameter_key(vhost: &str, component: &str, name: &str) -> Bytes {
    key(PARAMETER, &[vhost, component], name)
}

fn global_key(name: &str) -> Bytes {
    key(GLOBAL, &[""], name)
}

pub(super) fn encode(value: &Value) -> Bytes {
    let mut out = vec![VERSION];
    out.extend_from_slice(value.to_string().as_bytes());
    out.into()
}

fn short(bytes: &mut &[u8]) -> Option<String> {
    let (length, rest) = bytes.split_first()?;
    let (text, rest) = rest.split_at_checked(usize::from(*length))?;
    *bytes = rest;
    String::from_utf8(text.to_vec()).ok()
}

/// Is it a key of a policy or a parameter?
pub(super) fn is_key(key: &[u8]) -> bool {
    matches!(key, [QUEUES_KEY, POLICY | OPERATOR | PARAMETER | GLOBAL, ..])
}

/// Reads a record; `None`: it is none of these or of another version.
pub(super) fn decode(key: &[u8], value: &[u8]) -> Option<Found> {
    let [QUEUES_KEY, kind, rest @ ..] = key else { return None };
    let [VERSION, json @ ..] = value else { return None };
    let value = serde_json::from_slice(json).ok()?;
    let mut rest = rest;
    let vhost = short(&mut rest)?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    Some(match *kind {
        POLICY => Found::Policy { vhost, scope: PolicyScope::User, name: text(rest)?, value },
        OPERATOR => Found::Policy { vhost, scope: PolicyScope::Operator, name: text(rest)?, value },
        PARAMETER => {
            let component = short(&mut rest)?;
            Found::Parameter { vhost, component, name: text(rest)?, value }
        }
        GLOBAL => Found::Global { name: text(rest)?, value },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn records_are_read_as_they_were_written() {
        let value = json!({"max-queues": 5});
        let name = |text: &str| text.to_owned();
        let cases = [
            (
                policy_key("shop", PolicyScope::User, "all queues"),
                Found::Policy {
                    vhost: name("shop"),
                    scope: PolicyScope::User,
                    name: name("all queues"),
                    value: value.clone(),
                },
            ),
            (
                policy_key("/", PolicyScope::Operator, ""),
                Found::Policy { vhost: name("/"), scope: PolicyScope::Operator, name: name(""), value: value.clone() },
            ),
            (
                parameter_key("/", "vhost-limits", "limits"),
                Found::Parameter {
                    vhost: name("/"),
                    component: name("vhost-limits"),
                    name: name("limits"),
                    value: value.clone(),
                },
            ),
            (global_key("cluster_name"), Found::Global { name: name("cluster_name"), value: value.clone() }),
        ];
        for (key, found) in cases {
            assert!(is_key(&key));
            assert_eq!(decode(&key, &encode(&value)), Some(found));
            assert_eq!(decode(&key, &encode(&value)[..4]), None);
        }
        assert!(!is_key(b"qq\x01/name"));
    }

    #[test]
    fn limits_are_whole_numbers() {
        let wrong = |value: Value| check_limits(&value).err().map(|error| error.to_string());
        assert_eq!(wrong(json!({"max-queues": 0, "max-connections": -1})), None);
        assert_eq!(wrong(json!([])), None);
        let text = "Validation failed\n\nmax-queues should be a number, actually was <<\"5\">>\n";
        assert_eq!(wrong(json!({"max-queues": "5"})).as_deref(), Some(text));
        let text = "Validation failed\n\nUnrecognised terms [{<<\"other\">>,1}] in limits\n";
        assert_eq!(wrong(json!({"other": 1})).as_deref(), Some(text));
    }
}
