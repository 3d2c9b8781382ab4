//! What ranks send each other so that all learn the same.

use super::sheets::{Assumed, Card};

/// The ranks that learn together.
pub(super) struct Together {
    pub(super) ranks: f64,
    /// NCCL sums their gradients, not TCP.
    pub(super) by_nccl: bool,
    /// They share moments, and pass on the weights that each has updated.
    pub(super) sharded: bool,
}

impl Together {
    fn are_several(&self) -> bool {
        self.ranks > 1.0
    }

    /// Parts that the moments are cut into.
    pub(super) fn shards(&self) -> f64 {
        if self.sharded { self.ranks } else { 1.0 }
    }

    /// Seconds in which the ranks sum a gradient of so many bytes and pass on as many of updated weights.
    pub(super) fn seconds(&self, gradient: f64, card: &Card, assumed: &Assumed) -> f64 {
        let connection = assumed.connection_gb * 1e9;
        let others = self.ranks - 1.0;
        let sum = if self.by_nccl {
            2.0 * gradient * others / self.ranks / (card.link_gb * 1e9)
        } else {
            // The sum so far, and then the total: among three and more, those in between pass on both.
            gradient * others.min(2.0) / connection
        };
        let weights = if self.sharded {
            gradient * others / self.ranks / connection
        } else {
            0.0
        };
        sum + weights
    }

    /// A cell of the column that a rank alone has no use for.
    pub(super) fn cell(&self, text: &str) -> String {
        if self.are_several() {
            format!(" {text:>9}")
        } else {
            String::new()
        }
    }

    /// Says what the sums are, where there are several ranks.
    pub(super) fn words(&self, assumed: &Assumed) -> Option<String> {
        let gradients = if self.by_nccl { "by NCCL" } else { "over TCP" };
        let weights = if self.sharded {
            ", updated weights over TCP"
        } else {
            ""
        };
        let rate = if self.by_nccl && !self.sharded {
            String::new()
        } else {
            format!("; TCP at {} GB/s, which is assumed", assumed.connection_gb)
        };
        let words = format!("# sums between ranks: gradients {gradients}{weights}{rate}");
        self.are_several().then_some(words)
    }
}
