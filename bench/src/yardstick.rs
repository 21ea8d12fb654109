//! The machine, and what it can do at this moment: every run measures it, so that no figure stands alone.
//!
//! Sequential write (1 MiB at a time, around the page cache where the file system allows), `fdatasync` after 4 KiB, one TCP
//! connection over loopback, copying memory, CRC-32C. About two seconds in all.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::latency::Latency;
use crate::result::Machine;

const MIB: usize = 1 << 20;
const WRITE_BYTES: usize = 256 * MIB;
const SYNCS: u64 = 200;
const LOOPBACK_TIME: Duration = Duration::from_millis(400);

/// Describes the machine and measures it; the disk is that of `folder`.
///
/// # Errors
/// The folder cannot be written, or loopback cannot be used.
pub fn measure(folder: &Path) -> Result<Machine> {
    fs::create_dir_all(folder)?;
    let file = folder.join("yardstick");
    let disk = measure_disk(&file);
    let _ = fs::remove_file(&file);
    let (write_mb_s, syncs) = disk.with_context(|| format!("cannot measure the disk of {}", folder.display()))?;
    Ok(Machine {
        cpu: word_of("/proc/cpuinfo", "model name"),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        memory_mb: word_of("/proc/meminfo", "MemTotal").split(' ').next().and_then(|kb| kb.parse().ok()).unwrap_or(0)
            / 1000,
        kernel: line_of("/proc/sys/kernel/osrelease"),
        disk: mount_of(folder).map_or_else(String::new, |mount| format!("{} on {}", mount.kind, mount.device)),
        mount: mount_of(folder).map_or_else(String::new, |mount| mount.options),
        scheduler: mount_of(folder)
            .map_or_else(String::new, |mount| scheduler_of(Path::new("/sys/class/block"), &mount.device)),
        governor: line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        huge_pages: chosen(&line_of("/sys/kernel/mm/transparent_hugepage/enabled")),
        write_mb_s,
        fdatasync_p50_us: syncs.quantile_ms(0.5).unwrap_or(0.0) * 1000.0,
        fdatasync_p99_us: syncs.quantile_ms(0.99).unwrap_or(0.0) * 1000.0,
        loopback_mb_s: measure_loopback()?,
        memory_copy_mb_s: measure_copy(),
        crc32c_mb_s: measure_crc(),
    })
}

/// The rest of a line like `model name : X` in such a file.
fn word_of(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_once(':').map_or(String::new(), |(_, value)| value.trim().to_owned())
}

/// The text of such a file; empty where there is none.
fn line_of(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The word in brackets of a list like `always [madvise] never`, or the whole where there is none.
fn chosen(words: &str) -> String {
    let inner = words.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or(words, |(word, _)| word).to_owned()
}

/// What a folder lies on.
struct Mount {
    device: String,
    kind: String,
    options: String,
}

/// What is mounted below a folder, by the longest mount point.
fn mount_of(folder: &Path) -> Option<Mount> {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let rows = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = rows.filter(|row| row.len() > 3 && folder.starts_with(row[1])).max_by_key(|row| row[1].len())?;
    Some(Mount { device: found[0].to_owned(), kind: found[2].to_owned(), options: found[3].to_owned() })
}

/// How requests to this device are ordered; a partition has what its disk has. Empty where that is not told.
fn scheduler_of(blocks: &Path, device: &str) -> String {
    let Some(name) = Path::new(device).file_name() else { return String::new() };
    let Ok(block) = blocks.join(name).canonicalize() else { return String::new() };
    let folders = [Some(block.as_path()), block.parent()];
    let texts =
        folders.into_iter().flatten().filter_map(|folder| fs::read_to_string(folder.join("queue/scheduler")).ok());
    texts.map(|text| chosen(text.trim())).next().unwrap_or_default()
}

fn measure_disk(path: &Path) -> Result<(f64, Latency)> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let direct = options.clone().custom_flags(libc::O_DIRECT).open(path);
    let file = direct.or_else(|_| options.open(path))?;
    let mut memory = vec![0x5a_u8; 2 * MIB];
    // Direct writes want memory at a multiple of the disk's block.
    let start = memory.as_ptr().align_offset(4096);
    let block = &mut memory[start..start + MIB];
    let began = Instant::now();
    for offset in (0..WRITE_BYTES).step_by(MIB) {
        file.write_all_at(block, offset as u64)?;
    }
    file.sync_data()?;
    let write_mb_s = WRITE_BYTES as f64 / 1e6 / began.elapsed().as_secs_f64();
    Ok((write_mb_s, measure_syncs(&file, &block[..4096])?))
}

fn measure_syncs(file: &File, block: &[u8]) -> Result<Latency> {
    let mut syncs = Latency::default();
    for number in 0..SYNCS {
        let began = Instant::now();
        file.write_all_at(block, number * 4096)?;
        file.sync_data()?;
        syncs.record(began.elapsed().as_nanos() as u64);
    }
    Ok(syncs)
}

fn measure_loopback() -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on loopback")?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    let sending = std::thread::spawn(move || {
        let block = vec![0x5a_u8; 256 << 10];
        let began = Instant::now();
        while began.elapsed() < LOOPBACK_TIME && sender.write_all(&block).is_ok() {}
    });
    let (mut block, mut bytes, began) = (vec![0; 256 << 10], 0, Instant::now());
    loop {
        match receiver.read(&mut block)? {
            0 => break,
            count => bytes += count,
        }
    }
    let elapsed = began.elapsed().as_secs_f64();
    let _ = sending.join();
    Ok(bytes as f64 / 1e6 / elapsed)
}

fn rate_of(bytes: usize, mut work: impl FnMut()) -> f64 {
    let (began, mut rounds) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_millis(100) {
        work();
        rounds += 1;
    }
    (rounds * bytes) as f64 / 1e6 / began.elapsed().as_secs_f64()
}

fn measure_copy() -> f64 {
    // Larger than the caches of a core.
    let (from, mut to) = (vec![1_u8; 32 * MIB], vec![0_u8; 32 * MIB]);
    rate_of(32 * MIB, || std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&from)))
}

fn measure_crc() -> f64 {
    let block = vec![1_u8; 64 << 10];
    rate_of(block.len(), || {
        std::hint::black_box(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, std::hint::black_box(&block)));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_yardstick_has_a_value() {
        let folder = tempfile::tempdir().unwrap();
        let machine = measure(folder.path()).unwrap();
        for value in [
            machine.write_mb_s,
            machine.fdatasync_p99_us,
            machine.loopback_mb_s,
            machine.memory_copy_mb_s,
            machine.crc32c_mb_s,
            machine.memory_mb as f64,
        ] {
            assert!(value > 0.0, "{machine:?}");
        }
        assert!(!machine.kernel.is_empty() && !machine.disk.is_empty() && !machine.mount.is_empty(), "{machine:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn the_scheduler_of_a_partition_is_that_of_its_disk() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("devices/vda");
        fs::create_dir_all(disk.join("queue")).unwrap();
        fs::create_dir_all(disk.join("vda1")).unwrap();
        fs::write(disk.join("queue/scheduler"), "none [mq-deadline] kyber\n").unwrap();
        std::os::unix::fs::symlink(disk.join("vda1"), folder.path().join("vda1")).unwrap();
        assert_eq!(scheduler_of(folder.path(), "/dev/vda1"), "mq-deadline");
        assert_eq!((scheduler_of(folder.path(), "tmpfs"), chosen("madvise")), (String::new(), "madvise".to_owned()));
    }
}
