//! Produce requests, built in place: version 8, record batches of format 2 without compression
//! (<https://kafka.apache.org/protocol>, <https://kafka.apache.org/documentation/#recordbatch>).

use record::crc32c;

/// Of the Produce API.
pub const VERSION: i16 = 8;
const PRODUCE: i16 = 0;
const BATCH_HEADER_BYTES: usize = 61;
/// Of a record beyond its value, at most.
const RECORD_OVERHEAD_BYTES: usize = 32;
/// Where the part of a batch begins that its checksum covers.
const CRC_FROM: usize = 21;
/// Random bytes that values are cut from.
const POOL_BYTES: usize = 1 << 22;

/// Builds requests for one topic.
pub struct Requests {
    topic: String,
    partitions: u32,
    record_bytes: usize,
    request_bytes: usize,
    pool: Vec<u8>,
    random: u64,
    correlation: i32,
    /// Of the window, by partition, the next last.
    unsent: Vec<Due>,
}

/// A record that waits to be sent.
struct Due {
    partition: u32,
    key: u64,
    /// In seconds from the start.
    due: f64,
}

fn put_varint(into: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        into.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    into.push(rest as u8);
}

fn varint_bytes(value: usize) -> usize {
    let bits = 64 - ((value as u64) << 1 | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

impl Requests {
    pub fn new(topic: &str, partitions: u32, record_bytes: usize, request_bytes: usize) -> Self {
        let mut requests = Self {
            topic: topic.to_owned(),
            partitions,
            record_bytes,
            request_bytes,
            pool: Vec::with_capacity(POOL_BYTES + record_bytes),
            random: 0x9e37_79b9_7f4a_7c15,
            correlation: 0,
            unsent: Vec::new(),
        };
        while requests.pool.len() < POOL_BYTES + record_bytes {
            let next = requests.next();
            requests.pool.extend_from_slice(&next.to_le_bytes());
        }
        requests
    }

    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Begins a window: records with these due times wait to be sent.
    pub fn begin_window(&mut self, due: impl IntoIterator<Item = f64>) {
        assert!(self.unsent.is_empty(), "a window is sent before the next begins");
        for due in due {
            let key = self.next();
            self.unsent.push(Due { partition: (key % u64::from(self.partitions)) as u32, key, due });
        }
        self.unsent.sort_by_key(|record| std::cmp::Reverse(record.partition));
    }

    /// Puts the next request of the window into `frame`, with as many of its records as it may hold; the due times of these, none when
    /// all are sent.
    pub fn next_request(&mut self, frame: &mut Vec<u8>) -> Option<Vec<f64>> {
        if self.unsent.is_empty() {
            return None;
        }
        // The next to be sent are at the end.
        let mut unsent = std::mem::take(&mut self.unsent);
        let taken = self.build(&unsent, frame);
        let sent = unsent.drain(unsent.len() - taken..).rev().map(|record| record.due).collect();
        self.unsent = unsent;
        Some(sent)
    }

    /// A request with as many of the last records as it may hold, and how many these are.
    fn build(&mut self, records: &[Due], out: &mut Vec<u8>) -> usize {
        out.clear();
        out.reserve(self.request_bytes + (self.request_bytes >> 4));
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&PRODUCE.to_be_bytes());
        out.extend_from_slice(&VERSION.to_be_bytes());
        self.correlation += 1;
        out.extend_from_slice(&self.correlation.to_be_bytes());
        // No client id, no transaction, acks=all, 30 s, one topic.
        out.extend_from_slice(&(-1_i16).to_be_bytes());
        out.extend_from_slice(&(-1_i16).to_be_bytes());
        out.extend_from_slice(&(-1_i16).to_be_bytes());
        out.extend_from_slice(&30_000_i32.to_be_bytes());
        out.extend_from_slice(&1_i32.to_be_bytes());
        out.extend_from_slice(&(self.topic.len() as i16).to_be_bytes());
        out.extend_from_slice(self.topic.as_bytes());
        let count_at = out.len();
        out.extend_from_slice(&[0; 4]);
        let (mut partitions, mut taken) = (0_i32, 0);
        for group in records.chunk_by(|one, other| one.partition == other.partition).rev() {
            let room = self.request_bytes.saturating_sub(out.len() + BATCH_HEADER_BYTES)
                / (self.record_bytes + RECORD_OVERHEAD_BYTES);
            if partitions > 0 && room < group.len() {
                break;
            }
            // A request names a partition once: what does not fit follows in the next.
            let fits = group.len().min(room.max(1));
            self.add_batch(out, &group[group.len() - fits..]);
            partitions += 1;
            taken += fits;
            if fits < group.len() {
                break;
            }
        }
        out[count_at..count_at + 4].copy_from_slice(&partitions.to_be_bytes());
        let length = (out.len() - 4) as i32;
        out[..4].copy_from_slice(&length.to_be_bytes());
        taken
    }

    fn add_batch(&mut self, out: &mut Vec<u8>, group: &[Due]) {
        out.extend_from_slice(&(group[0].partition as i32).to_be_bytes());
        let length_at = out.len();
        out.extend_from_slice(&[0; 4]);
        let at = out.len();
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as i64);
        out.extend_from_slice(&0_i64.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(-1_i32).to_be_bytes());
        out.push(2);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&0_i16.to_be_bytes());
        out.extend_from_slice(&(group.len() as i32 - 1).to_be_bytes());
        out.extend_from_slice(&now.to_be_bytes());
        out.extend_from_slice(&now.to_be_bytes());
        out.extend_from_slice(&(-1_i64).to_be_bytes());
        out.extend_from_slice(&(-1_i16).to_be_bytes());
        out.extend_from_slice(&(-1_i32).to_be_bytes());
        out.extend_from_slice(&(group.len() as i32).to_be_bytes());
        for (number, record) in group.iter().rev().enumerate() {
            let key = record.key.to_be_bytes();
            let body =
                1 + 1 + varint_bytes(number) + 1 + key.len() + varint_bytes(self.record_bytes) + self.record_bytes + 1;
            put_varint(out, body as i64);
            out.extend_from_slice(&[0, 0]);
            put_varint(out, number as i64);
            put_varint(out, key.len() as i64);
            out.extend_from_slice(&key);
            put_varint(out, self.record_bytes as i64);
            let from = (self.next() as usize) % POOL_BYTES;
            out.extend_from_slice(&self.pool[from..from + self.record_bytes]);
            out.push(0);
        }
        let bytes = (out.len() - at) as i32;
        out[length_at..length_at + 4].copy_from_slice(&bytes.to_be_bytes());
        out[at + 8..at + 12].copy_from_slice(&(bytes - 12).to_be_bytes());
        let crc = crc32c(&out[at + CRC_FROM..]);
        out[at + 17..at + 21].copy_from_slice(&crc.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_wire::produce::ProduceRequest;
    use kafka_wire::{Reader, RequestHeader};

    fn window(requests: &mut Requests, due: Vec<f64>) -> Vec<(Vec<u8>, Vec<f64>)> {
        requests.begin_window(due);
        let mut frame = Vec::new();
        std::iter::from_fn(|| requests.next_request(&mut frame).map(|sent| (frame.clone(), sent))).collect()
    }

    #[test]
    fn requests_hold_every_record_once_in_valid_batches() {
        let mut requests = Requests::new("topic", 7, 300, 4_000);
        let due: Vec<f64> = (0..100).map(f64::from).collect();
        let built = window(&mut requests, due.clone());
        assert!(built.len() > 5, "{} requests of 4,000 bytes", built.len());
        let (mut seen, mut records) = (Vec::new(), 0);
        for (frame, sent) in built {
            let (header, mut reader): (RequestHeader, Reader) =
                RequestHeader::decode(bytes::Bytes::from(frame).slice(4..)).expect("a header");
            assert_eq!((header.api_key, header.api_version), (PRODUCE, VERSION));
            let request = ProduceRequest::decode(&mut reader, VERSION).expect("a request");
            for partition in &request.topic_data[0].partition_data {
                let batch = partition.records.as_ref().expect("records").0.concat();
                let found = record::validate_produced(&batch, usize::MAX).expect("a valid batch");
                assert!(partition.index < 7);
                records += i64::from(found.records_count);
                assert_eq!(
                    record::records(&batch).expect("records")[0].value.as_ref().map(|value| value.len()),
                    Some(300)
                );
            }
            seen.extend(sent);
        }
        seen.sort_by(f64::total_cmp);
        assert_eq!((seen, records), (due, 100));
    }

    #[test]
    fn the_records_of_one_partition_are_spread_over_requests() {
        let built = window(&mut Requests::new("topic", 1, 1_000, 10_000), vec![0.0; 100]);
        assert!(built.iter().all(|(frame, _)| frame.len() <= 10_000), "no longer than allowed");
        assert_eq!(built.iter().map(|(_, sent)| sent.len()).sum::<usize>(), 100);
    }
}
