"""Questions and replies: what they are made of."""

import pytest

from forage import Question, Reply


def test_a_question_is_made_of_strings():
    for fields, told in (
        ((1, "Who?", "Ada"), "question 1: id is 1; it must be a str"),
        (("1", None, "Ada"), "question '1': text is None"),
        (("1", "Who?", [7]), r"question '1': golds\[0\] is 7"),
        (("1", "Who?", 7), "question '1': golds is 7; it must be a list of str"),
        (("1", "Who?", "Ada", [3]), r"question '1': evidence\[0\] is 3"),
        (("1", "Who?", "Ada", (), "", "train", [8]), r"question '1': oracle\[0\] is 8"),
    ):
        with pytest.raises(TypeError, match=told):
            Question(*fields)
    assert Question("1", "Who?", ["Ada", "Ada L."]).golds == ("Ada", "Ada L.")


def test_the_turns_of_the_oracle_travel_with_the_question():
    question = Question("1", "Who?", "Ada", oracle=("<search>Who?</search>", "<answer>Ada</answer>"))
    assert question.task()["oracle"][1] == {"query": "<answer>Ada</answer>", "finding": ""}
    assert Question.read(question.task()) == question
    # The queries of a question for another environment are no turns.
    assert Question.read(question.task() | {"oracle": [{"query": "Who?", "finding": "Ada"}]}).oracle == ()


@pytest.mark.parametrize(
    "kind",
    ["answer", None, [], {}, {"kind": "answr"}, {"kind": "answer", "answer": 7}, {"kind": "calls", "calls": "guess"}],
)
def test_a_kind_that_records_do_not_have_is_refused(kind):
    with pytest.raises(
        ValueError, match=r'^kind is .*; it must be {"kind": "calls", .*"answer": STR} or .*"fault": STR}$'
    ):
        Reply("No.", kind=kind)
    with pytest.raises(ValueError, match=r"^kind is {'kind': 'invalid', 'fault': None}"):
        Reply.invalid(None)


def test_a_call_is_made_of_strings():
    (call,) = Reply.call("search", "No.", queries="Who?", shown=("a", "b")).kind["calls"]
    assert (call["queries"], call["shown"]) == (["Who?"], ["a", "b"])
    for given, told in (
        ({"queries": [None]}, r"queries\[0\] is None; it must be a str"),
        ({"shown": 7}, "shown is 7; it must be a list of str"),
        ({"tool": 7}, "tool is 7; it must be a str"),
    ):
        with pytest.raises(TypeError, match=told):
            Reply.call(**({"tool": "search", "text": "No."} | given))
