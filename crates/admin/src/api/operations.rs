//! Orders to the node: end, read the configuration again, make a backup.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::answer::{Answer, Outcome, Refusal};
use super::call::Call;
use super::route::{Access, Route, Shape, Verb, change, get};
use super::schema::{Kind, Schema};
use crate::operations::Operations;

/// Between the answer to an order to end, and the end.
const ANSWER_FIRST: Duration = Duration::from_millis(50);

const DRAINING: Schema = Schema::new("Draining", &[("draining", Kind::Bool, "The node ends, as on SIGTERM.")]);

const CHANGED: Schema = Schema::new(
    "ChangedSetting",
    &[("setting", Kind::Text, "Its name."), ("value", Kind::Text, "In force from now on.")],
);

const RELOADED: Schema = Schema::new(
    "Reloaded",
    &[
        ("changed", Kind::List(&Kind::One(&CHANGED)), "What counts at once."),
        ("restart", Kind::List(&Kind::Text), "What waits for the next start."),
        ("overruled", Kind::List(&Kind::Text), "What was set while the broker ran goes before these."),
        ("certificates", Kind::Bool, "New connections have them as they are now."),
    ],
);

const BACKUP: Schema = Schema::new(
    "Backup",
    &[
        ("state", Kind::Text, "none, running, done or failed."),
        ("to", Kind::OrNull(&Kind::Text), "The folder."),
        ("bytes", Kind::OrNull(&Kind::Int), "Linked or copied so far."),
        ("bytes_total", Kind::OrNull(&Kind::Int), "Of so many, as far as that is known."),
        ("seconds", Kind::OrNull(&Kind::Number), "What it took."),
        ("reason", Kind::OrNull(&Kind::Text), "Why it has failed."),
    ],
);

const WISH: Schema =
    Schema::body("BackupWish", &["to"], &[("to", Kind::Text, "A new or empty folder of the broker's machine.")]);

pub(crate) const ROUTES: &[Route] = &[
    change(
        Verb::Post,
        "/drain",
        Access::Administrator,
        "End the node: what has begun is finished",
        Shape::One(&DRAINING),
        drain,
    ),
    change(
        Verb::Post,
        "/reload",
        Access::Administrator,
        "Read configuration and certificates again",
        Shape::One(&RELOADED),
        reload,
    ),
    get("/backup", Access::Administrator, "How far the last backup is", &BACKUP, progress),
    change(Verb::Post, "/backup", Access::Administrator, "Begin a backup", Shape::One(&BACKUP), backup).takes(&WISH),
];

fn node<'a>(call: &'a Call<'_>) -> Result<&'a Arc<dyn Operations>, Refusal> {
    call.api.operator.get().ok_or_else(|| Answer::unavailable("recovering", "the node is not ready for orders"))
}

fn drain(call: &Call<'_>) -> Outcome {
    let node = Arc::clone(node(call)?);
    // Who asks is to be answered before there is nobody left to do so.
    tokio::runtime::Handle::current().spawn(async move {
        tokio::time::sleep(ANSWER_FIRST).await;
        node.drain();
    });
    Ok(Answer::of(json!({"draining": true})))
}

fn reload(call: &Call<'_>) -> Outcome {
    node(call)?.reload().map(Answer::of).map_err(Answer::bad_request)
}

fn progress(call: &Call<'_>) -> Outcome {
    Ok(Answer::of(node(call)?.backup_progress()))
}

fn backup(call: &Call<'_>) -> Outcome {
    let body = call.object()?;
    body.only(&["to"])?;
    let to = body.needed("to")?;
    node(call)?.backup(Path::new(to)).map_err(|reason| Answer::invalid("to", reason))?;
    progress(call)
}
