use std::collections::{HashMap, HashSet};

use forage_contracts::{OracleHop, Split, Task};
use strum::VariantArray as _;

use super::names::split_of;
use super::schema::{Kind, Relation};
use super::*;
use proptest::prelude::*;

const SPLITS: [Split; 3] = [Split::Train, Split::Dev, Split::Test];

fn world(pages: u64, seed: u64) -> World {
    World::new(WorldSpec::new(pages, seed)).expect("valid spec")
}

fn texts(world: &World) -> HashMap<String, String> {
    world
        .passages()
        .map(|passage| (passage.id, passage.text))
        .collect()
}

/// Questions of every split, about as many as the world has.
fn questions(world: &World, count: u64) -> Vec<Task> {
    SPLITS
        .iter()
        .flat_map(|&split| (0..count).map(move |index| (split, index)))
        .map(|(s, i)| world.question(s, i))
        .collect()
}

#[test]
fn equal_specs_give_equal_worlds_and_other_seeds_do_not() {
    let (a, b, c) = (world(500, 7), world(500, 7), world(500, 8));
    assert!(a.pages().eq(b.pages()));
    assert_eq!(questions(&a, 200), questions(&b, 200));
    assert_eq!(a.fingerprint(), b.fingerprint());
    assert_ne!(a.fingerprint(), c.fingerprint());
    assert_ne!(a.page(0).title, c.page(0).title);
}

#[test]
fn the_generator_has_not_changed_without_its_version() {
    let world = world(1000, 1);
    let mut hasher = blake3::Hasher::new();
    for page in world.pages() {
        hasher.update(page.content().as_bytes());
    }
    for task in questions(&world, 300) {
        hasher.update(serde_json::to_string(&task).expect("row").as_bytes());
    }
    assert_eq!(
        hasher.finalize().to_hex().as_str()[..16],
        *PINNED,
        "raise GENERATOR_VERSION and pin the new digest"
    );
}
const PINNED: &str = "16ecaafac2410ba9";

#[test]
fn names_and_ids_are_unique_and_pages_are_laid_out() {
    let world = World::new(WorldSpec {
        difficulty: Difficulty {
            near_names: 1.0,
            ..Difficulty::default()
        },
        ..WorldSpec::new(20_000, 3)
    });
    let mut ids = HashSet::new();
    let mut titles = HashSet::new();
    for page in world.expect("valid spec").pages() {
        assert_eq!(split_of(&page.title), Some(page.split), "{}", page.title);
        assert!((2..=4).contains(&page.sections.len()));
        for section in &page.sections {
            let words = section.text.split_whitespace().count();
            assert!(
                (12..=30).contains(&words),
                "{words} words: {}",
                section.text
            );
            assert_eq!(
                section.text.matches(&page.title).count(),
                2,
                "{}: {}",
                page.title,
                section.text
            );
        }
        assert!(titles.insert(page.title) && ids.insert(page.id));
    }
}

#[test]
fn the_largest_worlds_name_everything_once() {
    let world = world(5_000_000, 5);
    for split in SPLITS {
        let size: u64 = Kind::VARIANTS
            .iter()
            .map(|&kind| world.entities_count(split, kind))
            .sum();
        let step = size / 20_000 + 1;
        let names: HashSet<String> = (0..size)
            .step_by(step as usize)
            .map(|i| world.name(world.entity_in(split, i)))
            .collect();
        assert_eq!(names.len() as u64, size.div_ceil(step));
    }
    assert!(world.page(4_999_999).content().starts_with("# "));
}

#[test]
fn a_page_of_a_million_costs_nothing_to_reach() {
    let world = world(1_000_000, 11);
    // Made one after another from the first, a thousand of each would take hours.
    for number in 0..1000 {
        let page = world.page(999_999 - number);
        let task = world.question(Split::Test, 123_456_789 + number);
        assert!(!page.sections.is_empty() && !task.golds.is_empty());
    }
}

