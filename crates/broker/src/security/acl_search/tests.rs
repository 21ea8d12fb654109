//! Entries are found by table as they are by comparing, and many filters among many entries cost no product of the two.

use std::time::{Duration, Instant};

use super::*;
use crate::security::Security;
use crate::settings::Settings;

fn acl(name: &str, pattern: AclPattern, principal: &str) -> Acl {
    Acl {
        resource: AclResource::Topic,
        name: name.to_owned(),
        pattern,
        principal: format!("User:{principal}"),
        host: WILDCARD.to_owned(),
        operation: AclOperation::Read,
        permission: AclPermission::Allow,
    }
}

#[test]
fn a_table_picks_what_comparing_picks() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |most: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % most as u64) as usize
    };
    let names = ["a", "ab", "abc", "b", "*", "größe", "gr"];
    let (users, hosts) = (["bob", "ann", "*"], ["*", "127.0.0.1"]);
    let (resources, operations) = ([AclResource::Topic, AclResource::Group], [AclOperation::Read, AclOperation::All]);
    let (patterns, permissions) =
        ([AclPattern::Literal, AclPattern::Prefixed], [AclPermission::Allow, AclPermission::Deny]);
    for _ in 0..20 {
        let mut all = BTreeSet::new();
        for _ in 0..below(80) {
            let made = acl(names[below(7)], patterns[below(2)], users[below(3)]);
            let (resource, host) = (resources[below(2)], hosts[below(2)].to_owned());
            all.insert(Arc::new(Acl {
                resource,
                host,
                operation: operations[below(2)],
                permission: permissions[below(2)],
                ..made
            }));
        }
        let entries: Vec<Arc<Acl>> = all.into_iter().collect();
        let mut filters = Vec::new();
        // Many enough of each shape that they are looked up, and few of some.
        for _ in 0..3000 {
            let pattern = match below(4) {
                0 => AclPatternFilter::Any,
                1 => AclPatternFilter::Is(patterns[below(2)]),
                _ => AclPatternFilter::Match,
            };
            filters.push(AclFilter {
                resource: (below(2) == 0).then(|| resources[below(2)]),
                name: (below(3) > 0).then(|| ["a", "abcd", "ab", "größer", "gr", "*", ""][below(7)].to_owned()),
                pattern,
                principal: (below(3) == 0).then(|| format!("User:{}", users[below(3)])),
                host: (below(4) == 0).then(|| hosts[below(2)].to_owned()),
                operation: (below(4) == 0).then(|| operations[below(2)]),
                permission: (below(4) == 0).then(|| permissions[below(2)]),
            });
        }
        let picked = pick(&entries, &filters, usize::MAX).expect("no bound");
        for (filter, found) in filters.iter().zip(&picked) {
            let expected: Vec<Arc<Acl>> = entries.iter().filter(|acl| filter.matches(acl)).cloned().collect();
            assert_eq!(*found, expected, "{filter:?}");
        }
        let count = picked.iter().map(Vec::len).sum();
        assert!(pick(&entries, &filters, count).is_some());
        assert!(count == 0 || pick(&entries, &filters, count - 1).is_none());
    }
}

#[test]
fn many_filters_among_many_entries_are_no_product() {
    let entries: Vec<Arc<Acl>> =
        (0..50_000).map(|number| Arc::new(acl("orders", AclPattern::Literal, &format!("{number:06}")))).collect();
    let filters: Vec<AclFilter> = (0..50_000)
        .map(|number| AclFilter { principal: Some(format!("User:{:06}", number * 2)), ..AclFilter::default() })
        .collect();
    let begun = Instant::now();
    let picked = pick(&entries, &filters, entries.len()).expect("not more than there are");
    assert_eq!(picked.iter().map(Vec::len).sum::<usize>(), 25_000);
    // All of one name go at once, not each by a search among those of its name.
    let mut settings = Settings::default();
    settings.set("super.users", "User:root").expect("a setting");
    let security = Security::new(&settings);
    security.change(|inner| entries.iter().for_each(|acl| inner.acls.insert(Acl::clone(acl))));
    let gone: BTreeSet<&Arc<Acl>> = picked.iter().flatten().collect();
    security.change(|inner| inner.acls.remove_all(&gone));
    assert_eq!(security.acls(&AclFilter::default()).len(), 25_000);
    // Compared one with the other it is minutes.
    assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", begun.elapsed());
}
