//! Whose records a connection fetches. A Fetch does not name a group, and a client keeps its fetches and its talk with the group's
//! coordinator on connections of their own; but before it fetches, it asks for the coordinator, and it says who it is.
//! `docs/adr/0020-filters.md` argues why what is decided here never takes a record from a client that is not of the group.
//!
//! | rule | what |
//! |---|---|
//! | G1 | the connection speaks as a member of the group itself (JoinGroup, Heartbeat, …), or |
//! | G2 | it has asked for the coordinator of the group, of no other, and of nothing that administrators ask, or |
//! | G3 | its client id is Java's default for the group's name, or given to the group, and no other group has a member with it at this host |
//! | G4 | in each case the group has, or has had since the connection was made, a member of its user's with its client id at its host |
//! | G5 | where access control entries count, whoever is on the connection may `Read` the group (`Context::verdict`) |
//!
//! A connection that names a second group belongs to none from then on. While a connection may be a member's and nothing proves it
//! ([`Verdict::InDoubt`]), its fetches are answered with nothing, for at most [`DOUBT_MAX`], and the member is told once with its next
//! heartbeat to look for its coordinator again, which it asks on the connection that it fetches on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use broker::{Broker, GroupFilter, Laggard, Waits};
use delivery::Client;
use hashbrown::HashMap;
use parking_lot::Mutex;

/// Longest time that a connection gets nothing because it may be a member's: longer than members' usual time between heartbeats.
const DOUBT_MAX: Duration = Duration::from_secs(7);
/// Members who are to look for their coordinator, at once.
const ASKED_MAX: usize = 10_000;
/// How often a client id that names a group without such a member is looked up again.
const LOOK_UP_AGAIN: Duration = Duration::from_millis(50);

/// For so long it is known whose the fetches of a client id are.
const LAGGARD_KNOWN: Duration = Duration::from_millis(500);

/// APIs by which administrators look at groups: describe, list, delete groups and offsets, describe consumer groups.
const INSPECTING: [i16; 5] = [15, 16, 42, 47, 69];

/// Groups of which a connection has spoken.
#[derive(Debug, Default)]
pub(crate) struct Spoken {
    /// The one that it named first.
    group: Option<Box<str>>,
    /// It spoke as a member of that.
    member: bool,
    /// It has named another one.
    several: bool,
    /// It has asked what administrators ask.
    inspects: bool,
    /// It is a member's of the group: proven once.
    proven: Option<Box<str>>,
    /// When a client id was looked up in vain.
    looked_up: Option<Instant>,
    doubt: Doubt,
    /// Which filters `doubt` is about.
    generation: u64,
    /// The group with rules for those who are far behind that it was found to be of, until when.
    laggard: Option<(Instant, Option<String>)>,
    /// Told of each group, for those who look on.
    pub waits: Option<Arc<Waits>>,
}

#[derive(Debug, Default)]
enum Doubt {
    #[default]
    None,
    Since(Instant),
    /// It is nobody's, or nothing proved whose: it gets everything.
    Over,
}

/// Who fetches.
pub(crate) struct Fetcher<'a> {
    /// As the client says.
    pub client_id: &'a str,
    /// Who has logged in; empty: nobody. Client ids and addresses others can have as well.
    pub user: &'a str,
    pub peer: SocketAddr,
}

impl Fetcher<'_> {
    fn at<'c>(&'c self, host: &'c str) -> Client<'c> {
        Client { id: self.client_id, host, user: Some(self.user) }
    }
}

/// Whose a fetch is.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// Of no group with a filter.
    Nobody,
    /// Of this one.
    Of(Arc<GroupFilter>),
    /// It may be of one.
    InDoubt,
}

/// Members that are to look for their coordinator, and since when: by a hash of group, client id and host, since names may be long. Who is not heard in time is not
/// asked; who is asked for another one looks once more than he had to.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    since: Mutex<HashMap<u64, Instant>>,
    hasher: std::hash::RandomState,
}

/// As groups note where members are.
pub(crate) fn host(peer: SocketAddr) -> String {
    format!("/{}", peer.ip().to_canonical())
}

impl Asked {
    fn key(&self, group: &str, client_id: &str, host: &str) -> u64 {
        std::hash::BuildHasher::hash_one(&self.hasher, (group, client_id, host))
    }

    fn ask(&self, group: &str, client_id: &str, host: &str, now: Instant) {
        let mut asked = self.since.lock();
        if asked.len() >= ASKED_MAX {
            asked.retain(|_, since| now < *since + DOUBT_MAX);
        }
        if asked.len() < ASKED_MAX {
            asked.insert(self.key(group, client_id, host), now);
        }
    }

    /// Is this member to look for its coordinator? Once.
    pub fn take(&self, group: &str, client_id: &str, peer: SocketAddr, now: Instant) -> bool {
        let mut asked = self.since.lock();
        if asked.is_empty() {
            return false;
        }
        asked.remove(&self.key(group, client_id, &host(peer))).is_some_and(|since| now < since + DOUBT_MAX)
    }
}

impl Spoken {
    /// A request of this API has come.
    pub fn note_api(&mut self, api: i16) {
        self.inspects |= INSPECTING.contains(&api);
    }

