//! Who asks: HTTP Basic authentication or a token, and what the tags and permissions of a user allow.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use broker::{
    AclOperation, AclResource, AuditLine, Broker, Caller, Credentials, DEFAULT_VHOST, GUEST, JobOwner, LoginOutcome,
    Permission, Principal, QUEUE_GROUP, Refused, Subject, TokenRefusal, TokenRefused, User, Via,
};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::Management;
use super::answer::{Answer, Refusal};
use super::exchanges::DEFAULT;
use super::route::Access;

/// Bytes of a claimed name that the log shows.
pub(crate) const NAME_SHOWN_MAX: usize = 255;
/// Bytes of a path that the log shows.
const PATH_SHOWN_MAX: usize = 1000;

/// A user who has logged in.
#[derive(Clone)]
pub(crate) struct Identity {
    user: Arc<User>,
    /// He is defined here, and not known by a token alone.
    is_defined: bool,
    /// For access control entries.
    subject: Subject,
    address: IpAddr,
    broker: Arc<Broker>,
}

impl Identity {
    /// Who asks from there.
    pub fn new(user: Arc<User>, broker: &Arc<Broker>, from: IpAddr) -> Self {
        let subject = broker.security().subject(Some(user.name()), from);
        let is_defined = broker.security().user(user.name()).is_some_and(|there| Arc::ptr_eq(&there, &user));
        Self { user, is_defined, subject, address: from, broker: Arc::clone(broker) }
    }

    /// Whose turn it is when the controller does something for him.
    pub fn job_owner(&self) -> JobOwner {
        JobOwner::of(self.user.name(), Some(self.address))
    }

    /// The same as he is now. `None`: he has gone, or somebody else has his name, or he has to log in with another password.
    pub fn renewed(&self) -> Option<Self> {
        let user = if self.is_defined { self.broker.security().still_is(&self.user)? } else { Arc::clone(&self.user) };
        Some(Self { is_defined: self.is_defined, ..Self::new(user, &self.broker, self.address) })
    }

    /// He as he is now: with the tags that he has, and with none if he is gone, whoever has his name.
    pub fn now(&self) -> Self {
        let gone = || Arc::new(User::undefined(self.name().to_owned()));
        Self::new(self.broker.security().still_is(&self.user).unwrap_or_else(gone), &self.broker, self.address)
    }

    pub fn name(&self) -> &str {
        self.user.name()
    }

    /// For what the controller decides.
    pub fn caller(&self, via: Via) -> Caller {
        Caller {
            principal: Principal::new(Arc::clone(&self.user), self.address, via),
            connection: Caller::NO_CONNECTION,
        }
    }

