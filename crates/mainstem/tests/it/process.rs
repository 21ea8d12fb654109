//! A broker process for tests: free loopback ports, a folder of its own, ended by its process id.

use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for anything.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A running broker; killed when dropped.
pub struct Process {
    child: Child,
    pub kafka: SocketAddr,
    pub admin: SocketAddr,
}

fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}

/// `mainstem serve` with these flags, not started.
pub fn serve(data: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstem"));
    command.arg("serve").arg("--data").arg(data).args(flags).stdin(Stdio::null());
    command
}

/// Runs to the end, which must come by itself.
pub fn output(mut command: Command) -> Output {
    command.output().expect("the binary runs")
}

impl Process {
    /// Starts a broker and waits until it is ready.
    pub fn start(data: &Path, flags: &[&str]) -> Self {
        Self::start_by(serve(data, flags))
    }

    /// The same, with the limits that a shell sets before, like `ulimit -n 700`.
    pub fn start_limited(data: &Path, limits: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{limits}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_mainstem"), "serve", "--data"]).arg(data).stdin(Stdio::null());
        Self::start_by(command)
    }

    fn start_by(mut command: Command) -> Self {
        let (kafka, admin) = (free_port(), free_port());
        command.args(["--kafka", &kafka.to_string(), "--admin", &admin.to_string(), "--memory", "128MiB", "--amqp", "none"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let mut process = Self { child, kafka, admin };
        let began = Instant::now();
        while !process.ask_admin("/health/ready").is_some_and(|answer| answer.starts_with("HTTP/1.1 200")) {
            assert!(began.elapsed() < PATIENCE, "ready in time");
            assert!(process.child.try_wait().expect("a child").is_none(), "still running");
            std::thread::sleep(Duration::from_millis(5));
        }
        process
    }

    /// A page of the administration; `None` when nobody listens.
    pub fn ask_admin(&self, path: &str) -> Option<String> {
        let mut socket = TcpStream::connect(self.admin).ok()?;
        write!(socket, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// A connection for Kafka frames.
    pub fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.kafka).expect("the data port is open");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, number: i32) {
        // SAFETY: a signal to a child that is not reaped yet.
        unsafe { libc::kill(self.child.id() as i32, number) };
    }

    /// SIGHUP.
    pub fn hang_up(&self) {
        self.signal(libc::SIGHUP);
    }

    /// SIGTERM; returns what it printed, and whether it ended with success.
    pub fn terminate(mut self) -> (String, bool) {
        self.signal(libc::SIGTERM);
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(began.elapsed() < PATIENCE, "ends in time");
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut text = String::new();
        for pipe in [self.child.stdout.take().map(read_all), self.child.stderr.take().map(read_all)] {
            text.push_str(&pipe.unwrap_or_default());
        }
        (text, status.success())
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_all(mut pipe: impl Read + Debug) -> String {
    let mut text = String::new();
    let _ = pipe.read_to_string(&mut text);
    text
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a Kafka request and returns the answer without its length.
pub fn exchange(socket: &mut TcpStream, request: &[u8]) -> Option<Vec<u8>> {
    send(socket, request);
    receive(socket)
}

/// Sends a frame.
pub fn send(socket: &mut TcpStream, request: &[u8]) {
    let mut frame = (request.len() as u32).to_be_bytes().to_vec();
    frame.extend(request);
    socket.write_all(&frame).expect("the broker reads");
}

/// The next answer; `None` when the broker closes.
pub fn receive(socket: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    socket.read_exact(&mut length).ok()?;
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    socket.read_exact(&mut answer).ok()?;
    Some(answer)
}
