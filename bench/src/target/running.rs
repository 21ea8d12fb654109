//! A target that was started for a few runs, and everything that must be undone after them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Places, Target};
use crate::cgroup::Group;
use crate::process::{self, Account};
use crate::workload::Durability;

const READY_TIME: Duration = Duration::from_secs(120);
const STOP_TIME: Duration = Duration::from_secs(30);
/// The disk counts as quiet below this.
const DIRTY_KB_MAX: u64 = 32 << 10;
/// How the names of this program's own environment variables begin.
const OWN_VARIABLES: &str = "MAINSTEM_BENCH_";
/// Lines of a log that are shown when a target does not start.
const LOG_LINES: usize = 15;

/// Bytes that a target may keep of what was deleted, like a segment that is being written.
const SPACE_SLACK: u64 = 1200 << 20;

/// How the disk was waited for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settled {
    pub seconds: f64,
    /// What was deleted and still there when the wait ended.
    pub left_mb: f64,
}

/// What a target is started with.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    pub variant: String,
    pub durability: Durability,
    /// 0 = the target's own.
    pub memory_limit_mb: u64,
    /// Further arguments of `start`.
    pub arguments: Vec<String>,
}

/// A target that runs. Dropping it stops and wipes it, unless it ran before.
pub struct Running {
    target: Target,
    places: Places,
    setup: Setup,
    child: Option<Child>,
    log: PathBuf,
    pub group: Option<Group>,
    pub version: String,
}

impl Running {
    /// Wipes and starts it, and waits until it is ready.
    ///
    /// # Errors
    /// It does not start; its log's last lines are in the error.
    pub fn start(target: &Target, places: &Places, setup: Setup) -> Result<Self> {
        fs::create_dir_all(&places.scratch)?;
        let log = places.scratch.join(format!("{}.log", target.name));
        let mut running = Self {
            target: target.clone(),
            places: places.clone(),
            setup,
            child: None,
            log,
            group: None,
            version: String::new(),
        };
        if target.start.is_empty() {
            running.wait_until_reachable().with_context(|| format!("{} does not answer", target.address))?;
            return Ok(running);
        }
        let limit = match running.setup.memory_limit_mb {
            0 => target.memory_limit_mb,
            limit => limit,
        };
        running.group = Group::create(&target.name, limit);
        running.stop_and_wipe();
        if let Err(error) = running.launch() {
            bail!("{error:#}\n{}", running.last_lines());
        }
        running.version = running.ask_version();
        Ok(running)
    }

    /// Its processes.
    pub fn pids(&self) -> BTreeSet<u32> {
        let from_file = |file: &String| fs::read_to_string(self.fill(file)).ok()?.trim().parse().ok();
        let mut roots: Vec<u32> = self.target.pid_files.iter().filter_map(from_file).collect();
        roots.extend(self.child.as_ref().map(Child::id));
        process::with_descendants(&roots)
    }

    /// What its processes used until now; nothing where they are not to be seen, as of a broker on another machine.
    pub fn account(&self) -> Option<Account> {
        let mut account = process::account(&self.pids());
        if account.processes == 0 {
            return None;
        }
        if let Some(group) = &self.group {
            group.correct(&mut account);
        }
        Some(account)
    }

    /// Whether a broker that was started here has no process any more.
    pub fn has_ended(&self) -> bool {
        !self.target.start.is_empty() && self.pids().is_empty()
    }

    /// What its processes run on, as far as that is told: `Java 21.0.4`.
    pub fn runtime(&self) -> String {
        let programs = self.pids().into_iter().filter_map(|pid| fs::read_link(format!("/proc/{pid}/exe")).ok());
        let release = programs.filter(|program| program.ends_with("java")).find_map(|program| {
            let home = program.parent()?.parent()?;
            java_version(&fs::read_to_string(home.join("release")).ok()?)
        });
        release.map_or(String::new(), |version| format!("Java {version}"))
    }

    /// The last lines of its logs, for an error.
    pub fn last_lines(&self) -> String {
        let logs = self.target.logs.iter().map(|log| PathBuf::from(self.fill(log))).chain([self.log.clone()]);
        let mut shown = String::new();
        for log in logs {
            let Ok(bytes) = fs::read(&log) else { continue };
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<&str> = text.lines().collect();
            if !lines.is_empty() {
                let from = lines.len().saturating_sub(LOG_LINES);
                shown.push_str(&format!("last lines of {}:\n  {}\n", log.display(), lines[from..].join("\n  ")));
            }
        }
        shown
    }

