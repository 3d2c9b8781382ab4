//! The trajectory viewer: its frame, its script, and the trajectories as compact JSON.
//!
//! An index with a row per trajectory is read when the page opens. The texts are in blocks that the script reads when one of
//! their trajectories is shown or the texts are searched; within a block every text stands once, and trajectories of a
//! question are neighbours, so that a prompt is not repeated for each member of a group.

use std::collections::BTreeMap;

use indexmap::IndexSet;
use maud::{Markup, PreEscaped, html};
use serde::Serialize;

use super::trajectory::{authors, render};
use crate::trajectory::{AUTHORS, Trajectory};

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

/// The part of the trajectories that a page reads when it opens.
#[derive(Default, Serialize)]
struct Index<'a> {
    runs: IndexSet<&'a str>,
    endings: IndexSet<&'a str>,
    alarms: IndexSet<&'a str>,
    /// Data set, id and text.
    questions: IndexSet<[&'a str; 3]>,
    rows: Vec<Row>,
    /// `[block]`: its first row.
    blocks: Vec<usize>,
}

/// Run, step, group, member, question, reward, correctness, ending, searches, tokens of the policy, alarms.
type Row = (
    usize,
    Option<u64>,
    u64,
    u64,
    usize,
    Option<f32>,
    Option<bool>,
    usize,
    usize,
    usize,
    Vec<usize>,
);

impl<'a> Index<'a> {
    fn push(&mut self, one: &'a Trajectory) {
        let key = &one.key;
        let alarms = one.origin.alarms.iter();
        self.rows.push((
            self.runs.insert_full(&one.origin.run).0,
            one.origin.step,
            one.group,
            one.member,
            self.questions
                .insert_full([&key.data_source, &key.id, &key.question])
                .0,
            one.reward,
            one.is_correct(),
            self.endings.insert_full(one.ending.name()).0,
            one.searches,
            one.tokens[1],
            alarms.map(|kind| self.alarms.insert_full(kind).0).collect(),
        ));
    }
}

/// The texts of neighbouring rows.
#[derive(Default, Serialize)]
struct Block<'a> {
    texts: IndexSet<&'a str>,
    rows: Vec<Detail<'a>>,
}

#[derive(Serialize)]
struct Detail<'a> {
    golds: &'a [String],
    answer: Option<&'a str>,
    parts: &'a BTreeMap<String, f32>,
    ending: String,
    turns: usize,
    /// `[author]`.
    tokens: [usize; 4],
    /// Author and text in turn.
    segments: Vec<usize>,
}

impl<'a> Block<'a> {
    /// Adds a trajectory and returns the bytes of its texts that are new.
    fn push(&mut self, one: &'a Trajectory) -> usize {
        let mut bytes = 0;
        let mut segments = Vec::with_capacity(2 * one.segments.len());
        for segment in &one.segments {
            let (text, new) = self.texts.insert_full(&segment.text);
            bytes += if new { segment.text.len() } else { 0 };
            let author = AUTHORS.iter().position(|author| *author == segment.author);
            segments.extend([author.unwrap_or(0), text]);
        }
        self.rows.push(Detail {
            golds: &one.golds,
            answer: one.answer.as_deref(),
            parts: &one.parts,
            ending: one.ending.to_string(),
            turns: one.turns,
            tokens: one.tokens,
            segments,
        });
        bytes
    }
}

/// The section's content; empty without trajectories.
pub(super) fn content(trajectories: &[Trajectory]) -> Markup {
    let readable = trajectories.len().min(STATIC);
    html! {
        @if !trajectories.is_empty() {
            (authors())
            div #static {
                @for (place, one) in trajectories[..readable].iter().enumerate() { (render(one, place == 0)) }
                p.caption {
                    (readable) " of " (trajectories.len()) " trajectories; the others need the page's script."
                }
            }
            (PreEscaped(include_str!("viewer/frame.html")))
            (data(trajectories))
        }
    }
}

/// The data elements: `index`, and a `block` for each stretch of rows.
fn data(trajectories: &[Trajectory]) -> Markup {
    let mut index = Index {
        runs: trajectories.iter().map(|one| &*one.origin.run).collect(),
        ..Index::default()
    };
    let mut sorted: Vec<&Trajectory> = trajectories.iter().collect();
    let place = |one: &Trajectory| {
        let run = index.runs.get_index_of(&*one.origin.run);
        (run, one.origin.step, one.group, one.member)
    };
    sorted.sort_by(|a, b| a.key.cmp(&b.key).then_with(|| place(a).cmp(&place(b))));
    let mut blocks = Vec::new();
    let (mut block, mut bytes) = (Block::default(), 0);
    for (place, one) in sorted.into_iter().enumerate() {
        if block.rows.is_empty() {
            index.blocks.push(place);
        }
        index.push(one);
        bytes += block.push(one);
        if bytes >= BLOCK_BYTES {
            blocks.push(std::mem::take(&mut block));
            bytes = 0;
        }
    }
    if !block.rows.is_empty() {
        blocks.push(block);
    }
    html! {
        (element("index", &index))
        @for block in &blocks { (element("block", block)) }
    }
}

/// JSON that no browser takes for markup: `<` occurs only inside strings, where its escape means the same.
fn element(class: &str, value: &impl Serialize) -> Markup {
    // Nothing in it can fail to be written: strings, numbers, and floats that become null when they are not finite.
    let json = serde_json::to_string(value)
        .unwrap_or_default()
        .replace('<', "\\u003c");
    html! { script type="application/json" class=(class) { (PreEscaped(json)) } "\n" }
}
