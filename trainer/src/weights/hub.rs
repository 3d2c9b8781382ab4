//! Checkpoints and data sets by name: a folder, or a repository of the Hugging Face hub kept in the cache that its own tools use.

mod data;
mod paced;
mod server;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use forage_net::Client;

use self::server::{Fault, MOST_TEXT, Server, is_commit};
use super::files::{INDEX, SINGLE, shard_names};

/// The Hugging Face hub: where names are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hub {
    /// Folder of the cache, laid out as `huggingface_hub` does: `models--ORG--NAME/{blobs,refs,snapshots}`.
    pub cache: PathBuf,
    /// Address of the server, without a slash at the end.
    pub endpoint: String,
    /// Access token, for gated and private repositories.
    pub token: Option<String>,
    /// Whether only the cache may be used.
    pub offline: bool,
}

/// A name cannot be resolved to a folder.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The name is neither a folder nor possible on the hub.
    #[error(
        "`{0}` is neither a folder nor a name on the hub (like Qwen/Qwen2.5-0.5B-Instruct or NAME@REVISION); check the \
         path"
    )]
    Name(String),
    /// The name is a path into a folder that is there.
    #[error("there is no folder `{name}` here, and `{parent}` is one: check the path")]
    NoFolder {
        /// Name as given.
        name: String,
        /// The folder that is there.
        parent: String,
    },
    /// The address is not one of a data set.
    #[error(
        "`{0}` is not the address of a data set on the hub; write hf://ORG/NAME, hf://ORG/NAME/PATH or hf://ORG/NAME@REVISION/PATH"
    )]
    Data(String),
    /// A data set has no rows where they were looked for.
    #[error(
        "{name} has no file of rows or pages below `{path}`; name another path: it holds {there}"
    )]
    NoData {
        /// Name as given.
        name: String,
        /// Path inside the data set; empty for all of it.
        path: String,
        /// Files that it has.
        there: String,
    },
    /// The repository lacks what a checkpoint needs.
    #[error(
        "{name} has no {missing}; a checkpoint needs config.json, tokenizer.json and safetensors weights"
    )]
    Incomplete {
        /// Name as given.
        name: String,
        /// File that is not there.
        missing: String,
    },
    /// Not all in the cache, and the network may not be used.
    #[error(
        "{name} is not whole in the cache {cache}: {missing} is missing, and HF_HUB_OFFLINE forbids fetching it; unset \
         it, or copy the checkpoint's folder here and name that"
    )]
    Offline {
        /// Name as given.
        name: String,
        /// Folder of the cache.
        cache: PathBuf,
        /// File that is not there.
        missing: String,
    },
    /// The token would travel where everyone on the way can read it.
    #[error(
        "{endpoint} is plain http on another machine: the access token would be readable on the way; set HF_ENDPOINT to an \
         https address, or unset HF_TOKEN and HF_TOKEN_PATH and log out"
    )]
    PlainToken {
        /// Address of the server.
        endpoint: String,
    },
    /// The server answered what no hub does.
    #[error("{name} is not fetched from {endpoint}: {message}; check HF_ENDPOINT")]
    Untrusted {
        /// Name as given.
        name: String,
        /// Address of the server.
        endpoint: String,
        /// The answer at fault.
        message: String,
    },
    /// The server refused or could not be reached.
    #[error(
        "{name} {}cannot be fetched from {endpoint}: {message}",
        if name.starts_with("hf://") { "" } else { "is not a folder here, and " }
    )]
    Fetch {
        /// Name as given.
        name: String,
        /// Address of the server.
        endpoint: String,
        /// Its word and what to do.
        message: String,
    },
}

/// Files that are fetched where they exist, besides the weights. The last three are those of encoders.
const TEXTS: [&str; 9] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    ADAPTER_CONFIG,
    "modules.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
];
/// Files without which a folder is not a model.
const NEEDED: [&str; 2] = ["config.json", "tokenizer.json"];
/// Begins an address on the hub.
const SCHEME: &str = "hf://";
const ADAPTER_CONFIG: &str = "adapter_config.json";
const ADAPTER: &str = "adapter_model.safetensors";

