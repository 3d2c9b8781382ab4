//! A model with its tokenizer and the files beside its weights.

use std::path::Path;

use burn::tensor::Device;
use forage_contracts::Tokenizer;
use forage_contracts::seed::Seed;
use forage_env::HfTokenizer;
use forage_env::chat::ChatTemplate;
use forage_net::FileBounds;

use super::disk::{read, save_folder, write, write_folder};
use super::fill::Precision;
use super::hub::Hub;
use super::texts::{Companions, Facts, GenerationDefaults};
use super::write::{FileType, SaveOptions, save_decoder_as};
use super::{WeightsError, adapter, load_decoder_as};
use crate::file_error::FileError;
use crate::lora::{self, LoraConfig};
use crate::model::{Decoder, ModelConfig};

/// A model with everything needed to run it.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Shape.
    pub config: ModelConfig,
    /// Weights.
    pub decoder: Decoder,
    /// Its tokenizer.
    pub tokenizer: HfTokenizer,
    /// The content of `tokenizer.json`, written back unchanged.
    pub tokenizer_json: Vec<u8>,
    /// Text of the end-of-sequence token.
    pub eos: String,
    /// Every id that ends a sequence: the tokenizer's own first, then those that `generation_config.json` (else
    /// `config.json`) adds. Instruct models end turns and texts differently, base models may not end turns at all.
    pub ends: Vec<u32>,
    /// Sampling that the publisher recommends.
    pub(crate) generation: GenerationDefaults,
    /// The chat template, if the folder has one.
    pub chat: Option<ChatTemplate>,
    /// Its source, which is what is saved.
    pub chat_template: Option<String>,
    /// Settings of the adapter, if the decoder has one.
    pub lora: Option<LoraConfig>,
    /// The other files of the folder, for saving.
    pub(crate) companions: Companions,
}

impl Checkpoint {
    /// The factor against tokens that occurred that `generation_config.json` asks for, where it does anything. No sampling here
    /// applies it.
    pub fn repetition_penalty(&self) -> Option<f32> {
        self.generation.repetition_penalty
    }

    /// A model that was not read from a folder.
    pub fn new(
        config: ModelConfig,
        decoder: Decoder,
        tokenizer: HfTokenizer,
        tokenizer_json: Vec<u8>,
    ) -> Self {
        Self {
            config,
            decoder,
            ends: vec![tokenizer.eos()],
            eos: tokenizer.eos_text(),
            tokenizer,
            tokenizer_json,
            generation: GenerationDefaults::default(),
            chat: None,
            chat_template: None,
            lora: None,
            companions: Companions::default(),
        }
    }

    /// Reads a folder, or fetches what a name of the hub (`Qwen/Qwen2.5-0.5B-Instruct`, `NAME@REVISION`) names first.
    ///
    /// A folder of PEFT is opened as its base model, by the name it gives, with the adapter attached.
    ///
    /// # Errors
    /// As [`Hub::fetch`], [`Self::load_as`] and [`Self::load_adapter`].
    pub fn open(
        name: &str,
        hub: &Hub,
        precision: Precision,
        device: &Device,
    ) -> Result<Self, WeightsError> {
        let folder = hub.fetch(name)?;
        let Some(base) = Self::adapter_base(&folder)? else {
            return Self::load_as(&folder, precision, device);
        };
        let mut checkpoint = Self::load_as(&hub.fetch(&base)?, precision, device)?;
        checkpoint.load_adapter(&folder)?;
        Ok(checkpoint)
    }

    /// The base that a folder of PEFT names; `None` where the folder holds a whole model.
    ///
    /// # Errors
    /// As [`LoraConfig::from_file`].
    pub fn adapter_base(folder: &Path) -> Result<Option<String>, WeightsError> {
        let adapter = folder.join(adapter::CONFIG);
        if !adapter.exists() || folder.join("config.json").exists() {
            return Ok(None);
        }
        Ok(Some(LoraConfig::from_file(&adapter)?.base))
    }