#[test]
fn evidence_tells_every_finding_and_the_last_finding_is_gold() {
    for pages in [100, 3000] {
        let world = world(pages, 2);
        let texts = texts(&world);
        for task in questions(&world, 1500) {
            assert_eq!(task.evidence.len(), usize::from(task.hops));
            assert_eq!(task.oracle.len(), usize::from(task.hops));
            for (id, hop) in task.evidence.iter().zip(&task.oracle) {
                assert!(texts[id].contains(&hop.finding), "{task:?}");
            }
            assert_eq!(
                task.golds.first(),
                task.oracle.last().map(|hop| &hop.finding)
            );
            assert!(task.question.ends_with('?') && !task.question.contains(['{', '}']));
        }
    }
}

#[test]
fn questions_do_not_repeat_keep_the_hop_mix_and_do_not_name_their_answer() {
    let world = world(2000, 9);
    let tasks: Vec<Task> = world
        .questions(Split::Train, 4000)
        .expect("enough")
        .collect();
    assert_eq!(tasks.len(), 4000);
    let distinct: HashSet<&str> = tasks.iter().map(|task| task.question.as_str()).collect();
    assert_eq!(distinct.len(), 4000);
    for (hops, share) in (1..).zip(Difficulty::default().hops) {
        let found = tasks.iter().filter(|task| task.hops == hops).count() as f32 / 4000.0;
        assert!((found - share).abs() < 0.01, "{hops} hops: {found}");
    }
    assert!(
        tasks
            .iter()
            .all(|task| !task.question.contains(task.golds[0].as_str()))
    );
    assert!(
        tasks
            .iter()
            .all(|task| *task == world.question(Split::Train, index_of(task)))
    );
}

fn index_of(task: &Task) -> u64 {
    task.id
        .rsplit('-')
        .next()
        .and_then(|text| text.parse().ok())
        .expect("index")
}

