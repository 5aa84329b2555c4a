"""What `parley model check` and `parley model render` say of checkpoints; transformers is the oracle."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from app.commands import parley
from app.serving.loading import load_models
from app.serving.model_check import log_reports
from app.settings import Settings
from models.files.checkpoint import DEMO
from tests.unit.models import lora, tiny
from tests.unit.models.template_shapes import SHAPES, shaped_checkpoint

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {},
    "gemma2": {"query_pre_attn_scalar": 16},
    "olmo2": {},
    "phi3": {},
}
GPTQ = Path(__file__).parents[2] / "fixtures" / "gptq"
FUSED = {"gemma2", "gemma3_text", "llama", "mistral", "qwen2", "qwen3"}
QUESTION = {"role": "user", "content": "where is my order 4711"}
TALK = [QUESTION, {"role": "assistant", "content": "in köln"}, {"role": "user", "content": "the lazy dog 🙂"}]


def run(*arguments: str, stdin: str = "") -> Result:
    result = CliRunner().invoke(parley, ["model", *arguments], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def checked(folder: Path) -> dict[str, Any]:
    result = run("check", str(folder), "--json")
    assert result.exit_code == 0, result.output
    printed: dict[str, Any] = json.loads(result.stdout)
    return printed


def rendered(folder: Path, **body: Any) -> dict[str, Any]:
    result = run("render", str(folder), stdin=json.dumps(body))
    assert result.exit_code == 0, result.output
    printed: dict[str, Any] = json.loads(result.stdout)
    return printed


@pytest.fixture(autouse=True)
def small_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_MAX_RUNNING", "2")
    monkeypatch.setenv("PARLEY_THREADS", "1")
    monkeypatch.setenv("PARLEY_DEVICE", "cpu")


@pytest.fixture(autouse=True)
def own_signal_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command ends its process at a signal, which is not the tests' process."""
    monkeypatch.setattr("app.commands.model.end_at_signals", lambda: None)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved, tmp_path / "tiny")
    return tmp_path / "tiny"


def change(path: Path, **values: Any) -> None:
    written = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(written | values))


@pytest.mark.parametrize("family", FAMILIES)
def test_report_of_a_family_agrees_with_transformers(family: str, tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / family, kind=family, **FAMILIES[family])
    report = checked(folder)
    right = AutoModelForCausalLM.from_pretrained(folder)
    assert report["architecture"] == type(right).__name__
    assert report["engine_path"] == ("fused" if family in FUSED else "transformers")
    assert report["dtype"] == str(right.dtype).removeprefix("torch.")
    assert report["parameters"] == right.num_parameters()
    assert report["weights_bytes"] == right.num_parameters() * right.dtype.itemsize
    assert report["vocab_size"] == right.config.vocab_size
    assert report["context_length"] == right.config.max_position_embeddings
    assert report["eos_token_ids"] == [GenerationConfig.from_pretrained(folder).eos_token_id]
    assert report["warnings"] == []
    cache = right(torch.tensor([[1, 2, 3]]), use_cache=True).past_key_values
    kept = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert report["kv_bytes_per_token"] == kept / 3


def test_defaults_are_reported_as_applied_and_as_not_applied(folder: Path) -> None:
    change(folder / "generation_config.json", min_p=0.1, no_repeat_ngram_size=3)
    report = checked(folder)
    right = GenerationConfig.from_pretrained(folder)
    for name in ("temperature", "top_p", "min_p"):
        assert report["generation_defaults"][name] == getattr(right, name)
    assert report["generation_ignored"] == {"no_repeat_ngram_size": 3}
    assert report["warnings"] == ["generation_config.json: no_repeat_ngram_size=3 is not applied"]


def test_layers_that_the_config_leaves_out_are_a_warning(folder: Path) -> None:
    change(folder / "config.json", num_hidden_layers=1)
    (warning,) = checked(folder)["warnings"]
    assert warning == "its files have 2 layers, and config.json says 1: the others are not used"


