//! The whole program against our own broker: what it measures, what it says, and what it leaves behind.
//!
//! Needs the broker beside it (`make test-build`), or the path of one in `MAINSTEM_BENCH_BROKER`. They measure, so one runs at a
//! time.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What a first run finds out and holds for all others of this build on this machine: that planted faults are found, and the generator's ceilings. It is the
/// `state.json` that their folders begin with.
static KNOWN: OnceLock<Value> = OnceLock::new();
/// A machine may be too restless for a slow-down of a tenth to be told, as the report then says; not each time.
const TRIES: usize = 4;

/// A folder for results, a broker's data and workload files.
struct Bench {
    folder: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Bench {
    fn new() -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let bench = Self { folder: tempfile::tempdir().unwrap(), _turn: turn };
        let known = KNOWN.get_or_init(|| bench.find_out());
        let _ = fs::remove_dir_all(bench.path("out"));
        fs::create_dir(bench.path("out")).unwrap();
        fs::write(bench.path("out/state.json"), known.to_string()).unwrap();
        bench
    }

    fn find_out(&self) -> Value {
        let workload = self.workload(&format!("{STEADY}testSeconds: 2\n"));
        let mut said = String::new();
        for _ in 0..TRIES {
            said = text(&self.run(&["run", workload.to_str().unwrap()]).stderr);
            let state = fs::read(self.path("out/state.json")).unwrap_or_default();
            let state: Value = serde_json::from_slice(&state).unwrap_or_default();
            if state["self_checked"].is_string() {
                let found = ["ceilings", "self_checked"].map(|field| state[field].clone());
                return json!({"variants": {}, "slowest_peaks": {}, "missing": [], "ceilings": found[0], "self_checked": found[1]});
            }
        }
        panic!("{said}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn workload(&self, text: &str) -> PathBuf {
        let path = self.path("workload.yaml");
        fs::write(&path, text).unwrap();
        path
    }

    fn broker(&self) -> PathBuf {
        // Both are built with one profile, where all tests are.
        let built = Path::new(env!("CARGO_BIN_EXE_mainstem-bench")).with_file_name("mainstem");
        let broker = std::env::var_os("MAINSTEM_BENCH_BROKER").map_or(built, PathBuf::from);
        assert!(broker.exists(), "no {}: `make test-build` makes it", broker.display());
        broker
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mainstem-bench"));
        command.args(words).arg("--mainstem").arg(self.broker()).arg("--out").arg(self.path("out"));
        command.arg("--scratch").arg(self.path("scratch"));
        command.env("MAINSTEM_BENCH_PEERS", self.path("no-peers"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// The only run there is.
    fn result(&self) -> Value {
        let mut found = Vec::new();
        for path in files(&self.path("out")) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.contains("pair") && name.ends_with(".json") && !name.ends_with("omb.json") {
                found.push(path);
            }
        }
        assert_eq!(found.len(), 1, "{found:?}");
        serde_json::from_str(&fs::read_to_string(&found[0]).unwrap()).unwrap()
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() { found.extend(files(&entry.path())) } else { found.push(entry.path()) }
    }
    found
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The broker that this benchmark process has started, once it has.
fn broker_of(bench: &Child) -> u32 {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(120) {
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let Some((head, rest)) = stat.rsplit_once(')') else { continue };
            let parent = rest.split_whitespace().nth(1).and_then(|field| field.parse::<u32>().ok());
            if parent == Some(bench.id()) && head.contains("(mainstem") {
                return entry.file_name().to_string_lossy().parse().unwrap();
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("no broker was started");
}

/// Waits until the benchmark says that it measures. All that it says, once it has ended.
fn measures(bench: &mut Child) -> JoinHandle<String> {
    let (mut said, mut text) = (BufReader::new(bench.stderr.take().unwrap()), String::new());
    while !text.contains("measure: ") {
        assert!(said.read_line(&mut text).unwrap() > 0, "it ends before it measures: {text}");
    }
    std::thread::spawn(move || {
        said.read_to_string(&mut text).unwrap();
        text
    })
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

const STEADY: &str = "name: steady\npartitionsPerTopic: 4\nproducersPerTopic: 2\nconsumerPerSubscription: 2\n\
                      subscriptionsPerTopic: 2\nproducerRate: 2000\nprimingSeconds: 0\nwarmupSeconds: 3\nwarmupWindowSeconds: 1\n";

#[test]
fn a_fixed_rate_is_measured_and_every_message_accounted_for() {
    let bench = Bench::new();
    let primed = STEADY.replace("primingSeconds: 0", "primingSeconds: 2");
    let workload = bench.workload(&format!("{primed}testSeconds: 6\n"));
    let output = bench.run(&["run", workload.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run = bench.result();
    assert!(run["priming"]["seconds"].as_f64().unwrap() >= 2.0, "{}", run["priming"]);
    assert!(
        run["measured"]["publish_latency"]["p99_ms"].as_f64().is_some(),
        "12,000 messages have a p99: {}",
        run["measured"]
    );
    assert!(run["measured"]["publish_latency"]["p999_ms"].is_null(), "and no p99.9");
    let rate = run["measured"]["publish_rate"].as_f64().unwrap();
    assert!((1000.0..2100.0).contains(&rate), "{rate}");
    let received = run["measured"]["receive_rate"].as_f64().unwrap();
    assert!((2000.0..4200.0).contains(&received), "two subscriptions: {received}");
    assert_eq!(run["verdict"]["complete"], true, "{}", run["verdict"]);
    assert!(run["stopped"].is_null());
    for (part, figure) in [
        ("broker", "cpu_s"),
        ("broker", "memory_peak_mb"),
        ("broker", "handles"),
        ("generator", "ceiling_rate"),
        ("machine", "fdatasync_p50_us"),
    ] {
        assert!(run[part][figure].as_f64().unwrap() > 0.0, "{part}.{figure}: {}", run[part]);
    }
    assert_eq!(run["target"]["version"], env!("CARGO_PKG_VERSION"));
    let page = fs::read_to_string(bench.path("out/report.html")).unwrap();
    assert!(page.contains("\"experiment\":\"workload\""));
    let again = bench.run(&["run", workload.to_str().unwrap()]);
    assert!(
        text(&again.stdout).contains("0 runs in 0 starts"),
        "what is there is not run again: {}",
        text(&again.stdout)
    );
    bench.workload(&format!("{STEADY}testSeconds: 4\n"));
    let changed = bench.run(&["run", workload.to_str().unwrap(), "--plan"]);
    assert!(
        text(&changed.stdout).contains("1 runs in 1 starts"),
        "a workload that has changed is run again: {}",
        text(&changed.stdout)
    );
}

#[test]
fn a_broker_that_stands_still_shows_in_the_tail_and_in_the_timeline() {
    let bench = Bench::new();
    let workload = bench.workload(&format!("{STEADY}testSeconds: 8\n"));
    let mut child = bench.command(&["run", workload.to_str().unwrap()]).spawn().unwrap();
    let broker = broker_of(&child);
    let said = measures(&mut child);
    signal(broker, "STOP");
    std::thread::sleep(Duration::from_secs(2));
    signal(broker, "CONT");
    let status = child.wait().unwrap();
    let said = said.join().unwrap();
    assert!(status.success(), "{said}");
    let run = bench.result();
    for latency in ["publish_latency", "end_to_end_latency"] {
        let longest = run["measured"][latency]["max_ms"].as_f64().unwrap();
        assert!(longest > 1900.0, "{latency}: {longest} ms, {said}");
        // 2 of 8 seconds: what was due meanwhile waited, and counts.
        let p95 = run["measured"][latency]["p95_ms"].as_f64().unwrap();
        assert!(p95 > 500.0, "{latency}: p95 is {p95} ms");
    }
    let rates: Vec<f64> =
        run["timeline"].as_array().unwrap().iter().map(|moment| moment["publish_rate"].as_f64().unwrap()).collect();
    assert!(rates.iter().skip(3).any(|rate| *rate < 500.0), "a dip: {rates:?}");
    assert_eq!(run["verdict"]["complete"], true);
}

#[test]
fn a_broker_that_dies_ends_the_run_which_keeps_what_it_had() {
    let bench = Bench::new();
    let workload = bench.workload(&format!("{STEADY}testSeconds: 200\n"));
    let mut child = bench.command(&["run", workload.to_str().unwrap()]).spawn().unwrap();
    let broker = broker_of(&child);
    let said = measures(&mut child);
    signal(broker, "KILL");
    let began = Instant::now();
    let status = child.wait().unwrap();
    assert!(began.elapsed() < Duration::from_secs(150), "before it would have: {:?}", began.elapsed());
    assert!(status.success(), "{}", said.join().unwrap());
    let run = bench.result();
    assert_eq!(run["stopped"], "measure: the broker has ended");
    assert_eq!(run["verdict"]["valid"], false);
    assert!(run["measured"]["published"].as_u64().unwrap() > 0, "what was measured is kept");
}

#[test]
fn ctrl_c_ends_the_broker_and_leaves_a_report() {
    let bench = Bench::new();
    let workload = bench.workload(&format!("{STEADY}testSeconds: 200\n"));
    let mut child = bench.command(&["run", workload.to_str().unwrap()]).spawn().unwrap();
    let broker = broker_of(&child);
    let said = measures(&mut child);
    signal(child.id(), "INT");
    let began = Instant::now();
    let status = child.wait().unwrap();
    assert!(began.elapsed() < Duration::from_secs(150), "before it would have");
    assert_eq!(status.code(), Some(130), "{}", said.join().unwrap());
    assert!(!Path::new(&format!("/proc/{broker}")).exists(), "the broker has ended");
    let run = bench.result();
    assert_eq!(run["stopped"], "measure: interrupted");
    assert!(run["measured"]["published"].as_u64().unwrap() > 0, "what was measured is kept");
    assert!(bench.path("out/report.html").exists());
}

/// A broker that runs already, with TLS and logins on every port; ended when dropped.
struct Theirs {
    child: Child,
    kafka: u16,
    amqp: u16,
}

impl Theirs {
    fn start(bench: &Bench, folder: &Path) -> Self {
        fs::create_dir_all(folder).unwrap();
        let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
            ])
            .args([
                "-addext",
                "subjectAltName=DNS:localhost,IP:127.0.0.1",
                "-keyout",
                &at("key.pem"),
                "-out",
                &at("cert.pem"),
            ])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", text(&made.stderr));
        fs::write(folder.join("password"), "Tr0ub4dor").unwrap();
        let port = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (kafka, amqp, admin) = (port(), port(), port());
        // The benchmark's own variables begin like the settings of Mainstem, which refuses those it does not know.
        let child = Command::new(bench.broker())
            .env_remove("MAINSTEM_BENCH_BROKER")
            .args(["serve", "--data", &at("data"), "--default-user", "anna", "--default-pass-file", &at("password")])
            .args([
                "--tls-certificate",
                &at("cert.pem"),
                "--tls-key",
                &at("key.pem"),
                "--set",
                &format!("listeners=SASL_SSL://127.0.0.1:{kafka}"),
            ])
            .args(["--set", &format!("advertised.listeners=SASL_SSL://localhost:{kafka}"), "--amqp", "none"])
            .args(["--amqps", &format!("127.0.0.1:{amqp}"), "--admin", &format!("127.0.0.1:{admin}")])
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("log")).unwrap())
            .spawn()
            .unwrap();
        let theirs = Self { child, kafka, amqp };
        let began = Instant::now();
        while [kafka, amqp].iter().any(|port| std::net::TcpStream::connect(("127.0.0.1", *port)).is_err()) {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "{}",
                fs::read_to_string(folder.join("log")).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        theirs
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn somebody_elses_brokers_with_tls_and_logins_are_asked_under_their_own_names() {
    let bench = Bench::new();
    let folder = bench.path("theirs");
    let theirs = Theirs::start(&bench, &folder);
    let certificate = folder.join("cert.pem");
    let certificate = certificate.display();
    let file = bench.path("targets.toml");
    let targets = format!(
        r#"
        [[target]]
        name = "orders"
        title = "Orders"
        driver = "kafka"
        address = "localhost:{}"
        options = {{ "client.security.protocol" = "sasl_ssl", "client.ssl.ca.location" = "{certificate}", "client.sasl.mechanism" = "SCRAM-SHA-256", "client.sasl.username" = "anna", "client.sasl.password" = "{{env ORDERS_PASSWORD}}" }}
        [target.memory]
        note = "as its owner says"

        [[target]]
        name = "tasks"
        title = "Tasks"
        driver = "amqp"
        address = "localhost:{}"
        options = {{ tls = "on", "tls.ca" = "{certificate}", user = "anna", password = "{{env ORDERS_PASSWORD}}", vhost = "/" }}
        [target.memory]
        note = "as its owner says"
        "#,
        theirs.kafka, theirs.amqp
    );
    fs::write(&file, targets).unwrap();
    let mut command =
        bench.command(&["compare", "delay", "--pairs", "1", "--plan", "--targets", file.to_str().unwrap()]);
    let plan = command.env("ORDERS_PASSWORD", "Tr0ub4dor").output().unwrap();
    assert!(
        text(&plan.stdout).contains("(orders, tasks)"),
        "no target is left out: {} {}",
        text(&plan.stdout),
        text(&plan.stderr)
    );
    // The experiment itself takes minutes: a short one of the same kind, for both, from a file of experiments would do; here a workload.
    let workload = bench.workload(&format!("{STEADY}testSeconds: 3\n"));
    for name in ["orders", "tasks"] {
        let words = ["run", workload.to_str().unwrap(), "--targets", file.to_str().unwrap(), "--target", name];
        let output = bench.command(&words).env("ORDERS_PASSWORD", "Tr0ub4dor").output().unwrap();
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
    }
    let kept: String =
        files(&bench.path("out")).into_iter().map(|path| fs::read_to_string(path).unwrap_or_default()).collect();
    assert!(!kept.contains("Tr0ub4dor"), "no password is in a result");
    let page = fs::read_to_string(bench.path("out/report.md")).unwrap();
    for name in ["orders", "tasks"] {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("|  | {name} ")))
            .unwrap_or_else(|| panic!("no {name}: {page}"));
        assert_eq!(row.matches("not measured").count(), 3, "no zeros that are none: {row}");
        assert!(!row.contains("not complete") && !row.contains("messages failed"), "{row}");
    }
}

#[test]
fn a_peer_that_is_missing_is_said_and_the_others_run() {
    let bench = Bench::new();
    let experiment = ["compare", "delay", "--targets", "kafka,mainstem", "--pairs", "1", "--without-floor"];
    let output = bench.run(&experiment);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(bench.result()["target"]["name"], "mainstem");
    let said = text(&output.stderr);
    assert!(said.contains("kafka.sh: No such file"), "the script's own words: {said}");
    let page = fs::read_to_string(bench.path("out/report.md")).unwrap();
    assert!(page.contains("### Not run\n") && page.contains("kafka tuned: kafka does not start"), "{page}");
}

#[test]
fn mistakes_end_it_before_anything_starts() {
    let bench = Bench::new();
    for (words, said) in [
        (vec!["compare", "latncy"], "no experiment `latncy`; did you mean `latency`?"),
        (vec!["compare", "latency", "--targets", "rabitmq"], "no target `rabitmq`; did you mean `rabbitmq`?"),
        (vec!["run", "/nowhere.yaml"], "workload /nowhere.yaml"),
        (
            vec!["compare", "routing", "--targets", "mainstem"],
            "target `mainstem` takes part in none of these experiments; they name ",
        ),
    ] {
        let output = bench.run(&words);
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }
    let workload = bench.workload("producersPerTopics: 3");
    let output = bench.run(&["run", workload.to_str().unwrap()]);
    assert!(text(&output.stderr).contains("unknown key `producersPerTopics`; did you mean `producersPerTopic`?"));
}
