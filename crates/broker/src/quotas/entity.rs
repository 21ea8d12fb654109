//! Whom quotas are for, what they limit, and who is asked for.
//!
//! The quota of a connection is the first of these that has the key, as in Kafka:
//!
//! | | user | client id | what shares an account |
//! |---|---|---|---|
//! | 1, 2 | by name | by name, then default | this user with this client id |
//! | 3 | by name | – | this user |
//! | 4, 5 | default | by name, then default | this user with this client id |
//! | 6 | default | – | this user |
//! | 7, 8 | – | by name, then default | this client id |

use std::collections::BTreeMap;
use std::net::IpAddr;

/// A name, or whoever has none of his own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QuotaName {
    /// Everybody who is not named.
    Default,
    /// This one.
    Named(String),
}

/// Whom a quota is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QuotaEntity {
    /// Connections of users, or with client ids, or both; at least one of the two is there.
    Client {
        /// Who has logged in.
        user: Option<QuotaName>,
        /// What the client calls itself.
        client_id: Option<QuotaName>,
    },
    /// Connections from an address.
    Ip(QuotaName),
}

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QuotaKey {
    /// Bytes of requests that produce, a second.
    ProducerByteRate,
    /// Bytes of records fetched, a second.
    ConsumerByteRate,
    /// Time of network threads, in percent of one.
    RequestPercentage,
    /// Partitions created and deleted, a second.
    ControllerMutationRate,
    /// Connections, a second.
    ConnectionCreationRate,
}

/// The values of an entity.
pub type QuotaValues = BTreeMap<QuotaKey, f64>;

impl QuotaKey {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::ProducerByteRate,
        Self::ConsumerByteRate,
        Self::RequestPercentage,
        Self::ControllerMutationRate,
        Self::ConnectionCreationRate,
    ];

    /// Kafka's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ProducerByteRate => "producer_byte_rate",
            Self::ConsumerByteRate => "consumer_byte_rate",
            Self::RequestPercentage => "request_percentage",
            Self::ControllerMutationRate => "controller_mutation_rate",
            Self::ConnectionCreationRate => "connection_creation_rate",
        }
    }

    /// By Kafka's name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.name() == name)
    }

    /// Is it one of quotas for addresses? The others are of users and client ids.
    fn is_of_addresses(self) -> bool {
        self == Self::ConnectionCreationRate
    }

    /// The largest value of those that are whole numbers.
    fn whole_up_to(self) -> Option<f64> {
        match self {
            Self::ProducerByteRate | Self::ConsumerByteRate => Some(i64::MAX as f64),
            Self::ConnectionCreationRate => Some(f64::from(i32::MAX)),
            Self::RequestPercentage | Self::ControllerMutationRate => None,
        }
    }
}

