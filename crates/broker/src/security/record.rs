//! What is durable of users, virtual hosts, permissions and access control entries: keyed state in journal 0.
//!
//! ```text
//! key    "n" kind, then by kind
//!   "u"  name                            value  u8 version (1), u8 algorithm (0: no password), u16 length, hash as in `password.rs`,
//!                                               limit connections, limit channels, u16 count of tags, each u16 length, text;
//!                                               then nothing, or a hash for RabbitMQ: u8 algorithm, u16 length, hash
//!   "v"  name                            value  u8 version (1), u16 length, description, u8 0, or 1 and u16 length, default queue
//!                                               type; u16 count of tags, each u16 length, text
//!   "d"  name                            value  u8 version (1): the virtual host is being deleted
//!   "p"  u8 length, virtual host, user   value  u8 version (1), configure, write, read: each u16 length, expression
//!   "s"  u8 mechanism, user              value  u8 version (1), u32 iterations, salt, stored key, server key: each u16 length, bytes;
//!                                               mechanism 1: SCRAM-SHA-256, 2: SCRAM-SHA-512
//!   "t"  u8 length, virtual host,
//!        u8 length, user, exchange       value  u8 version (1), write, read: each u16 length, expression
//!   "a"  u8 type of resource, u8 pattern,
//!        u8 operation, u8 permission,
//!        name, principal, host: each
//!        u16 length, text                value  u8 version (1); the numbers are those of `acl.rs`
//! limit  u8 0 (none), or 1 and u32
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::acl::{Acl, AclOperation, AclPattern, AclPermission, AclResource};
use super::password::{HashAlgorithm, PasswordHash};
use super::permissions::{Permissions, TopicPermission};
use super::scram::{ScramCredential, ScramMechanism};
use super::user::{User, UserLimits};
use crate::queues::VhostMetadata;

/// First byte of all keys.
pub(crate) const SECURITY_KEY: u8 = b'n';
const USER: u8 = b'u';
const VHOST: u8 = b'v';
const DELETION: u8 = b'd';
const PERMISSIONS: u8 = b'p';
const TOPIC: u8 = b't';
const SCRAM: u8 = b's';
const ACL: u8 = b'a';
const VERSION: u8 = 1;

/// One of the records.
#[derive(Debug)]
pub(super) enum Found {
    User(User),
    Scram(String, ScramCredential),
    Vhost(String, VhostMetadata),
    Deletion(String),
    Permissions { vhost: String, user: String, permissions: Permissions },
    Topic { vhost: String, user: String, exchange: String, permission: TopicPermission },
    Acl(Acl),
}

fn key(kind: u8, parts: &[&str], last: &str) -> Bytes {
    let mut key = BytesMut::new();
    key.put_slice(&[SECURITY_KEY, kind]);
    for part in parts {
        key.put_u8(u8::try_from(part.len()).expect("names have at most 255 bytes"));
        key.put_slice(part.as_bytes());
    }
    key.put_slice(last.as_bytes());
    key.freeze()
}

pub(super) fn user_key(name: &str) -> Bytes {
    key(USER, &[], name)
}

pub(super) fn scram_key(mechanism: ScramMechanism, user: &str) -> Bytes {
    Bytes::from([&[SECURITY_KEY, SCRAM, mechanism.number()], user.as_bytes()].concat())
}

pub(super) fn vhost_key(name: &str) -> Bytes {
    key(VHOST, &[], name)
}

/// Of a virtual host that is being deleted.
pub(super) fn deletion_key(vhost: &str) -> Bytes {
    key(DELETION, &[], vhost)
}

pub(super) fn permissions_key(vhost: &str, user: &str) -> Bytes {
    key(PERMISSIONS, &[vhost], user)
}

pub(super) fn topic_key(vhost: &str, user: &str, exchange: &str) -> Bytes {
    key(TOPIC, &[vhost, user], exchange)
}

