//! A comparison as a table and in sentences.

use std::cmp::Ordering;

use super::{Comparison, Difference};
use crate::measures::{OF_ANSWERS, better, display_rank, headline as measure, or_reward};
use crate::stats::{Better, Interval, LEVEL};
use crate::summary::number;
use crate::text::{self, figure, signed};

/// Below this many questions figures carry a warning.
pub(crate) const SMALL_N: usize = 100;

impl Comparison {
    /// A caveat to the figures: prompts, accepted answers or temperatures differ, bytes are counted for tokens, or questions
    /// were lost.
    pub fn caveat(&self) -> Option<String> {
        let prompts = (self.other_prompts > 0).then(|| {
            format!(
                "The prompts differ on {} of the questions asked on both sides: what is shown is the difference of policy and prompt \
                 together.",
                self.other_prompts
            )
        });
        let golds = (self.other_golds > 0).then(|| {
            format!(
                "The accepted answers differ on {} of the questions asked on both sides: each side is graded by its own.",
                self.other_golds
            )
        });
        let drawn = self.temperatures.map(|sides| {
            let [a, b] = sides.map(|temperature| {
                if temperature > 0.0 {
                    format!("sampled at temperature {temperature}")
                } else {
                    "greedy".to_owned()
                }
            });
            format!(
                "The episodes of the first side are {a}, those of the second {b}: what is shown is the difference of policy and \
                 sampling together."
            )
        });
        let side = match self.in_bytes {
            [false, false] => None,
            [true, true] => Some("on both sides"),
            [true, false] => Some("on the first side alone"),
            [false, true] => Some("on the second side alone"),
        };
        let bytes = side.map(|side| {
            format!(
                "Counts of tokens, such as policy_tokens, are bytes {side}: a script has no \
                 tokenizer."
            )
        });
        let lost = text::lost_questions(self.lost_to_infra);
        let said = prompts.into_iter().chain(golds).chain(drawn);
        let said = said.chain(bytes).chain(lost);
        let said: Vec<String> = said.collect();
        (!said.is_empty()).then(|| said.join(" "))
    }

    /// Every metric in a row: both means, the difference with its interval in numbers and drawn, the adjusted p-value; then the
    /// main metric of each data set, where there are several, and its macro average. A row's drawing spans twice the largest end of
    /// its interval, 0 in the middle.
    pub fn to_text(&self, name_a: &str, name_b: &str) -> String {
        let row = |name: &str, [a, b]: [f64; 2], difference: Interval, p: String| {
            vec![
                name.to_owned(),
                number(a),
                number(b),
                text::interval(difference),
                drawn(difference),
                p,
            ]
        };
        let shown = |name: &str, found: &Difference| {
            let p = text::p_figure(found.p_adjusted);
            row(name, [found.a, found.b], found.difference, p)
        };
        let mut names: Vec<&String> = self.metrics.keys().collect();
        names.sort_by_key(|name| display_rank(name));
        let headline = self.headline();
        if headline != measure(&self.metrics) {
            names.retain(|name| !OF_ANSWERS.contains(&name.as_str()) || self.is_earned(name));
        }
        let mut rows: Vec<Vec<String>> = names
            .into_iter()
            .map(|name| shown(name, &self.metrics[name]))
            .collect();
        for (source, metrics) in &self.by_source {
            let found = metrics.get(headline);
            rows.extend(found.map(|found| shown(&format!("{headline}, {source}"), found)));
        }
        if let Some(found) = self.macro_average.get(headline) {
            let name = format!("{headline}, macro average");
            rows.push(row(
                &name,
                [found.a, found.b],
                found.difference,
                String::new(),
            ));
        }
        let difference = format!("{name_b} - {name_a}");
        text::table(
            &["metric", name_a, name_b, &difference, "0", "p (Holm)"],
            rows,
        )
    }

    /// The outcome in one sentence, naming the sides: on exact match or NDCG@10; on the reward where they have neither, or where the
    /// environment pays for turns (`return`) and no episode of either side earned any of the measure.
    pub fn outcome(&self, name_a: &str, name_b: &str) -> String {
        self.words(self.headline(), name_a, name_b)
    }

