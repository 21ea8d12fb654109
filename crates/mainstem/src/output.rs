//! What commands print on standard output, and say on stderr. Whoever reads it may have seen enough (`mainstem topic list | head -1`): then the rest is not
//! written, and that is no error. Any other trouble is one: what could not be written to a file on a full disk is missed by somebody.

use std::io::{self, ErrorKind, Write};

/// Does somebody still read?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    Listens,
    Gone,
}

/// Takes the end of a reader for no error.
fn outcome(written: io::Result<()>) -> anyhow::Result<Reader> {
    match written {
        Ok(()) => Ok(Reader::Listens),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(anyhow::Error::new(error).context("standard output")),
    }
}

/// Prints bytes as they are.
///
/// # Errors
/// They cannot be written, and not because nobody reads any more.
pub fn print_bytes(bytes: &[u8]) -> anyhow::Result<Reader> {
    let mut out = io::stdout().lock();
    outcome(out.write_all(bytes).and_then(|()| out.flush()))
}

/// Prints text.
///
/// # Errors
/// As [`print_bytes`].
pub fn print(text: &str) -> anyhow::Result<Reader> {
    print_bytes(text.as_bytes())
}

/// Says something to who started this, on stderr; if that cannot be written nobody can be told.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "mainstem: {text}");
}

/// An error and what it came of, each once: some say in their own words what the next one says.
pub fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        match (text.is_empty(), text.contains(&cause)) {
            (true, _) => text = cause,
            (false, true) => {}
            (false, false) => text.push_str(&format!(": {cause}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_error_came_of_is_told_once() {
        let error = || anyhow::Error::new(io::Error::from(ErrorKind::NotFound));
        assert_eq!(told(&error().context("--config /nope")), "--config /nope: entity not found");
        assert_eq!(told(&error().context("--config /nope: entity not found")), "--config /nope: entity not found");
        assert_eq!(told(&error().context("a").context("b")), "b: a: entity not found");
    }

    #[test]
    fn a_reader_who_has_seen_enough_is_no_error_and_a_full_disk_is_one() {
        assert_eq!(outcome(Ok(())).expect("written"), Reader::Listens);
        assert_eq!(outcome(Err(ErrorKind::BrokenPipe.into())).expect("no error"), Reader::Gone);
        let full = outcome(Err(ErrorKind::StorageFull.into())).expect_err("an error");
        assert!(format!("{full:#}").starts_with("standard output: "), "{full:#}");
    }
}
