//! The layers whose activations are kept, where those of the others are computed again: as many as there is room for.

use burn::tensor::Device;

use super::{MemoryPlan, Workload, available};
use crate::backward::kept_layers;
use crate::device::memory_bytes;
use crate::model::LayerSizes;
use crate::workers::KEPT_BYTES;

/// Share of a card that stays free of kept activations, a sixth: an estimate may be a tenth too low (`bench/device/budgets.json`), and the
/// tuner, a retriever's encoder or a screen take memory that no estimate counts.
const FREE: u64 = 6;

impl MemoryPlan<'_> {
    /// The plan of a run that begins on this device now, with its weights loaded: see [`Self::filling`]. The device is what `runs` of this
    /// process share, as `processes` share the machine's memory.
    #[must_use]
    pub fn on(&self, device: &Device, runs: usize, processes: usize) -> Self {
        let card_bytes = memory_bytes(device);
        let plan = Self {
            card_bytes,
            ..self.clone()
        };
        let free = || available().unwrap_or(0) / (runs * processes) as u64;
        let own = || free() + self.kept_weights() as u64;
        let room = card_bytes.map_or_else(own, |bytes| bytes / runs as u64);
        let plan = plan.filling(room);
        let [kept, all] = plan.layers_kept();
        tracing::info!("activations of {kept} of {all} layers are kept");
        plan
    }

    /// The same plan with the activations of as many layers kept as `room` bytes hold beside all else: on a card up to a sixth of it, on
    /// the processor, where other programs live too, up to half of what all else leaves. 96 MiB are kept in any case.
    #[must_use]
    pub fn filling(&self, room: u64) -> Self {
        let keeping = |kept_bytes: usize| Self {
            work: Workload {
                kept_bytes,
                ..self.work
            },
            ..self.clone()
        };
        let needed = |plan: &Self| plan.estimate().needed();
        let fewest = keeping(KEPT_BYTES);
        let most = match self.card_bytes {
            Some(_) => room - room / FREE,
            None => u64::midpoint(needed(&fewest), room),
        };
        let layer = self.layer_sizes().activations * self.work.batch.tokens * self.element();
        let layers = (1..=self.model.num_hidden_layers).rev();
        layers
            .map(|count| count * layer)
            .take_while(|&bytes| bytes > KEPT_BYTES)
            .map(keeping)
            .find(|plan| needed(plan) <= most)
            .unwrap_or(fewest)
    }

    /// Layers whose activations are kept of the largest micro-batch, and all.
    pub(super) fn layers_kept(&self) -> [usize; 2] {
        let (tokens, depth) = (self.work.batch.tokens, self.model.num_hidden_layers);
        let numbers = self.work.kept_bytes / self.element();
        let kept = kept_layers(&self.layer_sizes(), depth, tokens, numbers);
        [kept, depth]
    }

    /// Numbers that a layer holds for each token.
    pub(super) fn layer_sizes(&self) -> LayerSizes {
        match self.card_bytes {
            Some(_) => {
                let ranks = || self.adapter.map_or(0, |adapter| adapter.ranks(self.model));
                LayerSizes::on_card(self.model, self.is_joined().then(ranks))
            }
            None => LayerSizes::of(self.model),
        }
    }
}
