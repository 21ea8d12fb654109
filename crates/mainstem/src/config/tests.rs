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
    let environment = [
        ("MAINSTEM_SET_NUM_PARTITIONS", "4"),
        ("MAINSTEM_SET_CHANNEL_MAX_PER_NODE", "7"),
        ("MAINSTEM_MEMORY", "2g"),
        ("PATH", "x"),
    ];
    let config = resolve(arguments, &environment).unwrap();
    assert_eq!(config.settings.int("channel_max_per_node"), 7);
    assert_eq!(config.settings.int("num.partitions"), 5);
    assert!(!config.settings.bool("auto.create.topics.enable"));
    assert_eq!((config.durability, config.memory, config.log), (Durability::Fsync, ByteSize::gib(2), LogFormat::Json));
    assert_eq!(config.listeners.len(), 2);
}

#[test]
fn refusals_name_setting_value_and_what_would_be_right() {
    let set = |text: &str| ServeArguments { set: vec![text.to_owned()], ..ServeArguments::default() };
    assert!(refusal(set("num.partition=3"), &[]).contains("did you mean num.partitions?"));
    assert!(
        refusal(set("num.partitions=x"), &[]).contains("num.partitions = \"x\" is not possible: it is a whole number")
    );
    assert!(refusal(set("num.partitions"), &[]).contains("write KEY=VALUE"));
    let memory = ServeArguments { memory: Some("1x".to_owned()), ..ServeArguments::default() };
    assert!(refusal(memory, &[]).contains("--memory = \"1x\""));
    let small = ServeArguments { memory: Some("1m".to_owned()), ..ServeArguments::default() };
    assert!(refusal(small, &[]).contains("the least is 64 MiB"));
    let text = refusal(ServeArguments::default(), &[("MAINSTEM_DURABILTY", "memory")]);
    assert!(text.contains("did you mean \"durability\""), "{text}");
    let text = Layer::from_toml("dta = 'x'", "file.toml").expect_err("refused").to_string();
    assert_eq!(text, "file.toml, line 1: unknown key \"dta\"; did you mean \"data\"?");
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

#[test]
fn tls_is_all_there_or_refused() {
    let with = |flags: &[&str]| {
        let words = ["mainstem", "serve"].into_iter().chain(flags.iter().copied());
        let crate::cli::Command::Serve(arguments) = <crate::cli::Cli as clap::Parser>::parse_from(words).command else {
            panic!("serve")
        };
        resolve(*arguments, &[]).map_err(|error| error.to_string())
    };
    let refused = |flags: &[&str]| with(flags).expect_err("refused");
    assert!(
        refused(&["--amqps", "127.0.0.1:5671"])
            .contains("--amqps = \"127.0.0.1:5671\" is not possible: TLS needs --tls-certificate and --tls-key")
    );
    let listener = ["--kafka-tls", "127.0.0.1:9093", "--tls-certificate", "c.pem", "--tls-key", "k.pem"];
    let and = |more: &[&'static str]| [&listener[..], more].concat();
    assert!(
        refused(&and(&["--tls-clients", "required"]))
            .contains("--tls-clients = \"required\" is not possible: --tls-ca has to name")
    );
    assert!(
        refused(&and(&["--tls-clients", "none", "--tls-ca", "a.pem"]))
            .contains("--tls-ca = \"a.pem\" is not possible: nothing uses it")
    );
    assert!(refused(&and(&["--tls-clients", "some"])).contains("it is \"none\", \"optional\" or \"required\""));
    assert!(refused(&and(&["--advertise-tls", "a", "--advertise-tls", "b"])).contains("there are only 1 --kafka-tls"));
    assert!(refused(&["--tls-key", "k.pem"]).contains("--tls-key = \"k.pem\" is not possible: nothing uses it"));
    let security = with(&and(&["--tls-ca", "a.pem"])).expect("taken").security;
    let files = security.tls.expect("TLS");
    assert_eq!(
        (files.clients, files.login_from),
        (crate::tls::ClientCertificates::Optional, crate::tls::LoginFrom::DistinguishedName)
    );
    assert_eq!(security.kafka_tls.len(), 1);
}

#[test]
fn listeners_under_names_are_what_kafka_operators_expect() {
    let with = |settings: &[&str]| {
        let arguments =
            ServeArguments { set: settings.iter().map(ToString::to_string).collect(), ..ServeArguments::default() };
        resolve(arguments, &[]).map_err(|error| error.to_string())
    };
    let refused = |settings: &[&str]| with(settings).expect_err("refused");
    let map = "listener.security.protocol.map=IN:SASL_PLAINTEXT,OUT:PLAINTEXT";
    let config = with(&[
        "listeners=IN://127.0.0.1:1, OUT://:2",
        map,
        "advertised.listeners=IN://broker.example.org:7",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
        "listener.name.in.sasl.enabled.mechanisms=SCRAM-SHA-512",
        "listener.name.in.connections.max.reauth.ms=5000",
        "mainstem.anonymous.clients=anywhere",
    ])
    .expect("taken");
    assert!(config.listeners.is_empty(), "there is no other without being asked for");
    let [inner, outer] = &config.named[..] else { panic!("two") };
    let sasl = inner.sasl.as_ref().expect("SASL");
    assert_eq!(sasl.mechanisms.iter().map(|one| one.name()).collect::<Vec<_>>(), ["SCRAM-SHA-512"]);
    assert_eq!(
        (sasl.session_max, sasl.refusal_delay),
        (Some(std::time::Duration::from_secs(5)), std::time::Duration::from_millis(100))
    );
    assert_eq!((inner.advertise.host.as_deref(), inner.advertise.port), (Some("broker.example.org"), Some(7)));
    assert_eq!((outer.address.to_string().as_str(), outer.sasl.is_none(), outer.tls), ("0.0.0.0:2", true, false));
    for (settings, text) in [
        (&["listeners=127.0.0.1:9092"][..], "listeners = \"127.0.0.1:9092\" is not possible: it is NAME://HOST:PORT"),
        (&["listeners=IN://127.0.0.1:1"], "listener.security.protocol.map has to say which of"),
        (&["listeners=IN://127.0.0.1:1,in://127.0.0.1:2", map], "each name is there once"),
        (&["listeners=IN://127.0.0.1:x", map], "it is an address with a port"),
        (
            &["listeners=PLAINTEXT://127.0.0.1:1", "listener.security.protocol.map=PLAINTEXT:TLS"],
            "it is NAME:PROTOCOL, and PROTOCOL is",
        ),
        (
            &["listeners=SSL://127.0.0.1:1"],
            "listeners = \"SSL\" is not possible: TLS needs --tls-certificate and --tls-key",
        ),
        (&["listeners=SASL_PLAINTEXT://127.0.0.1:1", "sasl.enabled.mechanisms="], "it has to offer a mechanism"),
        (
            &["listeners=PLAINTEXT://127.0.0.1:1", "advertised.listeners=SSL://a:1"],
            "listeners has no listener of this name",
        ),
        (
            &["listeners=PLAINTEXT://127.0.0.1:1", "listener.name.ssl.connections.max.reauth.ms=5"],
            "listeners has no listener of this name",
        ),
        (
            &["listener.name.in.num.partitions=5"],
            "unknown setting listener.name.in.num.partitions: of one listener there are",
        ),
        (&["sasl.enabled.mechanisms=GSSAPI"], "it is a list of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
        (
            &["listener.name.in.connections.max.reauth.ms=-1"],
            "listener.name.in.connections.max.reauth.ms = \"-1\" is not possible",
        ),
    ] {
        let said = refused(settings);
        assert!(said.contains(text), "{said}");
    }
}

#[test]
fn tokens_need_keys_and_what_is_about_them_needs_tokens() {
    let with = |settings: &[&str]| {
        let arguments = ServeArguments {
            set: settings.iter().map(|text| format!("sasl.{text}")).collect(),
            ..ServeArguments::default()
        };
        let arguments = ServeArguments {
            set: [vec!["listeners=SASL_PLAINTEXT://127.0.0.1:1".to_owned()], arguments.set].concat(),
            ..arguments
        };
        resolve(arguments, &[]).map_err(|error| error.to_string())
    };
    let url = "oauthbearer.jwks.endpoint.url=file:///keys.json";
    assert_eq!(with(&["enabled.mechanisms=PLAIN"]).expect("taken").token_keys, None);
    let config = with(&["enabled.mechanisms=OAUTHBEARER", url]).expect("taken");
    assert_eq!(config.token_keys.map(|source| source.to_string()).as_deref(), Some("file:/keys.json"));
    assert!(config.named[0].sasl.as_ref().is_some_and(|sasl| sasl.takes_tokens()));
    for (settings, text) in [
        (
            &["enabled.mechanisms=OAUTHBEARER"][..],
            "listener SASL_PLAINTEXT offers OAUTHBEARER, so it has to say where the keys of tokens are",
        ),
        (&["oauthbearer.expected.issuer=x"], "sasl.oauthbearer.expected.issuer is set, which counts only where"),
        (
            &["oauthbearer.jwks.endpoint.url=keys.json"],
            "sasl.oauthbearer.jwks.endpoint.url = \"keys.json\" is not possible: it is file:///PATH",
        ),
        (
            &["oauthbearer.jwks.endpoint.url=https://me:secret@a/b"],
            "= \"…@a/b\" is not possible: settings are shown to those who may see them",
        ),
        (
            &[url, "oauthbearer.sub.claim.name="],
            "sasl.oauthbearer.sub.claim.name = \"\" is not possible: it is the name of a claim",
        ),
        (&[url, "oauthbearer.jwks.endpoint.refresh.ms=10"], "it is a whole number from 1000 to"),
        (
            &[url, "oauthbearer.jwks.endpoint.retry.backoff.ms=20000"],
            "it is no more than sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms, which is 10000",
        ),
        (&[url, "oauthbearer.clock.skew.seconds=-1"], "it is a whole number from 0 to 86400"),
    ] {
        let said = with(settings).expect_err("refused");
        assert!(said.contains(text), "{said}");
    }
}

#[test]
fn the_first_user_has_a_password_that_no_list_of_processes_shows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("password");
    std::fs::write(&path, "from the file\nand a second line\n").unwrap();
    let file = path.display().to_string();
    let user = |variables: &[(&str, &str)]| {
        resolve(ServeArguments::default(), variables).map(|config| config.security.first_user)
    };
    let one =
        user(&[("MAINSTEM_DEFAULT_USER", "admin"), ("MAINSTEM_DEFAULT_PASS_FILE", &file)]).unwrap().expect("a user");
    assert_eq!((one.name.as_str(), one.password.as_str()), ("admin", "from the file"));
    assert!(!format!("{one:?}").contains("file"));
    let one =
        user(&[("MAINSTEM_DEFAULT_USER", "admin"), ("MAINSTEM_DEFAULT_PASS", " a, b ")]).unwrap().expect("a user");
    assert_eq!(one.password, " a, b ");
    let refused = |variables: &[(&str, &str)]| refusal(ServeArguments::default(), variables);
    assert!(
        refused(&[("MAINSTEM_DEFAULT_USER", "admin")])
            .contains("--default-user = \"admin\" is not possible: the user needs a password")
    );
    assert!(refused(&[("MAINSTEM_DEFAULT_PASS", "secret")]).contains("it names whose password default_pass is"));
    let text = refused(&[("MAINSTEM_DEFAULT_USER", "admin"), ("MAINSTEM_DEFAULT_PASS_FILE", "/nowhere/at/all")]);
    assert!(text.contains("--default-pass-file = \"/nowhere/at/all\" is not possible: No such file"), "{text}");
    let both =
        [("MAINSTEM_DEFAULT_USER", "admin"), ("MAINSTEM_DEFAULT_PASS", "x"), ("MAINSTEM_DEFAULT_PASS_FILE", &file)];
    assert!(refused(&both).contains("the password is given as default_pass already"));
}
