//! Experience: what set a right attempt at a question apart from a wrong one, kept in a file and shown in the prompts of other questions
//! (`LightSearcher`, arXiv 2512.06653). Assumed, since the abstract leaves it open: BM25 over questions says whose experience is shown.
//! The lines of the file are made in [`crate::rollout`].

use std::path::PathBuf;

use forage_contracts::Passage;
use forage_contracts::retriever::RetrieverError;
use forage_retriever::Bm25Retriever;
use serde::{Deserialize, Serialize};

use crate::ask::ask;
use crate::reward::grading::normalize;
use crate::settings::SettingsError;

/// The texts that prompts show, and how many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExperienceSettings {
    /// File of lines `{"question": ..., "text": ...}`, as `forage data experience` writes them.
    pub path: PathBuf,
    /// Most texts in a prompt: those of the questions most like its own, which is not among them.
    #[serde(default = "three")]
    pub k: usize,
}

const fn three() -> usize {
    3
}

/// A line of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Experience {
    question: String,
    text: String,
}

/// A file of experience, searched by its questions.
pub(crate) struct Memory {
    experiences: Vec<Experience>,
    /// The question of each line, normalised so that equal questions are equal.
    questions: Vec<String>,
    /// Passages are questions, their ids the places of their lines.
    index: Bm25Retriever,
    k: usize,
}

impl Memory {
    /// Reads and indexes a file.
    pub(crate) fn open(settings: &ExperienceSettings) -> Result<Self, SettingsError> {
        let ExperienceSettings { path, k } = settings;
        if *k == 0 {
            let key = "experience.k";
            return Err(SettingsError::Zero { key });
        }
        let fault = |line: usize, fault: String| SettingsError::Experience {
            path: path.clone(),
            line,
            fault,
        };
        let text = std::fs::read_to_string(path).map_err(|error| fault(0, error.to_string()))?;
        let lines = (1..).zip(text.lines());
        let lines = lines.filter(|(_, line)| !line.trim().is_empty());
        let read = |(number, line): (usize, &str)| -> Result<Experience, SettingsError> {
            let read: Result<Experience, _> = serde_json::from_str(line);
            let read = read.map_err(|error| fault(number, error.to_string()))?;
            if read.question.trim().is_empty() || read.text.trim().is_empty() {
                return Err(fault(number, "its question or text is empty".to_owned()));
            }
            Ok(read)
        };
        let experiences: Vec<Experience> = lines.map(read).collect::<Result<_, _>>()?;
        let questions = experiences.iter().map(|read| normalize(&read.question));
        let passages = experiences.iter().enumerate();
        let passages = passages
            .map(|(place, read)| Passage::new(format!("{place:08}"), "", read.question.as_str()));
        let index = Bm25Retriever::in_memory(passages.collect());
        Ok(Self {
            questions: questions.collect(),
            index: index.map_err(|error| fault(0, error.to_string()))?,
            experiences,
            k: *k,
        })
    }

    /// What stands before the prompt of a question; nothing where no other is like it. A function of the question and the file.
    pub(crate) async fn shown(&self, question: &str) -> Result<String, RetrieverError> {
        let own = normalize(question);
        let is_own = |place: usize| self.questions[place] == own;
        let same = (0..self.questions.len()).filter(|&place| is_own(place));
        // Its own experience would tell what the answer depends on.
        let most = self.k.saturating_add(same.count());
        let found = ask(&self.index, &[question], most).await?;
        let hits = found.into_iter().flatten().flatten();
        let places = hits.filter_map(|hit| hit.id.parse::<usize>().ok());
        let others = places.filter(|&place| !is_own(place)).take(self.k);
        let texts = others.map(|place| format!("- {}\n", self.experiences[place].text.trim()));
        let texts: String = texts.collect();
        if texts.is_empty() {
            return Ok(texts);
        }
        Ok(format!("Experience with other questions:\n{texts}\n"))
    }
}
