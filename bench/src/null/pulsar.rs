//! Pulsar for producers: any topic exists, and this server owns it.
//!
//! Frames (<https://pulsar.apache.org/docs/developing-binary-protocol/>, fields by the `PulsarApi.proto` of the same
//! project) carry a command in protobuf and, for SEND, metadata and payload behind it, which are not looked at:
//!
//! ```text
//! frame    u32 bytes that follow, u32 bytes of the command, command, [metadata and payload]
//! command  field 1: type; field of the type's own number: what it says, a message
//! ```
//!
//! All that is needed of any message are fields 1 to 7 where they are numbers. Every SEND gets its receipt.

use std::io::Write;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};

use super::scan::Scan;
use super::{MESSAGE_BYTES_MAX, Options, Session};

const CONNECT: u64 = 2;
const CONNECTED: u64 = 3;
const PRODUCER: u64 = 5;
const SEND: u64 = 6;
const SEND_RECEIPT: u64 = 7;
const SUCCESS: u64 = 13;
const CLOSE_PRODUCER: u64 = 15;
const PRODUCER_SUCCESS: u64 = 17;
const PING: u64 = 18;
const PONG: u64 = 19;
const PARTITIONED_METADATA: u64 = 21;
const PARTITIONED_METADATA_RESPONSE: u64 = 22;
const LOOKUP: u64 = 23;
const LOOKUP_RESPONSE: u64 = 24;

const COMMAND_BYTES_MAX: usize = 64 << 10;
const PROTOCOL_VERSION: u64 = 19;

/// One connection of a producer.
pub struct Pulsar {
    /// 0 says that topics have none.
    partitions: u64,
    address: SocketAddr,
    entries: u64,
    /// The receipt that is due when the payload has passed.
    due: Option<Receipt>,
}

struct Receipt {
    producer: u64,
    sequence: u64,
    highest_sequence: u64,
}

impl Session for Pulsar {
    fn step(&mut self, input: &[u8], answers: &mut Vec<u8>) -> Result<Option<usize>> {
        if let Some(receipt) = self.due.take() {
            self.acknowledge(&receipt, answers);
        }
        let mut scan = Scan::new(input);
        let Some(total) = scan.u32() else { return Ok(None) };
        let total = total as usize;
        ensure!((4..=MESSAGE_BYTES_MAX).contains(&total), "a frame of {total} bytes");
        let Some(command) = scan.u32() else { return Ok(None) };
        let command = command as usize;
        ensure!(command <= COMMAND_BYTES_MAX.min(total - 4), "a command of {command} bytes");
        let Some(command) = scan.take(command) else { return Ok(None) };
        self.command(command, answers)?;
        Ok(Some(4 + total))
    }
}

impl Pulsar {
    /// For a client that reached the server at this address.
    pub fn new(options: Options, address: SocketAddr) -> Self {
        let partitions = if options.partitions > 1 { u64::from(options.partitions) } else { 0 };
        Self { partitions, address, entries: 0, due: None }
    }

    fn command(&mut self, command: &[u8], answers: &mut Vec<u8>) -> Result<()> {
        let (kind, said) = said(command).context("a command is cut off")?;
        let fields = numbers(said).context("a command's message is cut off")?;
        match kind {
            SEND => self.due = Some(Receipt { producer: fields[1], sequence: fields[2], highest_sequence: fields[6] }),
            CONNECT => write_command(answers, CONNECTED, |message| {
                write_text(message, 1, b"null");
                write_number(message, 2, PROTOCOL_VERSION);
                write_number(message, 3, MESSAGE_BYTES_MAX as u64);
            }),
            PRODUCER => write_command(answers, PRODUCER_SUCCESS, |message| {
                write_number(message, 1, fields[3]);
                write_text(message, 2, b"null");
                // Minus one: nothing has been sent before.
                write_number(message, 3, u64::MAX);
                write_text(message, 4, &[]);
            }),
            CLOSE_PRODUCER => write_command(answers, SUCCESS, |message| write_number(message, 1, fields[2])),
            PARTITIONED_METADATA => write_command(answers, PARTITIONED_METADATA_RESPONSE, |message| {
                write_number(message, 1, self.partitions);
                write_number(message, 2, fields[2]);
                write_number(message, 3, 0);
            }),
            LOOKUP => self.lookup(fields[2], answers),
            PING => write_command(answers, PONG, |_| {}),
            PONG => {}
            other => bail!("command {other} is not served"),
        }
        Ok(())
    }

