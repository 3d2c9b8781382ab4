//! The files of a config before a run begins: what they hold, the questions that two splits share, and evidence that is nowhere.

mod evidence;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use forage_contracts::Task;
use forage_env::{Contamination, registry};
use forage_retriever::{Index, IndexError};

use crate::archive::is_archive;
use crate::builtin;
use crate::config::{Resolved, RunConfig};
use crate::data::{Data, Tasks, check_golds, file_splits, first};
use crate::error::{Context, Result};
use crate::policy::BUILTIN;
use crate::session::rewards;

pub(crate) use self::evidence::Evidence;

impl RunConfig {
    /// Looks into the files of `[data.files]` that are on this machine. Gives a warning for each two splits that share questions, and for
    /// evidence that the index does not have.
    ///
    /// # Errors
    /// When a file has no questions, a corpus is in no known format, or the index is not one, of other documents than the questions or,
    /// where the corpus is small, of another corpus.
    pub fn check_files(&self) -> Result<Vec<String>> {
        let Some(files) = &self.data.files else {
            return Ok(Vec::new());
        };
        let index = files.index.as_ref().filter(|path| is_here(path));
        let index = index.map(Index::open).transpose();
        let index = index.in_config("data.files.index")?;
        let format_of = |corpus: &Path| {
            if let Some(format) = files.format {
                return Ok(format);
            }
            let format = self.environment.format_of(corpus);
            format.in_config("data.files.corpus")
        };
        if files.format.is_none() {
            for corpus in files.corpus.iter().filter(|path| is_here(path)) {
                format_of(corpus)?;
            }
        }
        if let Some(index) = &index
            && let [first, ..] = files.corpus.as_slice()
            && is_small(&files.corpus)
        {
            let own = index.verify_corpora(&files.corpus, format_of(first)?);
            let key = match own {
                Err(IndexError::Read(_)) => "data.files.corpus",
                _ => "data.files.index",
            };
            own.in_config(key)?;
        }
        let splits = questions_here(self, index.as_ref())?;
        let Some(splits) = &splits else {
            return Ok(Vec::new());
        };
        let splits = splits.each_ref();
        let mut warnings = split_warnings(self, splits);
        if let Some(index) = &index {
            let unknown = Evidence::of(index, &splits, &self.environment)?.checked()?;
            warnings.extend(unknown.map(|found| format!("warning: {found}")));
        }
        Ok(warnings)
    }
}

/// Bytes of the largest corpora that are read through before a run begins, in seconds; others are left to the run.
const READ_THROUGH: u64 = 256 << 20;

/// Tells whether all corpora are here, and small enough to be read through. Folders of pages count as small.
fn is_small(corpora: &[PathBuf]) -> bool {
    let bytes = |path: &PathBuf| std::fs::metadata(path).map_or(0, |found| found.len());
    corpora.iter().all(|path| is_here(path))
        && corpora.iter().map(bytes).sum::<u64>() <= READ_THROUGH
}

/// Tells whether a path can be read as it is: an archive is unpacked by the run, beside itself.
fn is_here(path: &Path) -> bool {
    path.exists() && !is_archive(path)
}

/// The questions that a run would take from files (train, dev and test), where all of the files are here, with their pages named as in the
/// index.
pub(crate) fn questions_here(
    config: &RunConfig,
    index: Option<&Index>,
) -> Result<Option<[Tasks; 3]>> {
    let Some(files) = &config.data.files else {
        return Ok(None);
    };
    let ids = files
        .ids
        .iter()
        .flat_map(|ids| [&ids.train, &ids.dev, &ids.test]);
    let named = [&files.train, &files.dev, &files.test]
        .into_iter()
        .flatten();
    // Of several corpora the names are asked for.
    let corpora = files.corpus.iter().filter(|_| files.corpus.len() > 1);
    let mut named = named.chain(ids.flatten()).chain(corpora);
    if !named.all(|path| is_here(path)) {
        return Ok(None);
    }
    let mut counts = config.data.counts().into_iter();
    let splits = file_splits(files, index)?;
    let splits = splits.map(|tasks| first(&tasks, counts.next()));
    // The check of the config reports rewards that cannot be made.
    if let Ok(rewards) = rewards(&config.environment.id, &config.reward, config.seed) {
        for tasks in &splits {
            check_golds(&rewards, tasks)?;
        }
    }
    Ok(Some(splits))
}

