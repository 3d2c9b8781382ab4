//! The searches of a policy, and the queries that it writes.

use forage_contracts::Metric;
use forage_env::Severity;

use super::super::trace::Span;
use super::{Facts, Finding, number, stop_if};

// Declared by environments whose episodes end in a query.
pub(super) const QUERY_WORDS: &str = "query/words_mean";
pub(super) const QUERY_DISTINCT: &str = "query/distinct_frac";
pub(super) const QUERY_STOP_WORDS: &str = "query/stop_word_frac";
pub(super) const QUERY_OPERATORS: &str = "query/operator_frac";
pub(super) const QUERY_COMPLEXITY: &str = "query/complexity_mean";

impl Facts<'_> {
    /// The policy does not search.
    pub(super) fn no_search(&self) -> Option<Finding> {
        // One stray search in a batch of some hundred episodes is not counted.
        const FEW: f64 = 0.02;
        let trace = self.trace(Metric::SEARCHES)?;
        let Span { window, short } = self.span;
        let ceased = |steps| trace.held(steps, |calls| calls < FEW);
        // The first steps count apart: searching may end before a first window is full.
        let best = trace.first().into_iter().chain(trace.best());
        let best = best.reduce(f64::max).filter(|best| *best > 0.2);
        let (severity, message) = if let Some(best) = best.filter(|_| ceased(short)) {
            let useless = ceased(window) && self.falling_reward().is_some();
            let reward = self.fall().map_or(String::new(), |fall| {
                format!(
                    " Its reward is {}, at best {}.",
                    number(fall.level),
                    number(fall.best)
                )
            });
            let message = format!(
                "The policy has stopped searching; it made {} searches per episode before.{reward} Answering at once has \
                 become the surer way to what the reward pays, or the format is lost. Check that answers without evidence \
                 cannot earn as much, and go back to a checkpoint that searched.",
                number(best)
            );
            (stop_if(useless), message)
        } else if self.has_search && ceased(window) {
            let message = format!(
                "In {window} steps the policy made no search. It does not know how, or the protocol does not read its \
                 queries. Read some episodes; warm it up on demonstrations that search, or show an example in the prompt."
            );
            (Severity::Warn, message)
        } else {
            return None;
        };
        let level = trace.level(self.span).unwrap_or(0.0);
        Some(Finding::new(severity, [level, FEW], message).at_once())
    }

    /// Searches find nothing.
    pub(super) fn empty_search(&self) -> Option<Finding> {
        // A retriever that works finds something for most of what any policy writes.
        const MOST: f64 = 0.98;
        let trace = self
            .trace(Metric::SEARCH_EMPTY)
            .filter(|_| self.has_search)?;
        let Span { window, short } = self.span;
        // One step is enough: a retriever may die in the next.
        let worked = trace.began_below(0.5);
        let steps = if worked { short } else { window };
        if !trace.held(steps, |share| share > MOST) {
            return None;
        }
        let message = format!(
            "For {steps} steps searches have shown no document. The retriever answers every query with an empty list, or \
             the policy writes queries that match nothing. Search for a word of the corpus with `forage search`; read some \
             episodes."
        );
        let level = trace.level(self.span).unwrap_or(1.0);
        Some(Finding::new(Severity::Warn, [level, MOST], message).at_once())
    }

    /// Queries become bags of keywords.
    pub(super) fn keyword_bag(&self) -> Option<Finding> {
        let ratio = |name: &str| self.growth(name).map(|[_, _, ratio]| ratio);
        let under = |name: &str, bound: f64| ratio(name).is_some_and(|ratio| ratio < bound);
        let [_, words, growth] = self.growth(QUERY_WORDS)?;
        let (alike, bare) = (under(QUERY_DISTINCT, 0.6), under(QUERY_STOP_WORDS, 0.5));
        // One operator at the end of a long list of words is decoration.
        let thin = under(QUERY_COMPLEXITY, 0.5 * growth);
        // Where every fourth word carries an operator or a phrase, longer queries are better thought out, not bags.
        let dense = self
            .level(QUERY_COMPLEXITY)
            .is_some_and(|parts| parts / words >= 0.25);
        let grown = growth > 1.5 && !dense;
        let operators_lost = under(QUERY_OPERATORS, 0.1);
        let bags = grown && (alike || bare || thin);
        if !bags && !operators_lost {
            return None;
        }
        let judged = match ratio(QUERY_OPERATORS) {
            Some(operators) if !bags => [operators, 0.1],
            _ => [growth, 1.5],
        };
        let signs = [
            (alike, "queries repeat each other"),
            (bare, "function words vanish"),
            (operators_lost, "operators are no longer used"),
            (
                thin && !operators_lost,
                "few operators are left among many words",
            ),
        ];
        let signs: Vec<&str> = signs
            .into_iter()
            .filter_map(|(holds, sign)| holds.then_some(sign))
            .collect();
        let message = format!(
            "Queries are {} times as long as at the start, {} words each, and {}: the policy writes bags of keywords. The \
             ranking reward pays overlap with the passages. Subtract what the plain question's keywords would find, or cap \
             the length.",
            number(growth),
            number(words),
            signs.join(", ")
        );
        let severity = stop_if(growth > 2.0 && grown && alike && bare);
        Some(Finding::new(severity, judged, message))
    }
}
