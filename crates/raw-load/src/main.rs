//! A producer that costs as little as one can: records of a linger window, keys spread uniformly over all partitions, go into
//! requests that name many partitions, as Java's and Go's clients send them. Prints one line of JSON.
//!
//! Open loop: record number n is due n / rate seconds after the start whatever the broker does, and its latency counts from
//! there. One thread builds and sends, one takes the answers.

mod request;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Parser;
use kafka_wire::Reader;
use kafka_wire::produce::ProduceResponse;

/// Produces at a fixed rate to all partitions of one topic, and tells how long acknowledgements took.
#[derive(Parser)]
#[command(after_help = "Example:\n  raw-load 127.0.0.1:9092 sweep --partitions 10000 --rate 100000 --seconds 10")]
struct Options {
    /// Address of the broker that leads all partitions.
    broker: String,
    /// The topic; it must exist.
    topic: String,
    /// Partitions of the topic.
    #[arg(long, default_value_t = 100)]
    partitions: u32,
    /// Records a second.
    #[arg(long, default_value_t = 10_000)]
    rate: u64,
    /// How long.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Bytes of a record's value.
    #[arg(long, default_value_t = 1024)]
    record_bytes: usize,
    /// How long records gather before they are sent, in ms.
    #[arg(long, default_value_t = 10)]
    linger_ms: u64,
    /// Requests without an answer at once.
    #[arg(long, default_value_t = 5)]
    in_flight: usize,
    /// Longest request, in bytes.
    #[arg(long, default_value_t = 1_000_000)]
    request_bytes: usize,
}

/// Longer answers are not answers to what was sent.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A request under way: when its records were due, in seconds from the start.
type Sent = Vec<f64>;

fn main() -> std::io::Result<()> {
    let options = Options::parse();
    let stream = TcpStream::connect(&options.broker)?;
    stream.set_nodelay(true)?;
    // SAFETY: changes how late timers of this thread may be, and nothing else.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    // Of the requests under way, one is in the taker's hands and one waits for its place in the channel.
    let (under_way, answered) = sync_channel::<Sent>(options.in_flight.saturating_sub(2));
    let began = Instant::now() + Duration::from_millis(100);
    let input = stream.try_clone()?;
    let taker = std::thread::spawn(move || take_answers(input, &answered, began));
    let mut late = send_all(&options, stream, &under_way, began)?;
    drop(under_way);
    let mut latencies = taker.join().expect("no panic")?;
    let (latencies, late) = (sorted(&mut latencies), sorted(&mut late));
    let at = |values: &[f64], share: f64| values[((values.len() - 1) as f64 * share) as usize] * 1e3;
    println!(
        "{{\"records\": {}, \"p50_ms\": {:.3}, \"p95_ms\": {:.3}, \"p99_ms\": {:.3}, \"max_ms\": {:.3}, \"schedule_lag_p50_ms\": {:.3}, \
         \"schedule_lag_p99_ms\": {:.3}, \"client_cpu\": {:.2}}}",
        latencies.len(),
        at(latencies, 0.5),
        at(latencies, 0.95),
        at(latencies, 0.99),
        at(latencies, 1.0),
        at(late, 0.5),
        at(late, 0.99),
        processor_seconds(),
    );
    Ok(())
}

fn sorted(values: &mut [f64]) -> &[f64] {
    values.sort_by(f64::total_cmp);
    values
}

/// Sends everything on time, or as soon as the broker lets it; returns by how much each window was late, in seconds.
fn send_all(
    options: &Options,
    mut stream: TcpStream,
    under_way: &SyncSender<Sent>,
    began: Instant,
) -> std::io::Result<Vec<f64>> {
    let mut requests =
        request::Requests::new(&options.topic, options.partitions, options.record_bytes, options.request_bytes);
    let (linger, total) = (options.linger_ms.max(1) as f64 / 1e3, options.rate * options.seconds);
    let (mut late, mut number, mut frame) = (Vec::new(), 0, Vec::new());
    for window in 1.. {
        if number == total {
            break;
        }
        let ends = window as f64 * linger;
        let end = began + Duration::from_secs_f64(ends);
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        late.push(end.elapsed().as_secs_f64());
        let due = |number| number as f64 / options.rate as f64;
        let until = (number..total).find(|number| due(*number) >= ends).unwrap_or(total);
        requests.begin_window((number..until).map(due));
        number = until;
        while let Some(sent) = requests.next_request(&mut frame) {
            if under_way.send(sent).is_err() {
                return Ok(late);
            }
            stream.write_all(&frame)?;
        }
    }
    Ok(late)
}

/// Takes answers until all requests have theirs; returns the latencies of all records, in seconds.
///
/// # Errors
/// When the connection ends early or a partition was refused.
fn take_answers(mut stream: TcpStream, under_way: &Receiver<Sent>, began: Instant) -> std::io::Result<Vec<f64>> {
    let mut latencies = Vec::new();
    while let Ok(sent) = under_way.recv() {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > ANSWER_BYTES_MAX {
            return Err(std::io::Error::other(format!("an answer of {length} bytes")));
        }
        let mut frame = vec![0; length];
        stream.read_exact(&mut frame)?;
        let now = began.elapsed().as_secs_f64();
        check(Bytes::from(frame))?;
        latencies.extend(sent.into_iter().map(|due| now - due));
    }
    Ok(latencies)
}

fn check(frame: Bytes) -> std::io::Result<()> {
    let mut reader = Reader::new(frame);
    reader.int32("correlation_id").map_err(std::io::Error::other)?;
    let response = ProduceResponse::decode(&mut reader, request::VERSION).map_err(std::io::Error::other)?;
    let refused = response
        .responses
        .iter()
        .flat_map(|topic| &topic.partition_responses)
        .find(|partition| partition.error_code != 0);
    match refused {
        Some(partition) => {
            Err(std::io::Error::other(format!("partition {}: error {}", partition.index, partition.error_code)))
        }
        None => Ok(()),
    }
}

/// Processor time of this process.
fn processor_seconds() -> f64 {
    // SAFETY: plain data, filled by the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
