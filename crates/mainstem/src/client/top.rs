//! `mainstem top`: what the node does, live. On a terminal the screen is drawn anew with each look, and `q` ends it; where the output is no
//! terminal each look is a line.
//!
//! Rates are those of the command itself: what the broker's counts grew by from look to look.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::bail;
use serde_json::Value;

use super::Session;
use super::table::{self, Column, Form, at, bytes};
use crate::output::{self, Reader};

pub const EXAMPLES: &str = "Examples:
  mainstem top
  mainstem top --every 5 | tee looks.txt";

/// Rows of each table.
const ROWS: usize = 8;
/// Width of a bar of memory.
const BAR: usize = 40;

const TOPICS: &[Column] = &[
    ("TOPIC", "name", Form::Text),
    ("PARTITIONS", "partitions", Form::Count),
    ("RECORDS", "records", Form::Count),
    ("SIZE", "bytes", Form::Bytes),
    ("IN", "rates.in_records", Form::Rate),
];

const QUEUES: &[Column] = &[
    ("QUEUE", "name", Form::Text),
    ("READY", "ready", Form::Count),
    ("UNACKED", "unacknowledged", Form::Count),
    ("CONSUMERS", "consumers", Form::Count),
    ("IN", "rates.in", Form::Rate),
    ("OUT", "rates.out", Form::Rate),
];

const CONNECTIONS: &[Column] = &[
    ("CONNECTION", "address", Form::Text),
    ("PROTOCOL", "protocol", Form::Text),
    ("CLIENT", "client_id", Form::Text),
    ("IN", "rates.in_bytes", Form::ByteRate),
    ("OUT", "rates.out_bytes", Form::ByteRate),
];

/// Counts of a look, to be compared with those of the next.
struct Look {
    at: Instant,
    found: Value,
}

impl Look {
    fn take(session: &Session) -> anyhow::Result<Self> {
        let (at, found) = (Instant::now(), session.client.get("/v1/overview")?);
        if found["totals"].is_null() {
            bail!("what the node does is for users with tag monitoring or administrator");
        }
        Ok(Self { at, found })
    }

    /// Growth of a count in a second since another look.
    fn rate(&self, before: &Self, name: &str) -> f64 {
        let count = |look: &Self| at(&look.found, "totals")[name].as_f64().unwrap_or(0.0);
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(0.001);
        (count(self) - count(before)).max(0.0) / seconds
    }
}

/// A line with the most important.
fn line(look: &Look, before: &Look) -> String {
    let number = |path: &str| at(&look.found, path).as_f64().unwrap_or(0.0);
    format!(
        "{}  in {}/s  out {}/s  {:.0} records/s  {:.0} published/s  {:.0} delivered/s  {} connections  {} resident",
        table::time(number("now_at") as i64),
        bytes(look.rate(before, "in_bytes")),
        bytes(look.rate(before, "out_bytes")),
        look.rate(before, "kafka_in_records"),
        look.rate(before, "amqp_published"),
        look.rate(before, "amqp_delivered"),
        number("counts.connections"),
        bytes(number("memory.resident_bytes")),
    )
}

fn bar(part: f64) -> String {
    let full = (part.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    format!("[{}{}] {:.0} %", "#".repeat(full), ".".repeat(BAR - full), part * 100.0)
}

fn items(session: &Session, path: &str) -> Vec<Value> {
    // What may not be seen is left out.
    let found = session.client.get(path).unwrap_or(Value::Null);
    found["items"].as_array().cloned().unwrap_or_default()
}

/// The screen.
fn screen(session: &Session, look: &Look, before: &Look) -> String {
    let found = &look.found;
    let number = |path: &str| at(found, path).as_f64().unwrap_or(0.0);
    let mut out = format!(
        "Mainstem {} at {}  {}  up {}    q: end\n\n",
        at(found, "version").as_str().unwrap_or_default(),
        session.client.place(),
        at(found, "phase").as_str().unwrap_or_default(),
        table::duration(number("uptime_ms")),
    );
    let rates = [
        ("in", "in_bytes", true),
        ("out", "out_bytes", true),
        ("records", "kafka_in_records", false),
        ("published", "amqp_published", false),
        ("delivered", "amqp_delivered", false),
        ("acknowledged", "amqp_acknowledged", false),
    ];
    for (title, name, of_bytes) in rates {
        let rate = look.rate(before, name);
        out.push_str(&format!(
            "{title} {}   ",
            if of_bytes { format!("{}/s", bytes(rate)) } else { format!("{rate:.0}/s") }
        ));
    }
    let (resident, budget) = (number("memory.resident_bytes"), number("memory.budget_bytes").max(1.0));
    out.push_str(&format!("\nmemory  {}  {} of {}\n", bar(resident / budget), bytes(resident), bytes(budget)));
    let uses: Vec<String> = at(found, "memory.uses")
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| {
            format!("{} {}", one["name"].as_str().unwrap_or_default(), bytes(one["bytes"].as_f64().unwrap_or(0.0)))
        })
        .collect();
    out.push_str(&format!("        {}\n", uses.join("  ")));
    out.push_str(&format!(
        "disk    {} of journals, {} free, {} connections, {} groups\n",
        bytes(number("disk.journal_bytes")),
        bytes(number("disk.free_bytes")),
        number("counts.connections"),
        number("counts.groups"),
    ));
    for warning in at(found, "warnings").as_array().into_iter().flatten() {
        out.push_str(&format!("! {}\n", table::plain(warning["text"].as_str().unwrap_or_default())));
    }
    let tables = [
        ("/v1/topics?sort=-rates.in_records", TOPICS),
        ("/v1/queues?sort=-messages", QUEUES),
        ("/v1/connections?sort=-rates.in_bytes", CONNECTIONS),
    ];
    for (path, columns) in tables {
        let rows = items(session, &format!("{path}&limit={ROWS}"));
        if !rows.is_empty() {
            out.push_str(&format!("\n{}", table::list(&rows, columns)));
        }
    }
    out
}

