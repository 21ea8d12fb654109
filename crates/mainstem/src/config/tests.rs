//! Layers and refusals.

use super::*;

fn resolve(arguments: ServeArguments, environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::resolve(arguments, environment.iter().map(|(name, value)| (name.to_string(), value.to_string())))
}

fn refusal(arguments: ServeArguments, environment: &[(&str, &str)]) -> String {
    resolve(arguments, environment).expect_err("refused").to_string()
}

#[test]
fn defaults_hold_without_any_source() {
    let config = resolve(ServeArguments::default(), &[]).unwrap();
    assert_eq!(config.listeners[0].address.to_string(), "127.0.0.1:9092");
    assert_eq!(config.admin.to_string(), "127.0.0.1:8160");
    assert_eq!((config.durability, config.io, config.log), (Durability::Fsync, None, LogFormat::Text));
}

#[test]
fn flags_win_over_environment_and_environment_over_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mainstem.toml");
    let text = "durability = 'memory'\nlog = 'json'\nmemory = '1g'\nkafka = ['127.0.0.1:1', '127.0.0.1:2']\n\
                [settings]\nnum.partitions = 3\nauto.create.topics.enable = false\n";
    std::fs::write(&path, text).unwrap();
    let arguments = ServeArguments {
        config: Some(path),
        set: vec!["num.partitions=5".to_owned()],
        durability: Some("fsync".to_owned()),
        ..ServeArguments::default()
    };
    let environment = [("MAINSTEM_SET_NUM_PARTITIONS", "4"), ("MAINSTEM_MEMORY", "2g"), ("PATH", "x")];
    let config = resolve(arguments, &environment).unwrap();
    assert_eq!(config.settings.int("num.partitions"), 5);
    assert!(!config.settings.bool("auto.create.topics.enable"));
    assert_eq!((config.durability, config.memory, config.log), (Durability::Fsync, ByteSize::gib(2), LogFormat::Json));
    assert_eq!(config.listeners.len(), 2);
}

#[test]
fn refusals_name_setting_value_and_what_would_be_right() {
    let set = |text: &str| ServeArguments { set: vec![text.to_owned()], ..ServeArguments::default() };
    assert!(refusal(set("num.partition=3"), &[]).contains("did you mean num.partitions?"));
    assert!(refusal(set("num.partitions=x"), &[]).contains("num.partitions = \"x\" is not possible: it is a whole number"));
    assert!(refusal(set("num.partitions"), &[]).contains("write KEY=VALUE"));
    let memory = ServeArguments { memory: Some("1x".to_owned()), ..ServeArguments::default() };
    assert!(refusal(memory, &[]).contains("--memory = \"1x\""));
    let small = ServeArguments { memory: Some("1m".to_owned()), ..ServeArguments::default() };
    assert!(refusal(small, &[]).contains("the least is 64 MiB"));
    let text = refusal(ServeArguments::default(), &[("MAINSTEM_DURABILTY", "memory")]);
    assert!(text.contains("did you mean \"durability\""), "{text}");
    let text = Layer::from_toml("dta = 'x'", "file.toml").expect_err("refused").to_string();
    assert_eq!(text, "file.toml: unknown key \"dta\"; did you mean \"data\"?");
}

#[test]
fn advertised_names_belong_to_listeners_in_order() {
    let arguments = |advertise: &[&str]| ServeArguments {
        kafka: vec!["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()],
        advertise: advertise.iter().map(ToString::to_string).collect(),
        ..ServeArguments::default()
    };
    let config = resolve(arguments(&["one.example.org", "[::1]:7"]), &[]).unwrap();
    assert_eq!(config.listeners[0].advertise.host.as_deref(), Some("one.example.org"));
    assert_eq!(config.listeners[0].advertise.port, None);
    assert_eq!(config.listeners[1].advertise.host.as_deref(), Some("::1"));
    assert_eq!(config.listeners[1].advertise.port, Some(7));
    assert!(refusal(arguments(&["0.0.0.0"]), &[]).contains("clients cannot connect"));
    assert!(refusal(arguments(&["a", "b", "c"]), &[]).contains("only 2 --kafka"));
    assert!(refusal(arguments(&["a:0"]), &[]).contains("from 1 to 65535"));
}
