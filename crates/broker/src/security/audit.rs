//! The audit log: who did, or was not let do, what, from where, and what came of it. Lines go to the log of the broker under target
//! `audit` and with that word as their message, at level INFO; names only, never a password, a key or a record.
//!
//! | field | what |
//! |---|---|
//! | `who` | a principal, `User:NAME`; of a login that was refused: the name that was claimed |
//! | `from` | the address |
//! | `through` | `kafka`, `amqp`, `http` |
//! | `act` | the API, the method with its path, the operation; `login` |
//! | `what` | what it was done to |
//! | `outcome` | `done`, or why not |
//!
//! What was done is all written, what was not as far as it goes: a request may name hundreds of thousands of things. Names are cut off after
//! [`NAME_SHOWN_MAX`] bytes. Refusals of other requests are written once for each name that a connection is refused (it remembers the answer),
//! and of all connections together at most [`REFUSALS_MAX`] at once and one each [`REFUSAL_EACH`]: the next line that is written says how
//! many were not.

use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;

use super::Security;
use super::allowance::Allowance;

/// Bytes of a name.
const NAME_SHOWN_MAX: usize = 1024;
/// Refusals that are written at once.
const REFUSALS_MAX: u32 = 1000;
/// Then one more each.
const REFUSAL_EACH: Duration = Duration::from_millis(10);

/// One line of the audit log.
#[derive(Clone, Copy, Debug)]
pub struct AuditLine<'a> {
    /// A principal, or the name that somebody claims to have.
    pub who: &'a str,
    /// His address.
    pub from: IpAddr,
    /// The protocol.
    pub through: &'a str,
    /// What he does.
    pub act: &'a str,
    /// To what.
    pub what: &'a str,
    /// What came of it.
    pub outcome: &'a str,
}

/// As much of a name as the log shows.
fn shown(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_SHOWN_MAX)]
}

/// What keeps refusals from filling the log.
pub(super) struct Audit(Mutex<(Allowance, u64)>);

impl Default for Audit {
    fn default() -> Self {
        Self(Mutex::new((Allowance::new(REFUSALS_MAX, REFUSAL_EACH), 0)))
    }
}

impl Security {
    /// Writes an administrative act.
    pub fn audit(&self, line: AuditLine<'_>) {
        let AuditLine { who, from, through, act, what, outcome } = line;
        let (who, what) = (shown(who), shown(what));
        tracing::info!(target: "audit", who, %from, through, act, what, outcome, "audit");
    }

    /// Writes that somebody was not let do something.
    pub fn audit_refusal(&self, line: AuditLine<'_>) {
        let unwritten = {
            let mut held = self.audit.0.lock();
            if !held.0.take(std::time::Instant::now()) {
                held.1 += 1;
                return;
            }
            std::mem::take(&mut held.1)
        };
        if unwritten > 0 {
            tracing::info!(target: "audit", refusals = unwritten, "audit: more refusals than are written");
        }
        self.audit(line);
    }
}