    /// Attaches a fresh adapter, as PEFT initialises it, which changes nothing at first. The same for the same seed.
    ///
    /// # Errors
    /// [`WeightsError`] when a target names nothing.
    pub fn adapt(&mut self, config: LoraConfig, seed: Seed) -> Result<(), WeightsError> {
        lora::attach(&mut self.decoder, &config, seed)?;
        self.lora = Some(config);
        Ok(())
    }

    /// Attaches the adapter of a PEFT folder.
    ///
    /// # Errors
    /// [`WeightsError`] that names the file, key or tensor at fault.
    pub fn load_adapter(&mut self, folder: &Path) -> Result<(), WeightsError> {
        self.lora = Some(adapter::load(&mut self.decoder, folder)?);
        Ok(())
    }

    /// Writes the adapter as a PEFT folder, with the tokenizer and its chat template, so that what the policy wrote can be read
    /// where the base is not. It appears when it is complete; one that was there is replaced.
    ///
    /// # Errors
    /// [`WeightsError`] when there is none, or that names the file.
    pub fn save_adapter(&self, folder: &Path) -> Result<(), WeightsError> {
        let lora = self.adapter_for(folder)?;
        save_folder(folder, |partial| {
            adapter::save(&self.decoder, lora, partial)?;
            let facts = self.facts(FileType::F32);
            self.companions.write_tokenizer(partial, &facts)?;
            write(&partial.join(TOKENIZER), &self.tokenizer_json)
        })
    }

    /// Writes the adapter alone as a PEFT folder, for who reads it at once.
    pub(crate) fn write_adapter(&self, folder: &Path) -> Result<(), WeightsError> {
        let lora = self.adapter_for(folder)?;
        write_folder(folder, |partial| {
            adapter::save(&self.decoder, lora, partial)
        })
    }

    fn adapter_for(&self, folder: &Path) -> Result<&LoraConfig, FileError> {
        self.lora.as_ref().ok_or_else(|| FileError {
            path: folder.to_owned(),
            message: "there is no adapter to write".to_owned(),
        })
    }

    /// The model with its adapter merged into the weights.
    #[must_use]
    pub fn merge(mut self) -> Self {
        lora::merge(&mut self.decoder);
        self.lora = None;
        self
    }

    /// The model with an output head of its own, equal to the embedding where it was tied.
    #[must_use]
    pub(crate) fn untied(mut self) -> Self {
        self.decoder = self.decoder.untied();
        self.config.tie_word_embeddings = false;
        self
    }

    /// Reads a Hugging Face folder onto `device`, weights as f32.
    ///
    /// # Errors
    /// As [`Self::load_as`].
    pub fn load(folder: &Path, device: &Device) -> Result<Self, WeightsError> {
        Self::load_as(folder, Precision::Full, device)
    }

    /// Reads a Hugging Face folder onto `device`.
    ///
    /// # Errors
    /// [`WeightsError`] that names the file, and for tensors the missing, unexpected and misshapen ones.
    pub fn load_as(
        folder: &Path,
        precision: Precision,
        device: &Device,
    ) -> Result<Self, WeightsError> {
        let config = ModelConfig::from_file(&folder.join("config.json"))?;
        let companions = Companions::read(folder)?;
        let tokenizer_path = folder.join(TOKENIZER);
        let tokenizer_json = read(&tokenizer_path, FileBounds::LIST)?;
        let eos = companions.eos_token(folder, &tokenizer_json)?;
        let tokenizer = HfTokenizer::from_file(&tokenizer_path, &eos)?;
        check_vocabulary(&tokenizer_path, &tokenizer, &config)?;
        let decoder = load_decoder_as(folder, &config, precision, device)?;
        let ends = companions.ends(tokenizer.eos());
        let (generation, chat_template) =
            (companions.generation_defaults(), companions.chat_template());
        Ok(Self {
            config,
            decoder,
            tokenizer,
            tokenizer_json,
            eos,
            ends,
            generation,
            chat: ChatTemplate::load(folder)?,
            chat_template,
            lora: None,
            companions,
        })
    }

