//! The node as a service of systemd: what it tells the service manager, and the unit in `packaging/`.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::{PATIENCE, serve};

const UNIT: &str = include_str!("../../../../packaging/mainstem.service");

/// The value of a line of the unit.
fn of_unit(name: &str) -> &'static str {
    UNIT.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
        .unwrap_or_else(|| panic!("{name} in the unit"))
}

#[test]
fn the_service_manager_hears_when_the_node_serves_and_when_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let hear = || {
        let mut message = [0; 512];
        let length = socket.recv(&mut message).expect("a message in time");
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let flags = [
        "--kafka",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--amqp",
        "none",
        "--memory",
        "128MiB",
        "--set",
        "mainstem.shutdown.timeout.ms=60000",
    ];
    let mut command = serve(&folder.path().join("data"), &flags);
    command.env("NOTIFY_SOCKET", &path).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().expect("the binary starts");
    assert!(hear().starts_with("READY=1\n"));
    // SAFETY: a signal to a child that is not reaped yet.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    let told = hear();
    assert!(
        told.starts_with("STOPPING=1\n") && told.ends_with("EXTEND_TIMEOUT_USEC=65000000"),
        "longer than the time that the node gives itself: {told}"
    );
    let done = child.wait_with_output().expect("it ends");
    let printed = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && printed.contains("ready after"), "{printed}");
}

#[test]
fn the_unit_waits_for_both_ends_and_gives_what_the_broker_needs() {
    assert_eq!(of_unit("Type"), "notify");
    let default_ms: u64 = broker::find(broker::BROKER, "mainstem.shutdown.timeout.ms")
        .expect("a setting")
        .default
        .parse()
        .expect("a number");
    assert!(of_unit("TimeoutStopSec").parse::<u64>().expect("seconds") * 1000 > default_ms);
    assert!(of_unit("RestrictAddressFamilies").contains("AF_UNIX"), "the service manager is told by such a socket");
    assert!(of_unit("LimitNOFILE").parse::<u64>().expect("a number") >= 65_536);
}

/// What systemd itself says of the unit, where it is there.
#[test]
fn systemd_takes_the_unit() {
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("mainstem.service");
    // Where the binary is to be there may be none.
    std::fs::write(&unit, UNIT.replace("/usr/bin/mainstem", env!("CARGO_BIN_EXE_mainstem"))).unwrap();
    let analyze = Path::new("/usr/bin/systemd-analyze");
    if !analyze.exists() {
        return;
    }
    let done = Command::new(analyze)
        .args(["verify", "--recursive-errors=no", "--man=no"])
        .arg(&unit)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!said.contains("mainstem.service"), "{said}");
    assert!(done.status.success(), "{said}");
}
