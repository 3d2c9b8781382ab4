//! What an estimate counts, and what makes it smaller.

use super::*;
use crate::workers::KEPT_BYTES;

#[test]
fn a_workload_is_that_of_its_largest_batch_and_longest_step() {
    let mut work = Workload::default();
    let batch = |tokens, longest| BatchSize {
        tokens,
        longest,
        targets: tokens / 2,
    };
    work.grow([batch(10, 5), batch(30, 6)]);
    work.grow([batch(20, 20)]);
    assert_eq!(
        work,
        Workload {
            batch: batch(30, 6),
            micro_batches: 2,
            ..Workload::default()
        }
    );
}

fn plan(model: &ModelConfig, tokens: usize) -> MemoryPlan<'_> {
    MemoryPlan {
        model,
        base: Precision::Full,
        adapter: None,
        reference: false,
        file_bytes: 0,
        context: tokens,
        work: Workload {
            batch: BatchSize {
                tokens,
                longest: tokens,
                targets: tokens / 2,
            },
            micro_batches: 2,
            played_tokens: 0,
            kept_bytes: KEPT_BYTES,
        },
        workers: 1,
        engine: None,
        versions: 1,
        card_bytes: None,
        in_bf16: false,
        moments_in_8_bits: false,
        ranks: 1,
        sharded: false,
        updates: 1,
        critic: false,
        programs: 0,
    }
}

fn adapter(rank: usize) -> LoraConfig {
    let targets = crate::lora::Targets::AllLinear;
    LoraConfig {
        rank,
        alpha: 32.0,
        rank_stabilised: false,
        dropout: 0.0,
        targets,
        base: String::new(),
    }
}

#[test]
fn trained_weights_are_counted() {
    let model = ModelConfig::published("Qwen2.5-0.5B").unwrap();
    assert_eq!(plan(&model, 8).trained(), 494_032_768);
    // PEFT prints 8,798,208 trainable parameters for rank 16 on all linear maps of this model.
    let lora = adapter(16);
    assert_eq!(
        MemoryPlan {
            adapter: Some(&lora),
            ..plan(&model, 8)
        }
        .trained(),
        8_798_208
    );
}

#[test]
fn long_sequences_take_memory_by_their_length() {
    let model = ModelConfig::published("Qwen2.5-0.5B").unwrap();
    let lora = adapter(16);
    let peak = |tokens| {
        MemoryPlan {
            adapter: Some(&lora),
            ..plan(&model, tokens)
        }
        .estimate()
        .peak()
    };
    let steps = [8192, 12_288, 16_384].map(|tokens| peak(tokens + 4096) - peak(tokens));
    assert!(
        steps
            .iter()
            .all(|step| step.abs_diff(steps[0]) < steps[0] / 20),
        "{steps:?}"
    );
}

#[test]
fn what_is_said_to_help_helps() {
    let model = ModelConfig::published("Qwen2.5-0.5B").unwrap();
    let lora = adapter(16);
    let engine = |cache_tokens| EngineConfig {
        context: 1024,
        cache_tokens,
        step_tokens: 2048,
        sequences: 64,
        bf16: false,
    };
    let small = plan(&model, 1024);
    let work = Workload {
        played_tokens: 1 << 30,
        ..small.work
    };
    let run = |cache| MemoryPlan {
        engine: Some(engine(cache)),
        work,
        ..small.clone()
    };
    let needed = |plan: MemoryPlan<'_>| plan.estimate().needed();
    let full = needed(run(1 << 16));
    assert!(needed(run(1 << 12)) < full);
    let adapted = MemoryPlan {
        adapter: Some(&lora),
        ..run(1 << 16)
    };
    assert!(needed(adapted.clone()) < full);
    let half = needed(MemoryPlan {
        base: Precision::Half,
        ..adapted.clone()
    });
    assert!(half < needed(adapted.clone()));
    assert!(
        needed(MemoryPlan {
            base: Precision::Int8,
            ..adapted.clone()
        }) < half
    );
    let batch = BatchSize {
        tokens: 512,
        longest: 512,
        targets: 256,
    };
    assert!(
        needed(MemoryPlan {
            work: Workload { batch, ..work },
            ..adapted.clone()
        }) < needed(adapted)
    );
    // A mapped file is no need.
    let file = MemoryPlan {
        file_bytes: 1 << 40,
        ..run(1 << 16)
    };
    assert_eq!(needed(file.clone()), full);
    assert!(file.estimate().peak() > 1 << 40);
    let advice = run(1 << 16).estimate().advice();
    assert!(advice.contains("moments of AdamW"), "{advice}");
}

