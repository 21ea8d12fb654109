//! Marks: what is one, who opens a marked folder, and that none goes while something is left.

use super::*;
use crate::data_folder::DataFolder;

const ALL: [Work; 3] = [Work::Restore, Work::Salvage, Work::Backup];

fn said<T>(outcome: anyhow::Result<T>) -> String {
    outcome.err().map_or_else(|| panic!("it is refused"), |error| format!("{error:#}"))
}

fn open(folder: &Path) -> anyhow::Result<DataFolder> {
    DataFolder::open(folder, 1, "a-cluster")
}

#[test]
fn a_mark_says_whether_somebody_is_still_at_it() {
    for work in ALL {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(work.look(folder.path()), Marked::No);
        let mark = Mark::put(folder.path(), work, "x\n").unwrap();
        assert_eq!(work.look(folder.path()), Marked::Held);
        assert!(said(Mark::put(folder.path(), work, "y\n")).contains("another process is at work"));
        assert!(said(open(folder.path())).contains("wait for"), "{work:?}");
        drop(mark);
        assert_eq!(work.look(folder.path()), Marked::Left);
        Mark::put(folder.path(), work, "y\n").unwrap().lift().unwrap();
        assert_eq!(names(folder.path()).count(), 0);
        drop(open(folder.path()).expect("an empty folder is a new one"));
    }
}

/// Who begins while another is nearly done has seen its mark, and must not take it over once it is gone.
#[test]
fn what_another_has_finished_meanwhile_stays() {
    for work in ALL {
        let folder = tempfile::tempdir().unwrap();
        let first = Mark::put(folder.path(), work, "x\n").unwrap();
        fs::write(folder.path().join("meta.toml"), "whole").unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| mark(folder.path(), work, "y\n").map(drop));
            std::thread::sleep(LOCK_WAIT * 5);
            first.lift().unwrap();
            assert!(said(second.join().unwrap()).contains("is not empty"), "{work:?}");
        });
        assert_eq!(names(folder.path()).collect::<Vec<_>>(), ["meta.toml"]);
    }
}

/// Whatever the moment at which two are at it, what one has finished is whole, and is marked by nobody.
#[test]
fn of_several_that_begin_again_and_again_none_removes_what_another_has_finished() {
    for round in 0..200 {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(Work::Restore.name()), "x\n").unwrap();
        let finished = std::sync::atomic::AtomicUsize::new(0);
        let work = || {
            for _ in 0..10 {
                if let Ok(mark) = mark(folder.path(), Work::Restore, "y\n") {
                    fs::write(folder.path().join("meta.toml"), "whole").unwrap();
                    finished.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    mark.lift().unwrap();
                }
            }
        };
        std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(work))));
        assert_eq!(
            (finished.into_inner(), names(folder.path()).collect::<Vec<_>>()),
            (1, vec!["meta.toml".to_owned()]),
            "round {round}"
        );
    }
}

#[test]
fn nobody_opens_a_marked_folder() {
    for (work, what) in [
        (Work::Restore, "a restore was interrupted; run `mainstem restore` to it again"),
        (Work::Salvage, "run `mainstem journal salvage` to it again"),
        (Work::Backup, "not finished"),
    ] {
        for (name, text) in [
            (work.name().to_owned(), ""),
            (work.name().to_owned(), "x\n"),
            (work.older_name(), ""),
            (work.older_name(), "x\n"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join(&name), text).unwrap();
            for refused in [said(open(folder.path())), said(DataFolder::look(folder.path()))] {
                assert!(refused.contains(what) && refused.contains("remove it"), "{name}: {refused}");
            }
            assert_eq!(names(folder.path()).collect::<Vec<_>>(), [name], "nothing is written to it");
        }
    }
}

#[test]
fn what_an_older_release_left_is_no_mark_of_a_folder_with_data() {
    for work in ALL {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path()).unwrap());
        fs::write(folder.path().join(work.older_name()), "x\n").unwrap();
        drop(open(folder.path()).expect("it has been a broker's since"));
        assert!(said(mark(folder.path(), work, "y\n")).contains("is not empty"));
        assert!(
            folder.path().join("meta.toml").exists() && work.look(folder.path()) == Marked::No,
            "all of it stays, unmarked"
        );
    }
}

#[test]
fn who_begins_again_keeps_the_mark_and_removes_the_rest() {
    for (work, older) in ALL.into_iter().flat_map(|work| [(work, false), (work, true)]) {
        let folder = tempfile::tempdir().unwrap();
        let name = if older { work.older_name() } else { work.name().to_owned() };
        fs::write(folder.path().join(name), "an older text that is longer\n").unwrap();
        if !older {
            fs::create_dir(folder.path().join("journal-0")).unwrap();
            fs::write(folder.path().join("journal-0/segment-000000000001"), "half").unwrap();
        }
        let mark = mark(folder.path(), work, "from here\n").unwrap();
        assert_eq!(names(folder.path()).collect::<Vec<_>>(), [work.name()]);
        assert_eq!(fs::read_to_string(folder.path().join(work.name())).unwrap(), "from here\n");
        drop(mark);
    }
}

#[test]
fn a_mark_stays_as_long_as_something_cannot_be_removed() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let mark = Mark::put(folder.path(), Work::Restore, "x\n").unwrap();
    let stuck = folder.path().join("journal-0");
    fs::create_dir(&stuck).unwrap();
    fs::write(stuck.join("segment-000000000001"), "half").unwrap();
    fs::set_permissions(&stuck, fs::Permissions::from_mode(0o500)).unwrap();
    // Root removes it all the same.
    let is_removable = fs::File::create(stuck.join("other")).is_ok();
    mark.clear(|_| true);
    assert_eq!(names(folder.path()).count() == 0, is_removable);
    assert!(is_removable || Work::Restore.look(folder.path()) == Marked::Left);
    let _ = fs::set_permissions(&stuck, fs::Permissions::from_mode(0o700));
}

#[test]
fn a_finished_backup_is_whole_with_its_mark() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(Work::Backup.name()), "x\n").unwrap();
    assert!(check(folder.path()).is_err());
    fs::write(folder.path().join(manifest::NAME), "").unwrap();
    check(folder.path()).unwrap();
    fs::write(folder.path().join(Work::Restore.name()), "x\n").unwrap();
    assert!(check(folder.path()).is_err());
}

#[test]
fn a_folder_that_cannot_be_looked_into_is_not_half_of_something() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    Work::ALL.iter().for_each(|work| assert_eq!(work.look(&file), Marked::No, "the system's words say more"));
}
