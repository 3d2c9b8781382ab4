//! Screens of a run that is written by hand.

use std::fmt::Write as _;
use std::path::Path;

use forage_contracts::{Ending, Provenance};
use forage_eval::{Origin, QuestionKey, Segment, Trajectory};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::lines;
use super::screen::Screen;
use super::view::View;

/// A run of 60 steps, of which half are done, with an alarm.
fn run(folder: &Path) {
    std::fs::create_dir(folder).unwrap();
    std::fs::write(folder.join("config.toml"), "seed = 1\n[grpo]\nsteps = 60\n").unwrap();
    let mut rows = String::new();
    for step in 0..30 {
        let reward = f64::from(step) / 100.0;
        let row = serde_json::json!({
            "step": step, "reward/mean": reward, "val/em": 0.25, "search/calls_mean": 1.5,
            "response/tokens_mean": 87.0, "policy/entropy": 0.75, "policy/clip_frac": 0.125,
            "mismatch/logprob_abs_diff": 0.0625, "time/rollout_s": 2.0, "time/update_s": 1.0,
        });
        let _ = writeln!(rows, "{row}");
    }
    std::fs::write(folder.join("metrics.jsonl"), rows).unwrap();
    let alarm =
        r#"{"kind":"entropy","severity":"warn","step":5,"message":"Entropy fell by half."}"#;
    std::fs::write(folder.join("alarms.jsonl"), format!("{alarm}\n")).unwrap();
}

fn trajectory(member: u64, policy: &str) -> Trajectory {
    let segment = |author, text: &str| Segment {
        author,
        text: text.to_owned(),
    };
    Trajectory {
        origin: Origin {
            run: "run".to_owned(),
            step: Some(20),
            alarms: Vec::new(),
        },
        key: QuestionKey {
            data_source: "nq".to_owned(),
            id: "7".to_owned(),
            question: "Who was the mayor of Velm?".to_owned(),
        },
        golds: vec!["Fennu Danzan".to_owned()],
        relevant: Vec::new(),
        answer: Some("Danzan".to_owned()),
        group: 0,
        member,
        reward: Some(0.5),
        parts: [("em".to_owned(), 0.0)].into(),
        ending: Ending::Answered,
        turns: 2,
        searches: 1,
        tokens: [9, 9, 9, 0],
        segments: vec![
            segment(Provenance::Prompt, "Answer the question."),
            segment(Provenance::Policy, policy),
        ],
    }
}

fn shown(screen: &mut Screen, view: &View, [width, height]: [u16; 2]) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| screen.draw(frame, view, None))
        .unwrap();
    let cells = terminal.backend().buffer().content();
    let rows = cells.chunks(usize::from(width));
    let row = |row: &[ratatui::buffer::Cell]| -> String {
        row.iter().map(ratatui::buffer::Cell::symbol).collect()
    };
    rows.map(|cells| row(cells).trim_end().to_owned() + "\n")
        .collect()
}

fn press(screen: &mut Screen, view: &View, key: KeyCode) -> bool {
    screen.press(KeyEvent::new(key, KeyModifiers::NONE), view)
}

/// Progress, time left and alarms stand on every screen; the metrics that matter first are there or one key away.
#[test]
fn no_screen_is_too_small_for_what_matters() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    run(&path);
    let lock = std::fs::File::create(path.join(".lock")).unwrap();
    lock.lock().unwrap();
    let mut view = View::read(&path).unwrap();
    view.trajectories = vec![trajectory(0, "hello"), trajectory(1, "again")];
    for size in [[200, 50], [130, 24], [100, 30], [60, 20], [40, 14]] {
        let mut screen = Screen::default();
        let first = shown(&mut screen, &view, size);
        let joined = first.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "run: 30 of 60 steps are done",
            "90 s left at its pace",
            "alarms: 1, the newest warn entropy",
            "last 15 steps",
            "Training reward",
            "0.290",
            "q quit",
        ] {
            assert!(joined.contains(part), "{size:?}: no `{part}` in\n{first}");
        }
        let mut seen = first;
        for _ in 0..60 {
            assert!(!press(&mut screen, &view, KeyCode::Down));
            seen += &shown(&mut screen, &view, size);
        }
        let seen = seen.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "Validation exact match",
            "Searches per episode",
            "Tokens that the policy",
            "Policy entropy",
            "Sampler-trainer log-prob",
            "rollouts 2.0 s (67 %)",
            "Entropy fell by half.",
            "✗ 0.50 answered · Who was",
        ] {
            assert!(seen.contains(part), "{size:?}: no `{part}` in\n{seen}");
        }
    }
    let large = shown(&mut Screen::default(), &view, [200, 50]);
    let dots = '\u{2800}'..='\u{28ff}';
    assert!(
        large.chars().any(|letter| dots.contains(&letter)),
        "a curve: {large}"
    );
    // Of a run that nobody works on no time is left.
    drop(lock);
    let stopped = lines::text(&View::read(&path).unwrap(), 200);
    assert!(
        stopped.contains("; it is stopped, and the command that began it goes on with --resume")
            && !stopped.contains("left at its pace"),
        "{stopped}"
    );
    // A terminal of nothing is drawn too.
    for size in [[1, 1], [3, 2], [200, 1]] {
        shown(&mut Screen::default(), &view, size);
    }
}

