//! Writing postings in a known order: parts of contiguous ranks, merged into one tantivy segment.

use std::collections::BTreeMap;

use tantivy::indexer::{SingleSegmentIndexWriter, merge_filtered_segments};
use tantivy::schema::{FAST, Field, IndexRecordOption, Schema, TextFieldIndexing, TextOptions};
use tantivy::{Directory, Index, IndexSettings, SegmentReader, TantivyDocument, TantivyError};

use crate::analyzer::{ANALYZER_ID, EnglishTokenizer, count_words};

pub(super) const CONTENTS: &str = "contents";
pub(super) const FIELDS: &str = "fields";
const RANK: &str = "rank";
/// Words of the title, which stand before those of the text.
pub(super) const TITLE_WORDS: &str = "title_words";
const TITLE: &str = "title";
/// tantivy's name for the tokenizer that takes a value as one token.
const RAW: &str = "raw";
/// Longest filter token: longer values are not worth a dictionary entry, filters on them read the passages.
const LONGEST_FILTER_TOKEN: usize = 512;
/// Between name and value of a filter token.
pub(super) const FIELD_SEPARATOR: char = '\0';
/// Passages between two looks at the memory in use.
const MEMORY_CHECK: u32 = 32;
/// Bytes of a passage behind which the memory in use is looked at without more passages.
const LONG_PASSAGE: usize = 32 << 10;

fn schema() -> Schema {
    let mut builder = Schema::builder();
    let contents = TextFieldIndexing::default()
        .set_tokenizer(ANALYZER_ID)
        .set_index_option(IndexRecordOption::WithFreqsAndPositions)
        .set_fieldnorms(true);
    builder.add_text_field(
        CONTENTS,
        TextOptions::default().set_indexing_options(contents),
    );
    let fields = TextFieldIndexing::default()
        .set_tokenizer(RAW)
        .set_index_option(IndexRecordOption::Basic)
        .set_fieldnorms(false);
    builder.add_text_field(FIELDS, TextOptions::default().set_indexing_options(fields));
    builder.add_u64_field(RANK, FAST);
    builder.add_u64_field(TITLE_WORDS, FAST);
    builder.build()
}

/// The term a field's value is indexed under; `None` for what is not indexed: names that hold the separator, and name
/// and value of more than 512 bytes together.
pub(super) fn filter_token(name: &str, value: &str) -> Option<String> {
    let indexed =
        name.len() + 1 + value.len() <= LONGEST_FILTER_TOKEN && !name.contains(FIELD_SEPARATOR);
    indexed.then(|| format!("{name}{FIELD_SEPARATOR}{value}"))
}

/// A passage as the postings see it.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) title: &'a str,
    pub(crate) text: &'a str,
    /// Values to filter by, the title and the id aside.
    pub(crate) fields: &'a BTreeMap<String, String>,
}

/// Postings of passages with consecutive ranks, collected in memory on the calling thread.
pub(crate) struct PartWriter {
    writer: SingleSegmentIndexWriter,
    fields: [Field; 4],
    memory_bytes: usize,
    added: u32,
    /// Bytes of the passage that was added last, as they are indexed.
    last_bytes: usize,
    text: String,
}

/// A part on disk or in memory.
pub(crate) struct Part(Index);

impl PartWriter {
    pub(crate) fn create(
        directory: Box<dyn Directory>,
        memory_bytes: usize,
    ) -> tantivy::Result<Self> {
        let schema = schema();
        let fields = [
            schema.get_field(CONTENTS)?,
            schema.get_field(FIELDS)?,
            schema.get_field(RANK)?,
            schema.get_field(TITLE_WORDS)?,
        ];
        let tokenizers = tantivy::tokenizer::TokenizerManager::default();
        tokenizers.register(ANALYZER_ID, EnglishTokenizer);
        let builder = Index::builder()
            .schema(schema)
            .settings(IndexSettings::default())
            .tokenizers(tokenizers);
        let writer = builder.single_segment_index_writer(directory, memory_bytes)?;
        Ok(Self {
            writer,
            fields,
            memory_bytes,
            added: 0,
            last_bytes: 0,
            text: String::new(),
        })
    }

    /// Adds the passage with the next rank.
    pub(crate) fn add(&mut self, rank: u32, entry: Entry<'_>) -> tantivy::Result<()> {
        let [contents, fields, rank_field, title_words] = self.fields;
        // Anserini's flat contents.
        self.text.clear();
        self.text.push_str(entry.title);
        self.text.push(' ');
        self.text.push_str(entry.text);
        self.last_bytes = self.text.len();
        let mut document = TantivyDocument::default();
        document.add_text(contents, &self.text);
        // A corpus field of this name would be taken for the title, which every passage has.
        let others = entry.fields.iter().filter(|(name, _)| *name != TITLE);
        let values = others.map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in std::iter::once((TITLE, entry.title)).chain(values) {
            if let Some(token) = filter_token(name, value) {
                self.last_bytes += token.len();
                document.add_text(fields, token);
            }
        }
        document.add_u64(rank_field, u64::from(rank));
        document.add_u64(title_words, count_words(entry.title) as u64);
        self.added += 1;
        self.writer.add_document(document)
    }

