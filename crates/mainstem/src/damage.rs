//! Damaged data folders: what is damaged and lost (`mainstem journal verify`), what of it is left in another folder (`mainstem journal
//! salvage`), and starting without what is lost (`mainstem serve --accept-loss`). `docs/operations/damage.md` is the runbook.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use broker::{Settings, log_names};
use journal::{ArchiveStore, Damage, Journal, Original, Survey, copy_readable};
use serde_json::{Value, json};
use types::{ByteSize, LogId};

use crate::archive_folder::ArchiveReader;
use crate::backup::sync_all;
use crate::data_folder::{DataFolder, FORMAT_VERSION, create_private, unless_missing, write_durably};
use crate::output;
use crate::progress::Bar;
use crate::proof::prove;
use crate::unfinished::{self, Work, mark};

/// Damages in archive objects of a journal that are listed one by one.
const OBJECTS_SHOWN: usize = 10;

/// All journals of a folder, and what their logs are called.
pub struct Look {
    pub surveys: Vec<Survey>,
    names: BTreeMap<LogId, String>,
    /// Journals that are not those that `meta.toml` names: name of the damage, folder, what is wrong.
    others: Vec<(String, String, String)>,
    /// Journals that name objects, and no folder is there that has them; likewise.
    archives: Vec<(String, String, String)>,
    /// Each journal that `meta.toml` names is there, under whatever number.
    has_all_journals: bool,
    /// Nothing of all that, and a start refuses the folder for this reason.
    pub refused: Option<String>,
}

impl Look {
    /// Reads everything; `doing` is what a bar says meanwhile. When all is whole and there, what starts is asked.
    ///
    /// # Errors
    /// A folder cannot be read, or a newer release has written it.
    pub fn at(folder: &DataFolder, archive: &Path, doing: &'static str) -> anyhow::Result<Self> {
        let store = ArchiveReader::of(archive);
        let total = (0..folder.journals).map(|number| folder_bytes(&folder.journal(number))).sum::<u64>()
            + folder_bytes(archive);
        let bar = Bar::new(doing, total);
        let mut surveys = Vec::new();
        for number in 0..folder.journals {
            let path = folder.journal(number);
            let survey = match foreign(folder, number) {
                // What is damaged or lost in it is no concern of this folder's.
                Some(other) => Ok(Survey::unread(other)),
                // One that is not there is empty.
                None if unless_missing(fs::metadata(&path)).with_context(|| path.display().to_string())?.is_none() => {
                    Ok(Survey::default())
                }
                None => journal::survey(&path, number, &store, &|bytes| bar.advance(bytes)),
            };
            surveys.push(survey.with_context(|| format!("journal {number}"))?);
        }
        bar.end();
        let mut others = Vec::new();
        for (number, (survey, id)) in surveys.iter().zip(&folder.journal_ids).enumerate() {
            let found = survey.journal.to_string();
            if found == *id {
                continue;
            }
            let what = if survey.journal.is_nil() {
                format!("journal {id} is not there; {}", lost_with(number))
            } else if folder.journal_ids.contains(&found) {
                format!("it is journal {found}, and not {id}")
            } else {
                format!("it is journal {found} of another data folder, and not {id}; {}", lost_with(number))
            };
            others.push((format!("{number}-journal"), format!("journal-{number}"), what));
        }
        let names = log_names(surveys.iter().flat_map(Survey::state));
        surveys.iter_mut().for_each(|survey| survey.miss(&|log| names.is_empty() || names.contains_key(&log)));
        let lacking = |(number, survey): (usize, &Survey)| {
            let journal = survey.journal.to_string();
            let error = DataFolder::check_archive(archive, &journal, survey.objects as usize).err()?;
            Some((objects_name(number), format!("archive/{journal}"), error.to_string()))
        };
        let archives = surveys.iter().enumerate().filter_map(lacking).collect();
        let has_all_journals =
            folder.journal_ids.iter().all(|id| surveys.iter().any(|survey| survey.journal.to_string() == *id));
        let mut look = Self { surveys, names, others, archives, has_all_journals, refused: None };
        if look.places() == 0 && look.lost().is_empty() {
            look.refused = prove(folder, &Settings::default()).err().map(|error| format!("{error:#}"));
        }
        Ok(look)
    }

    /// How many places are damaged.
    fn places(&self) -> usize {
        self.damages().count() + self.folders().count()
    }

