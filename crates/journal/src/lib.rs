//! The journal: chunks, segments, index, group commit, recovery, tail cache, cold reads.
