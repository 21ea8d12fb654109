//! Answers as text. They are made on threads that may wait, item by item where they are lists, so that an answer takes little more memory than its
//! text; and they are in an account from then on until their connections have taken them, piece by piece.
//!
//! Nobody waits on a thread: an answer for which there is no room is only measured, and made anew once there is as much. One that is longer than all
//! there is for answers is made while no other is there. What a change is answered with has room in any case, for it cannot be done twice.

mod account;
mod lines;

use std::collections::BTreeMap;
use std::collections::vec_deque::{IntoIter, VecDeque};
use std::convert::Infallible;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use serde_json::Value;
use tokio::time::Instant;

use account::Account;
pub(crate) use lines::{Lines, key_of};

/// An answer that is no longer is small: it counts, and waits for nothing.
const SMALL_MAX: usize = 16 << 10;
/// Long ones are in pieces of so many bytes.
const PIECE: usize = 64 << 10;
/// Answers take this part of the memory budget, …
const SHARE: usize = 16;
/// … and measurements as text that one.
const PAGES_SHARE: usize = 64;
/// So long a request waits for room.
const PATIENCE: Duration = Duration::from_secs(10);

static ANSWERS: Account = Account::new(64 << 20);
static SMALL: Account = Account::new(usize::MAX);
static PAGES: Account = Account::new(16 << 20);

/// Bounds the memory of answers by the memory budget of the node, in bytes.
pub(crate) fn set_memory_budget(budget: usize) {
    ANSWERS.resize(budget / SHARE);
    PAGES.resize(budget / PAGES_SHARE);
}

/// Bytes of answers that are made, or not taken yet.
pub fn answer_bytes() -> usize {
    ANSWERS.used() + SMALL.used() + PAGES.used()
}

/// What a request does, as far as its answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It only looks: its answer can be made anew.
    Looks,
    /// It changes something, and says little.
    Changes,
    /// It takes something away that is in the answer: it begins only while there is room.
    Takes,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmade {
    /// Others have to take theirs first.
    Busy,
    /// A defect of ours.
    Defect,
}

/// How a text grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    /// While there is room.
    IfRoom,
    /// In any case.
    Anyway,
}

/// The text of an answer while it is made.
#[derive(Debug)]
pub(crate) struct Text {
    account: &'static Account,
    growth: Growth,
    full: VecDeque<Vec<u8>>,
    last: Vec<u8>,
    length: usize,
    /// Bytes of it and of what it is made of, now and at most.
    held: usize,
    peak: usize,
    /// What it has of the account.
    taken: usize,
    /// There was no room for it: it is only measured.
    short: bool,
}

impl Default for Text {
    fn default() -> Self {
        Self::of(&ANSWERS, Growth::IfRoom, 0)
    }
}

impl Text {
    fn of(account: &'static Account, growth: Growth, taken: usize) -> Self {
        Self {
            account,
            growth,
            full: VecDeque::new(),
            last: Vec::new(),
            length: 0,
            held: 0,
            peak: 0,
            taken,
            short: false,
        }
    }

    /// One that grows in any case.
    pub fn anyway() -> Self {
        Self::of(&ANSWERS, Growth::Anyway, 0)
    }

    /// Of one value, in any case.
    pub fn of_value(value: &Value) -> Self {
        let mut text = Self::anyway();
        text.value(value);
        text
    }

    /// Was there no room for it?
    pub fn is_short(&self) -> bool {
        self.short
    }

    /// Should it end here, if it can?
    pub fn is_tight(&self) -> bool {
        self.taken > 0 && self.account.is_empty()
    }

    /// Room for it and for what it is made of.
    fn take(&mut self, bytes: usize) {
        self.held += bytes;
        self.peak = self.peak.max(self.held);
        if self.short || self.held <= self.taken.max(SMALL_MAX) {
            return;
        }
        let more = (self.held - self.taken).next_multiple_of(PIECE);
        match self.growth {
            Growth::Anyway => self.account.take_anyway(more),
            Growth::IfRoom if self.account.try_take(more, self.taken) => {}
            Growth::IfRoom => {
                self.short = true;
                (self.full, self.last) = (VecDeque::new(), Vec::new());
                self.account.give(std::mem::take(&mut self.taken));
                return;
            }
        }
        self.taken += more;
    }

    /// What it was made of is gone.
    fn give(&mut self, bytes: usize) {
        self.held -= bytes;
    }

