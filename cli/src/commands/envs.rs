//! `forage envs`: the registered environments and rewards.

use clap::Args;
use forage_env::registry::ENVIRONMENTS;
use forage_env::reward::REWARDS;

use super::out;

/// Lists the environments and reward parts a config can name.
#[derive(Args, Debug)]
pub(crate) struct Envs {
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

impl Envs {
    pub(crate) fn run(self) {
        if self.json {
            let environments: Vec<_> =
                ENVIRONMENTS.iter().map(|entry| serde_json::json!({"id": entry.id, "about": entry.about})).collect();
            let rewards: Vec<_> = REWARDS.iter().map(|entry| entry.name).collect();
            out(&serde_json::json!({"environments": environments, "rewards": rewards}).to_string());
            return;
        }
        out("environments");
        for entry in ENVIRONMENTS {
            out(&format!("  {:22} {}", entry.id, entry.about));
        }
        out("rewards");
        for entry in REWARDS {
            out(&format!("  {:22} {}", entry.name, entry.about));
        }
    }
}
