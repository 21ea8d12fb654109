//! A data folder from a backup: everything is copied, then everything is read and checked, what starts is asked, and only then it is a data folder.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::manifest::Manifest;
use super::{PIECE_BYTES, copy, sync_all};
use crate::archive_folder::UNFINISHED;
use crate::archive_lock::OwnObjects;
use crate::damage::Look;
use crate::data_folder::{DataFolder, create_private, meta_of, write_durably};
use crate::output;
use crate::progress::Bar;
use crate::unfinished::{Work, mark};

/// Restores the backup in `from` to `data`, archive objects to `archive` if they are to be elsewhere.
///
/// # Errors
/// `data` is not empty; the backup is not whole; a checksum does not fit. Nothing of it is left in `data` then.
pub fn run(from: &Path, data: &Path, archive: Option<PathBuf>) -> anyhow::Result<()> {
    let manifest = Manifest::read(from)?;
    let (inner, outer) = (std::path::absolute(data)?, std::path::absolute(from)?);
    if inner.starts_with(&outer) && inner != outer {
        bail!("--data {} is in the backup, which stays as it is", data.display());
    }
    if data.exists() && !data.is_dir() {
        bail!("--data {} is no folder", data.display());
    }
    create_private(data).with_context(|| format!("--data {}", data.display()))?;
    let mark = mark(data, Work::Restore, &format!("from {}\n", from.display()))?;
    let target = archive.unwrap_or_else(|| data.join("archive"));
    match restore(&manifest, from, data, &target) {
        Ok(()) => mark.lift().with_context(|| format!("--data {}", data.display()))?,
        Err(error) => {
            // A restart of the broker on half of a backup would be worse than none. The folder was empty before.
            mark.clear(|_| true);
            return Err(error);
        }
    }
    let (journals, objects, made) = (manifest.journals.len(), manifest.objects.len(), &manifest.made);
    // It is restored, whether or not somebody can be told.
    let _ = output::print(&format!(
        "restored {journals} journals and {objects} archive objects to {}: as of {made}\n",
        data.display()
    ));
    Ok(())
}

fn restore(manifest: &Manifest, from: &Path, data: &Path, archive: &Path) -> anyhow::Result<()> {
    // It says of which cluster it is and how many journals there are, as the manifest does.
    let (cluster_id, journals) = meta_of(from)?;
    if cluster_id != manifest.cluster_id || journals != manifest.journals.len() {
        let (named, counted) = (&manifest.cluster_id, manifest.journals.len());
        bail!(
            "the backup is damaged: its meta.toml is of cluster {cluster_id} with {journals} journals, its manifest of {named} with {counted}"
        );
    }
    let _owned = own_objects(manifest, data, archive)?;
    let files: u64 = manifest.journals.iter().flat_map(|journal| &journal.files).map(|file| file.used).sum();
    let objects: u64 = manifest.objects.iter().map(|object| object.bytes).sum();
    let bar = Bar::new("copying", files + objects);
    for part in &manifest.journals {
        let (source, target) =
            (from.join(format!("journal-{}", part.number)), data.join(format!("journal-{}", part.number)));
        fs::create_dir(&target).with_context(|| target.display().to_string())?;
        for file in &part.files {
            copy(&source.join(&file.name), &target.join(&file.name), file.used, file.bytes, &|bytes| {
                bar.advance(bytes)
            })?;
        }
    }
    for object in &manifest.objects {
        put_object(&from.join("archive").join(&object.name), &archive.join(&object.name), object.bytes)?;
        bar.advance(object.bytes);
    }
    bar.end();
    sync_all(data)?;
    if !manifest.objects.is_empty() {
        sync_all(archive)?;
    }
    let meta =
        fs::read_to_string(from.join("meta.toml")).with_context(|| from.join("meta.toml").display().to_string())?;
    write_durably(data, "meta.toml", &meta)?;
    check(manifest, data, archive)
}

/// Nobody else puts objects of these journals into the archive, or deletes them, as long as this is held.
fn own_objects(manifest: &Manifest, data: &Path, archive: &Path) -> anyhow::Result<Vec<OwnObjects>> {
    let journals: BTreeSet<&str> = manifest.objects.iter().filter_map(|object| object.name.split('/').next()).collect();
    if !journals.is_empty() {
        create_private(archive).with_context(|| archive.display().to_string())?;
    }
    journals.into_iter().map(|journal| OwnObjects::take(archive, journal, data)).collect()
}

/// Copies an object, unless it is there already: when only the disk of the journals is lost, all of them are, and a restore that was interrupted
/// leaves some. One that is not what the backup has is replaced at once, if the backup's is whole.
pub(super) fn put_object(from: &Path, to: &Path, bytes: u64) -> anyhow::Result<()> {
    if is_same(from, to).with_context(|| to.display().to_string())? {
        return Ok(());
    }
    if to.exists() && !journal::is_whole_object(&fs::read(from).with_context(|| from.display().to_string())?) {
        bail!("the backup is damaged: {}; {} is another, and stays as it is", from.display(), to.display());
    }
    fs::create_dir_all(to.parent().unwrap_or(to)).with_context(|| to.display().to_string())?;
    let mut unfinished = to.as_os_str().to_owned();
    unfinished.push(UNFINISHED);
    let unfinished = PathBuf::from(unfinished);
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| unfinished.display().to_string());
        }
        _ => {}
    }
    copy(from, &unfinished, bytes, bytes, &|_| {})?;
    fs::rename(&unfinished, to).with_context(|| to.display().to_string())
}

/// Have two files the same bytes? Not if the second is not there.
fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let mut other = match File::open(other) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    let mut one = File::open(one)?;
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut first, mut second) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    loop {
        let got = one.read(&mut first)?;
        if got == 0 {
            return Ok(true);
        }
        match other.read_exact(&mut second[..got]) {
            Ok(()) if first[..got] == second[..got] => {}
            // What cannot be read any more is to be replaced.
            _ => return Ok(false),
        }
    }
}

/// Reads all that was copied, compares it with what the backup says of itself, and asks what starts.
fn check(manifest: &Manifest, data: &Path, archive: &Path) -> anyhow::Result<()> {
    let look = Look::at(&DataFolder::look_unfinished(data)?, archive, "checking")?;
    if let Some(first) = look.damages().next() {
        bail!(
            "the backup is damaged in {} places, first {} at byte {}: {}",
            look.damages().count(),
            first.file,
            first.position,
            first.what
        );
    }
    for (part, survey) in manifest.journals.iter().zip(&look.surveys) {
        if survey.last.0 != part.index || survey.journal.to_string() != part.uuid {
            bail!("journal {} of the backup ends at chunk {}, and should at {}", part.number, survey.last, part.index);
        }
    }
    if let Some((_, folder, what)) = look.folders().next() {
        bail!("the backup is damaged: {folder}: {what}");
    }
    if let Some((log, from, until)) = look.lost().first() {
        bail!("the backup is damaged: of {log} offsets {from}..{until} are missing");
    }
    match &look.refused {
        Some(reason) => bail!("no broker would start with this backup: {reason}"),
        None => Ok(()),
    }
}