/// Totals that a second program computed from the shapes: all weights and adapters, tied and untied heads, each precision, with an
/// engine and without.
#[test]
fn estimates_equal_an_independent_sum() {
    let [qwen, llama, olmo] = ["Qwen2.5-0.5B", "Llama-3.2-1B", "OLMo-2-0425-1B"]
        .map(|name| ModelConfig::published(name).unwrap());
    let lora = adapter(16);
    let work = |tokens, longest, targets, micro_batches, played_tokens| Workload {
        batch: BatchSize {
            tokens,
            longest,
            targets,
        },
        micro_batches,
        played_tokens,
        kept_bytes: KEPT_BYTES,
    };
    let engine = |cache_tokens, step_tokens, sequences| {
        Some(EngineConfig {
            context: 4096,
            cache_tokens,
            step_tokens,
            sequences,
            bf16: false,
        })
    };
    let plans = [
        MemoryPlan {
            reference: true,
            file_bytes: 988_097_824,
            context: 1024,
            work: work(4096, 1024, 2000, 3, 1 << 30),
            workers: 2,
            engine: engine(1 << 16, 2048, 64),
            ..plan(&qwen, 0)
        },
        MemoryPlan {
            base: Precision::Int8,
            adapter: Some(&lora),
            context: 4096,
            work: work(8192, 4096, 6000, 1, 0),
            workers: 2,
            ..plan(&llama, 0)
        },
        MemoryPlan {
            base: Precision::Half,
            adapter: Some(&lora),
            context: 4096,
            work: work(100, 100, 90, 4, 5000),
            workers: 4,
            engine: engine(1 << 16, 2048, 64),
            ..plan(&llama, 0)
        },
        MemoryPlan {
            context: 300,
            work: work(300, 300, 100, 2, 1000),
            engine: engine(4096, 512, 600),
            ..plan(&olmo, 0)
        },
    ];
    let needed = plans.map(|plan| plan.estimate().needed());
    assert_eq!(
        needed,
        [18_098_131_456, 5_516_693_504, 8_045_998_080, 30_892_744_704]
    );
}

/// Peaks that the stub driver counts of a packed step in bf16 (`bench/device/run.sh`): 12 and 15 pages of 1,188 MiB, which
/// `bench/device/pages.py` finds too. Its driver takes nothing for itself.
#[test]
fn a_cards_estimate_is_near_the_peak_under_the_stub_driver() {
    for (layers, pages) in [(2, 12_u64), (4, 15)] {
        let model = ModelConfig {
            num_hidden_layers: layers,
            ..ModelConfig::published("Qwen2.5-3B").unwrap()
        };
        let (sequences, longest) = (16, 1024);
        let batch = BatchSize {
            tokens: sequences * longest,
            longest,
            targets: sequences * 410,
        };
        let estimate = MemoryPlan {
            work: Workload {
                batch,
                micro_batches: 1,
                ..Workload::default()
            },
            card_bytes: Some(143_771 << 20),
            in_bf16: true,
            ..plan(&model, longest)
        };
        let estimate = estimate.filling(143_771 << 20).estimate();
        let estimate = estimate.peak() - (1 << 30);
        let peak = pages * (1188 << 20);
        assert!(
            estimate.abs_diff(peak) < peak / 10,
            "{layers} layers: {estimate} for {peak}"
        );
    }
}

