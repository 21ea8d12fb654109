//! The list of damages: what is done to which file of which folder.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::base::{Base, journal_of};
use super::store::files;

const SECTOR: u64 = 4096;

#[derive(Clone, Debug)]
pub enum Harm {
    Missing,
    /// And another one with it.
    MissingWith(PathBuf),
    Empty,
    Cut(u64),
    Flip(u64),
    /// A sector in the middle of it.
    Zeroes(u64),
    /// Bytes behind its end.
    Longer,
    /// As it was at an earlier time.
    Older,
    /// As that of another journal.
    Foreign(PathBuf),
    /// The other takes its name.
    Swap(PathBuf),
    /// A file that should not be there.
    Extra,
}

pub struct Case {
    /// Of the list of folders.
    pub base: usize,
    /// What kind of file it is.
    pub kind: &'static str,
    /// Below the folder.
    pub file: PathBuf,
    /// Where in the file, in words.
    pub place: String,
    pub harm: Harm,
}

impl Case {
    pub fn name(&self, bases: &[Base]) -> String {
        format!("{} {} {} {}", bases[self.base].name, self.kind, self.how(), self.place)
    }

    pub fn how(&self) -> &'static str {
        match self.harm {
            Harm::Missing => "missing",
            Harm::MissingWith(_) => "missing, and another",
            Harm::Empty => "empty",
            Harm::Cut(_) => "cut",
            Harm::Flip(_) => "flipped byte",
            Harm::Zeroes(_) => "zeroed sector",
            Harm::Longer => "longer",
            Harm::Older => "older copy",
            Harm::Foreign(_) => "another journal's",
            Harm::Swap(_) => "swapped",
            Harm::Extra => "extra file",
        }
    }

    /// Does it in a copy.
    pub fn inflict(&self, folder: &Path, older: &Path) {
        let path = folder.join(&self.file);
        let write = || OpenOptions::new().read(true).write(true).open(&path).expect("openable");
        match &self.harm {
            Harm::Missing => fs::remove_file(&path).expect("removable"),
            Harm::MissingWith(other) => {
                fs::remove_file(&path).expect("removable");
                fs::remove_file(folder.join(other)).expect("removable");
            }
            Harm::Empty => write().set_len(0).expect("cut"),
            Harm::Cut(length) => write().set_len(*length).expect("cut"),
            Harm::Flip(at) => {
                let (file, mut byte) = (write(), [0]);
                file.read_exact_at(&mut byte, *at).expect("readable");
                file.write_all_at(&[byte[0] ^ 0x10], *at).expect("writable");
            }
            Harm::Zeroes(at) => write().write_all_at(&[0; SECTOR as usize], *at).expect("writable"),
            Harm::Longer => {
                let file = write();
                let end = file.metadata().expect("it is there").len();
                file.write_all_at(&[0x5a; 2 * SECTOR as usize], end).expect("writable");
            }
            Harm::Older => drop(fs::copy(older.join(&self.file), &path).expect("copied")),
            Harm::Foreign(other) => drop(fs::copy(other, &path).expect("copied")),
            Harm::Swap(other) => {
                let (other, aside) = (folder.join(other), folder.join("aside"));
                fs::rename(&path, &aside).expect("renamed");
                fs::rename(&other, &path).expect("renamed");
                fs::rename(&aside, &other).expect("renamed");
            }
            Harm::Extra => fs::write(&path, [0x5a; 3 * SECTOR as usize]).expect("written"),
        }
    }
}

fn u64_at(bytes: &[u8], at: u64) -> u64 {
    u64::from_le_bytes(*bytes[at as usize..].first_chunk().expect("long enough"))
}

fn u32_at(bytes: &[u8], at: u64) -> u64 {
    u64::from(u32::from_le_bytes(*bytes[at as usize..].first_chunk().expect("long enough")))
}

/// Positions of the chunks that were written for this segment.
pub fn chunks(path: &Path) -> Vec<u64> {
    let (bytes, sequence) = (fs::read(path).expect("readable"), sequence(path));
    let is_chunk = |at: &u64| bytes[*at as usize..].starts_with(b"MSCK") && u64_at(&bytes, at + 24) == sequence;
    (SECTOR..bytes.len() as u64 / SECTOR * SECTOR).step_by(SECTOR as usize).filter(is_chunk).collect()
}

