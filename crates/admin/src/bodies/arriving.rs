//! Bodies while they come: one that does not go on gives its room to those who wait for it.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use tokio::time::{Instant, timeout, timeout_at};

use super::Unread;
use super::room::Share;

/// While others wait for its room, so many bytes of a body have to come …
const PACE_BYTES: usize = 32 << 10;
/// … in this time.
const PACE_SPAN: Duration = Duration::from_secs(2);

/// How long a body may take.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// To wait for room.
    pub waits: Duration,
    /// To come, beside that.
    pub comes: Duration,
    /// While others wait for its room it comes at a pace at which this is enough for all of it.
    pub paced: Duration,
}

impl Times {
    /// How much of a body of so many bytes has to come in [`PACE_SPAN`] while others wait.
    fn pace(self, most: usize) -> usize {
        let part = PACE_SPAN.as_secs_f64() / self.paced.as_secs_f64();
        PACE_BYTES.max((most as f64 * part) as usize)
    }
}

/// Gathers a body of at most `most` bytes.
///
/// # Errors
/// It is longer, or too slow, or there was no room for it.
pub(super) async fn gather<'a>(
    mut body: Body,
    most: usize,
    times: Times,
    mut share: Share<'a>,
) -> Result<(Vec<u8>, Share<'a>), Unread> {
    let began = Instant::now();
    // A time that nobody lives to see is none.
    let mut until = began.checked_add(times.comes).unwrap_or_else(|| began + Duration::from_secs(86_400));
    let (mut bytes, mut span, pace) = (Vec::new(), (began + PACE_SPAN, 0), times.pace(most));
    loop {
        let next = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        let frame = match timeout_at(span.0.min(until), next).await {
            Ok(Some(frame)) => Some(frame.map_err(|_| Unread::TooLarge)?),
            Ok(None) => {
                bytes.shrink_to_fit();
                share.come(bytes.len());
                return Ok((bytes, share));
            }
            Err(_) => None,
        };
        if let Some(part) = frame.and_then(|frame| frame.into_data().ok()) {
            let length = bytes.len() + part.len();
            if length > most {
                return Err(Unread::TooLarge);
            }
            let waits = Instant::now();
            timeout(times.waits, share.take(length, most)).await.map_err(|_| Unread::Busy)?;
            // Nobody can be slow while he is kept waiting.
            let waited = waits.elapsed();
            (span.0, until) = (span.0 + waited, until + waited);
            if length > bytes.capacity() {
                // One that has room has it for all that may come: it is not copied as it grows.
                let all = if share.has_room() { most } else { length.next_power_of_two().min(most) };
                bytes.reserve_exact(all - bytes.len());
            }
            bytes.extend_from_slice(&part);
            span.1 += part.len();
        }
        let now = Instant::now();
        if now >= until {
            return Err(Unread::TooSlow);
        }
        if now >= span.0 {
            if span.1 < pace && share.is_in_the_way() {
                return Err(Unread::TooSlow);
            }
            span = (now + PACE_SPAN, 0);
        }
    }
}
