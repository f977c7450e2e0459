"""Many endpoints as one: work goes where there is room, endpoints that fail are left alone until they are well again, and work
that an endpoint lost is given to another.

A task may run more than once (an endpoint that vanishes may have run it), its result is returned once. Never retried: what the
endpoint refuses (400, 401, 409...), and what the record calls the task's own fault.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import os
import threading
from typing import Any, AsyncIterator, Callable, Coroutine, Deque, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union

from . import _calls
from ._adrive import adrive
from ._ahttp import AsyncTransport
from ._endpoint import Endpoint, probe
from .bodies import ExecResult, FinishResult, SessionStartSpec, TaskResult, TaskSpec
from .errors import TaskExecutorError

T = TypeVar("T")

URL_VARIABLES = ("BRIG_URLS", "DOCKYARD_SANDBOX_URLS")
GRACE_S = 2.0  # how long an endpoint may be unreachable before its work goes to another
ATTEMPTS = 3  # endpoints tried for one piece of work
INFRASTRUCTURE = frozenset({"interrupted", "disk_full", "internal"})  # error.code of a record that another endpoint may cure

Outcome = Union[TaskResult, TaskExecutorError]
Progress = Callable[[int, int, Outcome], None]  # how many have ended, of how many, the one that just did


def urls_of_environment() -> List[str]:
    """Comma-separated, of BRIG_URLS, else of DOCKYARD_SANDBOX_URLS."""
    for variable in URL_VARIABLES:
        urls = [u.strip() for u in os.environ.get(variable, "").split(",") if u.strip()]
        if urls:
            return urls
    raise ValueError(f"no endpoints: give urls, or set {' or '.join(URL_VARIABLES)}")


class _Waiter(NamedTuple):
    future: "asyncio.Future[Endpoint]"
    avoid: List[Endpoint]  # tried before: taken again only when no other is fit


class AsyncPool:
    """For one event loop; use it as `async with AsyncPool(...) as pool`.

    urls: None = of the environment. per_endpoint: work in flight at one endpoint; None = twice what it says it runs at once.
    max_in_flight: in flight in all; None = no further bound. attempts: endpoints tried for one piece of work.
    """

    def __init__(
        self,
        urls: Optional[Sequence[str]] = None,
        *,
        api_token: Optional[str] = None,
        per_endpoint: Optional[int] = None,
        max_in_flight: Optional[int] = None,
        attempts: int = ATTEMPTS,
        poll_interval: float = 2.0,
    ) -> None:
        if isinstance(urls, str):
            urls = [urls]
        self._endpoints = [Endpoint(u.rstrip("/"), per_endpoint) for u in (urls or urls_of_environment())]
        if per_endpoint is not None and per_endpoint < 1 or max_in_flight is not None and max_in_flight < 1 or attempts < 1:
            raise ValueError("per_endpoint, max_in_flight and attempts are at least 1")
        self._token, self._attempts, self._poll_interval = api_token, attempts, poll_interval
        self._max_in_flight = max_in_flight
        self._turn = 0
        self._monitors: List["asyncio.Task[None]"] = []

    async def __aenter__(self) -> "AsyncPool":
        self._transport = AsyncTransport()
        self._waiting: Deque[_Waiter] = collections.deque()
        self._monitors = [asyncio.ensure_future(self._monitor(e)) for e in self._endpoints]
        return self

    async def __aexit__(self, *_: object) -> None:
        for m in self._monitors:
            m.cancel()
        await asyncio.gather(*self._monitors, return_exceptions=True)
        self._transport.close()

    def status(self) -> List[Dict[str, Any]]:
        """Of each endpoint: url, well, in_flight, capacity, last_error."""
        return [
            {"url": e.url, "well": e.well, "in_flight": e.in_flight, "capacity": e.capacity, "last_error": e.last_error}
            for e in self._endpoints
        ]

    # ---- tasks -----------------------------------------------------------------------------------------------------------

    async def run_task(self, spec: TaskSpec, *, overall_timeout: Optional[float] = None, cleanup: bool = True) -> TaskResult:
        """The task's record. overall_timeout: of one attempt, from its submission (None: as brig.run_task)."""
        limit = _calls.task_timeout(spec) if overall_timeout is None else overall_timeout
        failed: List[Endpoint] = []
        for attempt in range(1, self._attempts + 1):
            endpoint = await self._take(failed)
            try:
                result = await self._attempt(endpoint, spec, limit, cleanup)
                if attempt == self._attempts or _code(result) not in INFRASTRUCTURE:
                    return result
            except TaskExecutorError as e:
                if not self._blame(endpoint, e) or attempt == self._attempts:
                    raise
            finally:
                self._give_back(endpoint)
            failed.append(endpoint)
        raise AssertionError("not reached")

    async def as_completed(
        self, specs: Iterable[TaskSpec], *, progress: Optional[Progress] = None
    ) -> AsyncIterator[Tuple[int, Outcome]]:
        """(index in specs, record or error), in order of completion. Leaving the loop cancels what is still running."""
        todo = list(specs)
        running = {asyncio.ensure_future(self._outcome(i, spec)) for i, spec in enumerate(todo)}
        done = 0
        try:
            while running:
                ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    done += 1
                    index, outcome = task.result()
                    if progress:
                        progress(done, len(todo), outcome)
                    yield index, outcome
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def map(self, specs: Iterable[TaskSpec], *, progress: Optional[Progress] = None) -> List[Outcome]:
        """Records or errors, in the order of specs."""
        outcomes: Dict[int, Outcome] = {}
        async for index, outcome in self.as_completed(specs, progress=progress):
            outcomes[index] = outcome
        return [outcomes[i] for i in range(len(outcomes))]

    # ---- sessions --------------------------------------------------------------------------------------------------------

    async def start_session(self, spec: SessionStartSpec, *, overall_timeout: Optional[float] = None) -> "AsyncPoolSession":
        """A session that is ready, on some endpoint; it counts there until it is finished or deleted."""
        failed: List[Endpoint] = []
        for attempt in range(1, self._attempts + 1):
            endpoint = await self._take(failed)
            try:
                call = _calls.start_session(endpoint.url, spec, self._token, self._poll_interval, overall_timeout, 30.0, True)
                return AsyncPoolSession(self, endpoint, await adrive(call, self._transport))
            except BaseException as e:
                self._give_back(endpoint)
                if not isinstance(e, TaskExecutorError) or not self._blame(endpoint, e) or attempt == self._attempts:
                    raise
            failed.append(endpoint)
        raise AssertionError("not reached")

    # ---- inside ----------------------------------------------------------------------------------------------------------

    async def _attempt(self, endpoint: Endpoint, spec: TaskSpec, limit: float, cleanup: bool) -> TaskResult:
        grace = GRACE_S if len(self._endpoints) > 1 else _calls.UNREACHABLE_MAX_S
        call = _calls.run_task(endpoint.url, spec, self._token, self._poll_interval, limit, cleanup, True, grace)
        return await adrive(call, self._transport)

    async def _outcome(self, index: int, spec: TaskSpec) -> Tuple[int, Outcome]:
        try:
            return index, await self.run_task(spec)
        except TaskExecutorError as e:
            return index, e

    @staticmethod
    def _blame(endpoint: Endpoint, e: TaskExecutorError) -> bool:
        """Whether another endpoint may do better; this one then gets its rest."""
        if e.status is None or e.status == 503:
            endpoint.failed(str(e), e.retry_after)
            return True
        return e.status in (404, 500, 502, 504)  # 404: it was accepted, and the endpoint has forgotten it

    def _choose(self, avoid: Sequence[Endpoint]) -> Optional[Endpoint]:
        if self._max_in_flight is not None and sum(e.in_flight for e in self._endpoints) >= self._max_in_flight:
            return None
        n = len(self._endpoints)
        turn = [self._endpoints[(self._turn + i) % n] for i in range(n)]
        fit = [e for e in turn if e.well and e.free > 0]
        fit = [e for e in fit if e not in avoid] or fit
        if not fit:
            return None
        best = max(fit, key=lambda e: e.free)  # the first of those with most room: turns go round
        self._turn = (self._endpoints.index(best) + 1) % n
        return best

    async def _take(self, avoid: Sequence[Endpoint]) -> Endpoint:
        """An endpoint with room, counted; first come, first served."""
        waiter = _Waiter(asyncio.get_running_loop().create_future(), list(avoid))
        self._waiting.append(waiter)
        self._dispatch()
        try:
            return await waiter.future
        except asyncio.CancelledError:
            if waiter.future.done() and not waiter.future.cancelled():
                self._give_back(waiter.future.result())
            raise

    def _dispatch(self) -> None:
        while self._waiting:
            if self._waiting[0].future.done():  # cancelled
                self._waiting.popleft()
                continue
            endpoint = self._choose(self._waiting[0].avoid)
            if endpoint is None:
                return
            endpoint.in_flight += 1
            self._waiting.popleft().future.set_result(endpoint)

    def _give_back(self, endpoint: Endpoint) -> None:
        endpoint.in_flight -= 1
        self._dispatch()

    async def _monitor(self, endpoint: Endpoint) -> None:
        while True:
            await adrive(probe(endpoint, self._token), self._transport)
            self._dispatch()
            # In steps, because a failure may shorten the rest; each step ends with a look at the clock.
            while (left := endpoint.next_probe()) > 0:
                await asyncio.sleep(min(left, 0.25) if not endpoint.well else left)
                if endpoint.well:
                    break


