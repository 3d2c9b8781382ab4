//! The weights that the server has, and so the version that sampled a completion.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::RemoteFault;
use super::probe::Mark;

/// The content of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushKind {
    /// An adapter as PEFT writes it: `adapter_config.json` and `adapter_model.safetensors`.
    Adapter,
    /// A whole checkpoint of Hugging Face's form.
    Full,
}

/// The weights that a request is sampled under, as known when it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Under {
    pub(crate) version: u64,
    /// Name of the adapter on the server.
    pub(crate) adapter: Option<String>,
}

impl Under {
    /// Makes a refusal for want of the adapter a fault of the server: SGLang gives it the status of a request that is wrong in itself. Other
    /// faults stay as they are.
    pub(super) fn lacking(&self, fault: RemoteFault) -> RemoteFault {
        match &self.adapter {
            Some(name) if fault.is_refusal() && fault.said().contains(name.as_str()) => {
                RemoteFault::Refused(format!(
                    "it does not have the adapter {name} any more, as after a restart ({fault})"
                ))
            }
            _ => fault,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    /// The highest version that was ever begun to be pushed.
    announced: u64,
    adapter: Option<String>,
    /// The adapters before, the newest first, with their versions: requests may still be under way under them.
    earlier: VecDeque<(u64, String)>,
    /// How many of those stay beside the newest.
    more: usize,
    /// True once whole weights were pushed: the server's own name of its weights is then ours.
    named: bool,
    /// What it says under the whole weights that were pushed, where it has no name for them.
    mark: Option<Arc<Mark>>,
    /// Why the server's weights are unknown.
    unknown: Option<String>,
}

impl State {
    /// Lets new requests have other weights than the adapter of the version `before`.
    fn retire(&mut self, before: u64, adapter: Option<String>) {
        if let Some(adapter) = adapter {
            self.earlier.push_front((before, adapter));
        }
    }
}

/// The weights pushed so far.
#[derive(Debug, Default)]
pub(super) struct Weights(Mutex<State>);

impl Weights {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn version(&self) -> u64 {
        self.state().version
    }

    /// Why the server's weights are unknown, if they are.
    pub(super) fn unknown(&self) -> Option<String> {
        self.state().unknown.clone()
    }

    /// What the server says under the whole weights that were pushed last, where it has no name for them.
    pub(super) fn mark(&self) -> Option<Arc<Mark>> {
        self.state().mark.clone()
    }

    /// Notes that the server has other weights than those of the version, and is not used until a push succeeds; says why.
    pub(super) fn lose(&self, version: u64) -> String {
        let what = format!(
            "its log-probabilities are no longer those of version {version}, which was pushed: it was restarted, or others push to it"
        );
        self.state().unknown = Some(what.clone());
        what
    }

    /// The weights under which a request of a version is sampled, the newest where none is named; `None` where the server lacks them.
    pub(super) fn under(&self, version: Option<u64>) -> Option<Under> {
        let state = self.state();
        let version = version.unwrap_or(state.version);
        if version == state.version {
            let adapter = state.adapter.clone();
            return Some(Under { version, adapter });
        }
        let mut earlier = state.earlier.iter();
        let (_, adapter) = earlier.find(|(other, _)| *other == version)?;
        let adapter = Some(adapter.clone());
        Some(Under { version, adapter })
    }

    /// Keeps the adapters of so many versions, and always the one before the newest.
    pub(super) fn keep_versions(&self, versions: usize) {
        self.state().more = versions.saturating_sub(2);
    }

    /// The version of a completion that was sent `under` something and came back now. `reported` is the server's own
    /// name of its base weights.
    pub(super) fn stamp(&self, under: &Under, reported: Option<&str>) -> Result<u64, RemoteFault> {
        let state = self.state();
        if under.adapter.is_some() {
            // An adapter never changes under its name.
            return Ok(under.version);
        }
        let conservative = under.version.min(state.version);
        let Some(reported) = reported.filter(|_| state.named) else {
            return Ok(conservative);
        };
        match reported.parse() {
            Ok(version) if version <= state.announced => Ok(version),
            _ => Err(RemoteFault::Counts(format!(
                "the server's weights are `{reported}`, though {} was pushed: it was restarted, or others push to it",
                state.version
            ))),
        }
    }

    /// The server has an adapter now; returns the one that nothing uses any more.
    pub(super) fn adapted(&self, name: &str, version: u64) -> Option<String> {
        let mut state = self.state();
        let before = std::mem::replace(&mut state.version, version);
        state.announced = state.announced.max(version);
        if state.adapter.as_deref() == Some(name) {
            return None;
        }
        let adapter = state.adapter.replace(name.to_owned());
        state.retire(before, adapter);
        state.earlier.retain(|(_, earlier)| earlier != name);
        let unused = (state.earlier.len() > 1 + state.more).then(|| state.earlier.pop_back());
        unused.flatten().map(|(_, unused)| unused)
    }

    /// The adapters so far are not counted on any more; returns those but for `name`, which the server may still have.
    pub(super) fn forget(&self, name: &str) -> Vec<String> {
        let mut state = self.state();
        let newest = state.adapter.take();
        let earlier = std::mem::take(&mut state.earlier).into_iter();
        let all = newest.into_iter().chain(earlier.map(|(_, name)| name));
        all.filter(|other| other != name).collect()
    }

    /// The server begins to replace its weights: until [`Replacing::done`] it is not known which it has.
    pub(super) fn replace(&self, version: u64) -> Replacing<'_> {
        let mut state = self.state();
        state.announced = state.announced.max(version);
        Replacing {
            weights: self,
            version,
            done: false,
        }
    }
}

/// A replacement under way. Dropped without [`Self::done`], it leaves the weights unknown.
pub(super) struct Replacing<'a> {
    weights: &'a Weights,
    version: u64,
    done: bool,
}

