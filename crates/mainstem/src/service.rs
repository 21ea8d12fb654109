//! What the service manager hears of the node, if systemd started it (`Type=notify`): that it serves, and that it ends and how long that may
//! take. Messages are datagrams to the socket that `NOTIFY_SOCKET` names, as `sd_notify(3)` describes; without it nothing is sent.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The environment variable of the socket.
const SOCKET: &str = "NOTIFY_SOCKET";
/// A process that ends as it is when its time is over takes a little longer.
const MARGIN: Duration = Duration::from_secs(5);

/// Who is told.
#[derive(Debug, Default)]
pub struct ServiceManager(Option<OsString>);

/// A path, or with `@` in its place of the first byte a name without a file.
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(socket),
    }
}

impl ServiceManager {
    /// The one that started this process, if it wants to know.
    pub fn of_environment() -> Self {
        Self(std::env::var_os(SOCKET).filter(|socket| !socket.is_empty()))
    }

    /// The node serves.
    pub fn ready(&self) {
        self.tell("READY=1\nSTATUS=serving");
    }

    /// The node ends, which takes no longer than this: the manager's own patience counts from now on, and may be shorter.
    pub fn stopping(&self, within: Duration) {
        self.tell(&format!("STOPPING=1\nSTATUS=ending\nEXTEND_TIMEOUT_USEC={}", (within + MARGIN).as_micros()));
    }

    fn tell(&self, message: &str) {
        let Some(socket) = &self.0 else { return };
        let told =
            address(socket).and_then(|address| UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address));
        if let Err(error) = told {
            tracing::warn!(%error, socket = %socket.display(), "the service manager cannot be told how the node is");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_told_has_a_path_or_a_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let by_path = UnixDatagram::bind(&path).expect("a socket");
        let name = format!("mainstem-test-{}", std::process::id());
        let by_name =
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name")).expect("a socket");
        for (socket, named) in [(by_path, path.into_os_string()), (by_name, format!("@{name}").into())] {
            let manager = ServiceManager(Some(named));
            manager.ready();
            manager.stopping(Duration::from_secs(10));
            let read = || {
                let mut message = [0; 256];
                let length = socket.recv(&mut message).expect("a message");
                String::from_utf8_lossy(&message[..length]).into_owned()
            };
            assert_eq!(read(), "READY=1\nSTATUS=serving");
            assert_eq!(read(), "STOPPING=1\nSTATUS=ending\nEXTEND_TIMEOUT_USEC=15000000");
        }
        ServiceManager(Some("/nowhere/socket".into())).ready();
        ServiceManager(None).ready();
    }
}