/// Why there cannot be such a quota. The words are Kafka's where it has them.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InvalidQuota {
    /// Nobody.
    #[error("Invalid empty client quota entity")]
    NoEntity,
    /// Two names of one kind.
    #[error("Invalid client quota entity, duplicate entity entry")]
    Twice,
    /// Another kind.
    #[error("Unhandled client quota entity type: {0}")]
    Kind(String),
    /// An empty name.
    #[error("Empty {0} not supported")]
    EmptyName(String),
    /// A longer name than there can be.
    #[error("A name has at most {NAME_BYTES_MAX} bytes")]
    LongName,
    /// Addresses have quotas of their own.
    #[error("Invalid client quota entity")]
    Mixed,
    /// No address.
    #[error("{0} is not a valid IP address")]
    Address(String),
    /// Nothing that is limited for such entities.
    #[error("Invalid configuration key {0}")]
    Key(String),
    /// Nothing at all is no limit.
    #[error("Quota {0} must be greater than 0")]
    NotPositive(&'static str),
    /// What has no end is no limit either.
    #[error("Quota {0} must be a finite number")]
    NotFinite(&'static str),
    /// Part of a byte, or too many.
    #[error("{0} must be a whole number that is not larger than {1}")]
    NotWhole(&'static str, f64),
}

/// Bytes of a name.
pub(super) const NAME_BYTES_MAX: usize = 1024;
/// How far a whole number may be from one.
const NEARLY: f64 = 1e-6;

impl QuotaEntity {
    /// From pairs of kind (`user`, `client-id`, `ip`) and name; `None`: the default.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of<'a>(parts: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> Result<Self, InvalidQuota> {
        let (mut user, mut client_id, mut ip) = (None, None, None);
        for (kind, name) in parts {
            let place = match kind {
                "user" => &mut user,
                "client-id" => &mut client_id,
                "ip" => &mut ip,
                other => return Err(InvalidQuota::Kind(other.chars().take(64).collect())),
            };
            let name = match name {
                None => QuotaName::Default,
                Some("") => return Err(InvalidQuota::EmptyName(kind.to_owned())),
                Some(name) if name.len() > NAME_BYTES_MAX => return Err(InvalidQuota::LongName),
                Some(name) => QuotaName::Named(name.to_owned()),
            };
            if place.replace(name).is_some() {
                return Err(InvalidQuota::Twice);
            }
        }
        match (user, client_id, ip) {
            (None, None, None) => Err(InvalidQuota::NoEntity),
            (None, None, Some(ip)) => Ok(Self::Ip(address(ip)?)),
            (_, _, Some(_)) => Err(InvalidQuota::Mixed),
            (user, client_id, None) => Ok(Self::Client { user, client_id }),
        }
    }

    /// Kinds and names; `None`: the default.
    pub fn parts<'a>(&'a self) -> impl Iterator<Item = (&'static str, Option<&'a str>)> {
        let (user, client_id, ip) = match self {
            Self::Client { user, client_id } => (user.as_ref(), client_id.as_ref(), None),
            Self::Ip(name) => (None, None, Some(name)),
        };
        let name = |name: &'a QuotaName| match name {
            QuotaName::Default => None,
            QuotaName::Named(name) => Some(name.as_str()),
        };
        let kinds = [("user", user), ("client-id", client_id), ("ip", ip)];
        kinds.into_iter().filter_map(move |(kind, part)| Some((kind, name(part?))))
    }

    /// The key with this name, if such entities have it and may have this value.
    ///
    /// # Errors
    /// `Key`, `NotPositive`, `NotFinite`, `NotWhole`.
    pub fn check(&self, key: &str, value: Option<f64>) -> Result<QuotaKey, InvalidQuota> {
        let of_addresses = matches!(self, Self::Ip(_));
        let found = QuotaKey::of_name(key).filter(|key| key.is_of_addresses() == of_addresses);
        let Some(found) = found else { return Err(InvalidQuota::Key(key.chars().take(64).collect())) };
        let Some(value) = value else { return Ok(found) };
        if value.is_nan() || value <= 0.0 {
            return Err(InvalidQuota::NotPositive(found.name()));
        }
        match found.whole_up_to() {
            Some(most) if value > most || (value - value.round()).abs() > NEARLY || value.round() < 1.0 => {
                Err(InvalidQuota::NotWhole(found.name(), most))
            }
            None if value.is_infinite() => Err(InvalidQuota::NotFinite(found.name())),
            _ => Ok(found),
        }
    }
}

/// Addresses are written in one way.
fn address(name: QuotaName) -> Result<QuotaName, InvalidQuota> {
    let QuotaName::Named(name) = name else { return Ok(name) };
    match name.parse::<IpAddr>() {
        Ok(address) => Ok(QuotaName::Named(address.to_canonical().to_string())),
        Err(_) => Err(InvalidQuota::Address(name.chars().take(64).collect())),
    }
}

/// Which names of one kind are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaMatch {
    /// This one.
    Exactly(String),
    /// The default.
    Default,
    /// Any, the default included.
    Any,
}

/// Which entities are asked for.
#[derive(Clone, Debug, Default)]
pub struct QuotaFilter {
    /// By kind.
    pub components: Vec<(String, QuotaMatch)>,
    /// Only those that have no other kind.
    pub strict: bool,
}

