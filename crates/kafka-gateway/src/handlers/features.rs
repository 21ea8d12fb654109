//! The cluster features of Kafka 4.x that clients look at, and UpdateFeatures. A level belongs to the build: it can be neither
//! raised nor lowered, so each feature supports the one level that is in force, and whoever asks for it is told that it is so.

use kafka_wire::update_features::{
    FeatureUpdateKey, UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse,
};
use kafka_wire::{DecodeError, ErrorCode, Reader};

use super::Outcome;
use crate::session::Context;

/// The ways to change a level: upward, downward, downward even when something is lost.
const UPGRADE_TYPES: std::ops::RangeInclusive<i8> = 1..=3;

/// A feature and the level in force.
pub(crate) struct Feature {
    pub(crate) name: &'static str,
    pub(crate) level: i16,
}

/// Metadata of Kafka 4.3; the second protocol of transactions (KIP-890); consumer groups (KIP-848); share groups (KIP-932); streams groups
/// (KIP-1071).
pub(crate) const FEATURES: &[Feature] = &[
    Feature { name: "metadata.version", level: 30 },
    Feature { name: "transaction.version", level: 2 },
    Feature { name: "group.version", level: 1 },
    Feature { name: "share.version", level: 1 },
    Feature { name: "streams.version", level: 1 },
];

/// Why an update cannot be.
fn refusal(update: &FeatureUpdateKey, version: i16) -> Option<String> {
    let (name, wanted) = (&*update.feature, update.max_version_level);
    let invalid = |why: &str| Some(format!("Invalid update version {wanted} for feature {name}. {why}"));
    if version > 0 && !UPGRADE_TYPES.contains(&update.upgrade_type) {
        return invalid("The controller does not support the given upgrade type.");
    }
    match FEATURES.iter().find(|feature| feature.name == name) {
        None => invalid("There is no such feature."),
        Some(feature) if feature.level != wanted => {
            invalid(&format!("The level of this release is {}.", feature.level))
        }
        Some(_) => None,
    }
}

pub(crate) fn update(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = UpdateFeaturesRequest::decode(reader, context.version)?;
    if let Err(code) = context.asking().check_cluster(broker::AclOperation::Alter) {
        let (error_code, error_message) = (code.code(), Some(code.name().into()));
        return Ok(Outcome::answer(UpdateFeaturesResponse {
            error_code,
            error_message,
            ..UpdateFeaturesResponse::default()
        }));
    }
    // What can be done is done already, so there is no difference between doing and only validating.
    let mut response = UpdateFeaturesResponse { error_message: None, ..UpdateFeaturesResponse::default() };
    if let Some(why) = request.feature_updates.iter().find_map(|update| refusal(update, context.version)) {
        let message = format!("The update failed for all features since the following feature had an error: {why}");
        response.error_code = ErrorCode::InvalidUpdateVersion.code();
        response.error_message = Some(message.into());
    } else {
        let done = |update: FeatureUpdateKey| UpdatableFeatureResult {
            feature: update.feature,
            error_message: None,
            ..Default::default()
        };
        response.results = request.feature_updates.into_iter().map(done).collect();
    }
    Ok(Outcome::answer(response))
}