    /// Bytes in use on the file system that has its data; 0 for a target that ran before, whose disk may be elsewhere.
    pub fn used_bytes(&self) -> u64 {
        let home = if self.target.foreground { &self.places.scratch } else { &self.places.peers_home };
        if self.target.start.is_empty() { 0 } else { used_bytes(home) }
    }

    /// Waits until what was deleted is gone, so that no more is in use than `before`, and what was written is on the disk and the disk is
    /// quiet; at once for a target that ran before.
    pub fn settle(&self, before: u64) -> Settled {
        let began = Instant::now();
        if self.target.start.is_empty() {
            return Settled::default();
        }
        let most = Duration::from_secs_f64(self.target.deletes_within_s);
        let left =
            wait_for_space(|| self.used_bytes(), before.saturating_add(SPACE_SLACK), most, Duration::from_millis(500));
        settle_disk();
        Settled { seconds: began.elapsed().as_secs_f64(), left_mb: left as f64 / 1e6 }
    }

    fn fill(&self, text: &str) -> String {
        self.places.fill(text, self.setup.durability)
    }

    fn launch(&mut self) -> Result<()> {
        let mut command = self.target.start.iter().map(|word| self.fill(word)).collect::<Vec<_>>();
        let variant = self.target.variant(&self.setup.variant).clone();
        for setting in variant.settings.iter().filter(|setting| setting.argument) {
            command.extend([setting.name.clone(), setting.value.clone()]);
        }
        command.extend(self.setup.arguments.iter().cloned());
        if let Some(group) = &self.group {
            command = group.wrap(&command);
        }
        let mut process = self.command(&command)?;
        let log = File::create(&self.log)?;
        process.stdout(log.try_clone()?).stderr(log).stdin(Stdio::null());
        if self.target.foreground {
            self.child = Some(process.spawn().with_context(|| format!("cannot run {}", command.join(" ")))?);
        } else {
            let status = process.status().with_context(|| format!("cannot run {}", command.join(" ")))?;
            anyhow::ensure!(status.success(), "{} does not start: {status}", self.target.name);
        }
        self.wait_until_reachable().with_context(|| format!("{} does not become ready", self.target.name))
    }

    /// A command with the environment of target, variant and durability. It gets a process group of its own, so that a
    /// Ctrl-C in the terminal reaches only us.
    fn command(&self, words: &[String]) -> Result<Command> {
        let (program, arguments) = words.split_first().context("an empty command")?;
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        // Our own variables begin like the settings of Mainstem, which refuses those it does not know.
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with(OWN_VARIABLES)).for_each(
            |(name, _)| {
                command.env_remove(name);
            },
        );
        let variant = self.target.variant(&self.setup.variant);
        let promise = self.target.promise(self.setup.durability);
        let promised = promise.map(|promise| &promise.environment).into_iter().flatten();
        for (name, value) in self.target.environment.iter().chain(&variant.environment).chain(promised) {
            command.env(name, self.fill(value));
        }
        let settings = variant.settings.iter().chain(promise.map(|promise| &promise.settings).into_iter().flatten());
        let (mut file, mut variables) = (String::new(), std::collections::BTreeMap::<&str, String>::new());
        for setting in settings.filter(|setting| !setting.argument) {
            if let Some(variable) = &setting.environment {
                let words = variables.entry(variable).or_default();
                words.push_str(&format!(" {} {}", setting.name, setting.value));
            } else if let Some(format) = &self.target.settings_file {
                let line = format.line.replace("{name}", &setting.name).replace("{value}", &setting.value);
                file.push_str(&line);
                file.push('\n');
            }
        }
        command.envs(variables);
        if let Some(format) = self.target.settings_file.as_ref().filter(|_| !file.is_empty()) {
            let path = self.places.scratch.join(format!("{}.settings", self.target.name));
            File::create(&path)?.write_all(file.as_bytes())?;
            command.env(&format.variable, path.canonicalize()?);
        }
        Ok(command)
    }

    fn wait_until_reachable(&mut self) -> Result<()> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().ok()).flatten() {
                bail!("it ended with {status}");
            }
            let page_answers = |url: &String| ureq::get(url).call().is_ok();
            if TcpStream::connect(&self.target.address).is_ok() && self.target.ready.as_ref().is_none_or(page_answers) {
                return Ok(());
            }
            anyhow::ensure!(began.elapsed() < READY_TIME, "not ready after {} s", READY_TIME.as_secs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The first word with a digit and a dot in what the version command prints.
    fn ask_version(&self) -> String {
        let words: Vec<String> = self.target.version.iter().map(|word| self.fill(word)).collect();
        let Ok(mut command) = self.command(&words) else { return String::new() };
        let Ok(output) = command.stdin(Stdio::null()).output() else { return String::new() };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let words = text.split(|letter: char| letter.is_whitespace() || letter == ',');
        let version = |word: &&str| {
            word.starts_with(|letter: char| letter.is_ascii_digit() || letter == 'v') && word.contains('.')
        };
        words.into_iter().find(version).unwrap_or("unknown").trim_start_matches('v').to_owned()
    }

    fn stop_and_wipe(&mut self) {
        if let Some(mut child) = self.child.take() {
            end(&mut child);
        }
        for words in [&self.target.stop, &self.target.wipe] {
            let words: Vec<String> = words.iter().map(|word| self.fill(word)).collect();
            if let Ok(mut command) = self.command(&words) {
                let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
            }
        }
        let _ = fs::remove_dir_all(self.places.scratch.join("data"));
        settle_disk();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.target.start.is_empty() {
            self.stop_and_wipe();
        }
    }
}

