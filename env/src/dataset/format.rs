//! The door for question formats: one entry per format, in one list.

mod annotated;
mod bamboogle;
mod gsm8k;
mod hotpot_qa;
mod math;
mod messages;
mod musique;
mod native;
mod nemo_gym;
mod plain;
mod popqa;
mod prompt;
mod search_r1;
mod squad;
mod trivia;
mod trivia_qa;
mod verl;

use forage_contracts::question::{QuestionEntry, QuestionRow};
use forage_contracts::{Registry, RowFault, nearest};
use serde_json::{Map, Value};

/// The question formats, the built-in ones first.
pub(crate) static QUESTION_FORMATS: Registry<QuestionEntry> = Registry::new(&[
    native::ENTRY,
    search_r1::ENTRY,
    verl::ENTRY,
    nemo_gym::ENTRY,
    musique::ENTRY,
    hotpot_qa::ENTRY,
    trivia::ENTRY,
    trivia_qa::ENTRY,
    popqa::ENTRY,
    squad::ENTRY,
    bamboogle::ENTRY,
    annotated::ENTRY,
    gsm8k::ENTRY,
    plain::ENTRY,
    math::ENTRY,
    prompt::ENTRY,
]);

/// The format whose fields a row has.
pub(super) fn detect(row: &Map<String, Value>) -> Result<&'static QuestionEntry, RowFault> {
    if row.contains_key("nl_query") && row.contains_key("boolean_query") {
        return Err(RowFault::new(
            "the rows show queries to imitate and judge no passage",
            "give the file to `forage sft`; questions for query-writer are BEIR folders",
        ));
    }
    let found = QUESTION_FORMATS.iter().find(|entry| (entry.detect)(row));
    found.ok_or_else(|| {
        let fields: Vec<&str> = row.keys().map(String::as_str).collect();
        let what = format!("fields [{}] fit no known format", fields.join(", "));
        if let Some([own, meant]) = misspelt(row) {
            let fix = format!(
                "rename `{own}` to `{meant}`, or write the fields of another format (docs/data.md lists them)"
            );
            return RowFault::new(what, fix);
        }
        let known = QUESTION_FORMATS
            .iter()
            .map(|entry| format!("{} ({})", entry.name, entry.about));
        let known = known.collect::<Vec<_>>().join(", ");
        let is_beir = row.contains_key("_id") && row.contains_key("text");
        let fix = if is_beir {
            "passages and queries of the form BEIR have their judgments beside them: name the folder with queries.jsonl and \
             qrels/{train,dev,test}.tsv, or give the files to `forage eval retrieval` as --queries and --qrels"
                .to_owned()
        } else {
            format!(
                "write `question` and `answer`, or the fields of another format: {known}; or name a BEIR folder, with queries.jsonl and \
                 qrels/{{train,dev,test}}.tsv"
            )
        };
        RowFault::new(what, fix)
    })
}

/// The field that is near to the question or the answer, of which a row lacks one, and what it may be meant for.
fn misspelt(row: &Map<String, Value>) -> Option<[&str; 2]> {
    let lacking = ["question", "answer"];
    let mut lacking = lacking
        .into_iter()
        .filter(|field| !row.contains_key(*field));
    let (lacks, None) = (lacking.next()?, lacking.next()) else {
        return None;
    };
    let own = row.keys().map(String::as_str);
    let mut near = own.filter(|own| nearest(own, [lacks]).is_some());
    Some([near.next()?, lacks])
}

/// Tells whether a row has a question and its answer.
fn is_answered(row: &Map<String, Value>) -> bool {
    row.contains_key("question") && (row.contains_key("answer") || row.contains_key("answers"))
}

/// The value of a text that is JSON, as tables and some parquet files write lists.
fn json_text(value: &Value) -> Option<Value> {
    serde_json::from_str(value.as_str()?).ok()
}

/// Columns of accepted answers and of the passages that hold them, in one format or another.
const LISTS: [&str; 5] = [
    "Answer",
    "answer_aliases",
    "gold",
    "golds",
    "possible_answers",
];

/// Reads the lists of strings that a row of a table of text has as JSON in its columns of answers: a cell of its own holds one text alone.
pub(super) fn read_lists(row: &mut Map<String, Value>) {
    for field in LISTS.iter().chain(&messages::ANSWERS) {
        let written = row.get(*field).and_then(json_text);
        let is_list = |value: &Value| {
            let items = value.as_array();
            items.is_some_and(|items| items.iter().all(Value::is_string))
        };
        if let Some(list) = written.filter(is_list) {
            row.insert((*field).to_owned(), list);
        }
    }
}

/// The number of hops in a record, which is small.
fn hops(count: usize) -> u8 {
    u8::try_from(count).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_that_is_near_to_one_that_is_read_is_told_alone() {
        let told = |row: Value| {
            let fault = detect(row.as_object().expect("a row")).expect_err("no format");
            fault.fix.into_owned()
        };
        for (row, near) in [
            (
                json!({"question": "q", "ans": "a"}),
                "rename `ans` to `answer`",
            ),
            (
                json!({"quesion": "q", "answer": "a"}),
                "rename `quesion` to `question`",
            ),
        ] {
            let fix = told(row);
            assert!(fix.contains(near) && !fix.contains("search-r1"), "{fix}");
        }
        let fix = told(json!({"text": "p", "score": 1}));
        assert!(
            fix.contains("search-r1") && !fix.contains("rename"),
            "{fix}"
        );
    }
}
