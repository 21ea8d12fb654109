//! What queues cost: declares many durable ones as fast as the broker answers, or makes, uses and drops exclusive ones at a fixed rate.
//! No client library, one thread a connection. Prints one line of JSON.

mod link;

use std::io::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use amqp_wire::{Method, ShortBytes, ShortStr, Table, basic, queue, short};
use clap::{Parser, Subcommand};
use link::Link;

#[derive(Parser)]
#[command(about = "Declares, uses and drops many AMQP queues.")]
struct Options {
    /// Address of the broker.
    broker: String,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Durable queues, each declared when the one before it on its connection is there.
    Declare {
        /// How many.
        #[arg(long, default_value_t = 50_000)]
        queues: u64,
        /// Connections, each with as many of them.
        #[arg(long, default_value_t = 16)]
        connections: u64,
        /// Their names begin so.
        #[arg(long, default_value = "load-")]
        prefix: String,
        /// `classic` or `quorum`.
        #[arg(long, default_value = "classic")]
        kind: String,
        /// Deletes them instead.
        #[arg(long)]
        delete: bool,
    },
    /// Exclusive auto-delete queues, each declared, bound, used for one message, and dropped when its connection closes.
    Churn {
        /// Queues a second.
        #[arg(long, default_value_t = 1000)]
        rate: u64,
        /// How long.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Queues of a connection.
        #[arg(long, default_value_t = 1)]
        per_connection: u64,
        /// Connections at once, at most.
        #[arg(long, default_value_t = 64)]
        connections: u64,
    },
}

fn main() -> Result<()> {
    let Options { broker, what } = Options::parse();
    match what {
        What::Declare { queues, connections, prefix, kind, delete } => {
            declare(&broker, queues, connections, &prefix, &kind, delete)
        }
        What::Churn { rate, seconds, per_connection, connections } => {
            churn(&broker, rate, seconds, per_connection, connections)
        }
    }
}

/// Runs one piece of work a thread, and adds up what they measured, in ms.
fn together(threads: u64, work: impl Fn(u64) -> Result<Vec<f64>> + Sync) -> Result<Vec<f64>> {
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|number| {
                scope.spawn({
                    let work = &work;
                    move || work(number)
                })
            })
            .collect();
        let mut all = Vec::new();
        for thread in running {
            all.extend(thread.join().map_err(|_| Error::other("a thread has failed"))??);
        }
        all.sort_by(f64::total_cmp);
        Ok(all)
    })
}

fn percentile(sorted: &[f64], part: f64) -> f64 {
    sorted.get(((sorted.len() as f64 * part) as usize).min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

fn print(count: u64, seconds: f64, sorted: &[f64]) {
    let rate = count as f64 / seconds;
    let at = |part| percentile(sorted, part);
    println!(
        "{{\"queues\": {count}, \"seconds\": {seconds:.3}, \"rate\": {rate:.0}, \"p50_ms\": {:.3}, \"p99_ms\": {:.3}, \"max_ms\": {:.3}}}",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

fn declare(broker: &str, queues: u64, connections: u64, prefix: &str, kind: &str, delete: bool) -> Result<()> {
    let arguments = Table::build(|fields| {
        if kind != "classic" {
            fields.put(short("x-queue-type"), kind);
        }
    });
    let links: Vec<Mutex<Option<Link>>> =
        (0..connections).map(|_| Link::open(broker).map(|link| Mutex::new(Some(link)))).collect::<Result<_>>()?;
    let start = Instant::now();
    let sorted = together(connections, |number| {
        let mut link = links[number as usize]
            .lock()
            .ok()
            .and_then(|mut link| link.take())
            .ok_or_else(|| Error::other("taken twice"))?;
        let mut times = Vec::new();
        for queue in (number..queues).step_by(connections as usize) {
            let (name, began) = (format!("{prefix}{queue:06}"), Instant::now());
            let name = ShortStr::new(&name).ok_or_else(|| Error::other("the prefix is too long"))?;
            if delete {
                link.send(1, &queue::Delete { queue: name, ..queue::Delete::default() });
                link.answer("delete", |method| matches!(method, Method::Queue(queue::Method::DeleteOk(_))))?;
            } else {
                link.send(
                    1,
                    &queue::Declare {
                        queue: name,
                        durable: true,
                        arguments: arguments.view(),
                        ..queue::Declare::default()
                    },
                );
                link.answer("declare", |method| matches!(method, Method::Queue(queue::Method::DeclareOk(_))))?;
            }
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        link.close()?;
        Ok(times)
    })?;
    print(queues, start.elapsed().as_secs_f64(), &sorted);
    Ok(())
}

fn churn(broker: &str, rate: u64, seconds: u64, per_connection: u64, connections: u64) -> Result<()> {
    let (start, rounds) = (Instant::now(), rate * seconds / per_connection);
    let next = Arc::new(AtomicU64::new(0));
    let sorted = together(connections, |_| {
        let mut late = Vec::new();
        loop {
            let round = next.fetch_add(1, Ordering::Relaxed);
            if round >= rounds {
                return Ok(late);
            }
            let due = Duration::from_secs_f64((round * per_connection) as f64 / rate as f64);
            thread::sleep(due.saturating_sub(start.elapsed()));
            one_life(broker, per_connection)?;
            late.push((start.elapsed().saturating_sub(due)).as_secs_f64() * 1e3);
        }
    })?;
    print(rounds * per_connection, start.elapsed().as_secs_f64(), &sorted);
    Ok(())
}

/// A connection with its queues, from its first to its last byte.
fn one_life(broker: &str, queues: u64) -> Result<()> {
    let mut link = Link::open(broker)?;
    for _ in 0..queues {
        link.send(1, &queue::Declare { exclusive: true, auto_delete: true, ..queue::Declare::default() });
        let name = link.next(|method| match method {
            Method::Queue(queue::Method::DeclareOk(ok)) => Ok(ok.queue.to_string()),
            other => Err(Error::other(format!("declare: the broker says {other:?}"))),
        })??;
        let queue = ShortStr::new(&name).ok_or_else(|| Error::other("a name that is too long"))?;
        let routing_key = ShortBytes::new(name.as_bytes()).ok_or_else(|| Error::other("a name that is too long"))?;
        link.send(
            1,
            &queue::Bind { queue, exchange: short("amq.direct"), routing_key: queue, ..queue::Bind::default() },
        );
        link.answer("bind", |method| matches!(method, Method::Queue(queue::Method::BindOk(_))))?;
        link.send(1, &basic::Consume { queue, no_ack: true, ..basic::Consume::default() });
        link.answer("consume", |method| matches!(method, Method::Basic(basic::Method::ConsumeOk(_))))?;
        let exchange = ShortBytes::new(b"amq.direct").ok_or_else(|| Error::other("short"))?;
        link.send_content(&basic::Publish { exchange, routing_key, mandatory: true, immediate: false }, b"used once");
        link.answer("delivery", |method| matches!(method, Method::Basic(basic::Method::Deliver(_))))?;
    }
    link.close()
}
