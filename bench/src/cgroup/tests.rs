//! Files of both versions as the kernel writes them, and a group of this machine where it may be made.

use std::process::Command;

use super::*;

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn both_versions_are_read() {
    let first = folder(&[
        ("cpuacct.usage", "2500000000\n"),
        ("memory.stat", "cache 1\nrss 2\ntotal_cache 3000000\ntotal_rss 4000000\ntotal_rss_huge 9\n"),
    ]);
    assert_eq!((cpu_s(first.path()), memory_mb(first.path())), (Some(2.5), Some((4.0, 3.0))));
    let second = folder(&[
        ("cpu.stat", "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n"),
        ("memory.stat", "anon 5000000\nfile 6000000\nkernel 7\n"),
    ]);
    assert_eq!((cpu_s(second.path()), memory_mb(second.path())), (Some(1.5), Some((5.0, 6.0))));
    let neither = folder(&[("cpu.stat", "nr_periods 0\n")]);
    assert_eq!((cpu_s(neither.path()), memory_mb(neither.path())), (None, None));
}

#[test]
fn a_group_counts_processes_that_have_ended_and_the_page_cache() {
    // Where this user may make none there is nothing to test.
    let Some(group) = Group::create("test", 0) else { return };
    let file = tempfile::NamedTempFile::new().unwrap();
    let busy = format!(
        "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; head -c 20000000 /dev/zero > '{}'",
        file.path().display()
    );
    let words = group.wrap(&["sh".to_owned(), "-c".to_owned(), busy]);
    assert!(Command::new(&words[0]).args(&words[1..]).status().unwrap().success());
    let mut account = Account { cpu_s: -1.0, ..Account::default() };
    group.correct(&mut account);
    assert!(group.time.is_none() || account.cpu_s > 0.01, "{account:?}");
    assert!(group.memory.is_none() || account.page_cache_mb.is_some_and(|cache| cache > 10.0), "{account:?}");
    assert_eq!(group.limit_mb(), None);
    let folders: Vec<PathBuf> = group.folders().into_iter().cloned().collect();
    drop(group);
    assert!(folders.iter().all(|folder| !folder.exists()), "{folders:?}");
}
