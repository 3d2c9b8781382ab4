//! The screen: what stands where, and what keys do.

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};

use super::view::View;
use super::{chart, lines};

/// Columns from which there are two columns of text.
const WIDE: u16 = 130;
/// Lines from which there is a curve, and those it takes.
const TALL: u16 = 30;
const CURVE: u16 = 10;
/// Columns between two columns of text.
const GAP: u16 = 2;
/// Lines that a Page key moves by.
const PAGE: usize = 10;

/// What of a run is looked at.
#[derive(Default)]
pub(super) struct Screen {
    /// The part of the run, counted around.
    part: usize,
    /// Lines scrolled down.
    scroll: usize,
    /// The trajectory that is read.
    open: Option<usize>,
}

impl Screen {
    /// Does what a key asks for. Returns true when it is to leave.
    pub(super) fn press(&mut self, key: KeyEvent, view: &View) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return true,
            KeyCode::Esc if self.open.is_some() => self.open(None),
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Enter if !view.trajectories.is_empty() => self.open(Some(0)),
            KeyCode::Left | KeyCode::Char('p') => self.leaf(view, |place| place.checked_sub(1)),
            KeyCode::Right | KeyCode::Char('n') => self.leaf(view, |place| Some(place + 1)),
            KeyCode::Tab => self.part = (self.part + 1) % view.parts.len().max(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll += 1,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(PAGE),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll += PAGE,
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
        false
    }

    fn open(&mut self, place: Option<usize>) {
        (self.open, self.scroll) = (place, 0);
    }

    /// Goes from the trajectory that is read to a neighbour, where there is one.
    fn leaf(&mut self, view: &View, next: impl Fn(usize) -> Option<usize>) {
        let next = self.open.and_then(next);
        if let Some(place) = next.filter(|place| *place < view.trajectories.len()) {
            self.open(Some(place));
        }
    }

    /// Draws the run. A `fault` of the last reading stands below, over what was read before.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, view: &View, fault: Option<&str>) {
        let area = frame.area();
        let width = usize::from(area.width);
        let part = view.part(self.part);
        let mut head = lines::head(view, part, width);
        // Of a screen of few lines the head leaves some to what scrolls.
        head.truncate(usize::from(area.height / 2).max(1));
        let (top, rest) = cut(area, head.len());
        put(frame, top, &head);
        let (body, foot) = cut(rest, usize::from(rest.height.saturating_sub(1)));
        let open = self.open.and_then(|place| {
            let one = view.trajectories.get(place)?;
            Some(lines::trajectory(one, place, width))
        });
        let columns = match (open, part) {
            (Some(text), _) => vec![(body, text)],
            (None, Some(part)) if body.width >= WIDE => {
                let (left, right) = halves(body);
                let mut own = left;
                if left.height >= TALL && part.rewards.len() > 1 {
                    let (curve, below) = cut(left, usize::from(CURVE));
                    chart::draw(frame, curve, &part.rewards);
                    own = below;
                }
                let of_right = usize::from(right.width);
                let mut news = lines::verdict(view, of_right);
                news.extend(lines::alarms(part, of_right));
                news.extend(lines::episodes(view, of_right));
                let figures = lines::figures(part, usize::from(own.width));
                vec![(own, figures), (right, news)]
            }
            (None, part) => {
                let mut all = lines::verdict(view, width);
                if let Some(part) = part {
                    all.extend(lines::figures(part, width));
                    all.extend(lines::alarms(part, width));
                }
                all.extend(lines::episodes(view, width));
                vec![(body, all)]
            }
        };
        let below = |(area, text): &(Rect, Vec<Line<'_>>)| {
            text.len().saturating_sub(usize::from(area.height))
        };
        let most = columns.iter().map(below).max().unwrap_or(0);
        self.scroll = self.scroll.min(most);
        for (area, text) in &columns {
            let hidden = text.len().saturating_sub(usize::from(area.height));
            put(frame, *area, &text[self.scroll.min(hidden)..]);
        }
        let foot_line = self.foot(view, fault, self.scroll < most);
        put(frame, foot, &[foot_line]);
    }

    /// The keys, with what they do now first; or what is wrong.
    fn foot(&self, view: &View, fault: Option<&str>, more: bool) -> Line<'static> {
        if let Some(fault) = fault {
            let red = Style::new().fg(Color::Red);
            return Line::styled(crate::figures::printable(fault), red);
        }
        let mut keys = vec!["q quit"];
        if more {
            keys.push("↓ more");
        }
        if self.open.is_some() {
            keys.extend(["← → other trajectories", "Esc back"]);
        } else if !view.trajectories.is_empty() {
            keys.push("Enter trajectories");
        }
        if view.parts.len() > 1 {
            keys.push("Tab next part");
        }
        Line::styled(
            keys.join(" · "),
            Style::new().add_modifier(Modifier::REVERSED),
        )
    }
}

/// The first lines of an area, at most all of them, and the rest.
fn cut(area: Rect, lines: usize) -> (Rect, Rect) {
    let height = area.height.min(u16::try_from(lines).unwrap_or(u16::MAX));
    let top = Rect { height, ..area };
    let rest = Rect {
        y: area.y + height,
        height: area.height - height,
        ..area
    };
    (top, rest)
}

/// The two columns of an area.
fn halves(area: Rect) -> (Rect, Rect) {
    let width = (area.width / 2).saturating_sub(GAP);
    let left = Rect { width, ..area };
    let right = Rect {
        x: area.x + width + GAP,
        width: area.width - width - GAP,
        ..area
    };
    (left, right)
}

/// Writes lines into an area; those that find no place are left out.
fn put(frame: &mut Frame<'_>, area: Rect, lines: &[Line<'_>]) {
    let fitting = &lines[..lines.len().min(usize::from(area.height))];
    frame.render_widget(Text::from(fitting), area);
}
