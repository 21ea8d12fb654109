//! Patterns of LIKE: `%` stands for any characters, `_` for one. All ways in which a text may begin the pattern are followed at once, a bit
//! each, so that a character of the text costs the same whatever came before: no pattern takes longer than length times length / 64.
//!
//! Bit *n* of the set of states says: the characters so far may be the first *n* steps. A text that is not UTF-8 has characters all the same: each
//! byte that belongs to none is one, which only `_` and `%` stand for.

use hashbrown::HashMap;

/// Characters of a pattern.
pub(crate) const PATTERN_CHARS_MAX: usize = 256;
/// Words of a set: a state before each step, and the end.
const WORDS_MAX: usize = PATTERN_CHARS_MAX / 64 + 1;

/// A set of steps or states.
type Set = [u64; WORDS_MAX];

/// A pattern, ready to be asked.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// Characters and `_`, without `%`.
    steps: usize,
    /// Steps that take a character: first those that take any, then for each character of the pattern these and its own.
    takes: Vec<Set>,
    /// Which of `takes` counts, by ASCII character.
    ascii: Box<[u16; 128]>,
    /// The same of other characters.
    others: HashMap<char, u16>,
    /// States in which `%` takes what comes.
    stays: Set,
}

fn add(set: &mut Set, number: usize) {
    set[number / 64] |= 1 << (number % 64);
}

fn has(set: &Set, number: usize) -> bool {
    set[number / 64] >> (number % 64) & 1 == 1
}

impl Pattern {
    /// Of at most [`PATTERN_CHARS_MAX`] characters. `None`: it ends with the character that takes the meaning from the next one, or that is
    /// followed by one without a meaning.
    pub fn new(text: &str, escape: Option<char>) -> Option<Self> {
        let (takes, ascii) = (vec![Set::default()], Box::new([0; 128]));
        let mut pattern = Self { steps: 0, takes, ascii, others: HashMap::new(), stays: Set::default() };
        let mut chars = text.chars();
        while let Some(one) = chars.next() {
            match one {
                _ if Some(one) == escape => {
                    let next = chars.next().filter(|next| matches!(next, '%' | '_') || Some(*next) == escape)?;
                    pattern.take(next);
                }
                '%' => add(&mut pattern.stays, pattern.steps),
                '_' => {
                    add(&mut pattern.takes[0], pattern.steps);
                    pattern.steps += 1;
                }
                _ => pattern.take(one),
            }
        }
        let any = pattern.takes[0];
        for takes in &mut pattern.takes {
            takes.iter_mut().zip(any).for_each(|(takes, any)| *takes |= any);
        }
        Some(pattern)
    }

    /// The next step takes this character.
    fn take(&mut self, one: char) {
        let place = match self.ascii.get_mut(one as usize) {
            Some(place) => place,
            None => self.others.entry(one).or_default(),
        };
        if *place == 0 {
            // At most one for each character of the pattern.
            *place = self.takes.len() as u16;
            self.takes.push(Set::default());
        }
        add(&mut self.takes[usize::from(*place)], self.steps);
        self.steps += 1;
    }

    /// What it takes for a value of so many bytes.
    pub fn steps(&self, length: usize) -> usize {
        2 + length.saturating_mul(self.words())
    }

    /// Words of a set that count.
    fn words(&self) -> usize {
        self.steps / 64 + 1
    }

    pub fn matches(&self, value: &[u8]) -> bool {
        let words = self.words();
        let mut states = Set::default();
        add(&mut states, 0);
        for one in Chars(value) {
            if has(&states, self.steps) && has(&self.stays, self.steps) {
                return true;
            }
            let place = one.map_or(0, |one| match self.ascii.get(one as usize) {
                Some(place) => *place,
                None => self.others.get(&one).copied().unwrap_or(0),
            });
            let takes = &self.takes[usize::from(place)];
            let (mut carry, mut alive) = (0, 0);
            for word in 0..words {
                let moved = states[word] & takes[word];
                states[word] = moved << 1 | carry | states[word] & self.stays[word];
                carry = moved >> 63;
                alive |= states[word];
            }
            if alive == 0 {
                return false;
            }
        }
        has(&states, self.steps)
    }
}

/// The characters of a text; `None` for a byte that belongs to none.
struct Chars<'a>(&'a [u8]);

impl Iterator for Chars<'_> {
    type Item = Option<char>;

    fn next(&mut self) -> Option<Self::Item> {
        let length = match self.0.first()? {
            byte @ 0..=0x7f => {
                self.0 = &self.0[1..];
                return Some(Some(char::from(*byte)));
            }
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            _ => 4,
        };
        let found =
            self.0.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok()).and_then(|text| text.chars().next());
        self.0 = &self.0[found.map_or(1, char::len_utf8)..];
        Some(found)
    }
}
