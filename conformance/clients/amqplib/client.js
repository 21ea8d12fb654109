// amqplib, as an ordinary program for Node.js uses it: a confirm channel, a consumer that acknowledges one by one, rejects some messages to a
// dead-letter queue, and hears that its queue was deleted; questions and answers that go without a queue. Arguments: URL, how many messages.

const assert = require("node:assert");
const amqp = require("amqplib");

const PATIENCE = 60_000;
const REJECTED = 50;

function within(promise, what) {
  const late = new Promise((_, reject) => setTimeout(() => reject(new Error(`${what} takes too long`)), PATIENCE).unref());
  return Promise.race([promise, late]);
}

async function main(url, count) {
  const connection = await amqp.connect(url);
  const [work, dead] = ["work", "dead"].map((kind) => `node-${kind}-${process.pid}-${Date.now()}`);
  const publisher = await connection.createConfirmChannel();
  await publisher.assertQueue(dead, { durable: true });
  await publisher.assertQueue(work, { durable: true, maxPriority: 3, deadLetterExchange: "", deadLetterRoutingKey: dead });
  for (let number = 0; number < count; number++) {
    const options = { persistent: true, messageId: String(number), contentType: "application/json", headers: { number, text: "ü" } };
    publisher.sendToQueue(work, Buffer.from(JSON.stringify({ number })), options);
  }
  await within(publisher.waitForConfirms(), "confirming");

  const consumer = await connection.createChannel();
  await consumer.prefetch(30);
  const seen = new Set();
  let cancelled;
  const gone = new Promise((resolve) => (cancelled = resolve));
  await within(
    new Promise((resolve) => {
      consumer.consume(work, (message) => {
        if (message === null) return cancelled();
        const { number } = JSON.parse(message.content);
        assert.equal(message.properties.messageId, String(number));
        assert.deepEqual(message.properties.headers, { number, text: "ü" });
        assert(!seen.has(number), `message ${number} came twice`);
        seen.add(number);
        number % REJECTED === 0 ? consumer.reject(message, false) : consumer.ack(message);
        if (seen.size === count) resolve();
      });
    }),
    "consuming",
  );

  const rejected = Math.ceil(count / REJECTED);
  for (let number = 0, until = Date.now() + PATIENCE; number < rejected; ) {
    const letter = await consumer.get(dead, { noAck: true });
    if (letter === false) {
      assert(Date.now() < until, `only ${number} dead letters came`);
      continue;
    }
    assert.equal(letter.properties.headers["x-death"][0].reason, "rejected");
    number++;
  }

  const answers = await connection.createChannel();
  const answered = new Promise((resolve) => answers.consume("amq.rabbitmq.reply-to", resolve, { noAck: true }));
  answers.sendToQueue(dead, Buffer.from("question"), { replyTo: "amq.rabbitmq.reply-to", correlationId: "7" });
  let question = false;
  while (question === false) question = await consumer.get(dead, { noAck: true });
  consumer.sendToQueue(question.properties.replyTo, Buffer.from("answer"), { correlationId: question.properties.correlationId });
  const answer = await within(answered, "an answer");
  assert.equal(`${answer.content} ${answer.properties.correlationId}`, "answer 7");

  await publisher.deleteQueue(work);
  await within(gone, "hearing that the queue is gone");
  await publisher.deleteQueue(dead);
  await connection.close();
  await closes(url, 500);
  await refusals(url, 500);
  console.log(`${count} messages`);
}

// Connections that are closed in good order: nobody is told of an error.
async function closes(url, count) {
  for (let number = 0; number < count; number++) {
    const connection = await amqp.connect(url);
    let told = null;
    connection.on("error", (error) => (told = error));
    const closed = new Promise((resolve) => connection.on("close", (error) => resolve((told ??= error ?? null))));
    await within(connection.close(), "closing");
    await within(closed, "hearing that it is closed");
    assert.equal(told, null, `close ${number}: ${told}`);
  }
}

// Logins with another password: each is told why, and none finds its connection reset.
async function refusals(url, count) {
  const wrong = new URL(url);
  wrong.password = "another password";
  for (let number = 0; number < count; number++) await assert.rejects(within(amqp.connect(wrong.href), "a refusal"), /403 \(ACCESS-REFUSED\)/, `login ${number}`);
}

main(process.argv[2], Number(process.argv[3])).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
