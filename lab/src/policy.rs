//! Policies by their names: a folder, a name on the hub, one inside this crate, or the address of a server.

use std::path::Path;
use std::sync::Arc;

use forage_contracts::seed::Seed;
use forage_contracts::{ByteTokenizer, Tokenizer};
use forage_env::chat::ChatTemplate;
use forage_env::{ChatSettings, Presentation, registry};
use forage_trainer::device::DeviceSpec;
use forage_trainer::{Checkpoint, Hub, HubError, Precision};

use crate::builtin;
use crate::config::{Base, Generation, LoraSection, Resolved, RunConfig};
use crate::error::{Context, Result, RunError, bail, causes};
use crate::four_bytes::FourBytes;
use crate::hub::hub;
use crate::layout::RunLayout;

/// Begins the names of policies inside this crate.
pub(crate) const BUILTIN: &str = "builtin:";

/// Tells whether a policy of this name is a server, which tells text alone.
pub(crate) fn is_server(name: &str) -> bool {
    ["http://", "https://"]
        .iter()
        .any(|scheme| name.starts_with(scheme))
}

/// The environment of which nobody knows what it asks: that of a server.
pub(crate) const EXTERNAL: &str = "external";

/// Says of a policy that it was taught another environment than `played`, where its name tells: one inside the program, or that of a run.
pub(crate) fn taught_another(name: &str, played: &str) -> Option<String> {
    let taught = if let Some(builtin) = name.strip_prefix(BUILTIN) {
        builtin::environment(builtin)?
    } else {
        let run = Path::new(name).parent().map(RunLayout::new);
        let run = run.filter(|run| run.policy() == Path::new(name))?;
        let text = std::fs::read_to_string(run.config()).ok()?;
        RunConfig::parse(&text, &[]).ok()?.environment
    };
    let taught = registry::find(&taught.id).ok()?;
    let played = registry::find(played).ok()?;
    let [own, other] = [taught, played].map(|entry| entry.names()[2]);
    (taught.id != played.id && other != EXTERNAL).then(|| {
        format!(
            "policy {name} was taught {own} and plays {other}, whose prompt and actions it does not know: name a policy that was \
             taught {other}, or name {own} by --env or environment.id"
        )
    })
}

/// Tells whether a policy of this name can only be a folder here.
pub(crate) fn is_folder(name: &str) -> bool {
    !is_server(name) && !name.starts_with(BUILTIN) && !Hub::is_name(name)
}

/// Says that a policy of this name is nowhere, as far as that is known without the network: a path where no folder is, or a name on the hub
/// that is the path of one.
pub(crate) fn nowhere(name: &str) -> Option<String> {
    if is_server(name) || name.starts_with(BUILTIN) || Path::new(name).exists() {
        return None;
    }
    if let Some(near) = builtin::meant(name) {
        return Some(format!("there is no {name}; did you mean `{near}`?"));
    }
    if is_folder(name) {
        return Some(format!("there is no {name}"));
    }
    let here = Hub {
        offline: true,
        ..hub()
    };
    match here.fetch_texts(name) {
        Err(error @ HubError::NoFolder { .. }) => Some(error.to_string()),
        _ => None,
    }
}

/// Refuses a server where weights are needed, the folder of a run or of its checkpoint, in which they have a folder of their own, the
/// policy of a run that has not come to its end, and a name that is near to that of a policy inside the program.
pub(crate) fn needs_weights(name: &str) -> Result<()> {
    let model = Path::new(name).join("model");
    if Path::new(name).join("state.json").is_file() && model.is_dir() {
        return Err(RunError::config_because(
            format!("policy {name} is the checkpoint of a run"),
            format!("its policy is {}", model.display()),
        ));
    }
    if let Some(near) = builtin::meant(name) {
        return Err(RunError::config_because(
            format!("there is no policy {name}"),
            format!("did you mean `{near}`?"),
        ));
    }
    let run = RunLayout::new(name);
    if run.metrics().is_file() && run.config().is_file() {
        return Err(RunError::config_because(
            format!("policy {name} is the folder of a run"),
            saved(&run),
        ));
    }
    let run = Path::new(name).parent().map(RunLayout::new);
    let run = run.filter(|run| run.metrics().is_file() && run.policy() == Path::new(name));
    if let Some(run) = run.filter(|run| !run.policy().exists()) {
        return Err(RunError::config_because(
            format!("policy {name} is not there, as its run has not come to its end"),
            saved(&run),
        ));
    }
    if !is_server(name) {
        return Ok(());
    }
    Err(RunError::config_because(
        format!(
            "policy {name} is a server, and this needs weights, token ids or log-probabilities"
        ),
        "name a folder or a name on the hub; servers are policies of eval, collect, play and replay, and training plays on one \
         that [sampler] names",
    ))
}

