//! The proof that a broker starts on a data folder, or a backup, that no broker has open: what starts is asked, and nothing is written.

use std::sync::Arc;

use anyhow::Context;
use broker::{Broker, BrokerConfig, Settings};
use types::{Durability, NodeId, SystemClock};

use crate::data_folder::DataFolder;

/// Does what a start does with the journals and the catalog, as far as a start can be refused. It reads what a start reads: not the records of sealed
/// segments, and no objects.
///
/// # Errors
/// Those of the start.
pub fn prove(folder: &DataFolder, settings: &Settings) -> anyhow::Result<()> {
    let mut journals = Vec::new();
    for number in 0..folder.journals {
        folder.check_there(number)?;
        let journal =
            journal::rehearse(&folder.journal(number), number as u16).with_context(|| format!("journal {number}"))?;
        folder.check_owner(number, &journal.uuid().to_string())?;
        journals.push(journal);
    }
    let config = BrokerConfig {
        cluster_id: folder.cluster_id.clone(),
        node_id: NodeId(1),
        settings: settings.clone(),
        durability: Durability::Fsync,
        clock: Arc::new(SystemClock),
    };
    Ok(Broker::rehearse(config, journals)?)
}
