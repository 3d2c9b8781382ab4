//! Episodes that leave others of their group after some turns.

use std::sync::Arc;

use forage_contracts::policy::{Completion, Finish, GenerateRequest, Policy, PolicyError};
use forage_contracts::{Branch, ByteTokenizer, Ending, Episode, Tokenizer};

use super::common::{Down, Library, factory, jobs, library, rollout, settings, task};
use async_trait::async_trait;
use forage_env::Branching;
use forage_env::rollout::Job;
use forage_env::search_r1::SearchR1Settings;
use forage_retriever::Retriever;
use rand::RngExt;

/// Searches for a number that is drawn, and answers in one turn of eight.
struct Dice;

#[async_trait]
impl Policy for Dice {
    fn version(&self) -> u64 {
        7
    }

    async fn generate(&self, request: GenerateRequest) -> Result<Completion, PolicyError> {
        let drawn: u16 = request.seed.rng().random();
        let text = match drawn % 8 {
            0 => format!("<answer>{drawn}</answer>"),
            _ => format!("<search>Orlen {drawn}</search>"),
        };
        let tokens = ByteTokenizer.encode(&text);
        let logprobs = vec![-f32::from(drawn) / 65_536.0; tokens.len()];
        Ok(Completion {
            tokens,
            logprobs,
            finish: Finish::Stop,
            version: 7,
        })
    }
}

/// The published weights.
const FRONTIER: Branching = Branching::Frontier {
    value: 0.4,
    uncertainty: 0.4,
    depth: 0.01,
    floor: 0.1,
};

fn tree(size: u64, roots: u64, branching: Branching) -> Vec<Job> {
    let job = |(member, job)| Job {
        branches_from: (member >= roots).then(|| ((member % roots) as usize, branching)),
        temperature: None,
        ..job
    };
    (0..).zip(jobs(task(), size)).map(job).collect()
}

async fn played(
    retriever: Arc<dyn Retriever>,
    size: u64,
    roots: u64,
    in_flight: usize,
) -> Vec<Episode> {
    grown(retriever, tree(size, roots, Branching::Random), in_flight).await
}

async fn grown(retriever: Arc<dyn Retriever>, jobs: Vec<Job>, in_flight: usize) -> Vec<Episode> {
    let settings = SearchR1Settings {
        max_generations: 6,
        ..settings()
    };
    rollout(Arc::new(Dice), factory(settings, retriever))
        .run_bounded(jobs, in_flight, &|_| {})
        .await
}

#[tokio::test]
async fn a_branch_shares_tokens_and_turns_up_to_where_it_leaves() {
    let episodes = played(library(), 40, 4, usize::MAX).await;
    let mut left_at = [0; 6];
    for (member, episode) in (0..).zip(&episodes) {
        let Some(Branch {
            member: root,
            turns,
            root: None,
        }) = episode.branch
        else {
            assert!(member < 4 && episode.branch.is_none());
            continue;
        };
        left_at[turns] += 1;
        assert_eq!(root, member % 4);
        let root = &episodes[root as usize];
        assert!(
            turns < root.turns.len().max(1),
            "the last turn is never shared"
        );
        assert!(turns > 0 || root.turns.len() == 1);
        assert_eq!(episode.turns[..turns], root.turns[..turns]);
        assert_ne!(
            episode.turns.get(turns),
            root.turns.get(turns),
            "drawn anew"
        );
        let common = episode
            .tokens
            .ids()
            .iter()
            .zip(root.tokens.ids())
            .take_while(|(own, other)| own == other)
            .count();
        let shared = episode
            .tokens
            .spans()
            .iter()
            .filter(|span| span.end <= common);
        assert!(
            shared.clone().count() > 2 * turns,
            "prompt, and a completion with its observation per turn"
        );
        for span in shared {
            assert_eq!(
                episode.tokens.logprobs()[span.start..span.end],
                root.tokens.logprobs()[span.start..span.end]
            );
        }
        assert!(episode.score.is_some() && episode.tokens.ids().len() > common);
    }
    assert!(
        left_at[1..].iter().filter(|&&count| count > 0).count() > 2,
        "{left_at:?}"
    );
}

