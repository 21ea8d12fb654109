//! Words of a target's file for its driver, and what a protocol refuses.

use anyhow::{Context, Result, bail, ensure};

use super::Job;
use crate::nearest;
use crate::workload::ExchangeType;

/// Refuses options that are not among `known`. A known name that ends in a dot begins names of any ending.
pub fn check_options(job: &Job, known: &[&str]) -> Result<()> {
    for name in job.options.keys() {
        let is_known = |known: &&str| name == known || (known.ends_with('.') && name.starts_with(*known));
        if !known.iter().any(is_known) {
            bail!(
                "unknown option `{name}` of {}; did you mean `{}`?",
                job.driver,
                nearest(known.iter().copied(), name)
            );
        }
    }
    Ok(())
}

/// The option's value when it is one of `allowed`, the first of which is the default.
pub fn choice<'a>(job: &'a Job, name: &str, allowed: &[&'a str]) -> Result<&'a str> {
    let Some(value) = job.options.get(name) else { return Ok(allowed[0]) };
    let found = allowed.iter().find(|allowed| *allowed == value);
    found.copied().with_context(|| format!("option `{name}` is `{value}`: one of {}", allowed.join(", ")))
}

/// The option as a number; `otherwise` where it is not given.
pub fn number<T: std::str::FromStr>(job: &Job, name: &str, otherwise: T) -> Result<T> {
    let Some(text) = job.options.get(name) else { return Ok(otherwise) };
    text.parse().ok().with_context(|| format!("option `{name}` is `{text}`: a number"))
}

/// The content of the file that the option names, if it is given.
pub fn file(job: &Job, name: &str) -> Result<Option<String>> {
    let Some(path) = job.options.get(name) else { return Ok(None) };
    std::fs::read_to_string(path).map(Some).with_context(|| format!("option `{name}`: {path}"))
}

/// Refuses what only AMQP has.
pub fn check_no_exchanges(job: &Job) -> Result<()> {
    ensure!(job.workload.exchange_type == ExchangeType::Default, "exchangeType: this protocol has no exchanges");
    ensure!(job.workload.bound_queues == 0, "boundQueues: this protocol has no exchanges to bind queues to");
    Ok(())
}

/// A library's name and version, as this build is locked to it.
pub fn name_and_version(library: &str) -> String {
    let entry = format!("name = \"{library}\"\nversion = \"");
    let locked = include_str!("../../../Cargo.lock").split_once(&entry).and_then(|(_, rest)| rest.split_once('"'));
    locked.map_or(library.to_owned(), |(version, _)| format!("{library} {version}"))
}

#[cfg(test)]
mod tests;
