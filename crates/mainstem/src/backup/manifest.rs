//! What a backup says of itself: `backup.toml`, written last. A folder without it is not a backup, or not a whole one.
//!
//! ```text
//! format_version  1
//! release         of the broker that made it
//! made            RFC 3339, UTC: everything acknowledged before is in it
//! cluster_id      as in meta.toml
//! [[journal]]     number, uuid, index (its newest chunk), and [[journal.file]]: name, bytes (length), used (bytes that say something)
//! [[object]]      name (JOURNAL/LOG/BASE-ID), bytes
//! ```

use std::path::Path;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

/// The newest version that is read, and the one that is written.
pub const FORMAT_VERSION: u32 = 1;
/// Its name.
pub const NAME: &str = "backup.toml";

/// The whole.
#[derive(Debug, Serialize, Deserialize)]
pub struct Manifest {
    pub format_version: u32,
    pub release: String,
    pub made: String,
    pub cluster_id: String,
    #[serde(rename = "journal")]
    pub journals: Vec<JournalPart>,
    #[serde(rename = "object", default)]
    pub objects: Vec<ObjectPart>,
}

/// One journal.
#[derive(Debug, Serialize, Deserialize)]
pub struct JournalPart {
    pub number: usize,
    pub uuid: String,
    pub index: u64,
    #[serde(rename = "file")]
    pub files: Vec<FilePart>,
}

/// One file of a journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FilePart {
    pub name: String,
    pub bytes: u64,
    pub used: u64,
}

/// One archive object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ObjectPart {
    pub name: String,
    pub bytes: u64,
}

impl Manifest {
    /// Reads that of a folder.
    ///
    /// # Errors
    /// None is there, it is of a newer release, or names files outside of the backup.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join(NAME);
        if !path.exists() {
            bail!("{} holds no finished backup: there is no {NAME}", folder.display());
        }
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(&path).with_context(|| shown.clone())?;
        let found = text
            .parse::<toml::Table>()
            .with_context(|| shown.clone())?
            .get("format_version")
            .and_then(toml::Value::as_integer)
            .unwrap_or(0);
        if found > i64::from(FORMAT_VERSION) {
            bail!("{shown}: format version {found}, this release reads up to {FORMAT_VERSION}");
        }
        let manifest: Self = toml::from_str(&text).with_context(|| shown.clone())?;
        let files = manifest.journals.iter().flat_map(|journal| &journal.files).map(|file| &file.name);
        for name in files.chain(manifest.objects.iter().map(|object| &object.name)) {
            if name.starts_with('/') || name.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
                bail!("{shown} names {name:?}, which is no file of a backup");
            }
        }
        Ok(manifest)
    }
}
