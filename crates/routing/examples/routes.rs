//! What routing and binding cost: time per message by type and number of bindings, bytes and time per binding, and what threads
//! that route lose to one that binds without a pause.
//!
//! `cargo run --release -p routing --example routes`

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use routing::{
    Argument, Arguments, Declaration, Destination, Exchanges, Headers, Name, NoHeaders, OwnedValue, Property, QueueId,
};
use routing::{Scratch, Table, Value};

/// Counts bytes in use, and allocations.
struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct OneHeader(String);

impl Headers for OneHeader {
    fn get(&self, name: &[u8]) -> Option<Value<'_>> {
        (name == b"user").then_some(Value::Bytes(self.0.as_bytes()))
    }

    fn visit<'a>(&'a self, visitor: &mut dyn FnMut(&'a [u8], Value<'a>)) {
        visitor(b"user", Value::Bytes(self.0.as_bytes()));
    }

    fn property(&self, _: Property) -> Option<Value<'_>> {
        None
    }
}

fn table(kind: &str, queues: u64) -> Table {
    let mut table = Table::new();
    for id in 0..queues {
        table.add_queue(Name::new(format!("queue-{id}").as_bytes()).unwrap(), QueueId(id), true).unwrap();
    }
    let (durable, auto_delete, internal, arguments) = (true, false, false, Arguments::default());
    let name = Name::new(b"exchange").unwrap();
    table.declare(Declaration { name, kind: kind.as_bytes(), durable, auto_delete, internal, arguments }).unwrap();
    table
}

fn key(kind: &str, number: u64) -> String {
    match kind {
        "fanout" | "headers" => String::new(),
        "topic" => format!("region-{}.device-{number}.*", number % 50),
        "x-consistent-hash" => "10".to_owned(),
        _ => format!("device-{number}"),
    }
}

fn arguments(kind: &str, number: u64) -> Arguments {
    if kind != "headers" {
        return Arguments::default();
    }
    let value = OwnedValue::Bytes(format!("user-{number}").into_bytes().into());
    Arguments::new(vec![Argument { name: (*b"user").into(), tag: b'S', value }])
}

fn bind(table: &mut Table, kind: &str, number: u64) {
    let destination = Destination::Queue(QueueId(number));
    table.bind(b"exchange", destination, key(kind, number).as_bytes(), &arguments(kind, number)).unwrap();
}

fn measure(kind: &str, bindings: u64) {
    let mut table = table(kind, bindings + 1_000);
    let (before, begun) = (BYTES.load(Ordering::Relaxed), Instant::now());
    (0..bindings).for_each(|number| bind(&mut table, kind, number));
    let (bytes, bound) = (BYTES.load(Ordering::Relaxed) - before, begun.elapsed());
    let begun = Instant::now();
    (bindings..bindings + 1_000).for_each(|number| bind(&mut table, kind, number));
    let churn = begun.elapsed();
    let begun = Instant::now();
    (bindings..bindings + 1_000).for_each(|number| drop(table.remove_queue(QueueId(number))));
    let unbound = begun.elapsed();

    let messages: u64 = if kind == "fanout" && bindings > 1_000 { 2_000 } else { 2_000_000 };
    // Keys of 1,000 bindings in an order that memory cannot foresee, so that large tables are not measured in the cache alone.
    let chosen = |number: u64| number.wrapping_mul(0x9e37_79b9) % bindings;
    let keys: Vec<_> = (0..1_000).map(|number| key(kind, chosen(number)).replace('*', "state")).collect();
    let headers: Vec<_> = (0..1_000).map(|number| OneHeader(format!("user-{}", chosen(number)))).collect();
    let (mut scratch, mut queues) = (Scratch::default(), Vec::new());
    let mut matched = 0;
    let mut run = |messages: u64| {
        for number in 0..messages {
            let at = usize::try_from(number % 1_000).unwrap();
            let exchange = table.exchange(black_box(b"exchange")).unwrap();
            exchange.route(&[keys[at].as_bytes()], &headers[at], &mut scratch, &mut queues).unwrap();
            matched += queues.len();
        }
    };
    run(2_000.min(messages));
    let (allocations, begun) = (ALLOCATIONS.load(Ordering::Relaxed), Instant::now());
    run(messages);
    let taken = begun.elapsed();
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - allocations;
    println!(
        "{kind:>17} {bindings:>7} bindings: {:>9.1} ns per message ({:.1} queues, {allocations} allocations), {:>4} bytes per binding, \
         {:>5} ns to bind; with all bound {:>5} ns to bind, {:>6} ns to delete a queue",
        taken.as_nanos() as f64 / messages as f64,
        matched as f64 / (messages + messages.min(2_000)) as f64,
        bytes as u64 / bindings,
        bound.as_nanos() as u64 / bindings,
        churn.as_nanos() / 1_000,
        unbound.as_nanos() / 1_000,
    );
}

/// Messages per second of threads that take the lock for `batch` messages each time, while another binds and unbinds, or not.
fn share(threads: usize, batch: usize, changes_per_second: Option<u64>) {
    let mut built = table("topic", 100_001);
    (0..100_000).for_each(|number| bind(&mut built, "topic", number));
    let exchanges = Exchanges::new();
    *exchanges.write() = built;
    let (stop, routed, mut changes) = (AtomicBool::new(false), AtomicUsize::new(0), 0u64);
    let begun = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let (mut scratch, mut queues, mut count) = (Scratch::default(), Vec::new(), 0);
                while !stop.load(Ordering::Relaxed) {
                    let routes = exchanges.read();
                    for _ in 0..batch {
                        let exchange = routes.exchange(b"exchange").unwrap();
                        exchange.route(&[b"region-7.device-57.state"], &NoHeaders, &mut scratch, &mut queues).unwrap();
                        count += queues.len();
                    }
                }
                routed.fetch_add(count, Ordering::Relaxed);
            });
        }
        while begun.elapsed() < Duration::from_millis(1_500) {
            match changes_per_second {
                Some(rate) if changes < rate * begun.elapsed().as_millis() as u64 / 1_000 => {
                    let number = 100_000;
                    bind(&mut exchanges.write(), "topic", number);
                    let gone = exchanges.write().remove_queue(QueueId(number));
                    assert_eq!(gone.bindings.len(), 1);
                    let name = Name::new(b"queue-100000").unwrap();
                    exchanges.write().add_queue(name, QueueId(number), true).unwrap();
                    changes += 3;
                }
                _ => thread::sleep(Duration::from_micros(100)),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{threads} threads, {batch:>2} messages for one lock, {:>9.0} changes/s: {:>6.2} million messages/s, {:>4.0} ns of a thread \
         per message",
        changes as f64 / seconds,
        routed.load(Ordering::Relaxed) as f64 / seconds / 1e6,
        seconds * 1e9 * threads as f64 / routed.load(Ordering::Relaxed) as f64,
    );
}

fn main() {
    for kind in ["direct", "topic", "headers", "x-consistent-hash"] {
        [10, 1_000, 100_000].into_iter().for_each(|bindings| measure(kind, bindings));
    }
    [10, 1_000, 100_000].into_iter().for_each(|bindings| measure("fanout", bindings));
    for threads in [1, 3] {
        for batch in [1, 32] {
            for changes in [None, Some(3_000), Some(30_000), Some(u64::MAX / 10_000)] {
                share(threads, batch, changes);
            }
        }
    }
}
