//! The console: pages for people at `/`, as they were built from `console/` (`docs/adr/0022-console.md`). They ask `/v1` for everything that
//! they show, and nobody else for anything.
//!
//! The files are part of the binary. They are packed once, on first use, and known to browsers by a hash of what is in them.

use std::hash::{DefaultHasher, Hasher};
use std::io::Write;
use std::sync::OnceLock;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use axum::routing::get;

use crate::origin::{self, Asked, Peers};

/// Scripts, styles and pictures of ours, requests to us, and nothing else; no other page may show it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file as it was built.
struct File {
    path: &'static str,
    media_type: &'static str,
    bytes: &'static [u8],
}

const FILES: [File; 5] = [
    File { path: "/", media_type: "text/html; charset=utf-8", bytes: include_bytes!("../console/index.html") },
    File {
        path: "/console.js",
        media_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../console/console.js"),
    },
    File {
        path: "/console.css",
        media_type: "text/css; charset=utf-8",
        bytes: include_bytes!("../console/console.css"),
    },
    File { path: "/icon.svg", media_type: "image/svg+xml", bytes: include_bytes!("../console/icon.svg") },
    File {
        path: "/licences.txt",
        media_type: "text/plain; charset=utf-8",
        bytes: include_bytes!("../console/licences.txt"),
    },
];

/// A file as it is sent.
struct Packed {
    etag: String,
    gzip: Bytes,
}

fn packed(place: usize) -> &'static Packed {
    static PACKED: [OnceLock<Packed>; FILES.len()] = [const { OnceLock::new() }; FILES.len()];
    PACKED[place].get_or_init(|| {
        let bytes = FILES[place].bytes;
        let mut hasher = DefaultHasher::new();
        hasher.write(bytes);
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        let gzip = encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes what is written");
        Packed { etag: format!("\"{:016x}\"", hasher.finish()), gzip: gzip.into() }
    })
}

/// The pages, to be merged with others.
pub(crate) fn router() -> Router {
    FILES.iter().enumerate().fold(Router::new(), |router, (place, file)| {
        router.route(
            file.path,
            get(move |ConnectInfo(peers): ConnectInfo<Peers>, headers: HeaderMap| async move {
                answer(place, &peers, &headers)
            }),
        )
    })
}

fn answer(place: usize, peers: &Peers, headers: &HeaderMap) -> Response<Body> {
    if let Err(reason) = origin::check_own(peers, headers, Asked::Page) {
        let mut response = Response::new(Body::from(format!("{reason}\n")));
        *response.status_mut() = StatusCode::FORBIDDEN;
        return response;
    }
    let (file, packed) = (&FILES[place], packed(place));
    let known = lists(headers, header::IF_NONE_MATCH, |tag| tag.trim_start_matches("W/") == packed.etag || tag == "*");
    let gzip = lists(headers, header::ACCEPT_ENCODING, accepts_gzip);
    let body = match (known, gzip) {
        (true, _) => Body::empty(),
        (false, true) => Body::from(packed.gzip.clone()),
        (false, false) => Body::from(file.bytes),
    };
    let mut response = Response::new(body);
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let sent = response.headers_mut();
    let mut put = |name, value: &str| drop(HeaderValue::from_str(value).map(|value| sent.insert(name, value)));
    put(header::ETAG, &packed.etag);
    put(header::CACHE_CONTROL, "no-cache");
    put(header::VARY, "accept-encoding");
    put(header::CONTENT_TYPE, file.media_type);
    put(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY);
    put(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    put(header::REFERRER_POLICY, "no-referrer");
    put(header::X_FRAME_OPTIONS, "DENY");
    if gzip && !known {
        put(header::CONTENT_ENCODING, "gzip");
    }
    response
}

/// Has a header of words with commas between one that fits?
fn lists(headers: &HeaderMap, name: header::HeaderName, fits: impl Fn(&str) -> bool) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .any(|word| fits(word.trim()))
}

/// `gzip`, unless its weight is 0.
fn accepts_gzip(word: &str) -> bool {
    let (coding, weight) = word.split_once(';').map_or((word, ""), |(coding, weight)| (coding.trim(), weight));
    let refused =
        weight.split_once('=').is_some_and(|(_, value)| value.trim().parse::<f64>().is_ok_and(|value| value == 0.0));
    coding.eq_ignore_ascii_case("gzip") && !refused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(path: &str, asked: &[(header::HeaderName, &str)]) -> Response<Body> {
        let local = "127.0.0.1:8160".parse().expect("an address");
        let headers = asked.iter().map(|(name, value)| (name.clone(), value.parse().expect("a header"))).collect();
        let place = FILES.iter().position(|file| file.path == path).expect("a file");
        answer(place, &Peers { local, peer: local }, &headers)
    }

    #[test]
    fn files_are_packed_for_who_takes_that_and_known_by_their_tags() {
        let plain = ask("/", &[]);
        assert_eq!((plain.status(), plain.headers().get(header::CONTENT_ENCODING)), (StatusCode::OK, None));
        for (accepted, packed) in
            [("gzip, br", true), ("br;q=1, gzip;q=0.5", true), ("gzip;q=0", false), ("br", false), ("", false)]
        {
            let found = ask("/console.js", &[(header::ACCEPT_ENCODING, accepted)]);
            assert_eq!(found.headers().contains_key(header::CONTENT_ENCODING), packed, "{accepted}");
        }
        let tag = plain.headers()[header::ETAG].to_str().expect("text").to_owned();
        assert_eq!(
            ask("/", &[(header::IF_NONE_MATCH, &format!("\"other\", W/{tag}"))]).status(),
            StatusCode::NOT_MODIFIED
        );
        assert_eq!(ask("/", &[(header::IF_NONE_MATCH, "\"other\"")]).status(), StatusCode::OK);
    }

    #[test]
    fn other_names_than_ours_get_nothing() {
        assert_eq!(ask("/", &[(header::HOST, "evil.example")]).status(), StatusCode::FORBIDDEN);
    }

    #[test]
    fn all_of_it_is_small_and_asks_nobody_else() {
        let sum: usize = (0..FILES.len()).map(|place| packed(place).gzip.len()).sum();
        assert!(sum < 150_000, "{sum} bytes");
        let html = std::str::from_utf8(FILES[0].bytes).expect("text");
        assert!(!html.contains("://"), "{html}");
    }
}