fn sequence(path: &Path) -> u64 {
    path.to_string_lossy().rsplit_once('-').and_then(|(_, number)| number.parse().ok()).expect("a segment")
}

pub fn segments(folder: &Path) -> Vec<PathBuf> {
    let is_segment =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("segment-"));
    files(&journal_of(folder)).into_iter().filter(is_segment).collect()
}

/// Does an index end it?
pub fn is_sealed(path: &Path) -> bool {
    let bytes = fs::read(path).expect("readable");
    bytes.len() as u64 > SECTOR && bytes[bytes.len() - SECTOR as usize..].starts_with(b"MSIX")
}

struct List<'a> {
    bases: &'a [Base],
    foreign: &'a Path,
    base: usize,
    cases: Vec<Case>,
}

impl List<'_> {
    fn add(&mut self, kind: &'static str, path: &Path, place: impl Into<String>, harm: Harm) {
        let root = self.bases[self.base].folder.path();
        let file = path.strip_prefix(root).expect("inside").to_owned();
        self.cases.push(Case { base: self.base, kind, file, place: place.into(), harm });
    }

    /// The file as a whole.
    fn whole(&mut self, kind: &'static str, path: &Path) {
        self.add(kind, path, "", Harm::Missing);
        self.add(kind, path, "", Harm::Empty);
        self.add(kind, path, "", Harm::Longer);
        let base = &self.bases[self.base];
        let earlier = base.older.path().join(path.strip_prefix(base.folder.path()).expect("inside"));
        if earlier.exists() && fs::read(&earlier).expect("readable") != fs::read(path).expect("readable") {
            self.add(kind, path, "", Harm::Older);
        }
    }

    fn swap(&mut self, kind: &'static str, path: &Path, other: &Path) {
        let root = self.bases[self.base].folder.path();
        let other_name = other.file_name().expect("a name").to_string_lossy().into_owned();
        self.add(
            kind,
            path,
            format!("with {other_name}"),
            Harm::Swap(other.strip_prefix(root).expect("inside").to_owned()),
        );
    }

    fn with(&mut self, kind: &'static str, path: &Path, other: &Path) {
        let (root, other_name) =
            (self.bases[self.base].folder.path(), other.file_name().expect("a name").to_string_lossy());
        let other_name = other_name.into_owned();
        self.add(kind, path, other_name, Harm::MissingWith(other.strip_prefix(root).expect("inside").to_owned()));
    }

    fn header(&mut self, kind: &'static str, path: &Path) {
        for (place, at) in [
            ("magic", 0),
            ("version", 4),
            ("kind", 6),
            ("journal", 12),
            ("created", 30),
            ("replaces", 36),
            ("replaced", 40),
            ("unused", 2000),
            ("sequence", 4084),
            ("checksum", 4094),
        ] {
            self.add(kind, path, format!("header, {place}"), Harm::Flip(at));
        }
        self.add(kind, path, "header", Harm::Zeroes(0));
        self.add(kind, path, "in its header", Harm::Cut(100));
        self.add(kind, path, "behind its header", Harm::Cut(SECTOR));
    }

    fn chunk_header(&mut self, kind: &'static str, path: &Path, which: &str, at: u64) {
        let fields = [
            ("magic", 0),
            ("version", 4),
            ("reserved", 6),
            ("journal", 9),
            ("segment", 24),
            ("index", 32),
            ("durable index", 40),
            ("term", 48),
            ("previous checksum", 52),
            ("time", 56),
            ("entries", 64),
            ("directory length", 68),
            ("body length", 72),
            ("length", 77),
            ("directory checksum", 80),
            ("reserved", 84),
            ("checksum", 92),
        ];
        for (place, inside) in fields {
            self.add(kind, path, format!("{which} chunk, header, {place}"), Harm::Flip(at + inside));
        }
    }

    fn chunk(&mut self, kind: &'static str, path: &Path, which: &str, at: u64) {
        let bytes = fs::read(path).expect("readable");
        let (directory, bodies, length) = (u32_at(&bytes, at + 68), u32_at(&bytes, at + 72), u32_at(&bytes, at + 76));
        for (place, inside) in [
            ("kind", 0),
            ("flags", 1),
            ("records", 4),
            ("log", 8),
            ("base", 16),
            ("last offset", 24),
            ("position", 28),
            ("length", 32),
            ("checksum", 36),
            ("timestamp", 40),
        ] {
            self.add(kind, path, format!("{which} chunk, directory, {place}"), Harm::Flip(at + 96 + inside));
        }
        let bodies_at = at + 96 + directory;
        self.add(kind, path, format!("{which} chunk, first byte of bodies"), Harm::Flip(bodies_at));
        self.add(kind, path, format!("{which} chunk, last byte of bodies"), Harm::Flip(bodies_at + bodies - 1));
        if bodies_at + bodies < at + length {
            self.add(kind, path, format!("{which} chunk, padding"), Harm::Flip(at + length - 1));
        }
        self.add(kind, path, format!("{which} chunk"), Harm::Zeroes(at));
        self.add(kind, path, format!("before the {which} chunk"), Harm::Cut(at));
        self.add(kind, path, format!("in the {which} chunk"), Harm::Cut(at + length / 2 / 512 * 512 + 7));
    }

    fn index(&mut self, kind: &'static str, path: &Path) {
        assert!(is_sealed(path), "{}", path.display());
        let bytes = fs::read(path).expect("readable");
        let footer = bytes.len() as u64 - SECTOR;
        let fields = [
            ("magic", 0),
            ("version", 4),
            ("journal", 10),
            ("sequence", 24),
            ("entries at", 33),
            ("entries", 40),
            ("logs", 44),
            ("table at", 49),
            ("fences at", 57),
            ("fences checksum", 64),
            ("last index", 72),
            ("last term", 80),
            ("last checksum", 84),
            ("sharers", 88),
            ("checksum", 4092),
        ];
        for (place, inside) in fields {
            self.add(kind, path, format!("footer, {place}"), Harm::Flip(footer + inside));
        }
        let (entries, table, fences) =
            (u64_at(&bytes, footer + 32), u64_at(&bytes, footer + 48), u64_at(&bytes, footer + 56));
        for (place, at) in [
            ("entry, base", entries),
            ("entry, position", entries + 12),
            ("entry, checksum", entries + 20),
            ("row, log", table),
            ("row, first offset", table + 16),
            ("fence", fences),
        ] {
            self.add(kind, path, format!("index, {place}"), Harm::Flip(at));
        }
        for (place, at) in [("entries", entries), ("table", table), ("fences", fences), ("footer", footer)] {
            self.add(kind, path, place, Harm::Zeroes(at));
            self.add(kind, path, format!("before its {place}"), Harm::Cut(at));
        }
        self.add(kind, path, "in its footer", Harm::Cut(footer + 200));
    }

    fn checkpoint(&mut self) {
        self.one_checkpoint("checkpoint");
        let journal = journal_of(self.bases[self.base].folder.path());
        let (copy, reached) = (journal.join("checkpoint-copy"), journal.join("reached"));
        self.whole("copy of the checkpoint", &copy);
        self.add(
            "copy of the checkpoint",
            &copy,
            "middle",
            Harm::Flip(fs::metadata(&copy).expect("it is there").len() / 2),
        );
        self.whole("reached", &reached);
        for (place, at) in [("magic", 0), ("version", 4), ("journal", 12), ("index", 24), ("checksum", 4094)] {
            self.add("reached", &reached, place, Harm::Flip(at));
        }
        self.add("reached", &reached, "", Harm::Foreign(journal_of(self.foreign).join("reached")));
    }

    fn one_checkpoint(&mut self, kind: &'static str) {
        let base = &self.bases[self.base];
        let path = journal_of(base.folder.path()).join(kind);
        let length = fs::metadata(&path).expect("it is there").len();
        self.whole(kind, &path);
        for (place, at) in [
            ("magic", 0),
            ("version", 4),
            ("journal", 9),
            ("segment", 24),
            ("index", 32),
            ("term", 40),
            ("chunk checksum", 44),
            ("logs", 48),
            ("state records", 52),
            ("first log", 60),
            ("middle", length / 2),
        ] {
            self.add(kind, &path, place, Harm::Flip(at));
        }
        for (place, at) in [("in its header", 40), ("in the middle", length / 2), ("a sector", SECTOR.min(length - 1))]
        {
            self.add(kind, &path, place, Harm::Cut(at));
        }
        self.add(kind, &path, "first sector", Harm::Zeroes(0));
        self.add(kind, &path, "", Harm::Foreign(journal_of(self.foreign).join("checkpoint")));
    }

    fn object(&mut self, path: &Path) {
        let (kind, bytes) = ("object", fs::read(path).expect("readable"));
        self.whole(kind, path);
        for (place, at) in [
            ("magic", 0),
            ("version", 4),
            ("flags", 6),
            ("journal", 8),
            ("log", 24),
            ("id", 32),
            ("first offset", 40),
            ("reserved", 50),
            ("checksum", 60),
            ("first batch", 64),
            ("batches", 5000),
        ] {
            self.add(kind, path, format!("header or batches, {place}"), Harm::Flip(at));
        }
        let footer = bytes.len() as u64 - 128;
        let index = u64_at(&bytes, footer + 56);
        for (place, at) in [
            ("base", 0),
            ("next", 8),
            ("position", 16),
            ("length", 20),
            ("checksum", 24),
            ("records", 28),
            ("timestamp", 32),
            ("append", 40),
        ] {
            self.add(kind, path, format!("index, {place}"), Harm::Flip(index + at));
        }
        for (place, at) in [
            ("magic", 0),
            ("version", 4),
            ("flags", 6),
            ("journal", 8),
            ("log", 24),
            ("id", 32),
            ("first offset", 40),
            ("next", 48),
            ("index at", 56),
            ("runs", 64),
            ("aborted", 68),
            ("timestamp", 72),
            ("append", 80),
            ("horizon", 88),
            ("index checksum", 96),
            ("reserved", 110),
            ("checksum", 124),
        ] {
            self.add(kind, path, format!("footer, {place}"), Harm::Flip(footer + at));
        }
        self.add(kind, path, "in its header", Harm::Cut(30));
        self.add(kind, path, "in its batches", Harm::Cut(4000));
        self.add(kind, path, "before its footer", Harm::Cut(footer));
        self.add(kind, path, "in its footer", Harm::Cut(footer + 100));
        self.add(kind, path, "batches", Harm::Zeroes(SECTOR));
        self.add(kind, path, "first sector", Harm::Zeroes(0));
    }
}

