//! The numbers that are published for jump consistent hashing, and weights.

use super::{HashOn, InvalidBinding, Ring, jump, weight};

#[test]
fn keys_jump_where_the_published_function_sends_them() {
    // From the tests that came with other implementations of the paper's function.
    assert_eq!(
        [jump(1, 1), jump(42, 57), jump(0xdead_10cc, 1), jump(0xdead_10cc, 666), jump(256, 1024)],
        [0, 43, 0, 361, 520]
    );
}

#[test]
fn one_more_place_takes_its_share_and_moves_nothing_else() {
    let mut moved = 0;
    for key in 0..100_000 {
        let (before, after) = (jump(key, 9), jump(key, 10));
        assert!(before == after || after == 9);
        moved += usize::from(before != after);
    }
    assert!((9_500..10_500).contains(&moved), "{moved} of 100000");
}

#[test]
fn weights_are_whole_numbers_from_one_to_the_bound() {
    assert_eq!([weight(b"1"), weight(b"+7"), weight(b"0010"), weight(b"10000")], [Ok(1), Ok(7), Ok(10), Ok(10_000)]);
    assert_eq!(
        [weight(b"0"), weight(b"-3")],
        [Err(InvalidBinding::WeightTooSmall), Err(InvalidBinding::WeightTooSmall)]
    );
    assert_eq!(weight(b"10001"), Err(InvalidBinding::WeightTooLarge));
    assert_eq!(weight(&[b'9'; 255]), Err(InvalidBinding::WeightTooLarge));
    for key in ["", "-", "1.5", "a", "1 ", "+-1"] {
        assert_eq!(weight(key.as_bytes()), Err(InvalidBinding::WeightNoInteger(key.to_owned())));
    }
}

/// What leaves is known by its numbers, and need not be looked for among all points.
#[test]
fn the_last_points_get_the_numbers_of_what_leaves() {
    let (mut ring, mut points) = (Ring::new(HashOn::RoutingKey), Vec::new());
    let mut there = Vec::new();
    for step in 0..2000_u32 {
        let number = step.wrapping_mul(2_654_435_761) >> 8;
        if number % 5 < 3 || there.is_empty() {
            ring.give(step, number % 40 + 1);
            points.resize(points.len() + (number % 40 + 1) as usize, step);
            there.push(step);
        } else {
            let gone = there.swap_remove(number as usize % there.len());
            ring.take(gone);
            for at in (0..points.len()).rev() {
                if points[at] == gone {
                    points.swap_remove(at);
                }
            }
        }
        assert!(ring.points.iter().map(|point| point.of).eq(points.iter().copied()), "step {step}");
    }
    there.into_iter().for_each(|gone| ring.take(gone));
    assert!(ring.points.is_empty() && ring.numbers.is_empty());
}