    /// Is all that is lost listed? Of a journal that is gone, or without a checkpoint, nobody knows what it had, nor of chunks of which nothing is
    /// readable what was at the end of a log.
    fn is_all_known(&self) -> bool {
        self.has_all_journals
            && self.surveys.iter().all(|survey| !survey.without_checkpoint)
            && !self.damages().any(Damage::hides_more)
    }

    /// In the order of journals.
    pub fn damages(&self) -> impl Iterator<Item = &Damage> {
        self.surveys.iter().flat_map(|survey| &survey.damages)
    }

    /// What is wrong with folders.
    pub fn folders(&self) -> impl Iterator<Item = &(String, String, String)> {
        self.others.iter().chain(&self.archives)
    }

    /// Logs in use and what is lost of each, first offset and the one after the last.
    pub fn lost(&self) -> Vec<(String, u64, u64)> {
        let logs = self.surveys.iter().flat_map(|survey| &survey.logs);
        // Without a readable catalog nobody knows which are in use.
        let named = logs.filter_map(|(id, log)| match self.names.get(id) {
            Some(name) => Some((name.clone(), log)),
            None if self.names.is_empty() => Some((id.to_string(), log)),
            None => None,
        });
        named
            .flat_map(|(name, log)| log.lost.iter().map(move |range| (name.clone(), range.start.0, range.end.0)))
            .collect()
    }

    fn json(&self) -> Value {
        let damages: Vec<Value> = self
            .damages()
            .map(|damage| json!({"id": damage.id, "file": damage.file, "position": damage.position, "what": damage.what, "repairable": damage.is_repairable()}))
            .chain(self.folders().map(|(id, file, what)| json!({"id": id, "file": file, "position": 0, "what": what, "repairable": false})))
            .collect();
        let lost: Vec<Value> = self
            .lost()
            .into_iter()
            .map(|(log, from, until)| json!({"log": log, "from": from, "until": until}))
            .collect();
        let journals: Vec<Value> = self
            .surveys
            .iter()
            .enumerate()
            .map(|(number, survey)| {
                let (uuid, index) = (survey.journal.to_string(), survey.last.0);
                json!({"number": number, "uuid": uuid, "index": index, "chunks": survey.chunks, "runs": survey.runs, "bytes": survey.bytes})
            })
            .collect();
        json!({"journals": journals, "damages": damages, "lost": lost, "loss_known": self.is_all_known(), "refused": self.refused})
    }

    fn shown(&self) -> String {
        let mut out = String::new();
        for (number, survey) in self.surveys.iter().enumerate() {
            let Survey { last, chunks, runs, bytes, .. } = survey;
            let _ = match survey.without_checkpoint || *bytes == 0 {
                true => writeln!(out, "journal {number}: no records were read"),
                false => writeln!(
                    out,
                    "journal {number}: to chunk {last}; {chunks} chunks and {runs} runs whole, {} read",
                    ByteSize(*bytes)
                ),
            };
        }
        for (id, file, what) in self.folders() {
            let _ = writeln!(out, "DAMAGED  {id}  {file}: {what}");
        }
        for (number, survey) in self.surveys.iter().enumerate() {
            let mut objects = 0;
            for Damage { id, file, position, what, .. } in survey.damages.iter().filter(|damage| {
                objects += usize::from(damage.is_of_object());
                !damage.is_of_object() || objects <= OBJECTS_SHOWN
            }) {
                let _ = writeln!(out, "DAMAGED  {id}  {file} byte {position}: {what}");
            }
            if objects > OBJECTS_SHOWN {
                let _ = writeln!(
                    out,
                    "         and {} more places in objects of journal {number}, which `mainstem journal verify --json` lists",
                    objects - OBJECTS_SHOWN
                );
            }
        }
        for (log, from, until) in self.lost() {
            let _ = writeln!(out, "LOST     {log} offsets {from}..{until}, {} records at most", until - from);
        }
        out
    }
}

/// The journal of another data folder whose files are in the place of journal `number`.
fn foreign(folder: &DataFolder, number: usize) -> Option<uuid::Uuid> {
    let owners = journal::owners(&folder.journal(number));
    let is_ours = owners.iter().any(|owner| folder.journal_ids.contains(&owner.to_string()));
    owners.first().copied().filter(|_| !is_ours && !folder.journal_ids.is_empty())
}

