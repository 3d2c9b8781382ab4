//! The quickstart: from a generated world to a verdict.

use std::path::PathBuf;
use std::time::Instant;

use forage_contracts::environment::Outcome;
use forage_contracts::{Episode, suggestion};
use forage_env::registry;
use forage_eval::{EvalSummary, SeedEpisodes, Telemetry, Verdict};
use forage_trainer::Checkpoint;
use forage_trainer::metrics::Row;
use serde_json::{Value, json};

use crate::baselines::{Baselines, cost_of};
use crate::conduct::course;
use crate::config::{Digests, Resolved, RunConfig};
use crate::data::Data;
use crate::error::{Context, Result, bail, refuse};
use crate::evaluate::{Evaluated, evaluate_checkpoint};
use crate::grpo::{Experience, Grpo, check_settings, has_others, keep_settings};
use crate::layout::{CONTROL, RunLayout, START, TRAINED, make_folder};
use crate::lock::RunLock;
use crate::observer::Observer;
use crate::page::page;
use crate::policy::{start_at, start_of, trains_adapter};
use crate::records::write_episodes;
use crate::side_by_side::side_by_side;
use crate::tracked::seconds;
use crate::twins::Twin;
use crate::warm_start::from_scratch;

/// The folder of a quickstart and its start.
#[derive(Clone, Debug, Default)]
pub struct QuickstartOptions {
    /// The run's folder: empty or absent, unless `resume` is set.
    pub folder: PathBuf,
    /// Trains the starting policy too; a quickstart that is resumed keeps to what it began with.
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
        let offered: Vec<_> = registry::environments()
            .filter_map(|entry| Some((entry.names(), entry.quickstart?)))
            .collect();
        let found = offered
            .iter()
            .find(|(names, _)| names.contains(&environment));
        let (_, text) = found.with_context(|| {
            let names = suggestion(environment, offered.iter().map(|(names, _)| names[2]));
            format!(
                "`{environment}` has no built-in quickstart ({names}); in another environment write a config and give --config"
            )
        })?;
        Self::parse(text, overrides).in_config("the built-in quickstart config")
    }
}

/// Builds a world and its index, trains a policy and a control, which is paid for any search or by a coin, from the same start, evaluates
/// all three on held-out questions and writes the verdict and a page. Returns the verdict and the greedy results of the three, by name.
/// Blocks, so async code must not call it.
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
    keep_origin(&layout, options.from_scratch)?;
    for name in [TRAINED, CONTROL] {
        let (done, steps) = (layout.part(name).saved_steps(), config.grpo.steps);
        if done > steps {
            refuse!(
                "the {name} run has done {done} steps, and grpo.steps is {steps}; give {done} or more, so that both runs end at one step"
            );
        }
    }
    // Before anything is played: the control would name its own reward among the settings that differ.
    check_settings(config, &layout)?;
    let folder = layout.folder().display();
    let resumed = options.resume && layout.start().exists();
    observer.say(&if resumed {
        format!("going on with the quickstart in {folder}")
    } else {
        format!("building the world and its index in {folder}")
    });
    let earlier = if resumed {
        earlier_seconds(&layout)?
    } else {
        0.0
    };
    let data = Data::load(config, layout.folder())?;
    let held_out = data.held_out()?;
    forget_start(config, &layout, &data.digests)?;
    keep_settings(
        config,
        &layout,
        Some(&data.digests),
        None,
        options.resume,
        observer,
    )?;
    let start = start(config, &layout, options, observer)?;
    observer.say(&format!("{} held-out questions", held_out.len()));
    let evaluate = |name: &str, policy: &Checkpoint| -> Result<Evaluated> {
        let played = (held_out, config.evaluation.samples_of(name));
        let found = evaluate_checkpoint(config, policy, &data, played, None, observer)?;
        observer.say(&format!("{name}: {}", measured(&found.greedy)));
        Ok(found)
    };
    let before = evaluate(START, &start)?;
    let paid = control_reward(&before);
    observer.say(&format!("the control learns from `{paid}` alone"));
    observer.say(&format!(
        "training; forage runs watch {folder} shows both runs"
    ));
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
        tasks: held_out,
        start: &start,
        start_name: start_name(config, &layout, options.from_scratch)?,
        before: &before,
        unfinished: None,
        observer,
    };
    let (baselines, mut costs) = baselines.evaluate()?;
    costs.extend(cost_of(&layout.part(TRAINED))?.map(|cost| (TRAINED.to_owned(), cost)));
    let sets = [(START, before), (TRAINED, after), (CONTROL, beside)];
    keep_evaluations(&layout, &sets, &baselines)?;
    let minutes = (earlier + began.elapsed().as_secs_f64()) / 60.0;
    let wall = (minutes, resumed);
    conclude(config, &layout, &sets, &baselines, &costs, paid, wall)
}

