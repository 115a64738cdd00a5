"""Containers that are none: privileged, or with the host inside."""

from __future__ import annotations

from ralph.guard import paths
from ralph.guard.model import Command, Place, Rule
from ralph.guard.words import Word

CATEGORY = "containers"
_ENGINES = "docker|podman|nerdctl|docker-compose"
_SOCKETS = ("docker.sock", "containerd.sock", "podman.sock", "crio.sock")
_TOOLS = (
    ".cache",
    ".m2",
    ".gradle",
    ".npm",
    ".cargo",
    ".ivy2",
    ".nuget",
    ".yarn",
    ".pnpm",
    ".local/share/pnpm",
)
_HOST = (
    paths.ROOT,
    paths.HOME,
    paths.ABOVE,
    paths.SYSTEM,
    paths.DEVICE,
    paths.HARNESS,
    paths.AGENT,
    paths.STARTUP,
)


def _mounts(command: Command) -> list[Word]:
    found: list[Word] = []
    words = command.args
    for number, word in enumerate(words):
        behind = words[number + 1] if number + 1 < len(words) else Word("")
        if word in ("-v", "--volume") or (word[:1] == "-" and word[1:].isalpha() and word.endswith("v")):
            found.append(Word(behind.partition(":")[0]))
        elif word.startswith("-v="):
            found.append(Word(word[3:].partition(":")[0]))
        elif word.startswith("--volume="):
            found.append(Word(word[9:].partition(":")[0]))
        elif word.startswith("-v") and len(word) > 2 and word[2] in "/~.":
            found.append(Word(word[2:].partition(":")[0]))
        elif word == "--mount" or word.startswith("--mount="):
            options = behind if word == "--mount" else word[8:]
            for part in options.split(","):
                name, _, value = part.partition("=")
                if name in ("source", "src"):
                    found.append(Word(value))
    return found


def _host_mount(command: Command, place: Place) -> bool:
    if command.program not in _ENGINES.split("|"):
        return False
    for word in _mounts(command):
        if not word.startswith(("/", ".", "~")):
            continue  # a volume with a name
        path = paths.resolve(word, command.directory, place)
        if path is None:
            continue
        hidden = path[len(place.home) + 1 :] if paths.is_under(path, place.home) else ""
        if hidden.startswith(".") and not hidden.startswith(_TOOLS):
            return True
        if path.endswith(_SOCKETS) or paths.is_secret(path, place):
            return True
        if paths.zone(path, place) in _HOST and not path.startswith(
            ("/etc/localtime", "/etc/timezone", "/etc/ssl/certs")
        ):
            return True
    return False


def _everything(command: Command, place: Place) -> bool:
    """`docker rm -f $(docker ps -aq)`."""
    if command.program not in ("docker", "podman") or not command.args:
        return False
    if command.args[0] not in ("rm", "rmi", "kill", "stop", "volume"):
        return False
    listing = ("ps", "images", "volume", "container", "image")
    inside = any(
        f"{start}{name} {what}" in command.text
        for start in ("$(", "`")
        for name in ("docker", "podman")
        for what in listing
    )
    return inside or any(each.program in ("docker", "podman") for each in command.upstream)


_PRIVILEGED = "It gives a container the host's rights. Run it without that."

RULES = (
    Rule(
        "privileged",
        CATEGORY,
        _PRIVILEGED,
        (
            f"{_ENGINES} --privileged|--pid=host|--ipc=host|--uts=host|--userns=host|--network=host|--net=host|--cgroupns=host",
            f"{_ENGINES} --cap-add|--device|--security-opt=*unconfined*|--security-opt",
            "kubectl debug ~node/*",
            "kubectl|lxc --privileged",
        ),
    ),
    Rule(
        "host-mount",
        CATEGORY,
        "It opens the host's files to a container. Mount the project or a directory in it.",
        _host_mount,
    ),
    Rule(
        "enter-host",
        CATEGORY,
        "It goes into another process's namespaces. Leave the host alone.",
        "nsenter|chroot",
    ),
    Rule(
        "container-prune",
        CATEGORY,
        "It deletes what other projects keep in containers and volumes. Remove what is yours by its name.",
        f"{_ENGINES} system|volume|container|image|builder|network prune",
    ),
    Rule(
        "delete-volumes",
        CATEGORY,
        "It deletes a volume with its data. Leave volumes to the user.",
        (
            f"{_ENGINES} volume rm|remove",
            "docker|podman compose down -v|--volumes",
            "docker-compose down -v|--volumes",
        ),
    ),
    Rule(
        "all-containers",
        CATEGORY,
        "It removes containers of other projects too. Name those that are yours.",
        _everything,
    ),
    Rule(
        "host-machine",
        CATEGORY,
        "It deletes a virtual machine. Leave that to the user.",
        "vagrant|multipass|virsh|limactl|colima|minikube|kind destroy|delete|undefine",
    ),
)
