//! Seeded values, the same everywhere.

/// SplitMix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `end`, without `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub fn flip(&mut self) -> bool {
        self.next() & 1 == 1
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    /// A length of a short string: the ends more often than the middle.
    pub fn short_length(&mut self) -> usize {
        match self.below(8) {
            0 => 0,
            1 => 255,
            _ => self.below(20),
        }
    }

    /// ASCII and two-byte characters, exactly so many bytes.
    pub fn text(&mut self, bytes: usize) -> String {
        let mut text = String::new();
        while text.len() < bytes {
            if bytes - text.len() >= 2 && self.below(4) == 0 {
                text.push('é');
            } else {
                text.push((b' ' + self.below(95) as u8) as char);
            }
        }
        text
    }

    /// A damaged copy: bytes changed, cut off or added.
    pub fn damaged(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut damaged = bytes.to_vec();
        for _ in 0..=self.below(3) {
            match self.below(4) {
                0 if !damaged.is_empty() => damaged.truncate(self.below(damaged.len())),
                1 => damaged.push(self.next() as u8),
                _ if !damaged.is_empty() => {
                    let at = self.below(damaged.len());
                    damaged[at] = if self.flip() { 0xff } else { damaged[at] ^ (1 << self.below(8)) };
                }
                _ => {}
            }
        }
        damaged
    }
}
