//! A verdict on the page: its opening with a badge and tiles, its pictures and tables.

use maud::{Markup, html};

use super::html::coded;
use super::tables::{Cell, Table, beside, beside_head, decomposition, mistakes, sources};
use super::{at_k, intervals, parts};
use crate::study::{Claim, Cost};
use crate::text::signed;
use crate::verdict::Verdict;

/// The verdict in a badge, a lead sentence, further sentences and tiles of figures.
pub(super) fn opening(verdict: &Verdict) -> Markup {
    let control = ["the control", "the control", "a control"];
    let (class, badge) = badge(verdict.study().claim(), control);
    let words = verdict.words();
    let lead = words.first().map(String::as_str).unwrap_or_default();
    html! {
        p class={ "badge " (class) } { (badge) }
        p.lead { (coded(lead)) }
        ul.notes { @for sentence in words.iter().skip(1) { li { (coded(sentence)) } } }
        div.tiles {
            @for (name, value, note) in tiles(verdict) {
                div.tile { span { (name) } b { (value) } small { (note) } }
            }
        }
    }
}

/// The badge of a claim; `all`, `one` and `none` are what the twins, some twin and a missing one are called.
pub(super) fn badge(claim: Claim, [all, one, none]: [&str; 3]) -> (&'static str, String) {
    match claim {
        Claim::Holds => ("good", format!("Gain holds against {all}")),
        Claim::Worse => ("bad", "Training made it worse".to_owned()),
        Claim::NoGain => ("plain", "No gain shown".to_owned()),
        Claim::LeadAlone => (
            "plain",
            format!("Only the lead is the reward's: {one} gained too"),
        ),
        Claim::TwinGained => ("bad", format!("Suspicious: {one} gained as well")),
        Claim::NoTwin => ("plain", format!("Gain without {none}")),
        Claim::NotAhead => ("plain", format!("Gain, but not clearly ahead of {all}")),
    }
}

fn tiles(verdict: &Verdict) -> Vec<(String, String, String)> {
    let ends = |[low, high]: [f64; 2]| format!("{} to {}", signed(low), signed(high));
    let tile = |name: &str, value: String, note: String| (name.to_owned(), value, note);
    let [_, unit] = verdict.outcome.words();
    let greedy = |when: &str, score: f64| {
        tile(
            &format!("{unit} {when}"),
            format!("{score:.3}"),
            "greedy, held-out".to_owned(),
        )
    };
    let mut tiles = vec![
        greedy("at the start", verdict.start),
        greedy("after training", verdict.trained),
        tile("Gain", signed(verdict.gain), ends(verdict.gain_interval)),
    ];
    if let (Some(gain), Some(interval)) = (verdict.control_gain, verdict.control_interval) {
        tiles.push(tile("Control's gain", signed(gain), ends(interval)));
    }
    let seed = format!("seed {}", verdict.seed);
    let minutes = format!("{:.1} min", verdict.minutes);
    tiles.push(tile("Questions", verdict.n.to_string(), seed));
    let resumed = if verdict.resumed {
        "of the steps before it was resumed, and since then"
    } else {
        ""
    };
    tiles.push(tile("Wall time", minutes, resumed.to_owned()));
    tiles
}

/// Gains, drawn and in tables; what they consist of; why episodes fail; pass@k.
pub(super) fn results(verdict: &Verdict) -> Markup {
    html! {
        (intervals::gains(verdict))
        @for table in [gains(verdict), baselines(verdict)].iter().flatten() { (table.html()) }
        (parts::section(verdict.parts.as_ref(), &verdict.mistakes))
        (at_k::picture(verdict.pass_at_k.as_ref()))
    }
}

/// What a verdict has of gains by data set, baselines, parts of the gain and mistakes.
pub(super) fn tables(verdict: &Verdict) -> Vec<Table> {
    let all = [
        gains(verdict),
        baselines(verdict),
        decomposition(verdict.parts.as_ref()),
        mistakes(&verdict.mistakes),
    ];
    all.into_iter().flatten().collect()
}

/// The paired gain on each data set, their mean with each counted once, and that over all questions; `None` of one data set.
fn gains(verdict: &Verdict) -> Option<Table> {
    let (gain, measure) = (&verdict.greedy.gain, verdict.outcome.measure());
    sources(gain, measure, ["start", "trained", "gain"])
}

/// Start, trained policy and baselines: their scores, gains over the start and the lead of the trained policy; `None` without
/// baselines.
fn baselines(verdict: &Verdict) -> Option<Table> {
    if verdict.greedy.baselines.is_empty() {
        return None;
    }
    let measure = verdict.outcome.measure();
    let mut all = verdict.greedy.baselines.iter();
    let has_costs = verdict.cost.is_some() || all.any(|arm| arm.cost.is_some());
    let row = |name, score, intervals, cost| {
        let cost = has_costs.then(|| Cost::cells(cost));
        beside(name, score, intervals, cost)
    };
    let sampled = verdict.sampled.as_ref().map(|detail| (detail, ", sampled"));
    let mut rows: Vec<(String, Vec<Cell>)> = Vec::new();
    for (detail, how) in std::iter::once((&verdict.greedy, "")).chain(sampled) {
        if let Some(gain) = detail.gain.difference(measure) {
            let start = format!("start{how}");
            rows.push(row(start, gain.a, [None, None], None));
            let gained = [Some(gain.difference), None];
            let trained = format!("trained{how}");
            rows.push(row(trained, gain.b, gained, verdict.cost));
        }
        for arm in &detail.baselines {
            let Some(seed) = arm.seeds.first() else {
                continue;
            };
            let lead = arm.lead.as_ref().map(|lead| lead.difference);
            rows.push(row(
                format!("{}{how}", arm.name),
                seed.score,
                [Some(arm.gain), lead],
                arm.cost,
            ));
        }
    }
    Some(Table {
        head: beside_head(
            "beside other ways to the same end",
            verdict.outcome.words()[1],
            has_costs,
        ),
        rows,
        counts: Vec::new(),
    })
}
