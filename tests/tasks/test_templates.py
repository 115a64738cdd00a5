"""Ready-made verifications: their names, and the YAML to paste."""

from __future__ import annotations

import pytest

from ralph.core.task_model import ROLES
from ralph.errors import RalphError
from ralph.files import yamlfile
from ralph.tasks import templates
from ralph.tasks.templates import TEMPLATES


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_yaml_of_a_template_is_the_template(name: str) -> None:
    """A role with a promise, a description, a method and its config."""
    template = TEMPLATES[name]
    (document,) = yamlfile.parse(templates.to_yaml(template), name)
    assert document.values == {
        template.role: {
            "promise": ROLES[template.role].promise,
            "description": template.summary,
            "verification_method": template.method,
            "verification_config": template.config,
        }
    }


@pytest.mark.parametrize("name", ["npm-test", "npm test", " NPM Test "])
def test_a_template_is_found_as_people_write_it(name: str) -> None:
    """With a space or a hyphen, in any case."""
    assert templates.find(name) == ("npm-test", TEMPLATES["npm-test"])


@pytest.mark.parametrize(
    ("name", "hint"), [("pytst", "Did you mean 'pytest'?"), ("xyz", "`ralph task templates` lists them.")]
)
def test_an_unknown_template(name: str, hint: str) -> None:
    """The error suggests a similar name."""
    with pytest.raises(RalphError, match="Unknown template") as raised:
        templates.find(name)
    assert raised.value.hint == hint
