//! Which pages and names a request may come by. A page of somebody else's that is open in a browser here must not reach what only this
//! machine, or only its users, may: neither by asking from its own place, nor under a name of its own that leads to our address.

use std::net::SocketAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, header};

/// Both ends of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peers {
    /// Ours.
    pub local: SocketAddr,
    /// Whose.
    pub peer: SocketAddr,
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}

/// On loopback the name under which a browser asks, and the page that makes it ask, have to be of this machine.
///
/// # Errors
/// What is wrong, for people.
pub(crate) fn check_loopback(peers: &Peers, headers: &HeaderMap) -> Result<(), &'static str> {
    if !peers.local.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    if !headers.get_all(header::HOST).into_iter().all(|host| host.to_str().is_ok_and(is_here)) {
        return Err("this port is served on loopback, under names of this machine");
    }
    let origin = text(headers, header::ORIGIN).filter(|origin| *origin != "null");
    match origin {
        Some(origin) if !origin.split_once("://").is_some_and(|(_, host)| is_here(host)) => {
            Err("the page that asks is not of this machine")
        }
        _ => Ok(()),
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A page, to which a page of another site may lead.
    Page,
    /// Something of the API: nobody is led there, and it costs work whether the page that asks may read it or not.
    Data,
    /// A change.
    Change,
}

/// As [`check_loopback`]; and wherever it is served a page that asks has to be of the place that is asked, and so has one that hides where it
/// is from, unless it is a page that it leads to.
///
/// # Errors
/// What is wrong, for people.
pub(crate) fn check_own(peers: &Peers, headers: &HeaderMap, asked: Asked) -> Result<(), &'static str> {
    check_loopback(peers, headers)?;
    let site = headers.get("sec-fetch-site").map(|value| value.to_str().unwrap_or_default());
    if asked != Asked::Page && site.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return Err("a page of another site asks");
    }
    match text(headers, header::ORIGIN) {
        None => Ok(()),
        Some("null") if asked != Asked::Change => Ok(()),
        Some(origin) => {
            let of_origin = origin.split_once("://").map(|(_, authority)| authority);
            if of_origin.is_some() && of_origin == text(headers, header::HOST) {
                Ok(())
            } else {
                Err("a page of another site asks")
            }
        }
    }
}

/// Is a browser's page behind a request?
pub(crate) fn is_of_browser(headers: &HeaderMap) -> bool {
    headers.contains_key("sec-fetch-site") || headers.contains_key(header::ORIGIN)
}

/// Is it this machine that is meant?
fn is_here(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        all.iter()
            .map(|(name, value)| (header::HeaderName::from_static(name), value.parse().expect("a header")))
            .collect()
    }

    fn peers(local: &str) -> Peers {
        let local = local.parse().expect("an address");
        Peers { local, peer: local }
    }

    #[test]
    fn pages_of_others_do_not_reach_loopback() {
        let check = |local: &str, name, value| check_loopback(&peers(local), &headers(&[(name, value)])).is_ok();
        for host in ["localhost", "localhost:15672", "127.0.0.1:8160", "[::1]:8160"] {
            assert!(check("127.0.0.1:8160", "host", host), "{host}");
        }
        for host in ["evil.example", "evil.example:8160", "127.0.0.1.evil.example", "", "10.0.0.1"] {
            assert!(!check("127.0.0.1:8160", "host", host), "{host}");
        }
        assert!(check("10.0.0.1:8160", "host", "broker.example"));
        assert!(check("127.0.0.1:8160", "origin", "http://localhost:3000"));
        assert!(!check("127.0.0.1:8160", "origin", "http://evil.example"));
    }

    #[test]
    fn a_change_is_asked_for_by_our_own_page_or_by_none() {
        let check =
            |all: &[(&'static str, &str)], asked| check_own(&peers("127.0.0.1:8160"), &headers(all), asked).is_ok();
        let host = ("host", "localhost:8160");
        assert!(check(&[host], Asked::Change));
        assert!(check(&[host, ("origin", "http://localhost:8160"), ("sec-fetch-site", "same-origin")], Asked::Change));
        assert!(!check(&[host, ("origin", "http://localhost:3000")], Asked::Change), "another server of this machine");
        assert!(!check(&[host, ("origin", "null")], Asked::Change));
        assert!(check(&[host, ("origin", "null")], Asked::Data));
        for site in ["cross-site", "same-site"] {
            assert!(!check(&[host, ("sec-fetch-site", site)], Asked::Change), "{site}");
            assert!(!check(&[host, ("sec-fetch-site", site)], Asked::Data), "{site}: a picture that is none");
            assert!(check(&[host, ("sec-fetch-site", site)], Asked::Page), "{site}: a link that leads here");
        }
        assert!(check(&[host, ("sec-fetch-site", "none")], Asked::Data), "an address that somebody has typed");
        let remote = check_own(
            &peers("10.0.0.1:8160"),
            &headers(&[("host", "broker:8160"), ("origin", "https://evil.example")]),
            Asked::Page,
        );
        assert!(remote.is_err());
    }
}
