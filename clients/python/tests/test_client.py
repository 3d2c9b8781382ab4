import pickle
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from conftest import QUESTIONS, serving
from policy import Bytes, written

from forage import (
    Capacity,
    Client,
    Conflict,
    Infra,
    Invalid,
    Retriever,
    Session,
    SessionLost,
    Task,
    Unauthorized,
    Unreachable,
    Vector,
)
from forage.trl import Rollout, ToolEnvironment


def test_an_episode_is_played_and_scored(client, world):
    with client.reset(task_index=0, seed=7) as episode:
        seen = episode.observation
        assert world.questions[0] in seen.text
        assert (seen.question, seen.turn, seen.seed, seen.done) == (world.questions[0], 0, 7, False)
        assert "</answer>" in seen.stop
        found = episode.step(f"<search>{world.questions[0]}</search>")
        assert "<information>" in found.observation.text
        assert found.reward == 0
        assert not found.done
        assert found.observation.kind["calls"][0]["tool"] == "search"
        end = episode.step(f"<answer>{world.golds[0]}</answer> and more")
    assert (end.reward, end.done, episode.reward) == (1.0, True, 1.0)
    assert end.observation.score.total == 1.0
    assert end.observation.ignored_chars == 9
    assert end.observation.terminated
    assert not end.observation.truncated


def test_a_wrong_answer_is_worth_nothing(client):
    with client.reset(task_index=0) as episode:
        end = episode.step("<answer>a wrong one</answer>")
    assert (end.reward, end.done) == (0.0, True)


def test_a_limit_truncates(client):
    with client.reset(task_index=0) as episode:
        end = episode.step("I wonder", finish="context")
    assert (end.done, end.observation.truncated, end.observation.terminated) == (True, True, False)


def test_the_same_seed_asks_the_same(client):
    texts = []
    for _ in range(2):
        with client.reset(seed=11) as episode:
            texts.append(episode.observation.text)
    assert texts[0] == texts[1]


def test_tasks_and_info(client, world):
    tasks = list(client.tasks())
    assert [task.question for task in tasks] == world.questions
    assert [task.task_id for task in client.tasks(3)] == [task.task_id for task in tasks[:3]]
    info = client.info()
    assert info.tasks == QUESTIONS
    assert info.env_id == "forage/search-r1-v0"
    assert [(tool.name, tool.parameter) for tool in info.tools] == [("search", "query"), ("answer", "answer")]
    # A step that is given up on the server is told before the client gives it up.
    assert client.http._timeout >= client.http.get("/info")["limits"]["step_timeout_s"] + 10
    assert client.ready()


def test_fields_of_a_newer_server_are_passed_over(client):
    (fields,) = client.http.get("/tasks?limit=1")["tasks"]
    assert Task.read(fields | {"hops": 2}) == next(client.tasks())


class Whole:
    """A number as numpy has them."""

    def __index__(self) -> int:
        return 2


def test_numbers_of_other_kinds_are_numbers(client, world):
    with client.reset(task_index=Whole(), seed=Whole()) as episode:
        assert (episode.observation.question, episode.observation.seed) == (world.questions[2], 2)
    with pytest.raises(TypeError, match="'object' object cannot be interpreted as an integer"):
        client.reset(task_index=object())
    with client.make(2) as many:
        for turns, told in (("xy", "turns is a str"), (["x", 5], "a turn is 5"), (["x", None], "a turn is None")):
            with pytest.raises(TypeError, match=told):
                many.step(turns)
    for asked in (many.reset, lambda: many.step(["x", "y"])):
        with pytest.raises(ValueError, match="closed"):
            asked()


def test_tools_write_turns(client, world):
    with client.reset(task_index=1) as episode:
        assert "<information>" in episode.call("search", query="town").observation.text
        with pytest.raises(Invalid, match="</answer>"):
            episode.call("answer", answer="x</answer>")
        with pytest.raises(Invalid, match="there is no tool"):
            episode.call("dig", query="x")
        assert episode.call("answer", answer=world.golds[1]).reward == 1.0


