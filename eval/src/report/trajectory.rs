//! Episodes without a script: the first of them, coloured by who wrote what.

use std::fmt::Write as _;

use super::html::{concat, escape};
use crate::summary::number;
use crate::trajectory::{AUTHORS, Trajectory, author_name, ending_words};

/// The authors and their colours.
pub(super) fn legend() -> String {
    let keys = AUTHORS.map(|author| format!("<span class=\"key author-{0}\"><i></i>{0}</span>", author_name(author)));
    format!("<p class=\"legend\">{}</p>", keys.concat())
}

/// Episodes one under the other, the first one open.
pub(super) fn list(trajectories: &[&Trajectory]) -> String {
    concat(trajectories.iter().enumerate(), |(index, trajectory)| render(trajectory, index == 0))
}

fn render(trajectory: &Trajectory, open: bool) -> String {
    let reward = trajectory.reward.map_or_else(|| "no reward".to_owned(), |reward| format!("reward {reward:.2}"));
    let mut html = format!(
        "<details class=\"trajectory\"{}><summary><b>{}</b> <span class=\"question\">{}</span> \
         <span class=\"outcome\">{reward} · {}</span></summary>",
        if open { " open" } else { "" },
        escape(&trajectory.label()),
        escape(&trajectory.key.question),
        escape(&ending_words(&trajectory.ending))
    );
    html.push_str(&facts(trajectory));
    for segment in &trajectory.segments {
        let name = author_name(segment.author);
        let text = escape(&segment.text);
        let _ = write!(html, "<div class=\"segment author-{name}\"><span>{name}</span><pre>{text}</pre></div>");
    }
    html.push_str("</details>");
    html
}

fn facts(trajectory: &Trajectory) -> String {
    let part = |(name, value): (&String, &f32)| format!("{name} {}", number(f64::from(*value)));
    let parts: Vec<String> = trajectory.parts.iter().map(part).collect();
    let counts = trajectory.tokens.iter().zip(AUTHORS);
    let lengths: Vec<String> = counts.map(|(count, author)| format!("{count} {}", author_name(author))).collect();
    let rows = [
        ("task", format!("{} / {}", trajectory.key.data_source, trajectory.key.id)),
        ("gold", trajectory.golds.join(" | ")),
        ("answer", trajectory.answer.clone().unwrap_or_else(|| "none".to_owned())),
        ("score", if parts.is_empty() { "none".to_owned() } else { parts.join(" · ") }),
        ("ending", ending_words(&trajectory.ending)),
        ("tokens", lengths.join(", ")),
    ];
    let rows = concat(rows, |(name, value)| format!("<dt>{name}</dt><dd>{}</dd>", escape(&value)));
    format!("<dl>{rows}</dl>")
}
