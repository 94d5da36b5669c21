"""A small OpenAI-compatible server on loopback that serves LoRA adapters, as vLLM does.

It holds a model of transformers, and PEFT applies an adapter for each request. It speaks what vLLM
speaks at /v1/models, /version and /v1/completions, and looks for adapters in a folder, as vLLM's
lora_filesystem_resolver does. `faults` are its ways to fail.
"""

from __future__ import annotations

import copy
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel


@dataclass
class TinyServer:
    """What the server holds, and what it was asked."""

    base: str
    module: Any
    tokenizer: Any
    adapters: Path
    form: str = "vllm"  # or "echo", which lacks vLLM's own field; or "none"
    ignores_adapters: bool = False
    key: str = ""
    dies_after: int | None = None  # requests
    busy: int = 0  # requests that are answered by 503 first
    asked: list[dict[str, Any]] = field(default_factory=list)
    most_at_once: int = 0
    url: str = ""
    _loaded: dict[str, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _now: int = 0

    def model(self, name: str) -> Any:
        """The model of this name, with its adapter; None if there is none."""
        if name == self.base:
            return self.module
        folder = self.adapters / name
        if name not in self._loaded and (folder / "adapter_config.json").exists():
            config = json.loads((folder / "adapter_config.json").read_text())
            if config["base_model_name_or_path"] != self.base:
                return None
            fresh = copy.deepcopy(self.module)
            self._loaded[name] = PeftModel.from_pretrained(fresh, str(folder)).eval()
        found = self._loaded.get(name)
        return self.module if self.ignores_adapters and found is not None else found

    @torch.no_grad()
    def complete(self, model: Any, body: dict[str, Any]) -> dict[str, Any]:
        """One choice, in the form of vLLM's completions."""
        ids = list(body["prompt"])
        logprobs = model(input_ids=torch.tensor([ids])).logits[0].float().log_softmax(-1)
        choice: dict[str, Any] = {"index": 0, "logprobs": None}
        if body.get("echo") and body.get("logprobs") and self.form != "none":
            steps = [logprobs[place - 1] for place in range(1, len(ids))]
            entries = [self.entry(step, token) for step, token in zip(steps, ids[1:], strict=True)]
            tops = [{self.word(int(s.argmax())): float(s.max())} for s in steps]
            said = [float(step[token]) for step, token in zip(steps, ids[1:], strict=True)]
            choice["logprobs"] = {
                "tokens": [self.word(token) for token in ids],
                "token_logprobs": [None, *said],
                "top_logprobs": [None, *tops],
            }
            if self.form == "vllm":
                choice["prompt_logprobs"] = [None, *entries]
        new, finished = self.continue_(model, ids, body)
        text = self.tokenizer.decode(new, skip_special_tokens=True)
        for stop in body.get("stop") or ():
            if stop in text:
                text, finished = text[: text.index(stop)], True
        echoed = self.tokenizer.decode(ids) if body.get("echo") else ""
        choice |= {"text": echoed + text, "finish_reason": "stop" if finished else "length"}
        return choice

    def continue_(
        self, model: Any, ids: Sequence[int], body: dict[str, Any]
    ) -> tuple[list[int], bool]:
        """Greedy tokens, and whether the end token came."""
        new: list[int] = []
        for _ in range(body.get("max_tokens", 16)):
            token = int(model(input_ids=torch.tensor([[*ids, *new]])).logits[0, -1].argmax())
            if token == self.tokenizer.eos_token_id:
                return new, True
            new.append(token)
        return new, False

    def word(self, token: int) -> str:
        return str(self.tokenizer.decode([token]))

    def entry(self, step: torch.Tensor, token: int) -> dict[str, Any]:
        """The prompt's token and the likeliest one, by id, as vLLM lists them."""
        return {
            str(chosen): {
                "logprob": float(step[chosen]),
                "rank": int((step > step[chosen]).sum()) + 1,
                "decoded_token": self.word(chosen),
            }
            for chosen in (int(step.argmax()), token)
        }

    def answer(self, path: str, key: str, body: Any) -> tuple[int, Any]:
        """Status and document."""
        if self.key and key != f"Bearer {self.key}":
            return 401, {"error": {"message": "Unauthorized"}}
        if path == "/version":
            return 200, {"version": "0.0.tiny"}
        if path == "/v1/models":
            names = [folder.name for folder in self.adapters.iterdir() if folder.is_dir()]
            listed = [{"id": self.base, "object": "model", "parent": None}]
            listed += [{"id": name, "object": "model", "parent": self.base} for name in names]
            return 200, {"object": "list", "data": listed}
        if path != "/v1/completions":
            return 404, {"detail": "Not Found"}
        with self._lock:
            self.asked.append(body)
            if self.busy:
                self.busy -= 1
                return 503, {"error": {"message": "busy", "type": "ServiceUnavailable"}}
            model = self.model(body["model"])
            if model is None:
                message = f"The model `{body['model']}` does not exist."
                return 404, {"error": {"message": message, "type": "NotFoundError", "code": 404}}
            choice = self.complete(model, body)
        return 200, {"object": "text_completion", "model": body["model"], "choices": [choice]}


def _handler(served: TinyServer, listener: list[Any]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(None)

        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            served._now += 1
            served.most_at_once = max(served.most_at_once, served._now)
            try:
                self.reply(json.loads(self.rfile.read(size)))
            finally:
                served._now -= 1

        def reply(self, body: Any) -> None:
            if served.dies_after is not None and len(served.asked) >= served.dies_after:
                listener[0].socket.close()  # no further connection; this one breaks off
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            status, document = served.answer(self.path, self.headers["Authorization"] or "", body)
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


@contextmanager
def running(served: TinyServer) -> Iterator[TinyServer]:
    """Serve at a free port of this machine."""
    holder: list[Any] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(served, holder))
    holder.append(server)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    served.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
