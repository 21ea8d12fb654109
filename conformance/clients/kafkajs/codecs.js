// The three codecs that kafkajs leaves to plug-ins. Its own plug-ins build native code or fetch it at install time, so
// these wrap prebuilt packages. Snappy uses the stream format of the Java client: a 16 byte header, then
// length-prefixed blocks.
const { CompressionTypes, CompressionCodecs } = require("kafkajs");
const lz4 = require("lz4-napi");
const snappy = require("snappy");
const zstd = require("@bokuweb/zstd-wasm");

const MAGIC = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0, 0, 0, 0, 1, 0, 0, 0, 1]);

function snappyBlocks(buffer) {
  if (!buffer.subarray(0, 8).equals(MAGIC.subarray(0, 8))) return [buffer];
  const blocks = [];
  for (let at = MAGIC.length; at < buffer.length; ) {
    const length = buffer.readUInt32BE(at);
    blocks.push(buffer.subarray(at + 4, at + 4 + length));
    at += 4 + length;
  }
  return blocks;
}

CompressionCodecs[CompressionTypes.Snappy] = () => ({
  compress: async (encoder) => {
    const block = await snappy.compress(encoder.buffer);
    const length = Buffer.alloc(4);
    length.writeUInt32BE(block.length);
    return Buffer.concat([MAGIC, length, block]);
  },
  decompress: async (buffer) =>
    Buffer.concat(await Promise.all(snappyBlocks(buffer).map((block) => snappy.uncompress(block, { asBuffer: true })))),
});

CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: (buffer) => lz4.decompressFrame(buffer),
});

CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
});

module.exports = { ready: () => zstd.init() };
