//! What whoever is at the other end of a connection may do: by access control entries (`broker::Security::allows`), and with topics that are queues
//! by permissions in their virtual hosts (`broker::QueueRights`).
//!
//! Nothing is looked up while entries do not count and permissions are not asked for. Where entries count, each answer is remembered until the catalog's version changes, so that a
//! request costs one look-up in a table for each topic or group that it names, and nothing for each record. Which operation an API needs
//! on which resource stands in `docs/adr/0021-acls.md`.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;

use broker::{
    ANONYMOUS, AclAnswers, AclOperation, AclResource, AuditLine, Broker, CLUSTER, QUEUE_GROUP, QueueRights, Security,
    Setter, Topic,
};
use kafka_wire::ErrorCode;

/// What is said of a queue to a caller who has no permission for it at all: for him it is not there, as in lists. Where a name that is not there is answered with
/// something else, that is answered.
pub(crate) const HIDDEN: ErrorCode = ErrorCode::UnknownTopicOrPartition;

/// Operations that are not asked for.
pub(crate) const NO_OPERATIONS: i32 = i32::MIN;

/// Of one connection.
#[derive(Default)]
pub(crate) struct Access {
    /// `None`: entries do not count.
    answers: Option<RefCell<Box<AclAnswers>>>,
    queues: RefCell<QueueRights>,
}

/// Somebody who asks, for one request.
#[derive(Clone, Copy)]
pub(crate) struct Asking<'a> {
    pub access: &'a Access,
    pub broker: &'a Broker,
    pub security: &'a Security,
    pub name: Option<&'a str>,
    pub address: IpAddr,
    /// What is refused is only left out, or something else will do: no word of it in the audit log.
    pub quiet: bool,
}

impl Access {
    pub fn new(security: &Security) -> Self {
        Self { answers: AclAnswers::new(security, "kafka").map(RefCell::new), queues: RefCell::default() }
    }
}

/// Who is at the other end of a connection, for what the controller does: he comes along with the command, and what he may is decided in the turn
/// in which it is carried out.
pub(crate) struct Client {
    name: Option<Box<str>>,
    address: IpAddr,
}

impl Client {
    /// Has somebody decide who asks for him, as of now.
    pub fn ask<T>(&self, broker: &Broker, decide: impl FnOnce(&Asking<'_>) -> T) -> T {
        let (security, access) = (broker.security(), Access::new(broker.security()));
        decide(&Asking {
            access: &access,
            broker,
            security,
            name: self.name.as_deref(),
            address: self.address,
            quiet: false,
        })
    }
}

impl Asking<'_> {
    /// The same, to be asked elsewhere and later.
    pub fn client(&self) -> Client {
        Client { name: self.name.map(Box::from), address: self.address }
    }

    /// May he look after the node, where entries do not say who may? An administrator may, as of now; who does not say who he is, as long as no user
    /// is defined or where the settings let him.
    pub fn administers(&self) -> bool {
        match self.name {
            Some(name) => self.security.user(name).is_some_and(|user| user.has_tag("administrator")),
            None => self.security.trusts_anonymous(),
        }
    }

    /// The caller, as he is kept with what he sets.
    pub fn setter(&self) -> Setter {
        self.security.setter(self.name, self.address)
    }

    /// Asks without a word in the audit log.
    pub fn quietly(self) -> Self {
        Self { quiet: true, ..self }
    }

    /// Do entries count?
    pub fn is_checked(&self) -> bool {
        self.access.answers.is_some()
    }

    fn look<T>(&self, uncounted: T, look: impl FnOnce(&mut AclAnswers) -> T) -> T {
        let Some(answers) = &self.access.answers else { return uncounted };
        let mut answers = answers.borrow_mut();
        answers.refresh(self.security, self.name, self.address);
        look(&mut answers)
    }

    fn look_at_queues<T>(&self, look: impl FnOnce(&mut QueueRights) -> T) -> T {
        let mut queues = self.access.queues.borrow_mut();
        queues.refresh(self.security, self.name, self.address);
        look(&mut queues)
    }

