"""Containers without isolation: privileged, or with host files mounted."""

from __future__ import annotations

import re

from ralph.guard.model import DenyRule
from ralph.shell import effects, paths
from ralph.shell.command import SimpleCommand
from ralph.shell.context import ShellContext
from ralph.shell.words import words_of

CATEGORY = "containers"
_ENGINES = "docker|podman|nerdctl|docker-compose"
_SOCKETS = ("docker.sock", "containerd.sock", "podman.sock", "crio.sock")
_TOOLS = words_of(".cache .m2 .gradle .npm .cargo .ivy2 .nuget .yarn .pnpm .local/share/pnpm")
_HOST = (
    *(paths.ROOT, paths.HOME, paths.ABOVE, paths.SYSTEM),
    *(paths.DEVICE, paths.HARNESS, paths.AGENT, paths.STARTUP),
)


def _host_mount(command: SimpleCommand, context: ShellContext) -> bool:
    if command.program not in _ENGINES.split("|"):
        return False
    for word, _ in effects.mounts(command):
        if not word.startswith(("/", ".", "~")):
            continue  # a named volume
        path = paths.resolve(word, command.directory, context)
        if path is None:
            continue
        hidden = path[len(context.home) + 1 :] if paths.is_under(path, context.home) else ""
        if hidden.startswith(".") and not hidden.startswith(_TOOLS):
            return True
        if path.endswith(_SOCKETS) or paths.is_secret(path, context):
            return True
        if paths.zone(path, context) in _HOST and not path.startswith(
            ("/etc/localtime", "/etc/timezone", "/etc/ssl/certs")
        ):
            return True
    return False


_DESCRIBED = (
    r"(?i)\b(?:privileged|hostPID|hostIPC|hostNetwork|allowPrivilegeEscalation)[\"']?\s*:\s*[\"']?true"
    r"|\b(?:pid|ipc|network_mode|userns_mode|uts)[\"']?\s*:\s*[\"']?host\b|\b(?:SYS_ADMIN|SYS_PTRACE|SYS_MODULE|NET_ADMIN)\b"
    r"|\b(?:docker|containerd|podman|crio)\.sock\b|hostPath[\"']?\s*:|unconfined"
    r"|(?:^|[\s\"'\[-])(?:~|\$HOME|\$\{HOME\}|/(?:etc|root|home|var|usr|proc|sys|dev|boot)?(?:/[\w./-]*)?):/"
)
"""The same options in a compose or Kubernetes file."""


def _described(command: SimpleCommand, context: ShellContext) -> bool:
    return (
        command.program in (*_ENGINES.split("|"), "podman-compose", "kubectl", "oc")
        and bool(command.code)
        and not {"config", "convert", "diff", "explain"} & set(command.args)
        and bool(re.search(_DESCRIBED, command.code))
    )


def _everything(command: SimpleCommand, context: ShellContext) -> bool:
    """Removal of everything that is listed, as in `docker rm -f $(docker ps -aq)`."""
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


_PRIVILEGED = "Gives a container privileges on the host. Run it without them."

RULES = (
    DenyRule(
        "privileged",
        CATEGORY,
        _PRIVILEGED,
        (
            f"{_ENGINES} --privileged|--pid=host|--ipc=host|--uts=host|--userns=host|--network=host|--net=host|--cgroupns=host",
            f"{_ENGINES} --cap-add|--device|--security-opt=*unconfined*|--security-opt",
            "kubectl debug ~node/*",
            "kubectl|lxc|ctr|crictl --privileged",
            "lxc|incus ~security.privileged=true",
            "lxc|incus -c=security.privileged=true",
        ),
    ),
    DenyRule("privileged-by-file", CATEGORY, _PRIVILEGED, _described),
    DenyRule(
        "host-mount",
        CATEGORY,
        "Mounts host files into a container. Mount the project or a directory inside it instead.",
        _host_mount,
    ),
    DenyRule(
        "enter-host",
        CATEGORY,
        "Enters another root directory or another process's namespaces. Work in the project directory instead.",
        "nsenter|chroot|systemd-nspawn",
    ),
    DenyRule(
        "container-prune",
        CATEGORY,
        "Deletes containers, images or volumes of other projects. Remove only your own, by name.",
        f"{_ENGINES} system|volume|container|image|builder|network prune|reset",
    ),
    DenyRule(
        "delete-volumes",
        CATEGORY,
        "Deletes a volume and its data. Leave volumes to the user.",
        (
            f"{_ENGINES} volume rm|remove",
            "docker swarm leave --force|-f",
            "docker|podman compose down -v|--volumes",
            "docker-compose down -v|--volumes",
        ),
    ),
    DenyRule(
        "all-containers",
        CATEGORY,
        "Stops or removes other projects' containers too. Name your own containers instead.",
        _everything,
    ),
    DenyRule(
        "host-machine",
        CATEGORY,
        "Deletes a virtual machine or a cluster. Leave that to the user.",
        "vagrant|multipass|virsh|limactl|colima|minikube|kind destroy|delete|undefine",
    ),
)
