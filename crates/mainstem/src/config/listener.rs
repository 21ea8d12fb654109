//! Addresses to listen on, and what clients are told about them.

use std::net::{SocketAddr, ToSocketAddrs};

use kafka_gateway::Advertise;

use super::ConfigError;

/// An address for clients of one protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub address: SocketAddr,
    pub advertise: Advertise,
}

/// Flags that name addresses, and what clients are told instead.
#[derive(Clone, Copy)]
pub struct Names {
    pub address: &'static str,
    pub advertise: &'static str,
}

impl Listener {
    /// The n-th advertised name belongs to the n-th address.
    pub fn pair(names: Names, addresses: &[String], advertised: &[String]) -> Result<Vec<Self>, ConfigError> {
        if let Some(extra) = advertised.get(addresses.len()) {
            let expected = format!("there are only {} {} addresses", addresses.len(), names.address);
            return Err(ConfigError::Value { name: names.advertise, value: extra.clone(), expected });
        }
        let mut listeners = Vec::with_capacity(addresses.len());
        for (at, text) in addresses.iter().enumerate() {
            let address = address(names.address, text)?;
            let advertise =
                advertised.get(at).map_or(Ok(Advertise::default()), |text| advertise(names.advertise, text))?;
            listeners.push(Self { address, advertise });
        }
        Ok(listeners)
    }
}

/// `IP:PORT` or `NAME:PORT`.
pub fn address(name: &'static str, text: &str) -> Result<SocketAddr, ConfigError> {
    let refused = || {
        let expected = "it is an address with a port, like 127.0.0.1:9092".to_owned();
        ConfigError::Value { name, value: text.to_owned(), expected }
    };
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    text.to_socket_addrs().ok().and_then(|mut all| all.next()).ok_or_else(refused)
}

pub fn advertise(name: &'static str, text: &str) -> Result<Advertise, ConfigError> {
    let refused = |expected: &str| {
        let value = text.to_owned();
        Err(ConfigError::Value { name, value, expected: expected.to_owned() })
    };
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return refused("it is HOST or HOST:PORT");
    }
    if matches!(host, "0.0.0.0" | "::") {
        return refused("clients cannot connect to it; name an address that they can reach");
    }
    let port = match port.map(str::parse::<u16>) {
        None => None,
        Some(Ok(port)) if port > 0 => Some(port),
        Some(_) => return refused("the port is a number from 1 to 65535"),
    };
    Ok(Advertise { host: Some(host.to_owned()), port })
}
