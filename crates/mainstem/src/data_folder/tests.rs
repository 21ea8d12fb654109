//! Locking and identity of the data folder.

use super::*;

fn refusal(path: &Path, journals: usize) -> String {
    DataFolder::open(path, journals, "other").err().expect("refused").to_string()
}

#[test]
fn identity_stays_and_a_second_owner_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = DataFolder::open(folder.path(), 3, "first").unwrap();
    let pid = std::process::id().to_string();
    assert!(refusal(folder.path(), 3).contains(&format!("in use by the broker with process id {pid}")));
    drop(first);
    let second = DataFolder::open(folder.path(), 3, "second").unwrap();
    assert_eq!((second.cluster_id.as_str(), second.journals), ("first", 3));
    drop(second);
    assert!(refusal(folder.path(), 1).contains("was created with 3"));
}

#[test]
fn newer_and_damaged_folders_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("meta.toml");
    fs::write(&path, "format_version = 99\ncluster_id = 'x'\njournals = 1\n").unwrap();
    let text = refusal(folder.path(), 1);
    assert!(text.contains("format version 99, this release reads up to"), "{text}");
    for text in ["", "format_version = 1\n", "?"] {
        fs::write(&path, text).unwrap();
        assert!(refusal(folder.path(), 1).contains("meta.toml"), "{text:?}");
    }
}

#[test]
fn journals_without_an_identity_get_no_new_one() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("journal-0")).unwrap();
    drop(DataFolder::open(folder.path(), 1, "first").expect("nothing is lost"));
    fs::remove_file(folder.path().join("meta.toml")).unwrap();
    fs::write(folder.path().join("journal-0/segment-000000000001"), "").unwrap();
    let text = refusal(folder.path(), 1);
    assert!(text.contains("journal-0 and no meta.toml") && !folder.path().join("meta.toml").exists(), "{text}");
}

#[test]
fn an_older_folder_stays_what_it_is_until_it_is_finalized() {
    let folder = tempfile::tempdir().unwrap();
    drop(DataFolder::open(folder.path(), 1, "first").unwrap());
    let before = fs::read_to_string(folder.path().join("meta.toml")).unwrap();
    drop(DataFolder::open(folder.path(), 1, "again").unwrap());
    assert_eq!(fs::read_to_string(folder.path().join("meta.toml")).unwrap(), before, "opening it writes nothing");
    let mut look = DataFolder::look(folder.path()).unwrap();
    assert_eq!(look.format_version, FORMAT_VERSION);
    // As the next release would.
    look.finalize(FORMAT_VERSION + 1).unwrap();
    assert_eq!(look.format_version, FORMAT_VERSION + 1);
    drop(look);
    let text = refusal(folder.path(), 1);
    let (found, known) = (format!("format version {}", FORMAT_VERSION + 1), format!("up to {FORMAT_VERSION}"));
    assert!(text.contains(&found) && text.contains(&known), "{text}");
    assert!(DataFolder::look(folder.path()).is_err());
}

#[test]
fn looking_writes_nothing_and_keeps_brokers_away() {
    let folder = tempfile::tempdir().unwrap();
    drop(DataFolder::open(folder.path(), 1, "first").unwrap());
    fs::write(folder.path().join("lock"), "77\n").unwrap();
    let looks = [DataFolder::look(folder.path()).unwrap(), DataFolder::look(folder.path()).unwrap()];
    assert_eq!(fs::read_to_string(folder.path().join("lock")).unwrap(), "77\n");
    let text = refusal(folder.path(), 1);
    assert!(text.contains("a command that looks at it"), "{text}");
    drop(looks);
    let owner = DataFolder::open(folder.path(), 1, "again").unwrap();
    let text = DataFolder::look(folder.path()).err().expect("a broker has it").to_string();
    assert!(text.contains(&format!("process id {}", std::process::id())), "{text}");
    drop(owner);
}

#[test]
fn what_cannot_be_read_is_not_taken_for_missing() {
    // A link to itself: each try to read what it names fails, and it is there.
    let unreadable = |path: &Path| std::os::unix::fs::symlink(path, path).unwrap();
    let loops = |error: anyhow::Error| assert!(format!("{error:#}").contains("(os error 40)"), "{error:#}");
    let start = |path: &Path| loops(DataFolder::open(path, 1, "other").err().expect("refused"));
    let folder = tempfile::tempdir().unwrap();
    let (meta, journal) = (folder.path().join("meta.toml"), folder.path().join("journal-0"));
    unreadable(&meta);
    start(folder.path());
    assert!(fs::symlink_metadata(&meta).unwrap().is_symlink(), "no other is written");
    fs::remove_file(&meta).unwrap();
    unreadable(&journal);
    start(folder.path());
    assert!(!meta.exists(), "it may have segments, so that the folder is not new");
    fs::remove_file(&journal).unwrap();
    let mut owned = DataFolder::open(folder.path(), 1, "first").unwrap();
    owned.note_journals(vec!["the-journal".to_owned()]).unwrap();
    unreadable(&journal);
    loops(owned.check_there(0).unwrap_err());
    let archive = folder.path().join("archive");
    fs::create_dir_all(&archive).unwrap();
    unreadable(&archive.join("the-journal"));
    loops(DataFolder::check_archive(&archive, "the-journal", 1).unwrap_err());
}
