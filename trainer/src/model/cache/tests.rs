//! Attention over the cache equals attention over whole sequences.

use burn::tensor::{Device, Tensor};
use forage_contracts::seed::Seed;
use proptest::prelude::*;

use super::{BLOCK_POSITIONS, Chunk, KvCache, Pass};
use crate::generate::EngineConfig;
use crate::model::{Architecture, Batch, Decoder, ModelConfig, RopeTables};

fn shape(
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    architecture: Architecture,
) -> ModelConfig {
    ModelConfig {
        architecture,
        vocab_size: 50,
        hidden_size: 24,
        intermediate_size: 40,
        num_hidden_layers: 2,
        num_attention_heads: heads,
        num_key_value_heads: kv_heads,
        head_dim,
        max_position_embeddings: 256,
        rope_theta: 1e4,
        rope_scaling: None,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: true,
    }
}

/// Hidden states of every token of `sequences`, run in chunks that end at `cuts`, over blocks in a mixed order.
fn in_chunks(
    decoder: &Decoder,
    config: &ModelConfig,
    cache: &mut KvCache,
    sequences: &[Vec<u32>],
    cuts: &[usize],
) -> Vec<Vec<f32>> {
    let device = Device::flex();
    let rope = RopeTables::new(config, 128, &device);
    let per = 128 / BLOCK_POSITIONS;
    // Neighbours in a sequence are none in memory.
    let blocks = |row: usize| {
        (0..per)
            .map(|block| (block * sequences.len() + row) as u32)
            .collect::<Vec<_>>()
    };
    let tables: Vec<Vec<u32>> = (0..sequences.len()).map(blocks).collect();
    let mut states = vec![Vec::new(); sequences.len()];
    let mut start = 0;
    for &end in cuts {
        let part = |row: usize| start.min(sequences[row].len())..end.min(sequences[row].len());
        // Single tokens stand first.
        let mut rows: Vec<usize> = (0..sequences.len())
            .filter(|&row| !part(row).is_empty())
            .collect();
        rows.sort_by_key(|&row| part(row).len() > 1);
        let chunk = |&row: &usize| Chunk {
            ids: &sequences[row][part(row)],
            start: part(row).start,
            blocks: &tables[row],
        };
        if rows.is_empty() {
            break;
        }
        let pass = Pass::new(rows.iter().map(chunk).collect());
        let hidden: Vec<f32> = decoder
            .hidden_cached(config, &rope, &pass, cache)
            .into_data()
            .try_into_vec()
            .unwrap();
        let mut lines = hidden.chunks_exact(config.hidden_size);
        for row in rows {
            for _ in part(row) {
                states[row].extend_from_slice(lines.next().unwrap());
            }
        }
        start = end;
    }
    states
}

fn whole(decoder: &Decoder, config: &ModelConfig, tokens: &[u32]) -> Vec<f32> {
    let rope = RopeTables::new(config, 128, &Device::flex());
    let hidden: Tensor<2> = decoder.hidden(config, &rope, &Batch::new(&[tokens]));
    hidden.into_data().try_into_vec().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_cache_changes_nothing(
        kv_heads in 1_usize..4, group in 1_usize..8, half_dim in 1_usize..20, family in 0_usize..4,
        lengths in prop::collection::vec(1_usize..100, 1..4), mut cuts in prop::collection::vec(1_usize..100, 0..4),
        seed in 0_u64..100,
    ) {
        let architecture = Architecture::all().nth(family).unwrap();
        let config = shape(kv_heads * group, kv_heads, 2 * half_dim, architecture);
        let decoder = Decoder::random(&config, Seed::root(seed), &Device::flex());
        let row = |(row, &length): (usize, &usize)| (0..length).map(|place| ((7 * place + row) % 50) as u32).collect();
        let sequences: Vec<Vec<u32>> = lengths.iter().enumerate().map(row).collect();
        cuts.push(100);
        cuts.sort_unstable();
        cuts.dedup();
        let blocks = sequences.len() * 128 / BLOCK_POSITIONS;
        let mut host = KvCache::new(&config, blocks, &decoder);
        let by_host = in_chunks(&decoder, &config, &mut host, &sequences, &cuts);
        let mut again = KvCache::new(&config, blocks, &decoder);
        let at_once = in_chunks(&decoder, &config, &mut again, &sequences, &[100]);
        for (row, tokens) in sequences.iter().enumerate() {
            let expected = whole(&decoder, &config, tokens);
            for (place, expected) in expected.iter().enumerate() {
                prop_assert!((by_host[row][place] - expected).abs() < 2e-5, "host, row {}, {}", row, place);
            }
            // How a prompt was cut does not show, to the bit.
            let bits = |states: &[f32]| states.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&by_host[row]), bits(&at_once[row]));
        }
    }
}

#[test]
fn bf16_holds_twice_the_positions_of_f32() {
    let config = shape(4, 2, 16, Architecture::named("qwen3").unwrap());
    let bytes = 1 << 20;
    assert_eq!(
        EngineConfig::cache_tokens_in(bytes, &config, true),
        2 * EngineConfig::cache_tokens_in(bytes, &config, false)
    );
    assert_eq!(
        EngineConfig::cache_tokens_in(bytes, &config, false),
        bytes / (2 * 2 * 2 * 16 * 4)
    );
}
