//! What access control entries and quotas cost: the gate's loads on a broker that has neither, and on one where each request is asked for
//! and counted.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{CPU_ROUNDS, count_all, full_speed};
use crate::target::{Places, Target};

/// Growth that is allowed of instructions and of processor time.
const GROWTH_MAX: f64 = 1.05;
const COUNT_ROUNDS: usize = 3;
/// Entries about other topics and other users.
const ENTRIES_OF_OTHERS: usize = 500;
const AUTHORIZER: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";

/// A figure without and with them.
#[derive(Clone, Debug)]
pub struct Cost {
    pub what: String,
    pub without: f64,
    pub with: f64,
}

impl Cost {
    /// Is it within the bound?
    pub fn holds(&self) -> bool {
        self.with <= self.without * GROWTH_MAX
    }
}

/// Measures both, in turns: the median of instructions, because how records come together in batches differs from run to run, and the best
/// of processor time.
///
/// # Errors
/// The broker does not start, or valgrind is not there.
pub fn measure(places: &Places) -> Result<Vec<Cost>> {
    let mut counts: BTreeMap<String, [Vec<f64>; 2]> = BTreeMap::new();
    for _ in 0..COUNT_ROUNDS {
        for (side, guard) in [Guard::None, Guard::EntriesAndQuotas].into_iter().enumerate() {
            for (name, counted) in count_all(places, guard)? {
                eprintln!("  {name}: {:.0} {}", counted.per_record, ["without", "with entries and quotas"][side]);
                counts.entry(name).or_default()[side].push(counted.per_record);
            }
        }
    }
    let mut costs: Vec<Cost> = counts
        .into_iter()
        .map(|(name, sides)| {
            let [without, with] = sides.map(|mut found| {
                found.sort_by(f64::total_cmp);
                found[found.len() / 2]
            });
            Cost { what: format!("{name}: instructions per record"), without, with }
        })
        .collect();
    eprintln!("processor time per GB…");
    let (mut without, mut with) = (f64::MAX, f64::MAX);
    for _ in 0..CPU_ROUNDS {
        without = without.min(full_speed("mainstem", places, Guard::None)?.1);
        with = with.min(full_speed("mainstem", places, Guard::EntriesAndQuotas)?.1);
    }
    costs.push(Cost { what: "CPU-seconds per GB".to_owned(), without, with });
    Ok(costs)
}

/// What stands between a client and its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Nothing, as in the baseline.
    None,
    /// Entries let the client do what it does, and quotas that it never reaches are counted.
    EntriesAndQuotas,
}

impl Guard {
    /// Before the start.
    pub fn add_to(self, target: &mut Target) {
        if self == Self::EntriesAndQuotas {
            let settings = [format!("authorizer.class.name={AUTHORIZER}"), "super.users=User:nobody".to_owned()];
            target.start.extend(settings.into_iter().flat_map(|setting| ["--set".to_owned(), setting]));
        }
    }

    /// When the broker is ready; `places` knows the port of its administration.
    ///
    /// # Errors
    /// The broker refuses something.
    pub fn put_up(self, target: &Target, places: &Places) -> Result<()> {
        if self == Self::None {
            return Ok(());
        }
        let ready = target.ready.as_ref().context("a page that says when it is ready")?;
        let base = places.fill(ready, crate::workload::Durability::default()).replace("/health/ready", "/v1");
        for resource in [("Topic", "*"), ("Group", "*"), ("TransactionalId", "*"), ("Cluster", "kafka-cluster")] {
            let entry =
                json!({"principal": "User:ANONYMOUS", "operation": "All", "resource": resource.0, "name": resource.1});
            ask("POST", &base, "acls", &entry)?;
        }
        for number in 0..ENTRIES_OF_OTHERS {
            let pattern = if number % 2 == 0 { "Literal" } else { "Prefixed" };
            let entry = json!({"principal": format!("User:other-{number}"), "operation": "Read", "resource": "Topic", "pattern": pattern,
                "name": format!("other-{number}")});
            ask("POST", &base, "acls", &entry)?;
        }
        let values = json!({"producer_byte_rate": 1e15, "consumer_byte_rate": 1e15});
        ask("PUT", &base, "quotas", &json!({"entity": {"user": null, "client-id": null}, "values": values}))?;
        Ok(())
    }
}

fn ask(verb: &str, base: &str, what: &str, body: &Value) -> Result<()> {
    let url = format!("{base}/{what}");
    let config = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(10))).build();
    let agent = ureq::Agent::new_with_config(config);
    let request = if verb == "POST" { agent.post(&url) } else { agent.put(&url) };
    request
        .header("content-type", "application/json")
        .send(body.to_string())
        .with_context(|| format!("{verb} {url} {body}"))?;
    Ok(())
}
