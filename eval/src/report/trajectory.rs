//! Episodes coloured by who wrote what.

use std::fmt::Write as _;

use forage_env::episode::{Boundary, Ending, Episode, Limit};
use forage_env::tokens::Provenance;

use super::html::{concat, escape};
use crate::summary::number;

/// An episode cut into runs of one author.
#[derive(Clone, Debug)]
pub(super) struct Trajectory {
    label: String,
    episode: Episode,
    segments: Vec<(Provenance, String)>,
}

impl Trajectory {
    /// Cut by turns: what the policy wrote, what the environment answered.
    pub(super) fn from_turns(label: String, episode: &Episode) -> Self {
        let mut segments = vec![(Provenance::Prompt, episode.prompt.clone())];
        for turn in &episode.turns {
            segments.push((Provenance::Policy, turn.policy.clone()));
            segments.push((Provenance::Environment, turn.observation.clone()));
        }
        Self { label, episode: episode.clone(), segments }
    }

    /// Cut by the token log.
    pub(super) fn from_tokens(label: String, episode: &Episode, decode: impl Fn(&[u32]) -> String) -> Self {
        let ids = episode.tokens.ids();
        let spans = episode.tokens.spans().iter();
        let segments = spans.map(|span| (span.provenance, decode(&ids[span.start..span.end]))).collect();
        Self { label, episode: episode.clone(), segments }
    }
}

/// All episodes, the first one open. Empty without any.
pub(super) fn list(trajectories: &[Trajectory]) -> String {
    if trajectories.is_empty() {
        return String::new();
    }
    let authors = [Provenance::Prompt, Provenance::Policy, Provenance::Environment, Provenance::Forced];
    let keys = authors.map(|author| format!("<span class=\"key author-{0}\"><i></i>{0}</span>", author_name(author)));
    let mut html = format!("<p class=\"legend\">{}</p>", keys.concat());
    for (index, trajectory) in trajectories.iter().enumerate() {
        html.push_str(&render(trajectory, index == 0));
    }
    html
}

fn render(trajectory: &Trajectory, open: bool) -> String {
    let episode = &trajectory.episode;
    let reward = episode.reward().map_or_else(|| "no reward".to_owned(), |reward| format!("reward {reward:.2}"));
    let mut html = format!(
        "<details class=\"trajectory\"{}><summary><b>{}</b> <span class=\"question\">{}</span> \
         <span class=\"outcome\">{reward} · {}</span></summary>",
        if open { " open" } else { "" },
        escape(&trajectory.label),
        escape(&episode.task.question),
        escape(&ending_words(&episode.ending))
    );
    html.push_str(&facts(episode));
    for (author, text) in trajectory.segments.iter().filter(|(_, text)| !text.is_empty()) {
        let name = author_name(*author);
        let text = escape(text);
        let _ = write!(html, "<div class=\"segment author-{name}\"><span>{name}</span><pre>{text}</pre></div>");
    }
    html.push_str("</details>");
    html
}

fn facts(episode: &Episode) -> String {
    let parts = episode.score.iter().flat_map(|score| &score.parts);
    let parts: Vec<String> = parts.map(|(name, value)| format!("{name} {}", number(f64::from(*value)))).collect();
    let tokens = &episode.tokens;
    let lengths = format!(
        "{} prompt, {} policy, {} environment, {} forced",
        tokens.count(Provenance::Prompt),
        tokens.count(Provenance::Policy),
        tokens.count(Provenance::Environment),
        tokens.count(Provenance::Forced)
    );
    let rows = [
        ("task", format!("{} / {}", episode.task.data_source, episode.task.id)),
        ("gold", episode.task.golds.join(" | ")),
        ("answer", episode.answer().unwrap_or("none").to_owned()),
        ("score", if parts.is_empty() { "none".to_owned() } else { parts.join(" · ") }),
        ("ending", ending_words(&episode.ending)),
        ("tokens", lengths),
    ];
    let rows = concat(rows, |(name, value)| format!("<dt>{name}</dt><dd>{}</dd>", escape(&value)));
    format!("<dl>{rows}</dl>")
}

fn author_name(author: Provenance) -> &'static str {
    match author {
        Provenance::Prompt => "prompt",
        Provenance::Policy => "policy",
        Provenance::Environment => "environment",
        Provenance::Forced => "forced",
    }
}

fn ending_words(ending: &Ending) -> String {
    match ending {
        Ending::Answered => "answered".to_owned(),
        Ending::Truncated { limit } => {
            let limit = match limit {
                Limit::Turns => "out of turns",
                Limit::Tokens => "out of tokens",
                Limit::Context => "context window full",
                Limit::Time => "out of time",
            };
            format!("truncated: {limit}")
        }
        Ending::Malformed { fault } => format!("malformed: {fault}"),
        Ending::Infra { boundary, message } => {
            let place = match boundary {
                Boundary::Policy => "policy",
                Boundary::Retriever => "retriever",
                Boundary::Sandbox => "sandbox",
                Boundary::Environment => "environment",
                Boundary::Reward => "reward",
            };
            format!("infrastructure fault ({place}): {message}")
        }
    }
}