def _code(result: TaskResult) -> str:
    error = result.get("error")
    return str(error.get("code", "")) if isinstance(error, dict) else ""


class AsyncPoolSession:
    """A session of a pool. Leaving `async with` deletes it, unless it is finished."""

    def __init__(self, pool: AsyncPool, endpoint: Endpoint, session_id: str) -> None:
        self._pool, self._endpoint, self.session_id = pool, endpoint, session_id
        self._over = False

    @property
    def url(self) -> str:
        return self._endpoint.url

    async def exec(
        self, command: str, *, timeout: int = 60, cwd: Optional[str] = None, output_limit: Optional[int] = None
    ) -> ExecResult:
        call = _calls.session_exec(self.url, self.session_id, command, timeout, cwd, output_limit, self._pool._token, None)
        return await adrive(call, self._pool._transport)

    async def export(self, *, path: str = "/workspace", timeout: int = 300) -> str:
        call = _calls.session_export(self.url, self.session_id, path, timeout, self._pool._token, None)
        return await adrive(call, self._pool._transport)

    async def finish(
        self,
        *,
        harness_files: Optional[Mapping[str, Any]] = None,
        harness_mount: Optional[str] = None,
        test_command: Optional[str] = None,
        result_files: Optional[List[str]] = None,
        timeout: int = 600,
        output_limit: Optional[int] = None,
    ) -> FinishResult:
        call = _calls.session_finish(
            self.url,
            self.session_id,
            harness_files,
            harness_mount,
            test_command,
            result_files,
            timeout,
            output_limit,
            self._pool._token,
            None,
        )
        answer = await adrive(call, self._pool._transport)
        self._end()
        return answer

    async def delete(self) -> None:
        if not self._over:
            await adrive(_calls.delete_session(self.url, self.session_id, self._pool._token, 30.0), self._pool._transport)
            self._end()

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._pool._give_back(self._endpoint)

    async def __aenter__(self) -> "AsyncPoolSession":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.delete()