impl Hub {
    /// The hub as the environment variables of `huggingface_hub` describe it: `HF_HOME`, `HF_HUB_CACHE`, `HF_ENDPOINT`,
    /// `HF_TOKEN` (else the token file of a login), `HF_HUB_OFFLINE`. `variable` gives a variable's value.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let user = || {
            let folder = set("HOME").or_else(|| set("USERPROFILE"));
            PathBuf::from(folder.unwrap_or_default())
        };
        // A shell has not seen what a container or a service is given.
        let path = |name: &str| {
            let value = set(name)?;
            let below = value.strip_prefix("~/").map(|below| user().join(below));
            Some(below.unwrap_or_else(|| PathBuf::from(value)))
        };
        let caches = path("XDG_CACHE_HOME").unwrap_or_else(|| user().join(".cache"));
        let home = path("HF_HOME").unwrap_or_else(|| caches.join("huggingface"));
        let login = || {
            let file = path("HF_TOKEN_PATH").unwrap_or_else(|| home.join("token"));
            std::fs::read_to_string(file).ok()
        };
        let token = set("HF_TOKEN")
            .or_else(login)
            .map(|token| token.trim().to_owned());
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        let truth =
            |value: String| ["1", "ON", "YES", "TRUE"].contains(&value.to_uppercase().as_str());
        Self {
            cache: path("HF_HUB_CACHE").unwrap_or_else(|| home.join("hub")),
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: token.filter(|token| !token.is_empty()),
            offline: set("HF_HUB_OFFLINE").is_some_and(truth),
        }
    }

    /// Tells whether this can be the name of a checkpoint on the hub.
    pub fn is_name(name: &str) -> bool {
        Wanted::parse(name).is_some()
    }

    /// The folder of a checkpoint: `name` itself if it is one, else the cached snapshot of `ORG/NAME` or
    /// `ORG/NAME@REVISION` (branch, tag or commit); with `hf://` before it a name is always the hub's. What the cache lacks is fetched
    /// first: only the files that are read here, each whole or not at all. A hub that cannot be reached does no harm where the cache is
    /// whole.
    ///
    /// # Errors
    /// [`HubError`].
    pub fn fetch(&self, name: &str) -> Result<PathBuf, HubError> {
        self.found(name, Part::Whole)
    }

    /// Fetches only the texts beside the weights, such as the tokenizer.
    ///
    /// # Errors
    /// [`HubError`].
    pub fn fetch_texts(&self, name: &str) -> Result<PathBuf, HubError> {
        self.found(name, Part::Texts)
    }

    fn found(&self, name: &str, part: Part) -> Result<PathBuf, HubError> {
        let address = name.strip_prefix(SCHEME);
        let here = |path: &str| address.is_none() && Path::new(path).is_dir();
        if here(name) {
            return Ok(PathBuf::from(name));
        }
        let parsed = Wanted::parse(address.unwrap_or(name));
        let mut wanted = parsed.ok_or_else(|| HubError::Name(name.to_owned()))?;
        name.clone_into(&mut wanted.name);
        let cached = self.cached(&wanted.repo(MODELS, &wanted.revision));
        let parent = wanted.id.split('/').next().unwrap_or_default();
        if cached.is_none() && here(parent) {
            return Err(HubError::NoFolder {
                name: name.to_owned(),
                parent: parent.to_owned(),
            });
        }
        let missing = cached.as_ref().map_or_else(
            || NEEDED[0].to_owned(),
            |folder| missing(folder, part).unwrap_or_default(),
        );
        match cached {
            Some(folder) if missing.is_empty() && (self.offline || wanted.is_commit()) => {
                Ok(folder)
            }
            _ if self.offline => Err(HubError::Offline {
                name: name.to_owned(),
                cache: self.cache.clone(),
                missing,
            }),
            cached => match self.download(&wanted, part) {
                // Without an answer the newest that is known serves.
                Err(HubError::Fetch { .. }) if missing.is_empty() && cached.is_some() => {
                    Ok(cached.unwrap_or_default())
                }
                result => result,
            },
        }
    }

    /// The snapshot that the cache has of a revision, whole or not.
    fn cached(&self, repo: &Repo) -> Option<PathBuf> {
        let folder = repo.folder(&self.cache);
        let commit = std::fs::read_to_string(folder.join("refs").join(&repo.revision)).ok();
        let commit =
            commit.map_or_else(|| repo.revision.clone(), |commit| commit.trim().to_owned());
        Some(folder.join("snapshots").join(commit)).filter(|folder| folder.is_dir())
    }

    fn download(&self, wanted: &Wanted, part: Part) -> Result<PathBuf, HubError> {
        let fail = |fault: &Fault| self.failure(wanted, fault);
        let server = self.server()?;
        let named = wanted.repo(MODELS, &wanted.revision);
        let info = server.info(&named).map_err(|fault| fail(&fault))?;
        let there: BTreeSet<&str> = info
            .siblings
            .iter()
            .map(|sibling| sibling.rfilename.as_str())
            .collect();
        let lacks = |missing: &str| HubError::Incomplete {
            name: wanted.name.clone(),
            missing: missing.to_owned(),
        };
        let adapter = there.contains(ADAPTER_CONFIG) && !there.contains(NEEDED[0]);
        if let Some(missing) = NEEDED
            .iter()
            .find(|needed| !adapter && !there.contains(**needed))
        {
            return Err(lacks(missing));
        }
        // By commit, so that all files are of one state even if the branch moves meanwhile.
        let repo = wanted.repo(MODELS, &info.sha);
        let folder = repo.folder(&self.cache);
        let snapshot = folder.join("snapshots").join(&info.sha);
        let get = |file: &str, most: u64| -> Result<(), HubError> {
            let held = snapshot.join(file).exists();
            if held {
                Ok(())
            } else {
                let fetched = server.fetch(&repo, file, &folder, most);
                fetched.map(drop).map_err(|fault| fail(&fault))
            }
        };
        for text in TEXTS.iter().filter(|text| there.contains(**text)) {
            get(text, MOST_TEXT)?;
        }
        let weights: BTreeSet<String> = if part == Part::Texts {
            BTreeSet::new()
        } else if adapter {
            [ADAPTER.to_owned()].into()
        } else if there.contains(INDEX) {
            get(INDEX, MOST_TEXT)?;
            shard_names(&snapshot.join(INDEX)).map_err(|error| HubError::Fetch {
                name: wanted.name.clone(),
                endpoint: self.endpoint.clone(),
                message: error.to_string(),
            })?
        } else {
            [SINGLE.to_owned()].into()
        };
        for file in &weights {
            if !there.contains(file.as_str()) {
                return Err(lacks(file));
            }
            get(file, u64::MAX)?;
        }
        // Later processes find the revision without the network.
        refer(&folder, &wanted.revision, &info.sha).map_err(|fault| fail(&fault))?;
        Ok(snapshot)
    }

    fn server(&self) -> Result<Server<'_>, HubError> {
        if self.token.is_some() && Client::is_plain(&self.endpoint) {
            return Err(HubError::PlainToken {
                endpoint: self.endpoint.clone(),
            });
        }
        Ok(Server::new(&self.endpoint, self.token.as_deref()))
    }

    fn failure(&self, wanted: &Wanted, fault: &Fault) -> HubError {
        let (name, endpoint) = (wanted.name.clone(), self.endpoint.clone());
        let message = match (fault, fault.status()) {
            (Fault::Refused(words), _) => {
                return HubError::Untrusted {
                    name,
                    endpoint,
                    message: words.clone(),
                };
            }
            (_, Some(401)) if self.token.is_some() => format!(
                "the access token is not taken ({fault}); set HF_TOKEN to a valid one, or unset HF_TOKEN and \
                 HF_TOKEN_PATH and log out"
            ),
            (_, Some(401)) => format!(
                "access is refused ({fault}), as it is where there is no such name; check the name, or, of what is \
                 private or gated, accept the terms there and set HF_TOKEN to a token of yours"
            ),
            (_, Some(403)) => format!(
                "access is refused ({fault}); accept the terms there, and set HF_TOKEN to a token that may read it"
            ),
            (_, Some(404)) => format!(
                "there is no revision {} of it, or it is private ({fault}); check the name, and HF_TOKEN",
                wanted.revision
            ),
            (Fault::File { .. }, _) => format!("{fault}; check the cache's rights and free space"),
            _ => {
                format!("{fault}; check the network, or set HF_HUB_OFFLINE=1 to use only the cache")
            }
        };
        HubError::Fetch {
            name,
            endpoint,
            message,
        }
    }
}

