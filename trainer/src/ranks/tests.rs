use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use burn::tensor::{Device, Tensor};
use forage_contracts::seed::Seed;
use forage_contracts::{Episode, Task};
use rand::RngExt;

use super::*;
use crate::grads::NamedGrads;
use crate::objective::ObjectiveStats;
use crate::update_stats::TokenSums;

mod shards;
mod stuck;

/// Long against what anything here takes.
const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(400);

fn port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn settings(rank: usize, size: usize, port: u16) -> RankSettings {
    RankSettings {
        rank,
        size,
        address: format!("127.0.0.1:{port}"),
        secret_file: None,
        wait: LONG,
        silence: LONG,
    }
}

/// What each of so many ranks makes of a job.
fn together<T: Send>(size: usize, silence: Duration, job: impl Fn(Ranks) -> T + Sync) -> Vec<T> {
    let port = port();
    let job = &job;
    std::thread::scope(|scope| {
        let rank = |rank| {
            scope.spawn(move || {
                let settings = RankSettings {
                    silence,
                    ..settings(rank, size, port)
                };
                job(Ranks::join(&settings, "digest").unwrap())
            })
        };
        let threads: Vec<_> = (0..size).map(rank).collect();
        let results = threads.into_iter().map(|thread| thread.join().unwrap());
        results.collect()
    })
}

/// The result of a job on each of so many ranks, which are threads of this process.
fn here<T: Send>(size: usize, job: impl Fn(Ranks) -> T + Sync) -> Vec<T> {
    let ranks = Ranks::here(&vec![Device::flex(); size]).unwrap();
    let job = &job;
    std::thread::scope(|scope| {
        let threads = ranks.into_iter().map(|rank| scope.spawn(move || job(rank)));
        let threads: Vec<_> = threads.collect();
        let results = threads.into_iter().map(|thread| thread.join().unwrap());
        results.collect()
    })
}

#[test]
fn all_get_what_each_has_and_what_the_first_has() {
    for size in 1..=4 {
        let long = vec![7; 3_000_000];
        let found = together(size, LONG, |ranks| {
            let small = ranks
                .gather(vec![ranks.rank() as u8; ranks.rank()])
                .unwrap();
            let large = ranks.gather(long.clone()).unwrap();
            let first = ranks.of_first(vec![ranks.rank() as u8]).unwrap();
            ranks.leave(None);
            (small, large.concat().len(), first)
        });
        let small: Vec<Vec<u8>> = (0..size).map(|rank| vec![rank as u8; rank]).collect();
        for found in found {
            assert_eq!(found, (small.clone(), size * long.len(), vec![0]), "{size}");
        }
    }
}

fn gradients(seed: u64) -> NamedGrads {
    let mut rng = Seed::root(seed).rng();
    // One tensor of several pieces, one of a piece, one of a number.
    let tensors = [("a", 600_000_usize), ("b.c", 1000), ("d", 1)].map(|(name, count)| {
        let numbers: Vec<f32> = (0..count)
            .map(|_| rng.random_range(-1.0_f32..1.0) * 10_f32.powi(rng.random_range(-6..6)))
            .collect();
        let tensor = Tensor::<1>::from_floats(numbers.as_slice(), &Device::flex());
        (name.to_owned(), tensor)
    });
    NamedGrads(BTreeMap::from(tensors))
}

fn bits(gradients: &NamedGrads) -> Vec<(String, Vec<u32>)> {
    let numbers = |tensor: &Tensor<1>| -> Vec<u32> {
        let numbers: Vec<f32> = tensor.to_data().try_into_vec().unwrap();
        numbers.into_iter().map(f32::to_bits).collect()
    };
    let all = gradients.0.iter();
    all.map(|(name, tensor)| (name.clone(), numbers(tensor)))
        .collect()
}

