//! The same on a GPU: what its memory holds, not the processor's.

use super::{DROPPED, F32, MemoryEstimate, MemoryPlan, Moment, Part, part};
use crate::backward::kept_layers;
use crate::device::Workspace;
use crate::generate::pass_bytes;
use crate::logprobs::Logits;
use crate::model::{KvCache, LayerSizes, Projection, RopeTables, projections};
use crate::optim::AdamW;
use crate::weights::Precision;

/// Bytes of a bf16.
const HALF: usize = 2;
/// The context of the driver, compiled kernels and the scratch memory of products.
const RUNTIME: usize = 1 << 30;

impl MemoryPlan<'_> {
    /// The estimate on a card with so many bytes.
    pub(super) fn on_card(&self, bytes: u64) -> MemoryEstimate {
        let space = Workspace::of_card(bytes);
        let learns = self.adapter.is_none();
        let (all, trained) = (self.model.parameters(), self.trained());
        let element = if self.in_bf16 { HALF } else { F32 };
        // What is kept in f32, once more in bf16.
        let copy = match (self.base(), learns) {
            (_, true) => all * HALF,
            (Precision::Full, false) => (all + trained) * HALF,
            (_, false) => trained * HALF,
        };
        let layers: usize = projections(self.model)
            .map(Projection::numbers)
            .iter()
            .sum();
        let engine_weights = match self.engine {
            Some(engine) if engine.bf16 && !self.in_bf16 => copy,
            // Matrices with the same input are joined.
            Some(engine) if !engine.bf16 && learns => self.model.num_hidden_layers * layers * F32,
            _ => 0,
        };
        let reference = match (self.reference, learns) {
            (true, true) => all * element,
            (true, false) if self.in_bf16 && self.base() == Precision::Full => all * HALF,
            _ => 0,
        };
        let cache = self.engine.map_or(0, |engine| {
            let element = if engine.bf16 { HALF } else { F32 };
            engine.cache_tokens * KvCache::numbers_per_position(self.model) * element
        });
        let engines = 1 + usize::from(self.engine.is_some());
        let always = vec![
            part("driver and kernels", RUNTIME, ""),
            part(
                "weights",
                self.kept_weights(),
                "policy.base with [policy.lora]",
            ),
            part(
                "adapter",
                if learns { 0 } else { trained * F32 },
                "policy.lora.rank",
            ),
            part(
                "moments of AdamW",
                AdamW::moments_bytes(trained),
                "[policy.lora]",
            ),
            part(
                "copy of the weights in bf16",
                if self.in_bf16 { copy } else { 0 },
                "[policy.lora] with policy.base",
            ),
            part("weights of the engine", engine_weights, "[policy.lora]"),
            part(
                "weights of the reference",
                reference,
                "[policy.lora], or no kl in the objective",
            ),
            part("key-value cache", cache, "engine.cache_mib"),
            part(
                "position tables",
                engines * RopeTables::bytes(self.model, self.context) / 2,
                "engine.context_tokens",
            ),
        ];
        let mut moments = self.card_gradients(&space, element);
        if let Some(engine) = self.engine {
            let [layer, logits] = pass_bytes(self.model, engine.step_tokens, engine.sequences);
            let share = if engine.bf16 { 2 } else { 1 };
            moments.push(Moment {
                name: "rollouts",
                parts: vec![
                    part("a pass of the engine", layer / share, "engine.step_tokens"),
                    part("logits of the engine", logits / share, "engine.sequences"),
                ],
                reclaimable: false,
            });
        }
        MemoryEstimate::of(always, moments)
    }

    /// The moments of an update.
    fn card_gradients(&self, space: &Workspace, element: usize) -> Vec<Moment> {
        const TOKENS: &str = "grpo.update.micro_batch_tokens";
        let batch = self.work.batch;
        let sizes = LayerSizes::of(self.model);
        let (tokens, hidden) = (batch.tokens, self.model.hidden_size);
        let whole = kept_layers(self.model, tokens, space.kept_bytes / element);
        let inputs = self.model.num_hidden_layers * sizes.kept + hidden;
        let kept = tokens * (inputs + whole * sizes.activations) * element;
        let layer = tokens * (sizes.feed_forward - sizes.shared).max(sizes.attention) * element;
        let (logits, _) = Logits::chunks(batch.targets, self.model.vocab_size, space.logits);
        let gradients = self.trained() * F32;
        // Those of a micro-batch are there beside the sum of those before.
        let sums = if self.work.micro_batches > 1 { 2 } else { 1 };
        let head = if self.adapter.is_none() {
            self.embedding() * F32
        } else {
            0
        };
        let moment = |name, parts: Vec<Part>| Moment {
            name,
            parts,
            reclaimable: false,
        };
        let activations = part("activations kept for the layers", kept, TOKENS);
        let before = (sums - 1) * gradients;
        vec![
            moment(
                "gradient of the head",
                vec![
                    activations.clone(),
                    part("logits of a chunk", logits * F32, ""),
                    part(
                        "hidden states of the targets",
                        3 * batch.targets * hidden * element,
                        TOKENS,
                    ),
                    part("gradients", before + head, "[policy.lora]"),
                ],
            ),
            moment(
                "gradients of the layers",
                vec![
                    activations,
                    part("one layer", layer, TOKENS),
                    part(DROPPED, self.masks(), TOKENS),
                    part("gradients", before + head, "[policy.lora]"),
                ],
            ),
            moment(
                "update",
                vec![part("gradients", sums * gradients, "[policy.lora]")],
            ),
        ]
    }
}