    /// Writes a folder that transformers and vLLM load, weights as f32. It appears when it is complete; one that was
    /// there is replaced.
    ///
    /// # Errors
    /// [`WeightsError`] that names the file.
    pub fn save(&self, folder: &Path) -> Result<(), WeightsError> {
        self.save_with(folder, SaveOptions::default())
    }

    /// As [`Self::save`], with weights of another type. An adapter is merged into what is written;
    /// [`Self::save_adapter`] writes it alone. The files beside the weights come back as
    /// they were read: in `config.json` only the type of the weights and what differs in the shape is replaced.
    ///
    /// # Errors
    /// [`WeightsError`] that names the file.
    pub fn save_as(&self, folder: &Path, file_type: FileType) -> Result<(), WeightsError> {
        let options = SaveOptions {
            file_type,
            ..SaveOptions::default()
        };
        self.save_with(folder, options)
    }

    pub(crate) fn save_with(
        &self,
        folder: &Path,
        options: SaveOptions,
    ) -> Result<(), WeightsError> {
        save_folder(folder, |partial| self.write(partial, options))
    }

    /// As [`Self::save_as`], for who reads the folder at once.
    pub(crate) fn write_as(&self, folder: &Path, file_type: FileType) -> Result<(), WeightsError> {
        let options = SaveOptions {
            file_type,
            ..SaveOptions::default()
        };
        write_folder(folder, |partial| self.write(partial, options))
    }

    /// The type that a server of the checkpoint's folder keeps weights in: bf16 where `config.json` says so, else f32.
    pub fn published_type(&self) -> FileType {
        if self.companions.dtype() == Some(FileType::Bf16.name()) {
            FileType::Bf16
        } else {
            FileType::F32
        }
    }

    fn write(&self, folder: &Path, options: SaveOptions) -> Result<(), WeightsError> {
        std::fs::create_dir_all(folder).map_err(|source| WeightsError::Io {
            path: folder.to_owned(),
            source,
        })?;
        self.companions
            .write(folder, &self.facts(options.file_type))?;
        write(&folder.join(TOKENIZER), &self.tokenizer_json)?;
        if self.decoder.is_adapted() {
            return save_decoder_as(folder, &self.clone().merge().decoder, options);
        }
        save_decoder_as(folder, &self.decoder, options)
    }

    fn facts(&self, file_type: FileType) -> Facts<'_> {
        Facts {
            config: &self.config,
            eos: &self.eos,
            ends: &self.ends,
            chat_template: self.chat_template.as_deref(),
            dtype: file_type.name(),
        }
    }
}

/// File of the tokenizer.
const TOKENIZER: &str = "tokenizer.json";

impl Checkpoint {
    /// The tokenizer of a Hugging Face folder, without the model's weights.
    ///
    /// # Errors
    /// [`WeightsError`] that names the file.
    pub fn tokenizer_of(folder: &Path) -> Result<HfTokenizer, WeightsError> {
        let path = folder.join(TOKENIZER);
        let tokenizer_json = read(&path, FileBounds::LIST)?;
        let eos = Companions::read(folder)?.eos_token(folder, &tokenizer_json)?;
        Ok(HfTokenizer::from_file(&path, &eos)?)
    }
}

/// Refuses a tokenizer that has more tokens than the model.
pub(super) fn check_vocabulary(
    path: &Path,
    tokenizer: &HfTokenizer,
    config: &ModelConfig,
) -> Result<(), WeightsError> {
    if tokenizer.vocab_size() <= config.vocab_size {
        return Ok(());
    }
    let message = format!(
        "has {} tokens but config.json says vocab_size {}; the files belong to different models",
        tokenizer.vocab_size(),
        config.vocab_size
    );
    Err(WeightsError::Tensors {
        path: path.to_owned(),
        message,
    })
}
