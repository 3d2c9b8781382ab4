//! Shards: every number is one rank's, and what ranks make of theirs is what one process makes of all.

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use burn::tensor::{DType, Device, Tensor};
use forage_contracts::seed::Seed;
use rand::RngExt;

use super::{LONG, together};
use crate::grads::NamedGrads;
use crate::model::{Decoder, ModelConfig};
use crate::optim::{AdamW, AdamWConfig};
use crate::ranks::{Cut, Ranks, Shard, share};
use crate::tests::common::parameters;
use crate::tests::common::problem::checkpoint;
use crate::weights::Checkpoint;

/// The shard of one of so many ranks.
fn shard(rank: usize, size: usize) -> Shard {
    let mut ranks = Ranks::alone();
    (ranks.rank, ranks.size) = (rank, size);
    ranks.shard()
}

#[test]
fn every_number_is_one_ranks_and_all_have_as_many() {
    for size in 1..=5 {
        for unit in [1, 256] {
            for count in [0, 1, 2, 7, 255, 256, 257, 5000, 100_000] {
                let cut = Cut { count, unit };
                let mut next = 0;
                let mut units = Vec::new();
                for rank in 0..size {
                    let own = shard(rank, size).own(cut);
                    assert_eq!(own, shard(0, size).of(rank, cut));
                    assert_eq!(own.start, next, "{count} {unit}: {rank} of {size}");
                    assert!(own.end.is_multiple_of(unit) || own.end == count);
                    units.push(own.len().div_ceil(unit));
                    next = own.end;
                }
                assert_eq!(next, count);
                let (least, most) = (units.iter().min(), units.iter().max());
                assert!(*most.unwrap() <= least.unwrap() + 1, "{units:?}");
            }
        }
    }
}

#[test]
fn shares_of_all_ranks_come_to_all() {
    let number = |rank: usize, place: usize| {
        f32::from_bits(0x3f80_0000 + u32::try_from(rank * 700_000 + place).unwrap())
    };
    let of = |rank, count| -> Vec<f32> { (0..count).map(|place| number(rank, place)).collect() };
    for size in 2..=4 {
        // Several pieces, a part of one, nothing, and a number.
        let counts = &[600_000, 1000, 0, 1][..size];
        let found = together(size, LONG, |ranks| {
            let own = of(ranks.rank(), counts[ranks.rank()]);
            let mut coming = ranks.all_gather(own, counts.to_vec());
            let mut all = vec![Vec::new(); size];
            for part in 0..7 {
                for (rank, &count) in counts.iter().enumerate() {
                    let mut taken = vec![0.0; share(count, 7, part).len()];
                    coming.take(rank, &mut taken).unwrap();
                    all[rank].extend(taken);
                }
            }
            ranks.leave(None);
            all
        });
        let expected: Vec<Vec<f32>> = (0..size).map(|rank| of(rank, counts[rank])).collect();
        assert!(found.into_iter().all(|found| found == expected), "{size}");
    }
}

#[test]
fn a_rank_with_other_weights_is_named() {
    let found = together(2, LONG, |ranks| {
        let count = 5 + ranks.rank();
        let mut coming = ranks.all_gather(vec![1.0; count], vec![count; 2]);
        let other = 1 - ranks.rank();
        let error = coming.take(other, &mut [0.0; 5]).unwrap_err();
        ranks.leave(Some(&error.to_string()));
        error.to_string()
    });
    for error in found {
        assert!(error.contains("sends another piece"), "{error}");
    }
}

#[test]
fn the_first_asks_the_others_until_it_has_no_more_questions() {
    let long = vec![7; 3_000_000];
    let found = together(3, LONG, |ranks| {
        let mut heard = Vec::new();
        if ranks.is_first() {
            let questions = ranks.ask();
            for rank in [2, 1] {
                for (question, bytes) in [("long", long.len()), ("rank", 1), ("nothing", 0)] {
                    heard.push(questions.ask(rank, question, bytes).unwrap());
                }
            }
            questions.end().unwrap();
        } else {
            let own = [u8::try_from(ranks.rank()).unwrap()];
            let answer = |question: &str| match question {
                "long" => Some(Cow::Borrowed(long.as_slice())),
                "rank" => Some(Cow::from(own.to_vec())),
                "nothing" => Some(Cow::from(Vec::new())),
                _ => None,
            };
            ranks.answer(answer).unwrap();
        }
        // All are at the same place again.
        let after = ranks.gather(Vec::new()).unwrap().len();
        ranks.leave(None);
        (heard, after)
    });
    let expected = [2, 1].map(|rank| vec![long.clone(), vec![rank], Vec::new()]);
    assert!(found[0].0 == expected.concat());
    assert!(found.iter().all(|(_, after)| *after == 3));
}