    /// Says that this server owns the topic: connect here, with authority.
    fn lookup(&self, request: u64, answers: &mut Vec<u8>) {
        let mut url = Vec::new();
        let _ = write!(url, "pulsar://{}", self.address);
        write_command(answers, LOOKUP_RESPONSE, |message| {
            write_text(message, 1, &url);
            write_number(message, 3, 1);
            write_number(message, 4, request);
            write_number(message, 5, 1);
        });
    }

    fn acknowledge(&mut self, receipt: &Receipt, answers: &mut Vec<u8>) {
        self.entries += 1;
        write_command(answers, SEND_RECEIPT, |message| {
            write_number(message, 1, receipt.producer);
            write_number(message, 2, receipt.sequence);
            write_nested(message, 3, |id| {
                write_number(id, 1, 1);
                write_number(id, 2, self.entries);
            });
            write_number(message, 4, receipt.highest_sequence);
        });
    }
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Shows all fields of a message that are numbers or have a length.
fn visit<'a>(message: &'a [u8], mut see: impl FnMut(u64, Value<'a>)) -> Option<()> {
    let mut scan = Scan::new(message);
    while !scan.is_empty() {
        let key = scan.varint()?;
        match key & 7 {
            0 => see(key >> 3, Value::Number(scan.varint()?)),
            1 => drop(scan.take(8)?),
            2 => {
                let length = usize::try_from(scan.varint()?).ok()?;
                see(key >> 3, Value::Bytes(scan.take(length)?));
            }
            5 => drop(scan.take(4)?),
            _ => return None,
        }
    }
    Some(())
}

/// A command's type and what it says.
fn said(command: &[u8]) -> Option<(u64, &[u8])> {
    let (mut kind, mut field, mut said): (_, _, &[u8]) = (0, 0, &[]);
    visit(command, |number, value| match value {
        Value::Number(value) if number == 1 => kind = value,
        Value::Number(_) => {}
        Value::Bytes(bytes) => (field, said) = (number, bytes),
    })?;
    (field == kind).then_some((kind, said))
}

/// A message's fields below 8 that are numbers, by their numbers.
fn numbers(message: &[u8]) -> Option<[u64; 8]> {
    let mut fields = [0; 8];
    visit(message, |number, value| {
        if let (Value::Number(value), Some(field)) = (value, fields.get_mut(number as usize)) {
            *field = value;
        }
    })?;
    Some(fields)
}

fn write_varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

fn write_number(into: &mut Vec<u8>, field: u64, value: u64) {
    write_varint(into, field << 3);
    write_varint(into, value);
}

fn write_text(into: &mut Vec<u8>, field: u64, text: &[u8]) {
    write_nested(into, field, |into| into.extend_from_slice(text));
}

/// A field with a length of one byte: nothing that is said here, receipts and an address at the most, takes 128 bytes.
fn write_nested(into: &mut Vec<u8>, field: u64, fill: impl FnOnce(&mut Vec<u8>)) {
    write_varint(into, field << 3 | 2);
    let length_at = into.len();
    into.push(0);
    fill(into);
    into[length_at] = (into.len() - length_at - 1) as u8;
}

fn write_command(answers: &mut Vec<u8>, kind: u64, fill: impl FnOnce(&mut Vec<u8>)) {
    let begin = answers.len();
    answers.extend_from_slice(&[0; 8]);
    write_number(answers, 1, kind);
    write_nested(answers, kind, fill);
    let command = (answers.len() - begin - 8) as u32;
    answers[begin..begin + 4].copy_from_slice(&(command + 4).to_be_bytes());
    answers[begin + 4..begin + 8].copy_from_slice(&command.to_be_bytes());
}
