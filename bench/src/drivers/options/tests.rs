//! Options: unknown ones, choices, versions.

use super::*;

fn job(options: &[(&str, &str)]) -> Job {
    let options = options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    Job { options, ..Job::plain("amqp", "", "run", crate::workload::Workload::default()) }
}

#[test]
fn an_unknown_option_is_refused_with_the_nearest_one() {
    let refused = check_options(&job(&[("queue.typo", "x")]), &["queue.type", "topic."]).unwrap_err().to_string();
    assert!(refused.contains("`queue.typo`") && refused.contains("`queue.type`"), "{refused}");
    check_options(&job(&[("queue.type", "x"), ("topic.any", "y")]), &["queue.type", "topic."]).unwrap();
}

#[test]
fn a_choice_has_a_default_and_refuses_other_values() {
    assert_eq!(choice(&job(&[]), "storage", &["file", "memory"]).unwrap(), "file");
    assert_eq!(choice(&job(&[("storage", "memory")]), "storage", &["file", "memory"]).unwrap(), "memory");
    let refused = choice(&job(&[("storage", "tape")]), "storage", &["file", "memory"]).unwrap_err().to_string();
    assert!(refused.contains("tape") && refused.contains("file, memory"), "{refused}");
}

#[test]
fn versions_are_those_of_the_lock_file() {
    assert!(name_and_version("lapin").starts_with("lapin 4."));
    assert_eq!(name_and_version("no-such-library"), "no-such-library");
}
