"""Running a server: limits, health, figures, logs, and how it stops."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from tests.server.conftest import Bridge
from tests.server.servers import running
from threadkeep import AsyncStore, InvalidOption, Store, viewer
from threadkeep.http import Owner, RecordedUpstream, Upstream, app, recorder_app, rest_app
from threadkeep.server import limits, quotas
from threadkeep.server.limits import Limits, rated
from threadkeep.server.observing import JsonFormatter, Metrics, SharedFigures
from threadkeep.server.quotas import Rates, SharedRates
from threadkeep.server.site import site

SECRET = "canary-7f3a91"


def face(**handlers: Any) -> Starlette:
    """An application with a route for each handler."""
    return Starlette(routes=[Route(f"/{name}/{{id}}", handler, methods=["POST"]) for name, handler in handlers.items()])


async def echo(request: Request) -> Response:
    return Response(await request.body())


async def calling(application: Any, *requests: tuple[str, str, Any], **options: Any) -> list[httpx2.Response]:
    """What requests are answered that are sent at once."""
    transport = httpx2.ASGITransport(app=application, raise_app_exceptions=False, **options)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        return await asyncio.gather(*(http.request(method, path, content=body) for method, path, body in requests))


def code(answer: httpx2.Response) -> tuple[int, str]:
    body = answer.json()["error"]
    assert set(body) == {"message", "type", "param", "code"}
    return answer.status_code, body["code"]


# Limits


async def in_pieces() -> Any:
    for _ in range(11):
        yield b"x"


@pytest.mark.parametrize("body", [b"x" * 11, in_pieces], ids=["with its length", "in pieces"])
def test_large_bodies_are_refused(body: Any) -> None:
    application = site({"": face(echo=echo)}, limits=Limits(max_body_bytes=10))
    content = body() if callable(body) else body
    [answer] = asyncio.run(calling(application, ("POST", "/echo/1", content)))
    assert answer.status_code == 413
    [fine] = asyncio.run(calling(application, ("POST", "/echo/1", b"x" * 10)))
    assert fine.content == b"x" * 10


@pytest.mark.parametrize("length", ["9" * 5_000, "0" * 5_000 + "99", "11"])
@pytest.mark.parametrize("is_site", [True, False])
def test_a_length_of_any_size_is_too_large(served: Any, length: str, *, is_site: bool) -> None:
    made = rest_app(served._store, auth=served.authenticate, prefix="", max_body_bytes=10)
    application = site({"": made}, limits=Limits(max_body_bytes=10)) if is_site else made

    async def run() -> tuple[httpx2.Response, httpx2.Response]:
        transport = httpx2.ASGITransport(app=application, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            large = await http.post("/conversations", content=b"{}", headers={"content-length": length})
            return large, await http.post(
                "/conversations", content=b"{}", headers={"content-length": "0" * 5_000 + "2"}
            )

    large, fine = served.runner.run(run())
    assert code(large) == (413, "request_too_large")
    assert fine.status_code == 201


DOORS: dict[str, Callable[[AsyncStore], Any]] = {
    "site": lambda _: site({"": face(echo=echo)}),
    "app": app,
    "rest_app": rest_app,
    "recorder_app": lambda store: recorder_app(store, [RecordedUpstream("nobody", "messages", "http://127.0.0.1:9")]),
    "viewer": viewer.app,
}


@pytest.mark.parametrize("name", DOORS)
def test_many_headers_are_refused_at_every_door(name: str) -> None:
    door = DOORS[name](AsyncStore("sqlite://"))

    async def run(count: int) -> httpx2.Response:
        transport = httpx2.ASGITransport(app=door)
        headers = [("host", "localhost"), *[(f"x-{number}", "1") for number in range(count - 1)]]
        request = httpx2.Request("GET", "http://localhost/healthz", headers=headers)
        return await transport.handle_async_request(request)

    assert asyncio.run(run(limits.MAX_HEADERS)).status_code != 431
    assert asyncio.run(run(limits.MAX_HEADERS + 1)).status_code == 431


@pytest.mark.parametrize("ws", ["auto", "none"])
@pytest.mark.parametrize("name", DOORS)
def test_a_client_that_wants_a_websocket_is_sent_to_http(name: str, ws: Any) -> None:
    """Whether the server that an application is mounted in can have WebSockets, or not."""
    store = AsyncStore("sqlite://")
    upgrade = {"connection": "Upgrade", "upgrade": "WebSocket", "sec-websocket-version": "13"}
    upgrade["sec-websocket-key"] = "A" * 22 + "=="
    with running(DOORS[name](store), store, ws=ws) as url:
        answer = httpx2.get(f"{url}/v1/conversations", headers=upgrade)
    if (name, ws) == ("recorder_app", "auto"):  # which asks the provider
        assert code(answer) == (502, "upstream_error")
        return
    assert (code(answer), answer.headers["upgrade"]) == ((426, "upgrade_required"), "HTTP/1.1")


def test_more_requests_than_allowed_are_told_to_come_again() -> None:
    free, both, asked = asyncio.Event(), asyncio.Event(), []

    async def wait(request: Request) -> Response:
        asked.append(request)
        if len(asked) == 2:
            both.set()
        await free.wait()
        return Response(b"done")

    async def release(_request: Request) -> Response:
        free.set()
        return Response(b"released")

    application = site({"": face(wait=wait, release=release)}, limits=Limits(max_requests=2))

    async def run() -> list[httpx2.Response]:
        waiting = asyncio.ensure_future(calling(application, ("POST", "/wait/1", b""), ("POST", "/wait/2", b"")))
        await asyncio.wait_for(both.wait(), 20)
        [refused] = await calling(application, ("POST", "/release/1", b""))
        [healthy] = await calling(application, ("GET", "/healthz", b""))
        free.set()
        return [refused, healthy, *await waiting, *await calling(application, ("POST", "/wait/3", b""))]

    refused, healthy, *done = asyncio.run(run())
    assert code(refused) == (503, "overloaded")
    assert refused.headers["retry-after"] == "1"
    assert healthy.status_code == 200
    assert [answer.content for answer in done] == [b"done"] * 3


def test_one_owner_does_not_take_the_places_of_all(served: Any) -> None:
    """Bodies that do not come are in flight, too."""
    application = site({"": served.application(prefix="")}, limits=Limits(max_requests=4))
    arriving: list[int] = []

    async def run() -> list[httpx2.Response]:
        enough = asyncio.Event()

        async def nothing() -> AsyncIterator[bytes]:
            arriving.append(1)
            if len(arriving) == 3:
                enough.set()
            await asyncio.Event().wait()
            yield b""

        transport = httpx2.ASGITransport(app=application, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            ann, ben = ({"authorization": f"Bearer {name}"} for name in ("ann", "ben"))
            stalled = [
                asyncio.create_task(http.post("/conversations", content=nothing(), headers=ann)) for _ in range(3)
            ]
            await asyncio.wait_for(enough.wait(), 20)
            answers = [await http.get("/conversations", headers=headers) for headers in (ann, ben)]
            for one in stalled:
                one.cancel()
            await asyncio.gather(*stalled, return_exceptions=True)
            return [*answers, await http.get("/conversations", headers=ann)]

    refused, other, again = served.runner.run(run())
    assert code(refused) == (429, "rate_limit_exceeded")
    assert refused.headers["retry-after"] == "1"
    assert (other.status_code, again.status_code) == (200, 200)


def test_a_request_that_takes_too_long_is_ended() -> None:
    ended = []

    async def wait(_request: Request) -> Response:
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(True)
        return Response()

    application = site({"": face(wait=wait)}, limits=Limits(max_seconds=0.5))
    [answer] = asyncio.run(calling(application, ("POST", "/wait/1", b"")))
    assert code(answer) == (504, "timeout")
    assert ended == [True]


@pytest.mark.parametrize("name", ["max_body_bytes", "max_requests", "max_seconds"])
def test_limits_are_positive(name: str) -> None:
    with pytest.raises(InvalidOption, match=name):
        Limits(**{name: 0})


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_rate_fills_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, *, is_shared: bool) -> None:
    now = [0.0]
    monkeypatch.setattr(quotas, "monotonic", lambda: now[0])
    rates = SharedRates(6, tmp_path / "rates") if is_shared else Rates(6)
    assert [rates.take("a") for _ in range(6)] == [0.0] * 6
    assert rates.take("a") == 10.0
    assert rates.take("b") == 0.0
    now[0] = 5.0
    assert rates.take("a") == 5.0
    now[0] = 10.0
    assert [rates.take("a"), rates.take("a")] == [0.0, 10.0]
    now[0] = 1_000.0
    assert [rates.take("a") for _ in range(7)] == [0.0] * 6 + [10.0]
    with pytest.raises(InvalidOption, match="per_minute"):
        Rates(0)


def test_several_processes_have_one_rate(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    processes = [SharedRates(4, tmp_path / "rates") for _ in range(2)]
    assert [processes[number % 2].take(("tenant", "ann")) for number in range(4)] == [0.0] * 4
    assert all(process.take(("tenant", "ann")) > 0 for process in processes)
    assert processes[0].take(("tenant", "ben")) == 0.0
    monkeypatch.setattr(quotas, "_PLACES", 8)  # all names have the same ones
    now = [0.0]
    monkeypatch.setattr(quotas, "monotonic", lambda: now[0])
    few = SharedRates(1, tmp_path / "few")
    for number in range(9):
        now[0] = 0.001 * number
        assert few.take(number) == 0.0
    assert few.take(8) > 0
    assert few.take(0) == 0.0  # the oldest has given way


def test_few_rates_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "MAX_BUCKETS", 2)
    rates = Rates(1)
    for name in "abc":
        rates.take(name)
    assert len(rates._buckets) == 2


def test_each_key_has_a_rate_of_its_own(served: Any) -> None:
    def who(request: Any) -> Owner | None:
        name = request.headers["authorization"].removeprefix("Bearer ")
        return Owner(user_id=name, tenant=served.tenant) if name != "nobody" else None

    auth = rated(who, Rates(2))
    ann, ben, nobody = (served.http(user, auth=auth) for user in ("ann", "ben", "nobody"))
    assert [ann.get("/conversations").status_code for _ in range(2)] == [200, 200]
    refused = ann.get("/conversations")
    assert code(refused) == (429, "rate_limit_exceeded")
    assert 1 <= int(refused.headers["retry-after"]) <= 30
    assert ben.get("/conversations").status_code == 200
    assert [nobody.get("/conversations").status_code for _ in range(3)] == [401] * 3


# Health


def test_health_tells_what_faces_tell() -> None:
    one, two = face(echo=echo), face(echo=echo)
    one.state.health = lambda: {"lost": 3}
    [answer] = asyncio.run(calling(site({"/one": one, "/two": two}), ("GET", "/healthz", b"")))
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "/one": {"lost": 3}})


def ready(url: str, *, stop: bool = False) -> tuple[int, Any]:
    async def run() -> tuple[int, Any]:
        store = AsyncStore(url)
        application = site({"": face(echo=echo)}, store=store)
        if stop:
            await application.state.stop()
        [answer] = await calling(application, ("GET", "/readyz", b""))
        await store.close()
        return answer.status_code, answer.json().get("problem")

    return asyncio.run(run())


def test_a_server_is_ready_with_a_database(database: Any) -> None:
    assert ready(database.url) == (200, None)
    assert ready(database.url, stop=True) == (503, "stopping")
    assert ready("postgresql://nobody@127.0.0.1:9/nothing") == (503, "database")


def test_a_server_is_not_ready_with_another_schema(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/one.db"

    async def run() -> tuple[int, Any]:
        async with AsyncStore(url) as store:
            with Store(url) as other:
                engine = other.handle.root.engine
                with engine.begin() as connection:
                    connection.exec_driver_sql("UPDATE threadkeep_version SET version_num = 'v9_9_9_a'")
            [answer] = await calling(site({"": face(echo=echo)}, store=store), ("GET", "/readyz", b""))
            return answer.status_code, answer.json()["problem"]

    assert asyncio.run(run()) == (503, "schema")


def test_what_no_face_has_is_not_found() -> None:
    application = site({"/one": face(echo=echo)})
    [answer, other] = asyncio.run(calling(application, ("GET", "/two", b""), ("POST", "/healthz", b"")))
    assert code(answer) == (404, "not_found")
    assert code(other) == (405, "method_not_allowed")
    assert answer.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(
    ("method", "path", "accept", "status", "is_page"),
    [
        ("POST", "/responses", "application/json", 404, False),
        ("POST", "/", "*/*", 405, False),
        ("GET", "/v1", "*/*", 404, False),
        ("GET", "/api", "application/json", 404, False),
        ("GET", "/api", "text/html,*/*;q=0.8", 404, True),
    ],
)
def test_a_client_with_the_wrong_address_gets_json(
    method: str, path: str, accept: str, status: int, *, is_page: bool
) -> None:
    store = AsyncStore("sqlite://")
    application = site({"/v1": app(store, prefix=""), "/api": rest_app(store, prefix=""), "": viewer.app(store)})

    async def asked() -> httpx2.Response:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=application), base_url="http://x") as http:
            return await http.request(method, path, headers={"Accept": accept})

    answer = asyncio.run(asked())
    assert answer.status_code == status
    assert answer.text.startswith("<!doctype html>") == is_page
    assert is_page or "/v1" in answer.json()["error"]["message"]


@pytest.mark.parametrize("made", [app, rest_app])
@pytest.mark.parametrize(("mount", "says"), [("/v1", True), ("/chat/v1", True), ("/chat", False)])
def test_an_application_that_is_mounted_at_its_prefix_says_so(made: Any, mount: str, *, says: bool) -> None:
    face = made(AsyncStore("sqlite://"), auth=lambda _: Owner(), prefix="/v1")
    application = Starlette(routes=[Mount(mount, face)])
    paths = [f"{mount}/conversations", f"{mount}/v1/unknown"]
    [missed, unknown] = asyncio.run(calling(application, *(("GET", path, b"") for path in paths)))
    assert code(missed) == code(unknown) == (404, "not_found")
    assert (f"is mounted at {mount}, where its paths begin with /v1. Give it prefix=''." in missed.text) == says
    assert "mounted" not in unknown.text


# Figures


def figures(answer: httpx2.Response) -> dict[tuple[Any, ...], float]:
    families = text_string_to_metric_families(answer.text)
    return {
        (sample.name.removeprefix("threadkeep_http_"), *sorted(sample.labels.items())): sample.value
        for family in families for sample in family.samples
    }  # fmt: skip


def test_figures_have_routes_and_no_names(served: Any) -> None:
    application = site({"/v1": served.application(prefix="")})
    http = httpx2.Client(
        transport=Bridge(served.runner, application), base_url="http://localhost", headers={"Authorization": "Bearer x"}
    )
    made = http.post("/v1/conversations", json={"metadata": {SECRET: SECRET}}).json()["id"]
    for _ in range(2):
        assert http.get(f"/v1/conversations/{made}").status_code == 200
    assert http.get(f"/v1/conversations/{SECRET}").status_code == 404
    assert http.get(f"/{SECRET}").status_code == 404
    assert http.request("SECRET", "/v1/conversations").status_code == 405
    answer = http.get("/metrics")
    assert SECRET not in answer.text
    assert made not in answer.text
    found = figures(answer)
    path = ("route", "/v1/conversations/{conversation_id}")
    assert found["requests_total", ("method", "GET"), path, ("status", "200")] == 2
    assert found["requests_total", ("method", "GET"), path, ("status", "404")] == 1
    assert found["request_duration_seconds_count", ("method", "GET"), path] == 3
    assert found["requests_total", ("method", "GET"), ("route", "unknown"), ("status", "404")] == 1
    assert found["requests_in_flight",] == 1  # the one that asks


def test_each_of_several_processes_has_the_figures_of_all(tmp_path: Any) -> None:
    async def run() -> list[bytes]:
        first, second, replaced = Metrics(), Metrics(), Metrics()
        for metrics, count in ((first, 3), (second, 4), (replaced, 9)):
            metrics.requests.labels("GET", "/x", 200).inc(count)
        async with SharedFigures(first, tmp_path, 0):
            async with SharedFigures(replaced, tmp_path, 1):
                pass  # it has ended
            alone = await first.of_all()
            async with SharedFigures(second, tmp_path, 1):
                return [alone, await first.of_all(), await second.of_all()]

    alone, *both = asyncio.run(run())
    assert both[0] == both[1]
    counts = [
        {
            line.partition('worker="')[2]: line.partition("} ")[2]
            for line in text.decode().splitlines()
            if "s_total{" in line
        }
        for text in (alone, both[0])
    ]
    assert counts == [{'0"} 3.0': "3.0"}, {'0"} 3.0': "3.0", '1"} 4.0': "4.0"}]


def test_figures_are_for_this_machine_or_need_a_token() -> None:
    def asked(application: Any, address: str = "127.0.0.1", **headers: str) -> int:
        async def run() -> int:
            transport = httpx2.ASGITransport(app=application, client=(address, 1))
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
                return (await http.get("/metrics", headers=headers)).status_code

        return asyncio.run(run())

    application = site({})
    assert asked(application) == 200
    assert asked(application, "192.0.2.1") == 401
    assert asked(application, Host="chat.example") == 401
    assert asked(application, **{"X-Forwarded-For": "192.0.2.1"}) == 401
    protected = site({}, metrics_token="secret")
    assert asked(protected) == 401
    assert asked(protected, "192.0.2.1", Authorization="Bearer secret") == 200
    assert asked(protected, Authorization="Bearer other") == 401


# Logs


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What is logged, as lines of JSON."""
    text, root = io.StringIO(), logging.getLogger("threadkeep")
    handler, level = logging.StreamHandler(text), root.level
    handler.setFormatter(JsonFormatter())
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield text
    root.removeHandler(handler)
    root.setLevel(level)


