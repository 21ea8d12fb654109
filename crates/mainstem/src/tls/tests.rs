//! Files of each kind that something is wrong with, by certificates that the tests make themselves.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use self::certificates::{Somebody, pem};
use super::*;

#[path = "../../tests/it/certificates.rs"]
mod certificates;

const NOW: i64 = 1_800_000_000;
const DAY: i64 = 86_400;

struct World {
    folder: tempfile::TempDir,
    root: Somebody,
    middle: Somebody,
    broker: Somebody,
}

impl World {
    fn new() -> Self {
        let world = Self {
            folder: tempfile::tempdir().expect("a folder"),
            root: Somebody::new("root"),
            middle: Somebody::new("middle"),
            broker: Somebody::new("broker"),
        };
        world.put("certificate", world.chain());
        world.put("key", world.broker.key());
        world.put("ca", world.root.certificate(&world.root, NOW - DAY, NOW + DAY));
        world
    }

    fn middle(&self) -> String {
        self.middle.certificate(&self.root, NOW - DAY, NOW + DAY)
    }

    fn leaf(&self, from: i64, until: i64) -> String {
        self.broker.certificate(&self.middle, from, until)
    }

    fn chain(&self) -> String {
        self.leaf(NOW - DAY, NOW + DAY) + &self.middle()
    }

    fn put(&self, file: &str, text: impl AsRef<[u8]>) {
        fs::write(self.folder.path().join(file), text).expect("written");
    }

    fn files(&self) -> TlsFiles {
        let path = |file: &str| self.folder.path().join(file);
        let (clients, login_from) = (ClientCertificates::Optional, LoginFrom::default());
        TlsFiles { certificate: path("certificate"), key: path("key"), ca: Some(path("ca")), clients, login_from }
    }

    /// What is said of the files, without their folder; empty: they can be used.
    fn said(&self) -> String {
        let said = self.files().load(NOW).map_or_else(
            |error| error.to_string(),
            |loaded| {
                loaded.out_of_date.iter().chain(&loaded.notes).map(ToString::to_string).collect::<Vec<_>>().join("\n")
            },
        );
        said.replace(&format!("{}/", self.folder.path().display()), "")
    }

    fn refused(&self) -> String {
        assert!(self.files().load(NOW).is_err());
        self.said()
    }
}

#[test]
fn good_files_are_taken_however_their_lines_end() {
    let world = World::new();
    assert_eq!(world.said(), "");
    world.put("certificate", format!("# Of the broker.\n{}", world.chain()).replace('\n', "\r\n"));
    world.put("key", world.broker.key().replace('\n', "\r\n"));
    assert_eq!(world.said(), "");
    let both = world.broker.key() + &world.chain();
    world.put("certificate", &both);
    world.put("key", &both);
    assert_eq!(world.said(), "", "one file for both");
}

#[test]
fn a_file_that_is_no_pem_is_named_with_what_is_wrong() {
    for (file, flag, wanted) in [
        ("certificate", "--tls-certificate", "certificate"),
        ("key", "--tls-key", "private key"),
        ("ca", "--tls-ca", "certificate"),
    ] {
        let world = World::new();
        let path = world.folder.path().join(file);
        let own = fs::read_to_string(&path).expect("a file");
        let expect = |reason: &str| assert_eq!(world.refused(), format!("{flag} {file}: {reason}"));
        let begins = |reason: &str| {
            assert!(world.refused().starts_with(&format!("{flag} {file}: {reason}")), "{}", world.refused())
        };
        for text in ["", " \r\n"] {
            world.put(file, text);
            expect("the file is empty");
        }
        world.put(file, "nonsense");
        expect(&format!("the file has no {wanted} in PEM"));
        world.put(file, [0x30, 0x82, 1, 2, 3]);
        begins(&format!("the file has no {wanted} in PEM: it looks like DER"));
        world.put(file, &own[..own.len() / 3]);
        begins("the file is cut off: it has no line \"-----END ");
        world.put(file, own.replacen('M', "*", 1));
        begins("the file is no PEM: what is between");
        world.put(file, "-----BEGIN X\n");
        begins("the file is no PEM: a part begins with the line \"-----BEGIN X");
        world.put(file, vec![b'x'; (1 << 20) + 1]);
        expect("it is longer than 1048576 bytes");
        fs::remove_file(&path).expect("removed");
        expect("No such file or directory (os error 2)");
        fs::create_dir(&path).expect("a folder");
        expect("Is a directory (os error 21)");
    }
}

#[test]
fn a_file_that_may_not_be_read_is_named() {
    let world = World::new();
    let path = world.folder.path().join("key");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("changed");
    // Root reads everything.
    if fs::File::open(&path).is_err() {
        assert_eq!(world.refused(), "--tls-key key: Permission denied (os error 13)");
    }
}

