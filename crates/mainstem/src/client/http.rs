//! A client of a broker's administration API: one request a connection, JSON both ways. What goes wrong is said with what to do about it.

use std::cell::Cell;
use std::io::{BufRead, IsTerminal, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::Value;

/// How long a broker may take to be reached, and to answer.
const CONNECT_MAX: Duration = Duration::from_secs(5);
const ANSWER_MAX: Duration = Duration::from_secs(90);
/// Bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Items of a list that are asked for at once, which is as many as are answered.
const PAGE: usize = 1000;
/// Where a broker is that was not told otherwise.
const PORT: u16 = 8160;
/// The environment variable of the password.
const PASSWORD: &str = "MAINSTEM_OPERATOR_PASS";

/// Which broker, who asks, and how it is printed. A password is in a file, in the environment variable MAINSTEM_OPERATOR_PASS, or asked for; it is no
/// argument, because those can be seen by others of the machine.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// Address of the broker's administration port
    #[arg(long, global = true, value_name = "ADDR", env = "MAINSTEM_ADMIN", default_value = "127.0.0.1:8160")]
    pub admin: String,
    /// Who asks; nobody has to log in on the broker's machine while no user is defined
    #[arg(long, global = true, value_name = "NAME", env = "MAINSTEM_OPERATOR")]
    pub user: Option<String>,
    /// File whose first line is the password [default: MAINSTEM_OPERATOR_PASS, or it is asked for]
    #[arg(long, global = true, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Print JSON as the broker answers it
    #[arg(long, global = true)]
    pub json: bool,
}

/// A broker, and who asks it.
pub struct Client {
    shown: String,
    /// All that the name stands for: a broker need not listen on each.
    addresses: Vec<SocketAddr>,
    /// The one that has answered.
    reached: Cell<Option<SocketAddr>>,
    authorization: Option<String>,
}

/// What a broker says no with.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    pub status: u16,
    pub reason: String,
}

/// A name as a segment of a path.
pub fn segment(name: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    // A segment of dots would be taken for a way up: the API knows it with a backslash before it.
    if matches!(name.trim_start_matches('\\'), "." | "..") { format!("%5C{out}") } else { out }
}

/// The first line of a file, or of what is typed.
pub fn password_of(file: Option<&PathBuf>, prompt: &str) -> anyhow::Result<String> {
    if let Some(path) = file {
        let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
        return Ok(text.lines().next().unwrap_or_default().to_owned());
    }
    if !std::io::stdin().is_terminal() {
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
    }
    eprint!("{prompt}: ");
    let _hidden = Hidden::new();
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    eprintln!();
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// While it lives the terminal does not show what is typed.
struct Hidden(Option<libc::termios>);

impl Hidden {
    fn new() -> Self {
        // SAFETY: an all-zero termios is a valid value to be overwritten; the descriptor is that of standard input.
        unsafe {
            let mut before: libc::termios = std::mem::zeroed();
            if libc::tcgetattr(libc::STDIN_FILENO, &raw mut before) != 0 {
                return Self(None);
            }
            let mut silent = before;
            silent.c_lflag &= !libc::ECHO;
            libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &raw const silent);
            Self(Some(before))
        }
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: as above; the value is what the terminal had.
            unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &raw const *before) };
        }
    }
}

/// Host and port of what `--admin` names: that may be an address as the broker prints it at its start and browsers have it, and a host alone.
fn place_of(admin: &str) -> anyhow::Result<String> {
    if admin.starts_with("https://") {
        bail!("--admin {admin}: the administration port speaks HTTP without TLS: write HOST:PORT, like 127.0.0.1:8160");
    }
    let place = admin.strip_prefix("http://").unwrap_or(admin).trim_end_matches('/');
    let is_whole = place.is_empty() || place.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
    Ok(if is_whole { place.to_owned() } else { format!("{place}:{PORT}") })
}

impl Client {
    /// Of the broker that the command line names.
    ///
    /// # Errors
    /// No such address; a password file that cannot be read.
    pub fn of(target: &Target) -> anyhow::Result<Self> {
        let shown = place_of(&target.admin)?;
        let addresses = shown
            .to_socket_addrs()
            .with_context(|| format!("--admin {shown}: write HOST:PORT, like 127.0.0.1:8160"))?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        if addresses.is_empty() {
            bail!("--admin {shown}: no such host");
        }
        let authorization = match &target.user {
            None if target.password_file.is_some() => bail!("--password-file goes with --user"),
            None => None,
            Some(user) => {
                let of_environment = std::env::var(PASSWORD).ok().filter(|_| target.password_file.is_none());
                let password = match of_environment {
                    Some(password) => password,
                    None => password_of(target.password_file.as_ref(), &format!("Password of {user}"))?,
                };
                Some(STANDARD.encode(format!("{user}:{password}")))
            }
        };
        Ok(Self { shown, addresses, reached: Cell::new(None), authorization })
    }