class Pool:
    """AsyncPool for threads: an event loop in a thread of its own. Safe from any thread; use it as `with Pool(...) as pool`."""

    def __init__(
        self,
        urls: Optional[Sequence[str]] = None,
        *,
        api_token: Optional[str] = None,
        per_endpoint: Optional[int] = None,
        max_in_flight: Optional[int] = None,
        attempts: int = ATTEMPTS,
        poll_interval: float = 2.0,
    ) -> None:
        self._pool = AsyncPool(
            urls,
            api_token=api_token,
            per_endpoint=per_endpoint,
            max_in_flight=max_in_flight,
            attempts=attempts,
            poll_interval=poll_interval,
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="brig-pool", daemon=True)
        self._thread.start()
        self._closed = False
        self._wait(self._pool.__aenter__())

    def close(self) -> None:
        """Cancels what is still running, and waits until its tasks are told so."""
        if self._closed:
            return
        self._closed = True
        self._wait(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def status(self) -> List[Dict[str, Any]]:
        """As AsyncPool.status()."""
        return self._pool.status()

    def submit(self, spec: TaskSpec) -> "concurrent.futures.Future[TaskResult]":
        """Begins a task; the future has its record, or raises TaskExecutorError. Cancelling the future cancels the task."""
        return asyncio.run_coroutine_threadsafe(self._pool.run_task(spec), self._loop)

    def run_task(self, spec: TaskSpec, *, overall_timeout: Optional[float] = None, cleanup: bool = True) -> TaskResult:
        return self._wait(self._pool.run_task(spec, overall_timeout=overall_timeout, cleanup=cleanup))

    def map(self, specs: Iterable[TaskSpec], *, progress: Optional[Progress] = None) -> Iterator[Outcome]:
        """Records or errors, in the order of specs, each as soon as it and all before it are there. progress is called in the
        pool's thread. Leaving the iterator early cancels the rest."""
        futures = [asyncio.run_coroutine_threadsafe(self._pool._outcome(i, s), self._loop) for i, s in enumerate(specs)]
        lock, done = threading.Lock(), [0]

        def count(future: "concurrent.futures.Future[Tuple[int, Outcome]]") -> None:
            if progress and not future.cancelled():
                with lock:
                    done[0] += 1
                    progress(done[0], len(futures), future.result()[1])

        for f in futures:
            f.add_done_callback(count)
        return self._in_order(futures)

    def start_session(self, spec: SessionStartSpec, *, overall_timeout: Optional[float] = None) -> "PoolSession":
        return PoolSession(self, self._wait(self._pool.start_session(spec, overall_timeout=overall_timeout)))

    @staticmethod
    def _in_order(futures: "List[concurrent.futures.Future[Tuple[int, Outcome]]]") -> Iterator[Outcome]:
        try:
            for f in futures:
                yield f.result()[1]
        finally:
            for f in futures:
                f.cancel()

    async def _shut(self) -> None:
        rest = [t for t in asyncio.all_tasks() if t is not asyncio.current_task() and t not in self._pool._monitors]
        for t in rest:
            t.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self._pool.__aexit__()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # an interrupt here ends the work there
            raise


class PoolSession:
    """A session of a Pool. Leaving `with` deletes it, unless it is finished."""

    def __init__(self, pool: Pool, session: AsyncPoolSession) -> None:
        self._pool, self._session = pool, session
        self.session_id, self.url = session.session_id, session.url

    def exec(
        self, command: str, *, timeout: int = 60, cwd: Optional[str] = None, output_limit: Optional[int] = None
    ) -> ExecResult:
        return self._pool._wait(self._session.exec(command, timeout=timeout, cwd=cwd, output_limit=output_limit))

    def export(self, *, path: str = "/workspace", timeout: int = 300) -> str:
        return self._pool._wait(self._session.export(path=path, timeout=timeout))

    def finish(
        self,
        *,
        harness_files: Optional[Mapping[str, Any]] = None,
        harness_mount: Optional[str] = None,
        test_command: Optional[str] = None,
        result_files: Optional[List[str]] = None,
        timeout: int = 600,
        output_limit: Optional[int] = None,
    ) -> FinishResult:
        return self._pool._wait(
            self._session.finish(
                harness_files=harness_files,
                harness_mount=harness_mount,
                test_command=test_command,
                result_files=result_files,
                timeout=timeout,
                output_limit=output_limit,
            )
        )

    def delete(self) -> None:
        self._pool._wait(self._session.delete())

    def __enter__(self) -> "PoolSession":
        return self

    def __exit__(self, *_: object) -> None:
        self.delete()
