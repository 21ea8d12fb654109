//! What is durable of quotas: keyed state in journal 0.
//!
//! ```text
//! key    "r" "c" part (user), part (client id)     value  u8 version (1), u32 count, each u16 length, key, u64 bits of a double
//!        "r" "i" part (address)
//! part   u8 0 (none), 1 (the default), or 2 and u16 length, name
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::entity::{QuotaEntity, QuotaKey, QuotaName, QuotaValues};

/// First byte of all keys.
pub(crate) const QUOTAS_KEY: u8 = b'r';
const CLIENT: u8 = b'c';
const IP: u8 = b'i';
const VERSION: u8 = 1;

fn put_part(out: &mut BytesMut, part: Option<&QuotaName>) {
    match part {
        None => out.put_u8(0),
        Some(QuotaName::Default) => out.put_u8(1),
        Some(QuotaName::Named(name)) => {
            out.put_u8(2);
            out.put_u16(u16::try_from(name.len()).expect("lengths were checked"));
            out.put_slice(name.as_bytes());
        }
    }
}

fn text(bytes: &mut &[u8]) -> Option<String> {
    let length = usize::from(bytes.try_get_u16().ok()?);
    let (head, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    String::from_utf8(head.to_vec()).ok()
}

fn part(bytes: &mut &[u8]) -> Option<Option<QuotaName>> {
    Some(match bytes.try_get_u8().ok()? {
        0 => None,
        1 => Some(QuotaName::Default),
        2 => Some(QuotaName::Named(text(bytes)?)),
        _ => return None,
    })
}

pub(super) fn key(entity: &QuotaEntity) -> Bytes {
    let mut key = BytesMut::new();
    key.put_u8(QUOTAS_KEY);
    match entity {
        QuotaEntity::Client { user, client_id } => {
            key.put_u8(CLIENT);
            put_part(&mut key, user.as_ref());
            put_part(&mut key, client_id.as_ref());
        }
        QuotaEntity::Ip(name) => {
            key.put_u8(IP);
            put_part(&mut key, Some(name));
        }
    }
    key.freeze()
}

pub(super) fn encode(values: &QuotaValues) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(VERSION);
    out.put_u32(values.len() as u32);
    for (key, value) in values {
        out.put_u16(key.name().len() as u16);
        out.put_slice(key.name().as_bytes());
        out.put_u64(value.to_bits());
    }
    out.freeze()
}

/// Reads a record; `None`: it is none of this or of another version.
pub(super) fn decode(key: &[u8], value: &[u8]) -> Option<(QuotaEntity, QuotaValues)> {
    let (mut key, mut value) = (key, value);
    (key.try_get_u8().ok()? == QUOTAS_KEY).then_some(())?;
    let entity = match key.try_get_u8().ok()? {
        CLIENT => QuotaEntity::Client { user: part(&mut key)?, client_id: part(&mut key)? },
        IP => QuotaEntity::Ip(part(&mut key)??),
        _ => return None,
    };
    (key.is_empty() && value.try_get_u8().ok()? == VERSION).then_some(())?;
    let mut values = QuotaValues::new();
    for _ in 0..value.try_get_u32().ok()? {
        let key = QuotaKey::of_name(&text(&mut value)?)?;
        values.insert(key, f64::from_bits(value.try_get_u64().ok()?));
    }
    value.is_empty().then_some((entity, values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_nothing_shorter() {
        let entities: [&[(&str, Option<&str>)]; 5] = [
            &[("user", Some("größe"))],
            &[("user", None), ("client-id", Some("c"))],
            &[("client-id", None)],
            &[("ip", Some("::1"))],
            &[("ip", None)],
        ];
        let values: QuotaValues = [(QuotaKey::ProducerByteRate, 1e7), (QuotaKey::RequestPercentage, 0.25)].into();
        for parts in entities {
            let entity = QuotaEntity::of(parts.iter().copied()).expect("an entity");
            let (key, value) = (key(&entity), encode(&values));
            assert_eq!(decode(&key, &value), Some((entity, values.clone())));
            for end in 0..value.len() {
                assert_eq!(decode(&key, &value[..end]), None, "{end} bytes");
            }
            for end in 0..key.len() {
                assert_ne!(
                    decode(&key[..end], &value).map(|(entity, _)| super::key(&entity)),
                    Some(key.clone()),
                    "{end} bytes"
                );
            }
        }
    }
}
