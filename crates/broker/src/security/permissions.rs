//! What a user may do in a virtual host: expressions that names of exchanges and queues have to match, and expressions for routing keys
//! of topic exchanges. As in RabbitMQ an expression may match anywhere in a name, and an empty one matches the empty name only; for
//! permissions the default exchange is called `amq.default`.

use std::collections::BTreeMap;
use std::fmt;

use regex::bytes::{Regex, RegexBuilder};

/// Bytes that a compiled expression may take.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Bytes of an expression.
const PATTERN_LENGTH_MAX: usize = 65_535;
/// Characters of one that is longer, where it is refused.
const PATTERN_SHOWN: usize = 100;

/// What a name is looked up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Permission {
    /// Declaring and deleting.
    Configure,
    /// Publishing; binding to it.
    Write,
    /// Consuming, getting, purging; binding from it.
    Read,
}

impl Permission {
    /// As errors have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Configure => "configure",
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An expression that cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pattern:?} is no valid regular expression: {reason}")]
pub struct InvalidPattern {
    /// As given.
    pub pattern: String,
    /// In a line.
    pub reason: String,
}

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    matcher: Matcher,
}

#[derive(Clone, Debug)]
enum Matcher {
    Everything,
    EmptyName,
    Regex(Regex),
}

impl Pattern {
    /// Compiles an expression. Look-around and back references are not known: matching takes time in proportion to the name only.
    ///
    /// # Errors
    /// When it is none, or one whose compiled form is larger than 1 MiB.
    pub fn new(text: &str) -> Result<Self, InvalidPattern> {
        Self::with_text(text, text)
    }

    /// Matches as `expression` and is shown as `text`.
    fn with_text(text: &str, expression: &str) -> Result<Self, InvalidPattern> {
        // What is parsed takes many times its length before any limit on what comes of it holds.
        if text.len() > PATTERN_LENGTH_MAX {
            let pattern = text.chars().take(PATTERN_SHOWN).collect();
            return Err(InvalidPattern { pattern, reason: format!("it is longer than {PATTERN_LENGTH_MAX} bytes") });
        }
        let build = |unicode| RegexBuilder::new(expression).unicode(unicode).size_limit(PATTERN_BYTES_MAX).build();
        let matcher =
            match expression {
                ".*" | "^.*" => Matcher::Everything,
                "" => Matcher::EmptyName,
                // Names are bytes; a class with other letters than ASCII needs to know that they are UTF-8.
                _ => Matcher::Regex(build(false).or_else(|_| build(true)).map_err(|error| {
                    InvalidPattern {
                        pattern: text.to_owned(),
                        reason: error
                            .to_string()
                            .lines()
                            .last()
                            .unwrap_or_default()
                            .trim()
                            .trim_start_matches("error: ")
                            .to_owned(),
                    }
                })?),
            };
        Ok(Self { text: text.to_owned(), matcher })
    }

    /// As it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Does it match every name?
    pub fn is_everything(&self) -> bool {
        matches!(self.matcher, Matcher::Everything)
    }

    /// Does it match this one?
    pub fn matches(&self, name: &[u8]) -> bool {
        match &self.matcher {
            Matcher::Everything => true,
            Matcher::EmptyName => name.is_empty(),
            Matcher::Regex(regex) => regex.is_match(name),
        }
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

/// Of one user in one virtual host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// What may be declared and deleted.
    pub configure: Pattern,
    /// What may be published to.
    pub write: Pattern,
    /// What may be consumed from.
    pub read: Pattern,
}

impl Permissions {
    /// Compiles all three.
    ///
    /// # Errors
    /// The first that is no expression.
    pub fn new(configure: &str, write: &str, read: &str) -> Result<Self, InvalidPattern> {
        Ok(Self { configure: Pattern::new(configure)?, write: Pattern::new(write)?, read: Pattern::new(read)? })
    }

    /// Everything.
    pub(super) fn all() -> Self {
        let everything = || Pattern { text: ".*".to_owned(), matcher: Matcher::Everything };
        Self { configure: everything(), write: everything(), read: everything() }
    }

    /// The expression for this.
    pub fn of(&self, permission: Permission) -> &Pattern {
        match permission {
            Permission::Configure => &self.configure,
            Permission::Write => &self.write,
            Permission::Read => &self.read,
        }
    }
}

/// Of one user for the routing keys of one topic exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPermission {
    /// With which keys may be published.
    pub write: Pattern,
    /// With which keys may be bound from it.
    pub read: Pattern,
}

impl TopicPermission {
    /// Compiles both for a user of a virtual host: `{username}` and `{vhost}` stand for their names.
    ///
    /// # Errors
    /// The first that is no expression.
    pub fn new(write: &str, read: &str, user: &str, vhost: &str) -> Result<Self, InvalidPattern> {
        let expand =
            |text: &str| text.replace("{username}", &regex::escape(user)).replace("{vhost}", &regex::escape(vhost));
        Ok(Self { write: Pattern::with_text(write, &expand(write))?, read: Pattern::with_text(read, &expand(read))? })
    }

    /// The expression for this; [`Permission::Configure`] is for no key.
    pub fn of(&self, permission: Permission) -> Option<&Pattern> {
        match permission {
            Permission::Configure => None,
            Permission::Write => Some(&self.write),
            Permission::Read => Some(&self.read),
        }
    }
}

/// Of one user in one virtual host, by the name of the exchange. An exchange without any takes all keys.
pub type TopicPermissions = BTreeMap<String, TopicPermission>;

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text).expect("an expression")
    }

    #[test]
    fn an_expression_matches_anywhere_unless_it_says_where() {
        assert!(pattern("order").matches(b"my-orders"));
        assert!(!pattern("^order").matches(b"my-orders"));
        assert!(pattern("^(order|amq\\.default$)").matches(b"amq.default"));
        assert!(pattern(".*").is_everything() && pattern(".*").matches(b"\xff"));
        assert!(pattern("").matches(b"") && !pattern("").matches(b"a"));
        assert!(pattern("^gr.{4}e$").matches("größe".as_bytes()), "a point is a byte");
        assert!(pattern("^gr[öß]+e$").matches("größe".as_bytes()));
        let refused = Pattern::new("(").expect_err("no expression");
        assert_eq!(refused.pattern, "(");
        assert!(refused.reason.contains("unclosed"), "{refused}");
        assert!(Pattern::new("(a{1000}){1000}").is_err(), "too large");
        let refused = Pattern::new(&"a|".repeat(40_000)).expect_err("too long");
        assert!(refused.pattern.len() == PATTERN_SHOWN && refused.reason.contains("longer"), "{refused}");
    }

    #[test]
    fn the_names_of_user_and_host_are_no_expressions_themselves() {
        let topic = TopicPermission::new("^{username}\\.", "^{vhost}-{username}$", "a.b", "/x").expect("expressions");
        assert!(topic.write.matches(b"a.b.c") && !topic.write.matches(b"axb.c"));
        assert!(topic.read.matches(b"/x-a.b"));
        assert_eq!(topic.write.text(), "^{username}\\.");
        let wild = TopicPermission::new("^{username}$", "", ".*", "/").expect("expressions");
        assert!(!wild.write.matches(b"anything"));
    }
}
