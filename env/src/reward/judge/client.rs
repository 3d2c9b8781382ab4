//! Asking a judge: cache, budget, tries.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use forage_contracts::{Episode, Turn};
use forage_net::{Client, Fault, KeyHeader, Request, SettingError};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::cache::Cache;
use super::completion::Completion;
use super::error::JudgeError;
use super::prompt::{
    Asked, Room, Shown, Transcript, advice_messages, batch_messages, messages, pair_messages,
    principle_messages, turn_messages, written,
};
use super::settings::JudgeSettings;
use super::verdict::{
    Form, Preference, Refusal, Verdict, read_advice, read_grades, read_preference, read_principles,
    read_verdict, read_verdicts,
};

/// Characters of an episode, and of an answer, that are shown to a judge who refuses more.
const SHORTER: [usize; 5] = [8_000, 4_000, 2_000, 1_000, 500];

/// The time for which a judge that gives no verdict on a harmless question is not asked it again.
const MUTE: Duration = Duration::from_mins(1);

/// The cost of a judge so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    /// Requests sent, tries included.
    pub calls: u64,
    /// Tokens read and written, as the server counts them.
    pub tokens: u64,
    /// Times that more was left out of what is judged, because the server refused its length.
    pub shortened: u64,
}

/// A language model that judges.
pub struct Judge {
    settings: JudgeSettings,
    http: Client,
    cache: OnceCell<Cache>,
    calls: AtomicU64,
    tokens: AtomicU64,
    shortened: AtomicU64,
    /// Harmless questions without a verdict, by the digests of their requests, and when they were asked.
    mute: Mutex<HashMap<blake3::Hash, Instant>>,
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Judge")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Judge {
    /// Prepares a judge: the token file is read, nothing is sent, and the cache is opened by the first question.
    ///
    /// # Errors
    /// [`JudgeError::Setting`] with the key at fault.
    pub fn new(settings: JudgeSettings) -> Result<Self, JudgeError> {
        settings.check()?;
        let http = Client::new(&settings.url, settings.http(), KeyHeader::Authorization).map_err(
            |SettingError { key, what }| JudgeError::Setting {
                key: key.to_owned(),
                what,
            },
        )?;
        Ok(Self {
            settings,
            http,
            cache: OnceCell::new(),
            calls: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
            shortened: AtomicU64::new(0),
            mute: Mutex::default(),
        })
    }

    /// Requests sent so far, tries included, and tokens read and written, as the server counts them.
    pub fn cost(&self) -> (u64, u64) {
        let Spent { calls, tokens, .. } = self.spent();
        (calls, tokens)
    }

    pub(crate) fn spent(&self) -> Spent {
        Spent {
            calls: self.calls.load(Ordering::Relaxed),
            tokens: self.tokens.load(Ordering::Relaxed),
            shortened: self.shortened.load(Ordering::Relaxed),
        }
    }

    /// Tells whether it compares answers with accepted ones; a rubric takes their place.
    pub(super) fn needs_golds(&self) -> bool {
        self.settings.rubric.is_empty()
    }

    /// Judges an episode, or an answer alone.
    ///
    /// # Errors
    /// [`JudgeError`] when there is no verdict after all tries, or the budget is spent.
    pub(crate) async fn ask(&self, question: &Asked<'_>) -> Result<Verdict, JudgeError> {
        let rubric = &self.settings.rubric;
        if self.needs_golds() && question.golds.is_empty() {
            return Err(JudgeError::NoGold);
        }
        let read = |reply: &str| read_verdict(reply, rubric.len());
        let form = Form::of(rubric.len());
        self.judged(form, |room| messages(question, rubric, room), read)
            .await
    }

    /// Says whether an answer is right, whatever the way to it. A judge with a rubric never says so.
    ///
    /// # Errors
    /// When there is no verdict after all tries, or the budget is spent.
    pub async fn is_right(
        &self,
        question: &str,
        golds: &[String],
        answer: &str,
    ) -> Result<bool, JudgeError> {
        let asked = Asked {
            question,
            golds,
            answer: Some(answer),
            transcript: Transcript::Unknown,
        };
        let verdict = self.ask(&asked).await?;
        Ok(matches!(verdict, Verdict::Answer { correct: true, .. }))
    }