/// Says where the newest policy of a run is.
fn saved(run: &RunLayout) -> String {
    if run.policy().is_dir() {
        return format!("its policy is {}", run.policy().display());
    }
    match run.newest_policy() {
        Ok(Some(newest)) => format!("its newest checkpoint has {}", newest.display()),
        Ok(None) => "it has saved no policy".to_owned(),
        Err(error) => causes(&error),
    }
}

/// The form in which a policy reads and writes: its tokens, its window and the presentation of text.
#[derive(Clone)]
pub struct PolicyFormat {
    pub(crate) tokenizer: Arc<dyn Tokenizer>,
    /// Tokens that an episode may have; `None` for scripts and servers.
    pub(crate) window: Option<usize>,
    /// The presentation, without an environment's tools.
    pub(crate) presentation: Presentation,
}

impl PolicyFormat {
    /// Plain text in the tokens of this tokenizer.
    pub fn raw(tokenizer: Arc<dyn Tokenizer>) -> Self {
        Self {
            tokenizer,
            window: None,
            presentation: Presentation::RAW,
        }
    }

    /// Plain text, a byte a token: the format of scripts and people.
    pub fn bytes() -> Self {
        Self::raw(Arc::new(ByteTokenizer))
    }

    /// The format of a server: chats, or running text without settings of them. What environments count in tokens they count
    /// by [`FourBytes`].
    pub(crate) fn text(chat: Option<&ChatSettings>) -> Self {
        let chat = chat.cloned().map(Presentation::served);
        Self {
            presentation: chat.unwrap_or(Presentation::RAW),
            ..Self::raw(Arc::new(FourBytes))
        }
    }

    /// The format of a checkpoint, as chats where a config says so.
    pub(crate) fn of(
        checkpoint: &Checkpoint,
        chat: Option<&ChatSettings>,
        generation: &Generation,
    ) -> Result<Self> {
        let window = generation.window(&checkpoint.config);
        let tokenizer = Arc::new(checkpoint.tokenizer.clone());
        Self::with(tokenizer, checkpoint.chat.as_ref(), chat, window)
    }

    /// The same where an engine of this process plays: an episode has no more tokens than its cache holds.
    #[must_use]
    pub(crate) fn within_cache(self, checkpoint: &Checkpoint, generation: &Generation) -> Self {
        let shape = &checkpoint.config;
        Self {
            window: Some(generation.engine(shape).window(shape)),
            ..self
        }
    }

    /// The format of a checkpoint whose weights are a server's, in a window of so many tokens.
    pub(crate) fn without_weights(
        name: &str,
        chat: Option<&ChatSettings>,
        window: usize,
    ) -> Result<Self> {
        let unusable = || format!("the tokenizer of policy {name} cannot be used");
        let mut name = name.to_owned();
        if !name.starts_with(BUILTIN) {
            let folder = hub().fetch_texts(&name).with_context(unusable)?;
            let base = Checkpoint::adapter_base(&folder).with_context(unusable)?;
            name = base.unwrap_or(name);
        }
        if let Some(builtin) = name.strip_prefix(BUILTIN) {
            let Checkpoint {
                tokenizer,
                chat: template,
                ..
            } = builtin::load(builtin, &DeviceSpec::default())?;
            return Self::with(Arc::new(tokenizer), template.as_ref(), chat, window);
        }
        let folder = hub().fetch_texts(&name).with_context(unusable)?;
        let tokenizer = Checkpoint::tokenizer_of(&folder).with_context(unusable)?;
        let template = ChatTemplate::load(&folder).with_context(unusable)?;
        Self::with(Arc::new(tokenizer), template.as_ref(), chat, window)
    }

    fn with(
        tokenizer: Arc<dyn Tokenizer>,
        template: Option<&ChatTemplate>,
        chat: Option<&ChatSettings>,
        window: usize,
    ) -> Result<Self> {
        let presentation = match (chat, template) {
            (None, _) => Presentation::RAW,
            (Some(settings), Some(template)) => {
                Presentation::chat(template.clone(), settings.clone())
                    .in_config("policy.chat cannot be used")?
            }
            (Some(_), None) => {
                return Err(RunError::config_because(
                    "policy.chat is set, but the checkpoint has no chat template",
                    "remove the table, or use an Instruct checkpoint",
                ));
            }
        };
        Ok(Self {
            tokenizer,
            window: Some(window),
            presentation,
        })
    }
}

