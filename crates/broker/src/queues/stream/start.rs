//! Where a consumer of a stream begins, and which messages it wants.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use filter::Filter;
use hashbrown::HashSet;
use record::Record;

use crate::UnpackRoom;

/// The header of a record by which consumers choose.
const FILTER_HEADER: &[u8] = b"x-stream-filter-value";

/// Where a consumer begins. What is not there any more is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamStart {
    /// With the first message that is there.
    First,
    /// With the last message that is there.
    Last,
    /// With what is published from now on.
    Next,
    /// With this offset; one that is not yet there is waited for.
    Offset(u64),
    /// With the first message whose timestamp is not before this, in ms since 1970.
    Time(i64),
}

/// Which messages a consumer wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamFilter {
    /// Those whose header `x-stream-filter-value` has any of these values.
    pub values: Option<HashSet<Bytes>>,
    /// And those without that header.
    pub unfiltered: bool,
    /// And of all those only the ones for which this is true.
    pub expression: Option<Arc<Filter>>,
}

/// How a consumer reads a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamReading {
    /// From where.
    pub start: StreamStart,
    /// `None`: all messages.
    pub filter: Option<StreamFilter>,
    /// Where the consumer is: addresses take turns at what takes long.
    pub address: IpAddr,
}

impl StreamFilter {
    /// Is a record wanted? Of headers with one name the last counts, as everywhere. `None`: there is no room in this turn to find out.
    pub(super) fn wants(&self, record: &Record, room: &mut UnpackRoom) -> Option<bool> {
        if self.values.is_some() {
            room.spend(1 + record.headers.len())?;
        }
        match &self.expression {
            Some(expression) if self.has_value(record) => room.judge(expression, record),
            Some(_) => Some(false),
            None => Some(self.has_value(record)),
        }
    }

    fn has_value(&self, record: &Record) -> bool {
        let Some(values) = &self.values else { return true };
        match record.headers.iter().rev().find(|(name, _)| **name == *FILTER_HEADER) {
            Some((_, value)) => value.as_ref().is_some_and(|value| values.contains(value)),
            None => self.unfiltered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Offset;

    #[test]
    fn a_filter_wants_its_values_and_perhaps_what_has_none() {
        let record = |value: Option<&'static [u8]>| {
            let header = |value| (Bytes::from_static(FILTER_HEADER), Some(Bytes::from_static(value)));
            Record {
                offset: Offset(0),
                timestamp: 0,
                key: None,
                value: None,
                headers: value.map(header).into_iter().collect(),
                vouched: false,
            }
        };
        let filter = |unfiltered| StreamFilter {
            values: Some([Bytes::from_static(b"a"), Bytes::from_static(b"b")].into_iter().collect()),
            unfiltered,
            expression: None,
        };
        let wants = |filter: &StreamFilter, value| {
            filter.wants(&record(value), &mut { UnpackRoom::TURN }).expect("there is room")
        };
        for (value, wanted) in [(Some(&b"a"[..]), true), (Some(b"b"), true), (Some(b"c"), false), (Some(b""), false)] {
            assert_eq!(wants(&filter(false), value), wanted);
            assert_eq!(wants(&filter(true), value), wanted);
        }
        assert!(!wants(&filter(false), None));
        assert!(wants(&filter(true), None));
        let expression = |text: &str| Some(Arc::new(Filter::parse(text).expect("valid")));
        let both = StreamFilter { expression: expression("timestamp > 0"), ..filter(true) };
        assert!(!wants(&both, Some(b"a")) && !wants(&both, None));
        let one = StreamFilter {
            expression: expression("header.\"x-stream-filter-value\" LIKE 'c%'"),
            ..StreamFilter::default()
        };
        assert!(wants(&one, Some(b"c")) && !wants(&one, Some(b"a")) && !wants(&one, None));
    }
}
