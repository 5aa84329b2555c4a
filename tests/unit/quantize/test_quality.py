"""The report shows what was lost, and only that."""

import dataclasses
import json

import pytest
import torch
from click.testing import CliRunner
from parley_quantize.command import quantize
from parley_quantize.dialogues import CALIBRATION, HELD_OUT, Example, of_file
from parley_quantize.quality import compare

from models.checkpoints.loading import load_checkpoint
from tests.unit.models import tiny
from tests.unit.models.weights.quantized.packer import Format, quantize_checkpoint

ASKED = [
    Example([{"role": "user", "content": "where is my order"}], "the quick brown fox"),
    Example([{"role": "user", "content": "the lazy dog"}], None),
]


def quiet(*_):
    pass


def test_a_model_compared_with_itself_has_lost_nothing(tmp_path):
    checkpoint = load_checkpoint(str(tiny.save(tmp_path / "tiny")), device="cpu")
    report = compare(checkpoint, checkpoint, ASKED, 12, quiet)
    assert report.before == report.after
    assert (report.token_agreement, report.rouge_l, report.same_answers) == (1.0, 1.0, 1.0)
    assert report.before.rouge_l is not None


def test_perplexity_is_that_of_the_right_answers(tmp_path):
    checkpoint = load_checkpoint(str(tiny.save(tmp_path / "tiny")), device="cpu")
    (asked,) = ASKED[:1]
    prompt = checkpoint.tokenizer.apply_chat_template(asked.messages, add_generation_prompt=True, return_dict=False)
    whole = checkpoint.tokenizer.apply_chat_template(asked.whole(), return_dict=False)
    with torch.inference_mode():
        chances = checkpoint.model(torch.tensor([whole])).logits[0].log_softmax(-1)
    losses = [-float(chances[at - 1, whole[at]]) for at in range(len(prompt), len(whole))]
    report = compare(checkpoint, checkpoint, [asked], 4, quiet)
    assert report.before.perplexity == pytest.approx(float(torch.tensor(losses).mean().exp()), rel=1e-4)


def test_a_spoilt_model_is_seen(tmp_path):
    checkpoint = load_checkpoint(str(tiny.save(tmp_path / "tiny")), device="cpu")
    spoilt = dataclasses.replace(checkpoint, model=tiny.model(seed=9))
    report = compare(checkpoint, spoilt, ASKED, 12, quiet)
    assert report.token_agreement < 0.5
    assert report.same_answers == 0.0
    assert report.after.perplexity != report.before.perplexity


@pytest.fixture
def held_out(tmp_path):
    path = tmp_path / "held-out.jsonl"
    path.write_text("\n".join(json.dumps({"messages": example.whole()}) for example in ASKED) + "\n\n")
    return path


def test_a_file_of_dialogues_gives_prompts_and_right_answers(held_out):
    assert of_file(held_out) == ASKED


@pytest.mark.parametrize("line", ["{", "[]", '{"messages": []}', '{"messages": [{"role": "user"}]}', '{"messages": 3}'])
def test_a_bad_line_is_named(held_out, line):
    held_out.write_text(held_out.read_text() + line)
    with pytest.raises(ValueError, match=r"held-out.jsonl, line 4: "):
        of_file(held_out)


def test_calls_of_tools_in_a_file_are_kept(tmp_path):
    call = {"type": "function", "function": {"name": "f", "arguments": {}}}
    asked = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    asked.append({"role": "tool", "content": "1"})
    path = tmp_path / "calls.jsonl"
    path.write_text(json.dumps({"messages": asked}))
    assert of_file(path) == [Example(asked, None)]


def test_the_shop_asks_nothing_that_it_calibrates_with():
    shown, asked = ({json.dumps(one.messages) for one in of_file(path)} for path in (CALIBRATION, HELD_OUT))
    assert (len(shown), len(asked)) == (256, 96)
    assert not shown & asked


def parley_quantize(*arguments):
    # As below `parley`: click keeps a command's option for help from its first use on.
    return CliRunner().invoke(quantize, [*map(str, arguments)], help_option_names=["-h", "--help"])


def test_the_command_examines_a_checkpoint_that_is_there(tmp_path, held_out):
    plain, packed = tiny.save(tmp_path / "plain"), tiny.save(tmp_path / "packed")
    quantize_checkpoint(packed, {}, Format())
    asked = ("--held-out", held_out, "--new-tokens", 6)
    reported = json.loads(parley_quantize(plain, packed, "--report-only", "--json", *asked).stdout)
    assert reported["after"]["bytes"] < reported["before"]["bytes"]
    assert reported["after"]["model_version"].endswith("+gptq4")
    assert 0.3 < reported["token_agreement"] <= 1
    table = parley_quantize(plain, "--to", "int8", *asked).stdout
    assert "| 2 held-out prompts | before | after |" in table
    assert "+w8a8" in table or "+int8" in table


def test_wrong_use_is_one_line_and_exit_code_2(tmp_path):
    for arguments, message in (
        (("demo",), "OUT is required for --to gptq"),
        (("demo", tmp_path, "--to", "int8"), "OUT is required for --to gptq"),
        (("demo", tmp_path, "--report-only"), "no weights to examine"),
        (("./nowhere", "--to", "int8"), "no such folder"),
    ):
        ended = parley_quantize(*arguments)
        assert ended.exit_code == 2
        assert message in ended.stderr
        assert len(ended.stderr.strip().splitlines()) <= 2


def test_a_missing_gptqmodel_is_told_before_anything_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr("parley_quantize.command.find_spec", lambda _name: None)
    ended = parley_quantize("./nowhere", tmp_path / "out")
    assert ended.exit_code == 2
    assert "extra `gptq`" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.quantize
def test_gptqmodel_makes_a_checkpoint_that_is_served(tmp_path):
    shape = ("--examples", 24, "--group-size", 32, "--prompts", 8, "--new-tokens", 24)
    ended = parley_quantize("demo", tmp_path / "out", "--json", *shape)
    assert ended.exit_code == 0, ended.stderr
    reported = json.loads(ended.stdout)
    assert reported["after"]["model_version"].endswith("+gptq4")
    assert reported["token_agreement"] > 0.8
