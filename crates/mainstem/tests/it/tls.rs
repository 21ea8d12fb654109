//! Files of TLS as a broker finds them: at its start, with a reload, and when somebody asks how long they are good.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::administration::{ask, get};
use crate::certificates::Somebody;
use crate::process::{Process, output, serve};

const DAY: i64 = 86_400;

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// Puts a certificate that is good for so many days, and its key, into a folder.
fn certify(folder: &Path, days: i64) {
    let broker = Somebody::new("broker");
    fs::write(folder.join("certificate"), broker.certificate(&broker, now() - 10 * DAY, now() + days * DAY)).unwrap();
    fs::write(folder.join("key"), broker.key()).unwrap();
}

fn flags(folder: &Path) -> Vec<String> {
    let path = |name: &str| folder.join(name).display().to_string();
    [
        "--kafka-tls".to_owned(),
        "127.0.0.1:0".to_owned(),
        "--tls-certificate".to_owned(),
        path("certificate"),
        "--tls-key".to_owned(),
        path("key"),
    ]
    .into()
}

fn start(folder: &Path) -> Process {
    let flags = flags(folder);
    Process::start(&folder.join("data"), &flags.iter().map(String::as_str).collect::<Vec<_>>())
}

fn reload(process: &Process) -> (u16, Value) {
    let answer = ask(process, "POST", "/v1/reload", &[], "");
    (answer.status, answer.body)
}

/// What the health check of RabbitMQ says.
fn expires_within(process: &Process, when: &str) -> (u16, Value) {
    let answer = ask(
        process,
        "GET",
        &format!("/api/health/checks/certificate-expiration/{when}"),
        &[("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")],
        "",
    );
    (answer.status, answer.body)
}

/// What Prometheus reads, in seconds since 1970.
fn measured(process: &Process) -> Option<f64> {
    let page = process.ask_admin("/metrics").expect("a page");
    page.lines()
        .find_map(|line| line.strip_prefix("mainstem_tls_certificate_expiration_timestamp_seconds{} ")?.parse().ok())
}

#[test]
fn it_is_told_when_certificates_expire() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path(), 10);
    let process = start(folder.path());
    assert_eq!(expires_within(&process, "1/weeks"), (200, json!({"status": "ok"})));
    let (status, told) = expires_within(&process, "1/months");
    assert_eq!((status, &told["status"], &told["reason"]), (503, &json!("failed"), &json!("Certificates expiring")));
    let [listener] = &told["expired"].as_array().unwrap()[..] else { panic!("one listener: {told}") };
    assert!((listener["certfile_expires_on"].as_i64().unwrap() - now() - 10 * DAY).abs() < 600, "{listener}");
    assert!((measured(&process).unwrap() - (now() + 10 * DAY) as f64).abs() < 600.0);
    let listeners = get(&process, "/v1/overview")["listeners"].clone();
    let with_tls = listeners.as_array().unwrap().iter().filter(|one| one["tls"] == true).count();
    assert_eq!(with_tls, 1, "{listeners}");
    certify(folder.path(), 400);
    assert_eq!(reload(&process).0, 200);
    assert_eq!(expires_within(&process, "1/years").0, 200);
    assert!((measured(&process).unwrap() - (now() + 400 * DAY) as f64).abs() < 600.0);
    assert!(process.terminate().1);
    let plain = Process::start(&folder.path().join("other"), &[]);
    assert_eq!(expires_within(&plain, "100/years").0, 200, "there are none");
    assert_eq!(measured(&plain), None);
}

#[test]
fn a_certificate_that_has_expired_is_told_of_and_taken_by_no_reload() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path(), -1);
    let (text, success) = start(folder.path()).terminate();
    let told =
        text.lines().find(|line| line.contains("WARN") && line.contains("--tls-certificate")).unwrap_or_default();
    assert!(success && told.contains("certificate 1 (CN=broker) has expired at 20"), "{text}");
    certify(folder.path(), 10);
    let process = start(folder.path());
    certify(folder.path(), -1);
    let (status, told) = reload(&process);
    assert!(
        status >= 400
            && told["reason"].as_str().unwrap_or_default().contains("certificate 1 (CN=broker) has expired at 20"),
        "{told}"
    );
    assert_eq!(expires_within(&process, "1/weeks").0, 200, "the old one stays");
}

#[test]
fn a_file_that_cannot_be_used_ends_the_start_and_no_broker() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path(), 10);
    let process = start(folder.path());
    fs::write(folder.path().join("key"), Somebody::new("other").key()).unwrap();
    let expected = "the key is another than that of the certificate";
    let (status, told) = reload(&process);
    assert!(status >= 400 && told["reason"].as_str().unwrap_or_default().contains(expected), "{told}");
    assert_eq!(expires_within(&process, "1/weeks").0, 200, "it goes on");
    let flags = flags(folder.path());
    let words = flags
        .iter()
        .map(String::as_str)
        .chain(["--kafka", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--amqp", "none"])
        .collect::<Vec<_>>();
    let done = output(serve(&folder.path().join("third"), &words));
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    let key = folder.path().join("key").display().to_string();
    assert!(
        !done.status.success() && text.contains(expected) && text.contains("--tls-key") && text.contains(&key),
        "{text}"
    );
}
