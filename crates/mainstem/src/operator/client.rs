//! A client of the administration port: one request a connection, JSON both ways.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::cli::NodeArguments;

/// How long a broker may take to be reached, and to answer.
const CONNECT_MAX: Duration = Duration::from_secs(5);
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// A broker, and who asks it.
pub struct Node {
    shown: String,
    address: SocketAddr,
    authorization: String,
}

impl Node {
    /// The broker that the command line names.
    ///
    /// # Errors
    /// No such address; a password file that cannot be read.
    pub fn of(arguments: &NodeArguments) -> anyhow::Result<Self> {
        let shown = arguments.admin.clone();
        let mut addresses = shown.to_socket_addrs().with_context(|| format!("--admin {shown}: write HOST:PORT, like 127.0.0.1:8160"))?;
        let address = addresses.next().ok_or_else(|| anyhow!("--admin {shown}: no such host"))?;
        let password = match &arguments.password_file {
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| format!("--password-file {}", path.display()))?;
                text.lines().next().unwrap_or_default().to_owned()
            }
            None => std::env::var("MAINSTEM_OPERATOR_PASS").unwrap_or_else(|_| "guest".to_owned()),
        };
        let authorization = STANDARD.encode(format!("{}:{password}", arguments.user));
        Ok(Self { shown, address, authorization })
    }

    /// Does anybody answer there?
    pub fn is_there(&self) -> bool {
        TcpStream::connect_timeout(&self.address, CONNECT_MAX).is_ok()
    }

    /// Orders something.
    ///
    /// # Errors
    /// Nobody is there; the broker's reason why it does not do it.
    pub fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.ask("POST", path, &if body.is_null() { String::new() } else { body.to_string() })
    }

    /// Asks for something.
    ///
    /// # Errors
    /// As [`Node::post`].
    pub fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.ask("GET", path, "")
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> anyhow::Result<Value> {
        let Self { shown, address, authorization } = self;
        let mut socket = TcpStream::connect_timeout(address, CONNECT_MAX)
            .with_context(|| format!("no broker answers at {shown}: --admin names the address of its administration port"))?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Basic {authorization}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        socket.write_all(head.as_bytes()).and_then(|()| socket.write_all(body.as_bytes())).with_context(|| shown.clone())?;
        let mut answer = Vec::new();
        socket.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).with_context(|| format!("{shown} does not answer"))?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| anyhow!("{shown} does not speak HTTP"))?;
        let status: u16 = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        let value: Value = serde_json::from_str(body).unwrap_or(Value::Null);
        match status {
            200..=299 => Ok(value),
            401 => bail!("{shown} refuses: user and password are not those of an administrator (--user, MAINSTEM_OPERATOR_PASS, --password-file)"),
            _ => bail!("{shown} refuses: {}", value["reason"].as_str().map_or_else(|| format!("status {status}"), str::to_owned)),
        }
    }
}
