//! Text of the policy's own that it reads and does not learn from.

use std::ops::Range;

use forage_contracts::Tokenizer;

use crate::sample::Sample;

impl Sample {
    /// Takes the tokens between `<tag>` and `</tag>` out of what is learned from, turn by turn; the tags are learned, and so is a token
    /// that a tag shares with the text inside. What is not closed reaches to the end of its turn.
    pub(crate) fn unlearn(&mut self, tag: &str, tokenizer: &dyn Tokenizer) {
        let tags = [format!("<{tag}>"), format!("</{tag}>")];
        let mut kept = Vec::with_capacity(self.logprobs.len());
        let mut start = 0;
        for tokens in &mut self.turns {
            let targets = &self.sequence.targets[start..start + *tokens];
            let ids: Vec<u32> = targets.iter().map(|&at| self.sequence.ids[at]).collect();
            let left_out = inside(&ids, &tags, tokenizer);
            let before = kept.len();
            let learned = |place: &usize| !left_out.iter().any(|range| range.contains(place));
            kept.extend((0..ids.len()).filter(learned).map(|place| start + place));
            start += *tokens;
            *tokens = kept.len() - before;
        }
        if kept.len() == self.logprobs.len() {
            return;
        }
        self.logprobs = pick(&self.logprobs, &kept);
        self.sequence.targets = pick(&self.sequence.targets, &kept);
        if !self.sequence.temperatures.is_empty() {
            self.sequence.temperatures = pick(&self.sequence.temperatures, &kept);
        }
    }
}

fn pick<T: Copy>(values: &[T], kept: &[usize]) -> Vec<T> {
    kept.iter().map(|&place| values[place]).collect()
}

/// The tokens that lie wholly between the tags, in each pair of them.
fn inside(
    ids: &[u32],
    [open, close]: &[String; 2],
    tokenizer: &dyn Tokenizer,
) -> Vec<Range<usize>> {
    let text = tokenizer.decode(ids);
    // The bytes that so many first tokens have of the text: of a letter that is cut, none, whatever stands for it.
    let covered = |count: usize| {
        let first = tokenizer.decode(&ids[..count]);
        let pairs = first.bytes().zip(text.bytes());
        pairs.take_while(|(own, all)| own == all).count()
    };
    // The fewest first tokens that have so many bytes of it.
    let fewest = |bytes: usize| {
        let (mut low, mut high) = (0, ids.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if covered(middle) < bytes {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    };
    let (mut found, mut from) = (Vec::new(), 0);
    while let Some(at) = text[from..].find(open.as_str()) {
        let begin = from + at + open.len();
        let closed = text[begin..].find(close.as_str()).map(|at| begin + at);
        let first = fewest(begin);
        let last = closed.map_or(ids.len(), |end| fewest(end + 1) - 1);
        if first < last {
            found.push(first..last);
        }
        let Some(end) = closed else { break };
        from = end + close.len();
    }
    found
}

#[cfg(test)]
mod tests {
    use forage_contracts::ByteTokenizer;

    use super::*;
    use crate::sequence::Sequence;

    #[test]
    fn what_stands_between_the_tags_is_not_learned() {
        // One token a byte, after one of the prompt; the second turn leaves its tag open.
        let turns = ["a<i>bc</i>d<i></i>", "<i>ef"];
        let text: String = ["?"].into_iter().chain(turns).collect();
        let count = text.len() - 1;
        let mut sample = Sample {
            sequence: Sequence {
                ids: ByteTokenizer.encode(&text),
                targets: (1..=count).collect(),
                temperatures: vec![1.0; count],
                ..Sequence::default()
            },
            logprobs: (0..count).map(|place| -(place as f32)).collect(),
            turns: turns.map(str::len).to_vec(),
            turn_rewards: vec![0.5, 0.0],
            tree: 0,
            reward: 1.0,
            accuracy: 1.0,
            masked: false,
            unpaid: false,
            gold: String::new(),
        };
        let whole = sample.clone();
        sample.unlearn("information", &ByteTokenizer);
        assert_eq!(sample, whole);
        sample.unlearn("i", &ByteTokenizer);
        let kept = sample.sequence.targets.iter();
        let ids: Vec<u32> = kept.map(|&at| sample.sequence.ids[at]).collect();
        assert_eq!(ByteTokenizer.decode(&ids), "a<i></i>d<i></i><i>");
        assert_eq!(sample.turns, [16, 3]);
        assert_eq!(sample.logprobs.len(), 19);
        assert_eq!(sample.sequence.temperatures.len(), 19);
        // "bc" were the places 4 and 5.
        assert_eq!(sample.logprobs[3..5], [-3.0, -6.0]);
        assert_eq!(sample.turn_rewards, [0.5, 0.0]);
    }

    #[test]
    fn a_letter_of_several_tokens_before_the_closing_tag_is_not_learned() {
        let tags = ["<i>", "</i>"].map(str::to_owned);
        let found = inside(&ByteTokenizer.encode("<i>aé</i>b"), &tags, &ByteTokenizer);
        assert_eq!((found.len(), found.first()), (1, Some(&(3..6))));
    }
}
