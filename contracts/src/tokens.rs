//! The token log: the only owner of an episode's token ids.
//!
//! Ids are appended together with who wrote them; the loss mask, lengths and audits are derived from that authorship,
//! never from token values. The prompt of turn n+1 is the log after turn n plus the observation's tokens, so text never
//! makes a round trip through the tokenizer.

use serde::{Deserialize, Serialize};

use crate::policy::Sampling;

/// The author of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// The opening prompt.
    Prompt,
    /// Sampled from the policy: the only tokens that carry gradient.
    Policy,
    /// Written by the environment between turns.
    Environment,
    /// Put into the policy's mouth by the driver (a closing tag, a forced answer prefix): never trained on.
    Forced,
}

impl Provenance {
    /// The author's name: `prompt`, `policy`, `environment`, `forced`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Policy => "policy",
            Self::Environment => "environment",
            Self::Forced => "forced",
        }
    }
}

/// The lesson from an episode that ended in some way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Treatment {
    /// Learned from as it was scored.
    #[default]
    Train,
    /// Without loss on its tokens; its reward stays in its group.
    Mask,
    /// Counted as having earned nothing, in its turns neither.
    Zero,
    /// Learned from with this subtracted from its reward.
    Penalty(f32),
}

impl Treatment {
    /// The training reward of an episode that was scored with `reward`.
    pub fn reward(self, reward: f32) -> f32 {
        match self {
            Self::Train | Self::Mask => reward,
            Self::Zero => 0.0,
            Self::Penalty(penalty) => reward - penalty,
        }
    }
}

/// An append-only run of tokens with the same author.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// The author of the tokens.
    pub provenance: Provenance,
    /// Index of the first token.
    pub start: usize,
    /// One past the last token.
    pub end: usize,
    /// Policy version that sampled the tokens; `None` unless `provenance` is `Policy`.
    pub version: Option<u64>,
    /// The way the policy was asked to draw the tokens; `None` where it was not asked, or nobody wrote it down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// The lesson from these tokens of the policy; `None` where nothing was decided, and they are learned from as scored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub treatment: Option<Treatment>,
}

/// All tokens of one episode, append-only. Of a policy that reads text only their number and their authors are known: its log has
/// spans without ids.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Recorded")]
pub struct TokenLog {
    ids: Vec<u32>,
    /// Log-probability in nats of each token; 0 for tokens the policy did not sample.
    logprobs: Vec<f32>,
    spans: Vec<Span>,
}

/// A token log as a record holds it, which anybody may have written.
#[derive(Deserialize)]
struct Recorded {
    ids: Vec<u32>,
    logprobs: Vec<f32>,
    spans: Vec<Span>,
}

impl TryFrom<Recorded> for TokenLog {
    type Error = &'static str;

    fn try_from(recorded: Recorded) -> Result<Self, Self::Error> {
        let Recorded {
            ids,
            logprobs,
            spans,
        } = recorded;
        let mut end = 0;
        for span in &spans {
            if span.start != end || span.end <= end {
                return Err("a span of the tokens does not begin where the one before it ends");
            }
            end = span.end;
        }
        let log = Self {
            ids,
            logprobs,
            spans,
        };
        if log.has_ids() || (log.ids.is_empty() && log.logprobs.is_empty()) {
            Ok(log)
        } else {
            Err("the spans of the tokens are of another number of ids or of log-probabilities")
        }
    }
}

impl TokenLog {
    /// A log that opens with the prompt's tokens.
    pub fn with_prompt(ids: &[u32]) -> Self {
        let mut log = Self::default();
        log.push(ids, Provenance::Prompt, None, None);
        log
    }

    /// Appends a sampled completion. `logprobs` are in nats, one per token; `sampling` is how it was drawn, where that is known.
    ///
    /// # Panics
    /// When the lengths differ: a policy that breaks its contract is a bug, not data.
    pub fn push_policy(
        &mut self,
        ids: &[u32],
        logprobs: &[f32],
        version: u64,
        sampling: Option<Sampling>,
    ) {
        assert_eq!(
            ids.len(),
            logprobs.len(),
            "one log-probability per sampled token"
        );
        self.push(ids, Provenance::Policy, Some(version), sampling);
        let start = self.ids.len() - ids.len();
        self.logprobs[start..].copy_from_slice(logprobs);
    }

    /// Appends tokens of which only the number is known. A log has ids of all its tokens or of none.
    pub fn push_counted(&mut self, count: usize, provenance: Provenance, version: Option<u64>) {
        self.push_span(count, provenance, version, None);
    }

