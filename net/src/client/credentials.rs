//! Credentials: read from a file, sent as a header, shown nowhere.

use std::fmt;

use base64::prelude::{BASE64_STANDARD, Engine};
use reqwest::RequestBuilder;
use reqwest::header::HeaderValue;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::SettingError;
use super::options::HttpOptions;

/// Takes the place of credentials in texts.
const SHOWN: &str = "[credentials]";

/// The kind of credentials in a token file, and so how they are sent.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Auth {
    /// A token, sent as `Authorization: Bearer`.
    #[default]
    Bearer,
    /// `user:password`, sent as `Authorization: Basic`.
    Basic,
    /// A key, in the header of this kind of server: `Authorization: ApiKey` for Elasticsearch, `api-key` for Qdrant, `x-chroma-token` for
    /// Chroma, `x-api-key` elsewhere.
    ApiKey,
}

/// The header that carries an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyHeader {
    /// `Authorization: ApiKey KEY`, as Elasticsearch takes its encoded keys.
    Authorization,
    /// A header of its own: `api-key` for Qdrant, `x-chroma-token` for Chroma, `x-api-key` elsewhere.
    Named(&'static str),
}

/// The header to send. Its `Debug` shows no secret.
pub(super) enum Credentials {
    None,
    Header {
        name: &'static str,
        value: HeaderValue,
        /// What must not be shown, as servers may write it.
        secrets: Vec<String>,
    },
}

impl Credentials {
    pub(super) fn read(options: &HttpOptions, key_header: KeyHeader) -> Result<Self, SettingError> {
        let Some(path) = &options.token_file else {
            return Ok(Self::None);
        };
        let wrong = |what: &str| {
            SettingError::new(
                "token_file",
                format!("names `{}`, which {what}", path.display()),
            )
        };
        let text = std::fs::read_to_string(path)
            .map_err(|cause| wrong(&format!("cannot be read ({cause})")))?;
        let written = text.trim();
        if written.is_empty() {
            return Err(wrong("is empty; write the credentials into it"));
        }
        let (mut sent, mut secret) = (written.to_owned(), written);
        let (name, prefix) = match (options.auth, key_header) {
            (Auth::Basic, _) => {
                let Some((_, password)) = written.split_once(':') else {
                    return Err(wrong(
                        "holds no `user:password`, which `auth = \"basic\"` needs",
                    ));
                };
                (sent, secret) = (BASE64_STANDARD.encode(written), password);
                ("authorization", "Basic ")
            }
            (Auth::Bearer, _) => ("authorization", "Bearer "),
            (Auth::ApiKey, KeyHeader::Authorization) => ("authorization", "ApiKey "),
            (Auth::ApiKey, KeyHeader::Named(name)) => (name, ""),
        };
        let mut value = HeaderValue::from_str(&format!("{prefix}{sent}"))
            .map_err(|_| wrong("holds characters that no HTTP header can carry"))?;
        value.set_sensitive(true);
        let quoted = Value::from(secret).to_string();
        let inside = quoted[1..quoted.len() - 1].to_owned();
        // The longer ones first, which may hold the others.
        let mut secrets = vec![sent, inside, secret.to_owned()];
        secrets.retain(|secret| !secret.is_empty());
        secrets.dedup();
        Ok(Self::Header {
            name,
            value,
            secrets,
        })
    }

    pub(super) fn apply(&self, builder: RequestBuilder) -> RequestBuilder {
        match self {
            Self::None => builder,
            Self::Header { name, value, .. } => builder.header(*name, value.clone()),
        }
    }

    /// A text of the server without the secrets it may echo: as they were sent, as they were written, and as JSON quotes them.
    pub(super) fn redact(&self, text: &str) -> String {
        let mut redacted = text.to_owned();
        if let Self::Header { secrets, .. } = self {
            for secret in secrets {
                redacted = redacted.replace(secret.as_str(), SHOWN);
            }
        }
        redacted
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::None => "no credentials",
            Self::Header { .. } => SHOWN,
        })
    }
}
