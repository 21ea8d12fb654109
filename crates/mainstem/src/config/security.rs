//! Who is let in: the first user, and TLS. Secrets come from files or from the environment, never from the command line, which other
//! users of the machine can read.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use super::listener::{self, Listener, Names};
use super::{ConfigError, parse};
use crate::tls::{ClientCertificates, LoginFrom, TlsFiles};

/// Flags about who is let in.
#[derive(Args, Clone, Debug, Default)]
pub struct SecurityArguments {
    /// Address for AMQP 0-9-1 clients with TLS; may be repeated [default: none; the usual port is 5671]
    #[arg(long, value_name = "ADDR")]
    pub amqps: Vec<String>,
    /// Address for Kafka clients with TLS; may be repeated [default: none]
    #[arg(long, value_name = "ADDR")]
    pub kafka_tls: Vec<String>,
    /// What Kafka clients with TLS are told to connect to, one per --kafka-tls in the same order [default: where they connected]
    #[arg(long, value_name = "HOST[:PORT]")]
    pub advertise_tls: Vec<String>,
    /// Certificate of this broker, with those of intermediate authorities behind it (PEM); read again on SIGHUP
    #[arg(long, value_name = "FILE")]
    pub tls_certificate: Option<String>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<String>,
    /// Certificates of authorities whose clients are trusted (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<String>,
    /// Certificates of clients: none, optional or required [default: optional with --tls-ca, otherwise none]
    #[arg(long, value_name = "WHICH")]
    pub tls_clients: Option<String>,
    /// The user's name in a client's certificate, for mechanism EXTERNAL: distinguished_name or common_name [default: distinguished_name]
    #[arg(long, value_name = "PART")]
    pub tls_login_from: Option<String>,
    /// Name of the first user, who may do everything; made when no user is there
    #[arg(long, value_name = "NAME")]
    pub default_user: Option<String>,
    /// File with the first user's password, which ends with the first line. Or MAINSTEM_DEFAULT_PASS in the environment, or
    /// default_pass in the configuration file
    #[arg(long, value_name = "FILE")]
    pub default_pass_file: Option<String>,
}

/// What one source says of it, as text.
#[derive(Default)]
pub struct SecurityLayer {
    lists: [Option<Vec<String>>; LISTS.len()],
    values: [Option<String>; VALUES.len()],
}

/// Without the values, one of which is a password.
impl std::fmt::Debug for SecurityLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named = VALUES.iter().zip(&self.values).filter(|(_, value)| value.is_some()).map(|(key, _)| key);
        f.debug_list().entries(named).finish()
    }
}

/// Keys of lists, and of single values.
const LISTS: [&str; 3] = ["amqps", "kafka_tls", "advertise_tls"];
const VALUES: [&str; 8] = [
    "tls_certificate",
    "tls_key",
    "tls_ca",
    "tls_clients",
    "tls_login_from",
    "default_user",
    "default_pass",
    "default_pass_file",
];

impl SecurityLayer {
    /// All keys.
    pub fn keys() -> impl Iterator<Item = &'static str> {
        LISTS.into_iter().chain(VALUES)
    }

    /// May the key have several values?
    pub fn is_list(key: &str) -> bool {
        LISTS.contains(&key)
    }

    /// The command line.
    pub fn from_flags(arguments: SecurityArguments) -> Self {
        let list = |values: Vec<String>| (!values.is_empty()).then_some(values);
        let SecurityArguments { amqps, kafka_tls, advertise_tls, .. } = arguments;
        let SecurityArguments {
            tls_certificate,
            tls_key,
            tls_ca,
            tls_clients,
            tls_login_from,
            default_user,
            default_pass_file,
            ..
        } = arguments;
        Self {
            lists: [amqps, kafka_tls, advertise_tls].map(list),
            values: [
                tls_certificate,
                tls_key,
                tls_ca,
                tls_clients,
                tls_login_from,
                default_user,
                None,
                default_pass_file,
            ],
        }
    }

    /// Takes a value; false: it is another's key.
    pub fn put(&mut self, key: &str, values: &[String]) -> bool {
        let at = |keys: &[&str]| keys.iter().position(|one| *one == key);
        if let Some(at) = at(&LISTS) {
            self.lists[at] = Some(values.to_vec());
        } else if let Some(at) = at(&VALUES) {
            self.values[at] = Some(values.join(","));
        } else {
            return false;
        }
        true
    }

    /// This layer where `over` says nothing.
    pub fn under(mut self, over: Self) -> Self {
        for (mine, other) in self.lists.iter_mut().zip(over.lists) {
            *mine = other.or(mine.take());
        }
        // A password of an earlier layer does not stand beside a file of a later one.
        let named = |layer: &[Option<String>]| layer[6].is_some() || layer[7].is_some();
        if named(&over.values) {
            (self.values[6], self.values[7]) = (None, None);
        }
        for (mine, other) in self.values.iter_mut().zip(over.values) {
            *mine = other.or(mine.take());
        }
        self
    }

    /// `named`: a listener of the settings that needs TLS.
    ///
    /// # Errors
    /// The first value that cannot be taken.
    pub fn check(self, named: Option<String>) -> Result<Security, ConfigError> {
        let [amqps, kafka_tls, advertise_tls] = self.lists.map(Option::unwrap_or_default);
        let [certificate, key, ca, clients, login_from, default_user, default_pass, default_pass_file] = self.values;
        let wanted = amqps
            .first()
            .map(|value| ("--amqps", value))
            .or_else(|| kafka_tls.first().map(|value| ("--kafka-tls", value)));
        let wanted = wanted.or_else(|| named.as_ref().map(|name| ("listeners", name)));
        let files = TlsOptions { certificate, key, ca, clients, login_from }.check(wanted)?;
        let names = Names { address: "--kafka-tls", advertise: "--advertise-tls" };
        Ok(Security {
            kafka_tls: Listener::pair(names, &kafka_tls, &advertise_tls)?,
            amqps: amqps.iter().map(|text| listener::address("--amqps", text)).collect::<Result<_, _>>()?,
            tls: files,
            first_user: first_user(default_user, default_pass, default_pass_file)?,
        })
    }
}

