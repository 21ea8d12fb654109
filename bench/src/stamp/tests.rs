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
