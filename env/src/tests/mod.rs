//! Environments, rewards, rollouts and the server, from outside.

mod chat_rollout;
mod chat_template;
mod code_search;
mod common;
mod conformance;
mod datasets;
mod driver;
mod experience;
mod external;
mod graders;
mod hints;
mod llama_tokenizer;
mod probes;
mod profiles;
mod programs;
mod query_rewards;
mod qwen_tokenizers;
mod records;
mod self_grading;
mod text_policy;
mod tool_calls;
mod trajectories;
mod trees;
mod ways;
