//! The journals: what they have on the disk, in memory and in the archive.

use std::sync::Arc;

use broker::{Journal, JournalStatus, SegmentLook};
use serde_json::{Value, json};

use super::answer::{Answer, Outcome};
use super::call::Call;
use super::listing::list;
use super::route::{self, Access, Route, get};
use super::schema::{Kind, Schema};

const TAIL: Schema = Schema::new(
    "Tail",
    &[("allocated_bytes", Kind::Int, "Memory of the tail cache."), ("used_bytes", Kind::Int, "Of that, held.")],
);

const ARCHIVE: Schema = Schema::new(
    "Archive",
    &[
        ("objects", Kind::Int, "Objects written since the start."),
        ("deletes", Kind::Int, "Objects deleted since the start."),
        ("written_bytes", Kind::Int, "Bytes written since the start."),
        ("read_bytes", Kind::Int, "Bytes read since the start."),
    ],
);

pub(crate) const JOURNAL: Schema = Schema::new(
    "Journal",
    &[
        ("name", Kind::Text, "journal- and its number."),
        ("journal", Kind::Int, "Its number in the node."),
        (
            "status",
            Kind::Text,
            "running, disk_full (no data is taken), hindered (no writes at the moment) or stopped (reads only).",
        ),
        ("reason", Kind::OrNull(&Kind::Text), "Why it has stopped."),
        ("term", Kind::Int, "Raised with each start."),
        ("durable_index", Kind::Int, "Chunks up to here are on stable storage."),
        ("file_bytes", Kind::Int, "What its files take on the disk."),
        ("window_bytes", Kind::OrNull(&Kind::Int), "What they may take; what is older goes into the archive."),
        ("segment_count", Kind::Int, "Segment files."),
        ("segment_bytes", Kind::Int, "Length of a segment file."),
        ("live_bytes", Kind::Int, "Live bytes in sealed segments, as of the keeper's last look."),
        ("queued_bytes", Kind::Int, "Appends that wait to be written."),
        ("waits_for_archive", Kind::Bool, "Appends wait for the archive."),
        ("tail", Kind::One(&TAIL), "The newest chunks, in memory."),
        ("state_bytes", Kind::Int, "Memory of keyed state that is in no checkpoint yet."),
        ("archive", Kind::One(&ARCHIVE), "What went to the archive and came from it."),
    ],
);

const SEGMENT: Schema = Schema::new(
    "Segment",
    &[
        ("sequence", Kind::Int, "Rises with every segment."),
        ("file", Kind::Text, "Its file, in the journal's folder."),
        ("sealed", Kind::Bool, "Nothing is written to it any more."),
        ("bytes", Kind::Int, "Length of its file."),
    ],
);

const JOURNAL_FULL: Schema = Schema::more(
    "JournalFull",
    &JOURNAL,
    &[("segments", Kind::List(&Kind::One(&SEGMENT)), "Its segments, the oldest first.")],
);

pub(crate) const ROUTES: &[Route] = &[
    route::list("/journals", Access::Monitoring, "The journals", &JOURNAL, all),
    get("/journals/{journal}", Access::Monitoring, "A journal and its segments", &JOURNAL_FULL, show),
];

/// A journal without its segments.
pub(crate) fn described(journal: &Journal) -> Value {
    let (status, reason) = match journal.status() {
        JournalStatus::Running => ("running", None),
        JournalStatus::DiskFull => ("disk_full", None),
        JournalStatus::Hindered { reason } => ("hindered", Some(reason)),
        JournalStatus::Stopped { reason } => ("stopped", Some(reason)),
    };
    let ((allocated, used), (segments, live)) = (journal.tail_memory(), journal.segment_usage());
    let metrics = journal.metrics();
    json!({
        "name": format!("journal-{}", journal.number()),
        "journal": journal.number(),
        "status": status,
        "reason": reason,
        "term": journal.term().0,
        "durable_index": journal.durable_index().0,
        "file_bytes": journal.file_bytes(),
        "window_bytes": journal.config().window_bytes,
        "segment_count": segments,
        "segment_bytes": journal.config().segment_bytes,
        "live_bytes": live,
        "queued_bytes": journal.queued_bytes(),
        "waits_for_archive": journal.waits_for_archive(),
        "tail": {"allocated_bytes": allocated, "used_bytes": used},
        "state_bytes": journal.state_memory(),
        "archive": {
            "objects": metrics.archive_objects.get(),
            "deletes": metrics.archive_deletes.get(),
            "written_bytes": metrics.archive_written_bytes.get(),
            "read_bytes": metrics.archive_read_bytes.get(),
        },
    })
}

fn all(call: &Call<'_>) -> Outcome {
    let journals = call
        .broker()
        .journals()
        .iter()
        .map(|journal| (format!("journal-{:03}", journal.number()), Arc::clone(journal)));
    list(call, journals, |journal| Some(described(journal)))
}

fn show(call: &Call<'_>) -> Outcome {
    let wanted = call.path("journal");
    let number = wanted.trim_start_matches("journal-").parse::<usize>().ok();
    let journal = number.and_then(|number| call.broker().journals().get(number));
    let journal = journal.ok_or_else(|| Answer::not_found(format!("there is no journal {wanted:?}")))?;
    let mut found = described(journal);
    let one = |one: &SegmentLook| json!({"sequence": one.sequence, "file": one.file, "sealed": one.sealed, "bytes": one.bytes});
    found["segments"] = journal.segments_listed().iter().map(one).collect();
    Ok(Answer::of(found))
}
