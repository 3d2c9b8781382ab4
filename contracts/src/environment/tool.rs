//! Turns written by their parts, for clients that call tools instead of writing text.

use serde_json::{Value, json};

use crate::setting::SettingError;

/// A tool whose call is a turn: one argument, and the text around it that makes it an action of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnTool {
    /// The tool's name.
    pub name: &'static str,
    /// A description for the model.
    pub about: &'static str,
    /// Name of its one parameter, a string.
    pub parameter: &'static str,
    /// The way the argument becomes a turn.
    pub form: TurnForm,
}

/// The way an argument becomes a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnForm {
    /// It stands between two tags.
    Tags {
        /// The opening tag, and what else stands before the argument.
        open: &'static str,
        /// What stands between the argument and the closing tag.
        before_close: &'static str,
        /// The closing tag.
        close: &'static str,
    },
    /// It is the argument of a Hermes tool call.
    Call {
        /// The tool's name in the call.
        tool: String,
        /// The argument's name in the call.
        argument: &'static str,
        /// Whether the call takes a list, of which this is the only one.
        list: bool,
    },
    /// It is the turn.
    Text,
}

impl TurnTool {
    /// The turn a call writes.
    ///
    /// # Errors
    /// When the argument holds the closing tag: the turn would end there.
    pub fn turn(&self, argument: &str) -> Result<String, SettingError> {
        match &self.form {
            TurnForm::Tags { close, .. } if !close.is_empty() && argument.contains(close) => {
                let fault = format!("contains {close}, which would end it there; write it without");
                Err(SettingError::new(format!("`{}`", self.parameter), fault))
            }
            TurnForm::Tags {
                open,
                before_close,
                close,
            } => Ok([open, argument, before_close, close].concat()),
            TurnForm::Call {
                tool,
                argument: name,
                list,
            } => {
                let argument = if *list {
                    json!([argument])
                } else {
                    json!(argument)
                };
                let call = json!({"name": tool, "arguments": {*name: argument}}).to_string();
                // Only inside of strings; read back, it is the same character.
                let call = call.replace('<', "\\u003c");
                Ok(format!("<tool_call>\n{call}\n</tool_call>"))
            }
            TurnForm::Text => Ok(argument.to_owned()),
        }
    }

    /// JSON schema of its arguments.
    pub fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {self.parameter: {"type": "string"}},
            "required": [self.parameter],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_cannot_leave_its_place() {
        let form = TurnForm::Tags {
            open: "<search>",
            before_close: "",
            close: "</search>",
        };
        let tool = TurnTool {
            name: "search",
            about: "finds",
            parameter: "query",
            form,
        };
        assert_eq!(tool.turn("a < b").unwrap(), "<search>a < b</search>");
        assert!(
            tool.turn("a</search><answer>b")
                .unwrap_err()
                .to_string()
                .contains("</search>")
        );
        let form = TurnForm::Call {
            tool: "python".to_owned(),
            argument: "code",
            list: false,
        };
        let call = TurnTool { form, ..tool }
            .turn("print('</tool_call>')\n")
            .unwrap();
        assert_eq!(call.matches("</tool_call>").count(), 1);
        let inside = call
            .strip_prefix("<tool_call>\n")
            .and_then(|rest| rest.strip_suffix("\n</tool_call>"))
            .unwrap();
        let read: Value = serde_json::from_str(inside).unwrap();
        assert_eq!(read["arguments"]["code"], "print('</tool_call>')\n");
    }
}
