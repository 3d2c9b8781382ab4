//! The Jinja environment that transformers gives to chat templates.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use forage_net::FileBounds;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind};
use regex::Regex;
use serde_json::{Map, Value as Json};

use super::error::{ChatError, Raised};
use super::{json, python};

/// Messages and what else a template reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// Objects with `role`, `content` and whatever else the template knows.
    pub messages: Vec<Json>,
    /// JSON schemas of tools; the template sees none where this is empty.
    pub tools: Vec<Json>,
    /// True when the text ends with the beginning of an assistant turn.
    pub add_generation_prompt: bool,
    /// Further variables, for instance `enable_thinking`.
    pub options: Map<String, Json>,
}

/// The texts of the special tokens a template may name; a variable is undefined where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Begin of sequence.
    pub bos: Option<String>,
    /// End of sequence.
    pub eos: Option<String>,
    /// Padding.
    pub pad: Option<String>,
    /// Unknown token.
    pub unk: Option<String>,
}

/// A chat template. Cheap to clone.
///
/// Rendered as transformers renders it: blocks trimmed, loop controls, `raise_exception`, `tojson` of Python, methods of
/// Python's strings and dicts. Known differences: a loop over `none` is empty instead of an error, and integers beyond
/// 64 bits are floats.
///
/// Messages are not cleaned of the template's own tokens: where text from outside holds `<|im_end|>`, the rendered text
/// does too, and a tokenizer reads it as the token. transformers does the same by default.
#[derive(Clone)]
pub struct ChatTemplate {
    environment: Arc<Environment<'static>>,
    name: Arc<str>,
    source: Arc<str>,
    specials: SpecialTokens,
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ChatTemplate")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl ChatTemplate {
    /// Variables of templates that are fields of a [`Conversation`]: no option may have their name.
    pub const RESERVED: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];

    /// Compiles a template.
    ///
    /// # Errors
    /// When it is not Jinja, or uses statements this program does not know.
    pub fn from_source(source: &str, specials: SpecialTokens) -> Result<Self, ChatError> {
        Self::named("(given)", source, specials)
    }

    /// Reads the template of a checkpoint folder: `chat_template.jinja`, else `chat_template` of
    /// `tokenizer_config.json` (a string, or a list of names and templates of which `default` is taken). Special tokens
    /// come from `tokenizer_config.json`. `None` where there is neither.
    ///
    /// # Errors
    /// When a file cannot be read or understood, or the template is not Jinja.
    pub fn load(folder: &Path) -> Result<Option<Self>, ChatError> {
        let path = folder.join("tokenizer_config.json");
        let config = match read(&path, FileBounds::JSON)? {
            Some(text) => serde_json::from_str(&text).map_err(|error| ChatError::File {
                path: path.clone(),
                message: error.to_string(),
            })?,
            None => Json::Null,
        };
        let specials = SpecialTokens::of_config(&config);
        let own = folder.join("chat_template.jinja");
        if let Some(source) = read(&own, FileBounds::TEXT)? {
            return Self::named(&own.display().to_string(), &source, specials).map(Some);
        }
        let source = match &config["chat_template"] {
            Json::Null => return Ok(None),
            Json::String(source) => Some(source.as_str()),
            Json::Array(list) => {
                let default = list.iter().find(|entry| entry["name"] == "default");
                default.and_then(|entry| entry["template"].as_str())
            }
            _ => None,
        };
        let Some(source) = source else {
            let message =
                "`chat_template` is neither a string nor a list with a `default`".to_owned();
            return Err(ChatError::File { path, message });
        };
        Self::named(&path.display().to_string(), source, specials).map(Some)
    }

    /// Gives templates the time as `strftime_now(format)`: `seconds` since 1970 in UTC. Without it the function is not
    /// defined and templates fall back to a date of their own, so that runs repeat.
    #[must_use]
    pub fn with_time(mut self, seconds: i64) -> Self {
        let environment = Arc::make_mut(&mut self.environment);
        environment.add_function("strftime_now", move |format: &str| {
            python::strftime(format, seconds)
        });
        self
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The template's file, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// When the template refuses the conversation or fails on it.
    pub fn render(&self, conversation: &Conversation) -> Result<String, ChatError> {
        let fail = |error| ChatError::from_engine(&error, &self.name, true);
        let template = self.environment.get_template(TEMPLATE).map_err(fail)?;
        let mut text = Text(Vec::new());
        template
            .render_captured_to(self.context(conversation), &mut text)
            .map_err(fail)?;
        Ok(String::from_utf8_lossy(&text.0).into_owned())
    }

    fn context(&self, conversation: &Conversation) -> Value {
        let specials = [
            ("bos_token", &self.specials.bos),
            ("eos_token", &self.specials.eos),
            ("pad_token", &self.specials.pad),
            ("unk_token", &self.specials.unk),
        ];
        let specials = specials
            .into_iter()
            .filter_map(|(name, text)| Some((name, Value::from(text.as_deref()?))));
        let options = conversation
            .options
            .iter()
            .map(|(name, value)| (name.as_str(), Value::from(Serde(value))));
        let messages: Vec<Value> = conversation.messages.iter().map(message).collect();
        let tools =
            (!conversation.tools.is_empty()).then(|| Value::from(Serde(&conversation.tools)));
        let given = [
            ("messages", Value::from(messages)),
            ("tools", tools.unwrap_or_else(|| Value::from(()))),
            ("documents", Value::from(())),
            (
                "add_generation_prompt",
                Value::from(conversation.add_generation_prompt),
            ),
        ];
        // Later entries win: options may replace special tokens, as in transformers, but not the conversation.
        Value::from_pairs(specials.chain(options).chain(given))
    }

    fn named(name: &str, source: &str, specials: SpecialTokens) -> Result<Self, ChatError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        environment.set_syntax(syntax.expect("the delimiters are the default ones"));
        environment.set_fuel(Some(FUEL));
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_unknown_method_callback(python::method);
        environment.set_formatter(|out, state, value| match float(value) {
            Some(value) => out.write_str(&json::float(value)).map_err(Error::from),
            None => minijinja::escape_formatter(out, state, value),
        });
        environment.add_filter("tojson", |value: &Value, options: Kwargs| {
            json::tojson(value, &options)
        });
        environment.add_function(
            "raise_exception",
            |message: String| -> Result<Value, Error> {
                Err(Error::new(ErrorKind::InvalidOperation, "raise_exception")
                    .with_source(Raised(message)))
            },
        );
        environment
            .add_template_owned(TEMPLATE, without_generation(source))
            .map_err(|error| ChatError::from_engine(&error, name, false))?;
        Ok(Self {
            environment: Arc::new(environment),
            name: name.into(),
            source: source.into(),
            specials,
        })
    }
}

