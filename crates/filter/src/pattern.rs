//! Patterns of LIKE: `%` stands for any characters, `_` for one. Matching takes at most the product of both lengths in steps; the
//! length of a pattern is bounded.

/// Characters of a pattern.
pub(crate) const PATTERN_CHARS_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Byte(u8),
    /// One character of UTF-8, or one byte that is none.
    One,
    /// Any number of bytes.
    Many,
}

/// A pattern, ready to be asked.
#[derive(Debug)]
pub(crate) struct Pattern(Vec<Step>);

impl Pattern {
    /// `None`: it ends with the character that takes the meaning from the next one, or that is followed by one without a meaning.
    pub fn new(text: &str, escape: Option<char>) -> Option<Self> {
        let mut steps = Vec::with_capacity(text.len());
        let bytes = |steps: &mut Vec<Step>, one: char| {
            steps.extend(one.encode_utf8(&mut [0; 4]).bytes().map(Step::Byte));
        };
        let mut chars = text.chars();
        while let Some(one) = chars.next() {
            match one {
                _ if Some(one) == escape => {
                    let next = chars.next().filter(|next| matches!(next, '%' | '_') || Some(*next) == escape)?;
                    bytes(&mut steps, next);
                }
                '%' if steps.last() == Some(&Step::Many) => {}
                '%' => steps.push(Step::Many),
                '_' => steps.push(Step::One),
                _ => bytes(&mut steps, one),
            }
        }
        Some(Self(steps))
    }

    pub fn matches(&self, value: &[u8]) -> bool {
        let (mut step, mut at) = (0, 0);
        // Behind the last `%`, and where what it stands for ends.
        let mut again: Option<(usize, usize)> = None;
        loop {
            let taken = match self.0.get(step) {
                Some(Step::Many) => {
                    again = Some((step + 1, at));
                    Some(0)
                }
                Some(Step::Byte(byte)) => (value.get(at) == Some(byte)).then_some(1),
                Some(Step::One) => one_char(&value[at..]),
                None if at == value.len() => return true,
                None => None,
            };
            match (taken, &mut again) {
                (Some(taken), _) => (step, at) = (step + 1, at + taken),
                (None, Some((behind, end))) if *end < value.len() => {
                    *end += 1;
                    (step, at) = (*behind, *end);
                }
                (None, _) => return false,
            }
        }
    }
}

/// Bytes of the first character, if there is one.
fn one_char(value: &[u8]) -> Option<usize> {
    let length = match value.first()? {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 1,
    };
    let whole = value.get(..length).is_some_and(|bytes| std::str::from_utf8(bytes).is_ok());
    Some(if whole { length } else { 1 })
}