/// All layers where they fit, as many as fit, and none.
#[test]
fn as_many_layers_are_kept_as_there_is_room_for() {
    let model = ModelConfig::published("Qwen2.5-0.5B").unwrap();
    let lora = adapter(16);
    for card_bytes in [None, Some(80_000_000_000)] {
        for workers in [1, 2] {
            let run = MemoryPlan {
                adapter: Some(&lora),
                card_bytes,
                workers,
                ..plan(&model, 4096)
            };
            let needed = |plan: &MemoryPlan<'_>| plan.estimate().needed();
            let none = run.filling(0);
            assert_eq!(none.work.kept_bytes, KEPT_BYTES);
            assert_eq!(none.layers_kept(), [0, 24]);
            let all = run.filling(1 << 40);
            assert_eq!(all.layers_kept(), [24, 24]);
            let lines = all.estimate().table();
            assert!(
                lines.ends_with("# activations of 24 of 24 layers are kept"),
                "{lines}"
            );

            let (least, layer) = (needed(&none), all.work.kept_bytes / 24);
            let fits = |plan: &MemoryPlan<'_>, room: u64| match card_bytes {
                Some(_) => needed(plan) <= room - room / 6,
                None => 2 * needed(plan) <= least + room,
            };
            let mut found = std::collections::BTreeSet::new();
            for part in 0..40 {
                let room = least + (part << 28);
                let some = run.filling(room);
                let [kept, _] = some.layers_kept();
                assert!(kept == 0 || fits(&some, room), "{kept} layers in {room}");
                let mut more = some.clone();
                more.work.kept_bytes = (kept + 1) * layer;
                assert!(kept == 24 || !fits(&more, room), "{kept} layers in {room}");
                assert!(found.last().is_none_or(|&last| last <= kept), "{found:?}");
                found.insert(kept);
            }
            assert!(found.len() > 5, "{found:?}");
        }
    }
}

#[test]
fn what_a_card_holds_follows_from_how_updates_compute() {
    let model = ModelConfig::published("Qwen3-0.6B").unwrap();
    let lora = adapter(16);
    let engine = EngineConfig {
        context: 4096,
        cache_tokens: 1 << 16,
        step_tokens: 2048,
        sequences: 64,
        bf16: true,
    };
    let full = MemoryPlan {
        card_bytes: Some(80_000_000_000),
        in_bf16: true,
        engine: Some(engine),
        ..plan(&model, 4096)
    };
    let peak = |plan: &MemoryPlan<'_>| plan.estimate().peak();
    // After the first of several updates the engine's weights are no longer the learner's.
    let several = MemoryPlan {
        updates: 4,
        ..full.clone()
    };
    let copy = 2 * model.parameters() as u64;
    assert!(peak(&several) >= peak(&full) + copy);
    // A base in bf16 is widened where updates compute in f32.
    let adapted = MemoryPlan {
        adapter: Some(&lora),
        base: Precision::Half,
        ..full.clone()
    };
    let in_f32 = MemoryPlan {
        in_bf16: false,
        ..adapted.clone()
    };
    let lines = in_f32.estimate().table();
    assert!(lines.contains("the head in f32"), "{lines}");
    assert!(!adapted.estimate().table().contains("the head in f32"));
    assert!(peak(&adapted) < peak(&full));
}