/// What goes with a journal that is gone; how much that is only the journal said.
fn lost_with(number: usize) -> &'static str {
    match number {
        0 => {
            "all topics, queues, users, settings, groups and committed offsets are lost with it, and what the records of other journals belong to"
        }
        _ => "all its records are lost, and how many is not known",
    }
}

fn folder_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| {
            if entry.path().is_dir() {
                folder_bytes(&entry.path())
            } else {
                entry.metadata().map_or(0, |data| data.len())
            }
        })
        .sum()
}

/// Reads everything in a data folder, or in a backup, that no broker has open.
///
/// # Errors
/// When something is damaged or lost, or a start refuses the folder, so that the status says so.
pub fn verify(data: &Path, archive: Option<PathBuf>, as_json: bool) -> anyhow::Result<()> {
    let folder = DataFolder::look(data)?;
    let look = Look::at(&folder, &archive.unwrap_or_else(|| folder.archive()), "reading")?;
    output::print(&if as_json { format!("{}\n", look.json()) } else { look.shown() })?;
    let (damages, lost) = (look.places(), look.lost().len());
    match (damages, lost) {
        (0, 0) => look
            .refused
            .map_or(Ok(()), |reason| bail!("nothing is damaged or lost, and a start refuses the folder: {reason}")),
        (0, _) => bail!("nothing is damaged, but records are missing: a segment is gone; restore a backup"),
        _ if look.is_all_known() => bail!("{damages} places are damaged, {lost} ranges of offsets are lost"),
        _ => bail!(
            "{damages} places are damaged; {lost} ranges of offsets are known to be lost, and not all can be known"
        ),
    }
}

/// What a repair brings to light is repaired in turn, so often at the most.
const LOOKS_MAX: usize = 4;

/// Writes what is whole in a data folder to another one, which a broker opens.
///
/// # Errors
/// When the other is not empty; when nothing can be done without a checkpoint, or without journal 0.
pub fn salvage(data: &Path, out: &Path, archive: Option<PathBuf>) -> anyhow::Result<()> {
    let archive = archive.unwrap_or_else(|| data.join("archive"));
    if std::path::absolute(out)?.starts_with(std::path::absolute(data)?) {
        bail!("--out {} is in the damaged folder, which stays as it is", out.display());
    }
    unfinished::check(data)?;
    create_private(out).with_context(|| format!("--out {}", out.display()))?;
    let mark = mark(out, Work::Salvage, &format!("from {}\n", data.display())).context("--out")?;
    let folder = match DataFolder::look(data) {
        Ok(folder) => folder,
        // What it says of itself is lost, unless a newer release has said it.
        Err(error) if is_unreadable(data) => {
            DataFolder::identify(data, out, crate::server::new_cluster_id())?;
            output::print(&format!("LOST     meta.toml: {error:#}; the cluster has another id now\n"))?;
            DataFolder::look_unfinished(out)?
        }
        Err(error) => return Err(error),
    };
    let bar = Bar::new(
        "copying",
        (0..folder.journals).map(|number| folder_bytes(&data.join(format!("journal-{number}")))).sum(),
    );
    for number in 0..folder.journals {
        let (from, to) = (data.join(format!("journal-{number}")), out.join(format!("journal-{number}")));
        fs::create_dir(&to)?;
        let Some(entries) = unless_missing(fs::read_dir(&from)).with_context(|| from.display().to_string())? else {
            continue;
        };
        for entry in entries {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
            let wanted =
                ["checkpoint", "checkpoint-copy", "checkpoint-third", "reached"].iter().any(|wanted| name == *wanted)
                    || ["segment-", "repairing-"].iter().any(|start| name.to_string_lossy().starts_with(start));
            if wanted && fs::metadata(&path).with_context(|| path.display().to_string())?.is_file() {
                copy_readable(&path, &to.join(&name), &|bytes| bar.advance(bytes))
                    .with_context(|| path.display().to_string())?;
            }
        }
    }
    bar.end();
    copy_tree(&archive, &out.join("archive")).with_context(|| archive.display().to_string())?;
    if !out.join("meta.toml").exists() {
        let meta = fs::read_to_string(data.join("meta.toml")).context("meta.toml")?;
        write_durably(out, "meta.toml", &meta)?;
    }
    let mut copied = DataFolder::look_unfinished(out)?;
    let mut look = Look::at(&copied, &copied.archive(), "reading")?;
    if !look.others.is_empty() && put_in_order(&copied, &look)? {
        look = Look::at(&copied, &copied.archive(), "reading")?;
    }
    output::print(&look.shown())?;
    if look.surveys.first().is_none_or(|survey| survey.journal.is_nil()) {
        bail!("journal 0 is not there: {}; restore a backup", lost_with(0));
    }
    repair_all(&copied, &look)?;
    if !look.others.is_empty() {
        copied.note_journals(Vec::new())?;
    }
    // What is not in them is lost, and was said to be.
    create_folders(
        &copied.archive(),
        look.surveys.iter().filter(|survey| survey.objects > 0).map(|survey| survey.journal.to_string()),
    )?;
    // What is behind what is repaired may not have been known before.
    let mut looks = 0..LOOKS_MAX;
    while look.damages().any(Damage::is_repairable) && looks.next().is_some() {
        look = Look::at(&copied, &copied.archive(), "reading what is repaired")?;
        if look.damages().any(Damage::is_repairable) {
            output::print(&look.shown())?;
            repair_all(&copied, &look)?;
        }
    }
    prove(&copied, &Settings::default()).context("no broker starts with what is left; restore a backup")?;
    sync_all(out)?;
    mark.lift()?;
    output::print(&format!(
        "{} is a data folder with all that was whole; what is lost is listed above\n",
        out.display()
    ))
    .map(drop)
}