#[test]
fn trajectories_are_read_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    run(&path);
    let mut view = View::read(&path).unwrap();
    let mut screen = Screen::default();
    press(&mut screen, &view, KeyCode::Enter);
    let none = shown(&mut screen, &view, [80, 24]);
    assert!(!none.contains("gold: ") && !none.contains("Enter trajectories"));
    view.trajectories = vec![trajectory(0, "hello\u{1b}[2J"), trajectory(1, "again")];
    press(&mut screen, &view, KeyCode::Enter);
    let first = shown(&mut screen, &view, [80, 24]);
    for part in [
        "member 0",
        "gold: Fennu Danzan",
        "[policy]",
        "hello\u{fffd}[2J",
        "Esc back",
    ] {
        assert!(first.contains(part), "no `{part}` in\n{first}");
    }
    press(&mut screen, &view, KeyCode::Left);
    assert!(shown(&mut screen, &view, [80, 24]).contains("member 0"));
    press(&mut screen, &view, KeyCode::Right);
    press(&mut screen, &view, KeyCode::Right);
    assert!(shown(&mut screen, &view, [80, 24]).contains("member 1"));
    assert!(
        !press(&mut screen, &view, KeyCode::Esc),
        "it only closes the trajectory"
    );
    assert!(shown(&mut screen, &view, [80, 24]).contains("Training reward"));
    assert!(press(&mut screen, &view, KeyCode::Esc));
    assert!(press(&mut screen, &view, KeyCode::Char('q')));
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert!(screen.press(interrupt, &view));
}

#[test]
fn a_run_without_a_step_and_a_fault_of_reading_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    run(&path);
    std::fs::remove_file(path.join("metrics.jsonl")).unwrap();
    let view = View::read(&path).unwrap();
    let begun = shown(&mut Screen::default(), &view, [60, 10]);
    assert!(begun.contains("run: no step is done yet."), "{begun}");
    assert!(lines::text(&view, 60).contains("no step is done yet."));
    let mut terminal = Terminal::new(TestBackend::new(60, 10)).unwrap();
    let mut screen = Screen::default();
    terminal
        .draw(|frame| screen.draw(frame, &view, Some("metrics.jsonl: line 3 is not a row")))
        .unwrap();
    let drawn = format!("{:?}", terminal.backend().buffer());
    assert!(drawn.contains("line 3 is not a row"), "{drawn}");
}

#[test]
fn the_text_keeps_to_its_width() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    run(&path);
    let mut view = View::read(&path).unwrap();
    view.trajectories = vec![trajectory(0, "hello")];
    for width in [20, 50, 80, 100] {
        for line in lines::text(&view, width).lines() {
            let most = width.max(45);
            assert!(line.chars().count() <= most, "{width}: {line}");
        }
    }
    assert!(!lines::text(&view, 120).contains("newest at step"));
    // A metric that newer steps lack says of which step its newest value is.
    let newer = "{\"step\":30,\"reward/mean\":0.3,\"search/calls_mean\":1.5}\n";
    let metrics = path.join("metrics.jsonl");
    let rows = std::fs::read_to_string(&metrics).unwrap();
    std::fs::write(&metrics, rows + newer).unwrap();
    let old = View::read(&path).unwrap();
    let told = lines::text(&old, 120);
    let of = |words: &str| told.lines().find(|line| line.starts_with(words)).unwrap();
    assert!(of("Policy entropy").ends_with("0.750 to 0.750, newest at step 29"));
    assert!(!of("Training reward").contains("newest"));
    for width in [50, 80, 100] {
        let text = lines::text(&old, width);
        assert!(text.lines().all(|line| line.chars().count() <= width));
    }
    // Whose an episode is stands before its question, where there are several parts.
    assert!(lines::text(&view, 100).contains("✗ 0.50 answered · Who was"));
    let other = folder.path().join("other");
    run(&other);
    view.parts.extend(View::read(&other).unwrap().parts);
    let wide = lines::text(&view, 100);
    assert!(
        wide.contains("✗ 0.50 answered · run · Who was") && wide.contains("✗ it is none"),
        "{wide}"
    );
    assert!(
        wide.contains('▁') && wide.contains("0.010 to 0.280"),
        "{wide}"
    );
}