    /// It asks about a group what members ask, and others might.
    pub fn ask(&mut self, group: &str) {
        if self.group.as_deref() != Some(group)
            && let Some(waits) = &self.waits
        {
            waits.use_group(group);
        }
        match &self.group {
            Some(known) => self.several |= **known != *group,
            None => self.group = Some(group.into()),
        }
    }

    /// It asks about several things at once, as administrators do.
    pub fn ask_many(&mut self) {
        self.inspects = true;
    }

    /// It asks what was asked for it elsewhere.
    pub fn ask_as(&mut self, other: &Self) {
        self.inspects |= other.inspects;
        if let Some(group) = &other.group {
            self.ask(group);
        }
    }

    /// It speaks as a member.
    pub fn speak(&mut self, group: &str) {
        self.ask(group);
        self.member |= !self.several;
    }

    /// The rules of the group that fetches here, as far as that is known. A connection is a group's if it has spoken as a member or asked for
    /// the coordinator, of no other group, or if no other group has a member of its user's with its client id at its host. Unlike with filters a wrong
    /// guess costs time and no records.
    pub fn laggard(&mut self, broker: &Broker, fetcher: &Fetcher<'_>, now: Instant) -> Option<Arc<Laggard>> {
        let laggards = broker.quotas().laggards();
        if !laggards.any() {
            return None;
        }
        let own = self.group.as_deref().filter(|_| !self.several && (self.member || !self.inspects));
        if let Some(group) = own {
            return laggards.of_group(group);
        }
        if let Some((until, known)) = &self.laggard
            && now < *until
        {
            return known.as_ref().and_then(|group| laggards.of_group(group));
        }
        let at = host(fetcher.peer);
        let found = match &*broker.groups().groups_of(fetcher.at(&at)) {
            [only] => laggards.of_group(only),
            _ => None,
        };
        self.laggard = Some((now + LAGGARD_KNOWN, found.as_ref().map(|laggard| laggard.group.clone())));
        found
    }

    /// Whose a fetch of this connection is; asked for each while there are filters.
    pub fn verdict(&mut self, broker: &Broker, asked: &Asked, fetcher: &Fetcher<'_>, now: Instant) -> Verdict {
        let filters = broker.filters();
        if !filters.any() || self.several {
            return Verdict::Nobody;
        }
        let generation = filters.generation();
        if self.generation != generation {
            (self.generation, self.doubt) = (generation, Doubt::None);
        }
        if let Some(group) = self.proven.as_deref().or(self.group.as_deref())
            && (self.proven.is_some() || self.member || !self.inspects)
        {
            let Some(filter) = filters.of_group(group) else { return Verdict::Nobody };
            if self.proven.is_none() && !broker.groups().has_member(group, fetcher.at(&host(fetcher.peer))) {
                // It may be about to join, or to join again.
                return self.still_in_doubt(broker, fetcher, now);
            }
            self.proven = Some(filter.group.as_str().into());
            return Verdict::Of(filter);
        }
        if self.inspects {
            return Verdict::Nobody;
        }
        if matches!(self.doubt, Doubt::Over) {
            return Verdict::Nobody;
        }
        self.by_client_id(broker, fetcher, now).unwrap_or_else(|| self.doubt(broker, asked, fetcher, now))
    }

    /// G3.
    fn by_client_id(&mut self, broker: &Broker, fetcher: &Fetcher<'_>, now: Instant) -> Option<Verdict> {
        let filter = broker.filters().named(fetcher.client_id)?;
        if self.looked_up.is_some_and(|at| now < at + LOOK_UP_AGAIN) {
            return None;
        }
        if !broker.groups().has_only_member(&filter.group, fetcher.at(&host(fetcher.peer))) {
            self.looked_up = Some(now);
            return None;
        }
        self.proven = Some(filter.group.as_str().into());
        Some(Verdict::Of(filter))
    }

    fn doubt(&mut self, broker: &Broker, asked: &Asked, fetcher: &Fetcher<'_>, now: Instant) -> Verdict {
        if !matches!(self.doubt, Doubt::None) {
            return self.still_in_doubt(broker, fetcher, now);
        }
        let at = host(fetcher.peer);
        let candidates = broker.filters().of_groups(&broker.groups().groups_of(fetcher.at(&at)));
        if candidates.is_empty() {
            // A member joins before it fetches: who is none now is none of these groups' later, or names its group.
            self.doubt = Doubt::Over;
            return Verdict::Nobody;
        }
        for group in &candidates {
            asked.ask(&group.group, fetcher.client_id, &at, now);
        }
        self.still_in_doubt(broker, fetcher, now)
    }

    fn still_in_doubt(&mut self, broker: &Broker, fetcher: &Fetcher<'_>, now: Instant) -> Verdict {
        match self.doubt {
            Doubt::Over => Verdict::Nobody,
            Doubt::None => {
                self.doubt = Doubt::Since(now);
                Verdict::InDoubt
            }
            Doubt::Since(since) if now < since + DOUBT_MAX => Verdict::InDoubt,
            Doubt::Since(_) => {
                self.doubt = Doubt::Over;
                broker.filters().counts().unproven.fetch_add(1, Ordering::Relaxed);
                tracing::info!(client_id = fetcher.client_id, peer = %fetcher.peer, "what may be a member of a group with a filter is not proven to be, and gets all");
                Verdict::Nobody
            }
        }
    }
}

#[cfg(test)]
mod tests;
