"""`ralph task templates`: show verification templates."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ralph.tasks.templates import Template


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from ralph.tasks.templates import TEMPLATES

    return [
        CompletionItem(name, help=template.summary)
        for name, template in TEMPLATES.items()
        if name.startswith(incomplete)
    ]


@click.command("templates")
@click.argument("name", metavar="[NAME]", required=False, shell_complete=_complete)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def templates_(name: str | None, as_json: bool) -> int:
    """Show verification templates. With NAME, print that one as YAML to paste under `completion:` of a task.

    \b
    ralph task templates pytest-coverage
    ralph task create … --tester-template pytest-coverage
    """
    from ralph.tasks import templates
    from ralph.views.lines import print_lines
    from ralph.views.tasks import encoded

    if name is not None:
        known, template = templates.find(name)
        if as_json:
            _write(encoded(_to_json(known, template)))
        else:
            click.echo(templates.to_yaml(template), nl=False)
    elif as_json:
        _write(encoded([_to_json(*each) for each in templates.TEMPLATES.items()]))
    else:
        rows = [(name, each.role, each.method, each.summary) for name, each in templates.TEMPLATES.items()]
        print_lines(("template", "role", "method", "proves"), rows, wide=3, accent=0, styles={})
    return 0


def _to_json(name: str, template: Template) -> dict[str, Any]:
    return {
        "name": name,
        "summary": template.summary,
        "role": template.role,
        "verification_method": template.method,
        "verification_config": template.config,
    }


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
