//! Trains a small byte-pair tokenizer in Hugging Face's format.

use forage_contracts::{Pieces, Vocabulary};
use forage_env::{HfTokenizer, TokenizerError};
use tokenizers::decoders::byte_level::ByteLevel as ByteLevelDecoder;
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::processors::byte_level::ByteLevel as ByteLevelProcessor;
use tokenizers::{AddedToken, SplitDelimiterBehavior, TokenizerBuilder};

/// End of sequence and padding of trained tokenizers.
pub(crate) const EOS: &str = "<|endoftext|>";

/// Pieces of text that programs are made of; merges do not cross them.
const CODE_PIECES: &str = r" ?[a-z_]+|[\p{L}][\p{L}']*|\p{N}{1,2}| ?[^\s\p{L}\p{N}_]+\n?|\s+|_+";

fn pre_tokenizer(pieces: Pieces) -> Result<PreTokenizerWrapper, tokenizers::Error> {
    Ok(match pieces {
        Pieces::Words => ByteLevel::new(false, true, true).into(),
        Pieces::Code => {
            let pattern = SplitPattern::Regex(CODE_PIECES.to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?;
            Sequence::new(vec![
                split.into(),
                ByteLevel::new(false, true, false).into(),
            ])
            .into()
        }
    })
}

/// Trains a byte-level BPE of `vocab` tokens on `lines`, for the text of an environment: the same tokenizer for the same lines.
///
/// # Errors
/// [`TokenizerError`] when training fails or `vocab` is too small for the bytes and tags.
pub fn train_tokenizer(
    lines: impl Iterator<Item = String> + Send,
    vocab: usize,
    vocabulary: Vocabulary,
) -> Result<(HfTokenizer, Vec<u8>), TokenizerError> {
    let fail = |message: String| TokenizerError {
        path: "(training)".to_owned(),
        message,
    };
    let tags = vocabulary.tags;
    let smallest = ByteLevel::alphabet().len() + tags.len() + 1;
    if vocab < smallest {
        return Err(fail(format!(
            "vocab_size {vocab} is below {smallest}, the bytes and tags alone"
        )));
    }
    let special = |text: &str| AddedToken::from(text, true).normalized(false);
    let specials: Vec<AddedToken> = std::iter::once(EOS)
        .chain(tags.iter().copied())
        .map(special)
        .collect();
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
        .with_pre_tokenizer(Some(
            pre_tokenizer(vocabulary.pieces).map_err(|error| fail(error.to_string()))?,
        ))
        .with_post_processor(Some(ByteLevelProcessor::new(false, false, true)))
        .with_decoder(Some(ByteLevelDecoder::default()))
        .build()
        .map_err(|error| fail(error.to_string()))?;
    tokenizer
        .train(&mut trainer, lines)
        .map_err(|error| fail(error.to_string()))?;
    let json = tokenizer
        .to_string(true)
        .map_err(|error| fail(error.to_string()))?;
    let bytes = json.into_bytes();
    Ok((HfTokenizer::from_bytes(&bytes, EOS)?, bytes))
}

#[cfg(test)]
mod tests {
    use forage_contracts::Tokenizer;

    use super::*;

    const PROGRAM: &str = "<python>for s in read_section(search_pages(\"Banoru Kelbi\")[0][\"page_id\"]).split(\".\"):\n if \
                           \"birth year\" in s: print(s)</python>";

    const TAGS: &[&str] = &["<think>", "</think>", "<python>", "</python>"];

    fn trained(pieces: Pieces) -> HfTokenizer {
        let lines = (0..50).flat_map(|_| {
            [
                PROGRAM.to_owned(),
                "Who is the mentor of Banoru Kelbi?".to_owned(),
            ]
        });
        train_tokenizer(lines, 600, Vocabulary { tags: TAGS, pieces })
            .unwrap()
            .0
    }

    #[test]
    fn text_comes_back_exactly() {
        for pieces in [Pieces::Words, Pieces::Code] {
            let tokenizer = trained(pieces);
            for text in [
                PROGRAM,
                "a\n\n\tb  c\r\n    d__e _f\n",
                "1807, naïve — 12.5 [x]",
                "",
                " ",
                "</python",
            ] {
                assert_eq!(
                    tokenizer.decode(&tokenizer.encode(text)),
                    text,
                    "{pieces:?}"
                );
            }
            for tag in TAGS {
                assert_eq!(tokenizer.encode(tag).len(), 1, "{tag}");
            }
        }
    }

    #[test]
    fn a_name_has_the_same_tokens_everywhere_and_programs_are_short() {
        let tokenizer = trained(Pieces::Code);
        let name = tokenizer.encode("Banoru Kelbi");
        for around in [
            "Who is the mentor of Banoru Kelbi?",
            "search_pages(\"Banoru Kelbi\")",
            "<answer>Banoru Kelbi</answer>",
        ] {
            let found = tokenizer.encode(around);
            assert!(
                found.windows(name.len()).any(|window| window == name),
                "{around}"
            );
        }
        assert!(
            tokenizer.encode(PROGRAM).len() <= 40,
            "{}",
            tokenizer.encode(PROGRAM).len()
        );
    }
}