    /// Is there anything that he may not see?
    pub fn is_limited(&self) -> bool {
        self.is_checked() || self.look_at_queues(|queues| queues.are_asked())
    }

    /// May he?
    pub fn may(&self, operation: AclOperation, resource: AclResource, name: &str) -> bool {
        self.may_by_entries(operation, resource, name)
            && (resource != AclResource::Topic || self.check_queue(operation, name).is_ok())
    }

    /// May he, whatever has the name?
    pub fn may_by_entries(&self, operation: AclOperation, resource: AclResource, name: &str) -> bool {
        self.look(true, |answers| answers.may(self.security, (operation, resource), name, self.quiet))
    }

    /// May he do it with a topic, if that is a queue, by permissions alone?
    ///
    /// # Errors
    /// `TopicAuthorizationFailed`, [`HIDDEN`].
    pub fn check_queue(&self, operation: AclOperation, name: &str) -> Result<(), ErrorCode> {
        if !self.look_at_queues(|queues| queues.are_asked()) {
            return Ok(());
        }
        self.broker.topic(name).map_or(Ok(()), |topic| self.check_permission(operation, &topic))
    }

    /// The same for who has looked the topic up.
    ///
    /// # Errors
    /// `TopicAuthorizationFailed`, [`HIDDEN`].
    pub fn check_permission(&self, operation: AclOperation, topic: &Topic) -> Result<(), ErrorCode> {
        if !topic.is_queue() || !self.look_at_queues(|queues| queues.are_asked()) {
            return Ok(());
        }
        // One that comes to life or goes is nobody's yet, or any more.
        let queue = self.broker.queue_on(topic);
        let may = |operation| {
            queue.as_ref().is_some_and(|queue| {
                self.look_at_queues(|queues| {
                    queues.may(self.security, self.name, operation, queue.vhost(), queue.name())
                })
            })
        };
        if may(operation) {
            return Ok(());
        }
        if !self.quiet {
            let who = principal(self.name);
            let line = AuditLine {
                who: &who,
                from: self.address,
                through: "kafka",
                act: operation.name(),
                what: &format!("Queue:{}", topic.name),
                outcome: "denied",
            };
            self.security.audit_refusal(line);
        }
        Err(if may(AclOperation::Describe) { ErrorCode::TopicAuthorizationFailed } else { HIDDEN })
    }

    /// May he do it with some resource of the type?
    pub fn may_some(&self, operation: AclOperation, resource: AclResource) -> bool {
        self.look(true, |answers| answers.may_some(self.security, (operation, resource)))
    }

    /// As long as this is the same, all answers are. 0: there is nothing that he may not see.
    pub fn stamp(&self) -> u64 {
        let of_queues = || self.look_at_queues(|queues| if queues.are_asked() { queues.stamp() } else { 0 });
        if self.is_checked() { self.look(0, |answers| answers.stamp()) } else { of_queues() }
    }

    /// What he may do with a resource, as a set of bits, if that is asked for.
    pub fn operations(&self, asked: bool, resource: AclResource, name: &str) -> i32 {
        if !asked {
            return NO_OPERATIONS;
        }
        let quiet = self.quietly();
        let allowed = AclOperation::on(resource).iter().filter(|operation| quiet.may(**operation, resource, name));
        allowed.fold(0, |bits, operation| bits | 1 << operation.number())
    }

    /// # Errors
    /// `TopicAuthorizationFailed`, [`HIDDEN`].
    pub fn check_topic(&self, operation: AclOperation, name: &str) -> Result<(), ErrorCode> {
        if !self.may_by_entries(operation, AclResource::Topic, name) {
            return Err(ErrorCode::TopicAuthorizationFailed);
        }
        self.check_queue(operation, name)
    }