    /// Judges several answers to one question in one request; the verdicts come in the order of the answers.
    ///
    /// # Errors
    /// As [`Judge::ask`].
    pub(crate) async fn ask_together(
        &self,
        question: &str,
        golds: &[String],
        shown: &[Shown<'_>],
    ) -> Result<Vec<Verdict>, JudgeError> {
        if golds.is_empty() {
            return Err(JudgeError::NoGold);
        }
        let read = |reply: &str| read_verdicts(reply, shown.len());
        let messages = |room| batch_messages(question, golds, shown, room);
        self.judged(Form::Answers(shown.len()), messages, read)
            .await
    }

    /// Says which of two answers is better, in the order given.
    ///
    /// # Errors
    /// As [`Judge::is_right`].
    pub async fn prefer(
        &self,
        question: &str,
        golds: &[String],
        answers: [&str; 2],
    ) -> Result<Preference, JudgeError> {
        let pair = answers.map(|answer| (Some(answer), Transcript::Unknown));
        self.prefer_work(question, golds, pair).await
    }

    /// Says which of two members of a group did better, in the order given; by the rubric, if there is one.
    ///
    /// # Errors
    /// As [`Judge::is_right`].
    pub(super) async fn prefer_work(
        &self,
        question: &str,
        golds: &[String],
        pair: [Shown<'_>; 2],
    ) -> Result<Preference, JudgeError> {
        let rubric = &self.settings.rubric;
        let messages = |room| pair_messages(question, golds, pair, rubric, room);
        self.judged(Form::Pair, messages, read_preference).await
    }

    /// Grades each turn of an episode, 0 to 1. Gold answers help where there are any.
    ///
    /// # Errors
    /// When there are no grades after all tries, or the budget is spent.
    pub(super) async fn grade_turns(
        &self,
        question: &str,
        golds: &[String],
        turns: &[Turn],
    ) -> Result<Vec<f32>, JudgeError> {
        let read = |reply: &str| read_grades(reply, turns.len());
        let messages = |room| turn_messages(question, golds, turns, room);
        // How many turns there are is the policy's doing too, so the question without its texts has one.
        let one = &turns[..turns.len().min(1)];
        let harmless = turn_messages(question, golds, one, Room::NONE);
        let read_one = |reply: &str| read_grades(reply, one.len());
        let harmless = (Form::Turns(one.len()), harmless, read_one);
        let form = Form::Turns(turns.len());
        self.judged_beside(form, messages, read, harmless).await
    }

    /// Says which principles, each of which an answer meets or does not, stand behind what a person wrote about an answer; the question
    /// and the answer may be empty.
    ///
    /// # Errors
    /// When there is no list of principles after all tries, or the budget is spent.
    pub async fn principles(
        &self,
        feedback: &str,
        question: &str,
        answer: &str,
    ) -> Result<Vec<String>, JudgeError> {
        let messages = |room| principle_messages(feedback, question, answer, room);
        self.judged(Form::Principles, messages, read_principles)
            .await
    }

    /// Says in a sentence or two what a right attempt at a question did better than a wrong one, for those who get other questions.
    ///
    /// # Errors
    /// As [`Judge::is_right`].
    pub(crate) async fn advise(&self, pair: [&Episode; 2]) -> Result<String, JudgeError> {
        let task = &pair[0].task;
        let shown = pair.map(|episode| (written(episode), Transcript::Turns(&episode.turns)));
        let messages = |room| advice_messages(&task.question, &task.golds, shown, room);
        self.judged(Form::Advice, messages, read_advice).await
    }

    /// Asks as [`Self::judged_beside`] does, with the same question without the texts as the harmless one.
    async fn judged<T>(
        &self,
        form: Form,
        messages: impl Fn(Room) -> Value + Send + Sync,
        read: impl Fn(&str) -> Result<T, Refusal> + Copy + Send + Sync,
    ) -> Result<T, JudgeError> {
        let harmless = (form, messages(Room::NONE), read);
        self.judged_beside(form, messages, read, harmless).await
    }

    /// Asks with as much of the policy's texts as the server takes: their length is the policy's doing, so a server that refuses it is
    /// shown less. If it gives no verdict even on the shortest texts, or fails or writes without an end, it is asked the same question
    /// without them. A judge that gives no verdict on that either is a fault of ours. One that does is asked the first question again,
    /// since it may have stumbled; if there is still no verdict, the texts are to blame.
    async fn judged_beside<T, U>(
        &self,
        form: Form,
        messages: impl Fn(Room) -> Value + Send + Sync,
        read: impl Fn(&str) -> Result<T, Refusal> + Copy + Send + Sync,
        harmless: (
            Form,
            Value,
            impl Fn(&str) -> Result<U, Refusal> + Copy + Send + Sync,
        ),
    ) -> Result<T, JudgeError> {
        let transcript = self.settings.transcript_chars;
        let mut asked = messages(Room::all(transcript));
        let mut reply = self.reply(form, &asked, read).await;
        for chars in SHORTER {
            if !matches!(&reply, Err(error) if error.refuses_request()) {
                break;
            }
            let shorter = messages(Room {
                transcript: transcript.min(chars),
                answer: chars,
            });
            if shorter != asked {
                asked = shorter;
                self.shortened.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(chars, "judge refuses the length of what it is shown");
                reply = self.reply(form, &asked, read).await;
            }
        }
        let error = match reply {
            Err(error) if error.may_be_the_texts() => error,
            settled => return settled,
        };
        let (plain, harmless, read_harmless) = harmless;
        if harmless == asked || !self.gives_verdict(plain, &harmless, read_harmless).await {
            return Err(error);
        }
        // A server that only now begins to fail is in trouble of its own.
        let failed_before = error.is_failure();
        let error = match self.reply(form, &asked, read).await {
            Err(error) if error.may_be_the_texts() && (failed_before || !error.is_failure()) => {
                error
            }
            settled => return settled,
        };
        tracing::debug!(%error, "judge gives no verdict on a text, but does once it is left out");
        Err(match error {
            JudgeError::Unread(fault) | JudgeError::Call(fault) => JudgeError::Refused(fault),
            other => other,
        })
    }

    /// Returns true where the judge gives a verdict on a question without any text of a policy. Cached replies do not count: it may have
    /// stopped working since.
    async fn gives_verdict<T>(
        &self,
        form: Form,
        messages: &Value,
        read: impl Fn(&str) -> Result<T, Refusal> + Copy + Send + Sync,
    ) -> bool {
        let body = self.body(form, messages);
        let key = blake3::hash(body.as_bytes());
        let mute = || self.mute.lock().unwrap_or_else(PoisonError::into_inner);
        if mute().get(&key).is_some_and(|at| at.elapsed() < MUTE) {
            return false;
        }
        let reply = self.call(body.into_bytes(), |reply| read(reply).map(|_| ()));
        let gives = reply.await.is_ok();
        let mut mute = mute();
        mute.retain(|_, at| at.elapsed() < MUTE);
        if !gives {
            mute.insert(key, Instant::now());
        }
        gives
    }

    /// The request's body.
    fn body(&self, form: Form, messages: &Value) -> String {
        let JudgeSettings {
            model,
            max_tokens,
            extra_body,
            ..
        } = &self.settings;
        let mut body = json!({"model": model, "messages": messages, "temperature": 0, "max_tokens": max_tokens});
        if self.settings.structured {
            let schema = json!({"name": "verdict", "strict": true, "schema": form.schema()});
            body["response_format"] = json!({"type": "json_schema", "json_schema": schema});
        }
        for (key, value) in extra_body {
            body[key] = value.clone();
        }
        body.to_string()
    }

    async fn reply<T>(
        &self,
        form: Form,
        messages: &Value,
        read: impl Fn(&str) -> Result<T, Refusal> + Copy + Send + Sync,
    ) -> Result<T, JudgeError> {
        let body = self.body(form, messages);
        let key = blake3::hash(body.as_bytes()).to_hex().to_string();
        let cache = self
            .cache
            .get_or_try_init(|| async { self.open_cache() })
            .await?;
        let slot = cache.slot(&key);
        let ask = self.call(body.into_bytes(), |reply| read(reply).map(|_| ()));
        let reply = slot.reply(ask, |reply| cache.keep(&key, reply));
        // Only replies that are verdicts come here, unless a person wrote them into the file.
        read(&reply.await?).map_err(|refusal| JudgeError::Cache {
            path: self.settings.cache.clone().unwrap_or_default(),
            what: format!("key {key}: {refusal}; remove its line"),
        })
    }

    fn open_cache(&self) -> Result<Cache, JudgeError> {
        self.settings
            .cache
            .as_deref()
            .map_or_else(|| Ok(Cache::default()), Cache::open)
    }

    async fn call(
        &self,
        body: Vec<u8>,
        check: impl Fn(&str) -> Result<(), Refusal> + Send + Sync,
    ) -> Result<String, JudgeError> {
        let url = self.http.url(&["v1", "chat", "completions"]);
        let request = Request::post(url, "application/json", body);
        // Whether the last attempt came to a reply of the judge, and not to a proxy's page or a part of one.
        let replied = AtomicBool::new(false);
        let take = |completion: Completion| {
            if let Some(failure) = completion.failure() {
                return Err(failure);
            }
            replied.store(true, Ordering::Relaxed);
            self.take(completion, &check)
        };
        let admit = || {
            replied.store(false, Ordering::Relaxed);
            self.admit().map_err(|error| error.to_string())
        };
        let again = Fault::again;
        let answer = self.http.call_within(request, admit, again, take).await;
        answer.map_err(|error| match &error.fault {
            Fault::Withheld(_) => self.exceeded().unwrap_or(JudgeError::Call(error)),
            Fault::Unusable(_) if replied.load(Ordering::Relaxed) => JudgeError::Unread(error),
            _ => JudgeError::Call(error),
        })
    }

    /// Takes a call out of the budget.
    fn admit(&self) -> Result<(), JudgeError> {
        if let Some(spent) = self.exceeded() {
            return Err(spent);
        }
        let most = self.settings.max_calls.unwrap_or(u64::MAX);
        let taken = self
            .calls
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |calls| {
                (calls < most).then(|| calls + 1)
            });
        taken.map(|_| ()).map_err(|spent| JudgeError::Budget {
            key: "max_calls",
            spent,
            limit: most,
        })
    }

    fn exceeded(&self) -> Option<JudgeError> {
        let Spent { calls, tokens, .. } = self.spent();
        let limits = [
            ("max_calls", calls, self.settings.max_calls),
            ("max_total_tokens", tokens, self.settings.max_total_tokens),
        ];
        limits.into_iter().find_map(|(key, spent, limit)| {
            let limit = limit.filter(|&limit| spent >= limit)?;
            Some(JudgeError::Budget { key, spent, limit })
        })
    }

    /// The reply of a completion, if it is a verdict.
    fn take(
        &self,
        completion: Completion,
        check: impl Fn(&str) -> Result<(), Refusal>,
    ) -> Result<String, Fault> {
        match completion.tokens() {
            Some(tokens) => {
                self.tokens.fetch_add(tokens, Ordering::Relaxed);
            }
            None if self.settings.max_total_tokens.is_some() => {
                let what = "no `usage`, which max_total_tokens needs; set max_calls instead";
                return Err(Fault::Protocol(what.to_owned()));
            }
            None => {}
        }
        let reply = completion.reply()?;
        check(&reply).map_err(|refusal| Fault::Unusable(refusal.to_string()))?;
        Ok(reply)
    }
}
