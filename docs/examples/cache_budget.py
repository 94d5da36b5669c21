"""A cache budget: which key/value heads must see the whole text, and the score if others stream."""

from headcount import curve, load_model, make_task, rank
from headcount.rankings.duo_attention import write_duo_attention

STREAMING = "streaming:4:32"  # a head that is off sees the first 4 and the last 32 tokens

if __name__ == "__main__":
    model = load_model("smollm2-135m-q4").by_key_value_heads()
    task = make_task("needle", model, length=96, n=12, depths=(0.1, 0.3))
    scores = rank(model, task, "attribution", ablation=STREAMING)
    kept = curve(
        model,
        task,
        scores,
        metric="logprob",
        ablation=STREAMING,
        mode="keep",  # the heads that are counted see the whole text, all others stream
        counts=[0, 45, 90],
        series=["top"],
    )
    print(kept)
    for path in write_duo_attention(model, scores, "patterns"):
        print(path)
