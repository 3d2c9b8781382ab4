//! A run as lines of text, for a screen and for `--once`.

use forage_contracts::Provenance;
use forage_env::{Alarm, Severity};
use forage_eval::Trajectory;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::view::{Part, View};
use crate::figures::{Figure, number, printable, sparkline};

/// Alarms that are shown in full.
const ALARMS: usize = 5;
/// Characters that the words of a metric take at most.
const WORDS: usize = 43;
/// Characters of a metric's value.
const VALUE: usize = 8;
/// Fewest and most characters that a course is drawn in.
const COURSE: [usize; 2] = [8, 32];
/// Characters of a trend.
const TREND: usize = 18;

const PLAIN: Style = Style::new();
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// The first screen as text: every part of the run, one below the other.
pub(super) fn text(view: &View, width: usize) -> String {
    let mut lines = verdict(view, width);
    for place in 0..view.parts.len().max(1) {
        let part = view.part(place);
        lines.extend(head(view, part, width));
        lines.extend(part.into_iter().flat_map(|part| figures(part, width)));
        lines.extend(part.into_iter().flat_map(|part| alarms(part, width)));
        lines.push(Line::default());
    }
    lines.extend(episodes(view, width));
    let plain = |line: &Line<'_>| {
        let spans = line.spans.iter().map(|span| span.content.as_ref());
        spans.collect::<String>().trim_end().to_owned()
    };
    lines.iter().map(|line| plain(line) + "\n").collect()
}

/// How far the run is, and whether it raised alarms: what stands on every screen.
pub(super) fn head(view: &View, part: Option<&Part>, width: usize) -> Vec<Line<'static>> {
    let Some(part) = part else {
        return wrapped(&view.bare, width, BOLD);
    };
    let mut lines = wrapped(&part.records.status_after(view.since()), width, BOLD);
    let newest = part.alarms.first();
    lines.push(newest.map_or_else(
        || Line::styled("no alarms", DIM),
        |alarm| {
            let count = part.alarms.len();
            let what = format!("alarms: {count}, the newest {}", title(alarm));
            Line::styled(fit(&what, width), colour(alarm))
        },
    ));
    lines
}

/// Reward with interval, metrics and time per phase.
pub(super) fn figures(part: &Part, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if let Some(([first, last], span)) = part.reward {
        lines.push(heading("Reward, mean with 95 % interval over steps"));
        for (which, found) in [("last", last), ("first", first)] {
            let [low, high] = found.ends().map(number);
            let value = format!("{} [{low}, {high}]", number(found.estimate));
            lines.push(Line::from(vec![
                Span::styled(format!("{value:<24}"), BOLD),
                Span::styled(format!("{which} {span} steps"), DIM),
            ]));
        }
    }
    if !part.figures.is_empty() {
        lines.push(heading("Metrics: newest, course, first to last tenth"));
        let longest = part.figures.iter().map(|one| one.words.chars().count());
        let most = width.saturating_sub(VALUE + 1).clamp(1, WORDS);
        let words = longest.max().unwrap_or(0).min(most);
        lines.extend(part.figures.iter().map(|one| figure(one, words, width)));
    }
    let phases = part.records.phases();
    if !phases.is_empty() {
        let all: f64 = phases.iter().map(|(_, seconds)| seconds).sum();
        let share = |seconds: f64| 100.0 * seconds / all.max(f64::MIN_POSITIVE);
        let one = |(part, seconds): &(&str, f64)| {
            format!("{part} {seconds:.1} s ({:.0} %)", share(*seconds))
        };
        let told: Vec<String> = phases.iter().map(one).collect();
        lines.push(heading("Time of a step"));
        lines.extend(wrapped(&told.join(", "), width, PLAIN));
    }
    lines
}

