//! `forage envs`: the registered environments and rewards.

use clap::Args;
use forage_env::registry::{environments, rewards};

use crate::terminal::out;

/// Lists the environments and rewards that a config can name.
#[derive(Args, Debug)]
pub(crate) struct Envs {
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

impl Envs {
    pub(crate) fn run(self) {
        if self.json {
            let listed: Vec<_> = environments()
                .map(|entry| serde_json::json!({"id": entry.id, "about": entry.about}))
                .collect();
            let rewards: Vec<_> = rewards().map(|entry| entry.name).collect();
            out(&serde_json::json!({"environments": listed, "rewards": rewards}).to_string());
            return;
        }
        out("environments");
        for entry in environments() {
            out(&format!("  {:22} {}", entry.id, entry.about));
        }
        out("rewards");
        for entry in rewards() {
            out(&format!("  {:22} {}", entry.name, entry.about));
        }
    }
}
