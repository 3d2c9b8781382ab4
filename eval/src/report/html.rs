//! The frame of the page, colours and legends.

use base64::Engine as _;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

/// Titled sections below links to them; those without content are left out.
pub(super) fn sections(titled: &[(&str, Markup)]) -> Markup {
    let filled = titled.iter().filter(|(_, content)| !content.0.is_empty());
    let filled: Vec<(&str, String, &Markup)> = filled
        .map(|(title, content)| (*title, anchor(title), content))
        .collect();
    html! {
        @if filled.len() > 1 {
            nav aria-label="Contents" {
                @for (title, id, _) in &filled { a href={ "#" (id) } { (title) } " " }
            }
        }
        @for (title, id, content) in &filled {
            section id=(id) { h2 { (title) } (content) }
        }
    }
}

/// The id of a section: its title in lower case, words joined by hyphens.
fn anchor(title: &str) -> String {
    let words = title.split(|letter: char| !letter.is_alphanumeric());
    let words: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    words.join("-")
}

/// The whole document. `script`, which may be empty, is the one script that may run in it.
///
/// Control characters that browsers reject become U+FFFD.
pub(super) fn page(title: &str, body: &Markup, script: &str) -> String {
    let digest = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(script));
    let allowed = if script.is_empty() {
        String::new()
    } else {
        format!("; script-src 'sha256-{digest}'")
    };
    let policy = format!("default-src 'none'; style-src 'unsafe-inline'{allowed}");
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(policy);
                title { (title) }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                main { (body) }
                @if !script.is_empty() { script { (PreEscaped(script)) } }
            }
        }
    };
    let printable = |letter: char| match letter {
        '\n' | '\t' => letter,
        control if control.is_control() => '\u{fffd}',
        other => other,
    };
    page.0.chars().map(printable).collect()
}

/// The colours that names without a role and parts of the reward take in turn.
const COLOURS: [&str; 8] = [
    "c-main",
    "c-green",
    "c-violet",
    "c-teal",
    "c-main dotted",
    "c-green dotted",
    "c-violet dotted",
    "c-teal dotted",
];

/// The colour class at a position, counted from 0.
pub(super) fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// Colours of roles: the first of a role is drawn through, others are dotted.
const CONTROLS: [&str; 2] = ["c-control", "c-control dotted"];
const STARTS: [&str; 2] = ["c-start", "c-start dotted"];

/// Colour classes of runs or evaluations in order: the start grey, controls orange, others in turn from blue.
pub(super) fn colours<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<&'static str> {
    let (mut controls, mut starts, mut ordinary) = (0, 0, 0);
    let class = |name: &str| {
        let name = name.to_lowercase();
        if name.contains("control") {
            controls += 1;
            CONTROLS[usize::from(controls > 1)]
        } else if name.contains("start") || name.contains("before") {
            starts += 1;
            STARTS[usize::from(starts > 1)]
        } else {
            ordinary += 1;
            colour(ordinary - 1)
        }
    };
    names.into_iter().map(class).collect()
}

/// A legend line of names with their classes.
pub(super) fn legend<'a>(names: impl IntoIterator<Item = (&'a str, &'a str)>) -> Markup {
    html! {
        p.legend {
            @for (name, class) in names {
                span class={ "key " (class) } { i {} (name) }
            }
        }
    }
}

/// Text whose parts between backticks are code.
pub(super) fn coded(text: &str) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    // An even number of them: a backtick has no other.
    let is_paired = parts.len() % 2 == 1;
    html! {
        @if is_paired {
            @for (place, part) in parts.iter().enumerate() {
                @if place % 2 == 1 { code { (part) } } @else { (part) }
            }
        } @else { (text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_between_backticks_is_code() {
        let shown = ["a `<b>` c", "`a`", "no", "1 ` 2"].map(|text| coded(text).0);
        let expected = [
            "a <code>&lt;b&gt;</code> c",
            "<code>a</code>",
            "no",
            "1 ` 2",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn text_is_escaped_and_control_characters_are_replaced() {
        let text = "<script>alert(\"x\" & 'y')</script>\u{0}\u{1b}[0m\n";
        let page = page(text, &html! { p title=(text) { (text) } }, "");
        let safe =
            "&lt;script&gt;alert(&quot;x&quot; &amp; 'y')&lt;/script&gt;\u{fffd}\u{fffd}[0m\n";
        assert_eq!(page.matches(safe).count(), 3);
        assert!(!page.contains("<script"));
    }

    #[test]
    fn contents_link_to_the_sections_that_are_filled() {
        let text = |words: &str| html! { p { (words) } };
        let titled = [
            ("Reward, part by part", text("a")),
            ("Failures", html! {}),
            ("Conduct", text("b")),
        ];
        assert_eq!(
            sections(&titled).0,
            "<nav aria-label=\"Contents\"><a href=\"#reward-part-by-part\">Reward, part by part</a> \
             <a href=\"#conduct\">Conduct</a> </nav>\
             <section id=\"reward-part-by-part\"><h2>Reward, part by part</h2><p>a</p></section>\
             <section id=\"conduct\"><h2>Conduct</h2><p>b</p></section>"
        );
        // One section needs no contents.
        assert!(!sections(&titled[2..]).0.contains("<nav"));
    }

    #[test]
    fn colours_are_stable_by_role() {
        assert_eq!(
            colours(["Start", "trained", "control (random reward)", "other"]),
            ["c-start", "c-main", "c-control", "c-green"]
        );
        // Greedy and sampled episodes of one policy are told apart.
        assert_eq!(
            colours(["start", "start, sampled", "control", "control, sampled"]),
            ["c-start", "c-start dotted", "c-control", "c-control dotted"]
        );
    }
}
