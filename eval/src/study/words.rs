//! A study as a table and in sentences.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use forage_contracts::scripted::ScriptEntry;

use super::arm::Lead;
use super::{Arm, Cost, Study};
use crate::compare::{SMALL_N, few_questions, interval_words, test_words};
use crate::decomposition::Row;
use crate::effort::Effort;
use crate::measures::Headline;
use crate::mistakes::MistakeShare;
use crate::stats::{Interval, mean};
use crate::summary::number;
use crate::text::{self, signed};

/// Number of seeds below which there is a warning: an interval over seeds is then wide, or absent.
const FEW_SEEDS: usize = 5;

impl Study {
    /// A table with a row per arm (start, score, gain and lead over all seeds, and each seed's gain); then how start and trained policy
    /// come to be right, why they fail, and the gains on each data set, where there are several.
    pub fn to_text(&self) -> String {
        let has_costs = self.has_costs();
        let rows = self.arms.iter().chain(&self.baselines).map(|arm| {
            let lead = arm.lead.as_ref();
            let mut row = vec![
                arm.name.clone(),
                number(arm.average(|seed| seed.start)),
                number(arm.average(|seed| seed.score)),
                with_ends(arm.gain),
                arm.seeds
                    .iter()
                    .map(|seed| signed(seed.gain.estimate))
                    .collect::<Vec<_>>()
                    .join(" "),
                lead.map_or_else(String::new, |lead| with_ends(lead.difference)),
                lead.map_or_else(String::new, |lead| text::p_figure(lead.p_adjusted)),
                lead.and_then(|lead| lead.improvement)
                    .map_or_else(String::new, |found| {
                        let Interval {
                            estimate,
                            low,
                            high,
                        } = found;
                        format!("{estimate:.2} [{low:.2}, {high:.2}]")
                    }),
            ];
            if has_costs {
                row.extend(Cost::cells(arm.cost));
            }
            row
        });
        let mut headers = vec![
            "arm",
            "start",
            "end",
            "gain",
            "by seed",
            "trained ahead by",
            "p (Holm)",
            "P(trained > arm)",
        ];
        if has_costs {
            headers.extend(Cost::HEADS);
        }
        let table = text::table(&headers, rows.collect());
        let plural = if self.seeds() == 1 { "" } else { "s" };
        format!(
            "{table}{}{}{}{}{}{} questions, {} seed{plural}\n",
            self.parts_text(),
            self.mistakes_text(),
            self.sources_text(),
            self.interquartile_text(),
            self.profile_text(),
            self.questions,
            self.seeds()
        )
    }

    /// The parts of a gain in exact match; empty where finding is not graded.
    fn parts_text(&self) -> String {
        let Some(parts) = &self.parts else {
            return String::new();
        };
        let row = |(name, chances, share): Row| {
            let [start, trained] =
                chances.map(|chance| chance.map_or_else(|| "–".to_owned(), number));
            let share = share.map_or_else(String::new, with_ends);
            vec![name, start, trained, share]
        };
        let headers = [
            "how it comes to be right",
            "start",
            "end",
            "share of the gain",
        ];
        text::table(&headers, parts.rows().into_iter().map(row).collect())
    }

    /// The classes of mistakes that occur; empty without any.
    fn mistakes_text(&self) -> String {
        let row = |share: &MistakeShare| {
            let [start, trained] = [share.start, share.trained].map(number);
            vec![
                share.name().to_owned(),
                start,
                trained,
                with_ends(share.change),
            ]
        };
        let rows: Vec<Vec<String>> = MistakeShare::made(&self.mistakes).map(row).collect();
        if rows.is_empty() {
            return String::new();
        }
        text::table(&["why episodes fail", "start", "end", "change"], rows)
    }

    /// The gain of each arm by data set, and their mean; empty of one data set.
    fn sources_text(&self) -> String {
        if self.by_source.is_empty() {
            return String::new();
        }
        let mut headers = vec!["gain by data set"];
        headers.extend(self.arms.iter().map(|arm| arm.name.as_str()));
        let row = |name: &str, gain: &dyn Fn(&Arm) -> Option<Interval>| {
            let cell = |arm| gain(arm).map_or_else(String::new, with_ends);
            std::iter::once(name.to_owned())
                .chain(self.arms.iter().map(cell))
                .collect()
        };
        let mut rows: Vec<Vec<String>> = Vec::new();
        for (source, found) in &self.by_source {
            let of = |arm: &Arm| Some(found.iter().find(|other| other.name == arm.name)?.gain);
            rows.push(row(source, &of));
        }
        rows.push(row("macro average", &|arm| {
            self.macro_gain.get(&arm.name).copied()
        }));
        rows.push(row("all questions", &|arm| Some(arm.gain)));
        text::table(&headers, rows)
    }

