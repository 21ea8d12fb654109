//! What leaves: the length in front is that of the pieces behind it, and large record data is never copied.

use bytes::Bytes;
use kafka_wire::fetch::{FetchResponse, FetchableTopicResponse, PartitionData};
use kafka_wire::{Records, Writer};

use crate::memory::peak;

/// The writer passes slices of this size and more on as they are.
const SHARED_BYTES: usize = 4096;

fn response(slices: Vec<Bytes>) -> FetchResponse {
    let partition = PartitionData { records: Some(Records(slices)), ..PartitionData::default() };
    let topic = FetchableTopicResponse { partitions: vec![partition; 2], ..FetchableTopicResponse::default() };
    FetchResponse { responses: vec![topic], ..FetchResponse::default() }
}

fn pieces_of(response: &FetchResponse) -> Vec<Bytes> {
    let mut writer = Writer::new();
    response.encode(&mut writer, 12);
    writer.finish()
}

fn pieces(response: &FetchResponse) -> Vec<Bytes> {
    let mut writer = Writer::new();
    response.encode(&mut writer, 17);
    let announced = writer.len();
    let pieces = writer.finish_frame();
    let whole = pieces.concat();
    assert_eq!(whole[..4], u32::try_from(announced).expect("a length").to_be_bytes());
    assert_eq!(whole.len(), 4 + announced);
    pieces
}

#[test]
fn large_slices_are_passed_on() {
    let slices = vec![Bytes::from(vec![7; SHARED_BYTES]), Bytes::from(vec![8; 3 * SHARED_BYTES])];
    let found = pieces(&response(slices.clone()));
    for slice in &slices {
        let passed_on = found.iter().filter(|piece| piece.as_ptr() == slice.as_ptr() && piece.len() == slice.len());
        assert_eq!(passed_on.count(), 2, "a slice of {} bytes, in two partitions", slice.len());
    }
}

#[test]
fn small_messages_leave_in_one_piece() {
    assert_eq!(pieces(&response(vec![Bytes::from(vec![7; 100])])).len(), 1);
    assert_eq!(pieces(&FetchResponse::default()).len(), 1);
    // Longer than what is copied together with its length.
    assert_eq!(pieces(&response(vec![Bytes::from(vec![7; SHARED_BYTES - 1])])).len(), 2);
}

#[test]
fn slices_are_one_value_on_the_wire() {
    let apart = response(vec![Bytes::from(vec![7; 5000]), Bytes::from_static(b"end"), Bytes::from(vec![9; 5000])]);
    let together = response(vec![Bytes::from([vec![7; 5000], b"end".to_vec(), vec![9; 5000]].concat())]);
    assert_eq!(apart, together);
    assert_eq!(pieces(&apart).concat(), pieces(&together).concat());
}

#[test]
fn a_long_message_takes_little_more_than_its_bytes_while_it_is_written() {
    const MIB: usize = 1 << 20;
    let topic = |number: usize| FetchableTopicResponse {
        topic: format!("{number:01000}").into(),
        partitions: vec![PartitionData::default()],
        ..FetchableTopicResponse::default()
    };
    let response = FetchResponse { responses: (0..20_000).map(topic).collect(), ..FetchResponse::default() };
    let (found, held) = peak(|| pieces_of(&response));
    let bytes: usize = found.iter().map(Bytes::len).sum();
    assert!(bytes > 19 * MIB && held < bytes + 3 * MIB, "{held} bytes for {bytes}");
}

#[test]
fn slices_stay_in_their_places_in_a_long_message() {
    let slice = |number: u8| Bytes::from(vec![number; SHARED_BYTES]);
    let mut writer = Writer::new();
    let mut whole = Vec::new();
    for number in 0..=255u8 {
        let text = vec![number; 4000];
        (0..3).for_each(|_| writer.raw(&text));
        writer.share(&slice(number));
        whole.extend(text.repeat(3));
        whole.extend(slice(number));
        assert_eq!(writer.len(), whole.len());
    }
    assert!(writer.finish().concat() == whole);
}
