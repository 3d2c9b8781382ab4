//! The files of a config before a run begins: what they hold, the questions that two splits share, and evidence that is nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use forage_contracts::Task;
use forage_env::Contamination;
use forage_retriever::{CorpusFormat, Index};

use crate::archive::is_archive;
use crate::config::{Resolved, RunConfig};
use crate::data::{Corpus, Tasks, file_splits, first};
use crate::error::{Context, Result};
use crate::evidence::is_there;

impl RunConfig {
    /// Looks into the files of `[data.files]` that are on this machine. Gives a warning for each two splits that share questions, and for
    /// evidence that the index does not have.
    ///
    /// # Errors
    /// When a file has no questions, a corpus is in no known format, or the index is not one.
    pub fn check_files(&self) -> Result<Vec<String>> {
        let Some(files) = &self.data.files else {
            return Ok(Vec::new());
        };
        let index = files.index.as_ref().filter(|path| is_here(path));
        let index = index.map(Index::open).transpose();
        let index = index.in_config("data.files.index")?;
        if files.format.is_none() {
            for corpus in files.corpus.iter().filter(|path| is_here(path)) {
                CorpusFormat::detect(corpus).in_config("data.files.corpus")?;
            }
        }
        let splits = questions_here(self, index.as_ref()).in_config("data.files")?;
        let Some(splits) = &splits else {
            return Ok(Vec::new());
        };
        let splits = splits.each_ref();
        let mut warnings = split_warnings(self, splits);
        if let Some(index) = &index {
            let unknown = Evidence::of(index, &splits)?.unknown;
            warnings.extend(unknown.map(|found| format!("warning: {found}")));
        }
        Ok(warnings)
    }
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
    Ok(Some(splits.map(|tasks| first(&tasks, counts.next()))))
}

/// Warnings about the splits train, dev and test of files: questions that two of them share, and a sorted file that is cut in two.
pub(crate) fn split_warnings(config: &RunConfig, splits: [&Tasks; 3]) -> Vec<String> {
    let mut found = shared_questions(splits);
    let [train, _, test] = splits;
    found.extend(sorted_cut(config, train, test));
    found
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

/// Questions of each split whose evidence is looked up: more would read much of a large index.
const LOOKED_UP: usize = 1000;

/// What an index has of the evidence of questions.
pub(crate) struct Evidence {
    /// Questions whose evidence was looked up.
    pub(crate) looked_up: usize,
    /// Says of how many of them it is not there; none where all of it is.
    pub(crate) unknown: Option<String>,
}

impl Evidence {
    /// Looks up the evidence of the first questions of each split that name any. It is named by the id of a passage, by that of a page,
    /// which is there as the passages that it was cut into too, or by a title.
    ///
    /// # Errors
    /// When the index is damaged.
    pub(crate) fn of(index: &Index, splits: &[&Tasks]) -> Result<Self> {
        let is_named = |task: &&Arc<Task>| task.judgments().values().any(|grade| *grade > 0);
        let named = |tasks: &&Tasks| -> Vec<Arc<Task>> {
            let named = tasks.iter().filter(is_named).take(LOOKED_UP);
            named.cloned().collect()
        };
        let looked_up: Vec<Arc<Task>> = splits.iter().flat_map(named).collect();
        let mut unknown = BTreeSet::new();
        for task in &looked_up {
            for (name, _) in task.judgments().iter().filter(|(_, grade)| **grade > 0) {
                if !is_there(index, name)? && !index.has_title(name)? {
                    unknown.insert(name.clone());
                }
            }
        }
        let examples = looked_up.iter().filter_map(|task| {
            let judgments = task.judgments();
            let mut judged = judgments.iter();
            let (name, _) = judged.find(|(name, grade)| **grade > 0 && unknown.contains(*name))?;
            Some(format!("`{name}` of {}", task.name()))
        });
        let examples: Vec<String> = examples.collect();
        let all = if examples.len() == looked_up.len() {
            "; none of it is there, so the index seems to be of other documents than the questions (`forage search INDEX \
             QUESTION` shows it)"
        } else {
            ""
        };
        let unknown = examples.first().map(|example| {
            format!(
                "the evidence of {} of {} questions is not in the index, {example} for instance, which is neither an id nor a title \
                 there: no search finds it, and recall counts it as missed{all}",
                examples.len(),
                looked_up.len()
            )
        });
        Ok(Self {
            looked_up: looked_up.len(),
            unknown,
        })
    }
}

impl Corpus {
    /// Says of how many questions the evidence is not in the index. None where all of it is there, or no index is at hand.
    ///
    /// # Errors
    /// As [`Evidence::of`].
    pub(crate) fn unknown_evidence(&self, splits: &[&Tasks]) -> Result<Option<String>> {
        let found = self.index.as_ref().map(|index| Evidence::of(index, splits));
        Ok(found.transpose()?.and_then(|found| found.unknown))
    }
}

/// A warning where there are fewer questions than `count` that a key or an option asks for.
pub(crate) fn too_few(asked: &str, count: Option<usize>, found: usize) -> Option<String> {
    let count = count.filter(|count| found < *count)?;
    Some(format!(
        "warning: {asked} is {count}, and there are {found}"
    ))
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
    use super::*;
    use crate::data::Data;
    use crate::layout::RunLayout;

    const ROW: &str = "{\"question\": \"Who sings?\", \"answer\": \"Ada\"}\n";

    fn config(data: &str) -> Resolved {
        let text = include_str!("../../configs/smoke.toml");
        let data = format!("data={{ files = {{ {data} }} }}");
        let config = RunConfig::parse(text, &[data, "grpo.evaluate_every=0".to_owned()]);
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
        // The last ones name their pages by the title.
        let rows = ["one", "two", "three", "One", "It"].map(row).concat();
        let questions = write(folder.path(), "a.jsonl", &rows);
        let found = |format: &str| {
            let data = format!("corpus = {pages:?}, format = {format:?}, train = {questions:?}");
            let run = folder.path().join(format);
            std::fs::create_dir(&run).unwrap();
            let data = Data::load(&config(&data), &run).unwrap();
            data.corpus.unknown_evidence(&[&data.train]).unwrap()
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
        let warnings = config(&data).check_files().unwrap();
        assert!(
            warnings.len() == 1 && warnings[0].contains("of other documents than the questions"),
            "{warnings:?}"
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
