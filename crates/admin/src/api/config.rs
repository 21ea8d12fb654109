//! The broker's settings: what is in force and where it comes from; those that may change while the broker runs are changed here.

use std::collections::BTreeMap;

use broker::{AlterError, BROKER, DYNAMIC, RETENTION, Setting, Source, find, retention_in_ms};
use serde_json::{Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::{Call, Fields, setting_refused};
use super::listing::list;
use super::route::{self, Access, Route, Shape, Verb, change};
use super::schema::{Kind, Schema};
use super::settings::{SETTING, described};

const BROKER_SETTING: Schema = Schema::more(
    "BrokerSetting",
    &SETTING,
    &[("apply", Kind::Text, "dynamic: a change counts at once; restart: from the next start.")],
);

const CHANGED: Schema =
    Schema::new("ChangedSettings", &[("changed", Kind::List(&Kind::One(&BROKER_SETTING)), "As they are now.")]);

pub(crate) const CHANGES: Schema = Schema::body(
    "SettingChanges",
    &[],
    &[
        ("set", Kind::Object, "New values by name."),
        ("unset", Kind::List(&Kind::Text), "Names of settings that fall back to their defaults."),
    ],
);

pub(crate) const ROUTES: &[Route] = &[
    route::list("/config", Access::Monitoring, "The broker's settings", &BROKER_SETTING, all),
    change(
        Verb::Patch,
        "/config",
        Access::Administrator,
        "Change settings while the broker runs, all or none",
        Shape::One(&CHANGED),
        alter,
    )
    .takes(&CHANGES)
    .tries(),
];

fn one(call: &Call<'_>, setting: &'static Setting, tried: Option<&Changes>) -> Value {
    let settings = call.broker().live_settings();
    let (value, _) = settings.text(setting.name);
    let source = match settings.source(setting.name) {
        Source::Node | Source::Cluster => "dynamic",
        Source::Topic | Source::Broker => "set",
        Source::Default => "default",
    };
    let wish = tried.and_then(|changes| changes.of(setting.name));
    let (value, source) = match wish {
        None => (value.to_owned(), source),
        Some(Some(value)) => (value.to_owned(), "dynamic"),
        Some(None) => {
            let (value, set) = call.broker().settings().text(setting.name);
            (value.to_owned(), if set { "set" } else { "default" })
        }
    };
    let mut found = described(setting, &value, source);
    found["apply"] = if DYNAMIC.contains(&setting.name) { "dynamic" } else { "restart" }.into();
    found
}

fn all(call: &Call<'_>) -> Outcome {
    list(call, BROKER.iter().map(|setting| (setting.name.to_owned(), setting)), |setting| {
        Some(one(call, setting, None))
    })
}

/// Settings to be set and to be unset.
pub(crate) struct Changes {
    pub set: Vec<(String, String)>,
    pub unset: Vec<String>,
}

impl Changes {
    /// Of a body.
    ///
    /// # Errors
    /// 400: nothing is changed, or one setting twice.
    pub fn of_body(body: &Fields) -> Result<Self, Refusal> {
        Self::read(body, |_| Ok(()))
    }

    /// Of a body about what has these settings: others cannot be unset either, lest a wrong name is taken for done.
    ///
    /// # Errors
    /// As [`Changes::of_body`]; a setting that there is not.
    pub fn of_body_for(body: &Fields, table: &'static [Setting]) -> Result<Self, Refusal> {
        Self::read(body, |name| {
            find(table, name).map(drop).map_err(|error| Answer::invalid("unset", error.to_string()))
        })
    }

    fn read(body: &Fields, check_unset: impl Fn(&str) -> Result<(), Refusal>) -> Result<Self, Refusal> {
        body.only(&["set", "unset"])?;
        let changes = Self { set: body.settings("set")?, unset: body.words("unset")?.unwrap_or_default() };
        if changes.set.is_empty() && changes.unset.is_empty() {
            return Err(Answer::bad_request("set or unset names at least one setting"));
        }
        changes.unset.iter().try_for_each(|name| check_unset(name))?;
        match changes.unset.iter().find(|name| changes.set.iter().any(|(set, _)| set == *name)) {
            Some(twice) => Err(Answer::invalid("unset", format!("{twice} is set, too"))),
            None => Ok(changes),
        }
    }

    /// What is to become of a setting, if it is to change.
    pub fn of(&self, name: &str) -> Option<Option<&str>> {
        let set = self.set.iter().find(|(set, _)| set == name).map(|(_, value)| Some(value.as_str()));
        set.or_else(|| self.unset.iter().any(|unset| unset == name).then_some(None))
    }

    /// Names of what is set.
    pub fn set_names(&self) -> Vec<String> {
        self.set.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The overrides that there are, changed.
    pub fn apply(self, overrides: &mut BTreeMap<String, String>) {
        self.unset.iter().for_each(|name| drop(overrides.remove(name)));
        overrides.extend(self.set);
    }
}

/// Why settings are as they were.
pub(crate) fn refused(error: AlterError) -> Refusal {
    match error {
        AlterError::UnknownTopic => Answer::not_found(error.to_string()),
        AlterError::Setting(error) => setting_refused("set", &error),
        AlterError::NoMemory => Answer::conflict(error.to_string()),
        AlterError::Append(error) => Answer::failed(error),
    }
}

fn alter(call: &Call<'_>) -> Outcome {
    let mut changes = Changes::of_body(&call.object()?)?;
    for (name, value) in &mut changes.set {
        if let Some(milliseconds) = retention_in_ms(name, value).map_err(|error| setting_refused("set", &error))? {
            (*name, *value) = (RETENTION.to_owned(), milliseconds);
        }
    }
    if changes.set.iter().filter(|(name, _)| name == RETENTION).count() > 1 {
        return Err(Answer::invalid("set", format!("{RETENTION} is set more than once, in several units")));
    }
    let set = changes.set.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
    let all: Vec<(String, Option<String>)> = set.chain(changes.unset.iter().map(|name| (name.clone(), None))).collect();
    call.broker().check_settings(&all).map_err(|error| setting_refused("set", &error))?;
    let tried = call.dry_run().then_some(&changes);
    if tried.is_none() {
        let all = all.clone();
        call.control(move |broker| broker.alter_settings(&all))?.map_err(refused)?;
    }
    let named = BROKER.iter().filter(|setting| all.iter().any(|(name, _)| name == setting.name));
    Ok(Answer::of(json!({"changed": named.map(|setting| one(call, setting, tried)).collect::<Vec<_>>()})))
}
