//! Batches of a request that a network thread has no time to look into: a thread for unpacking does, one batch at a time, so that others
//! have their turns in between (`Broker::unpack`). The request's connection is not read until it has.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use broker::{Broker, Unpack};
use bytes::Bytes;

use super::check::{Checked, Effort, Target, check};
use super::{Place, Refusal};

/// A batch that waits to be looked into.
pub(super) struct Deferred {
    pub place: Place,
    pub topic: Target,
    pub index: i32,
    pub bytes: Bytes,
}

/// What came of it.
pub(super) struct Unpacked {
    pub place: Place,
    pub topic: Target,
    pub outcome: Result<Checked, Refusal>,
}

/// Looks into batches, in their order.
pub(super) fn work(batches: Vec<Deferred>, version: i16, abandoned: Arc<AtomicBool>) -> Unpack {
    let mut unpacked = Vec::with_capacity(batches.len());
    let mut left = batches.into_iter();
    Box::new(move |broker: &Arc<Broker>| {
        if let Some(Deferred { place, topic, index, bytes }) =
            left.next().filter(|_| !abandoned.load(Ordering::Relaxed))
        {
            let mut effort = Effort::elsewhere(broker.unpacking().bytes_max());
            let checked = check(&topic, index, &bytes, version, &mut effort).transpose();
            unpacked.extend(checked.map(|outcome| Unpacked { place, topic, outcome }));
            return None;
        }
        Some(Box::new(std::mem::take(&mut unpacked)) as Box<dyn Any + Send>)
    })
}