    /// Appends tokens the environment wrote.
    pub fn push_environment(&mut self, ids: &[u32]) {
        self.push(ids, Provenance::Environment, None, None);
    }

    /// Appends tokens the driver forced.
    pub fn push_forced(&mut self, ids: &[u32]) {
        self.push(ids, Provenance::Forced, None, None);
    }

    fn push(
        &mut self,
        ids: &[u32],
        provenance: Provenance,
        version: Option<u64>,
        sampling: Option<Sampling>,
    ) {
        self.push_span(ids.len(), provenance, version, sampling);
        self.ids.extend_from_slice(ids);
        self.logprobs.resize(self.ids.len(), 0.0);
    }

    fn push_span(
        &mut self,
        count: usize,
        provenance: Provenance,
        version: Option<u64>,
        sampling: Option<Sampling>,
    ) {
        if count == 0 {
            return;
        }
        let start = self.len();
        self.spans.push(Span {
            provenance,
            start,
            end: start + count,
            version,
            sampling,
            treatment: None,
        });
    }

    /// Notes in the spans of the policy what is learned from the episode.
    pub fn treat(&mut self, treatment: Treatment) {
        let noted = (treatment != Treatment::Train).then_some(treatment);
        for span in &mut self.spans {
            if span.provenance == Provenance::Policy {
                span.treatment = noted;
            }
        }
    }

    /// The lesson from the episode, as its spans say.
    pub fn treatment(&self) -> Treatment {
        let mut noted = self.spans.iter().filter_map(|span| span.treatment);
        noted.next().unwrap_or_default()
    }

    /// The log as it was when it held `length` tokens.
    ///
    /// # Panics
    /// When `length` is not at a border of what was appended.
    #[must_use]
    pub fn before(&self, length: usize) -> Self {
        let spans: Vec<Span> = self
            .spans
            .iter()
            .copied()
            .filter(|span| span.end <= length)
            .collect();
        assert_eq!(
            spans.last().map_or(0, |span| span.end),
            length,
            "a length between two appends"
        );
        Self {
            ids: self.ids[..length].to_vec(),
            logprobs: self.logprobs[..length].to_vec(),
            spans,
        }
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.spans.last().map_or(0, |span| span.end)
    }

    /// Whether nothing was logged.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether ids and log-probabilities are known, one of each per token.
    pub fn has_ids(&self) -> bool {
        self.ids.len() == self.len() && self.logprobs.len() == self.len()
    }

    /// Token ids, in order; none where they are only counted.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Log-probabilities in nats as sampled; 0 where the policy did not write; none where tokens are only counted.
    pub fn logprobs(&self) -> &[f32] {
        &self.logprobs
    }

    /// Runs of equal authorship, in order.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// True exactly on policy-sampled tokens. Length [`Self::len`].
    pub fn loss_mask(&self) -> Vec<bool> {
        let mut mask = vec![false; self.len()];
        for span in &self.spans {
            if span.provenance == Provenance::Policy {
                mask[span.start..span.end].fill(true);
            }
        }
        mask
    }

    /// The mean of -ln p over the tokens that the policy drew in spans for which `counts` holds, nats: an estimate of its entropy there.
    /// `None` where it drew none.
    pub fn surprisal(&self, counts: impl Fn(&Span) -> bool) -> Option<f64> {
        let drawn = |span: &&Span| span.provenance == Provenance::Policy && counts(span);
        let spans = self.spans.iter().filter(drawn);
        let logprobs = spans.flat_map(|span| &self.logprobs[span.start..span.end]);
        let (sum, count) = logprobs.fold((0.0, 0_usize), |(sum, count), &logprob| {
            (sum + f64::from(logprob), count + 1)
        });
        (count > 0).then(|| -sum / count as f64)
    }

