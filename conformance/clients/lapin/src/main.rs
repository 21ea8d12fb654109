//! lapin, as an ordinary program in Rust uses it: confirms that are waited for together, what nobody gets coming back, competing consumers
//! that acknowledge singly and several at a time, return and reject; dead letters read one by one; and a connection that is cut, after
//! which lapin declares anew what it had declared (queue, binding, prefetch, consumer). Arguments: URL, how many messages.

mod relay;

use std::collections::HashSet;
use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::*;
use lapin::types::{AMQPValue, FieldTable, LongString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Consumer, ExchangeKind};
use relay::Relay;

const PATIENCE: Duration = Duration::from_secs(60);
/// Time in which a message that ought not to come would have come.
const QUIET: Duration = Duration::from_millis(300);
/// Every so many messages one is rejected.
const REJECTED: usize = 50;
/// The first so many are returned once.
const RETURNED: usize = 5;
/// Acknowledged together by one of the two consumers.
const TOGETHER: usize = 10;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().context("a URL is missing")?;
    let count = arguments.next().context("a count is missing")?.parse()?;
    let name = format!("lapin-{}", SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos());
    let connection = Connection::connect(&url, ConnectionProperties::default().with_connection_name("conformance".into())).await?;
    declare(&connection, &name).await?;
    publish(&connection, &name, count).await?;
    consume(&connection, &name, count).await?;
    dead_letters(&connection, &name, count).await?;
    recovery(&url, &name).await?;
    let channel = connection.create_channel().await?;
    let left = channel.queue_delete(name.as_str().into(), QueueDeleteOptions::default()).await?;
    ensure!(left == 0, "{left} messages are left");
    channel.queue_delete(format!("{name}-dead").into(), QueueDeleteOptions::default()).await?;
    channel.exchange_delete(name.as_str().into(), ExchangeDeleteOptions::default()).await?;
    connection.close(200, "done".into()).await?;
    println!("{count} messages");
    Ok(())
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> Result<T> {
    tokio::time::timeout(PATIENCE, work).await.with_context(|| format!("{what} takes too long"))
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(LongString::from(value))
}

async fn declare(connection: &Connection, name: &str) -> Result<()> {
    let channel = connection.create_channel().await?;
    let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
    channel.exchange_declare(name.into(), ExchangeKind::Topic, options, FieldTable::default()).await?;
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), text("quorum"));
    arguments.insert("x-dead-letter-exchange".into(), text(""));
    arguments.insert("x-dead-letter-routing-key".into(), text(&format!("{name}-dead")));
    channel.queue_declare(name.into(), QueueDeclareOptions::durable(), arguments).await?;
    channel.queue_declare(format!("{name}-dead").into(), QueueDeclareOptions::durable(), FieldTable::default()).await?;
    channel.queue_bind(name.into(), name.into(), "orders.#".into(), QueueBindOptions::default(), FieldTable::default()).await?;
    channel.close(200, "declared".into()).await?;
    Ok(())
}

fn properties(number: usize) -> BasicProperties {
    let mut headers = FieldTable::default();
    headers.insert("number".into(), AMQPValue::LongLongInt(number as i64));
    BasicProperties::default().with_delivery_mode(2).with_message_id(number.to_string().into()).with_headers(headers)
}

async fn send(channel: &Channel, exchange: &str, key: &str, number: usize) -> Result<lapin::PublisherConfirm> {
    let options = BasicPublishOptions { mandatory: true, ..Default::default() };
    let body = format!("message {number}");
    Ok(channel.basic_publish(exchange.into(), key.into(), options, body.as_bytes(), properties(number)).await?)
}

