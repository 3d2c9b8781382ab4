//! Episodes without a script: the first of them, coloured by who wrote what.

use forage_contracts::Provenance;
use maud::{Markup, html};

use super::html::legend;
use crate::summary::number;
use crate::trajectory::{AUTHORS, Trajectory};

/// The authors and their colours.
pub(super) fn authors() -> Markup {
    let classes = AUTHORS.map(|author| format!("author-{}", author.name()));
    legend(
        AUTHORS
            .map(Provenance::name)
            .into_iter()
            .zip(classes.iter().map(String::as_str)),
    )
}

/// One episode, folded unless it is `open`.
pub(super) fn render(trajectory: &Trajectory, open: bool) -> Markup {
    let reward = trajectory.reward.map_or_else(
        || "no reward".to_owned(),
        |reward| format!("reward {reward:.2}"),
    );
    html! {
        details.trajectory open[open] {
            summary {
                b { (trajectory.label()) } " "
                span.question { (trajectory.key.question) } " "
                span.outcome { (reward) " · " (trajectory.ending.to_string()) }
            }
            (facts(trajectory))
            @for segment in &trajectory.segments {
                @let name = segment.author.name();
                div class={ "segment author-" (name) } {
                    span { (name) }
                    pre { (segment.text) }
                }
            }
        }
    }
}

fn facts(trajectory: &Trajectory) -> Markup {
    let part = |(name, value): (&String, &f32)| format!("{name} {}", number(f64::from(*value)));
    let parts: Vec<String> = trajectory.parts.iter().map(part).collect();
    let score = if parts.is_empty() {
        "none".to_owned()
    } else {
        parts.join(" · ")
    };
    let counts = trajectory.tokens.iter().zip(AUTHORS);
    let lengths: Vec<String> = counts
        .map(|(count, author)| format!("{count} {}", author.name()))
        .collect();
    html! {
        dl {
            dt { "task" } dd { (trajectory.key.data_source) " / " (trajectory.key.id) }
            dt { "gold" } dd { (trajectory.golds.join(" | ")) }
            dt { "answer" } dd { (trajectory.answer.as_deref().unwrap_or("none")) }
            dt { "score" } dd { (score) }
            dt { "ending" } dd { (trajectory.ending.to_string()) }
            dt { "tokens" } dd { (lengths.join(", ")) }
        }
    }
}
