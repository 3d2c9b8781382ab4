//! The tokens of a pass, by sequence.

/// New tokens of one sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk<'a> {
    /// Token ids.
    pub ids: &'a [u32],
    /// Position of the first one; the cache holds everything before it.
    pub start: usize,
    /// The sequence's blocks, in order, up to the last new token at least.
    pub blocks: &'a [u32],
}

/// The tokens that go through the model together.
#[derive(Clone, Debug)]
pub(crate) struct Pass<'a> {
    pub(in crate::model) chunks: Vec<Chunk<'a>>,
    /// Rows with padding: shapes of a GPU repeat.
    pub(in crate::model) rows: usize,
}

impl<'a> Pass<'a> {
    /// Chunks in the order their hidden states come back.
    ///
    /// # Panics
    /// When there is nothing to run.
    pub(crate) fn new(chunks: Vec<Chunk<'a>>) -> Self {
        let rows = chunks.iter().map(|chunk| chunk.ids.len()).sum();
        assert!(rows > 0, "a pass has tokens");
        Self { chunks, rows }
    }

    /// Tokens without padding.
    pub(crate) fn tokens(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.ids.len()).sum()
    }

    pub(in crate::model) fn ids(&self) -> Vec<i32> {
        let mut ids: Vec<i32> = self
            .chunks
            .iter()
            .flat_map(|chunk| chunk.ids)
            .map(|&id| id as i32)
            .collect();
        ids.resize(self.rows, 0);
        ids
    }

    /// `(sequence, position)` of every token.
    pub(in crate::model) fn places(&self) -> impl Iterator<Item = (&Chunk<'a>, usize)> {
        self.chunks
            .iter()
            .flat_map(|chunk| (0..chunk.ids.len()).map(move |offset| (chunk, chunk.start + offset)))
    }
}
