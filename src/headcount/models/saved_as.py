"""What a checkpoint was saved as, by its config: which class loads it, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headcount.errors import HeadcountError


def loading_class(where: str, settings: Mapping[str, Any]) -> Any:
    """The class of transformers that loads a checkpoint with this config; refuses encoder-decoders.

    Models of images or sound are loaded too, if they are language models: they are given only text.
    """
    from transformers import AutoModelForCausalLM, AutoModelForMultimodalLM
    from transformers.models.auto import modeling_auto

    if "AutoModelForCausalLM" in (settings.get("auto_map") or {}):
        return AutoModelForCausalLM
    causal = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    saved = saved_class(settings)
    if settings.get("is_encoder_decoder") and saved not in causal.values():
        named = f" ({saved})" if saved else ""
        raise HeadcountError(
            f"{where} is not a causal language model: it is an encoder-decoder{named}, and its "
            "encoder sees the whole input."
        )
    kind = settings.get("model_type")
    if kind in modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES and kind not in causal:
        return AutoModelForMultimodalLM
    return AutoModelForCausalLM


def saved_class(settings: Mapping[str, Any]) -> str:
    """The class that the checkpoint was saved as, or an empty text.

    >>> saved_class({"architectures": ["LlamaModel"]}), saved_class({"architectures": None})
    ('LlamaModel', '')
    """
    names = settings.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def check_head(where: str, settings: Mapping[str, Any], model: Any, missing: Iterable[str]) -> None:
    """Refuse a checkpoint that lacks weights because it was saved without a language-model head."""
    import transformers
    from transformers.models.auto import modeling_auto

    missing, wanted, saved = list(missing), type(model).__name__, saved_class(settings)
    if not missing or saved in ("", wanted):
        return
    if saved in modeling_auto.MODEL_MAPPING_NAMES.values():
        why = f"was saved without its language-model head ({saved})"
        known = not any(name.startswith(f"{model.base_model_prefix}.") for name in missing)
    else:
        why = f"was saved as {saved}, not as a causal language model"
        language = (
            *modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values(),
            *modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES.values(),
        )
        known = hasattr(transformers, saved) and saved not in language
    if known:  # else weights are missing for another reason
        raise HeadcountError(f"{where} {why}: give a checkpoint of {wanted}.")
