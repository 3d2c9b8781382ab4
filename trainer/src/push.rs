//! New weights for rollout servers: written into a folder that they see, handed over, and seen to have arrived.
//!
//! A server may answer 200 and go on with other weights: vLLM 0.32 on a processor keeps a tied output head as it was when whole
//! weights are reloaded. So after every push it is asked for the log-probabilities of a few texts. Where they are
//! not the trainer's, the same weights are pushed in another way, and where none holds the run ends with the figures.
//!
//! Where numbers are rounded to 16 bits, weights that never arrive would be noticed after many steps of a small learning rate. So a
//! process begins with weights that it changed on purpose, far beyond rounding: each server must be seen to have these, and then the true
//! ones. A process that is killed between the two has sampled nothing, and the next one pushes both again.

mod proof;
mod way;

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use forage_contracts::Tokenizer;
use forage_contracts::policy::Policy;
use futures::future::join_all;

use self::proof::changed;
use self::way::Way;
use crate::device::{ComputeType, is_processor};
use crate::logprobs::{EXACT_GAP, ROUNDED_GAP};
use crate::model::Decoder;
use crate::ranks::sample;
use crate::remote::{Gap, Probe, RemoteError, RemotePolicy, Server};
use crate::sequence::Sequence;
use crate::student::{LearnError, Student};
use crate::weights::{Checkpoint, FileType};

/// Versions whose folders stay at least: a server may read an adapter again as long as requests under it are under way.
const KEPT: usize = 3;

/// Most tokens of a text, and those that the server draws behind it.
const TEXT_TOKENS: usize = 32;
const DRAWN_TOKENS: usize = 16;

/// The least mean distance, as a multiple of the bound, by which weights that are changed on purpose move the trainer's own
/// log-probabilities.
const SEEN: f64 = 10.0;
/// The factor of the bound for weights that are changed on purpose: they may round more than trained ones.
const ROUGHER: f64 = 2.0;

/// What the server goes on with, behind a mark that no other push has.
const TEXTS: [&str; 4] = [
    "The river rises in the mountains, crosses three countries and reaches the sea near an old harbour.",
    "Who wrote the first book about the founder of the city? <search>founder of the city</search>",
    "In 1906 the company built a bridge of 425 metres; it was closed, repaired and opened again in 1951.",
    "I need the year in which her brother was born, so I look for the family before I answer.",
];

/// A push that servers were seen to have taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pushed {
    /// Servers that have it.
    pub(crate) servers: usize,
    /// The mean difference of log-probabilities from the trainer's, nats; of several servers the largest.
    pub(crate) gap: f64,
}

/// Weights to hand over.
#[derive(Clone, Copy)]
struct Given<'a> {
    student: &'a Student,
    checkpoint: &'a Checkpoint,
    version: u64,
    /// Whether the weights are changed on purpose, to be recognised; nobody samples under them.
    proof: bool,
}

impl Given<'_> {
    fn folder(&self, way: Way) -> String {
        if self.proof {
            way.folder_of_proof()
        } else {
            way.folder(self.version)
        }
    }
}

/// What became of weights that were handed over.
struct Handed<'a> {
    /// Gaps of the servers that were seen to have them.
    seen: Vec<Gap>,
    /// Servers that did not answer.
    lost: Vec<(&'a Server, RemoteError)>,
}

/// Hands weights to one server or several.
pub(crate) struct Pusher {
    policy: Arc<RemotePolicy>,
    /// Holds a folder for each version.
    folder: PathBuf,
    /// Most tokens of a sequence.
    context: usize,
    /// The way that held last.
    way: Option<Way>,
    /// The addresses of servers at which weights that were changed on purpose were seen to arrive, or cannot be seen.
    proven: BTreeSet<String>,
    /// Versions of the weights under which episodes are in play at a time.
    versions: usize,
    /// Versions whose folders stay, the newest last.
    kept: VecDeque<u64>,
}

