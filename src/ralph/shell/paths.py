"""Classifies paths into the zones that rules about files use."""

from __future__ import annotations

from ralph.shell.words import MARKS, UNKNOWN, UNSET, Word, strip_marks, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralph.shell.context import ShellContext

ROOT = "root"
HOME = "home"
ABOVE = "above"
REPOSITORY = "repository"
GIT = "git"
HARNESS = "harness"
AGENT = "agent"
DEVICE = "device"
SYSTEM = "system"
STARTUP = "startup"
TEMP = "temp"
CACHE = "cache"
INSIDE = "inside"
OUTSIDE = "outside"
SOMEWHERE = "somewhere"

_SYSTEM = words_of(
    "bin boot dev etc lib lib32 lib64 libx32 opt proc run sbin snap srv sys usr var home root mnt"
    " media lost+found nix tmp System Library Applications Users Volumes private cores"
)
_SAFE_DEVICES = ("null", "zero", "stdin", "stdout", "stderr", "tty", "random", "urandom", "full")
_CACHES = words_of(
    ".cache .npm/_cacache .npm/_logs .npm/_npx .cargo/registry .gradle/caches .m2/repository"
    " Library/Caches .local/share/Trash .yarn/cache .pnpm-store go/pkg .local/share/pnpm"
)
_STARTUP = words_of(
    ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile"
    " .zlogin .zlogout .kshrc .cshrc .tcshrc .xinitrc .xprofile .xsessionrc .inputrc .gitconfig"
    " .config/git .config/fish .ssh .gnupg .config/autostart .netrc .config/systemd"
    " Library/LaunchAgents .npmrc .pypirc .aws .kube .docker .pam_environment .config/environment.d"
    " .config/gh .git-credentials .pgpass .curlrc .wgetrc .tmux.conf .vimrc .vim .config/nvim .emacs"
    " .emacs.d .config/pip .pip .condarc .cargo/config.toml .cargo/credentials.toml .oh-my-zsh"
    " .config/gcloud .azure .local/share/keyrings .password-store .bash_history .zsh_history .mozilla"
    " .config/google-chrome"
)
_AGENT_HOMES = words_of(
    ".claude .claude.json .codex .gemini .config/opencode .config/amp .local/share/opencode .config/claude"
)
_AGENT_FILES = words_of(
    ".claude/settings.json .claude/settings.local.json .claude/hooks .gemini/settings.json"
    " .codex/config.toml .codex/hooks.json .opencode/opencode.json"
)
_SECRETS = (
    *words_of(".ssh .aws .aws/credentials .aws/config .aws/sso .netrc _netrc .pgpass .my.cnf .npmrc"),
    *words_of(".pypirc .docker/config.json .kube/config .kube .gnupg .config/gh/hosts.yml .config/gcloud"),
    *words_of(".azure .git-credentials .config/git/credentials .claude/.credentials.json .codex/auth.json"),
    *(".gemini/oauth_creds.json", ".bash_history", ".zsh_history", ".python_history", ".psql_history"),
    *(".mysql_history", ".node_repl_history", ".mozilla", ".config/google-chrome", ".config/chromium"),
    *words_of(".config/BraveSoftware Library/Keychains .local/share/keyrings .password-store .vault-token"),
    *words_of(
        ".cargo/credentials .cargo/credentials.toml .gem/credentials .terraform.d/credentials.tfrc.json"
    ),
    *words_of(".config/op .config/hub .config/rclone/rclone.conf .s3cfg .boto .databrickscfg .config/doctl"),
    *("Library/Application Support/Google/Chrome", "Library/Cookies", ".electrum", ".bitcoin", ".ethereum"),
    *(".config/heroku", ".local/share/opencode/auth.json", ".config/age", ".config/sops", ".claude.json"),
)
_SYSTEM_SECRETS = words_of(
    "/etc/shadow /etc/gshadow /etc/sudoers /etc/sudoers.d /etc/ssl/private /run/secrets"
    " /var/run/secrets /etc/krb5.keytab /proc/kcore /dev/mem /var/lib/docker"
)
_PUBLIC = ("known_hosts", "config", "authorized_keys")