#[test]
fn an_adapted_head_learns_and_has_its_change_beside_the_logits() {
    let [tied, model] = ["Qwen2.5-0.5B", "OLMo-2-0425-1B"].map(|name| {
        let model = ModelConfig::published(name).unwrap();
        assert_eq!(model.tie_word_embeddings, name == "Qwen2.5-0.5B");
        model
    });
    let (head, layers) = (
        LoraConfig {
            targets: crate::lora::Targets::Names(vec!["lm_head".to_owned()]),
            ..adapter(16)
        },
        adapter(16),
    );
    let engine = EngineConfig {
        context: 4096,
        cache_tokens: 1 << 12,
        step_tokens: 256,
        sequences: 64,
        bf16: true,
    };
    let run = |lora| MemoryPlan {
        adapter: Some(lora),
        engine: Some(engine),
        card_bytes: Some(80_000_000_000),
        in_bf16: true,
        ..plan(&model, 4096)
    };
    assert_eq!(run(&head).trained(), 16 * (2048 + 100_352));
    assert_eq!(head.of_head(&tied) + layers.of_head(&model), 0);
    let logits = |lora| {
        let estimate = run(lora).estimate();
        let parts = estimate.moments.iter().flat_map(|moment| &moment.parts);
        let of = |name: &str| {
            let named = parts.clone().filter(|part| part.name == name);
            named.map(|part| part.bytes).sum::<u64>()
        };
        [
            of("logits of the engine"),
            of("logits of a chunk"),
            of("what an adapter adds to them"),
        ]
    };
    let ([engine, chunk, none], [adapted, again, change]) = (logits(&layers), logits(&head));
    assert_eq!((engine, adapted), (64 * 100_352 * 4, 2 * engine));
    assert_eq!((again, none, change), (chunk, 0, chunk));
}

#[test]
fn every_version_in_play_has_an_engine() {
    let model = ModelConfig::published("Qwen2.5-0.5B").unwrap();
    let lora = adapter(16);
    let engine = EngineConfig {
        context: 1024,
        cache_tokens: 1 << 12,
        step_tokens: 256,
        sequences: 16,
        bf16: false,
    };
    let cache = engine.cache_tokens * KvCache::numbers_per_position(&model) * F32;
    for adapter in [None, Some(&lora)] {
        for card_bytes in [None, Some(80_000_000_000)] {
            let small = plan(&model, 256);
            let work = Workload {
                played_tokens: 1 << 30,
                ..small.work
            };
            let one = MemoryPlan {
                adapter,
                engine: Some(engine),
                card_bytes,
                work,
                ..small
            };
            let three = MemoryPlan {
                versions: 3,
                ..one.clone()
            };
            let older = |plan: &MemoryPlan<'_>| {
                let table = plan.estimate().table();
                table.contains("weights of steps before")
            };
            assert!(older(&three) && !older(&one));
            let more = three.estimate().needed() - one.estimate().needed();
            let least = 2 * (one.trained() * F32 + cache) as u64;
            assert!(least <= more && more < 2 * least, "{more} {least}");
        }
    }
}

#[test]
fn a_critic_takes_weights_and_moments_of_its_own() {
    let [tied, untied] = ["Qwen2.5-0.5B", "OLMo-2-0425-1B"].map(|name| {
        let model = ModelConfig::published(name).unwrap();
        assert_eq!(model.tie_word_embeddings, name == "Qwen2.5-0.5B");
        model
    });
    let lora = adapter(16);
    let tables = RopeTables::bytes(&tied, 8) as u64;
    let taken = |plan: &MemoryPlan<'_>| {
        let with = MemoryPlan {
            critic: true,
            ..plan.clone()
        };
        with.estimate().needed() - plan.estimate().needed()
    };
    let of = |model| taken(&plan(model, 8));
    // 4 bytes of weights and 8 of moments; a head of the vocabulary that is not the embedding is left out.
    assert_eq!(of(&tied), 12 * tied.parameters() as u64 + tables);
    let head = untied.vocab_size * untied.hidden_size;
    let tables = RopeTables::bytes(&untied, 8) as u64;
    let weights = (untied.parameters() - head) as u64;
    assert_eq!(of(&untied), 12 * weights + tables);
    // Beside an adapter the base is the policy's.
    let adapted = MemoryPlan {
        adapter: Some(&lora),
        ..plan(&tied, 8)
    };
    assert!(taken(&adapted) < 13 * adapted.trained() as u64);
    let on_card = MemoryPlan {
        card_bytes: Some(80_000_000_000),
        in_bf16: true,
        ..plan(&tied, 8)
    };
    // A copy in bf16 besides, and a sixteenth of all that for pages that are not filled.
    let expected = 14 * tied.parameters() as u64;
    let found = taken(&on_card);
    assert!(
        found > expected && found < expected / 10 * 11,
        "{found} {expected}"
    );
}

