use serde_json::{Value, json};

use super::*;

fn hit(id: &str, title: &str, text: &str) -> Hit {
    Hit {
        id: id.to_owned(),
        score: 0.5,
        title: title.to_owned(),
        text: text.to_owned(),
    }
}

fn answer(lists: &[&[Hit]], shape: Shape) -> Value {
    // Split unevenly, as jobs split a batch.
    let (head, tail) = lists.split_at(lists.len() / 3);
    let parts = [head, tail].map(|lists| {
        let (mut part, room) = (Part::default(), Room::new(1 << 20));
        for hits in lists {
            part.push_hits(hits.to_vec(), shape, &room, |_, _| {})
                .unwrap();
        }
        part
    });
    let bytes = assemble(parts.into(), shape, Duration::from_millis(2)).concat();
    let mut value: Value = serde_json::from_slice(&bytes).unwrap();
    if let Some(object) = value.as_object_mut() {
        assert_eq!(object.remove("took_ms"), Some(json!(2.0)));
    }
    value
}

#[test]
fn every_shape_holds_every_number_of_queries() {
    let hits = [
        hit("a\"\\", "T \"q\" \u{1}", "line\nend \u{2028} <b> é 😀"),
        hit("b", "", ""),
    ];
    let document = |hit: &Hit| {
        let contents = format!("\"{}\"\n{}", hit.title, hit.text);
        json!({"id": hit.id, "title": hit.title, "text": hit.text, "contents": contents})
    };
    let bare: Vec<Value> = hits.iter().map(document).collect();
    let scored: Vec<Value> = bare
        .iter()
        .map(|bare| json!({"document": bare, "score": 0.5}))
        .collect();
    for count in 0..7 {
        let lists: Vec<&[Hit]> = (0..count)
            .map(|number| if number == 1 { &hits[..0] } else { &hits[..] })
            .collect();
        let of = |documents: &[Value]| -> Vec<Value> {
            lists
                .iter()
                .map(|list| json!(documents[..list.len()]))
                .collect()
        };
        assert_eq!(answer(&lists, Shape::Bare), json!({"result": of(&bare)}));
        assert_eq!(
            answer(&lists, Shape::Scored),
            json!({"result": of(&scored)})
        );
        let flash = |scores| Shape::FlashRag {
            scores,
            single: false,
        };
        assert_eq!(answer(&lists, flash(false)), json!(of(&bare)));
        assert_eq!(
            answer(&lists, flash(true)),
            json!([of(&bare), of(&[json!(0.5), json!(0.5)])])
        );
    }
    let single = |scores| Shape::FlashRag {
        scores,
        single: true,
    };
    assert_eq!(answer(&[&hits], single(false)), json!(bare));
    assert_eq!(answer(&[&hits], single(true)), json!([bare, [0.5, 0.5]]));
    let results = answer(&[&hits], Shape::Results);
    assert_eq!(results["results"][0]["doc_id"], "a\"\\");
    assert_eq!(results["results"][1]["contents"], "\"\"\n");
    assert_eq!(answer(&[&[]], Shape::Results), json!({"results": []}));
}

#[test]
fn an_answer_without_room_is_not_written_on() {
    let hits = vec![hit("a", "", &"river ".repeat(100)); 5];
    let flash = Shape::FlashRag {
        scores: true,
        single: true,
    };
    for shape in [Shape::Bare, Shape::Scored, Shape::Results, flash] {
        let mut written = 0;
        // Room for two of them.
        let room = Room::new(3000);
        let pushed = Part::default().push_hits(hits.clone(), shape, &room, |_, _| written += 1);
        assert!(matches!(pushed, Err(Refusal::AnswerTooLarge { .. })));
        assert_eq!(written, 3);
    }
}

#[test]
fn repairs_take_room_too() {
    let issue = ParseIssue {
        at: 0..1,
        message: "x".repeat(100),
    };
    let (mut part, room) = (Part::default(), Room::new(400));
    part.push_issues(std::slice::from_ref(&issue), &room)
        .unwrap();
    assert_eq!(room.taken(), part.bytes());
    let refused = part.push_issues(&[issue.clone(), issue.clone(), issue], &room);
    assert!(matches!(refused, Err(Refusal::AnswerTooLarge { .. })));
}