pub(super) fn acl_key(acl: &Acl) -> Bytes {
    let mut key = BytesMut::new();
    key.put_slice(&[
        SECURITY_KEY,
        ACL,
        acl.resource.number(),
        acl.pattern.number(),
        acl.operation.number(),
        acl.permission.number(),
    ]);
    [&acl.name, &acl.principal, &acl.host].into_iter().for_each(|text| put_text(&mut key, text.as_bytes()));
    key.freeze()
}

/// All that is said of a deletion is its key.
pub(super) fn encode_deletion() -> Bytes {
    Bytes::from_static(&[VERSION])
}

/// All that is said of an entry is its key.
pub(super) fn encode_acl() -> Bytes {
    Bytes::from_static(&[VERSION])
}

fn decode_acl(key: &mut &[u8]) -> Option<Acl> {
    let mut number = || key.try_get_u8().ok();
    let (resource, pattern) = (AclResource::of_number(number()?)?, AclPattern::of_number(number()?)?);
    let (operation, permission) = (AclOperation::of_number(number()?)?, AclPermission::of_number(number()?)?);
    let (name, principal, host) = (text(key)?, text(key)?, text(key)?);
    key.is_empty().then_some(Acl { resource, name, pattern, principal, host, operation, permission })
}

fn put_text(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u16(u16::try_from(bytes.len()).expect("lengths were checked"));
    out.put_slice(bytes);
}

fn put_limit(out: &mut BytesMut, limit: Option<u32>) {
    out.put_u8(u8::from(limit.is_some()));
    if let Some(limit) = limit {
        out.put_u32(limit);
    }
}

fn put_all(out: &mut BytesMut, texts: &[String]) {
    out.put_u16(u16::try_from(texts.len()).expect("counts were checked"));
    texts.iter().for_each(|text| put_text(out, text.as_bytes()));
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(head)
}

fn raw<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::from(bytes.try_get_u16().ok()?);
    take(bytes, length)
}

fn text(bytes: &mut &[u8]) -> Option<String> {
    String::from_utf8(raw(bytes)?.to_vec()).ok()
}

fn limit(bytes: &mut &[u8]) -> Option<Option<u32>> {
    Some(match bytes.try_get_u8().ok()? {
        0 => None,
        _ => Some(bytes.try_get_u32().ok()?),
    })
}

fn all(bytes: &mut &[u8]) -> Option<Vec<String>> {
    (0..bytes.try_get_u16().ok()?).map(|_| text(bytes)).collect()
}

/// A part of a key.
fn part(bytes: &mut &[u8]) -> Option<String> {
    let length = usize::from(bytes.try_get_u8().ok()?);
    String::from_utf8(take(bytes, length)?.to_vec()).ok()
}

pub(super) fn encode_user(user: &User) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(VERSION);
    out.put_u8(user.password().map_or(0, |hash| hash.algorithm().number()));
    put_text(&mut out, user.password().map_or(&[], PasswordHash::as_bytes));
    put_limit(&mut out, user.limits().max_connections);
    put_limit(&mut out, user.limits().max_channels);
    put_all(&mut out, user.tags());
    if let Some(hash) = user.rabbitmq_hash() {
        out.put_u8(hash.algorithm().number());
        put_text(&mut out, hash.as_bytes());
    }
    out.freeze()
}

fn hash_of(number: u8, bytes: &[u8]) -> Option<PasswordHash> {
    PasswordHash::from_bytes(HashAlgorithm::of_number(number)?, bytes).ok()
}

pub(super) fn encode_scram(credential: &ScramCredential) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(VERSION);
    out.put_u32(credential.iterations());
    let (stored, server) = credential.keys();
    [credential.salt(), stored, server].into_iter().for_each(|bytes| put_text(&mut out, bytes));
    out.freeze()
}

pub(super) fn encode_vhost(metadata: &VhostMetadata) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(VERSION);
    put_text(&mut out, metadata.description.as_bytes());
    out.put_u8(u8::from(metadata.default_queue_type.is_some()));
    if let Some(kind) = &metadata.default_queue_type {
        put_text(&mut out, kind.as_bytes());
    }
    put_all(&mut out, &metadata.tags);
    out.freeze()
}