    /// Writes what came of a request that is to change something, and of any that it may not make.
    pub fn audit(&self, method: &str, path: &str, from: IpAddr, status: StatusCode) {
        let refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status);
        let what = String::from_utf8_lossy(&path.as_bytes()[..path.len().min(PATH_SHOWN_MAX)]);
        let outcome = if status.is_success() { "done".to_owned() } else { status.to_string() };
        let line = AuditLine {
            who: self.subject.principal(),
            from,
            through: "http",
            act: method,
            what: &what,
            outcome: &outcome,
        };
        if refused {
            self.broker.security().audit_refusal(line);
        } else if method != "GET" {
            self.broker.security().audit(line);
        }
    }

    pub fn tags(&self) -> &[String] {
        self.user.tags()
    }

    pub fn has(&self, tags: &[&str]) -> bool {
        tags.iter().any(|tag| self.user.has_tag(tag))
    }

    pub fn is_administrator(&self) -> bool {
        self.has(&["administrator"])
    }

    /// May it send a message in the name that its properties have?
    ///
    /// # Errors
    /// Why not, as an AMQP client is told.
    pub fn check_claim(&self, properties: &Value) -> Result<(), String> {
        match properties["user_id"].as_str() {
            Some(claimed) if !self.user.may_send_as(claimed.as_bytes()) => {
                Err(format!("user_id property set to '{claimed}' but authenticated user was '{}'", self.name()))
            }
            _ => Ok(()),
        }
    }

    pub fn monitors(&self) -> bool {
        self.has(&["administrator", "monitoring"])
    }

    /// May it see a topic of this name? By any permission, and by entries. Topics without a name are queues of whatever virtual host.
    pub fn sees_topic(&self, name: &str) -> bool {
        self.monitors()
            || !name.is_empty() && {
                let (vhost, thing) = self.broker.thing_of_topic(name);
                self.sees_thing(AclResource::Topic, name, &vhost, &thing)
            }
    }

    /// May it see a group of this name? Groups count as things of virtual host `/`.
    pub fn sees_group(&self, name: &str) -> bool {
        self.monitors()
            || name != QUEUE_GROUP && self.sees_thing(AclResource::Group, name, DEFAULT_VHOST, name.as_bytes())
    }

    fn sees_thing(&self, resource: AclResource, name: &str, vhost: &str, thing: &[u8]) -> bool {
        let any = [Permission::Configure, Permission::Write, Permission::Read];
        let permitted = |permission| self.check_only_permission(vhost, permission, thing).is_ok();
        any.into_iter().any(permitted) && self.check_resource(AclOperation::Describe, resource, name).is_ok()
    }

    /// May it look into a virtual host, in lists and by name?
    pub fn sees(&self, vhost: &str) -> bool {
        self.monitors() || self.enters(vhost)
    }

    /// Has it permissions in a virtual host?
    pub fn enters(&self, vhost: &str) -> bool {
        self.broker.security().permissions(vhost, self.name()).is_some()
    }

    /// # Errors
    /// 401: it may not do that with what has this name, by permissions or by access control entries.
    pub fn check_permission(&self, vhost: &str, permission: Permission, name: &[u8]) -> Result<(), Refusal> {
        let operation = match permission {
            Permission::Configure => AclOperation::Create,
            Permission::Write => AclOperation::Write,
            Permission::Read => AclOperation::Read,
        };
        self.check_as(vhost, permission, operation, name)
    }

    /// The same where entries ask for another operation than what is usual with the permission.
    ///
    /// # Errors
    /// 401.
    pub fn check_as(
        &self,
        vhost: &str,
        permission: Permission,
        operation: AclOperation,
        name: &[u8],
    ) -> Result<(), Refusal> {
        self.check_acl(vhost, operation, name)?;
        self.check_only_permission(vhost, permission, name)
    }

    /// By access control entries only, for which queues and exchanges are topics.
    ///
    /// # Errors
    /// 401.
    pub fn check_acl(&self, vhost: &str, operation: AclOperation, name: &[u8]) -> Result<(), Refusal> {
        let name = if name.is_empty() { DEFAULT.as_bytes() } else { name };
        let topic = self.broker.vhosts().resource_name(vhost, name);
        self.check_resource(operation, AclResource::Topic, &topic)
    }

    /// # Errors
    /// 401.
    pub fn check_resource(&self, operation: AclOperation, resource: AclResource, name: &str) -> Result<(), Refusal> {
        match self.broker.security().allows(&self.subject, operation, resource, name) {
            true => Ok(()),
            false => Err(Answer::not_authorised("Access refused.")),
        }
    }

    /// By permissions only.
    ///
    /// # Errors
    /// 401.
    pub fn check_only_permission(&self, vhost: &str, permission: Permission, name: &[u8]) -> Result<(), Refusal> {
        // The default exchange has this name for permissions.
        let name = if name.is_empty() { DEFAULT.as_bytes() } else { name };
        let permissions = self.broker.security().permissions(vhost, self.name());
        match permissions.is_some_and(|permissions| permissions.of(permission).matches(name)) {
            true => Ok(()),
            false => Err(Answer::not_authorised("Access refused.")),
        }
    }

    /// # Errors
    /// 401 in RabbitMQ's words, by what is missing; 404: a virtual host that it may not look into. Other than in RabbitMQ, tag `monitoring` shows
    /// all virtual hosts and allows no policies in them: that takes permissions there.
    pub fn check(&self, access: Access, vhost: Option<&str>) -> Result<(), Refusal> {
        if !self.has(&["administrator", "monitoring", "policymaker", "management"]) {
            return Err(Answer::not_authorised("Not management user"));
        }
        match access {
            Access::Management | Access::Vhost => {}
            Access::Monitoring if self.monitors() => {}
            Access::Monitoring => return Err(Answer::not_authorised("Not monitor user")),
            Access::Policymaker if self.has(&["administrator", "policymaker"]) => {}
            Access::Policymaker => return Err(Answer::not_authorised("Not policymaker user")),
            Access::Administrator if self.is_administrator() => {}
            Access::Administrator => return Err(Answer::not_authorised("Not administrator user")),
        }
        let known = |vhost: &str| self.broker.vhosts().get(vhost).is_some();
        match vhost.filter(|_| access != Access::Administrator) {
            Some(vhost) if known(vhost) && !self.sees(vhost) => Err(Answer::no_such("Not Found")),
            // Who sees everything changes nothing by that.
            Some(vhost)
                if access == Access::Policymaker && known(vhost) && !self.is_administrator() && !self.enters(vhost) =>
            {
                Err(Answer::not_authorised("User not authorised to access virtual host"))
            }
            _ => Ok(()),
        }
    }
}

/// Name and password of the header `Authorization`.
pub(crate) fn credentials(headers: &HeaderMap) -> Option<(Vec<u8>, Vec<u8>)> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = given.split_once(' ')?;
    let decoded = STANDARD.decode(encoded.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some((decoded[..colon].to_vec(), decoded[colon + 1..].to_vec()))
}