/// Puts something whole in the place of all that is damaged.
///
/// # Errors
/// When nothing can take the place of something.
fn repair_all(copied: &DataFolder, look: &Look) -> anyhow::Result<()> {
    for (number, survey) in look.surveys.iter().enumerate() {
        if let Some(damage) = survey.damages.iter().find(|damage| damage.is_fatal()) {
            bail!(
                "{}, byte {}: {}: no broker opens a journal without it; restore a backup",
                damage.file,
                damage.position,
                damage.what
            );
        }
        let repaired = journal::repair(&copied.journal(number), survey, Original::Dropped, &Damage::is_repairable)?;
        for file in repaired.files {
            output::print(&format!("repaired {}\n", copied.journal(number).join(file).display()))?;
        }
    }
    Ok(())
}

/// Journals under each other's names get their own. One of another data folder goes: it is not what was there. True when something was changed.
fn put_in_order(folder: &DataFolder, look: &Look) -> anyhow::Result<bool> {
    let found: Vec<String> = look.surveys.iter().map(|survey| survey.journal.to_string()).collect();
    let aside = |number: usize| folder.path().join(format!("moving-{number}"));
    for number in 0..folder.journals {
        fs::rename(folder.journal(number), aside(number))?;
    }
    for (number, id) in folder.journal_ids.iter().enumerate() {
        match found.iter().position(|found| found == id) {
            Some(there) => fs::rename(aside(there), folder.journal(number))?,
            None => fs::create_dir(folder.journal(number))?,
        }
    }
    for (number, survey) in look.surveys.iter().enumerate().filter(|(number, _)| aside(*number).exists()) {
        if !survey.journal.is_nil() {
            let journal = survey.journal.to_string();
            let why =
                if folder.journal_ids.contains(&journal) { "which is there twice" } else { "of another data folder" };
            output::print(&format!("LEFT OUT journal-{number}: it is journal {journal}, {why}\n"))?;
        }
        fs::remove_dir_all(aside(number))?;
    }
    Ok(found != folder.journal_ids)
}

/// Is `meta.toml` not there, or damaged, rather than of a newer release?
fn is_unreadable(data: &Path) -> bool {
    let text = fs::read_to_string(data.join("meta.toml")).unwrap_or_default();
    let version = text.parse::<toml::Table>().ok().and_then(|table| table.get("format_version")?.as_integer());
    version.is_none_or(|version| version <= i64::from(FORMAT_VERSION)) && DataFolder::read(data).is_err()
}

/// Objects never change: they are linked where that can be, and copied elsewhere.
fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).into_iter().flatten() {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else if fs::hard_link(entry.path(), &target).is_err() {
            copy_readable(&entry.path(), &target, &|_| {})?;
        }
    }
    Ok(())
}