/// The terminal while the screen is ours: keys come one by one, and what was there before comes back in the end.
struct Terminal {
    before: libc::termios,
}

impl Terminal {
    fn take() -> Option<Self> {
        // SAFETY: an all-zero termios is a valid value to be overwritten; the descriptor is that of standard input.
        let before = unsafe {
            let mut before: libc::termios = std::mem::zeroed();
            if libc::tcgetattr(libc::STDIN_FILENO, &raw mut before) != 0 {
                return None;
            }
            let mut raw = before;
            raw.c_lflag &= !(libc::ECHO | libc::ICANON);
            libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &raw const raw);
            before
        };
        // The other screen, without a cursor.
        let _ = output::print("\x1b[?1049h\x1b[?25l");
        Some(Self { before })
    }

    /// Rows and columns.
    fn size() -> (usize, usize) {
        // SAFETY: an all-zero winsize is a valid value to be overwritten.
        let size = unsafe {
            let mut size: libc::winsize = std::mem::zeroed();
            libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size);
            size
        };
        let or = |count: u16, otherwise: usize| if count == 0 { otherwise } else { usize::from(count) };
        (or(size.ws_row, 24), or(size.ws_col, 80))
    }

    fn draw(text: &str) -> std::io::Result<()> {
        let (rows, columns) = Self::size();
        let lines = text.lines().take(rows).map(|line| line.chars().take(columns).collect::<String>());
        let mut out = std::io::stdout().lock();
        write!(out, "\x1b[H{}\x1b[J", lines.map(|line| format!("{line}\x1b[K")).collect::<Vec<_>>().join("\r\n"))?;
        out.flush()
    }

    /// Waits for the next look; true: somebody wants to end it.
    fn wait(until: Instant) -> bool {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut asked = libc::pollfd { fd: libc::STDIN_FILENO, events: libc::POLLIN, revents: 0 };
            // SAFETY: one descriptor, which is there.
            let ready = unsafe { libc::poll(&raw mut asked, 1, left.as_millis().min(60_000) as libc::c_int) };
            if ready <= 0 {
                return false;
            }
            let mut key = [0_u8; 1];
            // SAFETY: the buffer has room for one byte.
            let read = unsafe { libc::read(libc::STDIN_FILENO, key.as_mut_ptr().cast(), 1) };
            if read <= 0 || matches!(key[0], b'q' | b'Q' | 0x1b | 0x03) {
                return true;
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = output::print("\x1b[?25h\x1b[?1049l");
        // SAFETY: the value is what the terminal had.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &raw const self.before) };
    }
}

pub fn run(session: &Session, every: u64) -> anyhow::Result<()> {
    let pause = Duration::from_secs(every);
    let mut before = Look::take(session)?;
    let on_screen = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let terminal = if on_screen && !session.json { Terminal::take() } else { None };
    loop {
        if terminal.is_some() {
            let wait =
                if before.at.elapsed() < Duration::from_millis(500) { Duration::from_millis(500) } else { pause };
            if Terminal::wait(Instant::now() + wait) {
                return Ok(());
            }
        } else {
            std::thread::sleep(pause);
        }
        let look = Look::take(session)?;
        if terminal.is_some() {
            Terminal::draw(&screen(session, &look, &before))?;
        } else {
            let shown = if session.json { look.found.to_string() } else { line(&look, &before) };
            if output::print(&format!("{shown}\n"))? == Reader::Gone {
                return Ok(());
            }
        }
        before = look;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rates_are_what_counts_grew_by() {
        let start = Instant::now();
        let look = |after: u64, count: u64| Look {
            at: start + Duration::from_secs(after),
            found: json!({"now_at": 0, "totals": {"in_bytes": count}, "counts": {"connections": 2}, "memory": {"resident_bytes": 2048}}),
        };
        let (before, after) = (look(0, 1000), look(2, 5096));
        assert!((after.rate(&before, "in_bytes") - 2048.0).abs() < 0.001);
        assert!((before.rate(&after, "in_bytes")).abs() < 0.001, "a restart is no rate");
        let shown = line(&after, &before);
        assert!(
            shown.contains("in 2.0 KiB/s") && shown.contains("2 connections") && shown.contains("2.0 KiB resident"),
            "{shown}"
        );
        assert_eq!(bar(0.5), format!("[{}{}] 50 %", "#".repeat(20), ".".repeat(20)));
    }
}