def normal(path: str) -> str:
    """Return an absolute path without `.`, `..` and repeated slashes."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if parts:
                parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def is_under(path: str, parent: str) -> bool:
    return path == parent or path.startswith(parent.rstrip("/") + "/")


def resolve(word: Word, directory: str | None, context: ShellContext) -> str | None:
    """Return the absolute path, or None if it is unknown.

    An unset variable is empty, so `"$X"/` is the root directory.
    """
    text: str = word
    if UNSET in text:
        bare = text.replace(UNSET, "")
        if bare.strip("/*.") or not bare.startswith("/"):
            return None
        text = bare
    if text.startswith("file://"):
        text = text[7:]
    if text == "~" or text.startswith("~/"):
        text = context.home + text[1:]
    if text.startswith("/"):
        return normal(text)
    if directory is None or not text or text[0] in MARKS:
        return None
    return normal(f"{directory}/{text}")


def contents(path: str, word: Word) -> str:
    """Return the directory if a glob matches its whole content: `/x` for `/x/*` and `/x/.*`."""
    if not word.glob:
        return path
    head, _, last = path.rpartition("/")
    while last and not last.strip("*?.") and any(char in last for char in "*?"):
        path = head or "/"
        head, _, last = path.rpartition("/")
    if last in (".[!.]*", ".[^.]*", "..?*", "[^.]*", "[!.]*", "[a-z]*", "[A-Za-z]*", "[a-zA-Z]*"):
        path = head or "/"
    return path


def zone(path: str | None, context: ShellContext) -> str:
    if path is None:
        return SOMEWHERE
    if path == "/":
        return ROOT
    if any(char in path for char in "*?["):
        return _globbed(path, context)
    return _zone(path, context)


def zone_of(word: Word, directory: str | None, context: ShellContext) -> str:
    return zone(resolve(word, directory, context), context)


def _zone(path: str, context: ShellContext) -> str:
    own = _own(path, context)
    if own:
        return own
    if path == context.top:
        return REPOSITORY
    if is_under(context.top, path):
        return HOME if path == context.home else ABOVE
    if is_under(path, context.top):
        is_git = is_under(path, f"{context.top}/.git") and not path.endswith(".lock")
        return GIT if is_git else INSIDE
    if path == context.home or _is_home(path):
        return HOME
    if is_under(path, context.home):
        return _in_home(path[len(context.home) + 1 :])
    if is_temp(path, context):
        return TEMP
    if path.startswith("/dev/"):
        rest = path[5:]
        if rest in _SAFE_DEVICES or rest.startswith(("fd/", "pts/", "tcp/", "udp/")):
            return TEMP
        return TEMP if rest.startswith("shm/") else DEVICE
    if path.split("/", 2)[1] in _SYSTEM:
        return OUTSIDE if path.startswith(("/home/", "/Users/", "/mnt/", "/media/", "/Volumes/")) else SYSTEM
    return OUTSIDE


def _own(path: str, context: ShellContext) -> str:
    """Return the zone of a file that belongs to Ralph or to an agent, "" for any other file."""
    is_inside = is_under(path, context.top)
    parts = (path[len(context.top) :] if is_inside else path).split("/")
    if ".ralph" in parts or ".ralph-active" in parts or "ralph-harness" in parts:
        return HARNESS
    states = (f"{context.home}/{name}/ralph" for name in (".local/state", ".local/share", ".config"))
    if not is_inside and any(is_under(path, own) for own in (*context.own, *states)):
        return HARNESS
    if any(is_under(path, f"{context.home}/{name}") for name in _AGENT_HOMES):
        return AGENT
    if any(is_under(path, f"{context.top}/{name}") for name in _AGENT_FILES) or is_under(
        path, "/etc/claude-code"
    ):
        return AGENT
    return ""


def _in_home(rest: str) -> str:
    if any(is_under(rest, name) for name in _CACHES):
        return CACHE
    return STARTUP if any(is_under(rest, name) for name in _STARTUP) else OUTSIDE


def _is_home(path: str) -> bool:
    parts = path.split("/")
    return path == "/root" or (len(parts) == 3 and parts[1] in ("home", "Users"))


def is_temp(path: str, context: ShellContext) -> bool:
    """Whether a path is below a directory for temporary files. The directory itself does not count."""
    bases = ("/tmp", "/var/tmp", "/private/tmp", "/var/folders", "/private/var/folders", context.temp)
    return any(base and path != base and is_under(path, base) for base in bases)


def _globbed(path: str, context: ShellContext) -> str:
    """Return the zone of the first well-known path that a pattern can match, otherwise of its fixed part."""
    from fnmatch import fnmatchcase

    tops = [f"/{name}" for name in _SYSTEM]
    above = context.top
    known = [context.top, f"{context.top}/.git", context.home, *tops, f"{context.top}/.ralph"]
    while above.rpartition("/")[0]:
        above = above.rpartition("/")[0]
        known.append(above)
    for each in known:
        if each.count("/") == path.count("/") and fnmatchcase(each, path):
            return _zone(each, context)
    fixed: list[str] = []
    for part in path.split("/"):
        if any(char in part for char in "*?["):
            break
        fixed.append(part)
    base = "/".join(fixed) or "/"
    if base == "/":
        return SYSTEM
    return _zone(f"{base}/{UNKNOWN}", context)


def is_secret(path: str, context: ShellContext) -> bool:
    """Whether a path holds keys, passwords, tokens or a shell history."""
    last = path.rpartition("/")[2]
    if last.endswith(".pub") or (last in _PUBLIC and "/.ssh" in path):
        return False
    for home in (context.home, "/root"):
        if is_under(path, home) and any(is_under(path[len(home) + 1 :], name) for name in _SECRETS):
            return True
    parts = path.split("/", 4)
    if len(parts) > 3 and parts[1] in ("home", "Users"):
        rest = "/".join(parts[3:])
        if any(is_under(rest, name) for name in _SECRETS):
            return True
    if any(is_under(path, name) for name in _SYSTEM_SECRETS):
        return True
    if path.startswith("/etc/ssh/ssh_host") or (path.startswith("/proc/") and path.endswith("/environ")):
        return True
    return last in ("id_rsa", "id_ed25519", "id_ecdsa", "id_dsa", ".netrc", ".git-credentials", ".pgpass")


def is_project_secret(path: str) -> bool:
    """Whether a file holds secrets of a project. It can be read locally, but not sent anywhere."""
    last = strip_marks(path).rpartition("/")[2]
    if last.startswith(".env") and not last.endswith((".example", ".sample", ".template", ".dist")):
        return True
    return last.endswith(
        (".pem", ".key", ".p12", ".pfx", ".kdbx", ".keystore", ".jks", ".ppk")
    ) or last in words_of(
        "credentials.json service-account.json secrets.yml secrets.yaml secrets.json .htpasswd"
        " terraform.tfstate terraform.tfvars"
    )
