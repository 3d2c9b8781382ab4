//! Models of a published shape with random weights: for measuring, and for trying commands without a download.

use std::path::Path;

use burn::tensor::Device;
use forage_contracts::seed::Seed;
use forage_contracts::{Pieces, Tokenizer, Vocabulary};
use forage_env::chat::ChatTemplate;
use forage_env::{HfTokenizer, TokenizerError};
use forage_net::FileBounds;

use super::checkpoint::check_vocabulary;
use super::disk::read;
use super::texts::Companions;
use super::{Checkpoint, GenerationDefaults, Precision, WeightsError};
use crate::bpe::train_tokenizer;
use crate::file_error::FileError;
use crate::model::{Decoder, ModelConfig, init_quick};

impl Checkpoint {
    /// A model whose tokens are the 256 bytes and an end-of-sequence token.
    ///
    /// # Errors
    /// [`TokenizerError`] when the tokenizer cannot be built.
    pub fn of_bytes(config: ModelConfig, decoder: Decoder) -> Result<Self, TokenizerError> {
        let words = Vocabulary {
            tags: &[],
            pieces: Pieces::Words,
        };
        let (tokenizer, json) = train_tokenizer(std::iter::empty(), 256 + 1, words)?;
        Ok(Self::new(config, decoder, tokenizer, json))
    }

    /// A model of the shape of a published one ([`ModelConfig::published`]) with random weights: the same for the same
    /// seed. Its tokenizer, chat template and end tokens are those of the folder `tokenizer` (`tokenizer.json` and
    /// beside it what there is), else the bytes.
    ///
    /// # Errors
    /// [`WeightsError`] that names the shapes there are, or the tokenizer's file at fault.
    pub fn random(
        shape: &str,
        tokenizer: Option<&Path>,
        seed: Seed,
        precision: Precision,
        device: &Device,
    ) -> Result<Self, WeightsError> {
        let config = ModelConfig::published(shape).map_err(|fault| FileError {
            path: format!("random weights of shape {shape}").into(),
            message: fault.to_string(),
        })?;
        let decoder = || init_quick(&config, seed, precision, device);
        let Some(folder) = tokenizer else {
            return Ok(Self::of_bytes(config.clone(), decoder())?);
        };
        let mut companions = Companions::read(folder)?;
        let path = folder.join("tokenizer.json");
        let tokenizer_json = read(&path, FileBounds::LIST)?;
        let eos = companions.eos_token(folder, &tokenizer_json)?;
        let tokenizer = HfTokenizer::from_file(&path, &eos)?;
        check_vocabulary(&path, &tokenizer, &config)?;
        let ends = companions.ends(tokenizer.eos());
        // The shape is not that of the folder, if it has one.
        companions.forget_config();
        Ok(Self {
            decoder: decoder(),
            config,
            tokenizer,
            tokenizer_json,
            eos,
            ends,
            generation: GenerationDefaults::default(),
            chat: ChatTemplate::load(folder)?,
            chat_template: companions.chat_template(),
            lora: None,
            companions,
        })
    }
}