/// Seconds of the steps that a quickstart took before it was stopped: those of its slower run, since both train side by side.
fn earlier_seconds(layout: &RunLayout) -> Result<f64> {
    let mut longest = 0.0_f64;
    for name in [TRAINED, CONTROL] {
        let metrics = layout.part(name).metrics();
        if metrics.exists() {
            let rows = Row::read_all(&metrics)?;
            longest = longest.max(seconds(&rows).unwrap_or(0.0));
        }
    }
    Ok(longest)
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

/// The name of the policy that a run began with: that in its config, or the folder of the start that a quickstart keeps. An adapter stands
/// beside the weights that it began with, in their own form and under their own name, unless they were `made` here.
fn start_name(config: &Resolved, layout: &RunLayout, made: bool) -> Result<String> {
    let place = layout.start();
    if !place.exists() || !made && trains_adapter(config)? {
        return Ok(config.policy.checkpoint.clone());
    }
    // An adapter names its base, wherever it is read from.
    let place = std::path::absolute(&place).context("the run's folder")?;
    Ok(place.to_string_lossy().into_owned())
}

/// The same of a run that is read from its folder.
pub(crate) fn start_in(config: &Resolved, layout: &RunLayout) -> Result<String> {
    start_name(config, layout, origin(layout)?.unwrap_or_default())
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

/// Tells whether a quickstart made its start; `None` where there is no record.
fn origin(layout: &RunLayout) -> Result<Option<bool>> {
    let file = layout.origin();
    if !file.exists() {
        return Ok(None);
    }
    let cannot = || format!("cannot read {}", file.display());
    let text = std::fs::read_to_string(&file).with_context(cannot)?;
    let record: Value = serde_json::from_str(&text).with_context(cannot)?;
    Ok(Some(record["from_scratch"].as_bool().unwrap_or_default()))
}

/// Keeps whether the start is made here. A run that goes on has the start that it began with.
fn keep_origin(layout: &RunLayout, from_scratch: bool) -> Result<()> {
    if let Some(before) = origin(layout)? {
        if before == from_scratch {
            return Ok(());
        }
        let folder = layout.folder().display();
        if before {
            bail!(
                "the run in {folder} began with --from-scratch; continue it with --resume --from-scratch"
            );
        }
        bail!(
            "the run in {folder} began without --from-scratch; leave it out, or give another --out"
        );
    }
    // Earlier versions kept no record: what their start came from is not known.
    if layout.start().exists() {
        return Ok(());
    }
    let record = format!("{}\n", json!({ "from_scratch": from_scratch }));
    layout.record(&layout.origin(), &record, false)
}

/// Removes the start of other settings where neither run has a checkpoint: both begin anew.
fn forget_start(config: &Resolved, layout: &RunLayout, digests: &Digests) -> Result<()> {
    let place = layout.start();
    if place.exists() && !layout.has_checkpoint() && has_others(layout, config, Some(digests)) {
        std::fs::remove_dir_all(&place)
            .with_context(|| format!("cannot remove {}", place.display()))?;
    }
    Ok(())
}

/// The policy that both runs begin with, which is kept whole in the run's folder.
fn start(
    config: &Resolved,
    layout: &RunLayout,
    options: &QuickstartOptions,
    observer: &dyn Observer,
) -> Result<Checkpoint> {
    let place = layout.start();
    if !place.exists() {
        if !options.from_scratch {
            let start = start_of(config)?;
            start.save(&place)?;
            return Ok(start);
        }
        let section = config.warm_start.as_ref();
        let section =
            section.context("--from-scratch needs a [warm_start] section in the config")?;
        from_scratch(section, config, observer)?.save(&place)?;
    }
    start_at(config, &start_name(config, layout, options.from_scratch)?)
}

/// The real run and its control: same start, same questions, same seeds, side by side.
fn train_both(
    both: &[(&str, Resolved); 2],
    layout: &RunLayout,
    resume: bool,
    start: &Checkpoint,
    data: &Data,
    observer: &dyn Observer,
) -> Result<[Checkpoint; 2]> {
    let trained = side_by_side(both.len(), both.len(), observer, |place, observer| {
        let (name, config) = &both[place];
        let layout = layout.part(name);
        let threads = (config.threads() / both.len()).max(1);
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
            runs: both.len(),
            ranks: None,
            beside: &[],
            observer,
        };
        let trained = run.run(start.clone(), Experience::Data(data));
        let (policy, _) = trained.with_context(|| format!("the {name} run"))?;
        Ok(policy)
    })?;
    let trained = <[Checkpoint; 2]>::try_from(trained);
    trained.ok().context("a run has no policy")
}

/// Results by name.
type Summaries = Vec<(&'static str, EvalSummary)>;

type Sets = [(&'static str, Evaluated); 3];

/// Keeps the episodes behind the verdict, for the report and for `forage runs show`.
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

    /// The quickstart with settings.
    fn config(overrides: &[&str]) -> Resolved {
        let overrides: Vec<String> = overrides.iter().map(|&item| item.to_owned()).collect();
        let config = RunConfig::quickstart("search-r1", &overrides).unwrap();
        config.resolve(None).unwrap()
    }

    #[test]
    fn a_resumed_quickstart_goes_on_with_its_adapter() {
        let config = config(&[
            "policy.lora={ rank = 2, alpha = 4.0 }",
            "warm_start.from=\"builtin:quickstart\"",
            "warm_start.world.pages=200",
            "warm_start.dev_questions=1",
            "warm_start.learning.stages=[]",
        ]);
        for from_scratch in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let layout = RunLayout::new(folder.path());
            let options = QuickstartOptions {
                folder: folder.path().to_owned(),
                from_scratch,
                resume: true,
            };
            let adapter = || {
                let start = start(&config, &layout, &options, &()).unwrap();
                let place = tempfile::tempdir().unwrap();
                start.save_adapter(place.path()).unwrap();
                ["adapter_config.json", "adapter_model.safetensors"]
                    .map(|name| std::fs::read(place.path().join(name)).unwrap())
            };
            let first = adapter();
            assert!(layout.start().join("model.safetensors").exists());
            assert!(first == adapter());
        }
    }

    #[test]
    fn a_resumed_quickstart_names_what_was_changed_alone() {
        let folder = tempfile::tempdir().unwrap();
        let layout = RunLayout::new(folder.path());
        let options = QuickstartOptions {
            folder: folder.path().to_owned(),
            from_scratch: false,
            resume: true,
        };
        let began = config(&[]);
        keep_settings(&began, &layout, None, None, false, &()).unwrap();
        let changed = config(&["grpo.group_size=3", "grpo.steps=9"]);
        check_settings(&changed, &layout).unwrap();
        make_folder(&layout.part(CONTROL).checkpoints().join("step-000001")).unwrap();
        check_settings(&began, &layout).unwrap();
        let error = quickstart(&changed, &options, &()).unwrap_err().to_string();
        let told = format!(
            "config.toml has other settings: grpo.group_size was {} and is 3; use",
            began.grpo.group_size
        );
        assert!(error.contains(&told), "{error}");
    }

    #[test]
    fn a_resumed_quickstart_counts_the_steps_before_of_its_slower_run() {
        let folder = tempfile::tempdir().unwrap();
        let layout = RunLayout::new(folder.path());
        assert!(earlier_seconds(&layout).unwrap().abs() < 1e-9);
        for (name, seconds) in [(TRAINED, 1.5), (CONTROL, 2.0)] {
            let part = layout.part(name);
            make_folder(part.folder()).unwrap();
            let mut row = Row::new(0);
            row.set("time/rollout_s", seconds);
            let rows = format!("{0}\n{0}\n", Value::Object(row.0));
            std::fs::write(part.metrics(), rows).unwrap();
        }
        assert!((earlier_seconds(&layout).unwrap() - 4.0).abs() < 1e-9);
    }

    #[test]
    fn a_resumed_quickstart_keeps_to_how_its_start_was_made() {
        let folder = tempfile::tempdir().unwrap();
        let layout = RunLayout::new(folder.path());
        for (began, words) in [
            (true, "continue it with --resume --from-scratch"),
            (false, "leave it out"),
        ] {
            keep_origin(&layout, began).unwrap();
            keep_origin(&layout, began).unwrap();
            let error = keep_origin(&layout, !began).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
            std::fs::remove_file(layout.origin()).unwrap();
        }
        // As an earlier version has left it.
        make_folder(&layout.start()).unwrap();
        keep_origin(&layout, true).unwrap();
        assert!(!layout.origin().exists());
    }

    #[test]
    fn a_run_began_with_the_start_in_its_folder_or_that_of_its_config() {
        let adapter = "policy.lora={ rank = 2, alpha = 4.0 }";
        let (plain, adapted) = (config(&[]), config(&[adapter]));
        for made in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let layout = RunLayout::new(folder.path());
            let name = |config: &Resolved| start_in(config, &layout).unwrap();
            let named = plain.policy.checkpoint.clone();
            keep_origin(&layout, made).unwrap();
            assert_eq!(name(&plain), named);
            make_folder(&layout.start()).unwrap();
            let kept = layout.start().to_string_lossy().into_owned();
            assert_eq!(name(&adapted), if made { kept.clone() } else { named });
            assert_eq!(name(&plain), kept);
        }
    }

    #[test]
    fn a_start_of_other_settings_is_made_anew_before_the_first_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let layout = RunLayout::new(folder.path());
        let digests = Digests {
            train: Some("questions".to_owned()),
            ..Digests::default()
        };
        let (own, other) = (config(&[]), config(&["grpo.group_size=3"]));
        keep_settings(&own, &layout, Some(&digests), None, false, &()).unwrap();
        make_folder(&layout.start()).unwrap();
        let stays = |config: &Resolved| {
            forget_start(config, &layout, &digests).unwrap();
            layout.start().exists()
        };
        let checkpoint = layout.part(TRAINED).checkpoints().join("step-000001");
        make_folder(&checkpoint).unwrap();
        assert!(stays(&other));
        std::fs::remove_dir(&checkpoint).unwrap();
        assert!(stays(&own));
        assert!(!stays(&other));
    }

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
    fn environments_with_a_quickstart_are_listed() {
        for name in ["foo", "math"] {
            let error = RunConfig::quickstart(name, &[]).unwrap_err().to_string();
            let listed = "(there are search-r1, code-search, query-writer)";
            assert!(error.contains(listed), "{error}");
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
