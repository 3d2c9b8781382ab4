//! Equal questions that are asked at once.

use std::sync::Barrier;

use futures::future::join_all;

use super::*;

#[tokio::test]
async fn equal_questions_do_not_wait_for_each_other_once_one_has_failed() {
    // After the first, a verdict comes when three are asked for.
    let together = Barrier::new(3);
    let server = Server::start(move |number| {
        if number == 0 {
            return Act::Close;
        }
        together.wait();
        Act::Say(200, completion(VERDICT))
    });
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("verdicts.jsonl");
    let judged = judged(JudgeSettings {
        cache: Some(path.clone()),
        timeout_s: 10.0,
        attempts: 1,
        ..settings(&server)
    });
    let found = join_all((0..4).map(|_| score(&judged, "Velm"))).await;
    let failed = found.iter().filter(|score| score.is_err());
    assert_eq!(failed.count(), 1, "{found:?}");
    assert_eq!(server.bodies().len(), 4);
    score(&judged, "Velm").await.expect("known by now");
    assert_eq!(server.bodies().len(), 4);
    let kept = std::fs::read_to_string(&path).expect("a cache");
    assert_eq!(kept.lines().count(), 1, "{kept}");
}
