//! The bytes of messages: a pool of payloads made once, of random bytes unless the workload says otherwise.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::stamp::seal;
use crate::workload::Workload;

/// A pool never takes more memory than this for each sending thread.
const POOL_BYTES_MAX: usize = 16 << 20;
const POOL_PAYLOADS: usize = 256;

/// Payloads of one sending thread; each is used in turn and stamped in place.
pub struct Pool {
    payloads: Vec<Box<[u8]>>,
    next: usize,
}

impl Pool {
    /// Makes the payloads of a workload. The same seed makes the same bytes.
    ///
    /// # Errors
    /// The payload file is there but has another size than `messageSize`, or cannot be read.
    pub fn new(workload: &Workload, seed: u64) -> Result<Self> {
        let size = workload.message_size as usize;
        if let Some(file) = workload.payload_file.as_ref().filter(|_| !workload.use_randomized_payloads)
            && file.is_file()
        {
            let bytes = fs::read(file).with_context(|| format!("payloadFile {}", file.display()))?;
            ensure!(
                bytes.len() == size,
                "payloadFile {} has {} bytes, messageSize says {size}",
                file.display(),
                bytes.len()
            );
            let mut bytes = bytes.into_boxed_slice();
            seal(&mut bytes);
            return Ok(Self { payloads: vec![bytes], next: 0 });
        }
        let wanted = match workload.randomized_payload_pool_size as usize {
            0 => POOL_PAYLOADS,
            count => count,
        };
        let count = wanted.min(POOL_BYTES_MAX / size).max(1);
        let random = (size as f64 * workload.random_bytes_ratio).round() as usize;
        let mut state = seed ^ 0x6d61_696e_7374_656d;
        let payloads = (0..count).map(|_| payload(size, random, &mut state)).collect();
        Ok(Self { payloads, next: 0 })
    }

    /// The next payload.
    pub fn take(&mut self) -> &mut [u8] {
        self.next = if self.next + 1 < self.payloads.len() { self.next + 1 } else { 0 };
        &mut self.payloads[self.next]
    }
}

/// What a reader of the figures must know of a payload file that is not there.
pub fn remark(workload: &Workload) -> Option<String> {
    let file = workload.payload_file.as_ref().filter(|file| !workload.use_randomized_payloads && !file.is_file())?;
    Some(format!("payloadFile {} is not there: {} random bytes instead", file.display(), workload.message_size))
}

fn payload(size: usize, random: usize, state: &mut u64) -> Box<[u8]> {
    let mut bytes = vec![0; size];
    for chunk in bytes[..random].chunks_mut(8) {
        // xorshift64*
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        let word = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
    seal(&mut bytes);
    bytes.into_boxed_slice()
}

#[cfg(test)]
mod tests;