def test_each_request_is_logged_without_what_it_says(served: Any, lines: io.StringIO) -> None:
    application = site({"/v1": served.application(prefix="")})
    headers = {"Authorization": f"Bearer {SECRET}"}
    http = httpx2.Client(transport=Bridge(served.runner, application), base_url="http://localhost", headers=headers)
    answer = http.post("/v1/conversations", json={"items": [{"role": "user", "content": SECRET}]})
    http.get(f"/v1/conversations/{SECRET}")
    assert SECRET not in lines.getvalue()
    first, second = (json.loads(line) for line in lines.getvalue().splitlines())
    assert first["request_id"] == answer.headers["x-request-id"]
    assert {name: first[name] for name in ("level", "logger", "method", "route", "status")} == {
        "level": "info", "logger": "threadkeep.access", "method": "POST", "route": "/v1/conversations", "status": 200,
    }  # fmt: skip
    assert first["duration_ms"] > 0
    assert second["route"] == "/v1/conversations/{conversation_id}"


def test_faces_of_one_kind_are_told_apart(served: Any) -> None:
    faces = {path: rest_app(served._store, auth=served.authenticate, prefix="") for path in ("/one", "/two")}
    http = httpx2.Client(transport=Bridge(served.runner, site(faces)), base_url="http://localhost")
    assert [http.get(f"{path}/conversations/1").status_code for path in ("/one", "/two", "/one")] == [404] * 3
    figures = http.get("/metrics").text
    for path, count in (("/one", 2), ("/two", 1)):
        route = f"{path}/conversations/{{conversation_id}}"
        assert f'threadkeep_http_requests_total{{method="GET",route="{route}",status="404"}} {count}.0' in figures


