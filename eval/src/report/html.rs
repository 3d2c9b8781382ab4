//! The page frame and escaping.

use base64::Engine as _;
use sha2::{Digest as _, Sha256};

/// Text made safe inside elements and quoted attributes. Control characters browsers reject become U+FFFD.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + text.len() / 8);
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(letter),
            control if control.is_control() => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}

/// A titled section; nothing when it has no content.
pub(super) fn section(title: &str, content: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    format!("<section><h2>{}</h2>{content}</section>", escape(title))
}

/// The pieces of all items, one after the other.
pub(super) fn concat<T>(items: impl IntoIterator<Item = T>, piece: impl FnMut(T) -> String) -> String {
    items.into_iter().map(piece).collect::<Vec<String>>().concat()
}

/// The whole document. `body` is HTML; `script`, which may be empty, is the one script that may run in it.
pub(super) fn page(title: &str, body: &str, script: &str) -> String {
    let style = include_str!("style.css");
    let (policy, script) = if script.is_empty() {
        (String::new(), String::new())
    } else {
        (format!("; script-src 'sha256-{}'", digest(script)), format!("<script>{script}</script>"))
    };
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'{policy}\">\
         <title>{}</title><style>{style}</style></head>\
         <body><main>{body}</main>{script}</body></html>\n",
        escape(title)
    )
}

/// SHA-256 in base64, as content security policies name a script.
fn digest(script: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(Sha256::digest(script))
}

/// The colour class of a run or evaluation: the start grey, controls orange, others in turn from blue.
pub(super) fn colour(name: &str, index: usize) -> &'static str {
    const OTHERS: [&str; 8] = [
        "c-main",
        "c-green",
        "c-violet",
        "c-teal",
        "c-main dotted",
        "c-green dotted",
        "c-violet dotted",
        "c-teal dotted",
    ];
    let lower = name.to_lowercase();
    if lower.contains("control") {
        "c-control"
    } else if lower.contains("start") || lower.contains("before") {
        "c-start"
    } else {
        OTHERS[index % OTHERS.len()]
    }
}

/// Colour classes of all names in order; each ordinary name takes the next colour.
pub(super) fn colours<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<&'static str> {
    let mut ordinary = 0;
    let mut classes = Vec::new();
    for name in names {
        let class = colour(name, ordinary);
        ordinary += usize::from(!matches!(class, "c-control" | "c-start"));
        classes.push(class);
    }
    classes
}

/// The colour class of a part of the reward.
pub(super) fn part_colour(index: usize) -> &'static str {
    const PARTS: [&str; 10] = [
        "c-main",
        "c-green",
        "c-violet",
        "c-teal",
        "c-control",
        "c-main dotted",
        "c-green dotted",
        "c-violet dotted",
        "c-teal dotted",
        "c-control dotted",
    ];
    PARTS[index % PARTS.len()]
}

/// A legend line of coloured names.
pub(super) fn legend<'a>(names: impl IntoIterator<Item = (&'a str, &'static str)>) -> String {
    let entry = |(name, class)| format!("<span class=\"key {class}\"><i></i>{}</span>", escape(name));
    format!("<p class=\"legend\">{}</p>", concat(names, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_escapes_the_escape() {
        assert_eq!(
            escape("<script>alert(\"x\" & 'y')</script>\u{0}\u{1b}[0m\n"),
            "&lt;script&gt;alert(&quot;x&quot; &amp; &#39;y&#39;)&lt;/script&gt;\u{fffd}\u{fffd}[0m\n"
        );
    }

    #[test]
    fn colours_are_stable_by_role() {
        assert_eq!(
            colours(["Start", "trained", "control (random reward)", "other"]),
            ["c-start", "c-main", "c-control", "c-green"]
        );
    }
}