fn encode_patterns(patterns: &[&super::Pattern]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(VERSION);
    patterns.iter().for_each(|pattern| put_text(&mut out, pattern.text().as_bytes()));
    out.freeze()
}

pub(super) fn encode_permissions(permissions: &Permissions) -> Bytes {
    encode_patterns(&[&permissions.configure, &permissions.write, &permissions.read])
}

pub(super) fn encode_topic(permission: &TopicPermission) -> Bytes {
    encode_patterns(&[&permission.write, &permission.read])
}

/// Reads a record; `None`: it is none of this or an older version.
pub(super) fn decode(key: &[u8], value: &[u8]) -> Option<Found> {
    let (mut key, mut value) = (key, value);
    (key.try_get_u8().ok()? == SECURITY_KEY).then_some(())?;
    let kind = key.try_get_u8().ok()?;
    (value.try_get_u8().ok()? == VERSION).then_some(())?;
    let rest = |key: &[u8]| String::from_utf8(key.to_vec()).ok();
    Some(match kind {
        USER => {
            let (algorithm, hash) = (value.try_get_u8().ok()?, raw(&mut value)?);
            let password = match algorithm {
                0 => None,
                number => Some(hash_of(number, hash)?),
            };
            let limits = UserLimits { max_connections: limit(&mut value)?, max_channels: limit(&mut value)? };
            let user = User::new(rest(key)?, password, all(&mut value)?, limits);
            if value.is_empty() {
                return Some(Found::User(user));
            }
            let (algorithm, hash) = (value.try_get_u8().ok()?, raw(&mut value)?);
            Found::User(user.with_rabbitmq_hash(Some(hash_of(algorithm, hash)?)))
        }
        SCRAM => {
            let mechanism = ScramMechanism::of_number(key.try_get_u8().ok()?)?;
            let (iterations, salt) = (value.try_get_u32().ok()?, raw(&mut value)?);
            let (stored, server) = (raw(&mut value)?, raw(&mut value)?);
            Found::Scram(rest(key)?, ScramCredential::from_parts(mechanism, iterations, salt, stored, server)?)
        }
        VHOST => {
            let description = text(&mut value)?;
            let default_queue_type = match value.try_get_u8().ok()? {
                0 => None,
                _ => Some(text(&mut value)?),
            };
            Found::Vhost(rest(key)?, VhostMetadata { description, tags: all(&mut value)?, default_queue_type })
        }
        DELETION => Found::Deletion(rest(key)?),
        PERMISSIONS => {
            let vhost = part(&mut key)?;
            let (configure, write, read) = (text(&mut value)?, text(&mut value)?, text(&mut value)?);
            Found::Permissions {
                vhost,
                user: rest(key)?,
                permissions: Permissions::new(&configure, &write, &read).ok()?,
            }
        }
        TOPIC => {
            let (vhost, user) = (part(&mut key)?, part(&mut key)?);
            let permission = TopicPermission::new(&text(&mut value)?, &text(&mut value)?, &user, &vhost).ok()?;
            Found::Topic { exchange: rest(key)?, vhost, user, permission }
        }
        ACL => Found::Acl(decode_acl(&mut key)?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads back what was written, and nothing shorter.
    fn check(key: &[u8], value: &[u8]) -> Found {
        for end in 0..value.len() {
            assert!(decode(key, &value[..end]).is_none(), "{end} bytes of {key:?}");
        }
        decode(key, value).expect("readable")
    }

    #[test]
    fn what_is_written_is_read_back_and_nothing_shorter() {
        let hash = PasswordHash::from_bytes(HashAlgorithm::RabbitSha256, &[7; 36]).expect("a hash");
        let limits = UserLimits { max_connections: Some(0), max_channels: None };
        let user =
            User::new("größe".to_owned(), Some(hash.clone()), vec!["administrator".to_owned(), String::new()], limits);
        let Found::User(found) = check(&user_key(user.name()), &encode_user(&user)) else { panic!("a user") };
        assert_eq!(
            (found.name(), found.password(), found.tags(), found.limits()),
            ("größe", Some(&hash), user.tags(), limits)
        );

        // Earlier releases end before the hash for RabbitMQ.
        let ours = PasswordHash::from_bytes(HashAlgorithm::Pbkdf2Sha256, &[&[0, 0, 3, 232][..], &[1; 48]].concat())
            .expect("a hash");
        let both = User::new("größe".to_owned(), Some(ours.clone()), user.tags().to_vec(), limits)
            .with_rabbitmq_hash(Some(hash.clone()));
        let whole = encode_user(&both);
        let Some(Found::User(found)) = decode(&user_key(both.name()), &whole) else { panic!("a user") };
        assert_eq!((found.password(), found.rabbitmq_hash(), found.tags()), (Some(&ours), Some(&hash), user.tags()));
        let before = encode_user(&both.again().with_rabbitmq_hash(None)).len();
        for end in (0..whole.len()).filter(|end| *end != before) {
            assert!(decode(&user_key(both.name()), &whole[..end]).is_none(), "{end} bytes");
        }
        let Some(Found::User(found)) = decode(&user_key(both.name()), &whole[..before]) else { panic!("a user") };
        assert_eq!((found.password(), found.rabbitmq_hash()), (Some(&ours), None));

        let keys = ScramCredential::of(ScramMechanism::Sha512, b"secret");
        let Found::Scram(name, found) = check(&scram_key(keys.mechanism(), "größe"), &encode_scram(&keys)) else {
            panic!("keys")
        };
        assert_eq!((name.as_str(), found), ("größe", keys));

        let metadata = VhostMetadata {
            description: "for orders".to_owned(),
            tags: vec!["production".to_owned()],
            default_queue_type: Some("quorum".to_owned()),
        };
        let Found::Vhost(name, found) = check(&vhost_key("a/b"), &encode_vhost(&metadata)) else {
            panic!("a virtual host")
        };
        assert_eq!((name.as_str(), found), ("a/b", metadata));

        let Found::Deletion(name) = check(&deletion_key("a/b"), &encode_deletion()) else { panic!("a deletion") };
        assert_eq!(name, "a/b");

        let some = Permissions::new("^a", "", ".*").expect("expressions");
        let Found::Permissions { vhost, user, permissions } =
            check(&permissions_key("/", "bob"), &encode_permissions(&some))
        else {
            panic!("permissions")
        };
        assert_eq!((vhost.as_str(), user.as_str(), permissions), ("/", "bob", some));

        let some = TopicPermission::new("^{username}", "x", "bob", "/").expect("expressions");
        let Found::Topic { vhost, user, exchange, permission } =
            check(&topic_key("/", "bob", "amq.topic"), &encode_topic(&some))
        else {
            panic!("a topic permission")
        };
        assert_eq!((vhost.as_str(), user.as_str(), exchange.as_str()), ("/", "bob", "amq.topic"));
        assert!(permission.write.matches(b"bob"));
        assert_eq!(permission, some);
    }

    #[test]
    fn an_entry_is_read_back_whole() {
        let acl = Acl {
            resource: AclResource::TransactionalId,
            name: "größe".to_owned(),
            pattern: AclPattern::Prefixed,
            principal: "User:bob".to_owned(),
            host: "::1".to_owned(),
            operation: AclOperation::TwoPhaseCommit,
            permission: AclPermission::Deny,
        };
        let key = acl_key(&acl);
        let Found::Acl(found) = check(&key, &encode_acl()) else { panic!("an entry") };
        assert_eq!(found, acl);
        for end in 2..key.len() {
            assert!(decode(&key[..end], &encode_acl()).is_none(), "{end} bytes");
        }
        assert!(decode(&[&key[..], b"x"].concat(), &encode_acl()).is_none());
    }
}
