//! `mainstem upgrade`: of which format a data folder is. A newer release opens an older folder and goes on writing what the older one reads, so
//! that one may go back, until the folder is finalized.

use std::path::Path;

use crate::data_folder::{DataFolder, FORMAT_VERSION};

/// Says of which format a folder is, and with `finalize` makes it that of this release.
///
/// # Errors
/// No data folder, of a newer release, or in use.
pub fn run(data: &Path, finalize: bool) -> anyhow::Result<()> {
    let mut folder = DataFolder::look(data)?;
    let (found, shown) = (folder.format_version, data.display());
    println!("{shown}: format version {found}; mainstem {} reads up to {FORMAT_VERSION}", env!("CARGO_PKG_VERSION"));
    match (finalize, found < FORMAT_VERSION) {
        (_, false) => println!("nothing to finalize"),
        (false, true) => println!("releases that read version {found} still open it; `mainstem upgrade --data {shown} --finalize` ends that"),
        (true, true) => {
            folder.finalize(FORMAT_VERSION)?;
            println!("finalized: format version {FORMAT_VERSION}; releases that do not read it refuse the folder from now on");
        }
    }
    Ok(())
}
