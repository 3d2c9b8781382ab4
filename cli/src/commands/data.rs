//! `forage data`: what is known of a data set before anything is learned from it, and what attempts at its questions showed.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use forage_contracts::{Split, Task};
use forage_env::{Contamination, EpisodeRecord, Leak, digest_ids, read_all};
use forage_lab::{fetch_file, runtime};

use crate::config::read;
use crate::jsonl::Output;
use crate::terminal::{hint, out, prose, word};

/// Finds repeated questions and leaks; writes experience for prompts.
#[derive(Subcommand, Debug)]
pub(crate) enum Data {
    Check(Check),
    Experience(Experience),
}

impl Data {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Check(command) => command.run(),
            Self::Experience(command) => command.run(),
        }
    }
}

/// Writes what set right attempts apart from wrong ones.
///
/// Of each question that was answered rightly and wrongly, the right attempt with the fewest searches is held against the wrong one with
/// the most. A line of the file is {"question", "text"}; the setting `experience` of the search-r1 environment shows texts in prompts.
#[derive(Args, Debug)]
pub(crate) struct Experience {
    /// Recorded episodes: files of a run's `rollouts`, or what `forage eval` and `forage collect` write.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// File to write.
    #[arg(long)]
    out: PathBuf,
    /// Config, or name of a recipe, whose [reward.judge] puts the texts into words; without it they tell the queries of both.
    #[arg(long, value_name = "CONFIG")]
    judge: Option<PathBuf>,
}

impl Experience {
    fn run(self) -> Result<()> {
        let config = self
            .judge
            .map(|judge| read(&judge, &[], None))
            .transpose()?;
        let output = Output::create(&self.out, &self.files)?;
        let mut records = Vec::new();
        for file in &self.files {
            for record in EpisodeRecord::read_all(file)? {
                records.push(record?);
            }
        }
        let found = match config {
            Some(config) => config.experiences(&records)?,
            None => runtime()?.block_on(EpisodeRecord::experiences(&records, None))?,
        };
        if found.is_empty() {
            bail!(
                "of {} episodes none answers a question rightly that another answers wrongly; play several of each question",
                records.len()
            );
        }
        output.write(&found)?;
        out(&format!(
            "{} texts from {} episodes in {}",
            found.len(),
            records.len(),
            self.out.display()
        ));
        Ok(())
    }
}

/// Looks for repeated questions and leaks between sets.
///
/// It finds questions asked twice, questions that hold their answer, and questions, answers and passages that two sets share. Exit code 1
/// when the sets share questions or passages; answers that are shared are only reported.
///
/// Without --against, the training questions of a file that names splits are compared with its held-out ones. Answers that are yes, no or
/// a number are not compared.
#[derive(Args, Debug)]
pub(crate) struct Check {
    /// Questions in any format that a config reads: JSON lines, a JSON list, .csv or .tsv, parquet, a BEIR folder.
    file: PathBuf,
    /// The other set, for instance the held-out questions.
    #[arg(long)]
    against: Option<PathBuf>,
    /// Print as JSON, every finding.
    #[arg(long)]
    json: bool,
}

/// Findings of a kind that are shown; --json has all.
const SHOWN: usize = 5;

impl Check {
    fn run(self) -> Result<()> {
        let tasks = read_all(&fetch_file(&self.file)?)?;
        let (tasks, others): (Vec<Task>, Vec<Task>) = match &self.against {
            Some(other) => (tasks, read_all(&fetch_file(other)?)?),
            None => tasks
                .into_iter()
                .partition(|task| task.split == Split::Train),
        };
        // A file of held-out questions alone is looked at as well.
        let (tasks, others) = if tasks.is_empty() {
            (others, tasks)
        } else {
            (tasks, others)
        };
        let found = Contamination::between(&tasks, &others);
        if self.json {
            let mut value = serde_json::to_value(&found)?;
            value["digest"] = digest_ids(&tasks).into();
            value["unanswered"] = unanswered(&tasks).into();
            value["against_unanswered"] = unanswered(&others).into();
            out(&value.to_string());
        } else {
            tell(&found, [&tasks, &others]);
        }
        if found.leaks() {
            bail!(
                "the two sets share questions or passages: what was learned from one is not held out in the other"
            );
        }
        if !self.json {
            hint(&format!(
                "next: forage config init CONFIG --questions {}; forage audit CONFIG",
                word(&self.file)
            ));
        }
        Ok(())
    }
}

/// Tells whether no question has an accepted answer or a judged passage.
fn unanswered(tasks: &[Task]) -> bool {
    let lacks = |task: &Task| task.golds.is_empty() && task.qrels.is_empty();
    !tasks.is_empty() && tasks.iter().all(lacks)
}

/// Prints a kind of findings: how many there are, what they mean, where there are some, and the first of them.
fn list<T>(kind: &str, meaning: &str, found: &[T], line: impl Fn(&T) -> String) {
    let meaning = if found.is_empty() { "" } else { meaning };
    out(&format!("{kind}: {}{meaning}", found.len()));
    for one in found.iter().take(SHOWN) {
        prose(&format!("  {}", line(one)));
    }
    if found.len() > SHOWN {
        let more = found.len() - SHOWN;
        out(&format!("  and {more} more (--json lists all)"));
    }
}

/// Prints the findings about questions and the others that they were held against.
fn tell(found: &Contamination, [tasks, others]: [&[Task]; 2]) {
    out(&format!(
        "{} questions; digest of all ids: {}",
        found.questions,
        digest_ids(tasks)
    ));
    let accepted = tasks.iter().map(|task| task.golds.len());
    let all: usize = accepted.clone().sum();
    if let (Some(least), Some(most @ 1..)) = (accepted.clone().min(), accepted.max()) {
        out(&format!(
            "accepted answers of a question: {least} to {most}, {:.1} on average",
            all as f64 / tasks.len() as f64
        ));
    }
    if unanswered(tasks) {
        out(
            "none of them has an answer, as in published test sets, or where answers have a name that is not read (`golds` and `answer` \
             are): nothing is said of answers, and no exact match can be measured",
        );
    }
    let asked = |id: &String| {
        let task = tasks.iter().find(|task| task.name() == *id);
        task.map_or_else(|| id.clone(), |task| format!("{id}  {}", task.question))
    };
    list("asked more than once", "", &found.duplicates, |repeated| {
        format!("{}  {}", repeated.ids.join(" "), repeated.question)
    });
    list(
        "answer in the question",
        " (no search is needed there: remove them, unless they offer a choice or are few: `forage audit` warns above a fifth)",
        &found.answer_in_question,
        asked,
    );
    list(
        "answer that published graders take from the prompt",
        " (an episode without an answer is right there: remove them, or use another grader)",
        &found.answer_in_prompt,
        String::clone,
    );
    if found.against == 0 {
        out("compared with no other set (--against FILE)");
        return;
    }
    let without = if unanswered(others) {
        ", none of which has an answer"
    } else {
        ""
    };
    out(&format!(
        "compared with {} questions{without}",
        found.against
    ));
    let kinds = [
        ("same question", &found.same_question),
        ("same answer", &found.same_answer),
        ("same evidence", &found.same_evidence),
    ];
    for (kind, leaks) in kinds {
        list(kind, "", leaks, |Leak { id, with, shared }| {
            format!("{id} and {with}: {shared}")
        });
    }
}
