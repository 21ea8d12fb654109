//! Experiments by systems: how many runs there are of each, and how many of them count.

use std::collections::BTreeSet;

use crate::experiment::Experiment;
use crate::findings::{flaws, is_ours};
use crate::result::{ExperimentRecord, MatrixCell, MatrixRow, Run};
use crate::target::is_again;

/// A row for each shipped experiment that was run or asks for a system that was, and for each other one that was run.
pub fn rows(runs: &[Run], experiments: &[ExperimentRecord]) -> Vec<MatrixRow> {
    let runs: Vec<&Run> = runs.iter().filter(|run| !is_again(&run.target.name)).collect();
    let names: BTreeSet<(bool, &str)> =
        runs.iter().map(|run| (!is_ours(&run.target.name), run.target.name.as_str())).collect();
    let mut ids: Vec<&str> = Experiment::names().collect();
    ids.extend(experiments.iter().map(|one| one.id.as_str()).filter(|id| Experiment::names().all(|name| name != *id)));
    let row = |id: &str| MatrixRow {
        experiment: id.to_owned(),
        cells: names.iter().map(|(_, name)| cell(id, name, &runs)).collect(),
    };
    let any_shipped = experiments.iter().any(|one| Experiment::names().any(|name| name == one.id));
    // Of workload files alone the shipped experiments say nothing.
    let wanted = |id: &&str| any_shipped || experiments.iter().any(|one| one.id == *id);
    ids.into_iter().filter(wanted).map(row).collect()
}

fn cell(experiment: &str, system: &str, runs: &[&Run]) -> MatrixCell {
    let mine: Vec<&Run> =
        runs.iter().copied().filter(|run| run.experiment == experiment && run.target.name == system).collect();
    let ranked: Vec<&Run> = mine.iter().copied().filter(|run| flaws(run).is_empty()).collect();
    let mut why: Vec<&str> = mine.iter().flat_map(|run| flaws(run)).collect();
    why.sort_unstable();
    why.dedup();
    let asked = Experiment::find(experiment, "quick").is_ok_and(|one| one.targets.iter().any(|name| name == system));
    let remark = match (mine.is_empty(), asked) {
        (true, true) => "not run".to_owned(),
        (true, false) => "not asked".to_owned(),
        (false, _) => why.join(", "),
    };
    MatrixCell {
        system: system.to_owned(),
        ranked: ranked.len() as u32,
        runs: mine.len() as u32,
        variations_ranked: variations(&ranked),
        variations: variations(&mine),
        remark,
    }
}

fn variations(runs: &[&Run]) -> u32 {
    runs.iter().map(|run| run.variation.as_str()).collect::<BTreeSet<_>>().len() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_run;
    use crate::result::Priming;

    fn run(experiment: &str, target: &str, variation: &str, stable: bool) -> Run {
        let mut run = sample_run();
        (run.experiment, run.variation, run.target.name) =
            (experiment.to_owned(), variation.to_owned(), target.to_owned());
        (run.verdict.valid, run.verdict.stable, run.verdict.complete) = (true, stable, Some(true));
        (run.measured.failed, run.stopped, run.priming) = (0, None, Some(Priming::default()));
        run
    }

    #[test]
    fn a_cell_says_what_counts_and_why_not() {
        let runs = [
            run("latency", "kafka", "a", true),
            run("latency", "kafka", "b", false),
            run("latency", "mainstem", "a", true),
            run("latency", "mainstem-again", "a", true),
            run("mine", "kafka", "a", true),
        ];
        let experiments = ["latency", "mine"].map(|id| ExperimentRecord { id: id.to_owned(), ..Default::default() });
        let rows = rows(&runs, &experiments);
        assert_eq!(rows.len(), Experiment::names().count() + 1);
        let of = |id: &str| rows.iter().find(|row| row.experiment == id).unwrap().cells.clone();
        let systems: Vec<String> = of("latency").into_iter().map(|cell| cell.system).collect();
        assert_eq!(systems, ["mainstem", "kafka"], "ours first, and once");
        let kafka = of("latency").remove(1);
        assert_eq!((kafka.ranked, kafka.runs, kafka.variations_ranked, kafka.variations), (1, 2, 1, 2));
        assert_eq!(kafka.remark, "unstable");
        let remarks = |id: &str| of(id).into_iter().map(|cell| cell.remark).collect::<Vec<_>>();
        assert_eq!(remarks("topics"), ["not run", "not run"]);
        assert_eq!(remarks("cache-size"), ["not run", "not asked"]);
        assert_eq!(remarks("mine"), ["not asked", ""]);
    }
}