/// All damages, in a fixed order.
pub fn list(bases: &[Base], foreign: &Path) -> Vec<Case> {
    let mut list = List { bases, foreign, base: 0, cases: Vec::new() };
    for (number, base) in bases.iter().enumerate() {
        list.base = number;
        match base.name {
            "rewritten" => of_rewritten(&mut list),
            "behind" => of_behind(&mut list),
            _ => of_archived(&mut list),
        }
    }
    list.cases
}

fn is_rewritten(path: &Path) -> bool {
    fs::read(path).expect("readable")[6] == 2
}

/// Those of a folder that hold chunks, and the one that was prepared.
pub fn begun(folder: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    segments(folder).into_iter().filter(|path| !is_rewritten(path)).partition(|path| !chunks(path).is_empty())
}

fn of_rewritten(list: &mut List<'_>) {
    let folder = list.bases[list.base].folder.path().to_owned();
    let (all, prepared) = begun(&folder);
    let rewritten = segments(&folder).into_iter().find(|path| is_rewritten(path)).expect("one is rewritten");
    let sealed = &all;
    let (first, active) = (sealed[0].clone(), all.last().expect("one is open").clone());
    assert!(sealed.len() > 3, "several are sealed");

    list.whole("rewritten segment", &rewritten);
    list.header("rewritten segment", &rewritten);
    list.index("rewritten segment", &rewritten);
    for (place, at) in [("first body", SECTOR), ("a body", SECTOR + 30_000)] {
        list.add("rewritten segment", &rewritten, place, Harm::Flip(at));
    }
    list.add("rewritten segment", &rewritten, "bodies", Harm::Zeroes(2 * SECTOR));
    list.swap("rewritten segment", &rewritten, &first);
    let other = segments(list.foreign)[0].clone();
    list.add("rewritten segment", &rewritten, "", Harm::Foreign(other.clone()));

    let of_sealed = chunks(&first);
    list.whole("sealed segment", &first);
    list.header("sealed segment", &first);
    list.index("sealed segment", &first);
    let (middle, last) = (of_sealed[of_sealed.len() / 2], *of_sealed.last().expect("several"));
    list.chunk_header("sealed segment", &first, "first", of_sealed[0]);
    list.chunk("sealed segment", &first, "middle", middle);
    list.chunk("sealed segment", &first, "last", last);
    list.swap("sealed segment", &first, &sealed[1]);
    list.swap("sealed segment", &first, &active);
    list.add("sealed segment", &first, "", Harm::Foreign(other.clone()));

    let of_active = chunks(&active);
    list.whole("open segment", &active);
    list.header("open segment", &active);
    let (middle, last) = (of_active[of_active.len() / 2], *of_active.last().expect("several"));
    list.chunk_header("open segment", &active, "first", of_active[0]);
    list.chunk_header("open segment", &active, "middle", middle);
    list.chunk("open segment", &active, "middle", middle);
    list.chunk_header("open segment", &active, "last", last);
    list.chunk("open segment", &active, "last", last);
    list.add("open segment", &active, "", Harm::Foreign(other));

    for path in &prepared {
        list.whole("prepared segment", path);
        list.add("prepared segment", path, "in its header", Harm::Cut(100));
        list.add("prepared segment", path, "header", Harm::Flip(20));
        list.swap("prepared segment", path, &active);
    }
    list.checkpoint();
    let journal = journal_of(&folder);
    let reserve = journal.join("reserve");
    list.whole("reserve", &reserve);
    list.add("reserve", &reserve, "", Harm::Flip(5));
    for path in files(&journal)
        .into_iter()
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("spare-")))
    {
        list.whole("spare", &path);
        list.add("spare", &path, "", Harm::Flip(5));
    }
    for name in [
        "checkpoint.new",
        "rewriting",
        "repairing",
        "damaged-segment-000000000001",
        "spare-segment-000000000099",
        "segment-1",
        "segment-000000000099",
        "else",
    ] {
        list.add("leftover", &journal.join(name), name, Harm::Extra);
    }
}

