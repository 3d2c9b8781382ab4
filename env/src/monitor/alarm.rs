//! What a monitor raises.

use serde::{Deserialize, Serialize};

/// The gravity of an alarm.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A finding of telemetry, to be read: a mean above its bound, whatever the run does.
    #[default]
    Sign,
    /// Worth knowing.
    Note,
    /// The run may be going wrong: look at it.
    Warn,
    /// Further steps would be wasted or do harm: pause and go back to the last good checkpoint.
    Stop,
}

impl Severity {
    /// Its name in files and on pages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sign => "sign",
            Self::Note => "note",
            Self::Warn => "warn",
            Self::Stop => "stop",
        }
    }
}

/// One finding about a run or a set of episodes: a rule of the sentinel or an item of telemetry beyond its bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alarm {
    /// The rule or the item.
    #[serde(alias = "name")]
    pub kind: String,
    /// Its gravity.
    #[serde(default)]
    pub severity: Severity,
    /// The step that raised it; absent for a set of episodes.
    #[serde(default, alias = "first_step", skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// The number that was judged; absent where a rule judges several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The bound that the number passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// The event, the numbers, the probable cause, the fix.
    #[serde(alias = "explanation")]
    pub message: String,
    /// Episodes to look at, at most three.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Example>,
}

impl Alarm {
    /// The alarm as people read it: its kind, the message, and an example a line; one of telemetry is called a sign.
    pub fn to_text(&self) -> String {
        let what = match self.severity {
            Severity::Sign => "sign",
            Severity::Note | Severity::Warn | Severity::Stop => "alarm",
        };
        let title = format!("{what} {}: {}\n", self.kind, self.message);
        let examples = self.examples.iter();
        std::iter::once(title)
            .chain(examples.map(|example| format!("  {}\n", example.to_text())))
            .collect()
    }
}

/// An episode that shows what an alarm is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Example {
    /// Training step; absent for a set of episodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// Data set of the question.
    pub data_source: String,
    /// The question's id.
    pub task: String,
    /// The recorded number of the episode among those of its question.
    pub member: u64,
    /// The question.
    pub question: String,
    /// The place in the episode where it shows; at most a few hundred characters.
    pub excerpt: String,
}

impl Example {
    /// One line: `step 4, ID (QUESTION): EXCERPT`.
    pub fn to_text(&self) -> String {
        let Self {
            step,
            task,
            question,
            excerpt,
            ..
        } = self;
        let step = step.map_or(String::new(), |step| format!("step {step}, "));
        format!("{step}{task} ({question}): {excerpt}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as earlier builds wrote them.
    #[test]
    fn alarms_of_both_kinds_are_read() {
        let rule = r#"{"kind":"no_search","severity":"warn","step":19,"message":"In 20 steps."}"#;
        let read: Alarm = serde_json::from_str(rule).unwrap();
        assert_eq!((read.step, read.severity), (Some(19), Severity::Warn));
        assert_eq!(read.to_text(), "alarm no_search: In 20 steps.\n");
        assert_eq!(serde_json::to_string(&read).unwrap(), rule);
        let item = r#"{"name":"keyword_bag","value":0.99,"threshold":0.9,"first_step":6,"examples":[],
            "explanation":"Bags."}"#;
        let read: Alarm = serde_json::from_str(item).unwrap();
        assert_eq!(
            (read.kind.as_str(), read.severity, read.step, read.threshold),
            ("keyword_bag", Severity::Sign, Some(6), Some(0.9))
        );
        assert_eq!(read.to_text(), "sign keyword_bag: Bags.\n");
    }
}