impl Pusher {
    /// Hands over by way of folders made in `folder`. `context`: most tokens of a sequence.
    pub(crate) fn new(policy: RemotePolicy, folder: PathBuf, context: usize) -> Self {
        Self {
            policy: Arc::new(policy),
            folder,
            context,
            way: None,
            proven: BTreeSet::new(),
            versions: 1,
            kept: VecDeque::new(),
        }
    }

    /// The policy of the servers under the weights that were pushed last. Where several versions are in play, it stays with them.
    pub(crate) fn policy(&self) -> Arc<dyn Policy> {
        let policy = Arc::clone(&self.policy);
        if self.versions > 1 {
            Arc::new(policy.pinned())
        } else {
            policy
        }
    }

    /// Has the servers keep the adapters of so many versions. Several are pushed as adapters alone: whole weights would replace those of
    /// episodes in play.
    pub(crate) fn keep_versions(&mut self, versions: usize) {
        self.versions = versions;
        self.policy.keep_versions(versions);
    }

    /// Hands the weights of `student` over as `version`, to all servers at once, in the first way that holds. A server that does not
    /// take part is given up as long as another has them; one that was given up and answers again is in use afterwards. On each server
    /// weights that are changed on purpose go before the first of them, so that it is known that they arrive.
    ///
    /// # Errors
    /// [`LearnError::Save`] when they cannot be written, [`LearnError::Push`] when no server takes them, or one has others whatever
    /// the way.
    pub(crate) async fn push(
        &mut self,
        student: &Student,
        version: u64,
    ) -> Result<Pushed, LearnError> {
        let policy = Arc::clone(&self.policy);
        let mut there = policy.there().await;
        let is_new = |server: &&Server| !self.proven.contains(server.url());
        let new: Vec<&Server> = there.iter().copied().filter(is_new).collect();
        let unproven = if new.is_empty() {
            Vec::new()
        } else {
            Box::pin(self.prove(student, version, new)).await?
        };
        // Rounding may hide that the true weights never arrive at one of the others.
        there.retain(|server| self.proven.contains(server.url()));
        let given = Given {
            student,
            checkpoint: student.checkpoint(),
            version,
            proof: false,
        };
        let Handed { seen, mut lost } = self.hand_over(given, there).await?;
        lost.extend(unproven);
        if seen.is_empty()
            && let Some((_, error)) = lost.pop()
        {
            return Err(error.into());
        }
        for (server, error) in lost {
            // It has other weights.
            server.give_up(&error);
        }
        policy.renewed();
        self.keep(version);
        let gaps = seen.iter().map(|gap: &Gap| gap.mean);
        let pushed = Pushed {
            servers: seen.len(),
            gap: gaps.fold(0.0, f64::max),
        };
        tracing::debug!(
            version,
            servers = pushed.servers,
            gap = pushed.gap,
            "push seen"
        );
        Ok(pushed)
    }

