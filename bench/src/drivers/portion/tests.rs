//! Shares and windows.

use super::*;

fn job() -> Job {
    Job::plain("amqp", "", "run", crate::workload::Workload::default())
}

#[test]
fn clients_share_all_consumers() {
    let mut job = job();
    (job.workload.topics, job.workload.consumer_per_subscription) = (3, 2);
    let place = |client| Place { subscription: 0, client, clients: 4 };
    let mut all: Vec<_> = (0..4).flat_map(|client| share(&job, place(client)).collect::<Vec<_>>()).collect();
    all.sort_unstable();
    assert_eq!(all, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]);
}

#[test]
fn large_messages_make_the_window_small() {
    let mut job = job();
    assert_eq!(window_of(&job, 2000), 2000);
    job.workload.message_size = 8 << 20;
    assert_eq!(window_of(&job, 2000), 8);
    job.workload.window = 5;
    assert_eq!(window_of(&job, 2000), 5);
}
