//! NATS for publishers, with what JetStream answers to them: any stream exists and takes any subject.
//!
//! The protocol is lines that end in CR LF, and payloads behind some of them
//! (<https://docs.nats.io/reference/reference-protocols/nats-protocol>,
//! <https://docs.nats.io/reference/reference-protocols/nats_api_reference>):
//!
//! ```text
//! server  INFO {json}            client  CONNECT {json}
//!         PONG                           PING
//!                                        SUB subject [queue group] sid
//!                                        UNSUB sid [messages]
//!                                        PUB subject [reply] bytes, payload, CR LF
//!         MSG subject sid bytes,         HPUB subject [reply] bytes-of-headers bytes-of-all, headers and payload, CR LF
//!             payload, CR LF
//! ```
//!
//! What is published with a reply subject to `$JS.API.` gets the smallest JSON that means success, and anything else an
//! acknowledgement of JetStream. A message reaches the first subscription that its subject fits; of wildcards there are
//! only those at the end, which is how clients subscribe to their inboxes. What has no reply subject vanishes.

use anyhow::{Context, Result, bail, ensure};

use super::Session;

const LINE_BYTES_MAX: usize = 4096;
/// As announced below; the highest that NATS allows.
const PAYLOAD_BYTES_MAX: usize = 64 << 20;
const SUBSCRIPTIONS_MAX: usize = 1024;

const INFO: &str = concat!(
    r#"INFO {"server_id":"null","server_name":"null","version":"2.12.0","proto":1,"headers":true,"#,
    r#""max_payload":67108864,"jetstream":true}"#,
    "\r\n"
);
const ACCOUNT: &str = concat!(
    r#"{"memory":0,"storage":0,"reserved_memory":0,"reserved_storage":0,"streams":0,"consumers":0,"#,
    r#""limits":{"max_memory":-1,"max_storage":-1,"max_streams":-1,"max_consumers":-1,"max_bytes_required":false,"#,
    r#""max_ack_pending":-1,"memory_max_stream_bytes":-1,"storage_max_stream_bytes":-1},"api":{"total":0,"errors":0}}"#
);
/// Follows the name of the stream.
const STREAM: &str = concat!(
    r#"","discard":"old","retention":"limits","storage":"memory","num_replicas":1},"created":"2020-01-01T00:00:00Z","#,
    r#""state":{"messages":0,"bytes":0,"first_seq":0,"first_ts":"2020-01-01T00:00:00Z","last_seq":0,"#,
    r#""last_ts":"2020-01-01T00:00:00Z","consumer_count":0}}"#
);

/// One connection of a publisher.
#[derive(Default)]
pub struct Nats {
    subscriptions: Vec<Subscription>,
    sequence: u64,
    /// The answer to a message whose payload has not passed yet.
    due: Vec<u8>,
}

struct Subscription {
    sid: Vec<u8>,
    /// The subject, up to its wildcard.
    begin: Vec<u8>,
    wildcard: Option<u8>,
}

impl Subscription {
    fn fits(&self, subject: &[u8]) -> bool {
        let Some(rest) = subject.strip_prefix(&*self.begin) else { return false };
        match self.wildcard {
            None => rest.is_empty(),
            Some(b'*') => !rest.contains(&b'.'),
            Some(_) => true,
        }
    }
}

impl Session for Nats {
    fn greet(&mut self, answers: &mut Vec<u8>) {
        answers.extend_from_slice(INFO.as_bytes());
    }

    fn step(&mut self, input: &[u8], answers: &mut Vec<u8>) -> Result<Option<usize>> {
        answers.append(&mut self.due);
        let searched = &input[..input.len().min(LINE_BYTES_MAX)];
        let Some(feed) = searched.iter().position(|byte| *byte == b'\n') else {
            ensure!(searched.len() < LINE_BYTES_MAX, "an endless line");
            return Ok(None);
        };
        let line = input[..feed].strip_suffix(b"\r").context("a line without CR")?;
        let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let payload = match words.next().context("an empty line")? {
            b"PUB" => self.publish(words)?,
            b"HPUB" => {
                // All but the length of the headers is as without them.
                let count = words.clone().count();
                let at = count.checked_sub(2).context("HPUB without lengths")?;
                self.publish(words.enumerate().filter(|(index, _)| *index != at).map(|(_, word)| word))?
            }
            b"PING" => {
                answers.extend_from_slice(b"PONG\r\n");
                0
            }
            b"SUB" => self.subscribe(words)?,
            b"UNSUB" => {
                let sid = words.next().context("UNSUB of nothing")?;
                self.subscriptions.retain(|subscription| subscription.sid != sid);
                0
            }
            b"CONNECT" | b"PONG" => 0,
            _ => bail!("an operation that is not served"),
        };
        Ok(Some(feed + 1 + payload))
    }
}

