//! The quickstart: from a generated world to a verdict.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use forage_contracts::Episode;
use forage_contracts::environment::Outcome;
use forage_env::registry;
use forage_eval::{EvalSummary, SeedEpisodes, Telemetry, Verdict};
use forage_trainer::Checkpoint;

use crate::baselines::{Baselines, cost_of};
use crate::conduct::course;
use crate::config::{Resolved, RunConfig};
use crate::data::Data;
use crate::error::{Context, Result, bail};
use crate::evaluate::{Evaluated, evaluate_checkpoint};
use crate::grpo::{Experience, Grpo, keep_settings};
use crate::layout::{CONTROL, RunLayout, START, TRAINED, make_folder};
use crate::lock::RunLock;
use crate::observer::Observer;
use crate::page::page;
use crate::policy::{open_saved, start_of};
use crate::records::write_episodes;
use crate::twins::Twin;
use crate::warm_start::from_scratch;

/// The folder of a quickstart and its start.
#[derive(Clone, Debug, Default)]
pub struct QuickstartOptions {
    /// The run's folder: empty or absent, unless `resume` is set.
    pub folder: PathBuf,
    /// Trains the starting policy too.
    pub from_scratch: bool,
    /// Continues an interrupted quickstart.
    pub resume: bool,
}

impl RunConfig {
    /// The built-in quickstart config of an environment, with overrides.
    ///
    /// # Errors
    /// When the environment has none, or an override cannot be used.
    pub fn quickstart(environment: &str, overrides: &[String]) -> Result<Self> {
        let text = registry::find(environment)?.quickstart.with_context(|| {
        format!(
            "there is no built-in quickstart in `{environment}`; write a config and give --config"
        )
    })?;
        Self::parse(text, overrides).in_config("the built-in quickstart config")
    }
}

/// Builds a world and its index, trains a policy and a control, which is paid for any search or by a coin, from the same start, evaluates
/// all three on held-out questions and writes the verdict and a page. Returns the verdict and the greedy results of the three, by name.
/// Blocks; not to be called from async code.
///
/// # Errors
/// When the folder is taken, a part of the config cannot be had, or a run fails or is stopped on the way.
pub fn quickstart(
    config: &Resolved,
    options: &QuickstartOptions,
    observer: &dyn Observer,
) -> Result<(Verdict, Summaries)> {
    let began = Instant::now();
    // A config of which no control can be made is refused before anything is trained.
    "random".parse::<Twin>()?.of(config)?;
    let layout = RunLayout::new(&options.folder);
    let _lock = prepare(&layout, options.resume)?;
    for name in [TRAINED, CONTROL] {
        let (done, steps) = (layout.part(name).saved_steps(), config.grpo.steps);
        if done > steps {
            bail!(
                "the {name} run has done {done} steps, and grpo.steps is {steps}; give {done} or more, so that both runs end at one step"
            );
        }
    }
    let folder = layout.folder().display();
    observer.say(&format!("building the world and its index in {folder}"));
    let resumed = options.resume && layout.start().exists();
    let data = Data::load(config, layout.folder())?;
    if data.test.is_empty() {
        bail!("there are no held-out questions: a verdict needs data.test_questions above 0");
    }
    keep_settings(config, &layout, Some(&data.digests), None, options.resume)?;
    let start = start(config, &layout, options, observer)?;
    observer.say(&format!("{} held-out questions", data.test.len()));
    let evaluate = |name: &str, policy: &Checkpoint| -> Result<Evaluated> {
        let found = evaluate_checkpoint(config, policy, &data, &data.test, None, observer)?;
        observer.say(&format!("{name}: {}", measured(&found.greedy)));
        Ok(found)
    };
    let before = evaluate(START, &start)?;
    let paid = control_reward(&before);
    observer.say(&format!("the control learns from `{paid}` alone"));
    let runs = [
        (TRAINED, config.clone()),
        (CONTROL, paid.parse::<Twin>()?.of(config)?),
    ];
    let [trained, control] = train_both(&runs, &layout, options.resume, &start, &data, observer)?;
    let after = evaluate(TRAINED, &trained)?;
    let beside = evaluate(CONTROL, &control)?;
    trained.save(&layout.policy())?;
    let baselines = Baselines {
        config,
        run: &layout,
        trained: &layout.part(TRAINED),
        data: &data,
        tasks: &data.test,
        start: &start,
        start_name: start_name(config, &layout, options),
        before: &before,
        unfinished: None,
        observer,
    };
    let (baselines, mut costs) = baselines.evaluate()?;
    costs.extend(cost_of(&layout.part(TRAINED))?.map(|cost| (TRAINED.to_owned(), cost)));
    let sets = [(START, before), (TRAINED, after), (CONTROL, beside)];
    keep_evaluations(&layout, &sets, &baselines)?;
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    let wall = (minutes, resumed);
    conclude(config, &layout, &sets, &baselines, &costs, paid, wall)
}