#[test]
fn answers_of_another_size_and_questions_that_are_none_are_named() {
    let ask = |question: &'static str, bytes| {
        together(2, LONG, |ranks| {
            let error = if ranks.is_first() {
                ranks.ask().ask(1, question, bytes).unwrap_err()
            } else {
                let two = |question: &str| (question == "two").then(|| Cow::from(vec![1_u8, 2]));
                ranks.answer(two).unwrap_err()
            };
            ranks.leave(Some(&error.to_string()));
            error.to_string()
        })
    };
    let size = "rank 1 holds moments of another size";
    assert_eq!(ask("two", 5), [size, size]);
    let question = "rank 0 asks for what no rank holds";
    assert_eq!(ask("three", 5), [question, question]);
}

/// Gradients of all parameters, the same for the same seed.
fn gradients(decoder: &Decoder, seed: u64) -> NamedGrads {
    let mut rng = Seed::root(seed).rng();
    let of = |(name, (values, _)): (String, (Vec<f32>, DType))| {
        let numbers = values.iter().map(|_| rng.random_range(-1e-2_f32..1e-2));
        let numbers: Vec<f32> = numbers.collect();
        let tensor = Tensor::<1>::from_floats(numbers.as_slice(), &Device::flex());
        (name, tensor)
    };
    NamedGrads(parameters(decoder).into_iter().map(of).collect())
}

fn config(moments_in_8_bits: bool) -> AdamWConfig {
    AdamWConfig {
        learning_rate: 1e-2,
        warmup_steps: 2,
        moments_in_8_bits,
        sharded: true,
        ..AdamWConfig::default()
    }
}

/// The weights of `start` after three steps, with the optimizer.
fn learned(
    start: &Checkpoint,
    config: AdamWConfig,
    ranks: &Ranks,
) -> (Vec<(String, Vec<u32>)>, AdamW) {
    let mut decoder = start.decoder.clone();
    let mut optimizer = AdamW::new(config);
    optimizer.deal(ranks.shard());
    for step in 0..3 {
        let gradients = gradients(&decoder, step);
        let norm = gradients.global_norm();
        optimizer
            .apply(&mut decoder, &start.config, gradients, norm, ranks)
            .unwrap();
    }
    let bits = |(name, (values, _)): (String, (Vec<f32>, DType))| {
        (name, values.into_iter().map(f32::to_bits).collect())
    };
    (
        parameters(&decoder).into_iter().map(bits).collect(),
        optimizer,
    )
}

/// The file that rank 0 writes of the moments of all ranks; `None` on the others.
fn saved(optimizer: &AdamW, ranks: &Ranks, file: &Path) -> Option<Vec<u8>> {
    if !ranks.is_first() {
        optimizer.send(ranks).unwrap();
        return None;
    }
    optimizer.save(file, ranks).unwrap();
    Some(std::fs::read(file).unwrap())
}

#[test]
fn a_sharded_update_is_that_of_one_process() {
    let start = checkpoint(1);
    let folder = tempfile::tempdir().unwrap();
    for in_8_bits in [false, true] {
        let config = config(in_8_bits);
        let alone = Ranks::alone();
        let whole = AdamWConfig {
            sharded: false,
            ..config
        };
        let (expected, optimizer) = learned(&start, whole, &alone);
        let (all, file) = (optimizer.kept(), folder.path().join("alone"));
        let expected_file = saved(&optimizer, &alone, &file);
        // One process accepts the setting.
        assert!(learned(&start, config, &alone).0 == expected);
        for size in 2..=4 {
            let file = folder.path().join(format!("{size}"));
            let found = together(size, LONG, |ranks| {
                let (weights, optimizer) = learned(&start, config, &ranks);
                let file = saved(&optimizer, &ranks, &file);
                ranks.leave(None);
                (weights, optimizer.kept(), file)
            });
            assert!(found[0].2 == expected_file, "{size} ranks, {in_8_bits}");
            let sum: usize = found.iter().map(|(_, kept, _)| kept).sum();
            assert_eq!(sum, all);
            for (weights, kept, _) in found {
                assert!(weights == expected, "{size} ranks, {in_8_bits}");
                // A block of the one parameter that has several, a number of each of the others.
                let apart = kept.abs_diff(all / size);
                assert!(apart <= 2 * (256 + 30), "{kept} of {all}, {size} ranks");
            }
        }
    }
}