    /// The interquartile mean of each arm; empty of one seed.
    fn interquartile_text(&self) -> String {
        let scored = self.arms.iter().filter_map(|arm| {
            let found = self.interquartile_mean.get(&arm.name)?;
            Some(text::row(&arm.name, *found))
        });
        let rows: Vec<Vec<String>> = scored.collect();
        if rows.is_empty() {
            return String::new();
        }
        let over = if self.by_source.is_empty() {
            "over seeds"
        } else {
            "over seeds and data sets"
        };
        text::table(&[over, "interquartile mean", "interval"], rows)
    }

    /// Share of seeds above each tenth; empty of one seed, whose shares are all 0 or 1.
    fn profile_text(&self) -> String {
        if self.seeds() < 2 {
            return String::new();
        }
        let thresholds = self.arms.first().map_or(&[][..], |arm| &arm.profile);
        let heads: Vec<String> = thresholds
            .iter()
            .map(|point| format!(">{:.1}", point.threshold))
            .collect();
        let mut headers = vec!["share of seeds"];
        headers.extend(heads.iter().map(String::as_str));
        let row = |arm: &Arm| {
            let shares = arm
                .profile
                .iter()
                .map(|point| format!("{:.2}", point.share.estimate));
            std::iter::once(arm.name.clone()).chain(shares).collect()
        };
        text::table(&headers, self.arms.iter().map(row).collect())
    }

    /// The verdict in sentences: what was gained, what the twins gained, what cannot be claimed.
    pub fn words(&self) -> Vec<String> {
        let [trained, twins @ ..] = self.arms.as_slice() else {
            return Vec::new();
        };
        let mut sentences = vec![self.gain_words(trained)];
        sentences.extend(twins.iter().flat_map(|twin| self.twin_words(twin)));
        let [_, unit] = self.outcome.words();
        let baselines = self.baselines.iter();
        sentences.extend(baselines.map(|arm| arm.baseline_words(unit, self.bootstrap.confidence)));
        sentences.extend(oracle_words(self.outcome, &self.baselines));
        sentences.push(self.conclusion(trained, twins));
        let parts = self.parts.as_ref();
        sentences.extend(parts.map(|parts| parts.words("exact match")));
        let confidence = self.bootstrap.confidence;
        sentences.extend(MistakeShare::words(&self.mistakes, confidence));
        sentences.extend(self.curve_words());
        sentences.extend(self.effort.as_ref().map(Effort::words));
        sentences.extend(late_words(&self.late_gain, self.seeds()));
        sentences.extend(self.caveats(trained));
        sentences
    }

    fn gain_words(&self, trained: &Arm) -> String {
        let [_, unit] = self.outcome.words();
        let evidence = self.interval_words(trained.gain);
        let gain = format!("{} {unit}, {evidence}", signed(trained.gain.estimate));
        match trained.direction() {
            Ordering::Greater => format!("Training gained {gain}."),
            Ordering::Less => format!("Training made it worse: {gain}."),
            Ordering::Equal => format!(
                "No gain can be shown: {gain}{}.",
                test_words(
                    trained.gain.ends(),
                    trained.p,
                    &format!("p over {}", self.unit_of_p())
                )
            ),
        }
    }

    fn twin_words(&self, twin: &Arm) -> Vec<String> {
        let Some(lead) = &twin.lead else {
            return Vec::new();
        };
        let gained = twin.seeds.iter().filter(|seed| seed.gain.is_positive());
        let gained: Vec<String> = gained
            .map(|seed| format!("{} ({})", seed.seed, signed(seed.gain.estimate)))
            .collect();
        // For a twin the interval of the gain alone is enough for suspicion.
        let state = if twin.gain.is_positive() {
            "gained as well, and what it gained is not the reward's"
        } else if twin.direction() == Ordering::Less {
            "got worse"
        } else if gained.is_empty() {
            "shows no gain"
        } else {
            "is erratic"
        };
        let gain = format!(
            "{} ({})",
            signed(twin.gain.estimate),
            self.interval_words(twin.gain)
        );
        let mut sentences = vec![format!("Twin `{}` {state}: {gain}.", twin.name)];
        if !gained.is_empty() && twin.seeds.len() > 1 {
            let seeds = gained.join(", ");
            sentences.push(format!("Seeds under which it gained by itself: {seeds}."));
        }
        sentences.push(self.lead_words(&twin.name, lead));
        sentences
    }

