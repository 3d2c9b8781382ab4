//! The tantivy side of reading: terms, postings and lengths of one segment.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use rayon::prelude::*;
use tantivy::fastfield::Column;
use tantivy::fieldnorm::FieldNormReader;
use tantivy::index::InvertedIndexReader;
use tantivy::postings::{BlockSegmentPostings, Postings as _, SegmentPostings, TermInfo};
use tantivy::schema::IndexRecordOption;
use tantivy::termdict::TermMerger;
use tantivy::{Directory, DocSet as _, Index};

use super::writer::{CONTENTS, FIELD_SEPARATOR, FIELDS, TITLE_WORDS, filter_token, only_segment};

/// Positions of a full block, which takes a byte at least.
const POSITIONS_BLOCK: usize = 128;
/// Terms whose bounds are computed in one parallel step.
const BOUNDS_BATCH: usize = 1 << 16;

/// A term of the corpus.
pub(crate) struct FoundTerm {
    /// Its place among all terms in byte order.
    pub(crate) number: u64,
    /// The place of its postings.
    pub(crate) info: TermInfo,
}

/// The documents of a term, ascending, with the positions of its occurrences.
pub(crate) struct Located {
    postings: SegmentPostings,
    /// More positions than the file can hold.
    most: usize,
}

impl Located {
    /// The current document, `TERMINATED` at the end.
    pub(crate) fn doc(&self) -> u32 {
        self.postings.doc()
    }

    /// Moves to the next document.
    pub(crate) fn advance(&mut self) -> u32 {
        self.postings.advance()
    }

    /// Moves to the first document that is not before this one, which may be the current one.
    pub(crate) fn seek(&mut self, doc: u32) -> u32 {
        self.postings.seek(doc.max(self.doc()))
    }

    /// Reads the positions in the current document, ascending.
    ///
    /// # Errors
    /// When a damaged file claims more of them than it can hold, for which memory would be taken.
    pub(crate) fn positions(&mut self, positions: &mut Vec<u32>) -> io::Result<()> {
        let freq = self.postings.term_freq();
        if freq as usize > self.most {
            let what = format!("{freq} positions of a term in a document");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        self.postings.positions(positions);
        Ok(())
    }
}

/// Postings of one corpus, ready to be searched. Document numbers are ranks in the order of external ids.
pub(crate) struct Postings {
    inverted: Arc<InvertedIndexReader>,
    /// Values to filter by.
    fields: Arc<InvertedIndexReader>,
    /// One byte per document: its length in Lucene's quantisation.
    norms: Vec<u8>,
    docs_with_terms: u64,
    title_words: Column<u64>,
}

impl Postings {
    pub(crate) fn open(directory: Box<dyn Directory>) -> tantivy::Result<Self> {
        let index = Index::open(directory)?;
        let reader = only_segment(&index)?;
        let (contents, fields) = (
            index.schema().get_field(CONTENTS)?,
            index.schema().get_field(FIELDS)?,
        );
        let lengths = reader.get_fieldnorms_reader(contents)?;
        let norms: Vec<u8> = (0..reader.max_doc())
            .map(|doc| lengths.fieldnorm_id(doc))
            .collect();
        let docs_with_terms = norms.iter().filter(|&&norm| norm > 0).count() as u64;
        Ok(Self {
            inverted: reader.inverted_index(contents)?,
            fields: reader.inverted_index(fields)?,
            title_words: reader.fast_fields().u64(TITLE_WORDS)?,
            norms,
            docs_with_terms,
        })
    }

    pub(crate) fn norms(&self) -> &[u8] {
        &self.norms
    }

    /// Documents with at least one term: Lucene's `docCount`, the N of its formulas.
    pub(crate) fn docs_with_terms(&self) -> u64 {
        self.docs_with_terms
    }

    /// Lucene's `sumTotalTermFreq`, exact.
    pub(crate) fn tokens(&self) -> u64 {
        self.inverted.total_num_tokens()
    }

    pub(crate) fn terms(&self) -> usize {
        self.inverted.terms().num_terms()
    }

    /// Finds a term; `None` when it does not occur.
    pub(crate) fn find(&self, term: &str) -> io::Result<Option<FoundTerm>> {
        let terms = self.inverted.terms();
        let Some(number) = terms.term_ord(term)? else {
            return Ok(None);
        };
        Ok(terms.get(term)?.map(|info| FoundTerm { number, info }))
    }

    pub(crate) fn blocks(&self, info: &TermInfo) -> io::Result<BlockSegmentPostings> {
        self.inverted
            .read_block_postings_from_terminfo(info, IndexRecordOption::WithFreqs)
    }

    /// The documents of a term with the positions of its occurrences, title before text.
    pub(crate) fn located(&self, info: &TermInfo) -> io::Result<Located> {
        let positions = IndexRecordOption::WithFreqsAndPositions;
        Ok(Located {
            postings: self.inverted.read_postings_from_terminfo(info, positions)?,
            most: info.positions_range.len().saturating_add(1) * POSITIONS_BLOCK,
        })
    }