/// The checkpoint a config names, with its adapter where one is to be trained.
pub(crate) fn start_of(config: &Resolved) -> Result<Checkpoint> {
    start_at(config, &config.policy.checkpoint)
}

/// The checkpoint of this name in the form that a config asks for, with its adapter where one is to be trained.
pub(crate) fn start_at(config: &Resolved, name: &str) -> Result<Checkpoint> {
    let base = config.policy.base;
    if base != Base::F32 && name.starts_with(BUILTIN) {
        return Err(RunError::config_because(
            format!("policy.base: {name} is kept whole"),
            "remove the key, or name a folder",
        ));
    }
    let mut checkpoint = open_policy(name, base.precision(), &config.device)?;
    match (&config.policy.lora, &checkpoint.lora) {
        (Some(_), Some(_)) => {
            return Err(RunError::config_because(
                format!("policy.checkpoint {name} is an adapter already"),
                "remove [policy.lora] to continue it",
            ));
        }
        (Some(lora), None) => {
            adapt(&mut checkpoint, lora, name, config.seed).in_config("[policy.lora]")?;
        }
        (None, None) if base != Base::F32 => {
            return Err(RunError::config_because(
                "policy.base: weights that learn are kept as f32; others can only stand beside an adapter",
                "add [policy.lora], or remove the key",
            ));
        }
        (None, _) => {}
    }
    Ok(checkpoint)
}

/// Tells whether a config trains an adapter, a fresh one or that of its checkpoint; a checkpoint that is not to be had any more is taken
/// for whole weights.
pub(crate) fn trains_adapter(config: &Resolved) -> Result<bool> {
    if config.policy.lora.is_some() {
        return Ok(true);
    }
    let folder = hub().fetch_texts(&config.policy.checkpoint).ok();
    let base = folder.map(|folder| Checkpoint::adapter_base(&folder));
    Ok(base.transpose()?.flatten().is_some())
}

/// Gives a checkpoint a fresh adapter, a function of the run's seed.
pub(crate) fn adapt(
    checkpoint: &mut Checkpoint,
    lora: &LoraSection,
    base: &str,
    seed: u64,
) -> Result<()> {
    let seed = Seed::root(seed).child("adapter", &[]);
    // Another version of the program may have other weights under this name.
    let base = match base.strip_prefix(BUILTIN) {
        Some(builtin) => format!("{BUILTIN}{}", builtin::pinned(builtin)?),
        None => base.to_owned(),
    };
    Ok(checkpoint.adapt(lora.adapter(&base), seed)?)
}

/// Opens a checkpoint by its folder or name on the hub, or one inside this crate: by itself, which is kept whole, or under an
/// adapter.
///
/// # Errors
/// When it is not there, or cannot be used on the device or in this precision.
pub fn open_policy(name: &str, precision: Precision, device: &DeviceSpec) -> Result<Checkpoint> {
    needs_weights(name)?;
    let unusable = || format!("policy {name} cannot be used");
    if let Some(builtin) = name.strip_prefix(BUILTIN) {
        return builtin::load(builtin, device);
    }
    // Before anything is fetched for it.
    let opened = device.open()?;
    let hub = hub();
    let folder = hub.fetch(name).with_context(unusable)?;
    let base = Checkpoint::adapter_base(&folder).with_context(unusable)?;
    let Some(builtin) = base.as_deref().and_then(|base| base.strip_prefix(BUILTIN)) else {
        return Checkpoint::open(name, &hub, precision, &opened).with_context(unusable);
    };
    if matches!(precision, Precision::Half | Precision::Int8) {
        bail!("policy {name}: its base builtin:{builtin} is kept whole, as f32");
    }
    if !builtin.contains('@') {
        bail!(
            "policy {name}: its adapter_config.json names the base builtin:{builtin} without a revision, as earlier versions wrote it, \
             whose weights may be others; name builtin:{} there if these are the right ones, else their folder",
            builtin::pinned(builtin)?
        );
    }
    let mut checkpoint = builtin::load(builtin, device)?;
    checkpoint.load_adapter(&folder).with_context(unusable)?;
    Ok(checkpoint)
}

/// A policy that a run has saved.
pub(crate) fn open_saved(folder: &Path, config: &Resolved) -> Result<Checkpoint> {
    open_policy(&folder.to_string_lossy(), Precision::Full, &config.device)
}