/// A metric: words and value always, course and trend where there is room.
fn figure(figure: &Figure, words: usize, width: usize) -> Line<'static> {
    let value = number(figure.newest());
    let mut spans = vec![
        Span::raw(format!("{:<words$} ", fit(&figure.words, words))),
        Span::styled(format!("{value:>VALUE$}"), BOLD),
    ];
    let room = width.saturating_sub(words + 1 + VALUE);
    let wide = TREND + figure.age().chars().count();
    let trend = room >= COURSE[0] + wide + 4;
    let course = room.saturating_sub(if trend { wide + 4 } else { 2 });
    if course >= COURSE[0] {
        let course = course.min(COURSE[1]);
        let drawn = sparkline(&figure.values, course);
        let style = PLAIN.fg(Color::Cyan);
        spans.push(Span::styled(format!("  {drawn:<course$}"), style));
    }
    if trend {
        spans.push(Span::styled(format!("  {}", figure.trend()), DIM));
    }
    Line::from(spans)
}

/// The alarms, the newest first.
pub(super) fn alarms(part: &Part, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if !part.alarms.is_empty() {
        lines.push(heading("Alarms"));
    }
    for alarm in part.alarms.iter().take(ALARMS) {
        lines.push(Line::styled(fit(&title(alarm), width), colour(alarm)));
        lines.extend(wrapped(&alarm.message, width, PLAIN));
    }
    let more = part.alarms.len().saturating_sub(ALARMS);
    if more > 0 {
        let told = format!("and {more} older ones, which `forage runs show` prints");
        lines.extend(wrapped(&told, width, DIM));
    }
    lines
}

/// The verdict, once there is one.
pub(super) fn verdict(view: &View, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if !view.verdict.is_empty() {
        lines.push(heading("Verdict"));
    }
    for sentence in &view.verdict {
        lines.extend(wrapped(sentence, width, PLAIN));
    }
    lines
}

/// The newest trajectories in a line each, and what could not be read to its end.
pub(super) fn episodes(view: &View, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if !view.trajectories.is_empty() {
        lines.push(heading("Newest trajectories"));
        let legend = "✓ the answer is an exact match, ✗ it is none; then what the training reward paid, whichever reward that is";
        lines.extend(wrapped(legend, width, DIM));
    }
    let several = view.parts.len() > 1;
    let shown = view.trajectories.iter();
    lines.extend(shown.map(|one| episode(one, several, width)));
    for note in &view.notes {
        lines.extend(wrapped(note, width, DIM));
    }
    lines
}

/// An episode in a line: its outcome first, which no screen is too narrow for, then, where a run has several parts, whose it is.
fn episode(one: &Trajectory, several: bool, width: usize) -> Line<'static> {
    let (mark, style) = outcome(one);
    let part = if several {
        format!(" · {}", one.origin.run)
    } else {
        String::new()
    };
    let told = format!(
        "{mark} {} {}{part} · {} · {}",
        reward(one),
        one.ending.name(),
        one.key.question,
        one.label()
    );
    Line::styled(fit(&told, width), style)
}

/// An episode in full: facts, then who wrote what.
pub(super) fn trajectory(one: &Trajectory, place: usize, width: usize) -> Vec<Line<'static>> {
    let (mark, style) = outcome(one);
    let parts = one.parts.iter();
    let parts: Vec<String> = parts
        .map(|(name, value)| format!("{name} {value:.2}"))
        .collect();
    let mut lines = wrapped(&format!("{} {}", place + 1, one.label()), width, BOLD);
    lines.extend(wrapped(&one.key.question, width, BOLD));
    let earned = format!("{mark} reward {} · {}", reward(one), one.ending);
    lines.extend(wrapped(&earned, width, style));
    let facts = [
        format!("answer: {}", one.answer.as_deref().unwrap_or("none")),
        format!("score: {}", parts.join(" · ")),
    ];
    for fact in one.labels().into_iter().chain(facts) {
        lines.extend(wrapped(&fact, width, PLAIN));
    }
    for segment in &one.segments {
        let style = PLAIN.fg(match segment.author {
            Provenance::Prompt => Color::DarkGray,
            Provenance::Policy => Color::Blue,
            Provenance::Environment => Color::Green,
            Provenance::Forced => Color::Red,
        });
        let name = format!("[{}]", segment.author.name());
        lines.push(Line::styled(name, style.add_modifier(Modifier::BOLD)));
        lines.extend(wrapped(segment.text.trim_end(), width, style));
    }
    lines
}

