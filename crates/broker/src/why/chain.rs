//! Reasons that belong together: a word is named once, and what only follows from another reason joins it. A connection that waits for
//! its appends while the disk is slow has one reason, not two.

use super::WhyReason;

/// Why appends are not durable, the gravest first. `disk` follows from the first of them that there is.
const ROOTS_OF_DISK: [&str; 4] = ["disk-failed", "disk-full", "archive", "slow-disk"];

/// One reason a cause. The first that has it says most, the others have their words behind it. Beside them the word that appends which are not durable go by.
pub(super) fn join(reasons: Vec<WhyReason>) -> (Vec<WhyReason>, &'static str) {
    let root = ROOTS_OF_DISK.into_iter().find(|root| reasons.iter().any(|reason| reason.cause == *root));
    let mut joined: Vec<WhyReason> = Vec::with_capacity(reasons.len());
    for mut reason in reasons {
        if let ("disk", Some(root)) = (reason.cause, root) {
            reason.cause = root;
        }
        let Some(first) = joined.iter_mut().find(|first| first.cause == reason.cause) else {
            joined.push(reason);
            continue;
        };
        first.share = first.share.max(reason.share);
        first.worst = first.worst.max(reason.worst);
        first.connections = first.connections.max(reason.connections);
        first.text = format!("{}; {}", first.text, reason.text);
    }
    (joined, root.unwrap_or("disk"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(cause: &'static str, share: f64, connections: usize) -> WhyReason {
        WhyReason { cause, share, worst: share, connections, text: cause.to_owned() }
    }

    #[test]
    fn what_follows_from_a_reason_joins_it() {
        let (found, word) = join(vec![
            reason("slow-disk", 0.9, 0),
            reason("quota", 0.5, 1),
            reason("disk", 1.0, 3),
            reason("quota", 0.7, 2),
        ]);
        assert_eq!(word, "slow-disk");
        let short: Vec<_> =
            found.iter().map(|one| (one.cause, one.share, one.connections, one.text.as_str())).collect();
        assert_eq!(short, [("slow-disk", 1.0, 3, "slow-disk; disk"), ("quota", 0.7, 2, "quota; quota")]);
    }

    #[test]
    fn the_gravest_has_it() {
        let (found, word) =
            join(vec![reason("slow-disk", 0.9, 0), reason("disk-full", 1.0, 0), reason("disk", 0.6, 2)]);
        assert_eq!(word, "disk-full");
        let short: Vec<_> = found.iter().map(|one| (one.cause, one.connections)).collect();
        assert_eq!(short, [("slow-disk", 0), ("disk-full", 2)]);
        let (found, word) = join(vec![reason("disk", 0.3, 1)]);
        assert_eq!((found[0].cause, word), ("disk", "disk"));
    }
}
