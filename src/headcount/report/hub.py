"""Upload a finished result to the Hugging Face hub, as a dataset with a card."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError, counted
from headcount.models.bundled import BUNDLED, full_name
from headcount.report.page import environment
from headcount.report.read import Result, read_result
from headcount.system.folders import RECORD
from headcount.value_table import VALUES

LOGIN = "Uploading needs a login: run hf auth login, or set HF_TOKEN to a token that may write."
TAGS = ["headcount", "interpretability", "attention-heads"]


def upload(
    folder: str | Path,
    repo: str,
    *,
    private: bool = True,
    licence: str | None = None,
    token: str | None = None,
) -> str:
    """Upload the folder of a result to the dataset `repo` ("name" or "owner/name"): its address.

    A new dataset is private unless `private` is False; one that exists stays as it is. Only files
    that headcount wrote are uploaded, in one commit, with a README.md that shows them. `licence` is
    one of the hub's short names, such as cc-by-4.0.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, get_token

    folder, result = Path(folder), read_result(folder)
    if not (token or get_token()):
        raise HeadcountError(LOGIN)
    api = HfApi(token=token)
    files = [CommitOperationAdd(name, folder / name) for name in _files(folder, result.run)]
    try:
        made = api.create_repo(repo, repo_type="dataset", private=private, exist_ok=True)
        card = CommitOperationAdd("README.md", card_of(result, made.repo_id, licence).encode())
        message = f"{result.title}, by headcount {result.run['versions']['headcount']}"
        api.create_commit(made.repo_id, [card, *files], commit_message=message, repo_type="dataset")
    except Exception as error:  # the library lets errors of its network libraries through
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise HeadcountError(
            f"Cannot upload to the dataset {repo} ({reason.rstrip('.:')}): check its name, your "
            "login (hf auth whoami) and the network."
        ) from error
    return str(made)


def card_of(result: Result, repo: str, licence: str | None = None) -> str:
    """The README.md of a result: what the hub's viewer needs, the figure, claims and notes."""
    from huggingface_hub import DatasetCardData

    tables = {"points": "curves.csv", **result.run["tables"]}
    tables |= {"heads": "heads.csv"} if result.heads else {}
    # Without names for them, the viewer would take all tables for parts of one.
    configs: list[dict[str, Any]] = [
        {"config_name": title.lower().replace(" ", "-"), "data_files": name}
        for title, name in tables.items()
    ]
    configs[0]["default"] = True
    front = DatasetCardData(
        pretty_name=result.title, license=licence, tags=TAGS, configs=configs
    ).to_yaml()
    models = {name: _weights(name, facts) for name, facts in result.run["model"].items()}
    values = VALUES in result.run.get("files", ())
    template = environment().get_template("card.md")
    front = _Plain(front)
    card = template.render(result=result, front=front, models=models, values=values, repo=repo)
    return re.sub(r"\n{3,}", "\n\n", card)


class _Plain(str):
    """A text that a template prints as it is."""

    def __html__(self) -> str:
        return self


def _weights(name: str, facts: Mapping[str, Any]) -> str:
    words = f"{counted(sum(facts.get('heads', [])), 'head')}, {facts.get('dtype', '')}"
    bundled = BUNDLED.get(full_name(name).rpartition(":")[2])
    return words + (f", dequantised from {Path(bundled.member).name}" if bundled else "")


def _files(folder: Path, run: Mapping[str, Any]) -> list[str]:
    """The files that were written with the result; run.json may come from a stranger."""
    names = [*map(str, run.get("files", [])), RECORD]
    whole = folder.resolve()
    for name in names:
        path = (folder / name).resolve()
        if not path.is_file() or not path.is_relative_to(whole):
            raise HeadcountError(
                f"{folder} lacks the file {name!r} that its run.json names: run its command again."
            )
    return names