impl Nats {
    fn subscribe<'a>(&mut self, words: impl Iterator<Item = &'a [u8]>) -> Result<usize> {
        let (subject, sid) = ends(words).context("SUB without a sid")?;
        ensure!(self.subscriptions.len() < SUBSCRIPTIONS_MAX, "too many subscriptions");
        let wildcard = subject.last().copied().filter(|byte| b"*>".contains(byte));
        let begin = subject[..subject.len() - usize::from(wildcard.is_some())].to_vec();
        self.subscriptions.push(Subscription { sid: sid.to_vec(), begin, wildcard });
        Ok(0)
    }

    /// Prepares the answer to a message; how many bytes follow its line.
    fn publish<'a>(&mut self, mut words: impl Iterator<Item = &'a [u8]>) -> Result<usize> {
        let (Some(subject), Some(second)) = (words.next(), words.next()) else { bail!("PUB without a length") };
        let (reply, length) = match words.next() {
            Some(length) => (Some(second), length),
            None => (None, second),
        };
        let length = number(length).filter(|length| *length <= PAYLOAD_BYTES_MAX).context("PUB of no valid length")?;
        if let Some(reply) = reply {
            self.answer(subject, reply);
        }
        Ok(length + 2)
    }

    fn answer(&mut self, subject: &[u8], reply: &[u8]) {
        let Some(subscription) = self.subscriptions.iter().find(|subscription| subscription.fits(reply)) else {
            return;
        };
        let mut payload = [0; 64];
        let mut long = Vec::new();
        let payload = match subject.strip_prefix(b"$JS.API.") {
            Some(request) => {
                administer(request, &mut long);
                &long
            }
            None => {
                self.sequence += 1;
                acknowledgement(self.sequence, &mut payload)
            }
        };
        let due = &mut self.due;
        due.extend_from_slice(b"MSG ");
        due.extend_from_slice(reply);
        due.push(b' ');
        due.extend_from_slice(&subscription.sid);
        due.push(b' ');
        due.extend_from_slice(decimal(payload.len() as u64, &mut [0; 20]));
        due.extend_from_slice(b"\r\n");
        due.extend_from_slice(payload);
        due.extend_from_slice(b"\r\n");
    }
}

/// The first and the last word.
fn ends<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Option<(&'a [u8], &'a [u8])> {
    Some((words.next()?, words.last()?))
}

/// The JSON that answers a request to `$JS.API.`.
fn administer(request: &[u8], into: &mut Vec<u8>) {
    let name = |prefix: &[u8]| request.strip_prefix(prefix);
    if let Some(name) = name(b"STREAM.CREATE.").or_else(|| name(b"STREAM.INFO.")) {
        into.extend_from_slice(br#"{"config":{"name":""#);
        // What would need escaping is no stream's name.
        into.extend(name.iter().filter(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(byte)));
        into.extend_from_slice(STREAM.as_bytes());
    } else if name(b"STREAM.DELETE.").is_some() {
        into.extend_from_slice(br#"{"success":true}"#);
    } else if request == b"INFO" {
        into.extend_from_slice(ACCOUNT.as_bytes());
    } else {
        into.extend_from_slice(br#"{"error":{"code":503,"err_code":10039,"description":"not served"}}"#);
    }
}

fn acknowledgement(sequence: u64, into: &mut [u8; 64]) -> &[u8] {
    const BEGIN: &[u8] = br#"{"stream":"null","seq":"#;
    let mut digits = [0; 20];
    let digits = decimal(sequence, &mut digits);
    let length = BEGIN.len() + digits.len();
    into[..BEGIN.len()].copy_from_slice(BEGIN);
    into[BEGIN.len()..length].copy_from_slice(digits);
    into[length] = b'}';
    &into[..=length]
}

fn number(text: &[u8]) -> Option<usize> {
    // As many digits as no limit here needs.
    (1..=9).contains(&text.len()).then_some(())?;
    text.iter().try_fold(0, |value, byte| byte.is_ascii_digit().then(|| value * 10 + usize::from(byte - b'0')))
}

/// The number's digits, without what formatting costs.
fn decimal(mut value: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut begin = digits.len();
    loop {
        begin -= 1;
        digits[begin] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return &digits[begin..];
        }
    }
}
