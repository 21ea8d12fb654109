//! What queues and exchanges are called as topics: by Kafka clients, and in access control entries.
//!
//! ```text
//! name     [virtual host "~"] queue      the virtual host, unless it is "/"
//! byte     A-Z a-z 0-9 . _ -             as it is
//!          any other                     "~" and two digits of 0-9 A-F
//!          the first of the queue,       the same: behind a virtual host where it and the next byte of the queue are both
//!                                        0-9 A-F, and would be taken for the digits of the "~" before them
//! ```
//!
//! No two queues have one name: it can be read back. Two digits of `0-9 A-F` follow each `~` of a byte, and never the `~` behind the virtual
//! host. For what follows that is the queue: nothing, if it is empty; `~`, if its first byte is not written as it is; otherwise that byte, and if it is
//! such a digit, then behind it the end, a byte that is no such digit, or `~`, because of two such digits the first is not written as it is. So a
//! `~` that two such digits follow is of a byte, the only other one stands behind the virtual host, and where there is none the virtual host is `/`.
//!
//! The *old rule* lacks the last line of the table: `a b` of `/` and `20b` of `a` were both `a~20b`. Durable queues of releases that had it keep
//! their names (`record.rs`, `claims.rs`), because their consumers' offsets and entries stand under them.

use std::fmt::Write;

use super::{DEFAULT_VHOST, Vhost, Vhosts};
use crate::Broker;

const NAME_BYTES_MAX: usize = 249;

/// The topic under which Kafka clients see a queue: its [`resource_name`]. `None`: there can be no such topic.
pub(super) fn topic_name(vhost: &str, queue: &[u8]) -> Option<String> {
    as_topic(queue, resource_name(vhost, queue))
}

/// The same by the old rule.
pub(super) fn old_topic_name(vhost: &str, queue: &[u8]) -> Option<String> {
    as_topic(queue, name(vhost, queue, false))
}

/// Do the two rules differ?
pub(super) fn had_another(vhost: &str, queue: &[u8]) -> bool {
    vhost != DEFAULT_VHOST && begins_like_an_escape(queue)
}

/// What access control entries call a queue or exchange, unless the queue has kept the name that an earlier release gave it.
pub(super) fn resource_name(vhost: &str, queue: &[u8]) -> String {
    name(vhost, queue, begins_like_an_escape(queue))
}

fn as_topic(queue: &[u8], name: String) -> Option<String> {
    (!queue.is_empty() && name.len() <= NAME_BYTES_MAX && name != "." && name != "..").then_some(name)
}

fn begins_like_an_escape(queue: &[u8]) -> bool {
    matches!(queue, [b'0'..=b'9' | b'A'..=b'F', b'0'..=b'9' | b'A'..=b'F', ..])
}

/// `apart`: the first byte of the queue must not be written as it is behind a virtual host.
fn name(vhost: &str, queue: &[u8], apart: bool) -> String {
    let (mut name, mut rest) = (String::new(), queue);
    if vhost != DEFAULT_VHOST {
        put_escaped(&mut name, vhost.as_bytes());
        name.push('~');
        if let (true, [first, behind @ ..]) = (apart, queue) {
            put_byte(&mut name, *first);
            rest = behind;
        }
    }
    put_escaped(&mut name, rest);
    name
}

/// Virtual host and name of the queue that would be called so; `None`: none would.
pub(super) fn read_back(name: &str) -> Option<(String, Vec<u8>)> {
    let (mut vhost, mut read, mut rest) = (None, Vec::new(), name.as_bytes());
    while let [first, behind @ ..] = rest {
        rest = behind;
        match (first, behind) {
            (b'~', [high, low, left @ ..]) if begins_like_an_escape(behind) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16).unwrap_or_default() as u8;
                read.push(digit(high) << 4 | digit(low));
                rest = left;
            }
            (b'~', _) if vhost.is_none() => vhost = Some(std::mem::take(&mut read)),
            _ => read.push(*first),
        }
    }
    let vhost = vhost.map_or_else(|| Some(DEFAULT_VHOST.to_owned()), |vhost| String::from_utf8(vhost).ok())?;
    (resource_name(&vhost, &read) == name).then_some((vhost, read))
}

fn put_byte(name: &mut String, byte: u8) {
    let _ = write!(name, "~{byte:02X}");
}

fn put_escaped(name: &mut String, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b'.' | b'_' | b'-' => name.push(char::from(*byte)),
            _ if byte.is_ascii_alphanumeric() => name.push(char::from(*byte)),
            _ => put_byte(name, *byte),
        }
    }
}

impl Vhost {
    /// What access control entries call a queue or exchange of it. A queue that has kept the name that an earlier release gave it is called
    /// that, until it is deleted, and so is an exchange beside it.
    pub fn resource_name(&self, name: &[u8]) -> String {
        let kept = had_another(&self.name, name).then(|| self.queue(name)).flatten();
        match kept.filter(|queue| queue.has_kept_its_name()) {
            Some(queue) => queue.topic.name.clone(),
            None => resource_name(&self.name, name),
        }
    }
}

