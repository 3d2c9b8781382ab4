//! Trains a small byte-pair tokenizer in Hugging Face's format.

use forage_env::tokenizer::{HfTokenizer, TokenizerError};
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
pub const EOS: &str = "<|endoftext|>";

/// What a tokenizer is for: its tags are single tokens, so that a stop string always ends exactly at a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Turns that search by tags.
    Search,
    /// Turns that are programs. Identifiers stay whole up to `_`, and names and digits stand apart from spaces and marks
    /// before them: a name has the same tokens in a question, a string literal and an answer, so it can be copied.
    Code,
    /// Turns that are one query in boolean syntax, cut into pieces as programs are: a name has the same tokens in a question
    /// and in a phrase.
    Query,
}

/// Pieces of text that programs are made of; merges do not cross them.
const CODE_PIECES: &str = r" ?[a-z_]+|[\p{L}][\p{L}']*|\p{N}{1,2}| ?[^\s\p{L}\p{N}_]+\n?|\s+|_+";

impl Purpose {
    /// The protocol's tags.
    pub fn tags(self) -> &'static [&'static str] {
        match self {
            Self::Search => &[
                "<think>",
                "</think>",
                "<search>",
                "</search>",
                "<information>",
                "</information>",
                "<answer>",
                "</answer>",
            ],
            Self::Code => &[
                "<think>",
                "</think>",
                "<python>",
                "</python>",
                "<python_output>",
                "</python_output>",
                "<answer>",
                "</answer>",
            ],
            Self::Query => &["<reasoning>", "</reasoning>", "<query>", "</query>"],
        }
    }

    fn pieces(self) -> Result<PreTokenizerWrapper, tokenizers::Error> {
        Ok(match self {
            Self::Search => ByteLevel::new(false, true, true).into(),
            Self::Code | Self::Query => {
                let pattern = SplitPattern::Regex(CODE_PIECES.to_owned());
                let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?;
                Sequence::new(vec![split.into(), ByteLevel::new(false, true, false).into()]).into()
            }
        })
    }
}

/// Trains a byte-level BPE of `vocab` tokens on `lines`: the same tokenizer for the same lines.
///
/// # Errors
/// [`TokenizerError`] when training fails or `vocab` is too small for the bytes and tags.
pub fn train(
    lines: impl Iterator<Item = String> + Send,
    vocab: usize,
    purpose: Purpose,
) -> Result<(HfTokenizer, Vec<u8>), TokenizerError> {
    let fail = |message: String| TokenizerError { path: "(training)".to_owned(), message };
    let tags = purpose.tags();
    let smallest = ByteLevel::alphabet().len() + tags.len() + 1;
    if vocab < smallest {
        return Err(fail(format!("vocab_size {vocab} is below {smallest}, the bytes and tags alone")));
    }
    let special = |text: &str| AddedToken::from(text, true).normalized(false);
    let specials: Vec<AddedToken> = std::iter::once(EOS).chain(tags.iter().copied()).map(special).collect();
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
        .with_pre_tokenizer(Some(purpose.pieces().map_err(|error| fail(error.to_string()))?))
        .with_post_processor(Some(ByteLevelProcessor::new(false, false, true)))
        .with_decoder(Some(ByteLevelDecoder::default()))
        .build()
        .map_err(|error| fail(error.to_string()))?;
    tokenizer.train(&mut trainer, lines).map_err(|error| fail(error.to_string()))?;
    let json = tokenizer.to_string(true).map_err(|error| fail(error.to_string()))?;
    let bytes = json.into_bytes();
    Ok((HfTokenizer::from_bytes(&bytes, EOS)?, bytes))
}

#[cfg(test)]
mod tests {
    use forage_env::tokenizer::Tokenizer;

    use super::*;

    const PROGRAM: &str = "<python>for s in read_section(search_pages(\"Banoru Kelbi\")[0][\"page_id\"]).split(\".\"):\n if \
                           \"birth year\" in s: print(s)</python>";

    fn trained(purpose: Purpose) -> HfTokenizer {
        let lines = (0..50).flat_map(|_| [PROGRAM.to_owned(), "Who is the mentor of Banoru Kelbi?".to_owned()]);
        train(lines, 600, purpose).unwrap().0
    }

    #[test]
    fn text_comes_back_exactly() {
        for purpose in [Purpose::Search, Purpose::Code, Purpose::Query] {
            let tokenizer = trained(purpose);
            for text in [PROGRAM, "a\n\n\tb  c\r\n    d__e _f\n", "1807, naïve — 12.5 [x]", "", " ", "</python"] {
                assert_eq!(tokenizer.decode(&tokenizer.encode(text)), text, "{purpose:?}");
            }
            for tag in purpose.tags() {
                assert_eq!(tokenizer.encode(tag).len(), 1, "{tag}");
            }
        }
    }

    #[test]
    fn a_name_has_the_same_tokens_everywhere_and_programs_are_short() {
        let tokenizer = trained(Purpose::Code);
        let name = tokenizer.encode("Banoru Kelbi");
        for around in
            ["Who is the mentor of Banoru Kelbi?", "search_pages(\"Banoru Kelbi\")", "<answer>Banoru Kelbi</answer>"]
        {
            let found = tokenizer.encode(around);
            assert!(found.windows(name.len()).any(|window| window == name), "{around}");
        }
        assert!(tokenizer.encode(PROGRAM).len() <= 40, "{}", tokenizer.encode(PROGRAM).len());
    }
}
