//! The trajectory viewer: its frame, its script, and the trajectories as compact JSON.
//!
//! An index with a row per trajectory is read when the page opens. The texts are in blocks that the script reads when one of
//! their trajectories is shown or the texts are searched; within a block every text stands once, and trajectories of a
//! question are neighbours, so that a prompt is not repeated for each member of a group.

use std::collections::HashMap;

use serde::Serialize;

use super::trajectory::{legend, list};
use crate::measures::QuestionKey;
use crate::trajectory::{AUTHORS, Trajectory, ending_name, ending_words};

/// Trajectories that can be read without the script.
const STATIC: usize = 12;
/// Bytes of text after which a block is closed.
const BLOCK_BYTES: usize = 256 * 1024;

/// The script that the page runs: these files, in this order, in one scope.
pub(super) const SCRIPT: &str = concat!(
    "\"use strict\";\n{\n",
    include_str!("viewer/store.js"),
    include_str!("viewer/diff.js"),
    include_str!("viewer/detail.js"),
    include_str!("viewer/list.js"),
    "}\n"
);

/// What a page of trajectories knows of each of them before it reads a text.
#[derive(Serialize)]
struct Index<'a> {
    runs: Vec<&'a str>,
    endings: Vec<&'a str>,
    alarms: Vec<&'a str>,
    /// Data set, id and text.
    questions: Vec<(&'a str, &'a str, &'a str)>,
    rows: Vec<Row>,
    /// `[block]`: its first row.
    blocks: Vec<usize>,
}

/// Run, step, group, member, question, reward, whether it is correct, ending, searches, tokens of the policy, alarms.
type Row = (usize, Option<u64>, u64, u64, usize, Option<f32>, Option<bool>, usize, usize, usize, Vec<usize>);

/// The texts of neighbouring rows.
#[derive(Default, Serialize)]
struct Block<'a> {
    texts: Vec<&'a str>,
    rows: Vec<Detail<'a>>,
}

#[derive(Serialize)]
struct Detail<'a> {
    golds: &'a [String],
    answer: Option<&'a str>,
    parts: &'a std::collections::BTreeMap<String, f32>,
    ending: String,
    turns: usize,
    /// `[author]`.
    tokens: [usize; 4],
    /// Author and text in turn.
    segments: Vec<usize>,
}

/// Distinct names in the order they were met.
struct Names<'a, K> {
    known: HashMap<K, usize>,
    order: Vec<&'a str>,
}

// Derived, it would ask for a default of the keys, which references have not.
impl<K> Default for Names<'_, K> {
    fn default() -> Self {
        Self { known: HashMap::new(), order: Vec::new() }
    }
}

impl<'a, K: std::hash::Hash + Eq> Names<'a, K> {
    fn place(&mut self, key: K, name: &'a str) -> usize {
        *self.known.entry(key).or_insert_with(|| {
            self.order.push(name);
            self.order.len() - 1
        })
    }
}

/// The section's content; empty without trajectories.
pub(super) fn content(trajectories: &[Trajectory]) -> String {
    if trajectories.is_empty() {
        return String::new();
    }
    let first: Vec<&Trajectory> = trajectories.iter().take(STATIC).collect();
    format!(
        "{}<div id=\"static\">{}<p class=\"caption\">{} of {} trajectories; the others need the page's script.</p></div>{}{}",
        legend(),
        list(&first),
        first.len(),
        trajectories.len(),
        include_str!("viewer/frame.html"),
        data(trajectories)
    )
}

/// The data elements: `index`, and a `block` for each stretch of rows.
fn data(trajectories: &[Trajectory]) -> String {
    let mut runs = Names::default();
    for trajectory in trajectories {
        runs.place(trajectory.origin.run.as_str(), &trajectory.origin.run);
    }
    let mut sorted: Vec<&Trajectory> = trajectories.iter().collect();
    let place = |one: &Trajectory| (runs.known[one.origin.run.as_str()], one.origin.step, one.group, one.member);
    sorted.sort_by(|a, b| a.key.cmp(&b.key).then_with(|| place(a).cmp(&place(b))));
    let blocks = blocks(&sorted);
    let starts = blocks.iter().scan(0, |next, block| {
        let start = *next;
        *next += block.rows.len();
        Some(start)
    });
    let (mut endings, mut alarms) = (Names::default(), Names::default());
    let mut questions: Names<'_, &QuestionKey> = Names::default();
    let mut keys = Vec::new();
    let mut rows = Vec::with_capacity(sorted.len());
    for one in &sorted {
        let question = questions.place(&one.key, &one.key.question);
        if question == keys.len() {
            keys.push((&*one.key.data_source, &*one.key.id, &*one.key.question));
        }
        let (run, step, group, member) = place(one);
        let ending = ending_name(&one.ending);
        let ending = endings.place(ending, ending);
        let raised = one.origin.alarms.iter().map(|kind| alarms.place(kind.as_str(), kind)).collect();
        let (searches, written) = (one.searches, one.tokens[1]);
        rows.push((
            run,
            step,
            group,
            member,
            question,
            one.reward,
            one.is_correct(),
            ending,
            searches,
            written,
            raised,
        ));
    }
    let index = Index {
        blocks: starts.collect(),
        runs: runs.order,
        endings: endings.order,
        alarms: alarms.order,
        questions: keys,
        rows,
    };
    let mut html = element("index", &index);
    for block in &blocks {
        html.push_str(&element("block", block));
    }
    html
}

fn blocks<'a>(sorted: &[&'a Trajectory]) -> Vec<Block<'a>> {
    let mut blocks = Vec::new();
    let (mut block, mut bytes, mut texts) = (Block::default(), 0, HashMap::<&str, usize>::new());
    for one in sorted {
        let mut segments = Vec::with_capacity(2 * one.segments.len());
        for segment in &one.segments {
            let text = *texts.entry(&segment.text).or_insert_with(|| {
                block.texts.push(&segment.text);
                bytes += segment.text.len();
                block.texts.len() - 1
            });
            let author = AUTHORS.iter().position(|author| *author == segment.author).unwrap_or(0);
            segments.extend([author, text]);
        }
        block.rows.push(Detail {
            golds: &one.golds,
            answer: one.answer.as_deref(),
            parts: &one.parts,
            ending: ending_words(&one.ending),
            turns: one.turns,
            tokens: one.tokens,
            segments,
        });
        if bytes >= BLOCK_BYTES {
            blocks.push(std::mem::take(&mut block));
            bytes = 0;
            texts.clear();
        }
    }
    if !block.rows.is_empty() {
        blocks.push(block);
    }
    blocks
}

/// JSON that no browser takes for markup: `<` stands only inside strings, where its escape means the same.
fn element(class: &str, value: &impl Serialize) -> String {
    // Nothing in it can fail to be written: strings, numbers, and floats that become null when they are not finite.
    let json = serde_json::to_string(value).unwrap_or_default().replace('<', "\\u003c");
    format!("<script type=\"application/json\" class=\"{class}\">{json}</script>\n")
}