async fn publish(connection: &Connection, name: &str, count: usize) -> Result<()> {
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let mut outcomes = Vec::with_capacity(count);
    for number in 0..count {
        outcomes.push(send(&channel, name, "orders.new", number).await?);
    }
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let outcome = within("a confirm", outcome).await??;
        ensure!(outcome == Confirmation::Ack(None), "message {number}: {outcome:?}");
    }
    let outcome = within("a confirm", send(&channel, name, "invoices.new", count).await?).await??;
    ensure!(outcome.is_ack(), "what nobody gets: {outcome:?}");
    let back = outcome.take_message().context("what nobody gets did not come back")?;
    ensure!(back.reply_code == 312 && back.delivery.data == format!("message {count}").as_bytes(), "{back:?} came back");
    ensure!(channel.wait_for_confirms().await?.is_empty(), "more came back");
    channel.close(200, "published".into()).await?;
    Ok(())
}

/// The number of a message, which has to be as it was sent.
fn number_of(delivery: &Delivery) -> Result<usize> {
    let id = delivery.properties.message_id().as_ref().context("a message without its id")?;
    let number: usize = id.as_str().parse()?;
    let header = delivery.properties.headers().as_ref().and_then(|headers| headers.inner().get("number"));
    ensure!(header == Some(&AMQPValue::LongLongInt(number as i64)), "message {number} has header {header:?}");
    ensure!(delivery.data == format!("message {number}").as_bytes(), "message {number} is not as it was");
    Ok(number)
}

async fn consumer(connection: &Connection, queue: &str, prefetch: u16) -> Result<(Channel, Consumer)> {
    let channel = connection.create_channel().await?;
    channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
    let consumer = channel.basic_consume(queue.into(), "".into(), BasicConsumeOptions::default(), FieldTable::default()).await?;
    Ok((channel, consumer))
}

/// One consumer acknowledges each message, the other several together; each is done with once.
async fn consume(connection: &Connection, name: &str, count: usize) -> Result<()> {
    let (first, mut singly) = consumer(connection, name, 20).await?;
    let (second, mut together) = consumer(connection, name, 2 * TOGETHER as u16).await?;
    let (mut seen, mut returned, mut unacknowledged) = (HashSet::new(), HashSet::new(), 0);
    while seen.len() < count {
        let (delivery, alone) = within("consuming", async {
            tokio::select! {
                delivery = singly.next() => (delivery, true),
                delivery = together.next() => (delivery, false),
            }
        })
        .await?;
        let delivery = delivery.context("a consumer was cancelled")??;
        let number = number_of(&delivery)?;
        ensure!(!seen.contains(&number), "message {number} came again");
        if returned.len() < RETURNED && !delivery.redelivered {
            returned.insert(number);
            delivery.nack(BasicNackOptions { requeue: true, multiple: false }).await?;
            continue;
        }
        ensure!(delivery.redelivered == returned.contains(&number), "message {number}: redelivered is {}", delivery.redelivered);
        seen.insert(number);
        if number % REJECTED == 0 {
            delivery.reject(BasicRejectOptions { requeue: false }).await?;
        } else if alone {
            delivery.ack(BasicAckOptions::default()).await?;
        } else {
            unacknowledged += 1;
            if unacknowledged == TOGETHER || count - seen.len() < 4 * TOGETHER {
                delivery.ack(BasicAckOptions { multiple: true }).await?;
                unacknowledged = 0;
            }
        }
    }
    ensure!(unacknowledged == 0, "{unacknowledged} messages were not acknowledged");
    for (channel, consumer) in [(first, singly), (second, together)] {
        channel.basic_cancel(consumer.tag(), BasicCancelOptions::default()).await?;
        channel.close(200, "consumed".into()).await?;
    }
    Ok(())
}

async fn dead_letters(connection: &Connection, name: &str, count: usize) -> Result<()> {
    let channel = connection.create_channel().await?;
    let mut left: HashSet<usize> = (0..count).step_by(REJECTED).collect();
    within("reading dead letters", async {
        while !left.is_empty() {
            let Some(letter) = channel.basic_get(format!("{name}-dead").into(), BasicGetOptions::default()).await? else { continue };
            let number = number_of(&letter.delivery)?;
            ensure!(left.remove(&number), "{number} was not to be a dead letter");
            let headers = letter.delivery.properties.headers().as_ref().context("a dead letter without headers")?;
            let Some(AMQPValue::FieldArray(deaths)) = headers.inner().get("x-death") else { bail!("a dead letter without x-death") };
            let Some(AMQPValue::FieldTable(death)) = deaths.as_slice().first() else { bail!("x-death is {deaths:?}") };
            ensure!(death.inner().get("reason") == Some(&text("rejected")), "x-death is {death:?}");
            letter.ack(BasicAckOptions::default()).await?;
        }
        anyhow::Ok(())
    })
    .await?
}

