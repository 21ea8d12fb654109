//! The arguments of a stream's declaration, and the settings of its topic that they come to.

use std::collections::BTreeMap;

use journal::Retention;
use routing::{Argument, OwnedValue};

use super::super::arguments::{InvalidArgument, check_locator, int, refuse, text};

/// `x-stream-max-segment-size-bytes` may not be more.
const SEGMENT_BYTES_MAX: i64 = 3_000_000_000;
/// What `x-stream-filter-size-bytes` may be.
const FILTER_BYTES: std::ops::RangeInclusive<i64> = 16..=255;
/// What other types of queues take, or would take, and streams do not.
const OF_OTHERS: [&[u8]; 22] = [
    b"x-share-group",
    b"x-message-ttl",
    b"x-expires",
    b"x-max-length",
    b"x-dead-letter-exchange",
    b"x-dead-letter-routing-key",
    b"x-dead-letter-strategy",
    b"x-single-active-consumer",
    b"x-overflow",
    b"x-max-priority",
    b"x-delivery-limit",
    b"x-queue-mode",
    b"x-queue-version",
    b"x-quorum-initial-group-size",
    b"x-quorum-target-group-size",
    b"x-max-in-memory-length",
    b"x-max-in-memory-bytes",
    b"x-consumer-timeout",
    b"x-consumer-disconnected-timeout",
    b"x-delayed-retry-type",
    b"x-delayed-retry-min",
    b"x-delayed-retry-max",
];

/// What a stream keeps. `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamArguments {
    /// `x-max-age`, in ms.
    pub age_ms_max: Option<u64>,
    /// `x-max-length-bytes`
    pub bytes_max: Option<u64>,
}

/// An age as RabbitMQ writes it, a number and a unit (`Y` of 365 days, `M` of 30 days, `D`, `h`, `m`, `s`), in ms; one that is too large
/// for a number is the largest.
pub fn age_ms(text: &[u8]) -> Option<u64> {
    let (unit, digits) = text.split_last()?;
    let seconds = match unit {
        b'Y' => 365 * 86_400,
        b'M' => 30 * 86_400,
        b'D' => 86_400,
        b'h' => 3_600,
        b'm' => 60,
        b's' => 1,
        _ => return None,
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number =
        digits.iter().fold(0u64, |number, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    (number > 0).then(|| number.saturating_mul(seconds * 1000))
}

impl StreamArguments {
    /// Takes an argument of a declaration.
    ///
    /// # Errors
    /// Streams do not take it, or not this value.
    pub fn take(&mut self, argument: &Argument) -> Result<(), InvalidArgument> {
        let words = |words| {
            Err(InvalidArgument {
                words: Some(words),
                ..InvalidArgument::unknown(argument, delivery::QueueKind::Stream)
            })
        };
        match &*argument.name {
            b"x-max-age" => match age_ms(text(argument)?.as_bytes()) {
                Some(age) => self.age_ms_max = Some(age),
                None => return refuse("x-max-age", "invalid_max_age"),
            },
            b"x-max-length-bytes" => self.bytes_max = Some(int(argument, 0, i64::MAX)?.unsigned_abs()),
            // Segments are the journal's. What it promises, that no more than so much beyond the limits is kept, holds.
            b"x-stream-max-segment-size-bytes" if int(argument, 0, i64::MAX)? > SEGMENT_BYTES_MAX => {
                return words("Exceeded max value for x-stream-max-segment-size-bytes");
            }
            // Of a filter that sees every message none is made to be looked at first.
            b"x-stream-filter-size-bytes" if !FILTER_BYTES.contains(&int(argument, 0, i64::MAX)?) => {
                return words("Invalid value for x-stream-filter-size-bytes");
            }
            // There is one node.
            b"x-initial-cluster-size" => drop(int(argument, 1, i64::MAX)?),
            b"x-queue-leader-locator" => check_locator(argument)?,
            name if OF_OTHERS.contains(&name) => {
                return Err(InvalidArgument::unknown(argument, delivery::QueueKind::Stream));
            }
            _ => {}
        }
        Ok(())
    }

    /// With a policy, which counts more than an argument, as in RabbitMQ.
    pub fn joined(&self, age: Option<&str>, bytes: Option<u64>) -> Self {
        let age_ms_max = age.and_then(|age| age_ms(age.as_bytes())).or(self.age_ms_max);
        Self { age_ms_max, bytes_max: bytes.or(self.bytes_max) }
    }

    /// What is asked for and what a topic that is there has, where they differ: name, asked for, there. The topic's settings stay its own.
    pub fn differs(&self, topic: Retention) -> Option<(&'static str, u64, String)> {
        let shown = |limit: Option<u64>| limit.map_or_else(|| "none".to_owned(), |limit| format!("'{limit}'"));
        let limits = [("x-max-age", self.age_ms_max, topic.ms), ("x-max-length-bytes", self.bytes_max, topic.bytes)];
        limits.into_iter().find_map(|(name, asked, there)| match asked {
            Some(limit) if there != Some(limit) => Some((name, limit, shown(there))),
            _ => None,
        })
    }

    /// As settings of a topic.
    pub fn overrides(&self) -> BTreeMap<String, String> {
        let limit = |value: Option<u64>| value.and_then(|value| i64::try_from(value).ok()).unwrap_or(-1).to_string();
        let settings = [
            ("cleanup.policy", "delete".to_owned()),
            ("retention.ms", limit(self.age_ms_max)),
            ("retention.bytes", limit(self.bytes_max)),
        ];
        settings.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

/// An age as it is compared and shown, in ms.
pub(crate) fn shown_age(argument: &Argument) -> Option<String> {
    match &argument.value {
        OwnedValue::Bytes(bytes) if *argument.name == *b"x-max-age" => age_ms(bytes).map(|ms| ms.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_a_number_and_a_unit() {
        let day = 86_400_000;
        for (text, ms) in
            [("1h", 3_600_000), ("5D", 5 * day), ("1Y", 365 * day), ("2M", 60 * day), ("3m", 180_000), ("09s", 9000)]
        {
            assert_eq!(age_ms(text.as_bytes()), Some(ms), "{text}");
        }
        assert_eq!(age_ms(b"99999999999999999999h"), Some(u64::MAX));
        // Refused by RabbitMQ 4.3.6 as well.
        for text in ["0s", "10", "abc", "", "s", "1w", "-1h", "1.5h"] {
            assert_eq!(age_ms(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn limits_become_settings_of_the_topic() {
        let arguments = StreamArguments { age_ms_max: Some(5000), bytes_max: None };
        let settings = arguments.overrides();
        assert_eq!((settings["retention.ms"].as_str(), settings["retention.bytes"].as_str()), ("5000", "-1"));
        assert_eq!(
            StreamArguments { age_ms_max: Some(u64::MAX), bytes_max: Some(0) }.overrides()["retention.ms"],
            "-1"
        );
    }
}