#[test]
fn moments_of_8_bits_are_a_quarter() {
    let model = ModelConfig::published("Qwen2.5-0.5B").unwrap();
    let wide = plan(&model, 8);
    let narrow = MemoryPlan {
        moments_in_8_bits: true,
        ..wide.clone()
    };
    let saved = wide.estimate().needed() - narrow.estimate().needed();
    // Two moments of 4 bytes; two of a byte and a scale for 256 of them.
    let all = model.parameters() as u64;
    assert!(
        saved.abs_diff(8 * all - 2 * (all + all / 64)) < 64,
        "{saved}"
    );
    let [wide, narrow] = [wide, narrow].map(|plan| {
        let on_card = MemoryPlan {
            card_bytes: Some(80_000_000_000),
            ..plan
        };
        on_card.estimate().needed()
    });
    // And a sixteenth of it, of pages that are not filled.
    let on_card = wide - narrow;
    assert!(on_card.abs_diff(saved + saved / 16) < 64, "{on_card}");
}

#[test]
fn moments_that_are_sharded_are_divided_by_the_ranks() {
    let model = ModelConfig::published("Qwen2.5-0.5B").unwrap();
    let all = model.parameters() as u64;
    for (critic, optimizers) in [(false, 1), (true, 2)] {
        let alone = MemoryPlan {
            critic,
            ..plan(&model, 8)
        };
        let shared = MemoryPlan {
            ranks: 4,
            sharded: true,
            ..alone.clone()
        };
        // 8 bytes for each weight, of which three quarters are elsewhere.
        let saved = alone.estimate().needed() - shared.estimate().needed();
        assert_eq!(saved, optimizers * 6 * all);
    }
    let [alone, shared] = [1, 4].map(|ranks| {
        let on_card = MemoryPlan {
            ranks,
            sharded: true,
            card_bytes: Some(80_000_000_000),
            ..plan(&model, 8)
        };
        on_card.estimate().needed()
    });
    // A sixteenth of it is pages that are not filled.
    let saved = alone - shared;
    assert!(saved >= 6 * all && saved < 7 * all, "{saved}");
}

/// Weights and moments of before a step, which the first of several ranks keeps for a checkpoint: on its own card, and once in a process that
/// several ranks share.
#[test]
fn the_first_of_several_ranks_holds_weights_and_moments_twice() {
    let model = ModelConfig::published("Qwen2.5-0.5B").unwrap();
    let needed = |ranks, critic, card_bytes| {
        let plan = MemoryPlan {
            card_bytes,
            ranks,
            critic,
            ..plan(&model, 8)
        };
        plan.estimate().needed()
    };
    let all = 12 * model.parameters() as u64;
    for (critic, learners) in [(false, 1), (true, 2)] {
        let card = Some(80_000_000_000);
        let more = needed(2, critic, card) - needed(1, critic, card);
        // A sixteenth of it is pages that are not filled.
        let expected = learners * all / 16 * 17;
        assert!(more.abs_diff(expected) < 64, "{more} {expected}");
        assert_eq!(needed(4, critic, card), needed(2, critic, card));
        let more = needed(2, critic, None) - needed(1, critic, None);
        assert_eq!(more, learners * all);
    }
    let first = MemoryPlan {
        ranks: 3,
        ..plan(&model, 8)
    };
    let [first, other] = [first, plan(&model, 8)].map(|plan| plan.estimate());
    assert_eq!(
        first.of_ranks(3),
        [
            first.needed() + 2 * other.needed(),
            first.peak() + 2 * other.peak()
        ]
    );
    assert_eq!(first.of_ranks(1), [first.needed(), first.peak()]);
}
