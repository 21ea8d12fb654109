// kafkajs. `produce BOOTSTRAP COUNT TOPIC=CODEC ...` and `consume BOOTSTRAP COUNT TOPIC ...`.
const { isDeepStrictEqual } = require("util");
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");
const codecs = require("./codecs");
const { isText, partitions, record, timestamp } = require("./records");

const COMPRESSION = {
  none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD,
};

async function produce(kafka, count, targets) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  for (const target of targets) {
    const [topic, codec] = target.split("=");
    try {
      for (let from = 0; from < count; from += 500) {
        const messages = [];
        for (let number = from; number < Math.min(count, from + 500); number++)
          messages.push({ ...record(topic, number), partition: number % partitions(topic), timestamp: timestamp(number) });
        await producer.send({ topic, acks: -1, compression: COMPRESSION[codec], messages });
      }
      console.log(`ok ${topic}`);
    } catch (error) {
      console.log(`FAIL ${topic} ${error.message}`);
    }
  }
  await producer.disconnect();
}

// What kafkajs hands out as headers: names in order, a list where a name comes twice.
function differs(topic, number, message) {
  const wanted = record(topic, number);
  for (const part of ["key", "value"])
    if (!isDeepStrictEqual(message[part] && Buffer.from(message[part]), wanted[part] && Buffer.from(wanted[part])))
      return `${part} of ${number}`;
  const plain = (headers) => JSON.stringify(Object.entries(headers));
  if (plain(message.headers) !== plain(wanted.headers)) return `headers of ${number}: ${plain(message.headers)}`;
  if (!isText(topic) && message.timestamp !== timestamp(number)) return `timestamp of ${number}`;
  return null;
}

async function consume(kafka, count, topics) {
  const group = kafka.consumer({ groupId: `kafkajs-${process.hrtime.bigint()}`, maxWaitTimeInMs: 200 });
  const state = new Map(topics.map((topic) => [topic, { next: Array(partitions(topic)).fill(0), seen: 0, failure: null }]));
  let left = topics.length;
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  await group.connect();
  await group.subscribe({ topics, fromBeginning: true });
  await group.run({
    partitionsConsumedConcurrently: 4,
    eachBatch: async ({ batch }) => {
      const { topic, partition } = batch;
      const reading = state.get(topic);
      for (const message of batch.messages) {
        if (reading.failure || reading.seen === count) return;
        const offset = Number(message.offset);
        if (offset !== reading.next[partition]) reading.failure = `offset ${offset} instead of ${reading.next[partition]}`;
        else reading.failure = differs(topic, offset * partitions(topic) + partition, message);
        reading.next[partition] += 1;
        reading.seen += 1;
        if (!reading.failure && reading.seen !== count) continue;
        console.log(reading.failure ? `FAIL ${topic} ${reading.failure}` : `ok ${topic}`);
        if (--left === 0) finish();
      }
    },
  });
  const late = setTimeout(finish, 60000 + count * topics.length / 2);
  await finished;
  clearTimeout(late);
  for (const [topic, { seen, failure }] of state)
    if (!failure && seen < count) console.log(`FAIL ${topic} only ${seen} of ${count} came`);
  await group.disconnect();
}

async function main() {
  const [action, bootstrap, count, ...topics] = process.argv.slice(2);
  await codecs.ready();
  const kafka = new Kafka({ clientId: "conformance", brokers: [bootstrap], logLevel: logLevel.NOTHING });
  await { produce, consume }[action](kafka, Number(count), topics);
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
