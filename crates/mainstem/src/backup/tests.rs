//! How a backup ends.

use super::*;

fn backups(folder: &Path) -> Arc<Backups> {
    let (journals, journal_folders) = (Vec::new(), Vec::new());
    let (folder, archive) = (folder.to_owned(), folder.join("archive"));
    Backups::new(Source { journals, folder, journal_folders, cluster_id: "one".to_owned(), archive, mode: IoMode::Buffered })
}

#[test]
fn after_a_defect_another_backup_can_be_made() {
    let (data, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(data.path().join("meta.toml"), "format_version = 1\n").unwrap();
    let backups = backups(data.path());
    backups.state.lock().0 = State::Running;
    backups.follow(to.path(), || panic!("a defect"));
    assert_eq!(backups.progress()["state"], "failed");
    backups.begin(&to.path().join("next")).unwrap();
    let began = Instant::now();
    while backups.progress()["state"] == "running" {
        assert!(began.elapsed().as_secs() < 20, "it ends");
        std::thread::yield_now();
    }
    assert_eq!(backups.progress()["state"], "done", "{}", backups.progress());
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
