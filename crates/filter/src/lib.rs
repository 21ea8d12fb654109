//! Expressions that say which records a subscription wants. Parsed once, where the filter is set; asked for every record of the batches
//! that its subscription reads. Knows nothing of groups, logs or protocols.
//!
//! ```text
//! expression  term { OR term }
//! term        factor { AND factor }
//! factor      NOT factor | ( expression ) | TRUE | FALSE | test
//! test        field ( = | <> | != | < | <= | > | >= ) literal
//!             field [NOT] IN ( literal { , literal } )
//!             field [NOT] BETWEEN literal AND literal
//!             field [NOT] LIKE 'pattern' [ESCAPE 'c']           % any characters, _ one character
//!             field IS [NOT] NULL
//! field       key | timestamp | header.NAME | header."any name"
//! literal     'text', with '' for a quote | X'00ff' | -12 | 3.25
//! ```
//!
//! Words are the same in capitals and small letters; names of headers are not. A bare name has letters, digits, `_`, `-` and `.`.
//!
//! Logic has SQL's three values: a key or header that is not there is null, what compares with null is neither true nor false, and only
//! what is true is wanted. Of several headers with one name the last one counts, as for Kafka's clients. Compared with text or `X''`, a key
//! or header is its bytes, in their order; compared with a number, it is the number that its text spells, or null when it spells none.
//! `timestamp` is the record's, in milliseconds since 1970, and compares with numbers only.

mod expression;
mod number;
mod parse;
mod pattern;
mod steps;
mod summary;

pub use parse::{FILTER_BYTES_MAX, FILTER_TESTS_MAX, FilterError};
pub use steps::{Steps, UsedUp};
pub use summary::{Summary, Wanted};

use expression::Expression;
use record::Fields;

/// An expression, ready to be asked.
#[derive(Debug)]
pub struct Filter {
    text: String,
    expression: Expression,
    wanted: Option<Wanted>,
}

impl Filter {
    /// Reads an expression of at most [`FILTER_BYTES_MAX`] bytes and [`FILTER_TESTS_MAX`] tests.
    ///
    /// # Errors
    /// Where it is not understood, and why.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let filter = Self::parse_kept(text)?;
        parse::check_tests(&filter.expression)?;
        Ok(filter)
    }

    /// The same for one that was set before, when it could have any number of tests.
    ///
    /// # Errors
    /// Where it is not understood, and why.
    pub fn parse_kept(text: &str) -> Result<Self, FilterError> {
        let expression = parse::parse(text)?;
        let wanted = expression.wanted();
        Ok(Self { text: text.to_owned(), expression, wanted })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Is it true of this record?
    pub fn matches(&self, record: &impl Fields) -> bool {
        self.judge(record, &mut Steps::new(usize::MAX)) == Ok(true)
    }

    /// The same with so many steps, of which those that were needed are taken.
    ///
    /// # Errors
    /// More would be needed. What was taken is gone.
    pub fn judge(&self, record: &impl Fields, steps: &mut Steps) -> Result<bool, UsedUp> {
        Ok(self.expression.evaluate(record, steps)? == Some(true))
    }

    /// A field that has one of some values in every record that matches; `None` when the expression asks for no such.
    pub fn wanted(&self) -> Option<&Wanted> {
        self.wanted.as_ref()
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Filter {}