#[test]
fn shards_are_read_from_the_file_of_one_process_whatever_its_kind() {
    let start = checkpoint(1);
    let folder = tempfile::tempdir().unwrap();
    let (alone, device) = (Ranks::alone(), Device::flex());
    for written in [false, true] {
        let file = folder.path().join("moments");
        saved(&learned(&start, config(written), &alone).1, &alone, &file);
        for wanted in [false, true] {
            let load = |ranks: &Ranks| {
                AdamW::load(config(wanted), ranks.shard(), 3, &file, &device).unwrap()
            };
            let whole = load(&alone);
            let expected = saved(&whole, &alone, &folder.path().join("whole"));
            let again = folder.path().join("again");
            let found = together(3, LONG, |ranks| {
                let optimizer = load(&ranks);
                assert!(optimizer.is_sharded() && optimizer.kept() < whole.kept() / 2);
                let file = saved(&optimizer, &ranks, &again);
                ranks.leave(None);
                file
            });
            assert!(found[0] == expected, "{written} to {wanted}");
        }
    }
}

#[test]
fn moments_of_another_size_than_their_parameter_are_refused() {
    let (start, alone, device) = (checkpoint(1), Ranks::alone(), Device::flex());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("moments");
    for in_8_bits in [false, true] {
        saved(&learned(&start, config(in_8_bits), &alone).1, &alone, &file);
        let optimizer = AdamW::load(config(in_8_bits), alone.shard(), 3, &file, &device).unwrap();
        optimizer.check_fit(&start.decoder, &file).unwrap();
        let wider = ModelConfig {
            intermediate_size: 64,
            ..start.config.clone()
        };
        let other = Decoder::random(&wider, Seed::root(1), &device);
        let error = optimizer.check_fit(&other, &file).unwrap_err().to_string();
        assert!(
            error.contains("moments of `model.layers.0.mlp.down_proj.weight`"),
            "{error}"
        );
    }
}

#[test]
fn a_rank_reads_its_share_of_the_moments_alone() {
    // Larger than any memory; of its zeros the disk holds nothing.
    const COUNT: u64 = 1 << 36;
    const BYTES: u64 = 4 * COUNT;
    const SHARE: usize = 1 << 10;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("moments");
    let tensor = |begin: u64| {
        let ends = [begin, begin + BYTES];
        serde_json::json!({"dtype": "F32", "shape": [COUNT], "data_offsets": ends})
    };
    let header = serde_json::json!({"first.a": tensor(0), "second.a": tensor(BYTES)});
    let header = header.to_string();
    let length = header.len() as u64;
    let mut written = std::fs::File::create(&file).unwrap();
    written.write_all(&length.to_le_bytes()).unwrap();
    written.write_all(header.as_bytes()).unwrap();
    written.set_len(8 + length + 2 * BYTES).unwrap();
    let ranks = COUNT as usize / SHARE;
    let (last, device) = (shard(ranks - 1, ranks), Device::flex());
    let optimizer = AdamW::load(config(false), last, 3, &file, &device).unwrap();
    assert_eq!(optimizer.kept(), 2 * SHARE);
}

#[test]
fn a_rank_that_is_lost_while_moments_are_saved_is_named() {
    let start = checkpoint(1);
    let folder = tempfile::tempdir().unwrap();
    let found = together(3, LONG, |ranks| {
        let (_, optimizer) = learned(&start, config(false), &ranks);
        match ranks.rank() {
            0 => {
                let error = optimizer.save(&folder.path().join("moments"), &ranks);
                ranks.leave(Some("cannot save"));
                Some(error.unwrap_err().to_string())
            }
            1 => {
                // The others have what it sent before it goes.
                std::thread::sleep(Duration::from_millis(300));
                None
            }
            _ => {
                let error = optimizer.send(&ranks).unwrap_err();
                ranks.leave(Some(&error.to_string()));
                Some(error.to_string())
            }
        }
    });
    for error in found.into_iter().flatten() {
        assert!(error.contains("rank 1 has closed"), "{error}");
    }
}

#[test]
fn moments_of_other_ranks_are_no_moments_to_learn_with() {
    let start = checkpoint(1);
    let errors = together(2, LONG, |ranks| {
        let (_, mut optimizer) = learned(&start, config(false), &ranks);
        ranks.leave(None);
        let alone = Ranks::alone();
        // What it has stays what it is.
        optimizer.deal(alone.shard());
        let mut decoder = start.decoder.clone();
        let found = optimizer.apply(
            &mut decoder,
            &start.config,
            gradients(&start.decoder, 4),
            1.0,
            &alone,
        );
        found.unwrap_err().to_string()
    });
    for error in errors {
        assert!(error.contains("moments of other ranks"), "{error}");
    }
}