    /// Sentences that a study of sampled episodes adds to the words of greedy ones: the parts of their gain, and pass@k.
    pub fn sampled_words(&self) -> Vec<String> {
        let parts = self.parts.as_ref();
        let parts = parts.map(|parts| parts.words("sampled exact match"));
        parts.into_iter().chain(self.curve_words()).collect()
    }

    /// What pass@k of start and trained policy supports; `None` where there is one sample of each question.
    pub(crate) fn curve_words(&self) -> Option<String> {
        let curves = self.pass_at_k.as_ref()?;
        Some(curves.words("the start", "the trained policy"))
    }

    fn lead_words(&self, name: &str, lead: &Lead) -> String {
        let state = match lead.direction() {
            Ordering::Greater => "is ahead of it",
            Ordering::Less => "is behind it",
            Ordering::Equal => "is not clearly ahead of it",
        };
        let pairs = lead
            .improvement
            .map(|found| format!(", {:.0} % of pairs of seeds", 100.0 * found.estimate));
        format!(
            "The trained policy {state}: {} over `{name}` ({}, adjusted p over {} {}{}).",
            signed(lead.difference.estimate),
            self.interval_words(lead.difference),
            self.unit_of_p(),
            text::p_figure(lead.p_adjusted),
            pairs.unwrap_or_default()
        )
    }

    /// The sentence about what the trained policy's gain is due to; `None` without a trained policy.
    pub(crate) fn concluded(&self) -> Option<String> {
        let (trained, twins) = self.arms.split_first()?;
        Some(self.conclusion(trained, twins))
    }

    fn conclusion(&self, trained: &Arm, twins: &[Arm]) -> String {
        if self.holds() {
            let leads = twins
                .iter()
                .filter_map(|twin| Some((twin, twin.lead.as_ref()?.difference.low)));
            let closest = leads.min_by(|(_, a), (_, b)| a.total_cmp(b));
            // The lead over a twin that got worse is more than the gain.
            let least = trained.gain.low;
            let at_least = closest.map_or_else(String::new, |(twin, low)| {
                if low > least {
                    return format!(
                        " at least {} of it, the low end of the gain, since the lead over every twin is larger.",
                        signed(least)
                    );
                }
                format!(
                    " at least {} of it, the low end of the lead over `{}`.",
                    signed(low),
                    twin.name
                )
            });
            return format!("The gain is real, and the reward's:{at_least}");
        }
        if !trained.has_gained() {
            return "No gain is shown, so none can be attributed.".to_owned();
        }
        if twins.is_empty() {
            return "The gain is real, but without a control nobody can say that it is the reward's."
                .to_owned();
        }
        if let Some(twin) = twins.iter().find(|twin| !twin.is_beaten()) {
            return format!(
                "The gain is real, but not shown to be the reward's: the trained policy is not clearly ahead of `{}`.",
                twin.name
            );
        }
        let best = twins
            .iter()
            .max_by(|a, b| a.gain.estimate.total_cmp(&b.gain.estimate));
        best.map_or_else(String::new, |best| {
            format!(
                "The gain is real, and in part the reward's: {} of {}, what exceeds the gain of `{}`.",
                signed(trained.gain.estimate - best.gain.estimate),
                signed(trained.gain.estimate),
                best.name
            )
        })
    }

    fn caveats(&self, trained: &Arm) -> Vec<String> {
        let mut sentences = Vec::new();
        match self.seeds() {
            1 => sentences.push(
                "One seed: nothing here says that another seed would learn as well; train five or more.".to_owned(),
            ),
            few if few < FEW_SEEDS => {
                sentences
                    .push(format!("Only {few} seeds: the interval over seeds is wide; train {FEW_SEEDS} or more."));
            }
            _ => {}
        }
        if self.questions < SMALL_N {
            sentences.push(few_questions(self.questions));
        }
        sentences.extend(text::lost_questions(self.lost_to_infra));
        let is_graded = self.outcome != Headline::Reward;
        if is_graded && trained.seeds.iter().all(|seed| seed.score <= 0.0) {
            let [measure, _] = self.outcome.words();
            sentences.push(format!(
                "The trained policy scored 0 in {measure} on every question: figures per correct answer cannot be given. If the reward \
                 pays for something else, `forage compare` of the start's and the trained policy's episodes shows the difference in it."
            ));
        }
        sentences
    }