/// Who is let in, checked.
#[derive(Debug)]
pub struct Security {
    /// For AMQP clients with TLS.
    pub amqps: Vec<SocketAddr>,
    /// For Kafka clients with TLS.
    pub kafka_tls: Vec<Listener>,
    /// Present where one of them is.
    pub tls: Option<TlsFiles>,
    /// Made when no user is there.
    pub first_user: Option<FirstUser>,
}

/// A user with his password.
pub struct FirstUser {
    pub name: String,
    pub password: String,
}

impl std::fmt::Debug for FirstUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FirstUser({:?})", self.name)
    }
}

struct TlsOptions {
    certificate: Option<String>,
    key: Option<String>,
    ca: Option<String>,
    clients: Option<String>,
    login_from: Option<String>,
}

impl TlsOptions {
    /// `wanted`: a listener that needs it.
    fn check(self, wanted: Option<(&'static str, &String)>) -> Result<Option<TlsFiles>, ConfigError> {
        let refuse = |name, value: &str, expected: &str| ConfigError::Value {
            name,
            value: value.to_owned(),
            expected: expected.to_owned(),
        };
        let clients = match self.clients {
            Some(text) => parse::<ClientCertificates>("--tls-clients", &text)?,
            None if self.ca.is_some() => ClientCertificates::Optional,
            None => ClientCertificates::None,
        };
        let login_from = self.login_from.map_or(Ok(LoginFrom::default()), |text| parse("--tls-login-from", &text))?;
        let Some((name, value)) = wanted else {
            let alone = [("--tls-certificate", &self.certificate), ("--tls-key", &self.key), ("--tls-ca", &self.ca)];
            return match alone.into_iter().find_map(|(name, value)| Some((name, value.as_ref()?))) {
                Some((name, value)) => Err(refuse(
                    name,
                    value,
                    "nothing uses it; --amqps, --kafka-tls or a listener with SSL or SASL_SSL is an address for clients with TLS",
                )),
                None => Ok(None),
            };
        };
        let (Some(certificate), Some(key)) = (self.certificate, self.key) else {
            return Err(refuse(name, value, "TLS needs --tls-certificate and --tls-key"));
        };
        if clients != ClientCertificates::None && self.ca.is_none() {
            return Err(refuse(
                "--tls-clients",
                &clients.to_string(),
                "--tls-ca has to name whose certificates are trusted",
            ));
        }
        if let (ClientCertificates::None, Some(ca)) = (clients, &self.ca) {
            return Err(refuse("--tls-ca", ca, "nothing uses it; --tls-clients is optional or required"));
        }
        Ok(Some(TlsFiles {
            certificate: certificate.into(),
            key: key.into(),
            ca: self.ca.map(PathBuf::from),
            clients,
            login_from,
        }))
    }
}

fn first_user(
    name: Option<String>,
    password: Option<String>,
    file: Option<String>,
) -> Result<Option<FirstUser>, ConfigError> {
    let refuse = |name, value: &str, expected: &str| ConfigError::Value {
        name,
        value: value.to_owned(),
        expected: expected.to_owned(),
    };
    let password = match (password, &file) {
        (Some(_), Some(file)) => {
            return Err(refuse("--default-pass-file", file, "the password is given as default_pass already"));
        }
        (Some(password), None) => Some(password),
        (None, Some(file)) => {
            let text = std::fs::read_to_string(file)
                .map_err(|error| refuse("--default-pass-file", file, &error.to_string()))?;
            Some(text.lines().next().unwrap_or_default().to_owned())
        }
        (None, None) => None,
    };
    match (name, password) {
        (None, None) => Ok(None),
        (Some(name), Some(password)) if !name.is_empty() && name.len() <= 255 && !password.is_empty() => {
            Ok(Some(FirstUser { name, password }))
        }
        (Some(name), Some(password)) if !password.is_empty() => {
            Err(refuse("--default-user", &name, "a name has 1 to 255 bytes"))
        }
        (Some(name), _) => Err(refuse(
            "--default-user",
            &name,
            "the user needs a password that is not empty: --default-pass-file FILE, or MAINSTEM_DEFAULT_PASS",
        )),
        (None, Some(_)) => Err(refuse("--default-user", "", "it names whose password default_pass is")),
    }
}

impl FromStr for ClientCertificates {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            "optional" => Ok(Self::Optional),
            "required" => Ok(Self::Required),
            _ => Err("it is \"none\", \"optional\" or \"required\""),
        }
    }
}

impl FromStr for LoginFrom {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "distinguished_name" => Ok(Self::DistinguishedName),
            "common_name" => Ok(Self::CommonName),
            _ => Err("it is \"distinguished_name\" or \"common_name\""),
        }
    }
}
