// As much of AMQP 0-9-1 as the checks need: somebody who publishes, and somebody who keeps messages. Fields of methods follow the specification's §1.

import { connect } from 'node:net';

const [METHOD, HEADER, BODY, END] = [1, 2, 3, 0xce];

const u16 = (value) => Buffer.from([value >> 8, value & 255]);
const u32 = (value) => Buffer.from([value >>> 24, (value >> 16) & 255, (value >> 8) & 255, value & 255]);
const short = (text) => Buffer.concat([Buffer.from([Buffer.byteLength(text)]), Buffer.from(text)]);
const long = (bytes) => Buffer.concat([u32(bytes.length), Buffer.from(bytes)]);
const none = u32(0);

export class Amqp {
  /** Has logged in, with channel 1 open. `name`: what the client calls itself. */
  static async of(address, user, password, name) {
    const [host, port] = address.split(':');
    const amqp = new Amqp();
    Object.assign(amqp, { rest: Buffer.alloc(0), methods: [], wake: () => {}, delivered: 0 });
    amqp.socket = connect(Number(port), host);
    amqp.socket.on('data', (bytes) => amqp.take(bytes));
    amqp.socket.on('error', () => {});
    amqp.socket.write(Buffer.from('AMQP\0\0\x09\x01', 'latin1'));
    await amqp.comes(10, 10);
    const properties = Buffer.concat([short('connection_name'), Buffer.from('S'), long(name)]);
    amqp.send(0, 10, 11, [long(properties), short('PLAIN'), long(`\0${user}\0${password}`), short('en_US')]);
    await amqp.comes(10, 30);
    amqp.send(0, 10, 31, [u16(2047), u32(131_072), u16(0)]);
    amqp.send(0, 10, 40, [short('/'), short(''), Buffer.from([0])]);
    await amqp.comes(10, 41);
    await amqp.ask(20, 10, [short('')]);
    return amqp;
  }

  frame(kind, channel, payload) {
    this.socket.write(Buffer.concat([Buffer.from([kind]), u16(channel), u32(payload.length), payload, Buffer.from([END])]));
  }

  send(channel, of, method, fields) {
    this.frame(METHOD, channel, Buffer.concat([u16(of), u16(method), ...fields]));
  }

  /** On channel 1; resolves with its answer, whose number is the next one. */
  ask(of, method, fields) {
    this.send(1, of, method, fields);
    return this.comes(of, method + 1);
  }

  take(bytes) {
    this.rest = Buffer.concat([this.rest, bytes]);
    while (this.rest.length >= 8) {
      const length = this.rest.readUInt32BE(3);
      if (this.rest.length < length + 8) return;
      if (this.rest[0] === METHOD) {
        const [of, method] = [this.rest.readUInt16BE(7), this.rest.readUInt16BE(9)];
        if (of === 60 && method === 60) this.delivered += 1;
        this.methods.push(`${of}.${method}`);
      }
      this.rest = this.rest.subarray(length + 8);
      this.wake();
    }
  }

  async until(so) {
    const ends = Date.now() + 8000;
    while (!so()) {
      if (Date.now() > ends) throw new Error(`AMQP: only ${this.methods.join(' ')} came`);
      await new Promise((done) => {
        this.wake = done;
        setTimeout(done, 100);
      });
    }
  }

  async comes(of, method) {
    await this.until(() => this.methods.includes(`${of}.${method}`));
    this.methods = this.methods.filter((one) => one !== `${of}.${method}`);
  }

  /** Confirmed. */
  async publish(queue, count, body) {
    await this.ask(85, 10, [Buffer.from([0])]);
    for (let at = 0; at < count; at += 1) {
      this.send(1, 60, 40, [u16(0), short(''), short(queue), Buffer.from([0])]);
      this.frame(HEADER, 1, Buffer.concat([u16(60), u16(0), u32(0), u32(body.length), u16(0)]));
      this.frame(BODY, 1, Buffer.from(body));
    }
    await this.comes(60, 80);
  }

  /** Takes as many as it may have, and acknowledges none. */
  async keep(queue, prefetch) {
    await this.ask(60, 10, [u32(0), u16(prefetch), Buffer.from([0])]);
    await this.ask(60, 20, [u16(0), short(queue), short(''), Buffer.from([0]), none]);
    await this.until(() => this.delivered >= prefetch);
  }

  end() {
    this.socket.destroy();
  }
}