    /// The unit of observation of the p-values.
    fn unit_of_p(&self) -> &'static str {
        self.arms.first().map_or("questions", Arm::unit_of_p)
    }

    fn seeds(&self) -> usize {
        self.arms.first().map_or(0, |arm| arm.seeds.len())
    }

    fn interval_words(&self, interval: Interval) -> String {
        interval_words(interval, self.bootstrap.confidence)
    }
}

/// What the score of the scripted oracle is worth, where it is among the baselines of an outcome that it has to search for.
pub(crate) fn oracle_words(outcome: Headline, baselines: &[Arm]) -> Option<String> {
    let mut names = baselines.iter().map(|arm| arm.name.as_str());
    let is_told = outcome == Headline::Answer && names.any(|name| name == ScriptEntry::ORACLE);
    is_told.then(|| {
        "The oracle is a script that knows the queries of generated questions; on others it is not an upper bound.".to_owned()
    })
}

/// A sentence about the share of the reward's rise after the first quarter of the steps, over `seeds` seeds; `None` where no run has one,
/// or the interval of the only one holds every share.
pub(crate) fn late_words(by_seed: &BTreeMap<u64, Interval>, seeds: usize) -> Option<String> {
    let shares: Vec<f64> = by_seed.values().map(|share| share.estimate).collect();
    let evidence = match by_seed.values().collect::<Vec<_>>().as_slice() {
        [] => return None,
        // A run without a rise has no share: the mean is of those that learned.
        some if some.len() < seeds => {
            format!(
                "(mean of the {} of {seeds} seeds that show a rise)",
                some.len()
            )
        }
        [Interval { low, high, .. }] if *low <= 0.0 && *high >= 1.0 => return None,
        [Interval { low, high, .. }] => format!("({low:.2} to {high:.2})"),
        several => format!("(mean of {} seeds)", several.len()),
    };
    let share = mean(&shares);
    let meaning = if share > 1.0 {
        ": more than all of it, as the reward was lower then than at the start"
    } else if share < 0.0 {
        ": less than nothing, as the reward was higher then than at the end"
    } else {
        ""
    };
    Some(format!(
        "Of the rise in the training reward, a share of {share:.2} {evidence} came after the first quarter of the steps{meaning}."
    ))
}

fn with_ends(interval: Interval) -> String {
    let Interval {
        estimate,
        low,
        high,
    } = interval;
    format!("{} [{}, {}]", signed(estimate), signed(low), signed(high))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::late_words;
    use crate::stats::Interval;

    #[test]
    fn seeds_without_a_rise_are_counted() {
        let share = |estimate| Interval {
            estimate,
            low: 0.1,
            high: 0.9,
        };
        let two = BTreeMap::from([(1, share(0.4)), (3, share(0.6))]);
        let words = |seeds| late_words(&two, seeds).unwrap();
        assert!(words(2).contains("a share of 0.50 (mean of 2 seeds)"));
        let some = words(5);
        assert!(
            some.contains("(mean of the 2 of 5 seeds that show a rise)"),
            "{some}"
        );
        let one = BTreeMap::from([(1, share(0.4))]);
        assert!(late_words(&one, 1).unwrap().contains("0.40 (0.10 to 0.90)"));
        assert!(late_words(&one, 2).unwrap().contains("the 1 of 2 seeds"));
        assert_eq!(late_words(&BTreeMap::new(), 2), None);
        let vague = Interval {
            low: -0.05,
            high: 2.46,
            ..share(0.54)
        };
        assert_eq!(late_words(&BTreeMap::from([(1, vague)]), 1), None);
        let fell = late_words(&BTreeMap::from([(1, share(1.21))]), 1).unwrap();
        assert!(
            fell.ends_with(
                ": more than all of it, as the reward was lower then than at the start."
            ),
            "{fell}"
        );
    }
}
