//! The curve of the reward.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType};

use crate::figures::number;

/// Draws the training reward over the steps: its values as dots, their running mean as a line.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, rewards: &[(f64, f64)]) {
    let (Some(first), Some(last)) = (rewards.first(), rewards.last()) else {
        return;
    };
    let heights = rewards.iter().map(|(_, reward)| *reward);
    let low = heights.clone().fold(f64::INFINITY, f64::min);
    let high = heights.fold(f64::NEG_INFINITY, f64::max);
    // An axis needs a length.
    let y = if high > low {
        [low, high]
    } else {
        [low - 0.5, high + 0.5]
    };
    let x = [first.0, last.0.max(first.0 + 1.0)];
    let means = running(rewards);
    let values = Dataset::default()
        .marker(Marker::Dot)
        .graph_type(GraphType::Scatter)
        .style(Style::new().fg(Color::DarkGray))
        .data(rewards);
    let line = Dataset::default()
        .marker(Marker::Braille)
        .graph_type(GraphType::Line)
        .style(Style::new().fg(Color::Cyan))
        .data(&means);
    let ends = |[low, high]: [f64; 2]| [number(low), number(high)];
    let steps = x.map(|step| format!("{step:.0}"));
    let chart = Chart::new(vec![values, line])
        .x_axis(Axis::default().title("step").bounds(x).labels(steps))
        .y_axis(Axis::default().title("reward").bounds(y).labels(ends(y)));
    frame.render_widget(chart, area);
}

/// Means over a centred window of about a tenth of the steps.
fn running(values: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let reach = values.len() / 20;
    let mean = |place: usize| {
        let window = &values[place.saturating_sub(reach)..(place + reach + 1).min(values.len())];
        window.iter().map(|(_, value)| value).sum::<f64>() / window.len() as f64
    };
    let points = values.iter().enumerate();
    points
        .map(|(place, (step, _))| (*step, mean(place)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::running;

    #[test]
    fn the_line_is_smooth_where_there_are_many_steps() {
        let values: Vec<(f64, f64)> = (0..40)
            .map(|step| (f64::from(step), f64::from(step % 2)))
            .collect();
        let means = running(&values);
        assert_eq!(means.len(), 40);
        assert!((means[20].1 - 0.4).abs() < 1e-9, "{}", means[20].1);
        assert_eq!(running(&values[..3]), values[..3]);
    }
}
