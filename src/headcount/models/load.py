"""Load a causal language model and its tokenizer: by name, from a file, a folder or the hub.

The result is an ordinary Hugging Face model and tokenizer, ready to measure: every weight comes
from the checkpoint, the model is in evaluation mode, and gradients are off. A model that cannot be
loaded like this is refused with one sentence.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError, did_you_mean
from headcount.models.bundled import BUNDLED, bundled_folder, full_name
from headcount.models.converted import converted_folder, restore_rules
from headcount.models.gguf import read_gguf, read_header
from headcount.models.kinds import KINDS
from headcount.models.load_errors import check_report, plain_errors, shorten
from headcount.models.load_options import (
    LoadOptions,
    check_attention,
    check_device,
    has_accelerate,
    kernels_in,
)
from headcount.models.saved_as import check_head, loading_class
from headcount.system.bundled import read_manifest
from headcount.system.transformers_compat import quiet_transformers

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth")
ADAPTER = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
NO_TOKENIZER = (
    "{} holds no tokenizer that transformers can load: save one into its folder with "
    "tokenizer.save_pretrained."
)


@dataclass
class Loaded:
    """A model with its tokenizer, its name and its files.

    `files` are the weight and config files, whose checksums identify the model in the store.
    `unused` are weights in the checkpoint that the model class does not have, such as the vision
    tower of a multimodal checkpoint. `stored` is the format of the weights in a file of fewer bits.
    """

    model: Any
    tokenizer: Any
    name: str
    files: list[Path] | None = None
    unused: list[str] = field(default_factory=list)
    stored: str = ""


def load_pretrained(spec: str | Path, **chosen: Any) -> Loaded:
    """Load `spec`: a bundled name, a .gguf file, a folder, or the id of a model on the hub.

    `KINDS` adds further kinds of names and folders, such as sparse:NAME. `chosen` are the fields of
    `LoadOptions`.
    """
    spec, options = str(spec), LoadOptions(**chosen)
    with plain_errors(spec, attention=options.attention):
        loaded = load_spec(spec, options)
        if options.device_map is None and not has_accelerate():
            loaded.model.to(check_device(options.device))
    loaded.model.eval()
    loaded.model.requires_grad_(False)
    if loaded.unused:
        print(
            f"{loaded.name}: {type(loaded.model).__name__} does not use some weights of the "
            f"checkpoint ({shorten(loaded.unused)}).",
            file=sys.stderr,
        )
    return loaded


def load_spec(spec: str, options: LoadOptions) -> Loaded:
    """Decide what kind of model `spec` names, and load it."""
    spec = full_name(spec)
    path = Path(spec).expanduser()
    if options.revision is not None and (spec in BUNDLED or path.exists()):
        raise HeadcountError(
            f"Only a model on the hub has revisions, so leave the revision of {spec} out."
        )
    if spec in BUNDLED:
        loaded = load_folder(bundled_folder(spec), options, spec)
        return replace(loaded, stored=BUNDLED[spec].stored)
    for kind in KINDS:
        if (folder := kind.folder_of(spec)) is not None:
            of_kind: Loaded = kind.loader.load(folder, options, spec)
            return of_kind
    if path.is_file():
        return _from_gguf(path, options)
    if path.is_dir():
        adapter = (path / ADAPTER).exists()
        return _from_adapter(path, options) if adapter else load_folder(path, options)
    if looks_like_path(spec):
        raise HeadcountError(
            f"There is no file or folder {spec}: give a .gguf file, a folder with a model, the id "
            f"of a model on the hub (org/name), or a bundled name ({', '.join(BUNDLED)})."
        )
    hint = did_you_mean(spec, BUNDLED)
    if hint and "/" not in spec:  # few hub ids have no owner; none is like a bundled name
        raise HeadcountError(f'There is no model "{spec}".{hint}')
    return _from_hub(spec, options)


def looks_like_path(spec: str) -> bool:
    """Whether `spec` must be a path: a hub id has at most one slash and no file ending.

    >>> [looks_like_path(s) for s in ("gpt2", "org/name", "./name", "a/b/c", "model.gguf")]
    [False, False, True, True, True]
    """
    return (
        spec.startswith((".", "/", "~"))
        or spec.endswith((".gguf", ".safetensors", ".bin", ".pt", "/"))
        or spec.count("/") > 1
        or "\\" in spec
    )


def _from_gguf(path: Path, options: LoadOptions) -> Loaded:
    if path.suffix.lower() in PICKLES:
        raise HeadcountError(
            f"{path} is a pickle, which can run code when it is opened: save the model as "
            "safetensors (save_pretrained does), or, if it is a checkpoint of nanoGPT, run "
            f"headcount convert {path} --out FOLDER."
        )
    if path.suffix.lower() != ".gguf":
        raise HeadcountError(
            f"{path} is a file, but not a .gguf one: give the folder that holds config.json and "
            "the safetensors instead."
        )
    folder = converted_folder(path, options.dtype)
    if folder is not None:
        loaded = load_folder(folder, options, path.stem)
        restore_rules(loaded.tokenizer, folder)
        loaded.files, loaded.unused = [path], read_manifest(folder)["unused"]
        return replace(loaded, stored=read_header(path).stored)
    model, tokenizer, report = read_gguf(path, **options.for_transformers)
    unused = check_report(str(path), report)
    _check_tokenizer(tokenizer, str(path))
    return Loaded(model, tokenizer, path.stem, [path], unused, read_header(path).stored)


def load_folder(folder: Path, options: LoadOptions, name: str | None = None) -> Loaded:
    """Load a folder that a model was saved to."""
    if not (folder / CONFIG).exists():
        raise HeadcountError(
            f"{folder} holds no {CONFIG}: give the folder that a model was saved to with "
            "save_pretrained, or a .gguf file."
        )
    files = weight_files(folder)
    loaded = _from_pretrained(str(folder), options)
    loaded.name = name or folder.resolve().name
    loaded.files = [*files, folder / CONFIG]
    return loaded


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model's folder; missing files and pickles are refused."""
    chosen = json.loads((folder / CONFIG).read_text("utf-8")).get("transformers_weights")
    for name in [chosen] if chosen else [WEIGHTS, INDEX]:
        path = folder / name
        if path.exists() and name.endswith(".safetensors"):
            return [path]
        if path.exists() and name.endswith(".index.json"):
            return _shards(path)
    why = f"holds no weights: there is neither {WEIGHTS} nor {INDEX} in it"
    if any(path.suffix in PICKLES for path in folder.iterdir()):
        why = "holds its weights as pickles, which can run code when they are opened: save the "
        why += "model as safetensors first (save_pretrained does)"
    raise HeadcountError(f"{folder} {why}.")