def test_a_template_that_forgets_the_conversation_is_a_warning(folder: Path) -> None:
    last = "<|user|>{{ messages[-1].content }}<|end|><|assistant|>"
    (folder / "chat_template.jinja").write_text(last)
    (warning,) = [one for one in checked(folder)["warnings"] if "turns" in one]
    assert "leaves out the turns before the last one" in warning


@pytest.mark.parametrize(("shape", "is_left_out"), [("mistral7b", True), ("qwen3", False), ("llama31", False)])
def test_a_template_that_drops_the_system_prompt_in_a_tool_loop_is_a_warning(
    folder: Path, shape: str, is_left_out: bool
) -> None:
    shaped_checkpoint(SHAPES[shape]).tokenizer.save_pretrained(folder)
    warnings = checked(folder)["warnings"]
    assert any("leaves out the system prompt behind the result" in one for one in warnings) == is_left_out


def test_settings_of_a_worker_apply(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_DTYPE", "bfloat16")
    monkeypatch.setenv("PARLEY_CONTEXT_LENGTH", "100")
    monkeypatch.setenv("PARLEY_TOOL_FORMAT", "hermes")
    report = checked(folder)
    assert (report["dtype"], report["dtype_reason"]) == ("bfloat16", "set by PARLEY_DTYPE")
    assert report["context_length"] == 100
    assert report["chat_template"]["tool_format"] == "hermes"


def test_end_that_the_template_writes_and_the_model_does_not_stop_at_is_a_warning(folder: Path) -> None:
    change(folder / "config.json", eos_token_id=4)
    change(folder / "generation_config.json", eos_token_id=4)
    change(folder / "tokenizer_config.json", eos_token="<|pad|>")
    (warning,) = checked(folder)["warnings"]
    assert warning.startswith("its template ends answers with <|end|>, ")
    assert "add 0 to eos_token_id" in warning


def test_end_that_the_model_cannot_write_is_a_warning(folder: Path) -> None:
    change(folder / "generation_config.json", eos_token_id=[0, 100_000])
    (warning,) = checked(folder)["warnings"]
    assert warning.startswith("it cannot write its end 100000")


def test_model_without_template_and_ends_is_served_with_warnings(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    for name in ("config.json", "generation_config.json"):
        change(folder / name, eos_token_id=None)
    change(folder / "tokenizer_config.json", eos_token=None)
    report = checked(folder)
    assert (report["chat_template"]["dialogue"], report["chat_template"]["system"]) == ("text", "text")
    assert "\nsystem        plainly, as text\n" in run("check", str(folder)).output
    template, end = report["warnings"]
    assert "no chat template" in template
    assert "no end of an answer" in end


def test_adapters_are_named_and_one_that_does_not_fit_is_a_warning(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lora.save(tmp_path / "tone", tiny.model())
    lora.save(tmp_path / "wide", tiny.model(hidden_size=128))
    monkeypatch.setenv("PARLEY_ADAPTERS", f"tone={tmp_path}/tone,wide={tmp_path}/wide")
    report = checked(folder)
    assert report["adapters"] == ["tone", "wide"]
    (warning,) = report["warnings"]
    assert warning.startswith("adapter wide: it does not fit the model")


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("llama31", {"system": "template", "tools": "template", "tool_format": "llama", "calls_per_message": "one"}),
        (
            "gemma2",
            {
                "system": "text",
                "neighbours": "text",
                "tools": "text",
                "tool_format": "json",
                "calls_per_message": "several",
            },
        ),
        ("qwen25", {"system": "template", "tools": "template", "tool_format": "hermes", "thinking": "possible"}),
        ("qwen35", {"tool_format": "qwen_coder", "calls_per_message": "several", "thinking": "opened"}),
    ],
)
def test_template_is_reported_as_it_renders(shape: str, expected: dict[str, str], folder: Path) -> None:
    shaped_checkpoint(SHAPES[shape]).tokenizer.save_pretrained(folder)
    report = checked(folder)
    assert report["chat_template"].items() >= expected.items()
    (warning,) = report["warnings"]
    assert warning.startswith("its tokenizer has ids up to 3")


def test_packed_model_has_the_parameters_of_the_plain_one() -> None:
    report, plain = checked(GPTQ / "demo-4bit"), checked(Path("demo"))
    assert report["model_version"].endswith("+gptq4")
    packed, full = (load_file(*one.glob("*.safetensors")) for one in (GPTQ / "demo-4bit", DEMO))
    only_packed = {name for name in packed if name.endswith(".bias")} - full.keys()
    assert report["parameters"] == plain["parameters"] + sum(packed[name].numel() for name in only_packed)
    assert report["weights_bytes"] < plain["weights_bytes"] / 2
    assert report["engine_path"] == "transformers"


def break_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def drop_tensor(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def drop_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


def number_as_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    change(folder / "tokenizer_config.json", chat_template=7)


def write(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (shutil.rmtree, "there is no such folder"),
    "weights cut": (break_weights, "fetch it again"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "no *.safetensors"),
    "a tensor is gone": (drop_tensor, "missing keys model.layers.1.mlp.up_proj.weight"),
    "index of weights": (write("model.safetensors.index.json", "["), "is not an index of weights"),
    "no config": (lambda folder: (folder / "config.json").unlink(), "config"),
    "config cut": (write("config.json", "{"), "config"),
    "config is a list": (write("config.json", "[]"), "config"),
    "no tokenizer": (drop_tokenizer, "tokenizer"),
    "tokenizer cut": (write("tokenizer.json", "{"), "fetch tokenizer.json"),
    "tokenizer of something else": (write("tokenizer.json", '{"model": 1}'), "fetch tokenizer.json"),
    "tokenizer config cut": (write("tokenizer_config.json", "{"), "fetch tokenizer.json and tokenizer_config.json"),
    "generation config cut": (write("generation_config.json", "{"), "generation_config.json cannot be read"),
    "template that is none": (write("chat_template.jinja", "{% for %}"), "(line 1: "),
    "template that raises": (write("chat_template.jinja", "{{ 1 / 0 }}"), "renders no conversation"),
    "template without the message": (write("chat_template.jinja", "hello"), "it leaves out what the user says"),
    "template that is a number": (number_as_template, "model "),
    "no layers": (lambda folder: change(folder / "config.json", num_hidden_layers=0), "num_hidden_layers=0"),
    "no heads": (lambda folder: change(folder / "config.json", num_attention_heads=0), "config"),
    "heads that do not fit": (lambda folder: change(folder / "config.json", num_attention_heads=3), "not a multiple"),
    "size that is a text": (lambda folder: change(folder / "config.json", vocab_size="x"), "expected int, got str"),
    "temperature that is a text": (
        lambda folder: change(folder / "generation_config.json", temperature="hot"),
        "temperature='hot' is not a number",
    ),
    "hidden size": (lambda folder: change(folder / "config.json", hidden_size=128), "broken checkpoint"),
    "other attention": (
        lambda folder: change(folder / "config.json", kv_lora_rank=16),
        "uses multi-head latent attention",
    ),
}
READ_FOR_A_PROMPT = {
    *("no folder", "weights cut", "no weights", "no config", "config cut", "no tokenizer", "tokenizer cut"),
    *("tokenizer config cut", "generation config cut", "template that is none", "template that raises"),
    *("template that is a number", "no heads", "size that is a text", "temperature that is a text"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_folder_is_one_line_and_exit_code_2(fault: str, folder: Path) -> None:
    spoil, expected = BROKEN[fault]
    spoil(folder)
    commands = [["check"], ["render"]] if fault in READ_FOR_A_PROMPT else [["check"]]
    for command in commands:
        result = run(*command, str(folder), stdin=json.dumps({"messages": [QUESTION]}))
        assert result.exit_code == 2, result.output
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
        assert expected in line
        assert line.startswith(f"Error: model {folder}: ")


def test_report_for_people_has_every_row_and_warning(folder: Path) -> None:
    change(folder / "generation_config.json", no_repeat_ngram_size=3)
    result = run("check", str(folder))
    assert result.exit_code == 0
    rows = [line.split()[0] for line in result.stdout.splitlines()]
    assert rows == [
        *(
            "model",
            "architecture",
            "dtype",
            "products",
            "memory",
            "context",
            "ends",
            "system",
            "tools",
            "thinking",
            "defaults",
        ),
        *("not", "warning"),
    ]


def test_worker_logs_a_line_about_each_model_the_report_at_debug_and_each_warning(
    folder: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    change(folder / "generation_config.json", no_repeat_ngram_size=3, min_length=7)
    lora.save(tmp_path / "tone", tiny.model())
    adapters = f"tone={tmp_path}/tone"
    settings = Settings(_env_file=None, model=str(folder), device="cpu", threads=1, max_running=2, adapters=adapters)
    models = load_models(settings, lambda _: None)
    with caplog.at_level("DEBUG", logger="app.serving.model_check"):
        caplog.clear()
        log_reports(models)
    levels = [record.levelname for record in caplog.records]
    assert levels == ["INFO", "DEBUG", "WARNING", "WARNING"]
    assert all(line.startswith(f"model {models.default.model_version}: ") for line in caplog.messages)
    assert "; float32 on cpu, 1 thread; context " in caplog.messages[0]
    assert caplog.messages[0].endswith("; adapters tone")
    assert "; dtype: float32: a CPU's, for weights in float32; " in caplog.messages[1]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("length", [1, 3])
def test_prompt_is_transformers_own(shape: str, length: int, folder: Path) -> None:
    shaped_checkpoint(SHAPES[shape]).tokenizer.save_pretrained(folder)
    shown = rendered(folder, messages=TALK[:length])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    right = tokenizer.apply_chat_template(TALK[:length], tokenize=False, add_generation_prompt=True)
    assert shown["prompt"] == right
    assert shown["token_ids"] == tokenizer(right, add_special_tokens=False).input_ids


def test_prompt_with_tools_is_transformers_own(folder: Path, tmp_path: Path) -> None:
    shaped_checkpoint(SHAPES["qwen25"]).tokenizer.save_pretrained(folder)
    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tools = [{"type": "function", "function": {"name": "f", "description": "g", "parameters": parameters}}]
    path = tmp_path / "body.json"
    path.write_text(json.dumps({"messages": [QUESTION], "tools": tools}))
    result = run("render", str(folder), str(path))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    right = tokenizer.apply_chat_template([QUESTION], tools=tools, tokenize=False, add_generation_prompt=True)
    assert json.loads(result.stdout)["prompt"] == right


def test_variables_of_the_template_are_in_the_prompt(folder: Path) -> None:
    template = tiny.TEMPLATE + "{{ '<think>' if enable_thinking else '<no>' }}"
    tokenizer = shaped_checkpoint(template).tokenizer
    tokenizer.save_pretrained(folder)
    for enable in (True, False):
        right = tokenizer.apply_chat_template(
            [QUESTION], tokenize=False, add_generation_prompt=True, enable_thinking=enable
        )
        assert (
            rendered(folder, messages=[QUESTION], chat_template_kwargs={"enable_thinking": enable})["prompt"] == right
        )
        effort = "high" if enable else "none"
        assert rendered(folder, messages=[QUESTION], reasoning_effort=effort)["prompt"] == right


def test_prompt_as_text_shows_special_tokens_and_their_number(folder: Path) -> None:
    body = {"messages": [QUESTION], "no_such_field": 1}
    shown = rendered(folder, **body)
    result = run("render", str(folder), "--text", stdin=json.dumps(body))
    assert result.stdout == shown["prompt"] + "\n"
    assert "<|user|>" in result.stdout
    assert result.stderr.splitlines() == [
        "warning: without effect: no_such_field",
        f"{len(shown['token_ids'])} tokens",
    ]


def test_system_prompt_of_the_service_is_in_the_prompt(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_SYSTEM_PROMPT", "be brief")
    assert rendered(folder, messages=[QUESTION])["prompt"].startswith("<|system|>be brief<|end|><|user|>")


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{",
        '{"messages": []}',
        '{"messages": [{"role": "nobody", "content": "x"}]}',
        '{"messages": [{"role": "user", "content": 7}]}',
        json.dumps({"messages": [{"role": "user", "content": "dog " * 600}]}),
    ],
)
def test_body_without_a_prompt_is_one_line_and_exit_code_2(body: str, folder: Path) -> None:
    result = run("render", str(folder), stdin=body)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