#[test]
fn another_thing_in_pem_is_named() {
    let world = World::new();
    world.put("certificate", world.broker.key());
    assert_eq!(world.refused(), "--tls-certificate certificate: the file has no certificate in PEM, but a private key");
    world.put("certificate", pem("CERTIFICATE REQUEST", b"x"));
    assert_eq!(
        world.refused(),
        "--tls-certificate certificate: the file has no certificate in PEM, but a request for a certificate"
    );
    world.put("certificate", pem("CERTIFICATE", b"x"));
    assert_eq!(world.refused(), "--tls-certificate certificate: certificate 1 is none");
    world.put("certificate", world.chain());
    world.put("key", world.chain());
    assert_eq!(world.refused(), "--tls-key key: the file has no private key in PEM, but a certificate");
    world.put("key", pem("PRIVATE KEY", b"x"));
    assert!(world.refused().starts_with("--tls-key key: the key is none that can be used: "), "{}", world.refused());
    let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    for text in [pem("ENCRYPTED PRIVATE KEY", b"x"), old.to_owned()] {
        world.put("key", text);
        assert!(world.refused().starts_with("--tls-key key: the key is encrypted"), "{}", world.refused());
    }
}

#[test]
fn a_key_is_that_of_the_first_certificate() {
    let world = World::new();
    world.put("key", world.root.key());
    let both = "--tls-certificate certificate and --tls-key key: ";
    assert_eq!(world.refused(), format!("{both}the key is another than that of the certificate"));
    world.put("key", world.broker.key());
    world.put("certificate", world.middle() + &world.leaf(NOW - DAY, NOW + DAY));
    assert_eq!(world.refused(), format!("{both}the key is that of certificate 2, which has to be the first"));
}

#[test]
fn certificates_in_the_wrong_order_are_told_of() {
    let world = World::new();
    let (leaf, root) = (world.leaf(NOW - DAY, NOW + DAY), world.root.certificate(&world.root, NOW - DAY, NOW + DAY));
    world.put("certificate", leaf.clone() + &world.middle() + &root);
    assert_eq!(world.said(), "");
    world.put("certificate", leaf + &root + &world.middle());
    assert_eq!(
        world.said(),
        "--tls-certificate certificate: certificate 2 (CN=root) is not that of CN=middle, the authority that has issued certificate 1 (CN=broker): \
         each has to stand behind the one that it has issued"
    );
    assert!(world.files().load(NOW).is_ok());
}

#[test]
fn certificates_out_of_date_are_told_of() {
    let world = World::new();
    let (clock, yesterday, tomorrow) = (shown(NOW), shown(NOW - DAY), shown(NOW + DAY));
    world.put(
        "certificate",
        world.leaf(NOW - 2 * DAY, NOW - DAY) + &world.middle.certificate(&world.root, NOW + DAY, NOW + 2 * DAY),
    );
    world.put("ca", world.root.certificate(&world.root, NOW - 2 * DAY, NOW - DAY));
    let said = world.said();
    let expected = [
        format!(
            "--tls-certificate certificate: certificate 1 (CN=broker) has expired at {yesterday}; the clock says {clock}"
        ),
        format!(
            "--tls-certificate certificate: certificate 2 (CN=middle) is not good before {tomorrow}; the clock says {clock}"
        ),
        format!("--tls-ca ca: certificate 1 (CN=root) has expired at {yesterday}; the clock says {clock}"),
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
}

fn refusal(tls: &Tls) -> String {
    tls.load_at(NOW).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn a_reload_takes_nothing_that_is_worse() {
    let world = World::new();
    let files = world.files();
    let tls = Tls { current: RwLock::new(files.load(NOW).expect("good files")), files };
    let before = tls.config();
    world.put("certificate", world.leaf(NOW - 2 * DAY, NOW - DAY) + &world.middle());
    assert!(refusal(&tls).contains("certificate 1 (CN=broker) has expired"));
    world.put("certificate", world.leaf(NOW + DAY, NOW + 2 * DAY) + &world.middle());
    assert!(refusal(&tls).contains("is not good before"));
    world.put("certificate", "");
    assert!(tls.load_at(NOW).is_err());
    assert!(Arc::ptr_eq(&before, &tls.config()), "the old one stays");
    world.put("certificate", world.chain());
    tls.put(tls.load_at(NOW).expect("good files"));
    assert!(!Arc::ptr_eq(&before, &tls.config()));
    assert_eq!(tls.until(), NOW + DAY);
    assert!(tls.load_at(NOW + 2 * DAY).is_ok(), "the one that is there does not keep other settings from being read");
}