impl QuotaFilter {
    /// Is this one asked for?
    pub fn takes(&self, entity: &QuotaEntity) -> bool {
        let fits = |(kind, wanted): &(String, QuotaMatch)| {
            let found = entity.parts().find(|(of, _)| of == kind);
            match (found, wanted) {
                (None, _) => false,
                (Some((_, name)), QuotaMatch::Exactly(wanted)) => name == Some(wanted),
                (Some((_, name)), QuotaMatch::Default) => name.is_none(),
                (Some(_), QuotaMatch::Any) => true,
            }
        };
        self.components.iter().all(fits) && (!self.strict || entity.parts().count() == self.components.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_are_what_kafka_takes() {
        let of = |parts: &[(&'static str, Option<&'static str>)]| QuotaEntity::of(parts.iter().copied());
        assert_eq!(of(&[]), Err(InvalidQuota::NoEntity));
        assert_eq!(of(&[("user", None), ("user", Some("a"))]), Err(InvalidQuota::Twice));
        assert_eq!(of(&[("user", None), ("ip", None)]), Err(InvalidQuota::Mixed));
        assert_eq!(of(&[("group", None)]), Err(InvalidQuota::Kind("group".to_owned())));
        assert_eq!(of(&[("client-id", Some(""))]), Err(InvalidQuota::EmptyName("client-id".to_owned())));
        assert_eq!(of(&[("ip", Some("broker.example"))]), Err(InvalidQuota::Address("broker.example".to_owned())));
        let ip = of(&[("ip", Some("0:0::1"))]).expect("an address");
        assert_eq!(ip.parts().collect::<Vec<_>>(), [("ip", Some("::1"))]);
        let both = of(&[("client-id", Some("c")), ("user", None)]).expect("an entity");
        assert_eq!(both.parts().collect::<Vec<_>>(), [("user", None), ("client-id", Some("c"))]);
    }

    #[test]
    fn keys_and_values_are_checked() {
        let (user, ip) =
            (QuotaEntity::of([("user", None)]).expect("a user"), QuotaEntity::of([("ip", None)]).expect("an address"));
        assert_eq!(user.check("producer_byte_rate", Some(1e7)), Ok(QuotaKey::ProducerByteRate));
        assert_eq!(user.check("request_percentage", Some(0.5)), Ok(QuotaKey::RequestPercentage));
        assert_eq!(
            user.check("connection_creation_rate", None),
            Err(InvalidQuota::Key("connection_creation_rate".to_owned()))
        );
        assert_eq!(ip.check("connection_creation_rate", Some(3.0)), Ok(QuotaKey::ConnectionCreationRate));
        for wrong in [0.5, 1.5, f64::INFINITY, 2e19] {
            assert!(
                matches!(user.check("producer_byte_rate", Some(wrong)), Err(InvalidQuota::NotWhole(..))),
                "{wrong}"
            );
        }
        assert_eq!(
            user.check("request_percentage", Some(f64::INFINITY)),
            Err(InvalidQuota::NotFinite("request_percentage"))
        );
        for wrong in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
            assert!(
                matches!(user.check("request_percentage", Some(wrong)), Err(InvalidQuota::NotPositive(_))),
                "{wrong}"
            );
        }
    }

    #[test]
    fn filters_take_what_they_ask_for() {
        let entity = QuotaEntity::of([("user", Some("u")), ("client-id", None)]).expect("an entity");
        let takes = |components: &[(&str, QuotaMatch)], strict| {
            let components = components.iter().map(|(kind, wanted)| ((*kind).to_owned(), wanted.clone())).collect();
            QuotaFilter { components, strict }.takes(&entity)
        };
        assert!(takes(&[], false) && !takes(&[], true));
        assert!(takes(&[("user", QuotaMatch::Any)], false) && !takes(&[("user", QuotaMatch::Any)], true));
        assert!(takes(&[("user", QuotaMatch::Exactly("u".to_owned())), ("client-id", QuotaMatch::Default)], true));
        assert!(!takes(&[("user", QuotaMatch::Default)], false) && !takes(&[("ip", QuotaMatch::Any)], false));
    }
}
