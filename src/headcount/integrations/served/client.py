"""Requests to an OpenAI-compatible server: what is asked, what comes back, and what goes wrong."""

from __future__ import annotations

import json
import math
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from headcount.errors import HeadcountError

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before a request is sent again
PASSING = (408, 429, 500, 502, 503, 504)  # answers after which trying again may help
LONGEST = 300  # characters of a server's own message


class TokenScores(NamedTuple):
    """Of the last tokens of a text: log-probabilities, and which of them greedy decoding takes."""

    logprobs: list[float]
    greedy: list[bool]


class NotServedError(HeadcountError):
    """The server does not know a model or an adapter."""


@dataclass(frozen=True)
class Client:
    """The server at a URL; requests that fail in passing are sent again, after growing pauses."""

    url: str
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 600.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise HeadcountError(
                f'"{self.url}" is not the address of a server: write it as http://HOST:PORT.'
            )
        object.__setattr__(self, "url", self.url.rstrip("/").removesuffix("/v1"))

    def models(self) -> list[dict[str, Any]]:
        """What the server serves: the model, and the adapters that it knows already."""
        answer = self._send("/v1/models", None, pauses=())
        listed = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(listed, list) or not all(
            isinstance(one, dict) and isinstance(one.get("id"), str) for one in listed
        ):
            raise HeadcountError(
                f"{self.url} lists no models, so it is no OpenAI-compatible server: check the "
                "address."
            )
        return listed

    def version(self) -> str:
        """The version that vLLM tells; an empty text of other servers."""
        try:
            answer = self._send("/version", None, pauses=())
        except HeadcountError:
            return ""
        return str(answer.get("version", "")) if isinstance(answer, dict) else ""

    def score(self, model: str, ids: Sequence[int], count: int) -> TokenScores:
        """The scores of the last `count` tokens of a text, each after all tokens before it."""
        asked = {"max_tokens": 1, "echo": True, "logprobs": 1}
        return _scores(self._complete(model, ids, asked), ids, count, self.url)

    def write(
        self, model: str, ids: Sequence[int], new_tokens: int, stop: Sequence[str]
    ) -> tuple[str, bool]:
        """Continue a text greedily; tells also whether the text came to its end."""
        asked = {"max_tokens": new_tokens, **({"stop": list(stop)} if stop else {})}
        choice = self._complete(model, ids, asked)
        return str(choice.get("text", "")), choice.get("finish_reason") == "stop"

    def _complete(self, model: str, ids: Sequence[int], asked: dict[str, Any]) -> dict[str, Any]:
        # A model's own generation settings may penalise repetition, which would change the text.
        greedy = {"temperature": 0, "top_p": 1, "repetition_penalty": 1.0, "seed": 0}
        body = {"model": model, "prompt": list(ids), **greedy, **asked}
        answer = self._send("/v1/completions", body)
        choices = answer.get("choices") if isinstance(answer, dict) else None
        if not choices or not isinstance(choices[0], dict):
            raise HeadcountError(
                f"{self.url} answers without a completion: check the server's log."
            )
        choice: dict[str, Any] = choices[0]
        return choice

    def _send(self, path: str, body: Any, pauses: Sequence[float] | None = None) -> Any:
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers)
        why = ""
        for pause in (*(PAUSES if pauses is None else pauses), None):
            try:
                with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                    return json.loads(answer.read())
            except urllib.error.HTTPError as error:
                why = f"{error.code}, {_message(error)}"
                if error.code not in PASSING:
                    raise self._refused(error.code, why, body) from error
            except (urllib.error.URLError, HTTPException, OSError, ValueError) as error:
                cause = getattr(error, "reason", error)
                why = getattr(cause, "strerror", None) or str(cause) or type(error).__name__
            if pause is not None:
                time.sleep(pause)
        raise HeadcountError(
            f"No server answers at {self.url} ({why}): start it, or check the address."
        )

    def _refused(self, code: int, why: str, body: Any) -> HeadcountError:
        if code in (401, 403):
            return HeadcountError(f"{self.url} refuses access ({why}): give its api_key.")
        if code == 404 and body is not None:
            return NotServedError(f'{self.url} does not serve "{body["model"]}" ({why})')
        return HeadcountError(f"{self.url} refuses a request ({why}).")


def _message(error: urllib.error.HTTPError) -> str:
    """What the server says of an error, in one line."""
    text = error.read().decode("utf-8", "replace")
    try:
        document = json.loads(text)
        inner = document.get("error", document)
        text = str(inner.get("message", inner) if isinstance(inner, dict) else inner)
    except (ValueError, AttributeError):
        pass
    text = " ".join((text or str(error.reason)).split()).rstrip(".")
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _scores(choice: dict[str, Any], ids: Sequence[int], count: int, url: str) -> TokenScores:
    """Read the scores of the last tokens, from vLLM's own field or else from the echoed prompt."""
    last = range(len(ids) - count, len(ids))
    try:
        if isinstance(own := choice.get("prompt_logprobs"), list):
            entries = [own[place][str(ids[place])] for place in last]
            logprobs = [float(entry["logprob"]) for entry in entries]
            greedy = [entry["rank"] == 1 for entry in entries]
        else:
            echoed = choice["logprobs"]
            logprobs = [float(echoed["token_logprobs"][place]) for place in last]
            tops = [echoed["top_logprobs"][place] for place in last]
            greedy = [p >= max(top.values()) for p, top in zip(logprobs, tops, strict=True)]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise HeadcountError(
            f"{url} gives no log-probabilities of the tokens that it was sent: it must support "
            "echo with logprobs at /v1/completions, as vLLM does, and have the model's own "
            "tokenizer."
        ) from error
    if not all(map(math.isfinite, logprobs)):
        raise HeadcountError(f"{url} gives log-probabilities that are not finite numbers.")
    return TokenScores(logprobs, greedy)