/// The version in the `release` file of a Java installation.
fn java_version(release: &str) -> Option<String> {
    let line = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
    Some(line.trim_matches('"').to_owned())
}

/// Asks a process to end, and ends it when it does not.
fn end(child: &mut Child) {
    // SAFETY: signals a child that was not waited for, so the id is still its.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    let began = Instant::now();
    while began.elapsed() < STOP_TIME {
        if let Ok(Some(_)) = child.try_wait() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Bytes in use on the file system of this path, or of the nearest folder above it that exists; 0 when that cannot be told.
fn used_bytes(path: &Path) -> u64 {
    let Some(found) = path.ancestors().find(|path| path.exists()) else { return 0 };
    let Ok(name) = std::ffi::CString::new(found.as_os_str().as_encoded_bytes()) else { return 0 };
    // SAFETY: all zeros are a value of this plain structure.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a string that ends in zero and a structure, both of which live on.
    if unsafe { libc::statvfs(name.as_ptr(), &raw mut found) } != 0 {
        return 0;
    }
    (found.f_blocks as u64).saturating_sub(found.f_bfree as u64).saturating_mul(found.f_frsize as u64)
}

/// Waits until no more than so much is used, for so long at most; returns what is used beyond it then.
fn wait_for_space(mut used: impl FnMut() -> u64, wanted: u64, most: Duration, pause: Duration) -> u64 {
    let began = Instant::now();
    loop {
        let beyond = used().saturating_sub(wanted);
        if beyond == 0 || began.elapsed() >= most {
            return beyond;
        }
        std::thread::sleep(pause);
    }
}

/// Waits until what was written before is on the disk and the disk is quiet, so that it does not count for the next.
fn settle_disk() {
    // SAFETY: takes nothing and returns nothing.
    unsafe { libc::sync() };
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(20) {
        let waiting = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        if process::number_after(&waiting, "Dirty:") + process::number_after(&waiting, "Writeback:") < DIRTY_KB_MAX {
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    std::thread::sleep(Duration::from_secs(1));
}

/// Drops the page cache, so that a backlog is read from disk where no cgroup bounds it; false when not allowed.
pub fn drop_page_cache() -> bool {
    settle_disk();
    fs::write(Path::new("/proc/sys/vm/drop_caches"), "3\n").is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_waited_for_until_deleted_files_are_gone() {
        let mut readings = [900, 900, 700, 500, 100].into_iter();
        let used = || readings.next().expect("it stops once there is space");
        assert_eq!(wait_for_space(used, 500, Duration::from_secs(60), Duration::ZERO), 0);
        assert_eq!(readings.next(), Some(100), "as soon as that");
        assert_eq!(wait_for_space(|| 900, 500, Duration::ZERO, Duration::ZERO), 400, "what is left is told");
    }

    #[test]
    fn the_version_of_java_is_that_of_its_installation() {
        let release = "IMPLEMENTOR=\"Eclipse\"\nJAVA_VERSION=\"21.0.4\"\nJAVA_VERSION_DATE=\"2024\"\n";
        assert_eq!(java_version(release).as_deref(), Some("21.0.4"));
        assert_eq!(java_version("IMPLEMENTOR=x\n"), None);
    }

    #[test]
    fn used_space_is_that_of_the_nearest_folder() {
        let folder = tempfile::tempdir().unwrap();
        assert!(used_bytes(&folder.path().join("not/there")) > 0);
    }
}
