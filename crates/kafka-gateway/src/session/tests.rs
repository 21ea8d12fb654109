//! Numbers of the APIs that a session knows.

use super::*;

#[test]
fn apis_have_their_numbers() {
    let names = [PRODUCE, FETCH, SHARE_FETCH].map(|key| ApiKey::find(key).map(|api| api.name));
    assert_eq!(names, [Some("Produce"), Some("Fetch"), Some("ShareFetch")]);
}
