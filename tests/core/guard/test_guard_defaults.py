"""A guard reads plain JSON, a config is a model: each option is in both, with one default."""

from dataclasses import asdict

from albor_core.config.sections.guard import GuardConfig
from albor_core.run.guard_options import Options


def test_the_guard_and_the_config_agree_on_every_default():
    assert asdict(Options()) == {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in GuardConfig().model_dump().items()
    }