    /// Bytes as they are.
    pub fn raw(&mut self, mut bytes: &[u8]) {
        self.take(bytes.len());
        self.length += bytes.len();
        while !self.short && !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PIECE - self.last.len()));
            self.last.extend_from_slice(now);
            bytes = later;
            if self.last.len() == PIECE {
                let mut full = std::mem::replace(&mut self.last, Vec::with_capacity(PIECE));
                full.shrink_to_fit();
                self.full.push_back(full);
            }
        }
    }

    pub fn value(&mut self, value: &Value) {
        // What is written to never fails, and keys are texts.
        let _ = serde_json::to_writer(&mut *self, value);
    }

    /// A list whose items come one by one: what `each` puts.
    pub fn list(&mut self, each: impl FnOnce(&mut dyn FnMut(&Value))) {
        let mut items = self.begin_list();
        each(&mut |item| items.put(item));
        items.end();
    }

    pub fn begin_list(&mut self) -> Items<'_> {
        self.raw(b"[");
        Items { text: self, any: false }
    }

    /// An object, in the order of names, as all objects are.
    pub fn object(&mut self, parts: BTreeMap<&str, Part<'_>>) {
        for (place, (name, part)) in parts.into_iter().enumerate() {
            self.raw(if place == 0 { b"{" } else { b"," });
            self.value(&name.into());
            self.raw(b":");
            match part {
                Part::Value(value) => self.value(&value),
                Part::List(each) => self.list(each),
                Part::Written(write) => write(self),
            }
        }
        self.raw(b"}");
    }

    /// As it is sent: each piece is in the account until it has been.
    pub fn into_body(mut self) -> Body {
        let account = if self.taken == 0 { &SMALL } else { self.account };
        let (mut full, mut last) = (std::mem::take(&mut self.full), std::mem::take(&mut self.last));
        last.shrink_to_fit();
        full.push_back(last);
        let left = self.length as u64;
        let taken = std::mem::take(&mut self.taken);
        account.take_anyway(self.length.saturating_sub(taken));
        account.give(taken.saturating_sub(self.length));
        let pieces: VecDeque<Bytes> =
            full.into_iter().map(|bytes| Bytes::from_owner(Piece { bytes, account })).collect();
        Body::new(Pieces { pieces: pieces.into_iter(), left })
    }

    #[cfg(test)]
    pub fn to_vec(&self) -> Vec<u8> {
        self.full.iter().chain([&self.last]).flatten().copied().collect()
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        self.account.give(self.taken);
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.raw(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A list that is being written.
pub(crate) struct Items<'t> {
    text: &'t mut Text,
    any: bool,
}

impl Items<'_> {
    pub fn put(&mut self, item: &Value) {
        if std::mem::replace(&mut self.any, true) {
            self.text.raw(b",");
        }
        self.text.value(item);
    }

    /// Should it end here, if it can?
    pub fn is_tight(&self) -> bool {
        self.text.is_tight()
    }

    pub fn end(self) {
        self.text.raw(b"]");
    }
}

/// Puts the items of a list, one by one.
type Each<'a> = Box<dyn FnOnce(&mut dyn FnMut(&Value)) + 'a>;

/// A part of an object.
pub(crate) enum Part<'a> {
    Value(Value),
    List(Each<'a>),
    Written(Box<dyn FnOnce(&mut Text) + 'a>),
}

impl<'a> Part<'a> {
    /// A list of these.
    pub fn items(items: impl Iterator<Item = Value> + 'a) -> Self {
        Self::List(Box::new(move |put| items.for_each(|item| put(&item))))
    }
}

/// Some bytes of an answer, in an account until they are dropped.
struct Piece {
    bytes: Vec<u8>,
    account: &'static Account,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.account.give(self.bytes.len());
    }
}

/// The body of an answer.
struct Pieces {
    pieces: IntoIter<Bytes>,
    left: u64,
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.pieces.next().filter(|piece| !piece.is_empty());
        self.left -= next.as_ref().map_or(0, Bytes::len) as u64;
        Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// A page of measurements, if there is room for it beside those that are not taken yet; a first one there is always room for.
pub(crate) fn page(text: String) -> Option<Body> {
    if !PAGES.try_take(text.len(), 0) {
        if PAGES.used() > 0 {
            return None;
        }
        PAGES.take_anyway(text.len());
    }
    Some(Body::from(Bytes::from_owner(Piece { bytes: text.into_bytes(), account: &PAGES })))
}

/// Has an answer made on a thread that may wait: `work` makes it, with a text for it; `text_of` tells its text once it is there.
///
/// # Errors
/// See [`Unmade`].
pub(crate) async fn make<T: Send + 'static>(
    doing: Doing,
    work: impl Fn(Text) -> T + Send + Sync + 'static,
    text_of: fn(&T) -> Option<&Text>,
) -> Result<T, Unmade> {
    make_in(&ANSWERS, (doing, PATIENCE), work, text_of).await
}

async fn make_in<T: Send + 'static>(
    account: &'static Account,
    (doing, patience): (Doing, Duration),
    work: impl Fn(Text) -> T + Send + Sync + 'static,
    text_of: fn(&T) -> Option<&Text>,
) -> Result<T, Unmade> {
    let (work, until) = (Arc::new(work), Instant::now() + patience);
    let growth = if doing == Doing::Looks { Growth::IfRoom } else { Growth::Anyway };
    let begun = if doing == Doing::Takes { account.take(PIECE, until).await.ok_or(Unmade::Busy)? } else { 0 };
    let mut text = Text::of(account, growth, begun);
    loop {
        let task = Arc::clone(&work);
        let made = tokio::task::spawn_blocking(move || task(text)).await.map_err(|_| Unmade::Defect)?;
        let Some(peak) = text_of(&made).filter(|text| text.is_short()).map(|text| text.peak) else { return Ok(made) };
        drop(made);
        // It may have grown by then.
        let bytes = (peak + peak / 16).next_multiple_of(PIECE);
        let taken = account.take(bytes, until).await.ok_or(Unmade::Busy)?;
        // With all that there is it is alone.
        let growth = if taken < bytes { Growth::Anyway } else { Growth::IfRoom };
        text = Text::of(account, growth, taken);
    }
}

#[cfg(test)]
mod tests;