fn sums(seed: u64) -> TokenSums {
    let number = |place: u64| {
        let mut rng = Seed::root(seed).child("number", &[place]).rng();
        rng.random_range(-1.0..1.0)
    };
    let mut objective = ObjectiveStats {
        tokens: seed as usize + 3,
        policy_loss: number(0),
        bounded: 5,
        kl: number(1),
        ..ObjectiveStats::default()
    };
    objective.correction.vetoed = seed as usize;
    objective.correction.masked = 2;
    objective.correction.truncated = 9;
    objective.correction.tokens = 11;
    TokenSums {
        objective,
        loss: number(2),
        entropy: number(3),
        approx_kl_old: number(4),
        mismatch: f64::NAN,
        ratio_deviation_max: f64::INFINITY,
    }
}

#[test]
fn a_device_that_cannot_sum_is_named_to_all_with_the_fix() {
    let found = here(2, |ranks| {
        if ranks.is_first() {
            let error = ranks.unsummed(&"no communicator");
            ranks.leave(Some(&error.to_string()));
            return error;
        }
        ranks.gather(Vec::new()).unwrap_err()
    });
    for error in found {
        let said = error.to_string();
        assert!(said.starts_with("rank 0 cannot sum gradients"), "{said}");
        for part in ["no communicator", "NCCL_DEBUG", "--shm-size", "--ranks"] {
            assert!(said.contains(part), "{said}");
        }
    }
}

#[test]
fn parts_are_added_in_their_order_whoever_has_them() {
    let device = Device::flex();
    for (size, parts) in [(2, 2), (3, 3), (4, 4), (3, 5), (4, 2)] {
        let mut expected = NamedGrads::default();
        (0..parts).for_each(|part| expected.add(gradients(part as u64)));
        let expected = bits(&expected);
        let alone = Ranks::alone();
        let own = (0..parts).map(|part| gradients(part as u64)).collect();
        assert!(bits(&alone.sum(own, Vec::<TokenSums>::new(), &device).unwrap().0) == expected);
        let found = together(size, LONG, |ranks| {
            let own = ranks.own(parts);
            let tokens = own.clone().map(|part| sums(part as u64)).collect();
            let own = own.map(|part| gradients(part as u64)).collect();
            let (sum, tokens) = ranks.sum(own, tokens, &device).unwrap();
            ranks.leave(None);
            (bits(&sum), format!("{tokens:?}"))
        });
        let tokens: Vec<TokenSums> = (0..parts).map(|part| sums(part as u64)).collect();
        for (rank, (sum, of_tokens)) in found.into_iter().enumerate() {
            assert!(sum == expected, "rank {rank} of {size}, {parts} parts");
            assert_eq!(of_tokens, format!("{tokens:?}"));
        }
    }
}

#[test]
fn ranks_of_one_process_exchange_what_those_of_several_do() {
    let device = Device::flex();
    for size in 1..=4 {
        let mut expected = NamedGrads::default();
        (0..size).for_each(|part| expected.add(gradients(part as u64)));
        let expected = bits(&expected);
        let found = here(size, |ranks| {
            let all = ranks.gather(vec![ranks.rank() as u8]).unwrap().concat();
            let own = vec![gradients(ranks.rank() as u64)];
            let sum = ranks.sum(own, Vec::<TokenSums>::new(), &device).unwrap().0;
            let norm = ranks.norm(sum.global_norm(), &device).unwrap();
            ranks.leave(None);
            (all, bits(&sum), norm.to_bits())
        });
        let all: Vec<u8> = (0..size as u8).collect();
        for (ranks, sum, norm) in &found {
            assert_eq!((ranks, norm), (&all, &found[0].2), "{size}");
            assert!(*sum == expected, "{size}");
        }
    }
}

#[test]
fn a_thread_that_ends_without_a_word_is_named_by_the_others() {
    let found = here(3, |ranks| {
        if ranks.rank() == 1 {
            return None;
        }
        let error = ranks.gather(Vec::new()).unwrap_err().to_string();
        ranks.leave(Some(&error));
        Some(error)
    });
    assert_eq!(found.iter().flatten().count(), 2);
    for error in found.into_iter().flatten() {
        assert!(
            error.starts_with("rank 1 has closed its connection"),
            "{error}"
        );
    }
}