def test_a_turn_that_is_sent_again_is_taken_once(client, world):
    episode = client.reset(task_index=0)
    twin = Session(client.http, episode.observation)
    first = episode.step("<search>town</search>")
    assert twin.step("<search>town</search>") == first
    assert first.observation.turn == 1
    episode.close()


def test_refusals_are_typed(client):
    with pytest.raises(Invalid, match="there is no task `nonsense`"):
        client.reset(task_id="nonsense")
    with pytest.raises(Invalid, match=f"there are {QUESTIONS} tasks"):
        client.reset(task_index=99)
    episode = client.reset(task_index=0)
    episode.step("<answer>x</answer>")
    with pytest.raises(Conflict) as caught:
        episode.step("<answer>x</answer>")
    assert caught.value.cause == "episode_over"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.cause) == (Conflict, str(caught.value), "episode_over")


def test_nobody_there():
    client = Client("http://127.0.0.1:9", timeout=2)
    assert not client.ready()
    with pytest.raises(Unreachable):
        client.reset()


@pytest.fixture
def proxy() -> Iterator[SimpleNamespace]:
    """Answers requests one after the other with statuses, headers and bodies of its own."""
    state = SimpleNamespace(answers=[])

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args) -> None:
            pass

        def do_GET(self) -> None:
            status, headers, body = state.answers.pop(0)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        state.url = f"http://127.0.0.1:{server.server_port}"
        yield state
        server.shutdown()


PAGE = b"<html>\n<h1>Sorry</h1>"


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        ((200, {}, PAGE), Invalid, "did not answer with JSON"),
        ((302, {"Location": "https://front/info"}, PAGE), Invalid, r"sent on to https://front/info \(status 302\)"),
        ((308, {}, b""), Invalid, r"sent on to another address \(status 308\)"),
        ((401, {}, PAGE), Unauthorized, "something else than forage with status 401: <html>"),
        ((403, {}, PAGE), Invalid, "something else than forage with status 403: <html>"),
        ((408, {}, PAGE), Unreachable, "status 408"),
        ((408, {}, b'{"detail": "late", "code": "VALIDATION_ERROR", "cause": "slow_body"}'), Unreachable, "late"),
        ((429, {"Retry-After": "7"}, PAGE), Capacity, "status 429"),
        ((502, {}, PAGE), Unreachable, "status 502: <html>"),
        ((503, {}, b'{"detail": "as many requests", "cause": "overloaded"}'), Capacity, "as many requests"),
    ],
)
def test_what_stands_before_a_server_is_told_from_it(proxy, answer, error, told):
    proxy.answers = [answer]
    with pytest.raises(error, match=told) as caught:
        Client(proxy.url).info()
    if error is Capacity:
        assert caught.value.retry_after == float(answer[1].get("Retry-After", 1))


def test_a_proxy_that_lets_nothing_through_is_waited_for(proxy):
    found = b'{"result": [[]]}'
    proxy.answers = [(429, {"Retry-After": "nan"}, PAGE), (429, {"Retry-After": "0"}, PAGE), (200, {}, found)]
    retriever = Retriever(proxy.url)
    with pytest.raises(Capacity):
        retriever.search("town")
    client = Client(proxy.url, patience=20)
    assert client.http.post("/retrieve", {}) == {"result": [[]]}


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("http://localhost:port", "'port'"),
        ("http://localhost:80000", "Port out of range"),
        ("http://ada:secret@localhost:8000", "not sent"),
        ("http://localhost:8000?token=secret", "not sent"),
    ],
)
def test_what_is_no_address_is_told_before_anything_is_asked(address, told):
    with pytest.raises(ValueError, match=told) as caught:
        Client(address)
    assert "secret" not in str(caught.value)


