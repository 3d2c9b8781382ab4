//! Tests of what a config of updates may say, and of a learner's room.

use super::*;
use crate::tests::common::problem::{ENGINE, checkpoint};

#[test]
fn what_cannot_go_together_is_named() {
    let read = |text: &str| toml::from_str::<UpdateConfig>(text).unwrap();
    let gain = "[objective]\nalgorithm = \"grpo\"\ncredit.information_gain.gamma = 1.0\n";
    let potential = "[objective]\nadvantage = \"dr_grpo\"\n[objective.credit.step_potential]\nsaturation = 0.9\npenalty = 0.8\nweight = 0.5\n";
    let lead = "answer_lead = \"<answer>\"\n";
    let anchored = "[objective.entropy.anchored]\nweight = 0.005\ntop_p = 0.8\npeaks = 0.2\n";
    let ppo = "[objective]\nalgorithm = \"ppo\"\n";
    let sampler = "old_logprobs = \"sampler\"\n";
    let a_lol = "[objective]\nalgorithm = \"a_lol\"\n";
    let lipo = "[objective]\nalgorithm = \"lipo\"\n";
    for (text, expected) in [
        (gain.to_owned(), "set answer_lead"),
        (lead.to_owned(), "answer_lead is read by"),
        (potential.to_owned(), "set answer_lead"),
        (
            [lead, &potential.replace("0.8", "1.5")].concat(),
            "credit.step_potential.penalty is 1.5",
        ),
        (
            "[objective.rank_shaping]\nclip = 1.0".to_owned(),
            "rank_shaping.clip is 1",
        ),
        (
            "[objective.rank_shaping]\npositions = 1".to_owned(),
            "rank_shaping.positions is 1",
        ),
        (
            "unlearned_tag = \"<i>\"".to_owned(),
            "unlearned_tag must be",
        ),
        (
            "[critic]\nclip = 0.3".to_owned(),
            "critic is read by credit.gae alone",
        ),
        ([ppo, "[critic]\nclip = 0.0"].concat(), "critic: clip is 0"),
        (
            [ppo, "[critic]\nlearning_rate = -1.0"].concat(),
            "critic: learning_rate must be 0 or more",
        ),
        (
            [sampler, anchored].concat(),
            "objective.entropy.anchored needs entropies",
        ),
        (
            anchored.replace("0.8", "0.0"),
            "entropy.anchored.top_p is 0",
        ),
        (
            ["[objective.entropy]\ntop_share = 0.2\n", anchored].concat(),
            "entropy.top_share ranks tokens by entropies",
        ),
        (
            ["old_logprobs = \"trainer\"\n", a_lol].concat(),
            "old_logprobs = \"trainer\" stands in the place of who recorded",
        ),
        (
            ["epochs = 2\n", lipo].concat(),
            "epochs is 2: the advantage lipo",
        ),
        (
            ["minibatches = 3\n", lipo].concat(),
            "minibatches is 3: the advantage lipo",
        ),
        (
            [a_lol, "entropy.top_share = 0.5"].concat(),
            "objective.entropy.top_share has the trainer compute",
        ),
        (
            "[objective]\nsigns = { positive = 1.0, negative = 1.0, overconfident = -1.0 }"
                .to_owned(),
            "signs.overconfident is -1",
        ),
    ] {
        let error = read(&text).check().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    for text in [
        [lead, gain].concat(),
        [lead, potential].concat(),
        "[objective.rank_shaping]".to_owned(),
        anchored.to_owned(),
        [
            "[objective.entropy]\ntop_share = 0.2\n",
            &anchored.replace("0.8", "1.0"),
        ]
        .concat(),
        "unlearned_tag = \"information\"".to_owned(),
        ppo.to_owned(),
        [ppo, "[critic]\nhead_start = 20"].concat(),
        [sampler, a_lol].concat(),
        lipo.to_owned(),
    ] {
        assert!(read(&text).check().is_ok(), "{text}");
    }
    assert_eq!(
        read(anchored).old_logprobs_where(true),
        OldLogprobs::Trainer
    );
    // Off the processor as well, its ratio is to who recorded the rollouts.
    assert_eq!(read(a_lol).old_logprobs_where(false), OldLogprobs::Sampler);
    assert_eq!(read(ppo).old_logprobs_where(false), OldLogprobs::Trainer);
}

#[test]
fn recorded_rollouts_need_something_that_weighs_who_wrote_them() {
    let checked = |trainer: bool, text: &str| {
        let update: UpdateConfig = toml::from_str(text).unwrap();
        let old_logprobs = Some(update.old_logprobs_where(!trainer));
        let update = UpdateConfig {
            old_logprobs,
            ..update
        };
        update.check_recorded()
    };
    for (trainer, text, weighs) in [
        (false, "", true),
        (true, "", false),
        (
            true,
            "[objective]\nloss = { gspo = { low = 3e-4, high = 4e-4 } }",
            false,
        ),
        (true, "[objective]\nalgorithm = \"a_lol\"", true),
        (true, "[objective]\nalgorithm = \"lipo\"", true),
        (true, "[objective]\nloss = \"reinforce\"", true),
        (
            true,
            "[objective]\nloss = { rollout_is = { low = 0.2, high = 0.2 } }",
            true,
        ),
        (true, "old_logprobs = \"sampler\"", true),
        (
            true,
            "[objective.correction]\nlevel = \"token\"\nbound = { truncate = { cap = 2.0 } }",
            true,
        ),
        (false, "[objective]\nentropy.top_share = 0.2", false),
    ] {
        let found = checked(trainer, text);
        assert_eq!(found.is_ok(), weighs, "{text}: {found:?}");
        if let Err(error) = found {
            let fix = if text.contains("top_share") {
                "or remove grpo.update.objective.entropy.top_share"
            } else {
                "set grpo.update.old_logprobs = \"sampler\""
            };
            assert!(error.to_string().contains(fix), "{error}");
        }
    }
}

#[test]
fn a_learner_makes_room_for_no_more_tokens_than_the_model_reads() {
    let longer = EngineConfig {
        context: 4096,
        ..ENGINE
    };
    for (engine, room) in [(ENGINE, 220), (longer, 256)] {
        let learner = Learner::new(
            checkpoint(1),
            UpdateConfig::default(),
            engine,
            Workers::new(1),
        );
        assert_eq!(learner.context, room);
    }
}