#[test]
fn a_step_without_a_gradient_has_none() {
    let found = together(2, LONG, |ranks| {
        let (sum, tokens) = ranks
            .sum(Vec::new(), Vec::<TokenSums>::new(), &Device::flex())
            .unwrap();
        ranks.leave(None);
        (sum.0.len(), tokens.len())
    });
    assert_eq!(found, [(0, 0), (0, 0)]);
}

#[test]
fn a_rank_with_another_model_is_named() {
    let found = together(2, LONG, |ranks| {
        let mut own = gradients(1);
        if ranks.rank() == 1 {
            own.0.remove("d");
        }
        let error = ranks.sum(vec![own], Vec::<TokenSums>::new(), &Device::flex());
        let error = error.unwrap_err();
        ranks.leave(Some(&error.to_string()));
        error.to_string()
    });
    let expected = "rank 1 has gradients of another model";
    assert_eq!(found, [expected, expected]);
}

fn episode(group: u64, member: u64) -> Episode {
    let mut episode = Episode {
        group,
        member,
        ..Episode::new(Task::new(format!("{group}-{member}"), "Who?".to_owned()))
    };
    let logprobs: Vec<f32> = (0..50_u32)
        .map(|place| -f32::from_bits(0x3c00_0000 + place * 0x0012_3457 + member as u32))
        .collect();
    episode.tokens.push_policy(&[7; 50], &logprobs, 3, None);
    episode
}

#[test]
fn episodes_of_all_ranks_stand_in_the_order_of_one() {
    let all: Vec<(u64, u64)> = (0..5).flat_map(|group| [(group, 0), (group, 1)]).collect();
    let expected: Vec<Episode> = all
        .iter()
        .map(|&(group, member)| episode(group, member))
        .collect();
    let found = together(3, LONG, |ranks| {
        let own = all
            .iter()
            .filter(|(group, _)| ranks.plays(ranks.rank(), *group));
        let own = own.map(|&(group, member)| episode(group, member)).collect();
        let found = ranks.episodes(own, &all).unwrap();
        ranks.leave(None);
        found
    });
    assert!(found.into_iter().all(|found| found == expected));
    let found = together(2, LONG, |ranks| {
        let error = ranks.episodes(vec![episode(0, 0)], &[(0, 0), (1, 0)]);
        ranks.leave(None);
        error.unwrap_err().to_string()
    });
    assert!(
        found[0].contains("rank 1 sends other episodes"),
        "{found:?}"
    );
}

#[test]
fn numbers_of_all_ranks_stand_in_the_order_of_one() {
    let targets = [3, 0, 2, 1, 4];
    let numbers = |batch: usize| {
        let places = (0..targets[batch]).map(|place| -(place as f32) - 0.1);
        [places.collect(), vec![batch as f32; targets[batch]]]
    };
    let expected: Vec<[Vec<f32>; 2]> = (0..targets.len()).map(numbers).collect();
    let found = together(3, LONG, |ranks| {
        let own = ranks.own(targets.len()).map(numbers).collect();
        let found = ranks.numbers(own, &targets).unwrap();
        ranks.leave(None);
        found
    });
    assert!(found.into_iter().all(|found| found == expected));
}

#[test]
fn one_that_stops_stops_all_and_other_weights_are_named() {
    let found = together(3, LONG, |ranks| {
        let vote = Vote {
            stop: ranks.rank() == 2,
            pause: ranks.rank() == 1,
            weights: 7,
            norm: 8,
        };
        let agreed = ranks.agree(vote).unwrap();
        let other = Vote {
            weights: u64::from(ranks.rank() == 1),
            ..vote
        };
        let error = ranks.agree(other).unwrap_err();
        ranks.leave(Some("x"));
        (agreed.stop, agreed.pause, error.to_string())
    });
    for (stop, pause, error) in found {
        assert!(stop && pause);
        assert!(error.contains("rank 1 holds other weights"), "{error}");
    }
}