/// Instructions that rendering may take: a conversation of hundreds of messages takes a hundredth. The engine bounds no value that a
/// template keeps: one that joins a text with itself can take all memory (`docs/security.md`).
const FUEL: u64 = 10_000_000;
/// Most bytes of a rendered conversation.
const MOST_TEXT: usize = 64 << 20;

/// Rendered text, which ends at [`MOST_TEXT`].
struct Text(Vec<u8>);

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MOST_TEXT {
            let message = format!("the text is longer than {} MiB", MOST_TEXT >> 20);
            return Err(io::Error::other(message));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The only template of an environment.
const TEMPLATE: &str = "chat";

/// Turns `{% generation %}` blocks, which mark what the assistant wrote and render as their content, into plain scopes.
fn without_generation(source: &str) -> String {
    let statement =
        Regex::new(r"(\{%[-+]?\s*)(end)?generation(\s*[-+]?%\})").expect("the pattern is valid");
    statement
        .replace_all(source, "${1}${2}with${3}")
        .into_owned()
}

/// A message as templates see it: its reasoning goes under each of the names that templates read, as in transformers.
fn message(message: &Json) -> Value {
    let Some(fields) = message.as_object() else {
        return Value::from(Serde(message));
    };
    let named = |name: &&str| fields.get(*name).filter(|value| !value.is_null());
    let Some(reasoning) = ["reasoning_content", "thinking", "reasoning"]
        .iter()
        .find_map(named)
    else {
        return Value::from(Serde(fields));
    };
    let mut fields = fields.clone();
    let reasoning = reasoning.clone();
    fields
        .entry("thinking")
        .or_insert_with(|| reasoning.clone());
    fields.insert("reasoning_content".to_owned(), reasoning);
    Value::from(Serde(fields))
}

/// The value of a float; nothing for integers and all else.
fn float(value: &Value) -> Option<f64> {
    (value.is_number() && !value.is_integer())
        .then(|| f64::try_from(value.clone()).ok())
        .flatten()
}

impl SpecialTokens {
    /// Special tokens of a `tokenizer_config.json`: strings, or objects with their text under `content`.
    fn of_config(config: &Json) -> Self {
        let token = |name: &str| {
            let entry = &config[name];
            entry
                .as_str()
                .or_else(|| entry["content"].as_str())
                .map(str::to_owned)
        };
        Self {
            bos: token("bos_token"),
            eos: token("eos_token"),
            pad: token("pad_token"),
            unk: token("unk_token"),
        }
    }
}

/// The text of a file; nothing where the file does not exist.
fn read(path: &Path, bounds: FileBounds) -> Result<Option<String>, ChatError> {
    match bounds.read_text(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ChatError::File {
            path: path.to_owned(),
            message: error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_or_too_long_is_not_read() {
        for (name, most) in [("chat_template.jinja", 64), ("tokenizer_config.json", 16)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(name);
            let check = |told: &str| match ChatTemplate::load(folder.path()) {
                Err(ChatError::File {
                    path: named,
                    message,
                }) => {
                    assert_eq!(named, path);
                    assert!(message.contains(told), "{message}");
                }
                other => panic!("{name} {told}: {other:?}"),
            };
            std::fs::create_dir(&path).unwrap();
            check("not a regular file");
            std::fs::remove_dir(&path).unwrap();
            #[cfg(unix)]
            {
                std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
                check("not a regular file");
                std::fs::remove_file(&path).unwrap();
            }
            let file = std::fs::File::create(&path).unwrap();
            file.set_len((most << 20) + 1).unwrap();
            check(&format!("more than {most} MiB"));
        }
    }
}
