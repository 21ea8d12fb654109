//! The committed code is what the generator makes of the schema.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn committed(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).expect("the folder of generated code");
    entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).expect("a text"))
        })
        .collect()
}

#[test]
fn generated_code_fits_the_schema() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fresh: BTreeMap<_, _> = kafka_wire_gen::generate(&root.join("schema")).expect("a schema").into_iter().collect();
    let committed = committed(&root.join("src/generated"));
    let names = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&committed), names(&fresh), "files to add or remove: cargo run -p kafka-wire-gen");
    for (name, code) in &fresh {
        assert!(committed[name] == *code, "{name} is stale: cargo run -p kafka-wire-gen");
    }
}
