//! Who runs which tasks of a streams application: `sticky`, as Kafka 4.3 has it. A task stays with the member that ran it as long as
//! that has no more than its share; else it goes to a member that kept its state as a standby; else to the process with
//! the least to do for its number of members. Standbys come after that, each on a process that has nothing else of the task.
//!
//! Nothing here waits for anybody: a target is where members are to get to. There are no warm-up tasks: no release of Kafka
//! that this follows gives any.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use hashbrown::{HashMap, HashSet};

/// Tasks by subtopology; no subtopology without tasks.
pub type Tasks = BTreeMap<String, BTreeSet<u32>>;

/// What a member runs and what it keeps the state of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskSets {
    /// Runs.
    pub active: Tasks,
    /// Keeps the state of.
    pub standby: Tasks,
}

/// A member as the assignor sees it.
#[derive(Clone, Debug)]
pub struct Worker {
    /// Its id.
    pub id: String,
    /// Members of one process share what a machine has.
    pub process: String,
    /// Its target until now.
    pub before: TaskSets,
}

/// A subtopology as the assignor sees it.
#[derive(Clone, Debug)]
pub struct Work {
    /// Its id.
    pub id: String,
    /// Number of tasks.
    pub tasks: u32,
    /// Does it have state that a standby could keep?
    pub stateful: bool,
}

/// A subtopology's place and a partition.
type Task = (usize, u32);

/// Tasks and members of a process, compared as tasks by member.
#[derive(Clone, Copy, Debug)]
struct Load {
    tasks: usize,
    members: usize,
}

impl Ord for Load {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.tasks * other.members).cmp(&(other.tasks * self.members))
    }
}

impl PartialOrd for Load {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Load {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Load {}

/// What is left to share out evenly: as members get their share, those that are left share the rest.
struct Share {
    tasks: usize,
    members: usize,
}

impl Share {
    fn each(&self) -> usize {
        if self.members == 0 { 0 } else { self.tasks.div_ceil(self.members) }
    }

    /// A member has so many now.
    fn note(&mut self, count: usize) {
        if self.members > 0 && count == self.each() {
            self.members -= 1;
            self.tasks -= count;
        }
    }
}

struct Floor<'a> {
    workers: &'a [Worker],
    /// By worker.
    process_of: Vec<usize>,
    /// Workers by process.
    processes: Vec<Vec<usize>>,
    /// What a process has something of.
    has: Vec<HashSet<Task>>,
    active: Vec<Vec<Task>>,
    standby: Vec<Vec<Task>>,
    share: Share,
}

impl Floor<'_> {
    fn count(&self, worker: usize) -> usize {
        self.active[worker].len() + self.standby[worker].len()
    }

    fn load(&self, process: usize) -> Load {
        Load { tasks: self.has[process].len(), members: self.processes[process].len() }
    }

    /// How many the worker has then.
    fn give(&mut self, worker: usize, task: Task, runs: bool) -> usize {
        let list = if runs { &mut self.active } else { &mut self.standby };
        list[worker].push(task);
        self.has[self.process_of[worker]].insert(task);
        let count = self.count(worker);
        self.share.note(count);
        count
    }

    /// The one with the least to do, of the process with the least to do.
    fn least(&self, workers: &[usize]) -> Option<usize> {
        workers.iter().copied().min_by_key(|worker| (self.load(self.process_of[*worker]), self.count(*worker), *worker))
    }

    fn by_load(&self) -> BinaryHeap<Reverse<(Load, usize)>> {
        (0..self.processes.len()).map(|process| Reverse((self.load(process), process))).collect()
    }

    /// The worker of a process with the least to do.
    fn idlest(&self, process: usize) -> Option<usize> {
        self.processes[process].iter().copied().min_by_key(|worker| (self.count(*worker), *worker))
    }
}

/// Who had which task.
fn had<'a>(
    workers: &'a [Worker],
    places: &HashMap<&str, usize>,
    of: impl Fn(&'a TaskSets) -> &'a Tasks,
) -> HashMap<Task, Vec<usize>> {
    let mut had: HashMap<Task, Vec<usize>> = HashMap::new();
    for (number, worker) in workers.iter().enumerate() {
        for (id, partitions) in of(&worker.before) {
            let Some(place) = places.get(id.as_str()) else { continue };
            partitions.iter().for_each(|partition| had.entry((*place, *partition)).or_default().push(number));
        }
    }
    had
}

