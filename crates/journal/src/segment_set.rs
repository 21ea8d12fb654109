//! The set of sealed segments in which a log has records: a bitmap that starts at its first member.

/// A set of segment sequences. Cost: one word per 64 segments between the first and the last member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentSet {
    first_word: u64,
    words: Vec<u64>,
}

impl SegmentSet {
    /// Adds a segment.
    pub fn insert(&mut self, segment: u64) {
        let word = segment / 64;
        if self.words.is_empty() {
            self.first_word = word;
        }
        while word < self.first_word {
            self.words.insert(0, 0);
            self.first_word -= 1;
        }
        let at = (word - self.first_word) as usize;
        if at >= self.words.len() {
            self.words.resize(at + 1, 0);
        }
        self.words[at] |= 1 << (segment % 64);
    }

    /// Takes a segment out.
    pub fn remove(&mut self, segment: u64) {
        let word = segment / 64;
        let Some(at) = word.checked_sub(self.first_word) else { return };
        if let Some(bits) = self.words.get_mut(at as usize) {
            *bits &= !(1 << (segment % 64));
        }
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
        let leading = self.words.iter().take_while(|bits| **bits == 0).count();
        if leading > 0 {
            self.words.drain(..leading);
            self.first_word += leading as u64;
        }
        if self.words.is_empty() {
            *self = Self::default();
        }
    }

    /// All members, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.words.iter().enumerate().flat_map(move |(at, bits)| {
            let word = (self.first_word + at as u64) * 64;
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word + bit)
        })
    }

    /// The raw bitmap for the checkpoint: first word's number and the words.
    pub fn words(&self) -> (u64, &[u64]) {
        (self.first_word, &self.words)
    }

    /// Rebuilds it from a checkpoint.
    pub fn from_words(first_word: u64, words: Vec<u64>) -> Self {
        if words.is_empty() { Self::default() } else { Self { first_word, words } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn equals_a_plain_set() {
        let (mut clever, mut plain, mut seed) = (SegmentSet::default(), BTreeSet::new(), 1u64);
        for _ in 0..5_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let segment = 500 + (seed >> 40) % 300;
            if seed >> 20 & 1 == 0 {
                clever.insert(segment);
                plain.insert(segment);
            } else {
                clever.remove(segment);
                plain.remove(&segment);
            }
            assert_eq!(clever.iter().any(|member| member == segment), plain.contains(&segment));
        }
        assert!(clever.iter().eq(plain.iter().copied()));
        let (first, words) = clever.words();
        assert_eq!(SegmentSet::from_words(first, words.to_vec()), clever);
    }
}