fn reward(one: &Trajectory) -> String {
    one.reward
        .map_or_else(|| "none".to_owned(), |reward| format!("{reward:.2}"))
}

/// A sign and a colour for right and wrong.
fn outcome(one: &Trajectory) -> (&'static str, Style) {
    match one.is_correct() {
        Some(true) => ("✓", PLAIN.fg(Color::Green)),
        Some(false) => ("✗", PLAIN.fg(Color::Red)),
        None => ("·", PLAIN),
    }
}

/// `stop entropy at step 12`.
fn title(alarm: &Alarm) -> String {
    let step = alarm.step.map(|step| format!(" at step {step}"));
    let (severity, kind) = (alarm.severity.name(), &alarm.kind);
    format!("{severity} {kind}{}", step.unwrap_or_default())
}

fn colour(alarm: &Alarm) -> Style {
    match alarm.severity {
        Severity::Stop => BOLD.fg(Color::Red),
        Severity::Warn => BOLD.fg(Color::Yellow),
        Severity::Note | Severity::Sign => PLAIN.fg(Color::Yellow),
    }
}

fn heading(text: &'static str) -> Line<'static> {
    Line::styled(text, BOLD.add_modifier(Modifier::UNDERLINED))
}

/// A text in one line of at most so many characters; an ellipsis stands for what is left out.
fn fit(text: &str, width: usize) -> String {
    let line = printable(text).replace(['\n', '\t'], " ");
    if line.chars().count() <= width {
        return line;
    }
    let kept: String = line.chars().take(width.saturating_sub(1)).collect();
    kept + "…"
}

/// A text in lines of at most so many characters, cut at spaces where there are any.
fn wrapped(text: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    let width = width.max(1);
    let mut lines = Vec::new();
    for line in printable(text).replace('\t', "    ").split('\n') {
        let mut rest: Vec<char> = line.chars().collect();
        while rest.len() > width {
            let space = rest[..=width].iter().rposition(|letter| *letter == ' ');
            let cut = space.filter(|cut| *cut > 0).unwrap_or(width);
            let left = rest.split_off(cut);
            lines.push(rest.into_iter().collect::<String>());
            rest = left
                .into_iter()
                .skip_while(|letter| *letter == ' ')
                .collect();
        }
        lines.push(rest.into_iter().collect());
    }
    let styled = |line: String| Line::styled(line, style);
    lines.into_iter().map(styled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[Line<'_>]) -> Vec<String> {
        let text =
            |line: &Line<'_>| -> String { line.spans.iter().map(|span| &*span.content).collect() };
        lines.iter().map(text).collect()
    }

    #[test]
    fn texts_are_cut_at_spaces_and_lose_nothing() {
        let lines = wrapped("one two  three\nfour", 7, PLAIN);
        assert_eq!(texts(&lines), ["one two", "three", "four"]);
        assert_eq!(texts(&wrapped("abcdefgh", 3, PLAIN)), ["abc", "def", "gh"]);
        assert_eq!(texts(&wrapped("", 0, PLAIN)), [""]);
        assert_eq!(
            texts(&wrapped("a\u{1b}b\tc", 9, PLAIN)),
            ["a\u{fffd}b    c"]
        );
    }

    #[test]
    fn lines_that_are_too_long_say_so() {
        assert_eq!(fit("a\nb", 3), "a b");
        assert_eq!(fit("abcd", 3), "ab…");
    }
}
