//! Internal topics of streams applications: created on the controller's thread when a heartbeat finds that they are missing. Nobody
//! waits for it: members learn of them, or of why they cannot be created, with a later heartbeat.

use std::collections::BTreeMap;
use std::sync::Arc;

use delivery::ConfiguredTopic;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::admin::CreateError;
use crate::groups::now;
use crate::jobs::NOBODY;
use crate::{Broker, CreateTopic};

/// Topics whose creation is remembered, at most.
const REMEMBERED_MAX: usize = 10_000;

/// How the creation of a topic stands.
enum Creation {
    /// A job has it.
    Running,
    /// It is not tried again before this, in ms.
    Failed { why: String, until: u64 },
}

/// Creations that run, and those that have failed lately.
#[derive(Default)]
pub(crate) struct InternalTopics {
    of: Mutex<HashMap<String, Creation>>,
}

impl Broker {
    /// Has topics created that are missing, unless that is under way or has failed less than `patience` ms ago. Returns what has
    /// failed, by topic.
    pub fn create_internal_topics(
        &self,
        missing: &BTreeMap<String, ConfiguredTopic>,
        patience: u64,
    ) -> BTreeMap<String, String> {
        let mut failed = BTreeMap::new();
        let mut wanted = Vec::new();
        let mut of = self.internal_topics.of.lock();
        of.retain(|_, creation| !matches!(creation, Creation::Failed { until, .. } if *until <= now()));
        for (name, topic) in missing {
            match of.get(name) {
                Some(Creation::Running) => {}
                Some(Creation::Failed { why, .. }) => drop(failed.insert(name.clone(), why.clone())),
                None if of.len() >= REMEMBERED_MAX => {}
                None => {
                    of.insert(name.clone(), Creation::Running);
                    wanted.push(CreateTopic {
                        name: name.clone(),
                        partitions: topic.partitions as i32,
                        replication: if topic.replication == 0 { -1 } else { topic.replication },
                        overrides: topic.configs.iter().cloned().collect(),
                    });
                }
            }
        }
        drop(of);
        if !wanted.is_empty() {
            self.send_creation(wanted, patience);
        }
        failed
    }

    fn send_creation(&self, wanted: Vec<CreateTopic>, patience: u64) {
        let names: Vec<String> = wanted.iter().map(|topic| topic.name.clone()).collect();
        let work = Box::new(move |broker: &Arc<Self>| {
            let names: Vec<String> = wanted.iter().map(|topic| topic.name.clone()).collect();
            let outcomes = broker.create_topics(wanted);
            let mut of = broker.internal_topics.of.lock();
            for (name, outcome) in names.into_iter().zip(outcomes) {
                match outcome {
                    Ok(_) | Err(CreateError::Exists(_)) => drop(of.remove(&name)),
                    Err(error) => {
                        tracing::warn!(topic = name, %error, "an internal topic of a streams application cannot be created");
                        of.insert(name, Creation::Failed { why: error.to_string(), until: now() + patience });
                    }
                }
            }
            Box::new(()) as Box<dyn std::any::Any + Send>
        });
        if !self.control(NOBODY, crate::jobs::JobOwner::BROKER, work) {
            // The controller is busy: the next heartbeat tries again.
            let mut of = self.internal_topics.of.lock();
            names.iter().for_each(|name| drop(of.remove(name)));
        }
    }
}
