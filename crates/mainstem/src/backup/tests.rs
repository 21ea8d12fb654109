//! Objects of a restore.

use super::*;

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