/// The reward that the control learns from alone: any search, which is conduct, where the start searches in some episodes and in others
/// does not; elsewhere that would be the same for all, and a coin decides.
fn control_reward(start: &Evaluated) -> &'static str {
    let episodes = || start.greedy.iter().chain(&start.sampled);
    let searched = episodes().filter(|episode| episode.searches() > 0).count();
    if (1..episodes().count()).contains(&searched) {
        "any_search"
    } else {
        "random"
    }
}

/// The name by which baselines open the policy that the run began with.
fn start_name(config: &Resolved, layout: &RunLayout, options: &QuickstartOptions) -> String {
    if options.from_scratch {
        layout.start().to_string_lossy().into_owned()
    } else {
        config.policy.checkpoint.clone()
    }
}

/// Claims the run folder; a folder with something in it is only taken for a resume.
fn prepare(layout: &RunLayout, resume: bool) -> Result<RunLock> {
    let folder = layout.folder();
    RunLock::check_free(folder)?;
    let used = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    if used && !resume {
        bail!(
            "{} is not empty; give another --out, or --resume to continue the run in it",
            folder.display()
        );
    }
    RunLock::take(folder)
}

/// The policy that both runs begin with.
fn start(
    config: &Resolved,
    layout: &RunLayout,
    options: &QuickstartOptions,
    observer: &dyn Observer,
) -> Result<Checkpoint> {
    let place = layout.start();
    if options.resume && place.join("model.safetensors").exists() {
        return open_saved(&place, config);
    }
    let start = match (&config.warm_start, options.from_scratch) {
        (_, false) => start_of(config)?,
        (Some(section), true) => from_scratch(section, config, observer)?,
        (None, true) => bail!("--from-scratch needs a [warm_start] section in the config"),
    };
    start.save(&place)?;
    Ok(start)
}

/// An observer of two runs side by side: when one fails the other stops too, with a checkpoint of its own.
struct Pair<'a> {
    observer: &'a dyn Observer,
    failed: AtomicBool,
}

impl Observer for Pair<'_> {
    fn say(&self, line: &str) {
        self.observer.say(line);
    }

    fn warn(&self, line: &str) {
        self.observer.warn(line);
    }

    fn progress(&self, task: &str, done: u64, total: u64, shown: &str) {
        self.observer.progress(task, done, total, shown);
    }

    fn is_stopped(&self) -> bool {
        self.failed.load(Ordering::SeqCst) || self.observer.is_stopped()
    }

    fn notice(&self) -> fn(&str) {
        self.observer.notice()
    }
}

/// The real run and its control: same start, same questions, same seeds, side by side.
fn train_both(
    [trained, control]: &[(&str, Resolved); 2],
    layout: &RunLayout,
    resume: bool,
    start: &Checkpoint,
    data: &Data,
    observer: &dyn Observer,
) -> Result<[Checkpoint; 2]> {
    let pair = Pair {
        observer,
        failed: AtomicBool::new(false),
    };
    let run = |(name, config): &(&str, Resolved)| -> Result<Checkpoint> {
        let layout = layout.part(name);
        let threads = (config.threads() / 2).max(1);
        let config = config.vary(|config| {
            config.threads = threads;
            // A control reward is meant to ruin its run: that is no reason to stop.
            config.grpo.sentinel.stop = false;
        })?;
        let run = Grpo {
            name,
            config: &config,
            layout: &layout,
            resume,
            runs: 2,
            ranks: None,
            beside: &[],
            observer: &pair,
        };
        let result = run.run(start.clone(), Experience::Data(data));
        if result.is_err() {
            pair.failed.store(true, Ordering::SeqCst);
        }
        let (policy, _) = result.with_context(|| format!("the {name} run"))?;
        Ok(policy)
    };
    std::thread::scope(|scope| {
        let control = scope.spawn(|| run(control));
        let trained = run(trained);
        let control = control
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok([trained?, control?])
    })
}

