//! Backups of journals that run, and what is restored of them.

mod running;

use std::os::unix::fs::FileExt;
use std::slice;

use bytes::Bytes;
use journal::AppendItem;
use prometheus_client::encoding::text::encode;

use super::*;
use crate::archive_folder::ArchiveReader;
use running::{CLUSTER, Running, back_up, wait_for};

/// A folder with two journals whose first logs have objects in the archive.
fn with_objects(folder: &Path) -> Running {
    let running = Running::open(folder, 2);
    for journal in 0..2 {
        let log = running.log(journal, 1 + journal as u64);
        for _ in 0..140 {
            running.append(journal, vec![Running::batch(&log, &[7; 900], 50)]);
        }
        wait_for("a part of it is archived", || log.archived_until().0 > 1000);
    }
    running
}

/// All files of a folder with its sub-folders, with their paths from there on.
fn names_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(names_below(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn refusal<T>(outcome: anyhow::Result<T>) -> String {
    outcome.err().map_or_else(|| panic!("it is refused"), |error| format!("{error:#}"))
}

#[test]
fn a_backup_has_the_objects_that_the_journals_name_or_says_which_it_lacks() {
    let scratch = tempfile::tempdir().unwrap();
    let (data, to) = (scratch.path().join("data"), scratch.path().join("backup"));
    let running = with_objects(&data);
    let backups = running.backups(&data);
    // What a crash left, or somebody put there, is in no backup.
    let object = names_below(&data.join("archive")).remove(0);
    let stray = object.parent().unwrap().join("00000000000000000000-00000000000000ff");
    fs::write(&stray, "nobody's").unwrap();
    back_up(&backups, &to).unwrap();
    let manifest = Manifest::read(&to).unwrap();
    let listed: Vec<PathBuf> = manifest.objects.iter().map(|object| to.join("archive").join(&object.name)).collect();
    assert!(!listed.is_empty() && !listed.iter().any(|name| name.file_name() == stray.file_name()), "{listed:?}");
    let mut there = listed.clone();
    there.sort();
    assert_eq!(there, names_below(&to.join("archive")));
    // One that is gone, and one that is shorter than it was.
    let lost = data.join("archive").join(&manifest.objects[1].name);
    fs::rename(&lost, scratch.path().join("aside")).unwrap();
    let reason = back_up(&backups, &scratch.path().join("second")).expect_err("an object is missing");
    assert!(reason.contains(&manifest.objects[1].name) && reason.contains("log-"), "{reason}");
    assert_eq!(names_below(&scratch.path().join("second")), Vec::<PathBuf>::new(), "nothing is left of it");
    fs::write(&lost, "short").unwrap();
    let reason = back_up(&backups, &scratch.path().join("second")).expect_err("an object is short");
    assert!(reason.contains(&manifest.objects[1].name) && reason.contains("5 bytes long"), "{reason}");
    fs::remove_file(&lost).unwrap();
    fs::rename(scratch.path().join("aside"), &lost).unwrap();
    back_up(&backups, &scratch.path().join("second")).unwrap();
    running.close();
}

#[test]
fn a_restore_asks_whose_object_it_is_and_what_meta_toml_says() {
    let scratch = tempfile::tempdir().unwrap();
    let (data, to) = (scratch.path().join("data"), scratch.path().join("backup"));
    let running = with_objects(&data);
    back_up(&running.backups(&data), &to).unwrap();
    running.close();
    let objects = names_below(&to.join("archive"));
    let restore = || restore::run(&to, &scratch.path().join("restored"), None);
    let refused = |what: &str| {
        let said = refusal(restore());
        assert!(said.contains(what), "{what} in {said}");
        assert_eq!(names_below(&scratch.path().join("restored")), Vec::<PathBuf>::new(), "{what}");
    };
    // The backup has names of the broker's own files.
    let own = |path: &Path, change: &dyn Fn(&mut Vec<u8>)| {
        let before = fs::read(path).unwrap();
        let mut bytes = before.clone();
        change(&mut bytes);
        fs::remove_file(path).unwrap();
        fs::write(path, bytes).unwrap();
        before
    };
    // Two whole ones in each other's place; one with another header; one with bytes behind its end.
    let (one, other) = (objects.first().unwrap(), objects.last().unwrap());
    let (first, last) = (fs::read(one).unwrap(), fs::read(other).unwrap());
    let manifest = fs::read_to_string(to.join(manifest::NAME)).unwrap();
    let mut swapped = Manifest::read(&to).unwrap();
    for object in &mut swapped.objects {
        let path = to.join("archive").join(&object.name);
        object.bytes = if path == *one {
            last.len()
        } else if path == *other {
            first.len()
        } else {
            object.bytes as usize
        } as u64;
    }
    fs::write(to.join(manifest::NAME), toml::to_string(&swapped).unwrap()).unwrap();
    own(one, &|bytes| *bytes = last.clone());
    own(other, &|bytes| *bytes = first.clone());
    // The first journal that has one of them says so: which of them that is, ids of journals decide.
    let said = refusal(restore());
    let names = |path: &Path| said.contains(&*path.file_name().unwrap().to_string_lossy());
    assert!(names(one) || names(other), "{said}");
    assert_eq!(names_below(&scratch.path().join("restored")), Vec::<PathBuf>::new());
    own(one, &|bytes| *bytes = first.clone());
    own(other, &|bytes| *bytes = last.clone());
    fs::write(to.join(manifest::NAME), &manifest).unwrap();
    own(one, &|bytes| bytes[24] ^= 1);
    refused("header checksum");
    own(one, &|bytes| *bytes = first.clone());
    // What says of which cluster it is.
    let meta = fs::read_to_string(to.join("meta.toml")).unwrap();
    let written = |version: u32, cluster: &str, journals: usize| {
        format!("format_version = {version}\ncluster_id = \"{cluster}\"\njournals = {journals}\n")
    };
    for (text, what) in [
        ("format_version = 1\ncluster_id".to_owned(), "meta.toml"),
        (written(9, running::CLUSTER, 2), "format version 9"),
        (written(1, "another", 2), "of cluster another"),
        (written(1, running::CLUSTER, 3), "with 3 journals"),
    ] {
        fs::write(to.join("meta.toml"), text).unwrap();
        refused(what);
    }
    fs::write(to.join("meta.toml"), meta).unwrap();
    restore().unwrap();
}

/// Writes these files of a backup, with half of the last one, or all of it.
fn stage(from: &Path, to: &Path, files: &[&Path], is_half: bool) {
    for (number, name) in files.iter().enumerate() {
        let (target, mut bytes) = (to.join(name), fs::read(from.join(name)).unwrap_or_default());
        if is_half && number + 1 == files.len() {
            bytes.truncate(bytes.len() / 2);
        }
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(target, bytes).unwrap();
    }
}

/// A kill leaves a beginning of what a backup makes in this order, with a part of the last file; or, where half of one was being removed, any of it
/// with the mark.
#[test]
fn half_of_a_backup_is_none_wherever_a_kill_met_it_and_the_next_one_begins_anew() {
    let scratch = tempfile::tempdir().unwrap();
    let (data, whole, to) = (scratch.path().join("data"), scratch.path().join("whole"), scratch.path().join("to"));
    let running = with_objects(&data);
    let backups = running.backups(&data);
    back_up(&backups, &whole).unwrap();
    fs::write(whole.join(Work::Backup.name()), "2026-01-01T00:00:00Z\n").unwrap();
    for name in ["meta.toml", manifest::NAME] {
        fs::copy(whole.join(name), whole.join(format!("{name}.new"))).unwrap();
    }
    let all: Vec<PathBuf> =
        names_below(&whole).iter().map(|path| path.strip_prefix(&whole).unwrap().to_owned()).collect();
    let below =
        |folder: &str| all.iter().filter(|path| path.starts_with(folder)).map(PathBuf::as_path).collect::<Vec<_>>();
    let (mark, made) =
        (Path::new(Work::Backup.name()), [below("journal-0"), below("journal-1"), below("archive")].concat());
    let (new_meta, meta, new_manifest) =
        (Path::new("meta.toml.new"), Path::new("meta.toml"), Path::new("backup.toml.new"));
    let mut states: Vec<Vec<&Path>> = Vec::new();
    // Of many objects each is like the other.
    let few = |until: &usize| *until < 12 || until.is_multiple_of(16) || *until + 3 > made.len();
    for until in (0..=made.len()).filter(few) {
        states.push([&[mark], &made[..until]].concat());
    }
    for last in [&[new_meta][..], &[meta], &[meta, new_manifest]] {
        states.push([&[mark], &made[..], last].concat());
    }
    states.extend((0..made.len()).filter(few).map(|one| vec![mark, made[one]]));
    for (files, is_half) in states.iter().flat_map(|files| [(files, true), (files, false)]) {
        stage(&whole, &to, files, is_half);
        assert!(refusal(Manifest::read(&to)).contains("holds no finished backup"), "{files:?}");
        for said in [refusal(DataFolder::open(&to, 2, CLUSTER)), refusal(crate::damage::verify(&to, None, false))] {
            assert!(said.contains("it holds a backup that was not finished"), "{said}");
        }
        back_up(&backups, &to).unwrap();
        assert!(Manifest::read(&to).is_ok() && !to.join(mark).exists() && DataFolder::look(&to).is_ok());
        fs::remove_dir_all(&to).unwrap();
    }
    // As soon as the manifest is there it is one, and nobody takes its place.
    let finished = [&[mark], &made[..], &[meta, Path::new(manifest::NAME)]].concat();
    stage(&whole, &to, &finished, false);
    assert!(back_up(&backups, &to).unwrap_err().contains("is not empty"));
    running.close();
    restore::run(&to, &scratch.path().join("restored"), None).unwrap();
}

#[test]
fn what_an_older_release_left_of_a_mark_is_in_nobodys_way() {
    let scratch = tempfile::tempdir().unwrap();
    let (data, to) = (scratch.path().join("data"), scratch.path().join("to"));
    let running = Running::open_unarchived(&data, 1);
    let backups = running.backups(&data);
    fs::create_dir(&to).unwrap();
    fs::write(to.join("backup.unfinished.new"), "").unwrap();
    assert!(refusal(DataFolder::open(&to, 1, CLUSTER)).contains("it holds a backup that was not finished"));
    back_up(&backups, &to).unwrap();
    assert!(Manifest::read(&to).is_ok() && !to.join("backup.unfinished.new").exists());
    running.close();
}

/// A record of a topic that this release does not know.
fn newer_topic() -> AppendItem {
    AppendItem::State { key: Bytes::from_static(b"tnewer"), value: Some(Bytes::from_static(&[255])) }
}

/// What is counted as it is shown at `/metrics`.
fn counted(backups: &Backups) -> String {
    let (mut registry, mut text) = (Registry::default(), String::new());
    backups.register(&mut registry);
    encode(&mut text, &registry).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_backup_with_which_no_broker_would_start_has_failed() {
    let scratch = tempfile::tempdir().unwrap();
    let (data, to) = (scratch.path().join("data"), scratch.path().join("backup"));
    let running = Running::open_unarchived(&data, 2);
    let log = running.log(1, 2);
    for _ in 0..30 {
        running.append(1, vec![Running::batch(&log, &[7; 900], 50)]);
    }
    let backups = running.backups(&data);
    back_up(&backups, &to).unwrap();
    assert_eq!(counted(&backups), "mainstem_backups_total 1 mainstem_backup_failures_total 0");
    // The index of a sealed segment: the node has it open, and a start looks at its end.
    let sealed = fs::read_dir(to.join("journal-1"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().starts_with("segment-"))
        .min()
        .unwrap();
    let segment = data.join("journal-1").join(&sealed);
    let file = fs::File::options().read(true).write(true).open(&segment).unwrap();
    let end = file.metadata().unwrap().len() - 4096;
    let mut footer = [0; 4096];
    file.read_exact_at(&mut footer, end).unwrap();
    file.write_all_at(&[0; 4096], end).unwrap();
    let second = scratch.path().join("second");
    let refused = |what: &[&str]| {
        let reason = back_up(&backups, &second).expect_err("a start refuses it");
        assert!(reason.contains("no broker would start") && what.iter().all(|what| reason.contains(what)), "{reason}");
        assert_eq!(names_below(&second), Vec::<PathBuf>::new(), "nothing is left of it");
    };
    refused(&["journal 1", &sealed.to_string_lossy()]);
    file.write_all_at(&footer, end).unwrap();
    back_up(&backups, &second).unwrap();
    fs::remove_dir_all(&second).unwrap();
    // What the catalog says.
    running.append(0, vec![newer_topic()]);
    refused(&["catalog record of topic \"newer\""]);
    assert_eq!(counted(&backups), "mainstem_backups_total 2 mainstem_backup_failures_total 2");
    running.close();
}

#[test]
fn a_restore_asks_what_starts() {
    let scratch = tempfile::tempdir().unwrap();
    let (data, to, target) =
        (scratch.path().join("data"), scratch.path().join("backup"), scratch.path().join("restored"));
    let running = Running::open(&data, 1);
    back_up(&running.backups(&data), &to).unwrap();
    running.close();
    // A backup of a release that did not ask: everything in it is whole.
    let running = Running::open(&to, 1);
    running.append(0, vec![newer_topic()]);
    running.close();
    let (folder, mut manifest) = (to.join("journal-0"), Manifest::read(&to).unwrap());
    let part = |entry: io::Result<fs::DirEntry>| {
        let (entry, length) = entry.map(|entry| (entry.file_name(), entry.metadata().unwrap().len())).unwrap();
        FilePart { name: entry.into_string().unwrap(), bytes: length, used: length }
    };
    manifest.journals[0].files = fs::read_dir(&folder).unwrap().map(part).collect();
    manifest.journals[0].index =
        journal::survey(&folder, 0, &ArchiveReader::of(&to.join("archive")), &|_| {}).unwrap().last.0;
    fs::write(to.join(manifest::NAME), toml::to_string(&manifest).unwrap()).unwrap();
    let said = refusal(restore::run(&to, &target, None));
    assert!(said.contains("no broker would start") && said.contains("catalog record of topic \"newer\""), "{said}");
    assert_eq!(names_below(&target), Vec::<PathBuf>::new(), "nothing is left of it");
    let said = refusal(crate::damage::verify(&to, None, true));
    assert!(said.contains("catalog record of topic \"newer\""), "{said}");
}

#[test]
fn objects_that_are_there_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("archive/log/object"));
    let bytes: Vec<u8> = (0..3 * PIECE_BYTES as u32 + 7).map(|number| (number % 251) as u8).collect();
    fs::write(&from, &bytes).unwrap();
    let put = || restore::put_object(&from, &to, bytes.len() as u64);
    // What a death in the middle of an earlier restore left.
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::write(folder.path().join("archive/log/object#1"), "half").unwrap();
    put().unwrap();
    assert_eq!(fs::read(&to).unwrap(), bytes);
    let made = fs::metadata(&to).unwrap().modified().unwrap();
    put().unwrap();
    assert_eq!(fs::metadata(&to).unwrap().modified().unwrap(), made, "it is not written again");
    assert_eq!(fs::read_dir(to.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
    // What the backup has is no whole object: it takes the place of none.
    let mut other = bytes.clone();
    *other.last_mut().unwrap() ^= 1;
    for other in [other, bytes[..PIECE_BYTES].to_vec()] {
        fs::write(&to, &other).unwrap();
        let error = put().expect_err("it is damaged").to_string();
        assert!(error.contains("stays as it is"), "{error}");
        assert_eq!(fs::read(&to).unwrap(), other);
    }
}

/// As that of a segment that became immutable meanwhile.
#[test]
fn a_second_name_that_stays_keeps_no_backup_from_being_made() {
    let scratch = tempfile::tempdir().unwrap();
    let data = scratch.path().join("data");
    let running = Running::open_unarchived(&data, 1);
    running.append(0, vec![Running::batch(&running.log(0, 1), &[7; 900], 50)]);
    let backups = running.backups(&data);
    let names = data.join("journal-0").join(PINNED);
    fs::create_dir_all(names.join("0")).unwrap();
    let stays = names.join("0/segment-000000000001");
    fs::write(&stays, "acknowledged").unwrap();
    let first = PinnedFolder::make_beside(&names).unwrap();
    assert_eq!(first.0, names.join("1"));
    fs::write(first.0.join("segment-000000000002"), "acknowledged").unwrap();
    drop(first);
    assert_eq!(names_below(&names), slice::from_ref(&stays), "what another backup has left is not its own");
    // Now it can be removed.
    back_up(&backups, &scratch.path().join("one")).unwrap();
    assert!(!names.exists());
    running.close();
}

#[test]
fn a_link_in_the_place_of_second_names_leads_to_files_that_stay() {
    let scratch = tempfile::tempdir().unwrap();
    let (data, elsewhere) = (scratch.path().join("data"), scratch.path().join("elsewhere"));
    let running = Running::open_unarchived(&data, 1);
    running.append(0, vec![Running::batch(&running.log(0, 1), &[7; 900], 50)]);
    fs::create_dir_all(elsewhere.join("folder")).unwrap();
    fs::write(elsewhere.join("folder/file"), "somebody's").unwrap();
    let link = data.join("journal-0").join(PINNED);
    for target in [elsewhere.as_path(), Path::new(".")] {
        let before = names_below(&data.join("journal-0"));
        std::os::unix::fs::symlink(target, &link).unwrap();
        drop(running.backups(&data));
        assert!(link.symlink_metadata().is_err(), "the link goes");
        assert_eq!(names_below(&elsewhere), [elsewhere.join("folder/file")]);
        assert_eq!(names_below(&data.join("journal-0")), before);
    }
    back_up(&running.backups(&data), &scratch.path().join("one")).unwrap();
    running.close();
}
