//! Tasks end with their crew.

use super::*;

#[test]
fn a_crew_waits_for_its_tasks() {
    let threads = Threads::start("test").unwrap();
    let crew = Crew::new(&threads);
    let (done, seen) = mpsc::channel();
    crew.add(move |mut stop| async move {
        stop.wait().await;
        done.send(()).unwrap();
    });
    drop(crew);
    seen.try_recv().unwrap();
}