/// Results by name.
type Summaries = Vec<(&'static str, EvalSummary)>;

type Sets = [(&'static str, Evaluated); 3];

/// Keeps the episodes behind the verdict, for the report and for `forage inspect`.
fn keep_evaluations(
    layout: &RunLayout,
    sets: &Sets,
    baselines: &[(String, Evaluated)],
) -> Result<()> {
    make_folder(&layout.evaluation())?;
    let sets = sets.iter().map(|(name, set)| (*name, set));
    let baselines = baselines.iter().map(|(name, set)| (name.as_str(), set));
    for (name, set) in sets.chain(baselines) {
        write_episodes(&layout.greedy(name), set.greedy.iter().cloned())?;
        if !set.sampled.is_empty() {
            write_episodes(&layout.sampled(name), set.sampled.iter().cloned())?;
        }
    }
    Ok(())
}

fn conclude(
    config: &Resolved,
    layout: &RunLayout,
    sets: &Sets,
    baselines: &[(String, Evaluated)],
    costs: &[(String, [f64; 2])],
    paid: &str,
    (minutes, resumed): (f64, bool),
) -> Result<(Verdict, Summaries)> {
    let bootstrap = config.bootstrap();
    let [(_, before), (_, after), (_, beside)] = sets;
    let seed = |pick: fn(&Evaluated) -> &Vec<Episode>| SeedEpisodes {
        seed: config.seed,
        start: pick(before).clone(),
        arms: vec![
            (TRAINED.to_owned(), pick(after).clone()),
            (CONTROL.to_owned(), pick(beside).clone()),
        ],
        baselines: baselines
            .iter()
            .map(|(name, set)| (name.clone(), pick(set).clone()))
            .collect(),
    };
    let greedy = seed(|set| &set.greedy);
    let sampled = (config.evaluation.samples > 0).then(|| seed(|set| &set.sampled));
    let verdict = Verdict::of(&greedy, sampled.as_ref(), minutes, bootstrap)?;
    let mut verdict = verdict.with_costs(costs);
    verdict.control_reward = Some(paid.to_owned());
    verdict.resumed = resumed;
    // First what was seen in the run, then what the held-out questions show.
    if let Some(course) = course(&layout.part(TRAINED), bootstrap)? {
        verdict = verdict.with_course(&course);
    }
    let held_out = Telemetry::from_episodes(&after.greedy, bootstrap)?;
    verdict.alarms.extend(held_out.alarms);
    verdict.write(&layout.verdict())?;
    page(&[layout.folder().to_owned()], usize::MAX)?.write(&layout.page())?;
    let summaries = sets
        .iter()
        .map(|(name, set)| Ok((*name, EvalSummary::from_episodes(&set.greedy, bootstrap)?)));
    Ok((verdict, summaries.collect::<Result<_>>()?))
}

/// The mean of what episodes are measured by, in words.
fn measured(episodes: &[Episode]) -> String {
    let outcome = Outcome::of(episodes);
    let parts: Vec<f64> = episodes
        .iter()
        .filter_map(|episode| episode.score.as_ref()?.parts.get(outcome.measure()))
        .map(|part| f64::from(*part))
        .collect();
    let mean = parts.iter().sum::<f64>() / parts.len().max(1) as f64;
    format!("{} {mean:.3}", outcome.words()[0])
}

#[cfg(test)]
mod tests {
    use forage_contracts::environment::{Call, TurnKind};
    use forage_contracts::policy::Finish;
    use forage_contracts::{Task, Turn};

    use super::*;

    fn episode(searches: bool) -> Episode {
        let call = Call {
            queries: vec!["who".to_owned()],
            ..Call::new("search")
        };
        let kind = if searches {
            TurnKind::call(call)
        } else {
            TurnKind::answer("nobody")
        };
        let turn = Turn {
            policy: String::new(),
            finish: Finish::Stop,
            kind,
            observation: String::new(),
            reward: 0.0,
        };
        Episode {
            turns: vec![turn],
            ..Episode::new(Task::new("1", "Who?"))
        }
    }

    #[test]
    fn any_search_pays_the_control_where_it_tells_episodes_apart() {
        let reward = |greedy: &[bool], sampled: &[bool]| {
            let played = |searches: &[bool]| searches.iter().map(|&one| episode(one)).collect();
            control_reward(&Evaluated {
                greedy: played(greedy),
                sampled: played(sampled),
            })
        };
        assert_eq!(reward(&[false, false], &[false, true]), "any_search");
        assert_eq!(reward(&[true, false], &[]), "any_search");
        assert_eq!(reward(&[true], &[true]), "random");
        assert_eq!(reward(&[false], &[false]), "random");
        assert_eq!(reward(&[], &[]), "random");
    }
}
