//! Experience from recorded episodes, in the words of a config's judge.

use forage_env::EpisodeRecord;
use forage_env::reward::judge::Judge;
use serde_json::Value;

use crate::audit::judge_settings;
use crate::config::Resolved;
use crate::error::{Context, Result};
use crate::runtime::runtime;

impl Resolved {
    /// The lines of a file of experience, in the words of the config's judge. Blocks, so async code must not call it.
    ///
    /// # Errors
    /// When the config has no judge, or it gives no words.
    pub fn experiences(&self, records: &[EpisodeRecord]) -> Result<Vec<Value>> {
        let judge = Judge::new(judge_settings(self)?).in_config("[reward.judge]")?;
        let found = runtime()?.block_on(EpisodeRecord::experiences(records, Some(&judge)));
        found.context("the judge gave no advice")
    }
}