/// Computes the targets of all workers, in their order.
pub fn sticky(workers: &[Worker], work: &[Work], standbys: u32) -> Vec<TaskSets> {
    let mut floor = Floor {
        workers,
        process_of: Vec::with_capacity(workers.len()),
        processes: Vec::new(),
        has: Vec::new(),
        active: vec![Vec::new(); workers.len()],
        standby: vec![Vec::new(); workers.len()],
        share: Share { tasks: 0, members: workers.len() },
    };
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    for (number, worker) in workers.iter().enumerate() {
        let next = numbers.len();
        let process = *numbers.entry(&worker.process).or_insert(next);
        if process == next {
            floor.processes.push(Vec::new());
            floor.has.push(HashSet::new());
        }
        floor.processes[process].push(number);
        floor.process_of.push(process);
    }
    if workers.is_empty() {
        return Vec::new();
    }
    let places: HashMap<&str, usize> = work.iter().enumerate().map(|(place, one)| (one.id.as_str(), place)).collect();
    let ran = had(workers, &places, |before| &before.active);
    let kept = had(workers, &places, |before| &before.standby);
    let tasks = |stateful: bool| -> Vec<Task> {
        let some = work.iter().enumerate().filter(|(_, one)| one.stateful || !stateful);
        some.flat_map(|(place, one)| (0..one.tasks).map(move |partition| (place, partition))).collect()
    };
    let (all, stateful) = (tasks(false), tasks(true));
    floor.share.tasks = all.len() + stateful.len() * standbys as usize;
    assign_active(&mut floor, all, &ran, &kept);
    // Not more than there are processes: the rest would find no place.
    assign_standby(&mut floor, stateful, (standbys as usize).min(workers.len()), &ran, &kept);
    let named = |tasks: Vec<Task>| {
        let mut named = Tasks::new();
        for (place, partition) in tasks {
            named.entry(work[place].id.clone()).or_default().insert(partition);
        }
        named
    };
    let both = floor.active.into_iter().zip(floor.standby);
    both.map(|(active, standby)| TaskSets { active: named(active), standby: named(standby) }).collect()
}

fn assign_active(
    floor: &mut Floor<'_>,
    mut tasks: Vec<Task>,
    ran: &HashMap<Task, Vec<usize>>,
    kept: &HashMap<Task, Vec<usize>>,
) {
    let mut share = Share { tasks: tasks.len(), members: floor.workers.len() };
    tasks.sort_unstable_by_key(|(place, partition)| (*partition, *place));
    for before in [ran, kept] {
        tasks.retain(|task| {
            let worker = before.get(task).and_then(|workers| floor.least(workers));
            match worker {
                Some(worker) if floor.count(worker) < share.each() => {
                    share.note(floor.give(worker, *task, true));
                    false
                }
                _ => true,
            }
        });
    }
    tasks.sort_unstable();
    let mut queue = floor.by_load();
    for task in tasks {
        let Some(Reverse((_, process))) = queue.pop() else { return };
        if let Some(worker) = floor.idlest(process) {
            floor.give(worker, task, true);
        }
        queue.push(Reverse((floor.load(process), process)));
    }
}

fn assign_standby(
    floor: &mut Floor<'_>,
    mut tasks: Vec<Task>,
    standbys: usize,
    ran: &HashMap<Task, Vec<usize>>,
    kept: &HashMap<Task, Vec<usize>>,
) {
    tasks.sort_unstable_by_key(|(place, partition)| Reverse((*partition, *place)));
    let mut left = Vec::new();
    for task in tasks {
        for done in 0..standbys {
            // Whoever ran it has its state; then those that kept it.
            let place = [ran, kept].into_iter().find_map(|before| {
                let free = |worker: &usize| !floor.has[floor.process_of[*worker]].contains(&task);
                let workers: Vec<usize> = before.get(&task).into_iter().flatten().copied().filter(free).collect();
                floor.least(&workers).filter(|worker| floor.count(*worker) < floor.share.each())
            });
            if let Some(worker) = place {
                floor.give(worker, task, false);
            } else {
                left.push((task, standbys - done));
                break;
            }
        }
    }
    left.sort_unstable_by_key(|(task, _)| Reverse(*task));
    let mut queue = floor.by_load();
    for (task, count) in left {
        let mut passed = Vec::new();
        let mut open = count;
        while open > 0
            && let Some(Reverse((_, process))) = queue.pop()
        {
            let worker = if floor.has[process].contains(&task) { None } else { floor.idlest(process) };
            if let Some(worker) = worker {
                floor.give(worker, task, false);
                open -= 1;
            }
            passed.push(process);
        }
        queue.extend(passed.into_iter().map(|process| Reverse((floor.load(process), process))));
    }
}
