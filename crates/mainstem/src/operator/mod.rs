//! Commands that tell a running broker what to do, over its administration port (`docs/operations`).

mod client;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use types::ByteSize;

use crate::cli::NodeArguments;
use crate::progress::Bar;
use client::Node;

/// Between looks whether the broker is still there.
const LOOK: Duration = Duration::from_millis(50);

/// Has a broker end, and waits until it has.
pub fn drain(arguments: &NodeArguments, no_wait: bool) -> anyhow::Result<()> {
    let node = Node::of(arguments)?;
    let began = std::time::Instant::now();
    node.post("/v1/drain", &Value::Null)?;
    if no_wait {
        println!("the broker at {} drains", arguments.admin);
        return Ok(());
    }
    while node.is_there() {
        std::thread::sleep(LOOK);
        if began.elapsed() > Duration::from_secs(3600) {
            bail!("the broker at {} has not ended within an hour", arguments.admin);
        }
    }
    println!("the broker at {} has ended after {:.1} s", arguments.admin, began.elapsed().as_secs_f64());
    Ok(())
}

/// Has a broker make a backup, and waits until it is made.
pub fn backup(arguments: &NodeArguments, to: &Path) -> anyhow::Result<()> {
    let node = Node::of(arguments)?;
    let to = std::path::absolute(to).with_context(|| format!("--to {}", to.display()))?;
    node.post("/v1/backup", &json!({"to": to.display().to_string()}))?;
    let bar = Bar::new("backup", 0);
    loop {
        let state = node.get("/v1/backup")?;
        let number = |name: &str| state[name].as_u64().unwrap_or(0);
        match state["state"].as_str().unwrap_or_default() {
            "running" => bar.set(number("bytes"), number("bytes_total")),
            "done" => {
                bar.end();
                let seconds = state["seconds"].as_f64().unwrap_or(0.0);
                println!("backup made in {}: {} in {seconds:.1} s", to.display(), ByteSize(number("bytes")));
                return Ok(());
            }
            _ => {
                bar.end();
                bail!("the backup to {} failed: {}", to.display(), state["reason"].as_str().unwrap_or("the broker does not say why"));
            }
        }
        std::thread::sleep(LOOK);
    }
}

/// Has a broker read its configuration file and certificates again.
pub fn reload(arguments: &NodeArguments) -> anyhow::Result<()> {
    let came = Node::of(arguments)?.post("/v1/reload", &Value::Null)?;
    let list = |name: &str| came[name].as_array().cloned().unwrap_or_default();
    for change in list("changed") {
        println!("changed: {} = {}", change["setting"].as_str().unwrap_or_default(), change["value"].as_str().unwrap_or_default());
    }
    for name in list("restart") {
        println!("waits for a restart: {}", name.as_str().unwrap_or_default());
    }
    if came["certificates"] == Value::Bool(true) {
        println!("certificates: new connections have them as they are now");
    }
    Ok(())
}