#[test]
fn asking_for_too_many_says_how_many_there_are() {
    let world = world(100, 4);
    let Err(WorldError::TooManyQuestions { available, .. }) =
        world.questions(Split::Dev, 1_000_000)
    else {
        panic!("a small world has few questions");
    };
    assert!(available > 20, "{available}");
    let texts: HashSet<String> = world
        .questions(Split::Dev, available)
        .expect("exists")
        .map(|t| t.question)
        .collect();
    assert_eq!(texts.len() as u64, available);
    assert!(world.questions(Split::Dev, available + 1).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn splits_share_no_name_across_worlds(seed_a: u64, seed_b: u64, index in 0_u64..1_000_000) {
        let (a, b) = (world(1500, seed_a), world(90_000, seed_b));
        for split in SPLITS {
            for world in [&a, &b] {
                for offset in 0..40 {
                    let task = world.question(split, index + offset);
                    prop_assert_eq!(task.split, split);
                    for hop in &task.oracle {
                        prop_assert_eq!(split_of(&hop.query), Some(split), "{}", &hop.query);
                        if let Some(found) = split_of(&hop.finding) {
                            prop_assert_eq!(found, split, "{}", &hop.finding);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn near_names_differ_in_one_syllable() {
    let share = |near_names: f32| {
        let difficulty = Difficulty {
            near_names,
            ..Difficulty::default()
        };
        let world = World::new(WorldSpec {
            difficulty,
            ..WorldSpec::new(4000, 6)
        })
        .expect("valid spec");
        let people = world.pages().filter(|page| page.kind == Kind::Person);
        let names: HashSet<String> = people.map(|page| page.title).collect();
        let near = names
            .iter()
            .filter(|name| twins(name).any(|twin| names.contains(&twin)))
            .count();
        near as f32 / names.len() as f32
    };
    assert!(share(0.0) < 0.05);
    assert!((share(0.5) - 0.5).abs() < 0.06);
    assert!(share(1.0) > 0.97);
}

/// Names that differ from `name` in one syllable.
fn twins(name: &str) -> impl Iterator<Item = String> {
    let words: Vec<String> = name.split(' ').map(str::to_owned).collect();
    let mut found = Vec::new();
    for (place, word) in words.iter().enumerate() {
        let Some(syllables) = names::parse(&word.to_lowercase()) else {
            continue;
        };
        for position in 0..syllables.len() {
            for other in names::SYLLABLES {
                let mut spelled: Vec<&str> =
                    syllables.iter().map(|&s| names::SYLLABLES[s]).collect();
                spelled[position] = other;
                let mut changed = words.clone();
                changed[place] = names::spell(&spelled);
                if changed != words {
                    found.push(changed.join(" "));
                }
            }
        }
    }
    found.into_iter()
}

#[test]
fn paraphrases_follow_their_share() {
    let share = |paraphrase: f32| {
        let difficulty = Difficulty {
            paraphrase,
            hops: [1.0, 0.0, 0.0, 0.0],
            ..Difficulty::default()
        };
        let world = World::new(WorldSpec {
            difficulty,
            ..WorldSpec::new(2000, 6)
        })
        .expect("valid spec");
        let tasks: Vec<Task> = world
            .questions(Split::Train, 2000)
            .expect("enough")
            .collect();
        let keyword = |task: &Task| {
            Relation::VARIANTS.iter().any(|r| {
                task.oracle[0].query.ends_with(r.keyword()) && task.question.contains(r.keyword())
            })
        };
        tasks.iter().filter(|task| !keyword(task)).count() as f32 / 2000.0
    };
    assert!(share(0.0) < 0.001 && share(1.0) > 0.999);
    assert!((share(0.3) - 0.3).abs() < 0.04);
}

#[test]
fn facts_that_are_told_again_are_further_relevant_passages() {
    let retold = |retold: f32| {
        let difficulty = Difficulty {
            retold,
            ..Difficulty::default()
        };
        let spec = WorldSpec {
            difficulty,
            ..WorldSpec::new(600, 3)
        };
        World::new(spec).expect("valid spec")
    };
    let (once, twice) = (world(600, 3), retold(1.0));
    assert_eq!(retold(0.0).fingerprint(), once.fingerprint());
    assert_ne!(twice.fingerprint(), once.fingerprint());
    for (page, longer) in once.pages().zip(twice.pages()) {
        assert!(longer.sections.starts_with(&page.sections));
        for section in &longer.sections {
            assert_eq!(section.text.matches(&page.title).count(), 2);
        }
        let headings: HashSet<&str> = longer.sections.iter().map(|one| one.heading).collect();
        assert_eq!(headings.len(), longer.sections.len(), "{}", page.title);
        let again = page.kind.relations().filter(|fact| fact.target().is_some());
        assert_eq!(longer.sections.len(), page.sections.len() + again.count());
    }
    let texts = texts(&twice);
    let tasks = questions(&twice, 200);
    let several = tasks.iter().filter(|task| !task.qrels.is_empty());
    assert!(several.clone().count() > 300, "most hops lead to an entity");
    for task in several {
        let mut further = 0;
        for id in task.judgments().keys() {
            let tells = |hop: &OracleHop| texts[id].contains(&hop.finding);
            assert!(task.oracle.iter().any(tells), "{id} of {task:?}");
            if !task.evidence.contains(id) {
                further += 1;
                let keyword = |hop: &OracleHop| {
                    let said = hop.query.rsplit(' ').next();
                    said.is_some_and(|keyword| texts[id].contains(keyword))
                };
                assert!(task.hops > 1 || !task.oracle.iter().any(keyword), "{id}");
            }
        }
        assert!(further > 0 && further <= task.evidence.len(), "{task:?}");
    }
    let some = questions(&retold(0.3), 200).into_iter();
    let share = some.filter(|task| task.hops == 1 && !task.qrels.is_empty());
    let all = tasks.iter();
    let all = all.filter(|task| task.hops == 1 && !task.qrels.is_empty());
    let share = share.count() as f32 / all.count() as f32;
    assert!((share - 0.3).abs() < 0.12, "{share}");
}

#[test]
fn training_text_names_nothing_of_the_other_splits() {
    let world = world(300, 8);
    let held_out: Vec<String> = world
        .pages()
        .filter(|page| page.split != Split::Train)
        .map(|page| page.title)
        .collect();
    let lines: Vec<String> = world.text(1000).collect();
    assert_eq!(lines.len(), 1000);
    for line in &lines {
        assert!(!line.contains('\n'));
        assert!(
            held_out.iter().all(|name| !line.contains(name.as_str())),
            "{line}"
        );
    }
}

#[test]
fn export_round_trips_and_refuses_a_full_folder() {
    let world = world(200, 1);
    let root = tempfile::tempdir().expect("temporary folder");
    let out = root.path().join("deep/world");
    let mut calls = Vec::new();
    let passages = world.export(
        &out,
        QuestionCounts {
            train: 60,
            dev: 20,
            test: 30,
        },
        |done, total| calls.push((done, total)),
    );
    assert_eq!(passages.expect("written"), world.passages().count() as u64);
    assert_eq!(calls, [(200, 200)]);
    for (split, tag, count) in [
        (Split::Train, "train", 60),
        (Split::Dev, "dev", 20),
        (Split::Test, "test", 30),
    ] {
        let native =
            crate::dataset::read_tasks(&out.join("questions.jsonl"), split).expect("native");
        assert_eq!(
            native,
            world
                .questions(split, count)
                .expect("enough")
                .collect::<Vec<_>>()
        );
        let rows = crate::dataset::read_tasks(&out.join(format!("search-r1/{tag}.jsonl")), split)
            .expect("rows");
        assert!(
            rows.iter()
                .zip(&native)
                .all(|(row, task)| row.golds == task.golds && row.id == task.id)
        );
        assert_eq!(rows[0].data_source, "forage-world");
        let qrels =
            std::fs::read_to_string(out.join(format!("beir/qrels/{tag}.tsv"))).expect("qrels");
        assert_eq!(
            qrels.lines().count(),
            1 + native.iter().map(|task| task.evidence.len()).sum::<usize>()
        );
    }
    let again = world.export(&out, QuestionCounts::each(1), |_, _| ());
    let again = again.expect_err("refused").to_string();
    assert!(again.ends_with("is not empty; name another with --out, or empty it"));
    let left: Vec<_> = std::fs::read_dir(root.path().join("deep"))
        .expect("folder")
        .collect();
    assert_eq!(left.len(), 1, "no partial folder stays");
}

#[test]
fn a_second_export_to_the_same_place_is_told() {
    let root = tempfile::tempdir().expect("temporary folder");
    let out = root.path().join("world");
    let (running, world) = (root.path().join(".world.partial/world"), world(200, 1));
    std::fs::create_dir_all(&running).expect("folder");
    std::fs::write(running.join("half"), "").expect("file");
    let lock = std::fs::File::create(root.path().join(".world.partial/lock")).expect("lock");
    lock.try_lock().expect("nobody else");
    let export = || world.export(&out, QuestionCounts::each(1), |_, _| ());
    assert!(matches!(export(), Err(WorldError::Busy { .. })));
    assert!(running.join("half").exists());
    drop(lock);
    export().expect("what was left is cleared");
    assert!(out.join("world.json").exists() && !out.join("half").exists());
    assert!(!running.exists());
}

#[test]
fn canonical_queries_find_the_evidence() {
    for (pages, seed) in [(500, 1), (2000, 2), (20_000, 3)] {
        let world = world(pages, seed);
        let retriever =
            forage_retriever::Bm25Retriever::in_memory(world.passages().collect()).expect("index");
        let (mut asked, mut first, mut third) = (0_u32, 0_u32, 0_u32);
        for task in questions(&world, 150) {
            for (hop, wanted) in task.oracle.iter().zip(&task.evidence) {
                let hits = retriever.search_one(&hop.query, 3).expect("hits");
                asked += 1;
                first += u32::from(hits.first().is_some_and(|hit| hit.id == *wanted));
                third += u32::from(hits.iter().any(|hit| hit.id == *wanted));
            }
        }
        assert!(
            f64::from(first) >= 0.95 * f64::from(asked),
            "{pages} pages: {first} of {asked} first"
        );
        assert!(
            f64::from(third) >= 0.99 * f64::from(asked),
            "{pages} pages: {third} of {asked} in three"
        );
    }
}
