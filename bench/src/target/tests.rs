//! Target files: the shipped ones, mistakes, and starting and stopping one.

use super::*;

fn places(scratch: &Path) -> Places {
    Places {
        peers: "/nowhere/peers".into(),
        peers_home: "/nowhere/home".into(),
        mainstem: "/nowhere/mainstem".into(),
        scratch: scratch.to_owned(),
    }
}

#[test]
fn every_shipped_target_says_how_it_keeps_its_promises() {
    for name in Target::names() {
        let target = Target::find(name).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        assert_eq!(target.name, name);
        for durability in [Durability::Memory, Durability::Fsync] {
            let promise = target.promise(durability).unwrap_or_else(|| panic!("{name} {}", durability.name()));
            assert!(!promise.note.is_empty());
        }
        for variant in target.variants() {
            let settings = target.settings(variant, Durability::Memory);
            assert!(settings.iter().all(|setting| !setting.reason.is_empty()), "{name} {variant}");
        }
    }
}

#[test]
fn a_port_is_the_same_wherever_its_name_stands() {
    let target = Target::find("mainstem").unwrap();
    assert!(target.start.contains(&target.address), "{target:?}");
    assert!(!target.start.contains(&target.ready.unwrap()) && !target.address.contains('{'));
}

#[test]
fn mistakes_are_named() {
    let said = |word: &str| format!("{:#}", Target::find(word).unwrap_err());
    assert_eq!(said("kafak"), "no target `kafak`; did you mean `kafka`?");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.toml");
    std::fs::write(&file, "name = \"t\"\ntitle = \"T\"\ndriver = \"kafkaa\"\naddress = \"127.0.0.1:1\"").unwrap();
    assert!(said(&file.to_string_lossy()).ends_with("no driver `kafkaa`; did you mean `kafka`?"));
    std::fs::write(&file, "name = \"t\"\ntitle = \"T\"\ndriver = \"kafka\"\naddress = \"127.0.0.1:1\"\nstrat = []")
        .unwrap();
    assert!(said(&file.to_string_lossy()).contains("unknown field `strat`"), "{}", said(&file.to_string_lossy()));
}

#[test]
fn a_target_that_does_not_start_shows_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let mut target = Target::find("mainstem").unwrap();
    target.start = ["sh", "-c", "echo the port is taken >&2; exit 3"].map(str::to_owned).into();
    target.ready = None;
    target.address = "127.0.0.1:1".to_owned();
    let setup = crate::plan::setup_of(&target, &crate::workload::Workload::default(), "stock");
    let said = format!("{:#}", Running::start(&target, &places(folder.path()), setup).err().expect("it cannot start"));
    assert!(said.contains("exit status: 3") && said.contains("the port is taken"), "{said}");
}

#[test]
fn a_target_is_stopped_with_all_that_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut target = Target::find("mainstem").unwrap();
    target.start = ["sh", "-c", "mkdir -p {data}; echo $DEPTH > {data}/depth; exec sleep 60"].map(str::to_owned).into();
    target.environment.insert("DEPTH".to_owned(), "{durability}".to_owned());
    target.ready = None;
    target.address = listener.local_addr().unwrap().to_string();
    let setup = crate::plan::setup_of(&target, &crate::workload::Workload::default(), "stock");
    let running = Running::start(&target, &places(folder.path()), setup).unwrap();
    let (began, depth) =
        (std::time::Instant::now(), || std::fs::read_to_string(folder.path().join("data/depth")).unwrap_or_default());
    while depth() != "memory\n" {
        assert!(began.elapsed().as_secs() < 60, "{:?}", depth());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let pids = running.pids();
    assert_eq!(pids.len(), 1);
    drop(running);
    assert!(crate::process::with_descendants(&pids.into_iter().collect::<Vec<_>>()).is_empty());
    assert!(!folder.path().join("data").exists());
}

#[test]
fn no_port_is_given_twice() {
    let text = with_free_ports("{port a} {port a} {port b}".to_owned()).unwrap();
    let ports: Vec<u16> = text.split(' ').map(|port| port.parse().unwrap()).collect();
    assert!(ports[0] == ports[1] && ports[1] != ports[2] && ports.iter().all(|port| PORTS.contains(port)), "{text}");
    let again: u16 = with_free_ports("{port a}".to_owned()).unwrap().parse().unwrap();
    assert!(!ports.contains(&again), "{text} and {again}");
}