@pytest.mark.parametrize("made", [app, rest_app])
@pytest.mark.parametrize("is_site", [True, False])
def test_errors_of_the_server_have_the_id_of_their_request(made: Any, *, is_site: bool) -> None:
    def fail(_request: Any) -> Owner:
        raise RuntimeError(SECRET)

    face_alone = made(AsyncStore("sqlite://"), auth=fail, prefix="")
    application = site({"": face_alone}) if is_site else face_alone
    [answer] = asyncio.run(calling(application, ("GET", "/conversations", b"")))
    assert answer.status_code == 500
    [id_] = answer.headers.get_list("x-request-id")
    assert id_.startswith("req_")
    assert SECRET not in answer.text


def test_errors_are_logged_without_their_messages(lines: io.StringIO) -> None:
    def fail() -> None:
        raise ValueError(SECRET)

    def wrap() -> None:
        try:
            fail()
        except ValueError as error:
            raise RuntimeError(SECRET) from error

    try:
        wrap()
    except RuntimeError:
        logging.getLogger("threadkeep.server").exception("A request failed.")
    line = json.loads(lines.getvalue())
    assert SECRET not in lines.getvalue()
    assert (line["level"], line["message"], line["error"]["type"]) == (
        "error", "A request failed.", "builtins.RuntimeError",
    )  # fmt: skip
    assert line["error"]["cause"]["type"] == "builtins.ValueError"
    assert "test_errors_are_logged" in line["error"]["trace"][0]