/// Warnings about the splits train, dev and test of files: questions that two of them share, a sorted file that is cut in two, and text
/// that the policy does not know.
pub(crate) fn split_warnings(config: &RunConfig, splits: [&Tasks; 3]) -> Vec<String> {
    let mut found = shared_questions(splits);
    let [train, _, test] = splits;
    found.extend(sorted_cut(config, train, test));
    found.extend(unknown_text(config, train));
    found
}

/// The beginning of the ids of a generated world's questions.
const OF_WORLD: &str = "fw-";

/// Warns of a policy inside the program that is to learn, in its environment, from questions of another text than a generated world's.
fn unknown_text(config: &RunConfig, train: &Tasks) -> Option<String> {
    let name = &config.policy.checkpoint;
    let taught = builtin::environment(name.strip_prefix(BUILTIN)?)?;
    let [taught, own] = [&taught.id, &config.environment.id].map(|id| registry::find(id).ok());
    let other = train
        .iter()
        .filter(|task| !task.id.starts_with(OF_WORLD))
        .count();
    (taught?.id == own?.id && 2 * other > train.len()).then(|| {
        format!(
            "warning: {name} knows the words and the prompt of generated worlds (`forage world`) alone, and the questions of [data.files] \
             are of another text, which it cannot read: name a pretrained checkpoint in policy.checkpoint"
        )
    })
}

