//! Hugging Face folders in and out: `config.json`, `*.safetensors` (one file or shards), tokenizer and chat template.
//!
//! `checkpoint` is a whole folder. `files` maps weight files, `fill` reads them into a decoder (`layout` converts), `write` writes them,
//! `texts` keeps the files beside them, `adapter` those of PEFT, `value_head` that of a critic, `hub` fetches folders by name, `random`
//! makes a model of a published shape; `disk` reads and writes files and folders.

pub(crate) mod adapter;
mod checkpoint;
mod disk;
mod error;
mod files;
mod fill;
mod hub;
mod layout;
mod random;
mod texts;
pub(crate) mod value_head;
pub(crate) mod write;

pub use checkpoint::Checkpoint;
pub(crate) use disk::read;
pub use error::WeightsError;
pub(crate) use error::name_list;
pub(crate) use files::{Stored, map, parse, safetensors_files};
pub use fill::Precision;
pub(crate) use fill::{load_decoder_as, load_decoder_like};
pub use hub::{Hub, HubError};
pub(crate) use layout::{Kept, converted, turned};
pub(crate) use texts::GenerationDefaults;
pub use write::FileType;
pub(crate) use write::{SaveOptions, Written, parameters, save_decoder_as};