def test_a_token_is_taken_as_a_file_holds_it():
    for token, sent in (("secret\n", "Bearer secret"), ("\n", None), (None, None)):
        assert Client("http://127.0.0.1:9", token).http._headers.get("Authorization") == sent
    for token in ("sec\nret", "sécret", "sec\x7fret"):
        with pytest.raises(ValueError, match="no header can carry") as caught:
            Client("http://127.0.0.1:9", token)
        assert token not in str(caught.value)


def test_tools_without_a_server_have_no_reward():
    tools = ToolEnvironment(Client("http://127.0.0.1:9"))
    for _ in range(2):
        tools.reset(task_id="1")
        assert tools.get_reward() is None


def test_the_token(world, tmp_path):
    token = tmp_path / "token"
    token.write_text("secret\n")
    with serving(*world.arguments, "--token-file", str(token)) as url:
        for wrong in (None, "wrong"):
            with pytest.raises(Unauthorized):
                Client(url, wrong).reset()
        assert Client(url, token.read_text()).reset(task_index=0).observation.turn == 0


def test_turns_that_are_paid_are_paid_once(paid_url):
    client = Client(paid_url)
    with client.reset(task_index=0) as episode:
        steps = [episode.step("<search>Ada</search>"), episode.step("<answer>Ada</answer>")]
    # The score has the payments of all turns, and comes with the last of them.
    assert [step.reward for step in steps] == [0.25, 1.75]
    assert episode.reward == 1.0
    tools = ToolEnvironment(client)
    tools.reset(task_index=0)
    tools._session.step("<search>Ada</search>")
    tools._session.step("<answer>Ada</answer>")
    assert tools.get_reward() == 1.0


def test_a_rollout_that_fails_gives_its_places_back(world):
    trainer = SimpleNamespace(processing_class=Bytes(), args=SimpleNamespace(max_completion_length=2000))

    def failing(trainer, episodes, stop):
        raise RuntimeError("no memory")

    with serving(*world.arguments, "--max-sessions", "2") as url:
        client = Client(url)
        ids = [task.task_id for task in client.tasks(2)]
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no memory"):
                Rollout(client, generate=failing)(ids, trainer)
            # One of these is not a task; the other one has begun.
            with pytest.raises(Invalid):
                Rollout(client, generate=failing)([ids[0], "nonsense"], trainer)
        with client.make(2):
            pass


def test_a_rollout_that_fails_leaves_what_is_being_begun_too():
    trainer = SimpleNamespace(processing_class=Bytes(), args=SimpleNamespace(max_completion_length=2000))
    begins, left = threading.Event(), []

    def reset(task_id, member, patient):
        if task_id == "nonsense":
            assert begins.wait(20)
            raise Invalid("there is no task `nonsense`", "invalid")
        begins.set()
        time.sleep(0.2)
        seen = SimpleNamespace(text="Who?", done=False)
        return SimpleNamespace(observation=seen, close=lambda: left.append(task_id))

    info = SimpleNamespace(max_episode_tokens=100, max_turn_tokens=10, stop=())
    client = SimpleNamespace(reset=reset, info=lambda: info)
    with pytest.raises(Invalid):
        Rollout(client)(["nonsense", "1"], trainer)
    assert left == ["1"]


def test_a_rollout_that_cannot_begin_is_asked_for_once():
    trainer = SimpleNamespace(processing_class=Bytes(), args=SimpleNamespace(max_completion_length=2000))
    asked = []

    def reset(task_id, member, patient):
        asked.append(task_id)
        raise Infra("the retriever is down", "retriever")

    client = SimpleNamespace(reset=reset, info=lambda: SimpleNamespace(stop=()))
    assert Rollout(client)(["1", "2"], trainer)["episode_reward"] == [None, None]
    assert sorted(asked) == ["1", "2"]