#[tokio::test]
async fn branches_leave_the_best_of_those_from_the_beginning() {
    let best = |least| tree(24, 3, Branching::Best { alpha: 0.5, least });
    let all = grown(library(), best(0.0), usize::MAX).await;
    assert_eq!(all, grown(library(), best(0.0), 1).await);
    let last = all[0].turns.len();
    for episode in &all[3..] {
        let branch = episode.branch.as_ref().unwrap();
        // Nobody is right: the first of equals.
        assert_eq!(branch.member, 0);
        assert!(branch.turns < last && (branch.turns > 0 || last == 1));
    }
    // Where nobody earned enough all begin at the question.
    for episode in &grown(library(), best(0.9), usize::MAX).await[3..] {
        assert_eq!(episode.branch.as_ref().unwrap().turns, 0);
    }
}

#[tokio::test]
async fn trees_are_the_same_in_any_order_and_with_one_episode_at_a_time() {
    let all = played(library(), 24, 3, usize::MAX).await;
    assert_eq!(all, played(library(), 24, 3, 1).await);
    // The roots are those of a group of chains.
    assert_eq!(all[..3], played(library(), 3, 3, 2).await);
}

#[tokio::test]
async fn where_a_root_is_lost_its_branches_begin_anew() {
    let down = played(Arc::new(Down), 6, 2, usize::MAX).await;
    assert!(down.iter().all(|episode| episode.ending.is_infra()
        || episode.branch.is_none_or(|branch| branch.turns == 0)));
}

#[tokio::test]
async fn the_frontier_grows_one_tree_in_which_branches_are_left_too() {
    let episodes = grown(library(), tree(16, 2, FRONTIER), usize::MAX).await;
    assert_eq!(
        episodes,
        grown(library(), tree(16, 2, FRONTIER), 1).await,
        "in any order"
    );
    assert_eq!(episodes[..2], played(library(), 2, 2, 2).await);
    let mut left = Vec::new();
    for (member, episode) in (0..).zip(&episodes) {
        let Some(branch) = episode.branch else {
            assert!(member < 2);
            continue;
        };
        assert!(branch.member < member && branch.tree() < 2);
        let other = &episodes[branch.member as usize];
        let tree = other.branch.map_or(other.member, Branch::tree);
        assert_eq!((branch.tree(), episode.seed), (tree, other.seed));
        assert_eq!(
            branch.root.is_some(),
            other.branch.is_some(),
            "the tree is named where the other is a branch"
        );
        assert_eq!(
            episode.turns[..branch.turns],
            other.turns[..branch.turns],
            "shared"
        );
        left.push((branch.member, branch.turns));
    }
    // Of the states of both roots each is left once before one is left again.
    let states = |episode: &Episode| episode.turns.len().saturating_sub(1);
    let (roots, unique) = (
        episodes[..2].iter().map(states).sum::<usize>(),
        left.iter().collect::<std::collections::BTreeSet<_>>().len(),
    );
    assert!(unique >= roots.min(left.len()), "{left:?}");
    assert!(left.iter().any(|&(member, _)| member >= 2), "{left:?}");
}

/// Finds something else each time.
struct Fickle(std::sync::atomic::AtomicUsize);

#[async_trait]
impl Retriever for Fickle {
    fn fingerprint(&self) -> forage_retriever::Fingerprint {
        forage_retriever::Fingerprint("fickle".to_owned())
    }

    async fn search(
        &self,
        queries: &[forage_retriever::Query],
        k: usize,
    ) -> Result<Vec<Vec<forage_retriever::Hit>>, forage_retriever::RetrieverError> {
        let calls = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let text: &'static str = format!("Orlen {calls}").leak();
        Library(vec![("Orlen", text)]).search(queries, k).await
    }
}

#[tokio::test]
async fn an_environment_that_does_not_repeat_itself_is_a_fault() {
    let episodes = played(Arc::new(Fickle(0.into())), 12, 3, usize::MAX).await;
    let faults = episodes.iter().filter_map(|episode| match &episode.ending {
        Ending::Infra { message, .. } => Some(message.as_str()),
        _ => None,
    });
    let faults: Vec<&str> = faults.collect();
    assert!(
        !faults.is_empty() && faults.iter().all(|fault| fault.contains("led elsewhere")),
        "{faults:?}"
    );
}
