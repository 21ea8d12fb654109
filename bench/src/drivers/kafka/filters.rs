//! Filters of groups on the broker: `mainstem.filter`, a setting of the group. Sent without the library, which for this API may be too old.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use kafka_wire::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use kafka_wire::{Reader, RequestHeader, Writer};

/// IncrementalAlterConfigs, without tags.
const API: (i16, i16) = (44, 0);
/// A group, among the kinds of resources.
const GROUP: i8 = 32;
const SET: i8 = 0;
const FILTER: &str = "mainstem.filter";
const ANSWER_BYTES_MAX: u32 = 1 << 20;
const TIME: Duration = Duration::from_secs(10);

/// Has the broker select, for each of these groups, by its expression.
///
/// # Errors
/// The broker does not answer, or refuses one; with its reason.
pub fn set(address: &str, filters: &[(String, String)]) -> Result<()> {
    let resource = |(group, expression): &(String, String)| AlterConfigsResource {
        resource_type: GROUP,
        resource_name: group.as_str().into(),
        configs: vec![AlterableConfig {
            name: FILTER.into(),
            config_operation: SET,
            value: Some(expression.as_str().into()),
            ..AlterableConfig::default()
        }],
        ..AlterConfigsResource::default()
    };
    let request =
        IncrementalAlterConfigsRequest { resources: filters.iter().map(resource).collect(), ..Default::default() };
    let answer = ask(address, &request).with_context(|| format!("{FILTER} at {address}"))?;
    if let Some(refused) = answer.responses.iter().find(|one| one.error_code != 0) {
        let reason = refused.error_message.as_deref().unwrap_or("no reason");
        bail!("{FILTER} of group {}: error {}: {reason}", refused.resource_name.as_str(), refused.error_code);
    }
    Ok(())
}

fn ask(address: &str, request: &IncrementalAlterConfigsRequest) -> Result<IncrementalAlterConfigsResponse> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIME))?;
    let mut writer = Writer::new();
    let header = RequestHeader {
        api_key: API.0,
        api_version: API.1,
        correlation_id: 1,
        client_id: Some("mainstem-bench".into()),
    };
    header.encode(&mut writer);
    request.encode(&mut writer, API.1);
    for piece in writer.finish_frame() {
        stream.write_all(&piece)?;
    }
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    ensure!(length <= ANSWER_BYTES_MAX, "an answer of {length} bytes");
    let mut frame = vec![0; length as usize];
    stream.read_exact(&mut frame)?;
    let mut reader = Reader::new(Bytes::from(frame));
    reader.int32("correlation_id")?;
    Ok(IncrementalAlterConfigsResponse::decode(&mut reader, API.1)?)
}
