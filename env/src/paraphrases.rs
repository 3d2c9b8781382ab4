//! Built-in instructions in other words.

use serde_json::{Value, json};

/// The texts `NAME_1.txt` to `NAME_3.txt` of `configs/prompts/paraphrases`.
macro_rules! paraphrases {
    ($name:literal) => {
        [
            include_str!(concat!(
                "../../../configs/prompts/paraphrases/",
                $name,
                "_1.txt"
            )),
            include_str!(concat!(
                "../../../configs/prompts/paraphrases/",
                $name,
                "_2.txt"
            )),
            include_str!(concat!(
                "../../../configs/prompts/paraphrases/",
                $name,
                "_3.txt"
            )),
        ]
    };
}

pub(crate) use paraphrases;

/// The question alone.
pub(crate) const SHORT: [&str; 3] = [
    include_str!("../../configs/prompts/paraphrases/short_1.txt"),
    include_str!("../../configs/prompts/paraphrases/short_2.txt"),
    include_str!("../../configs/prompts/paraphrases/short_3.txt"),
];

/// Templates as values of the setting `prompt`.
pub(crate) fn prompts(texts: Option<[&str; 3]>) -> Vec<Value> {
    texts
        .iter()
        .flatten()
        .map(|text| json!({"text": text}))
        .collect()
}
