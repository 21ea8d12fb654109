//! Drawing lots for the orders of a plan.

/// A lottery: a small generator, seeded by the caller so that a plan can be repeated.
pub struct Lot(u64);

impl Lot {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// The numbers below `count` in an order drawn by lot.
    pub fn shuffled(&mut self, count: usize) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            numbers.swap(last, (self.0 % (last as u64 + 1)) as usize);
        }
        numbers
    }
}
