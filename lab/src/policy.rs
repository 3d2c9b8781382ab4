//! Policies by their names: a folder, a name on the hub, or one inside this crate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forage_contracts::seed::Seed;
use forage_contracts::{ByteTokenizer, Tokenizer};
use forage_env::{ChatSettings, Presentation};
use forage_trainer::device::DeviceSpec;
use forage_trainer::{Checkpoint, Hub, Precision};

use crate::archive::{is_archive, unpacked};
use crate::builtin;
use crate::config::{Base, Generation, LoraSection, Resolved};
use crate::error::{Context, Result, RunError, bail};

/// Begins the names of policies inside this crate.
const BUILTIN: &str = "builtin:";

/// The form in which a policy reads and writes: its tokens, its window and the presentation of text.
#[derive(Clone)]
pub struct PolicyFormat {
    pub(crate) tokenizer: Arc<dyn Tokenizer>,
    /// Tokens that an episode may have; `None` for scripts.
    pub(crate) window: Option<usize>,
    /// Without the tools of an environment.
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

    /// The format of a checkpoint, as chats where a config says so.
    pub(crate) fn of(
        checkpoint: &Checkpoint,
        chat: Option<&ChatSettings>,
        generation: &Generation,
    ) -> Result<Self> {
        let presentation = match (chat, &checkpoint.chat) {
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
            tokenizer: Arc::new(checkpoint.tokenizer.clone()),
            window: Some(generation.window(&checkpoint.config)),
            presentation,
        })
    }
}

/// The checkpoint a config names, with its adapter where one is to be trained.
pub(crate) fn start_of(config: &Resolved) -> Result<Checkpoint> {
    let name = &config.policy.checkpoint;
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

/// Gives a checkpoint a fresh adapter, a function of the run's seed.
pub(crate) fn adapt(
    checkpoint: &mut Checkpoint,
    lora: &LoraSection,
    base: &str,
    seed: u64,
) -> Result<()> {
    let seed = Seed::root(seed).child("adapter", &[]);
    Ok(checkpoint.adapt(lora.adapter(base), seed)?)
}

/// Opens a checkpoint by its folder or name on the hub, or one inside this crate: by itself, which is kept whole, or under an
/// adapter.
///
/// # Errors
/// When it is not there, or cannot be used on the device or in this precision.
pub fn open_policy(name: &str, precision: Precision, device: &DeviceSpec) -> Result<Checkpoint> {
    let unusable = || format!("policy {name} cannot be used");
    if let Some(builtin) = name.strip_prefix(BUILTIN) {
        return builtin::load(builtin, device);
    }
    let hub = hub();
    let folder = hub.fetch(name).with_context(unusable)?;
    let base = Checkpoint::adapter_base(&folder).with_context(unusable)?;
    let Some(builtin) = base.as_deref().and_then(|base| base.strip_prefix(BUILTIN)) else {
        return Checkpoint::open(name, &hub, precision, &device.open()?).with_context(unusable);
    };
    if matches!(precision, Precision::Half | Precision::Int8) {
        bail!("policy {name}: its base builtin:{builtin} is kept whole, as f32");
    }
    let mut checkpoint = builtin::load(builtin, device)?;
    checkpoint.load_adapter(&folder).with_context(unusable)?;
    Ok(checkpoint)
}

impl PolicyFormat {
    /// The tokenizer of a checkpoint folder, or of a policy inside this crate.
    ///
    /// # Errors
    /// When there is none.
    pub fn tokenizer(name: &str) -> Result<Arc<dyn Tokenizer>> {
        if let Some(builtin) = name.strip_prefix(BUILTIN) {
            let checkpoint = builtin::load(builtin, &DeviceSpec::default())?;
            return Ok(Arc::new(checkpoint.tokenizer));
        }
        let folder = Path::new(name);
        if !folder.is_dir() {
            bail!(
                "`{name}` is not a folder; name the policy's with --tokenizer: only its tokenizer is read"
            );
        }
        Ok(Arc::new(Checkpoint::tokenizer_of(folder)?))
    }
}

/// The hub as the environment of this process describes it.
pub fn hub() -> Hub {
    #[expect(
        clippy::disallowed_methods,
        reason = "where the hub keeps its files is said by its own variables alone"
    )]
    Hub::from_variables(|name| std::env::var(name).ok())
}

/// Finds a file or folder by its path, or by its address on the hub (`hf://ORG/NAME[/PATH][@REVISION]`), which is fetched. A zip
/// archive is unpacked beside itself, once, and its folder found.
///
/// # Errors
/// When the hub does not have it, or the archive cannot be unpacked.
pub fn fetch_file(path: &Path) -> Result<PathBuf> {
    let found = match path.to_str().filter(|path| path.starts_with("hf://")) {
        None => path.to_owned(),
        Some(address) => hub()
            .fetch_data(address)
            .in_config(format!("the data set {address} cannot be had"))?,
    };
    if is_archive(&found) {
        return unpacked(&found);
    }
    Ok(found)
}

/// Writes what a run has trained: the whole policy, or the adapter alone where there is one.
pub(crate) fn save(trained: &Checkpoint, folder: &Path) -> Result<()> {
    match trained.lora {
        Some(_) => trained.save_adapter(folder)?,
        None => trained.save(folder)?,
    }
    Ok(())
}