fn of_behind(list: &mut List<'_>) {
    let folder = list.bases[list.base].folder.path().to_owned();
    let (all, _) = begun(&folder);
    let kind = "segment behind the checkpoint";
    for (which, path) in [("first", all[all.len() - 3].clone()), ("last but one", all[all.len() - 2].clone())] {
        let places = chunks(&path);
        list.whole(kind, &path);
        for (place, at) in [("magic", 0), ("journal", 12), ("sequence", 4084)] {
            list.add(kind, &path, format!("{which}, header, {place}"), Harm::Flip(at));
        }
        list.chunk_header(kind, &path, which, places[2]);
        list.chunk(kind, &path, which, places[places.len() / 2]);
        list.chunk(kind, &path, which, *places.last().expect("several"));
        list.index(kind, &path);
    }
    list.swap(kind, &all[all.len() - 3], &all[all.len() - 2]);
    list.swap(kind, &all[all.len() - 2], &all[all.len() - 1]);
    list.whole("newest segment", &all[all.len() - 1]);
    list.with("newest segment", &all[all.len() - 1], &all[all.len() - 2]);
    list.checkpoint();
}

fn of_archived(list: &mut List<'_>) {
    let folder = list.bases[list.base].folder.path().to_owned();
    let objects: Vec<PathBuf> = files(&folder.join("archive"))
        .into_iter()
        .filter(|path| fs::metadata(path).is_ok_and(|file| file.len() > 40_000))
        .collect();
    assert!(objects.len() > 6, "{objects:?}");
    let (first, middle) = (objects[0].clone(), objects[objects.len() / 2].clone());
    list.object(&first);
    list.object(&middle);
    list.swap("object", &first, &objects[1]);
    list.swap("object", &first, objects.last().expect("several"));
    list.add("object", &middle, "", Harm::Foreign(objects[1].clone()));
    list.add("object", &folder.join("archive/else"), "", Harm::Extra);
    list.checkpoint();
    let (all, prepared) = begun(&folder);
    list.whole("sealed segment", &all[0]);
    let newest = all.last().expect("one is open");
    list.whole("open segment", newest);
    list.with("open segment", newest, &all[all.len() - 2]);
    // The one that was made for what follows says that both were there.
    if let Some(made) = prepared.first() {
        list.with("open segment", newest, made);
    }
}