/// What the ranks that are left say of one that goes, and how long it takes them.
fn left(size: usize, silence: Duration, going: usize, go: impl Fn(Ranks) + Sync) -> Vec<String> {
    let found = together(size, silence, |ranks| {
        ranks.gather(Vec::new()).unwrap();
        if ranks.rank() == going {
            go(ranks);
            return None;
        }
        let begun = Instant::now();
        let error = ranks.gather(Vec::new()).unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(5));
        ranks.leave(Some(&error.to_string()));
        Some(error.to_string())
    });
    found.into_iter().flatten().collect()
}

#[test]
fn a_rank_that_ends_is_named_by_all_at_once() {
    for size in 2..=4 {
        for going in 0..size {
            // Dropped without a word, as of a process that is killed.
            let found = left(size, LONG, going, drop);
            assert_eq!(found.len(), size - 1);
            for error in found {
                let expected = format!("rank {going} has closed its connection");
                assert!(error.starts_with(&expected), "{error}");
            }
        }
    }
}

#[test]
fn a_rank_that_gives_no_sign_of_life_is_named_by_all() {
    let found = left(3, SHORT, 2, |mut ranks| {
        drop(ranks.heart.take());
        std::thread::sleep(SHORT * 4);
    });
    for error in found {
        let expected = "rank 2 has given no sign of life for 0.4 s";
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_rank_that_is_busy_is_not_lost() {
    let found = together(2, SHORT, |ranks| {
        if ranks.rank() == 1 {
            std::thread::sleep(SHORT * 3);
        }
        let found = ranks.gather(Vec::new());
        ranks.leave(None);
        found.is_ok()
    });
    assert_eq!(found, [true, true]);
}

#[test]
fn a_rank_that_cannot_go_on_says_why() {
    for going in 0..3 {
        let found = left(3, LONG, going, |ranks| {
            ranks.leave(Some("the disk is full"));
        });
        let expected = format!("rank {going} stopped: the disk is full");
        assert_eq!(found, [expected.clone(), expected]);
    }
}

#[test]
fn who_waits_for_a_loss_is_woken() {
    let found = together(2, LONG, |ranks| {
        if ranks.rank() == 1 {
            return None;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        Some(runtime.block_on(ranks.lost()).to_string())
    });
    let error = found[0].clone().unwrap();
    assert!(error.starts_with("rank 1 has closed"), "{error}");
}

fn error(settings: &RankSettings, digest: &str) -> String {
    Ranks::join(settings, digest).unwrap_err().to_string()
}

#[test]
fn strangers_are_refused_and_hold_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let secret = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Some(path)
    };
    let good = secret("good", "0123456789abcdef\n");
    let bad = secret("bad", "0123456789abcdeF\n");
    let port = port();
    let own = |rank, secret_file: &Option<PathBuf>| RankSettings {
        secret_file: secret_file.clone(),
        ..settings(rank, 2, port)
    };
    let first = own(0, &good);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| Ranks::join(&first, "digest"));
        let call = || loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        // One that says nothing, one that says too much, one that speaks another protocol.
        let silent = call();
        let mut greedy = call();
        greedy.write_all(&u32::MAX.to_le_bytes()).unwrap();
        let mut web = call();
        web.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let refused = error(&own(1, &bad), "digest");
        assert!(refused.contains("its secret is another"), "{refused}");
        let second = own(1, &good);
        let ranks = scope.spawn(move || Ranks::join(&second, "digest").unwrap());
        let (first, second) = (waiting.join().unwrap().unwrap(), ranks.join().unwrap());
        let other = scope.spawn(move || second.gather(vec![1]).unwrap());
        assert_eq!(first.gather(vec![0]).unwrap(), [[0], [1]]);
        other.join().unwrap();
        drop(silent);
    });
    let short = own(0, &secret("short", "12345"));
    assert!(error(&short, "digest").contains("less than 16 bytes"));
    let missing = own(0, &Some(Path::new("/nowhere/secret").to_owned()));
    assert!(error(&missing, "digest").contains("/nowhere/secret"));
}

