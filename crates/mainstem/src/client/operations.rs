//! `mainstem drain`, `backup`, `reload`: orders to a running node (`docs/operations`).

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use types::ByteSize;

use super::Session;
use crate::progress::Bar;

pub const EXAMPLES_OF_BACKUP: &str = "Examples:
  mainstem backup --to /backups/monday
  mainstem restore --from /backups/monday --data /var/lib/mainstem";
pub const EXAMPLES_OF_RELOAD: &str = "Examples:
  mainstem reload";
pub const EXAMPLES_OF_DRAIN: &str = "Examples:
  mainstem drain
  MAINSTEM_OPERATOR_PASS=… mainstem drain --admin 10.0.0.5:8160 --user ops";

/// Between looks whether the broker is still there.
const LOOK: Duration = Duration::from_millis(50);
/// A broker that has not ended by then is not waited for any more.
const END_MAX: Duration = Duration::from_secs(3600);

/// Has a broker end, and waits until it has.
pub fn drain(session: &Session, no_wait: bool) -> anyhow::Result<()> {
    let (place, began) = (session.client.place().to_owned(), Instant::now());
    let answer = session.client.change("POST", "/v1/drain", None)?;
    if no_wait {
        return session.print(&answer, |_| format!("the broker at {place} drains\n"));
    }
    while session.client.is_there() {
        std::thread::sleep(LOOK);
        if began.elapsed() > END_MAX {
            bail!("the broker at {place} has not ended within an hour");
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    session.print(&json!({"ended": true, "seconds": seconds}), |_| {
        format!("the broker at {place} has ended after {seconds:.1} s\n")
    })
}

/// Has a broker make a backup, and waits until it is made.
pub fn backup(session: &Session, to: &Path) -> anyhow::Result<()> {
    let to = std::path::absolute(to).with_context(|| format!("--to {}", to.display()))?;
    let mut state = session.client.change("POST", "/v1/backup", Some(&json!({"to": to.display().to_string()})))?;
    let bar = Bar::new("backup", 0);
    while state["state"] == "running" {
        bar.set(state["bytes"].as_u64().unwrap_or(0), state["bytes_total"].as_u64().unwrap_or(0));
        std::thread::sleep(LOOK);
        state = session.client.get("/v1/backup")?;
    }
    bar.end();
    // Who asks seldom may see the next one.
    if state["to"].as_str().is_some_and(|found| Path::new(found) != to) {
        bail!(
            "somebody else has begun a backup since: the broker's log says what became of this one, and a finished one has a backup.toml"
        );
    }
    if state["state"] != "done" {
        bail!(
            "the backup to {} failed: {}",
            to.display(),
            state["reason"].as_str().unwrap_or("the broker does not say why")
        );
    }
    session.print(&state, |state| {
        let (bytes, seconds) = (state["bytes"].as_u64().unwrap_or(0), state["seconds"].as_f64().unwrap_or(0.0));
        format!("backup made in {}: {} in {seconds:.1} s\n", to.display(), ByteSize(bytes))
    })
}

/// Has a broker read its configuration file and certificates again.
pub fn reload(session: &Session) -> anyhow::Result<()> {
    session.change("POST", "/v1/reload", None, |came| {
        let list = |name: &str| came[name].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut lines: Vec<String> = list("changed")
            .iter()
            .map(|one| format!("changed: {} = {}", text(&one["setting"]), text(&one["value"])))
            .collect();
        lines.extend(
            list("overruled")
                .iter()
                .map(|name| format!("overruled by what was set while the broker ran: {}", text(name))),
        );
        lines.extend(list("restart").iter().map(|name| format!("waits for a restart: {}", text(name))));
        if came["certificates"] == Value::Bool(true) {
            lines.push("certificates: new connections have them as they are now".to_owned());
        }
        if lines.is_empty() {
            lines.push("nothing has changed".to_owned());
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    })
}
