//! One access control entry: who may, or may not, do what with which resources, from where; and filters that pick entries. The words and
//! numbers are those of Kafka's `ResourceType`, `PatternType`, `AclOperation` and `AclPermissionType`; the numbers are also what is stored.

use std::fmt;

use super::error::AclError;

/// The name of the one resource of type [`AclResource::Cluster`].
pub const CLUSTER: &str = "kafka-cluster";
/// As a literal name: all resources of the type. As a host: all hosts.
pub const WILDCARD: &str = "*";
/// Everybody, whether logged in or not.
pub const EVERYBODY: &str = "User:*";
/// Somebody on a listener that asks for no login.
pub const ANONYMOUS: &str = "User:ANONYMOUS";
/// Bytes of a name, a principal or a host.
const TEXT_BYTES_MAX: usize = 1024;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:literal, $word:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $number,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Kafka's number for it.
            pub fn number(self) -> u8 {
                self as u8
            }

            /// By Kafka's number.
            pub fn of_number(number: u8) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.number() == number)
            }

            /// As tools write it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// By its name; capital letters, `_` and `-` do not count.
            pub fn of_name(name: &str) -> Option<Self> {
                let bare = |text: &str| text.chars().filter(|one| !"_-".contains(*one)).collect::<String>().to_ascii_lowercase();
                let wanted = bare(name);
                Self::ALL.iter().copied().find(|one| bare(one.name()) == wanted)
            }
        }
    };
}

words! {
    /// What an entry is about.
    AclResource {
        /// A topic; a queue or an exchange too.
        Topic = 2, "Topic";
        /// A group of consumers, of any kind.
        Group = 3, "Group";
        /// The cluster, called [`CLUSTER`].
        Cluster = 4, "Cluster";
        /// The transactional id of a producer.
        TransactionalId = 5, "TransactionalId";
        /// A delegation token. Kept; none are served.
        DelegationToken = 6, "DelegationToken";
        /// A user, for delegation tokens. Kept; none are served.
        User = 7, "User";
    }
}

words! {
    /// How the name of an entry is to be understood.
    AclPattern {
        /// The resource of this name; [`WILDCARD`]: all.
        Literal = 3, "Literal";
        /// All resources whose names begin so.
        Prefixed = 4, "Prefixed";
    }
}

words! {
    /// What is done.
    AclOperation {
        /// Everything that follows.
        All = 2, "All";
        /// Reading records; being a member of a group.
        Read = 3, "Read";
        /// Writing records; using a transactional id.
        Write = 4, "Write";
        /// Creating topics.
        Create = 5, "Create";
        /// Deleting topics, records, groups.
        Delete = 6, "Delete";
        /// Changing what is there; of the cluster: entries and users too.
        Alter = 7, "Alter";
        /// Seeing that it is there, and what it is like.
        Describe = 8, "Describe";
        /// What brokers ask each other.
        ClusterAction = 9, "ClusterAction";
        /// Seeing settings.
        DescribeConfigs = 10, "DescribeConfigs";
        /// Changing settings.
        AlterConfigs = 11, "AlterConfigs";
        /// Writing with an idempotent producer where no topic may be written.
        IdempotentWrite = 12, "IdempotentWrite";
        /// For delegation tokens.
        CreateTokens = 13, "CreateTokens";
        /// For delegation tokens.
        DescribeTokens = 14, "DescribeTokens";
        /// For transactions that another coordinator decides.
        TwoPhaseCommit = 15, "TwoPhaseCommit";
    }
}

words! {
    /// What an entry says.
    AclPermission {
        /// He may not, whatever else is said.
        Deny = 2, "Deny";
        /// He may.
        Allow = 3, "Allow";
    }
}

impl AclOperation {
    /// Does permission for `self` go for `wanted` too?
    pub fn implies(self, wanted: Self) -> bool {
        use AclOperation::{All, Alter, AlterConfigs, Delete, Describe, DescribeConfigs, Read, Write};
        match wanted {
            _ if self == wanted || self == All => true,
            Describe => matches!(self, Read | Write | Delete | Alter),
            DescribeConfigs => self == AlterConfigs,
            _ => false,
        }
    }