/// Notes in the cache which commit a revision is, under another name first.
fn refer(folder: &Path, revision: &str, commit: &str) -> Result<(), Fault> {
    let path = folder.join("refs").join(revision);
    let draft = path.with_extension(format!("{}.part", std::process::id()));
    let parent = path.parent().unwrap_or(folder);
    std::fs::create_dir_all(parent)
        .and_then(|()| std::fs::write(&draft, commit))
        .and_then(|()| std::fs::rename(&draft, &path))
        .map_err(|source| Fault::File { path, source })
}

/// A revision of a repository.
struct Repo {
    /// [`MODELS`] or [`DATASETS`].
    kind: &'static str,
    id: String,
    revision: String,
}

const MODELS: &str = "models";
const DATASETS: &str = "datasets";

impl Repo {
    /// Its folder in the cache.
    fn folder(&self, cache: &Path) -> PathBuf {
        let name = format!("{}--{}", self.kind, self.id).replace('/', "--");
        cache.join(name)
    }

    fn info_address(&self, endpoint: &str) -> String {
        let revision = self.revision.replace('/', "%2F");
        format!(
            "{endpoint}/api/{}/{}/revision/{revision}",
            self.kind, self.id
        )
    }

    fn file_address(&self, endpoint: &str, file: &str) -> String {
        let prefix = if self.kind == DATASETS {
            "datasets/"
        } else {
            ""
        };
        let (revision, file) = (self.revision.replace('/', "%2F"), escaped(file));
        format!("{endpoint}/{prefix}{}/resolve/{revision}/{file}", self.id)
    }
}

