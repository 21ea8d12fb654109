//! `mainstem user`.

use std::path::PathBuf;

use anyhow::bail;
use clap::Subcommand;
use serde_json::{Value, json};

use super::Session;
use super::http::{Refused, password_of, segment};
use super::table::{self, Column, Form};

pub const EXAMPLES: &str = "Examples:
  mainstem user add anna --tag administrator                 (the password is asked for)
  mainstem user add shop --new-password-file /run/secrets/shop
  mainstem user permissions shop --configure '^shop\\.' --write '^shop\\.' --read '.*'
  mainstem user passwd anna
  mainstem user list
  mainstem user delete shop

A password is read from a file, or from standard input; it is no argument, because those can be seen by others of the machine.";

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List users
    List,
    /// A user and his permissions
    #[command(visible_alias = "describe")]
    Show { name: String },
    /// Add a user
    #[command(visible_alias = "create")]
    Add {
        name: String,
        /// administrator, monitoring, policymaker, management; may be repeated
        #[arg(long = "tag", value_name = "TAG")]
        tags: Vec<String>,
        /// File whose first line is his password [default: standard input]
        #[arg(long, value_name = "FILE")]
        new_password_file: Option<PathBuf>,
        /// He logs in by certificate only
        #[arg(long, conflicts_with = "new_password_file")]
        no_password: bool,
    },
    /// Give a user another password
    Passwd {
        name: String,
        /// File whose first line is his password [default: standard input]
        #[arg(long, value_name = "FILE")]
        new_password_file: Option<PathBuf>,
    },
    /// Give a user other tags
    Tags {
        name: String,
        /// All of them; none takes them away
        tags: Vec<String>,
    },
    /// Permissions in a virtual host: give them, or take them away
    #[command(group(clap::ArgGroup::new("wish").args(["configure", "write", "read", "clear"]).required(true).multiple(true)))]
    Permissions {
        name: String,
        /// The virtual host
        #[arg(long, value_name = "NAME", default_value = "/")]
        vhost: String,
        /// A regular expression of names that he may make, change and delete; what is not said is none
        #[arg(long, value_name = "REGEX")]
        configure: Option<String>,
        /// … write to
        #[arg(long, value_name = "REGEX")]
        write: Option<String>,
        /// … read from
        #[arg(long, value_name = "REGEX")]
        read: Option<String>,
        /// Take them away
        #[arg(long, conflicts_with_all = ["configure", "write", "read"])]
        clear: bool,
    },
    /// Delete a user; his connections end
    Delete { name: String },
}

const COLUMNS: &[Column] = &[
    ("NAME", "name", Form::Text),
    ("TAGS", "tags", Form::Text),
    ("PASSWORD", "has_password", Form::Text),
    ("SCRAM", "mechanisms", Form::Text),
    ("CONNECTIONS", "connections", Form::Count),
];

const PERMISSIONS: &[Column] = &[
    ("VHOST", "vhost", Form::Text),
    ("CONFIGURE", "configure", Form::Text),
    ("WRITE", "write", Form::Text),
    ("READ", "read", Form::Text),
];

fn with_mechanisms(user: &Value) -> Value {
    let names: Vec<Value> =
        user["scram"].as_array().into_iter().flatten().map(|keys| keys["mechanism"].clone()).collect();
    let mut user = user.clone();
    user["mechanisms"] = names.into();
    user
}

fn shown(user: &Value) -> String {
    let head: &[Column] = &[
        ("Name", "name", Form::Text),
        ("Tags", "tags", Form::Text),
        ("Password", "hash", Form::Text),
        ("SCRAM", "mechanisms", Form::Text),
        ("Connections", "connections", Form::Count),
        ("Most connections", "limits.max_connections", Form::Count),
        ("Most channels", "limits.max_channels", Form::Count),
    ];
    let permissions = user["permissions"].as_array().cloned().unwrap_or_default();
    let permissions =
        if permissions.is_empty() { "No permissions.\n".to_owned() } else { table::list(&permissions, PERMISSIONS) };
    format!("{}\n{permissions}", table::one(&with_mechanisms(user), head))
}

/// A new password: typed twice, if it is typed.
fn new_password(name: &str, file: Option<&PathBuf>) -> anyhow::Result<String> {
    use std::io::IsTerminal;
    let typed = file.is_none() && std::io::stdin().is_terminal();
    let password = password_of(file, &format!("New password of {name}"))?;
    if typed && password_of(None, "Once more")? != password {
        bail!("the two are not the same");
    }
    if password.is_empty() { bail!("a password is not empty") } else { Ok(password) }
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    let path = |name: &str| format!("/v1/users/{}", segment(name));
    match verb {
        Verb::List => {
            let users = session.client.list("/v1/users", &[])?;
            session.print(&Value::Array(users), |all| {
                let rows: Vec<Value> = all.as_array().into_iter().flatten().map(with_mechanisms).collect();
                table::list(&rows, COLUMNS)
            })
        }
        Verb::Show { name } => session.print(&session.client.get(&path(&name))?, shown),
        Verb::Add { name, tags, new_password_file, no_password } => {
            // Whoever is there keeps his password, also if it is not known whether he is.
            match session.client.get(&path(&name)) {
                Err(error) if error.downcast_ref::<Refused>().is_some_and(|refused| refused.status == 404) => {}
                Err(error) => return Err(error),
                Ok(_) => bail!(
                    "there is a user {name:?} already: `mainstem user passwd` and `mainstem user tags` change him"
                ),
            }
            let password =
                if no_password { Value::Null } else { new_password(&name, new_password_file.as_ref())?.into() };
            session.change("PUT", &path(&name), Some(&json!({"password": password, "tags": tags})), |_| {
                format!("user {name} added\n")
            })
        }
        Verb::Passwd { name, new_password_file } => {
            session.client.get(&path(&name))?;
            let body = json!({"password": new_password(&name, new_password_file.as_ref())?});
            session.change("PUT", &path(&name), Some(&body), |_| format!("user {name} has another password\n"))
        }
        Verb::Tags { name, tags } => {
            session.client.get(&path(&name))?;
            session
                .change("PUT", &path(&name), Some(&json!({"tags": tags})), |_| format!("user {name} has other tags\n"))
        }
        Verb::Permissions { name, vhost, clear: true, .. } => {
            session.change("DELETE", &format!("{}/permissions/{}", path(&name), segment(&vhost)), None, |_| {
                format!("user {name} has no permissions in {vhost}\n")
            })
        }
        Verb::Permissions { name, vhost, configure, write, read, .. } => {
            let body = json!({"configure": configure.unwrap_or_default(), "write": write.unwrap_or_default(), "read": read.unwrap_or_default()});
            let path = format!("{}/permissions/{}", path(&name), segment(&vhost));
            session.change("PUT", &path, Some(&body), |found| table::list(std::slice::from_ref(found), PERMISSIONS))
        }
        Verb::Delete { name } => session.change("DELETE", &path(&name), None, |_| format!("user {name} deleted\n")),
    }
}
