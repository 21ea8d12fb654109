//! The heads of requests and responses.
//!
//! ```text
//! request   i16 api key, i16 version, i32 correlation id, nullable string client id, [tags when flexible]
//! response  i32 correlation id, [tags when flexible, but never for ApiVersions]
//! ```

use bytes::Bytes;

use crate::{ApiKey, DecodeError, Reader, Str, UnknownTags, Writer};

/// Number of the one API whose response head never has tags.
const API_VERSIONS: i16 = 18;

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Which API, known or not.
    pub api_key: i16,
    /// Which version, known or not.
    pub api_version: i16,
    /// Comes back in the response.
    pub correlation_id: i32,
    /// What the client calls itself.
    pub client_id: Option<Str>,
}

impl RequestHeader {
    /// Reads the head of `frame`; the reader stands at the body then.
    ///
    /// # Errors
    /// When the frame ends inside it.
    pub fn decode(frame: Bytes) -> Result<(Self, Reader), DecodeError> {
        let mut reader = Reader::new(frame);
        let api_key = reader.int16("api_key")?;
        let api_version = reader.int16("api_version")?;
        let correlation_id = reader.int32("correlation_id")?;
        let client_id = reader.string(false, "client_id")?;
        let known = ApiKey::find(api_key).is_some_and(|api| api_version <= api.last && api.flexible(api_version));
        if known {
            for _ in 0..reader.tag_count()? {
                reader.tag()?;
            }
        }
        Ok((Self { api_key, api_version, correlation_id, client_id }, reader))
    }

    /// Writes it, as a client.
    pub fn encode(&self, writer: &mut Writer) {
        writer.int16(self.api_key);
        writer.int16(self.api_version);
        writer.int32(self.correlation_id);
        writer.string(false, self.client_id.as_ref());
        if ApiKey::find(self.api_key).is_some_and(|api| api.flexible(self.api_version)) {
            UnknownTags::default().encode(writer, Vec::new());
        }
    }
}

/// Writes the head of a response.
pub fn encode_response_header(writer: &mut Writer, api: &ApiKey, version: i16, correlation_id: i32) {
    writer.int32(correlation_id);
    if api.flexible(version) && api.key != API_VERSIONS {
        UnknownTags::default().encode(writer, Vec::new());
    }
}