    /// What can be done with resources of a type, as clients may ask.
    pub fn on(resource: AclResource) -> &'static [Self] {
        use AclOperation::{
            Alter, AlterConfigs, ClusterAction, Create, CreateTokens, Delete, Describe, DescribeConfigs,
            DescribeTokens, IdempotentWrite, Read, TwoPhaseCommit, Write,
        };
        match resource {
            AclResource::Topic => &[Read, Write, Create, Describe, Delete, Alter, DescribeConfigs, AlterConfigs],
            AclResource::Group => &[Read, Describe, Delete, DescribeConfigs, AlterConfigs],
            AclResource::Cluster => {
                &[Create, ClusterAction, DescribeConfigs, AlterConfigs, IdempotentWrite, Alter, Describe]
            }
            AclResource::TransactionalId => &[Describe, Write, TwoPhaseCommit],
            AclResource::DelegationToken => &[Describe],
            AclResource::User => &[CreateTokens, DescribeTokens],
        }
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Acl {
    /// Of what type.
    pub resource: AclResource,
    /// Its name, or how names begin.
    pub name: String,
    /// Which of the two.
    pub pattern: AclPattern,
    /// `User:NAME`; see [`EVERYBODY`] and [`ANONYMOUS`].
    pub principal: String,
    /// An address as text, or [`WILDCARD`].
    pub host: String,
    /// What is done.
    pub operation: AclOperation,
    /// Whether it may be.
    pub permission: AclPermission,
}

impl Acl {
    /// Can it be kept?
    pub(super) fn check(&self) -> Result<(), AclError> {
        if self.resource == AclResource::Cluster && self.name != CLUSTER {
            return Err(AclError::ClusterName);
        }
        if self.name.is_empty() {
            return Err(AclError::EmptyName);
        }
        if [&self.name, &self.principal, &self.host].into_iter().any(|text| text.len() > TEXT_BYTES_MAX) {
            return Err(AclError::TooLong(TEXT_BYTES_MAX));
        }
        match self.principal.split_once(':') {
            Some((kind, name)) if !kind.is_empty() && !name.is_empty() => Ok(()),
            _ => Err(AclError::Principal(self.principal.clone())),
        }
    }

    /// Is it about a resource of this name? The type is not looked at.
    pub(super) fn covers(&self, name: &str) -> bool {
        match self.pattern {
            AclPattern::Literal => self.name == name || self.name == WILDCARD,
            AclPattern::Prefixed => name.starts_with(&self.name),
        }
    }
}

/// As the audit log has it: `User:bob from * allowed Read on Topic orders`, with `…` behind a prefix.
impl fmt::Display for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, name, pattern, principal, host, operation, permission } = self;
        let verdict = if *permission == AclPermission::Allow { "allowed" } else { "denied" };
        let more = if *pattern == AclPattern::Prefixed { "…" } else { "" };
        write!(f, "{principal} from {host} {verdict} {} on {} {name}{more}", operation.name(), resource.name())
    }
}

/// Which patterns a filter picks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AclPatternFilter {
    /// All.
    #[default]
    Any,
    /// Those that go for the resource of the filter's name.
    Match,
    /// Those of this kind, by their own name.
    Is(AclPattern),
}

/// Picks entries; what is `None` picks all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclFilter {
    /// Of this type.
    pub resource: Option<AclResource>,
    /// Of this name, as `pattern` says.
    pub name: Option<String>,
    /// How names are compared.
    pub pattern: AclPatternFilter,
    /// Of this principal.
    pub principal: Option<String>,
    /// Of this host.
    pub host: Option<String>,
    /// Of this operation.
    pub operation: Option<AclOperation>,
    /// That say this.
    pub permission: Option<AclPermission>,
}

impl AclFilter {
    /// Is it picked?
    pub fn matches(&self, acl: &Acl) -> bool {
        let same = |wanted: &Option<String>, text: &str| wanted.as_ref().is_none_or(|wanted| wanted == text);
        let by_name = match self.pattern {
            AclPatternFilter::Any => same(&self.name, &acl.name),
            AclPatternFilter::Is(pattern) => acl.pattern == pattern && same(&self.name, &acl.name),
            AclPatternFilter::Match => self.name.as_ref().is_none_or(|name| acl.covers(name)),
        };
        by_name
            && self.resource.is_none_or(|resource| resource == acl.resource)
            && same(&self.principal, &acl.principal)
            && same(&self.host, &acl.host)
            && self.operation.is_none_or(|operation| operation == acl.operation)
            && self.permission.is_none_or(|permission| permission == acl.permission)
    }
}
