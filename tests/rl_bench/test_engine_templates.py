"""Chat templates are programs of an agent: rendered as transformers would, and within limits."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from envs.protocol import ChatMessage
from rl_bench.engine.templates import TemplateFault, TemplateRenderer
from rl_bench.models.tiny import build_tiny

MESSAGES: tuple[ChatMessage, ...] = (
    {"role": "user", "content": "Grüße\n"},
    {"role": "assistant", "content": "ok"},
)
LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture(scope="module")
def renderer() -> Iterator[TemplateRenderer]:
    renderer = TemplateRenderer(limit_s=2.0)
    yield renderer
    renderer.close()


def test_text_is_that_of_transformers(renderer: TemplateRenderer, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(build_tiny(tmp_path / "tiny", seed=1))
    for template in (tokenizer.get_chat_template(), "{{ eos_token }}{{ messages | tojson }}"):
        expected = tokenizer.apply_chat_template(
            [{k: str(v) for k, v in message.items()} for message in MESSAGES],
            chat_template=template,
            tokenize=False,
            add_generation_prompt=True,
        )
        special = tokenizer.special_tokens_map
        assert renderer.render(template, [MESSAGES], special=special) == [expected]


def test_many_chats_take_one_trip_and_keep_their_order(renderer: TemplateRenderer) -> None:
    chats: list[list[ChatMessage]] = [
        [{"role": "user", "content": str(number)}] for number in range(50)
    ]
    texts = renderer.render("<{{ messages[0].content }}>", chats, special={})
    assert texts == [f"<{number}>" for number in range(50)]


@pytest.mark.parametrize(
    "template",
    [
        LOOP,
        "{{ 9 ** (9 ** 9) }}",
        "{{ 'a' * 10 ** 11 }}",
        "{{ 'a' * 10 ** 8 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 1 / 0 }}",
        "{{ ().__class__.__base__.__subclasses__() }}",
        "{% include '/etc/passwd' %}",
        "{{ x.y.z }}",
        "{{",
    ],
)
def test_a_template_that_misbehaves_is_at_fault_and_stops_nobody(
    template: str, renderer: TemplateRenderer
) -> None:
    started = time.monotonic()
    with pytest.raises(TemplateFault):
        renderer.render(template, [MESSAGES], special={})
    assert time.monotonic() - started < 40, "two seconds and a start when the machine is quiet"
    assert renderer.render("{{ 1 + 1 }}", [MESSAGES], special={}) == ["2"]
