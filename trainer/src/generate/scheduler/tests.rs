//! The scheduler against a memory that remembers what was written where: no model, every promise.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use proptest::prelude::*;

use super::*;

/// The content of the cache at a position: a digest of the tokens up to there.
fn content(tokens: &[u32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    tokens.hash(&mut hasher);
    hasher.finish()
}

/// A scheduler with the memory its plans are carried out on.
struct World {
    scheduler: Scheduler,
    memory: Vec<Option<u64>>,
    /// Tokens still to be drawn, by sequence.
    wanted: BTreeMap<u64, usize>,
    logs: BTreeMap<u64, Vec<u32>>,
    drawn: usize,
}

impl World {
    fn new(limits: Limits, blocks: usize) -> Self {
        let scheduler = Scheduler::new(limits, blocks);
        let memory = vec![None; blocks * BLOCK_POSITIONS];
        Self {
            scheduler,
            memory,
            wanted: BTreeMap::new(),
            logs: BTreeMap::new(),
            drawn: 0,
        }
    }

    fn submit(&mut self, id: u64, tokens: Vec<u32>, new: usize) {
        self.logs.insert(id, tokens.clone());
        self.wanted.insert(id, new);
        self.scheduler.submit(id, tokens.into(), true);
    }

    /// One pass; false when there was nothing to do.
    fn pass(&mut self) -> Result<bool, TestCaseError> {
        let plan = self.scheduler.plan();
        let limits = self.scheduler.limits;
        prop_assert!(
            plan.iter().map(|part| part.count).sum::<usize>()
                <= limits.tokens.max(limits.sequences)
        );
        prop_assert!(
            plan.windows(2)
                .all(|pair| pair[0].count == 1 || pair[1].count > 1),
            "single tokens stand first"
        );
        for part in &plan {
            let (ids, blocks) = self.scheduler.part(part);
            let log = &self.logs[&part.id];
            prop_assert_eq!(&*ids, &log[part.start..part.start + part.count]);
            prop_assert_eq!(part.last, part.start + part.count == log.len());
            for position in 0..part.start {
                let place = blocks[position / BLOCK_POSITIONS] as usize * BLOCK_POSITIONS
                    + position % BLOCK_POSITIONS;
                prop_assert_eq!(
                    self.memory[place],
                    Some(content(&log[..=position])),
                    "sequence {} reads {}",
                    part.id,
                    position
                );
            }
        }
        for part in &plan {
            let (_, blocks) = self.scheduler.part(part);
            for position in part.start..part.start + part.count {
                let place = blocks[position / BLOCK_POSITIONS] as usize * BLOCK_POSITIONS
                    + position % BLOCK_POSITIONS;
                self.memory[place] = Some(content(&self.logs[&part.id][..=position]));
            }
        }
        self.scheduler.commit(&plan);
        for part in plan.iter().filter(|part| part.last) {
            self.draw(part.id);
        }
        Ok(!plan.is_empty())
    }

    fn draw(&mut self, id: u64) {
        self.drawn += 1;
        let token = (self.drawn % 5) as u32;
        let log = self.logs.get_mut(&id).unwrap();
        log.push(token);
        self.scheduler.push(id, token);
        let wanted = self.wanted.get_mut(&id).unwrap();
        *wanted -= 1;
        if *wanted == 0 {
            self.wanted.remove(&id);
            self.scheduler.keep(id);
        }
    }
}

#[derive(Clone, Debug)]
enum Act {
    /// A new turn: of `id`, with one of a few beginnings, `more` tokens of its own, and `new` to draw.
    Submit {
        id: u64,
        beginning: usize,
        length: usize,
        more: usize,
        new: usize,
    },
    Release(u64),
    Forget,
    Passes(usize),
}

#[test]
fn sequences_that_wait_with_blocks_hold_nobody_up() {
    let mut world = World::new(
        Limits {
            sequences: 8,
            tokens: 64,
        },
        12,
    );
    for turn in 0..3 {
        for id in 0..6 {
            let mut log = world.logs.get(&id).cloned().unwrap_or_default();
            log.extend((0..30 + turn).map(|place| (place + id as u32) % 7));
            world.submit(id, log, 8);
        }
        for _ in 0..2_000 {
            world.pass().unwrap();
        }
        assert!(
            world.wanted.is_empty(),
            "turn {turn}: {:?} wait",
            world.wanted
        );
    }
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0_u64..10, 0_usize..2, 0_usize..60, 1_usize..20, 1_usize..20)
            .prop_map(|(id, beginning, length, more, new)| Act::Submit { id, beginning, length, more, new }),
        1 => (0_u64..10).prop_map(Act::Release),
        1 => Just(Act::Forget),
        6 => (1_usize..12).prop_map(Act::Passes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn nothing_is_read_that_was_not_written_and_everyone_gets_done(
        acts in prop::collection::vec(act(), 1..40), blocks in 8_usize..40, tokens in 1_usize..70, sequences in 1_usize..8,
    ) {
        let mut world = World::new(Limits { sequences, tokens }, blocks);
        for act in acts {
            match act {
                Act::Submit { id, beginning, length, more, new } if !world.wanted.contains_key(&id) => {
                    // A kept sequence goes on, or begins anew with another start.
                    let kept = world.logs.get(&id).filter(|_| length % 2 == 0).cloned();
                    let mut log = kept.unwrap_or_else(|| vec![beginning as u32; length]);
                    log.extend((0..more).map(|place| ((id as usize + place) % 5) as u32));
                    if log.len() + new <= world.scheduler.capacity() {
                        world.submit(id, log, new);
                    }
                }
                Act::Submit { .. } => {}
                Act::Release(id) => {
                    world.wanted.remove(&id);
                    world.scheduler.release(id);
                }
                Act::Forget => {
                    world.scheduler.forget();
                    world.memory.fill(None);
                }
                Act::Passes(count) => {
                    for _ in 0..count {
                        world.pass()?;
                    }
                }
            }
        }
        let mut passes = 0;
        while !world.wanted.is_empty() {
            prop_assert!(world.pass()?, "nothing planned while {:?} wait", world.wanted);
            passes += 1;
            prop_assert!(passes < 20_000, "{:?} starve", world.wanted);
        }
        for id in 0..10 {
            world.scheduler.release(id);
        }
        prop_assert_eq!(world.scheduler.held_positions(), 0, "blocks leaked");
    }
}

#[test]
fn a_group_computes_its_prompt_once() {
    let mut world = World::new(
        Limits {
            sequences: 8,
            tokens: 1000,
        },
        64,
    );
    for id in 0..8 {
        world.submit(id, (0..100).collect(), 1);
    }
    let mut run = 0;
    while !world.wanted.is_empty() {
        let plan = world.scheduler.plan();
        run += plan.iter().map(|part| part.count).sum::<usize>();
        world.scheduler.commit(&plan);
        for part in plan.iter().filter(|part| part.last) {
            world.draw(part.id);
        }
    }
    // Six full blocks once; the four tokens after them by each of eight.
    assert_eq!(run, 96 + 8 * 4);
    assert_eq!(world.scheduler.counts.cached_prompt_tokens, 7 * 96);
}

#[test]
fn sequences_that_wait_share_their_prompt() {
    let limits = Limits {
        sequences: 2,
        tokens: 64,
    };
    let mut scheduler = Scheduler::new(limits, 64);
    let prompt: Arc<[u32]> = (0..100).collect();
    for id in 0..8 {
        scheduler.submit(id, Arc::clone(&prompt), true);
    }
    scheduler.plan();
    assert_eq!(Arc::strong_count(&prompt), 9);
    let sequences = scheduler.sequences.values();
    let named = sequences.filter(|sequence| !sequence.names.is_empty());
    assert_eq!(named.count(), 2, "those that run");
}

#[test]
fn what_has_begun_goes_on_before_others_begin() {
    let limits = Limits {
        sequences: 2,
        tokens: 64,
    };
    let mut world = World::new(limits, 64);
    for id in 0..6 {
        world.submit(id, vec![id as u32; 8], 1);
    }
    let mut ended = Vec::new();
    while !world.wanted.is_empty() {
        world.pass().unwrap();
        for id in 0..6 {
            let turns_done = world.logs[&id].len();
            if world.wanted.contains_key(&id) || ended.contains(&id) {
                continue;
            }
            if turns_done < 20 {
                // An observation, and the next turn.
                let log = [&world.logs[&id][..], &[7; 6]].concat();
                world.submit(id, log, 1);
            } else {
                world.scheduler.release(id);
                ended.push(id);
            }
        }
    }
    assert_eq!(ended, [0, 1, 2, 3, 4, 5]);
    // Second turns find 8 tokens in the cache, third ones 15.
    assert_eq!(world.scheduler.counts.cached_prompt_tokens, 6 * 23);
}