impl Vhosts {
    /// The same, of a virtual host that need not be there.
    pub fn resource_name(&self, vhost: &str, name: &[u8]) -> String {
        self.get(vhost).map_or_else(|| resource_name(vhost, name), |vhost| vhost.resource_name(name))
    }
}

impl Broker {
    /// What a topic is for permissions: virtual host and name of the queue that it is, or would be. A topic of its own belongs to virtual host `/`,
    /// also if a queue is attached to it.
    pub fn thing_of_topic(&self, name: &str) -> (String, Vec<u8>) {
        let own = || (DEFAULT_VHOST.to_owned(), name.as_bytes().to_vec());
        match self.topic(name) {
            None => read_back(name).unwrap_or_else(own),
            Some(topic) => match self.queue_on(&topic).filter(|queue| !queue.is_attached()) {
                Some(queue) => (queue.vhost().to_owned(), queue.name().to_vec()),
                None => own(),
            },
        }
    }
}

impl super::Queue {
    /// Is its topic called as the old rule says, and the present one does not?
    pub(super) fn has_kept_its_name(&self) -> bool {
        had_another(&self.vhost, &self.name)
            && !self.topic.name.is_empty()
            && self.topic.name != resource_name(&self.vhost, &self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn queues_have_a_name_for_kafka() {
        assert_eq!(topic_name("/", b"orders.v1_a-b").as_deref(), Some("orders.v1_a-b"));
        assert_eq!(topic_name("/", "größe 1".as_bytes()).as_deref(), Some("gr~C3~B6~C3~9Fe~201"));
        assert_eq!(topic_name("shop", b"orders").as_deref(), Some("shop~orders"));
        assert_eq!(topic_name("/", b""), None);
        assert_eq!(topic_name("/", b".."), None);
        assert_eq!(topic_name("/", &[b'~'; 100]), None);
        assert!(topic_name("/", &[b'a'; 249]).is_some());
        assert_eq!(topic_name("/", &[b'a'; 250]), None);
    }

    #[test]
    fn what_would_be_taken_for_an_escaped_byte_is_not_written_as_it_is() {
        let cases = [
            ("a", "20b", "a~20b", "a~~320b"),
            ("a", "FF", "a~FF", "a~~46F"),
            ("a b", "0A", "a~20b~0A", "a~20b~~30A"),
            ("a", "2", "a~2", "a~2"),
            ("a", "2g", "a~2g", "a~2g"),
            ("a", "ab", "a~ab", "a~ab"),
            ("a", "2 0", "a~2~200", "a~2~200"),
            ("/", "20b", "20b", "20b"),
        ];
        for (vhost, queue, old, new) in cases {
            assert_eq!(
                (old_topic_name(vhost, queue.as_bytes()).as_deref(), topic_name(vhost, queue.as_bytes()).as_deref()),
                (Some(old), Some(new))
            );
            assert_eq!(had_another(vhost, queue.as_bytes()), old != new, "{queue} of {vhost}");
        }
    }

    #[test]
    fn names_that_no_queue_has_are_not_read_back() {
        assert_eq!(read_back("shop~orders"), Some(("shop".to_owned(), b"orders".to_vec())));
        assert_eq!(read_back("a~20b"), Some(("/".to_owned(), b"a b".to_vec())));
        for name in ["~2Forders", "a~b~c", "~41", "shop~~61", "~FF~x", "a~4"] {
            let read = read_back(name);
            assert!(read.as_ref().is_none_or(|(vhost, queue)| resource_name(vhost, queue) == name), "{name}: {read:?}");
        }
        assert_eq!((read_back("~41"), read_back("a~b~c"), read_back("~FF~x")), (None, None, None));
    }

    /// All texts of these bytes up to a length.
    fn texts(of: &[u8], bytes_max: usize) -> Vec<Vec<u8>> {
        let (mut all, mut last) = (vec![Vec::new()], vec![Vec::new()]);
        for _ in 0..bytes_max {
            last = last.iter().flat_map(|text| of.iter().map(move |byte| [&text[..], &[*byte]].concat())).collect();
            all.extend_from_slice(&last);
        }
        all
    }

    /// Digits and what is no digit, what is escaped and what is not, and what an escape is made of: `~` is 7E, a space 20, `/` 2F.
    #[test]
    fn no_two_queues_have_one_name() {
        for (of, in_vhost, in_queue) in [(&b"a20B~ /"[..], 3, 3), (b"2~0", 4, 5), (b"a7E~F2", 2, 4)] {
            let mut names: HashMap<String, (Vec<u8>, Vec<u8>)> = HashMap::new();
            for vhost in texts(of, in_vhost) {
                let vhost = String::from_utf8(vhost).expect("of ASCII");
                for queue in texts(of, in_queue) {
                    let name = resource_name(&vhost, &queue);
                    assert_eq!(read_back(&name), Some((vhost.clone(), queue.clone())), "{name}");
                    if let Some(other) = names.insert(name.clone(), (vhost.clone().into(), queue.clone())) {
                        panic!("{name} is {} of {vhost}, and another: {other:?}", queue.escape_ascii());
                    }
                }
            }
        }
    }
}
