//! The warm-started policies that ship inside the binary; the `README.md` beside each says how it was made.

use std::path::Path;

use forage_contracts::{nearest, suggestion};
use forage_trainer::Checkpoint;
use forage_trainer::device::DeviceSpec;

use crate::config::{EnvironmentConfig, RunConfig};
use crate::error::{Context, Result, bail};
use crate::policy::BUILTIN;

/// Files of a checkpoint by name.
type Files = [(&'static str, &'static [u8]); 4];

macro_rules! checkpoint {
    ($folder:literal) => {
        [
            (
                "config.json",
                include_bytes!(concat!("../../configs/", $folder, "/config.json")),
            ),
            (
                "tokenizer_config.json",
                include_bytes!(concat!("../../configs/", $folder, "/tokenizer_config.json")),
            ),
            (
                "tokenizer.json",
                include_bytes!(concat!("../../configs/", $folder, "/tokenizer.json")),
            ),
            (
                "model.safetensors",
                include_bytes!(concat!("../../configs/", $folder, "/model.safetensors")),
            ),
        ]
    };
}

/// The configs that the policies were made by.
const MADE_BY: [(&str, &str); 3] = [
    ("quickstart", include_str!("../../configs/quickstart.toml")),
    (
        "quickstart-code",
        include_str!("../../configs/quickstart-code.toml"),
    ),
    (
        "query-writer",
        include_str!("../../configs/query-writer.toml"),
    ),
];

const POLICIES: [(&str, Files); 3] = [
    ("quickstart", checkpoint!("quickstart")),
    ("quickstart-code", checkpoint!("quickstart-code")),
    ("query-writer", checkpoint!("query-writer")),
];

/// The files of the policy of this name: `NAME`, or `NAME@REVISION` for those files and no others.
fn files(name: &str) -> Result<&'static Files> {
    let (name, revision) = match name.split_once('@') {
        Some((name, revision)) => (name, Some(revision)),
        None => (name, None),
    };
    let Some((_, files)) = POLICIES.iter().find(|(known, _)| *known == name) else {
        bail!(
            "no builtin policy `{name}`; {}",
            suggestion(name, POLICIES.iter().map(|(known, _)| *known))
        );
    };
    let own = revision_of(files);
    if let Some(asked) = revision.filter(|&asked| asked != own) {
        bail!(
            "`builtin:{name}` has the revision {own} in this version of the program, not {asked}: use the version that has, or its \
             folder configs/{name}"
        );
    }
    Ok(files)
}

/// The whole name of the policy that another name may be meant for, which has what comes before a colon wrong.
pub(crate) fn meant(name: &str) -> Option<String> {
    let (begin, rest) = name.split_once(':')?;
    let is_wrong = begin != BUILTIN.trim_end_matches(':') && !Path::new(name).exists();
    let near = nearest(rest, POLICIES.iter().map(|(known, _)| *known))?;
    let is_near = is_wrong && nearest(begin, [BUILTIN.trim_end_matches(':')]).is_some();
    is_near.then(|| format!("{BUILTIN}{near}"))
}

fn digest_of(files: &Files) -> String {
    let mut hasher = blake3::Hasher::new();
    for (name, bytes) in files {
        hasher.update(name.as_bytes());
        hasher.update(bytes);
    }
    hasher.finalize().to_hex().to_string()
}

fn revision_of(files: &Files) -> String {
    digest_of(files)[..12].to_owned()
}

/// The digest of the policy of this name, which another version of the program may have other weights for.
pub(crate) fn digest(name: &str) -> Result<String> {
    files(name).map(digest_of)
}

/// The name with the revision of its files, so that whoever keeps it finds these or none.
pub(crate) fn pinned(name: &str) -> Result<String> {
    let revision = revision_of(files(name)?);
    let name = name.split('@').next().unwrap_or(name);
    Ok(format!("{name}@{revision}"))
}

/// The environment in which the policy of this name was taught; `None` where there is no such policy.
pub(crate) fn environment(name: &str) -> Option<EnvironmentConfig> {
    let name = name.split('@').next()?;
    let (_, text) = MADE_BY.iter().find(|(known, _)| *known == name)?;
    let config = RunConfig::parse(text, &[]).ok()?;
    Some(config.environment)
}

/// Says that the policy of a config writes no thoughts, which the reward `format` asks for: none inside the program does.
pub(crate) fn unpaid_format(config: &RunConfig) -> Option<String> {
    let name = &config.policy.checkpoint;
    environment(name.strip_prefix(BUILTIN)?)?;
    let is_weighted = config.reward.get("format")?.weight().abs() > 0.0;
    is_weighted.then(|| {
        format!(
            "policy {name} writes no <think>, so the reward `format` pays it 0; train a policy that does, or leave `format` out"
        )
    })
}

/// Loads the policy of this name, by way of a temporary folder because weights are memory-mapped.
pub(crate) fn load(name: &str, device: &DeviceSpec) -> Result<Checkpoint> {
    let files = files(name)?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    for (name, bytes) in files {
        write(&folder.path().join(name), bytes)?;
    }
    Ok(Checkpoint::load(folder.path(), &device.open()?)?)
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_that_the_policy_does_not_write_is_told() {
        let warnings = |overrides: &[&str]| {
            let overrides: Vec<String> = overrides.iter().map(|&item| item.to_owned()).collect();
            let config = RunConfig::parse(MADE_BY[0].1, &overrides).unwrap();
            config.resolve(None).unwrap().warnings()
        };
        let paid = "reward={ em = 1.0, format = 0.2 }";
        let told = warnings(&[paid]);
        assert!(
            told.len() == 1 && told[0].starts_with("policy builtin:quickstart writes no <think>"),
            "{told:?}"
        );
        let none = [""; 0];
        assert_eq!(warnings(&["reward={ em = 1.0, format = 0.0 }"]), none);
        assert_eq!(warnings(&[paid, "policy.checkpoint=\"org/name\""]), none);
    }
}