def _shards(index: Path) -> list[Path]:
    names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    missing = [name for name in names if not (index.parent / name).exists()]
    if missing:
        raise HeadcountError(
            f"{index.parent} lacks {shorten(missing)}, which its {index.name} lists: download the "
            "model again."
        )
    return [index.parent / name for name in names]


def _from_hub(spec: str, options: LoadOptions) -> Loaded:
    from huggingface_hub import try_to_load_from_cache
    from transformers.utils.hub import cached_file
    from transformers.utils.peft_utils import find_adapter_config_file

    hub: dict[str, Any] = {
        "revision": options.revision or "main",
        "local_files_only": not hub_answers(),
    }
    with quiet_transformers():
        adapter = find_adapter_config_file(spec, **hub)
        if adapter is not None:
            cached_file(spec, ADAPTER_WEIGHTS, **hub)
    if adapter is not None:
        loaded = _from_adapter(Path(adapter).parent, options)
        loaded.name = spec
        return loaded
    loaded = _from_pretrained(spec, options, **hub)
    config = try_to_load_from_cache(spec, CONFIG, revision=hub["revision"])
    if isinstance(config, str):
        with suppress(HeadcountError):  # unusual file names: the tensors are hashed instead
            loaded.files = [*weight_files(Path(config).parent), Path(config)]
    return loaded