    /// The position of the first word of a document's text: the number of words of its title, stop words included.
    pub(crate) fn text_position(&self, doc: u32) -> u32 {
        // No document has 2^32 words.
        self.title_words.first(doc).unwrap_or(0) as u32
    }

    /// The documents whose field has this value, ascending; `None` when such values are not indexed.
    pub(crate) fn field_docs(&self, name: &str, value: &str) -> io::Result<Option<Vec<u32>>> {
        let Some(token) = filter_token(name, value) else {
            return Ok(None);
        };
        let mut docs = Vec::new();
        if let Some(info) = self.fields.terms().get(token.as_bytes())? {
            let mut blocks = self
                .fields
                .read_block_postings_from_terminfo(&info, IndexRecordOption::Basic)?;
            while !blocks.docs().is_empty() {
                docs.extend_from_slice(blocks.docs());
                blocks.advance();
            }
        }
        Ok(Some(docs))
    }

    /// Tells whether any passage has an indexed value of this field.
    pub(crate) fn has_field(&self, name: &str) -> io::Result<bool> {
        let Some(first) = filter_token(name, "") else {
            return Ok(false);
        };
        let mut tokens = self
            .fields
            .terms()
            .range()
            .ge(first.as_bytes())
            .into_stream()?;
        Ok(tokens.advance() && tokens.key().starts_with(first.as_bytes()))
    }

    /// Adds the names of the fields that have an indexed value, a look into the dictionary each.
    pub(crate) fn field_names(&self, names: &mut BTreeSet<String>) -> io::Result<()> {
        let mut from = String::new();
        loop {
            let mut tokens = self
                .fields
                .terms()
                .range()
                .ge(from.as_bytes())
                .into_stream()?;
            if !tokens.advance() {
                return Ok(());
            }
            let token = std::str::from_utf8(tokens.key()).map_err(io::Error::other)?;
            let name = token
                .split_once(FIELD_SEPARATOR)
                .map_or(token, |(name, _)| name);
            names.insert(name.to_owned());
            // The first token that is not a value of this field.
            from = format!("{name}\u{1}");
        }
    }

    /// Hands every term that begins with `prefix` to `visit`, in byte order.
    pub(crate) fn expand(
        &self,
        prefix: &str,
        mut visit: impl FnMut(&str, &TermInfo) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut terms = self
            .inverted
            .terms()
            .range()
            .ge(prefix.as_bytes())
            .into_stream()?;
        while terms.advance() && terms.key().starts_with(prefix.as_bytes()) {
            let term = std::str::from_utf8(terms.key()).map_err(io::Error::other)?;
            visit(term, terms.value())?;
        }
        Ok(())
    }

    /// Distinct terms of several segments together.
    pub(crate) fn distinct_terms(segments: &[&Self]) -> io::Result<u64> {
        if let [only] = segments {
            return Ok(only.terms() as u64);
        }
        let mut streams = Vec::with_capacity(segments.len());
        for segment in segments {
            streams.push(segment.inverted.terms().stream()?);
        }
        let mut merger = TermMerger::new(streams);
        let mut terms = 0;
        while merger.advance() {
            terms += 1;
        }
        Ok(terms)
    }

    /// For every term, the largest `freq * inverse[length]` of any document: with it the term's highest score is known
    /// exactly, which is what makes pruning sharp. Runs on the current rayon pool.
    pub(crate) fn saturations(&self, inverse: &[f32; 256]) -> io::Result<Vec<f32>> {
        let mut largest = Vec::with_capacity(self.terms());
        let mut batch = Vec::with_capacity(BOUNDS_BATCH.min(self.terms()));
        let mut terms = self.inverted.terms().stream()?;
        loop {
            batch.clear();
            while batch.len() < BOUNDS_BATCH
                && let Some((_, info)) = terms.next()
            {
                batch.push(info.clone());
            }
            if batch.is_empty() {
                return Ok(largest);
            }
            let found: io::Result<Vec<f32>> = batch
                .par_iter()
                .with_min_len(64)
                .map(|info| self.saturation(info, inverse))
                .collect();
            largest.extend(found?);
        }
    }

    fn saturation(&self, info: &TermInfo, inverse: &[f32; 256]) -> io::Result<f32> {
        let mut blocks = self.blocks(info)?;
        let mut best = 0.0_f32;
        while !blocks.docs().is_empty() {
            for (&doc, &freq) in blocks.docs().iter().zip(blocks.freqs()) {
                best = best.max(freq as f32 * inverse[usize::from(self.norms[doc as usize])]);
            }
            blocks.advance();
        }
        Ok(best)
    }
}

/// `1 / (k1 (1 - b + b length / average))` for every one-byte length, as Lucene's `BM25Similarity.scorer` fills it.
pub(super) fn inverse_norms(k1: f32, b: f32, average_length: f32) -> [f32; 256] {
    std::array::from_fn(|id| {
        let length = FieldNormReader::id_to_fieldnorm(id as u8) as f32;
        1.0 / (k1 * ((1.0 - b) + b * length / average_length))
    })
}
