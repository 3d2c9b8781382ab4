//! What must not matter: the cut into micro-batches, a shift of all rewards, credit by turns where there is nothing to tell apart.

use proptest::prelude::*;

use super::*;

fn random_row() -> impl Strategy<Value = Row> {
    let token = (-5.0_f32..-0.01, -0.5_f32..0.5, -0.5_f32..0.5, -0.5_f32..0.5);
    (0_u64..3, -2.0_f32..2.0, prop::collection::vec(token, 0..6)).prop_map(
        |(prompt, advantage, tokens)| Row {
            prompt,
            logprobs: tokens.iter().map(|token| token.0).collect(),
            proximal: tokens.iter().map(|token| token.0 + token.1).collect(),
            sampler: tokens.iter().map(|token| token.0 + token.2).collect(),
            reference: tokens.iter().map(|token| token.0 + token.3).collect(),
            advantages: vec![advantage; tokens.len()],
            entropies: tokens.iter().map(|token| -token.0).collect(),
            sentences: vec![1; tokens.len()],
        },
    )
}

/// Groups of episodes with one state per turn; scores differ within each.
fn random_groups(most_turns: usize) -> impl Strategy<Value = Vec<Vec<Played>>> {
    let turns = prop::collection::vec(1_usize..4, 1..=most_turns);
    let group = prop::collection::vec((0_u8..10, turns), 2..5).prop_map(|episodes| {
        let episodes = episodes.into_iter().enumerate();
        let played = episodes.map(|(index, (reward, turns))| Played {
            reward: f32::from(reward) + index as f32 * 10.0,
            turn_rewards: vec![0.0; turns.len()],
            states: (0..turns.len())
                .map(|turn| vec![index as u32, turn as u32])
                .collect(),
            tree: index as u64,
            turns,
        });
        played.collect()
    });
    prop::collection::vec(group, 1..4)
}

fn assert_equal(found: &[Vec<Vec<f32>>], expected: &[Vec<Vec<f32>>], what: &str) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
        close(found, expected, what);
    }
}

proptest! {
    #[test]
    fn without_rewards_of_turns_credit_by_turn_is_that_of_the_outcome(groups in random_groups(4)) {
        let whitened = algorithm("reinforce_pp");
        let to_go = Recipe { credit: Credit::RewardToGo { gamma: 1.0 }, ..whitened };
        assert_equal(&learned(&to_go, &groups), &learned(&whitened, &groups), "reward_to_go");
        // Nobody else read what a turn read, so only whole episodes are compared.
        let outcome = algorithm("grpo");
        let states = Recipe { credit: Credit::Gigpo { gamma: 1.0, weight: 1.0 }, ..outcome };
        assert_equal(&learned(&states, &groups), &learned(&outcome, &groups), "gigpo");
        // Every episode is a tree of its own.
        let trees = Recipe { credit: Credit::Tree, ..outcome };
        assert_equal(&learned(&trees, &groups), &learned(&outcome, &groups), "tree");
    }

    #[test]
    fn with_one_turn_each_process_supervision_is_that_of_the_outcome(groups in random_groups(1)) {
        let outcome = algorithm("grpo");
        let process = Recipe { credit: Credit::ProcessSupervision, ..outcome };
        assert_equal(&learned(&process, &groups), &learned(&outcome, &groups), "process_supervision");
    }

    #[test]
    fn the_cut_into_micro_batches_does_not_matter(rows in prop::collection::vec(random_row(), 1..8), micro in 1_usize..8) {
        let kl = Some(KlPenalty { estimator: KlEstimator::LowVar, coefficient: 0.1, unbiased: true, in_reward: false });
        let correction = Some(Correction::tis_token(1.2));
        let aggregations = [
            Aggregation::TokenMean,
            Aggregation::SeqMeanTokenMean,
            Aggregation::SeqMeanTokenSum,
            Aggregation::DrGrpo { length: 6 },
            Aggregation::PromptMean,
            Aggregation::Sum,
        ];
        for (name, aggregation) in LOSSES.iter().zip(aggregations.iter().cycle()) {
            let recipe = Recipe { kl, correction, aggregation: *aggregation, ..recipe(loss(name)) };
            let (whole, whole_gradients, whole_stats) = step(&recipe, &rows, rows.len());
            let (cut, cut_gradients, cut_stats) = step(&recipe, &rows, micro);
            prop_assert!(whole.is_finite() && (whole - cut).abs() <= 1e-12 * whole.abs().max(1.0));
            prop_assert_eq!(whole_gradients, cut_gradients);
            prop_assert_eq!(whole_stats.correction, cut_stats.correction);
            prop_assert_eq!(whole_stats.bounded, cut_stats.bounded);
        }
    }

    #[test]
    fn a_shift_of_all_rewards_changes_no_advantage(rewards in prop::collection::vec(0_u8..10, 2..12), shift in 1_u8..10) {
        let rewards: Vec<f32> = rewards.into_iter().map(f32::from).collect();
        let shifted: Vec<f32> = rewards.iter().map(|reward| reward + f32::from(shift)).collect();
        let tokens: Vec<usize> = (1..=rewards.len()).collect();
        let shifts = vec![0.0; rewards.len()];
        for name in "grpo grpo_population dr_grpo batch_std rloo pass_k opo rf_pp_baseline reinforce_pp".split(' ') {
            let found = advantage(name).of_group(&Group { rewards: &rewards, tokens: &tokens, shifts: &shifts });
            match (found, advantage(name).of_group(&Group { rewards: &shifted, tokens: &tokens, shifts: &shifts })) {
                (GroupOutcome::Learn(found), GroupOutcome::Learn(moved)) => close(&moved, &found, name),
                (found, moved) => prop_assert_eq!(found, moved),
            }
        }
    }

    #[test]
    fn weights_of_a_mean_sum_to_one(tokens in prop::collection::vec(1_usize..50, 1..10), prompts in 1_u64..4) {
        let prompts: Vec<u64> = (0..tokens.len() as u64).map(|row| row % prompts).collect();
        for aggregation in [Aggregation::TokenMean, Aggregation::SeqMeanTokenMean, Aggregation::PromptMean] {
            let weights = aggregation.weights(&tokens, &prompts);
            let sum: f64 = weights.iter().zip(&tokens).map(|(&weight, &count)| f64::from(weight) * count as f64).sum();
            prop_assert!((sum - 1.0).abs() < 1e-5);
        }
    }
}
