//! Payloads: size, randomness, files.

use super::*;

fn zeros(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == 0).count()
}

#[test]
fn payloads_are_random_unless_asked_otherwise() {
    let mut pool = Pool::new(&Workload { message_size: 4096, ..Workload::default() }, 1).unwrap();
    let first = pool.take().to_vec();
    assert_eq!(first.len(), 4096);
    assert!(zeros(&first) < 60, "{} zeros", zeros(&first));
    assert_ne!(first, pool.take(), "payloads differ");
    let half = Workload { message_size: 4096, random_bytes_ratio: 0.5, ..Workload::default() };
    assert!((2048..2100).contains(&zeros(Pool::new(&half, 1).unwrap().take())));
}

#[test]
fn a_file_must_have_the_size_of_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("payload.data");
    fs::write(&file, [7; 100]).unwrap();
    let mut workload = Workload { message_size: 100, payload_file: Some(file), ..Workload::default() };
    assert_eq!(Pool::new(&workload, 1).unwrap().take()[20..], [7; 100][20..], "all but the stamp and the checksum");
    assert_eq!(remark(&workload), None);
    workload.message_size = 101;
    let said = Pool::new(&workload, 1).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(said.ends_with("has 100 bytes, messageSize says 101"), "{said}");
    workload.payload_file = Some("payload/nowhere.data".into());
    assert_eq!(Pool::new(&workload, 1).unwrap().take().len(), 101);
    assert_eq!(
        remark(&workload).as_deref(),
        Some("payloadFile payload/nowhere.data is not there: 101 random bytes instead")
    );
}
