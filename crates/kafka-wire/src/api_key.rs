//! The APIs that there is a codec for.

use crate::generated::APIS;

/// One API: its number, name and the versions of its codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// Kafka's number.
    pub key: i16,
    /// Kafka's name.
    pub name: &'static str,
    /// First version of the codec.
    pub first: i16,
    /// Last version of the codec.
    pub last: i16,
    /// First version with compact lengths and tagged fields.
    pub flexible_from: Option<i16>,
}

impl ApiKey {
    /// All of them, by number.
    pub fn all() -> &'static [Self] {
        APIS
    }

    /// By its number.
    pub fn find(key: i16) -> Option<&'static Self> {
        APIS.iter().find(|api| api.key == key)
    }

    /// Does this version use compact lengths and tagged fields?
    pub fn flexible(&self, version: i16) -> bool {
        self.flexible_from.is_some_and(|from| version >= from)
    }
}
