//! `forage runs watch`: a run on the terminal, as it goes on.

mod chart;
mod lines;
mod screen;
#[cfg(test)]
mod tests;
mod view;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{Event, poll, read};
use ratatui::crossterm::terminal::size;

use super::newest_run;
use crate::pace::{LOOK, Pace};
use crate::terminal::out;
use screen::Screen;
use view::View;

/// Follows a run in the terminal while it goes on.
///
/// Shows how far it is and how long it still takes, reward with interval, exact match, searches, lengths, entropy, mismatch, alarms, time
/// per phase and the newest trajectories. It only reads, so it may be started and left at any time, over SSH too.
///
/// Keys: q or Ctrl-C leaves, arrows and Page keys scroll, Enter opens the newest trajectories, Tab goes to the next part of a run with
/// several, a quickstart's control for instance. Without a terminal it prints the first screen and ends.
#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// Run folder of `forage train`, `sft` or `quickstart`, or a file of episodes; it may still be written. The newest run
    /// in `runs` by default.
    run: Option<PathBuf>,
    /// Print the first screen as text and end.
    #[arg(long)]
    once: bool,
}

/// Columns of the text where there is no terminal.
const COLUMNS: u16 = 100;
/// Time that a key may wait for, and between two drawings.
const TICK: Duration = Duration::from_millis(200);
/// Time in which a signal ends the loop, however slow the machine.
const LEAVING: Duration = Duration::from_secs(5);

impl Watch {
    pub(super) fn run(self) -> Result<()> {
        let run = self.run.map_or_else(newest_run, Ok)?;
        // Whatever is wrong with the folder is said before the screen is taken.
        let view = View::read(&run)?;
        let (input, output) = (std::io::stdin(), std::io::stdout());
        let dumb = std::env::var_os("TERM").is_some_and(|kind| kind == "dumb");
        if self.once || dumb || !input.is_terminal() || !output.is_terminal() {
            let shown = output.is_terminal();
            let size = shown.then(|| size().ok()).flatten();
            let columns = size.map_or(COLUMNS, |(columns, _)| columns.max(1));
            out(lines::text(&view, usize::from(columns)).trim_end());
            return Ok(());
        }
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        ctrlc::set_handler(move || {
            asked.store(true, Ordering::SeqCst);
            // crossterm never returns from reading a terminal that has hung up, and takes a whole core for it.
            std::thread::sleep(LEAVING);
            std::process::exit(1);
        })?;
        let views = follow(run);
        let terminal = ratatui::try_init().context("cannot take the terminal; --once prints");
        let shown = terminal.and_then(|mut terminal| show(&mut terminal, view, &views, &stop));
        let restored = ratatui::try_restore();
        shown?;
        restored.context("cannot give the terminal back; `reset` does")
    }
}

/// Reads the run again whenever it has gone on, on a thread of its own: keys wait for no file.
fn follow(run: PathBuf) -> Receiver<Result<View>> {
    let (send, views) = channel();
    std::thread::spawn(move || {
        let mut pace = Pace::default();
        let runs = [run];
        loop {
            if let Some(view) = pace.read(&runs, || View::read(&runs[0]))
                && send.send(view).is_err()
            {
                return;
            }
            std::thread::sleep(LOOK);
        }
    });
    views
}

/// Draws until a key or a signal ends it.
fn show(
    terminal: &mut DefaultTerminal,
    mut view: View,
    views: &Receiver<Result<View>>,
    stop: &AtomicBool,
) -> Result<()> {
    let mut screen = Screen::default();
    let mut fault = None;
    while !stop.load(Ordering::SeqCst) {
        for read in views.try_iter() {
            match read {
                Ok(newer) => (view, fault) = (newer, None),
                Err(error) => fault = Some(error.to_string()),
            }
        }
        terminal.draw(|frame| screen.draw(frame, &view, fault.as_deref()))?;
        if poll(TICK)?
            && let Event::Key(key) = read()?
            && screen.press(key, &view)
        {
            break;
        }
    }
    Ok(())
}