impl PolicyFormat {
    /// The tokenizer of a policy by its folder or name, of which only the texts beside the weights are fetched.
    ///
    /// # Errors
    /// When there is none.
    pub fn tokenizer(name: &str) -> Result<Arc<dyn Tokenizer>> {
        needs_weights(name)?;
        if let Some(builtin) = name.strip_prefix(BUILTIN) {
            let checkpoint = builtin::load(builtin, &DeviceSpec::default())?;
            return Ok(Arc::new(checkpoint.tokenizer));
        }
        let unusable = || format!("the tokenizer of policy {name} cannot be used");
        let folder = hub().fetch_texts(name).with_context(unusable)?;
        let tokenizer = Checkpoint::tokenizer_of(&folder).with_context(unusable)?;
        Ok(Arc::new(tokenizer))
    }
}

/// Endings of the files of a checkpoint that decide what it writes.
const DECIDING: [&str; 3] = ["jinja", "json", "safetensors"];

/// The digest of a checkpoint's files, with those of an adapter's base.
pub(crate) fn weights_digest(name: &str) -> Result<String> {
    if let Some(builtin) = name.strip_prefix(BUILTIN) {
        return builtin::digest(builtin);
    }
    let unusable = || format!("policy {name} cannot be used");
    let folder = hub().fetch(name).with_context(unusable)?;
    let entries = std::fs::read_dir(&folder).with_context(unusable)?;
    let mut files = Vec::new();
    for entry in entries {
        let file = entry.with_context(unusable)?.path();
        let ending = file.extension().and_then(|ending| ending.to_str());
        if ending.is_some_and(|ending| DECIDING.contains(&ending)) && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    let mut hasher = blake3::Hasher::new();
    for file in &files {
        let name = file.file_name().unwrap_or_default();
        hasher.update(name.as_encoded_bytes());
        hash_file(&mut hasher, file)?;
    }
    if let Some(base) = Checkpoint::adapter_base(&folder).with_context(unusable)? {
        hasher.update(weights_digest(&base)?.as_bytes());
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// Adds the bytes of a file to a digest.
pub(crate) fn hash_file(hasher: &mut blake3::Hasher, file: &Path) -> Result<()> {
    let cannot = || format!("cannot read {}", file.display());
    let opened = std::fs::File::open(file).with_context(cannot)?;
    hasher.update_reader(opened).with_context(cannot)?;
    Ok(())
}

/// Writes what a run has trained: the whole policy, or the adapter alone where there is one.
pub(crate) fn save(trained: &Checkpoint, folder: &Path) -> Result<()> {
    match trained.lora {
        Some(_) => trained.save_adapter(folder)?,
        None => trained.save(folder)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Start;

    #[test]
    fn the_folder_of_a_run_is_refused_with_the_place_of_its_policy() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().to_str().unwrap();
        let run = RunLayout::new(name);
        for file in [run.config(), run.metrics()] {
            std::fs::write(file, "").unwrap();
        }
        let told = || {
            format!(
                "{:#}",
                anyhow::Error::from(needs_weights(name).unwrap_err())
            )
        };
        assert!(told().contains("it has saved no policy"), "{}", told());
        let policy = run.policy();
        let early = || {
            let refused = needs_weights(policy.to_str().unwrap()).unwrap_err();
            format!("{:#}", anyhow::Error::from(refused))
        };
        assert!(early().contains("it has saved no policy"), "{}", early());
        std::fs::create_dir(run.checkpoints()).unwrap();
        assert!(
            early().contains("no complete checkpoint yet"),
            "{}",
            early()
        );
        std::fs::remove_dir(run.checkpoints()).unwrap();
        std::fs::create_dir(&policy).unwrap();
        assert!(told().contains(policy.to_str().unwrap()), "{}", told());
        needs_weights(policy.to_str().unwrap()).unwrap();
        let checkpoint = run.checkpoints().join("step-000001");
        let model = checkpoint.join("model");
        std::fs::create_dir_all(&model).unwrap();
        std::fs::write(checkpoint.join("state.json"), "{}").unwrap();
        let refused = needs_weights(checkpoint.to_str().unwrap()).unwrap_err();
        let (error, place) = (causes(&refused), model.to_str().unwrap());
        assert!(
            error.ends_with(&format!("its policy is {place}")),
            "{error}"
        );
        needs_weights(place).unwrap();
    }

    #[test]
    fn a_name_that_leads_nowhere_is_known_without_the_network() {
        // A test runs in the folder of its crate.
        for (name, fault) in [
            ("src/other", "there is no folder `src/other` here"),
            ("no such policy", "there is no no such policy"),
            ("bultin:quickstart", "did you mean `builtin:quickstart`?"),
        ] {
            let told = nowhere(name).unwrap();
            assert!(told.contains(fault), "{told}");
        }
        for name in ["src", "org/unheard-of", "builtin:quickstart", "http://a"] {
            assert_eq!(nowhere(name), None, "{name}");
        }
        let refused = needs_weights("bultin:quickstart").unwrap_err();
        assert!(causes(&refused).contains("did you mean"), "{refused}");
    }

    #[test]
    fn a_policy_of_another_environment_is_told_with_both() {
        let told = taught_another("builtin:quickstart", "code-search").unwrap();
        assert!(
            told.contains("was taught search-r1 and plays code-search"),
            "{told}"
        );
        for same in ["search-r1", "external"] {
            assert_eq!(taught_another("builtin:quickstart", same), None);
        }
        let folder = tempfile::tempdir().unwrap();
        let run = RunLayout::new(folder.path());
        let policy = run.policy();
        let policy = policy.to_str().unwrap();
        assert_eq!(taught_another(policy, "code-search"), None, "of no run");
        let config = include_str!("../../configs/quickstart-code.toml");
        std::fs::write(run.config(), config).unwrap();
        assert_eq!(taught_another(policy, "code-search"), None);
        assert!(taught_another(policy, "math").is_some());
    }

    #[test]
    fn a_tokenizer_is_named_as_a_policy_is() {
        let told = |name: &str| {
            let refused = PolicyFormat::tokenizer(name).err().unwrap();
            format!("{:#}", anyhow::Error::from(refused))
        };
        // As everywhere, a name that is not a folder is looked for on the hub.
        let none = told("no such policy");
        assert!(
            none.contains("neither a folder nor a name on the hub"),
            "{none}"
        );
        assert!(PolicyFormat::tokenizer("builtin:quickstart").is_ok());
    }

    #[test]
    fn other_weights_have_another_digest() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
            weights_digest(folder.path().to_str().unwrap()).unwrap()
        };
        write("config.json", "{}");
        let first = write("model.safetensors", "a");
        assert_ne!(write("model.safetensors", "b"), first);
        assert_eq!(write("model.safetensors", "a"), first);
        assert_eq!(write("README.md", "who made it"), first);
        let adapter = write("adapter_config.json", "{}");
        assert_ne!(adapter, first);
        let builtin = weights_digest("builtin:quickstart").unwrap();
        assert_ne!(weights_digest("builtin:quickstart-code").unwrap(), builtin);
    }

    #[test]
    fn an_adapter_names_the_weights_that_it_changes() {
        let device = DeviceSpec::default();
        let open = |name: &str| open_policy(name, Precision::Full, &device);
        let lora = LoraSection {
            rank: 2,
            alpha: 4.0,
            rank_stabilised: false,
            dropout: 0.0,
            targets: None,
        };
        let mut policy = open("builtin:quickstart").unwrap();
        adapt(&mut policy, &lora, "builtin:quickstart", 1).unwrap();
        let folder = tempfile::tempdir().unwrap();
        save(&policy, folder.path()).unwrap();
        let name = folder.path().to_str().unwrap();
        assert!(open(name).is_ok());
        let trains = |name: &str| {
            let text = include_str!("../../configs/quickstart.toml");
            let named = format!("policy.checkpoint={name:?}");
            let config = RunConfig::parse(text, &[named]).unwrap();
            trains_adapter(&config.resolve(None).unwrap()).unwrap()
        };
        assert!(trains(name) && !trains("builtin:quickstart"));
        let file = folder.path().join("adapter_config.json");
        let text = std::fs::read_to_string(&file).unwrap();
        let pinned = builtin::pinned("quickstart").unwrap();
        for (base, fault) in [
            ("quickstart", "without a revision"),
            ("quickstart@000000000000", "in this version of the program"),
        ] {
            assert!(text.contains(&pinned), "{text}");
            std::fs::write(&file, text.replace(&pinned, base)).unwrap();
            let error = format!("{:#}", open(name).unwrap_err());
            assert!(error.contains(fault), "{error}");
        }
    }

    #[test]
    fn a_device_that_cannot_be_opened_is_refused_before_anything_is_fetched() {
        let device: DeviceSpec = "metal:9".parse().unwrap();
        let unheard_of = "org/unheard-of";
        let opened = open_policy(unheard_of, Precision::Full, &device);
        let text = include_str!("../../configs/quickstart.toml");
        let named = format!("policy.checkpoint={unheard_of:?}");
        let config = RunConfig::parse(text, &[named]).unwrap();
        let config = config.resolve(Some(device)).unwrap();
        let known = Start::of(&config, true);
        for error in [opened.err().unwrap(), known.err().unwrap()] {
            let told = causes(&error);
            assert!(told.starts_with("device `metal:9` "), "{told}");
        }
    }
}
