//! Which entries a list of filters picks. The work is linear in the filters, the entries and what is picked: a filter is not compared with
//! every entry. Filters that name the same fields are looked up in one table of the entries by these fields; a few of them are compared,
//! which is cheaper than a table.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;

use super::acl::{Acl, AclFilter, AclOperation, AclPattern, AclPatternFilter, AclPermission, AclResource, WILDCARD};

/// Up to so many filters that name the same fields are compared with all entries.
const COMPARED_MAX: usize = 16;

/// The fields that a filter names; the others are `None`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Fields<'a> {
    resource: Option<AclResource>,
    name: Option<&'a str>,
    pattern: Option<AclPattern>,
    principal: Option<&'a str>,
    host: Option<&'a str>,
    operation: Option<AclOperation>,
    permission: Option<AclPermission>,
}

/// Which fields are named.
type Shape = [bool; 7];

impl<'a> Fields<'a> {
    /// Of a filter, its name as it is written.
    fn of(filter: &'a AclFilter) -> Self {
        let name = filter.name.as_deref();
        let pattern = match filter.pattern {
            AclPatternFilter::Is(pattern) => Some(pattern),
            // Each of the names that it is looked up by goes with a pattern.
            AclPatternFilter::Match => name.map(|_| AclPattern::Literal),
            AclPatternFilter::Any => None,
        };
        let AclFilter { resource, operation, permission, .. } = *filter;
        Self {
            resource,
            name,
            pattern,
            principal: filter.principal.as_deref(),
            host: filter.host.as_deref(),
            operation,
            permission,
        }
    }

    fn shape(&self) -> Shape {
        [
            self.resource.is_some(),
            self.name.is_some(),
            self.pattern.is_some(),
            self.principal.is_some(),
            self.host.is_some(),
            self.operation.is_some(),
            self.permission.is_some(),
        ]
    }

    /// Of an entry, those that the shape names.
    fn of_entry(acl: &'a Acl, [resource, name, pattern, principal, host, operation, permission]: Shape) -> Self {
        Self {
            resource: resource.then_some(acl.resource),
            name: name.then_some(&*acl.name),
            pattern: pattern.then_some(acl.pattern),
            principal: principal.then_some(&*acl.principal),
            host: host.then_some(&*acl.host),
            operation: operation.then_some(acl.operation),
            permission: permission.then_some(acl.permission),
        }
    }
}

/// Entries in a table by the fields of one shape, as positions in their list.
struct Table<'a> {
    by_fields: HashMap<Fields<'a>, Vec<usize>>,
    /// Lengths that names of prefixed entries have.
    prefixes: BTreeSet<usize>,
}

impl<'a> Table<'a> {
    fn new(entries: &'a [Arc<Acl>], shape: Shape) -> Self {
        let mut table = Self { by_fields: HashMap::new(), prefixes: BTreeSet::new() };
        for (at, acl) in entries.iter().enumerate() {
            table.by_fields.entry(Fields::of_entry(acl, shape)).or_default().push(at);
            if acl.pattern == AclPattern::Prefixed {
                table.prefixes.insert(acl.name.len());
            }
        }
        table
    }

    fn find<'f>(&'f self, fields: Fields<'f>) -> &'f [usize] {
        self.by_fields.get(&fields).map_or(&[], Vec::as_slice)
    }

    /// What a filter picks, in the order of the list.
    fn pick(&self, filter: &AclFilter) -> Vec<usize> {
        let fields = Fields::of(filter);
        let (AclPatternFilter::Match, Some(name)) = (filter.pattern, fields.name) else {
            return self.find(fields).to_vec();
        };
        let mut found = self.find(fields).to_vec();
        if name != WILDCARD {
            found.extend(self.find(Fields { name: Some(WILDCARD), ..fields }));
        }
        for length in self.prefixes.range(..=name.len()) {
            if let Some(prefix) = name.get(..*length) {
                found.extend(self.find(Fields { name: Some(prefix), pattern: Some(AclPattern::Prefixed), ..fields }));
            }
        }
        found.sort_unstable();
        found
    }
}

/// By filter, the entries that it picks, in their order. `None`: all filters together pick more than `most`.
pub(super) fn pick(entries: &[Arc<Acl>], filters: &[AclFilter], most: usize) -> Option<Vec<Vec<Arc<Acl>>>> {
    let mut by_shape: HashMap<Shape, Vec<usize>> = HashMap::new();
    for (at, filter) in filters.iter().enumerate() {
        by_shape.entry(Fields::of(filter).shape()).or_default().push(at);
    }
    let (mut picked, mut count) = (vec![Vec::new(); filters.len()], 0);
    for (shape, numbers) in by_shape {
        let table = (numbers.len() > COMPARED_MAX).then(|| Table::new(entries, shape));
        for number in numbers {
            let filter = &filters[number];
            let found: Vec<Arc<Acl>> = match &table {
                Some(table) => table.pick(filter).into_iter().map(|at| Arc::clone(&entries[at])).collect(),
                None => entries.iter().filter(|acl| filter.matches(acl)).cloned().collect(),
            };
            count += found.len();
            if count > most {
                return None;
            }
            picked[number] = found;
        }
    }
    Some(picked)
}

#[cfg(test)]
mod tests;
