// A real broker for the checks: in a folder of its own, on ports that are free, ended by its process.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// Below those that the system gives to connections, and none twice: a port that was free stays so until the broker has it.
const ports = new Set();

async function freePort() {
  for (;;) {
    const port = 20_000 + Math.floor(Math.random() * 12_000);
    if (ports.has(port)) continue;
    ports.add(port);
    const server = createServer();
    const free = await new Promise((done) => {
      server.once('error', () => done(false));
      server.listen(port, '127.0.0.1', () => server.close(() => done(true)));
    });
    if (free) return port;
  }
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

export class Broker {
  static async start(binary) {
    const broker = new Broker();
    broker.folder = mkdtempSync(join(tmpdir(), 'mainstem-console-'));
    const [kafka, amqp, admin] = [await freePort(), await freePort(), await freePort()].map((port) => `127.0.0.1:${port}`);
    Object.assign(broker, { kafka, amqp, admin, origin: `http://${admin}`, log: '' });
    broker.flags = ['serve', '--data', join(broker.folder, 'data'), '--kafka', kafka, '--amqp', amqp, '--admin', admin, '--memory', '256MiB'];
    broker.binary = binary;
    await broker.begin();
    return broker;
  }

  /** It runs, for the first time or again, where it was. */
  async begin() {
    this.process = spawn(this.binary, this.flags, { stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [this.process.stdout, this.process.stderr]) stream.on('data', (text) => (this.log += text));
    for (let turn = 0; turn < 200; turn += 1) {
      if (this.process.exitCode !== null) break;
      const ready = await fetch(`${this.origin}/health/ready`).catch(() => null);
      if (ready?.ok) return;
      await pause(50);
    }
    throw new Error(`the broker does not start:\n${this.log}`);
  }

  /** A request to /v1, as an administrator once there is one. */
  async ask(method, path, body) {
    const headers = this.basic ? { Authorization: this.basic } : {};
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    const response = await fetch(`${this.origin}/v1${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text === '' ? null : JSON.parse(text);
  }

  as(user, password) {
    this.basic = `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;
  }

  /** Runs kcat with lines as its input; resolves when it ends. */
  kcat(flags, lines = []) {
    return new Promise((done, fail) => {
      const child = spawn('kcat', ['-b', this.kafka, '-q', ...flags], { stdio: ['pipe', 'pipe', 'pipe'] });
      let [out, trouble] = ['', ''];
      child.stdout.on('data', (text) => (out += text));
      child.stderr.on('data', (text) => (trouble += text));
      child.on('error', fail);
      child.on('close', (status) => (status === 0 ? done(out) : fail(new Error(`kcat ${flags.join(' ')}: ${trouble}`))));
      child.stdin.end(lines.map((line) => `${line}\n`).join(''));
    });
  }

  /** A producer that goes on until it is stopped, so many records a second. */
  load(topic, rate) {
    const child = spawn('kcat', ['-b', this.kafka, '-q', '-P', '-t', topic, '-X', 'client.id=loader'], { stdio: ['pipe', 'ignore', 'ignore'] });
    const line = `${JSON.stringify({ order: { id: 1, total: 10 }, filler: 'x'.repeat(400) })}\n`;
    const timer = setInterval(() => child.stdin.write(line.repeat(Math.ceil(rate / 20))), 50);
    child.stdin.on('error', () => {});
    return () => {
      clearInterval(timer);
      child.stdin.end();
      child.kill();
    };
  }

  /** It goes away; its data stay. */
  async stop() {
    const ended = new Promise((done) => this.process.once('close', done));
    if (this.process.exitCode !== null) return;
    this.process.kill('SIGTERM');
    const timer = setTimeout(() => this.process.kill('SIGKILL'), 10_000);
    await ended;
    clearTimeout(timer);
  }

  async end() {
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