def hub_answers() -> bool:
    """Whether the hub can be reached: one short request instead of a minute of retries."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=5)
    except Exception:  # whatever the cause, only the local cache is left
        return False
    return True


def _from_adapter(folder: Path, options: LoadOptions) -> Loaded:
    """Load the base model of a PEFT adapter, and then the adapter itself."""
    loaded = load_spec(_adapter_base(folder), replace(options, revision=None))
    with quiet_transformers():
        report = loaded.model.load_adapter(str(folder)).to_dict()
    check_report(str(folder), report)
    if (folder / "tokenizer_config.json").exists():
        loaded.tokenizer = load_tokenizer(
            str(folder), {"trust_remote_code": options.trust_remote_code}
        )
    if loaded.files is not None:
        loaded.files += [folder / ADAPTER_WEIGHTS, folder / ADAPTER]
    loaded.name = folder.resolve().name
    return loaded


def _adapter_base(folder: Path) -> str:
    """The model that a PEFT adapter is for."""
    from transformers.utils.import_utils import is_peft_available

    base = json.loads((folder / ADAPTER).read_text("utf-8")).get("base_model_name_or_path")
    if not is_peft_available():
        why = "holds a PEFT adapter: install its library with pip install 'headcount[peft]'"
    elif not (folder / ADAPTER_WEIGHTS).exists():
        why = f"holds no {ADAPTER_WEIGHTS}: save the adapter as safetensors (pickles are not "
        why += "opened)"
    elif (folder / WEIGHTS).exists() or (folder / INDEX).exists():
        why = f"holds a whole model and a PEFT adapter: move {ADAPTER} and {ADAPTER_WEIGHTS} to a "
        why += "folder of their own, so that it is clear which one you mean"
    elif not base:
        why = f"does not name its base model: write its hub id or folder into {ADAPTER}, under "
        why += '"base_model_name_or_path"'
    elif (Path(base) / ADAPTER).exists():
        why = f"was trained on another PEFT adapter ({base}): merge that into its base model "
        why += "first, with merge_and_unload"
    else:
        return str(base)
    raise HeadcountError(f"{folder} {why}.")


def _from_pretrained(where: str, options: LoadOptions, **hub: Any) -> Loaded:
    """Load model and tokenizer with transformers; `hub` are further arguments for both."""
    from transformers import PretrainedConfig

    # Some settings of a config prevail over the kernel that the user chooses, so all are checked.
    settings, _ = PretrainedConfig.get_config_dict(where, **hub)
    for kernel in kernels_in(settings):
        check_attention(kernel, options.trust_remote_code, where)
    hub["trust_remote_code"] = options.trust_remote_code
    extra: dict[str, Any] = {"use_safetensors": True, "output_loading_info": True}
    if hub.get("local_files_only"):  # the search for adapters needs to be told separately
        extra["adapter_kwargs"] = {"local_files_only": True}
    with quiet_transformers():
        loaded: Any = loading_class(where, settings).from_pretrained(
            where, **extra, **options.for_transformers, **hub
        )
    model, report = loaded
    check_head(where, settings, model, report["missing_keys"])
    unused = check_report(where, report)
    return Loaded(model, load_tokenizer(where, hub), where, None, unused)


def load_tokenizer(where: str, hub: Mapping[str, Any]) -> Any:
    """The tokenizer of a folder or hub id; one that has only special tokens is refused."""
    from transformers import AutoTokenizer

    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(where, **hub)
    except ImportError:  # a missing library: transformers' own message names it
        raise
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise
        raise HeadcountError(NO_TOKENIZER.format(where)) from error
    _check_tokenizer(tokenizer, where)
    return tokenizer


def _check_tokenizer(tokenizer: Any, where: str) -> None:
    # Where files are missing, transformers builds some tokenizers with special tokens only.
    if len(tokenizer.get_vocab()) <= len(tokenizer.all_special_ids):
        raise HeadcountError(NO_TOKENIZER.format(where))
