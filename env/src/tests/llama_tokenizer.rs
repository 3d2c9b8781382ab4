//! A tokenizer in Llama 3's format: ids as in transformers, no begin-of-text token around pieces, special tokens.

use forage_contracts::Tokenizer;
use forage_env::tokenizer::HfTokenizer;
use serde_json::Value;

#[test]
fn ids_are_those_of_transformers() {
    let json = include_bytes!("../../tests/fixtures/llama3_tokenizer/tokenizer.json");
    let tokenizer = HfTokenizer::from_bytes(json, "<|eot_id|>").expect("a tokenizer");
    let rows: Vec<Value> = serde_json::from_str(include_str!(
        "../../tests/fixtures/llama3_tokenizer/ids.json"
    ))
    .expect("JSON");
    for row in &rows {
        let text = row["text"].as_str().expect("text");
        let expected: Vec<u32> = serde_json::from_value(row["ids"].clone()).expect("ids");
        assert_eq!(tokenizer.encode(text), expected, "{text:?}");
        assert_eq!(tokenizer.decode(&expected), text);
    }
    // The post-processor's token would stand before every piece of an episode.
    let begin = tokenizer.token_to_id("<|begin_of_text|>").expect("known");
    assert!(!tokenizer.encode("the question").contains(&begin));
    assert_eq!(tokenizer.encode("<|begin_of_text|>"), [begin]);
    assert_eq!(
        tokenizer.encode("a<|eot_id|>").last(),
        Some(&tokenizer.eos())
    );
}