#[test]
fn a_rank_of_another_run_is_named_to_both() {
    type Case = (fn(RankSettings) -> RankSettings, &'static str, &'static str);
    let cases: [Case; 2] = [
        (|it| it, "other", "rank 1 has another config"),
        (
            |it| RankSettings { size: 3, ..it },
            "digest",
            "calls itself rank 1 of 3, and rank 0 expects",
        ),
    ];
    for (change, digest, expected) in cases {
        let port = port();
        let second = change(settings(1, 2, port));
        std::thread::scope(|scope| {
            let first = scope.spawn(|| error(&settings(0, 2, port), "digest"));
            for found in [error(&second, digest), first.join().unwrap()] {
                assert!(found.contains(expected), "{found}");
            }
        });
    }
}

#[test]
fn a_second_process_of_one_rank_is_refused_and_a_missing_one_named() {
    let port = port();
    let own = |rank| RankSettings {
        wait: Duration::from_secs(2),
        ..settings(rank, 3, port)
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| error(&own(0), "digest"));
        let twins = [1, 1].map(|rank| scope.spawn(move || error(&own(rank), "digest")));
        let found = twins.map(|twin| twin.join().unwrap());
        let refused = found
            .iter()
            .filter(|error| error.contains("there is a rank 1 already"));
        assert_eq!(refused.count(), 1, "{found:?}");
        let found = first.join().unwrap();
        assert!(found.contains("rank 2 did not come within 2 s"), "{found}");
    });
    let nobody = own(1);
    let found = error(&nobody, "digest");
    assert!(
        found.contains("rank 0 did not answer within 2 s"),
        "{found}"
    );
    assert!(error(&settings(2, 2, port), "digest").contains("no rank 2 among 2"));
}

#[test]
fn what_no_rank_sends_ends_the_link_without_taking_memory() {
    for bytes in [
        [2, 0, 0, 0, 0, 255, 255, 255, 255],
        [9, 0, 0, 0, 0, 0, 0, 0, 0],
        [3, 0, 0, 0, 0, 1, 16, 0, 0],
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let losses = Arc::new(Losses::new());
        let own = listener.accept().unwrap().0;
        let link = Link::new(own, 5, LONG, &losses).unwrap();
        peer.write_all(&bytes).unwrap();
        let error = link.receive(0).unwrap_err().to_string();
        assert_eq!(error, "rank 5 sends what no rank sends");
        let mut rest = Vec::new();
        assert_eq!(peer.read_to_end(&mut rest).unwrap_or(0), 0);
    }
}

#[test]
fn a_peer_that_sends_ahead_waits_and_takes_no_more_memory() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let losses = Arc::new(Losses::new());
    let own = listener.accept().unwrap().0;
    let link = Link::new(own, 5, LONG, &losses).unwrap();
    // A message of 64 KiB, which nobody asks for: 64 MiB of them wait, and what the system itself keeps.
    let mut message = vec![2, 0, 0, 0, 0, 0, 0, 1, 0];
    message.resize(message.len() + (1 << 16), 7);
    peer.set_write_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let mut sent = 0;
    while sent < 4096 && peer.write_all(&message).is_ok() {
        sent += 1;
    }
    assert!((1024..2048).contains(&sent), "{sent}");
    for _ in 0..sent {
        assert_eq!(link.receive(0).unwrap(), message[9..]);
    }
    drop(peer);
    assert!(link.receive(0).is_err());
}

#[test]
fn strangers_can_take_part_where_rank_0_listens_to_all_without_a_secret() {
    let own = settings(0, 2, 29_400);
    let at = |address: &str| RankSettings {
        address: address.to_owned(),
        ..own.clone()
    };
    for (address, open) in [
        ("127.0.0.1:29400", false),
        ("[::1]:29400", false),
        ("0.0.0.0:29400", true),
        ("10.0.0.1:29400", true),
    ] {
        assert_eq!(at(address).is_open(), open, "{address}");
        let with_secret = RankSettings {
            secret_file: Some("secret".into()),
            ..at(address)
        };
        let later = RankSettings {
            rank: 1,
            ..at(address)
        };
        let alone = RankSettings {
            size: 1,
            ..at(address)
        };
        assert!(!with_secret.is_open() && !later.is_open() && !alone.is_open());
    }
}
