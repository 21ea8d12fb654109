// The records of `records.py`, for kafkajs. Header order in kafkajs is the order of names in an object.
const { createHash } = require("crypto");

const isText = (topic) => topic.includes("-text-");
const partitions = (topic) => (isText(topic) ? 1 : 3);

function record(topic, number) {
  const digest = createHash("sha256").update(`${topic}/${number}`).digest();
  const key = Buffer.from(`key-${number % 977}`);
  if (isText(topic)) {
    const value = Buffer.from(digest.toString("hex").repeat(1 + (number % 9)));
    return { key, value, headers: { from: Buffer.from("text") } };
  }
  const value = Buffer.concat(Array(65).fill(digest)).subarray(0, digest.readUInt16BE(0) % 2049);
  return {
    key: number % 11 === 3 ? null : key,
    value: number % 101 === 7 && number % 11 !== 3 ? null : value,
    headers: {
      number: Buffer.from(String(number)),
      twice: [Buffer.from("a"), digest.subarray(0, 4)],
      empty: Buffer.alloc(0),
    },
  };
}

const timestamp = (number) => String(1700000000000 + number);

module.exports = { isText, partitions, record, timestamp };
