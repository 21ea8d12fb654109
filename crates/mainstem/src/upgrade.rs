//! `mainstem upgrade`: of which format a data folder is. A newer release opens an older folder and goes on writing what the older one reads, so
//! that one may go back, until the folder is finalized.

use std::path::Path;

use crate::data_folder::{DataFolder, FORMAT_VERSION};
use crate::output;

/// Says of which format a folder is, and with `finalize` makes it that of this release.
///
/// # Errors
/// No data folder, of a newer release, or in use.
pub fn run(data: &Path, finalize: bool) -> anyhow::Result<()> {
    let mut folder = DataFolder::look(data)?;
    let (found, shown) = (folder.format_version, data.display());
    let release = env!("CARGO_PKG_VERSION");
    let came = match (finalize, found < FORMAT_VERSION) {
        (_, false) => "nothing to finalize".to_owned(),
        (false, true) => format!(
            "releases that read version {found} still open it; `mainstem upgrade --data {shown} --finalize` ends that"
        ),
        (true, true) => {
            folder.finalize(FORMAT_VERSION)?;
            format!(
                "finalized: format version {FORMAT_VERSION}; releases that do not read it refuse the folder from now on"
            )
        }
    };
    output::print(&format!(
        "{shown}: format version {found}; mainstem {release} reads up to {FORMAT_VERSION}\n{came}\n"
    ))
    .map(drop)
}
