//! What the generator itself can do: the same producers, and where the null broker hands messages on also the same consumers, against a
//! broker that answers and keeps nothing.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::clock::Clock;
use crate::drivers::Job;
use crate::null;
use crate::worker::{Local, Share, Speed, Worker};
use crate::workload::{ExchangeType, Workload};

const WARM_UP: Duration = Duration::from_millis(800);
const MEASURE: Duration = Duration::from_millis(1500);

/// What of a workload the ceiling depends on.
pub fn key(driver: &str, workload: &Workload) -> String {
    format!(
        "{driver}{}: {} bytes, {} topics, {} partitions, {} producers, {} clients, {} threads, batch {}, linger {}, {:?} {} {}",
        if consumes(driver, workload) { " with consumers" } else { "" },
        workload.message_size,
        workload.topics,
        workload.partitions_per_topic,
        workload.producers(),
        workload.clients,
        workload.threads,
        workload.batch_bytes,
        workload.linger_ms,
        workload.confirm,
        workload.confirm_batch,
        workload.window,
    )
}

/// Does the null broker hand messages on?
fn consumes(driver: &str, workload: &Workload) -> bool {
    driver == "amqp" && workload.subscriptions_per_topic == 1 && workload.exchange_type == ExchangeType::Default
}

/// Messages a second that come through at full speed.
///
/// # Errors
/// This driver has no such broker, or its client does not get on with it.
pub fn measure(job: &Job) -> Result<f64> {
    let (driver, workload) = (&job.driver, &job.workload);
    let null = null::start(driver, null::Options { partitions: workload.partitions_per_topic })?;
    let mut workload = Workload { saturate: true, ..workload.clone() };
    if !consumes(driver, &workload) {
        (workload.subscriptions_per_topic, workload.consumer_per_subscription) = (0, 0);
    }
    let job = Job { address: null.address.to_string(), workload, ..job.clone() };
    let mut worker = Local::new(Clock::local());
    worker.begin(&job, Share { worker: 0, workers: 1 })?;
    worker.subscribe()?;
    worker.set_speed(Speed::Full)?;
    std::thread::sleep(WARM_UP);
    worker.sample()?;
    let began = std::time::Instant::now();
    std::thread::sleep(MEASURE);
    let sample = worker.sample()?;
    let rate = sample.published.acknowledged as f64 / began.elapsed().as_secs_f64();
    worker.end();
    (rate > 0.0).then_some(rate).context("nothing came through")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Confirm;

    #[test]
    fn a_generator_with_consumers_has_a_ceiling() {
        for (confirm, window) in [(Confirm::Each, 0), (Confirm::Async, 1000)] {
            let workload = Workload {
                message_size: 1000,
                linger_ms: 0.0,
                clients: 1,
                threads: 1,
                confirm,
                window,
                ..Workload::default()
            };
            let rate = measure(&Job::plain("amqp", "", "ceiling", workload)).unwrap();
            assert!(rate > 100.0, "{rate} messages a second");
        }
    }
}