    /// The topic, for an operation of the cluster that entries for topics are not asked for; `None`: for the caller there is none.
    ///
    /// # Errors
    /// `TopicAuthorizationFailed`.
    pub fn topic_for(&self, operation: AclOperation, name: &str) -> Result<Option<Arc<Topic>>, ErrorCode> {
        let Some(topic) = self.broker.topic(name) else { return Ok(None) };
        match self.check_permission(operation, &topic) {
            Ok(()) => Ok(Some(topic)),
            Err(HIDDEN) => Ok(None),
            Err(code) => Err(code),
        }
    }

    /// As [`Asking::check_topic`] for who has looked the topic up; it may not be there.
    ///
    /// # Errors
    /// `TopicAuthorizationFailed`, [`HIDDEN`].
    pub fn check_found(&self, operation: AclOperation, name: &str, topic: Option<&Topic>) -> Result<(), ErrorCode> {
        if !self.look(true, |answers| answers.may(self.security, (operation, AclResource::Topic), name, self.quiet)) {
            return Err(ErrorCode::TopicAuthorizationFailed);
        }
        topic.map_or(Ok(()), |topic| self.check_permission(operation, topic))
    }

    /// # Errors
    /// `GroupAuthorizationFailed`.
    pub fn check_group(&self, operation: AclOperation, name: &str) -> Result<(), ErrorCode> {
        if self.may(operation, AclResource::Group, name) { Ok(()) } else { Err(ErrorCode::GroupAuthorizationFailed) }
    }

    /// The same for those who are members otherwise than of a share group, or commit offsets: the group of all queues is the broker's own, and stays a
    /// share group, whatever his rights are.
    ///
    /// # Errors
    /// `GroupAuthorizationFailed`.
    pub fn check_consumers(&self, operation: AclOperation, name: &str) -> Result<(), ErrorCode> {
        if name == QUEUE_GROUP { Err(ErrorCode::GroupAuthorizationFailed) } else { self.check_group(operation, name) }
    }

    /// # Errors
    /// `ClusterAuthorizationFailed`.
    pub fn check_cluster(&self, operation: AclOperation) -> Result<(), ErrorCode> {
        if self.may(operation, AclResource::Cluster, CLUSTER) {
            Ok(())
        } else {
            Err(ErrorCode::ClusterAuthorizationFailed)
        }
    }

    /// # Errors
    /// `TransactionalIdAuthorizationFailed`.
    pub fn check_transaction(&self, operation: AclOperation, id: &str) -> Result<(), ErrorCode> {
        if self.may(operation, AclResource::TransactionalId, id) {
            Ok(())
        } else {
            Err(ErrorCode::TransactionalIdAuthorizationFailed)
        }
    }
}

/// As entries name him.
fn principal(name: Option<&str>) -> String {
    name.map_or_else(|| ANONYMOUS.to_owned(), |name| format!("User:{name}"))
}

/// Writes what an administrative request does into the audit log.
pub(crate) struct Acting {
    broker: Arc<Broker>,
    who: String,
    from: IpAddr,
    act: &'static str,
}

impl Acting {
    /// For the request that is being handled; `act` is its API.
    pub fn new(broker: &Arc<Broker>, name: Option<&str>, from: IpAddr, act: &'static str) -> Self {
        Self { broker: Arc::clone(broker), who: principal(name), from, act }
    }

    /// What came of it for one of the things that it names; 0: it was done.
    pub fn note(&self, what: &str, code: i16) {
        match ErrorCode::ALL.iter().find(|known| known.code() == code && code != 0) {
            None => self.say(what, "done"),
            Some(refused) => self.broker.security().audit_refusal(self.line(what, refused.name())),
        }
    }

    /// The same in other words, of what was done.
    pub fn say(&self, what: &str, outcome: &str) {
        self.broker.security().audit(self.line(what, outcome));
    }

    fn line<'a>(&'a self, what: &'a str, outcome: &'a str) -> AuditLine<'a> {
        AuditLine { who: &self.who, from: self.from, through: "kafka", act: self.act, what, outcome }
    }
}
