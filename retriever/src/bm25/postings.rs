//! The tantivy side: writing postings in a known order and reading them back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tantivy::fieldnorm::FieldNormReader;
use tantivy::index::InvertedIndexReader;
use tantivy::indexer::NoMergePolicy;
use tantivy::postings::{BlockSegmentPostings, TermInfo};
use tantivy::schema::{FAST, Field, IndexRecordOption, Schema, TextFieldIndexing, TextOptions};
use tantivy::{Directory, Index, IndexSettings, IndexWriter, SegmentReader, TantivyDocument, TantivyError};

use crate::analyzer::{ANALYZER_ID, EnglishTokenizer};

const CONTENTS: &str = "contents";
const RANK: &str = "rank";

fn schema() -> Schema {
    let mut builder = Schema::builder();
    let indexing = TextFieldIndexing::default()
        .set_tokenizer(ANALYZER_ID)
        .set_index_option(IndexRecordOption::WithFreqs)
        .set_fieldnorms(true);
    builder.add_text_field(CONTENTS, TextOptions::default().set_indexing_options(indexing));
    builder.add_u64_field(RANK, FAST);
    builder.build()
}

/// Adds passages in rank order and leaves one segment in which the document number is the rank.
pub(crate) struct PostingsWriter {
    writer: IndexWriter,
    contents: Field,
    rank: Field,
    next_rank: u64,
}

impl PostingsWriter {
    /// `memory_bytes` is the arena for postings before they go to disk.
    pub(crate) fn create(directory: Box<dyn Directory>, memory_bytes: usize) -> tantivy::Result<Self> {
        let schema = schema();
        let (contents, rank) = (schema.get_field(CONTENTS)?, schema.get_field(RANK)?);
        let index = Index::create(directory, schema, IndexSettings::default())?;
        index.tokenizers().register(ANALYZER_ID, EnglishTokenizer);
        // One thread: the documents of a segment keep the order in which they were added.
        let writer: IndexWriter = index.writer_with_num_threads(1, memory_bytes)?;
        writer.set_merge_policy(Box::new(NoMergePolicy));
        Ok(Self { writer, contents, rank, next_rank: 0 })
    }

    pub(crate) fn add(&mut self, contents: &str) -> tantivy::Result<()> {
        let mut document = TantivyDocument::default();
        document.add_text(self.contents, contents);
        document.add_u64(self.rank, self.next_rank);
        self.next_rank += 1;
        self.writer.add_document(document)?;
        Ok(())
    }

    /// Writes everything out and merges it into one segment, in rank order.
    pub(crate) fn finish(mut self) -> tantivy::Result<()> {
        self.writer.commit()?;
        let index = self.writer.index().clone();
        let mut segments = Vec::new();
        for segment in index.searchable_segments()? {
            let reader = SegmentReader::open(&segment)?;
            segments.push((first_rank(&reader)?, segment.id()));
        }
        segments.sort_unstable();
        if segments.len() > 1 {
            let ids: Vec<_> = segments.into_iter().map(|(_, id)| id).collect();
            self.writer.merge(&ids).wait()?;
            self.writer.garbage_collect_files().wait()?;
        }
        self.writer.wait_merging_threads()?;
        check_order(&only_segment(&index)?)
    }
}

fn first_rank(reader: &SegmentReader) -> tantivy::Result<u64> {
    Ok(reader.fast_fields().u64(RANK)?.first(0).unwrap_or(u64::MAX))
}

/// The whole scheme rests on document number = rank, so it is verified once per build.
fn check_order(reader: &SegmentReader) -> tantivy::Result<()> {
    let ranks = reader.fast_fields().u64(RANK)?;
    let in_order = (0..reader.max_doc()).all(|doc| ranks.first(doc) == Some(u64::from(doc)));
    if in_order { Ok(()) } else { Err(TantivyError::InternalError("merged documents are out of order".to_owned())) }
}

fn only_segment(index: &Index) -> tantivy::Result<SegmentReader> {
    let segments = index.searchable_segments()?;
    let [segment] = segments.as_slice() else {
        return Err(TantivyError::InternalError(format!("{} segments where one is expected", segments.len())));
    };
    // Opened without tantivy's `IndexReader`, which would take a lock file and so fail on a read-only folder.
    SegmentReader::open(segment)
}

