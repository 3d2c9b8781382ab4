//! Synthetic episodes.

use std::collections::BTreeMap;

use forage_contracts::environment::TurnKind;
use forage_contracts::policy::Finish;
use forage_contracts::{Boundary, Ending, Episode, Limit, Score, Split, Task, TokenLog, Turn};
use forage_eval::Bootstrap;

pub(crate) const SETTINGS: Bootstrap = Bootstrap {
    resamples: 2000,
    confidence: 0.95,
    seed: 7,
};

pub(crate) fn task(index: usize) -> Task {
    Task {
        golds: vec!["Varnholt".into(), "Town of Varnholt".into()],
        hops: 1 + (index % 3) as u8,
        data_source: "world".into(),
        split: Split::Test,
        ..Task::new(
            format!("q{index:04}"),
            format!("In which town was the founder of works number {index} born?"),
        )
    }
}

fn turn(policy: &str, kind: TurnKind, observation: &str) -> Turn {
    Turn {
        policy: policy.into(),
        finish: Finish::Stop,
        kind,
        observation: observation.into(),
        reward: 0.0,
    }
}

/// Searches twice for the same thing, says one thing nobody understands, then answers, rightly or not.
pub(crate) fn episode(index: usize, correct: bool) -> Episode {
    let answer = if correct { "Varnholt" } else { "Eastmere" };
    let search = |query: &str| TurnKind::search(query, vec!["p1".into()]);
    let turns = vec![
        turn(
            "I need the founder.\n<search>founder of works</search>",
            search("founder of works"),
            FOUND,
        ),
        turn(
            "<search>Founder  of works</search>",
            search("Founder  of works"),
            FOUND,
        ),
        turn(
            "hm",
            TurnKind::invalid("no tag"),
            "\nWrite a search or an answer.\n",
        ),
        turn(
            &format!("<answer>{answer}</answer>"),
            TurnKind::answer(answer),
            "",
        ),
    ];
    let prompt = "Answer the question. You may search.\nQuestion: ...".to_owned();
    let mut tokens = TokenLog::with_prompt(&ids(&prompt));
    for turn in &turns {
        let written = ids(&turn.policy);
        tokens.push_policy(&written, &vec![-0.1; written.len()], 3, None);
        tokens.push_environment(&ids(&turn.observation));
    }
    tokens.push_forced(&ids("</answer>"));
    let value = f32::from(u8::from(correct));
    let parts = [
        ("em", value),
        ("sub_em", value),
        ("f1", value.max(0.2)),
        ("format", 1.0),
        ("retrieval", 1.0),
    ];
    let parts: BTreeMap<String, f32> = parts.map(|(name, part)| (name.to_owned(), part)).into();
    let score = Some(Score {
        total: value,
        parts,
        ..Score::default()
    });
    Episode {
        group: index as u64,
        prompt,
        turns,
        tokens,
        score,
        ..Episode::new(task(index))
    }
}

const FOUND: &str = "\n<information>Doc 1 (Title: \"Works\") The works were founded by Ana Brel of Varnholt.</information>\n";

pub(crate) fn truncated(index: usize) -> Episode {
    Episode {
        ending: Ending::Truncated {
            limit: Limit::Turns,
        },
        ..episode(index, false)
    }
}

pub(crate) fn infra(index: usize) -> Episode {
    let ending = Ending::Infra {
        boundary: Boundary::Retriever,
        message: "connection refused".into(),
    };
    Episode {
        ending,
        score: None,
        ..episode(index, false)
    }
}

/// `count` questions of which those with `correct(index)` are answered rightly.
pub(crate) fn episodes(count: usize, correct: impl Fn(usize) -> bool) -> Vec<Episode> {
    (0..count)
        .map(|index| episode(index, correct(index)))
        .collect()
}

/// A token for each byte, but none of a script's.
fn ids(text: &str) -> Vec<u32> {
    text.bytes().map(|byte| u32::from(byte) + 1).collect()
}

pub(crate) fn decode(ids: &[u32]) -> String {
    ids.iter()
        .filter_map(|id| char::from_u32(id.checked_sub(1)?))
        .collect()
}
