//! Settings.

use forage_contracts::OneOrMany;
use forage_net::HttpOptions;
use serde::{Deserialize, Serialize};

use crate::settings::{SettingsError, positive};

/// Settings of `forage/external-v0`; missing keys take their defaults, unknown keys are errors.
#[derive(Clone, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ExternalSettings {
    /// Address of the server, or of several that serve the same environment and take episodes in turns; `--env-command` starts them and
    /// writes their addresses here.
    #[serde(with = "OneOrMany")]
    #[schemars(schema_with = "one_or_many")]
    pub(super) url: Vec<String>,
    /// Most tokens of a turn; the server's number by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_turn_tokens: Option<usize>,
    /// Most tokens of an episode, prompt and observations included; the server's number by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_episode_tokens: Option<usize>,
    /// Limits and credentials of calls, for each server.
    pub(super) http: HttpOptions,
}

impl ExternalSettings {
    /// Refuses limits of 0. That a server is named is asked for when one is needed: the command line may start it.
    pub(super) fn check(&self) -> Result<(), SettingsError> {
        positive(&[
            ("max_turn_tokens", self.max_turn_tokens.unwrap_or(1)),
            ("max_episode_tokens", self.max_episode_tokens.unwrap_or(1)),
        ])
    }
}

/// The schema of an address or a list of addresses.
fn one_or_many(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }]
    })
}