/// A term of the corpus.
pub(crate) struct FoundTerm {
    /// Its place among all terms in byte order.
    pub(crate) number: u64,
    /// Where its postings are.
    pub(crate) info: TermInfo,
}

/// Postings of one corpus, ready to be searched. Document numbers are ranks in the order of external ids.
pub(crate) struct Postings {
    inverted: Arc<InvertedIndexReader>,
    /// One byte per document: its length in Lucene's quantisation.
    norms: Vec<u8>,
    docs_with_terms: u64,
    place: PathBuf,
}

impl Postings {
    /// `place` names the index in errors.
    pub(crate) fn open(directory: Box<dyn Directory>, place: &Path) -> tantivy::Result<Self> {
        let index = Index::open(directory)?;
        let reader = only_segment(&index)?;
        let contents = index.schema().get_field(CONTENTS)?;
        let lengths = reader.get_fieldnorms_reader(contents)?;
        let norms: Vec<u8> = (0..reader.max_doc()).map(|doc| lengths.fieldnorm_id(doc)).collect();
        let docs_with_terms = norms.iter().filter(|&&norm| norm > 0).count() as u64;
        Ok(Self { inverted: reader.inverted_index(contents)?, norms, docs_with_terms, place: place.to_owned() })
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

    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    /// Finds a term; `None` when it does not occur.
    pub(crate) fn find(&self, term: &str) -> std::io::Result<Option<FoundTerm>> {
        let terms = self.inverted.terms();
        let Some(number) = terms.term_ord(term)? else {
            return Ok(None);
        };
        Ok(terms.get(term)?.map(|info| FoundTerm { number, info }))
    }

    pub(crate) fn blocks(&self, info: &TermInfo) -> std::io::Result<BlockSegmentPostings> {
        self.inverted.read_block_postings_from_terminfo(info, IndexRecordOption::WithFreqs)
    }

    /// For every term, the largest `freq * inverse[length]` of any document: with it the term's highest score is known
    /// exactly, which is what makes pruning sharp.
    pub(crate) fn saturations(&self, inverse: &[f32; 256]) -> std::io::Result<Vec<f32>> {
        let mut largest = Vec::with_capacity(self.terms());
        let mut terms = self.inverted.terms().stream()?;
        while let Some((_, info)) = terms.next() {
            let mut blocks = self.blocks(info)?;
            let mut best = 0.0_f32;
            while !blocks.docs().is_empty() {
                for (&doc, &freq) in blocks.docs().iter().zip(blocks.freqs()) {
                    best = best.max(freq as f32 * inverse[usize::from(self.norms[doc as usize])]);
                }
                blocks.advance();
            }
            largest.push(best);
        }
        Ok(largest)
    }
}

/// `1 / (k1 (1 - b + b length / average))` for every one-byte length, as Lucene's `BM25Similarity.scorer` fills it.
pub(super) fn inverse_norms(k1: f32, b: f32, average_length: f32) -> [f32; 256] {
    std::array::from_fn(|id| {
        let length = FieldNormReader::id_to_fieldnorm(id as u8) as f32;
        1.0 / (k1 * ((1.0 - b) + b * length / average_length))
    })
}

#[cfg(test)]
mod tests {
    use tantivy::directory::RamDirectory;

    use super::*;

    /// A corpus larger than the writer's memory comes out as several segments; merged, they keep rank order.
    #[test]
    fn segments_merge_in_rank_order() {
        let directory = RamDirectory::create();
        let mut writer = PostingsWriter::create(Box::new(directory.clone()), 15 << 20).unwrap();
        for rank in 0..1000_u32 {
            writer.add(&format!("common {} number{rank}", "pad ".repeat(rank as usize % 50))).unwrap();
            if rank % 90 == 0 {
                writer.writer.commit().unwrap();
            }
        }
        writer.finish().unwrap();
        let postings = Postings::open(Box::new(directory), Path::new("memory")).unwrap();
        assert_eq!(postings.tokens(), (0..1000).map(|rank| 2 + rank % 50).sum::<u64>());
        for rank in 0..1000_u32 {
            let term = postings.find(&format!("number{rank}")).unwrap().unwrap();
            assert_eq!(postings.blocks(&term.info).unwrap().docs(), [rank]);
            assert_eq!(FieldNormReader::fieldnorm_to_id(2 + rank % 50), postings.norms()[rank as usize]);
        }
    }
}