def test_a_batch_that_is_larger_than_the_server_is_played_part_by_part(world):
    trainer = SimpleNamespace(processing_class=Bytes(), args=SimpleNamespace(max_completion_length=2000))
    batches, rewards = [], {}

    def answering(trainer, episodes, stop):
        batches.append(len(episodes))
        golds = [world.golds[world.questions.index(episode.observation.question)] for episode in episodes]
        return [written(f"<answer>{gold}</answer>") for gold in golds]

    with serving(*world.arguments, "--max-sessions", "3") as url:
        client = Client(url, patience=60)
        ids = [task.task_id for task in client.tasks(4)]

        # Two that share the server, as two processes of a trainer do.
        def play(name: str) -> None:
            rewards[name] = Rollout(client, generate=answering)(ids, trainer)["episode_reward"]

        threads = [threading.Thread(target=play, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert rewards == {"a": [1.0] * 4, "b": [1.0] * 4}
        assert sum(batches) == 8
        assert max(batches) <= 3
        # All places are taken, and nobody gives one back.
        with client.make(3):
            played = Rollout(Client(url, patience=0.2), generate=answering)(ids, trainer)
    assert played["episode_reward"] == [None] * 4


def test_a_full_server_is_waited_for(world):
    with serving(*world.arguments, "--max-sessions", "1") as url:
        first = Client(url).reset(task_index=0)
        with pytest.raises(Capacity) as caught:
            Client(url).reset(task_index=1)
        assert (caught.value.active, caught.value.most) == (1, 1)
        again = pickle.loads(pickle.dumps(caught.value))
        assert (again.active, again.most, str(again)) == (1, 1, str(caught.value))
        threading.Timer(0.5, first.close).start()
        begin = time.monotonic()
        second = Client(url, patience=20).reset(task_index=1)
        assert time.monotonic() - begin > 0.3
        assert second.observation.turn == 0


def test_an_idle_session_is_lost(world):
    with serving(*world.arguments, "--session-ttl-seconds", "1") as url:
        episode = Client(url).reset(task_index=0)
        time.sleep(2.5)
        with pytest.raises(SessionLost):
            episode.step("<search>town</search>")


def test_a_member_that_the_server_has_closed_is_opened_again_with_its_next_episode(world):
    with serving(*world.arguments, "--session-ttl-seconds", "1") as url, Client(url).make(3) as many:
        many.reset(seeds=[1, 2, 3])
        for _ in range(5):
            time.sleep(0.5)
            many.reset([1], seeds=[2])
            many.step(["<search>town</search>"], [1])
        lost, kept, _ = many.step(["<search>town</search>"] * 3)
        assert isinstance(lost, SessionLost)
        assert kept.observation.turn == 2
        begun = many.reset(seeds=[1, 2, 3], options=[{"task_index": place} for place in range(3)])
        assert [(seen.seed, seen.question) for seen in begun] == list(zip((1, 2, 3), world.questions[:3], strict=True))
        assert len(set(many.env_ids)) == 3
        assert [step.observation.turn for step in many.step(["<search>town</search>"] * 3)] == [1, 1, 1]


def test_a_member_that_is_still_at_a_lost_turn_is_opened_again_with_its_next_episode():
    asked = []

    def post(path, body):
        asked.append((path, body))
        if path == "/gym/make":
            return {"env_ids": [f"env-{len(asked)}-{place}" for place in range(body["num_envs"])]}
        if path == "/gym/close":
            return {"closed": len(body["env_ids"])}
        lost = {"message": "a request is being answered", "code": "SESSION_ERROR", "cause": "busy"}
        errors = [lost if name == "env-1-1" else None for name in body["env_ids"]]
        names = ("episode_id", "task_id", "question", "data_source", "turn", "max_turns", "forced_prefix")
        about = {"score": None, "kind": None, "ending": None, "ignored_chars": 0}
        info = dict.fromkeys(names) | {"stop": [], "terminated": False, "truncated": False, "info": about}
        infos = [info | {"seed": seed} for seed in body["seed"]]
        return {"observations": body["env_ids"], "infos": infos, "errors": errors}

    many = Vector(SimpleNamespace(post=post), 3)
    begun = many.reset(seeds=[7, 8, 9])
    assert [(seen.text, seen.seed) for seen in begun] == [("env-1-0", 7), ("env-4-0", 8), ("env-1-2", 9)]
    assert many.env_ids == ["env-1-0", "env-4-0", "env-1-2"]
    assert ("/gym/close", {"env_ids": ["env-1-1"]}) in asked


def test_a_dead_retriever_is_no_reward(dead_url):
    episode = Client(dead_url).reset(task_index=0)
    with pytest.raises(Infra) as caught:
        episode.step("<search>town</search>")
    assert caught.value.cause == "retriever"
    assert episode.observation.score is None
    assert episode.reward is None
    episode.close()


def test_many_threads_share_a_client(client, world):
    rewards = [None] * 16

    def play(place: int) -> None:
        with client.reset(task_index=place) as episode:
            episode.step("<search>town</search>")
            rewards[place] = episode.step(f"<answer>{world.golds[place]}</answer>").reward

    threads = [threading.Thread(target=play, args=(place,)) for place in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rewards == [1.0] * 16


def test_members_have_their_own_results(client, world):
    with client.make(3) as many:
        begun = many.reset(seeds=[1, 2, 3], options=[{"task_index": place} for place in range(3)])
        assert [seen.question for seen in begun] == world.questions[:3]
        assert [seen.seed for seen in begun] == [1, 2, 3]
        texts = ["<search>town</search>", f"<answer>{world.golds[1]}</answer>", ("I wonder", "context")]
        steps = many.step(texts)
        assert [step.reward for step in steps] == [0.0, 1.0, 0.0]
        assert [step.done for step in steps] == [False, True, True]
        assert steps[2].observation.truncated
        with pytest.raises(Conflict):
            many.step(["x"], [1])
        (end,) = many.step([f"<answer>{world.golds[0]}</answer>"], [0])
        assert end.reward == 1.0


def test_turns_of_members_that_are_sent_again_are_taken_once(client, monkeypatch):
    with client.make(2) as many:
        many.reset(options=[{"task_index": 0}] * 2)
        post, lost = client.http.post, iter([True])

        def losing(path, body):
            answer = post(path, body)
            if next(lost, False):
                raise Unreachable("the connection broke", "unreachable")
            return answer

        monkeypatch.setattr(client.http, "post", losing)
        with pytest.raises(Unreachable):
            many.step(["<search>town</search>"] * 2)
        assert [step.observation.turn for step in many.step(["<search>town</search>"] * 2)] == [1, 1]
        assert [step.observation.turn for step in many.step(["<search>town</search>"] * 2)] == [2, 2]


def test_a_member_that_is_refused_costs_the_others_no_turn(client):
    with client.make(2) as many:
        many.reset(options=[{"task_index": 0}] * 2)
        with pytest.raises(Invalid, match="at most 262144 are taken"):
            many.step(["<search>town</search>", "x" * 300_000])
        assert [step.observation.turn for step in many.step(["<search>town</search>"] * 2)] == [1, 1]
        assert [step.observation.turn for step in many.step(["<search>town</search>"] * 2)] == [2, 2]


def test_members_have_their_own_faults(dead_url):
    with Client(dead_url).make(2) as many:
        many.reset(options=[{"task_index": 0}] * 2)
        failed, wrong = many.step(["<search>town</search>", "<answer>x</answer>"])
        assert isinstance(failed, Infra)
        assert failed.cause == "retriever"
        assert (wrong.reward, wrong.done) == (0.0, True)
        # The member is there for the next episode.
        (again,) = many.reset([0], options=[{"task_index": 1}])
        assert again.turn == 0