    /// Tells whether the part has outgrown its memory, so that another one should be begun.
    pub(crate) fn is_full(&self) -> bool {
        let looks = self.added.is_multiple_of(MEMORY_CHECK) || self.last_bytes >= LONG_PASSAGE;
        looks && self.writer.mem_usage() >= self.memory_bytes
    }

    pub(crate) fn finish(self) -> tantivy::Result<Part> {
        self.writer.finalize().map(Part)
    }
}

/// Merges parts, in the order of their ranks, into one.
pub(crate) fn merge_parts(parts: &[Part], directory: Box<dyn Directory>) -> tantivy::Result<Part> {
    let mut segments = Vec::with_capacity(parts.len());
    for Part(index) in parts {
        segments.extend(index.searchable_segments()?);
    }
    let keep_all = segments.iter().map(|_| None).collect();
    merge_filtered_segments(&segments, IndexSettings::default(), keep_all, directory).map(Part)
}

impl Part {
    /// The whole scheme rests on document number = rank, so it is verified once per build.
    pub(crate) fn check_order(&self) -> tantivy::Result<()> {
        let reader = only_segment(&self.0)?;
        let ranks = reader.fast_fields().u64(RANK)?;
        let in_order = (0..reader.max_doc()).all(|doc| ranks.first(doc) == Some(u64::from(doc)));
        if in_order {
            Ok(())
        } else {
            Err(TantivyError::InternalError(
                "documents are out of order".to_owned(),
            ))
        }
    }
}

pub(super) fn only_segment(index: &Index) -> tantivy::Result<SegmentReader> {
    let segments = index.searchable_segments()?;
    let [segment] = segments.as_slice() else {
        return Err(TantivyError::InternalError(format!(
            "{} segments where one is expected",
            segments.len()
        )));
    };
    // Opened without tantivy's `IndexReader`, which would take a lock file and so fail on a read-only folder.
    SegmentReader::open(segment)
}

#[cfg(test)]
mod tests {
    use tantivy::directory::RamDirectory;
    use tantivy::fieldnorm::FieldNormReader;

    use super::*;
    use crate::bm25::Postings;

    /// A corpus larger than the writer's memory comes out as several parts; merged, they keep rank order.
    #[test]
    fn parts_merge_in_rank_order() {
        let none = BTreeMap::new();
        let mut parts = Vec::new();
        for from in (0..1000_u32).step_by(90) {
            let mut writer =
                PartWriter::create(Box::new(RamDirectory::create()), 15 << 20).unwrap();
            for rank in from..(from + 90).min(1000) {
                let text = format!("common {}", "pad ".repeat(rank as usize % 50));
                let title = format!("number{rank}");
                writer
                    .add(
                        rank,
                        Entry {
                            title: &title,
                            text: &text,
                            fields: &none,
                        },
                    )
                    .unwrap();
            }
            parts.push(writer.finish().unwrap());
        }
        let directory = RamDirectory::create();
        merge_parts(&parts, Box::new(directory.clone()))
            .unwrap()
            .check_order()
            .unwrap();
        let postings = Postings::open(Box::new(directory)).unwrap();
        assert_eq!(
            postings.tokens(),
            (0..1000).map(|rank| 2 + rank % 50).sum::<u64>()
        );
        for rank in 0..1000_u32 {
            let term = postings.find(&format!("number{rank}")).unwrap().unwrap();
            assert_eq!(postings.blocks(&term.info).unwrap().docs(), [rank]);
            assert_eq!(
                FieldNormReader::fieldnorm_to_id(2 + rank % 50),
                postings.norms()[rank as usize]
            );
            assert_eq!(
                postings
                    .field_docs("title", &format!("number{rank}"))
                    .unwrap(),
                Some(vec![rank])
            );
        }
        parts.reverse();
        assert!(
            merge_parts(&parts, Box::new(RamDirectory::create()))
                .unwrap()
                .check_order()
                .is_err()
        );
    }

    /// A few passages of megabytes take as much as thousands of others.
    #[test]
    fn the_memory_is_looked_at_behind_each_long_passage() {
        // So little is outgrown at every look.
        let mut writer = PartWriter::create(Box::new(RamDirectory::create()), 1 << 20).unwrap();
        let mut full_after = |rank: u32, text: &str, fields: usize| {
            let fields = (0..fields).map(|name| (name.to_string(), "x".repeat(500)));
            let fields: BTreeMap<String, String> = fields.collect();
            let entry = Entry {
                title: "T",
                text,
                fields: &fields,
            };
            writer.add(rank, entry).unwrap();
            writer.is_full()
        };
        assert!(!full_after(0, "short", 1));
        assert!(full_after(1, &"long ".repeat(LONG_PASSAGE / 4), 0));
        assert!(!full_after(2, "short", 1));
        assert!(full_after(3, "short", 1 + LONG_PASSAGE / 500));
    }

    #[test]
    fn what_is_not_indexed_for_filters() {
        assert_eq!(filter_token("page", "p1").unwrap(), "page\0p1");
        assert!(filter_token("page", &"x".repeat(508)).is_none());
        assert!(filter_token("a\0b", "c").is_none());
    }
}