/// The next message; what a consumer says of the connection that is gone is passed over.
async fn next(consumer: &mut Consumer, patience: Duration) -> Result<Option<Delivery>> {
    let deadline = tokio::time::Instant::now() + patience;
    loop {
        match tokio::time::timeout_at(deadline, consumer.next()).await {
            Err(_) => return Ok(None),
            Ok(None) => bail!("the consumer ended"),
            Ok(Some(Ok(delivery))) => return Ok(Some(delivery)),
            Ok(Some(Err(_))) => {}
        }
    }
}

async fn recovery(url: &str, name: &str) -> Result<()> {
    let relay = Relay::start(url).await?;
    let properties = ConnectionProperties::default().enable_auto_recover().configure_backoff(|backoff| {
        backoff.with_min_delay(Duration::from_millis(10)).with_max_delay(Duration::from_millis(100)).with_max_times(64)
    });
    let connection = within("connecting", Connection::connect(&relay.url, properties)).await??;
    let channel = connection.create_channel().await?;
    let queue = format!("{name}-own");
    let exclusive = QueueDeclareOptions { exclusive: true, ..Default::default() };
    channel.queue_declare(queue.as_str().into(), exclusive, FieldTable::default()).await?;
    channel.queue_bind(queue.as_str().into(), name.into(), "own.*".into(), QueueBindOptions::default(), FieldTable::default()).await?;
    channel.basic_qos(1, BasicQosOptions::default()).await?;
    let mut own = channel.basic_consume(queue.as_str().into(), "own".into(), BasicConsumeOptions::default(), FieldTable::default()).await?;
    let (durable_channel, mut durable) = consumer(&connection, name, 10).await?;

    let direct = Connection::connect(url, ConnectionProperties::default()).await?.create_channel().await?;
    direct.confirm_select(ConfirmSelectOptions::default()).await?;
    ensure!(within("a confirm", send(&direct, name, "orders.new", 0).await?).await?? == Confirmation::Ack(None), "it is not routed");
    let before = next(&mut durable, PATIENCE).await?.context("nothing came before the cut")?;
    ensure!(!before.redelivered, "it came as redelivered before the cut");
    relay.cut();
    let again = next(&mut durable, PATIENCE).await?.context("what was unacknowledged did not come again")?;
    ensure!(again.redelivered && number_of(&again)? == 0, "what came again is another one, or as new");
    again.ack(BasicAckOptions::default()).await?;

    // The exclusive queue went with the connection; its name, binding, prefetch and consumer are there again.
    let back = within("declaring the exclusive queue anew", async {
        loop {
            let outcome = send(&direct, name, "own.first", 1).await?.await?;
            if outcome == Confirmation::Ack(None) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    back.await??;
    send(&direct, name, "own.second", 2).await?.await?;
    let first = next(&mut own, PATIENCE).await?.context("nothing came to the exclusive queue")?;
    ensure!(number_of(&first)? == 1 && next(&mut own, QUIET).await?.is_none(), "the prefetch of 1 is not in force after the cut");
    first.ack(BasicAckOptions::default()).await?;
    let second = next(&mut own, PATIENCE).await?.context("only one message came to the exclusive queue")?;
    ensure!(number_of(&second)? == 2, "another message than the second came");
    second.ack(BasicAckOptions::default()).await?;
    durable_channel.close(200, "recovered".into()).await?;
    connection.close(200, "recovered".into()).await?;
    Ok(())
}