    /// Keeps the folders of the newest versions and removes all others, those of an earlier process too: no server is asked for them any
    /// more. What cannot be removed only takes space.
    fn keep(&mut self, version: u64) {
        self.kept.retain(|&other| other != version);
        self.kept.push_back(version);
        let most = KEPT.max(self.versions + 1);
        while self.kept.len() > most {
            self.kept.pop_front();
        }
        let stays = |name: &OsStr| {
            let mut kept = self.kept.iter();
            kept.any(|&version| {
                Way::ALL
                    .iter()
                    .any(|way| name == way.folder(version).as_str())
            })
        };
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten();
        for entry in entries.filter_map(Result::ok) {
            if !stays(&entry.file_name()) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Shows that weights arrive: the servers must be seen to have weights that are changed on purpose. The push that follows shows that
    /// the true ones return. Nothing is asked where no change moves log-probabilities far enough to be seen. Returns the servers that
    /// did not answer.
    async fn prove<'a>(
        &mut self,
        student: &Student,
        version: u64,
        there: Vec<&'a Server>,
    ) -> Result<Vec<(&'a Server, RemoteError)>, LearnError> {
        let urls = there.iter().map(|server| server.url().to_owned());
        let mut proven: BTreeSet<String> = urls.collect();
        let checkpoint = student.checkpoint();
        let (texts, _) = self.texts(checkpoint, version, true, 0);
        let bounds = Way::all(checkpoint).into_iter();
        let bounds = bounds.map(|way| self.bound(checkpoint, way));
        let least = SEEN * bounds.fold(0.0, f64::max);
        let Some((changed, moved)) = changed(student, &texts, least) else {
            tracing::warn!(
                least,
                "no change of the weights moves log-probabilities far enough: whether weights arrive is not seen beforehand"
            );
            self.proven.append(&mut proven);
            return Ok(Vec::new());
        };
        let given = Given {
            student,
            checkpoint: &changed,
            version,
            proof: true,
        };
        let handed = self.hand_over(given, there).await;
        if let Err(LearnError::Push(RemoteError::Unverified { .. })) = &handed
            && checkpoint.lora.is_none()
            && let Some(last) = Way::all(checkpoint).last()
        {
            // The model that the error says to restart with.
            last.save(checkpoint, &self.folder.join(last.folder(version)))?;
        }
        let Handed { seen, lost } = handed?;
        proven.retain(|url| lost.iter().all(|(server, _)| server.url() != url));
        self.proven.append(&mut proven);
        if !seen.is_empty() {
            let servers = seen.len();
            tracing::info!(servers, moved, "weights changed on purpose arrived");
        }
        Ok(lost)
    }

    /// Hands weights over to these servers, in the first way that holds on each.
    async fn hand_over<'a>(
        &mut self,
        given: Given<'_>,
        there: Vec<&'a Server>,
    ) -> Result<Handed<'a>, LearnError> {
        let Given {
            student,
            checkpoint,
            version,
            proof,
        } = given;
        let mut left = there;
        let (mut seen, mut lost, mut tried) = (Vec::new(), Vec::new(), Vec::new());
        for (attempt, way) in self.ways(checkpoint).into_iter().enumerate() {
            if left.is_empty() {
                break;
            }
            let place = self.folder.join(given.folder(way));
            way.save(checkpoint, &place)?;
            let (texts, drawn) = self.texts(checkpoint, version, proof, attempt);
            let own = |ids: &[u32], first: usize| own(student, &checkpoint.decoder, ids, first);
            let rougher = if proof { ROUGHER } else { 1.0 };
            let probe = Probe {
                texts: &texts,
                drawn,
                own: &own,
                bound: rougher * self.bound(checkpoint, way),
            };
            let pushes = left.iter().map(|server| {
                let (place, probe) = (&place, &probe);
                async move {
                    if proof {
                        server.prove(place, version, way.kind(), probe).await
                    } else {
                        server.push(place, version, way.kind(), probe).await
                    }
                }
            });
            let mut stale = Vec::new();
            let outcomes = join_all(pushes).await;
            if proof {
                let _ = std::fs::remove_dir_all(&place);
            }
            for (server, outcome) in left.into_iter().zip(outcomes) {
                let what = match outcome {
                    Ok(gap) => {
                        self.way = Some(way);
                        seen.push(gap);
                        continue;
                    }
                    Err(RemoteError::Unverified { what, .. }) => what,
                    // A server need not offer every way.
                    Err(error) if attempt > 0 => format!("it failed ({error})"),
                    Err(error) => {
                        lost.push((server, error));
                        continue;
                    }
                };
                let (url, words) = (server.url(), way.words());
                tracing::warn!(version, url, proof, way = words, "push not taken: {what}");
                tried.push((url, format!("{words}, {what}")));
                stale.push(server);
            }
            left = stale;
        }
        if let Some(server) = left.first() {
            let url = server.url();
            let own = tried.iter().filter(|(of, _)| *of == url);
            let figures: Vec<&str> = own.map(|(_, what)| what.as_str()).collect();
            let purpose = if proof {
                "they were changed on purpose, to see whether weights arrive; "
            } else {
                ""
            };
            let what = format!(
                "{purpose}{}; {}",
                figures.join("; "),
                self.advice(checkpoint, version)
            );
            let url = url.to_owned();
            return Err(RemoteError::Unverified { url, what }.into());
        }
        Ok(Handed { seen, lost })
    }

    /// The ways to try, the one that held last before all others.
    fn ways(&self, checkpoint: &Checkpoint) -> Vec<Way> {
        let mut ways = Way::all(checkpoint);
        if self.served(checkpoint) != ComputeType::F32 {
            // Rounding hides a head that stayed as it was for some steps, so it is sent by its own name from the beginning.
            ways.sort_by_key(|way| *way == Way::Whole);
        }
        if self.versions > 1 {
            ways.retain(|way| *way == Way::Adapter);
        }
        ways.sort_by_key(|way| Some(*way) != self.way);
        ways
    }

    /// Texts that no push before had, so that nothing that a server keeps of a text can answer for it: each begins with a mark made
    /// of the weights, of what they are pushed for and of the try. Beside them the tokens to draw behind each.
    fn texts(
        &self,
        checkpoint: &Checkpoint,
        version: u64,
        proof: bool,
        attempt: usize,
    ) -> (Vec<Vec<u32>>, usize) {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&sample(&checkpoint.decoder).to_le_bytes());
        hasher.update(&version.to_le_bytes());
        hasher.update(&[u8::from(proof)]);
        hasher.update(&attempt.to_le_bytes());
        let mark = hasher.finalize().to_hex();
        let context = self.context.min(self.policy.context());
        let drawn = DRAWN_TOKENS.min(context / 2);
        let most = TEXT_TOKENS.min(context - drawn);
        let texts = TEXTS.iter().map(|text| {
            let mut ids = checkpoint
                .tokenizer
                .encode(&format!("{} {text}", &mark[..6]));
            ids.truncate(most);
            ids
        });
        (texts.filter(|text| !text.is_empty()).collect(), drawn)
    }

    /// The largest mean difference that rounding explains, nats.
    fn bound(&self, checkpoint: &Checkpoint, way: Way) -> f64 {
        let served = self.served(checkpoint);
        let exact = served == ComputeType::F32
            && way.file_type(checkpoint) == FileType::F32
            && is_processor(&checkpoint.decoder.device())
            && !checkpoint.decoder.is_quantised();
        if exact { EXACT_GAP } else { ROUNDED_GAP }
    }

    /// The type that the server computes in: as it was told, else as the checkpoint says.
    fn served(&self, checkpoint: &Checkpoint) -> ComputeType {
        let published = match checkpoint.published_type() {
            FileType::F32 => ComputeType::F32,
            FileType::Bf16 => ComputeType::Bf16,
        };
        self.policy.dtype().unwrap_or(published)
    }

    /// What to do about a server that has other weights whatever the way.
    fn advice(&self, checkpoint: &Checkpoint, version: u64) -> String {
        let model = match (&checkpoint.lora, Way::all(checkpoint).last()) {
            (None, Some(last)) => {
                let folder = self.folder.join(last.folder(version));
                format!("the model in {}", folder.display())
            }
            (Some(lora), _) => format!("{} and adapters of rank {}", lora.base, lora.rank),
            (None, None) => "the model that the run began with".to_owned(),
        };
        let mut advice = format!(
            "restart the server with {model}, then start the run again (with --resume where it has taken steps)"
        );
        if self.served(checkpoint) == ComputeType::F32 {
            advice.push_str(
                "; if it computes in bf16 or f16 and the difference is small, write dtype = \"bf16\" in [sampler]",
            );
        }
        advice
    }
}

/// The trainer's log-probabilities of the ids from a position on under these weights, nats, at temperature 1.
fn own(student: &Student, decoder: &Decoder, ids: &[u32], first: usize) -> Vec<f32> {
    let sequence = Sequence {
        targets: (first..ids.len()).collect(),
        ids: ids.to_vec(),
        ..Sequence::default()
    };
    student.scores(decoder, &[&sequence]).logprobs
}