/// The token of the header `Authorization`, where the node takes any.
pub(crate) fn bearer<'a>(broker: &Broker, headers: &'a HeaderMap) -> Option<&'a str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    scheme.eq_ignore_ascii_case("bearer").then_some(token).filter(|_| broker.security().tokens().are_configured())
}

/// Passwords that are verified at once, each for a tenth of a second: there are threads left for those who are known already.
static VERIFYING: Semaphore = Semaphore::const_new(2);
/// How long a password waits for that.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Whose name and password these are. What is not known without hashing takes a tenth of a second.
///
/// # Errors
/// Why not.
pub(crate) async fn verified(broker: &Arc<Broker>, credentials: Credentials<'_>, headers: &HeaderMap) -> LoginOutcome {
    let outcome = match broker.security().known(credentials) {
        Some(outcome) => outcome,
        None => hashed(broker, credentials).await,
    };
    outcome.and_then(|user| check_place(user, headers))
}

async fn hashed(broker: &Arc<Broker>, Credentials { name, password, peer }: Credentials<'_>) -> LoginOutcome {
    let Ok(Ok(_place)) = tokio::time::timeout(WAIT_MAX, VERIFYING.acquire()).await else { return Err(Refused::Busy) };
    let (broker, name, password) = (Arc::clone(broker), name.to_vec(), password.to_vec());
    // Meanwhile another request may have made it known.
    let work = move || broker.security().authenticate(Credentials { name: &name, password: &password, peer });
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(Refused::Busy))
}

/// Headers by which programs say that they pass a request on.
const PASSED_ON: [&str; 6] =
    ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"];

/// `guest` is for this machine. A program on it that passes requests on speaks for others.
///
/// # Errors
/// `NotLocal`.
pub(crate) fn check_place(user: Arc<User>, headers: &HeaderMap) -> Result<Arc<User>, Refused> {
    let is_passed_on = PASSED_ON.iter().any(|name| headers.contains_key(*name));
    if user.name() == GUEST && is_passed_on { Err(Refused::NotLocal) } else { Ok(user) }
}

/// The user whose token it is. A refusal is in the audit log.
///
/// # Errors
/// Why not.
pub(crate) fn login_by_token(
    broker: &Broker,
    token: &str,
    headers: &HeaderMap,
    peer: SocketAddr,
) -> Result<Arc<User>, TokenRefused> {
    let not_local = |user: Arc<User>| {
        let name = user.name().to_owned();
        check_place(user, headers).map_err(|_| TokenRefusal { name, reason: TokenRefused::NotLocal })
    };
    let TokenRefusal { name, reason } = match broker
        .security()
        .authenticate_by_token(token, peer, broker.now_ms())
        .and_then(|login| not_local(login.user))
    {
        Ok(user) => return Ok(user),
        Err(refusal) => refusal,
    };
    let outcome = reason.to_string();
    broker.security().audit_refusal(AuditLine {
        who: &name,
        from: peer.ip(),
        through: "http",
        act: "login",
        what: "token",
        outcome: &outcome,
    });
    Err(reason)
}

impl Management {
    /// Who sent a request. May take a tenth of a second.
    ///
    /// # Errors
    /// 401, 503.
    pub(crate) async fn authenticate(&self, headers: &HeaderMap, peer: SocketAddr) -> Result<Identity, Refusal> {
        if let Some(token) = bearer(&self.broker, headers) {
            return match login_by_token(&self.broker, token, headers, peer) {
                Ok(user) => Ok(Identity::new(user, &self.broker, peer.ip())),
                Err(TokenRefused::Throttled) => Err(Answer::throttled()),
                Err(_) => Err(Answer::wrong_credentials()),
            };
        }
        let (name, password) = credentials(headers).ok_or_else(Answer::who_are_you)?;
        match verified(&self.broker, Credentials { name: &name, password: &password, peer }, headers).await {
            Ok(user) => Ok(Identity::new(user, &self.broker, peer.ip())),
            Err(reason) => {
                let (who, outcome) =
                    (String::from_utf8_lossy(&name[..name.len().min(NAME_SHOWN_MAX)]), reason.to_string());
                let line = AuditLine {
                    who: &who,
                    from: peer.ip(),
                    through: "http",
                    act: "login",
                    what: "",
                    outcome: &outcome,
                };
                self.broker.security().audit_refusal(line);
                Err(match reason {
                    Refused::Busy => Answer::busy(),
                    Refused::Throttled => Answer::throttled(),
                    Refused::Credentials | Refused::NotLocal | Refused::Token => Answer::wrong_credentials(),
                })
            }
        }
    }
}
