//! Answers about access control entries that a connection remembers, until the catalog's version changes: what is asked with each request
//! costs one look-up in a table.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use routing::Counted;

use super::Security;
use super::acl::{AclOperation, AclResource};
use super::acls::Subject;
use super::audit::AuditLine;

/// What the names of which answers are remembered may take, of a connection: at least 10,000 names of topics.
const REMEMBERED_BYTES: usize = 4 << 20;
/// What a name takes beside its bytes.
const NAME_COSTS: usize = 64;
/// So much of it each connection may remember, whatever others do.
const REMEMBERED_LEAST: usize = 16 << 10;

/// Each set of answers has a number of its own.
static NEXT_STAMP: AtomicU64 = AtomicU64::new(1);

pub(super) fn new_stamp() -> u64 {
    NEXT_STAMP.fetch_add(1, Ordering::Relaxed)
}

/// One kind of question.
type Question = (AclOperation, AclResource);

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Allowed,
    /// And the audit log has nothing of it: it was asked only to leave out what may not be seen.
    DeniedQuietly,
    Denied,
}

/// What was answered to one kind of question, by name.
type Named = HashMap<Box<[u8]>, Answer>;

/// Of one connection.
#[derive(Debug, Default)]
pub struct AclAnswers {
    /// Of the catalog; 0: nothing was asked yet.
    version: u64,
    stamp: u64,
    subject: Option<Subject>,
    /// Whose connection it is, for the audit log.
    through: &'static str,
    from: Option<IpAddr>,
    /// By question, then by name.
    known: Vec<(Question, Named)>,
    /// Of some resource of a type.
    some: Vec<(Question, bool)>,
    /// What the names take.
    counted: Counted,
}

impl AclAnswers {
    /// For a new connection of a protocol. `None`: entries do not count.
    pub fn new(security: &Security, through: &'static str) -> Option<Box<Self>> {
        let counted = Counted::new(Arc::clone(security.answer_memory()), 0);
        security.acls_enforced().then(|| Box::new(Self { through, counted, ..Self::default() }))
    }

    /// Forgets what may not be so any more. Whoever asks is the same for the life of the connection.
    pub fn refresh(&mut self, security: &Security, user: Option<&str>, address: IpAddr) {
        let version = security.version();
        if self.version != version {
            (self.version, self.stamp) = (version, new_stamp());
            (self.subject, self.from) = (Some(security.subject(user, address)), Some(address));
            self.some = Vec::new();
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.known = Vec::new();
        self.counted.sub(self.counted.bytes());
    }

    /// As long as this is the same, all answers are.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Who asks.
    pub fn subject(&self) -> Option<&Subject> {
        self.subject.as_ref()
    }

    /// May he? As of the last [`AclAnswers::refresh`]. A refusal is written into the audit log unless it is `quiet`.
    pub fn may(&mut self, security: &Security, question: (AclOperation, AclResource), name: &str, quiet: bool) -> bool {
        self.may_called(security, question, name.as_bytes(), || name.into(), quiet)
    }

    /// May he do it with some resource of the type?
    pub fn may_some(&mut self, security: &Security, question: (AclOperation, AclResource)) -> bool {
        if let Some((_, known)) = self.some.iter().find(|(one, _)| *one == question) {
            return *known;
        }
        let allowed =
            self.subject.as_ref().is_some_and(|subject| security.allows_some(subject, question.0, question.1));
        self.some.push((question, allowed));
        allowed
    }

    /// As [`AclAnswers::may`], of something whose name as a resource has to be made up; it is remembered by what it is called.
    pub fn may_called<'a>(
        &mut self,
        security: &Security,
        question: (AclOperation, AclResource),
        called: &[u8],
        name: impl FnOnce() -> Cow<'a, str>,
        quiet: bool,
    ) -> bool {
        let Some(subject) = &self.subject else { return false };
        if subject.is_super() {
            return true;
        }
        let at = self.known.iter().position(|(one, _)| *one == question).unwrap_or_else(|| {
            self.known.push((question, HashMap::new()));
            self.known.len() - 1
        });
        let names = &mut self.known[at].1;
        let known = names.get(called).copied();
        match known {
            Some(Answer::Allowed) => return true,
            Some(Answer::Denied) => return false,
            Some(Answer::DeniedQuietly) if quiet => return false,
            _ => {}
        }
        let name = name();
        let allowed = known.is_none() && security.allows(subject, question.0, question.1, &name);
        let answer = match (allowed, quiet) {
            (true, _) => Answer::Allowed,
            (false, true) => Answer::DeniedQuietly,
            (false, false) => Answer::Denied,
        };
        if names.insert(called.into(), answer).is_none() {
            self.counted.add(called.len() + NAME_COSTS);
        }
        if let (Answer::Denied, Some(from)) = (answer, self.from) {
            let what = format!("{}:{}", question.1.name(), &name);
            let (who, act) = (subject.principal(), question.0.name());
            security.audit_refusal(AuditLine { who, from, through: self.through, act, what: &what, outcome: "denied" });
        }
        let bytes = self.counted.bytes();
        if bytes > REMEMBERED_BYTES || bytes > REMEMBERED_LEAST && self.counted.account().is_over() {
            self.forget();
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn what_connections_remember_is_bounded_together() {
        let mut settings = Settings::default();
        settings
            .set("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
            .expect("a setting");
        let security = Security::new(&settings);
        let memory = security.answer_memory();
        let ask = |answers: &mut AclAnswers, names: std::ops::Range<u32>| {
            answers.refresh(&security, Some("anna"), IpAddr::from([127, 0, 0, 1]));
            for name in names {
                assert!(!answers.may(&security, (AclOperation::Read, AclResource::Topic), &format!("{name:08}"), true));
            }
        };
        let mut connections: Vec<_> =
            (0..10).map(|_| AclAnswers::new(&security, "kafka").expect("entries count")).collect();
        connections.iter_mut().for_each(|one| ask(one, 0..1000));
        let (name, all) = (8 + NAME_COSTS, 10 * 1000 * (8 + NAME_COSTS));
        assert_eq!(memory.bytes(), all);
        ask(&mut connections[0], 0..1000);
        assert_eq!(memory.bytes(), all, "what is known takes nothing more");
        memory.set_bytes_max(all / 2);
        connections.iter_mut().for_each(|one| ask(one, 1000..1200));
        assert!(memory.bytes() <= all / 2 + 10 * (REMEMBERED_LEAST + name), "{}", memory.bytes());
        drop(connections);
        assert_eq!(memory.bytes(), 0);
        // Alone, too, it is bounded.
        memory.set_bytes_max(usize::MAX);
        let mut alone = AclAnswers::new(&security, "kafka").expect("entries count");
        ask(&mut alone, 0..100_000);
        assert!(memory.bytes() <= REMEMBERED_BYTES, "{}", memory.bytes());
    }
}