    /// Where the broker is.
    pub fn place(&self) -> &str {
        &self.shown
    }

    /// Does anybody answer there?
    pub fn is_there(&self) -> bool {
        self.connect().is_ok()
    }

    /// Connects to the address that has answered before, or to the first that does.
    fn connect(&self) -> std::io::Result<(SocketAddr, TcpStream)> {
        let connect = |address: SocketAddr| Ok((address, TcpStream::connect_timeout(&address, CONNECT_MAX)?));
        if let Some(address) = self.reached.get() {
            return connect(address);
        }
        let mut outcome = Err(std::io::ErrorKind::AddrNotAvailable.into());
        for address in &self.addresses {
            outcome = connect(*address);
            if outcome.is_ok() {
                self.reached.set(Some(*address));
                break;
            }
        }
        outcome
    }

    /// # Errors
    /// Nobody is there; [`Refused`].
    pub fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.ask("GET", path, None)
    }

    /// All items of a list.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn list(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<Vec<Value>> {
        let mut found: Vec<Value> = Vec::new();
        loop {
            let (limit, offset) = (PAGE.to_string(), found.len().to_string());
            let paged = [("limit", limit.as_str()), ("offset", offset.as_str())];
            let page = self.get(&with_query(path, query.iter().chain(&paged)))?;
            let items = page["items"].as_array().cloned().ok_or_else(|| self.not_ours())?;
            let more = !items.is_empty();
            found.extend(items);
            if !more || found.len() as u64 >= page["total"].as_u64().unwrap_or(0) {
                return Ok(found);
            }
        }
    }

    /// Asks for a change.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn change(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        self.ask(method, path, body)
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let Self { shown, authorization, .. } = self;
        let (address, mut socket) = self.connect().with_context(|| {
            format!("no broker answers at {shown}: start one with `mainstem serve`, or name the address of its administration port with --admin")
        })?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {}\r\n",
            body.len()
        );
        if !body.is_empty() {
            head.push_str("content-type: application/json\r\n");
        }
        if let Some(authorization) = authorization {
            head.push_str(&format!("authorization: Basic {authorization}\r\n"));
        }
        head.push_str("\r\n");
        head.push_str(&body);
        socket.write_all(head.as_bytes()).with_context(|| shown.clone())?;
        let mut answer = Vec::new();
        socket
            .take(ANSWER_BYTES_MAX + 1)
            .read_to_end(&mut answer)
            .with_context(|| format!("the broker at {shown} does not answer"))?;
        let Answer { status, body } = self.parse(&answer)?;
        let value: Option<Value> = serde_json::from_slice(body).ok();
        match (status, value) {
            (204, _) => Ok(Value::Null),
            (200..300, value) => value.ok_or_else(|| self.not_ours()),
            (_, value) => Err(self.refused(status, &value.unwrap_or_default()).into()),
        }
    }

    /// Takes an answer apart. What has broken off is none: half a list is not to be taken for the list.
    fn parse<'a>(&self, answer: &'a [u8]) -> anyhow::Result<Answer<'a>> {
        let shown = &self.shown;
        if answer.len() as u64 > ANSWER_BYTES_MAX {
            bail!("{shown} answers with more than {} MiB", ANSWER_BYTES_MAX >> 20);
        }
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
        let head = end.and_then(|end| std::str::from_utf8(&answer[..end]).ok());
        let status = head.and_then(|head| head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok());
        let (Some(end), Some(head), Some(status)) = (end, head, status) else {
            bail!("{shown} does not speak HTTP, or has broken off its answer: --admin names the administration port");
        };
        let body = &answer[end + 4..];
        let length = |line: &str| {
            let (name, value) = line.split_once(':')?;
            if name.eq_ignore_ascii_case("content-length") { value.trim().parse::<usize>().ok() } else { None }
        };
        match head.lines().find_map(length) {
            Some(length) if body.len() < length => {
                bail!("the broker at {shown} broke off its answer after {} of {length} bytes", body.len())
            }
            Some(length) => Ok(Answer { status, body: &body[..length] }),
            None => Ok(Answer { status, body }),
        }
    }

    /// Somebody answers who is no broker.
    fn not_ours(&self) -> anyhow::Error {
        anyhow!("what answers at {} is no broker of ours: --admin names the administration port", self.shown)
    }

    /// What a refusal says.
    fn refused(&self, status: u16, value: &Value) -> Refused {
        let shown = &self.shown;
        let said =
            value["reason"].as_str().map_or_else(|| format!("{shown} answers with status {status}"), str::to_owned);
        let reason = match (status, value["field"].as_str()) {
            (401, _) => format!("{said} (--user, with its password in --password-file or {PASSWORD})"),
            (_, Some(field)) => match within(field) {
                name if said.contains(name) => said,
                name => format!("{name}: {said}"),
            },
            _ => said,
        };
        Refused { status, reason }
    }
}

