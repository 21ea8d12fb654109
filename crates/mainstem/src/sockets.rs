//! Sockets that listen. Connections that they accept have keep-alive from them: a client that has vanished without a word is found after two minutes,
//! whatever its protocol does about that.

use std::io::Result;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// Connections that the system may hold for whoever accepts them.
const BACKLOG: i32 = 1024;
/// A connection on which nothing comes for so long is asked whether anybody is there …
const PROBED_AFTER: Duration = Duration::from_secs(60);
/// … so often, so far apart, before it is given up.
const PROBES: u32 = 6;
const PROBED_EVERY: Duration = Duration::from_secs(10);

/// Takes an address without letting anybody connect.
///
/// # Errors
/// Those of the system.
pub fn bind(address: SocketAddr) -> Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    // Accepted sockets inherit it.
    socket.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(PROBED_AFTER).with_interval(PROBED_EVERY).with_retries(PROBES),
    )?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Lets them connect.
///
/// # Errors
/// Those of the system.
pub fn listen(listener: &TcpListener) -> Result<()> {
    SockRef::from(listener).listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn accepted_connections_find_out_who_has_vanished() {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        listen(&listener).expect("it listens");
        let _client = TcpStream::connect(listener.local_addr().expect("an address")).expect("somebody listens");
        let (accepted, _) = listener.accept().expect("a connection");
        let socket = SockRef::from(&accepted);
        assert!(socket.keepalive().expect("known"));
        #[cfg(target_os = "linux")]
        assert_eq!(
            (
                socket.tcp_keepalive_time().expect("known"),
                socket.tcp_keepalive_interval().expect("known"),
                socket.tcp_keepalive_retries().expect("known")
            ),
            (PROBED_AFTER, PROBED_EVERY, PROBES)
        );
    }
}
