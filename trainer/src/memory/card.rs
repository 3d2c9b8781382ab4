//! Memory on a GPU: what a card holds, not the processor.

use super::estimate::{Moment, Part, part, sum};
use super::{DROPPED, F32, MemoryEstimate, MemoryPlan};
use crate::device::Workspace;
use crate::generate::pass_bytes;
use crate::logprobs::Logits;
use crate::model::{KvCache, LayerSizes, Projection, RopeTables, projections};
use crate::weights::Precision;
use crate::workers::Workers;

/// Bytes of a bf16.
const HALF: usize = 2;
/// The context of the driver, compiled kernels and the scratch memory of products. A stub of the driver has none of it:
/// `bench/device/account.py` takes it off.
const RUNTIME: usize = 1 << 30;
/// The share of what is live that stays empty beside it, with one page more: a sixteenth. `CubeCL` takes memory from the driver in pages of
/// one size, that of the largest tensor so far, and puts tensors where they fit first. `bench/device/pages.py` runs a model of that over the
/// tensors of a step: with both, the sum is within 11 % of the pages of five shapes. Beside an adapter whose base is joined, one more page is
/// counted for the adapter's products, which are tensors of their own until they are added to the base's.
const UNFILLED: u64 = 16;

impl MemoryPlan<'_> {
    /// The estimate on a card with so many bytes.
    pub(super) fn on_card(&self, bytes: u64) -> MemoryEstimate {
        let space = Workspace::of_card(bytes);
        let held = self.always_on_card();
        let mut moments = self.card_gradients(&space);
        if let Some(engine) = self.engine {
            let [layer, logits] = pass_bytes(self.model, engine.step_tokens, engine.sequences)
                .map(|bytes| bytes * self.versions);
            // Logits are of f32 then too; the copy in plain memory that is counted with them is not on the card.
            let (share, logits) = if engine.bf16 {
                (2, logits / 2 * self.logits_at_once())
            } else {
                (1, logits)
            };
            moments.push(Moment {
                name: "rollouts",
                parts: vec![
                    part("a pass of the engine", layer / share, "engine.step_tokens"),
                    part("logits of the engine", logits, "engine.sequences"),
                ],
                reclaimable: false,
            });
        }
        let unfilled = 1 + u64::from(self.adapter.is_some() && self.is_joined());
        let page = unfilled * self.page(&space) as u64;
        let always = sum(&held);
        for moment in &mut moments {
            moment.parts.push(Part {
                name: "pages of the allocator, not filled",
                bytes: page + (always + moment.bytes()) / UNFILLED,
                fix: "",
            });
        }
        let runtime = part("driver and kernels", RUNTIME, "");
        let always = std::iter::once(runtime).chain(held).collect();
        MemoryEstimate::of(always, moments, self.layers_kept())
    }

    /// Bytes of a number that updates compute with.
    pub(super) fn element(&self) -> usize {
        if self.in_bf16 { HALF } else { F32 }
    }

    /// Returns whether the copy that updates compute with has its matrices joined, which rollouts run.
    fn joins(&self) -> bool {
        self.in_bf16 && LayerSizes::joins(self.model)
    }

    /// Returns whether updates run them too; what an adapter reads is dropped for each map by itself.
    pub(super) fn is_joined(&self) -> bool {
        let drops = self.adapter.is_some_and(|adapter| adapter.dropout > 0.0);
        self.joins() && !drops
    }

    /// Numbers of an adapter's gradients that are of no use, where they are joined.
    fn crossed(&self) -> usize {
        let joined = self.adapter.filter(|_| self.is_joined());
        joined.map_or(0, |adapter| adapter.crossed(self.model))
    }

    /// Bytes that joining adds to an adapter's copy: its matrices with their scale and without it, and numbers that are of no use.
    fn joined_changes(&self) -> usize {
        let joined = self.adapter.filter(|_| self.joins());
        joined.map_or(0, |adapter| {
            2 * (self.trained() - self.of_head() + adapter.crossed(self.model)) * HALF
        })
    }

    /// Bytes of the embedding where it is kept in less than what updates compute in, and is widened for the head.
    fn widened_head(&self) -> usize {
        match self.base() {
            Precision::Half | Precision::Int8 if !self.in_bf16 => self.embedding() * F32,
            _ => 0,
        }
    }

    /// Bytes of a matrix of a layer under the same condition.
    fn widened_matrix(&self) -> usize {
        let widens = match self.base() {
            Precision::Half => !self.in_bf16,
            Precision::Int8 => true,
            Precision::Full | Precision::Stored => false,
        };
        let joined = if self.is_joined() { 2 } else { 1 };
        let numbers = joined * self.model.hidden_size * self.model.intermediate_size;
        if widens { numbers * self.element() } else { 0 }
    }

    /// Bytes of the largest tensor: the size of a page.
    fn page(&self, space: &Workspace) -> usize {
        let (model, batch, element) = (self.model, self.work.batch, self.element());
        let (hidden, inner) = (model.hidden_size, model.intermediate_size);
        let learns = self.adapter.is_none();
        let joined = if self.is_joined() { 2 } else { 1 };
        let (logits, _) = Logits::chunks(batch.targets, model.vocab_size, space.logits);
        let kept = if self.base() == Precision::Full {
            F32
        } else {
            HALF
        };
        let cached = self.engine.map_or(0, |engine| {
            let element = if engine.bf16 { HALF } else { F32 };
            let layer = KvCache::numbers_per_position(model) / (2 * model.num_hidden_layers);
            engine.cache_tokens * layer * element
        });
        let sizes = [
            self.embedding() * kept,
            self.widened_head(),
            logits * F32,
            joined * batch.tokens * inner * element,
            if learns {
                joined * hidden * inner * F32
            } else {
                0
            },
            cached,
        ];
        sizes.into_iter().max().unwrap_or(0)
    }

    /// What is held from the first step to the last.
    fn always_on_card(&self) -> Vec<Part> {
        let learns = self.adapter.is_none();
        let (all, trained) = (self.model.parameters(), self.trained());
        // What is kept in f32, once more in bf16.
        let adapter = trained * HALF + self.joined_changes();
        let copy = match (self.base(), learns) {
            (_, true) => all * HALF,
            (Precision::Full, false) => all * HALF + adapter,
            (_, false) => adapter,
        };
        let layers: usize = projections(self.model)
            .map(Projection::numbers)
            .iter()
            .sum();
        let engine_weights = match self.engine {
            // It shares the copy of updates until the first of them.
            Some(engine) if engine.bf16 && (!self.in_bf16 || self.updates > 1) => copy,
            // Matrices with the same input are joined.
            Some(engine) if !engine.bf16 && learns => self.model.num_hidden_layers * layers * F32,
            _ => 0,
        };
        let reference = match (self.reference, learns) {
            (true, true) => all * self.element(),
            (true, false) if self.in_bf16 && self.base() == Precision::Full => all * HALF,
            _ => 0,
        };
        let cache = self.engine.map_or(0, |engine| {
            let element = if engine.bf16 { HALF } else { F32 };
            let positions = engine.cache_tokens.saturating_mul(self.versions);
            positions * KvCache::numbers_per_position(self.model) * element
        });
        let of_version = match self.engine {
            Some(engine) if engine.bf16 => copy,
            _ => trained * F32,
        };
        let engines = 1 + self.engines() + usize::from(self.critic);
        let [mut critic, critic_moments] = self.critic_parts(if self.in_bf16 { HALF } else { 0 });
        if self.critic {
            critic.bytes += self.joined_changes() as u64;
        }
        vec![
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
                self.moments(trained),
                "[policy.lora], grpo.update.optimizer.moments_in_8_bits, or grpo.update.optimizer.sharded with more --ranks",
            ),
            part(
                "copy of the weights in bf16",
                if self.in_bf16 { copy } else { 0 },
                "[policy.lora] with policy.base",
            ),
            part("weights of the engine", engine_weights, "[policy.lora]"),
            self.held_again(),
            self.older_weights(of_version),
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
            critic,
            critic_moments,
        ]
    }

    /// The moments of an update.
    fn card_gradients(&self, space: &Workspace) -> Vec<Moment> {
        const TOKENS: &str = "grpo.update.micro_batch_tokens";
        const LORA: &str = "[policy.lora]";
        let (model, batch, element) = (self.model, self.work.batch, self.element());
        let (sizes, [whole, depth]) = (self.layer_sizes(), self.layers_kept());
        let (tokens, hidden) = (batch.tokens, model.hidden_size);
        let inputs = depth * sizes.kept + hidden;
        // Attention says two numbers of every row and head.
        let stats = depth * tokens * model.num_attention_heads * 2 * F32;
        let kept = tokens * (inputs + whole * sizes.activations) * element + stats;
        let shared = if whole > 0 { sizes.shared } else { 0 };
        let layer = tokens * (sizes.feed_forward - shared).max(sizes.attention) * element;
        let (logits, chunks) = Logits::chunks(batch.targets, model.vocab_size, space.logits);
        let gradients = (self.trained() + self.crossed()) * F32;
        // The sum of those of the micro-batches before, to which a layer's are added as soon as they are there.
        let before = Workers::sums(self.work.micro_batches) * gradients;
        let learns = self.adapter.is_none();
        let head = if learns { self.embedding() * F32 } else { 0 };
        // That of the chunks before, and in bf16 that of the chunk as the product gives it.
        let earlier = if chunks > 1 { head } else { 0 };
        let rounded = if self.in_bf16 { head / 2 } else { 0 };
        let widened = self.widened_head() * if chunks > 1 { 2 } else { 1 };
        let (layers, all) = if before > 0 {
            (before + self.unfinished(head), before + head)
        } else {
            (head, gradients)
        };
        let moment = |name, parts: Vec<Part>| Moment {
            name,
            parts,
            reclaimable: false,
        };
        let activations = part("activations kept for the layers", kept, TOKENS);
        // Beside the logits while they are made, or afterwards.
        let (beside, bytes) = if self.logits_at_once() > 1 {
            ("what an adapter adds to them", logits * F32)
        } else if self.in_bf16 {
            ("their gradient in bf16", logits * HALF)
        } else {
            ("", 0)
        };
        let widened = part("the head in f32", widened, "grpo.update.dtype = \"bf16\"");
        let picked = part(
            "hidden states of the targets",
            3 * batch.targets * hidden * element,
            TOKENS,
        );
        vec![
            moment(
                "loss",
                vec![
                    activations.clone(),
                    part("logits of a chunk", logits * F32, ""),
                    part(beside, bytes, ""),
                    widened.clone(),
                    picked.clone(),
                    part("gradients", before + earlier, LORA),
                ],
            ),
            moment(
                "gradient of the head",
                vec![
                    activations.clone(),
                    part("gradient of a chunk's logits", logits * element, ""),
                    widened,
                    picked,
                    part("gradients", before + head + earlier + rounded, LORA),
                ],
            ),
            moment(
                "gradients of the layers",
                vec![
                    activations,
                    part("one layer", layer, TOKENS),
                    part("a layer's matrix, widened", self.widened_matrix(), ""),
                    part(DROPPED, self.masks(), TOKENS),
                    part("gradients", layers + self.layer_gradients(), LORA),
                ],
            ),
            moment(
                "gradient of the embedding",
                vec![
                    part("gradient of the inputs", tokens * hidden * F32, TOKENS),
                    part("gradients", all, LORA),
                ],
            ),
            moment(
                "update",
                vec![
                    part("gradients", gradients, LORA),
                    // Scaled where the norm is too large.
                    part("the largest of them once more", head, LORA),
                ],
            ),
        ]
    }
}
