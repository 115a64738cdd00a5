"""Configuration that points each agent CLI at the server and disables all other network traffic."""

from __future__ import annotations

import json

from msgspec import Struct, field

KEY = "sk-test-local"
"""A dummy API key."""


class Client(Struct, frozen=True):
    """One CLI: its command for a prompt on stdin, its variables, and its config file in the home directory."""

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    file: str = ""
    content: str = ""


def clients(url: str) -> dict[str, Client]:
    """Claude Code 2.1.325, Codex 0.166.0, Gemini CLI 0.61.0 and OpenCode 1.18.33."""
    return {"claude": _claude(url), "codex": _codex(url), "gemini": _gemini(url), "opencode": _opencode(url)}


def _claude(url: str) -> Client:
    return Client(
        ("claude", "-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"),
        {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": KEY,
            "IS_SANDBOX": "1",  # lets root skip permissions
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
    )


def _codex(url: str) -> Client:
    config = f"""model = "gpt-5.5"
model_provider = "scripted"

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
"""
    argv = (
        *("codex", "exec", "--json", "--dangerously-bypass-approvals-and-sandbox"),
        *("--disable", "plugins", "--skip-git-repo-check", "-"),
    )
    return Client(argv, {"SCRIPTED_KEY": KEY}, ".codex/config.toml", config)


def _gemini(url: str) -> Client:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
    }
    env = {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_TELEMETRY_ENABLED": "false"}
    argv = (
        *("gemini", "-p", "", "-m", "gemini-2.5-pro"),
        *("--output-format", "stream-json", "--yolo", "--skip-trust"),
    )
    return Client(argv, env, ".gemini/settings.json", json.dumps(settings, indent=2) + "\n")


def _opencode(url: str) -> Client:
    model = {"name": "scripted", "tool_call": True, "limit": {"context": 200_000, "output": 8_000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": f"{url}/v1", "apiKey": KEY},
        "models": {"scripted": model},
    }
    settings = {
        "model": "scripted/scripted",
        "small_model": "scripted/scripted",
        "autoupdate": False,
        "share": "disabled",
        "provider": {"scripted": provider},
    }
    switches = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD")
    env = {f"OPENCODE_DISABLE_{name}": "1" for name in switches}
    argv = ("opencode", "run", "--format", "json", "--auto")
    return Client(argv, env, ".config/opencode/opencode.json", json.dumps(settings, indent=2) + "\n")