/// A field of a body without what it is in, which nobody has written who uses a command.
fn within(field: &str) -> &str {
    ["set.", "values.", "config."].iter().find_map(|outer| field.strip_prefix(outer)).unwrap_or(field)
}

/// An answer taken apart.
struct Answer<'a> {
    status: u16,
    body: &'a [u8],
}

/// A path with parameters.
pub fn with_query<'q>(path: &str, query: impl IntoIterator<Item = &'q (&'q str, &'q str)>) -> String {
    let mut out = path.to_owned();
    for (name, value) in query {
        out.push(if out.contains('?') { '&' } else { '?' });
        out.push_str(name);
        out.push('=');
        out.push_str(&segment(value));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_is_named_as_it_names_itself_or_shorter() {
        let of = |admin| place_of(admin).map_err(|error| error.to_string());
        for (admin, place) in [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("http://broker:8160/", "broker:8160"),
            ("http://[::1]:8160", "[::1]:8160"),
            ("broker", "broker:8160"),
            ("[::1]", "[::1]:8160"),
            ("http://10.0.0.5", "10.0.0.5:8160"),
        ] {
            assert_eq!(of(admin).as_deref(), Ok(place), "{admin}");
        }
        assert!(of("https://broker:8160").is_err_and(|said| said.contains("without TLS")));
    }

    #[test]
    fn names_are_one_segment_of_a_path() {
        assert_eq!(segment("a/b c"), "a%2Fb%20c");
        assert_eq!([".", "..", "...", "\\..", "\\a"].map(segment), ["%5C.", "%5C..", "...", "%5C%5C..", "%5Ca"]);
        assert_eq!(segment("a.b"), "a.b");
        assert_eq!(segment("ä"), "%C3%A4");
        assert_eq!(with_query("/v1/x", &[("a", "1&2"), ("b", "")]), "/v1/x?a=1%262&b=");
    }

    /// A client of somebody who says that to the first who asks; the address before his is nobody's.
    fn client_of(answer: &'static str) -> Client {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let there = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("somebody asks");
            drop(listener);
            let mut asked = [0; 1 << 12];
            let _ = socket.read(&mut asked);
            let _ = socket.write_all(answer.as_bytes());
        });
        let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
        Client {
            shown: "here".to_owned(),
            addresses: vec![nobody, there],
            reached: Cell::new(None),
            authorization: None,
        }
    }

    #[test]
    fn all_addresses_of_a_name_are_tried_and_the_one_that_answers_is_kept() {
        let client = client_of("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}");
        assert_eq!(client.get("/v1/x").expect("an answer")["a"], 1);
        assert_eq!(client.reached.get(), Some(client.addresses[1]));
        assert!(!client.is_there(), "he has gone, and nobody else is looked for");
    }

    #[test]
    fn what_is_no_whole_answer_is_an_error() {
        let gets = |answer| client_of(answer).get("/v1/x").map_err(|error| error.to_string());
        assert_eq!(gets("HTTP/1.1 204 No Content\r\n\r\n"), Ok(Value::Null));
        for (answer, said) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{\"items\":[", "broke off"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 7", "does not speak HTTP"),
            ("", "does not speak HTTP"),
            ("220 mail\r\n\r\n", "does not speak HTTP"),
            ("HTTP/1.1 200 OK\r\n\r\n{\"items\":[", "no broker"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "no broker"),
            ("HTTP/1.1 200 OK\r\n\r\n<html>", "no broker"),
            ("HTTP/1.1 502 Bad Gateway\r\n\r\n<html>", "status 502"),
            ("HTTP/1.1 409 Conflict\r\n\r\n{\"reason\":\"in use\"}", "in use"),
        ] {
            let error = gets(answer).expect_err(answer);
            assert!(error.contains(said), "{answer:?}: {error}");
        }
        let list = client_of("HTTP/1.1 200 OK\r\n\r\n{\"status\":\"fine\"}").list("/v1/x", &[]);
        assert!(list.is_err_and(|error| error.to_string().contains("no broker")));
    }
}