    /// The metric of [`Self::outcome`].
    fn headline(&self) -> &'static str {
        let measure = measure(&self.metrics);
        let pays_turns = self.metrics.contains_key("return");
        or_reward(measure, pays_turns, self.is_earned(measure))
    }

    /// Tells whether a metric is above 0 on either side.
    fn is_earned(&self, metric: &str) -> bool {
        let found = self.metrics.get(metric);
        found.is_some_and(|found| found.a > 0.0 || found.b > 0.0)
    }

    /// The outcome on `metric` in one sentence, naming the sides.
    pub fn words(&self, metric: &str, name_a: &str, name_b: &str) -> String {
        let Some(found) = self.metrics.get(metric) else {
            return format!("{name_a} and {name_b} have no {metric} to compare.");
        };
        let label = if metric == "em" { "EM" } else { metric };
        let gain = signed(found.difference.estimate);
        let forward = self.evidence(found, metric, found.difference);
        let said = match (found.direction(), better(metric)) {
            (Ordering::Equal, _) => {
                // Among several policies, whose tests are adjusted, it takes a larger one.
                let limit = found
                    .minimum_detectable_effect
                    .filter(|_| found.p_of_several.is_none())
                    .map_or(String::new(), |effect| {
                        format!(
                            " A true difference of {} or more would probably have shown.",
                            figure(effect)
                        )
                    });
                format!(
                    "No difference in {label} can be shown between {name_a} and {name_b} ({forward}).{limit}"
                )
            }
            (Ordering::Greater, Better::Lower) => {
                format!("{name_b} has {gain} {label}, more than {name_a} ({forward}).")
            }
            (Ordering::Less, Better::Lower) => {
                format!("{name_b} has {gain} {label}, less than {name_a} ({forward}).")
            }
            (Ordering::Greater, Better::Higher) => {
                format!("{name_b} beats {name_a} by {gain} {label} ({forward}).")
            }
            (Ordering::Less, Better::Higher) => {
                let backward = Interval {
                    estimate: -found.difference.estimate,
                    low: -found.difference.high,
                    high: -found.difference.low,
                };
                let evidence = self.evidence(found, metric, backward);
                let lead = signed(backward.estimate);
                format!("{name_a} beats {name_b} by {lead} {label} ({evidence}).")
            }
        };
        if found.questions < SMALL_N {
            format!("{said} {}", few_questions(found.questions))
        } else {
            said
        }
    }

    /// Interval of a lead, number of questions and the p-value: the adjusted one where there is one, for greedy exact match `McNemar`'s,
    /// else that of the sign-flip test.
    fn evidence(&self, found: &Difference, metric: &str, lead: Interval) -> String {
        let (test, p) = match (found.p_of_several, self.mcnemar) {
            (Some(adjusted), _) => ("adjusted p", adjusted),
            (None, Some(test)) if metric == "em" => ("McNemar p", test.p),
            _ => ("p", found.p),
        };
        format!(
            "{}, n = {} questions, {test} {}",
            interval_words(lead, self.bootstrap.confidence),
            found.questions,
            text::p_value(p)
        )
    }
}

/// The caveat on figures over fewer than [`SMALL_N`] questions.
pub(crate) fn few_questions(count: usize) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("Only {count} question{plural}: take every figure here as rough.")
}

/// The p-value of a test that does not show a difference although its interval leaves 0 out, in words; nothing where the interval holds 0.
pub(crate) fn test_words([low, high]: [f64; 2], p: f64, name: &str) -> String {
    if low <= 0.0 && high >= 0.0 {
        return String::new();
    }
    format!(", but {name} is {p:.3}, and below {LEVEL} is asked")
}

/// An interval of a difference in words. Where no question differs resampling knows of no other, and an interval of width 0 would feign
/// that there is none.
pub(crate) fn interval_words(interval: Interval, confidence: f64) -> String {
    if interval.ends().iter().all(|end| end.abs() < f64::EPSILON) {
        return "no question differs".to_owned();
    }
    format!(
        "{:.0} % interval {} to {}",
        100.0 * confidence,
        signed(interval.low),
        signed(interval.high)
    )
}

/// An interval as a picture: 0 in the middle, the estimate a dot between its ends.
fn drawn(found: Interval) -> String {
    const HALF: i32 = 12;
    let reach = found.low.abs().max(found.high.abs()).max(f64::MIN_POSITIVE);
    let place = |value: f64| (value / reach * f64::from(HALF)).round() as i32;
    let [from, dot, to] = [found.low, found.estimate, found.high].map(place);
    let cell = |at: i32| match at {
        at if at == dot => '●',
        0 => '│',
        at if (from..=to).contains(&at) => '─',
        _ => ' ',
    };
    (-HALF..=HALF).map(cell).collect()
}
