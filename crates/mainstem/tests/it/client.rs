//! The command line against brokers that do not answer as they should.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// Somebody who answers all requests alike, and tells their first lines.
fn answering(answer: &'static str) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let (tell, asked) = channel();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.expect("a connection");
            let mut request = [0; 1 << 14];
            let length = socket.read(&mut request).unwrap_or(0);
            let text = String::from_utf8_lossy(&request[..length]);
            if tell.send(text.lines().next().unwrap_or_default().to_owned()).is_err()
                || socket.write_all(answer.as_bytes()).is_err()
            {
                return;
            }
        }
    });
    (address, asked)
}

fn run(address: SocketAddr, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstem"));
    command
        .args(arguments)
        .args(["--admin", &address.to_string()])
        .env_remove("MAINSTEM_OPERATOR")
        .env_remove("MAINSTEM_OPERATOR_PASS");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    // A command that does not read its input has closed it.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

#[test]
fn a_broken_answer_is_no_empty_list() {
    let (address, _asked) = answering(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4000\r\n\r\n{\"items\":[{\"name\":",
    );
    let done = run(address, &["topic", "list"], "");
    assert!(!done.status.success() && String::from_utf8_lossy(&done.stderr).contains("broke off"), "{done:?}");
}

#[test]
fn another_server_has_reloaded_nothing() {
    let (address, _asked) = answering("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>");
    let done = run(address, &["reload"], "");
    assert!(!done.status.success() && String::from_utf8_lossy(&done.stderr).contains("no broker"), "{done:?}");
}

#[test]
fn a_user_who_may_be_there_is_not_overwritten() {
    let (address, asked) = answering(
        "HTTP/1.1 503 Service Unavailable\r\n\r\n{\"error\":\"busy\",\"reason\":\"too much to do\",\"field\":null}",
    );
    let done = run(address, &["user", "add", "anna", "--tag", "administrator"], "secret\n");
    assert!(!done.status.success() && String::from_utf8_lossy(&done.stderr).contains("too much to do"), "{done:?}");
    assert!(asked.try_iter().all(|line| line.starts_with("GET ")), "nothing was changed");
}