    /// Number of tokens written by `provenance`.
    pub fn count(&self, provenance: Provenance) -> usize {
        self.spans
            .iter()
            .filter(|span| span.provenance == provenance)
            .map(|span| span.end - span.start)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_follows_authorship_not_values() {
        let mut log = TokenLog::with_prompt(&[1, 2]);
        log.push_policy(&[2, 0], &[-0.5, -0.25], 3, None);
        log.push_environment(&[2, 2]);
        log.push_forced(&[9]);
        log.push_policy(&[0], &[-1.0], 4, Some(Sampling::FULL));
        assert_eq!(
            log.loss_mask(),
            [false, false, true, true, false, false, false, true]
        );
        assert_eq!(log.logprobs(), [0.0, 0.0, -0.5, -0.25, 0.0, 0.0, 0.0, -1.0]);
        assert_eq!(log.count(Provenance::Environment), 2);
        let last = log.spans().last().unwrap();
        assert_eq!(
            (last.version, last.sampling),
            (Some(4), Some(Sampling::FULL))
        );
        let first = serde_json::to_string(&log.spans()[0]).unwrap();
        assert!(!first.contains("sampling"), "{first}");
        let mut early = TokenLog::with_prompt(&[1, 2]);
        early.push_policy(&[2, 0], &[-0.5, -0.25], 3, None);
        assert_eq!(log.before(4), early);
        assert_eq!(log.before(0), TokenLog::default());
    }

    #[test]
    fn surprisal_is_that_of_what_the_policy_drew() {
        let mut log = TokenLog::with_prompt(&[1]);
        log.push_policy(&[2, 3], &[-1.0, -3.0], 0, None);
        log.push_environment(&[4]);
        log.push_policy(&[5], &[-5.0], 0, None);
        assert_eq!(log.surprisal(|_| true), Some(3.0));
        assert_eq!(log.surprisal(|span| span.start == 4), Some(5.0));
        assert_eq!(log.surprisal(|span| span.start == 0), None);
    }

    #[test]
    fn the_treatment_stands_in_the_spans_of_the_policy() {
        let mut log = TokenLog::with_prompt(&[1, 2]);
        log.push_policy(&[3], &[-0.5], 0, None);
        log.push_environment(&[4]);
        let plain = log.clone();
        assert_eq!(log.treatment(), Treatment::Train);
        log.treat(Treatment::Penalty(0.5));
        let noted: Vec<Option<Treatment>> = log.spans().iter().map(|span| span.treatment).collect();
        assert_eq!(noted, [None, Some(Treatment::Penalty(0.5)), None]);
        let written = serde_json::to_string(&log).unwrap();
        assert!(
            written.contains(r#""treatment":{"penalty":0.5}"#),
            "{written}"
        );
        assert_eq!(serde_json::from_str::<TokenLog>(&written).unwrap(), log);
        log.treat(Treatment::Train);
        assert_eq!(log, plain);
        assert!(!serde_json::to_string(&log).unwrap().contains("treatment"));
    }

    #[test]
    fn a_record_whose_spans_do_not_fit_is_refused() {
        let read = |spans: &str, ids: &str, logprobs: &str| {
            let spans = spans.split_whitespace().map(|span| {
                let (start, end) = span.split_once('-').unwrap();
                format!(r#"{{"provenance":"policy","start":{start},"end":{end},"version":0}}"#)
            });
            let spans = spans.collect::<Vec<_>>().join(",");
            let text = format!(r#"{{"ids":{ids},"logprobs":{logprobs},"spans":[{spans}]}}"#);
            serde_json::from_str::<TokenLog>(&text)
        };
        assert!(read("0-1 1-3", "[1,2,3]", "[0,0,0]").unwrap().has_ids());
        assert!(!read("0-1 1-3", "[]", "[]").unwrap().has_ids());
        assert!(read("", "[]", "[]").unwrap().is_empty());
        for spans in ["1-3", "0-1 2-3", "0-2 1-3", "0-3 3-2", "0-0 0-3"] {
            let error = read(spans, "[1,2,3]", "[0,0,0]").unwrap_err().to_string();
            assert!(error.contains("does not begin where"), "{spans}: {error}");
        }
        for (spans, ids, logprobs) in [
            ("0-4", "[1,2,3]", "[0,0,0]"),
            ("0-3", "[1,2,3]", "[]"),
            ("0-3", "[]", "[0,0,0]"),
            ("", "[1]", "[0]"),
        ] {
            let error = read(spans, ids, logprobs).unwrap_err().to_string();
            assert!(error.contains("another number"), "{spans}: {error}");
        }
    }

    #[test]
    fn tokens_that_are_only_counted_have_authors_and_no_ids() {
        let mut log = TokenLog::default();
        assert!(log.is_empty() && log.has_ids());
        log.push_counted(3, Provenance::Prompt, None);
        log.push_counted(0, Provenance::Environment, None);
        log.push_counted(2, Provenance::Policy, Some(0));
        assert_eq!((log.len(), log.count(Provenance::Policy)), (5, 2));
        assert_eq!(log.loss_mask(), [false, false, false, true, true]);
        assert!(log.ids().is_empty() && log.logprobs().is_empty() && !log.has_ids());
        assert_eq!(log.spans().len(), 2);
    }
}
