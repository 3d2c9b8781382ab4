//! Episodes that a checkpoint keeps to be learned from again, under a context that may be shorter than the one they were played in.

use std::path::Path;

use forage_contracts::Episode;

use super::{CheckpointError, REPLAY, Restored, SOLVED};

impl Restored {
    /// Checks that kept episodes fit into `context` tokens, as far as the run learns from them again: `replays` tells that of those to be
    /// replayed, `solves` of those of solved questions.
    ///
    /// # Errors
    /// [`CheckpointError::File`] that names the file in `folder`.
    pub(crate) fn check_lengths(
        &self,
        folder: &Path,
        context: usize,
        [replays, solves]: [bool; 2],
    ) -> Result<(), CheckpointError> {
        if replays {
            fit(&folder.join(REPLAY), &self.replay, context)?;
        }
        if solves {
            fit(&folder.join(SOLVED), &self.solved, context)?;
        }
        Ok(())
    }
}

fn fit(path: &Path, episodes: &[Episode], context: usize) -> Result<(), CheckpointError> {
    let longest = episodes.iter().map(|episode| episode.tokens.len()).max();
    match longest.filter(|&longest| longest > context) {
        Some(longest) => Err(CheckpointError::File {
            path: path.to_owned(),
            message: format!(
                "holds an episode of {longest} tokens, more than the context of {context}; raise engine.context_tokens"
            ),
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use forage_contracts::{Task, TokenLog};

    use super::*;

    #[test]
    fn episodes_longer_than_the_context_are_named() {
        let episode = |length: u32| Episode {
            tokens: TokenLog::with_prompt(&(0..length).collect::<Vec<_>>()),
            ..Episode::new(Task::new("1", "Who?"))
        };
        let episodes = [episode(3), episode(8), episode(5)];
        let path = Path::new("step-000002/replay.jsonl");
        assert!(fit(path, &[], 0).is_ok() && fit(path, &episodes, 8).is_ok());
        let error = fit(path, &episodes, 7).unwrap_err().to_string();
        assert!(
            error.contains("replay.jsonl: holds an episode of 8 tokens")
                && error.contains("engine.context_tokens"),
            "{error}"
        );
    }
}
