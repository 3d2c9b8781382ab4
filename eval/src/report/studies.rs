//! Studies of runs beside their twins and baselines, as `forage eval --controls` leaves them.

use maud::{Markup, html};
use serde::Serialize;

use super::html::coded;
use super::tables::Table;
use super::{at_k, intervals, parts, tables, verdict};
use crate::stats::mean;
use crate::study::{Cost, Study};

/// A run's own study.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Studies {
    /// The study of greedy episodes.
    pub(super) greedy: Study,
    /// The study of sampled episodes, where there are some.
    pub(super) sampled: Option<Study>,
}

impl Studies {
    /// Each with what the names of its rows end in.
    fn each(&self) -> impl Iterator<Item = (&Study, &'static str)> {
        let sampled = self.sampled.iter().map(|study| (study, ", sampled"));
        std::iter::once((&self.greedy, "")).chain(sampled)
    }

    /// The sentences of both.
    pub(super) fn words(&self) -> Vec<String> {
        let mut words = self.greedy.words();
        words.extend(self.sampled.iter().flat_map(Study::sampled_words));
        words
    }

    /// The study in a badge, a lead sentence and further sentences.
    pub(super) fn opening(&self) -> Markup {
        let words = self.words();
        let lead = words.first().map(String::as_str).unwrap_or_default();
        let twins = ["its twins", "a twin", "a twin"];
        let (class, badge) = verdict::badge(self.greedy.claim(), twins);
        html! {
            p class={ "badge " (class) } { (badge) }
            p.lead { (coded(lead)) }
            ul.notes { @for sentence in words.iter().skip(1) { li { (coded(sentence)) } } }
        }
    }

    /// Gains, drawn and in a table; what they consist of; why episodes fail; pass@k.
    pub(super) fn results(&self) -> Markup {
        let curves = self.sampled.as_ref();
        html! {
            (intervals::arms(self.each()))
            (self.table().html())
            (parts::section(self.greedy.parts.as_ref(), &self.greedy.mistakes))
            (at_k::picture(curves.and_then(|study| study.pass_at_k.as_ref())))
        }
    }

    /// The gains of all arms; what that of the trained policy consists of, and why episodes fail, where that is known.
    pub(super) fn tables(&self) -> Vec<Table> {
        let all = [
            Some(self.table()),
            tables::decomposition(self.greedy.parts.as_ref()),
            tables::mistakes(&self.greedy.mistakes),
        ];
        all.into_iter().flatten().collect()
    }

    /// Start, trained policy, twins and baselines: their scores, gains over the start and the lead of the trained policy.
    fn table(&self) -> Table {
        let has_costs = self.greedy.has_costs();
        let row = |name, score, intervals, cost| {
            let cost = has_costs.then(|| Cost::cells(cost));
            tables::beside(name, score, intervals, cost)
        };
        let mut rows = Vec::new();
        for (study, how) in self.each() {
            let starts = study.arms.iter().take(1).flat_map(|arm| &arm.seeds);
            let starts: Vec<f64> = starts.map(|seed| seed.start).collect();
            let start = format!("start{how}");
            rows.push(row(start, mean(&starts), [None, None], None));
            rows.extend(study.arms.iter().chain(&study.baselines).map(|arm| {
                let scores: Vec<f64> = arm.seeds.iter().map(|seed| seed.score).collect();
                let lead = arm.lead.as_ref().map(|lead| lead.difference);
                let name = format!("{}{how}", arm.name);
                row(name, mean(&scores), [Some(arm.gain), lead], arm.cost)
            }));
        }
        let [_, unit] = self.greedy.outcome.words();
        Table {
            head: tables::beside_head(
                "beside twins and other ways to the same end",
                unit,
                has_costs,
            ),
            rows,
            counts: Vec::new(),
        }
    }
}
