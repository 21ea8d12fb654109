//! A client of a broker's administration API: one request a connection, JSON both ways. What goes wrong is said with what to do about it.

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
    address: SocketAddr,
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
    // A segment of dots would be taken for a way up.
    if out.bytes().all(|byte| byte == b'.') { out.replace('.', "%2E") } else { out }
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

impl Client {
    /// Of the broker that the command line names.
    ///
    /// # Errors
    /// No such address; a password file that cannot be read.
    pub fn of(target: &Target) -> anyhow::Result<Self> {
        let shown = target.admin.clone();
        let mut addresses = shown.to_socket_addrs().with_context(|| format!("--admin {shown}: write HOST:PORT, like 127.0.0.1:8160"))?;
        let address = addresses.next().ok_or_else(|| anyhow!("--admin {shown}: no such host"))?;
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
        Ok(Self { shown, address, authorization })
    }

    /// Where the broker is.
    pub fn place(&self) -> &str {
        &self.shown
    }

    /// Does anybody answer there?
    pub fn is_there(&self) -> bool {
        TcpStream::connect_timeout(&self.address, CONNECT_MAX).is_ok()
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
            let items = page["items"].as_array().cloned().unwrap_or_default();
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
        let Self { shown, address, authorization } = self;
        let mut socket = TcpStream::connect_timeout(address, CONNECT_MAX).with_context(|| {
            format!("no broker answers at {shown}: start one with `mainstem serve`, or name the address of its administration port with --admin")
        })?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
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
        socket.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).with_context(|| format!("the broker at {shown} does not answer"))?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| anyhow!("{shown} does not speak HTTP: --admin names the administration port"))?;
        let status: u16 = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        let value: Value = if body.is_empty() { Value::Null } else { serde_json::from_str(body).unwrap_or(Value::Null) };
        if (200..300).contains(&status) {
            return Ok(value);
        }
        let said = value["reason"].as_str().map_or_else(|| format!("{shown} answers with status {status}"), str::to_owned);
        let reason = match (status, value["field"].as_str()) {
            (401, _) => format!("{said} (--user, with its password in --password-file or {PASSWORD})"),
            (_, Some(field)) if !said.contains(field) => format!("{field}: {said}"),
            _ => said,
        };
        Err(Refused { status, reason }.into())
    }
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
    fn names_are_one_segment_of_a_path() {
        assert_eq!(segment("a/b c"), "a%2Fb%20c");
        assert_eq!(segment(".."), "%2E%2E");
        assert_eq!(segment("a.b"), "a.b");
        assert_eq!(segment("ä"), "%C3%A4");
        assert_eq!(with_query("/v1/x", &[("a", "1&2"), ("b", "")]), "/v1/x?a=1%262&b=");
    }
}
