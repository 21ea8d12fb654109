//! ListGroups. There may be a million groups: other threads go through them in turns, a hundred groups under one hold of the lock for which all members
//! wait. What has been found is kept as it is sent, and counted as answers are.
//!
//! A group that is there all the time is listed, whatever comes and goes meanwhile, and none is listed twice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::AclOperation;
use delivery::GroupLine;
use hashbrown::HashSet;
use kafka_wire::list_groups::{ListGroupsRequest, ListGroupsResponse, ListedGroup};
use kafka_wire::{DecodeError, Reader, Str};

use super::{JobBody, NO_ROOM, Outcome};
use crate::access::Asking;
use crate::answer_room::AnswerRoom;
use crate::gateway::Gateway;
use crate::session::{Context, Turns};
use crate::written::{Listing, Parts};

/// A turn is over after so many groups …
const GROUPS_OF_TURN: usize = 1000;
/// … or after this long, once one was looked at.
const TURN: Duration = Duration::from_millis(10);

/// A list that is being made.
struct GroupList {
    gateway: Arc<Gateway>,
    version: i16,
    /// In small letters; none: all.
    states: HashSet<String>,
    types: HashSet<String>,
    /// The group that was looked at last.
    after: Option<String>,
    parts: Parts,
}

pub(crate) fn list(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = ListGroupsRequest::decode(reader, context.version)?;
    if context.is_long(context.gateway.broker.groups().count()) {
        return Ok(Outcome::Long);
    }
    let words = |filter: &[Str]| filter.iter().map(|one| one.to_ascii_lowercase()).collect::<HashSet<String>>();
    let list = GroupList {
        gateway: Arc::clone(context.gateway),
        version: context.version,
        states: words(&request.states_filter),
        types: words(&request.types_filter),
        after: None,
        parts: Parts::counted(&context.gateway.pinned),
    };
    Ok(context.go_through(list))
}

impl Turns for GroupList {
    fn turn(&mut self, asking: &Asking<'_>) -> Option<JobBody> {
        let (until, asking) = (Instant::now() + TURN, asking.quietly());
        let all = asking.check_cluster(AclOperation::Describe).is_ok();
        let mut room = AnswerRoom::for_all_behind(self.parts.bytes(), &self.gateway);
        let mut left = GROUPS_OF_TURN;
        while left > 0 {
            let piece = self.gateway.broker.groups().list_after(self.after.as_deref());
            if piece.is_empty() {
                return Some(Box::new(std::mem::take(&mut self.parts).of(ListGroupsResponse::default())));
            }
            for line in piece {
                left = left.saturating_sub(1);
                self.after = Some(line.group.clone());
                if self.is_asked_for(&line)
                    && (all || asking.check_group(AclOperation::Describe, &line.group).is_ok())
                    && !self.add(line, &mut room)
                {
                    // A list that is not whole would be taken for all that there is.
                    return Some(Box::new(ListGroupsResponse {
                        error_code: NO_ROOM.code(),
                        ..ListGroupsResponse::default()
                    }));
                }
                if Instant::now() >= until {
                    left = 0;
                    break;
                }
            }
        }
        None
    }
}

impl GroupList {
    fn is_asked_for(&self, line: &GroupLine) -> bool {
        let asked =
            |filter: &HashSet<String>, value: &str| filter.is_empty() || filter.contains(&value.to_ascii_lowercase());
        asked(&self.states, line.state) && asked(&self.types, line.kind)
    }

    /// False: there is no room.
    fn add(&mut self, line: GroupLine, room: &mut AnswerRoom) -> bool {
        let one = ListedGroup {
            group_id: line.group.into(),
            protocol_type: line.protocol_type.into(),
            group_state: line.state.into(),
            group_type: line.kind.into(),
            ..ListedGroup::default()
        };
        self.parts.push(room, |writer| one.encode(writer, self.version))
    }
}

impl Listing for ListGroupsResponse {
    fn behind(version: i16) -> (bool, usize) {
        // No tags.
        let flexible = version >= 3;
        (flexible, usize::from(flexible))
    }
}
