//! ApiVersions: what is served, and which features are in force.

use std::time::{Duration, Instant};

use broker::Reply;
use kafka_wire::api_versions::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};

use super::features::FEATURES;
use super::{Outcome, Wait, apis};
use crate::body::Body;
use crate::session::Context;

fn keys() -> Vec<ApiVersion> {
    let one = |api: &super::Api| ApiVersion {
        api_key: api.key().key,
        min_version: api.announced_from(),
        max_version: api.range().1,
        ..ApiVersion::default()
    };
    apis().iter().map(one).collect()
}

/// For a version that is not served: error and range, in version 0.
pub(crate) fn unsupported() -> Box<dyn Body> {
    let own = keys().into_iter().filter(|api| api.api_key == 18).collect();
    Box::new(ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        api_keys: own,
        ..ApiVersionsResponse::default()
    })
}

fn plausible(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    let bytes = text.as_bytes();
    ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(|byte| inside(*byte))
}

pub(crate) fn handle(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = ApiVersionsRequest::decode(reader, context.version)?;
    if context.version >= 3
        && !(plausible(&request.client_software_name) && plausible(&request.client_software_version))
    {
        let error_code = ErrorCode::InvalidRequest.code();
        return Ok(Outcome::answer(ApiVersionsResponse { error_code, ..ApiVersionsResponse::default() }));
    }
    if context.version >= 3 {
        context.seen.set_software(&request.client_software_name, &request.client_software_version);
    }
    let supported = FEATURES.iter().map(|feature| SupportedFeatureKey {
        name: Str::from_static(feature.name),
        min_version: feature.level,
        max_version: feature.level,
        ..SupportedFeatureKey::default()
    });
    let finalized = FEATURES.iter().map(|feature| FinalizedFeatureKey {
        name: Str::from_static(feature.name),
        max_version_level: feature.level,
        min_version_level: feature.level,
        ..FinalizedFeatureKey::default()
    });
    let response = ApiVersionsResponse {
        api_keys: keys(),
        supported_features: supported.collect(),
        finalized_features_epoch: 0,
        finalized_features: finalized.collect(),
        ..ApiVersionsResponse::default()
    };
    if &*request.client_software_name == HASTY_CLIENT {
        return Ok(Outcome::Wait(Box::new(Pause { until: context.now + HASTY_PAUSE, response: Some(response) })));
    }
    Ok(Outcome::answer(response))
}

/// kafka-python 3 forgets a subscription that is made while its first Metadata request is under way, and then reads nothing
/// for five minutes. Its first request follows the answer to this one: the pause lets the application subscribe first.
const HASTY_CLIENT: &str = "kafka-python";
const HASTY_PAUSE: Duration = Duration::from_millis(10);

/// An answer that is given a little later.
struct Pause {
    until: Instant,
    response: Option<ApiVersionsResponse>,
}

impl Wait for Pause {
    fn handle_reply(&mut self, _part: u64, _reply: Reply, _context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        None
    }

    fn look(&mut self, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        if context.now < self.until {
            return None;
        }
        Some(Box::new(self.response.take()?))
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.until)
    }
}
