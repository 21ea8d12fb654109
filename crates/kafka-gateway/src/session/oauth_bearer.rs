//! What clients of mechanism OAUTHBEARER say (RFC 7628 §3.1, as Kafka reads it), and what is answered to a token that is not good.
//!
//! ```text
//! client  "n," [ "a=" name ] "," ^A  ( key "=" value ^A )*  ^A        one key is "auth", its value "Bearer " token
//! server  nothing, or {"status":"invalid_token"}
//! client  ^A                                                         now the login is refused
//! ```
//! In names `,` and `=` are `=2C` and `=3D`. Other keys are extensions, letters only; nothing here depends on one.

/// What ends a field; alone, what a client answers to [`INVALID_TOKEN`], after which any answer counts as that.
const SEPARATOR: char = '\u{1}';
/// What a client is told of a token that is not good.
pub const INVALID_TOKEN: &str = "{\"status\":\"invalid_token\"}";

/// A message that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is not understood")]
pub struct Malformed;

/// A client's first message.
#[derive(Debug, PartialEq, Eq)]
pub struct FirstMessage<'a> {
    /// Who he wants to act as, if he says so.
    pub authorization: Option<String>,
    pub token: &'a str,
}

/// A name with its escapes resolved.
fn name_of(text: &str) -> Option<String> {
    let mut parts = text.split('=');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        let (letter, rest) =
            part.strip_prefix("2C").map(|rest| (',', rest)).or_else(|| Some(('=', part.strip_prefix("3D")?)))?;
        name.push(letter);
        name.push_str(rest);
    }
    Some(name).filter(|name| !name.is_empty() && name.is_ascii())
}

fn is_value(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() || b" \t\r\n".contains(&byte))
}

/// The token of an `auth` field.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, rest) = value.split_once(' ')?;
    let token = rest.trim_start_matches(' ');
    let letters = token.trim_end_matches('=');
    let is_token =
        !letters.is_empty() && letters.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte));
    (scheme.eq_ignore_ascii_case("bearer") && is_token).then_some(token)
}

impl<'a> FirstMessage<'a> {
    /// Reads it.
    ///
    /// # Errors
    /// It is another message.
    pub fn parse(message: &'a [u8]) -> Result<Self, Malformed> {
        Self::read(message).ok_or(Malformed)
    }

    fn read(message: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(message).ok()?;
        let (header, fields) = text.strip_prefix("n,")?.split_once(SEPARATOR)?;
        let authorization = match header.strip_suffix(',')? {
            "" => None,
            named => Some(name_of(named.strip_prefix("a=").filter(|name| !name.contains(','))?)?),
        };
        let mut token = None;
        for field in fields.strip_suffix(SEPARATOR)?.strip_suffix(SEPARATOR)?.split(SEPARATOR) {
            let (key, value) = field.split_once('=')?;
            (!key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphabetic()) && is_value(value)).then_some(())?;
            if key == "auth" && token.replace(bearer(value)?).is_some() {
                return None;
            }
        }
        Some(Self { authorization, token: token? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message_has_a_token() {
        let parse = |text: &'static str| FirstMessage::parse(text.as_bytes());
        let plain = |token| Ok(FirstMessage { authorization: None, token });
        assert_eq!(parse("n,,\u{1}auth=Bearer a.b-c_d~+/=\u{1}\u{1}"), plain("a.b-c_d~+/="));
        assert_eq!(parse("n,,\u{1}auth=bEARER   a\u{1}traceId=1 2\u{1}\u{1}"), plain("a"));
        assert_eq!(parse("n,,\u{1}host=x\u{1}auth=Bearer a\u{1}\u{1}"), plain("a"));
        assert_eq!(
            parse("n,a=a=2Cb=3Dc,\u{1}auth=Bearer a\u{1}\u{1}"),
            Ok(FirstMessage { authorization: Some("a,b=c".to_owned()), token: "a" })
        );
        for text in [
            "",
            "\u{1}",
            "n,,",
            "n,,\u{1}",
            "n,,\u{1}\u{1}",
            "n,,\u{1}auth=Bearer a\u{1}",
            "n,,\u{1}auth=Bearer a",
            "y,,\u{1}auth=Bearer a\u{1}\u{1}",
            "n,\u{1}auth=Bearer a\u{1}\u{1}",
            "n,b=x,\u{1}auth=Bearer a\u{1}\u{1}",
            "n,a=,\u{1}auth=Bearer a\u{1}\u{1}",
            "n,a==,\u{1}auth=Bearer a\u{1}\u{1}",
            "n,a=x,y,\u{1}auth=Bearer a\u{1}\u{1}",
            "n,,\u{1}auth=Basic a\u{1}\u{1}",
            "n,,\u{1}auth=Bearer\u{1}\u{1}",
            "n,,\u{1}auth=Bearer =\u{1}\u{1}",
            "n,,\u{1}auth=Bearer a b\u{1}\u{1}",
            "n,,\u{1}auth=Bearer a\u{1}auth=Bearer b\u{1}\u{1}",
            "n,,\u{1}auth=Bearer a\u{1}x1=2\u{1}\u{1}",
            "n,,\u{1}auth=Bearer a\u{1}x=\u{1}\u{1}",
            "n,,\u{1}auth=Bearer a\u{1}x=é\u{1}\u{1}",
            "n,,\u{1}host=x\u{1}\u{1}",
            "n,,\u{1}auth=Bearer a\u{1}\u{1}\u{1}",
        ] {
            assert_eq!(parse(text), Err(Malformed), "{text:?}");
        }
        assert_eq!(FirstMessage::parse(b"n,,\x01auth=Bearer \xff\x01\x01"), Err(Malformed));
    }
}
