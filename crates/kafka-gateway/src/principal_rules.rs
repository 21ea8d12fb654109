//! Who shows a certificate: `ssl.principal.mapping.rules`, as Kafka's SslPrincipalMapper reads them. The first rule whose pattern matches all of the
//! distinguished name (RFC 4514, the common name first) makes the principal's name of it.
//!
//! ```text
//! rules  rule [, rule …]
//! rule   DEFAULT                               the distinguished name itself
//!        RULE:pattern/replacement/[L|U]        the replacement, in which $1 to $9 are groups of the pattern; L: in small letters, U: in capital ones
//! ```

use regex::{Regex, RegexBuilder};

/// Bytes that a compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Rules that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRules {
    /// Neither `DEFAULT` nor `RULE:pattern/replacement/[LU]`.
    #[error("{0:?} is no rule: it is DEFAULT or RULE:pattern/replacement/, with L or U behind")]
    Rule(String),
    /// A pattern that is none.
    #[error("{pattern:?} is no regular expression: {reason}")]
    Pattern {
        /// As given.
        pattern: String,
        /// In a line.
        reason: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Letters {
    AsTheyAre,
    Small,
    Capital,
}

#[derive(Clone, Debug)]
enum Rule {
    Default,
    Replace { whole: Regex, replacement: String, letters: Letters },
}

/// All rules, in order.
#[derive(Clone, Debug)]
pub struct PrincipalRules(Vec<Rule>);

/// Up to a `/` that no `\` stands before, and what follows it.
fn part(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '/' => return Some((out, &text[at + 1..])),
            '\\' => match letters.next() {
                Some((_, '/')) => out.push('/'),
                Some((_, other)) => out.extend(['\\', other]),
                None => out.push('\\'),
            },
            other => out.push(other),
        }
    }
    None
}

/// `$1` as the expressions here write it, whatever letter follows.
fn groups(replacement: &str) -> String {
    let mut out = String::new();
    let mut letters = replacement.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letters.peek()) {
            ('$', Some(digit)) if digit.is_ascii_digit() => {
                out.extend(['$', '{', *digit, '}']);
                letters.next();
            }
            ('$', _) => out.push_str("$$"),
            _ => out.push(letter),
        }
    }
    out
}

impl PrincipalRules {
    /// Reads a setting; an empty one is `DEFAULT`.
    ///
    /// # Errors
    /// The first rule that is none.
    pub fn parse(text: &str) -> Result<Self, InvalidRules> {
        let (mut rules, mut rest) = (Vec::new(), text.trim());
        while !rest.is_empty() {
            let (rule, after) = Self::rule(rest)?;
            rules.push(rule);
            let after = after.trim_start();
            rest = match after.strip_prefix(',') {
                Some(next) if !next.trim().is_empty() => next.trim_start(),
                None if after.is_empty() => after,
                _ => return Err(InvalidRules::Rule(after.to_owned())),
            };
        }
        if rules.is_empty() {
            rules.push(Rule::Default);
        }
        Ok(Self(rules))
    }

    fn rule(text: &str) -> Result<(Rule, &str), InvalidRules> {
        if let Some(rest) = text.strip_prefix("DEFAULT") {
            return Ok((Rule::Default, rest));
        }
        let refuse = || InvalidRules::Rule(text.to_owned());
        let rest = text.strip_prefix("RULE:").ok_or_else(refuse)?;
        let (pattern, rest) = part(rest).ok_or_else(refuse)?;
        let (replacement, rest) = part(rest).ok_or_else(refuse)?;
        let (letters, rest) = match (rest.strip_prefix('L'), rest.strip_prefix('U')) {
            (Some(rest), _) => (Letters::Small, rest),
            (_, Some(rest)) => (Letters::Capital, rest),
            _ => (Letters::AsTheyAre, rest),
        };
        let whole = RegexBuilder::new(&format!("^(?:{pattern})$")).size_limit(PATTERN_BYTES_MAX).build();
        let whole = whole.map_err(|error| InvalidRules::Pattern {
            pattern: pattern.clone(),
            reason: error.to_string().lines().last().unwrap_or_default().trim().to_owned(),
        })?;
        Ok((Rule::Replace { whole, replacement: groups(&replacement), letters }, rest))
    }

    /// The name of whoever has a certificate with this distinguished name. `None`: no rule is about it.
    pub fn name(&self, distinguished: &str) -> Option<String> {
        let name = self.0.iter().find_map(|rule| match rule {
            Rule::Default => Some(distinguished.to_owned()),
            Rule::Replace { whole, replacement, letters } => {
                let mut name = String::new();
                whole.captures(distinguished)?.expand(replacement, &mut name);
                Some(match letters {
                    Letters::AsTheyAre => name,
                    Letters::Small => name.to_lowercase(),
                    Letters::Capital => name.to_uppercase(),
                })
            }
        });
        name.filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUKE: &str = "CN=Duke,OU=ServiceUsers,O=Org,C=US";

    fn name(rules: &str, distinguished: &str) -> Option<String> {
        PrincipalRules::parse(rules).expect("rules").name(distinguished)
    }

    /// Examples of Kafka's documentation among them.
    #[test]
    fn the_first_rule_that_matches_names_him() {
        let rules = "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, \
                     RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT";
        assert_eq!(name(rules, DUKE).as_deref(), Some("Duke"));
        assert_eq!(
            name(rules, "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown").as_deref(),
            Some("adminuser@admin")
        );
        assert_eq!(name(rules, "O=x").as_deref(), Some("O=x"));
        for same in ["", "DEFAULT", " DEFAULT "] {
            assert_eq!(name(same, DUKE).as_deref(), Some(DUKE));
        }
        assert_eq!(name("RULE:^CN=(.*?),.*$/$1x/U", DUKE).as_deref(), Some("DUKEX"));
        assert_eq!(name("RULE:CN=(\\w+)\\/(\\w+)/$2\\/$1/", "CN=a/b").as_deref(), Some("b/a"));
        assert_eq!(name("RULE:CN=.*/$/", "CN=a").as_deref(), Some("$"));
    }

    #[test]
    fn a_pattern_is_about_the_whole_name_and_who_has_none_is_nobody() {
        assert_eq!(name("RULE:^CN=(.*?),OU=Other$/$1/", DUKE), None);
        assert_eq!(name("RULE:Duke/x/", DUKE), None);
        assert_eq!(name("RULE:(x?).*/$1/", DUKE), None, "an empty name");
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in [
            "default",
            "RULE:",
            "RULE:a",
            "RULE:a/b",
            "DEFAULT,",
            "DEFAULT RULE:a/b/",
            "RULE:a/b/X",
            "RULE:a/b/,,DEFAULT",
        ] {
            assert!(matches!(PrincipalRules::parse(text), Err(InvalidRules::Rule(_))), "{text}");
        }
        assert!(matches!(PrincipalRules::parse("RULE:(/b/"), Err(InvalidRules::Pattern { .. })));
        assert!(matches!(PrincipalRules::parse("RULE:(a{1000}){1000}/b/"), Err(InvalidRules::Pattern { .. })));
    }
}