/// Before any journal of `count` is opened: is each of the names that the operator gives one of a journal that is there?
///
/// # Errors
/// The first that is not.
pub fn check(accepted: &[String], count: usize) -> anyhow::Result<()> {
    for id in accepted {
        let number = id.split_once('-').and_then(|(number, _)| number.parse::<usize>().ok());
        if number.is_none_or(|number| number >= count) {
            bail!(
                "--accept-loss {id} names no damage of the {count} journals that are there: a name is NUMBER-SEGMENT-POSITION, as `mainstem journal verify` prints it"
            );
        }
    }
    Ok(())
}

/// By which it is called that all objects of a journal are gone.
fn objects_name(number: usize) -> String {
    format!("{number}-objects")
}

/// Makes folders for the objects of journals.
fn create_folders(archive: &Path, journals: impl Iterator<Item = String>) -> anyhow::Result<()> {
    for journal in journals {
        let folder = archive.join(journal);
        fs::create_dir_all(&folder)
            .and_then(|()| fs::File::open(archive)?.sync_all())
            .with_context(|| folder.display().to_string())?;
    }
    Ok(())
}

/// Before anything is put into the archive: are the folders there that have what the journals name? Makes those that the operator has accepted as lost;
/// what they had cannot be read.
///
/// # Errors
/// One is not there that is not accepted, or one is that is.
pub fn check_archive(archive: &Path, journals: &[Arc<Journal>], accepted: &[String]) -> anyhow::Result<()> {
    let mut lost = Vec::new();
    for journal in journals {
        let (id, uuid) = (objects_name(usize::from(journal.number())), journal.uuid().to_string());
        match (DataFolder::check_archive(archive, &uuid, journal.object_count()), accepted.contains(&id)) {
            (Ok(()), false) => {}
            (Ok(()), true) => bail!(
                "--accept-loss {id}: that is not damaged in journal {}: the folder of its objects is there, or it has none",
                journal.number()
            ),
            (Err(error), false) => return Err(error),
            (Err(error), true) => {
                tracing::warn!(target: "audit", journal = journal.number(), id, what = %error, "loss accepted by --accept-loss");
                lost.push(uuid);
            }
        }
    }
    create_folders(archive, lost.into_iter())
}

/// Before journal `number` is opened: repairs what the operator has accepted as lost.
///
/// # Errors
/// When nothing of that name is damaged, or it cannot be repaired.
pub fn accept(folder: &Path, number: usize, store: &dyn ArchiveStore, accepted: &[String]) -> anyhow::Result<()> {
    let prefix = format!("{number}-");
    let wanted: Vec<&String> =
        accepted.iter().filter(|id| id.starts_with(&prefix) && **id != objects_name(number)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let mut survey = journal::survey(folder, number, store, &|_| {})?;
    survey.miss(&|_| true);
    for id in &wanted {
        if !survey.damages.iter().any(|damage| damage.id == **id) {
            let known: Vec<&str> = survey.damages.iter().map(|damage| damage.id.as_str()).collect();
            let known = if known.is_empty() { "nothing is".to_owned() } else { known.join(", ") };
            bail!("--accept-loss {id}: that is not damaged in journal {number}; {known}");
        }
    }
    let is_wanted = |damage: &Damage| wanted.iter().any(|id| **id == damage.id);
    let repaired = journal::repair(folder, &survey, Original::Kept, &is_wanted).context("--accept-loss")?;
    for damage in survey.damages.iter().filter(|damage| is_wanted(damage)) {
        let (id, file, position, what) = (&damage.id, &damage.file, damage.position, &damage.what);
        tracing::warn!(target: "audit", journal = number, id, file, position, what, "loss accepted by --accept-loss");
    }
    for (id, log) in &survey.logs {
        for range in &log.lost {
            tracing::warn!(target: "audit", journal = number, log = id.0, from = range.start.0, until = range.end.0, "records lost");
        }
    }
    for file in repaired.files {
        tracing::warn!(target: "audit", journal = number, file, "repaired; the damaged file stays beside it");
    }
    // What was behind what is repaired may not have been known before.
    let mut left = journal::survey(folder, number, store, &|_| {})?;
    left.miss(&|_| true);
    for Damage { id, file, position, what, .. } in left.damages.iter().filter(|damage| damage.is_repairable()) {
        let next = "still damaged: who reads it gets errors until --accept-loss names it at a start";
        tracing::error!(journal = number, id, file, position, what, next);
    }
    Ok(())
}