/// A path as it stands in an address, where blanks, `#`, `?` and `%` would end it or mean something else.
fn escaped(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) {
            text.push(byte.into());
        } else {
            // Writing to a string does not fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// The part of a checkpoint that is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Whole,
    /// The files beside the weights.
    Texts,
}

/// The first file that a snapshot lacks of a part.
fn missing(folder: &Path, part: Part) -> Option<String> {
    let absent = |file: &str| !folder.join(file).exists();
    if !absent(ADAPTER_CONFIG) && absent(NEEDED[0]) {
        return Some(ADAPTER.to_owned()).filter(|file| part == Part::Whole && absent(file));
    }
    if let Some(file) = NEEDED.iter().find(|file| absent(file)) {
        return Some((*file).to_owned());
    }
    if part == Part::Texts {
        return None;
    }
    if absent(INDEX) {
        return Some(SINGLE.to_owned()).filter(|file| absent(file));
    }
    match shard_names(&folder.join(INDEX)) {
        Ok(names) => names.into_iter().find(|name| absent(name)),
        Err(_) => Some(INDEX.to_owned()),
    }
}

/// A name of the hub in its parts.
struct Wanted {
    /// As given.
    name: String,
    id: String,
    revision: String,
}

impl Wanted {
    /// `ORG/NAME` or `ORG/NAME@REVISION`, in the characters that the hub allows.
    fn parse(name: &str) -> Option<Self> {
        let (id, revision) = name.split_once('@').unwrap_or((name, "main"));
        let (organisation, model) = id.split_once('/')?;
        let part = |text: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
            text.len() <= 96
                && text.chars().all(allowed)
                && edge(text.chars().next())
                && edge(text.chars().last())
                && !text.contains("--")
                && !text.contains("..")
        };
        // Branches may have slashes; a path out of the cache is none.
        let branch = !revision.is_empty() && revision.split('/').all(&part);
        let valid = part(organisation) && part(model) && branch;
        valid.then(|| Self {
            name: name.to_owned(),
            id: id.to_owned(),
            revision: revision.to_owned(),
        })
    }

    fn is_commit(&self) -> bool {
        is_commit(&self.revision)
    }

    fn repo(&self, kind: &'static str, revision: &str) -> Repo {
        Repo {
            kind,
            id: self.id.clone(),
            revision: revision.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_as_huggingface_hub_reads_them() {
        let hub = |pairs: &[(&str, &str)]| {
            let pairs: Vec<(String, String)> = pairs
                .iter()
                .map(|(k, v)| ((*k).into(), (*v).into()))
                .collect();
            Hub::from_variables(move |name| {
                pairs
                    .iter()
                    .find(|(key, _)| key == name)
                    .map(|(_, value)| value.clone())
            })
        };
        let plain = hub(&[("HOME", "/h")]);
        assert_eq!(plain.cache, Path::new("/h/.cache/huggingface/hub"));
        assert_eq!(
            (plain.endpoint.as_str(), plain.token, plain.offline),
            ("https://huggingface.co", None, false)
        );
        assert_eq!(
            hub(&[("HOME", "/h"), ("HF_HOME", "/a")]).cache,
            Path::new("/a/hub")
        );
        assert_eq!(
            hub(&[("HOME", "/h"), ("HF_HOME", "~/a")]).cache,
            Path::new("/h/a/hub")
        );
        let set = hub(&[
            ("HF_HOME", "/a"),
            ("HF_HUB_CACHE", "/b"),
            ("HF_ENDPOINT", "http://mirror/"),
            ("HF_TOKEN", " t\n"),
            ("HF_HUB_OFFLINE", "yes"),
        ]);
        assert_eq!(
            (set.cache.as_path(), set.endpoint.as_str()),
            (Path::new("/b"), "http://mirror")
        );
        assert_eq!((set.token.as_deref(), set.offline), (Some("t"), true));
    }

    #[test]
    fn an_address_of_the_hub_is_no_folder_here() {
        let hub = Hub {
            cache: PathBuf::from("nowhere"),
            endpoint: String::new(),
            token: None,
            offline: true,
        };
        // A test runs in the folder of its crate.
        assert_eq!(hub.fetch("src/weights").unwrap(), Path::new("src/weights"));
        let other = hub.fetch("src/other").unwrap_err();
        assert!(matches!(other, HubError::NoFolder { .. }), "{other}");
        for address in ["hf://src/weights", "hf://src/other"] {
            let error = hub.fetch(address).unwrap_err();
            let looked = matches!(&error, HubError::Offline { name, .. } if name == address);
            assert!(looked, "{error}");
        }
    }

    #[test]
    fn only_names_of_the_hub_are_looked_up() {
        for name in [
            "Qwen/Qwen2.5-0.5B-Instruct",
            "a/b@main",
            "a/b@refs/pr/3",
            "a_b/c.d",
        ] {
            assert!(Wanted::parse(name).is_some(), "{name}");
        }
        for name in [
            "",
            "gpt2",
            "./a",
            "../a",
            "/tmp/a",
            "a/b/c",
            "a/b@",
            "a/b@../../x",
            "a/..",
            "~/a",
            "a b/c",
            "a/b--c",
        ] {
            assert!(Wanted::parse(name).is_none(), "{name}");
        }
    }
}
