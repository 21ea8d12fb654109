//! Whether somebody at a terminal means it, before data is deleted.

use std::io::{BufRead, IsTerminal};

use anyhow::bail;
use clap::Args;

/// What goes with a command that deletes data.
#[derive(Args, Debug)]
pub struct Sure {
    /// Do not ask first; asked is only at a terminal
    #[arg(short, long)]
    yes: bool,
}

impl Sure {
    /// Asks, where there is somebody to ask. `what`: a question without its mark.
    ///
    /// # Errors
    /// The answer is not yes.
    pub fn ask(&self, what: &str) -> anyhow::Result<()> {
        if self.yes || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Ok(());
        }
        eprint!("{what}? [y/N] ");
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        if is_yes(&answer) { Ok(()) } else { bail!("nothing was done") }
    }
}

fn is_yes(answer: &str) -> bool {
    ["y", "yes"].iter().any(|yes| answer.trim().eq_ignore_ascii_case(yes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        assert!(["y\n", "Y\n", "yes\r\n", " YES"].into_iter().all(is_yes));
        assert!(!["", "\n", "n\n", "yo\n", "orders\n"].into_iter().any(is_yes));
    }
}