/// What questions are of one kind by, in words, and its value.
type Kind = (&'static str, fn(&Task) -> String);

/// Questions that a part must lack before its lack is not chance.
const LACKED: f64 = 10.0;

/// Warns of a file that `train_share` cuts by place and that is sorted: one of the parts has a data set, or a number of hops, to itself.
fn sorted_cut(config: &RunConfig, train: &Tasks, test: &Tasks) -> Option<String> {
    config.data.files.as_ref()?.train_share?;
    let kinds: [Kind; 2] = [
        ("of the data set", |task| task.data_source.clone()),
        ("with the number of hops", |task| task.hops.to_string()),
    ];
    let parts = [train, test];
    let all = train.len() + test.len();
    for (kind, of) in kinds {
        let mut counts: BTreeMap<String, [usize; 2]> = BTreeMap::new();
        for (place, tasks) in parts.into_iter().enumerate() {
            for value in tasks.iter().map(|task| of(task)) {
                counts.entry(value).or_default()[place] += 1;
            }
        }
        for (value, counts) in counts {
            let Some(lacks) = counts.iter().position(|count| *count == 0) else {
                continue;
            };
            let count = counts[1 - lacks];
            // As many as a shuffled file would have there.
            if count as f64 * parts[lacks].len() as f64 / all as f64 >= LACKED {
                let where_all = ["held out", "learned from"][lacks];
                return Some(format!(
                    "warning: data.files.train_share cuts by place, and all {count} questions {kind} {value} are {where_all}: the file is \
                     sorted, and what is held out is of another kind than what is learned; shuffle its rows, or write [data.files.ids]"
                ));
            }
        }
    }
    None
}

/// Warnings of questions that two of the splits train, dev and test share.
fn shared_questions([train, dev, test]: [&Tasks; 3]) -> Vec<String> {
    let pairs = [
        (
            "validation questions are learned from too",
            [dev, train],
            "validation tells how well they are known by heart",
        ),
        (
            "held-out questions are learned from too",
            [test, train],
            "the final score tells how well they are known by heart",
        ),
        (
            "held-out questions are validated on too",
            [test, dev],
            "what is chosen by validation is chosen by them",
        ),
    ];
    let warning = |(what, [tasks, others], why): (&str, [&Tasks; 2], &str)| {
        let shared = Contamination::between(&tasks[..], &others[..]).same_question;
        let first = shared.first()?;
        Some(format!(
            "warning: {} of {} {what}, {} for instance, as {}: {why}; remove them on one side (`forage data check FILE --against OTHER` \
             names all, and those of one file that train_share cuts without --against)",
            shared.len(),
            tasks.len(),
            first.id,
            first.with
        ))
    };
    pairs.into_iter().filter_map(warning).collect()
}

/// A warning where there are fewer questions than `count` that a key or an option asks for.
pub(crate) fn too_few(asked: &str, count: Option<usize>, found: usize) -> Option<String> {
    let count = count.filter(|count| found < *count)?;
    Some(format!(
        "warning: {asked} is {count}, and there are {found}"
    ))
}

/// Warnings of splits that hold fewer questions than the config asks for.
pub(crate) fn missing_questions(data: &Data, config: &RunConfig) -> Vec<String> {
    let asked = &config.data;
    [
        ("train", &data.train, asked.train_questions),
        ("dev", &data.dev, asked.dev_questions),
        ("test", &data.test, asked.test_questions),
    ]
    .into_iter()
    .filter_map(|(split, found, asked)| {
        too_few(&format!("data.{split}_questions"), asked, found.len())
    })
    .collect()
}

/// The same where an option comes before a key.
pub(crate) fn too_few_of(
    option: (&str, Option<usize>),
    key: (&str, Option<usize>),
    found: usize,
) -> Option<String> {
    let (asked, count) = if option.1.is_some() { option } else { key };
    too_few(asked, count, found)
}

/// The same of the held-out questions of an evaluation, whose option `--limit` comes before its config.
pub(crate) fn too_few_held_out(
    limit: Option<usize>,
    config: Option<&Resolved>,
    found: usize,
) -> Option<String> {
    let asked = config.and_then(|config| config.data.test_questions);
    too_few_of(("--limit", limit), ("data.test_questions", asked), found)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::EnvironmentConfig;
    use crate::error::RunError;
    use crate::layout::RunLayout;

    const ROW: &str = "{\"question\": \"Who sings?\", \"answer\": \"Ada\"}\n";

    fn config(data: &str) -> Resolved {
        let text = include_str!("../../configs/smoke.toml");
        let data = format!("data={{ files = {{ {data} }} }}");
        let others = ["grpo.evaluate_every=0", "policy.checkpoint=\"org/name\""];
        let overrides = others.map(str::to_owned).into_iter().chain([data]);
        let config = RunConfig::parse(text, &overrides.collect::<Vec<_>>());
        config.unwrap().resolve(None).unwrap()
    }

    fn write(folder: &Path, name: &str, text: &str) -> String {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn questions_of_two_splits_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let other = "{\"question\": \"Who cooks?\", \"answer\": \"Bea\"}\n";
        let train = write(folder.path(), "a.jsonl", &[ROW, other].concat());
        let test = write(folder.path(), "b.jsonl", ROW);
        let found = |more: &str| {
            let data = format!("index = 'gone', train = {train:?}{more}");
            config(&data).check_files().unwrap()
        };
        assert!(found("").is_empty());
        let warnings = found(&format!(", test = {test:?}"));
        assert!(
            warnings.len() == 1
                && warnings[0].starts_with(
                    "warning: 1 of 1 held-out questions are learned from too, b/line-1 for instance, as a/line-1:"
                ),
            "{warnings:?}"
        );
        // As the audit compares them.
        let reworded = ROW.replace("Who sings?", "who  sings");
        let reworded = write(folder.path(), "c.jsonl", &reworded);
        let warnings = found(&format!(", test = {reworded:?}"));
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let warnings = found(&format!(", dev = {test:?}, test = {test:?}"));
        assert_eq!(warnings.len(), 3, "{warnings:?}");
    }

    #[test]
    fn a_policy_of_generated_worlds_is_not_given_another_text_in_silence() {
        let found = |policy: &str, ids: [&str; 3]| {
            let mut config = (*config("index = 'gone', train = 'a'")).clone();
            config.policy.checkpoint = policy.to_owned();
            let tasks = ids.map(|id| Arc::new(Task::new(id, "Who sings?")));
            unknown_text(&config, &tasks.into_iter().collect())
        };
        let own = ["1", "2", "fw-train-0"];
        let told = found("builtin:quickstart", own).unwrap();
        assert!(told.contains("policy.checkpoint"), "{told}");
        let world = ["fw-train-0", "fw-train-1", "2"];
        assert_eq!(found("builtin:quickstart", world), None);
        // Nothing is known of other policies, or of other environments.
        assert_eq!(found("org/name", own), None);
        assert_eq!(found("builtin:query-writer", own), None);
    }

    #[test]
    fn a_sorted_file_that_is_cut_by_place_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let row = |place: usize, hops: usize| {
            format!(
                "{{\"id\": \"{place}\", \"question\": \"Who sings {place}?\", \"golds\": [\"Ada\"], \"hops\": {hops}, \
                 \"data_source\": \"songs\", \"split\": \"train\"}}\n"
            )
        };
        let found = |name: &str, hops: fn(usize) -> usize| {
            let rows: String = (0..100).map(|place| row(place, hops(place))).collect();
            let file = write(folder.path(), name, &rows);
            let data = format!("index = 'gone', train = {file:?}, train_share = 0.8");
            config(&data).check_files().unwrap()
        };
        let sorted = found("sorted.jsonl", |place| 1 + place / 60);
        assert!(
            sorted.len() == 1
                && sorted[0]
                    .contains("all 60 questions with the number of hops 1 are learned from"),
            "{sorted:?}"
        );
        let mixed = found("mixed.jsonl", |place| 1 + place % 2);
        assert!(mixed.is_empty(), "{mixed:?}");
        // Three questions of their own may be in one part by chance.
        let few = found("few.jsonl", |place| usize::from(place < 3));
        assert!(few.is_empty(), "{few:?}");
    }

    #[test]
    fn evidence_that_is_nowhere_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let page = "{\"id\": \"one\", \"title\": \"One\", \"content\": \"A text.\"}\n";
        // A title whose only word is passed over by searches.
        let novel = "{\"id\": \"novel\", \"title\": \"It\", \"content\": \"A text.\"}\n";
        let pages = write(folder.path(), "pages.jsonl", &[page, novel].concat());
        let row = |page: &str| {
            format!(
                "{{\"question\": \"{page}?\", \"answer\": \"a\", \"filename\": \"{page}.md\"}}\n"
            )
        };
        let environment = EnvironmentConfig::default();
        // The last ones name their pages by the title.
        let rows = ["one", "two", "three", "One", "It"].map(row).concat();
        let questions = write(folder.path(), "a.jsonl", &rows);
        let found = |format: &str| {
            let data = format!("corpus = {pages:?}, format = {format:?}, train = {questions:?}");
            let run = folder.path().join(format);
            std::fs::create_dir(&run).unwrap();
            let data = Data::load(&config(&data), &run).unwrap();
            let corpus = data.corpus;
            let found = corpus.unknown_evidence(&[&data.train], false, &environment);
            found.unwrap()
        };
        for format in ["pages", "whole-pages"] {
            let found = found(format).unwrap();
            assert!(
                found.starts_with(
                    "the evidence of 2 of 5 questions is not in the index, `two` of a/line-2 for"
                ) && found.ends_with("counts it as missed"),
                "{found}"
            );
        }
        // Before a run an index tells it too.
        let index = RunLayout::new(folder.path().join("pages")).index();
        let data = format!("index = {index:?}, train = {questions:?}");
        let warnings = config(&data).check_files().unwrap();
        let expected = "warning: the evidence of 2 of 5 questions is not in the index";
        assert!(
            warnings.len() == 1 && warnings[0].starts_with(expected),
            "{warnings:?}"
        );
        let others = write(
            folder.path(),
            "b.jsonl",
            &["two", "three"].map(row).concat(),
        );
        let data = format!("index = {index:?}, train = {others:?}");
        let checked = config(&data).check_files();
        let error = crate::error::causes(&checked.unwrap_err());
        assert!(
            error.contains("has the evidence of none of the 2 questions")
                && error.contains("questions that name no evidence"),
            "{error}"
        );
        let run = folder.path().join("others");
        std::fs::create_dir(&run).unwrap();
        let loaded = Data::load(&config(&data), &run).unwrap();
        let corpus = loaded.corpus;
        let unknown = |few| corpus.unknown_evidence(&[&loaded.train], few, &environment);
        assert!(matches!(unknown(false), Err(RunError::Config { .. })));
        let told = unknown(true).unwrap().unwrap();
        assert!(told.contains("of other documents"), "{told}");
        // Without titles the evidence may be named by what the passages lack.
        let bare = page.replace("\"One\"", "\"\"");
        let bare = bare.replace("\"id\"", "\"_id\"").replace("content", "text");
        let bare = write(folder.path(), "bare.jsonl", &bare);
        let data = format!("corpus = {bare:?}, format = 'beir', train = {others:?}");
        let run = folder.path().join("bare");
        std::fs::create_dir(&run).unwrap();
        let loaded = Data::load(&config(&data), &run).unwrap();
        let asked = [&loaded.train];
        let unknown = |environment| loaded.corpus.unknown_evidence(&asked, false, environment);
        assert!(unknown(&environment).unwrap().is_some());
        // Rankings are graded by ids, titles or none.
        let rankings = EnvironmentConfig {
            id: "rerank".to_owned(),
            ..EnvironmentConfig::default()
        };
        assert!(matches!(unknown(&rankings), Err(RunError::Config { .. })));
        // An index of another corpus is refused before a run as by it.
        let named = |corpus: &str| {
            let data = format!(
                "index = {index:?}, corpus = {corpus:?}, format = 'pages', train = {questions:?}"
            );
            config(&data).check_files()
        };
        assert!(named(&pages).is_ok());
        let other = write(folder.path(), "other.jsonl", page);
        let error = crate::error::causes(&named(&other).unwrap_err());
        assert!(
            error.contains("data.files.index") && error.contains("build the index again"),
            "{error}"
        );
    }

    #[test]
    fn files_that_are_something_else_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let questions = write(folder.path(), "a.jsonl", ROW);
        let passage = "{\"_id\": \"a\", \"title\": \"A\", \"text\": \"a fruit\"}\n";
        let corpus = write(folder.path(), "corpus.jsonl", passage);
        let judged = "query-id\tcorpus-id\tscore\nq\ta\t1\n";
        let judged = write(folder.path(), "test.tsv", judged);
        let refused = |data: String| {
            let error = config(&data).check_files().unwrap_err();
            assert!(matches!(error, crate::RunError::Config { .. }));
            format!("{:#}", anyhow::Error::from(error))
        };
        let found = refused(format!("index = {corpus:?}, train = {questions:?}"));
        assert!(found.starts_with("data.files.index: "), "{found}");
        for other in [&corpus, &judged] {
            let found = refused(format!("corpus = {corpus:?}, train = {other:?}"));
            assert!(
                found.contains(other.as_str()) && found.contains("fit no known format"),
                "{found}"
            );
        }
        let found = refused(format!("corpus = {questions:?}, train = {questions:?}"));
        assert!(found.starts_with("data.files.corpus: "), "{found}");
    }
}
