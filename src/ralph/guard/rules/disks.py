"""Disks, devices, and commands that fill them up."""

from __future__ import annotations

from ralph.guard.model import DenyRule
from ralph.guard.patterns import is_harmless
from ralph.shell import arguments, paths
from ralph.shell.command import SimpleCommand
from ralph.shell.context import ShellContext

CATEGORY = "disks"
_ENDLESS = ("/dev/zero", "/dev/urandom", "/dev/random", "/dev/full")


def _fills(command: SimpleCommand, context: ShellContext) -> bool:
    """Whether an endless source is written to a file without a limit."""
    if command.program == "dd":
        given = [word.partition("=")[2] for word in command.args if word.startswith("if=")]
        is_bounded = any(word.startswith("count=") for word in command.args)
        target = [word for word in command.args if word.startswith("of=") and word != "of=/dev/null"]
        return not is_bounded and bool(target) and any(name in _ENDLESS for name in given)
    targets = [target for operator, target in command.redirects if ">" in operator and target != "/dev/null"]
    if not [target for target in targets if not target.isdecimal()] or command.piped:
        return False
    if command.program == "cat":
        return any(word in _ENDLESS for word in arguments.operands(command))
    return command.program == "yes" and not command.upstream


def _formats(command: SimpleCommand, context: ShellContext) -> bool:
    """Whether a file system is created on anything but an image file in the project or under /tmp."""
    if not command.program.startswith("mkfs") and command.program not in _FORMATTERS:
        return False
    if is_harmless(command):
        return False
    names = arguments.operands(command, "-t -L -U -b -n -F")
    zones = [paths.zone_of(name, command.directory, context) for name in names[:1]]
    return not zones or any(zone not in (paths.INSIDE, paths.TEMP) for zone in zones)


_FORMATTERS = ("mke2fs", "mkswap", "newfs", "mkntfs", "mkdosfs")
_DISK = "Changes disks or file systems. Leave them to the user and work with files inside the project."

RULES = (
    DenyRule(
        "fill-disk",
        CATEGORY,
        "Writes without end and fills the disk. Set a limit with `head -c` or, for dd, `count=`.",
        _fills,
    ),
    DenyRule("format", CATEGORY, _DISK, _formats),
    DenyRule(
        "disks",
        CATEGORY,
        _DISK,
        (
            "zpool|zfs",
            "btrfs subvolume|filesystem|device delete|remove|resize",
            "debugfs -w",
            "sfdisk|cfdisk|gdisk|sgdisk|cgdisk|wipefs|blkdiscard|badblocks|hdparm|partprobe|tune2fs|resize2fs|e2fsck|fsck"
            "|kpartx|sg_format|nvme",
            "fdisk|parted !-l|--list",
            "lvremove|vgremove|pvremove|lvcreate|vgcreate|pvcreate|lvreduce|mdadm|cryptsetup|dmsetup|swapoff|swapon|losetup"
            "|umount|pivot_root|fusermount|blockdev|lvresize",
            "mount ~*",
            "mount -a|-o|--bind|-t",
            "diskutil erase*|partition*|unmount*|zero*|secureErase|reformat|apfs",
            "grub-install|efibootmgr|update-grub|flashrom|fwupdmgr|bootctl|dracut|update-initramfs",
        ),
    ),
)
