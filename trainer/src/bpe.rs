//! Trains a small byte-pair tokenizer in Hugging Face's format.

use forage_env::tokenizer::{HfTokenizer, TokenizerError};
use tokenizers::decoders::byte_level::ByteLevel as ByteLevelDecoder;
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::processors::byte_level::ByteLevel as ByteLevelProcessor;
use tokenizers::{AddedToken, TokenizerBuilder};

/// End of sequence and padding of trained tokenizers.
pub const EOS: &str = "<|endoftext|>";

/// Tags of the search protocol: single tokens, so that a stop string always ends exactly at a token.
pub const TAGS: [&str; 8] =
    ["<think>", "</think>", "<search>", "</search>", "<information>", "</information>", "<answer>", "</answer>"];

/// Trains a byte-level BPE of `vocab` tokens on `lines`: the same tokenizer for the same lines.
///
/// # Errors
/// [`TokenizerError`] when training fails or `vocab` is too small for the bytes and tags.
pub fn train(
    lines: impl Iterator<Item = String> + Send,
    vocab: usize,
) -> Result<(HfTokenizer, Vec<u8>), TokenizerError> {
    let fail = |message: String| TokenizerError { path: "(training)".to_owned(), message };
    let smallest = ByteLevel::alphabet().len() + TAGS.len() + 1;
    if vocab < smallest {
        return Err(fail(format!("vocab_size {vocab} is below {smallest}, the bytes and tags alone")));
    }
    let special = |text: &str| AddedToken::from(text, true).normalized(false);
    let specials: Vec<AddedToken> = std::iter::once(EOS).chain(TAGS).map(special).collect();
    let mut trainer = BpeTrainerBuilder::new()
        .show_progress(false)
        .vocab_size(vocab)
        .min_frequency(2)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(specials.clone())
        .build();
    let mut tokenizer = TokenizerBuilder::new()
        .with_model(BPE::default())
        .with_normalizer(None::<NormalizerWrapper>)
        .with_pre_tokenizer(Some(ByteLevel::new(false, true, true)))
        .with_post_processor(Some(ByteLevelProcessor::new(false, false, true)))
        .with_decoder(Some(ByteLevelDecoder::default()))
        .build()
        .map_err(|error| fail(error.to_string()))?;
    tokenizer.train(&mut trainer, lines).map_err(|error| fail(error.to_string()))?;
    let json = tokenizer.to_string(true).map_err(|error| fail(error.to_string()))?;
    let bytes = json.into_bytes();
    Ok((HfTokenizer::from_bytes(&bytes, EOS)?, bytes))
}