impl Replacing<'_> {
    /// The server has the new weights. `named`: it knows their version too; else `mark` tells them from others.
    pub(super) fn done(mut self, named: bool, mark: Option<Mark>) {
        self.done = true;
        let mut state = self.weights.state();
        let before = std::mem::replace(&mut state.version, self.version);
        state.named = named;
        state.mark = mark.map(Arc::new);
        state.unknown = None;
        let adapter = state.adapter.take();
        state.retire(before, adapter);
    }
}

impl Drop for Replacing<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.weights.state().unknown = Some(format!(
                "their replacement by version {} failed midway",
                self.version
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_carry_the_version_they_were_sampled_under() {
        let weights = Weights::default();
        let first = weights.under(None).unwrap();
        assert_eq!(
            weights.stamp(&first, Some("default")).unwrap(),
            0,
            "nothing was pushed: the name is not ours"
        );
        let replacing = weights.replace(3);
        assert_eq!(weights.stamp(&first, None).unwrap(), 0);
        replacing.done(true, None);
        assert_eq!(
            weights.stamp(&first, None).unwrap(),
            0,
            "a request that saw a replacement is the older one's"
        );
        assert_eq!(
            weights.stamp(&first, Some("3")).unwrap(),
            3,
            "unless the server knows better"
        );
        let third = weights.under(None).unwrap();
        assert_eq!(weights.stamp(&third, None).unwrap(), 3);
        assert!(
            weights.stamp(&third, Some("4")).is_err(),
            "others push to it"
        );
        assert!(
            weights.stamp(&third, Some("default")).is_err(),
            "it was restarted"
        );
        assert_eq!(weights.adapted("a", 4), None);
        let adapted = weights.under(None).unwrap();
        assert_eq!(
            weights.adapted("b", 5),
            None,
            "requests may be under way under `a`"
        );
        assert_eq!(
            weights.stamp(&adapted, Some("3")).unwrap(),
            4,
            "the base's name says nothing of adapters"
        );
        assert_eq!(weights.adapted("b", 5), None, "again the same");
        assert_eq!(weights.adapted("c", 6), Some("a".to_owned()));
    }

    #[test]
    fn as_many_adapters_stay_as_versions_are_in_play() {
        let weights = Weights::default();
        weights.keep_versions(3);
        let adapter = |version| weights.under(Some(version)).map(|under| under.adapter);
        let named = |name: &str| Some(Some(name.to_owned()));
        assert_eq!(adapter(0), Some(None), "the server's own weights");
        for (version, name) in [(1, "a"), (2, "b"), (3, "c")] {
            assert_eq!(weights.adapted(name, version), None);
        }
        assert_eq!(adapter(0), None, "it has no name, so it was replaced");
        assert_eq!((adapter(1), adapter(3)), (named("a"), named("c")));
        let first = weights.under(Some(1)).unwrap();
        assert_eq!(weights.adapted("d", 4), Some("a".to_owned()));
        assert_eq!((adapter(1), adapter(2)), (None, named("b")));
        assert_eq!(
            weights.stamp(&first, None).unwrap(),
            1,
            "an answer that was under way"
        );
        assert_eq!(weights.under(None), weights.under(Some(4)));
        assert_eq!(weights.forget("d"), ["c", "b"]);
        assert_eq!(weights.adapted("d", 4), None);
        assert_eq!((adapter(3), adapter(4)), (None, named("d")));
    }

    #[test]
    fn a_replacement_that_fails_leaves_the_weights_unknown_until_one_succeeds() {
        let weights = Weights::default();
        drop(weights.replace(1));
        assert!(
            weights
                .unknown()
                .is_some_and(|why| why.contains("version 1"))
        );
        assert_eq!(weights.version(), 0);
        weights.replace(1).done(false, None);
        assert_eq!((weights.unknown(), weights.version()), (None, 1));
    }
}
