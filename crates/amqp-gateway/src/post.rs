//! Messages of those who have no connection: administration publishes one, and looks at one that it has taken from a queue. Not on a
//! shard's thread: it waits until the message is durable.

use std::sync::Arc;

use amqp_wire::EncodedProperties;
use broker::{Admission, Broker, Delivery, LimitKind, MessageTraits, Vhost};
use bytes::Bytes;
use delivery::Overflow;
use record::BatchWriter;
use routing::Scratch;

use crate::arguments::MessageHeaders;
use crate::content::check_size;
use crate::delayed::delay_of;
use crate::handlers::{check_exchange, expiration, keys};
use crate::message::{Message, Stored, without_bcc};

/// A message, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Postcard {
    /// Name of the exchange; empty: the default one.
    pub exchange: Vec<u8>,
    /// The routing key.
    pub routing_key: Vec<u8>,
    /// Flags and values, as in a content header.
    pub properties: Bytes,
    /// The body.
    pub body: Bytes,
}

/// Publishes a message and waits until it is durable; true: at least one queue has it.
///
/// # Errors
/// What AMQP would answer: a body that is too large, no such exchange, one that nobody may publish to, properties that are wrong; a queue
/// that is full has refused it; the journal did not take it.
pub fn post(broker: &Arc<Broker>, vhost: &Vhost, card: &Postcard) -> Result<bool, String> {
    let limits = broker.limits();
    check_size(card.body.len() as u64, limits.message_bytes_max()).map_err(|failure| {
        limits.note_refusal(LimitKind::MessageBytes);
        failure.text
    })?;
    let properties = EncodedProperties::check(&card.properties).map_err(|error| error.to_string())?;
    let body: &[&[u8]] = &[&card.body];
    let traits =
        MessageTraits { priority: properties.priority(), ttl: expiration(properties).map_err(|failure| failure.text)? };
    let message = Message { exchange: &card.exchange, routing_key: &card.routing_key, properties, traits, body };
    let mut found = Vec::new();
    {
        let table = vhost.exchanges().read();
        check_exchange(&table, vhost.name(), message.exchange).map_err(|failure| failure.text)?;
        let keys = keys(&message).map_err(|failure| failure.text)?;
        if let Some(exchange) = table.exchange(message.exchange) {
            let (headers, mut scratch) = (MessageHeaders(properties), Scratch::default());
            let delayed = table.has_delayed() && delay_of(properties).is_some();
            if delayed
                && !exchange
                    .route_delayed(&keys, &headers, &mut scratch, &mut found)
                    .map_err(|refused| refused.to_string())?
                    .is_empty()
            {
                return Err("a message that is to be delayed is published over AMQP".to_owned());
            }
            found.clear();
            exchange.route(&keys, &headers, &mut scratch, &mut found).map_err(|refused| refused.to_string())?;
        }
    }
    let mut targets: Vec<_> = found.into_iter().filter_map(|id| broker.vhosts().queue(id)).collect();
    if targets.is_empty() {
        return Ok(false);
    }
    let stripped = without_bcc(properties);
    let message = Message {
        properties: stripped.as_ref().map_or(properties, |bytes| EncodedProperties::trusted(bytes)),
        ..message
    };
    let mut writer = BatchWriter::with_capacity(message.record_bytes());
    message.write(broker.now_ms(), &mut writer);
    let batch = writer.finish();
    let wanted = targets.len();
    // As long as it is not in their logs.
    let mut admissions = Vec::new();
    targets.retain(|queue| {
        let admission = queue.topic().takes_keyless().then(|| broker.admit(queue, 1, card.body.len()).ok()).flatten();
        let admitted = admission.is_some();
        admissions.extend(admission.flatten());
        if !admitted && queue.understood().overflow == Overflow::RejectPublishDeadLetter {
            broker.bury_refused(queue, batch.clone());
        }
        admitted
    });
    if targets.len() < wanted {
        return Err(
            "a queue refuses the message: it is full, or its topic is compacted and takes no record without a key"
                .to_owned(),
        );
    }
    let kept = broker.deposit(&targets, &batch);
    admissions.into_iter().for_each(Admission::end);
    kept.map_err(|error| error.to_string())?;
    Ok(true)
}

/// Takes a message apart that was taken from `queue`.
pub fn open(delivery: &Delivery, queue: &[u8]) -> Postcard {
    let stored = Stored::of(&delivery.record, queue, delivery.returned);
    Postcard {
        exchange: stored.exchange.as_bytes().to_vec(),
        routing_key: stored.routing_key.as_bytes().to_vec(),
        properties: Bytes::copy_from_slice(stored.properties().as_bytes()),
        body: stored.body.clone(),
    }
}
