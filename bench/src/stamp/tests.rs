//! Stamps, and what fingerprints tell apart.

use super::*;

#[test]
fn a_stamp_is_read_as_it_was_written() {
    let stamp = Stamp { due: 1_700_000_000_000_000_001, number: Stamp::number(7, 12) };
    let mut message = [0xff; 40];
    stamp.write(&mut message);
    assert_eq!(Stamp::read(&message), Some(stamp));
    assert_eq!(message[16..], [0xff; 24]);
    assert_eq!(Stamp::read(&message[..15]), None);
    assert_ne!(Stamp::number(0, 1), Stamp::number(1, 1));
}

fn of(numbers: &[u64]) -> Fingerprint {
    let mut print = Fingerprint::default();
    numbers.iter().for_each(|number| print.add(*number));
    print
}

#[test]
fn order_does_not_matter_but_loss_and_repetition_do() {
    assert_eq!(of(&[1, 2, 3, 4]), of(&[4, 2, 1, 3]));
    assert_ne!(of(&[1, 2, 3, 4]), of(&[1, 2, 3]), "one is missing");
    assert_ne!(of(&[1, 2, 3, 4]), of(&[1, 2, 3, 3]), "one is missing and another came twice");
    let mut both = of(&[1, 2]);
    both.merge(of(&[1, 2]));
    assert_eq!(both, of(&[1, 2]).times(2), "two subscriptions");
}

#[test]
fn content_that_was_changed_is_seen() {
    for length in [24, 25, 1000] {
        let mut message = vec![7; length];
        seal(&mut message);
        Stamp { due: 1, number: 2 }.write(&mut message);
        assert!(is_intact(&message), "the stamp is not part of the content");
        for at in [16, 19, 20, length - 1] {
            message[at] ^= 1;
            assert!(!is_intact(&message), "byte {at} of {length}");
            message[at] ^= 1;
        }
        assert!(!is_intact(&message[..length - 1]) || length == 24, "the end is missing");
    }
    assert!(is_intact(&[0; 20]), "too short for a checksum");
}

#[test]
fn messages_of_a_producer_are_in_order_whatever_others_do() {
    let mut lane = Lane::default();
    let seen = [(0, 5), (1, 0), (0, 6), (0, 6), (1, 9), (0, 4), (0, 7), (1, 8)];
    let in_order = seen.map(|(producer, message)| lane.is_in_order(Stamp::number(producer, message)));
    assert_eq!(in_order, [true, true, true, true, true, false, true, false]);
}
