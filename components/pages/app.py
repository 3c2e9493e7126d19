"""The pages over HTTP, and who may read and write them.

- The rules of `components.serving.http.Guard` for hosts, other sites and the token, which is in the address once,
  afterwards in a cookie, or a bearer token.
- A POST request needs the secret of the page's form.
- Answers allow no content from other addresses, no frames and no copies in caches.

A `HeadstartError` is a page with its message. Every page works without scripts, which refresh live pages and add keys.
"""

import hmac
import secrets
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import jinja2
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool
from starlette.middleware.base import BaseHTTPMiddleware

from components.core.errors import HeadstartError
from components.core.progress import duration
from components.core.steps import step
from components.data.tasks.budgets import budget_name
from components.data.tasks.kinds import find_kind
from components.pages import errors, graph, labelling, overview, retrainings, trying
from components.pages.project import VERDICTS, Link, Project
from components.reporting import figures
from components.reporting.advice import answer, labels_used
from components.reporting.marks import marked
from components.serving import http
from components.serving.http import Bodies, BodyError, address_of, configure, listen, names_of, token_for

COOKIE = "headstart_token"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With `no-referrer`, browsers send the origin `null` with forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Guard(http.Guard):
    """The rules above as a middleware."""

    secret: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    async def __call__(self, request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = self._refused(request) or await call_next(request)
        for name, value in HEADERS.items():
            response.headers[name] = value
        return response

    def _refused(self, request: Request) -> Response | None:
        if (foreign := self.foreign(request.method, request.headers)) is not None:
            return PlainTextResponse(foreign[1], status_code=foreign[0])
        return self._without_token(request) if self.token else None

    def _without_token(self, request: Request) -> Response | None:
        given = request.query_params.get("token", "")
        if given and self.is_token(given):
            # The token does not stay in the address, where it would be copied with it.
            response = RedirectResponse(request.url.path, status_code=303)
            response.set_cookie(COOKIE, given, httponly=True, samesite="strict", path="/")
            return response
        if self.has_token(request.headers) or self.is_token(request.cookies.get(COOKIE, "")):
            return None
        return PlainTextResponse(
            "the token is missing or wrong: open the address with ?token=... that `headstart ui` prints",
            status_code=401,
        )

    def is_form(self, secret: str) -> bool:
        return hmac.compare_digest(secret.encode(), self.secret.encode())


STATIC = {"style.css": "text/css", "pages.js": "text/javascript", "icon.svg": "image/svg+xml"}
#: Maximum size of a form in bytes, and its maximum number of fields.
LARGEST = 200_000
FIELDS = 1000
NAVIGATION = (
    ("/", "Overview"),
    ("/runs", "Runs"),
    ("/try", "Try"),
    ("/label", "Label"),
    ("/errors", "Errors"),
    ("/lineage", "Lineage"),
)


class Pages:
    """Renders the pages of a project."""

    def __init__(self, project: Project, guard: Guard) -> None:
        self.project, self.guard = project, guard
        self.models, self.similar = trying.Models(project), trying.Similar()
        self.labelling = labelling.Labelling(project)
        loader = jinja2.PackageLoader("components.pages", "templates")
        self._templates = jinja2.Environment(
            loader=loader,
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
            finalize=marked,
        )
        self._templates.filters |= {"duration": duration, "budget": budget_name, "query": urlencode}
        self._templates.filters |= {"answer": answer, "labels_used": labels_used}
        self._templates.filters["day"] = lambda seconds: f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
        # matplotlib's settings belong to the process.
        self._drawing = threading.Lock()

    def page(self, template: str, path: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        text = self._templates.get_template(template).render(
            navigation=NAVIGATION, path=path, project=self.project, csrf=self.guard.secret, **values
        )
        return HTMLResponse(text, status_code=status)

    def lines(self, curves: Mapping[str, figures.Line], *, x_label: str, y_label: str) -> str:
        """Draw curves as SVG."""
        with self._drawing:
            return figures.lines(curves, x_label=x_label, y_label=y_label)

    def overview(self) -> Response:
        """What is served, whether transfer helped, what to do next."""
        with self._drawing:
            tasks = [overview.task(self.project, name) for name in self.project.settings.run.tasks]
        listed, problem = retrainings.listed(self.project)
        return self.page(
            "overview.html.j2",
            "/",
            tasks=tasks,
            cost=overview.cost(self.project),
            runs=listed[:5],
            problem=problem,
            verdicts=VERDICTS,
            report=(self.project.out / "report" / "report.html").is_file(),
        )

    def runs(self) -> Response:
        listed, problem = retrainings.listed(self.project)
        return self.page("runs.html.j2", "/runs", runs=listed, problem=problem)

    def run(self, identifier: str) -> Response:
        run = retrainings.find(self.project, identifier)
        if run is None:
            return self.missing(f"no retraining {identifier!r}; the page Runs lists them")
        drawn = {stage["name"]: self._curves(stage["curves"]) for stage in run["stages"]}
        return self.page("run.html.j2", "/runs", run=run, drawn=drawn, not_run=retrainings.NOT_RUN)

    def _curves(self, of_stage: Mapping[str, figures.Line]) -> list[tuple[str, str]]:
        groups: dict[str, dict[str, figures.Line]] = {}
        for key, line in of_stage.items():
            quantity, _, piece = key.partition("/")
            groups.setdefault(quantity, {})[piece or quantity] = line
        return [
            (
                quantity.replace("_", " ") + (f" ({retrainings.CURVES} of {len(curves)})" if more else ""),
                self.lines(
                    dict(list(curves.items())[: retrainings.CURVES]), x_label="step", y_label=quantity.replace("_", " ")
                ),
            )
            for quantity, curves in groups.items()
            if (more := len(curves) > retrainings.CURVES) or curves
        ]

    def trial(self, form: Mapping[str, str]) -> Response:
        """A text and its predictions; without a text, the form."""
        settings = self.project.settings
        task = self._task(form.get("task", ""))
        source = settings.data.tasks[task]
        io = find_kind(source.kind).io
        inputs = {name: form.get(name, "")[: trying.LONGEST] for name in io.inputs}
        champion = self.project.champion(task)
        values: dict[str, Any] = {
            "task": task,
            "tasks": settings.run.tasks,
            "inputs": inputs,
            "types": io.inputs,
            "examples": [],
            "words": io.separator == " ",
            "shown": trying.SHOWN,
            "champion": champion,
            "decision": self.project.decision(task),
            "predictions": [],
            "neighbours": [],
            "problem": "",
        }
        if any(text.strip() for text in inputs.values()):
            values |= self._predictions(task, inputs, champion)
        with suppress(HeadstartError):
            values["examples"] = trying.examples(self.project.examples(task), io)
        return self.page("try.html.j2", "/try", **values)

    def _predictions(self, task: str, inputs: Mapping[str, str], champion: Any) -> dict[str, Any]:
        io = find_kind(self.project.settings.data.tasks[task].kind).io
        fields = io.parse(trying.input_of(inputs, io))
        if fields is None:
            return {"problem": "a part of the input is empty"}
        challenger = self.project.challenger(task)
        versions = [(champion.version, "current model")] if champion.version is not None else []
        if challenger is not None and (not versions or challenger.number != champion.version.number):
            versions.append((challenger, "candidate of the last run" if versions else "best candidate"))
        predictions = [self.models.predict(version, fields, role=role) for version, role in versions]
        neighbours: list[trying.Neighbour] = []
        if (facts := self.project.facts(task)) is not None and predictions:
            budget, seeds = self.project.learned_from(task, predictions[0]["version"])
            text = "\n".join(fields)
            neighbours = self.similar.find(self.project.examples(task), facts, text, budget=budget, seeds=seeds)
        return {"predictions": predictions, "neighbours": neighbours}

    def labels(self, task: str = "") -> Response:
        """The next text to label."""
        settings = self.project.settings
        task = self._task(task)
        session = self.labelling.session(task)
        counts, problem = None, ""
        try:
            counts = self.labelling.counts(task)
        except HeadstartError as error:
            problem = str(error)
        shown = session.next
        shares = sorted((shown.probabilities if shown else {}).items(), key=lambda item: -item[1])
        return self.page(
            "label.html.j2",
            "/label",
            task=task,
            tasks=settings.run.tasks,
            session=session,
            multiple=settings.data.tasks[task].several,
            counts=counts,
            problem=problem,
            shares=shares,
            shown_labels=trying.SHOWN,
            evaluation=self.project.evaluation(task),
            suggest=step("suggest", task=task),
            merge=step("label", file=f"{task}-to-label.csv", task=task),
            count=labelling.COUNT,
        )

    def label(self, form: Mapping[str, Sequence[str]]) -> Response:
        """An answer, a skip, an undo, or the choice of further texts."""
        if not self.project.write:
            return PlainTextResponse("the pages were started read-only; use `headstart ui --write`", status_code=403)
        task, key = self._task(form.get("task", [""])[-1]), form.get("key", [""])[-1]
        labels = [label.strip() for label in form.get("label", []) if label.strip()]
        match form.get("action", [""])[-1]:
            case "answer":
                self.labelling.answer(task, key, labels)
            case "new" if labels:
                self.labelling.answer(task, key, labels, new=True)
            case "skip":
                self.labelling.answer(task, key, None)
            case "undo":
                self.labelling.undo(task)
            case "choose":
                self.labelling.choose(task)
        return RedirectResponse(f"/label?{urlencode({'task': task})}", status_code=303)

    def _task(self, name: str) -> str:
        """A task of the run; the first one instead of an unknown one."""
        tasks = self.project.settings.run.tasks
        return name if name in tasks else tasks[0]

    def errors(self, query: Mapping[str, str]) -> Response:
        tasks, task = self.project.settings.run.tasks, self._task(query.get("task", ""))
        result = errors.read_errors(self.project, task, query)
        return self.page("errors.html.j2", "/errors", tasks=tasks, task=task, shown=result, page_size=errors.PAGE)

    def lineage(self, node: str = "") -> Response:
        """The steps from the data to the served model; the facts of `node` are shown."""
        result = graph.picture(self.project, chosen=node)
        return self.page("lineage.html.j2", "/lineage", picture=result, size=(graph.WIDTH, graph.HEIGHT))

    def report(self) -> Response:
        path = self.project.out / "report" / "report.html"
        if not path.is_file():
            return self.missing(f"there is no report yet; `headstart retrain{self.project.flags}` writes it")
        return HTMLResponse(path.read_text(encoding="utf-8"))

    def missing(self, message: str) -> Response:
        return self.page("problem.html.j2", "", status=404, title="Not found", message=message)

    def unknown(self) -> Response:
        return self.missing("no such page")

    def problem(self, error: HeadstartError) -> Response:
        return self.page("problem.html.j2", "", status=500, title="This page cannot be shown", message=str(error))


def create_app(project: Project, guard: Guard) -> FastAPI:
    app = FastAPI(title="Headstart", docs_url=None, redoc_url=None, openapi_url=None)
    pages, bodies = Pages(project, guard), Bodies(LARGEST)
    app.add_middleware(BaseHTTPMiddleware, dispatch=guard)

    @app.exception_handler(HeadstartError)
    async def failed(request: Request, error: HeadstartError) -> Response:
        return await run_in_threadpool(pages.problem, error)

    async def posted(request: Request, answer: Callable[[dict[str, list[str]]], Response]) -> Response:
        form = await read_form(request, guard, bodies)
        return form if isinstance(form, Response) else await run_in_threadpool(answer, form)

    @app.get("/try")
    def trial(task: str = "") -> Response:
        return pages.trial({"task": task})

    @app.post("/try")
    async def tried(request: Request) -> Response:
        # A text is sent in the body, so that it is in no address and no log.
        return await posted(request, lambda form: pages.trial({name: values[-1] for name, values in form.items()}))

    @app.post("/label")
    async def label(request: Request) -> Response:
        return await posted(request, pages.label)

    @app.get("/errors")
    def wrong(request: Request) -> Response:
        return pages.errors(request.query_params)

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in STATIC:
            return PlainTextResponse("no such file", status_code=404)
        path = Path(__file__).parent / "static" / name
        return Response(path.read_bytes(), media_type=f"{STATIC[name]}; charset=utf-8")

    shown: dict[str, Callable[..., Response]] = {
        "/": pages.overview,
        "/runs": pages.runs,
        "/runs/{identifier}": pages.run,
        "/label": pages.labels,
        "/lineage": pages.lineage,
        "/report": pages.report,
        "/{path:path}": pages.unknown,
    }
    for path, page in shown.items():
        app.add_api_route(path, page, response_model=None)
    return app


async def read_form(request: Request, guard: Guard, bodies: Bodies) -> dict[str, list[str]] | Response:
    """The fields of a form of this server, or the refusal of another one."""
    try:
        async with bodies.read(request.headers, request.receive) as body:
            fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=FIELDS)
    except BodyError as error:
        return PlainTextResponse(str(error), status_code=error.status)
    except ValueError:
        return PlainTextResponse("the form is damaged", status_code=400)
    if not guard.is_form(fields.pop("csrf", [""])[-1]):
        return PlainTextResponse("the form is too old; load the page again", status_code=403)
    return fields


PORT = 5002
SHUTDOWN_S = 3


class PagesServer:
    """The server of the pages. `address`: that a person opens; with the token, if there is one."""

    def __init__(
        self,
        params: Path,
        *,
        root: Path,
        host: str = "127.0.0.1",
        port: int = PORT,
        names: Sequence[str] = (),
        write: bool = False,
        links: Sequence[Link] = (),
    ) -> None:
        self._listener = listen(host, port)
        token = token_for(self._listener)
        project = Project(params, root=root, write=write, links=links)
        bound = self._listener.getsockname()[0]
        guard = Guard.of(bound, names=names_of(self._listener, host, names), token=token)
        self.address = f"{address_of(self._listener, host)}/" + (f"?token={token}" if token else "")
        self._server = uvicorn.Server(configure(create_app(project, guard), shutdown_seconds=SHUTDOWN_S))
        # The first connection to the registry imports MLflow, which takes seconds.
        threading.Thread(target=_connect, args=[project], name="connect", daemon=True).start()

    def run(self, *, started: Callable[[], None] = lambda: None) -> None:
        """Serve until a signal; `started` is called when connections are accepted."""
        self._listener.listen()
        started()
        try:
            self._server.run(sockets=[self._listener])
        finally:
            self.close()

    def stop(self) -> None:
        """End `run` from another thread."""
        self._server.should_exit = True

    def close(self) -> None:
        self._listener.close()


def _connect(project: Project) -> None:
    with suppress(HeadstartError):
        project.registry()