# The end


def test_streams_end_as_incomplete_when_the_server_stops(tmp_path: Any) -> None:
    """The client gets the last event, with what has come, and the next process finds it stored."""
    begun = asyncio.Event()

    async def ask(_payload: Any, model: str) -> Any:
        delta = {"role": "assistant", "content": "Half"}
        yield {"id": "c1", "model": model, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        begun.set()
        await asyncio.sleep(60)

    url = f"sqlite:///{tmp_path}/one.db"
    store = AsyncStore(url)
    openai = app(store, prefix="", auth=lambda _: Owner(), upstreams={"*": Upstream("slow", "chat_completion", ask)})
    stopping = site({"/v1": openai}, store=store)

    async def stop(_request: Request) -> Response:
        await begun.wait()
        await stopping.state.stop()
        return Response()

    stopping.routes.insert(0, Route("/stop", stop, methods=["POST"]))
    body = {"model": "m", "input": "Hi", "stream": True}
    with running(stopping, store) as address, httpx2.Client(base_url=address, timeout=20) as http:
        with http.stream("POST", "/v1/responses", json=body) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: response.created"
            assert http.post("/stop").status_code == 200
            events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
        assert events[-1]["type"] == "response.incomplete"
        assert events[-1]["response"]["output"][0]["content"][0]["text"] == "Half"
        assert http.get("/readyz").json()["problem"] == "stopping"
    with Store(url) as reopened:
        stored = reopened.get_response(events[-1]["response"]["id"])
        assert stored.status == "incomplete"
